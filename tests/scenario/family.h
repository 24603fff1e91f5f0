/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of families from one producer to some consumers: F2 and F3. */
#ifndef KVPULL_TESTS_FAMILY_H
#define KVPULL_TESTS_FAMILY_H

#include "tests/scenario/node.h"

#define FAMILY_CONSUMERS_MAX 4u

struct family_setup {
	uint32_t p_tp;
	uint32_t p_pp; /* 0: 1 */
	uint32_t d_count;
	uint32_t d_tp[FAMILY_CONSUMERS_MAX];
	uint32_t d_pp;   /* of each; 0: 1 */
	uint32_t layers; /* 0: 2 */
	uint32_t split;  /* each rank is a process */
	uint32_t siblings;
	uint32_t blocks; /* of a request, a group */
	uint32_t batches;
	uint32_t a_batch; /* families a consumer and batch */
	uint32_t gpu;     /* blocks are a GPU's */
};

/* Open P and the consumers; pools hold exactly one batch. */
void family_open(const struct scenario *scenario,
		 const struct family_setup *setup, struct node *p,
		 struct node *consumers);
/* Runs all of it, with every claim of F2. */
void family_run(const struct scenario *scenario,
		const struct family_setup *setup);

#endif /* KVPULL_TESTS_FAMILY_H */
