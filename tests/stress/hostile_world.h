/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of a hostile consumer: a producer that holds, overwrites and
 * serves, and an honest consumer that pulls from it and compares every byte.
 * Both are processes of their own; their results are in shared memory.
 */
#ifndef KVPULL_TESTS_HOSTILE_WORLD_H
#define KVPULL_TESTS_HOSTILE_WORLD_H

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "base/clock.h"
#include "plugin/bytes/handshake.h"
#include "tests/lib/counts.h"
#include "tests/lib/host.h"
#include "tests/lib/patience.h"
#include "tests/lib/random.h"

#define BLOCKS 4u
#define BLOCK_BYTES 4096u
#define SLOTS 64u        /* requests of P */
#define BAITS 32u        /* of these, for the hostile: one an attack */
#define OTHER_UID 65534u /* let in, too */
#define TICKETS 8u       /* on their way to the honest one */
#define LIMIT_NS (30 * KVPULL_NS_PER_S * patience()) /* a hang */
#define LOADS 20u /* that the honest one must get done after each attack */
#define STRANGER_UID 65533u /* not let in */

#define STOP_CONSUMER 1u
#define STOP_ALL 2u

struct ticket {
	uint64_t seed;
	uint32_t byte_count;
	char text[2044];
};

struct arena {
	_Atomic uint32_t stop;  /* STOP_* */
	_Atomic uint32_t ready; /* P, then D */
	_Atomic uint64_t pushed;
	_Atomic uint64_t popped;
	_Atomic uint64_t strangers; /* processes that have dialled */
	/* D's */
	_Atomic uint64_t loads;
	_Atomic uint64_t failures;
	_Atomic uint64_t forged_refused;
	/* P's, of its last turn */
	_Atomic uint64_t consumers_live;
	_Atomic uint64_t rings_broken;
	_Atomic uint64_t dropped; /* records with a wrong tag, or for no hold */
	_Atomic uint64_t double_reports;
	struct ticket baits[BAITS];
	struct ticket tickets[TICKETS];
};

static struct arena *arena;
static char folder[] = "/tmp/kvpull-hostile-XXXXXX";

static inline uint64_t get(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void set(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, value, memory_order_relaxed);
}

static inline void nap(void)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	(void)nanosleep(&ms, NULL);
}

static inline uint64_t random_any(void)
{
	static uint64_t random;

	if (!random)
		random = kvpull_clock_ns() | 1;
	return random_next(&random);
}

/* ---- engines ---- */

struct side {
	const struct kvpull_connector_ops *ops;
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	uint8_t *kv;
	uint64_t keys[SLOTS]; /* P: 0 is free */
	uint64_t next_key;
	uint8_t bytes[1 << 20];
};

static struct side side;

static inline void die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	_exit(1);
}

static const struct kvpull_model model = {
	.struct_size = sizeof(model),
	.model = "toy",
	.dtype = "u8",
	.layout = "LBHNC",
	.layer_count = 1,
	.head_count = 1,
	.head_bytes = 256,
};
static const struct kvpull_group group = { .block_tokens = 16 };

static inline void params_fill(struct kvpull_open_params *params,
			       const char *id, const char *config)
{
	*params = (struct kvpull_open_params){
		.struct_size = sizeof(*params),
		.config_json = config,
		.model = &model,
		.engine_id = id,
		.tp_size = 1,
		.groups = &group,
		.group_bytes = sizeof(group),
		.group_count = 1,
	};
}

static inline void regions_tell(void)
{
	const uint64_t bytes = (uint64_t)SLOTS * BLOCKS * BLOCK_BYTES;
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_region region = { .struct_size = sizeof(region),
					.fd = -1,
					.bytes = bytes };
	const struct kvpull_cache cache = {
		.struct_size = sizeof(cache),
		.layer_count = 1,
		.block_stride = BLOCK_BYTES,
		.head_stride = BLOCK_BYTES,
		.block_count = SLOTS * BLOCKS,
		.row_count = 1,
		.head_count = 1,
		.head_bytes = BLOCK_BYTES,
	};
	const struct kvpull_regions regions = host_regions(&region, &cache);

	if (side.ops->worker->memory_alloc(side.worker, bytes, 0, &memory))
		die("memory");
	side.kv = region.base = memory.base;
	if (side.ops->worker->regions_register(side.worker, &regions, NULL))
		die("regions");
}

static inline void side_open(const char *id)
{
	struct kvpull_open_params params;
	char config[512];

	/* The last bait is taken when all others were: on a busy host, late. */
	(void)snprintf(config, sizeof(config),
		       "{\"socket_dir\":\"%s\",\"uids\":[%u,%u],"
		       "\"max_holds\":256,\"ring_records\":1024,"
		       "\"lease_ms\":300000,\"deadline_ms\":30000}",
		       folder, geteuid(), OTHER_UID);
	params_fill(&params, id, config);
	side.ops = kvpull_connector_v1();
	side.next_key = 1;
	if (side.ops->scheduler->open(&params, &side.scheduler, NULL) ||
	    side.ops->worker->open(&params, &side.worker, NULL))
		die("open");
	regions_tell();
	if (host_introduce(side.worker, side.scheduler))
		die("rank_info");
}

static inline void side_close(void)
{
	side.ops->worker->close(side.worker);
	side.ops->scheduler->close(side.scheduler);
}

/* Makes a step; returns the number of records. */
static inline uint32_t step(struct kvpull_poll_record *records,
			    uint32_t capacity)
{
	size_t byte_count;
	int count;

	if (side.ops->scheduler->step_build(side.scheduler, side.bytes,
					    sizeof(side.bytes), &byte_count) ||
	    side.ops->worker->step(side.worker, side.bytes, byte_count) ||
	    side.ops->worker->start_loads(side.worker, NULL))
		die("step");
	count = side.ops->worker->poll(side.worker, records, capacity,
				       sizeof(*records));
	if (count < 0 ||
	    side.ops->worker->result_build(side.worker, side.bytes,
					   sizeof(side.bytes), &byte_count))
		die("poll");
	if (byte_count && side.ops->scheduler->result_take(
				  side.scheduler, side.bytes, byte_count))
		die("result");
	return (uint32_t)count;
}

static inline uint8_t pattern(uint64_t seed, uint32_t at)
{
	return (uint8_t)((seed * 31 + at) * 2654435761u >> 24);
}

static inline void request_fill(struct kvpull_request *request, uint64_t seed)
{
	*request = (struct kvpull_request){ .struct_size = sizeof(*request),
					    .key = side.next_key++,
					    .prompt_tokens = BLOCKS * 16 };
	memcpy(request->prompt_digest, &seed, sizeof(seed));
}

static inline void ids_fill(uint32_t slot, uint32_t *ids)
{
	uint32_t index;

	for (index = 0; index < BLOCKS; index++)
		ids[index] = slot * BLOCKS + index;
}

/* P: a request whose blocks are those of a slot is held. */
static inline void hold_make(uint32_t slot, struct ticket *ticket)
{
	uint8_t *kv = side.kv + (size_t)slot * BLOCKS * BLOCK_BYTES;
	uint32_t ids[BLOCKS];
	const struct kvpull_blocks blocks = { .block_count = BLOCKS,
					      .block_ids = ids };
	struct kvpull_request request;
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.computed_tokens = BLOCKS * 16,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.ticket = ticket->text,
		.ticket_capacity = sizeof(ticket->text),
	};
	uint32_t at;

	ids_fill(slot, ids);
	ticket->seed = random_any();
	for (at = 0; at < BLOCKS * BLOCK_BYTES; at++)
		kv[at] = pattern(ticket->seed, at);
	request_fill(&request, ticket->seed);
	request.flags = KVPULL_REQUEST_WANTS_HOLD;
	finish.key = side.keys[slot] = request.key;
	if (side.ops->scheduler->request_new(side.scheduler, &request) ||
	    side.ops->scheduler->request_finished(side.scheduler, &finish) !=
		    KVPULL_FINISH_HELD)
		die("P: not held");
	ticket->byte_count = (uint32_t)finish.ticket_bytes;
}

/* The blocks came back: they are overwritten at once. */
static inline void hold_end(uint64_t key)
{
	uint32_t slot = 0;

	while (slot < SLOTS && side.keys[slot] != key)
		slot++;
	if (slot == SLOTS) {
		set(&arena->double_reports, get(&arena->double_reports) + 1);
		return;
	}
	side.keys[slot] = 0;
	memset(side.kv + (size_t)slot * BLOCKS * BLOCK_BYTES, 0xee,
	       BLOCKS * BLOCK_BYTES);
}

static inline void producer_counts(void)
{
	const union kvpull_worker_counts counts =
		worker_counts(side.ops->worker, side.worker);

	set(&arena->consumers_live, counts.consumers_live);
	set(&arena->rings_broken, counts.rings_broken);
	set(&arena->dropped, counts.bad_tag + counts.unknown);
}

static inline void ticket_push(uint32_t slot)
{
	const uint64_t pushed = get(&arena->pushed);

	/* Pairs with the release in ticket_next(). */
	if (side.keys[slot] ||
	    pushed - atomic_load_explicit(&arena->popped,
					  memory_order_acquire) ==
		    TICKETS)
		return;
	hold_make(slot, &arena->tickets[pushed % TICKETS]);
	/* Pairs with the acquire in ticket_next(). */
	atomic_store_explicit(&arena->pushed, pushed + 1, memory_order_release);
}

static inline void producer_main(void)
{
	struct kvpull_poll_record records[16];
	uint32_t slot;
	uint32_t index;
	uint32_t count;

	side_open("producer");
	for (slot = 0; slot < BAITS; slot++)
		hold_make(slot, &arena->baits[slot]);
	/* Pairs with the acquire in ready_await(). */
	atomic_fetch_add_explicit(&arena->ready, 1, memory_order_release);
	while (atomic_load_explicit(&arena->stop, memory_order_relaxed) !=
	       STOP_ALL) {
		ticket_push(BAITS + slot++ % (SLOTS - BAITS));
		count = step(records, 16);
		for (index = 0; index < count; index++)
			hold_end(records[index].key);
		producer_counts();
	}
	side_close();
	_exit(0);
}

static inline const struct ticket *ticket_next(void)
{
	const uint64_t popped = get(&arena->popped);

	/* Pairs with the release in ticket_push(). */
	return atomic_load_explicit(&arena->pushed, memory_order_acquire) ==
			       popped ?
		       NULL :
		       &arena->tickets[popped % TICKETS];
}

/* Result of a pull; 0: loaded, and every byte is right. */
static inline int pull(const char *text, uint32_t byte_count, uint64_t seed)
{
	uint32_t ids[BLOCKS];
	const struct kvpull_blocks blocks = { .block_count = BLOCKS,
					      .block_ids = ids };
	struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
	};
	struct kvpull_poll_record record;
	struct kvpull_request request;
	struct kvpull_finish finish = { .struct_size = sizeof(finish) };
	uint32_t wrong = 0;
	uint32_t at;

	ids_fill(0, ids);
	request_fill(&request, seed);
	request.flags = KVPULL_REQUEST_PULL;
	request.ticket = text;
	request.ticket_bytes = byte_count;
	allocation.key = finish.key = request.key;
	if (side.ops->scheduler->request_new(side.scheduler, &request) ||
	    side.ops->scheduler->matched_tokens(side.scheduler, request.key, 0,
						&allocation.external_tokens) !=
		    KVPULL_MATCH_LOAD ||
	    side.ops->scheduler->allocated(side.scheduler, &allocation))
		return 1;
	while (!step(&record, 1))
		;
	for (at = 0; at < BLOCKS * BLOCK_BYTES; at++)
		wrong += side.kv[at] != pattern(seed, at);
	(void)side.ops->scheduler->request_finished(side.scheduler, &finish);
	if (record.kind != KVPULL_POLL_LOADED)
		return record.reason;
	return wrong != 0;
}

static uint32_t block_ids[KVPULL_TICKET_BLOCKS_MAX];
static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];

static inline void ticket_open(const struct ticket *from,
			       struct kvpull_ticket *ticket)
{
	memset(ticket, 0, sizeof(*ticket));
	if (kvpull_ticket_decode(from->text, from->byte_count, NULL, scratch,
				 ticket))
		die("a ticket is not one");
	kvpull_ids_copy(&ticket->ids, 0, ticket->ids.count, block_ids);
	ticket->block_ids = block_ids;
}

/* Clients can write tickets where no key is set: never out of the folder. */
static inline void forged_try(const char *address)
{
	static struct kvpull_ticket ticket;
	char text[4096];
	size_t byte_count = 0;

	ticket_open(&arena->baits[0], &ticket);
	/* A peer that is not known yet. */
	ticket.ranks[0].incarnation = random_any();
	(void)snprintf(ticket.ranks[0].address, sizeof(ticket.ranks[0].address),
		       "%s", address);
	if (kvpull_ticket_encode(&ticket, NULL, scratch, text, sizeof(text),
				 &byte_count))
		die("a ticket is not encoded");
	if (pull(text, (uint32_t)byte_count, arena->baits[0].seed) ==
	    KVPULL_EROUTE)
		set(&arena->forged_refused, get(&arena->forged_refused) + 1);
}

static const char *const forged[] = {
	"shm:../kvpull-elsewhere",  "shm:/run/kvpull",
	"shm:kvpull-0000000000000", "shm:.hidden",
	"verbs:203.0.113.1:7471",   "shm:a/b",
};
#define FORGED (sizeof(forged) / sizeof(forged[0]))

static inline void consumer_main(void)
{
	const struct ticket *ticket;
	struct kvpull_poll_record record;
	uint32_t index;
	int code;

	side_open("consumer");
	for (index = 0; index < FORGED; index++)
		forged_try(forged[index]);
	atomic_fetch_add_explicit(&arena->ready, 1, memory_order_relaxed);
	while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
		ticket = ticket_next();
		if (!ticket) {
			(void)step(&record, 1);
			continue;
		}
		code = pull(ticket->text, ticket->byte_count, ticket->seed);
		if (code)
			fprintf(stderr, "the honest consumer: error %d\n",
				code);
		set(code ? &arena->failures : &arena->loads,
		    get(code ? &arena->failures : &arena->loads) + 1);
		/* Pairs with the acquire in ticket_push(). */
		atomic_store_explicit(&arena->popped, get(&arena->popped) + 1,
				      memory_order_release);
	}
	side_close();
	_exit(0);
}

/* ---- the parent ---- */

/* Give up root for good, but keep the /proc rights of an ordinary process. */
static inline void become(uid_t uid)
{
	if (uid != getuid() &&
	    (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
		die("setresuid");
	(void)prctl(PR_SET_DUMPABLE, 1);
}

static inline pid_t child_start(void)
{
	const pid_t pid = fork();

	if (!pid)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static inline int child_failed(pid_t pid)
{
	int status = -1;

	return waitpid(pid, &status, 0) != pid || status != 0;
}

static inline void ready_await(uint32_t count)
{
	/* Pairs with the release in producer_main(). */
	while (atomic_load_explicit(&arena->ready, memory_order_acquire) <
	       count) {
		if (waitpid(-1, NULL, WNOHANG) > 0)
			die("an engine ended");
		nap();
	}
}

/* The honest one gets its work done, and only that one is left. */
static inline int goes_on(void)
{
	const uint64_t loads = get(&arena->loads) + LOADS;
	const uint64_t until = kvpull_clock_ns() + LIMIT_NS;

	while (get(&arena->loads) < loads || get(&arena->consumers_live) != 1) {
		if (kvpull_clock_ns() >= until)
			return 0;
		nap();
	}
	return !get(&arena->failures) && !get(&arena->double_reports);
}

static uint32_t passed, failed, skipped;

static inline void row(const char *what, uid_t uid, int is_bad)
{
	const int on = goes_on();

	printf("%-6s %-63s uid %5u%s\n", is_bad || !on ? "FAILED" : "ok", what,
	       uid, on ? "" : ": the honest consumer stands");
	passed += !is_bad && on;
	failed += is_bad || !on;
}

static inline void end_tell(int engines_failed)
{
	printf("%-6s both engines close\n", engines_failed ? "FAILED" : "ok");
	passed += !engines_failed;
	failed += engines_failed != 0;
	printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
}

static pid_t producer_pid, consumer_pid;

/* nofile: P's limit of descriptors, or 0. */
static inline void hostile_begin(rlim_t nofile)
{
	const struct rlimit limit = { .rlim_cur = nofile, .rlim_max = nofile };

	if (sodium_init() < 0 || !mkdtemp(folder) || chmod(folder, 01777))
		die("folder");
	arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (arena == MAP_FAILED)
		die("out of memory");
	producer_pid = child_start();
	if (!producer_pid && nofile && setrlimit(RLIMIT_NOFILE, &limit))
		die("setrlimit");
	if (!producer_pid)
		producer_main();
	ready_await(1);
	consumer_pid = child_start();
	if (!consumer_pid)
		consumer_main();
	ready_await(2);
}

/* Exit status. */
static inline int hostile_end(void)
{
	char command[64];
	int ended;

	/* The honest one first, so that its last pull does not fail. */
	atomic_store_explicit(&arena->stop, STOP_CONSUMER,
			      memory_order_relaxed);
	ended = child_failed(consumer_pid);
	atomic_store_explicit(&arena->stop, STOP_ALL, memory_order_relaxed);
	ended += child_failed(producer_pid);
	end_tell(ended);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	if (system(command))
		perror(folder);
	return failed != 0;
}

#endif /* KVPULL_TESTS_HOSTILE_WORLD_H */
