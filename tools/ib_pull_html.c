/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of --report: percentiles of each run, the curve of a sweep, the
 * latencies of the last run, the machine and the versions. It is one file, and
 * loads nothing.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/text_file.h"
#include "tools/ib_pull_parts.h"

#define RUNS_MAX 16u /* of a sweep: powers of two up to IB_BLOCKS_MAX */
#define WIDTH 640.0
#define HEIGHT 240.0
#define MARGIN 50.0
#define WIDE (WIDTH - 2 * MARGIN) /* between the margins */
#define HIGH (HEIGHT - 2 * MARGIN)

_Static_assert(IB_BLOCKS_MAX < 1u << (RUNS_MAX - 1), "a sweep has room");

struct run {
	unsigned long long bytes; /* of a request */
	double us[5];             /* as parts[] */
	struct ib_result result;  /* its pointers lead nowhere any more */
};

static const double parts[] = { 0.5, 0.9, 0.99, 0.999, 1 };

static struct run runs[RUNS_MAX];
static uint32_t run_count;
static uint32_t bars[IB_BARS_MAX]; /* of the last run */

void ib_html_add(const struct ib_options *options,
		 const struct ib_result *result)
{
	struct run *run = &runs[run_count++];
	size_t at;

	run->bytes = ib_request_bytes(options);
	run->result = *result;
	for (at = 0; at < sizeof(parts) / sizeof(parts[0]); at++)
		run->us[at] = ib_percentile_us(
			result->latencies, result->latency_count, parts[at]);
	ib_bars_count(result, bars);
}

/* Names of devices and models are anybody's bytes. */
__attribute__((format(printf, 3, 4))) static void
fact_put(FILE *file, const char *name, const char *format, ...)
{
	char value[256];
	const char *at = value;
	va_list words;

	va_start(words, format);
	(void)vsnprintf(value, sizeof(value), format, words);
	va_end(words);
	fprintf(file, "<tr><th>%s</th><td>", name);
	for (; *at; at++)
		if (strchr("<>&\"'", *at) || (unsigned char)*at < ' ')
			fprintf(file, "&#%u;", (unsigned char)*at);
		else
			fputc(*at, file);
	fputs("</td></tr>\n", file);
}

/* The first value of a line "key : value" of /proc. */
static void proc_put(FILE *file, const char *name, const char *path,
		     const char *key)
{
	char text[4096];
	char value[128] = "unknown";
	const char *line;

	kvpull_text_read(path, text, sizeof(text));
	line = strstr(text, key);
	if (line)
		(void)sscanf(line, "%*[^:]:%*[ \t]%127[^\n]", value);
	fact_put(file, name, "%s", value);
}

static void facts_put(FILE *file, const struct ib_options *options)
{
	const struct kvpull_connector_ops *ops = engine_library();
	const char *routes = run_count ? runs[run_count - 1].result.routes : "";
	struct utsname machine = { 0 };

	(void)uname(&machine);
	fputs("<h2>Machine and versions</h2>\n<table class=facts>\n", file);
	fact_put(file, "ib_pull", "%s", KVPULL_VERSION);
	fact_put(file, "libkvpull", "%s", ops ? ops->version : "none");
	fact_put(file, "kernel", "%.80s %.80s, %.60s", machine.sysname,
		 machine.release, machine.machine);
	proc_put(file, "processor", "/proc/cpuinfo", "model name");
	fact_put(file, "processors", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
	proc_put(file, "memory", "/proc/meminfo", "MemTotal");
	fact_put(file, "route", "%s", routes[0] ? routes : "none");
	fact_put(
		file, "blocks",
		"%u bytes x %u layers, depth %u, siblings %u, tensor parallel %u, copy threads %u, progress %s, memory %s",
		options->shape.block_bytes, options->shape.layer_count,
		options->depth, options->siblings, options->tp_size,
		options->copy_threads, options->thread ? "thread" : "caller",
		options->foreign ? "foreign" : "provided");
	fputs("</table>\n", file);
}

static void runs_put(FILE *file)
{
	uint32_t at;
	size_t part;

	fputs("<h2>Runs</h2>\n<table>\n<tr><th>bytes a request</th><th>pulls</th><th>failed</th><th>p50 us</th><th>p90 us</th><th>p99 us</th><th>p99.9 us</th><th>longest us</th><th>GB/s</th><th>memcpy GB/s</th></tr>\n",
	      file);
	for (at = 0; at < run_count; at++) {
		const struct run *run = &runs[at];

		fprintf(file, "<tr><td>%llu</td><td>%llu</td><td>%llu</td>",
			run->bytes, run->result.loaded, run->result.failed);
		for (part = 0; part < sizeof(parts) / sizeof(parts[0]); part++)
			fprintf(file, "<td>%.1f</td>", run->us[part]);
		fprintf(file, "<td>%.2f</td><td>%.2f</td></tr>\n",
			ib_pull_gb_s(&run->result), ib_copy_gb_s(&run->result));
	}
	fputs("</table>\n", file);
}

/* The begin of a text at x and y. */
#define LABEL "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">"

/* x: bytes, each doubling as wide as the one before; y: GB/s from 0. */
static void line_put(FILE *file, const char *class,
		     double (*gb_s_of)(const struct ib_result *result),
		     double most_gb_s)
{
	uint32_t at;

	fprintf(file, "<polyline class=\"%s\" points=\"", class);
	for (at = 0; at < run_count; at++)
		fprintf(file, "%.1f,%.1f ",
			MARGIN + at * WIDE / (run_count - 1),
			HEIGHT - MARGIN -
				gb_s_of(&runs[at].result) / most_gb_s * HIGH);
	fputs("\"/>\n", file);
}

static void svg_begin(FILE *file, const char *head)
{
	fprintf(file,
		"<h2>%s</h2>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<path class=\"axis\" d=\"M%.0f %.0fV%.0fH%.0f\"/>\n",
		head, WIDTH, HEIGHT, MARGIN, MARGIN, HEIGHT - MARGIN,
		WIDTH - MARGIN);
}

/* A mark of the axis below. */
static void tick_put(FILE *file, double x, double value)
{
	fprintf(file, LABEL "%.5g</text>\n", x, HEIGHT - MARGIN + 18, "middle",
		value);
}

/* most: at the top of the axis on the left. */
static void svg_end(FILE *file, double most, int digits, const char *unit,
		    const char *below)
{
	fprintf(file, LABEL "%.*f %s</text>\n", MARGIN, MARGIN - 8, "start",
		digits, most, unit);
	fprintf(file, LABEL "%s</text>\n</svg>\n", WIDTH / 2, HEIGHT - 8,
		"middle", below);
}

static void curve_put(FILE *file)
{
	double most = 1e-9;
	uint32_t at;

	for (at = 0; at < run_count; at++)
		most = fmax(most, fmax(ib_pull_gb_s(&runs[at].result),
				       ib_copy_gb_s(&runs[at].result)));
	svg_begin(file, "Throughput by size of a request");
	line_put(file, "copy", ib_copy_gb_s, most);
	line_put(file, "pull", ib_pull_gb_s, most);
	for (at = 0; at < run_count; at++)
		tick_put(file, MARGIN + at * WIDE / (run_count - 1),
			 (double)runs[at].bytes / 1024);
	svg_end(file, most, 2, "GB/s",
		"KiB a request; solid: pulls, dashed: memcpy()");
}

static void bars_put(FILE *file)
{
	uint32_t first = 0, last = IB_BARS_MAX - 1, most = 1, at;
	double width;

	while (first < last && !bars[first])
		first++;
	while (last > first && !bars[last])
		last--;
	for (at = first; at <= last; at++)
		most = bars[at] > most ? bars[at] : most;
	width = WIDE / (last - first + 1);
	svg_begin(file, "Latencies of the last run");
	for (at = first; at <= last; at++) {
		const double height = HIGH * bars[at] / most;
		const double x = MARGIN + (at - first) * width;

		fprintf(file,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%u pulls</title></rect>\n",
			x + 1, HEIGHT - MARGIN - height, width - 2, height,
			bars[at]);
		tick_put(file, x + width, ldexp(1, (int)at) / 1e3);
	}
	svg_end(file, most, 0, "pulls", "us, by powers of two");
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
		fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>ib_pull</title>\n<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}table{border-collapse:collapse}td,th{padding:.2em .6em;border-bottom:1px solid #ccc;text-align:right}.facts *{text-align:left}svg{max-width:100%;font-size:11px}polyline{fill:none;stroke:#06c;stroke-width:2}.copy{stroke:#999;stroke-dasharray:4}.axis{fill:none;stroke:#333}rect{fill:#06c}</style></head>\n<body>\n<h1>ib_pull</h1>\n",
		      file);
		runs_put(file);
		if (run_count > 1)
			curve_put(file);
		bars_put(file);
		facts_put(file, options);
		fputs("</body></html>\n", file);
	}
	failed = !file || ferror(file);
	if (file && fclose(file))
		failed = 1;
	if (failed)
		fprintf(stderr, "--report %s: cannot write: %s\n",
			options->report, strerror(errno ? errno : EIO));
	return failed;
}
