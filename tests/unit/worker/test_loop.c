/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two whole workers in one process over the loop route, which knows of kvpull
 * what base/transport.h says: each scenario that needs no second process, at
 * many seeds. Time is the test's.
 */
#include "tests/fake/loop.h"
#include "tests/lib/inside.h"
#include "tests/unit/worker/node.h"

#define SEEDS 16u
#define STEP_NS (100 * UINT64_C(1000))
#define STEPS_MAX 500000u
#define SLOT 3u
#define OTHER_SLOT 4u

static struct loop_net *net;
static struct node p, d;
static uint64_t now_ns;
static uint64_t pace_ns = 100; /* that it goes on by itself */
static char p_name[] = "P";
static char d_name[] = "D";
static struct loop_counts total; /* of all seeds of a test */

static uint64_t loop_now(void *context)
{
	(void)context;
	return now_ns += pace_ns;
}

/* close() waits by this clock for peers that may never take the last words. */
static void node_close(struct node *node)
{
	pace_ns = KVPULL_NS_PER_MS;
	kvpull_worker_destroy(node->worker);
	pace_ns = 100;
}

/* With TEST_LOG set. */
static void log_line(void *context, uint32_t level, const char *line)
{
	(void)printf("# %llu %s %u %s\n", (unsigned long long)now_ns / 1000,
		     (const char *)context, level, line);
}

static void node_open(struct node *node, char *id, uint64_t incarnation)
{
	const struct kvpull_worker_setup setup = {
		.log = { .write = getenv("TEST_LOG") ? log_line : NULL,
			 .context = id,
			 .level = KVPULL_LOG_DEBUG },
		.incarnation = incarnation,
		.transport = loop_transport,
		.transport_context = net,
		.now_ns = loop_now,
	};
	uint32_t at;

	node_make(node, id, ",\"lease_ms\":4000,\"hold_max_ms\":40000", setup);
	for (at = 0; at < WORLD_BLOCKS * WORLD_BLOCK_BYTES; at++)
		node->memory[at] = (uint8_t)(incarnation + at * 7 + at / 128);
}

static void both_open(uint64_t seed)
{
	now_ns = KVPULL_NS_PER_S;
	net = loop_open(seed);
	node_open(&p, p_name, 0xa1);
	node_open(&d, d_name, 0xd1);
}

static void both_close(void)
{
	const struct loop_counts *counts = loop_counts(net);

	total.delays += counts->delays;
	total.repeats += counts->repeats;
	total.reorders += counts->reorders;
	total.cuts += counts->cuts;
	total.resumes += counts->resumes;
	node_close(&d);
	node_close(&p);
	assert_int_equal(loop_close(net), 0);
}

/* Until a node has so many reports, or for so many steps. */
static void run(const struct node *node, uint32_t count, uint32_t steps)
{
	for (; steps && !(node && node->count >= count); steps--) {
		now_ns += STEP_NS;
		node_poll(&p);
		node_poll(&d);
	}
	if (node)
		assert_int_equal(node->count, count);
}

static void loaded(const struct kvpull_poll_record *record)
{
	assert_int_equal(record->kind, KVPULL_POLL_LOADED);
	/* See node_pull(). */
	assert_memory_equal(d.memory + 5 * WORLD_BLOCK_BYTES,
			    p.memory + 3 * WORLD_BLOCK_BYTES,
			    WORLD_BLOCK_BYTES);
	assert_memory_equal(d.memory + 6 * WORLD_BLOCK_BYTES,
			    p.memory + 4 * WORLD_BLOCK_BYTES,
			    WORLD_BLOCK_BYTES);
}

static void sent(uint32_t at, int32_t reason)
{
	assert_int_equal(p.records[at].kind, KVPULL_POLL_SENT);
	assert_int_equal(p.records[at].reason, reason);
}

static void releases(void)
{
	node_release(&d);
	run(&p, 1, STEPS_MAX);
	sent(0, KVPULL_END_RELEASED);
}

/* Held by P, and claimed by D. */
static void claimed(uint32_t slot)
{
	node_hold(&p, slot);
	node_claim(&d, &p, slot);
}

/* Until its end. */
static void pulls(void)
{
	node_pull(&d);
	run(&d, 1, STEPS_MAX);
}

/* Nothing of it is left on either side. */
static void nothing_is_owed(void)
{
	assert_int_equal(kvpull_progress_pulls(d.worker->progress), 0);
	run(NULL, 0, 2000);
	assert_int_equal(kvpull_progress_owes(d.worker->progress, SLOT,
					      GENERATION,
					      p.worker->facts.incarnation),
			 0);
}

/* At all seeds, which `total` counts for. */
static void pull_and_release(uint32_t cuts)
{
	uint64_t seed;

	total = (struct loop_counts){ 0 };
	for (seed = 1; seed <= SEEDS; seed++) {
		both_open(seed);
		loop_cuts(net, cuts);
		claimed(SLOT);
		pulls();
		loaded(&d.records[0]);
		assert_int_equal(p.count, 0);
		releases();
		nothing_is_owed();
		both_close();
	}
}

/* A test at so many seeds, with P and D open. */
#define SEEDS_TEST(name, seeds)                                                \
	static void name##_at(uint64_t seed);                                  \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		uint64_t seed;                                                 \
                                                                               \
		for (seed = 1; seed <= (seeds); seed++) {                      \
			both_open(seed);                                       \
			name##_at(seed);                                       \
			both_close();                                          \
		}                                                              \
	}                                                                      \
	static void name##_at(__attribute__((unused)) uint64_t seed)

UNIT_TEST(what_was_held_is_pulled_and_released)
{
	pull_and_release(0);
	/* The network delayed and repeated messages. */
	assert_true(total.delays > SEEDS);
	assert_true(total.repeats > SEEDS);
	assert_int_equal(total.cuts, 0);
}

UNIT_TEST(pull_that_is_cut_goes_on_by_the_next_connection)
{
	pull_and_release(600);
	assert_true(total.cuts > SEEDS / 4);
	assert_true(total.resumes > 0);
}

/* The claim and the last word alone: its request never began. */
SEEDS_TEST(rejected_request_frees_the_hold, SEEDS)
{
	claimed(SLOT);
	releases();
	assert_int_equal(d.count, 0);
	nothing_is_owed();
}

/* Heard of before P knew of the hold. */
SEEDS_TEST(early_words_are_settled_when_the_hold_comes, SEEDS)
{
	node_claim(&d, &p, SLOT);
	node_release(&d);
	run(NULL, 0, 2000);
	assert_int_equal(p.count, 0);
	node_hold(&p, SLOT);
	run(&p, 1, STEPS_MAX);
	sent(0, KVPULL_END_RELEASED);
	nothing_is_owed();
}

SEEDS_TEST(hold_that_nobody_claims_expires_and_is_not_read, SEEDS)
{
	node_hold(&p, SLOT);
	run(&p, 1, STEPS_MAX);
	sent(0, KVPULL_END_EXPIRED);
	/* The blocks belong to another request now. */
	memset(p.memory, 0xee, WORLD_BLOCKS * WORLD_BLOCK_BYTES);
	node_claim(&d, &p, SLOT);
	pulls();
	assert_int_equal(d.records[0].kind, KVPULL_POLL_FAILED);
	assert_int_equal(d.records[0].reason, KVPULL_EEXPIRED);
	node_release(&d);
	nothing_is_owed();
}

/*
 * A claimant keeps its hold for longer than a lease, by its heartbeats, while
 * its scheduler half makes steps.
 */
SEEDS_TEST(heartbeats_renew_a_lease, 3)
{
	uint32_t second;

	claimed(SLOT);
	for (second = 0; second < 12; second++) {
		node_send(&d, NULL);
		run(NULL, 0, KVPULL_NS_PER_S / STEP_NS);
	}
	assert_int_equal(p.count, 0);
	releases();
}

/* At any time after the claim, so with reads in flight, too. */
UNIT_TEST(restarted_producer_fails_old_tickets_and_serves_new_ones)
{
	uint32_t failures = 0;
	uint64_t seed;

	for (seed = 1; seed <= SEEDS; seed++) {
		both_open(seed);
		claimed(SLOT);
		node_pull(&d);
		run(NULL, 0, (uint32_t)seed % 30);
		node_close(&p);
		node_open(&p, p_name, 0xa2);
		run(&d, 1, STEPS_MAX);
		if (d.records[0].kind != KVPULL_POLL_LOADED) {
			assert_int_equal(d.records[0].kind, KVPULL_POLL_FAILED);
			assert_int_equal(d.records[0].reason, KVPULL_EPEER);
			failures++;
		}
		node_release(&d);
		/* Until it is sure that the old one will not come back. */
		run(NULL, 0, 2 * KVPULL_NS_PER_S / STEP_NS);
		d.count = 0;
		claimed(OTHER_SLOT);
		pulls();
		loaded(&d.records[0]);
		releases();
		both_close();
	}
	assert_in_range(failures, SEEDS / 4, SEEDS);
}

SEEDS_TEST(consumer_that_is_gone_releases_what_it_claimed, SEEDS)
{
	claimed(SLOT);
	pulls();
	node_close(&d);
	node_open(&d, d_name, 0xd2);
	run(&p, 1, STEPS_MAX);
	assert_int_equal(p.records[0].kind, KVPULL_POLL_SENT);
}
