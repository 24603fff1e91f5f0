/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_top: shows what the workers of a machine do, and the handles of its
 * pools, from their status files alone.
 *
 * kvpull_top.c            options
 * kvpull_top_read.c       files to snapshots: believed, copied, never mapped
 * kvpull_top_model.c      who holds what, and what is wrong
 * kvpull_top_tables.c     the columns: a name, a head, a metric and a value each
 * kvpull_top_screen.c     tables for people
 * kvpull_top_terminal.c   the screen's loop and its keys
 * kvpull_top_json.c       the same tables for programs
 * kvpull_top_prometheus.c the same tables as metrics
 * kvpull_top_trace.c      a trace of the requests, both sides joined
 */
#ifndef KVPULL_TOOLS_KVPULL_TOP_PARTS_H
#define KVPULL_TOOLS_KVPULL_TOP_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/params.h"
#include "plugin/status/status.h"

/* A word that its writer may change meanwhile. */
#define GET kvpull_status_get
/* The name of a state, which may have been read from a file. */
#define NAME_OF(names, at)                                                     \
	((at) < sizeof(names) / sizeof((names)[0]) ? (names)[at] : "?")

#define TOP_WORKERS_MAX 256u
#define TOP_CONSUMERS_MAX 4095u /* of a worker */
#define TOP_FINDINGS_MAX 63u
#define TOP_FOLDERS_MAX 8u
#define TOP_UNREAD_MAX 8u                    /* that are named */
#define TOP_ROWS_MAX 200u                    /* holds or pulls of a worker */
#define TOP_COLUMNS_MAX 32u                  /* of a table */
#define TOP_CELL_BYTES 512u                  /* a path is the longest text */
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
	char path[TOP_CELL_BYTES];
	struct kvpull_status_header header;
	uint8_t *bytes; /* the file; the header counts the holds in use alone */
	uint64_t now_ns;  /* of its clock: now, or when it was last seen */
	uint64_t gone_ns; /* from then to now; 0: it lives */
	uint32_t is_here; /* its clock is this machine's */
	enum top_state state;
	const struct top_worker *before; /* in the last snapshot, or NULL */
};

/* Holds that one consumer rank keeps; NULL row: holds without a claimant. */
struct top_consumer {
	const struct kvpull_status_consumer *row;
	const struct kvpull_status_words
		*words; /* also of no row: what expired */
	uint64_t holds;
	uint64_t blocks;
	uint64_t oldest_ns; /* age */
	uint64_t heard_ns;  /* ago */
};

struct top_consumers {
	uint32_t count;
	/* all[count] has the holds that no consumer here claimed. */
	struct top_consumer all[TOP_CONSUMERS_MAX + 1];
	/* By a hold's last claimant, `joined`; NULL: nobody. */
	struct top_consumer *at[UINT16_MAX + 1];
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
	const struct top_worker *at;           /* where it was seen */
	char engine[KVPULL_STATUS_NAME_BYTES]; /* "": nobody */
	uint32_t pid;
	uint64_t since_ns;
	uint64_t holds;
	uint64_t blocks;
	char text[320];
};

/* A folder or a file that could not be read, or is not believed. */
struct top_unread {
	char path[256];
	char why[96];
};

struct top {
	const struct top_options *options;
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
	int64_t offset_ns; /* of that clock in our time namespace */
	char host[KVPULL_STATUS_NAME_BYTES];
};

/* The letter of the option, but for the screen. */
enum top_mode {
	TOP_SCREEN,
	TOP_JSON = 'j',
	TOP_PROMETHEUS = 'p',
	TOP_PROMETHEUS_FILE = 'P',
	TOP_TRACE = 't'
};

/* In the order of the words of the command line and of the keys. */
enum top_shown {
	TOP_OVERVIEW,
	TOP_HOLDS,
	TOP_CONSUMERS,
	TOP_PEERS,
	TOP_PULLS,
	TOP_POOLS,
	TOP_FINDINGS
};

struct top_options {
	const char *folders[TOP_FOLDERS_MAX];
	uint32_t folder_count;
	uint32_t folders_are_usual; /* nobody named them: they may be missing */
	enum top_mode mode;
	const char *path;  /* of a trace, or of metrics */
	const char *after; /* a pid or a file */
	enum top_shown shown;
	int64_t uid; /* whose files; -1: ours and the folder's owner's */
	uint32_t interval_ms;
	uint32_t once;
	uint32_t all; /* also who closed, or is gone for long */
};

/* _read.c */
/* before: NULL, or the last snapshot. */
void top_read(struct top *top, struct top *before,
	      const struct top_options *options);
void top_free(struct top *top);
/* Rows of a part that lie in the snapshot; count: NULL, or how many. */
const void *top_rows(const struct top_worker *worker,
		     enum kvpull_status_part part, uint32_t *count);
const struct kvpull_status_thread *top_thread(const struct top_worker *worker,
					      enum kvpull_status_part part);
/* NULL: it is a worker's. */
const struct kvpull_status_pool *top_pool(const struct top_worker *worker);
uint64_t top_counter(const struct top_worker *worker,
		     const struct kvpull_status_counter *row);
/* 0: there is no such counter. */
uint64_t top_counter_named(const struct top_worker *worker, const char *name);
/*
 * The events that a file keeps, of each thread the oldest first. Zero but for
 * worker to begin. Return: 0: no more; 1: note is the next.
 */
struct top_events {
	const struct top_worker *worker;
	uint32_t thread; /* 0: the engine's; 1: the progress thread */
	uint64_t at;
	uint64_t left; /* behind the note, of that thread */
	struct kvpull_status_note note;
};
int top_event_next(struct top_events *events);
/* Age of what lives while the worker does: it ends when the worker was last seen. */
uint64_t top_ago(const struct top_worker *worker, uint64_t then_ns);
void top_text(char *to, size_t bytes, const char *from, size_t from_bytes);

/* _model.c */
/* Reads the files, likewise, and makes the findings. */
void top_look(struct top *top, struct top *before,
	      const struct top_options *options);
/* The consumers of a worker; the next call overwrites them. */
const struct top_consumers *top_consumers(const struct top_worker *worker);
/* Adds the worker's holds to *holds. */
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
uint64_t top_failures(const struct top_worker *worker, int code);
/* Returns the time since the last run of that thread. */
uint64_t top_ran(const struct top_worker *worker, enum kvpull_status_part part);
/* buckets: [KVPULL_STATUS_BUCKETS], out. Return: how many times in all. */
uint64_t top_times(const struct top_worker *worker, uint32_t which,
		   uint64_t *buckets);
uint64_t top_time_sum(const struct top_worker *worker, uint32_t which);
/* Upper end of its bucket, nanoseconds. */
uint64_t top_quantile(const uint64_t *buckets, uint64_t times,
		      uint32_t percent);
uint64_t top_errors(const struct top_worker *worker);
/* Why a hold ended. */
const char *top_end_reason(int32_t reason);

/* _tables.c */
enum top_kind {
	TOP_NOTHING, /* null in JSON */
	TOP_NUMBER,
	TOP_AGE, /* nanoseconds here, seconds for programs */
	TOP_FLAG,
	TOP_TEXT
};

enum top_mark {
	TOP_PLAIN,
	TOP_HEAD,
	TOP_GOOD,
	TOP_BAD,
	TOP_FAINT, /* gone */
	TOP_HIDDEN /* gone for long: JSON has it */
};

struct top_cell {
	enum top_kind kind;
	uint64_t number;           /* of a text: what it is sorted by, or 0 */
	char text[TOP_CELL_BYTES]; /* as the screen has it */
};

struct top_column {
	const char *name; /* in JSON; "a.b": b of the object a; NULL: not there */
	const char *head;  /* on the screen; NULL: not there */
	int width;         /* the least there; negative: from the left */
	uint32_t priority; /* a narrow screen leaves out the highest first */
	struct {
		const char *name; /* NULL: no metric */
		const char *help; /* NULL: a label of the row's metrics */
	} metric;
};

struct top_row;
typedef void top_row_fn(const struct top_row *row);

/* Bits: a table has rows of workers' files, of pools', or of no file. */
#define TOP_OF_WORKERS (1u << KVPULL_STATUS_OF_WORKER)
#define TOP_OF_POOLS (1u << KVPULL_STATUS_OF_POOL)
#define TOP_OF_NONE (1u << KVPULL_STATUS_KINDS)

static inline int top_is_of(const struct top_worker *worker, uint32_t of)
{
	return (of >> (worker ? worker->header.kind :
				(uint32_t)KVPULL_STATUS_KINDS) &
		1u) != 0;
}

struct top_table {
	const char *name; /* of the view, or of the array in JSON */
	uint32_t of;
	uint32_t column_count;
	const struct top_column *columns;
	void (*each)(struct top_row *row); /* fills and gives each row */
};

struct top_row {
	const struct top_table *table;
	const struct top *top;
	const struct top_worker *worker; /* whose file has it; or NULL */
	top_row_fn *give;
	void *context; /* of give */
	enum top_mark mark;
	struct top_cell cells[TOP_COLUMNS_MAX];
};

extern const struct top_table top_workers_table;
extern const struct top_table top_pools_table;
extern const struct top_table top_ages_table; /* one row for all workers */
extern const struct top_table top_holds_table;
extern const struct top_table top_consumers_table;
extern const struct top_table top_readers_table;
extern const struct top_table top_gpus_table;
extern const struct top_table top_peers_table;
extern const struct top_table top_pulls_table;
extern const struct top_table top_events_table;
extern const struct top_table top_findings_table;
extern const struct top_table top_unread_table;

/* The rows of one file, or of none: worker NULL. */
void top_each_of(const struct top_table *table, const struct top *top,
		 const struct top_worker *worker, top_row_fn *give,
		 void *context);
/* Give all rows of a table. */
void top_each(const struct top_table *table, const struct top *top,
	      top_row_fn *give, void *context);

/* A time that is measured, under its names. */
struct top_time {
	uint32_t of;
	const char *name;   /* in JSON */
	const char *metric; /* a histogram */
	const char *help;
};
extern const struct top_time top_times_names[KVPULL_TIMES_COUNT];

/* _screen.c */
struct top_view {
	enum top_shown shown;
	const char *sort_head; /* a column's; NULL: as they come */
	uint32_t is_reversed;
	uint32_t is_help;
	uint32_t is_typing; /* the filter */
	char filter[32];    /* rows without it are not shown */
	uint32_t scroll;    /* lines; more than there are is the last page */
	uint32_t columns;
	uint32_t lines; /* 0: all of them, without keys */
	int is_coloured;
};

/* Draws it; scroll is then at most what it can be. */
void top_screen(const struct top *top, struct top_view *view, FILE *out);
/* Tables of one that is gone, and its last events. */
void top_after(const struct top *top, uint32_t columns, FILE *out);
/* The next head to sort by, or the one before it (step -1); NULL: none. */
const char *top_sort_next(const struct top *top, const struct top_view *view,
			  int step);
/* Bytes of text that fit into a line of so many columns, broken between words. */
size_t top_wrap(const char *text, size_t columns);

/* _terminal.c: exit statuses, as below */
int top_terminal(const struct top_options *options);

/* _json.c, _prometheus.c, _trace.c: 0 or 1, an exit status */
int top_json(const struct top *top);
int top_prometheus(const struct top *top, FILE *out);
/* Replaces the file by metrics, each interval_ms, or once. */
int top_prometheus_file(const struct top_options *options);
int top_trace(const struct top *top, const char *path);

#endif /* KVPULL_TOOLS_KVPULL_TOP_PARTS_H */
