/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread's memory is a mapping of its own: if a call hangs, it is left behind
 * with the thread. The owner's memory (jobs, reads, the log) is touched outside of
 * calls alone, or under a lock.
 *
 * field      written by     order    read by  order    pair   why
 * phase      thread         release  owner    acquire  P0/P1  device and events before the owner goes on
 * stop       owner          release  thread   acquire  S0/S1  close_by_ns, and memory that was adopted
 *
 * The rings' words: include/base/ring.c. The gate's: gate.h.
 */
#include "base/device_thread.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/device_feed.h"
#include "base/fd.h"
#include "base/least.h"
#include "base/thread.h"

/* Between two looks at an event: a pull ends so much later at the most. */
#define LOOK_NS 20000u
/* The kernel adds 50 us to such a wait by default. */
#define SLACK_NS 1000ul

enum phase {
	OPENING = 0,
	SERVING,
	ENDED
};

enum mapping_state {
	MAPPING_FREE = 0,
	MAPPING_TAKEN,
	MAPPING_LEAVING
};

enum job_state {
	JOB_FREE = 0,
	JOB_STARTED,
	JOB_CANCELLED
};

struct kvpull_device_thread {
	struct kvpull_arena arena;
	struct kvpull_log log; /* writes by line_write() */
	struct kvpull_device_thread_params params;
	struct kvpull_device_feed feed; /* the thread's, but for its gate */
	int doorbell_fd;
	int open_code;
	_Atomic uint32_t phase;
	_Atomic uint32_t stop;
	uint64_t close_by_ns; /* by S0 */
	uint32_t is_left;     /* memory that copies may write; by P0 */
	/* A line of a thread that was left behind is dropped. */
	pthread_mutex_t log_lock;
	const struct kvpull_log *owner_log; /* NULL: closed */
	/* Members that only the owner's thread uses. */
	pthread_t thread;
	struct kvpull_ring_writer orders;
	struct kvpull_ring ends;
	uint32_t *job_states;     /* enum job_state */
	uint32_t *mapping_states; /* enum mapping_state */
	uint64_t *mapping_bytes;  /* of a peer's memory, once it is ordered */
	struct kvpull_device_mapped mapped;
	uint32_t adopted_count;
	uint32_t pending; /* orders whose ends have not been polled */
	uint32_t is_abandoned;
	/* The call that goes on, by its begin, and for how long that was seen. */
	uint64_t call_ns;
	uint64_t call_seen_ns;
	uint64_t looked_ns;
};

static void line_write(void *context, uint32_t level, const char *message)
{
	struct kvpull_device_thread *const thread = context;

	(void)pthread_mutex_lock(&thread->log_lock);
	if (thread->owner_log)
		kvpull_log(thread->owner_log, level, "%s", message);
	(void)pthread_mutex_unlock(&thread->log_lock);
}

/* ---- the thread ---- */

static int device_open(struct kvpull_device_thread *thread)
{
	const uint64_t now_ns = kvpull_clock_ns();
	int code;

	kvpull_device_gate_enter(&thread->feed.gate, now_ns);
	code = thread->params.open(&thread->arena, &thread->log,
				   thread->params.index, &thread->feed.device);
	kvpull_device_gate_leave(&thread->feed.gate, now_ns);
	if (code)
		return code;
	code = kvpull_device_feed_open(&thread->feed, kvpull_clock_ns());
	if (!code)
		return 0;
	kvpull_device_gate_enter(&thread->feed.gate, now_ns);
	thread->feed.device->ops->close(thread->feed.device);
	kvpull_device_gate_leave(&thread->feed.gate, now_ns);
	return code;
}

/* Until an order comes; LOOK_NS at most where an event is due. */
static void nap(struct kvpull_device_thread *thread,
		enum kvpull_device_next next)
{
	static const struct timespec look = { .tv_nsec = LOOK_NS };
	struct pollfd doorbell = { .fd = thread->doorbell_fd,
				   .events = POLLIN };
	eventfd_t ignored;

	if (kvpull_ring_arm(&thread->feed.orders))
		return;
	if (ppoll(&doorbell, 1, next == KVPULL_DEVICE_SOON ? &look : NULL,
		  NULL) > 0)
		(void)eventfd_read(thread->doorbell_fd, &ignored);
	kvpull_ring_disarm(&thread->feed.orders);
}

/* Queued slices end, if they do so in time. */
static void drain(struct kvpull_device_thread *thread)
{
	static const struct timespec look = { .tv_nsec = LOOK_NS };
	struct kvpull_device_feed *const feed = &thread->feed;
	uint64_t now_ns = kvpull_clock_ns();

	while (feed->slice_count && now_ns < thread->close_by_ns) {
		if (!kvpull_device_feed_see(feed, now_ns))
			(void)nanosleep(&look, NULL);
		now_ns = kvpull_clock_ns();
	}
	thread->is_left =
		(uint32_t)kvpull_device_feed_close(feed, kvpull_clock_ns());
}

static void phase_set(struct kvpull_device_thread *thread, enum phase phase)
{
	/* P0: pairs with P1 in phase_of(). */
	atomic_store_explicit(&thread->phase, phase, memory_order_release);
}

static enum phase phase_of(const struct kvpull_device_thread *thread)
{
	/* P1: pairs with P0 in phase_set(). */
	return (enum phase)atomic_load_explicit(&thread->phase,
						memory_order_acquire);
}

static void *thread_main(void *argument)
{
	struct kvpull_device_thread *const thread = argument;
	enum kvpull_device_next next;

	(void)prctl(PR_SET_TIMERSLACK, SLACK_NS);
	thread->open_code = device_open(thread);
	if (thread->open_code) {
		phase_set(thread, ENDED);
		return NULL;
	}
	phase_set(thread, SERVING);
	/* S1: pairs with S0 in kvpull_device_thread_close(). */
	while (!atomic_load_explicit(&thread->stop, memory_order_acquire)) {
		next = kvpull_device_feed_step(&thread->feed,
					       kvpull_clock_ns());
		if (next != KVPULL_DEVICE_AGAIN)
			nap(thread, next);
	}
	drain(thread);
	phase_set(thread, ENDED);
	return NULL;
}

/* ---- open ---- */

static int tables_take(struct kvpull_device_thread *thread)
{
	const struct kvpull_device_limits *const limits =
		&thread->params.limits;
	struct kvpull_arena *const arena = &thread->arena;

	thread->feed.log = &thread->log;
	thread->feed.wake_fd = thread->params.wake_fd;
	KVPULL_ARENA_TAKE(arena, thread->job_states, limits->job_max);
	KVPULL_ARENA_TAKE(arena, thread->mapping_states, limits->mapping_max);
	KVPULL_ARENA_TAKE(arena, thread->mapping_bytes, limits->mapping_max);
	return kvpull_device_feed_init(&thread->feed, limits, &thread->orders,
				       &thread->ends, arena);
}

static struct kvpull_device_thread *
state_take(const struct kvpull_device_thread_params *params,
	   const struct kvpull_log *log)
{
	struct kvpull_device_thread *const thread =
		mmap(NULL, sizeof(*thread), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (thread == MAP_FAILED) {
		kvpull_warn(log, "no memory for the device's thread: %s",
			    kvpull_why(MAP, errno));
		return NULL;
	}
	(void)pthread_mutex_init(&thread->log_lock, NULL);
	thread->owner_log = log;
	thread->log = (struct kvpull_log){ .write = line_write,
					   .context = thread,
					   .level = log->level };
	thread->params = *params;
	thread->doorbell_fd = -1;
	kvpull_arena_init(&thread->arena, &thread->log);
	return thread;
}

static void state_free(struct kvpull_device_thread *thread)
{
	kvpull_fd_close(&thread->doorbell_fd);
	kvpull_arena_fini(&thread->arena);
	(void)pthread_mutex_destroy(&thread->log_lock);
	(void)munmap(thread, sizeof(*thread));
}

/* A thread in a call of the driver stays behind, with its memory, in silence. */
static void state_leave(struct kvpull_device_thread *thread)
{
	(void)pthread_mutex_lock(&thread->log_lock);
	thread->owner_log = NULL;
	(void)pthread_mutex_unlock(&thread->log_lock);
	(void)pthread_detach(thread->thread);
	kvpull_fd_close(&thread->doorbell_fd);
}

/* Wait for a phase: 0; 1: a call goes on at by_ns, and is abandoned. */
static uint32_t phase_await(struct kvpull_device_thread *thread,
			    enum phase phase, uint64_t by_ns)
{
	uint64_t now_ns;

	while (phase_of(thread) < phase) {
		now_ns = kvpull_clock_ns();
		if (now_ns >= by_ns &&
		    kvpull_device_gate_abandon(&thread->feed.gate, now_ns)) {
			thread->is_abandoned = 1;
			return 1;
		}
		kvpull_clock_nap();
	}
	return 0;
}

static int thread_start(struct kvpull_device_thread *thread)
{
	int error;

	thread->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (thread->doorbell_fd < 0) {
		kvpull_warn(&thread->log,
			    "no descriptor for the device's thread: %s",
			    kvpull_why(OTHER, errno));
		return KVPULL_ENOMEM;
	}
	error = kvpull_thread_start(&thread->thread, "kvpull-device",
				    thread_main, thread);
	if (!error)
		return 0;
	kvpull_warn(&thread->log, "no thread for the device: %s",
		    kvpull_why(THREAD, error));
	return KVPULL_ENOMEM;
}

int kvpull_device_thread_open(struct kvpull_device_thread **thread,
			      const struct kvpull_device_thread_params *params,
			      const struct kvpull_log *log)
{
	const uint64_t by_ns = kvpull_clock_ns() + KVPULL_DEVICE_HANG_NS;
	struct kvpull_device_thread *const opened = state_take(params, log);
	int code;

	if (!opened)
		return KVPULL_ENOMEM;
	code = tables_take(opened);
	if (!code)
		code = thread_start(opened);
	if (code)
		goto err_free;
	if (phase_await(opened, SERVING, by_ns)) {
		kvpull_error(
			log,
			"device: the driver has not begun in %u s: host memory alone is served: see nvidia-smi",
			(unsigned int)(KVPULL_DEVICE_HANG_NS /
				       KVPULL_NS_PER_S));
		state_leave(opened);
		return KVPULL_EDEVICE;
	}
	if (!opened->open_code) {
		kvpull_arena_seal(&opened->arena);
		*thread = opened;
		return 0;
	}
	code = opened->open_code;
	(void)pthread_join(opened->thread, NULL);
err_free:
	state_free(opened);
	return code;
}

/* ---- close ---- */

static void doorbell_ring(const struct kvpull_device_thread *thread)
{
	(void)eventfd_write(thread->doorbell_fd, 1);
}

uint32_t kvpull_device_thread_close(struct kvpull_device_thread *thread,
				    uint64_t close_by_ns)
{
	uint32_t is_left;

	if (!thread->is_abandoned) {
		thread->close_by_ns = close_by_ns;
		/* S0: pairs with S1 in thread_main(). */
		atomic_store_explicit(&thread->stop, 1, memory_order_release);
		doorbell_ring(thread);
	}
	if (thread->is_abandoned || phase_await(thread, ENDED, close_by_ns)) {
		state_leave(thread);
		return 1;
	}
	(void)pthread_join(thread->thread, NULL);
	is_left = thread->is_left;
	state_free(thread);
	return is_left;
}

struct kvpull_device *
kvpull_device_thread_device(const struct kvpull_device_thread *thread)
{
	return thread->feed.device;
}

uint32_t kvpull_device_thread_is_lost(const struct kvpull_device_thread *thread)
{
	const struct kvpull_device *const device = thread->feed.device;

	return atomic_load_explicit(&thread->feed.is_over,
				    memory_order_relaxed) ||
	       device->ops->is_lost(device);
}

struct kvpull_device_event *
kvpull_device_thread_mark(const struct kvpull_device_thread *thread,
			  uint32_t index)
{
	kvpull_check(&thread->log, index < thread->params.limits.mark_max);
	return thread->feed.marks[index];
}

int kvpull_device_thread_mark_open(const struct kvpull_device_thread *thread,
				   uint32_t index)
{
	struct kvpull_device *const device = thread->feed.device;

	if (kvpull_device_thread_mark(thread, index))
		return 0;
	return device->ops->event_open(device, &thread->feed.marks[index]);
}

/* ---- orders ---- */

static void order_push(struct kvpull_device_thread *thread,
		       enum kvpull_device_kind kind, uint32_t index)
{
	const struct kvpull_record record = { .kind = kind, .slot = index };
	const int pushed = kvpull_ring_push(&thread->orders, &record);

	/* The ring has room for all orders of all jobs and mappings. */
	kvpull_check(&thread->log, pushed >= 0);
	if (thread->is_abandoned)
		kvpull_device_feed_abandon(&thread->feed);
	else if (pushed)
		doorbell_ring(thread);
}

static struct kvpull_device_mapping *
mapping_take(struct kvpull_device_thread *thread, uint32_t mapping)
{
	kvpull_check(&thread->log, mapping < thread->params.limits.mapping_max);
	kvpull_check(&thread->log,
		     thread->mapping_states[mapping] == MAPPING_FREE);
	thread->mapping_states[mapping] = MAPPING_TAKEN;
	return &thread->feed.mappings[mapping];
}

void kvpull_device_thread_import(struct kvpull_device_thread *thread,
				 uint32_t mapping, int fd, uint64_t bytes,
				 const uint8_t *uuid)
{
	struct kvpull_device_mapping *const taken =
		mapping_take(thread, mapping);

	thread->mapping_bytes[mapping] = bytes;
	taken->fd = fd;
	taken->memory.bytes = bytes;
	memcpy(taken->uuid, uuid, sizeof(taken->uuid));
	thread->pending++;
	order_push(thread, KVPULL_DEVICE_IMPORT, mapping);
}

/* The last mappings: whoever imports counts from 0. */
void kvpull_device_thread_adopt(struct kvpull_device_thread *thread,
				const struct kvpull_device_memory *memory)
{
	const uint32_t mapping =
		thread->params.limits.mapping_max - ++thread->adopted_count;

	mapping_take(thread, mapping)->memory = *memory;
}

void kvpull_device_thread_unmap(struct kvpull_device_thread *thread,
				uint32_t mapping)
{
	kvpull_check(&thread->log, mapping < thread->params.limits.mapping_max);
	kvpull_check(&thread->log,
		     thread->mapping_states[mapping] == MAPPING_TAKEN);
	thread->mapping_states[mapping] = MAPPING_LEAVING;
	thread->pending++;
	order_push(thread, KVPULL_DEVICE_UNMAP, mapping);
}

int kvpull_device_thread_start(struct kvpull_device_thread *thread,
			       struct kvpull_device_job *job)
{
	const uint32_t index = job->read->index;

	kvpull_check(&thread->log, index < thread->params.limits.job_max);
	if (thread->job_states[index] != JOB_FREE)
		return KVPULL_EAGAIN;
	thread->job_states[index] = JOB_STARTED;
	thread->feed.copies[index].job = job;
	thread->pending++;
	order_push(thread, KVPULL_DEVICE_COPY, index);
	return 0;
}

void kvpull_device_thread_cancel(struct kvpull_device_thread *thread,
				 const struct kvpull_device_job *job)
{
	const uint32_t index = job->read->index;

	kvpull_check(&thread->log, thread->job_states[index] != JOB_FREE);
	if (thread->job_states[index] == JOB_CANCELLED)
		return;
	thread->job_states[index] = JOB_CANCELLED;
	order_push(thread, KVPULL_DEVICE_CANCEL, index);
}

/* ---- ends ---- */

/* How long the call goes on, as far as it was looked at. */
static uint64_t call_seen_ns(struct kvpull_device_thread *thread,
			     uint64_t now_ns)
{
	const uint64_t began_ns = kvpull_device_gate_call(&thread->feed.gate);
	const uint64_t since_ns = now_ns - thread->looked_ns;

	if (began_ns != thread->call_ns)
		thread->call_seen_ns = 0;
	else
		thread->call_seen_ns +=
			kvpull_least(since_ns, KVPULL_DEVICE_LOOK_NS);
	thread->call_ns = began_ns;
	thread->looked_ns = now_ns;
	return began_ns ? thread->call_seen_ns : 0;
}

/* The thread never comes back from such a call: its state is the owner's. */
static void hang_look(struct kvpull_device_thread *thread, uint64_t now_ns)
{
	if (thread->is_abandoned ||
	    call_seen_ns(thread, now_ns) < KVPULL_DEVICE_HANG_NS ||
	    !kvpull_device_gate_abandon(&thread->feed.gate, thread->call_ns))
		return;
	thread->is_abandoned = 1;
	if (!thread->feed.is_lost)
		kvpull_error(
			&thread->log,
			"device: a call of the driver has not returned in %u s: no pull into its memory is made any more: restart the engine, and look for Xid in dmesg",
			(unsigned int)(KVPULL_DEVICE_HANG_NS /
				       KVPULL_NS_PER_S));
	kvpull_device_feed_abandon(&thread->feed);
}

/* An import has ended: its code, as its owner has it. */
static int32_t import_note(struct kvpull_device_thread *thread,
			   uint32_t mapping, int32_t code)
{
	if (code < 0) {
		thread->mapping_bytes[mapping] = 0;
		return code;
	}
	thread->mapped.bytes += thread->mapping_bytes[mapping];
	thread->mapped.stores += code == KVPULL_DEVICE_FOR_STORES;
	return 0;
}

static void mapped_forget(struct kvpull_device_thread *thread, uint32_t mapping)
{
	thread->mapped.bytes -= thread->mapping_bytes[mapping];
	thread->mapping_bytes[mapping] = 0;
}

const struct kvpull_device_mapped *
kvpull_device_thread_mapped(const struct kvpull_device_thread *thread)
{
	return &thread->mapped;
}

static void end_take(struct kvpull_device_thread *thread,
		     struct kvpull_device_end *end)
{
	struct kvpull_record record;

	kvpull_ring_pop(&thread->ends, &record);
	thread->pending--;
	*end = (struct kvpull_device_end){
		.kind = (enum kvpull_device_kind)record.kind,
		.index = record.slot,
		.code = (int32_t)(uint32_t)record.extra,
	};
	if (end->kind == KVPULL_DEVICE_IMPORT) {
		end->code = import_note(thread, end->index, end->code);
		end->bytes_per_us = (uint32_t)(record.extra >> 32);
	}
	if (end->kind == KVPULL_DEVICE_UNMAP) {
		mapped_forget(thread, end->index);
		thread->mapping_states[end->index] = MAPPING_FREE;
	}
	if (end->kind != KVPULL_DEVICE_COPY)
		return;
	end->job = thread->feed.copies[end->index].job;
	thread->job_states[end->index] = JOB_FREE;
}

uint32_t kvpull_device_thread_pending(const struct kvpull_device_thread *thread)
{
	return thread ? thread->pending : 0;
}

uint32_t kvpull_device_thread_poll(struct kvpull_device_thread *thread,
				   struct kvpull_device_end *ends,
				   uint32_t capacity, uint64_t now_ns)
{
	uint32_t count = 0;
	int ready;

	if (!kvpull_device_thread_pending(thread))
		return 0;
	hang_look(thread, now_ns);
	ready = kvpull_ring_ready(&thread->ends);
	kvpull_check(&thread->log, ready >= 0);
	for (; count < capacity && ready > 0; ready--) {
		end_take(thread, &ends[count]);
		if (ends[count].job && ends[count].job->ended)
			ends[count].job->ended(ends[count].job);
		else
			count++;
	}
	kvpull_ring_pop_end(&thread->ends);
	return count;
}

int kvpull_device_thread_arm(struct kvpull_device_thread *thread)
{
	return thread && kvpull_ring_arm(&thread->ends);
}

void kvpull_device_thread_disarm(struct kvpull_device_thread *thread)
{
	if (thread)
		kvpull_ring_disarm(&thread->ends);
}
