/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both halves of both roles in one process, through the ABI's tables alone:
 * a prefill is held, its ticket travels, the blocks are pulled over the
 * same-node route and compared byte by byte, and the hold ends.
 */
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "kvpull/connector.h"
#include "tests/lib/counts.h"
#include "tests/lib/folder.h"
#include "tests/lib/host.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define BLOCKS 64u
#define BLOCK_BYTES 4096u
#define LAYERS 3u
/* A failure comes then, less than a lease later. */
#define PATIENCE_S 40

/* Sanitizers have an allocator of their own. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) &&                    \
	!defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define COUNTS_ALLOCATIONS 1
void *libc_malloc(size_t bytes) __asm__("__libc_malloc");
void *libc_calloc(size_t count, size_t bytes) __asm__("__libc_calloc");
void *libc_realloc(void *old, size_t bytes) __asm__("__libc_realloc");

static _Atomic uint32_t allocations;

void *malloc(size_t bytes)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
	atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
	return libc_realloc(old, bytes);
}
#endif

struct side {
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	uint8_t *memory;
	uint32_t loaded, failed, sent;
	int32_t reason;
};

struct pair {
	const struct kvpull_connector_ops *ops;
	char config[256];
	char dir[64];
	struct side p, d;
};

static const struct kvpull_host host = {
	.struct_size = sizeof(host),
	.log = lines_keep,
};

static struct kvpull_model model = {
	.struct_size = sizeof(model),
	.model = "tiny",
	.dtype = "float32",
	.layout = "LBHNC",
	.layer_count = LAYERS,
	.head_count = 2,
	.head_bytes = 128,
};

static void side_open(struct pair *pair, struct side *side, const char *id)
{
	const struct kvpull_group group = { .block_tokens = 16 };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_open_params params =
		host_params(id, pair->config, &model, &group);
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_region region = { .struct_size = sizeof(region),
					.fd = -1 };
	struct kvpull_cache cache = {
		.struct_size = sizeof(cache),
		.layer_count = LAYERS,
		.layer_stride = (uint64_t)BLOCKS * BLOCK_BYTES,
		.block_stride = BLOCK_BYTES,
		.head_stride = BLOCK_BYTES / 2,
		.block_count = BLOCKS,
		.row_count = 1,
		.head_count = 2,
		.head_bytes = BLOCK_BYTES / 2,
	};
	const struct kvpull_regions regions = host_regions(&region, &cache);

	params.host = &host;
	if (pair->ops->scheduler->open(&params, &side->scheduler, &detail) ||
	    pair->ops->worker->open(&params, &side->worker, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
	assert_int_equal(pair->ops->worker->memory_alloc(
				 side->worker,
				 (uint64_t)LAYERS * BLOCKS * BLOCK_BYTES, 0,
				 &memory),
			 0);
	side->memory = memory.base;
	region.base = memory.base;
	region.bytes = (uint64_t)LAYERS * BLOCKS * BLOCK_BYTES;
	if (pair->ops->worker->regions_register(side->worker, &regions,
						&detail))
		fail_msg("%s: %s", detail.field, detail.message);
	assert_int_equal(host_introduce(side->worker, side->scheduler), 0);
	assert_int_equal(pair->ops->scheduler->ranks_missing(side->scheduler),
			 0);
}

static void pair_open_as(void **state, const char *progress)
{
	struct pair *pair = calloc(1, sizeof(*pair));

	assert_non_null(pair);
	(void)snprintf(pair->dir, sizeof(pair->dir), "/tmp/kvpull-test-XXXXXX");
	assert_non_null(mkdtemp(pair->dir));
	(void)snprintf(
		pair->config, sizeof(pair->config),
		"{\"progress\":\"%s\",\"copy_threads\":0,\"max_holds\":64,"
		"\"lease_ms\":60000,\"socket_dir\":\"%s\"}",
		progress, pair->dir);
	pair->ops = kvpull_connector_v1();
	side_open(pair, &pair->p, "producer");
	side_open(pair, &pair->d, "consumer");
	*state = pair;
}

static int pair_open(void **state)
{
	pair_open_as(state, "caller");
	return 0;
}

static int pair_open_threads(void **state)
{
	pair_open_as(state, "thread");
	return 0;
}

static int pair_close(void **state)
{
	struct pair *pair = *state;

	pair->ops->worker->close(pair->d.worker);
	pair->ops->scheduler->close(pair->d.scheduler);
	pair->ops->worker->close(pair->p.worker);
	pair->ops->scheduler->close(pair->p.scheduler);
	(void)folder_remove(pair->dir);
	free(pair);
	return 0;
}

/* A test with either setting of progress. */
#define BOTH_WAYS(name)                                                        \
	static void name(void **state);                                        \
	UNIT_TEST_WITH(name##_by_its_caller, pair_open, pair_close)            \
	{                                                                      \
		name(state);                                                   \
	}                                                                      \
	UNIT_TEST_WITH(name##_by_a_thread, pair_open_threads, pair_close)      \
	{                                                                      \
		name(state);                                                   \
	}                                                                      \
	static void name(void **state)

/* Makes an engine step of one side. */
static void turn(struct pair *pair, struct side *side)
{
	static uint8_t bytes[1 << 20];
	struct kvpull_poll_record records[16];
	size_t byte_count = 0;
	int count;
	int at;

	assert_int_equal(pair->ops->scheduler->step_build(side->scheduler,
							  bytes, sizeof(bytes),
							  &byte_count),
			 0);
	assert_int_equal(
		pair->ops->worker->step(side->worker, bytes, byte_count), 0);
	assert_int_equal(pair->ops->worker->start_loads(side->worker, NULL), 0);
	count = pair->ops->worker->poll(side->worker, records, 16,
					sizeof(*records));
	assert_true(count >= 0);
	for (at = 0; at < count; at++) {
		side->loaded += records[at].kind == KVPULL_POLL_LOADED;
		side->failed += records[at].kind == KVPULL_POLL_FAILED;
		side->sent += records[at].kind == KVPULL_POLL_SENT;
		side->reason = records[at].reason;
	}
	assert_int_equal(pair->ops->worker->result_build(side->worker, bytes,
							 sizeof(bytes),
							 &byte_count),
			 0);
	if (byte_count)
		assert_int_equal(pair->ops->scheduler->result_take(
					 side->scheduler, bytes, byte_count),
				 0);
	if (!count)
		(void)sched_yield();
}

/* Turns until so many of these have come: P's, and D's if it makes any. */
static void turns_until(struct pair *pair, const uint32_t *what, uint32_t count,
			int with_d)
{
	const uint64_t until_ns =
		kvpull_clock_ns() + PATIENCE_S * KVPULL_NS_PER_S;

	/* By time: many turns are short for threads on a busy machine. */
	while (*what < count && kvpull_clock_ns() < until_ns) {
		turn(pair, &pair->p);
		if (with_d)
			turn(pair, &pair->d);
	}
	assert_int_equal(*what, count);
}

static void fill(uint8_t *memory, uint32_t block, uint8_t seed)
{
	uint32_t layer;
	uint32_t at;

	for (layer = 0; layer < LAYERS; layer++)
		for (at = 0; at < BLOCK_BYTES; at++)
			memory[(size_t)(layer * BLOCKS + block) * BLOCK_BYTES +
			       at] = (uint8_t)(seed + layer * 7 + at * 13);
}

static size_t prefill(struct pair *pair, uint64_t key, char *ticket,
		      size_t capacity)
{
	static const uint32_t ids[3] = { 5, 9, 33 };
	const struct kvpull_blocks blocks = { .block_count = 3,
					      .block_ids = ids };
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = key,
		.prompt_tokens = 40,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
		.prompt_digest = { 1, 2, 3 },
		.trace = { 4, 5, [23] = 6 },
	};
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = key,
		.computed_tokens = 40,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.ticket = ticket,
		.ticket_capacity = capacity,
	};
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	uint32_t at;

	for (at = 0; at < 3; at++)
		fill(pair->p.memory, ids[at], (uint8_t)(at + 1));
	assert_int_equal(
		pair->ops->scheduler->request_new(pair->p.scheduler, &request),
		0);
	assert_int_equal(pair->ops->scheduler->request_finished(
				 pair->p.scheduler, &finish),
			 KVPULL_FINISH_HELD);
	assert_int_equal(
		pair->ops->ticket_peek(ticket, finish.ticket_bytes, &info), 0);
	assert_memory_equal(info.trace, request.trace, sizeof(info.trace));
	return finish.ticket_bytes;
}

static void admit(struct pair *pair, uint64_t key, const char *ticket,
		  size_t ticket_bytes)
{
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = key,
		.ticket = ticket,
		.ticket_bytes = ticket_bytes,
		.prompt_tokens = 40,
		.flags = KVPULL_REQUEST_PULL,
		.prompt_digest = { 1, 2, 3 },
	};

	assert_int_equal(
		pair->ops->scheduler->request_new(pair->d.scheduler, &request),
		0);
}

static void allocate(struct pair *pair, uint64_t key)
{
	static const uint32_t ids[3] = { 60, 2, 31 };
	const struct kvpull_blocks blocks = { .block_count = 3,
					      .block_ids = ids };
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = key,
		.external_tokens = 40,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
	};
	uint32_t tokens = 0;

	assert_int_equal(pair->ops->scheduler->matched_tokens(pair->d.scheduler,
							      key, 0, &tokens),
			 KVPULL_MATCH_LOAD);
	assert_int_equal(tokens, 40);
	assert_int_equal(
		pair->ops->scheduler->allocated(pair->d.scheduler, &allocation),
		0);
}

#define COUNTERS_MAX 64

static void every_counter_has_its_text(const struct kvpull_counter *counters,
				       int count)
{
	int i;

	assert_in_range(count, 1, COUNTERS_MAX);
	for (i = 0; i < count; i++) {
		assert_non_null(counters[i].name);
		assert_int_not_equal(counters[i].help[0], '\0');
	}
}

static void counters_count_the_pull(const struct kvpull_connector_ops *ops,
				    const struct side *side)
{
	struct kvpull_counter list[COUNTERS_MAX];
	int count;

	count = ops->worker->counters(side->worker, list, COUNTERS_MAX,
				      sizeof(list[0]));
	every_counter_has_its_text(list, count);
	assert_string_equal(list[1].name, "holds_released");
	assert_int_equal(list[1].value, 1);
	assert_string_equal(list[13].name, "consumers_live");
	assert_int_equal(list[13].kind, KVPULL_COUNTER_LIVE);
	assert_int_equal(list[13].value, 1);
	count = ops->scheduler->counters(side->scheduler, list, COUNTERS_MAX,
					 sizeof(list[0]));
	every_counter_has_its_text(list, count);
	assert_int_equal(list[0].value, 1);
	/* Without a half: names alone. */
	assert_int_equal(ops->scheduler->counters(NULL, list, COUNTERS_MAX,
						  sizeof(list[0])),
			 count);
	assert_string_equal(list[0].name, "holds_taken");
	assert_int_equal(list[0].value, 0);
	assert_true(ops->worker->counters(NULL, NULL, 0, sizeof(list[0])) > 0);
}

UNIT_TEST_OF(pull_reads_the_held_blocks_and_ends_the_hold, struct pair, pair,
	     pair_open, pair_close)
{
	static const uint32_t from[3] = { 5, 9, 33 };
	static const uint32_t to[3] = { 60, 2, 31 };
	union kvpull_worker_counts counts;
	char ticket[4096];
	const size_t bytes = prefill(pair, 11, ticket, sizeof(ticket));
	uint32_t layer;
	uint32_t at;

	admit(pair, 21, ticket, bytes);
	allocate(pair, 21);
	turns_until(pair, &pair->p.sent, 1, 1);
	assert_int_equal(pair->d.loaded, 1);
	assert_int_equal(pair->d.failed, 0);
	assert_int_equal(pair->p.sent, 1);
	assert_int_equal(pair->p.reason, KVPULL_END_RELEASED);
	for (layer = 0; layer < LAYERS; layer++)
		for (at = 0; at < 3; at++)
			assert_memory_equal(
				pair->p.memory +
					(size_t)(layer * BLOCKS + from[at]) *
						BLOCK_BYTES,
				pair->d.memory +
					(size_t)(layer * BLOCKS + to[at]) *
						BLOCK_BYTES,
				BLOCK_BYTES);
	counts = worker_counts(pair->ops->worker, pair->p.worker);
	assert_int_equal(counts.holds_live, 0);
	assert_int_equal(counts.holds_released, 1);
	assert_int_equal(counts.consumers_live, 1);
	assert_true(counts.arena_bytes > 0);
	counters_count_the_pull(pair->ops, &pair->p);
}

#ifdef COUNTS_ALLOCATIONS
/* By any of its threads, and what libc does for it. */
BOTH_WAYS(nothing_is_allocated_after_open)
{
	struct pair *pair = *state;
	uint32_t before;
	char ticket[4096];
	uint64_t key;

	free(malloc(1));
	before = atomic_load_explicit(&allocations, memory_order_relaxed);
	assert_true(before > 0);
	for (key = 1; key <= 3; key++) {
		const size_t bytes = prefill(pair, key, ticket, sizeof(ticket));

		if (key == 2) {
			assert_int_equal(
				pair->ops->scheduler->request_rejected(
					pair->d.scheduler, ticket, bytes),
				0);
		} else {
			admit(pair, key, ticket, bytes);
			allocate(pair, key);
		}
		turns_until(pair, &pair->p.sent, (uint32_t)key, 1);
	}
	assert_int_equal(pair->d.loaded, 2);
	assert_int_equal(
		atomic_load_explicit(&allocations, memory_order_relaxed),
		before);
}
#endif

UNIT_TEST_WITH(close_in_a_child_leaves_the_parent_alone, pair_open, pair_close)
{
	struct pair *pair = *state;
	int status = -1;
	const pid_t child = fork();

	assert_true(child >= 0);
	if (!child) {
		pair->ops->worker->close(pair->d.worker);
		pair->ops->worker->close(pair->p.worker);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	pull_reads_the_held_blocks_and_ends_the_hold(state);
}

UNIT_TEST_OF(rejected_ticket_frees_the_producer, struct pair, pair, pair_open,
	     pair_close)
{
	char ticket[4096];
	const size_t bytes = prefill(pair, 11, ticket, sizeof(ticket));

	assert_int_equal(pair->ops->scheduler->request_rejected(
				 pair->d.scheduler, ticket, bytes),
			 0);
	assert_true(
		(uint32_t)pair->ops->scheduler->has_pending(pair->d.scheduler) &
		KVPULL_PENDING_STEP);
	turns_until(pair, &pair->p.sent, 1, 1);
	assert_int_equal(pair->p.reason, KVPULL_END_RELEASED);
	assert_int_equal(pair->d.loaded + pair->d.failed, 0);
}

/* The consumer's engine, which makes no step any more. */
UNIT_TEST_OF(an_attached_worker_releases_without_a_step, struct pair, pair,
	     pair_open_threads, pair_close)
{
	const struct kvpull_scheduler_ops *ops = pair->ops->scheduler;
	struct kvpull_finish finish = { .struct_size = sizeof(finish),
					.key = 21,
					.reason = KVPULL_FINISH_ABORT };
	char ticket[4096];
	size_t bytes = prefill(pair, 11, ticket, sizeof(ticket));

	assert_int_equal(ops->worker_attach(pair->d.scheduler, pair->d.worker),
			 0);
	admit(pair, 21, ticket, bytes);
	turn(pair, &pair->d);
	assert_int_equal(ops->request_finished(pair->d.scheduler, &finish),
			 KVPULL_FINISH_FREE);
	turns_until(pair, &pair->p.sent, 1, 0);
	assert_int_equal(pair->p.reason, KVPULL_END_RELEASED);
	bytes = prefill(pair, 12, ticket, sizeof(ticket));
	assert_int_equal(
		ops->request_rejected(pair->d.scheduler, ticket, bytes), 0);
	assert_false((uint32_t)ops->has_pending(pair->d.scheduler) &
		     KVPULL_PENDING_STEP);
	turns_until(pair, &pair->p.sent, 2, 0);
}

UNIT_TEST_OF(pull_after_revoke_is_expired, struct pair, pair, pair_open,
	     pair_close)
{
	char ticket[4096];
	const size_t bytes = prefill(pair, 11, ticket, sizeof(ticket));

	turn(pair, &pair->p);
	assert_int_equal(pair->ops->worker->revoke_all(pair->p.worker), 1);
	admit(pair, 21, ticket, bytes);
	allocate(pair, 21);
	turns_until(pair, &pair->d.failed, 1, 1);
	assert_int_equal(pair->d.loaded, 0);
	assert_int_equal(pair->d.reason, KVPULL_EEXPIRED);
	assert_int_equal(pair->p.sent, 1);
}

/* A worker that was killed cannot remove its name; the next one does. */
UNIT_TEST_WITH(names_of_killed_workers_are_swept, pair_open, pair_close)
{
	struct pair *pair = *state;
	struct sockaddr_un dead = { .sun_family = AF_UNIX };
	struct side third = { 0 };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	(void)snprintf(dead.sun_path, sizeof(dead.sun_path),
		       "%s/kvpull-dead.sock", pair->dir);
	assert_int_equal(bind(fd, (struct sockaddr *)&dead, sizeof(dead)), 0);
	(void)close(fd);
	assert_int_equal(access(dead.sun_path, F_OK), 0);
	side_open(pair, &third, "third");
	assert_int_not_equal(access(dead.sun_path, F_OK), 0);
	pair->ops->worker->close(third.worker);
	pair->ops->scheduler->close(third.scheduler);
	pull_reads_the_held_blocks_and_ends_the_hold(state);
}

/* An engine that asks for it and sleeps at once has asked for no doorbell. */
BOTH_WAYS(event_fd_wakes_an_engine_that_has_not_polled_yet)
{
	struct pair *pair = *state;
	struct pollfd ready = { .events = POLLIN };
	uint32_t polls = 0;

	ready.fd = pair->ops->worker->event_fd(pair->p.worker);
	assert_true(ready.fd >= 0);
	assert_int_equal(poll(&ready, 1, 0), 1);
	while (poll(&ready, 1, 0) == 1 && polls++ < 100)
		turn(pair, &pair->p);
	assert_in_range(polls, 1, 99);
}

/* As an engine without work: it polls when its descriptor says so. */
static int woken(struct pair *pair, struct side *side)
{
	struct pollfd ready = {
		.fd = pair->ops->worker->event_fd(side->worker),
		.events = POLLIN,
	};

	if (poll(&ready, 1, 0) != 1)
		return 0;
	turn(pair, side);
	return 1;
}

/* Sleeps as long as neither is woken: with an end, which is a failure. */
static void sleep_until(struct pair *pair, const uint32_t *what, uint32_t count)
{
	struct pollfd ready[2] = {
		{ .fd = pair->ops->worker->event_fd(pair->p.worker),
		  .events = POLLIN },
		{ .fd = pair->ops->worker->event_fd(pair->d.worker),
		  .events = POLLIN },
	};

	while (*what < count) {
		/* Less than the lease, whose timer would wake them, too. */
		assert_true(poll(ready, 2, PATIENCE_S * 1000) > 0);
		(void)woken(pair, &pair->p);
		(void)woken(pair, &pair->d);
	}
}

BOTH_WAYS(engines_that_sleep_hear_of_every_end)
{
	struct pair *pair = *state;
	uint32_t round;

	for (round = 1; round <= 200; round++) {
		char ticket[2048];
		const size_t ticket_bytes =
			prefill(pair, round, ticket, sizeof(ticket));

		turn(pair, &pair->p);
		admit(pair, round, ticket, ticket_bytes);
		allocate(pair, round);
		turn(pair, &pair->d);
		sleep_until(pair, &pair->d.loaded, round);
		sleep_until(pair, &pair->p.sent, round);
	}
	/* With nothing to tell they sleep: it is no spinning. */
	for (round = 0;
	     round < 1000 && (woken(pair, &pair->p) || woken(pair, &pair->d));
	     round++)
		;
	assert_in_range(round, 0, 999);
	assert_int_equal(pair->d.failed, 0);
}
