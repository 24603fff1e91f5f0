/* SPDX-License-Identifier: Apache-2.0 */
/* The words of connected consumers: notifications and heartbeats. */
#include "tests/sim/net.h"

uint32_t sim_records_max(const struct sim_conn *conn)
{
	return conn->client->world->shape.ring_records;
}

static uint32_t notes_underway(const struct sim_conn *conn)
{
	const struct sim_packet *packet = conn->to_server.first;
	uint32_t count = 0;

	for (; packet; packet = packet->next)
		count += packet->kind == SIM_NOTE;
	return count + kvpull_ring_open_count(&conn->writer);
}

int sim_notify(struct kvpull_transport *transport, uint32_t peer,
	       const struct kvpull_record *record)
{
	struct sim_transport *own = (struct sim_transport *)transport;
	struct sim_world *world = own->proc->world;
	struct sim_conn *conn = own->peers[peer];

	if (!conn || !conn->attached || conn->closing)
		return KVPULL_EPEER;
	/*
	 * No process reads that ring any more, and the writer does not know it
	 * yet.
	 */
	if (conn->lost && conn->unread < sim_records_max(conn)) {
		conn->unread++;
		return 0;
	}
	if (conn->lost || notes_underway(conn) >= sim_records_max(conn) ||
	    sim_fault(world, SIM_FAULT_NOTE_AGAIN, 10))
		return KVPULL_EAGAIN;
	sim_queue_put(world, &conn->to_server, SIM_NOTE, NULL, 0)->note =
		*record;
	return 0;
}

uint32_t sim_notes_open(const struct kvpull_transport *transport, uint32_t peer)
{
	const struct sim_transport *own =
		(const struct sim_transport *)transport;
	const struct sim_conn *conn = own->peers[peer];

	return conn && conn->attached ? notes_underway(conn) + conn->unread : 0;
}

void sim_beat(struct kvpull_transport *transport, uint32_t peer)
{
	struct sim_transport *own = (struct sim_transport *)transport;
	struct sim_conn *conn = own->peers[peer];

	sim_engine_beats(own->proc);
	if (conn && conn->attached && !conn->lost)
		(void)sim_queue_put(own->proc->world, &conn->to_server,
				    SIM_BEAT, NULL, 0);
}

/* A consumer's ring is its own: it may hold anything. The oracle sees none. */
void sim_forge(struct sim_world *world, struct sim_conn *conn,
	       const struct kvpull_record *real)
{
	struct kvpull_record forged = {
		.kind = KVPULL_NOTE_RELEASE,
		.slot = (uint32_t)sim_below(world, 16),
		.generation = real->generation,
		.tag = real->tag ^ 1,
	};

	if (!sim_fault(world, SIM_FAULT_FORGED, 50) ||
	    notes_underway(conn) >= sim_records_max(conn))
		return;
	if (sim_chance(world, 500))
		forged.slot = real->slot;
	forged.generation += sim_below(world, 3);
	if (kvpull_ring_push(&conn->writer, &forged) < 0)
		sim_fail(world, "a ring is over its size");
}
