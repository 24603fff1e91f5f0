/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress half of a worker: connections, claims and pulls, in runs that
 * never block. A thread of its own repeats them, or with progress=caller the
 * engine's thread. All calls are the engine's; those of progress=caller alone
 * are marked.
 */
#ifndef KVPULL_PLUGIN_PROGRESS_H
#define KVPULL_PLUGIN_PROGRESS_H

#include "plugin/counters/counters.h"
#include "plugin/handover/handover.h"

struct kvpull_progress;

/* Returns the value for facts->caller_count_max. */
uint32_t kvpull_progress_callers_max(const struct kvpull_config *config);

struct kvpull_progress_params {
	const struct kvpull_facts *facts;
	struct kvpull_handover *handover;
	struct kvpull_handover_end end; /* progress's */
	struct kvpull_arena *arena;
	/*
	 * NULL: the routes of the configuration; else a test's own: the at-th,
	 * the preferred one first, or NULL: there are no more.
	 */
	struct kvpull_transport *(*transport)(void *context,
					      const struct kvpull_log *log,
					      uint32_t at);
	void *transport_context;
};

/* *progress is set where it has to be closed, also after a failure. */
int KVPULL_MUST_CHECK
kvpull_progress_open(const struct kvpull_progress_params *params,
		     struct kvpull_progress **progress);
/* Ends the thread and the routes; NULL: nothing. */
void kvpull_progress_close(struct kvpull_progress *progress,
			   uint64_t close_by_ns);
/* The regions are in the facts: listen. 0, or why not. */
int KVPULL_MUST_CHECK kvpull_progress_serve(struct kvpull_progress *progress);
/* After serve(), where the configuration wants a thread. 0, KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK kvpull_progress_start(struct kvpull_progress *progress);
/* A bounded run, for progress=caller. Return: how much was done. */
int kvpull_progress_run(struct kvpull_progress *progress, uint64_t now_ns);

/*
 * The thread that calls the device's driver; NULL: there is none. What it lets
 * the engine's thread do: base/device_thread.h.
 */
struct kvpull_device_thread *
kvpull_progress_device(const struct kvpull_progress *progress);

/*
 * progress=thread: copy a little of what the thread copies: bytes; 0: nothing is
 * being copied that can be shared.
 */
uint32_t kvpull_progress_help(const struct kvpull_progress *progress);

/* Any thread. Return: how many there are; [capacity] of them are written. */
int kvpull_progress_peers(struct kvpull_progress *progress,
			  struct kvpull_peer_info *peers, uint32_t capacity,
			  size_t peer_bytes);
const struct kvpull_progress_counts *
kvpull_progress_counts(const struct kvpull_progress *progress);
/*
 * Into the epoll that the engine sleeps on: what is readable when a consumer
 * rings, and, progress=caller, what wakes progress. 0, or -1 with errno.
 */
int KVPULL_MUST_CHECK
kvpull_progress_watch(const struct kvpull_progress *progress, int epoll_fd);
/* progress=caller: the engine's sleep is progress's, too. */
/* Return: 1 if something came meanwhile (do not sleep). */
int kvpull_progress_arm(struct kvpull_progress *progress);
void kvpull_progress_disarm(struct kvpull_progress *progress);
/* 1: its descriptor is readable, or is about to be. */
int kvpull_progress_rings(const struct kvpull_progress *progress);
/* When it has something due by itself; UINT64_MAX: never. */
uint64_t kvpull_progress_due_ns(const struct kvpull_progress *progress);

#endif /* KVPULL_PLUGIN_PROGRESS_H */
