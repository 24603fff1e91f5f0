/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tickets that are given back: the calls of consumers that are not let in, and
 * words that anybody with a ticket may show to a producer. These are wrong, old,
 * said twice or late, as often as they are right.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin/progress/progress_state.h"
#include "tests/sim/net.h"
#include "tests/sim/oracle.h"

#define WORDS_MAX 4u /* of a message of anybody */

int sim_give(struct kvpull_transport *transport, const char *address,
	     const void *bytes, size_t byte_count, uint32_t *peer)
{
	struct sim_transport *own = (struct sim_transport *)transport;
	struct sim_world *world = own->proc->world;
	const int code = sim_connect(transport, address, peer);
	struct sim_conn *conn;

	if (code)
		return code;
	conn = own->peers[*peer];
	conn->gives = 1;
	world->counts.gives++;
	sim_trace(world, "process %lu gives tickets back on peer %lu",
		  own->proc->index, *peer, 0);
	if (conn->server)
		sim_oracle_gives(conn, bytes, byte_count);
	if (!conn->lost)
		(void)sim_queue_put(world, &conn->to_server, SIM_MESSAGE, bytes,
				    byte_count);
	return 0;
}

void sim_gives_taken(struct sim_proc *proc, struct sim_conn *conn,
		     const struct sim_packet *packet)
{
	conn->taken = 1;
	sim_oracle_shown(proc, packet->bytes, packet->byte_count);
}

/* The sink that a route is opened with. */
static void sink_take(struct sim_proc *proc, const struct sim_packet *packet)
{
	sim_oracle_shown(proc, packet->bytes, packet->byte_count);
	kvpull_serve_given(proc->worker->progress, packet->bytes,
			   packet->byte_count);
}

int sim_gives_by_sink(struct sim_proc *proc, struct sim_conn *conn,
		      uint32_t place)
{
	const struct sim_packet *packet = conn->to_server.first->next;

	if (place < proc->world->shape.callers && sim_chance(proc->world, 700))
		return 0;
	if (packet && packet->kind == SIM_MESSAGE) {
		conn->taken = 1;
		sink_take(proc, packet);
	}
	sim_hang_up(proc->world, conn);
	conn->server_done = 1;
	sim_conn_free(conn);
	return 1;
}

void sim_gifts_take(struct sim_proc *proc, uint64_t now_ns)
{
	const struct sim_packet *packet;

	while ((packet = sim_queue_due_at(&proc->gifts, now_ns))) {
		sink_take(proc, packet);
		sim_queue_pop(&proc->gifts);
	}
}

/* Returns one of the newest holds, or one that had its slot before. */
static const struct sim_hold *hold_pick(struct sim_world *world)
{
	const uint32_t back = sim_chance(world, 900) ? 6 : 64;
	const uint32_t count = world->hold_count;
	const struct sim_hold *hold;

	if (!count)
		return NULL;
	hold = &world->holds[count - 1 -
			     sim_below(world, count < back ? count : back)];
	if (hold->slot_older && sim_chance(world, 200))
		hold = &world->holds[hold->slot_older - 1];
	return hold;
}

static struct sim_word word_of(struct sim_world *world,
			       const struct sim_hold *hold, uint32_t rank)
{
	struct sim_word word = { .slot = hold->slot,
				 .generation = hold->generation,
				 .tag = hold->tags[rank] };

	if (sim_chance(world, 600))
		return word;
	switch (sim_below(world, 4)) {
	case 0:
		word.tag ^= UINT64_C(1) << sim_below(world, 64);
		break;
	case 1:
		word.generation += sim_below(world, 3) - 1;
		break;
	case 2:
		word.slot = (uint32_t)sim_below(world, 20);
		break;
	default:
		word.tag = hold->tags[(rank + 1) % SIM_RANKS_MAX];
		break;
	}
	return word;
}

/* The words may come late, and twice. */
static void show(struct sim_proc *proc, const struct sim_word *words,
		 uint32_t count)
{
	struct sim_world *world = proc->world;
	uint8_t bytes[SIM_WORDS_BYTES(WORDS_MAX)];
	const size_t byte_count = sim_words_put(bytes, words, count);
	uint32_t left = sim_chance(world, 200) ? 2 : 1;

	world->counts.shown += count;
	while (left--) {
		struct sim_packet *packet = sim_queue_put(
			world, &proc->gifts, SIM_MESSAGE, bytes, byte_count);

		if (sim_chance(world, 100))
			packet->at_ns += sim_below(world, 2 * world->lease_ns);
		proc->gifts.last_ns = packet->at_ns;
	}
}

void sim_give_turn(struct sim_world *world)
{
	const struct sim_hold *hold = hold_pick(world);
	const uint32_t all = (uint32_t)sim_chance(world, 500);
	const struct sim_instance *instance;
	struct sim_word words[WORDS_MAX];
	uint32_t rank;

	if (!hold)
		return;
	instance = &world->instances[hold->instance];
	for (rank = 0; rank < instance->ranks && instance->alive; rank++) {
		const struct sim_hold *other = hold;
		uint32_t count = 0;

		if (!instance->procs[rank]->alive ||
		    (!all && !sim_chance(world, 400)))
			continue;
		do {
			words[count++] = word_of(world, other, rank);
			if (other->older)
				other = &world->holds[other->older - 1];
		} while (count < WORDS_MAX && sim_chance(world, 200));
		show(instance->procs[rank], words, count);
	}
}

/* Why a consumer is refused, in this life: by its engine, or on one rank. */
void sim_stranger_draw(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;

	instance->stranger = SIM_STRANGER_NOT;
	if (!world->shape.gives || instance->produces ||
	    !sim_chance(world, world->tidy ? 600 : 300))
		return;
	instance->stranger =
		sim_chance(world, 600) ? SIM_STRANGER_MODEL : SIM_STRANGER_KEY;
	sim_trace(world, "instance %lu is a stranger, kind %lu",
		  instance->index, instance->stranger, 0);
}

void sim_misfit_draw(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;

	if (!world->shape.gives || proc->instance->produces)
		return;
	proc->misfit = (uint32_t)sim_chance(world, 100);
	if (sim_chance(world, 150))
		proc->refuses = sim_chance(world, 300) ?
					UINT64_MAX :
					UINT64_C(1) << sim_below(world, 3);
	sim_trace(world, "process %lu: misfit %lu, refuses %lx", proc->index,
		  proc->misfit, proc->refuses);
}
