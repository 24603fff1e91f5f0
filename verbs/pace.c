/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: a measured pace is never 0, and no time of one exceeds
 * PERIOD_NS_MAX, so products of a pace and a window's bytes fit.
 */
#include "verbs/pace.h"

#include "base/arena.h"
#include "base/least.h"

#define PERIOD_NS_MAX (1000 * KVPULL_NS_PER_S)

static uint64_t most(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

static enum kvpull_pace_size size_of(uint64_t bytes)
{
	return bytes < KVPULL_PACE_BYTES ? KVPULL_PACE_SMALL :
					   KVPULL_PACE_LARGE;
}

/* Fewer than KVPULL_PACE_BYTES take as long as these: the latency. */
static uint64_t time_of(uint64_t pace_ns, uint64_t bytes)
{
	return pace_ns * (most(bytes, KVPULL_PACE_BYTES) >> 10) >> 6;
}

static uint64_t pace_of(uint64_t took_ns, uint64_t bytes)
{
	return most(kvpull_least(took_ns, PERIOD_NS_MAX) * KVPULL_PACE_BYTES /
			    most(bytes, KVPULL_PACE_BYTES),
		    1);
}

void kvpull_pace_post(struct kvpull_pace *pace, uint32_t open_count,
		      uint64_t now_ns)
{
	if (open_count)
		return;
	pace->since_ns = now_ns;
	pace->done_bytes = 0;
}

/*
 * A quarter of a change counts. A rail that is more than KVPULL_PACE_TURN times
 * as slow as it was is slow at once. One that is as much faster is so by halves:
 * a lossy rail is quick now and then, and a good one is tried again soon.
 */
static void period_end(struct kvpull_pace *pace, uint64_t bytes,
		       uint64_t now_ns)
{
	const enum kvpull_pace_size size = size_of(bytes);
	const uint64_t took_ns = now_ns - pace->since_ns;
	const uint64_t sample_ns = pace_of(took_ns, bytes);
	const uint64_t old_ns = pace->ns[size];

	if (sample_ns > old_ns * KVPULL_PACE_TURN)
		pace->ns[size] = sample_ns;
	else if (sample_ns < old_ns / KVPULL_PACE_TURN)
		pace->ns[size] = old_ns / 2;
	else
		pace->ns[size] = old_ns - old_ns / 4 + (sample_ns + 3) / 4;
	pace->rest_ns[size] =
		now_ns + kvpull_least(KVPULL_PACE_REST_NS_MAX,
				      kvpull_least(took_ns, PERIOD_NS_MAX) *
					      KVPULL_PACE_REST_TIMES);
	pace->since_ns = now_ns;
	pace->done_bytes = 0;
}

void kvpull_pace_done(struct kvpull_pace *pace, uint64_t bytes,
		      uint32_t open_count, uint64_t now_ns)
{
	pace->done_bytes += bytes;
	if (!open_count || pace->done_bytes >= KVPULL_PACE_PERIOD_BYTES)
		period_end(pace, pace->done_bytes, now_ns);
}

void kvpull_pace_lost(struct kvpull_pace *pace, uint64_t open_bytes,
		      uint64_t now_ns)
{
	period_end(pace, pace->done_bytes + open_bytes, now_ns);
}

/* Returns 0 for a rail that is neither measured nor busy. */
static uint64_t pace_now(const struct kvpull_pace_rails *rails, uint32_t index,
			 enum kvpull_pace_size size)
{
	const struct kvpull_pace_rail *rail = &rails->rails[index];
	const struct kvpull_pace *pace = rail->pace;

	if (!rail->open_count || rails->now_ns <= pace->since_ns)
		return pace->ns[size];
	return most(pace->ns[size],
		    pace_of(rails->now_ns - pace->since_ns,
			    pace->done_bytes + rail->open_bytes));
}

/* The least pace of a rail; 1: none was measured, and all are alike. */
static uint64_t pace_best(const struct kvpull_pace_rails *rails,
			  enum kvpull_pace_size size)
{
	uint64_t best_ns = UINT64_MAX;
	uint32_t at;

	for (at = 0; at < rails->count; at++) {
		uint64_t pace_ns;

		if (!rails->rails[at].pace)
			continue;
		pace_ns = pace_now(rails, at, size);
		if (pace_ns)
			best_ns = kvpull_least(best_ns, pace_ns);
	}
	return best_ns == UINT64_MAX ? 1 : best_ns;
}

int kvpull_pace_is_slow(const struct kvpull_pace_rails *rails, uint32_t index,
			uint64_t bytes)
{
	const enum kvpull_pace_size size = size_of(bytes);

	return pace_now(rails, index, size) >
	       KVPULL_PACE_BAND * pace_best(rails, size);
}

/* A rail whose pace is not known, or is old: it has rested long enough. */
static int is_trial(const struct kvpull_pace_rails *rails, uint32_t index,
		    uint64_t bytes)
{
	const enum kvpull_pace_size size = size_of(bytes);
	const struct kvpull_pace_rail *rail = &rails->rails[index];

	return !rail->open_count &&
	       rails->now_ns >= rail->pace->rest_ns[size] &&
	       (!rail->pace->ns[size] ||
		kvpull_pace_is_slow(rails, index, bytes));
}

/*
 * The fast rail with room that has the least in flight, then the fastest, so that
 * the pace of the one that is used is never old; *ends_ns: when the first of the
 * fast rails, full ones too, would finish such a batch.
 */
static uint32_t fast_pick(const struct kvpull_pace_rails *rails, uint64_t bytes,
			  uint64_t *ends_ns)
{
	const enum kvpull_pace_size size = size_of(bytes);
	const uint64_t best_ns = pace_best(rails, size);
	uint64_t picked_bytes = UINT64_MAX;
	uint64_t picked_ns = UINT64_MAX;
	uint32_t picked = KVPULL_NONE;
	uint32_t step;

	for (step = 0; step < rails->count; step++) {
		const uint32_t at = (rails->turn + step) % rails->count;
		const struct kvpull_pace_rail *rail = &rails->rails[at];
		uint64_t pace_ns;

		if (!rail->pace || kvpull_pace_is_slow(rails, at, bytes))
			continue;
		*ends_ns = kvpull_least(
			*ends_ns, time_of(best_ns, rail->open_bytes + bytes));
		pace_ns = pace_now(rails, at, size);
		if (!rail->has_room || rail->open_bytes > picked_bytes ||
		    (rail->open_bytes == picked_bytes && pace_ns >= picked_ns))
			continue;
		picked_bytes = rail->open_bytes;
		picked_ns = pace_ns;
		picked = at;
	}
	return picked;
}

uint32_t kvpull_pace_pick(const struct kvpull_pace_rails *rails, uint64_t bytes)
{
	uint64_t ends_ns = UINT64_MAX;
	uint32_t picked = fast_pick(rails, bytes, &ends_ns);
	uint32_t step;

	for (step = 0; step < rails->count; step++) {
		const uint32_t at = (rails->turn + step) % rails->count;
		const struct kvpull_pace_rail *rail = &rails->rails[at];
		uint64_t ns;

		if (!rail->pace || !rail->has_room)
			continue;
		if (is_trial(rails, at, bytes))
			return at;
		if (!kvpull_pace_is_slow(rails, at, bytes))
			continue;
		ns = time_of(pace_now(rails, at, size_of(bytes)),
			     rail->open_bytes +
				     kvpull_least(bytes, KVPULL_PACE_BYTES));
		if (ns < ends_ns / KVPULL_PACE_BAND) {
			ends_ns = ns * KVPULL_PACE_BAND;
			picked = at;
		}
	}
	return picked;
}

uint64_t kvpull_pace_late_ns(const struct kvpull_pace_rails *rails,
			     uint32_t index)
{
	const struct kvpull_pace_rail *rail = &rails->rails[index];
	uint64_t needs_ns = UINT64_MAX;
	uint64_t bytes;
	uint32_t at;

	if (!rail->pace || !rail->open_count)
		return UINT64_MAX;
	bytes = rail->open_bytes + rail->pace->done_bytes;
	for (at = 0; at < rails->count; at++) {
		const struct kvpull_pace_rail *other = &rails->rails[at];
		uint64_t pace_ns;

		if (at == index || !other->pace || other->open_count)
			continue;
		pace_ns = other->pace->ns[size_of(bytes)];
		if (pace_ns)
			needs_ns =
				kvpull_least(needs_ns, time_of(pace_ns, bytes));
	}
	if (needs_ns == UINT64_MAX)
		return UINT64_MAX;
	return rail->pace->since_ns +
	       most(KVPULL_PACE_LATE_NS, KVPULL_PACE_LATE_TIMES * needs_ns);
}
