// SPDX-License-Identifier: Apache-2.0
/*
 * The pool of copy workers: one owner thread, up to 16 workers. The owner may
 * help: then it is one more worker, which never sleeps here. So may one thread
 * more, the guest, where shares are short.
 *
 * field        written by      order    read by  order    pair   why
 * tail         owner           seq_cst  workers  acquire  Q0/Q1  order[] and the slot are set before they are announced
 * order[]      owner           relaxed  workers  relaxed  -      by Q0/Q1; an old value is harmless, see below
 * claim        owner           release  workers  acquire  C0/C1  the plan is written before shares can be taken
 * is_short     owner           relaxed  guest    relaxed  -      a hint: the slot's next job may have longer ones
 * urgent[]     owner           relaxed  workers  relaxed  -      a hint: which slots to look at first; any is harmless
 * left         workers, owner  acq_rel  same     acq_rel  L0/L0  all bytes of all shares come before the job's end
 * ended        workers, owner  seq_cst  owner    acquire  E0/E1  bytes and slot->next before the job is found by poll
 * armed        owner           seq_cst  workers  seq_cst  A0/A1  with ended: store-load, neither side may miss the other
 * parked       workers, owner  seq_cst  same     seq_cst  P0/P1  with tail (P2): store-load, the same
 * wake         waker, worker   release  worker   acquire  W0/W1  futex word of one worker
 * stop         owner           seq_cst  workers  acquire  S0/S1  with parked: as tail
 *
 * Where it says workers the guest is one of them, but that it never parks.
 *
 * A job waits in the slot of its read's index. `claim` counts its shares that
 * nobody has begun; who takes it from v > 0 to v - 1 owns share
 * share_count - v, and only then looks at the plan. So a worker that was slow
 * and still holds an old entry of order[] finds claim <= 0 there, or a share of
 * a newer job, which is then its own like any other: no generation is needed.
 * The owner starts no job over the entry of one with shares left.
 * Each worker walks order[] at its own pace and goes on to the next entry when
 * nothing is left to claim, so jobs of one priority are begun and, but for the
 * last shares, ended in the order of their start. Where priorities differ,
 * urgent[] names the slots of the jobs that go first. Of KVPULL_TURNS_A_ROUND
 * shares that a worker copies the last is by order[] all the same, so no job
 * starves. All jobs are in order[], so none is missed where the hint is late.
 *
 * Cancel takes all the shares that are left: nothing is checked in the path of
 * a share. Progress: start, poll, cancel and arm never wait; a job's end waits
 * only for the workers that are in one of its shares, and for the guest, who is
 * told of no end before its call returns.
 */
#include "shm/copy.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/pause.h"
#include "base/thread.h"
#include "base/turns.h"
#include "shm/copy_choice.h"

/* A few microseconds: about what it costs to be woken. */
#define SPIN_COUNT_MAX 256u
/* Jobs that a guest looks at in a call: none of those may have a share left. */
#define GUEST_LOOKS_MAX 64u
/* Jobs that go first, by name; the owner names others as these end. */
#define URGENT_MAX 8u

struct slot {
	_Alignas(KVPULL_CACHE_LINE) _Atomic int64_t claim;
	_Atomic uint32_t left;       /* shares not yet ended */
	_Atomic uint32_t is_short;   /* shares are, and fit into a poll */
	uint32_t next;               /* in the stack of ended jobs: index + 1 */
	struct kvpull_copy_job *job; /* owner's; NULL: free */
	uint32_t aborted;            /* owner's */
	struct kvpull_copy_plan plan;
};

struct worker {
	_Alignas(KVPULL_CACHE_LINE) _Atomic uint32_t wake;
	uint32_t index;
	struct kvpull_copy *copy;
	pthread_t thread;
	uint64_t at;    /* next entry of order[] */
	uint32_t turns; /* shares that it looked for, free-running */
	struct kvpull_copy_cursor cursor;
};

struct kvpull_copy {
	/* Members that the owner writes. */
	_Alignas(KVPULL_CACHE_LINE) _Atomic uint64_t tail;
	_Atomic uint32_t stop;
	_Atomic uint32_t urgent[URGENT_MAX]; /* slot + 1; 0 ends them */
	/* Members that are set at open. */
	uint32_t owner_helps;
	uint32_t job_max;
	uint32_t thread_count;
	int wake_fd;
	/* Members that the workers write. */
	_Alignas(KVPULL_CACHE_LINE) _Atomic uint32_t ended; /* index + 1 */
	_Atomic uint32_t armed;
	_Alignas(KVPULL_CACHE_LINE) _Atomic uint32_t parked; /* bit a worker */
	/* Members that are set at open, or that the owner alone uses. */
	_Alignas(KVPULL_CACHE_LINE) struct slot *slots;
	_Atomic uint32_t *order;
	struct worker *workers;
	struct worker *owner; /* no thread: what _help() walks with */
	struct worker *guest; /* likewise _guest_help() */
	const struct kvpull_log *log;
	struct kvpull_copy_choices choices;
	/* Started and not polled, since two of them were unlike. */
	struct kvpull_turns jobs;
	uint32_t job_count; /* started and not polled */
	int32_t alike;      /* their priority, unless unlike */
	uint32_t unlike;
	uint64_t serial;
	uint32_t order_mask;
	uint32_t ready; /* ended jobs that poll had no room for: index + 1 */
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "claims are lock-free");
_Static_assert(KVPULL_COPY_THREADS_MAX <= 32, "one bit a worker");

static void worker_sleep(struct worker *worker)
{
	/* Woken, interrupted, or `wake` was set already: look again. */
	(void)syscall(SYS_futex, &worker->wake, FUTEX_WAIT_PRIVATE, 0, NULL,
		      NULL, 0);
}

/* Wake one worker that sleeps, if any does. */
static void wake_one(struct kvpull_copy *copy)
{
	/* P1: pairs with P0 in worker_park. */
	uint32_t parked =
		atomic_load_explicit(&copy->parked, memory_order_seq_cst);

	while (parked) {
		const uint32_t index = (uint32_t)__builtin_ctz(parked);
		const uint32_t bit = UINT32_C(1) << index;

		/* P1: who clears the bit does the waking. */
		parked = atomic_fetch_and_explicit(&copy->parked, ~bit,
						   memory_order_seq_cst);
		if (parked & bit) {
			struct worker *worker = &copy->workers[index];

			/* W0: pairs with W1 in worker_park. */
			atomic_store_explicit(&worker->wake, 1,
					      memory_order_release);
			(void)syscall(SYS_futex, &worker->wake,
				      FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
			return;
		}
	}
}

/* A job's last share has ended, or was cancelled. */
static void slot_push(struct kvpull_copy *copy, struct slot *slot)
{
	const uint32_t index = (uint32_t)(slot - copy->slots);
	uint32_t head =
		atomic_load_explicit(&copy->ended, memory_order_relaxed);

	do {
		slot->next = head;
		/* E0: pairs with E1 in kvpull_copy_poll. */
	} while (!atomic_compare_exchange_weak_explicit(
		&copy->ended, &head, index + 1, memory_order_seq_cst,
		memory_order_relaxed));
	/* A1: pairs with A0 in kvpull_copy_arm; one write wakes the owner. */
	if (atomic_load_explicit(&copy->armed, memory_order_seq_cst) &&
	    atomic_exchange_explicit(&copy->armed, 0, memory_order_seq_cst) &&
	    copy->wake_fd >= 0) {
		const uint64_t one = 1;
		ssize_t written;

		do /* EAGAIN: the counter is full, so the owner wakes anyway */
			written = write(copy->wake_fd, &one, sizeof(one));
		while (written < 0 && errno == EINTR);
	}
}

static void shares_end(struct kvpull_copy *copy, struct slot *slot,
		       uint32_t count)
{
	/* L0: pairs with itself; the last one sees all others' bytes. */
	if (atomic_fetch_sub_explicit(&slot->left, count,
				      memory_order_acq_rel) == count)
		slot_push(copy, slot);
}

/* Copy one share of the slot's job: its bytes; 0: there is none to claim. */
static uint32_t slot_work(struct worker *worker, struct slot *slot)
{
	uint32_t index;
	uint32_t bytes;
	int64_t claim =
		atomic_load_explicit(&slot->claim, memory_order_relaxed);

	if (claim <= 0)
		return 0;
	/* C1: pairs with C0 in kvpull_copy_start. */
	claim = atomic_fetch_sub_explicit(&slot->claim, 1,
					  memory_order_acquire);
	if (claim <= 0)
		return 0;
	/*
	 * Shares are left: each worker that takes one wakes the next worker. A
	 * guest wakes nobody, since it has to return from its call.
	 */
	if (claim > 1 && worker != worker->copy->guest)
		wake_one(worker->copy);
	index = slot->plan.share_count - (uint32_t)claim;
	bytes = index < slot->plan.tail_first ? slot->plan.share_bytes :
						slot->plan.tail_bytes;
	kvpull_copy_share(&slot->plan, index, &worker->cursor);
	/* From here the plan may be another job's. */
	shares_end(worker->copy, slot, 1);
	return bytes;
}

/* A slot that goes before all others in this turn; NULL: none does. */
static struct slot *urgent_slot(struct worker *worker)
{
	struct kvpull_copy *copy = worker->copy;
	uint32_t at;

	if (worker->turns++ % KVPULL_TURNS_A_ROUND == KVPULL_TURNS_A_ROUND - 1)
		return NULL;
	for (at = 0; at < URGENT_MAX; at++) {
		const uint32_t named = atomic_load_explicit(
			&copy->urgent[at], memory_order_relaxed);
		struct slot *slot;

		if (!named)
			return NULL;
		slot = &copy->slots[named - 1];
		if (worker == copy->guest &&
		    !atomic_load_explicit(&slot->is_short,
					  memory_order_relaxed))
			continue;
		if (atomic_load_explicit(&slot->claim, memory_order_relaxed) >
		    0)
			return slot;
	}
	return NULL;
}

/* Copy a share of an urgent job, or else of the slot's: as slot_work(). */
static uint32_t turn_work(struct worker *worker, struct slot *slot)
{
	struct slot *urgent = urgent_slot(worker);
	const uint32_t bytes = urgent ? slot_work(worker, urgent) : 0;

	return bytes ? bytes : slot_work(worker, slot);
}

/* Nothing to do: spin a little, then sleep until start() or close(). */
static void worker_park(struct worker *worker)
{
	struct kvpull_copy *copy = worker->copy;
	uint32_t i;

	for (i = 0; i < SPIN_COUNT_MAX; i++) {
		/* Q1: only a look; the next round acquires. */
		if (atomic_load_explicit(&copy->tail, memory_order_relaxed) !=
		    worker->at)
			return;
		kvpull_pause();
	}
	/* W1: pairs with W0; a late wake of an earlier sleep costs a round. */
	atomic_store_explicit(&worker->wake, 0, memory_order_relaxed);
	/*
	 * P0: pairs with P1. seq_cst on both sides, here and on tail and stop:
	 * each side stores its own word and then loads the other's, and with
	 * release and acquire both loads could pass the stores and miss.
	 */
	atomic_fetch_or_explicit(&copy->parked, UINT32_C(1) << worker->index,
				 memory_order_seq_cst);
	while (atomic_load_explicit(&copy->tail, memory_order_seq_cst) ==
		       worker->at &&
	       !atomic_load_explicit(&copy->stop, memory_order_seq_cst) &&
	       !atomic_load_explicit(&worker->wake, memory_order_acquire))
		worker_sleep(worker);
	/* P0: awake; nobody need wake us. seq_cst as the or above. */
	atomic_fetch_and_explicit(&copy->parked,
				  ~(UINT32_C(1) << worker->index),
				  memory_order_seq_cst);
}

static void *worker_main(void *context)
{
	struct worker *worker = context;
	struct kvpull_copy *copy = worker->copy;

	/* S1: pairs with S0 in kvpull_copy_close. */
	while (!atomic_load_explicit(&copy->stop, memory_order_acquire)) {
		uint32_t index;

		/* Q1: pairs with Q0 in kvpull_copy_start. */
		if (atomic_load_explicit(&copy->tail, memory_order_acquire) ==
		    worker->at) {
			worker_park(worker);
			continue;
		}
		index = atomic_load_explicit(
			&copy->order[worker->at & copy->order_mask],
			memory_order_relaxed);
		if (!turn_work(worker, &copy->slots[index]))
			worker->at++;
	}
	return NULL;
}

static uint32_t order_count(uint32_t job_max)
{
	uint32_t count = 16;

	while (count < job_max)
		count *= 2;
	return count;
}

/* As many as the host has threads for: fewer copy more slowly. */
static void workers_start(struct kvpull_copy *copy, uint32_t thread_count,
			  const struct kvpull_log *log)
{
	while (copy->thread_count < thread_count) {
		struct worker *worker = &copy->workers[copy->thread_count];
		int error;

		worker->index = copy->thread_count;
		worker->copy = copy;
		error = kvpull_thread_start(&worker->thread, "kvpull-copy",
					    worker_main, worker);
		if (error) {
			kvpull_warn(
				log,
				"%u of %u copy threads, so that large pulls are slower: %s",
				copy->thread_count, thread_count,
				kvpull_why(THREAD, error));
			return;
		}
		copy->thread_count++;
	}
}

int kvpull_copy_open(struct kvpull_copy **copy,
		     const struct kvpull_copy_params *params,
		     struct kvpull_arena *arena, const struct kvpull_log *log)
{
	struct kvpull_copy *opened =
		kvpull_arena_take(arena, 1, sizeof(*opened));
	const uint32_t job_max = params->job_max;
	int error;

	kvpull_check(log, params->thread_count <= KVPULL_COPY_THREADS_MAX);
	if (!opened)
		return KVPULL_ENOMEM;
	KVPULL_ARENA_TAKE(arena, opened->slots, job_max);
	KVPULL_ARENA_TAKE(arena, opened->order, order_count(job_max));
	kvpull_turns_init(&opened->jobs, job_max, arena);
	KVPULL_ARENA_TAKE(arena, opened->workers, KVPULL_COPY_THREADS_MAX + 2);
	if (!kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	opened->order_mask = order_count(job_max) - 1;
	opened->job_max = job_max;
	opened->wake_fd = params->wake_fd;
	opened->owner_helps = params->owner_helps;
	opened->owner = &opened->workers[KVPULL_COPY_THREADS_MAX];
	opened->owner->copy = opened;
	opened->guest = &opened->workers[KVPULL_COPY_THREADS_MAX + 1];
	opened->guest->copy = opened;
	opened->log = log;
	error = kvpull_copy_choose(params->routine, params->folder,
				   &opened->choices, log);
	if (error)
		return error;
	workers_start(opened, params->thread_count, log);
	*copy = opened;
	return 0;
}

uint32_t kvpull_copy_threads(const struct kvpull_copy *copy)
{
	return copy->thread_count;
}

void kvpull_copy_close(struct kvpull_copy *copy)
{
	uint32_t i;

	/* S0: pairs with S1; seq_cst as Q0, for the sleeping. */
	atomic_store_explicit(&copy->stop, 1, memory_order_seq_cst);
	for (i = 0; i < copy->thread_count; i++)
		wake_one(copy);
	for (i = 0; i < copy->thread_count; i++)
		(void)pthread_join(copy->workers[i].thread, NULL);
	copy->thread_count = 0;
}

/* The owner's next entry of order[] with a share that nobody has begun. */
static struct slot *slot_next(struct kvpull_copy *copy)
{
	const uint64_t tail =
		atomic_load_explicit(&copy->tail, memory_order_relaxed);

	for (; copy->owner->at != tail; copy->owner->at++) {
		const uint32_t index = atomic_load_explicit(
			&copy->order[copy->owner->at & copy->order_mask],
			memory_order_relaxed);
		struct slot *slot = &copy->slots[index];

		if (atomic_load_explicit(&slot->claim, memory_order_relaxed) >
		    0)
			return slot;
	}
	return NULL;
}

/*
 * Name the jobs that go before those of the greatest priority, the most urgent
 * first: none where all are alike.
 */
static void urgent_name(struct kvpull_copy *copy)
{
	const struct kvpull_turns *jobs = &copy->jobs;
	const uint32_t last = jobs->urgent.last;
	uint32_t index = jobs->urgent.first;
	uint32_t at = 0;

	for (; at < URGENT_MAX && index != KVPULL_NONE &&
	       jobs->priorities[index] != jobs->priorities[last];
	     index = jobs->urgent.links[index].next)
		if (atomic_load_explicit(&copy->slots[index].claim,
					 memory_order_relaxed) > 0)
			atomic_store_explicit(&copy->urgent[at++], index + 1,
					      memory_order_relaxed);
	/* Workers read that line: it is not written where it is 0 already. */
	if (at < URGENT_MAX &&
	    atomic_load_explicit(&copy->urgent[at], memory_order_relaxed))
		atomic_store_explicit(&copy->urgent[at], 0,
				      memory_order_relaxed);
}

/* The first job that is unlike: those before it that are not begun are noted. */
static void jobs_note(struct kvpull_copy *copy)
{
	const uint64_t tail =
		atomic_load_explicit(&copy->tail, memory_order_relaxed);
	uint64_t at;

	copy->unlike = 1;
	for (at = copy->owner->at; at != tail; at++) {
		const uint32_t index = atomic_load_explicit(
			&copy->order[at & copy->order_mask],
			memory_order_relaxed);

		if (copy->slots[index].job)
			kvpull_turns_push(&copy->jobs, index, copy->alike);
	}
}

/* A job was started; while all are alike nothing but that is kept of it. */
static void job_add(struct kvpull_copy *copy, uint32_t index, int32_t priority)
{
	if (!copy->job_count++) {
		copy->alike = priority;
		copy->unlike = 0;
	}
	if (!copy->unlike && priority != copy->alike)
		jobs_note(copy);
	if (copy->unlike)
		kvpull_turns_push(&copy->jobs, index, priority);
}

static void job_remove(struct kvpull_copy *copy, uint32_t index)
{
	copy->job_count--;
	if (copy->unlike)
		kvpull_turns_remove(&copy->jobs, index);
}

int kvpull_copy_start(struct kvpull_copy *copy, struct kvpull_copy_job *job)
{
	const uint32_t index = job->read->index;
	const struct slot *before;
	struct slot *slot;
	uint32_t wanted;
	uint64_t tail;

	kvpull_check(copy->log, index < copy->job_max);
	slot = &copy->slots[index];
	if (slot->job)
		return KVPULL_EAGAIN;
	tail = atomic_load_explicit(&copy->tail, memory_order_relaxed);
	before = slot_next(copy);
	/* The ring is full of entries, and this one has shares left to begin. */
	if (before && tail - copy->owner->at > copy->order_mask)
		return KVPULL_EAGAIN;
	kvpull_copy_plan_init(&slot->plan, job, &copy->choices, ++copy->serial);
	slot->job = job;
	slot->aborted = 0;
	job_add(copy, index, job->read->priority);
	if (!slot->plan.share_count) {
		slot->next = copy->ready;
		copy->ready = index + 1;
		return 0;
	}
	atomic_store_explicit(&slot->left, slot->plan.share_count,
			      memory_order_relaxed);
	atomic_store_explicit(&slot->is_short, slot->plan.is_short,
			      memory_order_relaxed);
	/* C0: pairs with C1 in slot_work. */
	atomic_store_explicit(&slot->claim, slot->plan.share_count,
			      memory_order_release);
	if (copy->unlike)
		urgent_name(copy);
	atomic_store_explicit(&copy->order[tail & copy->order_mask], index,
			      memory_order_relaxed);
	/* Q0: pairs with Q1; seq_cst with the load of `parked` below (P2). */
	atomic_store_explicit(&copy->tail, tail + 1, memory_order_seq_cst);
	/* The owner does one by itself, if it is not behind already. */
	wanted = slot->plan.share_count - (copy->owner_helps && !before);
	/*
	 * The threads that are woken wake further ones, but only once they run
	 * themselves.
	 */
	if (wanted > 0)
		wake_one(copy);
	if (wanted > 1)
		wake_one(copy);
	return 0;
}

int kvpull_copy_has_share(struct kvpull_copy *copy)
{
	return slot_next(copy) != NULL;
}

uint32_t kvpull_copy_help(struct kvpull_copy *copy)
{
	struct slot *slot = slot_next(copy);
	uint32_t bytes = 0;

	while (slot && !bytes) {
		bytes = turn_work(copy->owner, slot);
		slot = slot_next(copy);
	}
	return bytes;
}

uint32_t kvpull_copy_guest_help(struct kvpull_copy *copy)
{
	struct worker *guest = copy->guest;
	const uint64_t kept = (uint64_t)copy->order_mask + 1;
	/* Q1: pairs with Q0 in kvpull_copy_start. */
	const uint64_t tail =
		atomic_load_explicit(&copy->tail, memory_order_acquire);
	uint32_t left;

	if (tail - guest->at > kept)
		guest->at = tail - kept;
	for (left = GUEST_LOOKS_MAX; left && guest->at != tail; left--) {
		const uint32_t index = atomic_load_explicit(
			&copy->order[guest->at & copy->order_mask],
			memory_order_relaxed);
		struct slot *slot = &copy->slots[index];
		uint32_t bytes = 0;

		if (atomic_load_explicit(&slot->is_short, memory_order_relaxed))
			bytes = turn_work(guest, slot);
		if (bytes)
			return bytes;
		guest->at++;
	}
	return 0;
}

void kvpull_copy_cancel(struct kvpull_copy *copy, struct kvpull_copy_job *job)
{
	struct slot *slot = &copy->slots[job->read->index];
	int64_t unclaimed;

	kvpull_check(copy->log, slot->job == job);
	/* C1: as a worker that takes all shares at once. */
	unclaimed =
		atomic_exchange_explicit(&slot->claim, 0, memory_order_acquire);
	if (unclaimed <= 0)
		return;
	slot->aborted = 1;
	shares_end(copy, slot, (uint32_t)unclaimed);
}

/* Take the stack of ended jobs and put it behind `ready`, oldest first. */
static void ended_take(struct kvpull_copy *copy)
{
	uint32_t head = 0;
	uint32_t oldest = 0;
	uint32_t *last = &copy->ready;

	if (!atomic_load_explicit(&copy->ended, memory_order_relaxed))
		return;
	/* E1: pairs with E0 in slot_push, of every job in the stack. */
	head = atomic_exchange_explicit(&copy->ended, 0, memory_order_acquire);
	while (head) {
		struct slot *slot = &copy->slots[head - 1];
		const uint32_t next = slot->next;

		slot->next = oldest;
		oldest = head;
		head = next;
	}
	while (*last)
		last = &copy->slots[*last - 1].next;
	*last = oldest;
}

uint32_t kvpull_copy_poll(struct kvpull_copy *copy,
			  struct kvpull_copy_job **jobs, uint32_t capacity)
{
	uint32_t count = 0;

	ended_take(copy);
	while (copy->ready && count < capacity) {
		struct slot *slot = &copy->slots[copy->ready - 1];

		slot->job->code = slot->aborted ? KVPULL_EABORTED : 0;
		jobs[count++] = slot->job;
		slot->job = NULL;
		job_remove(copy, (uint32_t)(slot - copy->slots));
		copy->ready = slot->next;
	}
	if (count && copy->unlike)
		urgent_name(copy);
	return count;
}

int kvpull_copy_arm(struct kvpull_copy *copy)
{
	/* A0: pairs with A1 in slot_push; then look once more. */
	atomic_store_explicit(&copy->armed, 1, memory_order_seq_cst);
	return copy->ready ||
	       atomic_load_explicit(&copy->ended, memory_order_seq_cst);
}

void kvpull_copy_disarm(struct kvpull_copy *copy)
{
	/* A0: too late a wake-up is harmless. */
	atomic_store_explicit(&copy->armed, 0, memory_order_relaxed);
}

void kvpull_copy_inline(const struct kvpull_copy *copy,
			struct kvpull_copy_job *job)
{
	struct kvpull_copy_cursor cursor = { 0 };
	struct kvpull_copy_plan plan;
	uint32_t i;

	/* The cursor is zeroed: it belongs to no other plan. */
	kvpull_copy_plan_init(&plan, job, &copy->choices, 1);
	for (i = 0; i < plan.share_count; i++)
		kvpull_copy_share(&plan, i, &cursor);
	job->code = 0;
}
