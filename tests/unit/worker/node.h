/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole worker in the test's own process, without its scheduler half: the
 * test says what that would have it do. Each has one region of WORLD_BLOCKS.
 */
#ifndef KVPULL_TESTS_UNIT_WORKER_NODE
#define KVPULL_TESTS_UNIT_WORKER_NODE

#include "tests/unit/worker/world.h"

#define GENERATION 9u
#define RECORDS_MAX 64u

struct node {
	struct kvpull_worker *worker;
	struct kvpull_config config;
	uint64_t scheduler; /* the scheduler half's incarnation */
	uint64_t sequence;
	struct kvpull_poll_record records[RECORDS_MAX];
	uint32_t count;
	uint8_t *memory;
};

/* setup: its incarnation, and where its routes and its time come from. */
void node_make(struct node *node, const char *id, const char *more,
	       struct kvpull_worker_setup setup);

/* NULL: a header alone, as of a half that has nothing to say. */
void node_send(struct node *node, const struct kvpull_command *command);
void node_hold(struct node *p, uint32_t slot);
void node_claim(struct node *d, const struct node *p, uint32_t slot);
void node_pull(struct node *d);
void node_release(struct node *d);
void node_poll(struct node *node);

#endif /* KVPULL_TESTS_UNIT_WORKER_NODE */
