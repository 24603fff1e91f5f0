/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmark of one node: samples, named results, and the parts that
 * measure. A part that fails says why and leaves its results out: a benchmark
 * is not a test.
 */
#ifndef KVPULL_TESTS_BENCH_H
#define KVPULL_TESTS_BENCH_H

#include <stdint.h>

#include "base/clock.h"
#include "tests/lib/random.h"

#define SAMPLES_MAX 8192u
#define RESULTS_MAX 1024u
#define RESULT_NAME_BYTES 96u
#define RUNS_MAX 9u

struct samples {
	double values[SAMPLES_MAX];
	uint32_t count;
};

void samples_add(struct samples *samples, double value);
/* Sorts. share 0.5 is the median, 0.99 the p99; NAN without samples. */
double samples_at(struct samples *samples, double share);

struct result {
	char name[RESULT_NAME_BYTES]; /* dots become nested JSON objects */
	char text[64];                /* if not empty, the value is this */
	double value;
};

struct results {
	struct result all[RESULTS_MAX];
	uint32_t count;
};

void __attribute__((format(printf, 3, 4)))
results_put(struct results *results, double value, const char *format, ...);
void results_put_text(struct results *results, const char *text,
		      const char *name);
/* NAN if it is not there. */
double results_get(const struct results *results, const char *name);

struct bench {
	const char *dir;    /* of the sockets */
	const char *shapes; /* letters */
	uint32_t repetitions;
	struct results *results;
};

void bench_shapes(const struct bench *bench);
void bench_small(const struct bench *bench);
void bench_many(const struct bench *bench);
void bench_attach(const struct bench *bench);
void bench_notify(const struct bench *bench);
void bench_room(const struct bench *bench);
void bench_core(const struct bench *bench);
void bench_ticket(const struct bench *bench);
void bench_pool(const struct bench *bench);
void bench_pool_node(const struct bench *bench);
void bench_status(const struct bench *bench);
/* Only where it is asked for: it fills a disk. */
void bench_disk(const struct bench *bench);

struct report {
	struct results runs[RUNS_MAX];
	double loads[RUNS_MAX +
		     1]; /* load average, before each run and at the end */
	uint32_t run_count;
	uint32_t repetitions;
	char calibration[256]; /* the copy routines in use */
};

/* The tables for people, and the bars: the median of the runs. */
void report_print(const struct report *report);
/* 0, or -1: said. */
int report_write(const struct report *report, const char *path);

static inline uint32_t bench_random(void)
{
	static uint64_t state = UINT64_C(88172645463325252);

	return (uint32_t)(random_next(&state) >> 32);
}

#endif /* KVPULL_TESTS_BENCH_H */
