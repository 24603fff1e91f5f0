/* SPDX-License-Identifier: Apache-2.0 */
/* Functions over the table of counters that name no single counter. */
#include "plugin/counters/counters.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/params.h"

#define COUNTER_BYTES_MIN 32u /* of the first struct kvpull_counter */

#define ROW(name, kind, from, help) { #name, help, KVPULL_COUNTER_##kind },

static const struct kvpull_counter_row worker_rows[] = { KVPULL_WORKER_COUNTERS(
	ROW) };
static const struct kvpull_counter_row scheduler_rows[] = {
	KVPULL_SCHEDULER_COUNTERS(ROW)
};
static const struct kvpull_counter_row reader_rows[] = { KVPULL_READER_COUNTERS(
	ROW) };

const struct kvpull_counter_table kvpull_worker_counters = {
	"worker", worker_rows, KVPULL_WORKER_COUNTER_COUNT
};
const struct kvpull_counter_table kvpull_scheduler_counters = {
	"scheduler", scheduler_rows, KVPULL_SCHEDULER_COUNTER_COUNT
};
const struct kvpull_counter_table kvpull_reader_counters = {
	"reader", reader_rows, KVPULL_READER_COUNTER_COUNT
};

int kvpull_counters_list(const struct kvpull_counter_table *table,
			 const uint64_t *values,
			 struct kvpull_counter *counters, uint32_t capacity,
			 size_t counter_bytes)
{
	uint8_t *to = (uint8_t *)counters;
	uint32_t i;

	if (kvpull_element_check(counter_bytes, COUNTER_BYTES_MIN) ||
	    (capacity && !counters))
		return KVPULL_EINVAL;
	for (i = 0; i < table->row_count && i < capacity; i++) {
		const struct kvpull_counter counter = {
			.name = table->rows[i].name,
			.help = table->rows[i].help,
			.value = values ? values[i] : 0,
			.kind = table->rows[i].kind,
		};

		kvpull_element_give(to, counter_bytes, &counter,
				    sizeof(counter));
		to += counter_bytes;
	}
	return (int)table->row_count;
}

size_t kvpull_counters_text(const struct kvpull_counter_table *table,
			    const uint64_t *values, char *text, size_t capacity)
{
	size_t used = 0;
	uint32_t i;

	if (capacity)
		text[0] = '\0';
	for (i = 0; i < table->row_count; i++) {
		const struct kvpull_counter_row *row = &table->rows[i];
		const int is_total = row->kind == KVPULL_COUNTER_TOTAL;
		const size_t room = used < capacity ? capacity - used : 0;
		char name[64];
		int bytes;

		(void)snprintf(name, sizeof(name), "kvpull_%s_%s%s",
			       table->half, row->name,
			       is_total ? "_total" : "");
		bytes = snprintf(
			room ? text + used : NULL, room,
			"# HELP %s %s.\n# TYPE %s %s\n%s %" PRIu64 "\n", name,
			row->help, name, is_total ? "counter" : "gauge", name,
			values[i]);
		if (bytes > 0)
			used += (size_t)bytes;
	}
	return used;
}
