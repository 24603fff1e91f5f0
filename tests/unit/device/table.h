/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's table without a driver: it writes down each call as a word, and ends
 * the program at a call that would lose bytes. The stream stands still until a
 * test lets it reach events.
 */
#ifndef KVPULL_TESTS_UNIT_DEVICE_TABLE_H
#define KVPULL_TESTS_UNIT_DEVICE_TABLE_H

#include <stdatomic.h>

#include "base/device.h"

#define TABLE_EVENTS_MAX 8u
#define TABLE_COPIES_MAX 4096u
#define TABLE_WORDS_MAX 65536u
#define TABLE_GRANULARITY ((uint64_t)2 << 20)

enum table_call {
	TABLE_IMPORT = 0,
	TABLE_UNMAP,
	TABLE_COPY,
	TABLE_GATHER,
	TABLE_RECORD,
	TABLE_QUERY,
	TABLE_WAIT,
	TABLE_OPEN,
	TABLE_CALLS
};

enum {
	TABLE_HANGS_SHORTLY = 1, /* while it says so */
	TABLE_HANGS_FOR_EVER
};

struct table_copy {
	uint64_t bytes;
	uint64_t target; /* of the first piece */
	uint64_t source;
	uint64_t queued; /* as which entry of the stream */
	uint32_t pieces; /* or rows of strips */
	uint32_t strips; /* 0: these are pieces */
};

struct kvpull_device_event {
	uint64_t recorded; /* copies before the last record; 0: none yet */
	uint32_t is_open;
	uint32_t is_mark;
};

struct table {
	struct kvpull_device device; /* first: the seam's */
	struct kvpull_device_event events[TABLE_EVENTS_MAX];
	struct table_copy copies[TABLE_COPIES_MAX];
	uint32_t copy_count;
	/* Copies and records that were queued; those reached by the stream. */
	_Atomic uint64_t queued;
	_Atomic uint64_t reached;
	uint64_t slots[KVPULL_DEVICE_SLOTS]; /* the last entry of each */
	uint64_t next_address;
	uint8_t uuid[KVPULL_DEVICE_UUID_BYTES]; /* of the last import */
	/* Imported memory has these; access 0: KVPULL_DEVICE_READ. */
	uint32_t gathers;
	uint32_t access;
	uint32_t bytes_per_us;
	uint32_t mapped;
	uint32_t open_events;
	uint32_t is_closed;
	uint32_t is_lost;
	/* A call that is refused: its code; how many are made before. */
	int codes[TABLE_CALLS];
	uint32_t after[TABLE_CALLS];
	uint32_t made[TABLE_CALLS];
	/* This call does not return: TABLE_HANGS. */
	_Atomic uint32_t hangs[TABLE_CALLS];

	/* Called by the thread whose call begins to hang. */
	void (*hanging)(void);
	/* The calls, as text: "import copy record ..." but queries. */
	char words[TABLE_WORDS_MAX];
};

extern struct table table;

/* 1: one event of the device's can be opened, and no more. */
extern int table_refuses_event;

/* Nothing of a test before. */
void table_clear(void);

/* Opens the table: kvpull_device_open_fn. */
int table_open(struct kvpull_arena *arena, const struct kvpull_log *log,
	       int index, struct kvpull_device **device);

/* An event as the engine records one. */
struct kvpull_device_event *table_mark(void);

/* The stream goes on to all that is queued; by so many entries. */
void table_reach_all(void);
void table_reach(uint64_t entries);

#endif
