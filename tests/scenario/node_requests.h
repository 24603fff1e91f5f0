/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an engine's process, and its requests; node_engine.c. */
#ifndef KVPULL_TESTS_NODE_REQUESTS_H
#define KVPULL_TESTS_NODE_REQUESTS_H

#include "tests/scenario/node.h"
#include "tests/scenario/ranks.h"

#define REQUESTS_MAX 65536u /* open at once; a key is at key mod this */

enum request_state {
	REQUEST_FREE = 0,
	REQUEST_HELD,     /* P: until SENT */
	REQUEST_ADMITTED, /* D: not to be pulled yet */
	REQUEST_ASKING,   /* D: matched_tokens() every step */
	REQUEST_LOADING,  /* D: until LOADED or FAILED */
	REQUEST_KEPT      /* D: loaded, not finished */
};

struct request {
	uint64_t key;
	uint64_t seed;
	enum request_state state;
	uint32_t blocks; /* a group */
	uint32_t flags;
	uint32_t aborted;
	uint32_t *ids;
};

struct server {
	const struct node_params *params;
	struct engine engine;
	struct request *requests; /* [REQUESTS_MAX] */
	uint32_t request_count;
	uint32_t asking_count;
	uint32_t queues; /* something was admitted and not pulled at once */
	uint32_t spin;
	int control;
	int stop;
	uint64_t sent_released;
	uint64_t late_releases;
	uint64_t lost_requests;
	FILE *log;
	char config[1024];
	struct ranks ranks; /* split */
	struct node_message message;
};

struct request *node_request_find(struct server *server, uint64_t key);
struct request *node_request_add(struct server *server, uint64_t key);
void node_request_remove(struct server *server, struct request *request);
void node_groups_fill(const struct server *server, const uint32_t *ids,
		      uint32_t count, struct kvpull_blocks *groups);
void node_request_fill(const struct server *server,
		       const struct node_message *message,
		       struct kvpull_request *request);
/* engine_block_fill() and _wrong(), in the ranks' processes if it has any. */
void node_block_fill(struct server *server, uint32_t group, uint32_t id,
		     uint64_t seed);
uint64_t node_block_wrong(struct server *server, uint32_t group, uint32_t id,
			  uint64_t seed);
/* Blocks of a request, or NULL if the pool has not enough. */
uint32_t *node_ids_take(struct server *server, uint32_t blocks);
void node_held_add(struct server *server, const struct node_message *message,
		   uint64_t key, uint32_t *ids);

#endif /* KVPULL_TESTS_NODE_REQUESTS_H */
