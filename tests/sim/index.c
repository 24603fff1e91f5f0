/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world's tables, as large as it needs them, and what finds a thing in them
 * without a walk: an event costs the same in a world of any size.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/device.h"
#include "tests/sim/oracle.h"

static void *zeroed(uint64_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	if (!memory)
		abort();
	return memory;
}

void *sim_grown(void *memory, uint64_t count, size_t bytes)
{
	memory = realloc(memory, count * bytes);
	if (!memory)
		abort();
	return memory;
}

void sim_list_add(struct sim_list *list, uint32_t number)
{
	if (list->count == list->capacity) {
		list->capacity = 2 * list->capacity + 16;
		list->at =
			realloc(list->at, list->capacity * sizeof(*list->at));
		if (!list->at)
			abort();
	}
	list->at[list->count++] = number;
}

void sim_list_drop(struct sim_list *list, uint32_t at)
{
	list->at[at] = list->at[--list->count];
}

uint64_t sim_key_next(struct sim_world *world, uint32_t request)
{
	const uint64_t key = ++world->key_next;

	if (key >= world->key_capacity) {
		const uint64_t more = world->key_capacity + 1024;

		world->keys = sim_grown(world->keys, world->key_capacity + more,
					sizeof(*world->keys));
		memset(&world->keys[world->key_capacity], 0,
		       more * sizeof(*world->keys));
		world->key_capacity += more;
	}
	world->keys[key].request = request;
	return key;
}

struct sim_key *sim_key_find(struct sim_world *world, uint64_t key)
{
	static struct sim_key nobody;

	nobody = (struct sim_key){ 0 };
	return key < world->key_capacity ? &world->keys[key] : &nobody;
}

struct sim_user *sim_user_of(struct sim_hold *hold,
			     const struct sim_instance *instance)
{
	uint32_t at;

	for (at = 0; at < hold->user_count; at++)
		if (hold->users[at].instance == instance->index)
			return &hold->users[at];
	hold->users = sim_grown(hold->users, at + 1, sizeof(*hold->users));
	hold->users[at] = (struct sim_user){ .instance = instance->index };
	hold->user_count++;
	return &hold->users[at];
}

void sim_conn_link(struct sim_conn *conn)
{
	struct sim_conn **link = &conn->server->transport.conns;

	while (*link && *link < conn)
		link = &(*link)->next;
	conn->next = *link;
	*link = conn;
}

static void conn_unlink(struct sim_conn *conn)
{
	struct sim_conn **link = &conn->server->transport.conns;

	while (*link != conn)
		link = &(*link)->next;
	*link = conn->next;
}

void sim_conn_free(struct sim_conn *conn)
{
	struct sim_world *world;

	if (!conn->used || !conn->client_done || !conn->server_done)
		return;
	world = conn->client->world;
	sim_queue_clear(&conn->to_client);
	sim_queue_clear(&conn->to_server);
	free(conn->ring_memory);
	if (conn->server)
		conn_unlink(conn);
	if (!world->big && conn < &world->conns[world->conn_low])
		world->conn_low = (uint32_t)(conn - world->conns);
	*conn = (struct sim_conn){ 0 };
}

struct sim_conn *sim_conn_find(struct sim_world *world)
{
	uint32_t left;

	for (left = world->shape.conns; left; left--) {
		if (!world->conns[world->conn_low].used)
			return &world->conns[world->conn_low];
		world->conn_low = (world->conn_low + 1) % world->shape.conns;
	}
	return NULL;
}

void sim_index_open(struct sim_world *world)
{
	const struct sim_shape *shape = &world->shape;
	uint32_t at;

	world->instances =
		zeroed(world->instance_count, sizeof(*world->instances));
	world->procs = zeroed(shape->procs, sizeof(*world->procs));
	world->conns = zeroed(shape->conns, sizeof(*world->conns));
	/* A turn may give out some more than were wanted. */
	world->hold_capacity =
		world->big ? world->big + 8 * shape->procs : SIM_HOLDS;
	world->holds = zeroed(world->hold_capacity, sizeof(*world->holds));
	for (at = 0; at < world->instance_count; at++) {
		struct sim_instance *instance = &world->instances[at];
		const uint32_t times =
			sim_produces(world, at) ? shape->times : 1;

		instance->request_count = times * SIM_REQUESTS;
		instance->block_count = sim_produces(world, at) ?
						times * SIM_BLOCKS :
						shape->blocks;
		instance->requests = zeroed(instance->request_count,
					    sizeof(*instance->requests));
		instance->free_blocks = zeroed(instance->block_count,
					       sizeof(*instance->free_blocks));
		instance->slots =
			zeroed(shape->holds, sizeof(*instance->slots));
	}
}

static void proc_close(struct sim_proc *proc)
{
	uint64_t at;

	for (at = 0; at < proc->seen_count; at++)
		free(proc->seen[at]);
	free(proc->seen);
	free(proc->untaken.at);
	sim_device_free(proc);
	free(proc->memory);
}

void sim_index_close(struct sim_world *world)
{
	uint32_t rank;
	uint32_t at;

	for (at = 0; at < world->proc_count; at++)
		proc_close(&world->procs[at]);
	for (at = 0; at < world->hold_count; at++) {
		for (rank = 0; rank < SIM_RANKS_MAX; rank++)
			free(world->holds[at].ranks[rank].claimers);
		free(world->holds[at].users);
	}
	for (at = 0; at < world->instance_count; at++) {
		sim_queue_clear(&world->instances[at].past);
		sim_queue_clear(&world->instances[at].unheard);
		free(world->instances[at].requests);
		free(world->instances[at].free_blocks);
		free(world->instances[at].slots);
		free(world->instances[at].open.at);
	}
	free(world->instances);
	free(world->procs);
	free(world->conns);
	free(world->holds);
	free(world->keys);
}
