/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of counters, and what is made of it. Which names there are, and of
 * which kind, is repeated here by a rule: the table cannot vouch for itself.
 */

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/counters/counters.h"
#include "tests/lib/unit.h"

#define ROWS_MAX 128u

static const struct kvpull_counter_table *const tables[] = {
	&kvpull_worker_counters, &kvpull_scheduler_counters,
	&kvpull_reader_counters
};
#define TABLES (sizeof(tables) / sizeof(tables[0]))
static uint64_t values[ROWS_MAX];

static void values_fill(const struct kvpull_counter_table *table,
			uint64_t *array, uint64_t first)
{
	uint32_t i;

	assert_true(table->row_count <= ROWS_MAX);
	for (i = 0; i < table->row_count; i++)
		array[i] = first + i;
}

static int ends_in(const char *name, const char *end)
{
	const size_t bytes = strlen(name);

	return bytes > strlen(end) && !strcmp(name + bytes - strlen(end), end);
}

static void name_check(const struct kvpull_counter_row *row)
{
	const int is_peak = ends_in(row->name, "_max");
	const int is_live = ends_in(row->name, "_live") ||
			    ends_in(row->name, "_queued") ||
			    ends_in(row->name, "_bytes");
	const char *c;

	assert_int_equal(row->kind, is_peak ? KVPULL_COUNTER_PEAK :
				    is_live ? KVPULL_COUNTER_LIVE :
					      KVPULL_COUNTER_TOTAL);
	for (c = row->name; *c; c++)
		assert_true(islower((unsigned char)*c) || *c == '_');
	assert_true(isupper((unsigned char)row->help[0]));
	assert_int_not_equal(row->help[strlen(row->help) - 1], '.');
}

UNIT_TEST(kind_of_a_counter_is_told_by_its_name)
{
	uint32_t i;
	uint32_t k;

	for (i = 0; i < TABLES; i++)
		for (k = 0; k < tables[i]->row_count; k++)
			name_check(&tables[i]->rows[k]);
}

/* Elements of a caller whose header is older or newer than ours. */
UNIT_TEST(elements_have_the_size_of_the_caller)
{
	const struct kvpull_counter_table *table = &kvpull_worker_counters;
	static uint8_t array[ROWS_MAX * 48];
	static const size_t sizes[] = { 32, 40, 48 };
	struct kvpull_counter one;
	size_t i;
	size_t k;

	values_fill(table, values, 1000);
	for (i = 0; i < 3; i++) {
		memset(array, 0x5a, sizeof(array));
		assert_int_equal(kvpull_counters_list(table, values,
						      (void *)array, 3,
						      sizes[i]),
				 table->row_count);
		for (k = 0; k < 3; k++) {
			memcpy(&one, array + k * sizes[i], sizeof(one));
			assert_string_equal(one.name, table->rows[k].name);
			assert_string_equal(one.help, table->rows[k].help);
			assert_int_equal(one.value, 1000 + k);
			assert_int_equal(one.kind, table->rows[k].kind);
			assert_int_equal(one.reserved, 0);
			if (sizes[i] > sizeof(one))
				assert_int_equal(array[k * sizes[i] + 32], 0);
		}
		assert_int_equal(array[3 * sizes[i]], 0x5a);
	}
}

UNIT_TEST(array_that_cannot_be_is_refused)
{
	static const size_t bad[] = { 0, 8, 24, 31, 33, 36, 65544, SIZE_MAX };
	const struct kvpull_counter_table *table = &kvpull_worker_counters;
	struct kvpull_counter one = { .value = 7 };
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(
			kvpull_counters_list(table, values, &one, 1, bad[i]),
			KVPULL_EINVAL);
	assert_int_equal(one.value, 7);
	assert_int_equal(kvpull_counters_list(table, values, NULL, 1, 32),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_counters_list(table, values, NULL, 0, 32),
			 table->row_count);
}
