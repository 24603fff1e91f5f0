// SPDX-License-Identifier: Apache-2.0
/*
 * Small pulls: one cold 4 KiB block at a time, 256 requests of 1 MiB posted
 * together, of which the first must not wait for the last, and 10,000 at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#define REGION_BYTES (UINT64_C(512) << 20)
#define SMALL_BYTES 4096u
#define SMALL_PULLS_A_REPETITION 400u
#define MANY_MAX 512u
#define MANY_BLOCKS_MAX 64u
#define MANY_BLOCK_BYTES 16384u

struct pair {
	struct producer producer;
	struct halves consumer;
	struct ticket ticket;
	uint32_t total;
	uint32_t ids[2][NODE_BLOCKS_MAX];
};

static int pull_once(struct pair *pair, uint32_t count,
		     struct pull_times *times)
{
	int code = producer_hold(&pair->producer, pair->ids[0], count,
				 &pair->ticket);

	if (!code)
		code = consumer_pull(&pair->consumer, &pair->ticket,
				     pair->ids[1], times);
	return code ? code : producer_wait_sent(&pair->producer);
}

/* Touches all memory first: the bench measures cold caches, not page faults. */
static int warm_up(struct pair *pair)
{
	struct pull_times times;
	uint32_t first;
	int code = 0;

	for (first = 0; !code && first < pair->total;
	     first += NODE_BLOCKS_MAX) {
		uint32_t at;

		for (at = 0; at < NODE_BLOCKS_MAX; at++)
			pair->ids[0][at] = pair->ids[1][at] = first + at;
		code = pull_once(pair, NODE_BLOCKS_MAX, &times);
	}
	return code;
}

static int pair_open(struct pair *pair, const struct bench *bench,
		     uint32_t block_bytes, const char *config)
{
	struct node_params params = { .dir = bench->dir,
				      .block_bytes = block_bytes };
	int code;

	params.block_count = pair->total =
		(uint32_t)(REGION_BYTES / block_bytes);
	code = ticket_open(&pair->ticket);
	if (!code)
		code = producer_open(&pair->producer, &params);
	params.more = config;
	if (!code)
		code = halves_open(&pair->consumer, &params);
	return code ? code : warm_up(pair);
}

static void pair_close(struct pair *pair)
{
	halves_close(&pair->consumer);
	producer_close(&pair->producer);
	ticket_close(&pair->ticket);
}

struct small_samples {
	struct samples whole_us;  /* allocated() .. LOADED */
	struct samples posted_us; /* step() .. LOADED */
	struct samples copy_us;   /* memcpy() of another block, in turns */
	uint8_t *from;            /* the producer's memory */
};

/* As cold as a pull's: what of a pull is the machine's, on this day. */
static void plain_copy(const struct pair *pair, struct small_samples *small)
{
	const size_t from = bench_random() % pair->total;
	const size_t to = bench_random() % pair->total;
	const uint64_t start_ns = kvpull_clock_ns();

	memcpy(pair->consumer.memory + to * SMALL_BYTES,
	       small->from + from * SMALL_BYTES, SMALL_BYTES);
	samples_add(&small->copy_us,
		    (double)(kvpull_clock_ns() - start_ns) / 1e3);
}

static int small_pulls(struct pair *pair, struct small_samples *small,
		       uint32_t count)
{
	struct pull_times times;
	int code = 0;

	while (!code && count--) {
		pair->ids[0][0] = bench_random() % pair->total;
		pair->ids[1][0] = bench_random() % pair->total;
		code = pull_once(pair, 1, &times);
		if (code)
			break;
		samples_add(&small->whole_us,
			    (double)(times.loaded_ns - times.begin_ns) / 1e3);
		samples_add(&small->posted_us,
			    (double)(times.loaded_ns - times.built_ns) / 1e3);
		plain_copy(pair, small);
	}
	return code;
}

static void small_results(const struct bench *bench, const char *name,
			  struct small_samples *small)
{
	struct results *results = bench->results;

	results_put(results, samples_at(&small->whole_us, 0.5),
		    "pull_4k.%s.median_us", name);
	results_put(results, samples_at(&small->whole_us, 0.99),
		    "pull_4k.%s.p99_us", name);
	results_put(results, samples_at(&small->posted_us, 0.5),
		    "pull_4k.%s.worker_median_us", name);
	results_put(results, samples_at(&small->posted_us, 0.99),
		    "pull_4k.%s.worker_p99_us", name);
	results_put(results, samples_at(&small->copy_us, 0.5),
		    "pull_4k.%s.copy_median_us", name);
	results_put(results, (double)small->whole_us.count,
		    "pull_4k.%s.pull_count", name);
}

/*
 * sleeps: an engine that asked for event_fd(), which each of its steps makes
 * readable: a system call. The vLLM package polls, and does not ask.
 */
static void small_run(const struct bench *bench, const char *config,
		      const char *name, enum mail_kind mode, int sleeps)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	struct small_samples *small = calloc(1, sizeof(*small));
	int code = KVPULL_ENOMEM;

	if (pair && small) {
		code = pair_open(pair, bench, SMALL_BYTES, config);
		if (!code)
			code = producer_mode(&pair->producer, mode);
		if (!code && sleeps)
			halves_sleep(&pair->consumer);
		small->from = code ? NULL : producer_map(&pair->producer);
		if (!code && !small->from)
			code = KVPULL_ENOMEM;
		if (!code)
			code = small_pulls(pair, small,
					   SMALL_PULLS_A_REPETITION *
						   bench->repetitions);
		if (!code)
			small_results(bench, name, small);
		if (small->from)
			(void)munmap(small->from, REGION_BYTES);
		pair_close(pair);
	}
	if (code)
		fprintf(stderr, "bench: 4 KiB pulls: error %d\n", code);
	free(small);
	free(pair);
}

struct many {
	struct pair pair;
	uint32_t count; /* of requests at once */
	uint32_t blocks;
	struct ticket tickets[MANY_MAX];
	struct admission admissions[MANY_MAX];
	uint32_t ids[MANY_MAX][MANY_BLOCKS_MAX];
	struct samples first_ms;
	struct samples total_ms;
	struct samples post_us;
};

static int many_admit(struct many *many)
{
	uint32_t request;
	uint32_t at;
	int code = 0;

	for (request = 0; !code && request < many->count; request++) {
		for (at = 0; at < many->blocks; at++) {
			/*
			 * Each request has 128 of the 32768 blocks for itself.
			 */
			const uint32_t place = request * many->blocks + at;

			many->pair.ids[0][at] =
				bench_random() % many->pair.total;
			many->ids[request][at] =
				(place * 40503u) % many->pair.total;
		}
		code = producer_hold(&many->pair.producer, many->pair.ids[0],
				     many->blocks, &many->tickets[request]);
		if (!code)
			code = consumer_admit(&many->pair.consumer,
					      &many->tickets[request],
					      &many->admissions[request]);
	}
	return code;
}

static int many_pull(struct many *many)
{
	struct halves *consumer = &many->pair.consumer;
	const uint64_t begin_ns = kvpull_clock_ns();
	uint64_t built_ns;
	uint64_t posted_ns;
	uint64_t first_ns = 0;
	size_t byte_count = 0;
	uint32_t request;
	int code = 0;

	for (request = 0; !code && request < many->count; request++)
		code = consumer_allocate(consumer,
					 many->admissions[request].key,
					 many->ids[request], many->blocks);
	if (!code)
		code = halves_step_build(consumer, &byte_count);
	built_ns = kvpull_clock_ns();
	if (!code)
		code = consumer->ops->worker->step(consumer->worker,
						   consumer->bytes, byte_count);
	if (!code)
		code = consumer->ops->worker->start_loads(consumer->worker,
							  NULL);
	posted_ns = kvpull_clock_ns();
	if (!code)
		code = consumer_wait_loaded(consumer, many->count, &first_ns);
	samples_add(&many->total_ms,
		    (double)(kvpull_clock_ns() - begin_ns) / 1e6);
	samples_add(&many->first_ms, (double)(first_ns - begin_ns) / 1e6);
	samples_add(&many->post_us, (double)(posted_ns - built_ns) / 1e3);
	for (request = 0; !code && request < many->count; request++)
		code = consumer_finish(consumer, many->admissions[request].key);
	return code ? code : producer_wait_sent(&many->pair.producer);
}

static int many_open(struct many *many, const struct bench *bench,
		     const char *config)
{
	uint32_t request;
	int code = pair_open(&many->pair, bench, MANY_BLOCK_BYTES, config);

	for (request = 0; !code && request < many->count; request++)
		code = ticket_open(&many->tickets[request]);
	if (!code)
		code = producer_mode(&many->pair.producer, MAIL_SLEEP);
	if (!code)
		halves_sleep(&many->pair.consumer);
	return code;
}

static void many_run(const struct bench *bench, const char *way, uint32_t count,
		     uint32_t blocks, const char *name)
{
	char config[64];
	struct many *many = calloc(1, sizeof(*many));
	uint32_t number;
	int code;

	if (!many)
		return;
	many->count = count;
	many->blocks = blocks;
	(void)snprintf(config, sizeof(config), ",\"progress\":\"%s\"", way);
	code = many_open(many, bench, config);
	for (number = 0; !code && number < bench->repetitions; number++) {
		code = many_admit(many);
		if (!code)
			code = many_pull(many);
	}
	if (!code) {
		results_put(bench->results, samples_at(&many->first_ms, 0.5),
			    "%s.%s.first_median_ms", name, way);
		results_put(bench->results, samples_at(&many->total_ms, 0.5),
			    "%s.%s.total_median_ms", name, way);
		results_put(bench->results, samples_at(&many->post_us, 0.5),
			    "%s.%s.post_median_us", name, way);
	} else {
		fprintf(stderr, "bench: %s: error %d\n", name, code);
	}
	pair_close(&many->pair);
	for (number = 0; number < MANY_MAX; number++)
		ticket_close(&many->tickets[number]);
	free(many);
}

/* These copies take almost no time: the rest is the cost of a pull itself. */
#define IN_FLIGHT 10000u
#define IN_FLIGHT_BYTES 512u
#define IN_FLIGHT_TIMES 3u

static int inflight_pull(struct pair *pair, struct samples *each_us)
{
	struct halves *consumer = &pair->consumer;
	const uint64_t first = consumer->next_key;
	size_t byte_count = 0;
	uint64_t start_ns;
	uint32_t at;
	int code = 0;

	for (at = 0; !code && at < IN_FLIGHT; at++) {
		struct admission admission;

		pair->ids[0][0] = at;
		code = producer_hold(&pair->producer, pair->ids[0], 1,
				     &pair->ticket);
		if (!code)
			code = consumer_admit(consumer, &pair->ticket,
					      &admission);
	}
	for (at = 0; !code && at < IN_FLIGHT; at++) {
		pair->ids[1][0] = at;
		code = consumer_allocate(consumer, first + at, pair->ids[1], 1);
	}
	if (!code)
		code = halves_step_build(consumer, &byte_count);
	start_ns = kvpull_clock_thread_ns();
	if (!code)
		code = consumer->ops->worker->step(consumer->worker,
						   consumer->bytes, byte_count);
	if (!code)
		code = consumer->ops->worker->start_loads(consumer->worker,
							  NULL);
	if (!code)
		code = consumer_wait_loaded(consumer, IN_FLIGHT, NULL);
	samples_add(each_us, (double)(kvpull_clock_thread_ns() - start_ns) /
				     1e3 / IN_FLIGHT);
	/* The producer's ring is shorter than that: the rest goes later. */
	consumer_wait_notified(consumer);
	for (at = 0; !code && at < IN_FLIGHT; at++)
		code = consumer_finish(consumer, first + at);
	return code ? code : producer_wait_sent(&pair->producer);
}

static void inflight_run(const struct bench *bench)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	struct samples *each_us = calloc(1, sizeof(*each_us));
	uint32_t number;
	int code = KVPULL_ENOMEM;

	if (pair && each_us) {
		code = pair_open(
			pair, bench, IN_FLIGHT_BYTES,
			",\"progress\":\"caller\",\"copy_threads\":0,\"inline_bytes\":0,\"pulls_max\":16384,\"tickets_max\":16384");
		if (!code)
			code = producer_mode(&pair->producer, MAIL_PACE);
		for (number = 0; !code && number < IN_FLIGHT_TIMES &&
				 number < bench->repetitions;
		     number++)
			code = inflight_pull(pair, each_us);
		if (!code)
			results_put(bench->results, samples_at(each_us, 0.5),
				    "bars.samenode.inflight_10000_us_per_pull");
		pair_close(pair);
	}
	if (code)
		fprintf(stderr, "bench: 10,000 pulls: error %d\n", code);
	free(each_us);
	free(pair);
}

void bench_small(const struct bench *bench)
{
	struct results *results = bench->results;

	small_run(bench, ",\"progress\":\"caller\"", "caller", MAIL_SPIN, 0);
	small_run(bench, ",\"progress\":\"thread\"", "thread", MAIL_SPIN, 0);
	small_run(bench, ",\"progress\":\"thread\"", "asleep", MAIL_SPIN, 1);
	small_run(bench, ",\"progress\":\"caller\"", "caller_producer_asleep",
		  MAIL_SLEEP, 0);
	results_put(results, results_get(results, "pull_4k.caller.median_us"),
		    "bars.samenode.caller.pull_4k_us");
	results_put(results, results_get(results, "pull_4k.thread.median_us"),
		    "bars.samenode.thread.pull_4k_us");
	results_put(results,
		    results_get(results, "pull_4k.thread.copy_median_us"),
		    "bars.samenode.thread.copy_4k_us");
	results_put(results, results_get(results, "pull_4k.asleep.median_us"),
		    "bars.samenode.asleep.pull_4k_us");
}

void bench_many(const struct bench *bench)
{
	struct results *results = bench->results;

	inflight_run(bench);
	many_run(bench, "thread", 256, 64, "first_of_256");
	many_run(bench, "caller", 256, 64, "first_of_256");
	many_run(bench, "thread", 512, 4, "first_of_512x64k");
	many_run(bench, "caller", 512, 4, "first_of_512x64k");
	results_put(
		results,
		results_get(results, "first_of_512x64k.thread.first_median_ms"),
		"bars.samenode.first_of_512x64k_ms");
	results_put(
		results,
		results_get(results, "first_of_512x64k.caller.first_median_ms"),
		"bars.samenode.caller.first_of_512x64k_ms");
	results_put(results,
		    results_get(results, "first_of_256.thread.first_median_ms"),
		    "bars.samenode.first_of_256_ms");
}
