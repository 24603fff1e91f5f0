/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/reads/reads.h"

#include "base/clock.h"

#define DEADLINES_NS KVPULL_NS_PER_MS /* how often deadlines are looked at */
#define READY_NS UINT64_C(100000)
#define TURNS_MAX 64u  /* of requests that waited, in one run */
#define LOOKS_MAX 512u /* at deadlines, likewise */

/* In the phase that its request is in. */
enum part_state {
	PART_NEW = 0, /* not taken by the transport yet, or it failed */
	PART_DONE,
	PART_READS, /* READ_DONE will come */
	PART_CHECKS /* CHECK_DONE will come */
};

void kvpull_reads_init(struct kvpull_reads *reads, uint32_t request_count,
		       uint32_t part_count, struct kvpull_arena *arena)
{
	KVPULL_ARENA_TAKE(arena, reads->requests, request_count);
	KVPULL_ARENA_TAKE(arena, reads->parts, part_count);
	kvpull_index_pool_init(&reads->part_pool, part_count, arena);
	kvpull_index_list_init(&reads->live, request_count, arena);
	kvpull_turns_init(&reads->parts_waits, request_count, arena);
	kvpull_index_list_init(&reads->again_waits, request_count, arena);
	reads->parts_turn = reads->deadline_at = KVPULL_NONE;
}

static void wait_leave(struct kvpull_reads *reads, uint32_t index)
{
	kvpull_turns_remove(&reads->parts_waits, index);
	kvpull_index_list_remove(&reads->again_waits, index);
}

static struct kvpull_reads_part *
part_of(struct kvpull_reads *reads, const struct kvpull_reads_request *request,
	uint32_t at)
{
	return &reads->parts[request->parts[at]];
}

struct kvpull_reads_part *kvpull_reads_part_add(struct kvpull_reads *reads,
						uint32_t index)
{
	struct kvpull_reads_request *request = &reads->requests[index];
	const uint32_t at = kvpull_index_pool_take(&reads->part_pool);

	kvpull_check(reads->log,
		     at != KVPULL_NONE &&
			     request->part_count < KVPULL_READS_PARTS_MAX);
	request->parts[request->part_count++] = at;
	reads->parts[at] = (struct kvpull_reads_part){
		.read = { .index = at, .priority = request->priority },
		.request = index,
	};
	return &reads->parts[at];
}

static void parts_free(struct kvpull_reads *reads,
		       struct kvpull_reads_request *request)
{
	uint32_t at;

	for (at = 0; at < request->part_count; at++)
		kvpull_index_pool_give(&reads->part_pool, request->parts[at]);
	request->part_count = 0;
}

static void request_end(struct kvpull_reads *reads, uint32_t index)
{
	struct kvpull_reads_request *request = &reads->requests[index];

	kvpull_check(reads->log, !request->parts_open);
	request->state = KVPULL_READS_FREE;
	wait_leave(reads, index);
	if (reads->deadline_at == index)
		reads->deadline_at = reads->live.links[index].next;
	kvpull_index_list_remove(&reads->live, index);
	reads->owner->ended(reads->own, index);
	parts_free(reads, request);
}

/* A part's bytes may still be on their way, though its read was told to be done. */
static void part_leave(struct kvpull_reads_request *request,
		       struct kvpull_reads_part *part)
{
	const struct kvpull_transport_ops *ops = part->transport->ops;

	if (!ops->read_leave ||
	    !ops->read_leave(part->transport, part->handle, &part->read))
		return;
	part->state = PART_READS;
	request->parts_open++;
}

void kvpull_reads_fail(struct kvpull_reads *reads, uint32_t index, int32_t code)
{
	struct kvpull_reads_request *request = &reads->requests[index];
	uint32_t at;

	if (request->state == KVPULL_READS_DRAIN)
		return;
	request->code = code;
	request->state = KVPULL_READS_DRAIN;
	wait_leave(reads, index);
	for (at = 0; at < request->part_count; at++) {
		struct kvpull_reads_part *part = part_of(reads, request, at);

		/* A check writes nothing here, but it must end, too. */
		if (part->state >= PART_READS)
			part->transport->ops->read_cancel(
				part->transport, part->handle, &part->read);
		else
			part_leave(request, part);
	}
	if (!request->parts_open)
		request_end(reads, index);
}

/* A connection was cut for another request: the next reads what is missing. */
static void request_again(struct kvpull_reads *reads, uint32_t index)
{
	struct kvpull_reads_request *request = &reads->requests[index];
	uint32_t at;

	request->state = KVPULL_READS_AGAIN;
	for (at = 0; at < request->part_count; at++)
		if (part_of(reads, request, at)->state < PART_READS)
			part_leave(request, part_of(reads, request, at));
	if (request->parts_open)
		return;
	reads->owner->again(reads->own, index);
	parts_free(reads, request);
	request->phase = 0;
	request->state = KVPULL_READS_CONNECT;
	kvpull_index_list_push(&reads->again_waits, index);
	reads->has_changed = 1;
}

/* Return: 0: it begins the next phase; 1: there is none. */
static int phase_next(struct kvpull_reads *reads, uint32_t index)
{
	struct kvpull_reads_request *request = &reads->requests[index];
	uint32_t at;

	if (!request->phases[request->phase])
		return 1;
	request->state = request->phases[request->phase++];
	for (at = 0; at < request->part_count; at++)
		part_of(reads, request, at)->state = PART_NEW;
	if (reads->owner->entered)
		reads->owner->entered(reads->own, index);
	return 0;
}

/* The most parts that it can need are there. */
static int has_room(const struct kvpull_reads *reads, uint32_t index)
{
	return reads->part_pool.count_max -
		       kvpull_index_pool_used(&reads->part_pool) >=
	       reads->requests[index].part_most;
}

/*
 * Requests take parts in turns, and all at once: those that hold some would wait
 * for each other.
 */
static int connect_step(struct kvpull_reads *reads, uint32_t index)
{
	int code = reads->owner->ready(reads->own, index);

	if (code == KVPULL_EAGAIN)
		kvpull_index_list_push(&reads->again_waits, index);
	if (code)
		return code;
	if (!has_room(reads, index) ||
	    (reads->parts_waits.arrival.count && reads->parts_turn != index)) {
		kvpull_turns_push(&reads->parts_waits, index,
				  reads->requests[index].priority);
		return KVPULL_EAGAIN;
	}
	code = reads->owner->parts_make(reads->own, index);
	return code ? code : phase_next(reads, index);
}

/* The route has done what the phase wants of the part. Return: the judge's. */
static int part_end(struct kvpull_reads *reads, struct kvpull_reads_part *part,
		    enum kvpull_reads_state phase)
{
	int code;

	if (phase == KVPULL_READS_DATA)
		part->read.done_bytes = part->read.byte_count;
	code = reads->owner->judge(reads->own, part, phase);
	part->state = code ? PART_NEW : PART_DONE;
	return code;
}

static int part_begin(struct kvpull_reads *reads,
		      struct kvpull_reads_part *part)
{
	const struct kvpull_transport_ops *ops = part->transport->ops;
	struct kvpull_reads_request *request = &reads->requests[part->request];
	int code = reads->owner->lost(reads->own, part);

	if (code)
		return code;
	if (request->state != KVPULL_READS_DATA)
		code = ops->check_start(part->transport, part->handle,
					&part->read);
	else if (part->read.done_bytes == part->read.byte_count)
		code = 1;
	else
		code = ops->read_start(part->transport, part->handle,
				       &part->read);
	if (code == 1)
		return part_end(reads, part, request->state);
	if (!code) {
		part->state = request->state == KVPULL_READS_DATA ? PART_READS :
								    PART_CHECKS;
		request->parts_open++;
	}
	return code;
}

static int phase_step(struct kvpull_reads *reads, uint32_t index)
{
	struct kvpull_reads_request *request = &reads->requests[index];
	uint32_t done = 0;
	int again = 0;
	uint32_t at;

	for (at = 0; at < request->part_count; at++) {
		struct kvpull_reads_part *part = part_of(reads, request, at);
		const int code =
			part->state == PART_NEW ? part_begin(reads, part) : 0;

		if (code && code != KVPULL_EAGAIN)
			return code;
		again |= code;
		done += part->state == PART_DONE;
	}
	if (done == request->part_count)
		return phase_next(reads, index);
	if (again) {
		kvpull_index_list_push(&reads->again_waits, index);
		reads->has_changed = 1;
	}
	return KVPULL_EAGAIN;
}

void kvpull_reads_step(struct kvpull_reads *reads, uint32_t index)
{
	const struct kvpull_reads_request *request = &reads->requests[index];
	int code = 0;

	reads->steps++;
	wait_leave(reads, index);
	while (!code && request->state < KVPULL_READS_DRAIN)
		code = request->state == KVPULL_READS_CONNECT ?
			       connect_step(reads, index) :
			       phase_step(reads, index);
	if (code == 1)
		request_end(reads, index);
	else if (code == KVPULL_EABORTED && reads->owner->again)
		request_again(reads, index);
	else if (code && code != KVPULL_EAGAIN)
		kvpull_reads_fail(reads, index, code);
}

void kvpull_reads_begin(struct kvpull_reads *reads, uint32_t index,
			const enum kvpull_reads_state *phases,
			uint32_t part_most, uint64_t deadline_ns)
{
	struct kvpull_reads_request *request = &reads->requests[index];

	request->state = KVPULL_READS_CONNECT;
	request->code = 0;
	request->phases = phases;
	request->phase = 0;
	request->part_most = part_most;
	request->part_count = request->parts_open = 0;
	request->priority = 0;
	request->deadline_ns = deadline_ns;
	kvpull_index_list_push(&reads->live, index);
}

void kvpull_reads_event(struct kvpull_reads *reads,
			const struct kvpull_event *event)
{
	struct kvpull_reads_part *part = &reads->parts[event->read->index];
	struct kvpull_reads_request *request = &reads->requests[part->request];
	const int is_read = event->kind == KVPULL_EVENT_READ_DONE;
	const enum kvpull_reads_state phase =
		is_read                                ? KVPULL_READS_DATA :
		request->state == KVPULL_READS_WRITTEN ? KVPULL_READS_WRITTEN :
							 KVPULL_READS_GUARDS;
	int32_t code = event->code;

	kvpull_check(reads->log, request->parts_open > 0);
	kvpull_check(reads->log,
		     part->state == (is_read ? PART_READS : PART_CHECKS));
	request->parts_open--;
	part->state = PART_NEW;
	if (!code)
		code = part_end(reads, part, phase);
	if (request->state == KVPULL_READS_DRAIN) {
		if (!request->parts_open)
			request_end(reads, part->request);
		return;
	}
	if (code && code != KVPULL_EAGAIN &&
	    (code != KVPULL_EABORTED || !reads->owner->again))
		kvpull_reads_fail(reads, part->request, code);
	else if (code == KVPULL_EABORTED ||
		 request->state == KVPULL_READS_AGAIN)
		request_again(reads, part->request);
	else
		kvpull_reads_step(reads, part->request);
}

/* The request whose turn for parts it is, if they are there; KVPULL_NONE. */
static uint32_t parts_next(const struct kvpull_reads *reads)
{
	const uint32_t index = kvpull_turns_next(&reads->parts_waits);

	return index != KVPULL_NONE && has_room(reads, index) ? index :
								KVPULL_NONE;
}

/* Parts came free: the requests that wait for them go on, in turns. */
static int parts_turns(struct kvpull_reads *reads)
{
	uint32_t index = parts_next(reads);
	uint32_t left = TURNS_MAX;

	for (; index != KVPULL_NONE && left--; index = parts_next(reads)) {
		reads->parts_turn = index;
		kvpull_turns_give(&reads->parts_waits);
		kvpull_reads_step(reads, index);
	}
	reads->parts_turn = KVPULL_NONE;
	return index != KVPULL_NONE;
}

/* Something else has changed: each request that waits is looked at once. */
static int again_turns(struct kvpull_reads *reads)
{
	const struct kvpull_index_list *list = &reads->again_waits;
	uint32_t left = TURNS_MAX;

	if (reads->has_changed && !reads->again_left) {
		reads->has_changed = 0;
		reads->again_left = list->count;
	}
	for (; reads->again_left && list->count && left--; reads->again_left--)
		kvpull_reads_step(reads, list->first);
	if (!list->count)
		reads->again_left = 0;
	return reads->again_left != 0;
}

static int deadlines_look(struct kvpull_reads *reads, uint64_t now_ns)
{
	uint32_t left = LOOKS_MAX;

	if (reads->deadline_at == KVPULL_NONE && now_ns >= reads->look_ns) {
		reads->deadline_at = reads->live.first;
		reads->look_ns = now_ns + DEADLINES_NS;
	}
	while (reads->deadline_at != KVPULL_NONE && left--) {
		const uint32_t index = reads->deadline_at;

		reads->deadline_at = reads->live.links[index].next;
		if (now_ns >= reads->requests[index].deadline_ns)
			kvpull_reads_fail(reads, index, KVPULL_EDEADLINE);
	}
	return reads->deadline_at != KVPULL_NONE;
}

uint64_t kvpull_reads_run(struct kvpull_reads *reads, uint64_t now_ns)
{
	int is_due;

	if (!reads->live.count)
		return UINT64_MAX;
	/* A request that is too late is not begun. */
	is_due = deadlines_look(reads, now_ns);
	is_due |= parts_turns(reads);
	is_due |= again_turns(reads);
	if (is_due)
		return now_ns;
	return reads->has_changed && now_ns + READY_NS < reads->look_ns ?
		       now_ns + READY_NS :
		       reads->look_ns;
}
