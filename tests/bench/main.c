// SPDX-License-Identifier: Apache-2.0
/*
 * kvpull_bench [--quick] [--runs N] [--repetitions N] [--shapes ABCDEFG]
 *              [--parts shapes,small,many,attach,notify,room,core,ticket,pool,status,disk] [--json FILE]
 *
 * Always exits 0, but for wrong arguments: a benchmark is not a test.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/copy_choice.h"
#include "tests/bench/bench.h"
#include "tools/kvpull_doctor_calibrate.h"

#define REPETITIONS 16u
/* The fewest: limit_ms() parts the samples in two halves, by pairs. */
#define REPETITIONS_QUICK 4u
#define REPETITIONS_MAX 64u

struct part {
	const char *name;
	void (*run)(const struct bench *bench);
};

static const struct part parts[] = {
	{ "shapes", bench_shapes }, { "small", bench_small },
	{ "many", bench_many },     { "attach", bench_attach },
	{ "notify", bench_notify }, { "room", bench_room },
	{ "core", bench_core },     { "ticket", bench_ticket },
	{ "pool", bench_pool },     { "status", bench_status },
	{ "disk", bench_disk },
};

static const struct option long_options[] = {
	{ "quick", no_argument, NULL, 'q' },
	{ "runs", required_argument, NULL, 'n' },
	{ "repetitions", required_argument, NULL, 'r' },
	{ "shapes", required_argument, NULL, 's' },
	{ "parts", required_argument, NULL, 'p' },
	{ "json", required_argument, NULL, 'j' },
	{ NULL, 0, NULL, 0 },
};

static int usage(void)
{
	fprintf(stderr,
		"usage: kvpull_bench [--quick] [--runs 1..%u] [--repetitions 1..%u] [--shapes ABCDEFG] [--parts shapes,small,many,attach,notify,room,core,ticket,pool,status,disk] [--json FILE]\n",
		RUNS_MAX, REPETITIONS_MAX);
	return 2;
}

static double load_now(void)
{
	double load;

	return getloadavg(&load, 1) == 1 ? load : (double)NAN;
}

static void run(struct report *report, struct bench *bench, const char *chosen)
{
	const uint32_t number = report->run_count++;
	size_t index;

	report->loads[number] = load_now();
	bench->results = &report->runs[number];
	for (index = 0; index < sizeof(parts) / sizeof(parts[0]); index++) {
		if (!strstr(chosen, parts[index].name))
			continue;
		fprintf(stderr, "run %u: %s\n", number + 1, parts[index].name);
		parts[index].run(bench);
	}
	report->loads[number + 1] = load_now();
}

/* As `kvpull_doctor --calibrate` on this node. */
static void calibrate(struct report *report, const char *dir)
{
	const struct kvpull_log silent = { 0 };
	struct kvpull_folder folder = { .path = dir, .fd = -1 };
	struct kvpull_copy_choices choices;

	(void)snprintf(report->calibration, sizeof(report->calibration),
		       "none: defaults");
	if (!doctor_calibrate(&choices) &&
	    !kvpull_folder_open(&folder, &silent) &&
	    !kvpull_copy_choice_save(&folder, &choices, &silent))
		kvpull_copy_choices_print(&choices, report->calibration,
					  sizeof(report->calibration));
	kvpull_folder_close(&folder);
}

int main(int argc, char **argv)
{
	static struct report report;
	char dir[] = "/tmp/kvpull-bench-XXXXXX";
	struct bench bench = { .dir = dir,
			       .shapes = "ABCDEFG",
			       .repetitions = REPETITIONS };
	const char *chosen =
		"shapes,small,many,attach,notify,room,core,ticket,pool,status";
	const char *json = NULL;
	char remembered[64];
	uint32_t runs = 3;
	int option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) !=
	       -1) {
		if (option == 'q') {
			runs = 1;
			bench.repetitions = REPETITIONS_QUICK;
		} else if (option == 'n') {
			runs = (uint32_t)strtoul(optarg, NULL, 10);
		} else if (option == 'r') {
			bench.repetitions = (uint32_t)strtoul(optarg, NULL, 10);
		} else if (option == 's') {
			bench.shapes = optarg;
		} else if (option == 'p') {
			chosen = optarg;
		} else if (option == 'j') {
			json = optarg;
		} else {
			return usage();
		}
	}
	if (optind < argc || !runs || runs > RUNS_MAX || !bench.repetitions ||
	    bench.repetitions > REPETITIONS_MAX)
		return usage();
	if (!mkdtemp(dir)) {
		perror("bench: mkdtemp");
		return 0;
	}
	report.repetitions = bench.repetitions;
	calibrate(&report, dir);
	while (report.run_count < runs)
		run(&report, &bench, chosen);
	(void)snprintf(remembered, sizeof(remembered),
		       "%s/" KVPULL_COPY_CHOICE_FILE, dir);
	(void)unlink(remembered);
	(void)rmdir(dir);
	report_print(&report);
	if (json)
		(void)report_write(&report, json);
	return 0;
}
