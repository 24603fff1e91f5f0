/* SPDX-License-Identifier: Apache-2.0 */
#include "base/device_feed.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"

/* An index has one order and its cancel or unmap on the way, and as many ends. */
#define RECORDS_AN_INDEX 2u

/* ---- calls and ends ---- */

/* From here to leave() the thread touches nothing of the feed but the device. */
static void enter(struct kvpull_device_feed *feed)
{
	kvpull_device_gate_enter(&feed->gate, feed->now_ns);
}

/* No call follows. The step ends the jobs, by fail(). */
static void lost(struct kvpull_device_feed *feed)
{
	feed->has_failed = 1;
	feed->is_lost = 1;
}

/* @code: of the call that was made since enter(). */
static int leave(struct kvpull_device_feed *feed, int code)
{
	kvpull_device_gate_leave(&feed->gate, feed->now_ns);
	if (code == KVPULL_EDEVICE)
		lost(feed);
	return code;
}

static void end_push(struct kvpull_device_feed *feed,
		     enum kvpull_device_kind kind, uint32_t index,
		     uint64_t extra)
{
	const struct kvpull_record record = {
		.kind = kind,
		.slot = index,
		.extra = extra,
	};
	const int pushed = kvpull_ring_push(&feed->ends, &record);

	/* The ring has room for the ends of all jobs and mappings. */
	kvpull_check(feed->log, pushed >= 0);
	if (pushed && feed->wake_fd >= 0)
		(void)eventfd_write(feed->wake_fd, 1);
}

/* ---- mappings ---- */

/* A lost device's memory stays with the process: no call is made. */
static void unmap(struct kvpull_device_feed *feed,
		  const struct kvpull_device_memory *memory)
{
	struct kvpull_device_memory mapped = *memory;

	if (!mapped.address || feed->is_lost)
		return;
	enter(feed);
	feed->device->ops->unmap(feed->device, &mapped);
	(void)leave(feed, 0);
}

/* Unmap what was ordered to be, and has no job left. */
static void mappings_leave(struct kvpull_device_feed *feed)
{
	struct kvpull_device_mapping *mapping;
	uint32_t at;

	for (at = 0; feed->leaving_count && at < feed->limits.mapping_max;
	     at++) {
		mapping = &feed->mappings[at];
		if (!mapping->is_leaving || mapping->users)
			continue;
		unmap(feed, &mapping->memory);
		*mapping = (struct kvpull_device_mapping){ .fd = -1 };
		feed->leaving_count--;
		end_push(feed, KVPULL_DEVICE_UNMAP, at, 0);
	}
}

static void import_end(struct kvpull_device_feed *feed, uint32_t index,
		       int code)
{
	struct kvpull_device_mapping *const mapping = &feed->mappings[index];

	mapping->fd = -1;
	mapping->code = code;
	if (code)
		mapping->memory = (struct kvpull_device_memory){ 0 };
	feed->importing = KVPULL_NONE;
	/* The owner does not look at the mapping, which may be gone by then. */
	if (mapping->memory.access == KVPULL_DEVICE_READ_WRITE)
		code = KVPULL_DEVICE_FOR_STORES;
	end_push(feed, KVPULL_DEVICE_IMPORT, index,
		 (uint32_t)code | (uint64_t)mapping->memory.bytes_per_us << 32);
}

static void import(struct kvpull_device_feed *feed, uint32_t index)
{
	struct kvpull_device_mapping *const mapping = &feed->mappings[index];
	const uint64_t bytes = mapping->memory.bytes;
	const uint32_t is_lost = feed->is_lost;
	const int fd = mapping->fd;
	struct kvpull_device_memory taken = { 0 };
	int code = KVPULL_EDEVICE;

	feed->importing = index;
	enter(feed);
	if (!is_lost)
		code = feed->device->ops->import_fd(feed->device, fd, bytes,
						    mapping->uuid, &taken);
	/* A file of a peer's may make this wait, too. */
	(void)close(fd);
	(void)leave(feed, code);
	mapping->memory = taken;
	import_end(feed, index, code);
}

/* ---- jobs ---- */

/* End a job of which nothing is queued, and nothing will be. */
static void copy_end(struct kvpull_device_feed *feed, uint32_t index)
{
	struct kvpull_device_copy *const copy = &feed->copies[index];
	struct kvpull_device_job *const job = copy->job;
	uint32_t at;

	if (!copy->is_open || !copy->is_fed || copy->slices)
		return;
	for (at = 0; at < job->region_count; at++)
		feed->mappings[job->regions[at].mapping].users--;
	copy->is_open = 0;
	job->code = copy->code;
	end_push(feed, KVPULL_DEVICE_COPY, index, (uint32_t)copy->code);
	/* From here on the job is the owner's. */
	mappings_leave(feed);
}

/* No slice of the job follows. */
static void copy_stop(struct kvpull_device_feed *feed, uint32_t index, int code)
{
	struct kvpull_device_copy *const copy = &feed->copies[index];

	copy->is_fed = 1;
	copy->code = code;
	kvpull_turns_remove(&feed->turns, index);
	copy_end(feed, index);
}

static void copy_take(struct kvpull_device_feed *feed, uint32_t index)
{
	struct kvpull_device_copy *const copy = &feed->copies[index];
	struct kvpull_device_job *const job = copy->job;
	int code = feed->is_lost ? KVPULL_EDEVICE : 0;
	uint32_t at;

	*copy = (struct kvpull_device_copy){ .job = job, .is_open = 1 };
	for (at = 0; at < job->region_count; at++) {
		const uint32_t mapping_index = job->regions[at].mapping;
		struct kvpull_device_mapping *mapping;

		kvpull_check(feed->log,
			     mapping_index < feed->limits.mapping_max);
		mapping = &feed->mappings[mapping_index];
		mapping->users++;
		if (!code)
			code = mapping->code;
	}
	kvpull_turns_push(&feed->turns, index, job->read->priority);
	if (code)
		copy_stop(feed, index, code);
	else
		copy->gathers = kvpull_device_rows_can_gather(&feed->rows, job);
}

/* A cancelled job waits for the slices that are queued. */
static void copy_cancel(struct kvpull_device_feed *feed, uint32_t index)
{
	if (!feed->copies[index].is_fed)
		copy_stop(feed, index, KVPULL_EABORTED);
}

/* ---- slices ---- */

static int rows_copy(struct kvpull_device_feed *feed, uint32_t slot)
{
	const struct kvpull_device_ops *const ops = feed->device->ops;
	const struct kvpull_device_rows *const rows = &feed->rows;
	const struct kvpull_device_gather gather = {
		.strips = rows->strips,
		.strip_count = rows->strip_count,
		.slot = slot,
	};

	if (!rows->bytes)
		return 0;
	enter(feed);
	return leave(feed, rows->strip_count ?
				   ops->gather(feed->device, &gather) :
				   ops->copy(feed->device, &rows->pieces));
}

/*
 * Queue a copy and its event. The slice is taken before the call: if that hangs,
 * it may have queued the copy.
 */
static int slice_queue(struct kvpull_device_feed *feed, uint32_t index,
		       struct kvpull_device_event *mark)
{
	const uint32_t slot = (feed->slice_first + feed->slice_count) %
			      KVPULL_DEVICE_SLICES_MAX;
	struct kvpull_device_copy *const copy = &feed->copies[index];
	struct kvpull_device_slice *const slice = &feed->slices[slot];
	int code;

	if (!feed->slice_count)
		feed->seen_ns = feed->now_ns;
	slice->job = index;
	slice->mark = mark;
	slice->bytes = feed->rows.bytes;
	feed->slice_count++;
	copy->slices++;
	code = rows_copy(feed, slot);
	if (feed->has_failed)
		return code;
	/* A refused copy, too: parts of it may be queued. */
	enter(feed);
	if (leave(feed, feed->device->ops->record(feed->device, slice->event)))
		lost(feed);
	return code;
}

static int mark_wait(struct kvpull_device_feed *feed,
		     struct kvpull_device_event *mark)
{
	if (!mark)
		return 0;
	enter(feed);
	return leave(feed, feed->device->ops->wait(feed->device, mark));
}

static int flush(struct kvpull_device_feed *feed)
{
	enter(feed);
	return leave(feed, feed->device->ops->flush(feed->device));
}

/* The next slice of a job: 0, or the code with which it stops. */
static int copy_feed(struct kvpull_device_feed *feed, uint32_t index)
{
	struct kvpull_device_copy *const copy = &feed->copies[index];
	struct kvpull_device_event *const mark =
		copy->has_begun ? NULL : copy->job->after;
	int code = copy->job->is_flush ? flush(feed) : mark_wait(feed, mark);

	copy->has_begun = 1;
	if (!code)
		code = kvpull_device_rows_take(&feed->rows, copy->job,
					       &copy->cursor, copy->gathers,
					       feed->slice_bytes);
	if (code)
		return code;
	copy->is_fed = !kvpull_device_rows_left(copy->job, &copy->cursor);
	/* A mark is seen by the event behind it. */
	return feed->rows.bytes || mark ? slice_queue(feed, index, mark) : 0;
}

static int turn(struct kvpull_device_feed *feed)
{
	const uint32_t index = kvpull_turns_next(&feed->turns);
	int code;

	if (index == KVPULL_NONE ||
	    feed->slice_count == KVPULL_DEVICE_SLICES_MAX)
		return 0;
	code = copy_feed(feed, index);
	kvpull_turns_remove(&feed->turns, index);
	kvpull_turns_give(&feed->turns);
	if (code)
		copy_stop(feed, index, code);
	else if (feed->copies[index].is_fed)
		copy_end(feed, index);
	else
		kvpull_turns_push(&feed->turns, index,
				  feed->copies[index].job->read->priority);
	return 1;
}

/* ---- the device's end ---- */

/* All jobs end but those of which a slice is queued. */
static void lose(struct kvpull_device_feed *feed)
{
	uint32_t at;

	feed->is_lost = 1;
	/* The flag orders no other memory: a later read of it sees it set. */
	atomic_store_explicit(&feed->is_over, 1, memory_order_relaxed);
	for (at = 0; at < feed->limits.job_max; at++)
		if (feed->copies[at].is_open)
			copy_stop(feed, at, KVPULL_EDEVICE);
	mappings_leave(feed);
}

/* The table has said so in its line: no copy goes on. */
static void fail(struct kvpull_device_feed *feed)
{
	uint32_t at;

	feed->has_failed = 0;
	feed->slice_count = 0;
	for (at = 0; at < feed->limits.job_max; at++)
		feed->copies[at].slices = 0;
	lose(feed);
}

/* Jobs whose slices are queued end once their events are reached, if ever. */
static void hang(struct kvpull_device_feed *feed)
{
	kvpull_error(
		feed->log,
		"device: a copy has not ended in %u s: no pull into its memory is made any more: restart the engine, and look for Xid in dmesg",
		(unsigned int)(KVPULL_DEVICE_HANG_NS / KVPULL_NS_PER_S));
	lose(feed);
}

/* The engine's own work may take any time: another rank's may keep it waiting. */
static int is_behind_mark(struct kvpull_device_feed *feed,
			  const struct kvpull_device_slice *slice)
{
	if (!slice->mark)
		return 0;
	enter(feed);
	return !leave(feed,
		      feed->device->ops->query(feed->device, slice->mark));
}

static void hang_look(struct kvpull_device_feed *feed,
		      const struct kvpull_device_slice *slice)
{
	if (feed->is_lost ||
	    feed->now_ns - feed->seen_ns < KVPULL_DEVICE_HANG_NS)
		return;
	if (is_behind_mark(feed, slice))
		feed->seen_ns = feed->now_ns;
	else if (!feed->has_failed)
		hang(feed);
}

static uint64_t slice_bytes_of(uint64_t bytes_per_ms)
{
	if (bytes_per_ms > KVPULL_DEVICE_SLICE_BYTES_MAX)
		return KVPULL_DEVICE_SLICE_BYTES_MAX;
	return bytes_per_ms < KVPULL_DEVICE_SLICE_BYTES_MIN ?
		       KVPULL_DEVICE_SLICE_BYTES_MIN :
		       bytes_per_ms;
}

/*
 * A slice has what is copied in a millisecond. Full slices say how much that is,
 * and those that took longer; small ones end sooner than anybody looks, and the
 * time of one behind a mark is the engine's.
 */
static void rate_learn(struct kvpull_device_feed *feed,
		       const struct kvpull_device_slice *slice)
{
	const uint64_t took_ns = feed->now_ns - feed->seen_ns;
	uint64_t bytes_per_ms;

	if (slice->mark || !took_ns ||
	    (slice->bytes < feed->slice_bytes && took_ns <= KVPULL_NS_PER_MS))
		return;
	bytes_per_ms = slice->bytes * KVPULL_NS_PER_MS / took_ns;
	feed->slice_bytes =
		slice_bytes_of((3 * feed->slice_bytes + bytes_per_ms) / 4);
}

/* Look for the oldest slice's event. */
static int slice_see(struct kvpull_device_feed *feed)
{
	const struct kvpull_device_slice *const slice =
		&feed->slices[feed->slice_first % KVPULL_DEVICE_SLICES_MAX];
	int is_reached;

	if (!feed->slice_count)
		return 0;
	enter(feed);
	is_reached = leave(
		feed, feed->device->ops->query(feed->device, slice->event));
	if (is_reached < 0) {
		lost(feed);
		return 1;
	}
	if (!is_reached) {
		hang_look(feed, slice);
		return 0;
	}
	rate_learn(feed, slice);
	feed->seen_ns = feed->now_ns;
	feed->slice_first++;
	feed->slice_count--;
	feed->copies[slice->job].slices--;
	copy_end(feed, slice->job);
	return 1;
}

/* ---- orders ---- */

static int order_pop(struct kvpull_device_feed *feed,
		     struct kvpull_record *order)
{
	if (kvpull_ring_ready(&feed->orders) <= 0)
		return 0;
	kvpull_ring_pop(&feed->orders, order);
	kvpull_ring_pop_end(&feed->orders);
	return 1;
}

static void order_obey(struct kvpull_device_feed *feed,
		       const struct kvpull_record *order)
{
	switch ((enum kvpull_device_kind)order->kind) {
	case KVPULL_DEVICE_IMPORT:
		import(feed, order->slot);
		break;
	case KVPULL_DEVICE_UNMAP:
		feed->mappings[order->slot].is_leaving = 1;
		feed->leaving_count++;
		mappings_leave(feed);
		break;
	case KVPULL_DEVICE_COPY:
		copy_take(feed, order->slot);
		break;
	case KVPULL_DEVICE_CANCEL:
		copy_cancel(feed, order->slot);
		break;
	}
}

static int order_take(struct kvpull_device_feed *feed)
{
	struct kvpull_record order;

	if (!order_pop(feed, &order))
		return 0;
	order_obey(feed, &order);
	return 1;
}

/* While this thread was stopped nobody saw that the device was slow. */
static void time_goes_on(struct kvpull_device_feed *feed, uint64_t now_ns)
{
	const uint64_t since_ns = now_ns - feed->now_ns;

	if (since_ns > KVPULL_DEVICE_LOOK_NS)
		feed->seen_ns += since_ns - KVPULL_DEVICE_LOOK_NS;
	feed->now_ns = now_ns;
}

int kvpull_device_feed_see(struct kvpull_device_feed *feed, uint64_t now_ns)
{
	int has_seen;

	time_goes_on(feed, now_ns);
	has_seen = slice_see(feed);
	if (feed->has_failed)
		fail(feed);
	return has_seen;
}

enum kvpull_device_next kvpull_device_feed_step(struct kvpull_device_feed *feed,
						uint64_t now_ns)
{
	int has_worked = kvpull_device_feed_see(feed, now_ns);

	has_worked |= order_take(feed);
	if (!feed->has_failed)
		has_worked |= turn(feed);
	if (feed->has_failed)
		fail(feed);
	if (has_worked)
		return KVPULL_DEVICE_AGAIN;
	return feed->slice_count ? KVPULL_DEVICE_SOON : KVPULL_DEVICE_IDLE;
}

void kvpull_device_feed_abandon(struct kvpull_device_feed *feed)
{
	struct kvpull_record order;

	lose(feed);
	/* The call may still use the descriptor. */
	if (feed->importing != KVPULL_NONE)
		import_end(feed, feed->importing, KVPULL_EDEVICE);
	while (order_pop(feed, &order)) {
		if (order.kind != KVPULL_DEVICE_IMPORT) {
			order_obey(feed, &order);
			continue;
		}
		/* import() would pass the gate, which is the hanging thread's. */
		(void)close(feed->mappings[order.slot].fd);
		import_end(feed, order.slot, KVPULL_EDEVICE);
	}
}

/* ---- open and close ---- */

/* A ring for the orders or the ends of all indices. */
static int ring_take(const struct kvpull_device_limits *limits,
		     struct kvpull_ring *reader,
		     struct kvpull_ring_writer *writer,
		     struct kvpull_arena *arena)
{
	const uint32_t records = kvpull_ring_records(
		RECORDS_AN_INDEX * (limits->job_max + limits->mapping_max));
	void *memory = kvpull_arena_take(arena, 1, kvpull_ring_bytes(records));

	return memory ? kvpull_ring_pair(reader, writer, memory, records) :
			KVPULL_ENOMEM;
}

int kvpull_device_feed_init(struct kvpull_device_feed *feed,
			    const struct kvpull_device_limits *limits,
			    struct kvpull_ring_writer *orders,
			    struct kvpull_ring *ends,
			    struct kvpull_arena *arena)
{
	uint32_t at;
	int code;

	feed->limits = *limits;
	feed->slice_bytes = slice_bytes_of(limits->bytes_per_ms);
	feed->importing = KVPULL_NONE;
	KVPULL_ARENA_TAKE(arena, feed->copies, limits->job_max);
	KVPULL_ARENA_TAKE(arena, feed->mappings, limits->mapping_max);
	/* The arena returns NULL for a count of 0: one more than is used. */
	KVPULL_ARENA_TAKE(arena, feed->marks, limits->mark_max + 1);
	kvpull_turns_init(&feed->turns, limits->job_max, arena);
	code = ring_take(limits, &feed->orders, orders, arena);
	if (!code)
		code = ring_take(limits, ends, &feed->ends, arena);
	if (!code)
		code = kvpull_device_rows_init(&feed->rows, feed->mappings,
					       arena);
	if (code || !kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	for (at = 0; at < limits->mapping_max; at++)
		feed->mappings[at].fd = -1;
	return 0;
}

/* Events of marks are opened by the thread that makes a mark in that place. */
int kvpull_device_feed_open(struct kvpull_device_feed *feed, uint64_t now_ns)
{
	const struct kvpull_device_ops *const ops = feed->device->ops;
	uint32_t at;
	int code = 0;

	feed->now_ns = now_ns;
	for (at = 0; at < KVPULL_DEVICE_SLICES_MAX && !code; at++) {
		enter(feed);
		code = leave(feed, ops->event_open(feed->device,
						   &feed->slices[at].event));
	}
	if (!code)
		return 0;
	/* The event of the last slice was not opened. */
	for (at--; at--;) {
		enter(feed);
		ops->event_close(feed->device, feed->slices[at].event);
		(void)leave(feed, 0);
	}
	return code;
}

/* A mark whose work still runs stays open until the process ends. */
static void event_end(struct kvpull_device_feed *feed,
		      struct kvpull_device_event *event)
{
	const struct kvpull_device_ops *const ops = feed->device->ops;

	if (event && ops->query(feed->device, event) == 1)
		ops->event_close(feed->device, event);
}

int kvpull_device_feed_close(struct kvpull_device_feed *feed, uint64_t now_ns)
{
	const struct kvpull_device_ops *const ops = feed->device->ops;
	uint32_t at;

	feed->now_ns = now_ns;
	enter(feed);
	for (at = 0; at < feed->limits.mapping_max; at++)
		kvpull_fd_close(&feed->mappings[at].fd);
	(void)leave(feed, 0);
	if (feed->slice_count || feed->is_lost)
		return 1;
	for (at = 0; at < feed->limits.mapping_max; at++)
		unmap(feed, &feed->mappings[at].memory);
	enter(feed);
	for (at = 0; at < KVPULL_DEVICE_SLICES_MAX; at++)
		event_end(feed, feed->slices[at].event);
	for (at = 0; at < feed->limits.mark_max; at++)
		event_end(feed, feed->marks[at]);
	ops->close(feed->device);
	(void)leave(feed, 0);
	return 0;
}
