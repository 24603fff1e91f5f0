/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenario/node_requests.h"

#include <stdlib.h>
#include <string.h>

#define SCRIBBLE UINT64_C(0x5c51bb1e)

struct request *node_request_find(struct server *server, uint64_t key)
{
	struct request *request = &server->requests[key % REQUESTS_MAX];

	return request->state != REQUEST_FREE && request->key == key ? request :
								       NULL;
}

struct request *node_request_add(struct server *server, uint64_t key)
{
	struct request *request = &server->requests[key % REQUESTS_MAX];

	if (request->state != REQUEST_FREE)
		abort();
	*request = (struct request){ .key = key };
	server->request_count++;
	return request;
}

void node_block_fill(struct server *server, uint32_t group, uint32_t id,
		     uint64_t seed)
{
	if (server->params->split)
		ranks_fill(&server->ranks, group, id, seed);
	else
		engine_block_fill(&server->engine, group, id, seed);
}

uint64_t node_block_wrong(struct server *server, uint32_t group, uint32_t id,
			  uint64_t seed)
{
	return server->params->split ?
		       ranks_wrong(&server->ranks, group, id, seed) :
		       engine_block_wrong(&server->engine, group, id, seed);
}

void node_request_remove(struct server *server, struct request *request)
{
	const uint32_t groups = server->engine.shape.group_count;
	uint32_t index;

	if (request->ids) {
		for (index = 0; server->params->scribble &&
				index < request->blocks * groups;
		     index++)
			node_block_fill(server, index / request->blocks,
					request->ids[index], SCRIBBLE);
		engine_blocks_give(&server->engine, request->ids,
				   request->blocks * groups);
	}
	free(request->ids);
	*request = (struct request){ .state = REQUEST_FREE };
	server->request_count--;
}

void node_groups_fill(const struct server *server, const uint32_t *ids,
		      uint32_t count, struct kvpull_blocks *groups)
{
	uint32_t group;

	for (group = 0; group < server->engine.shape.group_count; group++)
		groups[group] = (struct kvpull_blocks){
			.block_count = count,
			.block_ids = ids + group * count,
		};
}

void node_request_fill(const struct server *server,
		       const struct node_message *message,
		       struct kvpull_request *request)
{
	*request = (struct kvpull_request){
		.struct_size = sizeof(*request),
		.prompt_tokens =
			message->blocks * server->engine.shape.block_tokens,
	};
	memcpy(request->prompt_digest, &message->seed, sizeof(message->seed));
}

uint32_t *node_ids_take(struct server *server, uint32_t blocks)
{
	const uint32_t count = blocks * server->engine.shape.group_count;
	uint32_t *ids = malloc(count * sizeof(*ids));

	if (!ids)
		abort();
	if (!engine_blocks_take(&server->engine, ids, count))
		return ids;
	free(ids);
	return NULL;
}

void node_held_add(struct server *server, const struct node_message *message,
		   uint64_t key, uint32_t *ids)
{
	struct request *request = node_request_add(server, key);

	request->state = REQUEST_HELD;
	request->seed = message->seed;
	request->blocks = message->blocks;
	request->ids = ids;
}
