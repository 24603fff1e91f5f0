/* SPDX-License-Identifier: Apache-2.0 */
/* Orders drawn from a seed: all of them end, none too early. */
#include "tests/unit/device/feeds.h"

#include <string.h>

#include "tests/lib/random.h"
#include "tests/lib/unit.h"
#include "tests/unit/device/table.h"

enum mapping_state {
	MAPPING_FREE = 0,
	MAPPING_TAKEN,
	MAPPING_LEAVING
};

static struct {
	uint64_t seed;
	uint32_t is_busy[JOBS];
	uint32_t is_cancelled[JOBS];
	enum mapping_state states[MAPPINGS];
	uint32_t ended; /* jobs */
} random_owner;

static uint32_t drawn(uint32_t below)
{
	return (uint32_t)(random_next(&random_owner.seed) >> 32) % below;
}

/* Each end is that of an order, and has its code. */
static void random_ends(void)
{
	struct kvpull_record record;

	while (kvpull_ring_ready(&feeds.ends) > 0) {
		kvpull_ring_pop(&feeds.ends, &record);
		kvpull_ring_pop_end(&feeds.ends);
		if (record.kind == KVPULL_DEVICE_UNMAP) {
			assert_int_equal(random_owner.states[record.slot],
					 MAPPING_LEAVING);
			random_owner.states[record.slot] = MAPPING_FREE;
		}
		if (record.kind != KVPULL_DEVICE_COPY)
			continue;
		assert_true(random_owner.is_busy[record.slot]);
		assert_true(!record.extra ||
			    random_owner.is_cancelled[record.slot]);
		random_owner.is_busy[record.slot] = 0;
		random_owner.ended++;
	}
}

static void random_job(uint32_t index, uint32_t mapping)
{
	struct kvpull_device_job *job;

	if (random_owner.is_busy[index] ||
	    random_owner.states[mapping] != MAPPING_TAKEN)
		return;
	job = job_order(index, mapping, drawn(12), MIB / 2);
	if (!drawn(3))
		job->after = table_mark();
	random_owner.is_busy[index] = 1;
	random_owner.is_cancelled[index] = 0;
}

static void random_order(void)
{
	const uint32_t mapping = drawn(MAPPINGS);
	const uint32_t index = drawn(JOBS);

	switch (drawn(8)) {
	case 0:
		if (random_owner.states[mapping] != MAPPING_FREE)
			break;
		random_owner.states[mapping] = MAPPING_TAKEN;
		mapping_order(mapping, 4096 * MIB);
		break;
	case 1:
		if (random_owner.states[mapping] != MAPPING_TAKEN)
			break;
		random_owner.states[mapping] = MAPPING_LEAVING;
		order(KVPULL_DEVICE_UNMAP, mapping);
		break;
	case 2:
		if (!random_owner.is_busy[index] ||
		    random_owner.is_cancelled[index])
			break;
		random_owner.is_cancelled[index] = 1;
		order(KVPULL_DEVICE_CANCEL, index);
		break;
	default:
		random_job(index, mapping);
		break;
	}
}

/* The table ends a program that unmaps, or uses an event, too early. */
static void orders_drawn(uint64_t seed)
{
	uint32_t at;

	assert_int_equal(feed_begin(MIB), 0);
	memset(&random_owner, 0, sizeof(random_owner));
	random_owner.seed = seed;
	for (at = 0; at < 2000; at++) {
		if (!drawn(3))
			random_order();
		if (!drawn(2) && table.queued > table.reached)
			table_reach(1);
		(void)kvpull_device_feed_step(&feeds.feed, feeds.now_ns);
		random_ends();
	}
	all_reached();
	random_ends();
	for (at = 0; at < JOBS; at++)
		assert_false(random_owner.is_busy[at]);
	for (at = 0; at < MAPPINGS; at++)
		assert_int_not_equal(random_owner.states[at], MAPPING_LEAVING);
	assert_true(random_owner.ended > 20);
	feed_end();
}

UNIT_TEST(orders_in_any_order_all_end)
{
	uint64_t seed;

	for (seed = 1; seed <= 50; seed++)
		orders_drawn(seed * 7919);
}
