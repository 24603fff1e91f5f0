/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: a read with batch_open > 0 may still be written to by a device,
 * or has parts that no lane has read yet, so it is neither ended nor checked;
 * it is among its peer's turns exactly while something of it is to be posted for
 * the first time; a bundle's redo_open counts the batches that wait in its lost
 * lanes; its reads_open counts its reads that the owner was not told the end
 * of.
 *
 * An entry is read into a place that says "revoked" until a device has written
 * it. It is posted, by a work request of its own in a chain of them, only after the owner was told that all the data came (by all
 * lanes, of all peers of the pull), and judged after its own completion.
 */
#include "verbs/read.h"

#include "base/least.h"
#include "verbs/check.h"
#include "verbs/fill.h"
#include "verbs/gpu.h"
#include "verbs/spread.h"

_Static_assert(KVPULL_VERBS_LANES_MAX <= 32, "a word has a bit for each lane");

static struct kvpull_verbs_read *read_at(const struct kvpull_verbs_reads *reads,
					 uint32_t index)
{
	kvpull_check(reads->shared->log,
		     index < reads->shared->params.reads_max);
	return &reads->reads[index];
}

static void turn_push(const struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_bundle *bundle, uint32_t index)
{
	kvpull_turns_push(&bundle->turns, index,
			  read_at(reads, index)->read->priority);
}

static uint32_t turn_pop(struct kvpull_verbs_bundle *bundle)
{
	const uint32_t index = kvpull_turns_next(&bundle->turns);

	kvpull_turns_remove(&bundle->turns, index);
	kvpull_turns_give(&bundle->turns);
	return index;
}

/* Something of it is to be posted for the first time. */
static int is_in_turn(const struct kvpull_verbs_reads *reads, uint32_t index)
{
	return reads->turns.arrival.links[index].linked != 0;
}

static void read_end(struct kvpull_verbs_reads *reads,
		     struct kvpull_verbs_read *own, int32_t code)
{
	kvpull_check(reads->shared->log,
		     !own->batch_open && !own->job_open && !own->flushes.open);
	/* Bytes that have not come are not checked, so no flush is owed. */
	if (code)
		own->flushes = (struct kvpull_verbs_flushes){ 0 };
	own->code = code;
	own->next = reads->ended;
	reads->ended = own->read->index;
	own->is_check = own->state == KVPULL_VERBS_READ_CHECK;
	own->state = KVPULL_VERBS_READ_ENDED;
}

/* Why no read can start; EABORTED: it can go on over the next connection. */
static int lost_code(const struct kvpull_verbs_bundle *bundle)
{
	return bundle->code == KVPULL_EABORTED ? KVPULL_EABORTED : KVPULL_EPEER;
}

/*
 * Takes the read's place, in this state; nothing waits or is posted yet. 0, or
 * why not.
 */
static int read_begin(struct kvpull_verbs_reads *reads, uint32_t peer,
		      struct kvpull_read *read,
		      enum kvpull_verbs_read_state state)
{
	struct kvpull_verbs_read *own = read_at(reads, read->index);

	kvpull_check(reads->shared->log, own->state == KVPULL_VERBS_READ_IDLE);
	if (!kvpull_verbs_bundle_is_in(&reads->peers[peer]))
		return lost_code(&reads->peers[peer]);
	*own = (struct kvpull_verbs_read){
		.read = read, .reads = reads, .state = state, .peer = peer
	};
	return 0;
}

static void read_post(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_bundle *bundle, uint32_t index)
{
	turn_push(reads, bundle, index);
	kvpull_verbs_reads_pump(reads, bundle);
}

/* Bytes that came by an earlier connection were not flushed: all are read again. */
static uint64_t bytes_kept(const struct kvpull_verbs_reads *reads,
			   const struct kvpull_read *read)
{
	return reads->shared->is_gpu ? 0 : read->done_bytes;
}

int kvpull_verbs_read_start(struct kvpull_verbs_reads *reads, uint32_t peer,
			    struct kvpull_read *read)
{
	struct kvpull_verbs_read *own = read_at(reads, read->index);
	int code = read_begin(reads, peer, read, KVPULL_VERBS_READ_DATA);

	if (code)
		return code;
	kvpull_cursor_seek(&own->cursor, read, bytes_kept(reads, read));
	if (kvpull_cursor_is_done(&own->cursor, read)) {
		own->state = KVPULL_VERBS_READ_IDLE;
		return 1;
	}
	code = kvpull_verbs_gpu_mark(reads, own);
	if (code < 0) {
		own->state = KVPULL_VERBS_READ_IDLE;
		return code;
	}
	reads->peers[peer].reads_open++;
	if (code)
		read_post(reads, &reads->peers[peer], read->index);
	else
		own->state = KVPULL_VERBS_READ_MARK;
	return 0;
}

/* Why a read that was cancelled ends. */
static int cancel_code(const struct kvpull_verbs_read *own)
{
	return own->lost ? own->lost : KVPULL_EABORTED;
}

static void read_begun(struct kvpull_verbs_reads *reads,
		       struct kvpull_verbs_read *own, int code)
{
	if (own->cancelled)
		code = cancel_code(own);
	if (code) {
		read_end(reads, own, code);
		return;
	}
	own->state = KVPULL_VERBS_READ_DATA;
	read_post(reads, &reads->peers[own->peer], own->read->index);
}

/* A batch that waits in a lost lane, and is not wanted any more. */
static void batch_drop(struct kvpull_verbs_reads *reads,
		       struct kvpull_verbs_batch *batch)
{
	struct kvpull_verbs_read *own = read_at(reads, batch->read);

	batch->kind = KVPULL_VERBS_SEND;
	own->dropped = 1;
	kvpull_check(reads->shared->log, own->batch_open > 0);
	own->batch_open--;
}

/* Nothing of it is left to be posted for the first time. */
static int is_posted(const struct kvpull_verbs_read *own)
{
	return own->state == KVPULL_VERBS_READ_CHECK ?
		       own->cursor.id == own->read->slot_count :
		       kvpull_cursor_is_done(&own->cursor, own->read);
}

/* In flight, or to be: the owner was not told its end. */
static int is_open(const struct kvpull_verbs_read *own)
{
	return own->state == KVPULL_VERBS_READ_MARK ||
	       own->state == KVPULL_VERBS_READ_DATA ||
	       own->state == KVPULL_VERBS_READ_CHECK;
}

/* All of it is over that its owner waits for. */
static void read_settle(struct kvpull_verbs_reads *reads,
			struct kvpull_verbs_read *own)
{
	int32_t code = 0;

	if (own->batch_open || own->job_open || own->flushes.open ||
	    is_in_turn(reads, own->read->index))
		return;
	if (own->state == KVPULL_VERBS_READ_CHECK)
		code = own->flushes.code;
	if (own->lost || (own->cancelled && (own->dropped || !is_posted(own))))
		code = cancel_code(own);
	/* A read that nobody checks is flushed now. */
	if ((code || own->cancelled) && kvpull_verbs_gpu_flush(reads, own))
		return;
	read_end(reads, own, code);
}

static struct kvpull_verbs_batch *batch_at(const struct kvpull_verbs_end *end,
					   uint32_t index)
{
	uint32_t at = end->batch_first + index;

	return &end->batches[at < end->queue_max ? at : at - end->queue_max];
}

/*
 * Slices of a cancelled read that wait in lost lanes are dropped, not read by
 * other lanes.
 */
static void redo_drop(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_bundle *bundle, uint32_t index)
{
	uint32_t place;
	uint32_t at;

	for (place = 0; place < reads->shared->lane_count; place++) {
		struct kvpull_verbs_end *end = &bundle->ends[place];

		if (end->state != KVPULL_VERBS_QUIET)
			continue;
		for (at = 0; at < end->batch_count; at++) {
			struct kvpull_verbs_batch *batch = batch_at(end, at);

			if (batch->kind == KVPULL_VERBS_SEND ||
			    batch->read != index)
				continue;
			batch_drop(reads, batch);
			bundle->redo_open--;
		}
	}
}

/* Cancelled while this lane reads for it: it has so long. */
static void cancel_time(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;

	if (end->cancels_open++)
		return;
	end->cancel_ns = shared->now_ns + shared->params.flush_ns;
	end->cancel_max_ns = shared->now_ns +
			     KVPULL_VERBS_FLUSH_TIMES * shared->params.flush_ns;
	end->cancel_done = end->done;
}

void kvpull_verbs_read_cancel(struct kvpull_verbs_reads *reads,
			      struct kvpull_read *read)
{
	struct kvpull_verbs_read *own = read_at(reads, read->index);
	struct kvpull_verbs_bundle *bundle = &reads->peers[own->peer];
	uint32_t place;

	if (!is_open(own) || own->cancelled)
		return;
	own->cancelled = 1;
	kvpull_turns_remove(&bundle->turns, read->index);
	kvpull_verbs_gpu_forget(reads, own);
	if (bundle->redo_open)
		redo_drop(reads, bundle, read->index);
	if (!own->batch_open) {
		read_settle(reads, own);
		return;
	}
	for (place = 0; place < reads->shared->lane_count; place++)
		if (own->lane_open[place])
			cancel_time(&bundle->ends[place]);
}

int kvpull_verbs_read_leave(struct kvpull_verbs_reads *reads,
			    struct kvpull_read *read)
{
	struct kvpull_verbs_read *own = read_at(reads, read->index);

	if (own->state != KVPULL_VERBS_READ_IDLE ||
	    !kvpull_verbs_gpu_flush(reads, own))
		return 0;
	/* Nothing of it is read again, as in one that was cancelled. */
	own->state = KVPULL_VERBS_READ_DATA;
	own->cancelled = own->dropped = 1;
	reads->peers[own->peer].reads_open++;
	return 1;
}

int kvpull_verbs_read_check(struct kvpull_verbs_reads *reads, uint32_t peer,
			    struct kvpull_read *read)
{
	struct kvpull_verbs_bundle *bundle = &reads->peers[peer];
	const int is_in = kvpull_verbs_bundle_is_in(bundle);
	struct kvpull_verbs_read *own = read_at(reads, read->index);
	const struct kvpull_verbs_flushes written = own->flushes;
	uint32_t at;
	int code;

	kvpull_check(reads->shared->log,
		     read->slot_count &&
			     read->slot_count <=
				     reads->shared->params.slots_max);
	/* The slots are a ticket's or a directory's, and not to be trusted. */
	for (at = 0; is_in && at < read->slot_count; at++)
		if (read->slots[at] >=
		    kvpull_verbs_bundle_first(bundle)->keys.slot_count)
			return KVPULL_EEXPIRED;
	code = read_begin(reads, peer, read, KVPULL_VERBS_READ_CHECK);
	if (code)
		return code;
	own->flushes = written;
	bundle->reads_open++;
	read_post(reads, bundle, read->index);
	(void)kvpull_verbs_gpu_flush(reads, own);
	return 0;
}

/*
 * Post up to count_max slices from the cursor on, which goes to behind those
 * that were taken: *posted of them. Return: 1 if another batch may be tried now.
 */
static int data_post(struct kvpull_verbs_reads *reads,
		     struct kvpull_verbs_end *end, uint32_t index,
		     struct kvpull_cursor *cursor, uint32_t *posted)
{
	struct kvpull_verbs_counts *counts = &reads->shared->counts;
	const struct kvpull_slice_limits limits = kvpull_verbs_fill_limits(end);
	struct kvpull_verbs_read *own = read_at(reads, index);
	const struct kvpull_verbs_batch batch = { .kind = KVPULL_VERBS_READ,
						  .read = index,
						  .begin = *cursor };
	const uint32_t count =
		kvpull_verbs_fill(reads, end, own, cursor, *posted);
	const uint64_t before = end->bytes_open;
	const int code = kvpull_verbs_end_post(end, reads->requests, count,
					       &batch, posted);
	struct kvpull_slice slice;
	uint32_t left;

	if (*posted) {
		own->batch_open++;
		own->lane_open[end->place]++;
		kvpull_verbs_gpu_wrote(reads, own, end,
				       &reads->requests[*posted - 1]);
		counts->doorbells++;
		counts->work_requests += *posted;
		counts->read_bytes += end->bytes_open - before;
	}
	if (*posted < count) {
		*cursor = batch.begin;
		for (left = *posted; left; left--)
			kvpull_cursor_next(cursor, own->read, &limits, &slice);
	}
	return !code;
}

/* Posts the reads of entries, as data_post() does those of data. */
static int check_post(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_end *end, uint32_t index,
		      struct kvpull_cursor *cursor, uint32_t *posted)
{
	const struct kvpull_verbs_params *params = &reads->shared->params;
	struct kvpull_verbs_read *own = read_at(reads, index);
	const struct kvpull_verbs_batch batch = { .kind = KVPULL_VERBS_CHECK,
						  .read = index,
						  .begin = *cursor };
	uint32_t count =
		kvpull_least_u32(own->read->slot_count - cursor->id, *posted);
	uint32_t at;
	int code;

	count = kvpull_least_u32(count, params->depth - end->requests_open);
	count = kvpull_least_u32(count, params->batch);
	for (at = 0; at < count; at++)
		kvpull_verbs_check_fill(reads, end, own->read, cursor->id + at,
					at);
	code = kvpull_verbs_end_post(end, reads->requests, count, &batch,
				     posted);
	cursor->id += *posted;
	if (*posted) {
		own->batch_open++;
		own->lane_open[end->place]++;
		reads->shared->counts.checks++;
	}
	return !code;
}

static int turn_post(struct kvpull_verbs_reads *reads,
		     struct kvpull_verbs_bundle *bundle,
		     struct kvpull_verbs_end *end)
{
	const uint32_t index = turn_pop(bundle);
	struct kvpull_verbs_read *own = read_at(reads, index);
	uint32_t posted = UINT32_MAX;
	int more;

	if (own->state == KVPULL_VERBS_READ_CHECK) {
		more = check_post(reads, end, index, &own->cursor, &posted);
		if (!is_posted(own))
			turn_push(reads, bundle, index);
		return more;
	}
	more = data_post(reads, end, index, &own->cursor, &posted);
	if (!is_posted(own))
		turn_push(reads, bundle, index);
	return more;
}

/* The oldest batch that waits in a lost lane; NULL: none. */
static struct kvpull_verbs_batch *redo_first(struct kvpull_verbs_end *end)
{
	while (end->batch_count) {
		struct kvpull_verbs_batch *batch = batch_at(end, 0);

		if (batch->kind != KVPULL_VERBS_SEND)
			return batch;
		end->batch_first = end->batch_first + 1 == end->queue_max ?
					   0 :
					   end->batch_first + 1;
		end->batch_count--;
	}
	return NULL;
}

int kvpull_verbs_reads_moved(struct kvpull_verbs_end *end)
{
	return end->role == KVPULL_VERBS_CALLER || !redo_first(end);
}

/* Post by this lane what waits in a lost one. */
static int redo_post(struct kvpull_verbs_reads *reads,
		     struct kvpull_verbs_bundle *bundle,
		     struct kvpull_verbs_end *end)
{
	struct kvpull_verbs_batch *batch = NULL;
	struct kvpull_verbs_read *own;
	uint32_t posted;
	uint32_t place;
	int more;

	for (place = 0; !batch && place < reads->shared->lane_count; place++)
		if (bundle->ends[place].state == KVPULL_VERBS_QUIET)
			batch = redo_first(&bundle->ends[place]);
	kvpull_check(reads->shared->log, batch != NULL);
	own = read_at(reads, batch->read);
	posted = batch->count;
	if (batch->kind == KVPULL_VERBS_CHECK) {
		more = check_post(reads, end, batch->read, &batch->begin,
				  &posted);
	} else {
		more = data_post(reads, end, batch->read, &batch->begin,
				 &posted);
		reads->shared->counts.requests_moved += posted;
	}
	batch->count -= posted;
	if (batch->count)
		return more;
	/* Slices posted now are counted in batches of their own. */
	own->batch_open--;
	batch->kind = KVPULL_VERBS_SEND;
	bundle->redo_open--;
	return more;
}

/* About how many bytes the batch has that is posted next. */
static uint64_t next_bytes(const struct kvpull_verbs_reads *reads,
			   const struct kvpull_verbs_bundle *bundle)
{
	const struct kvpull_verbs_read *own;

	if (bundle->redo_open)
		return KVPULL_PACE_BYTES;
	own = read_at(reads, kvpull_turns_next(&bundle->turns));
	if (own->state == KVPULL_VERBS_READ_CHECK)
		return 0;
	return kvpull_least(
		own->read->byte_count,
		kvpull_verbs_spread_share(bundle, NULL, own->read->byte_count));
}

void kvpull_verbs_reads_pump(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_bundle *bundle)
{
	uint32_t stuck = 0; /* lanes that take no more now, by bit */

	while (bundle->redo_open || bundle->turns.arrival.count) {
		struct kvpull_verbs_end *end = kvpull_verbs_spread_pick(
			bundle, next_bytes(reads, bundle), stuck);
		int more;

		if (!end)
			return;
		bundle->turn_place =
			(end->place + 1) % reads->shared->lane_count;
		kvpull_verbs_spread_post(end);
		more = bundle->redo_open ? redo_post(reads, bundle, end) :
					   turn_post(reads, bundle, end);
		if (!more)
			stuck |= 1u << end->place;
	}
}

static void read_flushed(struct kvpull_verbs_reads *reads,
			 struct kvpull_verbs_read *own, int code)
{
	own->flushes.open--;
	if (code)
		own->flushes.code = code;
	read_settle(reads, own);
}

void kvpull_verbs_read_over(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_end *end,
			    const struct kvpull_verbs_batch *batch)
{
	struct kvpull_verbs_read *own = read_at(reads, batch->read);

	kvpull_check(reads->shared->log,
		     own->batch_open > 0 && own->lane_open[end->place] > 0);
	own->batch_open--;
	own->lane_open[end->place]--;
	kvpull_verbs_spread_done(end, batch->bytes);
	if (batch->kind == KVPULL_VERBS_READ)
		reads->shared->counts.completions++;
	if (own->cancelled && !own->lane_open[end->place]) {
		end->cancels_open--;
		/* The cancelled reads behind it began later: their time begins now. */
		end->cancel_max_ns =
			end->shared->now_ns +
			KVPULL_VERBS_FLUSH_TIMES * end->shared->params.flush_ns;
	}
	read_settle(reads, own);
}

void kvpull_verbs_reads_move(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_end *end)
{
	struct kvpull_verbs_batch over;
	uint32_t at;

	while (kvpull_verbs_end_pop(end, &over))
		kvpull_verbs_read_over(reads, end, &over);
	for (at = 0; at < end->batch_count; at++) {
		struct kvpull_verbs_batch *batch = batch_at(end, at);
		struct kvpull_verbs_read *own;

		if (batch->kind == KVPULL_VERBS_SEND)
			continue;
		own = read_at(reads, batch->read);
		own->lane_open[end->place]--;
		if (!own->cancelled) {
			end->bundle->redo_open++;
			continue;
		}
		batch_drop(reads, batch);
		read_settle(reads, own);
	}
}

/* How many bytes from the read's begin on have come without a gap. */
static void done_count(struct kvpull_verbs_reads *reads,
		       const struct kvpull_verbs_bundle *bundle)
{
	uint32_t index;
	uint32_t place;

	for (index = 0; index < reads->shared->params.reads_max; index++) {
		const struct kvpull_verbs_read *own = &reads->reads[index];

		if (own->peer == bundle->index &&
		    own->state == KVPULL_VERBS_READ_DATA)
			own->read->done_bytes =
				reads->shared->is_gpu ?
					0 :
					kvpull_cursor_tell(&own->cursor,
							   own->read);
	}
	for (place = 0; place < reads->shared->lane_count; place++) {
		const struct kvpull_verbs_end *end = &bundle->ends[place];

		for (index = 0; index < end->batch_count; index++) {
			const struct kvpull_verbs_batch *batch =
				batch_at(end, index);
			struct kvpull_read *read;

			if (batch->kind != KVPULL_VERBS_READ)
				continue;
			read = read_at(reads, batch->read)->read;
			read->done_bytes = kvpull_least(
				read->done_bytes,
				kvpull_cursor_tell(&batch->begin, read));
		}
	}
}

void kvpull_verbs_reads_lose(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_bundle *bundle)
{
	uint32_t index;

	if (bundle->code == KVPULL_EABORTED)
		done_count(reads, bundle);
	for (index = 0; index < reads->shared->lane_count; index++)
		bundle->ends[index].batch_count = 0;
	bundle->redo_open = 0;
	for (index = 0; index < reads->shared->params.reads_max; index++) {
		struct kvpull_verbs_read *own = &reads->reads[index];

		if (own->peer != bundle->index || !is_open(own))
			continue;
		kvpull_turns_remove(&bundle->turns, index);
		own->batch_open = 0;
		kvpull_verbs_gpu_forget(reads, own);
		own->lost = bundle->code;
		own->cancelled = 1;
		read_settle(reads, own);
	}
}

int kvpull_verbs_reads_init(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_shared *shared,
			    struct kvpull_verbs_bundle *peers,
			    struct kvpull_arena *arena)
{
	const uint32_t reads_max = shared->params.reads_max;
	uint32_t rail;
	uint32_t peer;

	reads->shared = shared;
	reads->peers = peers;
	reads->ended = KVPULL_NONE;
	reads->begun = read_begun;
	reads->flushed = read_flushed;
	KVPULL_ARENA_TAKE(arena, reads->reads, reads_max);
	kvpull_turns_init(&reads->turns, reads_max, arena);
	for (rail = 0; rail < shared->rail_count; rail++)
		kvpull_verbs_loop_init(&shared->loops[rail], reads_max, arena);
	for (peer = 0; peer < shared->params.peers_max; peer++)
		peers[peer].turns = reads->turns;
	kvpull_verbs_check_init(reads, arena);
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

void kvpull_verbs_reads_report(struct kvpull_verbs_reads *reads,
			       struct kvpull_events *events)
{
	while (reads->ended != KVPULL_NONE && kvpull_events_room(events)) {
		struct kvpull_verbs_read *own = read_at(reads, reads->ended);
		struct kvpull_event *event = kvpull_events_add(
			events,
			own->is_check ? KVPULL_EVENT_CHECK_DONE :
					KVPULL_EVENT_READ_DONE,
			own->peer);

		event->code = own->code;
		event->read = own->read;
		if (own->is_check)
			kvpull_verbs_check_give(reads, own->read);
		reads->ended = own->next;
		reads->peers[own->peer].reads_open--;
		own->state = KVPULL_VERBS_READ_IDLE;
	}
}
