/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F7: P's lease expires around a pull, and P overwrites the blocks at once.
 *
 * P holds as many requests as it can; each hold ends by hold_max, to the
 * millisecond known. D starts each pull close to that end, and tunes how close
 * by what became of the last ones, so that a good part of the reads race with
 * the overwriting. A pull that is believed must have read P's bytes. With a
 * library that believes every read the same tries must find wrong bytes: else
 * this test tests nothing.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "tests/scenario/f7.h"
#include "tests/scenario/gpu.h"

#define TICKETS 1024u     /* power of two; in flight between P and D */
#define BLOCKS 8u         /* of a request */
#define IDS (BLOCKS + 1u) /* the last one is the slot of its state, if any */
#define BLOCK_BYTES 8192u /* as a rule */
#define SMALL_BLOCKS 4u   /* of a request whose other half D has */
#define INLINE_BYTES 49152u
#define HOLDS_MAX 256u
#define POOL_BLOCKS (HOLDS_MAX * IDS)
#define HOLD_MS 10u
#define REMOTE_HOLD_MS 200u /* two engines may share one processor there */
#define WINDOW 256u         /* tries between two tunings */
#define JITTER_NS 100000    /* either way */
#define STEP_NS 5000
#define STEP_FAR_NS 50000
#define REMOTE_TIMES 20 /* all three, there */

struct ticket {
	uint64_t seed;
	uint64_t taken_ns;
	uint32_t bytes;
	uint32_t reserved;
	char text[1016];
};

/* Shared by the case, P and D; made before they are forked. */
struct arena {
	_Atomic uint64_t pushed;
	_Atomic uint64_t popped;
	_Atomic uint32_t stop;          /* D */
	_Atomic uint32_t producer_stop; /* when D has ended */
	struct f7_counts counts;
	struct ticket tickets[TICKETS];
};

/* Blocks that came back, on their way to the thread that overwrites. */
struct scribbler {
	struct engine *engine;
	_Atomic uint64_t pushed;
	_Atomic uint64_t done;
	_Atomic uint32_t stop;
	uint32_t ids[POOL_BLOCKS * 2][IDS];
};

struct producer {
	struct engine engine;
	struct arena *arena;
	const struct f7_setup *setup;
	uint32_t *ids; /* [TICKETS * 64][IDS], by key */
	struct scribbler *scribbler;
	uint64_t given; /* back from the scribbler */
	uint32_t live;
};

#define KEYS (TICKETS * 64u)

/* Pulls take milliseconds: between machines, and by a GPU's threads. */
static int is_slow;

static uint32_t *ids_of(struct producer *producer, uint64_t key)
{
	return producer->ids + (key % KEYS) * IDS;
}

/* The bytes of a request that does not exist, by stores past the cache. */
static void stream_over(struct engine *engine, uint32_t id)
{
	uint8_t *at =
		engine->memory[0] + (size_t)id * engine->shape.block_bytes;
	size_t word;

#ifdef __x86_64__
	for (word = 0; word < engine->shape.block_bytes / 8; word++)
		_mm_stream_si64((long long *)(void *)at + word,
				0x5c51bb1e5c51bb1e);
#else
	for (word = 0; word < engine->shape.block_bytes; word++)
		at[word] = 0x5c;
#endif
}

/* How many ids a request has at P. */
static uint32_t ids_count(const struct engine *engine)
{
	return BLOCKS + engine->shape.has_states;
}

static void overwrite(struct engine *engine, const uint32_t *ids, uint32_t mode)
{
	uint32_t index;

	if (engine->shape.has_states)
		engine_block_fill(engine, 1, ids[BLOCKS], 0xbad);
	for (index = 0; index < BLOCKS; index++)
		if (mode == F7_STREAMED)
			stream_over(engine, ids[index]);
		else
			engine_block_fill(engine, 0, ids[index], 0xbad);
}

static void must_step(const char *side, int code)
{
	if (code)
		scenario_fail("%s: step: %d", side, code);
}

static uint32_t hold_ms(void)
{
	return is_slow ? REMOTE_HOLD_MS : HOLD_MS;
}

static int64_t times(void)
{
	return is_slow ? REMOTE_TIMES : 1;
}

/* Lets the other side run while this one waits. */
static void let_run(void)
{
	if (is_slow)
		(void)sched_yield();
}

static void *scribbler_main(void *argument)
{
	struct scribbler *scribbler = argument;
	uint64_t done = 0;

	while (!atomic_load_explicit(&scribbler->stop, memory_order_relaxed)) {
		/* Pairs with the release in hold_ended(). */
		const uint64_t pushed = atomic_load_explicit(
			&scribbler->pushed, memory_order_acquire);

		for (; done < pushed; done++)
			overwrite(scribbler->engine,
				  scribbler->ids[done % (POOL_BLOCKS * 2)],
				  F7_IN_POLL);
		/* Pairs with the acquire in blocks_back(). */
		atomic_store_explicit(&scribbler->done, done,
				      memory_order_release);
		let_run();
	}
	return NULL;
}

/* The poll said so: the blocks are ours again. */
static void hold_ended(struct producer *producer, uint64_t key)
{
	struct scribbler *scribbler = producer->scribbler;
	const uint32_t *ids = ids_of(producer, key);
	uint64_t pushed;

	producer->live--;
	if (producer->setup->mode != F7_THREAD) {
		overwrite(&producer->engine, ids, producer->setup->mode);
		engine_blocks_give(&producer->engine, ids,
				   ids_count(&producer->engine));
		return;
	}
	pushed = atomic_load_explicit(&scribbler->pushed, memory_order_relaxed);
	memcpy(scribbler->ids[pushed % (POOL_BLOCKS * 2)], ids,
	       IDS * sizeof(*ids));
	/* Pairs with the acquire in scribbler_main(). */
	atomic_store_explicit(&scribbler->pushed, pushed + 1,
			      memory_order_release);
}

static void blocks_back(struct producer *producer)
{
	struct scribbler *scribbler = producer->scribbler;
	/* Pairs with the release in scribbler_main(). */
	const uint64_t done =
		atomic_load_explicit(&scribbler->done, memory_order_acquire);

	for (; producer->given < done; producer->given++)
		engine_blocks_give(
			&producer->engine,
			scribbler->ids[producer->given % (POOL_BLOCKS * 2)],
			ids_count(&producer->engine));
}

static int has_gpu(const struct f7_setup *setup, enum f7_gpu side)
{
	return setup->gpu == F7_GPU_BOTH || setup->gpu == side;
}

static int engine_start(struct engine *engine, enum f7_gpu side,
			const struct scenario *scenario,
			const struct f7_setup *setup)
{
	char config[512];
	const struct engine_params params = {
		.ops = engine_library(),
		.config_json = config,
		.engine_id = side == F7_GPU_PRODUCER ? "producer" : "consumer",
		.shape = { .block_bytes = setup->block_bytes ?
						  setup->block_bytes :
						  BLOCK_BYTES,
			   .block_count = POOL_BLOCKS,
			   .layer_count = 1 + setup->states,
			   .group_count = 1 + setup->states,
			   .block_tokens = 16,
			   .has_states = setup->states },
		.tp_size = 1,
		.gpu = has_gpu(setup, side) ? f7_gpu_open(setup) : NULL,
	};

	(void)snprintf(
		config, sizeof(config),
		"{\"socket_dir\":\"%s\",\"progress\":\"caller\","
		"\"device\":\"auto\","
		"%s\"inline_bytes\":%u,"
		"\"lease_ms\":%u,\"hold_max_ms\":%u,"
		"\"deadline_ms\":%u,\"max_holds\":1024}",
		scenario->folder,
		setup->shares ?
			"\"copy_threads\":1,\"progress_copies\":\"yes\"," :
			"\"copy_threads\":0,",
		INLINE_BYTES, hold_ms(), hold_ms(), 5000 * patience());
	return params.ops ? engine_open(engine, &params) : KVPULL_ECONFIG;
}

static void request_fill(struct kvpull_request *request, uint64_t seed)
{
	*request = (struct kvpull_request){
		.struct_size = sizeof(*request),
		.prompt_tokens = BLOCKS * 16,
	};
	memcpy(request->prompt_digest, &seed, sizeof(seed));
}

static uint64_t state_seed(uint64_t seed)
{
	return seed + BLOCKS * 4096u;
}

/* Makes another hold if there is room; its ticket goes to D. */
static int hold_make(struct producer *producer, uint64_t seed)
{
	struct engine *engine = &producer->engine;
	struct arena *arena = producer->arena;
	const uint64_t key = engine->next_key;
	uint32_t *ids = ids_of(producer, key);
	const uint64_t pushed =
		atomic_load_explicit(&arena->pushed, memory_order_relaxed);
	struct ticket *ticket = &arena->tickets[pushed % TICKETS];
	const struct kvpull_blocks blocks[] = {
		{ .block_count = BLOCKS, .block_ids = ids },
		{ .first_index = BLOCKS - 1,
		  .block_count = 1,
		  .block_ids = ids + BLOCKS },
	};
	struct kvpull_request request;
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = key,
		.computed_tokens = BLOCKS * 16,
		.group_count = engine->shape.group_count,
		.groups = blocks,
		.group_bytes = sizeof(*blocks),
		.ticket = ticket->text,
		.ticket_capacity = sizeof(ticket->text),
	};
	uint32_t index;

	/* Pairs with the release in ticket_next(). */
	if (pushed - atomic_load_explicit(&arena->popped,
					  memory_order_acquire) ==
		    TICKETS ||
	    engine_blocks_take(engine, ids, ids_count(engine)))
		return 0;
	for (index = 0; index < BLOCKS; index++)
		engine_block_fill(engine, 0, ids[index], seed + index * 4096u);
	if (engine->shape.has_states)
		engine_block_fill(engine, 1, ids[BLOCKS], state_seed(seed));
	gpu_blocks_written(engine);
	request_fill(&request, seed);
	request.key = key;
	request.flags = KVPULL_REQUEST_WANTS_HOLD;
	if (engine->ops->scheduler->request_new(engine->scheduler, &request) ||
	    engine->ops->scheduler->request_finished(
		    engine->scheduler, &finish) != KVPULL_FINISH_HELD)
		scenario_fail("P: not held");
	engine->next_key++;
	producer->live++;
	ticket->bytes = (uint32_t)finish.ticket_bytes;
	ticket->seed = seed;
	ticket->taken_ns = engine_now_ns();
	/* Pairs with the acquire in ticket_next(). */
	atomic_store_explicit(&arena->pushed, pushed + 1, memory_order_release);
	return 1;
}

static void producer_turn(struct producer *producer, uint64_t *seed)
{
	struct engine_event event;
	uint32_t made;

	for (made = 0; made < 2; made++)
		if (hold_make(producer, *seed))
			*seed += 1000003;
	must_step("P", engine_step(&producer->engine));
	while (engine_event(&producer->engine, &event))
		hold_ended(producer, event.key);
	if (producer->setup->mode == F7_THREAD)
		blocks_back(producer);
}

static void producer_main(const struct scenario *scenario, struct arena *arena,
			  const struct f7_setup *setup)
{
	static struct producer producer;
	uint64_t seed = 1;
	pthread_t thread;

	producer.arena = arena;
	producer.setup = setup;
	producer.ids = calloc((size_t)KEYS * IDS, sizeof(uint32_t));
	producer.scribbler = calloc(1, sizeof(*producer.scribbler));
	if (!producer.ids || !producer.scribbler ||
	    engine_start(&producer.engine, F7_GPU_PRODUCER, scenario, setup))
		scenario_fail("P: open");
	producer.scribbler->engine = &producer.engine;
	if (setup->mode == F7_THREAD &&
	    pthread_create(&thread, NULL, scribbler_main, producer.scribbler))
		scenario_fail("P: thread");
	while (!atomic_load_explicit(&arena->producer_stop,
				     memory_order_relaxed)) {
		producer_turn(&producer, &seed);
		let_run();
	}
	atomic_store_explicit(&producer.scribbler->stop, 1,
			      memory_order_relaxed);
	if (producer.engine.double_reports)
		scenario_fail("P: double reports");
	if (setup->mode == F7_THREAD)
		(void)pthread_join(thread, NULL);
	gpu_blocks_written(&producer.engine);
	engine_close(&producer.engine);
	if (has_gpu(setup, F7_GPU_PRODUCER))
		gpu_close();
	_exit(0);
}

/* ---- D ---- */

struct consumer {
	struct engine engine;
	struct arena *arena;
	int64_t offset_ns; /* of a pull's start, from the hold's end */
	uint32_t window_tries, window_expired;
	uint64_t random;
};

static const struct ticket *ticket_next(struct arena *arena)
{
	const uint64_t popped =
		atomic_load_explicit(&arena->popped, memory_order_relaxed);

	/* Pairs with the release in hold_make(). */
	if (atomic_load_explicit(&arena->pushed, memory_order_acquire) ==
	    popped)
		return NULL;
	return &arena->tickets[popped % TICKETS];
}

static void ticket_done(struct arena *arena)
{
	const uint64_t popped =
		atomic_load_explicit(&arena->popped, memory_order_relaxed);

	/* Pairs with the acquire in hold_make(). */
	atomic_store_explicit(&arena->popped, popped + 1, memory_order_release);
}

/* When a pull is to begin, give or take. */
static uint64_t moment_ns(const struct consumer *consumer,
			  const struct ticket *ticket)
{
	return ticket->taken_ns + hold_ms() * SCENARIO_NS_PER_MS +
	       (uint64_t)consumer->offset_ns;
}

/* Until the pull's moment; steps go on meanwhile. 0: the case is over. */
static int moment_wait(struct consumer *consumer, const struct ticket *ticket)
{
	const int64_t jitter = (int64_t)(random_next(&consumer->random) %
					 (2 * JITTER_NS + 1)) -
			       JITTER_NS;
	const uint64_t at_ns =
		moment_ns(consumer, ticket) + (uint64_t)(times() * jitter);

	while (engine_now_ns() < at_ns) {
		if (atomic_load_explicit(&consumer->arena->stop,
					 memory_order_relaxed))
			return 0;
		let_run();
	}
	return 1;
}

/*
 * Holds are many. Where pulls are slow, over RDMA and under a sanitizer, most
 * tickets' moments pass.
 */
static int is_missed(const struct consumer *consumer,
		     const struct ticket *ticket)
{
	const uint64_t late_ns = is_slow ? 0 : JITTER_NS;

	return engine_now_ns() > moment_ns(consumer, ticket) + late_ns;
}

static enum f7_size size_of(const struct ticket *ticket)
{
	return ticket->seed & 1 ? F7_SMALL : F7_LARGE;
}

/* D reads the last blocks of a ticket. */
static uint32_t first_of(const struct ticket *ticket)
{
	return size_of(ticket) == F7_SMALL ? BLOCKS - SMALL_BLOCKS : 0;
}

static int pull_command(struct consumer *consumer, const struct ticket *ticket,
			uint64_t key, const uint32_t *ids)
{
	const struct kvpull_scheduler_ops *ops =
		consumer->engine.ops->scheduler;
	struct kvpull_scheduler *scheduler = consumer->engine.scheduler;
	const uint32_t first = first_of(ticket);
	const struct kvpull_blocks blocks[] = {
		{ .first_index = first,
		  .block_count = BLOCKS - first,
		  .block_ids = ids },
		{ .first_index = BLOCKS - 1,
		  .block_count = 1,
		  .block_ids = ids + BLOCKS - first },
	};
	struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = key,
		.group_count = consumer->engine.shape.group_count,
		.groups = blocks,
		.group_bytes = sizeof(*blocks),
	};
	struct kvpull_request request;

	request_fill(&request, ticket->seed);
	request.key = key;
	request.flags = KVPULL_REQUEST_PULL;
	request.ticket = ticket->text;
	request.ticket_bytes = ticket->bytes;
	if (ops->request_new(scheduler, &request) ||
	    ops->matched_tokens(scheduler, key, first * 16,
				&allocation.external_tokens) !=
		    KVPULL_MATCH_LOAD ||
	    ops->allocated(scheduler, &allocation))
		return -1;
	return 0;
}

static void outcome_count(struct consumer *consumer,
			  const struct engine_event *event,
			  const struct ticket *ticket, const uint32_t *ids)
{
	struct f7_counts *counts = &consumer->arena->counts;
	const enum f7_size size = size_of(ticket);
	const uint32_t first = first_of(ticket);
	uint32_t wrong = 0;
	uint32_t index;

	counts->tries++;
	consumer->window_tries++;
	if (event->kind == KVPULL_POLL_FAILED) {
		consumer->window_expired++;
		counts->expired += event->reason == KVPULL_EEXPIRED;
		if (event->reason != KVPULL_EEXPIRED)
			counts->failed_for = event->reason;
		counts->failed += event->reason != KVPULL_EEXPIRED;
		return;
	}
	for (index = first; index < BLOCKS; index++)
		wrong += engine_block_wrong(&consumer->engine, 0,
					    ids[index - first],
					    ticket->seed + index * 4096u) != 0;
	if (consumer->engine.shape.has_states &&
	    engine_block_wrong(&consumer->engine, 1, ids[BLOCKS - first],
			       state_seed(ticket->seed))) {
		counts->states++;
		wrong++;
	}
	counts->loaded++;
	/* A library that does not check comes too late all the same. */
	consumer->window_expired += wrong != 0;
	counts->wrong[size] += wrong != 0;
	counts->torn[size] +=
		wrong &&
		wrong < BLOCKS - first + consumer->engine.shape.has_states;
}

/* Three of four tries are to come too late; far from that, in large steps. */
static void tune(struct consumer *consumer)
{
	const uint32_t tries = consumer->window_tries;
	const uint32_t expired = consumer->window_expired;
	const int is_far = expired * 20 < tries || expired * 20 > tries * 19;
	const int64_t step_ns = times() * (is_far ? STEP_FAR_NS : STEP_NS);

	if (tries < WINDOW)
		return;
	if (expired * 4 > tries * 3)
		consumer->offset_ns -= step_ns;
	else
		consumer->offset_ns += step_ns;
	consumer->window_tries = consumer->window_expired = 0;
}

static void consumer_try(struct consumer *consumer, const struct ticket *ticket,
			 const struct f7_setup *setup)
{
	struct engine *engine = &consumer->engine;
	const uint64_t key = engine->next_key++;
	struct kvpull_finish finish = { .struct_size = sizeof(finish),
					.key = key };
	struct engine_event event = { 0 };
	const uint32_t count = ids_count(engine) - first_of(ticket);
	uint32_t ids[IDS];

	if (engine_blocks_take(engine, ids, count) ||
	    !moment_wait(consumer, ticket))
		return;
	f7_gpu_queue(setup, engine, ids, count);
	if (pull_command(consumer, ticket, key, ids))
		scenario_fail("D: the pull is not taken");
	must_step("D", f7_gpu_step(setup, engine));
	while (!engine_event(engine, &event)) {
		let_run();
		must_step("D", engine_step(engine));
	}
	if (event.key != key)
		scenario_fail("D: another request ended");
	outcome_count(consumer, &event, ticket, ids);
	consumer->arena->counts.disturbed +=
		f7_gpu_disturbed(setup, engine, count);
	(void)engine->ops->scheduler->request_finished(engine->scheduler,
						       &finish);
	engine_blocks_give(engine, ids, count);
}

static void consumer_main(const struct scenario *scenario, struct arena *arena,
			  const struct f7_setup *setup)
{
	static struct consumer consumer;

	consumer.arena = arena;
	consumer.random = (uint64_t)engine_now_ns() | 1;
	consumer.offset_ns = -times() * JITTER_NS;
	if (has_gpu(setup, F7_GPU_CONSUMER)) {
		(void)setenv("FAKE_CUDA_LATE_US", "100", 1);
		(void)setenv("FAKE_CUDA_INSIDE_US", "100", 1);
	}
	if (engine_start(&consumer.engine, F7_GPU_CONSUMER, scenario, setup))
		scenario_fail("D: open");
	while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
		const struct ticket *ticket = ticket_next(arena);

		if (ticket && is_missed(&consumer, ticket)) {
			ticket_done(arena);
		} else if (ticket) {
			consumer_try(&consumer, ticket, setup);
			ticket_done(arena);
			tune(&consumer);
		} else {
			must_step("D", engine_step(&consumer.engine));
		}
	}
	if (consumer.engine.double_reports)
		scenario_fail("D: double reports");
	gpu_blocks_written(&consumer.engine);
	engine_close(&consumer.engine);
	if (has_gpu(setup, F7_GPU_CONSUMER))
		gpu_close();
	_exit(0);
}

typedef void side_fn(const struct scenario *scenario, struct arena *arena,
		     const struct f7_setup *setup);

static pid_t child(const struct scenario *scenario, struct arena *arena,
		   const struct f7_setup *setup, side_fn *side)
{
	const pid_t pid = fork();

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	side(scenario, arena, setup);
	abort();
}

static int is_torn(const struct arena *arena, const struct f7_setup *setup)
{
	const uint64_t *torn = arena->counts.torn;

	return setup->until_torn && torn[F7_LARGE] >= setup->until_torn &&
	       torn[F7_SMALL] >= setup->until_torn;
}

void f7_run(const struct scenario *scenario, const struct f7_setup *setup,
	    struct f7_counts *counts)
{
	struct arena *arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int statuses[2] = { -1, -1 };
	pid_t pids[2];
	const uint64_t until = engine_now_ns() + setup->limit_ns;

	is_slow = scenario_is_remote() || setup->gpu != F7_GPU_NONE;
	scenario_check(arena != MAP_FAILED, "out of memory");
	pids[0] = child(scenario, arena, setup, producer_main);
	pids[1] = child(scenario, arena, setup, consumer_main);
	while ((arena->counts.tries < setup->tries ||
		arena->counts.expired < setup->expired ||
		arena->counts.loaded < setup->loaded) &&
	       engine_now_ns() < until && !is_torn(arena, setup)) {
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
		scenario_check(waitpid(pids[0], NULL, WNOHANG) == 0 &&
				       waitpid(pids[1], NULL, WNOHANG) == 0,
			       "an engine ended");
	}
	atomic_store_explicit(&arena->stop, 1, memory_order_relaxed);
	(void)waitpid(pids[1], &statuses[1], 0);
	/* D's last pull ends before: P's end in it would be its error. */
	atomic_store_explicit(&arena->producer_stop, 1, memory_order_relaxed);
	(void)waitpid(pids[0], &statuses[0], 0);
	scenario_check(!statuses[0] && !statuses[1],
		       "engines ended with status 0x%x, 0x%x",
		       (unsigned)statuses[0], (unsigned)statuses[1]);
	*counts = arena->counts;
	(void)munmap(arena, sizeof(*arena));
}
