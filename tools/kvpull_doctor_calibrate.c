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
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
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

struct candidate {
	const struct kvpull_copy_routine *routine;
	uint32_t is_out[KVPULL_COPY_CLASSES];
	uint64_t median_ns[KVPULL_COPY_CLASSES];
	uint64_t took_ns[KVPULL_COPY_CLASSES][ROUNDS_MAX];
};

struct bench {
	struct kvpull_shared from;
	struct kvpull_shared to;
	size_t side_bytes;
	size_t at; /* of the next sample's first block, before it is scattered */
	uint64_t serial;
	uint64_t until_ns; /* then it is given up */
	uint32_t candidate_count;
	uint32_t is_watched; /* at a terminal, by a person */
	struct candidate candidates[ROUTINES_MAX];
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
static void candidates_find(struct bench *bench)
{
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);
	uint32_t i;

	for (i = 0; i < count && bench->candidate_count < ROUTINES_MAX; i++)
		if (kvpull_copy_usable(&all[i]) &&
		    !strstr(all[i].name, "-nt-1"))
			bench->candidates[bench->candidate_count++].routine =
				&all[i];
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

static int is_late(const struct bench *bench)
{
	return kvpull_clock_ns() > bench->until_ns;
}

/* 0, or -1: given up. */
static int round_run(struct bench *bench, uint32_t round)
{
	uint32_t class, i;

	/* Between two samples of a class are the others: it begins cold. */
	for (i = 0; i < bench->candidate_count; i++) {
		struct candidate *candidate = &bench->candidates[i];

		for (class = 0; class < KVPULL_COPY_CLASSES; class ++) {
			if (is_late(bench))
				return -1;
			if (!candidate->is_out[class])
				candidate->took_ns[class][round] =
					sample(bench, candidate->routine,
					       class_bytes[class]);
		}
	}
	return 0;
}

static uint64_t median(const uint64_t *times, uint32_t count)
{
	uint64_t sorted[ROUNDS_MAX] = { 0 };
	uint32_t i, k;

	for (i = 0; i < count; i++) {
		for (k = i; k > 0 && sorted[k - 1] > times[i]; k--)
			sorted[k] = sorted[k - 1];
		sorted[k] = times[i];
	}
	return sorted[(count - 1) / 2];
}

/* Medians of those still in, and out with those far behind the best. */
static void sift(struct bench *bench, uint32_t class, uint32_t round_count,
		 uint32_t percent)
{
	uint64_t best_ns = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < bench->candidate_count; i++) {
		struct candidate *candidate = &bench->candidates[i];

		if (candidate->is_out[class])
			continue;
		candidate->median_ns[class] =
			median(candidate->took_ns[class], round_count);
		if (candidate->median_ns[class] < best_ns)
			best_ns = candidate->median_ns[class];
	}
	for (i = 0; i < bench->candidate_count; i++)
		if (bench->candidates[i].median_ns[class] >
		    best_ns * percent / 100)
			bench->candidates[i].is_out[class] = 1;
}

static void all_sift(struct bench *bench, uint32_t round_count,
		     uint32_t percent)
{
	uint32_t class;

	for (class = 0; class < KVPULL_COPY_CLASSES; class ++)
		sift(bench, class, round_count, percent);
}

/* The next line of the doctor takes the place of this one. */
static void progress_show(const struct bench *bench, uint32_t round)
{
	if (bench->is_watched)
		(void)fprintf(stderr, "\rcalibrating: %u of at most %u rounds ",
			      round, ROUNDS_MAX);
}

static void progress_clear(const struct bench *bench)
{
	if (bench->is_watched)
		(void)fputs("\r\033[K", stderr);
}

/* 0, or -1: given up. */
static int measure(struct bench *bench)
{
	const uint64_t start_ns = kvpull_clock_ns();
	uint32_t round = 0;

	while (round < ROUNDS_MAX && (round < ROUNDS_FIRST ||
				      kvpull_clock_ns() - start_ns < TIME_NS)) {
		if (round_run(bench, round++))
			return -1;
		progress_show(bench, round);
		if (round == ROUNDS_FIRST)
			all_sift(bench, round, FIRST_PERCENT);
		else if (round == ROUNDS_SECOND)
			all_sift(bench, round, SECOND_PERCENT);
	}
	all_sift(bench, round, FIRST_PERCENT);
	return 0;
}

static void choose(const struct bench *bench,
		   struct kvpull_copy_choices *choices)
{
	uint32_t class, i;

	for (class = 0; class < KVPULL_COPY_CLASSES; class ++) {
		/* memcpy is the first of all routines. */
		const uint64_t memcpy_ns =
			bench->candidates[0].median_ns[class];
		uint64_t best_ns = memcpy_ns - memcpy_ns * MARGIN_PERCENT / 100;

		choices->routines[class] = bench->candidates[0].routine;
		for (i = 1; i < bench->candidate_count; i++) {
			const struct candidate *candidate =
				&bench->candidates[i];

			if (candidate->is_out[class] ||
			    candidate->median_ns[class] >= best_ns)
				continue;
			best_ns = candidate->median_ns[class];
			choices->routines[class] = candidate->routine;
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

/* 0, or why it was given up. */
static int calibrate(struct bench *bench, struct kvpull_copy_choices *choices)
{
	const struct kvpull_log silent = { 0 };
	int code = kvpull_segment_make(&bench->from, "kvpull-calibrate",
				       bench->side_bytes,
				       KVPULL_SEGMENT_READ_ONLY, 1, &silent);

	if (!code)
		code = kvpull_segment_make(
			&bench->to, "kvpull-calibrate", bench->side_bytes,
			KVPULL_SEGMENT_READ_ONLY, 1, &silent);
	if (code)
		return code;
	/* No page's first use is in a sample. */
	memset(bench->from.base, 1, bench->side_bytes);
	memset(bench->to.base, 1, bench->side_bytes);
	candidates_find(bench);
	if (measure(bench))
		return KVPULL_EAGAIN;
	choose(bench, choices);
	return 0;
}

int doctor_calibrate(struct kvpull_copy_choices *choices)
{
	const size_t side_bytes = side_bytes_choose();
	struct bench *bench;
	int code;

	if (!side_bytes)
		return KVPULL_ENOMEM;
	bench = mmap(NULL, sizeof(*bench), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bench == MAP_FAILED)
		return KVPULL_ENOMEM;
	bench->side_bytes = side_bytes;
	bench->until_ns = kvpull_clock_ns() + GIVE_UP_NS;
	bench->is_watched = isatty(STDERR_FILENO) == 1;
	code = calibrate(bench, choices);
	progress_clear(bench);
	kvpull_segment_unmake(&bench->from);
	kvpull_segment_unmake(&bench->to);
	(void)munmap(bench, sizeof(*bench));
	return code;
}
