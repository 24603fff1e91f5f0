/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated network: the seam of base/transport.h over virtual time.
 * Order is kept within a connection and a direction, nowhere else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/device.h"
#include "tests/sim/net.h"

static struct sim_transport *of(struct kvpull_transport *transport)
{
	return (struct sim_transport *)transport;
}

static const struct sim_transport *
of_const(const struct kvpull_transport *transport)
{
	return (const struct sim_transport *)transport;
}

/* Connections. */

static struct sim_proc *proc_at(struct sim_world *world, const char *address)
{
	uint32_t index;
	uint32_t rank;

	/* A worker's successor has its address. */
	if (sscanf(address, "node%urank%u", &index, &rank) != 2 ||
	    index >= world->instance_count || rank >= SIM_RANKS_MAX)
		return NULL;
	return world->instances[index].procs[rank];
}

static int serves(const struct sim_proc *proc)
{
	return proc && proc->alive && proc->transport.serve &&
	       !proc->transport.closed;
}

static int sim_serve(struct kvpull_transport *transport,
		     const struct kvpull_serve *serve)
{
	of(transport)->serve = serve;
	return 0;
}

static const char *sim_address(const struct kvpull_transport *transport)
{
	return of_const(transport)->serve ? of_const(transport)->address : "";
}

static int sim_reachable(const struct kvpull_transport *transport,
			 const char *address)
{
	(void)transport;
	return strncmp(address, "node", 4) ? KVPULL_EROUTE : 0;
}

int sim_connect(struct kvpull_transport *transport, const char *address,
		uint32_t *peer)
{
	struct sim_transport *own = of(transport);
	struct sim_world *world = own->proc->world;
	struct sim_proc *server = proc_at(world, address);
	struct sim_conn *conn = sim_conn_find(world);
	uint32_t index;

	for (index = 0; index < own->base.peer_count_max && own->peers[index];
	     index++)
		;
	if (index == own->base.peer_count_max || !conn)
		return KVPULL_EFULL;
	if (!serves(server) && sim_chance(world, 500))
		return KVPULL_EPEER;
	*conn = (struct sim_conn){
		.used = 1,
		.peer = index,
		.caller = SIM_NONE,
		.called_ns = world->now_ns,
		.client = own->proc,
		.server = server,
		.instance_id = own->proc->instance->incarnation,
		.client_rank = own->proc->rank,
		.client_ranks = own->proc->instance->ranks,
	};
	if (server)
		sim_conn_link(conn);
	own->peers[index] = conn;
	own->was_cut[index] = 0;
	*peer = index;
	if (serves(server)) {
		(void)sim_queue_put(world, &conn->to_server, SIM_SYN, NULL, 0);
		return 0;
	}
	conn->server_done = conn->lost = 1;
	sim_queue_put(world, &conn->to_client, SIM_CLOSE, NULL, 0)->code =
		KVPULL_EPEER;
	return 0;
}

static int sim_peer_send(struct kvpull_transport *transport, uint32_t peer,
			 const void *bytes, size_t byte_count)
{
	struct sim_transport *own = of(transport);
	struct sim_conn *conn = own->peers[peer];

	if (!conn || conn->closing)
		return KVPULL_EPEER;
	if (!conn->lost)
		(void)sim_queue_put(own->proc->world, &conn->to_server,
				    SIM_MESSAGE, bytes, byte_count);
	return 0;
}

static int sim_attach(struct kvpull_transport *transport, uint32_t peer,
		      const struct kvpull_serve *remote)
{
	struct sim_conn *conn = of(transport)->peers[peer];

	if (!conn || !conn->server || !conn->server->transport.serve ||
	    conn->closing)
		return KVPULL_EPEER;
	if (remote->region_count !=
		    conn->server->transport.serve->region_count ||
	    remote->regions[0].base !=
		    conn->server->transport.serve->regions[0].base)
		return KVPULL_EPROTO;
	conn->client->unanswered &=
		~(UINT64_C(1) << sim_rank_bit(conn->server));
	if (conn->client->refuses >> conn->server->rank & 1)
		return KVPULL_EUNSUPPORTED;
	conn->attached = 1;
	return conn->client->device ? sim_device_attach(conn, remote) : 0;
}

/* The client gives it up: is that because nobody answered in time? */
static void unanswered_note(const struct sim_conn *conn)
{
	struct sim_proc *proc = conn->client;

	if (!conn->attached && conn->server &&
	    proc->world->now_ns >=
		    conn->called_ns + proc->instance->config.connect_ms *
					      KVPULL_NS_PER_MS)
		proc->unanswered |= UINT64_C(1) << sim_rank_bit(conn->server);
}

/* Some connections have their memory lent, others have not. */
static int sim_lend(struct kvpull_transport *transport, uint32_t peer,
		    struct kvpull_mapping *mapping)
{
	struct sim_transport *own = of(transport);
	struct sim_conn *conn = own->peers[peer];

	if (!conn || conn->closing || !sim_chance(own->proc->world, 600))
		return KVPULL_EUNSUPPORTED;
	mapping->slot_count = conn->server->transport.serve->slot_count;
	mapping->entries = conn->server->transport.serve->entries;
	mapping->copy = sim_lent_copy;
	mapping->context = conn;
	conn->lent = mapping;
	return 0;
}

/* From here on nobody may copy from the memory that was lent. */
static void lent_close(struct sim_conn *conn)
{
	if (conn->lent)
		kvpull_mapping_close(conn->lent);
	conn->lent = NULL;
}

static void sim_disconnect(struct kvpull_transport *transport, uint32_t peer)
{
	struct sim_transport *own = of(transport);
	struct sim_world *world = own->proc->world;
	struct sim_conn *conn = own->peers[peer];

	if (!conn || conn->closing)
		return;
	sim_trace(world, "process %u disconnects peer %u", own->proc->index,
		  peer, 0);
	conn->closing = 1;
	/*
	 * A peer that is up is disconnected to make room, and for nothing else.
	 */
	conn->parts = conn->attached && !conn->lost;
	unanswered_note(conn);
	lent_close(conn);
	if (!conn->lost)
		(void)sim_queue_put(world, &conn->to_server, SIM_CLOSE, NULL,
				    0);
	conn->lost = 1;
	sim_queue_clear(&conn->to_client);
	sim_queue_put(world, &conn->to_client, SIM_CLOSE, NULL, 0)->code =
		conn->gives ? KVPULL_EPEER : 0;
}

static int sim_caller_send(struct kvpull_transport *transport, uint32_t caller,
			   const void *bytes, size_t byte_count)
{
	struct sim_transport *own = of(transport);
	struct sim_conn *conn = own->callers[caller];

	if (conn->lost || conn->client_done)
		return KVPULL_EPEER;
	(void)sim_queue_put(own->proc->world, &conn->to_client, SIM_MESSAGE,
			    bytes, byte_count);
	return 0;
}

static int sim_admit(struct kvpull_transport *transport, uint32_t caller,
		     const void *welcome, size_t welcome_bytes,
		     struct kvpull_ring **ring)
{
	struct sim_conn *conn = of(transport)->callers[caller];
	const size_t bytes = kvpull_ring_bytes(sim_records_max(conn));

	conn->ring_memory =
		aligned_alloc(KVPULL_CACHE_LINE, (bytes + 63) / 64 * 64);
	if (!conn->ring_memory)
		abort();
	memset(conn->ring_memory, 0, bytes);
	if (kvpull_ring_init(&conn->ring, conn->ring_memory,
			     sim_records_max(conn)) ||
	    kvpull_ring_writer_init(&conn->writer, conn->ring_memory, bytes))
		abort();
	*ring = &conn->ring;
	(void)sim_caller_send(transport, caller, welcome, welcome_bytes);
	return 0;
}

void sim_hang_up(struct sim_world *world, struct sim_conn *conn)
{
	if (!conn->lost) {
		sim_queue_put(world, &conn->to_client, SIM_CLOSE, NULL, 0)
			->code = conn->cut   ? KVPULL_EABORTED :
				 conn->taken ? 0 :
				 conn->full  ? KVPULL_EFULL :
					       KVPULL_EPEER;
		(void)sim_queue_put(world, &conn->to_server, SIM_CLOSE, NULL,
				    0);
	}
	conn->lost = 1;
}

void sim_net_cut(struct sim_conn *conn)
{
	struct sim_world *world = conn->client->world;

	if (conn->lost)
		return;
	sim_trace(world, "process %u cuts its connection to process %u",
		  conn->client->index, conn->server->index, 0);
	conn->cut = 1;
	sim_hang_up(world, conn);
	sim_reads_end(conn, KVPULL_EABORTED);
	world->counts.cuts++;
}

static void sim_refuse(struct kvpull_transport *transport, uint32_t caller,
		       const void *refusal, size_t refusal_bytes)
{
	struct sim_transport *own = of(transport);
	struct sim_conn *conn = own->callers[caller];

	if (refusal_bytes)
		sim_refusal_note(own->proc, conn, refusal, refusal_bytes);
	if (refusal_bytes)
		(void)sim_caller_send(transport, caller, refusal,
				      refusal_bytes);
	sim_hang_up(own->proc->world, conn);
	own->callers[caller] = NULL;
	conn->server_done = 1;
	sim_conn_free(conn);
}

static void sim_drop(struct kvpull_transport *transport, uint32_t caller)
{
	struct sim_transport *own = of(transport);

	if (own->callers[caller])
		sim_hang_up(own->proc->world, own->callers[caller]);
}

static void sim_forget(struct kvpull_transport *transport, uint32_t caller)
{
	struct sim_transport *own = of(transport);
	struct sim_conn *conn = own->callers[caller];

	if (!conn)
		sim_fail(own->proc->world, "caller %u is forgotten twice",
			 caller);
	if (!conn->server_down)
		sim_fail(own->proc->world, "caller %u is forgotten alive",
			 caller);
	own->callers[caller] = NULL;
	conn->server_done = 1;
	sim_conn_free(conn);
}

/* A packet for the server; 1: it is an event. */
static int server_packet(struct sim_transport *own, struct sim_conn *conn,
			 struct sim_packet *packet, struct kvpull_event *event)
{
	event->index = conn->caller;
	switch (packet->kind) {
	case SIM_SYN:
		event->kind = KVPULL_EVENT_CALLER_UP;
		return 1;
	case SIM_MESSAGE:
		event->kind = KVPULL_EVENT_CALLER_MESSAGE;
		event->data = packet->bytes;
		event->data_bytes = packet->byte_count;
		if (conn->gives)
			sim_gives_taken(own->proc, conn, packet);
		return 1;
	case SIM_NOTE:
		if (kvpull_ring_push(&conn->writer, &packet->note) < 0)
			sim_fail(own->proc->world, "a ring is over its size");
		conn->notes[conn->note_count++] = packet->note;
		sim_forge(own->proc->world, conn, &packet->note);
		return 0;
	case SIM_BEAT:
		kvpull_ring_beat(&conn->writer);
		conn->beats++;
		return 0;
	case SIM_CLOSE:
		event->kind = KVPULL_EVENT_CALLER_DOWN;
		conn->server_down = 1;
		return 1;
	}
	return 0;
}

/* A new caller gets an index, or is told that the table is full, as by shm/. */
static int server_accept(struct sim_transport *own, struct sim_conn *conn)
{
	uint32_t index;

	for (index = 0;
	     index < own->proc->world->shape.callers && own->callers[index];
	     index++)
		;
	if (conn->gives && sim_gives_by_sink(own->proc, conn, index))
		return 0;
	if (index < own->proc->world->shape.callers) {
		own->callers[index] = conn;
		conn->caller = index;
		return 1;
	}
	conn->full = 1;
	sim_hang_up(own->proc->world, conn);
	conn->server_done = 1;
	sim_conn_free(conn);
	return 0;
}

static uint32_t server_poll(struct sim_transport *own, struct sim_conn *conn,
			    uint64_t now_ns, struct kvpull_event *events,
			    uint32_t capacity)
{
	uint32_t count = 0;

	while (conn->used && !conn->server_done && !conn->server_down &&
	       count < capacity) {
		struct sim_packet *packet =
			sim_queue_due_at(&conn->to_server, now_ns);

		if (!packet)
			break;
		if (packet->kind == SIM_SYN && !server_accept(own, conn))
			break;
		if (conn->caller == SIM_NONE) {
			/* The caller died before it had introduced itself. */
			conn->server_done = 1;
			sim_conn_free(conn);
			break;
		}
		(void)sim_queue_unlink(&conn->to_server);
		memset(&events[count], 0, sizeof(events[count]));
		if (server_packet(own, conn, packet, &events[count])) {
			packet->next = own->told;
			own->told = packet;
			count++;
			/*
			 * The answer to the event may be that no other follows.
			 */
			break;
		}
		free(packet);
	}
	return count;
}

/* The reads have ended. The unmap of the memory may be ordered before that. */
static int is_over(struct sim_conn *conn)
{
	struct sim_world *world = conn->client->world;

	if (!conn->client->device)
		return !sim_reads_open(conn);
	if (sim_reads_open(conn) && sim_chance(world, 500))
		return 0;
	return sim_device_detach(conn) && !sim_reads_open(conn);
}

static uint32_t client_poll(struct sim_transport *own, struct sim_conn *conn,
			    uint64_t now_ns, struct kvpull_event *events,
			    uint32_t capacity)
{
	uint32_t count = 0;

	while (count < capacity) {
		struct sim_packet *packet =
			sim_queue_due_at(&conn->to_client, now_ns);

		if (!packet)
			break;
		if (packet->kind == SIM_CLOSE && !is_over(conn))
			break;
		(void)sim_queue_unlink(&conn->to_client);
		/* A call that gives back listens for its end alone. */
		if (conn->gives && packet->kind == SIM_MESSAGE) {
			free(packet);
			continue;
		}
		events[count] = (struct kvpull_event){
			.kind = packet->kind == SIM_CLOSE ?
					KVPULL_EVENT_PEER_DOWN :
					KVPULL_EVENT_PEER_MESSAGE,
			.index = conn->peer,
			.code = packet->code,
			.data = packet->bytes,
			.data_bytes = packet->byte_count,
		};
		packet->next = own->told;
		own->told = packet;
		if (events[count++].kind == KVPULL_EVENT_PEER_MESSAGE)
			continue;
		own->peers[conn->peer] = NULL;
		own->was_cut[conn->peer] = conn->cut;
		if (conn->sent_away)
			own->proc->went_ns = now_ns;
		lent_close(conn);
		conn->client_done = 1;
		sim_conn_free(conn);
		break;
	}
	return count;
}

static int sim_poll(struct kvpull_transport *transport, uint64_t now_ns,
		    struct kvpull_event *events, uint32_t capacity)
{
	struct sim_transport *own = of(transport);
	struct sim_conn *conn;
	struct sim_conn *next;
	uint32_t count;
	uint32_t at;

	while (own->told) {
		struct sim_packet *packet = own->told;

		own->told = packet->next;
		free(packet);
	}
	if (own->proc->closing) {
		sim_reads_run(own->proc);
		sim_device_run(own->proc);
	}
	sim_device_poll(own, now_ns);
	sim_gifts_take(own->proc, now_ns);
	for (at = 0; at < own->base.peer_count_max; at++) {
		const struct sim_packet *packet =
			own->peers[at] ?
				sim_queue_due_at(&own->peers[at]->to_client,
						 now_ns) :
				NULL;

		if (!packet || packet->kind != SIM_CLOSE)
			continue;
		sim_reads_end(own->peers[at], KVPULL_EPEER);
		/* A device's reads and mapping end later, and the peer with them. */
		if (own->proc->device && own->peers[at]->sent_away)
			own->proc->went_ns = now_ns;
	}
	count = sim_reads_told(own, events, capacity);
	for (at = 0; at < own->base.peer_count_max; at++)
		if (own->peers[at])
			count += client_poll(own, own->peers[at], now_ns,
					     events + count, capacity - count);
	for (conn = own->conns; conn; conn = next) {
		next = conn->next;
		count += server_poll(own, conn, now_ns, events + count,
				     capacity - count);
	}
	return (int)count;
}

static int sim_arm(struct kvpull_transport *transport)
{
	(void)transport;
	return 0;
}

static void sim_disarm(struct kvpull_transport *transport)
{
	(void)transport;
}

static int sim_rings(const struct kvpull_transport *transport)
{
	(void)transport;
	return 0;
}

static int sim_fd(const struct kvpull_transport *transport)
{
	(void)transport;
	return -1;
}

static int sim_doorbell_fd(const struct kvpull_transport *transport)
{
	(void)transport;
	return -1;
}

static void sim_close(struct kvpull_transport *transport, uint64_t close_by_ns)
{
	(void)close_by_ns;
	of(transport)->closed = 1;
	sim_device_close(of(transport)->proc);
}

static struct kvpull_device_thread *
sim_device(const struct kvpull_transport *transport)
{
	return of_const(transport)->device.thread;
}

/*
 * Three routes: of a node, between machines, where nobody vouches for a caller,
 * and of a node whose blocks are in memory of devices.
 */
#define OPS                                                                    \
	.serve = sim_serve, .address = sim_address,                            \
	.reachable = sim_reachable, .connect = sim_connect,                    \
	.peer_send = sim_peer_send, .attach = sim_attach,                      \
	.disconnect = sim_disconnect, .read_start = sim_read_start,            \
	.read_cancel = sim_read_cancel, .check_start = sim_check_start,        \
	.notify = sim_notify, .notes_open = sim_notes_open, .beat = sim_beat,  \
	.caller_send = sim_caller_send, .admit = sim_admit,                    \
	.refuse = sim_refuse, .drop = sim_drop, .forget = sim_forget,          \
	.poll = sim_poll, .arm = sim_arm, .disarm = sim_disarm,                \
	.rings = sim_rings, .fd = sim_fd, .doorbell_fd = sim_doorbell_fd,      \
	.close = sim_close,

#define DEVICE .device = sim_device
#define GIVES .give = sim_give, .give_bytes_max = SIM_GIVE_BYTES

/* By whether they take tickets back, and by the route. */
static const struct kvpull_transport_ops ops[2][3] = {
	{ { .name = "sim", .vouches = 1, .lend = sim_lend, OPS },
	  { .name = "sim", OPS },
	  { .name = "sim", .vouches = 1, DEVICE, OPS } },
	{ { .name = "sim", .vouches = 1, .lend = sim_lend, GIVES, OPS },
	  { .name = "sim", GIVES, OPS },
	  { .name = "sim", .vouches = 1, DEVICE, GIVES, OPS } },
};

struct kvpull_transport *
sim_transport_make(void *context, const struct kvpull_log *log, uint32_t at)
{
	struct sim_proc *proc = context;
	const struct sim_shape *shape = &proc->world->shape;

	if (at)
		return NULL;
	proc->transport.base.ops =
		&ops[shape->gives][shape->device ? 2 : shape->network];
	proc->transport.base.log = log;
	proc->transport.base.peer_count_max =
		kvpull_config_peer_entries(&proc->instance->config);
	proc->transport.base.caller_count_max = proc->world->shape.callers;
	proc->transport.proc = proc;
	(void)snprintf(proc->transport.address, sizeof(proc->transport.address),
		       "node%urank%u", proc->instance->index, proc->rank);
	if (shape->device)
		sim_device_start(proc);
	return &proc->transport.base;
}

/* Calls of the world that owns the network. */

void sim_net_run(struct sim_world *world, const struct sim_instance *instance)
{
	uint32_t at;

	for (at = 0; world->big && at < instance->ranks; at++)
		if (instance->procs[at] && instance->procs[at]->alive)
			sim_reads_run(instance->procs[at]);
	for (at = 0; !world->big && at < world->proc_count; at++) {
		if (!world->procs[at].alive)
			continue;
		sim_reads_run(&world->procs[at]);
		sim_device_run(&world->procs[at]);
	}
}

static void conn_kill(const struct sim_proc *proc, struct sim_conn *conn)
{
	if (!conn->used || (conn->client != proc && conn->server != proc))
		return;
	if (!conn->lost && !proc->transport.closed)
		sim_queue_cut(proc->world, conn->client == proc ?
						   &conn->to_server :
						   &conn->to_client);
	sim_hang_up(proc->world, conn);
	/* A dead one's memory stays; it is read as it is. */
	if (conn->client == proc)
		conn->lent = NULL;
	else if (proc->transport.closed)
		lent_close(conn);
	if (conn->client == proc)
		conn->client_done = 1;
	else
		conn->server_done = 1;
	sim_conn_free(conn);
}

void sim_net_kill(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	struct sim_conn *conn = proc->transport.conns;
	struct sim_conn *next;
	uint32_t at;

	sim_device_kill(proc);
	memset(proc->transport.reads, 0, sizeof(proc->transport.reads));
	while (proc->transport.told) {
		struct sim_packet *packet = proc->transport.told;

		proc->transport.told = packet->next;
		free(packet);
	}
	for (at = 0; !world->big && at < world->shape.conns; at++)
		conn_kill(proc, &world->conns[at]);
	for (at = 0; world->big && at < SIM_PEERS; at++)
		if (proc->transport.peers[at])
			conn_kill(proc, proc->transport.peers[at]);
	for (; world->big && conn; conn = next) {
		next = conn->next;
		conn_kill(proc, conn);
	}
}

void sim_net_lose(struct sim_world *world)
{
	uint32_t at = (uint32_t)sim_below(world, world->shape.conns);
	struct sim_conn *conn = &world->conns[at];
	uint32_t left;

	/* The next connection that is in use and not lost. */
	for (left = world->shape.conns; left && (!conn->used || conn->lost);
	     left--)
		conn = &world->conns[at++ % world->shape.conns];
	if (!left)
		return;
	sim_trace(world, "connection of process %u to process %u is lost",
		  conn->client->index, conn->server->index, 0);
	sim_queue_cut(world, &conn->to_client);
	conn->taken = 0; /* or nobody hears of it */
	sim_hang_up(world, conn);
	world->counts.losses++;
}

void sim_net_close(struct sim_world *world)
{
	uint32_t at;

	for (at = 0; at < world->shape.conns; at++) {
		world->conns[at].client_done = world->conns[at].server_done = 1;
		sim_conn_free(&world->conns[at]);
	}
}
