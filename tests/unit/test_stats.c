/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/abi/stats.h"

#define TEXT_BYTES 16384u
#define WORKER_COUNT 33u
#define SCHEDULER_COUNT 20u

static char text[TEXT_BYTES];

/* Member i of a struct is 1000 + i: a row with another's offset shows. */
static void worker_fill(struct kvpull_worker_stats *stats)
{
	uint64_t value;
	size_t i;

	for (i = 0; i < WORKER_COUNT; i++) {
		value = 1000 + i;
		memcpy((uint8_t *)stats + 8 + 8 * i, &value, 8);
	}
	stats->struct_size = sizeof(*stats);
}

static void scheduler_fill(struct kvpull_scheduler_stats *stats)
{
	uint64_t value;
	size_t i;

	for (i = 0; i < SCHEDULER_COUNT; i++) {
		value = 2000 + i;
		memcpy((uint8_t *)stats + 8 + 8 * i, &value, 8);
	}
	stats->struct_size = sizeof(*stats);
}

/* HELP, TYPE and value, three lines each, of one name; returns how many. */
static uint32_t text_parse(const char *half, uint64_t first)
{
	const char *line = text;
	char prefix[64];
	char name[64];
	char again[64];
	char type[16];
	unsigned long long value;
	int used;
	uint32_t rows = 0;

	(void)snprintf(prefix, sizeof(prefix), "kvpull_%s_", half);
	for (; *line; rows++) {
		assert_int_equal(sscanf(line, "# HELP %63s", name), 1);
		assert_int_equal(strncmp(name, prefix, strlen(prefix)), 0);
		line = strchr(line, '\n');
		assert_non_null(line);
		assert_int_equal(line[-1], '.');
		line++;
		assert_int_equal(sscanf(line, "# TYPE %63s %15s\n%n", again,
					type, &used),
				 2);
		assert_string_equal(name, again);
		line += used;
		assert_int_equal(
			sscanf(line, "%63s %llu\n%n", again, &value, &used), 2);
		assert_string_equal(name, again);
		assert_int_equal(value, first + rows);
		/* Prometheus' rule: counters, and they alone, end in _total. */
		assert_string_equal(type, strstr(name, "_total") ? "counter" :
								   "gauge");
		line += used;
	}
	return rows;
}

static void every_counter_of_a_worker_is_written_once(void **state)
{
	struct kvpull_worker_stats stats;
	size_t bytes;

	(void)state;
	worker_fill(&stats);
	bytes = kvpull_stats_text(&stats, NULL, text, sizeof(text));
	assert_int_equal(bytes, strlen(text));
	assert_int_equal(text_parse("worker", 1000), WORKER_COUNT);
	assert_non_null(strstr(text, "\nkvpull_worker_holds_live 1004\n"));
	assert_non_null(
		strstr(text, "\nkvpull_worker_pulled_bytes_total 1022\n"));
}

static void every_counter_of_a_scheduler_is_written_once(void **state)
{
	struct kvpull_scheduler_stats stats;

	(void)state;
	scheduler_fill(&stats);
	(void)kvpull_stats_text(NULL, &stats, text, sizeof(text));
	assert_int_equal(text_parse("scheduler", 2000), SCHEDULER_COUNT);
	assert_non_null(
		strstr(text, "\nkvpull_scheduler_resends_total 2019\n"));
}

static void both_halves_follow_each_other(void **state)
{
	static char one[TEXT_BYTES];
	struct kvpull_worker_stats worker;
	struct kvpull_scheduler_stats scheduler;
	size_t bytes;

	(void)state;
	worker_fill(&worker);
	scheduler_fill(&scheduler);
	bytes = kvpull_stats_text(&worker, NULL, one, sizeof(one));
	bytes += kvpull_stats_text(NULL, &scheduler, one + bytes,
				   sizeof(one) - bytes);
	assert_int_equal(
		kvpull_stats_text(&worker, &scheduler, text, sizeof(text)),
		bytes);
	assert_string_equal(text, one);
}

static void nothing_gives_an_empty_text(void **state)
{
	(void)state;
	text[0] = 'x';
	assert_int_equal(kvpull_stats_text(NULL, NULL, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	assert_int_equal(kvpull_stats_text(NULL, NULL, NULL, 0), 0);
}

static void text_is_cut_and_its_bytes_are_told(void **state)
{
	static char whole[TEXT_BYTES];
	struct kvpull_worker_stats stats;
	size_t bytes;
	size_t capacity;

	(void)state;
	worker_fill(&stats);
	bytes = kvpull_stats_text(&stats, NULL, whole, sizeof(whole));
	assert_int_equal(kvpull_stats_text(&stats, NULL, NULL, 0), bytes);
	for (capacity = 1; capacity <= bytes + 1; capacity++) {
		memset(text, 'x', capacity + 1);
		assert_int_equal(
			kvpull_stats_text(&stats, NULL, text, capacity), bytes);
		assert_int_equal(strlen(text), capacity - 1);
		assert_memory_equal(text, whole, capacity - 1);
		assert_int_equal(text[capacity], 'x');
	}
}

static void members_beyond_struct_size_are_left_out(void **state)
{
	struct kvpull_worker_stats stats;

	(void)state;
	worker_fill(&stats);
	stats.struct_size = 8 + 8 * 5 + 7;
	(void)kvpull_stats_text(&stats, NULL, text, sizeof(text));
	assert_int_equal(text_parse("worker", 1000), 5);
	stats.struct_size = 0;
	assert_int_equal(kvpull_stats_text(&stats, NULL, text, sizeof(text)),
			 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_counter_of_a_worker_is_written_once),
		cmocka_unit_test(every_counter_of_a_scheduler_is_written_once),
		cmocka_unit_test(both_halves_follow_each_other),
		cmocka_unit_test(nothing_gives_an_empty_text),
		cmocka_unit_test(text_is_cut_and_its_bytes_are_told),
		cmocka_unit_test(members_beyond_struct_size_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
