/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables' metrics, the counters and the times, for Prometheus: as text, or
 * as a file for node_exporter's collector of text files.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/json.h"
#include "tools/kvpull_top_parts.h"

#define BUCKET_FIRST 10u /* 1 us */
#define BUCKET_LAST 40u  /* 18 minutes */

/*
 * A label's value: what it must not have is escaped. A collector that meets what
 * is no UTF-8 throws all engines of the node away, so it is "?", as in JSON.
 */
static void put_value(FILE *out, const char *text)
{
	json_t *string = json_string(text);

	for (text = string ? text : "?"; *text; text++) {
		if (*text == '"' || *text == '\\')
			(void)fputc('\\', out);
		(void)fputc(*text, out);
	}
	json_decref(string);
}

/*
 * The name and the labels, without the closing brace. A container's processes
 * have one number at each of its starts, and a file is shown for a while after
 * its process: the incarnation tells them apart.
 */
static void put_name(FILE *out, const char *name, const char *suffix,
		     const struct top_worker *worker)
{
	(void)fprintf(out, "%s%s{engine=\"", name, suffix);
	put_value(out, worker->header.engine_id);
	(void)fprintf(
		out, "\",rank=\"%u\",pid=\"%u\",incarnation=\"%016" PRIx64 "\"",
		worker->header.rank, worker->header.pid,
		worker->header.incarnation);
}

static void put_head(FILE *out, const char *name, const char *type,
		     const char *help)
{
	(void)fprintf(out, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name,
		      type);
}

/* of: whose files, TOP_OF_*; a name is of one kind of them. */
static void put_counters(FILE *out, const struct top *top,
			 const struct kvpull_counter_table *table, uint32_t of)
{
	const struct kvpull_counter_row *row = table->rows;
	uint32_t left = table->row_count;
	uint32_t at;

	for (; left--; row++) {
		const int is_total = row->kind == KVPULL_COUNTER_TOTAL;
		char name[80];

		(void)snprintf(name, sizeof(name), "kvpull_%s_%s%s",
			       table->half, row->name,
			       is_total ? "_total" : "");
		put_head(out, name, is_total ? "counter" : "gauge", row->help);
		for (at = 0; at < top->worker_count; at++) {
			const struct top_worker *worker = &top->workers[at];

			if (!top_is_of(worker, of))
				continue;
			put_name(out, name, "", worker);
			(void)fprintf(out, "} %" PRIu64 "\n",
				      top_counter_named(worker, row->name));
		}
	}
}

static void put_time(FILE *out, const struct top_worker *worker, uint32_t which)
{
	const char *name = top_times_names[which].metric;
	uint64_t buckets[KVPULL_STATUS_BUCKETS];
	const uint64_t times = top_times(worker, which, buckets);
	uint64_t below = 0;
	uint32_t at;

	for (at = 0; at <= BUCKET_LAST; at++) {
		below += buckets[at];
		if (at < BUCKET_FIRST || at % 2)
			continue;
		put_name(out, name, "_bucket", worker);
		(void)fprintf(out, ",le=\"%.9g\"} %" PRIu64 "\n",
			      (double)(UINT64_C(2) << at) / 1e9, below);
	}
	put_name(out, name, "_bucket", worker);
	(void)fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n", times);
	put_name(out, name, "_sum", worker);
	(void)fprintf(out, "} %.9g\n",
		      (double)top_time_sum(worker, which) / 1e9);
	put_name(out, name, "_count", worker);
	(void)fprintf(out, "} %" PRIu64 "\n", times);
}

static void put_times(FILE *out, const struct top *top, uint32_t of)
{
	uint32_t which;
	uint32_t at;

	for (which = 0; which < KVPULL_TIMES_COUNT; which++) {
		const struct top_time *time = &top_times_names[which];

		if (time->of != of)
			continue;
		put_head(out, time->metric, "histogram", time->help);
		for (at = 0; at < top->worker_count; at++)
			if (top_is_of(&top->workers[at], of))
				put_time(out, &top->workers[at], which);
	}
}

static void put_failures(FILE *out, const struct top *top, const char *name,
			 const char *help, uint32_t of)
{
	uint32_t at;
	int code;

	put_head(out, name, "counter", help);
	for (at = 0; at < top->worker_count; at++)
		for (code = 1; code < (int)KVPULL_STATUS_CODES; code++) {
			const struct top_worker *worker = &top->workers[at];
			const uint64_t failures = top_failures(worker, code);

			if (!failures || !top_is_of(worker, of))
				continue;
			put_name(out, name, "", worker);
			(void)fprintf(out, ",code=\"%s\"} %" PRIu64 "\n",
				      kvpull_error_name(-code), failures);
		}
}

/* A metric is a column of a table, for which all rows are read once more. */
struct metric {
	FILE *out;
	uint32_t column;
};

/* Labels of the row's own, behind those of the file's writer. */
static void put_labels(FILE *out, const struct top_row *row)
{
	const struct top_column *column = row->table->columns;
	const struct top_cell *cell = row->cells;
	uint32_t left = row->table->column_count;

	for (; left--; column++, cell++) {
		if (!column->metric.name || column->metric.help)
			continue;
		(void)fprintf(out, ",%s=\"", column->metric.name);
		if (cell->kind == TOP_TEXT)
			put_value(out, cell->text);
		else
			(void)fprintf(out, "%" PRIu64, cell->number);
		(void)fputc('"', out);
	}
}

static void row_put(const struct top_row *row)
{
	const struct metric *metric = row->context;
	const struct top_cell *cell = &row->cells[metric->column];
	FILE *out = metric->out;

	/* A consumer that left, or whose producer did, keeps nothing now. */
	if (row->table == &top_consumers_table && row->mark >= TOP_FAINT)
		return;
	put_name(out, row->table->columns[metric->column].metric.name, "",
		 row->worker);
	put_labels(out, row);
	if (cell->kind == TOP_AGE)
		(void)fprintf(out, "} %.9g\n", (double)cell->number / 1e9);
	else
		(void)fprintf(out, "} %" PRIu64 "\n", cell->number);
}

static void put_table(FILE *out, const struct top *top,
		      const struct top_table *table)
{
	struct metric metric = { .out = out };

	for (; metric.column < table->column_count; metric.column++) {
		const struct top_column *column =
			&table->columns[metric.column];

		if (!column->metric.help)
			continue;
		put_head(out, column->metric.name, "gauge",
			 column->metric.help);
		top_each(table, top, row_put, &metric);
	}
}

int top_prometheus(const struct top *top, FILE *out)
{
	put_counters(out, top, &kvpull_worker_counters, TOP_OF_WORKERS);
	put_table(out, top, &top_workers_table);
	put_failures(out, top, "kvpull_worker_failures_total",
		     "Pulls that failed, by their error", TOP_OF_WORKERS);
	put_table(out, top, &top_consumers_table);
	put_times(out, top, TOP_OF_WORKERS);
	put_counters(out, top, &kvpull_reader_counters, TOP_OF_POOLS);
	put_table(out, top, &top_pools_table);
	put_failures(out, top, "kvpull_reader_failures_total",
		     "Pieces that were not good, by their error", TOP_OF_POOLS);
	put_times(out, top, TOP_OF_POOLS);
	put_head(
		out, "kvpull_top_unread", "gauge",
		"Status files and folders that could not be read or are not believed");
	(void)fprintf(out, "kvpull_top_unread %u\n", top->unread_count);
	return ferror(out) != 0;
}

/* A collector sees the last whole text or this one: rename() is atomic. */
static int file_replace(const struct top *top, const char *path)
{
	char draft[PATH_MAX];
	FILE *out;
	int failed;

	/*
	 * A collector takes *.prom only. The draft is made anew: in a folder of
	 * many its name may be a link that another user has put there.
	 */
	(void)snprintf(draft, sizeof(draft), "%s.%d", path, (int)getpid());
	(void)unlink(draft);
	out = fopen(draft, "wxe");
	if (!out)
		return -1;
	failed = fchmod(fileno(out), 0644) || top_prometheus(top, out);
	if (fclose(out) || failed || rename(draft, path)) {
		const int error = errno;

		(void)unlink(draft);
		errno = error;
		return -1;
	}
	return 0;
}

int top_prometheus_file(const struct top_options *options)
{
	static struct top top;
	const struct timespec interval =
		kvpull_clock_timespec(options->interval_ms * KVPULL_NS_PER_MS);
	int failed;

	do {
		top_look(&top, NULL, options);
		failed = file_replace(&top, options->path);
		top_free(&top);
		if (failed)
			(void)fprintf(
				stderr,
				"kvpull_top: --prometheus-file %s: cannot write: %s\n",
				options->path, strerror(errno));
	} while (!failed && !options->once && !nanosleep(&interval, NULL));
	return failed || top.named_unread ? 1 : 0;
}
