// SPDX-License-Identifier: Apache-2.0
/*
 * Prints the results for people and as JSON. A bar's value is the median of the
 * runs, with the best and the worst beside it; lower is better for all of them.
 * The JSON has each run's value. An impossible result (a time below 0) is no
 * value.
 */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "shm/copy.h"
#include "tests/bench/bench.h"

#define BAR_PREFIX "bars."

struct bar {
	const char *name;
	double limit; /* NAN: none was set */
};

static const struct bar bars[] = {
	{ "samenode.limit_ratio.1t.A", 1.10 },
	{ "samenode.limit_ratio.1t.B", 1.05 },
	{ "samenode.limit_ratio.1t.C", 1.05 },
	{ "samenode.limit_ratio.1t.D", 1.05 },
	{ "samenode.limit_ratio.1t.E", 1.05 },
	{ "samenode.limit_ratio.2t.A", NAN },
	{ "samenode.limit_ratio.2t.B", 0.60 },
	{ "samenode.limit_ratio.2t.C", 0.60 },
	{ "samenode.limit_ratio.2t.D", 0.60 },
	{ "samenode.limit_ratio.2t.E", 0.60 },
	{ "samenode.asleep.limit_ratio.1t.A", NAN },
	{ "samenode.asleep.limit_ratio.1t.B", NAN },
	{ "samenode.asleep.limit_ratio.1t.C", NAN },
	{ "samenode.asleep.limit_ratio.1t.D", NAN },
	{ "samenode.asleep.limit_ratio.1t.E", NAN },
	{ "samenode.woken_ratio.1t.A", 1.10 },
	{ "samenode.woken_ratio.1t.B", 1.05 },
	{ "samenode.woken_ratio.1t.C", 1.05 },
	{ "samenode.woken_ratio.1t.D", 1.05 },
	{ "samenode.woken_ratio.1t.E", 1.05 },
	{ "samenode.caller.limit_ratio.1t.A", 1.10 },
	{ "samenode.caller.limit_ratio.1t.B", 1.05 },
	{ "samenode.caller.limit_ratio.1t.C", 1.05 },
	{ "samenode.caller.limit_ratio.1t.D", 1.05 },
	{ "samenode.caller.limit_ratio.1t.E", 1.05 },
	{ "samenode.ratio_512b", 1.25 },
	{ "samenode.ratio_1k", 1.25 },
	{ "samenode.inflight_10000_us_per_pull", 2 },
	{ "samenode.admit_us_max", NAN },
	{ "samenode.post_us_max", 10 },
	{ "samenode.open_ms", 20 },
	{ "samenode.open_mib", 16 },
	{ "samenode.thread.pull_4k_us", 3 },
	{ "samenode.thread.copy_4k_us", NAN },
	{ "samenode.asleep.pull_4k_us", NAN },
	{ "samenode.caller.pull_4k_us", 3 },
	{ "samenode.attach_first_pull_ms", 3 },
	{ "samenode.attach_first_pull_ms.4k_pages", NAN },
	{ "samenode.first_128mib_after_attach_ms", NAN },
	{ "samenode.provider_s_per_gib", NAN },
	{ "samenode.first_of_512x64k_ms", 0.22 },
	{ "samenode.caller.first_of_512x64k_ms", 0.22 },
	{ "samenode.first_of_256_ms", 1 },
	{ "samenode.notify_poll_us", NAN },
	{ "samenode.ring_us", 0.4 },
	{ "samenode.notify_sleep_us", NAN },
	{ "samenode.room_wait_p99_ms", NAN },
	{ "samenode.room_unfair_share", NAN },
	{ "samenode.cpu_s_per_gb", NAN },
	{ "ticket.ns_per_block.p", 3 },
	{ "ticket.ns_per_block.d", 3 },
	{ "core.release_ns", 100 },
	{ "core.heartbeat_ns", NAN },
	{ "core.idle_poll_ns", 200 },
	{ "core.idle_poll_ns.64_rings", NAN },
	{ "core.busy_poll_us_p999", 150 },
	{ "core.bytes_per_hold", NAN },
	{ "pool.probe_100_keys_us", 15 },
	{ "pool.pull_ratio.64x2m", 1.05 },
	{ "pool.pull_ratio.1000x64k", 1.05 },
	{ "pool.owner_runs_while_4_read", 0 },
	{ "pool.put_ns", 150 },
	{ "pool.guard_bump_ns", 50 },
	{ "pool.key_ns", NAN },
	{ "pool.judge_ns", NAN },
};
#define BARS (sizeof(bars) / sizeof(bars[0]))

void samples_add(struct samples *samples, double value)
{
	if (samples->count < SAMPLES_MAX)
		samples->values[samples->count++] = value;
}

static int double_compare(const void *a, const void *b)
{
	const double x = *(const double *)a;
	const double y = *(const double *)b;

	return (x > y) - (x < y);
}

double samples_at(struct samples *samples, double share)
{
	if (!samples->count)
		return (double)NAN;
	qsort(samples->values, samples->count, sizeof(samples->values[0]),
	      double_compare);
	return samples->values[(uint32_t)(share * (samples->count - 1) + 0.5)];
}

static struct result *result_new(struct results *results)
{
	if (results->count == RESULTS_MAX) {
		fprintf(stderr, "bench: more results than RESULTS_MAX\n");
		abort();
	}
	return &results->all[results->count++];
}

void results_put(struct results *results, double value, const char *format, ...)
{
	struct result *result = result_new(results);
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(result->name, sizeof(result->name), format, arguments);
	va_end(arguments);
	result->value = value;
}

void results_put_text(struct results *results, const char *text,
		      const char *name)
{
	struct result *result = result_new(results);

	(void)snprintf(result->name, sizeof(result->name), "%s", name);
	(void)snprintf(result->text, sizeof(result->text), "%s", text);
}

static const struct result *result_find(const struct results *results,
					const char *name)
{
	uint32_t at;

	for (at = 0; at < results->count; at++)
		if (!strcmp(results->all[at].name, name))
			return &results->all[at];
	return NULL;
}

double results_get(const struct results *results, const char *name)
{
	const struct result *result = result_find(results, name);

	return result ? result->value : (double)NAN;
}

static double bar_of_run(const struct report *report, uint32_t run,
			 const char *name)
{
	char path[RESULT_NAME_BYTES];

	double value;

	(void)snprintf(path, sizeof(path), BAR_PREFIX "%s", name);
	value = results_get(&report->runs[run], path);
	/* A difference that is smaller than what it was measured with. */
	return value < 0 ? (double)NAN : value;
}

/*
 * Value of a bar over the runs that measured it: share 0 is the best, 1 the
 * worst.
 */
static double bar_at(const struct report *report, const char *name,
		     double share)
{
	static struct samples samples;
	uint32_t run;

	samples.count = 0;
	for (run = 0; run < report->run_count; run++) {
		const double value = bar_of_run(report, run, name);

		if (!isnan(value))
			samples_add(&samples, value);
	}
	return samples_at(&samples, share);
}

static void value_print(const struct results *results, const char *path)
{
	const double value = results_get(results, path);

	if (isnan(value))
		printf("  %9s", "-");
	else
		printf("  %9.3f", value);
}

/* Prints a result of every shape: "shapes.A.<before><way><after>". */
static void row_print(const struct results *results, const char *title,
		      const char *before, const char *way, const char *after)
{
	char path[RESULT_NAME_BYTES];
	const char *shape;

	printf("%-32s", title);
	for (shape = "ABCDEFG"; *shape; shape++) {
		(void)snprintf(path, sizeof(path), "shapes.%c.%s%s%s", *shape,
			       before, way, after);
		value_print(results, path);
	}
	printf("\n");
}

static void way_print(const struct results *results, const char *way)
{
	char title[48];

	(void)snprintf(title, sizeof(title), "kvpull %s", way);
	row_print(results, title, "kvpull.", way, ".median_ms");
	row_print(results, "  x limit", "kvpull.", way, ".limit_ratio");
	row_print(results, "  x memcpy", "kvpull.", way, ".memcpy_ratio");
	row_print(results, "  post us", "kvpull.", way, ".post_median_us");
	row_print(results, "  cpu s per GB", "kvpull.", way, ".cpu_s_per_gb");
}

static void shapes_print(const struct results *results)
{
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);
	uint32_t at;

	printf("\n%-32s  %9s  %9s  %9s  %9s  %9s  %9s  %9s\n", "median ms",
	       "A 2048x4K", "B 1Kx32K", "C 512x256K", "D 128x1M", "E 8192x16K",
	       "F 8192x.5K", "G 8192x1K");
	row_print(results, "glibc memcpy", "glibc_memcpy", "", "_median_ms");
	for (at = 0; at < count; at++)
		if (kvpull_copy_usable(&all[at]))
			row_print(results, all[at].name, "routines_median_ms.",
				  all[at].name, "");
	row_print(results, "limit (best of these)", "limit", "", "_median_ms");
	row_print(results, "on two plain threads", "two_threads", "",
		  "_median_ms");
	row_print(results, "  x limit", "two_threads", "", "_limit_ratio");
	row_print(results, "on a woken thread", "woken", "", "_median_ms");
	row_print(results, "  x limit", "woken", "", "_limit_ratio");
	way_print(results, "caller_1t");
	way_print(results, "caller_2t");
	way_print(results, "thread_1t");
	way_print(results, "asleep_1t");
	way_print(results, "thread_2t");
}

static void rest_print(const struct results *results)
{
	uint32_t at;

	printf("\n");
	for (at = 0; at < results->count; at++) {
		const struct result *result = &results->all[at];

		if (strncmp(result->name, "shapes.", 7) &&
		    strncmp(result->name, BAR_PREFIX, strlen(BAR_PREFIX)))
			printf("%-56s  %12.3f\n", result->name, result->value);
	}
}

static void bars_print(const struct report *report)
{
	uint32_t at;
	uint32_t run;

	printf("\n%-42s  %10s  %8s  %10s %10s  runs\n", "bar", "median",
	       "at most", "best", "worst");
	for (at = 0; at < BARS; at++) {
		const double median = bar_at(report, bars[at].name, 0.5);

		printf("%-42s  %10.3f  ", bars[at].name, median);
		if (isnan(bars[at].limit))
			printf("%8s ", "");
		else
			printf("%8.2f%c", bars[at].limit,
			       median <= bars[at].limit ? ' ' : '!');
		printf(" %10.3f %10.3f ", bar_at(report, bars[at].name, 0),
		       bar_at(report, bars[at].name, 1));
		for (run = 0; run < report->run_count; run++)
			printf(" %10.3f",
			       bar_of_run(report, run, bars[at].name));
		printf("\n");
	}
	printf("\n");
	for (at = 0; at < BARS; at++)
		printf("bar %s %.6g\n", bars[at].name,
		       bar_at(report, bars[at].name, 0.5));
}

void report_print(const struct report *report)
{
	uint32_t run;

	for (run = 0; run < report->run_count; run++) {
		const struct results *results = &report->runs[run];

		printf("\nrun %u of %u, %u repetitions, load average %.2f before and %.2f after\n",
		       run + 1, report->run_count, report->repetitions,
		       report->loads[run], report->loads[run + 1]);
		if (results->count &&
		    !strncmp(results->all[0].name, "shapes.", 7))
			shapes_print(results);
		rest_print(results);
	}
	bars_print(report);
	(void)fflush(stdout);
}

static json_t *value_json(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* "a.b.c": objects within objects. */
static void result_json(json_t *object, const struct result *result)
{
	char name[RESULT_NAME_BYTES];
	char *key = name;
	char *dot;

	memcpy(name, result->name, sizeof(name));
	while ((dot = strchr(key, '.'))) {
		json_t *inner;

		*dot = '\0';
		inner = json_object_get(object, key);
		if (!inner) {
			inner = json_object();
			(void)json_object_set_new(object, key, inner);
		}
		object = inner;
		key = dot + 1;
	}
	(void)json_object_set_new(object, key,
				  result->text[0] ? json_string(result->text) :
						    value_json(result->value));
}

static json_t *run_json(const struct report *report, uint32_t run)
{
	const struct results *results = &report->runs[run];
	json_t *object = json_object();
	uint32_t at;

	(void)json_object_set_new(object, "load_average_before",
				  value_json(report->loads[run]));
	(void)json_object_set_new(object, "load_average_after",
				  value_json(report->loads[run + 1]));
	for (at = 0; at < results->count; at++)
		if (strncmp(results->all[at].name, BAR_PREFIX,
			    strlen(BAR_PREFIX)))
			result_json(object, &results->all[at]);
	return object;
}

static json_t *bar_json(const struct report *report, const struct bar *bar)
{
	json_t *runs = json_array();
	uint32_t run;

	for (run = 0; run < report->run_count; run++)
		(void)json_array_append_new(
			runs, value_json(bar_of_run(report, run, bar->name)));
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "median",
			 value_json(bar_at(report, bar->name, 0.5)), "best",
			 value_json(bar_at(report, bar->name, 0)), "worst",
			 value_json(bar_at(report, bar->name, 1)), "at_most",
			 value_json(bar->limit), "runs", runs);
}

static json_t *machine_json(const char *calibration)
{
	struct utsname name;

	if (uname(&name))
		memset(&name, 0, sizeof(name));
	return json_pack(
		"{s:s, s:s, s:I, s:I, s:s}", "kernel", name.release,
		"architecture", name.machine, "cpu_count",
		(json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
		(json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
		"calibration", calibration);
}

int report_write(const struct report *report, const char *path)
{
	json_t *runs = json_array();
	json_t *object = json_object();
	json_t *bar_values = json_object();
	uint32_t at;
	int failed;

	for (at = 0; at < report->run_count; at++)
		(void)json_array_append_new(runs, run_json(report, at));
	for (at = 0; at < BARS; at++)
		(void)json_object_set_new(bar_values, bars[at].name,
					  bar_json(report, &bars[at]));
	(void)json_object_set_new(object, "benchmark", json_string("samenode"));
	(void)json_object_set_new(object, "version",
				  json_string(KVPULL_VERSION));
	(void)json_object_set_new(object, "machine",
				  machine_json(report->calibration));
	(void)json_object_set_new(object, "repetition_count",
				  json_integer(report->repetitions));
	(void)json_object_set_new(object, "bars", bar_values);
	(void)json_object_set_new(object, "runs", runs);
	failed = json_dump_file(object, path, JSON_INDENT(2));
	json_decref(object);
	if (failed)
		fprintf(stderr, "bench: cannot write %s\n", path);
	return failed;
}
