/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls from another GPU's memory: what peers() says of the way. P's UUID is not that
 * of the fake driver, so that D takes its memory for another GPU's. Each case is a
 * child.
 */
#include "base/device_thread.h"
#include "plugin/progress/progress.h"
#include "plugin/worker/worker_state.h"
#include "tests/unit/device/engines.h"

#include "tests/lib/unit.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

#define SLOWER                                                                 \
	16 /* the clock here: a call takes long where the kernel is emulated C */
#define COUNT 16u /* blocks of a pull */
#define FIRST 32u /* of D's */

/* In the place of libc's: no call of the driver seems to hang. */
int clock_gettime(clockid_t which, struct timespec *now)
{
	const int failed = (int)syscall(SYS_clock_gettime, which, now);

	if (!failed && which == CLOCK_MONOTONIC)
		*now = kvpull_clock_timespec(
			((uint64_t)now->tv_sec * KVPULL_NS_PER_S +
			 (uint64_t)now->tv_nsec) /
			SLOWER);
	return failed;
}

static void apart_open(void)
{
	static const char keys[] = ",\"device\":\"auto\"";

	engines_begin();
	MUST(!engine_open(&p, keys));
	MUST(!engine_open(&d, keys));
	kvpull_device_thread_device(kvpull_progress_device(p.worker->progress))
		->uuid[0] ^= 1;
	MUST(!engine_register(&p, KVPULL_REGION_DEVICE));
	MUST(!engine_register(&d, KVPULL_REGION_DEVICE));
}

/* A pull of right bytes. Its import, in which ways are compared, ends before it. */
static void pulled(struct kvpull_peer_info *peer)
{
	const uint64_t nothing = KVPULL_STREAM_NONE;
	uint32_t at;

	for (at = 0; at < COUNT; at++)
		block_put(&p, at, 1 + at);
	hold(1, COUNT, 0);
	pull(1, FIRST, COUNT);
	step_loads(&nothing);
	for (at = 0; at < COUNT; at++)
		MUST(block_is(&d, FIRST + at, 1 + at));
	MUST(worker_ops->peers(d.worker, peer, 1, sizeof(*peer)) == 1);
}

static void with_a_rate(void)
{
	static const char begins[] = "device: another GPU of this node, ";
	struct kvpull_peer_info peer;
	const char *rate = peer.why + sizeof(begins) - 1;
	char *end;

	apart_open();
	pulled(&peer);
	MUST(!strncmp(peer.why, begins, sizeof(begins) - 1));
	(void)strtod(rate, &end);
	MUST(end > rate && !strcmp(end, " GB/s calibrated"));
	engines_close();
}

/* Ways that the driver does not let compare have no rate. */
static void without_a_rate(void)
{
	struct kvpull_peer_info peer;

	(void)setenv("FAKE_CUDA_REFUSE", "cuLaunchKernel 801", 1);
	apart_open();
	pulled(&peer);
	MUST(!strcmp(peer.why, "device: another GPU of this node"));
	engines_close();
}

UNIT_TEST(rate_from_another_gpu_is_why)
{
	assert_int_equal(end_of(with_a_rate), 0);
	assert_int_equal(end_of(without_a_rate), 0);
}
