/* SPDX-License-Identifier: Apache-2.0 */
/* The tables as one JSON object, for programs. */
#include <string.h>

#include "tools/json.h"
#include "tools/kvpull_top_parts.h"

static json_t *value_of(const struct top_cell *cell)
{
	json_t *value = NULL;

	switch (cell->kind) {
	case TOP_NOTHING:
		return json_null();
	case TOP_NUMBER:
		return json_integer((json_int_t)cell->number);
	case TOP_AGE:
		return json_real((double)cell->number /
				 (double)KVPULL_NS_PER_S);
	case TOP_FLAG:
		return json_boolean(cell->number);
	case TOP_TEXT:
		value = json_string(cell->text);
	}
	/* A text that another process wrote may not be UTF-8. */
	return value ? value : json_string("?");
}

/* "a.b": b of the object a. */
static void member_set(json_t *object, const char *name, json_t *value)
{
	const char *dot = strchr(name, '.');
	char outer[32];
	json_t *inner;

	if (!dot) {
		set_value(object, name, value);
		return;
	}
	(void)snprintf(outer, sizeof(outer), "%.*s", (int)(dot - name), name);
	inner = json_object_get(object, outer);
	if (!inner) {
		inner = json_object();
		set_value(object, outer, inner);
	}
	set_value(inner, dot + 1, value);
}

static void row_add(const struct top_row *row)
{
	json_t *object = json_object();
	uint32_t at;

	for (at = 0; at < row->table->column_count; at++)
		if (row->table->columns[at].name)
			member_set(object, row->table->columns[at].name,
				   value_of(&row->cells[at]));
	(void)json_array_append_new(row->context, object);
}

/* worker NULL: the rows of no file. */
static json_t *rows_of(const struct top_table *table, const struct top *top,
		       const struct top_worker *worker)
{
	json_t *array = json_array();

	top_each_of(table, top, worker, row_add, array);
	return array;
}

static json_t *counters_of(const struct top_worker *worker)
{
	json_t *object = json_object();
	uint32_t count;
	const struct kvpull_status_counter *rows =
		top_rows(worker, KVPULL_STATUS_COUNTERS, &count);
	uint32_t at;

	for (at = 0; at < count; at++) {
		char name[sizeof(rows[at].name) + 1];

		top_text(name, sizeof(name), rows[at].name,
			 sizeof(rows[at].name));
		set(object, name, top_counter(worker, &rows[at]));
	}
	return object;
}

static json_t *failures_of(const struct top_worker *worker)
{
	json_t *object = json_object();
	int code;

	for (code = 1; code < (int)KVPULL_STATUS_CODES; code++) {
		const uint64_t failures = top_failures(worker, code);

		if (failures)
			set(object, kvpull_error_name(-code), failures);
	}
	return object;
}

static json_t *times_of(const struct top_worker *worker)
{
	json_t *object = json_object();
	uint32_t which;

	for (which = 0; which < KVPULL_TIMES_COUNT; which++) {
		uint64_t buckets[KVPULL_STATUS_BUCKETS];
		const uint64_t times = top_times(worker, which, buckets);
		json_t *row;

		if (!top_is_of(worker, top_times_names[which].of))
			continue;
		row = json_object();
		set(row, "count", times);
		set(row, "p50_ns", top_quantile(buckets, times, 50));
		set(row, "p99_ns", top_quantile(buckets, times, 99));
		set_value(object, top_times_names[which].name, row);
	}
	return object;
}

/* The files of a kind: the row of each, and its own tables. */
static json_t *files_of(const struct top_table *files, const struct top *top)
{
	static const struct top_table *const tables[] = {
		&top_peers_table, &top_readers_table, &top_consumers_table,
		&top_gpus_table, &top_pulls_table
	};
	json_t *array = json_array();
	uint32_t at;
	uint32_t which;

	for (at = 0; at < top->worker_count; at++) {
		const struct top_worker *worker = &top->workers[at];
		const size_t before = json_array_size(array);
		json_t *file;

		top_each_of(files, top, worker, row_add, array);
		file = json_array_get(array, before);
		if (!file)
			continue;
		set_value(file, "counters", counters_of(worker));
		set_value(file, "failures", failures_of(worker));
		set_value(file, "times", times_of(worker));
		for (which = 0; which < sizeof(tables) / sizeof(tables[0]);
		     which++)
			if (tables[which]->of & files->of)
				set_value(file, tables[which]->name,
					  rows_of(tables[which], top, worker));
		if (files == &top_workers_table)
			member_set(file, "holds.oldest",
				   rows_of(&top_holds_table, top, worker));
	}
	return array;
}

int top_json(const struct top *top)
{
	json_t *object = json_object();

	set(object, "version", 1);
	set(object, "utc_ns", top->utc_ns);
	set(object, "unread_count", top->unread_count);
	set_value(object, "unread", rows_of(&top_unread_table, top, NULL));
	set(object, "workers_more", top->workers_more);
	set(object, "findings_more", top->findings_more);
	set_value(object, "findings", rows_of(&top_findings_table, top, NULL));
	set_value(object, "workers", files_of(&top_workers_table, top));
	set_value(object, "pools", files_of(&top_pools_table, top));
	return json_show(object, 1) != 0;
}
