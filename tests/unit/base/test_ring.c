/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm/ring by one thread: what each end does, across the wrap of the counters,
 * and with a peer that lies. The orderings are tests/stress/ring_stress.c's.
 */

#include <stdatomic.h>
#include <string.h>

#include "base/ring.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define COUNT 8u
#define GUARD_BYTES 4096u
#define GUARD_BYTE 0xa5
#define MEMORY_BYTES (KVPULL_RING_SLOTS_OFFSET + COUNT * 32u)

struct fixture {
	_Alignas(64) uint8_t before[GUARD_BYTES];
	_Alignas(64) uint8_t memory[MEMORY_BYTES];
	_Alignas(64) uint8_t after[GUARD_BYTES];
	struct kvpull_ring ring;
	struct kvpull_ring_writer writer;
};

static struct fixture fixture;

/* A word of the shared part, as a hostile peer reaches it. */
static void shared_set(uint32_t offset, uint64_t value)
{
	_Atomic uint64_t *word = (void *)(fixture.memory + offset);

	atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t shared_get(uint32_t offset)
{
	const _Atomic uint64_t *word = (const void *)(fixture.memory + offset);

	return atomic_load_explicit(word, memory_order_relaxed);
}

static uint32_t sleeping(void)
{
	const _Atomic uint32_t *word =
		(const void *)(fixture.memory + KVPULL_RING_SLEEPING_OFFSET);

	return atomic_load_explicit(word, memory_order_relaxed);
}

/* Both ends, with counters that start at `start`. */
static void open_at(uint64_t start)
{
	memset(&fixture, 0, sizeof(fixture));
	memset(fixture.before, GUARD_BYTE, sizeof(fixture.before));
	memset(fixture.after, GUARD_BYTE, sizeof(fixture.after));
	assert_int_equal(kvpull_ring_init(&fixture.ring, fixture.memory, COUNT),
			 0);
	fixture.ring.head = start;
	shared_set(KVPULL_RING_HEAD_OFFSET, start);
	shared_set(KVPULL_RING_TAIL_OFFSET, start);
	assert_int_equal(kvpull_ring_writer_init(&fixture.writer,
						 fixture.memory, MEMORY_BYTES),
			 0);
}

static int setup(void **state)
{
	(void)state;
	open_at(0);
	return 0;
}

static int teardown(void **state)
{
	uint32_t at;

	(void)state;
	for (at = 0; at < GUARD_BYTES; at++) {
		assert_int_equal(fixture.before[at], GUARD_BYTE);
		assert_int_equal(fixture.after[at], GUARD_BYTE);
	}
	return 0;
}

static struct kvpull_record record_of(uint64_t number)
{
	return (struct kvpull_record){
		.kind = KVPULL_NOTE_CLAIM,
		.slot = (uint32_t)number,
		.generation = number * 3 + 1,
		.tag = ~number,
		.extra = number << 7,
	};
}

static int push(uint64_t number)
{
	const struct kvpull_record record = record_of(number);

	return kvpull_ring_push(&fixture.writer, &record);
}

static void assert_record(const struct kvpull_record *record, uint64_t number)
{
	const struct kvpull_record expected = record_of(number);

	assert_memory_equal(record, &expected, sizeof(expected));
}

static void pop_expect(uint64_t number)
{
	struct kvpull_record record;

	kvpull_ring_pop(&fixture.ring, &record);
	assert_record(&record, number);
}

UNIT_TEST_WITH(bytes_are_those_of_words_and_slots, setup, teardown)
{
	assert_int_equal(kvpull_ring_bytes(2), 640 + 2 * 32);
	assert_int_equal(kvpull_ring_bytes(KVPULL_RING_RECORDS_MAX),
			 640 + (size_t)32 * 1048576);
}

UNIT_TEST_WITH(counts_that_are_no_power_of_two_in_bounds_are_refused, setup,
	       teardown)
{
	static const uint32_t counts[] = { 0,       1,       3,           6,
					   1048575, 2097152, 0x80000000u, ~0u };
	struct kvpull_ring ring;
	uint32_t index;

	for (index = 0; index < sizeof(counts) / sizeof(*counts); index++) {
		assert_int_equal(kvpull_ring_bytes(counts[index]), 0);
		assert_int_equal(
			kvpull_ring_init(&ring, fixture.memory, counts[index]),
			KVPULL_EINVAL);
	}
}

UNIT_TEST_WITH(unaligned_memory_is_refused, setup, teardown)
{
	assert_int_equal(kvpull_ring_init(&fixture.ring, fixture.memory + 8, 2),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_ring_writer_init(&fixture.writer,
						 fixture.memory + 8,
						 MEMORY_BYTES - 8),
			 KVPULL_EPROTO);
}

UNIT_TEST_WITH(writer_refuses_each_wrong_header_field, setup, teardown)
{
	static const struct {
		uint32_t offset;
		uint32_t value;
	} wrongs[] = {
		{ 0, KVPULL_RING_MAGIC + 1 },
		{ 4, KVPULL_RING_VERSION + 1 },
		{ 8, 2 * COUNT },
		{ 8, COUNT / 2 },
		{ 8, 0 },
		{ 8, COUNT - 1 },
		{ 8, 0x80000000u },
		{ 12, 64 },
		{ 16, MEMORY_BYTES + 32 },
		{ 16, MEMORY_BYTES - 32 },
		{ 16, 0 },
		{ 20, 1 },
	};
	struct kvpull_ring_writer writer = { 0 };
	uint32_t index;

	for (index = 0; index < sizeof(wrongs) / sizeof(*wrongs); index++) {
		open_at(0);
		memcpy(fixture.memory + wrongs[index].offset,
		       &wrongs[index].value, sizeof(uint32_t));
		assert_int_equal(kvpull_ring_writer_init(
					 &writer, fixture.memory, MEMORY_BYTES),
				 KVPULL_EPROTO);
		assert_null(writer.shared);
	}
}

UNIT_TEST_WITH(writer_refuses_memory_that_is_too_short, setup, teardown)
{
	static const size_t bytes[] = { 0, 24, KVPULL_RING_SLOTS_OFFSET - 1,
					KVPULL_RING_SLOTS_OFFSET,
					MEMORY_BYTES - 1 };
	uint32_t index;

	for (index = 0; index < sizeof(bytes) / sizeof(*bytes); index++)
		assert_int_equal(kvpull_ring_writer_init(&fixture.writer,
							 fixture.memory,
							 bytes[index]),
				 KVPULL_EPROTO);
	/* A segment is rounded up to a page: more is no error. */
	assert_int_equal(kvpull_ring_writer_init(&fixture.writer,
						 fixture.memory,
						 MEMORY_BYTES + 4096),
			 0);
}

UNIT_TEST_WITH(writer_refuses_counters_that_cannot_be, setup, teardown)
{
	static const uint64_t tails[] = { COUNT + 1, UINT64_MAX,
					  UINT64_C(1) << 63 };
	uint32_t index;

	for (index = 0; index < sizeof(tails) / sizeof(*tails); index++) {
		shared_set(KVPULL_RING_TAIL_OFFSET, tails[index]);
		assert_int_equal(kvpull_ring_writer_init(&fixture.writer,
							 fixture.memory,
							 MEMORY_BYTES),
				 KVPULL_EPROTO);
	}
}

UNIT_TEST_WITH(records_come_in_order_and_unchanged, setup, teardown)
{
	uint64_t number;

	for (number = 0; number < 5; number++)
		assert_int_equal(push(number), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 5);
	for (number = 0; number < 5; number++)
		pop_expect(number);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 0);
}

UNIT_TEST_WITH(full_ring_refuses_and_loses_nothing, setup, teardown)
{
	uint64_t number;

	for (number = 0; number < COUNT; number++)
		assert_int_equal(push(number), 0);
	assert_int_equal(push(99), KVPULL_EAGAIN);
	assert_int_equal(push(99), KVPULL_EAGAIN);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), COUNT);
	for (number = 0; number < COUNT; number++)
		pop_expect(number);
}

UNIT_TEST_WITH(popped_slots_come_back_at_pop_end, setup, teardown)
{
	uint64_t number;

	for (number = 0; number < COUNT; number++)
		assert_int_equal(push(number), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), COUNT);
	pop_expect(0);
	pop_expect(1);
	assert_int_equal(push(COUNT), KVPULL_EAGAIN);
	kvpull_ring_pop_end(&fixture.ring);
	assert_int_equal(push(COUNT), 0);
	assert_int_equal(push(COUNT + 1), 0);
	assert_int_equal(push(COUNT + 2), KVPULL_EAGAIN);
	for (number = 2; number < COUNT; number++)
		pop_expect(number);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 2);
	pop_expect(COUNT);
	pop_expect(COUNT + 1);
}

/* Every fill level at every place, on both sides of the counters' wrap. */
UNIT_TEST_WITH(peek_tells_the_slot_that_a_later_pop_gives, setup, teardown)
{
	struct kvpull_record record;
	uint32_t at;

	open_at(UINT64_MAX - 2);
	for (at = 0; at < COUNT; at++)
		assert_int_equal(push(100 + at), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), COUNT);
	for (at = 0; at < COUNT; at++)
		assert_int_equal(kvpull_ring_peek_slot(&fixture.ring, at),
				 100 + at);
	kvpull_ring_pop(&fixture.ring, &record);
	assert_int_equal(kvpull_ring_peek_slot(&fixture.ring, 1), 102);
}

UNIT_TEST_WITH(counters_wrap_without_a_seam, setup, teardown)
{
	const uint64_t start = UINT64_MAX - 3 * COUNT;
	uint64_t pushed = start;
	uint64_t popped = start;
	uint32_t level;
	uint32_t step;

	open_at(start);
	for (step = 0; step < 20; step++) {
		for (level = 0; level < 1 + step % COUNT; level++)
			assert_int_equal(push(pushed++), 0);
		assert_int_equal(kvpull_ring_open_count(&fixture.writer),
				 level);
		assert_int_equal(kvpull_ring_ready(&fixture.ring), level);
		while (popped != pushed)
			pop_expect(popped++);
		kvpull_ring_pop_end(&fixture.ring);
	}
	assert_true(pushed < start);
	for (level = 0; level < COUNT; level++)
		assert_int_equal(push(pushed++), 0);
	assert_int_equal(push(pushed), KVPULL_EAGAIN);
}

UNIT_TEST_WITH(full_at_the_wrap_is_full, setup, teardown)
{
	uint64_t start;
	uint64_t number;

	for (start = 0 - (uint64_t)COUNT; start; start++) {
		open_at(start);
		for (number = 0; number < COUNT; number++)
			assert_int_equal(push(number), 0);
		assert_int_equal(push(number), KVPULL_EAGAIN);
		assert_int_equal(kvpull_ring_ready(&fixture.ring), COUNT);
		for (number = 0; number < COUNT; number++)
			pop_expect(number);
	}
}

UNIT_TEST_WITH(reader_refuses_a_tail_that_cannot_be, setup, teardown)
{
	static const uint64_t tails[] = { COUNT + 3, UINT64_MAX, 1,
					  UINT64_C(1) << 32,
					  UINT64_C(1) << 63 };
	uint32_t index;

	assert_int_equal(push(0), 0);
	assert_int_equal(push(1), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 2);
	pop_expect(0);
	pop_expect(1);
	kvpull_ring_pop_end(&fixture.ring);
	for (index = 0; index < sizeof(tails) / sizeof(*tails); index++) {
		shared_set(KVPULL_RING_TAIL_OFFSET, tails[index]);
		assert_int_equal(kvpull_ring_ready(&fixture.ring),
				 KVPULL_EPROTO);
		/* The reader does not sleep on a broken ring. */
		assert_int_equal(kvpull_ring_arm(&fixture.ring), 1);
	}
}

UNIT_TEST_WITH(reader_ignores_the_shared_head, setup, teardown)
{
	static const uint64_t heads[] = { 1, COUNT, UINT64_MAX,
					  UINT64_C(1) << 63 };
	uint32_t index;

	for (index = 0; index < sizeof(heads) / sizeof(*heads); index++) {
		open_at(0);
		assert_int_equal(push(7), 0);
		shared_set(KVPULL_RING_HEAD_OFFSET, heads[index]);
		assert_int_equal(kvpull_ring_ready(&fixture.ring), 1);
		pop_expect(7);
		kvpull_ring_pop_end(&fixture.ring);
		assert_int_equal(shared_get(KVPULL_RING_HEAD_OFFSET), 1);
	}
}

UNIT_TEST_WITH(reader_ignores_a_header_that_changes_later, setup, teardown)
{
	uint64_t number;

	memset(fixture.memory, 0xff, 128);
	for (number = 0; number < 3 * COUNT; number++) {
		assert_int_equal(push(number), 0);
		assert_int_equal(kvpull_ring_ready(&fixture.ring), 1);
		pop_expect(number);
		kvpull_ring_pop_end(&fixture.ring);
	}
}

UNIT_TEST_WITH(writer_takes_a_head_that_cannot_be_for_a_full_ring, setup,
	       teardown)
{
	static const uint64_t heads[] = { COUNT + 1, UINT64_MAX - COUNT,
					  UINT64_MAX, UINT64_C(1) << 63 };
	uint64_t number;
	uint32_t index;

	for (number = 0; number < COUNT; number++)
		assert_int_equal(push(number), 0);
	for (index = 0; index < sizeof(heads) / sizeof(*heads); index++) {
		shared_set(KVPULL_RING_HEAD_OFFSET, heads[index]);
		assert_int_equal(push(99), KVPULL_EAGAIN);
		assert_int_equal(kvpull_ring_open_count(&fixture.writer),
				 COUNT);
	}
	shared_set(KVPULL_RING_HEAD_OFFSET, COUNT);
	assert_int_equal(push(99), 0);
}

/* A peer that scribbles at random: neither end leaves its slots (guards). */
UNIT_TEST_WITH(scribbled_counters_reach_nothing_outside, setup, teardown)
{
	uint64_t random = 88172645463325252u;
	struct kvpull_record record;
	uint32_t step;
	int ready;

	for (step = 0; step < 20000; step++) {
		(void)random_next(&random);
		if (random & 1)
			shared_set(KVPULL_RING_HEAD_OFFSET, random >> 20);
		if (random & 2)
			shared_set(KVPULL_RING_TAIL_OFFSET,
				   fixture.ring.head + (random >> 60));
		if (random & 4)
			(void)push(random);
		ready = kvpull_ring_ready(&fixture.ring);
		assert_true(ready == KVPULL_EPROTO ||
			    (ready >= 0 && ready <= (int)COUNT));
		for (; ready > 0; ready--)
			kvpull_ring_pop(&fixture.ring, &record);
		kvpull_ring_pop_end(&fixture.ring);
		assert_true(kvpull_ring_open_count(&fixture.writer) <= COUNT);
	}
}

UNIT_TEST_WITH(busy_writer_cannot_lengthen_a_batch, setup, teardown)
{
	assert_int_equal(push(0), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 1);
	assert_int_equal(push(1), 0);
	pop_expect(0);
	assert_int_equal(fixture.ring.tail - fixture.ring.head, 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 1);
}

UNIT_TEST_WITH(untaken_records_are_counted, setup, teardown)
{
	uint64_t number;

	open_at(UINT64_MAX - 2);
	for (number = 0; number < 6; number++)
		assert_int_equal(push(number), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 6);
	pop_expect(0);
	pop_expect(1);
	assert_int_equal(kvpull_ring_open_count(&fixture.writer), 6);
	kvpull_ring_pop_end(&fixture.ring);
	assert_int_equal(kvpull_ring_open_count(&fixture.writer), 4);
}

UNIT_TEST_WITH(next_writer_goes_on_where_the_last_one_died, setup, teardown)
{
	struct kvpull_ring_writer next;
	const struct kvpull_record record = record_of(2);

	assert_int_equal(push(0), 0);
	assert_int_equal(push(1), 0);
	/*
	 * The writer died between the slot and R0: the record was never there.
	 */
	memset(fixture.memory + KVPULL_RING_SLOTS_OFFSET + 2 * 32, 0x5a, 32);
	assert_int_equal(
		kvpull_ring_writer_init(&next, fixture.memory, MEMORY_BYTES),
		0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 2);
	assert_int_equal(kvpull_ring_push(&next, &record), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 3);
	pop_expect(0);
	pop_expect(1);
	pop_expect(2);
}

UNIT_TEST_WITH(beat_is_seen_once, setup, teardown)
{
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 0);
	kvpull_ring_beat(&fixture.writer);
	kvpull_ring_beat(&fixture.writer);
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 1);
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 0);
	/* Heartbeats take no slot and ring no bell. */
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 0);
	shared_set(KVPULL_RING_BEAT_OFFSET, UINT64_MAX);
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 1);
	kvpull_ring_beat(&fixture.writer);
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 1);
}

UNIT_TEST_WITH(sleeping_reader_costs_one_doorbell, setup, teardown)
{
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 0);
	assert_int_equal(push(0), 1);
	assert_int_equal(push(1), 0);
	assert_int_equal(sleeping(), 0);
}

UNIT_TEST_WITH(awake_reader_costs_no_doorbell, setup, teardown)
{
	assert_int_equal(push(0), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 1);
	pop_expect(0);
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 0);
	assert_int_equal(sleeping(), 1);
	kvpull_ring_disarm(&fixture.ring);
	assert_int_equal(push(1), 0);
	kvpull_ring_disarm(&fixture.ring);
}

UNIT_TEST_WITH(reader_does_not_sleep_over_records, setup, teardown)
{
	assert_int_equal(push(0), 0);
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 1);
	assert_int_equal(sleeping(), 0);
	assert_int_equal(push(1), 0);
	assert_int_equal(kvpull_ring_ready(&fixture.ring), 2);
	pop_expect(0);
	/* Also over one that it left. */
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 1);
	pop_expect(1);
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 0);
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 0);
}

UNIT_TEST_WITH(refused_push_rings_no_bell, setup, teardown)
{
	uint64_t number;

	for (number = 0; number < COUNT; number++)
		assert_int_equal(push(number), 0);
	shared_set(KVPULL_RING_SLEEPING_OFFSET, 1);
	assert_int_equal(push(number), KVPULL_EAGAIN);
	assert_int_equal(sleeping(), 1);
}

#define TEST(name) UNIT_TEST_WITH(name, setup, teardown)
