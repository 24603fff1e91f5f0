/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_top: what the workers of a machine do, and the handles of its pools,
 * from their status files alone.
 *
 * kvpull_top.c            options, the loop
 * kvpull_top_read.c       files to snapshots: believed, copied, never mapped
 * kvpull_top_model.c      who holds what, and what is wrong
 * kvpull_top_screen.c     tables for people
 * kvpull_top_json.c       the same for programs
 * kvpull_top_prometheus.c metrics, as text or served on loopback
 * kvpull_top_trace.c      a trace of the requests, both sides joined
 */
#ifndef KVPULL_TOOLS_KVPULL_TOP_PARTS_H
#define KVPULL_TOOLS_KVPULL_TOP_PARTS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/params.h"
#include "plugin/status/status.h"

#define TOP_WORKERS_MAX 256u
#define TOP_FINDINGS_MAX 64u
#define TOP_FOLDERS_MAX 8u
#define TOP_UNREAD_MAX 8u                    /* that are named */
#define TOP_ROWS_MAX 200u                    /* of a table */
#define TOP_MINUTE_NS (60 * KVPULL_NS_PER_S) /* "lately" */
#define TOP_GONE_NS (600 * KVPULL_NS_PER_S)  /* the dead are shown */
#define TOP_SILENT_NS (2 * KVPULL_NS_PER_S)  /* of an engine's thread */

enum top_state {
	TOP_RUNNING,
	TOP_STOPPED,
	TOP_GONE,
	TOP_CLOSED
};

/*
 * A status file of a worker or of a pool's handle, as it was at about one
 * moment.
 */
struct top_worker {
	char path[512];
	struct kvpull_status_header header;
	uint8_t *bytes; /* the file; what is behind held_bytes was never used */
	uint64_t held_bytes;
	uint64_t now_ns; /* of its clock: now, or when it was last seen */
	enum top_state state;
};

/* Holds that one consumer rank keeps; NULL row: holds without a claimant. */
struct top_consumer {
	const struct kvpull_status_consumer *row;
	const struct kvpull_status_words *words;
	uint32_t index;
	uint64_t holds;
	uint64_t blocks;
	uint64_t oldest_ns; /* age */
	uint64_t heard_ns;  /* ago */
};

struct top_holds {
	uint64_t held;
	uint64_t staged;
	uint64_t ended;
	uint64_t blocks;
	uint64_t oldest_ns;
	uint64_t ages[4]; /* below 1 s, 10 s, a minute; older */
	uint64_t claimed;
};

/* A finding: the culprit, for how long, and how much it keeps. */
struct top_finding {
	const char *what;
	const struct top_worker *at; /* where it was seen */
	char engine[KVPULL_STATUS_NAME_BYTES];
	uint32_t pid;
	uint64_t since_ns;
	uint64_t holds;
	uint64_t blocks;
	char text[256];
};

/* A folder or a file that could not be read, or is not believed. */
struct top_unread {
	char path[256];
	char why[64];
};

struct top {
	struct top_worker workers[TOP_WORKERS_MAX];
	uint32_t worker_count; /* with the pools' handles */
	uint32_t pool_count;
	uint32_t workers_more; /* that had no room */
	struct top_finding findings[TOP_FINDINGS_MAX];
	uint32_t finding_count;
	uint32_t findings_more; /* likewise */
	struct top_unread unread[TOP_UNREAD_MAX];
	uint32_t unread_count; /* in all; the first ones are named */
	uint32_t named_unread; /* folders that --folder names */
	uint64_t utc_ns;       /* and CLOCK_MONOTONIC at that moment */
	uint64_t now_ns;
	char host[KVPULL_STATUS_NAME_BYTES];
};

struct top_options {
	const char *folders[TOP_FOLDERS_MAX];
	uint32_t folder_count;
	uint32_t folders_are_usual; /* nobody named them: they may be missing */
	const char *after;          /* a pid or a file */
	const char *trace;
	const char *listen;
	const char *view; /* NULL: the screen */
	int64_t uid;      /* whose files; -1: ours and the folder's owner's */
	uint32_t interval_ms;
	uint32_t once;
	uint32_t json;
	uint32_t prometheus;
	uint32_t all; /* also who closed, or is gone for long */
};

/* Reads the files and makes the findings. */
void top_look(struct top *top, const struct top_options *options);

/* _read.c */
void top_read(struct top *top, const struct top_options *options);
void top_free(struct top *top);
/* Rows of a part that lie in the snapshot. */
const void *top_rows(const struct top_worker *worker,
		     enum kvpull_status_part part, uint32_t *count);
const struct kvpull_status_thread *top_thread(const struct top_worker *worker,
					      enum kvpull_status_part part);
/* NULL: it is a worker's. */
const struct kvpull_status_pool *top_pool(const struct top_worker *worker);
/* UINT64_MAX: there is no such counter. */
uint64_t top_counter(const struct top_worker *worker, uint32_t at);
uint64_t top_counter_named(const struct top_worker *worker, const char *name);
/* The i-th of those that are kept, the oldest first; 0: no more. */
int top_event(const struct top_worker *worker, enum kvpull_status_part part,
	      uint64_t at, struct kvpull_status_note *note);
uint64_t top_ago(const struct top_worker *worker, uint64_t then_ns);
void top_text(char *to, size_t bytes, const char *from, size_t from_bytes);

/* _model.c */
/* Until the next call; the last one is of nobody. A pool has none, nor that. */
struct top_consumer *top_consumers(const struct top_worker *worker,
				   uint32_t *count);
/*
 * Names the engine that has claimed the hold last, of top_consumers();
 * "nobody".
 */
void top_claimant(const struct kvpull_status_hold_now *now,
		  struct top_consumer *consumers, uint32_t count, char *text,
		  size_t bytes);
void top_holds(const struct top_worker *worker, struct top_holds *holds);
/* Slots of the oldest held, [capacity]. */
uint32_t top_oldest(const struct top_worker *worker, uint32_t *slots,
		    uint32_t capacity);
/* States of the holds, likewise: a row a slot. */
const struct kvpull_status_hold_now *
top_holds_now(const struct top_worker *worker);
/* Has the row anything to show? */
int top_peer_is_shown(const struct kvpull_status_peer *row);
/* Role of a pool's handle: "owner", "reader", "both", or "-". */
const char *top_role(const struct top_worker *worker);
/* Number of owners that the pool's handle gave up. */
uint32_t top_given_up(const struct top_worker *worker);
/* By both threads. */
uint64_t top_peer_pulls(const struct kvpull_status_peer *row);
uint64_t top_peer_bytes(const struct kvpull_status_peer *row);
uint64_t top_failures(const struct top_worker *worker, int code);
/* Since that thread's last run. */
uint64_t top_ran(const struct top_worker *worker, enum kvpull_status_part part);
/* buckets: [KVPULL_STATUS_BUCKETS], out. Return: how many times in all. */
uint64_t top_times(const struct top_worker *worker, uint32_t which,
		   uint64_t *buckets);
uint64_t top_time_sum(const struct top_worker *worker, uint32_t which);
/* Upper end of its bucket, nanoseconds. */
uint64_t top_quantile(const uint64_t *buckets, uint64_t times,
		      uint32_t percent);
uint64_t top_errors(const struct top_worker *worker);
const char *top_state_name(enum top_state state);
const char *top_peer_state(uint32_t state);
const char *top_pull_state(uint32_t state);
/* Why a hold ended. */
const char *top_end_reason(int32_t reason);

/* _screen.c */
void top_screen(const struct top *top, const struct top *before,
		const struct top_options *options, uint32_t columns,
		uint32_t lines);
void top_after(const struct top *top);

/* _json.c, _prometheus.c, _trace.c: 0 or 1, an exit status */
int top_json(const struct top *top);
int top_prometheus(const struct top *top, FILE *out);
int top_serve(const struct top_options *options);
int top_trace(const struct top *top, const char *path);

#endif /* KVPULL_TOOLS_KVPULL_TOP_PARTS_H */
