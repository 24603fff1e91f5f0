// SPDX-License-Identifier: Apache-2.0
/*
 * Pulls of seven shapes beside plain copies of the same memory: ways are taken
 * in turns within a repetition, each with new scattered ids, so a ratio
 * compares what ran side by side. The producer polls where one core is left for
 * it, and sleeps in the other ways, and beside plain copies. Whoever makes
 * progress copies: with progress=caller the consumer's one thread polls and
 * copies, as an engine's does; with progress=thread it polls meanwhile, which
 * copies too where blocks are short, or sleeps. The second thread is a copy
 * worker.
 *
 * All ways meet the same: memory that no cache holds, a mapping of the producer's
 * memory that no other way reads, and plain copies run on the poster's thread and
 * on one that was woken for them, in turns, as pulls do.
 *
 * Two plain threads, half of the blocks each and both awake, say what a second
 * one is worth on this machine at this time: virtual machines differ there. A
 * woken thread says what the hand-overs of a thread that copies cost there,
 * whoever makes them.
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/pause.h"
#include "shm/copy.h"
#include "shm/segment.h"
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"
#include "tests/bench/node.h"
#include "tests/bench/woken.h"

#define REGION_BYTES (UINT64_C(512) << 20)
#define COUNT_MAX 8192u
#define BLOCKS_MAX (REGION_BYTES / 512)
#define BATCH_SPANS 64u
#define ROUTINES_MAX 24u
#define PULLS 5u
#define GLIBC (ROUTINES_MAX + PULLS)
#define TWO_THREADS (GLIBC + 1)
#define WOKEN (TWO_THREADS + 1)
#define WAYS_MAX (WOKEN + 1)

struct shape {
	char name;
	uint32_t block_count;
	uint32_t block_bytes;
};

static const struct shape shapes[] = {
	{ 'A', 2048, 4096 },   { 'B', 1024, 32768 }, { 'C', 512, 262144 },
	{ 'D', 128, 1048576 }, { 'E', 8192, 16384 }, { 'F', 8192, 512 },
	{ 'G', 8192, 1024 }
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

enum engine_waits {
	ENGINE_COPIES = 0,
	ENGINE_POLLS,
	ENGINE_SLEEPS
};

struct pull_way {
	const char *name;
	const char *config;
	const char *bar; /* before limit_ratio in the names of its bars */
	uint32_t threads;
	enum engine_waits waits;
	uint32_t producer_sleeps; /* no core is left for it to poll on */
};

static const struct pull_way pull_ways[PULLS] = {
	{ "caller_1t", ",\"progress\":\"caller\",\"copy_threads\":0", "caller.",
	  1, ENGINE_COPIES, 0 },
	{ "caller_2t",
	  ",\"progress\":\"caller\",\"copy_threads\":1,\"progress_copies\":\"yes\"",
	  "caller.", 2, ENGINE_COPIES, 1 },
	/* As vLLM's does for as long as a request waits. */
	{ "thread_1t", ",\"progress\":\"thread\",\"copy_threads\":0", "", 1,
	  ENGINE_POLLS, 1 },
	{ "asleep_1t", ",\"progress\":\"thread\",\"copy_threads\":0", "asleep.",
	  1, ENGINE_SLEEPS, 1 },
	{ "thread_2t", ",\"progress\":\"thread\",\"copy_threads\":1", "", 2,
	  ENGINE_SLEEPS, 1 },
};

struct field {
	const struct bench *bench;
	const struct shape *shape;
	struct producer producer;
	struct halves pullers[PULLS];
	struct woken woken;
	uint32_t woken_way;   /* of the next copy; ordered by its wake_fd */
	double woken_copy_ms; /* of the last one; ordered by its done_fd */
	struct ticket ticket;
	/* The producer's memory, as each way maps it for itself. */
	uint8_t *from[WAYS_MAX];
	uint8_t *to;    /* the pullers' */
	uint32_t total; /* blocks of the region */
	struct samples took_ms[WAYS_MAX];
	struct samples half_ms[2][WAYS_MAX]; /* of plain copies, see limit_ms */
	struct samples post_us[PULLS];
	struct samples build_us[PULLS];
	struct samples admit_us[PULLS];
	double cpu_s[PULLS];
	double pulled_bytes[PULLS];
	uint64_t wrong_bytes;
	uint32_t all[BLOCKS_MAX];
	uint32_t ids[2][NODE_BLOCKS_MAX];
	struct kvpull_span spans[COUNT_MAX];
};

static void scatter(struct field *field, uint32_t *ids)
{
	uint32_t at;

	for (at = 0; at < field->total; at++)
		field->all[at] = at;
	for (at = 0; at < field->shape->block_count; at++) {
		const uint32_t left = field->total - at;
		const uint32_t other = at + (left ? bench_random() % left : 0);

		ids[at] = field->all[other];
		field->all[other] = field->all[at];
	}
}

static void prepare(struct field *field, uint32_t way)
{
	const size_t bytes = field->shape->block_bytes;
	uint32_t at;

	scatter(field, field->ids[0]);
	scatter(field, field->ids[1]);
	for (at = 0; at < field->shape->block_count; at++) {
		field->spans[at].from =
			field->from[way] + field->ids[0][at] * bytes;
		field->spans[at].to = field->to + field->ids[1][at] * bytes;
		bench_evict(field->spans[at].from, bytes);
		bench_evict(field->spans[at].to, bytes);
	}
	bench_evict_end();
}

static void verify(struct field *field)
{
	uint32_t at;

	for (at = 0; at < field->shape->block_count; at++)
		if (memcmp(field->spans[at].from, field->spans[at].to,
			   field->shape->block_bytes))
			field->wrong_bytes += field->shape->block_bytes;
}

static void spans_copy(const struct field *field, uint32_t way, uint32_t first,
		       uint32_t end)
{
	const uint32_t bytes = field->shape->block_bytes;
	const struct kvpull_span *spans = field->spans;
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);
	uint32_t at;

	if (way == GLIBC)
		for (at = first; at < end; at++)
			memcpy(spans[at].to, spans[at].from, bytes);
	else
		for (at = first; at < end; at += BATCH_SPANS)
			all[way].copy(spans + at, BATCH_SPANS, bytes);
}

static double copy_ms(const struct field *field, uint32_t way)
{
	const uint64_t start_ns = kvpull_clock_ns();

	spans_copy(field, way, 0, field->shape->block_count);
	return (double)(kvpull_clock_ns() - start_ns) / 1e6;
}

static int is_way(uint32_t way)
{
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);

	if (way >= ROUTINES_MAX)
		return 1;
	return way < count && kvpull_copy_usable(&all[way]);
}

/* The fastest plain copy by these samples. */
static uint32_t best_way(struct samples *took_ms)
{
	uint32_t best = GLIBC;
	uint32_t way;

	for (way = 0; way < ROUTINES_MAX; way++)
		if (is_way(way) && took_ms[way].count &&
		    (!took_ms[best].count ||
		     samples_at(&took_ms[way], 0.5) <
			     samples_at(&took_ms[best], 0.5)))
			best = way;
	return best;
}

/*
 * Time of the fastest plain copy. The least of many noisy medians is less than
 * any of the true ones. So half of the samples choose the fastest copy and the
 * other half give its time, and the other way round.
 */
static double limit_ms(struct field *field)
{
	double sum_ms = 0;
	uint32_t half;

	for (half = 0; half < 2; half++)
		sum_ms += samples_at(
			&field->half_ms[half][best_way(field->half_ms[!half])],
			0.5);
	return sum_ms / 2;
}

enum half_state {
	HALF_STARTS = 0,
	HALF_READY,
	HALF_GOES,
	HALF_DONE
};

struct half {
	const struct field *field;
	uint32_t way;
	_Atomic uint32_t state;
};

static void half_wait(struct half *half, enum half_state state)
{
	while (atomic_load_explicit(&half->state, memory_order_acquire) !=
	       state)
		kvpull_pause();
}

static void *half_main(void *argument)
{
	struct half *half = argument;
	const uint32_t count = half->field->shape->block_count;

	atomic_store_explicit(&half->state, HALF_READY, memory_order_release);
	half_wait(half, HALF_GOES);
	spans_copy(half->field, half->way, count / 2, count);
	atomic_store_explicit(&half->state, HALF_DONE, memory_order_release);
	return NULL;
}

/* NAN: no thread. */
static double two_threads_ms(struct field *field)
{
	struct half half = { .field = field, .way = best_way(field->took_ms) };
	uint64_t start_ns;
	pthread_t thread;

	if (pthread_create(&thread, NULL, half_main, &half))
		return NAN;
	half_wait(&half, HALF_READY);
	start_ns = kvpull_clock_ns();
	atomic_store_explicit(&half.state, HALF_GOES, memory_order_release);
	spans_copy(field, half.way, 0, field->shape->block_count / 2);
	half_wait(&half, HALF_DONE);
	start_ns = kvpull_clock_ns() - start_ns;
	(void)pthread_join(thread, NULL);
	return (double)start_ns / 1e6;
}

/* On the woken thread. */
static void woken_copy(void *context)
{
	struct field *field = context;

	field->woken_copy_ms = copy_ms(field, field->woken_way);
}

static int woken_time(struct field *field, uint32_t way, double *took_ms)
{
	uint64_t took_ns;
	int code;

	field->woken_way = way;
	code = woken_run(&field->woken, &took_ns);
	if (!code)
		*took_ms = (double)took_ns / 1e6;
	return code;
}

/*
 * The copy alone, awake. On either thread, and never twice in a row on one: they
 * may run on cores that share no cache, and a core that has just copied knows
 * where the memory is (the host's page tables), which a woken one does not.
 */
static int plain_time(struct field *field, uint32_t way, uint32_t number)
{
	double took_ms;
	int code = 0;

	if ((way + number) % 2 == 0) {
		took_ms = copy_ms(field, way);
	} else {
		code = woken_time(field, way, &took_ms);
		took_ms = field->woken_copy_ms;
	}
	if (code)
		return code;
	samples_add(&field->took_ms[way], took_ms);
	samples_add(&field->half_ms[number / 2 % 2][way], took_ms);
	return 0;
}

static double timeval_s(const struct timeval *value)
{
	return (double)value->tv_sec + (double)value->tv_usec / 1e6;
}

static double cpu_now_s(void)
{
	struct rusage used = { 0 };

	(void)getrusage(RUSAGE_SELF, &used);
	return timeval_s(&used.ru_utime) + timeval_s(&used.ru_stime);
}

static int pull_run(struct field *field, uint32_t index)
{
	const struct shape *shape = field->shape;
	struct pull_times times;
	uint64_t ended_ns;
	double cpu_s;
	int code = 0;

	if (!pull_ways[index].producer_sleeps)
		code = producer_mode(&field->producer, MAIL_PACE);
	if (!code)
		code = producer_hold(&field->producer, field->ids[0],
				     shape->block_count, &field->ticket);
	if (code)
		return code;
	cpu_s = cpu_now_s();
	code = consumer_pull(&field->pullers[index], &field->ticket,
			     field->ids[1], &times);
	if (code)
		return code;
	field->cpu_s[index] += cpu_now_s() - cpu_s;
	field->pulled_bytes[index] +=
		(double)shape->block_count * shape->block_bytes;
	code = producer_wait_sent(&field->producer);
	if (code)
		return code;
	/* Both ends: D may go on, and P has the blocks again. */
	ended_ns = atomic_load_explicit(&field->producer.mail->sent_ns,
					memory_order_relaxed);
	if (ended_ns < times.loaded_ns)
		ended_ns = times.loaded_ns;
	samples_add(&field->took_ms[ROUTINES_MAX + index],
		    (double)(ended_ns - times.begin_ns) / 1e6);
	samples_add(&field->admit_us[index], (double)times.admit_ns / 1e3);
	samples_add(&field->build_us[index],
		    (double)(times.built_ns - times.begin_ns) / 1e3);
	samples_add(&field->post_us[index],
		    (double)(times.posted_ns - times.built_ns) / 1e3);
	if (!pull_ways[index].producer_sleeps)
		code = producer_mode(&field->producer, MAIL_SLEEP);
	return code;
}

static int way_time(struct field *field, uint32_t way, uint32_t number)
{
	double took_ms;
	int code;

	if (way >= ROUTINES_MAX && way < GLIBC)
		return pull_run(field, way - ROUTINES_MAX);
	if (way < TWO_THREADS)
		return plain_time(field, way, number);
	if (way == TWO_THREADS) {
		samples_add(&field->took_ms[way], two_threads_ms(field));
		return 0;
	}
	code = woken_time(field, best_way(field->took_ms), &took_ms);
	if (!code)
		samples_add(&field->took_ms[way], took_ms);
	return code;
}

/* Each repetition begins with another way: none is always the first. */
static int repetition(struct field *field, uint32_t number)
{
	uint32_t step;

	for (step = 0; step < WAYS_MAX; step++) {
		const uint32_t way = (step + number * 7) % WAYS_MAX;
		int code;

		if (!is_way(way))
			continue;
		prepare(field, way);
		code = way_time(field, way, number);
		if (code)
			return code;
		if (!number)
			verify(field);
	}
	return 0;
}

/* Touch every page of both regions through the puller's own mapping. */
static int warm_up(struct field *field, uint32_t index)
{
	struct pull_times times;
	uint32_t first;
	uint32_t at;
	int code = 0;

	for (first = 0; !code && first < field->total;
	     first += NODE_BLOCKS_MAX) {
		uint32_t count = field->total - first;

		count = count < NODE_BLOCKS_MAX ? count : NODE_BLOCKS_MAX;
		for (at = 0; at < count; at++)
			field->ids[0][at] = first + at;
		code = producer_hold(&field->producer, field->ids[0], count,
				     &field->ticket);
		if (!code)
			code = consumer_pull(&field->pullers[index],
					     &field->ticket, field->ids[0],
					     &times);
		if (!code)
			code = producer_wait_sent(&field->producer);
	}
	return code;
}

static int field_open(struct field *field)
{
	struct node_params params = { .dir = field->bench->dir,
				      .block_bytes =
					      field->shape->block_bytes };
	uint32_t index;
	int code;

	field->total = (uint32_t)(REGION_BYTES / params.block_bytes);
	params.block_count = field->total;
	code = ticket_open(&field->ticket);
	if (!code)
		code = producer_open(&field->producer, &params);
	if (!code)
		code = producer_mode(&field->producer, MAIL_SLEEP);
	for (index = 0; !code && index < PULLS; index++) {
		params.more = pull_ways[index].config;
		code = halves_open(&field->pullers[index], &params);
		if (code)
			break;
		params.memory = field->pullers[0].memory;
		field->pullers[index].paces =
			pull_ways[index].waits == ENGINE_POLLS;
		if (pull_ways[index].waits == ENGINE_SLEEPS)
			halves_sleep(&field->pullers[index]);
		code = warm_up(field, index);
	}
	if (code)
		return code;
	field->to = field->pullers[0].memory;
	for (index = 0; index < WAYS_MAX; index++) {
		if (!is_way(index))
			continue;
		field->from[index] = producer_map(&field->producer);
		if (!field->from[index])
			return KVPULL_ENOMEM;
		(void)madvise(field->from[index], REGION_BYTES,
			      MADV_POPULATE_READ);
	}
	return woken_open(&field->woken, &field->producer, woken_copy, field);
}

static void field_close(struct field *field)
{
	uint32_t index;

	woken_close(&field->woken);
	for (index = 0; index < WAYS_MAX; index++)
		if (field->from[index])
			kvpull_segment_unmap(field->from[index], REGION_BYTES);
	/* The first owns the others' memory. */
	for (index = PULLS; index > 0; index--)
		halves_close(&field->pullers[index - 1]);
	producer_close(&field->producer);
	ticket_close(&field->ticket);
}

/* The best routine on one thread; its name. */
static const char *routines_results(struct field *field)
{
	const uint32_t best = best_way(field->took_ms);
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);
	uint32_t way;

	for (way = 0; way < count; way++)
		if (is_way(way))
			results_put(field->bench->results,
				    samples_at(&field->took_ms[way], 0.5),
				    "shapes.%c.routines_median_ms.%s",
				    field->shape->name, all[way].name);
	return best == GLIBC ? "glibc_memcpy" : all[best].name;
}

static void pull_results(struct field *field, uint32_t index, double limit)
{
	struct results *results = field->bench->results;
	struct samples *took_ms = &field->took_ms[ROUTINES_MAX + index];
	const char shape = field->shape->name;
	const char *way = pull_ways[index].name;
	const double median_ms = samples_at(took_ms, 0.5);

	results_put(results, median_ms, "shapes.%c.kvpull.%s.median_ms", shape,
		    way);
	results_put(results, samples_at(took_ms, 0),
		    "shapes.%c.kvpull.%s.min_ms", shape, way);
	results_put(results, samples_at(took_ms, 1),
		    "shapes.%c.kvpull.%s.max_ms", shape, way);
	results_put(results, median_ms / limit,
		    "shapes.%c.kvpull.%s.limit_ratio", shape, way);
	results_put(results,
		    median_ms / samples_at(&field->took_ms[GLIBC], 0.5),
		    "shapes.%c.kvpull.%s.memcpy_ratio", shape, way);
	results_put(results, samples_at(&field->post_us[index], 0.5),
		    "shapes.%c.kvpull.%s.post_median_us", shape, way);
	results_put(results, samples_at(&field->admit_us[index], 0.5),
		    "shapes.%c.kvpull.%s.admit_median_us", shape, way);
	results_put(results, samples_at(&field->build_us[index], 0.5),
		    "shapes.%c.kvpull.%s.allocate_and_build_median_us", shape,
		    way);
	results_put(results,
		    field->cpu_s[index] / (field->pulled_bytes[index] / 1e9),
		    "shapes.%c.kvpull.%s.cpu_s_per_gb", shape, way);
}

static void field_results(struct field *field)
{
	struct results *results = field->bench->results;
	const char shape = field->shape->name;
	const double limit = limit_ms(field);
	char name[RESULT_NAME_BYTES];
	uint32_t index;

	(void)snprintf(name, sizeof(name), "shapes.%c.limit_routine", shape);
	results_put_text(results, routines_results(field), name);
	results_put(results, limit, "shapes.%c.limit_median_ms", shape);
	results_put(results, samples_at(&field->took_ms[TWO_THREADS], 0.5),
		    "shapes.%c.two_threads_median_ms", shape);
	results_put(results,
		    samples_at(&field->took_ms[TWO_THREADS], 0.5) / limit,
		    "shapes.%c.two_threads_limit_ratio", shape);
	results_put(results, samples_at(&field->took_ms[WOKEN], 0.5),
		    "shapes.%c.woken_median_ms", shape);
	results_put(results, samples_at(&field->took_ms[WOKEN], 0.5) / limit,
		    "shapes.%c.woken_limit_ratio", shape);
	results_put(results, samples_at(&field->took_ms[GLIBC], 0.5),
		    "shapes.%c.glibc_memcpy_median_ms", shape);
	results_put(results, (double)field->shape->block_count,
		    "shapes.%c.block_count", shape);
	results_put(results, (double)field->shape->block_bytes,
		    "shapes.%c.block_bytes", shape);
	results_put(results, (double)field->producer.mail->huge_bytes,
		    "shapes.%c.producer_huge_bytes", shape);
	results_put(results, (double)field->wrong_bytes,
		    "shapes.%c.wrong_bytes", shape);
	for (index = 0; index < PULLS; index++)
		pull_results(field, index, limit);
}

/*
 * Bar of the default mode with an engine that sleeps, beside the cost of
 * waking.
 */
static void woken_bar(struct results *results, char shape)
{
	char path[RESULT_NAME_BYTES];
	double pull_ms;

	(void)snprintf(path, sizeof(path),
		       "shapes.%c.kvpull.asleep_1t.median_ms", shape);
	pull_ms = results_get(results, path);
	(void)snprintf(path, sizeof(path), "shapes.%c.woken_median_ms", shape);
	results_put(results, pull_ms / results_get(results, path),
		    "bars.samenode.woken_ratio.1t.%c", shape);
}

static void bars(const struct bench *bench)
{
	struct results *results = bench->results;
	double post_us = NAN;
	double admit_us = NAN;
	uint32_t shape;
	uint32_t index;

	for (shape = 0; shape < SHAPES; shape++) {
		const char name = shapes[shape].name;

		woken_bar(results, name);
		for (index = 0; index < PULLS; index++) {
			char path[RESULT_NAME_BYTES];

			(void)snprintf(path, sizeof(path),
				       "shapes.%c.kvpull.%s.post_median_us",
				       name, pull_ways[index].name);
			post_us = fmax(post_us, results_get(results, path));
			(void)snprintf(path, sizeof(path),
				       "shapes.%c.kvpull.%s.admit_median_us",
				       name, pull_ways[index].name);
			admit_us = fmax(admit_us, results_get(results, path));
			(void)snprintf(path, sizeof(path),
				       "shapes.%c.kvpull.%s.limit_ratio", name,
				       pull_ways[index].name);
			/* The default, progress=thread; others beside it. */
			results_put(results, results_get(results, path),
				    "bars.samenode.%slimit_ratio.%ut.%c",
				    pull_ways[index].bar,
				    pull_ways[index].threads, name);
		}
	}
	/* Where the rows are the work, what is beside it is a plain loop. */
	results_put(
		results,
		results_get(results, "shapes.F.kvpull.thread_1t.memcpy_ratio"),
		"bars.samenode.ratio_512b");
	results_put(
		results,
		results_get(results, "shapes.G.kvpull.thread_1t.memcpy_ratio"),
		"bars.samenode.ratio_1k");
	results_put(results, post_us, "bars.samenode.post_us_max");
	results_put(results, admit_us, "bars.samenode.admit_us_max");
	/* CPU time of an engine that sleeps: polling is the engine's choice. */
	results_put(
		results,
		results_get(results, "shapes.C.kvpull.thread_2t.cpu_s_per_gb"),
		"bars.samenode.cpu_s_per_gb");
}

static void shape_run(const struct bench *bench, const struct shape *shape)
{
	struct field *field = calloc(1, sizeof(*field));
	uint32_t number;
	int code;

	if (!field)
		return;
	field->bench = bench;
	field->shape = shape;
	code = field_open(field);
	for (number = 0; !code && number < bench->repetitions; number++)
		code = repetition(field, number);
	if (!code)
		field_results(field);
	else
		fprintf(stderr, "bench: shape %c: error %d\n", shape->name,
			code);
	field_close(field);
	free(field);
}

void bench_shapes(const struct bench *bench)
{
	uint32_t index;

	for (index = 0; index < SHAPES; index++)
		if (strchr(bench->shapes, shapes[index].name))
			shape_run(bench, &shapes[index]);
	bars(bench);
}
