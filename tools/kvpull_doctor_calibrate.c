// SPDX-License-Identifier: Apache-2.0
/*
 * Calibration: the candidates copy small synthetic reads through the very code
 * that real reads take, in turns, and the best median of each size class wins.
 *
 * As real reads: both sides are what the provider gives an engine, and a sample
 * takes blocks from all over them, other ones than the samples before, so that
 * neither caches nor TLBs know them. In 64 MiB, and with neighbours in a sample,
 * the choice for blocks of 16 KiB was 3 % slower than the best on 512 MiB of
 * scattered ones. Long reads are long enough to be cut as real ones are.
 *
 * Cheap: all run ROUNDS_FIRST rounds, those near the best ROUNDS_SECOND, and
 * those that are hardly behind it up to ROUNDS_MAX, while there is time: of
 * eleven samples the medians lay 5 % beside the truth, more than the best are
 * apart.
 */
#include "tools/kvpull_doctor_calibrate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/least.h"
#include "shm/memory_left.h"
#include "shm/segment.h"

/* Powers of two, as the blocks of a side must be. */
#define SIDE_BYTES_MIN (64u << 20)
#define SIDE_BYTES_MAX (512u << 20)
/*
 * Both sides take at most a quarter of the free memory, the smallest samples a
 * half.
 */
#define FREE_PARTS 8u
#define SAMPLE_BYTES (4u << 20)
/* Shares have their full length from 16 MiB on. */
#define SAMPLE_LONG_BYTES (16u << 20)
#define CLASS_BYTES_MIN 512u
#define SAMPLE_BLOCKS_MAX (SAMPLE_BYTES / CLASS_BYTES_MIN)
#define ROUNDS_FIRST 3u
#define ROUNDS_SECOND 15u
#define ROUNDS_MAX 63u
#define ROUTINES_MAX 24u
#define TIME_NS (2 * KVPULL_NS_PER_S)
/* A machine so slow, or so busy, is not measured. */
#define GIVE_UP_NS (20 * KVPULL_NS_PER_S)
/*
 * Drop candidates slower than best x 1.12 after the first rounds, and than best
 * x 1.05 after the second.
 */
#define FIRST_PERCENT 112u
#define SECOND_PERCENT 105u
/* A candidate must beat memcpy by this much, or memcpy stays: noise. */
#define MARGIN_PERCENT 3u

/* A routine's samples of one class, the fastest first. */
struct times {
	uint32_t is_out; /* no more are taken */
	uint32_t count;
	uint64_t ns[ROUNDS_MAX];
};

struct bench {
	struct kvpull_shared from;
	struct kvpull_shared to;
	size_t side_bytes;
	size_t at; /* of the next sample's first block, before it is scattered */
	uint64_t serial;
	uint64_t until_ns; /* then it is given up */
	uint32_t routine_count;
	const struct kvpull_copy_routine *routines[ROUTINES_MAX];
	struct times times[KVPULL_COPY_CLASSES][ROUTINES_MAX];
	uint32_t remote_ids[SAMPLE_BLOCKS_MAX];
	uint32_t local_ids[SAMPLE_BLOCKS_MAX];
};

static const uint32_t class_bytes[KVPULL_COPY_CLASSES] = {
	[KVPULL_COPY_1K] = CLASS_BYTES_MIN,
	[KVPULL_COPY_4K] = 4096,
	[KVPULL_COPY_16K] = 16384,
	[KVPULL_COPY_64K] = 32768, /* the commonest of its class */
	[KVPULL_COPY_LONG] = 262144,
};

/* All but the single streams: those lose to several on every CPU measured. */
static void routines_find(struct bench *bench)
{
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);
	uint32_t i;

	for (i = 0; i < count && bench->routine_count < ROUTINES_MAX; i++)
		if (kvpull_copy_usable(&all[i]) &&
		    !strstr(all[i].name, "-nt-1"))
			bench->routines[bench->routine_count++] = &all[i];
}

/* Time one sample. */
static uint64_t sample(struct bench *bench,
		       const struct kvpull_copy_routine *routine,
		       uint32_t block_bytes)
{
	const size_t bytes =
		block_bytes > 65536 ? SAMPLE_LONG_BYTES : SAMPLE_BYTES;
	const uint32_t block_count = (uint32_t)(bytes / block_bytes);
	/* So short they are rows, and lie beside the others of their block. */
	const uint32_t range =
		block_bytes <= 1024 ?
			block_count :
			(uint32_t)(bench->side_bytes / block_bytes);
	const uint32_t first = (uint32_t)(bench->at / block_bytes);
	const uint32_t base = first - first % range;
	const uint32_t group_first[2] = { 0, block_count };
	const uint8_t *region = bench->from.base;
	struct kvpull_strip strip = { .remote_block_stride = block_bytes,
				      .local = bench->to.base,
				      .local_block_stride = block_bytes,
				      .row_bytes = block_bytes,
				      .row_count = 1 };
	struct kvpull_read read = { .strip_count = 1,
				    .strips = &strip,
				    .remote_ids = bench->remote_ids,
				    .local_ids = bench->local_ids,
				    .group_first = group_first };
	struct kvpull_copy_job job = { .read = &read, .regions = &region };
	struct kvpull_copy_cursor cursor = { 0 };
	struct kvpull_copy_choices choices;
	struct kvpull_copy_plan plan;
	uint64_t start_ns;
	uint32_t i;

	/* Odd multipliers shuffle a power of two. */
	for (i = 0; i < block_count; i++) {
		bench->remote_ids[i] = base + (first + i) * 0x9e3779b1u % range;
		bench->local_ids[i] =
			base + ((first + i) * 0x85ebca6bu + 3) % range;
	}
	bench->at = (bench->at + bytes) % bench->side_bytes;
	kvpull_copy_choices_set(&choices, routine);
	start_ns = kvpull_clock_ns();
	kvpull_copy_plan_init(&plan, &job, &choices, ++bench->serial);
	for (i = 0; i < plan.share_count; i++)
		kvpull_copy_share(&plan, i, &cursor);
	return kvpull_clock_ns() - start_ns;
}

static void time_add(struct times *times, uint64_t ns)
{
	uint32_t at = times->count++;

	for (; at > 0 && times->ns[at - 1] > ns; at--)
		times->ns[at] = times->ns[at - 1];
	times->ns[at] = ns;
}

static uint64_t median(const struct times *times)
{
	return times->ns[(times->count - 1) / 2];
}

/* 0 or KVPULL_EAGAIN: given up. */
static int round_run(struct bench *bench)
{
	uint32_t class, i;

	/* Between two samples of a class are the others: it begins cold. */
	for (i = 0; i < bench->routine_count; i++) {
		for (class = 0; class < KVPULL_COPY_CLASSES; class ++) {
			struct times *times = &bench->times[class][i];

			if (kvpull_clock_ns() > bench->until_ns)
				return KVPULL_EAGAIN;
			if (!times->is_out)
				time_add(times,
					 sample(bench, bench->routines[i],
						class_bytes[class]));
		}
	}
	return 0;
}

/* Drops the routines that are far behind the best of their class. */
static void sift(struct bench *bench, uint32_t percent)
{
	uint32_t class, i;

	for (class = 0; class < KVPULL_COPY_CLASSES; class ++) {
		struct times *times = bench->times[class];
		uint64_t best_ns = UINT64_MAX;

		for (i = 0; i < bench->routine_count; i++)
			if (!times[i].is_out)
				best_ns = kvpull_least(best_ns,
						       median(&times[i]));
		for (i = 0; i < bench->routine_count; i++)
			if (median(&times[i]) > best_ns * percent / 100)
				times[i].is_out = 1;
	}
}

/* 0 or KVPULL_EAGAIN: given up. */
static int measure(struct bench *bench)
{
	const uint64_t start_ns = kvpull_clock_ns();
	uint32_t round = 0;

	while (round < ROUNDS_MAX && (round < ROUNDS_FIRST ||
				      kvpull_clock_ns() - start_ns < TIME_NS)) {
		if (round_run(bench))
			return KVPULL_EAGAIN;
		round++;
		/* A person at a terminal sees the rounds. */
		if (isatty(STDERR_FILENO) == 1)
			(void)fprintf(stderr,
				      "\rcalibrating: %u of at most %u rounds ",
				      round, ROUNDS_MAX);
		if (round == ROUNDS_FIRST)
			sift(bench, FIRST_PERCENT);
		else if (round == ROUNDS_SECOND)
			sift(bench, SECOND_PERCENT);
	}
	sift(bench, FIRST_PERCENT);
	return 0;
}

static void choose(const struct bench *bench,
		   struct kvpull_copy_choices *choices)
{
	uint32_t class, i;

	for (class = 0; class < KVPULL_COPY_CLASSES; class ++) {
		const struct times *times = bench->times[class];
		/* memcpy is the first of all routines. */
		uint64_t best_ns =
			median(times) - median(times) * MARGIN_PERCENT / 100;

		choices->routines[class] = bench->routines[0];
		for (i = 1; i < bench->routine_count; i++) {
			if (times[i].is_out || median(&times[i]) >= best_ns)
				continue;
			best_ns = median(&times[i]);
			choices->routines[class] = bench->routines[i];
		}
	}
}

/* 0: there is too little. */
static size_t side_bytes_choose(void)
{
	const uint64_t left = kvpull_memory_left("");
	size_t bytes = SIDE_BYTES_MAX;

	while (bytes > SIDE_BYTES_MIN && bytes > left / FREE_PARTS)
		bytes /= 2;
	return bytes > left / 4 ? 0 : bytes;
}

/* No page's first use is in a sample. 0, or why there is no such memory. */
static int side_make(const struct bench *bench, struct kvpull_shared *side)
{
	const struct kvpull_log silent = { 0 };
	const int code =
		kvpull_segment_make(side, "kvpull-calibrate", bench->side_bytes,
				    KVPULL_SEGMENT_READ_ONLY, 1, &silent);

	if (!code)
		memset(side->base, 1, side->bytes);
	return code;
}

int doctor_calibrate(struct kvpull_copy_choices *choices)
{
	static struct bench bench;
	int code;

	bench = (struct bench){
		.side_bytes = side_bytes_choose(),
		.until_ns = kvpull_clock_ns() + GIVE_UP_NS,
	};
	if (!bench.side_bytes)
		return KVPULL_ENOMEM;
	routines_find(&bench);
	code = side_make(&bench, &bench.from);
	if (!code)
		code = side_make(&bench, &bench.to);
	if (!code)
		code = measure(&bench);
	if (!code)
		choose(&bench, choices);
	/* The next line of the doctor takes the place of the last round's. */
	if (isatty(STDERR_FILENO) == 1)
		(void)fputs("\r\033[K", stderr);
	kvpull_segment_unmake(&bench.from);
	kvpull_segment_unmake(&bench.to);
	return code;
}
