/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker half's state, for its files. All of it is the engine's thread's; the
 * other thread's half is plugin/progress, and what crosses between them
 * plugin/handover.
 *
 * worker         open, close: worker.h
 * worker_memory.c memory, regions and caches
 * worker_device.c memory of the device
 * worker_marks.c marks of what the engine has queued on it
 * worker_step.c  step and result bytes
 * worker_pulls   notes on pulls, and their lists
 * worker_slots.c slots to hand over
 * worker_results results to keep
 * worker_small.c pulls that this thread copies itself
 * worker_poll.c  rings, sweep, reports
 * worker_sleep.c the descriptor on which an engine sleeps
 * worker_status.c what this thread shows in the status file
 */
#ifndef KVPULL_PLUGIN_WORKER_STATE_H
#define KVPULL_PLUGIN_WORKER_STATE_H

#include <sys/types.h>

#include "base/index.h"
#include "base/map.h"
#include "base/turns.h"
#include "base/wakeup.h"
#include "plugin/counters/counters.h"
#include "plugin/handover/handover.h"
#include "plugin/hold/hold.h"
#include "plugin/progress/cache_facts.h"
#include "plugin/progress/progress.h"
#include "plugin/worker/worker_crowd.h"
#include "plugin/worker/worker_pulls.h"
#include "plugin/worker/worker_results.h"
#include "shm/segment.h"

#define KVPULL_RESULTS_A_BUILD 1024u /* results in one message */

/* A hold that is ready once its mark was reached. */
struct kvpull_marked_hold {
	uint64_t key;
	uint64_t generation; /* a later hold may have that key */
	uint32_t mark;       /* its place */
	uint32_t reserved;
};

/* Marks of what the engine has queued on its device, in their places. */
struct kvpull_marks {
	uint32_t *users;  /* [place_count]: pulls and holds that wait for it */
	int64_t *numbers; /* [place_count]: as the engine knows it */
	struct kvpull_marked_hold *holds; /* [pulls_max] */
	uint32_t hold_count;
	uint32_t place_count;
	uint64_t after;      /* the newest one, as kvpull_read has it */
	int64_t count;       /* taken so far */
	uint32_t newest;     /* KVPULL_NONE: nothing is queued */
	uint32_t is_fresh;   /* taken since the last step began */
	uint32_t is_of_step; /* taken before that step, after the one before */
	uint32_t is_capturing; /* the newest could not be taken: loads wait */
};

/* The commands that are followed; worker_step.c. */
struct kvpull_worker_stream {
	struct kvpull_step_scratch scratch; /* without ids */
	uint64_t incarnation; /* of the scheduler half; 0: none was heard */
	uint64_t sequence;    /* last applied */
	uint64_t told;        /* last told in a result header */
	uint32_t gap;
	uint32_t gap_told;
	uint32_t retired; /* nothing new, for good */
};

/* When a line on each was logged last; a second has one line at most. */
struct kvpull_worker_said {
	uint64_t full_ns;      /* on a full table */
	uint64_t room_ns;      /* on consumers that make room */
	uint64_t broken_ns;    /* on a broken ring */
	uint64_t given_ns;     /* on tickets given back */
	uint32_t given_unsaid; /* holds ended so, without a line */
};

struct kvpull_claim_note {
	uint32_t release_told; /* TO_RELEASE was pushed */
	uint32_t waiting;      /* its pulls in pulls.start and small.turns */
};

/* Tickets that are claimed; worker_slots.c. */
struct kvpull_worker_claims {
	struct kvpull_claim_note *notes; /* [claims_max] */
	struct kvpull_map map;           /* ticket serial -> claim */
	struct kvpull_index_pool pool;
};

/* Pulls that this thread copies in polls; worker_small.c. */
struct kvpull_worker_small {
	struct kvpull_turns turns;
	uint64_t block_bytes[KVPULL_GROUPS_MAX]; /* of this rank, a block */
	uint32_t lent_last; /* of the handover's, which was used last */
};

/* Memory that the engine has taken: of the host, or of its device. */
struct kvpull_worker_memory {
	/* base NULL: given back. Memory of the device has a base, too. */
	struct kvpull_shared shared;
	struct kvpull_device_memory device; /* address 0: of the host */
};

/* Memory and files that blocks lie in; worker_memory.c. */
struct kvpull_worker_memories {
	struct kvpull_worker_memory all[KVPULL_REGIONS_MAX];
	uint32_t count;
	uint32_t file_count;
	int file_fds[KVPULL_REGIONS_MAX]; /* handed out, read-only */
	struct kvpull_place places[KVPULL_REGIONS_MAX]; /* of the regions */
	uint32_t registered; /* consumers may have mapped it */
};

struct kvpull_worker {
	struct kvpull_facts facts;
	struct kvpull_handover handover;
	struct kvpull_handover_end end; /* the engine's */
	struct kvpull_progress *progress;
	struct kvpull_arena arena;
	struct kvpull_arena hot; /* what a step with a pull touches */
	pid_t pid;               /* whose it is: a fork()ed child has a copy */
	uint8_t secret[KVPULL_SECRET_BYTES];
	uint8_t compat_digest[KVPULL_COMPAT_BYTES];

	struct kvpull_worker_memories memories;
	struct kvpull_shared entries;
	struct kvpull_marks marks;

	struct kvpull_worker_pulls pulls;
	struct kvpull_worker_claims claims;
	struct kvpull_worker_small small;
	struct kvpull_crowd crowd;
	struct kvpull_holds *holds;
	struct kvpull_worker_stream stream;
	struct kvpull_status status;
	struct kvpull_worker_results results;
	union kvpull_worker_counts counts; /* the engine side's own counters */
	struct kvpull_wakeup wakeup;
	struct kvpull_worker_said said;
	uint32_t wake_due; /* progress sleeps, and was told: enum in _slots.c */
	uint32_t events_armed; /* whatever comes makes its descriptor readable */
};

/* worker_memory.c; as the ABI's calls */
int kvpull_worker_memory_alloc(struct kvpull_worker *worker, uint64_t bytes,
			       uint32_t flags, struct kvpull_memory *memory);
int kvpull_worker_memory_free(struct kvpull_worker *worker, void *base);
int kvpull_worker_regions_register(struct kvpull_worker *worker,
				   const struct kvpull_regions *regions,
				   struct kvpull_error_detail *detail);

/* At close: the descriptors of registered files. */
void kvpull_worker_files_close(struct kvpull_worker_memories *memories);
/*
 * Before the routes close where nothing was registered; else after that. A second
 * call does nothing.
 */
void kvpull_worker_memories_free(struct kvpull_worker *worker);

/* worker_device.c */
/* memory_alloc(): 0; KVPULL_EUNSUPPORTED (logged), _EFULL, the table's errors. */
int KVPULL_MUST_CHECK
kvpull_worker_device_alloc(struct kvpull_worker *worker, uint64_t bytes,
			   struct kvpull_worker_memory *memory);
/*
 * The regions are taken, all of a device or none. 0; KVPULL_EUNSUPPORTED: rows of a
 * cache can neither be gathered nor copied by one call.
 */
int kvpull_worker_device_caches_check(const struct kvpull_worker *worker,
				      uint32_t cache_count,
				      struct kvpull_error_detail *detail);
void kvpull_worker_device_free(struct kvpull_worker *worker,
			       struct kvpull_worker_memory *memory);
/* A part of a poll: once the device is lost, nothing of it is true. */
void kvpull_worker_device_look(struct kvpull_worker *worker);
/* Registered: the device's thread has the memory from here on. */
void kvpull_worker_devices_adopt(struct kvpull_worker *worker);
/* Say whose memory the regions lie in, for consumers. */
void kvpull_worker_devices_tell(struct kvpull_worker *worker);

/* worker_marks.c */
void kvpull_marks_init(struct kvpull_marks *marks, uint32_t pulls_max,
		       struct kvpull_arena *arena);
/* As the ABI's engine_mark(). */
int64_t kvpull_worker_mark(struct kvpull_worker *worker, uint64_t stream);
/* A step begins: its loads want a mark that was taken since the last one. */
void kvpull_worker_marks_step(struct kvpull_worker *worker);
/* 1: loads wait for the next mark, since a graph was captured at this one. */
int kvpull_worker_marks_wait(const struct kvpull_worker *worker);
/* A pull begins: what its bytes land behind. A line where nobody said. */
void kvpull_worker_pull_mark(struct kvpull_worker *worker, uint32_t index);
/* The pull has ended: no copy of it waits. */
void kvpull_worker_pull_unmark(struct kvpull_worker *worker, uint32_t index);
/* As the ABI's. */
int kvpull_worker_hold_ready_after(struct kvpull_worker *worker, uint64_t key,
				   int64_t mark);
/* A part of a poll. Return: holds that wait for their marks still. */
uint32_t kvpull_worker_marks_run(struct kvpull_worker *worker);

/* worker_slots.c */
/*
 * Hand an index to the progress thread, which wake() wakes if it sleeps. What
 * was told later than that can wait for the poll, and what a poll with small
 * pulls tells for the call after: a wake-up takes longer than those pulls do. At
 * the latest the thread looks by itself, within a second.
 */
void kvpull_worker_tell(struct kvpull_worker *worker, uint32_t kind,
			uint32_t index, uint64_t serial);
void kvpull_worker_tell_later(struct kvpull_worker *worker, uint32_t kind,
			      uint32_t index, uint64_t serial);
/* Wakes progress at the end of a call. */
void kvpull_worker_wake(struct kvpull_worker *worker);
/* Wakes progress also for work that can wait. */
void kvpull_worker_wake_all(struct kvpull_worker *worker);
/* Gives the pull to the progress thread, for good. */
void kvpull_pull_hand_over(struct kvpull_worker *worker, uint32_t index);
/* Told at most once a pull and a ticket: the ring has room for that. */
void kvpull_worker_pull_abort(struct kvpull_worker *worker, uint32_t index);
/* The claim's pulls are handed over before. */
void kvpull_worker_claim_release(struct kvpull_worker *worker, uint32_t index);
/* worker_status.c: what the engine's thread shows of itself; as the ABI's */
void kvpull_worker_counts(struct kvpull_worker *worker,
			  union kvpull_worker_counts *counts);
/* A consumer was heard of; and how many claims and releases it said. */
void kvpull_worker_show_heard(struct kvpull_status *status, uint32_t index,
			      uint64_t now_ns);
void kvpull_worker_show_notes(struct kvpull_status *status, uint32_t index,
			      uint32_t claims, uint32_t releases);
void kvpull_worker_show_hold(struct kvpull_status *status,
			     const struct kvpull_command *command);
/* A small pull of this thread's has ended. */
void kvpull_worker_show_small(struct kvpull_worker *worker, uint32_t index);
void kvpull_worker_show_step(struct kvpull_worker *worker, uint64_t begun_ns);
/* Shows a consumer that joined, in a place that another may have had before. */
void kvpull_worker_show_joined(struct kvpull_worker *worker, uint32_t index);
void kvpull_worker_say_claim(struct kvpull_worker *worker,
			     const struct kvpull_consumer *consumer,
			     const struct kvpull_record *record);
/* A poll that did something; sent: SENT records in it. */
void kvpull_worker_show_poll(struct kvpull_worker *worker, uint64_t took_ns,
			     uint32_t sent);
/* Expired: whose, in the log and in the file. */
void kvpull_worker_show_expired(struct kvpull_worker *worker,
				const struct kvpull_hold_end *end);
/* Given back: whose blocks are free, in the log once a second. */
void kvpull_worker_show_given(struct kvpull_worker *worker,
			      const struct kvpull_hold_end *end);

/* worker_step.c; as the ABI's calls */
int kvpull_worker_rank_info(struct kvpull_worker *worker, void *bytes,
			    size_t capacity, size_t *byte_count);
int kvpull_worker_step(struct kvpull_worker *worker, const void *bytes,
		       size_t byte_count);
int kvpull_worker_start_loads(struct kvpull_worker *worker);
int kvpull_worker_result_build(struct kvpull_worker *worker, void *bytes,
			       size_t capacity, size_t *byte_count);

/* worker_small.c */
/* Regions are known: bytes of blocks. */
void kvpull_small_init(struct kvpull_worker *worker);
/* 1: this pull is small, and the memory of all its peers is lent. */
int kvpull_small_fits(struct kvpull_worker *worker, uint32_t index);
/* 1: all that a ticket's claim needs to know is there: no peer has to be called. */
int kvpull_small_knows(struct kvpull_worker *worker,
		       const struct kvpull_claim_order *claim);
/* A part of a poll. Return: pulls that ended or were handed over. */
uint32_t kvpull_small_run(struct kvpull_worker *worker, uint64_t now_ns);

/* worker_sleep.c */
int kvpull_worker_event_fd(struct kvpull_worker *worker);
/*
 * After a poll that told something. left: more ends are ready than it told. All
 * else that comes after everybody was armed rings by itself, but the copies and
 * posts of progress=caller: those go on without a bell, unless one that woke the
 * engine is still to be read.
 */
void kvpull_sleep_told(struct kvpull_worker *worker, uint32_t left);
/*
 * After a poll that had nothing to tell: the engine may sleep. Return: 1 if
 * something came meanwhile, so that another poll is due before ready().
 */
int kvpull_sleep_arm(struct kvpull_worker *worker);
void kvpull_sleep_ready(struct kvpull_worker *worker, uint32_t worked);

/* The progress thread's stops so far; KVPULL_NO_THREAD: polls do its work. */
static inline uint64_t kvpull_worker_stopped(const struct kvpull_worker *worker,
					     uint64_t now_ns)
{
	const struct kvpull_config *config = &worker->facts.config;

	if (config->progress == KVPULL_PROGRESS_CALLER)
		return KVPULL_NO_THREAD;
	return kvpull_handover_stopped(&worker->handover, now_ns,
				       config->lease_ms * KVPULL_NS_PER_MS);
}

/* worker_poll.c; as the ABI's calls */
int kvpull_worker_progress(struct kvpull_worker *worker);
int kvpull_worker_poll(struct kvpull_worker *worker,
		       struct kvpull_poll_record *records, uint32_t capacity,
		       size_t record_bytes);
int kvpull_worker_failed_blocks(struct kvpull_worker *worker, uint64_t key,
				uint32_t *blocks, uint32_t capacity,
				uint32_t *block_count);
int kvpull_worker_hold_ready(struct kvpull_worker *worker, uint64_t key);
int kvpull_worker_revoke_all(struct kvpull_worker *worker, int32_t reason);
/* For good: no ticket of ours is live, pulls are aborted, claims released. */
void kvpull_worker_retire(struct kvpull_worker *worker);

#endif /* KVPULL_PLUGIN_WORKER_STATE_H */
