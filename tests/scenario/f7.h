/* SPDX-License-Identifier: Apache-2.0 */
/* F7's race between a pull and the end of its hold; f7.c runs it. */
#ifndef KVPULL_TESTS_F7_H
#define KVPULL_TESTS_F7_H

#include "tests/scenario/scenario.h"

/* The overwriter of blocks that came back. */
enum f7_mode {
	F7_IN_POLL, /* the engine's thread, in the poll that reports */
	F7_THREAD,  /* another thread */
	F7_STREAMED /* the engine's thread, with non-temporal stores */
};

/* On a GPU: the work for its own blocks that D has queued before it pulls. */
enum f7_work {
	F7_ZEROES = 0, /* stores of zeros into new blocks */
	F7_LOADS,    /* loads by a step in flight, of blocks that were freed */
	F7_CAPTURED, /* zeros, and the step's mark meets a capture */
	F7_CARELESS  /* zeros, and there is never a mark */
};

/* Sides whose blocks are a GPU's. */
enum f7_gpu {
	F7_GPU_NONE = 0,
	F7_GPU_BOTH,
	F7_GPU_PRODUCER,
	F7_GPU_CONSUMER
};

struct f7_setup {
	enum f7_mode mode;
	uint64_t tries;
	uint64_t expired; /* of these, at least */
	uint64_t loaded;  /* likewise */
	uint64_t limit_ns;
	uint64_t until_torn; /* stop at so many of each size; 0: no */
	uint32_t block_bytes; /* eight a large pull, four a small one; 0: 8 KiB */
	uint32_t shares;      /* 1: a copy thread and progress share a pull */
	enum f7_gpu gpu;
	uint32_t unmarked; /* 1: D says that it has queued nothing */
	enum f7_work work;
	uint32_t states; /* 1: a request has a slot of a state as well */
};

/* Every other pull is a small one: on one node the engine's thread copies it. */
enum f7_size {
	F7_LARGE,
	F7_SMALL,
	F7_SIZES
};

struct f7_counts {
	uint64_t tries, loaded, expired, failed;
	int64_t failed_for; /* the last one */
	/* Pulls that were believed and had wrong bytes. */
	uint64_t wrong[F7_SIZES];
	uint64_t torn[F7_SIZES]; /* of these: overwritten while they were read */
	uint64_t states;    /* pulls that were believed and had a wrong state */
	uint64_t disturbed; /* loads of D's own step that met a pull's bytes */
};

void f7_run(const struct scenario *scenario, const struct f7_setup *setup,
	    struct f7_counts *counts);

/* A race with the blocks of both sides on GPUs: so many tries, within a time. */
struct f7_setup f7_gpu_setup(const struct scenario *scenario, uint64_t tries);
/* Run it, and say its counts. Return: pulls with wrong bytes that were believed. */
uint64_t f7_gpu_race(const struct scenario *scenario,
		     const struct f7_setup *setup, struct f7_counts *counts);

/* A GPU of P or D. Without marks neither has one; P makes no pulls. */
const struct engine_gpu *f7_gpu_open(const struct f7_setup *setup);
/* Queue D's own work on its blocks. */
void f7_gpu_queue(const struct f7_setup *setup, struct engine *engine,
		  const uint32_t *ids, uint32_t count);
/* The step behind it. 0, or engine_step()'s error. */
int f7_gpu_step(const struct f7_setup *setup, struct engine *engine);
/* The pull has ended. How many of D's own loads met its bytes? */
uint64_t f7_gpu_disturbed(const struct f7_setup *setup,
			  const struct engine *engine, uint32_t count);

#endif /* KVPULL_TESTS_F7_H */
