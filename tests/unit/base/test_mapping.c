/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads on one mapping: whoever reads under a pin sees memory that is
 * there, whole, and the owner takes it away only afterwards. Under TSan each of
 * the orderings of mapping.h counts.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/mapping.h"
#include "tests/lib/unit.h"

#define WORDS 64u
#define ROUNDS 5000u

struct shared {
	struct kvpull_mapping mapping;
	uint64_t words[WORDS]; /* all alike; 0: unmapped */
	_Atomic uint32_t stop;
	_Atomic uint32_t runs; /* the reader */
	_Atomic uint32_t reads;
	uint64_t wrong;
};

static void *reader_main(void *argument)
{
	struct shared *shared = argument;

	atomic_store_explicit(&shared->runs, 1, memory_order_relaxed);
	while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
		uint64_t first;
		uint32_t at;

		if (!kvpull_mapping_take(&shared->mapping)) {
			(void)sched_yield();
			continue;
		}
		first = shared->words[0];
		shared->wrong += !first;
		for (at = 1; at < WORDS; at++)
			shared->wrong += shared->words[at] != first;
		atomic_fetch_add_explicit(&shared->reads, 1,
					  memory_order_relaxed);
		kvpull_mapping_give(&shared->mapping);
	}
	return NULL;
}

static void words_set(struct shared *shared, uint64_t value)
{
	uint32_t at;

	for (at = 0; at < WORDS; at++)
		shared->words[at] = value;
}

UNIT_TEST(memory_goes_after_the_pin)
{
	static struct shared shared;
	pthread_t reader;
	uint64_t round;

	assert_int_equal(pthread_create(&reader, NULL, reader_main, &shared),
			 0);
	while (!atomic_load_explicit(&shared.runs, memory_order_relaxed))
		(void)sched_yield();
	for (round = 1;
	     round <= ROUNDS ||
	     !atomic_load_explicit(&shared.reads, memory_order_relaxed);
	     round++) {
		words_set(&shared, round);
		kvpull_mapping_open(&shared.mapping);
		if (round % 4 == 0)
			(void)sched_yield();
		kvpull_mapping_close(&shared.mapping);
		while (!kvpull_mapping_is_free(&shared.mapping))
			(void)sched_yield();
		words_set(&shared, 0);
	}
	atomic_store_explicit(&shared.stop, 1, memory_order_relaxed);
	assert_int_equal(pthread_join(reader, NULL), 0);
	assert_int_equal(shared.wrong, 0);
	assert_true(shared.reads > 0);
}

UNIT_TEST(closed_mapping_is_not_pinned)
{
	struct kvpull_mapping mapping = { 0 };

	assert_false(kvpull_mapping_take(&mapping));
	kvpull_mapping_open(&mapping);
	assert_true(kvpull_mapping_is_open(&mapping));
	assert_true(kvpull_mapping_take(&mapping));
	kvpull_mapping_close(&mapping);
	assert_false(kvpull_mapping_is_open(&mapping));
	assert_false(kvpull_mapping_is_free(&mapping));
	kvpull_mapping_give(&mapping);
	assert_true(kvpull_mapping_is_free(&mapping));
	assert_false(kvpull_mapping_take(&mapping));
}
