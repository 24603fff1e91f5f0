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

static void writer_opens(size_t bytes, int code)
{
	assert_int_equal(
		kvpull_ring_writer_init(&fixture.writer, fixture.memory, bytes),
		code);
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
	writer_opens(MEMORY_BYTES, 0);
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

#define TEST(name) UNIT_TEST_WITH(name, setup, teardown)

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

/* Numbers from `first` on, up to `end`. */
static void push_all(uint64_t first, uint64_t end)
{
	for (; first < end; first++)
		assert_int_equal(push(first), 0);
}

static void pop_all(uint64_t first, uint64_t end)
{
	for (; first < end; first++)
		pop_expect(first);
}

static void ready(int records)
{
	assert_int_equal(kvpull_ring_ready(&fixture.ring), records);
}

/* So many records come, all that there are, from number 0 on. */
static void taken(uint32_t records)
{
	ready((int)records);
	pop_all(0, records);
}

TEST(bytes_are_those_of_words_and_slots)
{
	assert_int_equal(kvpull_ring_bytes(2), 640 + 2 * 32);
	assert_int_equal(kvpull_ring_bytes(KVPULL_RING_RECORDS_MAX),
			 640 + (size_t)32 * 1048576);
}

TEST(counts_that_are_no_power_of_two_in_bounds_are_refused)
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

TEST(unaligned_memory_is_refused)
{
	assert_int_equal(kvpull_ring_init(&fixture.ring, fixture.memory + 8, 2),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_ring_writer_init(&fixture.writer,
						 fixture.memory + 8,
						 MEMORY_BYTES - 8),
			 KVPULL_EPROTO);
}

TEST(writer_refuses_each_wrong_header_field)
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

TEST(writer_refuses_memory_that_is_too_short)
{
	static const size_t bytes[] = { 0, 24, KVPULL_RING_SLOTS_OFFSET - 1,
					KVPULL_RING_SLOTS_OFFSET,
					MEMORY_BYTES - 1 };
	uint32_t index;

	for (index = 0; index < sizeof(bytes) / sizeof(*bytes); index++)
		writer_opens(bytes[index], KVPULL_EPROTO);
	/* A segment is rounded up to a page: more is no error. */
	writer_opens(MEMORY_BYTES + 4096, 0);
}

TEST(writer_refuses_counters_that_cannot_be)
{
	static const uint64_t tails[] = { COUNT + 1, UINT64_MAX,
					  UINT64_C(1) << 63 };
	uint32_t index;

	for (index = 0; index < sizeof(tails) / sizeof(*tails); index++) {
		shared_set(KVPULL_RING_TAIL_OFFSET, tails[index]);
		writer_opens(MEMORY_BYTES, KVPULL_EPROTO);
	}
}

TEST(records_come_in_order_and_unchanged)
{
	push_all(0, 5);
	taken(5);
	ready(0);
}

TEST(full_ring_refuses_and_loses_nothing)
{
	push_all(0, COUNT);
	assert_int_equal(push(99), KVPULL_EAGAIN);
	assert_int_equal(push(99), KVPULL_EAGAIN);
	taken(COUNT);
}

TEST(popped_slots_come_back_at_pop_end)
{
	push_all(0, COUNT);
	ready(COUNT);
	pop_all(0, 2);
	assert_int_equal(push(COUNT), KVPULL_EAGAIN);
	kvpull_ring_pop_end(&fixture.ring);
	assert_int_equal(push(COUNT), 0);
	assert_int_equal(push(COUNT + 1), 0);
	assert_int_equal(push(COUNT + 2), KVPULL_EAGAIN);
	pop_all(2, COUNT);
	ready(2);
	pop_expect(COUNT);
	pop_expect(COUNT + 1);
}

/* Every fill level at every place, on both sides of the counters' wrap. */
TEST(peek_tells_the_slot_that_a_later_pop_gives)
{
	struct kvpull_record record;
	uint32_t at;

	open_at(UINT64_MAX - 2);
	for (at = 0; at < COUNT; at++)
		assert_int_equal(push(100 + at), 0);
	ready(COUNT);
	for (at = 0; at < COUNT; at++)
		assert_int_equal(kvpull_ring_peek_slot(&fixture.ring, at),
				 100 + at);
	kvpull_ring_pop(&fixture.ring, &record);
	assert_int_equal(kvpull_ring_peek_slot(&fixture.ring, 1), 102);
}

TEST(counters_wrap_without_a_seam)
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
		ready((int)level);
		while (popped != pushed)
			pop_expect(popped++);
		kvpull_ring_pop_end(&fixture.ring);
	}
	assert_true(pushed < start);
	for (level = 0; level < COUNT; level++)
		assert_int_equal(push(pushed++), 0);
	assert_int_equal(push(pushed), KVPULL_EAGAIN);
}

TEST(full_at_the_wrap_is_full)
{
	uint64_t start;

	for (start = 0 - (uint64_t)COUNT; start; start++) {
		open_at(start);
		push_all(0, COUNT);
		assert_int_equal(push(COUNT), KVPULL_EAGAIN);
		taken(COUNT);
	}
}

TEST(reader_refuses_a_tail_that_cannot_be)
{
	static const uint64_t tails[] = { COUNT + 3, UINT64_MAX, 1,
					  UINT64_C(1) << 32,
					  UINT64_C(1) << 63 };
	uint32_t index;

	push_all(0, 2);
	taken(2);
	kvpull_ring_pop_end(&fixture.ring);
	for (index = 0; index < sizeof(tails) / sizeof(*tails); index++) {
		shared_set(KVPULL_RING_TAIL_OFFSET, tails[index]);
		ready(KVPULL_EPROTO);
		/* The reader does not sleep on a broken ring. */
		assert_int_equal(kvpull_ring_arm(&fixture.ring), 1);
	}
}

TEST(reader_ignores_the_shared_head)
{
	static const uint64_t heads[] = { 1, COUNT, UINT64_MAX,
					  UINT64_C(1) << 63 };
	uint32_t index;

	for (index = 0; index < sizeof(heads) / sizeof(*heads); index++) {
		open_at(0);
		assert_int_equal(push(7), 0);
		shared_set(KVPULL_RING_HEAD_OFFSET, heads[index]);
		ready(1);
		pop_expect(7);
		kvpull_ring_pop_end(&fixture.ring);
		assert_int_equal(shared_get(KVPULL_RING_HEAD_OFFSET), 1);
	}
}

TEST(reader_ignores_a_header_that_changes_later)
{
	uint64_t number;

	memset(fixture.memory, 0xff, 128);
	for (number = 0; number < 3 * COUNT; number++) {
		assert_int_equal(push(number), 0);
		ready(1);
		pop_expect(number);
		kvpull_ring_pop_end(&fixture.ring);
	}
}

TEST(writer_takes_a_head_that_cannot_be_for_a_full_ring)
{
	static const uint64_t heads[] = { COUNT + 1, UINT64_MAX - COUNT,
					  UINT64_MAX, UINT64_C(1) << 63 };
	uint32_t index;

	push_all(0, COUNT);
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
TEST(scribbled_counters_reach_nothing_outside)
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

TEST(busy_writer_cannot_lengthen_a_batch)
{
	assert_int_equal(push(0), 0);
	ready(1);
	assert_int_equal(push(1), 0);
	pop_expect(0);
	assert_int_equal(fixture.ring.tail - fixture.ring.head, 0);
	ready(1);
}

TEST(untaken_records_are_counted)
{
	open_at(UINT64_MAX - 2);
	push_all(0, 6);
	ready(6);
	pop_all(0, 2);
	assert_int_equal(kvpull_ring_open_count(&fixture.writer), 6);
	kvpull_ring_pop_end(&fixture.ring);
	assert_int_equal(kvpull_ring_open_count(&fixture.writer), 4);
}

TEST(next_writer_goes_on_where_the_last_one_died)
{
	struct kvpull_ring_writer next;
	const struct kvpull_record record = record_of(2);

	push_all(0, 2);
	/*
	 * The writer died between the slot and R0: the record was never there.
	 */
	memset(fixture.memory + KVPULL_RING_SLOTS_OFFSET + 2 * 32, 0x5a, 32);
	assert_int_equal(
		kvpull_ring_writer_init(&next, fixture.memory, MEMORY_BYTES),
		0);
	ready(2);
	assert_int_equal(kvpull_ring_push(&next, &record), 0);
	taken(3);
}

TEST(beat_is_seen_once)
{
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 0);
	kvpull_ring_beat(&fixture.writer);
	kvpull_ring_beat(&fixture.writer);
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 1);
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 0);
	/* Heartbeats take no slot and ring no bell. */
	ready(0);
	shared_set(KVPULL_RING_BEAT_OFFSET, UINT64_MAX);
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 1);
	kvpull_ring_beat(&fixture.writer);
	assert_int_equal(kvpull_ring_beat_seen(&fixture.ring), 1);
}

TEST(sleeping_reader_costs_one_doorbell)
{
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 0);
	assert_int_equal(push(0), 1);
	assert_int_equal(push(1), 0);
	assert_int_equal(sleeping(), 0);
}

TEST(awake_reader_costs_no_doorbell)
{
	assert_int_equal(push(0), 0);
	ready(1);
	pop_expect(0);
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 0);
	assert_int_equal(sleeping(), 1);
	kvpull_ring_disarm(&fixture.ring);
	assert_int_equal(push(1), 0);
	kvpull_ring_disarm(&fixture.ring);
}

TEST(reader_does_not_sleep_over_records)
{
	assert_int_equal(push(0), 0);
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 1);
	assert_int_equal(sleeping(), 0);
	assert_int_equal(push(1), 0);
	ready(2);
	pop_expect(0);
	/* Also over one that it left. */
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 1);
	pop_expect(1);
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 0);
	assert_int_equal(kvpull_ring_arm(&fixture.ring), 0);
}

TEST(refused_push_rings_no_bell)
{
	push_all(0, COUNT);
	shared_set(KVPULL_RING_SLEEPING_OFFSET, 1);
	assert_int_equal(push(COUNT), KVPULL_EAGAIN);
	assert_int_equal(sleeping(), 1);
}
