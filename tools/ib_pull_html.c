/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of --report: percentiles of each run, the curve of a sweep, the
 * latencies of the last run, the machine and the versions. It is one file, and
 * loads nothing.
 */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/ib_pull_parts.h"

#define RUNS_MAX 16u /* of a sweep: powers of two up to IB_BLOCKS_MAX */
#define BARS_MAX 65u /* powers of two of 64 bits */
#define WIDTH 640.0
#define HEIGHT 240.0
#define MARGIN 50.0

_Static_assert(IB_BLOCKS_MAX < 1u << (RUNS_MAX - 1), "a sweep has room");

struct run {
	uint64_t bytes; /* of a request */
	uint64_t pulls, failed;
	double us[5]; /* as parts[] */
	double pull_gb_s, copy_gb_s;
};

static const double parts[] = { 0.5, 0.9, 0.99, 0.999, 1 };

static struct run runs[RUNS_MAX];
static uint32_t run_count;
static uint32_t bars[BARS_MAX]; /* pulls of the last run, by bits of their ns */
static char routes[64];

void ib_html_add(const struct ib_options *options,
		 const struct ib_result *result)
{
	struct run *run = &runs[run_count];
	size_t at;

	run_count++;
	*run = (struct run){
		.bytes = ib_request_bytes(options),
		.pulls = result->loaded,
		.failed = result->failed,
		.pull_gb_s =
			ib_gigabytes_s(result->bytes_timed, result->elapsed_ns),
		.copy_gb_s =
			ib_gigabytes_s(result->copy_bytes, result->copy_ns),
	};
	for (at = 0; at < sizeof(parts) / sizeof(parts[0]); at++)
		run->us[at] = ib_percentile_us(
			result->latencies, result->latency_count, parts[at]);
	memset(bars, 0, sizeof(bars));
	for (at = 0; at < result->latency_count; at++)
		bars[64 - __builtin_clzll(result->latencies[at] | 1)]++;
	memcpy(routes, result->routes, sizeof(routes));
}

/* Names of devices and models are anybody's bytes. */
static void text_put(FILE *file, const char *text)
{
	for (; *text; text++)
		if (strchr("<>&\"'", *text) || (unsigned char)*text < ' ')
			(void)fprintf(file, "&#%u;", (unsigned char)*text);
		else
			(void)fputc(*text, file);
}

static void fact_put(FILE *file, const char *name, const char *value)
{
	(void)fprintf(file, "<tr><th>%s</th><td>", name);
	text_put(file, value);
	(void)fputs("</td></tr>\n", file);
}

/* The value of a line "key : value" of /proc; "" if there is none. */
static void proc_read(const char *path, const char *key, char value[128])
{
	FILE *file = fopen(path, "re");
	char line[256];

	value[0] = '\0';
	while (file && !value[0] && fgets(line, sizeof(line), file)) {
		const char *colon = strchr(line, ':');

		if (!colon || strncmp(line, key, strlen(key)) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		colon += 1 + strspn(colon + 1, " \t");
		(void)snprintf(value, 128, "%.127s", colon);
	}
	if (file)
		(void)fclose(file);
}

static void facts_put(FILE *file, const struct ib_options *options)
{
	const struct kvpull_connector_ops *ops = engine_library();
	struct utsname machine = { 0 };
	char text[256];

	(void)uname(&machine);
	(void)fputs("<h2>Machine and versions</h2>\n<table class=facts>\n",
		    file);
	fact_put(file, "ib_pull", KVPULL_VERSION);
	fact_put(file, "libkvpull", ops ? ops->version : "none");
	(void)snprintf(text, sizeof(text), "%.80s %.80s, %.60s",
		       machine.sysname, machine.release, machine.machine);
	fact_put(file, "kernel", text);
	proc_read("/proc/cpuinfo", "model name", text);
	fact_put(file, "processor", text[0] ? text : "unknown");
	(void)snprintf(text, sizeof(text), "%ld",
		       sysconf(_SC_NPROCESSORS_ONLN));
	fact_put(file, "processors", text);
	proc_read("/proc/meminfo", "MemTotal", text);
	fact_put(file, "memory", text[0] ? text : "unknown");
	fact_put(file, "route", routes[0] ? routes : "none");
	(void)snprintf(
		text, sizeof(text),
		"%u bytes x %u layers, depth %u, siblings %u, tensor parallel %u, copy threads %u, progress %s, memory %s",
		options->shape.block_bytes, options->shape.layer_count,
		options->depth, options->siblings, options->tp_size,
		options->copy_threads, options->thread ? "thread" : "caller",
		options->foreign ? "foreign" : "provided");
	fact_put(file, "blocks", text);
	(void)fputs("</table>\n", file);
}

static void runs_put(FILE *file)
{
	uint32_t at;
	size_t part;

	(void)fputs(
		"<h2>Runs</h2>\n<table>\n<tr><th>bytes a request</th><th>pulls</th><th>failed</th><th>p50 us</th><th>p90 us</th><th>p99 us</th><th>p99.9 us</th><th>longest us</th><th>GB/s</th><th>memcpy GB/s</th></tr>\n",
		file);
	for (at = 0; at < run_count; at++) {
		const struct run *run = &runs[at];

		(void)fprintf(file,
			      "<tr><td>%llu</td><td>%llu</td><td>%llu</td>",
			      (unsigned long long)run->bytes,
			      (unsigned long long)run->pulls,
			      (unsigned long long)run->failed);
		for (part = 0; part < sizeof(parts) / sizeof(parts[0]); part++)
			(void)fprintf(file, "<td>%.1f</td>", run->us[part]);
		(void)fprintf(file, "<td>%.2f</td><td>%.2f</td></tr>\n",
			      run->pull_gb_s, run->copy_gb_s);
	}
	(void)fputs("</table>\n", file);
}

static void label_put(FILE *file, double x, double y, const char *anchor,
		      const char *text)
{
	(void)fprintf(
		file,
		"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x,
		y, anchor, text);
}

/* x: bytes, each doubling as wide as the one before; y: GB/s from 0. */
static void line_put(FILE *file, int is_copy, double most_gb_s)
{
	const double step = (WIDTH - 2 * MARGIN) / (run_count - 1);
	uint32_t at;

	(void)fprintf(file, "<polyline class=\"%s\" points=\"",
		      is_copy ? "copy" : "pull");
	for (at = 0; at < run_count; at++) {
		const double gb_s =
			is_copy ? runs[at].copy_gb_s : runs[at].pull_gb_s;

		(void)fprintf(file, "%.1f,%.1f ", MARGIN + at * step,
			      HEIGHT - MARGIN -
				      gb_s / most_gb_s * (HEIGHT - 2 * MARGIN));
	}
	(void)fputs("\"/>\n", file);
}

static void svg_begin(FILE *file, const char *head)
{
	(void)fprintf(
		file,
		"<h2>%s</h2>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<path class=\"axis\" d=\"M%.0f %.0fV%.0fH%.0f\"/>\n",
		head, WIDTH, HEIGHT, MARGIN, MARGIN, HEIGHT - MARGIN,
		WIDTH - MARGIN);
}

static void curve_put(FILE *file)
{
	const double step = (WIDTH - 2 * MARGIN) / (run_count - 1);
	double most = 1e-9;
	char text[64];
	uint32_t at;

	for (at = 0; at < run_count; at++)
		most = fmax(most, fmax(runs[at].pull_gb_s, runs[at].copy_gb_s));
	svg_begin(file, "Throughput by size of a request");
	line_put(file, 1, most);
	line_put(file, 0, most);
	(void)snprintf(text, sizeof(text), "%.2f GB/s", most);
	label_put(file, MARGIN, MARGIN - 8, "start", text);
	for (at = 0; at < run_count; at++) {
		(void)snprintf(text, sizeof(text), "%.5g",
			       (double)runs[at].bytes / 1024);
		label_put(file, MARGIN + at * step, HEIGHT - MARGIN + 18,
			  "middle", text);
	}
	label_put(file, WIDTH / 2, HEIGHT - 8, "middle",
		  "KiB a request; solid: pulls, dashed: memcpy()");
	(void)fputs("</svg>\n", file);
}

static void bars_put(FILE *file)
{
	uint32_t first = 0, last = BARS_MAX - 1, most = 1, at;
	char text[64];
	double width;

	while (first < last && !bars[first])
		first++;
	while (last > first && !bars[last])
		last--;
	for (at = first; at <= last; at++)
		most = bars[at] > most ? bars[at] : most;
	width = (WIDTH - 2 * MARGIN) / (last - first + 1);
	svg_begin(file, "Latencies of the last run");
	for (at = first; at <= last; at++) {
		const double height = (HEIGHT - 2 * MARGIN) * bars[at] / most;
		const double x = MARGIN + (at - first) * width;

		(void)fprintf(
			file,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%u pulls</title></rect>\n",
			x + 1, HEIGHT - MARGIN - height, width - 2, height,
			bars[at]);
		(void)snprintf(text, sizeof(text), "%.5g",
			       ldexp(1, (int)at) / 1e3);
		label_put(file, x + width, HEIGHT - MARGIN + 18, "middle",
			  text);
	}
	(void)snprintf(text, sizeof(text), "%u pulls", most);
	label_put(file, MARGIN, MARGIN - 8, "start", text);
	label_put(file, WIDTH / 2, HEIGHT - 8, "middle",
		  "us, by powers of two");
	(void)fputs("</svg>\n", file);
}

int ib_html_write(const struct ib_options *options)
{
	FILE *file;
	int failed;

	if (!options->report)
		return 0;
	errno = 0;
	file = fopen(options->report, "we");
	if (file) {
		(void)fputs(
			"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>ib_pull</title>\n<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}table{border-collapse:collapse}td,th{padding:.2em .6em;border-bottom:1px solid #ccc;text-align:right}.facts *{text-align:left}svg{max-width:100%;font-size:11px}polyline{fill:none;stroke:#06c;stroke-width:2}.copy{stroke:#999;stroke-dasharray:4}.axis{fill:none;stroke:#333}rect{fill:#06c}</style></head>\n<body>\n<h1>ib_pull</h1>\n",
			file);
		runs_put(file);
		if (run_count > 1)
			curve_put(file);
		bars_put(file);
		facts_put(file, options);
		(void)fputs("</body></html>\n", file);
	}
	failed = !file || ferror(file);
	if (file && fclose(file))
		failed = 1;
	if (failed)
		fprintf(stderr, "--report %s: cannot write: %s\n",
			options->report, strerror(errno ? errno : EIO));
	return failed;
}
