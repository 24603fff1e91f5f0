// SPDX-License-Identifier: Apache-2.0
/*
 * The producer's engine thread with 65,536 holds: what a release, a heartbeat
 * and a poll cost. A real worker on the real route, whose consumers are rings
 * that this thread fills itself, and whose clock can be moved on: so nothing is
 * timed but the poll.
 *
 * Holds are released in random order, by claims and releases that were pushed
 * before the poll; a poll takes what a ring holds (4,096 records) and reports
 * up to 256 ends, so several polls make a batch. Time is of all of them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "plugin/progress/progress_state.h"
#include "plugin/worker/worker.h"
#include "tests/bench/bench.h"
#include "tests/lib/host.h"

#define HOLDS 65536u
#define RING_RECORDS 4096u
#define RINGS_MAX 64u
#define RECORDS 1024u
#define IDLE_BATCH 400u
#define IDLE_POLLS (50 * IDLE_BATCH)
#define BEATS 200u
#define LEASE_MS 30000u
#define CACHE_BYTES (64u << 20)

struct core {
	struct kvpull_worker *worker;
	struct kvpull_config config;
	uint64_t offset_ns; /* of the worker's clock */
	uint64_t generation;
	uint64_t key;
	uint32_t ring_count;
	uint8_t *ring_memory[RINGS_MAX];
	struct kvpull_ring rings[RINGS_MAX];
	struct kvpull_ring_writer writers[RINGS_MAX];
	uint32_t order[HOLDS];
	uint8_t *cache; /* to walk through, so that all else is cold */
};

static double clock_cost_ns; /* of one reading, to subtract */

static uint64_t core_now(void *context)
{
	const struct core *core = context;

	return kvpull_clock_ns() + core->offset_ns;
}

static void clock_measure(void)
{
	const uint64_t start_ns = kvpull_clock_ns();
	uint32_t at;

	for (at = 0; at < IDLE_POLLS; at++)
		(void)kvpull_clock_ns();
	clock_cost_ns = (double)(kvpull_clock_ns() - start_ns) / IDLE_POLLS;
}

/* A block a hold would do: nobody reads the blocks here. */
static int region_register(struct kvpull_worker *worker)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_cache cache = {
		.struct_size = sizeof(cache),
		.layer_count = 1,
		.layer_stride = 4096,
		.block_stride = 4096,
		.head_stride = 4096,
		.block_count = 1,
		.row_count = 1,
		.head_count = 1,
		.head_bytes = 4096,
	};
	struct kvpull_region region = {
		.struct_size = sizeof(region),
		.kind = KVPULL_REGION_PROVIDED,
		.fd = -1,
		.bytes = 4096,
	};
	const struct kvpull_regions regions = host_regions(&region, &cache);
	int code = kvpull_worker_memory_alloc(worker, 4096, 0, &memory);

	region.base = memory.base;
	return code ? code :
		      kvpull_worker_regions_register(worker, &regions, NULL);
}

static int worker_open(struct core *core, const struct bench *bench,
		       const char *progress, uint32_t max_holds)
{
	const struct kvpull_group group = { .block_tokens = 1 };
	const struct kvpull_model model = { .struct_size = sizeof(model),
					    .model = "bench",
					    .dtype = "u8",
					    .layout = "LBHNC",
					    .layer_count = 1,
					    .head_count = 1,
					    .head_bytes = 4096 };
	const struct kvpull_open_params params = {
		.struct_size = sizeof(params),
		.model = &model,
		.engine_id = "bench-core",
		.tp_size = 1,
		.groups = &group,
		.group_count = 1,
	};
	const struct kvpull_worker_setup setup = {
		.params = &params,
		.config = &core->config,
		.now_ns = core_now,
		.now_context = core,
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	char json[256];
	int code;

	(void)snprintf(
		json, sizeof(json),
		"{\"socket_dir\":\"%s\",\"progress\":\"%s\",\"max_holds\":%u,\"copy_threads\":0,\"lease_ms\":%u}",
		bench->dir, progress, max_holds, LEASE_MS);
	code = kvpull_config_load(&core->config, json, &detail);
	if (!code)
		code = kvpull_worker_create(&setup, &core->worker, &detail);
	if (!code)
		code = region_register(core->worker);
	if (code)
		fprintf(stderr, "bench: core: %s (%d)\n", detail.message, code);
	return code;
}

static int poll_all(struct core *core, struct kvpull_poll_record *records)
{
	const int count = kvpull_worker_poll(core->worker, records, RECORDS,
					     sizeof(*records));

	/* As if the scheduler half had acknowledged them. */
	core->worker->results.first = core->worker->results.next;
	return count;
}

static void polls(struct core *core, uint32_t count)
{
	struct kvpull_poll_record records[RECORDS];

	while (count--)
		(void)poll_all(core, records);
}

/* Adds a consumer: a ring that we write to. */
static int ring_add(struct core *core)
{
	const size_t bytes = kvpull_ring_bytes(RING_RECORDS);
	const uint32_t index = core->ring_count;
	struct kvpull_consumer *consumer =
		&core->worker->handover.consumers[index];
	int code;

	core->ring_memory[index] = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (core->ring_memory[index] == MAP_FAILED)
		return KVPULL_ENOMEM;
	code = kvpull_ring_init(&core->rings[index], core->ring_memory[index],
				RING_RECORDS);
	if (!code)
		code = kvpull_ring_writer_init(&core->writers[index],
					       core->ring_memory[index], bytes);
	if (code)
		return code;
	core->worker->progress->callers.all[index] = (struct kvpull_caller){
		.state = KVPULL_CALLER_IN,
		.handle = index,
		.route = &core->worker->progress->routes.list[0],
	};
	consumer->instance_id = index + 1;
	consumer->rank = 0;
	consumer->rank_count = 1;
	consumer->ring = &core->rings[index];
	core->ring_count++;
	kvpull_progress_tell(core->worker->progress, KVPULL_FROM_CONSUMER_UP,
			     index);
	polls(core, 1);
	return core->worker->crowd.notes[index].joined ? 0 : KVPULL_EFULL;
}

static int rings_add(struct core *core, uint32_t count)
{
	int code = 0;

	while (!code && core->ring_count < count)
		code = ring_add(core);
	return code;
}

static void core_close(struct core *core)
{
	uint32_t index;

	if (core->worker)
		kvpull_worker_destroy(core->worker);
	for (index = 0; index < core->ring_count; index++)
		(void)munmap(core->ring_memory[index],
			     kvpull_ring_bytes(RING_RECORDS));
	free(core->cache);
	free(core);
}

static struct core *core_open(const struct bench *bench, const char *progress)
{
	struct core *core = calloc(1, sizeof(*core));
	uint32_t at;

	if (!core)
		return NULL;
	core->key = 1;
	core->cache = malloc(CACHE_BYTES);
	for (at = 0; at < HOLDS; at++)
		core->order[at] = at;
	if (!core->cache || worker_open(core, bench, progress, HOLDS)) {
		core_close(core);
		return NULL;
	}
	return core;
}

static void shuffle(struct core *core)
{
	uint32_t at;

	for (at = HOLDS; at > 1; at--) {
		const uint32_t other = bench_random() % at;
		const uint32_t held = core->order[other];

		core->order[other] = core->order[at - 1];
		core->order[at - 1] = held;
	}
}

/* All slots, under the next generation. */
static int holds_take(struct core *core)
{
	uint32_t slot;
	int code = 0;

	core->generation++;
	kvpull_holds_stamp(core->worker->holds, core_now(core),
			   KVPULL_NO_THREAD);
	for (slot = 0; !code && slot < HOLDS; slot++)
		code = kvpull_holds_take(core->worker->holds, slot,
					 core->generation, core->key++);
	return code;
}

static int push(struct core *core, uint32_t kind, uint32_t slot)
{
	const struct kvpull_record record = {
		.kind = kind,
		.slot = slot,
		.generation = core->generation,
		.tag = kvpull_ticket_tag(core->worker->secret, slot,
					 core->generation),
	};

	return kvpull_ring_push(&core->writers[0], &record) < 0;
}

/* Push a ring full of records of this kind; 0 or an error. */
static int batch_push(struct core *core, uint32_t kind, uint32_t first)
{
	uint32_t at;
	int failed = 0;

	for (at = 0; at < RING_RECORDS; at++)
		failed |= push(core, kind, core->order[first + at]);
	return failed;
}

/* Poll until the hold table reported `ends` ends; ns of all polls. */
static double ends_poll(struct core *core, uint32_t ends)
{
	struct kvpull_poll_record records[RECORDS];
	const uint64_t start_ns = kvpull_clock_ns();
	int count;

	do {
		count = poll_all(core, records);
		ends -= count > 0 ? (uint32_t)count : 0;
	} while (ends && count >= 0);
	return (double)(kvpull_clock_ns() - start_ns);
}

static void cache_walk(const struct core *core)
{
	memset(core->cache, (int)core->generation, CACHE_BYTES);
}

/* Runs all holds through one life; cold: everything was out of the caches. */
static int releases(struct core *core, struct samples *claim_ns,
		    struct samples *release_ns, uint32_t is_cold)
{
	uint32_t first;
	int code = holds_take(core);

	shuffle(core);
	for (first = 0; !code && first < HOLDS; first += RING_RECORDS) {
		uint64_t start_ns;

		code = batch_push(core, KVPULL_NOTE_CLAIM, first);
		start_ns = kvpull_clock_ns();
		polls(core, 1);
		samples_add(claim_ns, (double)(kvpull_clock_ns() - start_ns) /
					      RING_RECORDS);
	}
	shuffle(core);
	for (first = 0; !code && first < HOLDS; first += RING_RECORDS) {
		if (is_cold)
			cache_walk(core);
		code = batch_push(core, KVPULL_NOTE_RELEASE, first);
		samples_add(release_ns,
			    ends_poll(core, RING_RECORDS) / RING_RECORDS);
	}
	return code;
}

static void release_run(const struct bench *bench)
{
	struct core *core = core_open(bench, "thread");
	struct samples *took_ns = calloc(3, sizeof(*took_ns));
	uint32_t number;
	int code = core && took_ns ? rings_add(core, 1) : KVPULL_ENOMEM;

	for (number = 0; !code && number <= bench->repetitions; number++) {
		code = releases(core, &took_ns[0], &took_ns[1], 0);
		if (!code && number < 2)
			code = releases(core, &took_ns[0], &took_ns[2], 1);
		if (!number) /* first touches */
			took_ns[0].count = took_ns[1].count = 0;
	}
	if (!code) {
		results_put(bench->results, samples_at(&took_ns[0], 0.5),
			    "core.claim_median_ns");
		results_put(bench->results, samples_at(&took_ns[1], 0.5),
			    "core.release_median_ns");
		results_put(bench->results, samples_at(&took_ns[1], 0),
			    "core.release_min_ns");
		results_put(bench->results, samples_at(&took_ns[2], 0.5),
			    "core.release_out_of_cache_median_ns");
	}
	free(took_ns);
	if (core)
		core_close(core);
}

/* ns a poll, in the median over tens of batches. */
static double idle_ns(struct core *core)
{
	struct samples *took_ns = calloc(1, sizeof(*took_ns));
	double median_ns = (double)NAN;
	uint32_t batch;

	for (batch = 0; took_ns && batch < 50; batch++) {
		const uint64_t start_ns = kvpull_clock_ns();

		polls(core, IDLE_BATCH);
		samples_add(took_ns, (double)(kvpull_clock_ns() - start_ns) /
					     (double)IDLE_BATCH);
	}
	if (took_ns)
		median_ns = samples_at(took_ns, 0.5);
	free(took_ns);
	return median_ns;
}

/* All rings beat, then one poll; what that is above an idle one, a ring. */
static double beat_ns(struct core *core, double idle)
{
	struct samples *took_ns = calloc(1, sizeof(*took_ns));
	double median_ns = (double)NAN;
	uint32_t round;
	uint32_t index;

	for (round = 0; took_ns && round < BEATS; round++) {
		uint64_t start_ns;

		for (index = 0; index < core->ring_count; index++)
			kvpull_ring_beat(&core->writers[index]);
		start_ns = kvpull_clock_ns();
		polls(core, 1);
		samples_add(took_ns, (double)(kvpull_clock_ns() - start_ns) -
					     clock_cost_ns);
	}
	if (took_ns)
		median_ns =
			(samples_at(took_ns, 0.5) - idle) / core->ring_count;
	free(took_ns);
	return median_ns;
}

static double idle_run(const struct bench *bench, const char *progress)
{
	static const uint32_t counts[] = { 0, 8, 64 };
	struct core *core = core_open(bench, progress);
	double worst_ns = 0;
	uint32_t index;
	int code = core ? 0 : KVPULL_ENOMEM;

	if (!code)
		results_put(bench->results, idle_ns(core),
			    "core.idle_poll.%s_0_holds_0_rings_ns", progress);
	if (!code)
		code = holds_take(core);
	for (index = 0; !code && index < 3; index++) {
		double idle;

		code = rings_add(core, counts[index]);
		if (code)
			break;
		polls(core, 1000);
		idle = idle_ns(core);
		results_put(bench->results, idle,
			    "core.idle_poll.%s_65536_holds_%u_rings_ns",
			    progress, counts[index]);
		if (counts[index] <= 8)
			worst_ns = fmax(worst_ns, idle);
		if (counts[index] == 64)
			results_put(bench->results, beat_ns(core, idle),
				    "core.heartbeat_%s_median_ns", progress);
	}
	if (core)
		core_close(core);
	return code ? (double)NAN : worst_ns;
}

/*
 * Let the clock go on to after the lease's end, poll by poll, since a producer
 * that stood still would move the leases; rings may beat until then. Then the
 * polls until nothing is due, in CPU time of this thread: what else runs on its
 * core is not the poll's.
 */
static void busy_us(struct core *core, uint32_t beats, struct samples *took_us)
{
	struct kvpull_poll_record records[RECORDS];
	uint32_t step;
	uint32_t left;

	for (step = 0; step < 6; step++) {
		if (beats)
			kvpull_ring_beat(&core->writers[0]);
		core->offset_ns += LEASE_MS / 6 * KVPULL_NS_PER_MS;
		if (step < 5)
			polls(core, 1);
	}
	for (left = 2 * HOLDS / KVPULL_EXPIRE_MAX; left; left--) {
		const uint64_t start_ns = kvpull_clock_thread_ns();

		(void)poll_all(core, records);
		samples_add(took_us,
			    (double)(kvpull_clock_thread_ns() - start_ns) /
				    1e3);
	}
}

static void busy_run(const struct bench *bench)
{
	struct core *core = core_open(bench, "thread");
	struct samples *took_us = calloc(1, sizeof(*took_us));
	uint32_t number;
	int code = core && took_us ? rings_add(core, 1) : KVPULL_ENOMEM;

	for (number = 0; !code && number < bench->repetitions; number++) {
		uint32_t first;

		code = holds_take(core);
		shuffle(core);
		for (first = 0; !code && first < HOLDS; first += RING_RECORDS) {
			code = batch_push(core, KVPULL_NOTE_CLAIM, first);
			polls(core, 1);
		}
		if (code)
			break;
		busy_us(core, 1, took_us);
		busy_us(core, 0, took_us);
	}
	if (!code) {
		results_put(bench->results, samples_at(took_us, 0.5),
			    "core.busy_poll_median_us");
		results_put(bench->results, samples_at(took_us, 0.999),
			    "core.busy_poll_p999_us");
	}
	free(took_us);
	if (core)
		core_close(core);
}

static double arena_of(const struct bench *bench, uint32_t max_holds)
{
	struct core *core = calloc(1, sizeof(*core));
	double bytes = (double)NAN;

	if (core && !worker_open(core, bench, "thread", max_holds))
		bytes = (double)core->worker->counts.arena_bytes;
	if (core)
		core_close(core);
	return bytes;
}

static double table_of(uint32_t max_holds)
{
	struct kvpull_revocation_entry *entries =
		calloc(max_holds, sizeof(*entries));
	const struct kvpull_hold_params params = { .hold_count_max = max_holds,
						   .instance_count_max = 1,
						   .entries = entries };
	struct kvpull_arena arena;
	double bytes = (double)NAN;

	kvpull_arena_init(&arena, NULL);
	if (entries && kvpull_holds_open(&params, &arena))
		bytes = (double)arena.used;
	kvpull_arena_fini(&arena);
	free(entries);
	return bytes;
}

static void memory_run(const struct bench *bench)
{
	const double worker_bytes =
		(arena_of(bench, 2 * HOLDS) - arena_of(bench, HOLDS)) / HOLDS;

	results_put(bench->results,
		    (table_of(2 * HOLDS) - table_of(HOLDS)) / HOLDS,
		    "core.hold_table_bytes_per_hold");
	/* The revocation entries are shared, outside of the arena. */
	results_put(bench->results,
		    worker_bytes +
			    (double)sizeof(struct kvpull_revocation_entry),
		    "core.worker_bytes_per_hold");
}

static double resident_mib(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	char line[256];
	double kib = (double)NAN;

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "Rss:", 4))
			kib = strtod(line + 4, NULL);
	if (file)
		(void)fclose(file);
	return kib / 1024;
}

/* A worker as engines open it: how long, and what it touches. */
static void open_run(const struct bench *bench)
{
	struct core *core = calloc(1, sizeof(*core));
	const double before_mib = resident_mib();
	const uint64_t start_ns = kvpull_clock_ns();

	if (core && !worker_open(core, bench, "thread", 65536)) {
		results_put(bench->results,
			    (double)(kvpull_clock_ns() - start_ns) / 1e6,
			    "bars.samenode.open_ms");
		results_put(bench->results, resident_mib() - before_mib,
			    "bars.samenode.open_mib");
	}
	if (core)
		core_close(core);
}

static void bar(struct results *results, const char *from, const char *name)
{
	results_put(results, results_get(results, from), "bars.core.%s", name);
}

void bench_core(const struct bench *bench)
{
	struct results *results = bench->results;
	double idle;

	clock_measure();
	results_put(results, clock_cost_ns, "core.clock_ns");
	open_run(bench);
	release_run(bench);
	idle = fmax(idle_run(bench, "caller"), idle_run(bench, "thread"));
	busy_run(bench);
	memory_run(bench);
	bar(results, "core.release_median_ns", "release_ns");
	bar(results, "core.heartbeat_thread_median_ns", "heartbeat_ns");
	results_put(results, idle, "bars.core.idle_poll_ns");
	bar(results, "core.idle_poll.thread_65536_holds_64_rings_ns",
	    "idle_poll_ns.64_rings");
	bar(results, "core.busy_poll_p999_us", "busy_poll_us_p999");
	bar(results, "core.worker_bytes_per_hold", "bytes_per_hold");
}
