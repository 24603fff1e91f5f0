// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the costs that a consumer pays once: the connection and first pull
 * from 1 GiB, and the page faults of the first 128 MiB after it. Each
 * repetition is a fresh consumer; the producer stays, and sleeps until it is
 * called.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#define GIB (UINT64_C(1) << 30)
#define LOCAL_BYTES (UINT64_C(256) << 20)
#define FIRST_BYTES (UINT64_C(128) << 20)
#define SMALL_BYTES 4096u
#define LARGE_BYTES 262144u

struct case_params {
	const char *config;
	const char *name;
	uint32_t block_bytes;
	uint32_t pull_count; /* blocks of the pull after the first */
};

struct attach {
	const struct bench *bench;
	const struct case_params *params;
	struct producer producer;
	struct halves owner; /* of the local memory */
	struct ticket ticket;
	struct samples attach_ms;
	struct samples first_ms;
	uint32_t ids[NODE_BLOCKS_MAX];
};

static int pull(struct attach *attach, struct halves *consumer, uint32_t count,
		struct samples *took_ms)
{
	struct pull_times times = { 0 };
	int code = producer_hold(&attach->producer, attach->ids, count,
				 &attach->ticket);

	if (!code)
		code = consumer_pull(consumer, &attach->ticket, attach->ids,
				     &times);
	if (!code)
		samples_add(took_ms,
			    (double)(times.loaded_ns - times.begin_ns) / 1e6);
	return code;
}

/* consumer_admit() is in it: the claim connects. */
static int attach_pull(struct attach *attach, struct halves *consumer)
{
	struct pull_times times = { 0 };
	uint64_t start_ns;
	int code = producer_hold(&attach->producer, attach->ids, 1,
				 &attach->ticket);

	start_ns = kvpull_clock_ns();
	if (!code)
		code = consumer_pull(consumer, &attach->ticket, attach->ids,
				     &times);
	if (!code)
		samples_add(&attach->attach_ms,
			    (double)(times.loaded_ns - start_ns) / 1e6);
	return code;
}

static int repetition(struct attach *attach)
{
	const struct case_params *params = attach->params;
	struct node_params node = {
		.dir = attach->bench->dir,
		.more = params->config,
		.block_bytes = params->block_bytes,
		.block_count = (uint32_t)(LOCAL_BYTES / params->block_bytes),
		.memory = attach->owner.memory,
	};
	struct halves consumer;
	uint32_t at;
	int code = halves_open(&consumer, &node);

	for (at = 0; at < params->pull_count; at++)
		attach->ids[at] = at * 2 + (bench_random() & 1);
	if (!code)
		code = attach_pull(attach, &consumer);
	if (!code && params->pull_count > 1)
		code = pull(attach, &consumer, params->pull_count,
			    &attach->first_ms);
	if (!code)
		code = producer_wait_sent(&attach->producer);
	halves_close(&consumer);
	return code;
}

static int attach_open(struct attach *attach)
{
	const struct case_params *params = attach->params;
	struct node_params node = { .dir = attach->bench->dir,
				    .more = params->config,
				    .block_bytes = params->block_bytes };
	uint64_t at;
	int code = ticket_open(&attach->ticket);

	node.block_count = (uint32_t)(GIB / params->block_bytes);
	if (!code)
		code = producer_open(&attach->producer, &node);
	if (!code)
		code = producer_mode(&attach->producer, MAIL_SLEEP);
	node.block_count = (uint32_t)(LOCAL_BYTES / params->block_bytes);
	if (!code)
		code = halves_open(&attach->owner, &node);
	/* An engine's own memory is touched long before. */
	for (at = 0; !code && at < LOCAL_BYTES; at += SMALL_BYTES)
		attach->owner.memory[at] = 1;
	return code;
}

static void attach_results(struct attach *attach)
{
	struct results *results = attach->bench->results;
	const struct mail *mail = attach->producer.mail;
	const char *name = attach->params->name;

	results_put(results, samples_at(&attach->attach_ms, 0.5),
		    "attach.%s.attach_and_first_pull_median_ms", name);
	results_put(results, samples_at(&attach->attach_ms, 1),
		    "attach.%s.attach_and_first_pull_max_ms", name);
	if (attach->first_ms.count)
		results_put(results, samples_at(&attach->first_ms, 0.5),
			    "attach.%s.first_128mib_median_ms", name);
	results_put(results,
		    (double)mail->provider_ns / 1e9 /
			    ((double)mail->memory_bytes / (double)GIB),
		    "attach.%s.provider_s_per_gib", name);
	results_put(results, (double)mail->huge_bytes, "attach.%s.huge_bytes",
		    name);
}

static void case_run(const struct bench *bench,
		     const struct case_params *params)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	uint32_t number;
	int code;

	if (!attach)
		return;
	attach->bench = bench;
	attach->params = params;
	code = attach_open(attach);
	for (number = 0; !code && number < bench->repetitions; number++)
		code = repetition(attach);
	if (!code)
		attach_results(attach);
	else
		fprintf(stderr, "bench: attach: error %d\n", code);
	halves_close(&attach->owner);
	producer_close(&attach->producer);
	ticket_close(&attach->ticket);
	free(attach);
}

void bench_attach(const struct bench *bench)
{
	static const struct case_params cases[] = {
		{ ",\"progress\":\"caller\"", "huge.4k_block", SMALL_BYTES, 1 },
		{ ",\"progress\":\"caller\",\"huge\":\"no\"",
		  "4k_pages.4k_block", SMALL_BYTES, 1 },
		{ ",\"progress\":\"thread\"", "huge.thread_4k_block",
		  SMALL_BYTES, 1 },
		{ ",\"progress\":\"caller\"", "huge.256k_block", LARGE_BYTES,
		  FIRST_BYTES / LARGE_BYTES },
		{ ",\"progress\":\"caller\",\"huge\":\"no\"",
		  "4k_pages.256k_block", LARGE_BYTES,
		  FIRST_BYTES / LARGE_BYTES },
	};
	struct results *results = bench->results;
	uint32_t index;

	for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++)
		case_run(bench, &cases[index]);
	results_put(
		results,
		results_get(
			results,
			"attach.huge.4k_block.attach_and_first_pull_median_ms"),
		"bars.samenode.attach_first_pull_ms");
	results_put(
		results,
		results_get(
			results,
			"attach.4k_pages.4k_block.attach_and_first_pull_median_ms"),
		"bars.samenode.attach_first_pull_ms.4k_pages");
	results_put(
		results,
		results_get(results,
			    "attach.huge.256k_block.first_128mib_median_ms"),
		"bars.samenode.first_128mib_after_attach_ms");
	results_put(
		results,
		results_get(results, "attach.huge.4k_block.provider_s_per_gib"),
		"bars.samenode.provider_s_per_gib");
}
