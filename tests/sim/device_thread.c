/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's thread as the library has it, but that no thread is started: what
 * it does between two waits are steps, which the world makes.
 */
#include "base/thread.h"
#include "tests/sim/device.h"

static int thread_begin(pthread_t *id, const char *name, void *(*run)(void *),
			void *argument);

#define kvpull_thread_start thread_begin
#define pthread_join(thread, value) 0
/* NOLINTNEXTLINE(bugprone-suspicious-include): without a thread, see above. */
#include "base/device_thread.c"

static int thread_begin(pthread_t *id, const char *name, void *(*run)(void *),
			void *argument)
{
	struct kvpull_device_thread *thread = argument;

	(void)id;
	(void)name;
	(void)run;
	thread->open_code = device_open(thread);
	phase_set(thread, thread->open_code ? ENDED : SERVING);
	return 0;
}

int sim_thread_step(struct kvpull_device_thread *thread, uint64_t slice_bytes,
		    uint64_t now_ns)
{
	/* The slice counts as what the device copies in a millisecond. */
	thread->feed.slice_bytes = slice_bytes;
	return kvpull_device_feed_step(&thread->feed, now_ns) ==
	       KVPULL_DEVICE_AGAIN;
}

void sim_thread_end(struct kvpull_device_thread *thread, uint32_t is_gone,
		    uint64_t now_ns)
{
	struct kvpull_device_feed *const feed = &thread->feed;

	/* Nothing is queued on a device that went with its process. */
	if (is_gone)
		feed->slice_count = 0;
	while (feed->slice_count && kvpull_device_feed_see(feed, now_ns))
		;
	thread->is_left = (uint32_t)kvpull_device_feed_close(feed, now_ns);
	phase_set(thread, ENDED);
}
