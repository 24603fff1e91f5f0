/* SPDX-License-Identifier: Apache-2.0 */
/* Packets on their way: each queue keeps its order, and its times are drawn. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

struct sim_packet *sim_queue_add(struct sim_queue *queue, const void *bytes,
				 size_t byte_count)
{
	struct sim_packet *packet = malloc(sizeof(*packet) + byte_count);

	if (!packet)
		abort();
	memset(packet, 0, sizeof(*packet));
	packet->byte_count = byte_count;
	if (byte_count)
		memcpy(packet->bytes, bytes, byte_count);
	if (queue->last)
		queue->last->next = packet;
	else
		queue->first = packet;
	queue->last = packet;
	return packet;
}

struct sim_packet *sim_queue_put(struct sim_world *world,
				 struct sim_queue *queue,
				 enum sim_packet_kind kind, const void *bytes,
				 size_t byte_count)
{
	const uint64_t at_ns =
		world->now_ns + 1000 * sim_below(world, world->delay_us + 1);
	struct sim_packet *packet = sim_queue_add(queue, bytes, byte_count);

	if (at_ns > queue->last_ns)
		queue->last_ns = at_ns;
	packet->at_ns = queue->last_ns;
	packet->kind = kind;
	return packet;
}

struct sim_packet *sim_queue_due_at(const struct sim_queue *queue,
				    uint64_t now_ns)
{
	return queue->first && queue->first->at_ns <= now_ns ? queue->first :
							       NULL;
}

struct sim_packet *sim_queue_due(const struct sim_world *world,
				 const struct sim_queue *queue)
{
	return sim_queue_due_at(queue, world->now_ns);
}

struct sim_packet *sim_queue_unlink(struct sim_queue *queue)
{
	struct sim_packet *packet = queue->first;

	queue->first = packet->next;
	if (!queue->first)
		queue->last = NULL;
	return packet;
}

void sim_queue_pop(struct sim_queue *queue)
{
	free(sim_queue_unlink(queue));
}

void sim_queue_clear(struct sim_queue *queue)
{
	while (queue->first)
		sim_queue_pop(queue);
	queue->last_ns = 0;
}

void sim_queue_cut(struct sim_world *world, struct sim_queue *queue)
{
	struct sim_packet **link = &queue->first;

	queue->last = NULL;
	while (*link &&
	       ((*link)->at_ns <= world->now_ns || sim_chance(world, 500))) {
		queue->last = *link;
		link = &(*link)->next;
	}
	while (*link) {
		struct sim_packet *packet = *link;

		*link = packet->next;
		free(packet);
	}
}
