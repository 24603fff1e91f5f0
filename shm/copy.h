/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast copy: from a peer's mapping into local blocks, in user space.
 *
 * Several page streams at once with non-temporal stores (one stream loses to
 * memcpy), or short spans one by one while the next ones are fetched; which
 * routine, copy_choice.h says. Copy workers take shares of 256 KiB to 1 MiB of a
 * job from an atomic counter, so several workers speed one job up, and many jobs
 * complete one by one in the order of their priority and start.
 */
#ifndef KVPULL_SHM_COPY_H
#define KVPULL_SHM_COPY_H

#include "base/arena.h"
#include "shm/copy_plan.h"

#define KVPULL_COPY_THREADS_MAX 16u

struct kvpull_folder; /* folder.h */
struct kvpull_copy;   /* a pool of copy workers */

struct kvpull_copy_params {
	uint32_t thread_count; /* 0 .. KVPULL_COPY_THREADS_MAX */
	uint32_t job_max;      /* jobs in flight; read->index is below */
	uint32_t owner_helps;  /* calls _help(), so one thread less is woken */
	const char *routine;   /* its name; NULL or "": chosen */
	/* Open, where the choice may be remembered; NULL: it is not. */
	const struct kvpull_folder *folder;
	int wake_fd; /* eventfd, written when a job ends while the owner is
			armed; -1: none */
};

/**
 * Choose the routines and start the workers: all signals blocked, named
 * kvpull-copy. Where the host has not threads enough a line says so.
 *
 * Return: 0, KVPULL_ENOMEM, KVPULL_EINVAL (the routine).
 */
int KVPULL_MUST_CHECK kvpull_copy_open(struct kvpull_copy **copy,
				       const struct kvpull_copy_params *params,
				       struct kvpull_arena *arena,
				       const struct kvpull_log *log);
/* How many workers run. 0: _help(), _guest_help() and _inline() alone copy. */
uint32_t kvpull_copy_threads(const struct kvpull_copy *copy);
/*
 * Joins the workers: they end the share they are in, and no write can follow.
 * Jobs that were not polled never come out.
 */
void kvpull_copy_close(struct kvpull_copy *copy);
/*
 * Owner: start; never waits. The job stays the pool's until polled. Return: 0;
 * KVPULL_EAGAIN: its index is still in flight, or too many were cancelled
 * behind a job that is not begun: after the next poll.
 */
int KVPULL_MUST_CHECK kvpull_copy_start(struct kvpull_copy *copy,
					struct kvpull_copy_job *job);
/* Owner: is there a share that nobody has begun? */
int kvpull_copy_has_share(struct kvpull_copy *copy);
/* Owner: copy such a share, as a worker does. Its bytes; 0: there is none. */
uint32_t kvpull_copy_help(struct kvpull_copy *copy);
/*
 * Called by one fixed extra thread (the engine's), not during close(). Copies
 * one unclaimed share of a short-share job, whole spans side by side. Because
 * is_short is read relaxed, it may occasionally get a share of up to
 * KVPULL_COPY_SHARE_BYTES_MAX. Returns the bytes copied, or 0.
 */
uint32_t kvpull_copy_guest_help(struct kvpull_copy *copy);
/* Owner: no new share of it is begun; it still comes out of poll. */
void kvpull_copy_cancel(struct kvpull_copy *copy, struct kvpull_copy_job *job);
/*
 * Owner: ended jobs; all their bytes are visible, no write can follow.
 * Return: how many.
 */
uint32_t kvpull_copy_poll(struct kvpull_copy *copy,
			  struct kvpull_copy_job **jobs, uint32_t capacity);
/* Owner: before sleeping. 1 = something ended meanwhile. */
int kvpull_copy_arm(struct kvpull_copy *copy);
void kvpull_copy_disarm(struct kvpull_copy *copy);

/* Copy a whole job on this thread, which may be any. */
void kvpull_copy_inline(const struct kvpull_copy *copy,
			struct kvpull_copy_job *job);

#endif /* KVPULL_SHM_COPY_H */
