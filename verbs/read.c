/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: a read with batch_open > 0 may still be written to by the
 * device, so it is neither ended nor checked; it is in its peer's turn exactly
 * while something of it is to be posted; a peer's reads_open counts its reads
 * that the owner was not told the end of.
 *
 * An entry is read into a place that says "revoked" until the device has
 * written it. It is posted only after the owner was told that all the data
 * came (of all peers of the pull), and judged after its own completion.
 */
#include "verbs/read.h"

#include <errno.h>
#include <string.h>

static struct kvpull_verbs_read *read_at(const struct kvpull_verbs_reads *reads,
					 uint32_t index)
{
	kvpull_check(reads->shared->log,
		     index < reads->shared->params.reads_max);
	return &reads->reads[index];
}

size_t kvpull_verbs_reads_bytes(const struct kvpull_verbs_params *params)
{
	return (size_t)params->reads_max *
		       (sizeof(struct kvpull_verbs_read) +
			sizeof(struct kvpull_revocation_value)) +
	       2 * (size_t)KVPULL_CACHE_LINE;
}

int kvpull_verbs_reads_init(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_shared *shared,
			    struct kvpull_verbs_end *peers,
			    struct kvpull_arena *arena)
{
	const uint32_t reads_max = shared->params.reads_max;

	reads->shared = shared;
	reads->peers = peers;
	reads->ended = KVPULL_NONE;
	reads->reads = (struct kvpull_verbs_read *)kvpull_arena_take(
		arena, reads_max, sizeof(*reads->reads));
	reads->entries = (struct kvpull_revocation_value *)kvpull_arena_take(
		arena, reads_max, sizeof(*reads->entries));
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

int kvpull_verbs_reads_register(struct kvpull_verbs_reads *reads)
{
	const struct kvpull_verbs_shared *shared = reads->shared;

	reads->memory = shared->fabric->ibv.reg_mr(
		shared->device.pd, reads->entries,
		shared->params.reads_max * sizeof(*reads->entries),
		IBV_ACCESS_LOCAL_WRITE);
	if (reads->memory)
		return 0;
	kvpull_error(shared->log, "verbs: registering %u entries: %s",
		     shared->params.reads_max, strerror(errno));
	return KVPULL_ENOMEM;
}

void kvpull_verbs_reads_fini(struct kvpull_verbs_reads *reads)
{
	if (reads->memory && reads->shared->fabric->ibv.dereg_mr(reads->memory))
		kvpull_warn(reads->shared->log, "verbs: entries: %s",
			    strerror(errno));
	reads->memory = NULL;
}

static void turn_push(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_end *end, uint32_t index)
{
	struct kvpull_verbs_read *own = read_at(reads, index);

	own->in_turn = 1;
	own->next = KVPULL_NONE;
	if (end->turn_first == KVPULL_NONE)
		end->turn_first = index;
	else
		read_at(reads, end->turn_last)->next = index;
	end->turn_last = index;
}

static uint32_t turn_pop(struct kvpull_verbs_reads *reads,
			 struct kvpull_verbs_end *end)
{
	const uint32_t index = end->turn_first;
	struct kvpull_verbs_read *own = read_at(reads, index);

	own->in_turn = 0;
	end->turn_first = own->next;
	return index;
}

static void turn_remove(struct kvpull_verbs_reads *reads,
			struct kvpull_verbs_end *end, uint32_t index)
{
	uint32_t left = 0;
	uint32_t at;

	for (at = end->turn_first; at != KVPULL_NONE;
	     at = read_at(reads, at)->next)
		left++;
	/* Once around: all others keep their order. */
	for (; left; left--) {
		at = turn_pop(reads, end);
		if (at != index)
			turn_push(reads, end, at);
	}
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

int kvpull_verbs_read_start(struct kvpull_verbs_reads *reads, uint32_t peer,
			    struct kvpull_read *read)
{
	struct kvpull_verbs_read *own = read_at(reads, read->index);
	struct kvpull_verbs_end *end = &reads->peers[peer];

	kvpull_check(reads->shared->log, own->state == KVPULL_VERBS_READ_IDLE);
	if (end->state != KVPULL_VERBS_IN)
		return KVPULL_EPEER;
	*own = (struct kvpull_verbs_read){ .read = read, .peer = peer };
	kvpull_cursor_begin(&own->cursor, read);
	if (kvpull_cursor_is_done(&own->cursor, read))
		return 1;
	own->state = KVPULL_VERBS_READ_DATA;
	end->reads_open++;
	turn_push(reads, end, read->index);
	kvpull_verbs_reads_pump(reads, end);
	return 0;
}

void kvpull_verbs_read_cancel(struct kvpull_verbs_reads *reads,
			      struct kvpull_read *read)
{
	const struct kvpull_verbs_shared *shared = reads->shared;
	struct kvpull_verbs_read *own = read_at(reads, read->index);
	struct kvpull_verbs_end *end = &reads->peers[own->peer];

	if (own->state != KVPULL_VERBS_READ_DATA || own->cancelled)
		return;
	own->cancelled = 1;
	if (own->in_turn)
		turn_remove(reads, end, read->index);
	if (!own->batch_open) {
		read_end(reads, own, KVPULL_EABORTED);
		return;
	}
	if (end->cancels_open++)
		return;
	end->cancel_ns = shared->now_ns + shared->params.flush_ns;
	end->cancel_max_ns = shared->now_ns +
			     KVPULL_VERBS_FLUSH_TIMES * shared->params.flush_ns;
	end->cancel_done = end->done;
}

int kvpull_verbs_read_check(struct kvpull_verbs_reads *reads, uint32_t peer,
			    struct kvpull_read *read)
{
	struct kvpull_verbs_read *own = read_at(reads, read->index);
	struct kvpull_verbs_end *end = &reads->peers[peer];

	kvpull_check(reads->shared->log, own->state == KVPULL_VERBS_READ_IDLE);
	if (end->state != KVPULL_VERBS_IN)
		return KVPULL_EPEER;
	/* The slot is the ticket's: whoever made it. */
	if (read->slot >= end->keys.slot_count)
		return KVPULL_EEXPIRED;
	*own = (struct kvpull_verbs_read){ .read = read,
					   .state = KVPULL_VERBS_READ_CHECK,
					   .peer = peer };
	reads->entries[read->index] =
		(struct kvpull_revocation_value){ .revoked = UINT64_MAX };
	end->reads_open++;
	turn_push(reads, end, read->index);
	kvpull_verbs_reads_pump(reads, end);
	return 0;
}

/* Batches are a quarter of the window: the next one is posted while three run. */
static uint64_t batch_bytes_max(const struct kvpull_verbs_params *params)
{
	return params->window_bytes / 4;
}

static void request_fill(struct kvpull_verbs_reads *reads,
			 const struct kvpull_verbs_end *end, uint32_t at,
			 const struct kvpull_segment *segment)
{
	const struct kvpull_verbs_regions *regions = &reads->shared->regions;
	const struct kvpull_key *key =
		&end->keys.regions[segment->region_index];
	uint32_t i;

	for (i = 0; i < segment->part_count; i++) {
		const struct kvpull_segment_part *part = &segment->parts[i];
		const uint32_t region = kvpull_verbs_regions_find(
			regions, part->local, part->bytes);

		/* The plan checked both ends against the regions. */
		kvpull_check(reads->shared->log, region != KVPULL_NONE);
		reads->parts[at][i] = (struct ibv_sge){
			.addr = (uint64_t)(uintptr_t)part->local,
			.length = (uint32_t)part->bytes,
			.lkey = regions->memory[region]->lkey,
		};
	}
	reads->requests[at] = (struct ibv_send_wr){
		.sg_list = reads->parts[at],
		.num_sge = (int)segment->part_count,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr =
				     key->address + segment->remote_offset,
			     .rkey = key->remote_key },
	};
}

/* Fill the next batch of a read; returns its work requests. */
static uint32_t batch_fill(struct kvpull_verbs_reads *reads,
			   const struct kvpull_verbs_end *end,
			   struct kvpull_verbs_read *own)
{
	const struct kvpull_verbs_params *params = &reads->shared->params;
	const struct kvpull_segment_limits limits = {
		.bytes_max = params->slice_bytes,
		.parts_max = params->parts_max,
	};
	const uint64_t bytes_max = batch_bytes_max(params);
	uint32_t count_max = params->depth - end->requests_open;
	struct kvpull_segment segment;
	uint64_t bytes = 0;
	uint32_t count = 0;

	if (count_max > params->batch)
		count_max = params->batch;
	while (count < count_max && bytes < bytes_max &&
	       !kvpull_cursor_is_done(&own->cursor, own->read)) {
		kvpull_cursor_next(&own->cursor, own->read, &limits, &segment);
		request_fill(reads, end, count++, &segment);
		bytes += segment.bytes;
	}
	return count;
}

/* The cursor goes to behind the segments that were taken. */
static void cursor_replay(const struct kvpull_verbs_reads *reads,
			  struct kvpull_verbs_read *own,
			  const struct kvpull_cursor *begin, uint32_t count)
{
	const struct kvpull_segment_limits limits = {
		.bytes_max = reads->shared->params.slice_bytes,
		.parts_max = reads->shared->params.parts_max,
	};
	struct kvpull_segment segment;

	own->cursor = *begin;
	for (; count; count--)
		kvpull_cursor_next(&own->cursor, own->read, &limits, &segment);
}

/* Return: 1 if another batch may be tried now. */
static int data_post(struct kvpull_verbs_reads *reads,
		     struct kvpull_verbs_end *end, uint32_t index)
{
	struct kvpull_verbs_counts *counts = &reads->shared->counts;
	struct kvpull_verbs_read *own = read_at(reads, index);
	const struct kvpull_verbs_batch batch = { .kind = KVPULL_VERBS_READ,
						  .read = index };
	const struct kvpull_cursor begin = own->cursor;
	const uint32_t count = batch_fill(reads, end, own);
	const uint64_t before = end->bytes_open;
	uint32_t posted = 0;
	const int code = kvpull_verbs_end_post(end, reads->requests, count,
					       &batch, &posted);

	if (posted) {
		own->batch_open++;
		counts->doorbells++;
		counts->work_requests += posted;
		counts->read_bytes += end->bytes_open - before;
	}
	if (posted < count)
		cursor_replay(reads, own, &begin, posted);
	if (!kvpull_cursor_is_done(&own->cursor, own->read))
		turn_push(reads, end, index);
	return !code;
}

static int check_post(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_end *end, uint32_t index)
{
	struct kvpull_verbs_read *own = read_at(reads, index);
	const struct kvpull_verbs_batch batch = { .kind = KVPULL_VERBS_CHECK,
						  .read = index };
	struct ibv_sge part = {
		.addr = (uint64_t)(uintptr_t)&reads->entries[index],
		.length = sizeof(reads->entries[index]),
		.lkey = reads->memory->lkey,
	};
	struct ibv_send_wr request = {
		.sg_list = &part,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr =
				     end->keys.entries.address +
				     (uint64_t)own->read->slot *
					     sizeof(struct kvpull_revocation_entry),
			     .rkey = end->keys.entries.remote_key },
	};
	uint32_t posted;

	if (kvpull_verbs_end_post(end, &request, 1, &batch, &posted)) {
		turn_push(reads, end, index);
		return 0;
	}
	own->batch_open++;
	reads->shared->counts.checks++;
	return 1;
}

static int post_one(struct kvpull_verbs_reads *reads,
		    struct kvpull_verbs_end *end)
{
	const uint32_t index = turn_pop(reads, end);

	if (read_at(reads, index)->state == KVPULL_VERBS_READ_CHECK)
		return check_post(reads, end, index);
	return data_post(reads, end, index);
}

void kvpull_verbs_reads_pump(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_params *params = &reads->shared->params;

	while (end->state == KVPULL_VERBS_IN &&
	       end->turn_first != KVPULL_NONE &&
	       end->requests_open < params->depth &&
	       end->bytes_open + batch_bytes_max(params) <=
		       params->window_bytes)
		if (!post_one(reads, end))
			break;
}

void kvpull_verbs_read_over(struct kvpull_verbs_reads *reads,
			    const struct kvpull_verbs_end *peer,
			    const struct kvpull_verbs_batch *batch)
{
	struct kvpull_verbs_read *own = read_at(reads, batch->read);
	struct kvpull_verbs_end *end = &reads->peers[peer->index];
	int32_t code = 0;

	kvpull_check(reads->shared->log, own->batch_open > 0);
	own->batch_open--;
	if (batch->kind == KVPULL_VERBS_READ)
		reads->shared->counts.completions++;
	if (own->batch_open)
		return;
	/*
	 * A lost end has no good completions: what was flushed cannot be told
	 * from it here, and to fail is only slow. More of it may be in turn.
	 */
	if (end->state >= KVPULL_VERBS_LOST)
		return;
	if (own->state == KVPULL_VERBS_READ_DATA && own->cancelled) {
		end->cancels_open--;
		/* Those behind it began later. */
		end->cancel_max_ns =
			end->shared->now_ns +
			KVPULL_VERBS_FLUSH_TIMES * end->shared->params.flush_ns;
		if (!kvpull_cursor_is_done(&own->cursor, own->read))
			code = KVPULL_EABORTED;
	} else if (own->in_turn) {
		return;
	}
	read_end(reads, own, code);
}

void kvpull_verbs_reads_lose(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_end *end)
{
	struct kvpull_verbs_batch batch;
	uint32_t index;

	while (kvpull_verbs_end_pop(end, &batch))
		kvpull_verbs_read_over(reads, end, &batch);
	end->turn_first = KVPULL_NONE;
	for (index = 0; index < reads->shared->params.reads_max; index++) {
		struct kvpull_verbs_read *own = &reads->reads[index];

		if (own->peer != end->index ||
		    (own->state != KVPULL_VERBS_READ_DATA &&
		     own->state != KVPULL_VERBS_READ_CHECK))
			continue;
		own->in_turn = 0;
		read_end(reads, own, end->code);
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
			own->read->entry = reads->entries[own->read->index];
		reads->ended = own->next;
		reads->peers[own->peer].reads_open--;
		own->state = KVPULL_VERBS_READ_IDLE;
	}
}
