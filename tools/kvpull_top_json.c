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
	const size_t bytes = strcspn(name, ".");
	json_t *more = name[bytes] ? json_pack("{s#:{s:o}}", name, (int)bytes,
					       name + bytes + 1, value) :
				     json_pack("{s:o}", name, value);

	(void)json_object_update_recursive(object, more);
	json_decref(more);
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
	const struct kvpull_status_counter *row =
		top_rows(worker, KVPULL_STATUS_COUNTERS, &count);

	for (; count--; row++) {
		char name[sizeof(row->name) + 1];

		top_text(name, sizeof(name), row->name, sizeof(row->name));
		set(object, name, top_counter(worker, row));
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
		const struct top_time *time = &top_times_names[which];
		uint64_t buckets[KVPULL_STATUS_BUCKETS];
		const uint64_t times = top_times(worker, which, buckets);

		if (top_is_of(worker, time->of))
			set_value(object, time->name,
				  json_pack("{s:I, s:I, s:I}", "count", times,
					    "p50_ns",
					    top_quantile(buckets, times, 50),
					    "p99_ns",
					    top_quantile(buckets, times, 99)));
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
	return json_show(
		       json_pack(
			       "{s:i, s:I, s:i, s:o, s:i, s:i, s:o, s:o, s:o}",
			       "version", 1, "utc_ns", (json_int_t)top->utc_ns,
			       "unread_count", (int)top->unread_count, "unread",
			       rows_of(&top_unread_table, top, NULL),
			       "workers_more", (int)top->workers_more,
			       "findings_more", (int)top->findings_more,
			       "findings",
			       rows_of(&top_findings_table, top, NULL),
			       "workers", files_of(&top_workers_table, top),
			       "pools", files_of(&top_pools_table, top)),
		       1) != 0;
}
