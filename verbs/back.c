/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: of a device that is CLOSED nothing is registered, listened to or
 * watched, and its context is NULL; none is opened while another is LOST, so
 * that those of one context leave it before one comes back to it. A poll
 * registers or deregisters one MR of memory at the most: that takes long.
 */
#include "verbs/back.h"

#include "base/clock.h"
#include "verbs/check.h"
#include "verbs/dial.h"
#include "verbs/gpu.h"
#include "verbs/listen.h"
#include "verbs/setup.h"

static uint32_t gone_mask(const struct kvpull_verbs_shared *shared)
{
	uint32_t mask = 0;
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++)
		mask |= (uint32_t)(shared->devices[at].gone !=
				   KVPULL_VERBS_DEVICE_THERE)
			<< at;
	return mask;
}

/* Such as were in use, and are missed. */
static uint32_t lost_mask(const struct kvpull_verbs_shared *shared)
{
	uint32_t mask = gone_mask(shared);
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++)
		if (!shared->devices[at].rank)
			mask &= ~(1u << at);
	return mask;
}

static int is_used(const struct kvpull_verbs_connect *connect, uint32_t device)
{
	uint32_t at;

	for (at = 0; at < kvpull_verbs_connect_ends(connect); at++) {
		const struct kvpull_verbs_end *end =
			kvpull_verbs_connect_end(connect, at);

		if (end->state != KVPULL_VERBS_FREE && end->device == device)
			return 1;
	}
	return 0;
}

int kvpull_verbs_back_leave(struct kvpull_verbs_back *back, uint32_t at)
{
	struct kvpull_verbs_device *device = &back->shared->devices[at];

	kvpull_verbs_connect_hush(back->connect, at);
	kvpull_verbs_gpu_leave(back->reads, at);
	if (kvpull_verbs_regions_deregister(&back->shared->regions[at]) ||
	    kvpull_verbs_regions_deregister(&back->shared->locals[at]) ||
	    kvpull_verbs_regions_deregister(&back->shared->loops[at].regions))
		return 1;
	kvpull_verbs_loop_end(&back->shared->loops[at]);
	kvpull_verbs_check_deregister(back->reads, at);
	kvpull_verbs_watch_leave(back->watch, at);
	kvpull_verbs_device_close(device);
	device->gone = KVPULL_VERBS_DEVICE_CLOSED;
	back->closed_ns[at] = back->shared->now_ns;
	return 0;
}

/*
 * While its address is missing the port often has a lesser GID: it is taken only
 * if it can be reached from other links, and the address stays away.
 */
static uint32_t rank_least(const struct kvpull_verbs_back *back, uint32_t at)
{
	const uint32_t rank = back->shared->devices[at].rank;
	const uint64_t away_ns = back->shared->now_ns - back->closed_ns[at];

	return rank > KVPULL_GID_INFINIBAND && away_ns >= KVPULL_VERBS_MOVE_NS ?
		       KVPULL_GID_INFINIBAND :
		       rank;
}

/*
 * The device is there again: register its memory first. Returns 0, or why not.
 */
static int device_find(const struct kvpull_verbs_back *back, uint32_t at)
{
	struct kvpull_verbs_shared *shared = back->shared;
	int code = kvpull_verbs_setup_again(shared, at, rank_least(back, at));

	/* Not there yet, and that was said when it was lost. */
	if (code)
		return code;
	shared->devices[at].gone = KVPULL_VERBS_DEVICE_RETURNING;
	kvpull_verbs_regions_begin(&shared->regions[at], &shared->devices[at],
				   &back->serve, shared->params.mr_shift);
	kvpull_verbs_regions_begin(&shared->locals[at], &shared->devices[at],
				   &back->locals, shared->params.mr_shift);
	code = kvpull_verbs_regions_grow(&shared->regions[at], &back->serve);
	if (!code)
		code = kvpull_verbs_regions_grow(&shared->locals[at],
						 &back->locals);
	if (code || shared->flush != KVPULL_VERBS_FLUSHES_BY_LOOPS)
		return code;
	return kvpull_verbs_loop_begin(&shared->loops[at], &shared->devices[at],
				       &back->serve, &shared->params);
}

/* All its memory is registered. 0, or why not. */
static int device_use(const struct kvpull_verbs_back *back, uint32_t at)
{
	int code = kvpull_verbs_check_register(back->reads, at);

	if (!code)
		code = kvpull_verbs_loop_connect(&back->shared->loops[at],
						 &back->shared->params);
	if (code)
		return code;
	return kvpull_verbs_watch_device(back->watch, at) ? KVPULL_EDEVICE : 0;
}

/*
 * A device that cannot be used is closed piece by piece, and looked for again
 * later.
 */
static void device_judge(struct kvpull_verbs_back *back, uint32_t at, int code)
{
	struct kvpull_verbs_device *device = &back->shared->devices[at];

	if (!code) {
		device->gone = KVPULL_VERBS_DEVICE_THERE;
		back->failures[at] = 0;
		if (device->is_late)
			kvpull_info(back->shared->log,
				    "verbs: rail %u goes by %s from now on: %s",
				    device->rail, device->choice, device->why);
		else
			kvpull_warn(back->shared->log,
				    "verbs: %s is back: pulls go by it again",
				    device->choice);
		kvpull_verbs_dial_again(back->connect);
		return;
	}
	device->gone = KVPULL_VERBS_DEVICE_LOST;
	back->rest_ns[at] = back->shared->now_ns +
			    (KVPULL_VERBS_BACK_NS << back->failures[at]);
	back->failures[at] += back->failures[at] < KVPULL_VERBS_BACK_SHIFT_MAX;
}

/* A piece of it likewise. Return: 1 if there is more. */
static int device_return(struct kvpull_verbs_back *back, uint32_t at)
{
	struct kvpull_verbs_device *device = &back->shared->devices[at];
	int code = 0;

	if (device->gone == KVPULL_VERBS_DEVICE_CLOSED) {
		if (back->rest_ns[at] > back->shared->now_ns)
			return 0;
		code = device_find(back, at);
		if (device->gone == KVPULL_VERBS_DEVICE_CLOSED)
			return 0;
	}
	if (!code)
		code = kvpull_verbs_regions_register(&back->shared->regions[at],
						     &back->serve);
	if (!code)
		code = kvpull_verbs_regions_register(&back->shared->locals[at],
						     &back->locals);
	if (!code)
		code = kvpull_verbs_regions_register(
			&back->shared->loops[at].regions, &back->serve);
	if (code > 0)
		return 1;
	if (!code)
		code = device_use(back, at);
	device_judge(back, at, code);
	return 0;
}

void kvpull_verbs_back_look(const struct kvpull_verbs_back *back)
{
	const struct kvpull_verbs_shared *shared = back->shared;
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++) {
		if (shared->devices[at].gone)
			continue;
		if (!kvpull_verbs_device_has_address(&shared->devices[at]))
			kvpull_verbs_connect_device_lost(
				back->connect, at, "left without its address");
		else if (kvpull_verbs_device_is_outdone(shared->devices,
							shared->rail_count, at,
							&shared->params))
			kvpull_verbs_connect_device_lost(
				back->connect, at,
				"left for an address that other links reach");
	}
}

/* 0: the rail is in use, by whichever port; else it is looked for later. */
static int rail_open(struct kvpull_verbs_back *back, uint32_t at)
{
	int code;

	while (kvpull_verbs_back_leave(back, at))
		;
	code = device_find(back, at);
	if (!code)
		code = device_use(back, at);
	back->shared->devices[at].is_late = 1;
	device_judge(back, at, code);
	return code;
}

void kvpull_verbs_back_move(struct kvpull_verbs_back *back)
{
	struct kvpull_verbs_shared *shared = back->shared;
	uint32_t at;

	for (at = 0; shared->params.memory_node && at < shared->rail_count;
	     at++) {
		if (shared->devices[at].gone ||
		    !kvpull_verbs_device_is_elsewhere(shared->devices,
						      shared->rail_count, at,
						      &shared->params))
			continue;
		if (!rail_open(back, at))
			continue;
		/* A device of another node is better than none. */
		shared->params.memory_node = 0;
		(void)rail_open(back, at);
	}
}

int kvpull_verbs_back_is_idle(const struct kvpull_verbs_back *back)
{
	const struct kvpull_verbs_shared *shared = back->shared;
	uint32_t at;

	if (back->connect->active_count ||
	    kvpull_verbs_back_due_ns(back) <= shared->now_ns)
		return 0;
	for (at = 0; at < shared->rail_count; at++)
		if (shared->devices[at].gone != KVPULL_VERBS_DEVICE_CLOSED)
			return 0;
	return 1;
}

/* Where one that is there has none. Return: listeners that are missing. */
static uint32_t listeners_make(const struct kvpull_verbs_back *back)
{
	uint32_t missing = 0;
	uint32_t at;

	if (!back->serve.region_count)
		return 0;
	for (at = 0; at < back->shared->rail_count; at++)
		if (!back->shared->devices[at].gone &&
		    !back->connect->listeners[at])
			missing += kvpull_verbs_connect_listen_again(
					   back->connect, at) != 0;
	return missing;
}

void kvpull_verbs_back_run(struct kvpull_verbs_back *back)
{
	struct kvpull_verbs_shared *shared = back->shared;
	uint32_t lost_count = 0;
	uint32_t missing;
	uint32_t at;
	int more = 0;

	if (kvpull_verbs_back_due_ns(back) > shared->now_ns)
		return;
	kvpull_verbs_back_look(back);
	for (at = 0; at < shared->rail_count; at++) {
		if (shared->devices[at].gone != KVPULL_VERBS_DEVICE_LOST)
			continue;
		if (!more && !is_used(back->connect, at))
			more = kvpull_verbs_back_leave(back, at);
		lost_count +=
			shared->devices[at].gone == KVPULL_VERBS_DEVICE_LOST;
	}
	for (at = 0; !lost_count && !more && at < shared->rail_count; at++)
		if (shared->devices[at].gone)
			more = device_return(back, at);
	missing = listeners_make(back);
	back->gone = gone_mask(shared);
	back->due_ns = shared->now_ns + (more ? 0 :
					 missing | lost_mask(shared) ?
						KVPULL_VERBS_BACK_NS :
						KVPULL_VERBS_LOOK_NS);
}

uint64_t kvpull_verbs_back_due_ns(const struct kvpull_verbs_back *back)
{
	/* A device that was lost since the last look is due at once. */
	return gone_mask(back->shared) & ~back->gone ? 0 : back->due_ns;
}
