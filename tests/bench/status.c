// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the cost of the status file where it is written: an event, a
 * counter, and a hold's transitions. Two hold tables live through the same
 * lives in turns, and one of them is shown in rows and events of the file's
 * layout. The difference is the cost of showing. The CPU time of the thread
 * leaves out all else that ran.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "plugin/hold/hold.h"
#include "plugin/hold/instance.h"
#include "tests/bench/bench.h"

#define HOLDS_MAX 65536u
#define TRANSITIONS 5u /* take, claim, release, end, sent */
#define LIVES 65536u
#define ROUNDS 31u
#define LOOP 200000u
#define AHEAD 24u /* as the poll fetches */
#define ENDS 256u
#define RING 4096u

struct table {
	struct kvpull_arena arena;
	struct kvpull_revocation_entry *entries;
	struct kvpull_holds *holds;
	uint64_t key;
	uint64_t generation;
	uint32_t instance;
};

static const uint8_t secret[KVPULL_SECRET_BYTES] = "a bench's secret";

static void *zeroed(size_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return base == MAP_FAILED ? NULL : base;
}

static int table_open(struct table *table,
		      const struct kvpull_status_holds *shown, uint32_t count)
{
	struct kvpull_hold_params params = {
		.lease_ns = 30 * KVPULL_NS_PER_S,
		.hold_max_ns = 300 * KVPULL_NS_PER_S,
		.hold_count_max = count,
		.instance_count_max = 8,
		.shown = *shown,
	};
	struct kvpull_join join = { .instance_id = 1, .rank_count = 1 };

	*table = (struct table){ .key = 1 };
	table->entries = zeroed(count * sizeof(*table->entries));
	params.entries = table->entries;
	memcpy(params.secret, secret, sizeof(secret));
	kvpull_arena_init(&table->arena, NULL);
	if (!table->entries)
		return -1;
	table->holds = kvpull_holds_open(&params, &table->arena);
	if (!table->holds)
		return -1;
	kvpull_holds_tick(table->holds, KVPULL_NS_PER_S, KVPULL_NO_THREAD);
	return kvpull_holds_join(table->holds, &join, KVPULL_NS_PER_S,
				 &table->instance);
}

static void table_close(struct table *table, uint32_t count)
{
	if (table->entries)
		(void)munmap(table->entries, count * sizeof(*table->entries));
	kvpull_arena_fini(&table->arena);
}

/* In random order, as they lie one behind the other in a ring. */
static void notes(struct table *table, const struct kvpull_record *records,
		  uint32_t count, uint32_t kind)
{
	uint32_t at;

	for (at = 0; at < count; at++) {
		struct kvpull_record record = records[at];

		record.kind = kind;
		if (at + AHEAD < count) {
			kvpull_holds_prefetch(table->holds,
					      records[at + AHEAD].slot);
			kvpull_holds_prefetch_rest(
				table->holds, records[at + AHEAD / 2].slot);
		}
		kvpull_holds_note(table->holds, table->instance, 0, &record,
				  KVPULL_NS_PER_S);
	}
}

/* Runs `count` holds through one life; returns ns of CPU time. */
static double life_ns(struct table *table, struct kvpull_record *records,
		      const uint32_t *order, uint32_t count)
{
	struct kvpull_hold_end ends[ENDS];
	uint64_t start_ns;
	uint32_t at;
	int failed = 0;

	table->generation++;
	for (at = 0; at < count; at++)
		records[at] = (struct kvpull_record){
			.slot = order[at],
			.generation = table->generation,
			.tag = kvpull_ticket_tag(secret, order[at],
						 table->generation),
		};
	start_ns = kvpull_clock_thread_ns();
	for (at = 0; at < count; at++)
		failed |= kvpull_holds_take(table->holds, at, table->generation,
					    table->key++);
	notes(table, records, count, KVPULL_NOTE_CLAIM);
	/* As much as a ring holds, then its reports: as polls do. */
	for (at = 0; at < count; at += RING) {
		const uint32_t some = count < RING ? count : RING;

		notes(table, records + at, some, KVPULL_NOTE_RELEASE);
		kvpull_holds_publish(table->holds);
		while (kvpull_holds_report(table->holds, ends, ENDS))
			;
	}
	if (failed)
		fprintf(stderr, "bench: status: a hold was refused\n");
	return (double)(kvpull_clock_thread_ns() - start_ns);
}

static void spread_put(const struct bench *bench, struct samples *samples,
		       const char *name)
{
	results_put(bench->results, samples_at(samples, 0.5), "status.%s_ns",
		    name);
	results_put(bench->results, samples_at(samples, 0.1),
		    "status.%s_p10_ns", name);
	results_put(bench->results, samples_at(samples, 0.9),
		    "status.%s_p90_ns", name);
}

/* Both tables, `count` holds each, in random order. */
static void transitions_run(const struct bench *bench,
			    const struct kvpull_status_holds *shown,
			    uint32_t count, const char *name)
{
	static struct kvpull_record records[HOLDS_MAX];
	static uint32_t order[HOLDS_MAX];
	static struct samples samples;
	struct table tables[2];
	const uint32_t lives = LIVES / count;
	uint32_t at, round;
	const struct kvpull_status_holds none = { 0 };
	int failed = table_open(&tables[0], &none, count) |
		     table_open(&tables[1], shown, count);

	for (at = 0; at < count; at++) {
		const uint32_t other = bench_random() % (at + 1);

		order[at] = order[other];
		order[other] = at;
	}
	samples.count = 0;
	for (round = 0; !failed && round <= ROUNDS; round++) {
		double took_ns[2] = { 0, 0 };

		for (at = 0; at < 2 * lives; at++)
			took_ns[(at + round) % 2] +=
				life_ns(&tables[(at + round) % 2], records,
					order, count);
		if (round) /* the first touches */
			samples_add(&samples, (took_ns[1] - took_ns[0]) /
						      (LIVES * TRANSITIONS));
	}
	spread_put(bench, &samples, name);
	table_close(&tables[0], count);
	table_close(&tables[1], count);
}

static double loop_ns(struct kvpull_status_side *side, uint32_t is_event)
{
	struct kvpull_status_note note = { .what = KVPULL_DID_TAKE };
	const uint64_t start_ns = kvpull_clock_thread_ns();
	uint32_t at;

	for (at = 0; at < LOOP; at++) {
		note.slot = at;
		note.generation = at;
		if (is_event)
			kvpull_status_note(side, &note);
		else
			kvpull_status_add(&side->thread->counters[at % 64], 1);
	}
	return (double)(kvpull_clock_thread_ns() - start_ns) / LOOP;
}

static void loops_run(const struct bench *bench,
		      struct kvpull_status_side *side)
{
	static struct samples events, counters;
	uint32_t round;

	events.count = counters.count = 0;
	for (round = 0; round < ROUNDS; round++) {
		samples_add(&events, loop_ns(side, 1));
		samples_add(&counters, loop_ns(side, 0));
	}
	spread_put(bench, &events, "event");
	spread_put(bench, &counters, "counter");
}

void bench_status(const struct bench *bench)
{
	const size_t rows_bytes = HOLDS_MAX * sizeof(struct kvpull_status_hold);
	const size_t now_bytes =
		HOLDS_MAX * sizeof(struct kvpull_status_hold_now);
	const size_t thread_bytes = sizeof(struct kvpull_status_thread);
	const size_t bytes =
		rows_bytes + now_bytes + thread_bytes +
		KVPULL_STATUS_EVENTS * sizeof(struct kvpull_status_event);
	static _Atomic uint64_t held[HOLDS_MAX / 64 + 1];
	uint8_t *base = zeroed(bytes);
	struct kvpull_status_side side = { 0 };
	const struct kvpull_status_holds shown = {
		.rows = (void *)base,
		.now = (void *)(base + rows_bytes),
		.held = held,
		.side = &side,
	};

	if (!base)
		return;
	side.thread = (void *)(base + rows_bytes + now_bytes);
	side.events = (void *)(base + rows_bytes + now_bytes + thread_bytes);
	loops_run(bench, &side);
	transitions_run(bench, &shown, 1024, "hold_transition");
	transitions_run(bench, &shown, HOLDS_MAX, "hold_transition_65536");
	(void)munmap(base, bytes);
}
