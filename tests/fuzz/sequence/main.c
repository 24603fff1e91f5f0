/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences from a seed:
 *   kvpull_sequences --seed N --sequences N [--first N] [--seconds N]
 * Sequence i is the same whatever was before it, its world is not: a failure
 * names the first sequence of its world, to begin at.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/fuzz/sequence/sequence.h"
#include "tests/lib/patience.h"

#define STEPS_MORE 40u            /* beyond the least */
#define BUSY_S 20                 /* of the processor, one sequence */
#define HANG_S (60u * patience()) /* likewise, by the clock */

struct options {
	uint64_t seed;
	uint64_t first;
	uint64_t sequences;
	uint64_t seconds; /* 0: no limit */
	const char *save; /* the bytes of the first sequence go there */
};

/* The parent's view of a child that died. */
struct progress {
	_Atomic uint64_t at;
	_Atomic uint64_t world_at;
};

static uint64_t mix(uint64_t value)
{
	value += UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* Bytes of sequence `at`, and how many steps it takes. */
static uint32_t sequence_make(uint64_t seed, uint64_t at, uint8_t *bytes)
{
	uint64_t state = mix(mix(seed) ^ at);
	size_t i;

	for (i = 0; i < SEQ_BYTES_MAX; i += sizeof(state)) {
		state = mix(state);
		memcpy(bytes + i, &state, sizeof(state));
	}
	return SEQ_STEPS_MIN + (uint32_t)(mix(state) % STEPS_MORE);
}

static void sequences_run(const struct options *options,
			  struct progress *progress)
{
	const uint64_t until_ns =
		kvpull_clock_ns() + options->seconds * KVPULL_NS_PER_S;
	const struct itimerval busy = { .it_value = { .tv_sec = BUSY_S } };
	uint8_t bytes[SEQ_BYTES_MAX];
	uint64_t at;

	for (at = options->first; at < options->first + options->sequences;
	     at++) {
		const uint32_t steps = sequence_make(options->seed, at, bytes);

		if (options->seconds && kvpull_clock_ns() > until_ns)
			break;
		(void)alarm(HANG_S);
		(void)setitimer(ITIMER_PROF, &busy, NULL);
		if (seq_will_open() || at == options->first)
			atomic_store_explicit(&progress->world_at, at,
					      memory_order_relaxed);
		atomic_store_explicit(&progress->at, at, memory_order_relaxed);
		seq_run(bytes, sizeof(bytes), mix(options->seed) ^ at, steps);
	}
	seq_world_end();
	(void)alarm(0);
	(void)setitimer(ITIMER_PROF, &(struct itimerval){ 0 }, NULL);
}

static int totals_say(const struct options *options, uint64_t began_ns)
{
	const struct seq_totals *totals = seq_totals();
	const double seconds =
		(double)(kvpull_clock_ns() - began_ns) / KVPULL_NS_PER_S;

	(void)printf(
		"# seed %llu: %llu sequences, %llu steps, %llu worlds, %llu pulls, %llu welcomes, %.1f s, %.0f a second\n",
		(unsigned long long)options->seed,
		(unsigned long long)totals->sequences,
		(unsigned long long)totals->steps,
		(unsigned long long)totals->worlds,
		(unsigned long long)totals->pulls,
		(unsigned long long)totals->welcomes, seconds,
		(double)totals->sequences / seconds);
	(void)printf("1 passed, 0 failed, 0 skipped\n");
	return 0;
}

static int failure_say(const struct options *options,
		       const struct progress *progress, int status)
{
	const uint64_t at =
		atomic_load_explicit(&progress->at, memory_order_relaxed);
	const uint64_t world_at =
		atomic_load_explicit(&progress->world_at, memory_order_relaxed);

	(void)printf(
		"sequence %llu of seed %llu failed (%s %d): kvpull_sequences --seed %llu --first %llu --sequences %llu\n",
		(unsigned long long)at, (unsigned long long)options->seed,
		WIFSIGNALED(status) ? "signal" : "status",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
		(unsigned long long)options->seed, (unsigned long long)world_at,
		(unsigned long long)(at - world_at + 1));
	(void)printf("0 passed, 1 failed, 0 skipped\n");
	return 1;
}

static int number_take(const char *text, uint64_t *number)
{
	char *end;

	*number = strtoull(text, &end, 0);
	return *text && !*end;
}

static int options_take(struct options *options, int argc, char **argv)
{
	int i;

	for (i = 1; i + 1 < argc; i += 2) {
		const char *name = argv[i];
		uint64_t *number =
			!strcmp(name, "--seed")      ? &options->seed :
			!strcmp(name, "--first")     ? &options->first :
			!strcmp(name, "--sequences") ? &options->sequences :
			!strcmp(name, "--seconds")   ? &options->seconds :
						       NULL;

		if (!strcmp(name, "--save"))
			options->save = argv[i + 1];
		else if (!number || !number_take(argv[i + 1], number))
			return 0;
	}
	return i == argc;
}

/* Saves the bytes, so that a corpus may have them. */
static int bytes_save(const struct options *options)
{
	uint8_t bytes[SEQ_BYTES_MAX];
	FILE *file = fopen(options->save, "wb");

	(void)sequence_make(options->seed, options->first, bytes);
	if (!file || fwrite(bytes, 1, sizeof(bytes), file) != sizeof(bytes) ||
	    fclose(file)) {
		perror(options->save);
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options options = { .seed = 1, .sequences = 1000 };
	const uint64_t began_ns = kvpull_clock_ns();
	struct progress *progress;
	int status = 0;
	pid_t child;

	if (!options_take(&options, argc, argv)) {
		(void)fprintf(
			stderr,
			"usage: %s [--seed N] [--first N] [--sequences N] [--seconds N] [--save FILE]\n",
			argv[0]);
		return 2;
	}
	if (options.save)
		return bytes_save(&options);
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (progress == MAP_FAILED)
		return 1;
	(void)fflush(stdout);
	/* The parent reports where the sequence was, however the child ends. */
	child = fork();
	if (!child) {
		sequences_run(&options, progress);
		return totals_say(&options, began_ns);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	return status ? failure_say(&options, progress, status) : 0;
}
