/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, engine's thread: the poll.
 *
 * Fixed order, each part bounded: what progress says (consumers come and go,
 * pulls end), every consumer's ring to the tail seen at its start, the sweep
 * (deaths, then expiry), the fence, the reports. So nothing expires that a
 * notification on its way would have renewed, and nothing is reported before
 * it is revoked. No syscall while nothing happens, unless an engine that
 * sleeps asked for event_fd().
 */
#include "base/params.h"
#include "base/probe.h"
#include "plugin/hold/instance.h"
#include "plugin/worker/worker_state.h"

#define ENDS_MAX 256u /* holds taken from the table at once */

/* Records ahead whose holds are fetched: a cache's miss is longer than a note. */
#define FETCH_HOLD 24u
#define FETCH_REST 12u

static void consumer_drop(struct kvpull_worker *worker, uint32_t index)
{
	worker->crowd.notes[index].dropped = 1;
	if (!worker->crowd.notes[index].leaves)
		kvpull_worker_tell(worker, KVPULL_TO_DROP, index, 0);
}

static struct kvpull_join join_of(const struct kvpull_consumer *consumer)
{
	return (struct kvpull_join){ .instance_id = consumer->instance_id,
				     .worker = consumer->incarnation,
				     .rank = consumer->rank,
				     .rank_count = consumer->rank_count };
}

/* A consumer may have to wait for its predecessor's death to be worked off. */
static void consumer_join(struct kvpull_worker *worker, uint32_t index,
			  uint64_t now_ns)
{
	const struct kvpull_consumer *consumer =
		&worker->crowd.consumers[index];
	struct kvpull_consumer_note *note = &worker->crowd.notes[index];
	struct kvpull_join join = join_of(consumer);
	int code;

	code = kvpull_holds_join(worker->holds, &join, now_ns, &note->instance);
	if (!code) {
		note->joined = 1;
		note->joined_ns = note->heard_ns = now_ns;
		kvpull_worker_show_joined(worker, index);
		return;
	}
	if (code == KVPULL_EAGAIN)
		return;
	kvpull_warn(&worker->facts.log,
		    "consumer rank %u of %s refused by the hold table: %s",
		    consumer->rank, consumer->engine_id,
		    code == KVPULL_EFULL ?
			    "raise consumers_max" :
			    "another rank count, or there already");
	consumer_drop(worker, index);
}

/* The records of a batch meet cold holds: fetch those that come next. */
static void notes_take(struct kvpull_worker *worker, uint32_t index,
		       uint32_t count, uint64_t now_ns)
{
	const struct kvpull_consumer *consumer =
		&worker->crowd.consumers[index];
	struct kvpull_ring *ring = consumer->ring;
	struct kvpull_record record;
	uint32_t claims = 0;
	uint32_t releases = 0;
	uint32_t left;

	for (left = count; left > 0; left--) {
		if (left > FETCH_HOLD)
			kvpull_holds_prefetch(
				worker->holds,
				kvpull_ring_peek_slot(ring, FETCH_HOLD));
		if (left > FETCH_REST)
			kvpull_holds_prefetch_rest(
				worker->holds,
				kvpull_ring_peek_slot(ring, FETCH_REST));
		kvpull_ring_pop(ring, &record);
		if (record.kind == KVPULL_NOTE_CLAIM) {
			claims++;
			if (worker->facts.log.level >= KVPULL_LOG_DEBUG)
				kvpull_worker_say_claim(worker, consumer,
							&record);
			KVPULL_PROBE5(claim, record.slot, record.generation,
				      consumer->instance_id, consumer->rank,
				      consumer->pid);
		} else if (record.kind == KVPULL_NOTE_RELEASE) {
			releases++;
			KVPULL_PROBE5(release, record.slot, record.generation,
				      consumer->instance_id, consumer->rank,
				      consumer->pid);
		}
		kvpull_holds_note(worker->holds,
				  worker->crowd.notes[index].instance,
				  consumer->rank, &record, now_ns);
	}
	kvpull_worker_show_notes(&worker->status, index, claims, releases);
}

/*
 * The consumer may come again at once: all are counted, and a line a second is
 * logged.
 */
static void ring_broken(struct kvpull_worker *worker,
			const struct kvpull_consumer *consumer, uint64_t now_ns)
{
	worker->counts.rings_broken++;
	if (!kvpull_second_passed(&worker->said.broken_ns, now_ns))
		return;
	kvpull_error(
		&worker->facts.log,
		"consumer rank %u of %s broke its ring: it is closed (%llu so far)",
		consumer->rank, consumer->engine_id,
		(unsigned long long)worker->counts.rings_broken);
}

/*
 * Drains a consumer's ring, to the tail seen now. The clock is read behind the
 * tail: what a record says was done before the time that the holds and a trace
 * give it, also by a thread that stood still since this poll began.
 */
static uint32_t consumer_drain(struct kvpull_worker *worker, uint32_t index,
			       uint64_t now_ns)
{
	const struct kvpull_consumer *consumer =
		&worker->crowd.consumers[index];
	const int ready = kvpull_ring_ready(consumer->ring);
	struct kvpull_consumer_note *note;
	int beat;

	if (ready < 0) {
		ring_broken(worker, consumer, now_ns);
		consumer_drop(worker, index);
		return 0;
	}
	beat = kvpull_ring_beat_seen(consumer->ring);
	if (!beat && !ready)
		return 0;
	if (ready) {
		now_ns = kvpull_facts_now(&worker->facts);
		kvpull_holds_stamp(worker->holds, now_ns,
				   kvpull_worker_stopped(worker, now_ns));
	}
	note = &worker->crowd.notes[index];
	if (beat)
		kvpull_holds_beat(worker->holds, note->instance, consumer->rank,
				  now_ns);
	note->heard_ns = now_ns;
	kvpull_worker_show_heard(&worker->status, index, now_ns);
	if (!ready)
		return 0;
	notes_take(worker, index, (uint32_t)ready, now_ns);
	kvpull_ring_pop_end(consumer->ring);
	return (uint32_t)ready;
}

/*
 * A new consumer's ring is drained before its siblings' in this poll, so that its
 * claims count before their releases. Return: what was done; 1 also if it has to
 * wait, since its ring wakes nobody until it is in.
 */
static uint32_t consumer_enter(struct kvpull_worker *worker, uint32_t index,
			       uint64_t now_ns)
{
	const struct kvpull_consumer_note *note = &worker->crowd.notes[index];

	consumer_join(worker, index, now_ns);
	if (note->joined)
		return consumer_drain(worker, index, now_ns);
	if (!note->dropped)
		worker->crowd.waits = 1;
	return !note->dropped;
}

static void consumer_up(struct kvpull_worker *worker, uint32_t index,
			uint64_t now_ns)
{
	kvpull_crowd_add(&worker->crowd, index);
	(void)consumer_enter(worker, index, now_ns);
}

static void consumer_lost(struct kvpull_worker *worker, uint32_t index,
			  uint64_t now_ns)
{
	const struct kvpull_consumer *consumer =
		&worker->crowd.consumers[index];
	const struct kvpull_consumer_note *note = &worker->crowd.notes[index];
	const struct kvpull_join join = join_of(consumer);
	/* A consumer that makes room did not say so itself, and lives. */
	const struct kvpull_record away = { .kind = KVPULL_NOTE_AWAY };

	if (note->leaves)
		kvpull_holds_note(worker->holds, note->instance, consumer->rank,
				  &away, now_ns);
	if (note->joined && consumer->is_remote)
		kvpull_holds_lose(worker->holds, note->instance, consumer->rank,
				  now_ns);
	else if (note->joined)
		kvpull_holds_leave(worker->holds, note->instance,
				   consumer->rank, now_ns);
	else if (!note->dropped)
		kvpull_holds_call_lost(worker->holds, &join);
}

static void consumer_down(struct kvpull_worker *worker, uint32_t index,
			  uint64_t now_ns)
{
	const struct kvpull_consumer_note *note = &worker->crowd.notes[index];

	if (!note->joined && !note->dropped)
		consumer_join(worker, index, now_ns);
	if (kvpull_crowd_is_in(&worker->crowd, index))
		(void)consumer_drain(worker, index, now_ns);
	consumer_lost(worker, index, now_ns);
	kvpull_crowd_remove(&worker->crowd, index);
	kvpull_worker_tell(worker, KVPULL_TO_FORGET, index, 0);
}

static void claim_free(struct kvpull_worker *worker, uint32_t index)
{
	struct kvpull_claim_order *order = &worker->handover.claims[index];

	kvpull_map_remove(&worker->claims.map, order->serial);
	order->serial = 0;
	kvpull_index_pool_give(&worker->claims.pool, index);
}

/*
 * Marks are taken before the consumers' rings are drained, and judged after: a
 * claim that was said before a mark counts.
 */
static void given_take(struct kvpull_worker *worker)
{
	struct kvpull_given *given = &worker->handover.given;
	uint64_t generation;
	uint32_t slot = 0;

	kvpull_given_begin(given);
	while (kvpull_given_next(given, &slot, &generation))
		kvpull_holds_give(worker->holds, slot, generation);
}

static uint32_t progress_drain(struct kvpull_worker *worker, uint64_t now_ns)
{
	struct kvpull_record record;
	const int ready = kvpull_ring_ready(&worker->end.reader);
	int left;

	kvpull_check(&worker->facts.log, ready >= 0);
	for (left = ready; left > 0; left--) {
		kvpull_ring_pop(&worker->end.reader, &record);
		switch (record.kind) {
		case KVPULL_FROM_CONSUMER_UP:
			consumer_up(worker, record.slot, now_ns);
			break;
		case KVPULL_FROM_CONSUMER_DOWN:
			consumer_down(worker, record.slot, now_ns);
			break;
		case KVPULL_FROM_PULL:
			kvpull_pulls_add(&worker->pulls, &worker->pulls.ended,
					 record.slot);
			break;
		case KVPULL_FROM_CLAIM:
			claim_free(worker, record.slot);
			break;
		case KVPULL_FROM_ROOM:
			atomic_store_explicit(&worker->handover.room_asked, 0,
					      memory_order_relaxed);
			worker->crowd.wanted = record.slot;
			break;
		case KVPULL_FROM_GIVEN:
			given_take(worker);
			break;
		default:
			kvpull_check(&worker->facts.log, 0 && "unknown record");
		}
	}
	if (ready)
		kvpull_ring_pop_end(&worker->end.reader);
	return (uint32_t)ready;
}

static uint32_t consumers_drain(struct kvpull_worker *worker, uint64_t now_ns)
{
	struct kvpull_crowd *crowd = &worker->crowd;
	/* Both tables stay where they are; the number of consumers may change. */
	const struct kvpull_consumer_note *notes = crowd->notes;
	const uint32_t *active = crowd->active;
	uint32_t drained = 0;
	uint32_t at;

	if (crowd->waits) {
		crowd->waits = 0;
		for (at = 0; at < crowd->active_count; at++)
			if (!notes[active[at]].joined &&
			    !notes[active[at]].dropped)
				drained += consumer_enter(worker, active[at],
							  now_ns);
	}
	for (at = 0; at < crowd->active_count; at++)
		if (notes[active[at]].joined && !notes[active[at]].dropped)
			drained += consumer_drain(worker, active[at], now_ns);
	return drained;
}

/* A new consumer lacks places: those without a claim are closed for it. */
static void room_make(struct kvpull_worker *worker, uint64_t now_ns)
{
	struct kvpull_crowd *crowd = &worker->crowd;
	const uint32_t leaving = kvpull_crowd_choose(crowd, now_ns);
	uint32_t at;

	for (at = 0; leaving && at < crowd->active_count; at++)
		if (crowd->notes[crowd->active[at]].leaves)
			kvpull_worker_tell(worker, KVPULL_TO_DROP,
					   crowd->active[at], 0);
	if (leaving && kvpull_second_passed(&worker->said.room_ns, now_ns))
		kvpull_warn(
			&worker->facts.log,
			"%u consumer ranks without a claim make room for a new one: raise consumers_max (%u)",
			leaving, worker->facts.config.consumers_max);
}

/* Where a poll tells: the caller's array, of elements of its own size. */
struct record_sink {
	uint8_t *next;
	size_t record_bytes;
	uint32_t room;
	uint32_t count;
	uint32_t sent; /* of them: holds that ended */
};

static void record_put(struct record_sink *sink,
		       const struct kvpull_poll_record *record)
{
	if (sink->record_bytes == sizeof(*record))
		memcpy(sink->next, record, sizeof(*record));
	else
		kvpull_element_give(sink->next, sink->record_bytes, record,
				    sizeof(*record));
	sink->next += sink->record_bytes;
	sink->room--;
	sink->count++;
}

/* A pull's end, for the scheduler half as for the caller. */
static void pull_end_result(struct kvpull_worker_results *results,
			    const struct kvpull_poll_record *record)
{
	const struct kvpull_worker_result outcome = {
		.key = record->key,
		.bytes = record->bytes,
		.kind = KVPULL_RESULT_PULL_ENDED,
		.reason = record->reason,
	};

	kvpull_results_add(results, &outcome);
}

/* After a pull's command; 0: it did not come so far. */
static uint64_t after(uint64_t at_ns, uint64_t started_ns)
{
	return at_ns ? at_ns - started_ns : 0;
}

static void pull_report(struct kvpull_worker *worker, uint32_t index,
			struct record_sink *sink)
{
	struct kvpull_worker_pulls *pulls = &worker->pulls;
	const struct kvpull_pull_order *order = &worker->handover.pulls[index];
	const struct kvpull_pull_outcome *outcome =
		&worker->handover.outcomes[index];
	const struct kvpull_pull_phases *phases = &outcome->phases;
	const struct kvpull_poll_record record = {
		.key = order->key,
		.kind = outcome->code ? KVPULL_POLL_FAILED : KVPULL_POLL_LOADED,
		.reason = outcome->code,
		.bytes = outcome->code ? 0 : outcome->bytes,
		.took_ns = outcome->ended_ns - order->started_ns,
		.begun_ns = after(phases->begun_ns, order->started_ns),
		.connected_ns = after(phases->connected_ns, order->started_ns),
		.asked_ns = after(phases->asked_ns, order->started_ns),
		.came_ns = after(phases->came_ns, order->started_ns),
	};

	kvpull_worker_pull_unmark(worker, index);
	KVPULL_PROBE5(pull_end, record.key, record.reason, record.bytes,
		      record.took_ns, record.asked_ns);
	record_put(sink, &record);
	pull_end_result(&worker->results, &record);
	kvpull_map_remove(&pulls->map, order->key);
	if (!outcome->code) {
		worker->counts.pulls_done++;
		worker->counts.bytes_pulled += outcome->bytes;
		kvpull_index_pool_give(&pulls->pool, index);
		return;
	}
	worker->counts.pulls_failed++;
	worker->counts.pulls_expired += outcome->code == KVPULL_EEXPIRED;
	pulls->notes[index].next = pulls->failed;
	pulls->failed = index;
}

static void pulls_report(struct kvpull_worker *worker, struct record_sink *sink)
{
	struct kvpull_worker_results *results = &worker->results;
	struct kvpull_worker_pulls *pulls = &worker->pulls;

	while (pulls->ended.first != KVPULL_NONE && sink->room &&
	       kvpull_results_room(results))
		pull_report(worker, kvpull_pulls_take(pulls, &pulls->ended),
			    sink);
	while (pulls->refused_count && sink->room &&
	       kvpull_results_room(results)) {
		const struct kvpull_refused *refused =
			&pulls->refused[pulls->refused_first];
		const struct kvpull_poll_record record = {
			.key = refused->key,
			.kind = KVPULL_POLL_FAILED,
			.reason = refused->reason,
		};

		record_put(sink, &record);
		pull_end_result(results, &record);
		pulls->refused_first =
			(pulls->refused_first + 1) % pulls->refused_max;
		pulls->refused_count--;
	}
}

static void holds_report(struct kvpull_worker *worker, struct record_sink *sink)
{
	const uint32_t room = kvpull_results_room(&worker->results);
	struct kvpull_hold_end ends[ENDS_MAX];
	uint32_t count = sink->room < ENDS_MAX ? sink->room : ENDS_MAX;
	uint32_t index;

	count = kvpull_holds_report(worker->holds, ends,
				    count < room ? count : room);
	for (index = 0; index < count; index++) {
		const struct kvpull_worker_result outcome = {
			.key = ends[index].key,
			.generation = ends[index].generation,
			.kind = KVPULL_RESULT_HOLD_ENDED,
			.slot = ends[index].slot,
			.reason = ends[index].reason,
		};
		const struct kvpull_poll_record record = {
			.key = ends[index].key,
			.kind = KVPULL_POLL_SENT,
			.reason = ends[index].reason,
		};

		record_put(sink, &record);
		kvpull_results_add(&worker->results, &outcome);
		if (ends[index].reason == KVPULL_END_EXPIRED)
			kvpull_worker_show_expired(worker, &ends[index]);
		if (ends[index].reason == KVPULL_END_GIVEN_BACK)
			kvpull_worker_show_given(worker, &ends[index]);
	}
	sink->sent += count;
}

/* The engine forgot start_loads(): what is too late is begun to be ended. */
static void pulls_expire(struct kvpull_worker *worker, uint64_t now_ns)
{
	struct kvpull_pull_order *orders = worker->handover.pulls;
	struct kvpull_worker_pulls *pulls = &worker->pulls;

	while (pulls->start.first != KVPULL_NONE &&
	       now_ns >= orders[pulls->start.first].deadline_ns) {
		const uint32_t index = kvpull_pulls_take(pulls, &pulls->start);

		orders[index].unstarted = 1;
		kvpull_pull_hand_over(worker, index);
	}
}

/* *worked: what was done. Return: small pulls that were done. */
static uint32_t poll_once(struct kvpull_worker *worker, uint64_t now_ns,
			  struct record_sink *sink, uint32_t *worked)
{
	/* First, so that progress says their releases in this poll. */
	const uint32_t small = kvpull_small_run(worker, now_ns);

	*worked += small;
	kvpull_worker_device_look(worker);
	*worked += kvpull_worker_marks_run(worker);
	pulls_expire(worker, now_ns);
	if (worker->facts.config.progress == KVPULL_PROGRESS_CALLER)
		*worked +=
			(uint32_t)kvpull_progress_run(worker->progress, now_ns);
	kvpull_holds_tick(worker->holds, now_ns,
			  kvpull_worker_stopped(worker, now_ns));
	*worked += progress_drain(worker, now_ns);
	*worked += consumers_drain(worker, now_ns);
	room_make(worker, now_ns);
	*worked += (uint32_t)kvpull_holds_sweep(worker->holds, now_ns);
	kvpull_holds_publish(worker->holds);
	pulls_report(worker, sink);
	holds_report(worker, sink);
	return small;
}

/* 1: more is there than this poll told. */
static uint32_t more_is_due(const struct kvpull_worker *worker,
			    const struct record_sink *sink)
{
	return !sink->room || sink->count >= ENDS_MAX ||
	       worker->small.turns.arrival.count || worker->wake_due;
}

/*
 * A poll that had nothing else to do: what polls again and again for a pull's
 * end brings that end nearer. Who sleeps meanwhile has other things to do.
 */
static uint32_t pulls_help(const struct kvpull_worker *worker)
{
	return worker->pulls.map.count && worker->wakeup.fd < 0 &&
	       worker->facts.config.inline_bytes &&
	       worker->facts.config.progress == KVPULL_PROGRESS_THREAD &&
	       kvpull_progress_help(worker->progress) > 0;
}

int kvpull_worker_poll(struct kvpull_worker *worker,
		       struct kvpull_poll_record *records, uint32_t capacity,
		       size_t record_bytes)
{
	struct record_sink sink = { (uint8_t *)records, record_bytes, capacity,
				    0, 0 };
	const uint64_t now_ns = kvpull_facts_now(&worker->facts);
	uint32_t worked = 0;
	uint32_t small;
	uint64_t took_ns;

	kvpull_status_ran(&worker->status.engine, now_ns);
	kvpull_pulls_free_failed(&worker->pulls);
	small = poll_once(worker, now_ns, &sink, &worked);
	/* Records are returned first; the next poll does the rest. */
	if (worker->wakeup.fd >= 0 && (sink.count || !capacity)) {
		kvpull_sleep_told(worker, more_is_due(worker, &sink));
	} else if (worker->wakeup.fd >= 0) {
		if (kvpull_sleep_arm(worker)) {
			small += poll_once(worker, now_ns, &sink, &worked);
			/*
			 * The second run may have disarmed what the first one
			 * armed.
			 */
			worked++;
		}
		kvpull_sleep_ready(worker, worked);
	}
	if (!small)
		kvpull_worker_wake_all(worker);
	if (!worked && !sink.count)
		worked = pulls_help(worker);
	if (worked || sink.count) {
		took_ns = kvpull_facts_now(&worker->facts) - now_ns;
		if (took_ns > worker->counts.poll_ns_max)
			worker->counts.poll_ns_max = took_ns;
		kvpull_worker_show_poll(worker, took_ns, sink.sent);
	}
	return (int)sink.count;
}

int kvpull_worker_progress(struct kvpull_worker *worker)
{
	const int worked = kvpull_progress_run(
		worker->progress, kvpull_facts_now(&worker->facts));

	/* A doorbell means records to read: a poll has their outcome. */
	if (worked)
		kvpull_wakeup_keep(&worker->wakeup);
	return worked;
}

int kvpull_worker_failed_blocks(struct kvpull_worker *worker, uint64_t key,
				uint32_t *blocks, uint32_t capacity,
				uint32_t *block_count)
{
	const struct kvpull_pull_order *orders = worker->handover.pulls;
	uint32_t index = worker->pulls.failed;
	uint32_t count;

	while (index != KVPULL_NONE && orders[index].key != key)
		index = worker->pulls.notes[index].next;
	if (index == KVPULL_NONE)
		return KVPULL_ENOKEY;
	count = orders[index].group_first[KVPULL_GROUPS_MAX];
	*block_count = count;
	if (count > capacity)
		return KVPULL_ETOOSMALL;
	memcpy(blocks, orders[index].local_ids, count * sizeof(*blocks));
	return 0;
}

int kvpull_worker_hold_ready(struct kvpull_worker *worker, uint64_t key)
{
	return kvpull_holds_ready(worker->holds, key);
}

int kvpull_worker_revoke_all(struct kvpull_worker *worker, int32_t reason)
{
	const uint32_t ended = kvpull_holds_revoke_all(worker->holds, reason);

	if (ended)
		kvpull_wakeup_keep(&worker->wakeup);
	return (int)ended;
}
