/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: notes_posted <= note_count <= notify_credits, and what is posted
 * by the first lane and not acknowledged is the oldest of what is kept; a
 * bundle that is MEETING has one lane at most that is not lost.
 */
#include "verbs/bundle.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/cause.h"
#include "base/wrap.h"
#include "verbs/pair.h"

static void bundle_clear(struct kvpull_verbs_bundle *bundle)
{
	const size_t at = offsetof(struct kvpull_verbs_bundle, state);
	uint32_t place;

	for (place = 0; place < bundle->shared->lane_count; place++) {
		struct kvpull_verbs_end *end = &bundle->ends[place];

		end->attempts = 0;
		end->retry_ns = end->in_ns = 0;
		end->pace = (struct kvpull_pace){ 0 };
	}
	memset((uint8_t *)bundle + at, 0, sizeof(*bundle) - at);
	bundle->note_number = bundle->note_next = KVPULL_WRAP_START;
}

int kvpull_verbs_bundle_init(struct kvpull_verbs_bundle *bundle,
			     struct kvpull_arena *arena)
{
	const struct kvpull_verbs_shared *shared = bundle->shared;
	uint32_t place;

	if (bundle->role == KVPULL_VERBS_PEER)
		KVPULL_ARENA_TAKE(arena, bundle->notes,
				  shared->params.notify_credits);
	else
		bundle->ring_memory = kvpull_arena_take(
			arena, 1,
			kvpull_ring_bytes(shared->params.ring_records));
	bundle_clear(bundle);
	for (place = 0; place < shared->lane_count; place++) {
		struct kvpull_verbs_end *end = &bundle->ends[place];
		int code;

		end->shared = bundle->shared;
		end->bundle = bundle;
		end->role = bundle->role;
		end->index = bundle->index;
		end->place = place;
		end->rail = place % shared->rail_count;
		end->lane = place / shared->rail_count;
		code = kvpull_verbs_end_init(end, arena);
		if (code)
			return code;
	}
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

void kvpull_verbs_bundle_unmake(struct kvpull_verbs_bundle *bundle)
{
	uint32_t place;

	for (place = 0; place < bundle->shared->lane_count; place++)
		if (bundle->ends[place].state != KVPULL_VERBS_FREE)
			kvpull_verbs_end_unmake(&bundle->ends[place]);
	bundle_clear(bundle);
}

void kvpull_verbs_bundle_lose(struct kvpull_verbs_bundle *bundle, int code,
			      const char *why)
{
	uint32_t place;

	if (bundle->state != KVPULL_BUNDLE_MEETING &&
	    bundle->state != KVPULL_BUNDLE_IN)
		return;
	bundle->state = KVPULL_BUNDLE_ENDING;
	bundle->code = code;
	for (place = 0; place < bundle->shared->lane_count; place++)
		kvpull_verbs_end_lose(&bundle->ends[place], code, why);
}

static uint32_t notes_acked(const struct kvpull_verbs_bundle *bundle)
{
	return bundle->note_posted -
	       kvpull_verbs_bundle_first(bundle)->note_open;
}

/* Forget those that the first lane's other side has taken. */
static void notes_drop(struct kvpull_verbs_bundle *bundle)
{
	const uint32_t acked = notes_acked(bundle);

	bundle->note_at = (bundle->note_at + acked) %
			  bundle->shared->params.notify_credits;
	bundle->note_number += acked;
	bundle->note_count -= acked;
	bundle->note_posted -= acked;
}

int kvpull_verbs_bundle_turn(struct kvpull_verbs_bundle *bundle)
{
	char name[KVPULL_VERBS_LANE_BYTES];
	uint32_t place;

	if (kvpull_verbs_bundle_first(bundle)->state == KVPULL_VERBS_IN)
		return 0;
	for (place = 0; place < bundle->shared->lane_count; place++) {
		struct kvpull_verbs_end *end = &bundle->ends[place];

		if (end->state != KVPULL_VERBS_IN)
			continue;
		notes_drop(bundle);
		bundle->note_posted = 0;
		bundle->first = place;
		/*
		 * The last heartbeat may have been lost with the old lane: send
		 * one on the new lane.
		 */
		end->beat_wanted = bundle->role == KVPULL_VERBS_PEER;
		if (bundle->role == KVPULL_VERBS_PEER)
			kvpull_info(bundle->shared->log,
				    "peer %s: notifications go by %s now",
				    end->name,
				    kvpull_verbs_lane_print(end->rail,
							    end->lane, name));
		return 0;
	}
	return KVPULL_EPEER;
}

int kvpull_verbs_bundle_has_other(const struct kvpull_verbs_bundle *bundle,
				  uint32_t device)
{
	uint32_t place;

	if (bundle->state != KVPULL_BUNDLE_IN)
		return 0;
	for (place = 0; place < bundle->shared->lane_count; place++)
		if (bundle->ends[place].state == KVPULL_VERBS_IN &&
		    bundle->ends[place].device != device)
			return 1;
	return 0;
}

int kvpull_verbs_bundle_is_in(const struct kvpull_verbs_bundle *bundle)
{
	return kvpull_verbs_bundle_has_other(bundle, KVPULL_NONE);
}

int kvpull_verbs_bundle_is_quiet(const struct kvpull_verbs_bundle *bundle)
{
	uint32_t place;

	if (bundle->state != KVPULL_BUNDLE_ENDING)
		return 0;
	for (place = 0; place < bundle->shared->lane_count; place++)
		if (bundle->ends[place].state != KVPULL_VERBS_FREE &&
		    bundle->ends[place].state != KVPULL_VERBS_QUIET)
			return 0;
	return 1;
}

int kvpull_verbs_bundle_open(const struct kvpull_verbs_bundle *bundle,
			     struct kvpull_verbs_end *end)
{
	uint8_t bytes[KVPULL_KEYS_BYTES_MAX];
	struct kvpull_keys *keys = &bundle->shared->regions[end->device].keys;
	int code;

	/* Access is given last, so that a caller that is refused never had it. */
	memcpy(keys->token, bundle->token, sizeof(keys->token));
	keys->qps = bundle->shared->params.qps;
	code = kvpull_verbs_end_say(end, &end->keys_out, bytes,
				    kvpull_keys_put(bytes, keys));
	return code ? code : kvpull_verbs_pair_open(end);
}

void kvpull_verbs_bundle_draw(struct kvpull_verbs_bundle *bundle)
{
	if (bundle->shared->lane_count < 2)
		return;
	if (getrandom(bundle->token, sizeof(bundle->token), 0) ==
	    (ssize_t)sizeof(bundle->token))
		return;
	bundle->token[0] = bundle->token[1] = 0;
	kvpull_warn(bundle->shared->log,
		    "verbs: one queue pair only: no token: %s",
		    kvpull_why(OTHER, errno));
}

int kvpull_verbs_bundle_knows(const struct kvpull_verbs_bundle *bundle,
			      const uint64_t token[2])
{
	/* In one go: how long it takes tells nothing of the token. */
	const uint64_t differ =
		(bundle->token[0] ^ token[0]) | (bundle->token[1] ^ token[1]);

	return bundle->state == KVPULL_BUNDLE_IN &&
	       (bundle->token[0] | bundle->token[1]) && !differ;
}

void kvpull_verbs_bundle_keys(struct kvpull_verbs_bundle *bundle,
			      struct kvpull_verbs_end *end)
{
	char name[KVPULL_VERBS_LANE_BYTES];

	if (bundle->state != KVPULL_BUNDLE_IN)
		return;
	if (!kvpull_keys_alike(&end->keys,
			       &kvpull_verbs_bundle_first(bundle)->keys)) {
		kvpull_verbs_bundle_lose(
			bundle, KVPULL_EPEER,
			"one of its queue pairs leads to other memory");
		return;
	}
	end->state = KVPULL_VERBS_IN;
	end->in_ns = bundle->shared->now_ns;
	kvpull_info(bundle->shared->log, "peer %s: %s is up", end->name,
		    kvpull_verbs_lane_print(end->rail, end->lane, name));
}

/* Returns the nth of the notifications that are kept. */
static struct kvpull_record *note_at(const struct kvpull_verbs_bundle *bundle,
				     uint32_t index)
{
	return &bundle->notes[(bundle->note_at + index) %
			      bundle->shared->params.notify_credits];
}

int kvpull_verbs_bundle_note(struct kvpull_verbs_bundle *bundle,
			     const struct kvpull_record *record)
{
	struct kvpull_verbs_end *end = kvpull_verbs_bundle_first(bundle);

	if (end->state != KVPULL_VERBS_IN)
		return KVPULL_EAGAIN;
	notes_drop(bundle);
	/* Notifications that wait already go first. */
	if (bundle->note_posted != bundle->note_count ||
	    bundle->note_count == bundle->shared->params.notify_credits ||
	    kvpull_verbs_end_note(end, record,
				  bundle->note_number + bundle->note_count))
		return KVPULL_EAGAIN;
	*note_at(bundle, bundle->note_count) = *record;
	bundle->note_count++;
	bundle->note_posted++;
	return 0;
}

uint32_t
kvpull_verbs_bundle_notes_open(const struct kvpull_verbs_bundle *bundle)
{
	return bundle->note_count - notes_acked(bundle);
}

void kvpull_verbs_bundle_notes_pump(struct kvpull_verbs_bundle *bundle)
{
	struct kvpull_verbs_end *end = kvpull_verbs_bundle_first(bundle);

	while (bundle->note_posted != bundle->note_count &&
	       end->state == KVPULL_VERBS_IN) {
		if (kvpull_verbs_end_note(
			    end, note_at(bundle, bundle->note_posted),
			    bundle->note_number + bundle->note_posted))
			return;
		bundle->note_posted++;
	}
}
