// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the cost of a block's id at each end, for 4,096 blocks. At P the
 * time runs from the call that finishes the request to the ticket's text, at D
 * from that text to the posted reads. Both engines are in this process, so the
 * working thread times each end. At D the time ends where the ids are checked
 * against the peer's cache and the strips are posted. That check is timed
 * beside the calls, since the progress thread makes it. Sending the claim to P
 * is no part of it.
 *
 * Each time has its own ids: neighbours, or scattered over a large cache,
 * below 65,536 and above.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/progress/plan.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#define BLOCKS 4096u
#define BLOCK_BYTES 256u
#define PULLS_A_REPETITION 40u
#define RECORDS 64

struct ids_case {
	const char *name;
	uint32_t cache_blocks;
	uint32_t is_scattered;
};

static const struct ids_case cases[] = {
	{ "contiguous", 1u << 20, 0 },
	{ "scattered", 1u << 20, 1 },
	{ "scattered_u16", 1u << 16, 1 },
};

struct ends {
	struct halves producer;
	struct halves consumer;
	struct ticket ticket;
	struct samples producer_ns; /* a block */
	struct samples consumer_ns;
	struct kvpull_plan plan; /* of D from P */
	struct kvpull_read read; /* of one pull */
	uint32_t groups[KVPULL_GROUPS_MAX + 1];
	uint32_t held;
	uint32_t ids[2][BLOCKS];
	uint32_t all[1u << 20];
};

static void ids_take(struct ends *ends, const struct ids_case *params,
		     uint32_t *ids)
{
	const uint32_t first = bench_random() % (params->cache_blocks - BLOCKS);
	uint32_t at;

	for (at = 0; at < BLOCKS; at++) {
		const uint32_t other =
			at + bench_random() % (params->cache_blocks - at);
		const uint32_t id = ends->all[other];

		ends->all[other] = ends->all[at];
		ends->all[at] = id;
		ids[at] = params->is_scattered ? id : first + at;
	}
}

/* P makes a ticket. */
static int ticket_make(struct ends *ends)
{
	struct halves *producer = &ends->producer;
	const struct kvpull_blocks blocks = { .block_count = BLOCKS,
					      .block_ids = ends->ids[0] };
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = producer->next_key++,
		.prompt_tokens = BLOCKS,
		.flags = KVPULL_REQUEST_WANTS_HOLD | KVPULL_REQUEST_ALONE,
	};
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = request.key,
		.computed_tokens = BLOCKS,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.ticket = ends->ticket.text,
		.ticket_capacity = KVPULL_TICKET_BYTES_MAX,
	};
	uint64_t start_ns;
	int code;

	code = producer->ops->scheduler->request_new(producer->scheduler,
						     &request);
	if (code)
		return code;
	start_ns = kvpull_clock_ns();
	code = producer->ops->scheduler->request_finished(producer->scheduler,
							  &finish);
	samples_add(&ends->producer_ns,
		    (double)(kvpull_clock_ns() - start_ns) / BLOCKS);
	if (code != KVPULL_FINISH_HELD)
		return code ? code : KVPULL_EFULL;
	ends->held++;
	ends->ticket.byte_count = finish.ticket_bytes;
	ends->ticket.block_count = BLOCKS;
	return halves_step(producer);
}

/* Reports of ended holds, back to the scheduler half. */
static int holds_end(struct ends *ends)
{
	struct halves *producer = &ends->producer;
	const uint64_t until_ns = kvpull_clock_ns() + 10 * KVPULL_NS_PER_S;
	struct kvpull_poll_record records[RECORDS];
	int code = 0;

	while (!code && ends->held) {
		int count;

		/* progress() sends the release. */
		(void)ends->consumer.ops->worker->progress(
			ends->consumer.worker, 1);
		count = producer->ops->worker->poll(producer->worker, records,
						    RECORDS, sizeof(*records));

		if (count < 0 || kvpull_clock_ns() > until_ns)
			return count < 0 ? count : KVPULL_EDEADLINE;
		ends->held -= (uint32_t)count;
		if (count)
			code = halves_result(producer);
	}
	return code ? code : halves_step(producer);
}

/* D's: in two parts, between which the claim goes to P. */
static int ticket_use(struct ends *ends)
{
	struct halves *consumer = &ends->consumer;
	struct admission admission;
	uint64_t start_ns;
	uint64_t took_ns;
	uint64_t byte_count;
	int code = consumer_show(consumer, &ends->ticket, &admission);

	if (!code)
		code = consumer_claim(consumer);
	if (code)
		return code;
	took_ns = admission.took_ns;
	start_ns = kvpull_clock_ns();
	code = consumer_allocate(consumer, admission.key, ends->ids[1], BLOCKS);
	if (!code)
		code = halves_step(consumer);
	if (!code)
		code = kvpull_plan_check_ids(&ends->plan, &ends->read,
					     &byte_count);
	took_ns += kvpull_clock_ns() - start_ns;
	samples_add(&ends->consumer_ns, (double)took_ns / BLOCKS);
	if (!code)
		code = consumer_wait_loaded(consumer, 1, NULL);
	return code ? code : consumer_finish(consumer, admission.key);
}

static int ends_open(struct ends *ends, const struct bench *bench,
		     const struct ids_case *params)
{
	struct node_params node = {
		.dir = bench->dir,
		.more = ",\"progress\":\"thread\",\"copy_threads\":0",
		.block_bytes = BLOCK_BYTES,
		.block_count = params->cache_blocks,
	};
	uint32_t at;
	int code;

	for (at = 0; at < params->cache_blocks; at++)
		ends->all[at] = at;
	code = ticket_open(&ends->ticket);
	if (!code)
		code = halves_open(&ends->producer, &node);
	ends->plan.group_block_bytes[0] = BLOCK_BYTES;
	ends->plan.remote_block_count[0] = params->cache_blocks;
	ends->plan.local_block_count[0] = params->cache_blocks;
	for (at = 1; at <= KVPULL_GROUPS_MAX; at++)
		ends->groups[at] = BLOCKS;
	ends->read = (struct kvpull_read){ .remote_ids = ends->ids[0],
					   .local_ids = ends->ids[1],
					   .group_first = ends->groups };
	node.more = ",\"progress\":\"caller\",\"copy_threads\":0";
	return code ? code : halves_open(&ends->consumer, &node);
}

static void case_results(const struct bench *bench, const char *name,
			 struct ends *ends)
{
	results_put(bench->results, samples_at(&ends->producer_ns, 0.5),
		    "ticket.%s.p_median_ns_per_block", name);
	results_put(bench->results, samples_at(&ends->producer_ns, 0),
		    "ticket.%s.p_min_ns_per_block", name);
	results_put(bench->results, samples_at(&ends->consumer_ns, 0.5),
		    "ticket.%s.d_median_ns_per_block", name);
	results_put(bench->results, samples_at(&ends->consumer_ns, 0),
		    "ticket.%s.d_min_ns_per_block", name);
	results_put(bench->results, (double)ends->ticket.byte_count,
		    "ticket.%s.text_bytes", name);
}

static void case_run(const struct bench *bench, const struct ids_case *params)
{
	struct ends *ends = calloc(1, sizeof(*ends));
	uint32_t left = PULLS_A_REPETITION * bench->repetitions;
	int code;

	if (!ends)
		return;
	code = ends_open(ends, bench, params);
	while (!code && left--) {
		ids_take(ends, params, ends->ids[0]);
		ids_take(ends, params, ends->ids[1]);
		code = ticket_make(ends);
		if (!code)
			code = ticket_use(ends);
		if (!code)
			code = holds_end(ends);
	}
	if (!code)
		case_results(bench, params->name, ends);
	else
		fprintf(stderr, "bench: tickets: error %d\n", code);
	halves_close(&ends->consumer);
	halves_close(&ends->producer);
	ticket_close(&ends->ticket);
	free(ends);
}

/* A bar is that of the dearest ids. */
static void end_bar(struct results *results, const char *end)
{
	char path[RESULT_NAME_BYTES];
	double worst_ns = 0;
	size_t index;

	for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
		double ns;

		(void)snprintf(path, sizeof(path),
			       "ticket.%s.%s_median_ns_per_block",
			       cases[index].name, end);
		ns = results_get(results, path);
		worst_ns = ns > worst_ns || ns != ns ? ns : worst_ns;
	}
	results_put(results, worst_ns, "bars.ticket.ns_per_block.%s", end);
}

void bench_ticket(const struct bench *bench)
{
	size_t index;

	for (index = 0; index < sizeof(cases) / sizeof(cases[0]); index++)
		case_run(bench, &cases[index]);
	end_bar(bench->results, "p");
	end_bar(bench->results, "d");
}
