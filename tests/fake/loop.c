/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: a packet is told in order of its queue, and its bytes live until
 * its owner's next poll; a connection is free when both its ends are over.
 */
#include "tests/fake/loop_state.h"

#include <sys/eventfd.h>
#include <unistd.h>

/* KVPULL_EAGAIN: full; the last place is for the end. */
static int queue_put(struct end *from, struct queue *queue,
		     enum packet_kind kind, const void *bytes,
		     size_t byte_count)
{
	struct packet *packet;

	must(byte_count <= PACKET_BYTES, "a message is too long");
	if (queue->count + (kind != PACKET_END) >= PACKETS)
		return KVPULL_EAGAIN;
	packet = &queue->packets[(queue->first + queue->count++) % PACKETS];
	packet->kind = kind;
	packet->code = KVPULL_EPEER;
	packet->due_ns = due(from);
	packet->byte_count = byte_count;
	if (byte_count)
		memcpy(packet->bytes, bytes, byte_count);
	return 0;
}

static struct packet *queue_first(struct queue *queue, uint64_t now_ns)
{
	struct packet *packet = &queue->packets[queue->first];

	return queue->count && packet->due_ns <= now_ns ? packet : NULL;
}

static void queue_pop(struct queue *queue)
{
	queue->first = (queue->first + 1) % PACKETS;
	queue->count--;
}

static void conn_free(struct conn *conn)
{
	if (conn->client || conn->server)
		return;
	free(conn->to_client.packets);
	free(conn->to_server.packets);
	free(conn->memory);
	memset(conn, 0, sizeof(*conn));
}

static void client_leaves(struct conn *conn)
{
	conn->client->peers[conn->peer] = NULL;
	conn->client = NULL;
	conn_free(conn);
}

static void server_leaves(struct conn *conn)
{
	if (conn->caller != KVPULL_NONE)
		conn->server->callers[conn->caller] = NULL;
	conn->server = NULL;
	conn_free(conn);
}

void loop_conn_end(struct conn *conn, struct end *by, int32_t code)
{
	if (conn->over)
		return;
	conn->over = 1;
	(void)queue_put(by, &conn->to_server, PACKET_END, NULL, 0);
	(void)queue_put(by, &conn->to_client, PACKET_END, NULL, 0);
	conn->to_client
		.packets[(conn->to_client.first + conn->to_client.count - 1) %
			 PACKETS]
		.code = code;
}

/* Calls of the table of the transport. */

static int loop_serve(struct kvpull_transport *transport,
		      const struct kvpull_serve *serve)
{
	of(transport)->serve = serve;
	return 0;
}

static const char *loop_address(const struct kvpull_transport *transport)
{
	return of_const(transport)->serve ? of_const(transport)->address : "";
}

static int loop_reachable(const struct kvpull_transport *transport,
			  const char *address)
{
	(void)transport;
	return address[0] == 'e' ? 0 : KVPULL_EROUTE;
}

static struct end *end_at(struct loop_net *net, const char *address)
{
	uint32_t at;

	for (at = 0; at < net->end_count; at++)
		if (strcmp(net->ends[at].address, address) == 0 &&
		    net->ends[at].is_open && net->ends[at].serve)
			return &net->ends[at];
	return NULL;
}

static uint32_t place_free(struct conn *const *places)
{
	uint32_t at;

	for (at = 0; at < PLACES && places[at]; at++)
		;
	return at < PLACES ? at : KVPULL_NONE;
}

static struct conn *conn_find(struct loop_net *net)
{
	uint32_t at;

	for (at = 0; at < CONNS; at++)
		if (!net->conns[at].used)
			return &net->conns[at];
	return NULL;
}

static int loop_connect(struct kvpull_transport *transport, const char *address,
			uint32_t *peer)
{
	struct end *end = of(transport);
	struct end *server = end_at(end->net, address);
	struct conn *conn = conn_find(end->net);
	const uint32_t index = place_free(end->peers);

	if (!server)
		return KVPULL_EPEER;
	if (index == KVPULL_NONE || !conn)
		return KVPULL_EFULL;
	if (again(end))
		return KVPULL_EAGAIN;
	*conn = (struct conn){
		.used = 1,
		.client = end,
		.server = server,
		.peer = index,
		.caller = KVPULL_NONE,
	};
	conn->to_client.packets = calloc(PACKETS, sizeof(struct packet));
	conn->to_server.packets = calloc(PACKETS, sizeof(struct packet));
	must(conn->to_client.packets && conn->to_server.packets, "no memory");
	end->peers[index] = conn;
	end->was_cut[index] = 0;
	*peer = index;
	return queue_put(end, &conn->to_server, PACKET_CALL, NULL, 0);
}

static struct conn *peer_of(const struct end *end, uint32_t peer)
{
	must(peer < PLACES && end->peers[peer], "a peer that is none");
	return end->peers[peer];
}

static struct conn *caller_of(const struct end *end, uint32_t caller)
{
	must(caller < PLACES && end->callers[caller], "a caller that is none");
	return end->callers[caller];
}

static int loop_peer_send(struct kvpull_transport *transport, uint32_t peer,
			  const void *bytes, size_t byte_count)
{
	struct end *end = of(transport);
	struct conn *conn = peer_of(end, peer);

	return conn->over ? KVPULL_EPEER :
			    queue_put(end, &conn->to_server, PACKET_MESSAGE,
				      bytes, byte_count);
}

static int loop_attach(struct kvpull_transport *transport, uint32_t peer,
		       const struct kvpull_serve *remote)
{
	struct end *end = of(transport);
	struct conn *conn = peer_of(end, peer);
	const struct kvpull_serve *serve = loop_serve_of(conn);

	if (!serve)
		return KVPULL_EPEER;
	if (remote->region_count != serve->region_count ||
	    remote->slot_count != serve->slot_count)
		return KVPULL_EPROTO;
	if (again(end))
		return KVPULL_EAGAIN;
	conn->attached = 1;
	return 0;
}

/* A call whose one message was taken when its end comes. */
static int loop_give(struct kvpull_transport *transport, const char *address,
		     const void *bytes, size_t byte_count, uint32_t *peer)
{
	struct end *end = of(transport);
	int code = loop_connect(transport, address, peer);

	if (code)
		return code;
	end->peers[*peer]->gives = 1;
	return queue_put(end, &end->peers[*peer]->to_server, PACKET_MESSAGE,
			 bytes, byte_count);
}

static void loop_disconnect(struct kvpull_transport *transport, uint32_t peer)
{
	struct end *end = of(transport);
	struct conn *conn = peer_of(end, peer);

	loop_reads_end(end, conn, KVPULL_EPEER);
	loop_conn_end(conn, end, KVPULL_EPEER);
}

static int loop_notify(struct kvpull_transport *transport, uint32_t peer,
		       const struct kvpull_record *record)
{
	struct end *end = of(transport);
	struct conn *conn = peer_of(end, peer);
	struct queue *queue = &conn->to_server;
	const uint32_t at = (queue->first + queue->count) % PACKETS;

	if (again(end) || conn->over ||
	    queue_put(end, queue, PACKET_NOTE, NULL, 0))
		return KVPULL_EAGAIN;
	queue->packets[at].note = *record;
	return 0;
}

static uint32_t loop_notes_open(const struct kvpull_transport *transport,
				uint32_t peer)
{
	const struct conn *conn = peer_of(of_const(transport), peer);
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < conn->to_server.count; at++)
		count +=
			conn->to_server
				.packets[(conn->to_server.first + at) % PACKETS]
				.kind == PACKET_NOTE;
	if (conn->memory)
		count += kvpull_ring_open_count(&conn->writer);
	return count;
}

static void loop_beat(struct kvpull_transport *transport, uint32_t peer)
{
	struct conn *conn = peer_of(of(transport), peer);

	if (!conn->over && conn->memory)
		kvpull_ring_beat(&conn->writer);
}

static int loop_caller_send(struct kvpull_transport *transport, uint32_t caller,
			    const void *bytes, size_t byte_count)
{
	struct end *end = of(transport);
	struct conn *conn = caller_of(end, caller);

	return conn->over ? KVPULL_EPEER :
			    queue_put(end, &conn->to_client, PACKET_MESSAGE,
				      bytes, byte_count);
}

static int loop_admit(struct kvpull_transport *transport, uint32_t caller,
		      const void *welcome, size_t welcome_bytes,
		      struct kvpull_ring **ring)
{
	struct end *end = of(transport);
	struct conn *conn = caller_of(end, caller);
	const size_t bytes = kvpull_ring_bytes(RING_RECORDS);

	must(!conn->memory, "a caller is let in twice");
	if (conn->over)
		return KVPULL_EPEER;
	if (again(end))
		return KVPULL_EAGAIN;
	conn->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
	must(conn->memory != NULL, "no memory");
	memset(conn->memory, 0, bytes);
	must(!kvpull_ring_init(&conn->ring, conn->memory, RING_RECORDS) &&
		     !kvpull_ring_writer_init(&conn->writer, conn->memory,
					      bytes),
	     "no ring");
	*ring = &conn->ring;
	return loop_caller_send(transport, caller, welcome, welcome_bytes);
}

static void loop_refuse(struct kvpull_transport *transport, uint32_t caller,
			const void *refusal, size_t refusal_bytes)
{
	struct end *end = of(transport);
	struct conn *conn = caller_of(end, caller);

	if (refusal_bytes)
		(void)loop_caller_send(transport, caller, refusal,
				       refusal_bytes);
	loop_conn_end(conn, end, KVPULL_EPEER);
	/* Nothing of it is told any more. */
	server_leaves(conn);
}

static void loop_drop(struct kvpull_transport *transport, uint32_t caller)
{
	loop_conn_end(caller_of(of(transport), caller), of(transport),
		      KVPULL_EPEER);
}

static void loop_forget(struct kvpull_transport *transport, uint32_t caller)
{
	server_leaves(caller_of(of(transport), caller));
}

/*
 * Drops the packet that the last event pointed to: the owner has looked at it.
 */
static void told_drop(struct queue *queue)
{
	if (queue->count && queue->packets[queue->first].kind == 0)
		queue_pop(queue);
}

/* A message's bytes stay where they are until told_drop(). */
static void message_tell(struct packet *packet, struct kvpull_event *event)
{
	event->data = packet->bytes;
	event->data_bytes = packet->byte_count;
	packet->kind = 0;
}

/* Return: 1 if there is an event. */
static int client_poll(struct end *end, struct conn *conn,
		       struct kvpull_event *event)
{
	struct packet *packet;

	told_drop(&conn->to_client);
	packet = queue_first(&conn->to_client, end->now_ns);
	if (!packet)
		return 0;
	if (conn->gives && packet->kind == PACKET_MESSAGE) {
		queue_pop(&conn->to_client);
		return 0;
	}
	*event = (struct kvpull_event){ .index = conn->peer,
					.uid = KVPULL_UID_NONE };
	if (packet->kind == PACKET_MESSAGE) {
		event->kind = KVPULL_EVENT_PEER_MESSAGE;
		message_tell(packet, event);
		return 1;
	}
	event->kind = KVPULL_EVENT_PEER_DOWN;
	event->code = conn->gives ? 0 : packet->code;
	client_leaves(conn);
	return 1;
}

static int call_take(struct end *end, struct conn *conn)
{
	conn->caller = place_free(end->callers);
	must(conn->caller != KVPULL_NONE, "more callers than places");
	end->callers[conn->caller] = conn;
	return 1;
}

/* Notes go into the ring, where it has room. Return: 1 if there is an event. */
static int server_poll(struct end *end, struct conn *conn,
		       struct kvpull_event *event)
{
	struct queue *queue = &conn->to_server;
	struct packet *packet;

	told_drop(queue);
	while ((packet = queue_first(queue, end->now_ns)) != NULL &&
	       packet->kind == PACKET_NOTE) {
		if (!conn->memory ||
		    kvpull_ring_push(&conn->writer, &packet->note) < 0)
			return 0;
		queue_pop(queue);
	}
	if (!packet)
		return 0;
	*event = (struct kvpull_event){ .uid = KVPULL_UID_NONE };
	if (packet->kind == PACKET_CALL)
		(void)call_take(end, conn);
	event->index = conn->caller;
	if (packet->kind == PACKET_CALL) {
		event->kind = KVPULL_EVENT_CALLER_UP;
	} else if (packet->kind == PACKET_MESSAGE) {
		event->kind = KVPULL_EVENT_CALLER_MESSAGE;
		message_tell(packet, event);
		return 1;
	} else if (conn->caller == KVPULL_NONE) {
		/* The connection ended before the server heard of it. */
		server_leaves(conn);
		return 0;
	} else {
		event->kind = KVPULL_EVENT_CALLER_DOWN;
	}
	queue_pop(queue);
	return 1;
}

static int conn_poll(struct end *end, struct conn *conn,
		     struct kvpull_event *event)
{
	if (conn->server == end)
		return server_poll(end, conn, event);
	/* The end of a peer comes after those of its reads. */
	if (conn->client == end && !(conn->over && loop_has_reads(end, conn)))
		return client_poll(end, conn, event);
	return 0;
}

/* Reports at most one event of each connection, beginning anywhere. */
static int loop_poll(struct kvpull_transport *transport, uint64_t now_ns,
		     struct kvpull_event *events, uint32_t capacity)
{
	struct end *end = of(transport);
	struct loop_net *net = end->net;
	const uint32_t first_read = below(net, READS);
	const uint32_t first_conn = below(net, CONNS);
	uint32_t count = 0;
	uint32_t at;

	end->now_ns = now_ns;
	for (at = 0; at < READS && count < capacity; at++)
		count += (uint32_t)loop_read_tell(
			end, &end->reads[(first_read + at) % READS],
			&events[count]);
	for (at = 0; at < CONNS && count < capacity; at++) {
		struct conn *conn = &net->conns[(first_conn + at) % CONNS];

		if (conn->used)
			count += (uint32_t)conn_poll(end, conn, &events[count]);
	}
	return (int)count;
}

/* Time passes with the polls: nobody sleeps on this route for long. */
static int loop_arm(struct kvpull_transport *transport)
{
	(void)transport;
	return 1;
}

static void loop_disarm(struct kvpull_transport *transport)
{
	(void)transport;
}

static int loop_rings(const struct kvpull_transport *transport)
{
	(void)transport;
	return 0;
}

static int loop_fd(const struct kvpull_transport *transport)
{
	return of_const(transport)->fd;
}

static int loop_doorbell_fd(const struct kvpull_transport *transport)
{
	(void)transport;
	return -1;
}

static void loop_end(struct kvpull_transport *transport, uint64_t close_by_ns)
{
	struct end *end = of(transport);
	uint32_t at;

	(void)close_by_ns;
	end->is_open = 0;
	for (at = 0; at < CONNS; at++) {
		struct conn *conn = &end->net->conns[at];

		if (!conn->used || (conn->client != end && conn->server != end))
			continue;
		loop_conn_end(conn, end, KVPULL_EPEER);
		if (conn->client == end)
			client_leaves(conn);
		else
			server_leaves(conn);
	}
	memset(end->reads, 0, sizeof(end->reads));
	(void)close(end->fd);
}

static const struct kvpull_transport_ops loop_ops = {
	.name = "loop",
	.serve = loop_serve,
	.address = loop_address,
	.reachable = loop_reachable,
	.connect = loop_connect,
	.peer_send = loop_peer_send,
	.give_bytes_max = PACKET_BYTES,
	.give = loop_give,
	.attach = loop_attach,
	.disconnect = loop_disconnect,
	.read_start = loop_read_start,
	.read_cancel = loop_read_cancel,
	.check_start = loop_check_start,
	.notify = loop_notify,
	.notes_open = loop_notes_open,
	.beat = loop_beat,
	.caller_send = loop_caller_send,
	.admit = loop_admit,
	.refuse = loop_refuse,
	.drop = loop_drop,
	.forget = loop_forget,
	.poll = loop_poll,
	.arm = loop_arm,
	.disarm = loop_disarm,
	.rings = loop_rings,
	.fd = loop_fd,
	.doorbell_fd = loop_doorbell_fd,
	.close = loop_end,
};

struct kvpull_transport *
loop_transport(void *context, const struct kvpull_log *log, uint32_t at)
{
	struct loop_net *net = context;
	struct end *end;

	if (at || net->end_count == LOOP_ENDS)
		return NULL;
	end = &net->ends[net->end_count];
	end->number = net->end_count++;
	end->net = net;
	end->is_open = 1;
	end->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	(void)snprintf(end->address, sizeof(end->address), "end%u",
		       end->number);
	end->transport = (struct kvpull_transport){
		.ops = &loop_ops,
		.log = log,
		.peer_count_max = PLACES,
		.caller_count_max = PLACES,
	};
	return &end->transport;
}

/* Calls of the test that owns the net. */

struct loop_net *loop_open(uint64_t seed)
{
	struct loop_net *net = calloc(1, sizeof(*net));

	must(net != NULL, "no memory");
	net->state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	return net;
}

void loop_cuts(struct loop_net *net, uint32_t thousandths)
{
	net->cut_chance = thousandths;
}

const struct loop_counts *loop_counts(const struct loop_net *net)
{
	return &net->counts;
}

uint32_t loop_close(struct loop_net *net)
{
	uint32_t left = 0;
	uint32_t at;

	for (at = 0; at < CONNS; at++)
		left += net->conns[at].used;
	free(net);
	return left;
}
