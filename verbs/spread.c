/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: a lane is given up for being late only in a poll that found its
 * completion queue empty, so a consumer that slept does not take its own delay
 * for the lane's.
 */
#include "verbs/spread.h"

#include "base/least.h"

/* A peer's lanes, and the memory that they are described in. */
struct view {
	struct kvpull_pace_rails rails;
	struct kvpull_pace_rail each[KVPULL_VERBS_LANES_MAX];
};

/* Batches are a quarter of the window: the next one is posted while three run. */
static uint64_t batch_bytes_max(const struct kvpull_verbs_params *params)
{
	return params->window_bytes / 4;
}

static int has_room(const struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_params *params = &end->shared->params;

	return end->requests_open < params->depth &&
	       end->bytes_open + batch_bytes_max(params) <=
		       params->window_bytes;
}

static void view_init(struct view *view,
		      const struct kvpull_verbs_bundle *bundle, uint32_t stuck)
{
	uint32_t at;

	view->rails = (struct kvpull_pace_rails){
		.now_ns = bundle->shared->now_ns,
		.count = bundle->shared->lane_count,
		.turn = bundle->turn_place,
		.rails = view->each,
	};
	for (at = 0; at < view->rails.count; at++) {
		const struct kvpull_verbs_end *end = &bundle->ends[at];

		view->each[at] = (struct kvpull_pace_rail){
			.pace = end->state == KVPULL_VERBS_IN ? &end->pace :
								NULL,
			.open_bytes = end->bytes_open,
			.open_count = end->requests_open,
			.has_room = has_room(end) && !(stuck >> at & 1),
		};
	}
}

struct kvpull_verbs_end *
kvpull_verbs_spread_pick(const struct kvpull_verbs_bundle *bundle,
			 uint64_t bytes, uint32_t stuck)
{
	struct view view;
	uint32_t at;

	view_init(&view, bundle, stuck);
	at = kvpull_pace_pick(&view.rails, bytes);
	return at == KVPULL_NONE ? NULL : &bundle->ends[at];
}

uint64_t kvpull_verbs_spread_share(const struct kvpull_verbs_bundle *bundle,
				   const struct kvpull_verbs_end *end,
				   uint64_t byte_count)
{
	const uint64_t bytes_max = batch_bytes_max(&bundle->shared->params);
	uint32_t fast = 0;
	struct view view;
	uint64_t bytes;
	uint32_t at;

	if (bundle->shared->lane_count < 2)
		return bytes_max;
	view_init(&view, bundle, 0);
	for (at = 0; at < view.rails.count; at++)
		fast += view.each[at].pace &&
			!kvpull_pace_is_slow(&view.rails, at, byte_count);
	bytes = fast ? byte_count / fast : byte_count;
	if (end && kvpull_pace_is_slow(&view.rails, end->place, byte_count))
		bytes = KVPULL_PACE_BYTES;
	if (bytes < KVPULL_PACE_BYTES)
		bytes = KVPULL_PACE_BYTES;
	return kvpull_least(bytes, bytes_max);
}

void kvpull_verbs_spread_post(struct kvpull_verbs_end *end)
{
	kvpull_pace_post(&end->pace, end->requests_open, end->shared->now_ns);
}

void kvpull_verbs_spread_done(struct kvpull_verbs_end *end, uint64_t bytes)
{
	/* A lane that is given up completes early all that is flushed. */
	if (end->state < KVPULL_VERBS_LOST)
		kvpull_pace_done(&end->pace, bytes, end->requests_open,
				 end->shared->now_ns);
}

void kvpull_verbs_spread_cut(struct kvpull_verbs_bundle *bundle)
{
	const uint64_t now_ns = bundle->shared->now_ns;
	uint32_t at;

	if (bundle->state != KVPULL_BUNDLE_IN)
		return;
	for (at = 0; at < bundle->shared->lane_count; at++) {
		struct kvpull_verbs_end *end = &bundle->ends[at];
		struct view view;

		if (!end->requests_open || end->empty_ns != now_ns)
			continue;
		view_init(&view, bundle, 0);
		if (kvpull_pace_late_ns(&view.rails, at) > now_ns)
			continue;
		kvpull_pace_lost(&end->pace, end->bytes_open, now_ns);
		kvpull_verbs_end_lose(
			end, KVPULL_EPEER,
			"its reads are late, and another queue pair is idle");
	}
}

uint64_t kvpull_verbs_spread_due_ns(const struct kvpull_verbs_bundle *bundle)
{
	uint64_t due_ns = UINT64_MAX;
	struct view view;
	uint32_t at;

	if (bundle->role != KVPULL_VERBS_PEER ||
	    bundle->state != KVPULL_BUNDLE_IN)
		return due_ns;
	view_init(&view, bundle, 0);
	for (at = 0; at < view.rails.count; at++)
		due_ns = kvpull_least(due_ns,
				      kvpull_pace_late_ns(&view.rails, at));
	return due_ns;
}
