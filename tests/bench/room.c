// SPDX-License-Identifier: Apache-2.0
/*
 * Fairness of entries for peers (plugin/progress/room.c): a consumer pulls from
 * twice as many producers as it has entries. Each producer has one pull under way
 * all the time, so claims wait for each other's connections to be closed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#define PRODUCERS 8u /* peers_max 2 makes 4 entries */
#define BLOCK_BYTES 4096u
#define BLOCKS 512u
#define RUN_NS_A_REPETITION (250 * KVPULL_NS_PER_MS)
#define RECORDS 64

struct seat {
	struct producer producer;
	uint64_t key;      /* of the pull under way */
	uint64_t began_ns; /* allocated() was called then */
	uint32_t pulls;
};

struct hall {
	struct halves consumer;
	struct ticket ticket;
	struct seat seats[PRODUCERS];
	struct samples wait_ms;
	uint32_t failed;
};

static int pull_begin(struct hall *hall, uint32_t index)
{
	struct seat *seat = &hall->seats[index];
	const uint32_t id = bench_random() % (BLOCKS / PRODUCERS) +
			    index * (BLOCKS / PRODUCERS);
	struct admission admission;
	int code = producer_hold(&seat->producer, &id, 1, &hall->ticket);

	if (!code)
		code = consumer_show(&hall->consumer, &hall->ticket,
				     &admission);
	if (code)
		return code;
	seat->key = admission.key;
	seat->began_ns = kvpull_clock_ns();
	code = consumer_allocate(&hall->consumer, seat->key, &id, 1);
	return code ? code : halves_step(&hall->consumer);
}

static int pull_ended(struct hall *hall,
		      const struct kvpull_poll_record *record)
{
	uint32_t index = 0;
	int code;

	while (index < PRODUCERS && hall->seats[index].key != record->key)
		index++;
	if (index == PRODUCERS)
		return KVPULL_EPROTO;
	if (record->kind != KVPULL_POLL_LOADED) {
		hall->failed++;
	} else {
		hall->seats[index].pulls++;
		samples_add(&hall->wait_ms,
			    (double)(kvpull_clock_ns() -
				     hall->seats[index].began_ns) /
				    1e6);
	}
	code = consumer_finish(&hall->consumer, record->key);
	return code ? code : pull_begin(hall, index);
}

static int pulls_run(struct hall *hall, uint64_t until_ns)
{
	struct kvpull_poll_record records[RECORDS];
	uint32_t index;
	int code = 0;

	for (index = 0; !code && index < PRODUCERS; index++)
		code = pull_begin(hall, index);
	while (!code && kvpull_clock_ns() < until_ns) {
		const int count = hall->consumer.ops->worker->poll(
			hall->consumer.worker, records, RECORDS,
			sizeof(records[0]));
		int at;

		code = count < 0 ? count : 0;
		for (at = 0; !code && at < count; at++)
			code = pull_ended(hall, &records[at]);
		bench_pace();
	}
	return code;
}

static int hall_open(struct hall *hall, const struct bench *bench)
{
	struct node_params params = { .dir = bench->dir,
				      .block_bytes = BLOCK_BYTES,
				      .block_count = BLOCKS };
	uint32_t index;
	int code = ticket_open(&hall->ticket);

	for (index = 0; !code && index < PRODUCERS; index++) {
		code = producer_open(&hall->seats[index].producer, &params);
		if (!code)
			code = producer_mode(&hall->seats[index].producer,
					     MAIL_SLEEP);
	}
	params.more = ",\"peers_max\":2,\"inline_bytes\":0";
	return code ? code : halves_open(&hall->consumer, &params);
}

static void results(const struct bench *bench, struct hall *hall)
{
	uint32_t least = UINT32_MAX;
	uint32_t index;

	for (index = 0; index < PRODUCERS; index++)
		if (hall->seats[index].pulls < least)
			least = hall->seats[index].pulls;
	results_put(bench->results, (double)hall->wait_ms.count,
		    "room.pull_count");
	results_put(bench->results, (double)hall->failed, "room.failed_count");
	results_put(bench->results, samples_at(&hall->wait_ms, 0.5),
		    "room.wait_median_ms");
	results_put(bench->results, samples_at(&hall->wait_ms, 0.99),
		    "room.wait_p99_ms");
	results_put(bench->results,
		    (double)least * PRODUCERS / (double)hall->wait_ms.count,
		    "room.least_share");
	results_put(bench->results, samples_at(&hall->wait_ms, 0.99),
		    "bars.samenode.room_wait_p99_ms");
	results_put(bench->results,
		    1 - (double)least * PRODUCERS / (double)hall->wait_ms.count,
		    "bars.samenode.room_unfair_share");
}

void bench_room(const struct bench *bench)
{
	struct hall *hall = calloc(1, sizeof(*hall));
	uint32_t index;
	int code;

	if (!hall)
		return;
	code = hall_open(hall, bench);
	if (!code)
		code = pulls_run(hall, kvpull_clock_ns() +
					       bench->repetitions *
						       RUN_NS_A_REPETITION);
	if (!code && hall->wait_ms.count)
		results(bench, hall);
	else
		fprintf(stderr, "bench: room: error %d\n", code);
	halves_close(&hall->consumer);
	for (index = 0; index < PRODUCERS; index++)
		producer_close(&hall->seats[index].producer);
	ticket_close(&hall->ticket);
	free(hall);
}
