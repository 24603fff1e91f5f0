/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/device/table.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct table table;
int table_refuses_event;

static void wrong(const char *what)
{
	(void)printf("table: %s; calls:%s\n", what, table.words);
	(void)fflush(stdout);
	abort();
}

static void word(const char *text)
{
	const size_t length = strlen(table.words);

	(void)snprintf(table.words + length, sizeof(table.words) - length,
		       " %s", text);
}

static uint64_t reached(void)
{
	return atomic_load_explicit(&table.reached, memory_order_acquire);
}

static uint64_t queue(void)
{
	return 1 + atomic_fetch_add_explicit(&table.queued, 1,
					     memory_order_relaxed);
}

static uint32_t hangs(enum table_call call)
{
	return atomic_load_explicit(&table.hangs[call], memory_order_acquire);
}

/* Threads that hang for ever, each behind its last look at the table. */
static _Atomic uint32_t hung;

void table_clear(void)
{
	(void)atomic_load_explicit(&hung, memory_order_acquire);
	memset(&table, 0, sizeof(table));
}

static void hang(enum table_call call)
{
	void (*const hanging)(void) = table.hanging;
	const int is_short = hangs(call) == TABLE_HANGS_SHORTLY;

	(void)atomic_fetch_add_explicit(&hung, 1, memory_order_release);
	if (hanging)
		hanging();
	if (!is_short)
		for (;;)
			(void)pause();
	while (hangs(call))
		(void)sched_yield();
	/* A driver's call that hung is refused at last. */
	kvpull_warn(table.device.log, "a call has returned");
}

/* The code of this call; it may stand still before. */
static int begun(enum table_call call)
{
	int code;
	if (hangs(call))
		hang(call);
	if (table.is_closed)
		wrong("a call after close()");
	if (table.is_lost)
		wrong("a call of a device that is lost");
	code = table.made[call]++ >= table.after[call] ? table.codes[call] : 0;
	table.is_lost = code == KVPULL_EDEVICE;
	return code;
}

static int import_fd(struct kvpull_device *device, int fd, uint64_t bytes,
		     const uint8_t *uuid, struct kvpull_device_memory *memory)
{
	const int code = begun(TABLE_IMPORT);

	(void)device;
	(void)fd;
	word("import");
	if (code)
		return code;
	table.next_address += TABLE_GRANULARITY << 20;
	*memory = (struct kvpull_device_memory){
		.address = table.next_address,
		.bytes = bytes,
		.access = table.access ? table.access : KVPULL_DEVICE_READ,
		.gathers = table.gathers,
		.bytes_per_us = table.bytes_per_us
	};
	memcpy(table.uuid, uuid, sizeof(table.uuid));
	table.mapped++;
	return 0;
}

/* The double's rule: nothing at all is queued where memory is unmapped. */
static void unmap(struct kvpull_device *device,
		  struct kvpull_device_memory *memory)
{
	uint32_t at;

	(void)device;
	(void)begun(TABLE_UNMAP);
	word("unmap");
	for (at = 0; at < table.copy_count; at++)
		if (table.copies[at].source >= memory->address &&
		    table.copies[at].source < memory->address + memory->bytes &&
		    reached() < table.copies[at].queued)
			wrong("memory is unmapped under a copy");
	table.mapped--;
	*memory = (struct kvpull_device_memory){ 0 };
}

static int event_open(struct kvpull_device *device,
		      struct kvpull_device_event **event)
{
	const int code = begun(TABLE_OPEN);
	uint32_t at = 0;

	(void)device;
	if (code)
		return code;
	if (table_refuses_event && table.open_events)
		return KVPULL_ENOMEM;
	while (table.events[at].is_open)
		at++;
	table.events[at] = (struct kvpull_device_event){ .is_open = 1 };
	table.open_events++;
	*event = &table.events[at];
	return 0;
}

static void event_close(struct kvpull_device *device,
			struct kvpull_device_event *event)
{
	(void)device;
	if (event->recorded > reached())
		wrong("an event is closed before it was reached");
	event->is_open = 0;
	table.open_events--;
}

/* The next copy, of a call that has this code; NULL: nothing was queued. */
static struct table_copy *copy_take(int code)
{
	if (code && code != KVPULL_EREAD)
		return NULL;
	if (table.copy_count == TABLE_COPIES_MAX)
		wrong("more copies than the test wants");
	return &table.copies[table.copy_count];
}

static void copy_queue(void)
{
	table.copies[table.copy_count].queued = queue();
	table.copy_count++;
}

static int copy(struct kvpull_device *device,
		const struct kvpull_device_pieces *pieces)
{
	const int code = begun(TABLE_COPY);
	struct table_copy *const made = copy_take(code);
	uint32_t at;

	(void)device;
	word("copy");
	if (!pieces->count || pieces->count > KVPULL_DEVICE_PIECES_MAX)
		wrong("a copy of too many pieces, or of none");
	if (!made)
		return code;
	*made = (struct table_copy){ .pieces = pieces->count,
				     .target = pieces->targets[0],
				     .source = pieces->sources[0] };
	for (at = 0; at < pieces->count; at++)
		made->bytes += pieces->bytes[at];
	copy_queue();
	return code;
}

static void strip_check(const struct kvpull_device_strip *strip)
{
	if ((strip->source | strip->target | strip->source_stride |
	     strip->target_stride | strip->row_bytes) %
		    KVPULL_DEVICE_UNIT ||
	    !strip->row_bytes || !strip->row_count)
		wrong("a strip that is not of whole units, or is empty");
}

/* Rows are kept for the test; a slot is free once its copy was reached. */
static int gather(struct kvpull_device *device,
		  const struct kvpull_device_gather *gather)
{
	const int code = begun(TABLE_GATHER);
	struct table_copy *const made = copy_take(code);
	uint32_t at;

	(void)device;
	word("gather");
	if (!gather->strip_count ||
	    gather->strip_count > KVPULL_DEVICE_STRIPS_MAX ||
	    gather->slot >= KVPULL_DEVICE_SLOTS)
		wrong("a gather of too many strips, or of none");
	if (table.slots[gather->slot] > reached())
		wrong("a slot is used again before its copy was reached");
	if (!made)
		return code;
	*made = (struct table_copy){ .target = gather->strips[0].target,
				     .source = gather->strips[0].source,
				     .strips = gather->strip_count };
	for (at = 0; at < gather->strip_count; at++) {
		strip_check(&gather->strips[at]);
		made->pieces += gather->strips[at].row_count;
		made->bytes += gather->strips[at].row_bytes *
			       gather->strips[at].row_count;
	}
	if (made->pieces > KVPULL_DEVICE_ROWS_MAX)
		wrong("a gather of too many rows");
	copy_queue();
	table.slots[gather->slot] = made->queued;
	return code;
}

static int record(struct kvpull_device *device,
		  struct kvpull_device_event *event)
{
	const int code = begun(TABLE_RECORD);

	(void)device;
	word("record");
	if (code)
		return code;
	if (event->recorded > reached())
		wrong("an event is used again before it was reached");
	event->recorded = queue();
	return 0;
}

static int query(struct kvpull_device *device,
		 struct kvpull_device_event *event)
{
	const int code = begun(TABLE_QUERY);

	(void)device;
	return code ? code : event->recorded <= reached();
}

static int wait_for(struct kvpull_device *device,
		    struct kvpull_device_event *event)
{
	const int code = begun(TABLE_WAIT);

	(void)device;
	if (!event->is_mark)
		wrong("a wait for what is no mark");
	word("wait");
	return code;
}

static void close_device(struct kvpull_device *device)
{
	(void)device;
	word("close");
	if (table.mapped || table.open_events)
		wrong("memory or events are left at close()");
	table.is_closed = 1;
}

static const struct kvpull_device_ops ops = {
	.import_fd = import_fd,
	.unmap = unmap,
	.event_open = event_open,
	.event_close = event_close,
	.copy = copy,
	.gather = gather,
	.record = record,
	.query = query,
	.wait = wait_for,
	.close = close_device,
};

int table_open(struct kvpull_arena *arena, const struct kvpull_log *log,
	       int index, struct kvpull_device **device)
{
	(void)arena;
	if (index < 0)
		return KVPULL_EUNSUPPORTED;
	table.device.ops = &ops;
	table.device.log = log;
	table.device.granularity = TABLE_GRANULARITY;
	*device = &table.device;
	return 0;
}

struct kvpull_device_event *table_mark(void)
{
	table.events[TABLE_EVENTS_MAX - 1] =
		(struct kvpull_device_event){ .is_mark = 1 };
	return &table.events[TABLE_EVENTS_MAX - 1];
}

void table_reach(uint64_t entries)
{
	(void)atomic_fetch_add_explicit(&table.reached, entries,
					memory_order_release);
}

void table_reach_all(void)
{
	atomic_store_explicit(
		&table.reached,
		atomic_load_explicit(&table.queued, memory_order_relaxed),
		memory_order_release);
}
