/* SPDX-License-Identifier: Apache-2.0 */
/* Functions over the table of counters that name no single counter. */
#include "plugin/counters/counters.h"

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
