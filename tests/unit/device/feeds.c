/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/device/feeds.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/lines.h"
#include "tests/lib/unit.h"
#include "tests/unit/device/table.h"

#define STEPS_MAX 100000u
#define START_NS KVPULL_NS_PER_S

struct feeds feeds;

int feed_begin(uint64_t bytes_per_ms)
{
	const struct kvpull_device_limits limits = {
		.job_max = JOBS,
		.mapping_max = MAPPINGS,
		.mark_max = MARKS,
		.bytes_per_ms = bytes_per_ms,
	};

	memset(&feeds, 0, sizeof(feeds));
	table_clear();
	lines_forget();
	feeds.now_ns = START_NS;
	kvpull_arena_init(&feeds.arena, &lines_log);
	feeds.feed.log = &lines_log;
	feeds.feed.wake_fd = -1;
	assert_int_equal(kvpull_device_feed_init(&feeds.feed, &limits,
						 &feeds.orders, &feeds.ends,
						 &feeds.arena),
			 0);
	assert_int_equal(
		table_open(&feeds.arena, &lines_log, 0, &feeds.feed.device), 0);
	return kvpull_device_feed_open(&feeds.feed, feeds.now_ns);
}

void feed_open(uint64_t bytes_per_ms)
{
	assert_int_equal(feed_begin(bytes_per_ms), 0);
	mapped(0, 4096 * MIB);
}

void feed_end(void)
{
	table_reach_all();
	while (kvpull_device_feed_see(&feeds.feed, feeds.now_ns))
		;
	assert_int_equal(kvpull_device_feed_close(&feeds.feed, feeds.now_ns),
			 0);
	assert_true(table.is_closed);
	kvpull_arena_fini(&feeds.arena);
}

void feed_lost(void)
{
	assert_int_equal(kvpull_device_feed_close(&feeds.feed, feeds.now_ns),
			 1);
	assert_false(table.is_closed);
	kvpull_arena_fini(&feeds.arena);
}

void order(enum kvpull_device_kind kind, uint32_t index)
{
	const struct kvpull_record record = { .kind = kind, .slot = index };

	assert_true(kvpull_ring_push(&feeds.orders, &record) >= 0);
}

void steps(void)
{
	uint32_t left = STEPS_MAX;

	while (kvpull_device_feed_step(&feeds.feed, feeds.now_ns) ==
	       KVPULL_DEVICE_AGAIN)
		assert_true(left--);
}

void steps_for(uint64_t ns)
{
	while (ns) {
		const uint64_t part_ns =
			ns < KVPULL_NS_PER_S ? ns : KVPULL_NS_PER_S;

		feeds.now_ns += part_ns;
		ns -= part_ns;
		steps();
	}
}

void all_reached(void)
{
	do {
		table_reach_all();
		steps();
	} while (feeds.feed.slice_count);
}

uint32_t end_take(enum kvpull_device_kind kind, int code)
{
	struct kvpull_record record;
	const int ready = kvpull_ring_ready(&feeds.ends);

	assert_true(ready >= 0);
	if (!ready)
		return KVPULL_NONE;
	kvpull_ring_pop(&feeds.ends, &record);
	kvpull_ring_pop_end(&feeds.ends);
	assert_int_equal(record.kind, kind);
	assert_int_equal((int32_t)(uint32_t)record.extra, code);
	return record.slot;
}

int no_end(void)
{
	return kvpull_ring_ready(&feeds.ends) == 0;
}

void job_ends(int code)
{
	all_reached();
	assert_int_equal(end_take(KVPULL_DEVICE_COPY, code), 0);
}

void mapping_order(uint32_t mapping, uint64_t bytes)
{
	feeds.feed.mappings[mapping].fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	feeds.feed.mappings[mapping].memory.bytes = bytes;
	order(KVPULL_DEVICE_IMPORT, mapping);
}

void mapped(uint32_t mapping, uint64_t bytes)
{
	mapping_order(mapping, bytes);
	steps();
	assert_int_equal(end_take(KVPULL_DEVICE_IMPORT, 0), mapping);
}

struct kvpull_device_job *job_order(uint32_t index, uint32_t mapping,
				    uint32_t blocks, uint64_t bytes)
{
	struct kvpull_device_job *const job = &feeds.jobs[index];

	reads_make(&feeds.reads[index], index, blocks, bytes);
	feeds.regions[index] =
		(struct kvpull_device_region){ .mapping = mapping };
	job->read = &feeds.reads[index].read;
	job->regions = &feeds.regions[index];
	job->region_count = 1;
	feeds.feed.copies[index].job = job;
	order(KVPULL_DEVICE_COPY, index);
	return job;
}

uint32_t errors_logged(void)
{
	return lines.counts[KVPULL_LOG_ERROR];
}
