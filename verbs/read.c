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

#include "verbs/check.h"
#include "verbs/spread.h"

_Static_assert(KVPULL_VERBS_LANES_MAX <= 32, "a word has a bit for each lane");

static struct kvpull_verbs_read *read_at(const struct kvpull_verbs_reads *reads,
					 uint32_t index)
{
	kvpull_check(reads->shared->log,
		     index < reads->shared->params.reads_max);
	return &reads->reads[index];
}

int kvpull_verbs_reads_init(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_shared *shared,
			    struct kvpull_verbs_bundle *peers,
			    struct kvpull_arena *arena)
{
	const uint32_t reads_max = shared->params.reads_max;
	uint32_t peer;

	reads->shared = shared;
	reads->peers = peers;
	reads->ended = KVPULL_NONE;
	reads->reads = (struct kvpull_verbs_read *)kvpull_arena_take(
		arena, reads_max, sizeof(*reads->reads));
	kvpull_turns_init(&reads->turns, reads_max, arena);
	for (peer = 0; peer < shared->params.peers_max; peer++)
		peers[peer].turns = reads->turns;
	kvpull_verbs_check_init(reads, arena);
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
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
	kvpull_check(reads->shared->log, !own->batch_open);
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
	*own = (struct kvpull_verbs_read){ .read = read,
					   .state = state,
					   .peer = peer };
	return 0;
}

static void read_post(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_bundle *bundle, uint32_t index)
{
	bundle->reads_open++;
	turn_push(reads, bundle, index);
	kvpull_verbs_reads_pump(reads, bundle);
}

int kvpull_verbs_read_start(struct kvpull_verbs_reads *reads, uint32_t peer,
			    struct kvpull_read *read)
{
	struct kvpull_verbs_read *own = read_at(reads, read->index);
	const int code = read_begin(reads, peer, read, KVPULL_VERBS_READ_DATA);

	if (code)
		return code;
	kvpull_cursor_seek(&own->cursor, read, read->done_bytes);
	if (kvpull_cursor_is_done(&own->cursor, read)) {
		own->state = KVPULL_VERBS_READ_IDLE;
		return 1;
	}
	read_post(reads, &reads->peers[peer], read->index);
	return 0;
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
	return own->state == KVPULL_VERBS_READ_DATA ||
	       own->state == KVPULL_VERBS_READ_CHECK;
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
	if (bundle->redo_open)
		redo_drop(reads, bundle, read->index);
	if (!own->batch_open) {
		read_end(reads, own, KVPULL_EABORTED);
		return;
	}
	for (place = 0; place < reads->shared->lane_count; place++)
		if (own->lane_open[place])
			cancel_time(&bundle->ends[place]);
}

int kvpull_verbs_read_check(struct kvpull_verbs_reads *reads, uint32_t peer,
			    struct kvpull_read *read)
{
	struct kvpull_verbs_bundle *bundle = &reads->peers[peer];
	const int is_in = kvpull_verbs_bundle_is_in(bundle);
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
	if (!code)
		read_post(reads, bundle, read->index);
	return code;
}

/*
 * Local key of the MR that the part lands in: a served region, or added memory.
 */
static uint32_t local_key(const struct kvpull_verbs_shared *shared,
			  uint32_t device, const struct kvpull_slice_part *part)
{
	const struct kvpull_verbs_regions *regions = &shared->regions[device];
	uint32_t region =
		kvpull_verbs_regions_find(regions, part->local, part->bytes);

	if (region == KVPULL_NONE) {
		regions = &shared->locals[device];
		region = kvpull_verbs_regions_find(regions, part->local,
						   part->bytes);
	}
	/* The plan checked both ends against the regions. */
	kvpull_check(shared->log, region != KVPULL_NONE);
	return regions
		->memory[kvpull_keys_mr(&regions->keys, region,
					(uintptr_t)part->local)]
		->lkey;
}

static void request_fill(struct kvpull_verbs_reads *reads,
			 const struct kvpull_verbs_end *end, uint32_t at,
			 const struct kvpull_slice *slice)
{
	const uint64_t remote = end->keys.regions[slice->region_index].address +
				slice->remote_offset;
	uint32_t i;

	for (i = 0; i < slice->part_count; i++) {
		const struct kvpull_slice_part *part = &slice->parts[i];

		reads->parts[at][i] = (struct ibv_sge){
			.addr = (uintptr_t)part->local,
			.length = (uint32_t)part->bytes,
			.lkey = local_key(reads->shared, end->device, part),
		};
	}
	reads->requests[at] = (struct ibv_send_wr){
		.sg_list = reads->parts[at],
		.num_sge = (int)slice->part_count,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = remote,
			     .rkey = end->keys.mr_keys[kvpull_keys_mr(
				     &end->keys, slice->region_index, remote)] },
	};
}

static struct kvpull_slice_limits limits_of(const struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_params *params = &end->shared->params;

	return (struct kvpull_slice_limits){
		.bytes_max = params->slice_bytes,
		.parts_max = params->parts_max,
		.mr_shift = params->mr_shift,
		.keys = &end->keys,
	};
}

/* Fill a batch from the cursor on; returns its work requests. */
static uint32_t batch_fill(struct kvpull_verbs_reads *reads,
			   const struct kvpull_verbs_end *end,
			   const struct kvpull_verbs_read *own,
			   struct kvpull_cursor *cursor, uint32_t count_max)
{
	const struct kvpull_verbs_params *params = &reads->shared->params;
	const struct kvpull_slice_limits limits = limits_of(end);
	const uint64_t bytes_max = kvpull_verbs_spread_share(
		end->bundle, end, own->read->byte_count);
	struct kvpull_slice slice;
	uint64_t bytes = 0;
	uint32_t count = 0;

	if (count_max > params->depth - end->requests_open)
		count_max = params->depth - end->requests_open;
	if (count_max > params->batch)
		count_max = params->batch;
	while (count < count_max && bytes < bytes_max &&
	       !kvpull_cursor_is_done(cursor, own->read)) {
		kvpull_cursor_next(cursor, own->read, &limits, &slice);
		request_fill(reads, end, count++, &slice);
		bytes += slice.bytes;
	}
	return count;
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
	const struct kvpull_slice_limits limits = limits_of(end);
	struct kvpull_verbs_read *own = read_at(reads, index);
	const struct kvpull_verbs_batch batch = { .kind = KVPULL_VERBS_READ,
						  .read = index,
						  .begin = *cursor };
	const uint32_t count = batch_fill(reads, end, own, cursor, *posted);
	const uint64_t before = end->bytes_open;
	const int code = kvpull_verbs_end_post(end, reads->requests, count,
					       &batch, posted);
	struct kvpull_slice slice;
	uint32_t left;

	if (*posted) {
		own->batch_open++;
		own->lane_open[end->place]++;
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

/* As data_post(), of entries. */
static int check_post(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_end *end, uint32_t index,
		      struct kvpull_cursor *cursor, uint32_t *posted)
{
	const struct kvpull_verbs_params *params = &reads->shared->params;
	struct kvpull_verbs_read *own = read_at(reads, index);
	const struct kvpull_verbs_batch batch = { .kind = KVPULL_VERBS_CHECK,
						  .read = index,
						  .begin = *cursor };
	uint32_t count = own->read->slot_count - cursor->id;
	uint32_t at;
	int code;

	if (count > *posted)
		count = *posted;
	if (count > params->depth - end->requests_open)
		count = params->depth - end->requests_open;
	if (count > params->batch)
		count = params->batch;
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
	uint64_t bytes;

	if (bundle->redo_open)
		return KVPULL_PACE_BYTES;
	own = read_at(reads, kvpull_turns_next(&bundle->turns));
	if (own->state == KVPULL_VERBS_READ_CHECK)
		return 0;
	bytes = kvpull_verbs_spread_share(bundle, NULL, own->read->byte_count);
	return bytes < own->read->byte_count ? bytes : own->read->byte_count;
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

void kvpull_verbs_read_over(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_end *end,
			    const struct kvpull_verbs_batch *batch)
{
	struct kvpull_verbs_read *own = read_at(reads, batch->read);
	int32_t code = 0;

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
	if (own->batch_open || is_in_turn(reads, batch->read))
		return;
	if (own->cancelled && (own->dropped || !is_posted(own)))
		code = KVPULL_EABORTED;
	read_end(reads, own, code);
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
		if (!own->batch_open)
			read_end(reads, own, KVPULL_EABORTED);
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
				kvpull_cursor_tell(&own->cursor, own->read);
	}
	for (place = 0; place < reads->shared->lane_count; place++) {
		const struct kvpull_verbs_end *end = &bundle->ends[place];

		for (index = 0; index < end->batch_count; index++) {
			const struct kvpull_verbs_batch *batch =
				batch_at(end, index);
			struct kvpull_read *read;
			uint64_t bytes;

			if (batch->kind != KVPULL_VERBS_READ)
				continue;
			read = read_at(reads, batch->read)->read;
			bytes = kvpull_cursor_tell(&batch->begin, read);
			if (bytes < read->done_bytes)
				read->done_bytes = bytes;
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
		read_end(reads, own, bundle->code);
	}
}

void kvpull_verbs_reads_report(struct kvpull_verbs_reads *reads,
			       struct kvpull_verbs_events *events)
{
	while (reads->ended != KVPULL_NONE &&
	       kvpull_verbs_events_room(events)) {
		struct kvpull_verbs_read *own = read_at(reads, reads->ended);
		struct kvpull_event *event = kvpull_verbs_events_add(
			events, own->is_check ? KVPULL_EVENT_CHECK_DONE :
						KVPULL_EVENT_READ_DONE);

		event->index = own->peer;
		event->code = own->code;
		event->read = own->read;
		if (own->is_check)
			kvpull_verbs_check_give(reads, own->read);
		reads->ended = own->next;
		reads->peers[own->peer].reads_open--;
		own->state = KVPULL_VERBS_READ_IDLE;
	}
}
