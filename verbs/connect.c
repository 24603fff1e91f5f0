/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: an id belongs to the end in its context, or is the listener
 * (context NULL); an end is active from the time it has an id until it is
 * freed. An event is copied and acknowledged before it is acted on: destroying
 * an id waits for its events.
 */
#include "verbs/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define EVENTS_A_POLL 64
/* Of resolving; the handshake's time-out ends what takes longer. */
#define RESOLVE_MS 2000

struct cm_event {
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;
	int status;
	uint32_t credits;
	int32_t credits_code; /* of the private data */
};

int kvpull_verbs_connect_open(struct kvpull_verbs_connect *connect)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	int flags;

	connect->channel = shared->fabric->cm.create_event_channel();
	if (!connect->channel) {
		kvpull_error(shared->log, "verbs: CM event channel: %s",
			     strerror(errno));
		return KVPULL_EDEVICE;
	}
	flags = fcntl(connect->channel->fd, F_GETFL);
	if (flags < 0 ||
	    fcntl(connect->channel->fd, F_SETFL, flags | O_NONBLOCK)) {
		kvpull_error(shared->log, "verbs: CM event channel: %s",
			     strerror(errno));
		return KVPULL_EDEVICE;
	}
	return 0;
}

static void id_destroy(const struct kvpull_verbs_shared *shared,
		       struct rdma_cm_id *id)
{
	if (shared->fabric->cm.destroy_id(id))
		kvpull_warn(shared->log, "verbs: id: %s", strerror(errno));
}

void kvpull_verbs_connect_close(struct kvpull_verbs_connect *connect)
{
	if (connect->listener)
		id_destroy(connect->shared, connect->listener);
	if (connect->channel)
		connect->shared->fabric->cm.destroy_event_channel(
			connect->channel);
	connect->listener = NULL;
	connect->channel = NULL;
}

/* Not fatal where it is not supported: times are longer then. */
static void id_options(const struct kvpull_verbs_shared *shared,
		       struct rdma_cm_id *id)
{
	uint8_t timeout = (uint8_t)shared->params.ack_timeout;
	uint8_t service = (uint8_t)shared->params.traffic_class;

	if (shared->fabric->cm.set_option(id, RDMA_OPTION_ID,
					  RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
					  sizeof(timeout)))
		kvpull_debug(shared->log, "verbs: ack time-out: %s",
			     strerror(errno));
	if (service && shared->fabric->cm.set_option(id, RDMA_OPTION_ID,
						     RDMA_OPTION_ID_TOS,
						     &service, sizeof(service)))
		kvpull_warn(shared->log, "verbs: traffic class %u: %s", service,
			    strerror(errno));
}

int kvpull_verbs_connect_listen(struct kvpull_verbs_connect *connect)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	const struct kvpull_fabric *fabric = shared->fabric;
	struct kvpull_verbs_address address = shared->device.address;

	if (fabric->cm.create_id(connect->channel, &connect->listener, NULL,
				 RDMA_PS_TCP)) {
		connect->listener = NULL;
		goto err_listen;
	}
	kvpull_verbs_address_set_port(&address,
				      (uint16_t)shared->params.listen_port);
	if (fabric->cm.bind_addr(connect->listener, &address.socket.any) ||
	    fabric->cm.listen(connect->listener, KVPULL_VERBS_LISTEN_BACKLOG))
		goto err_listen;
	kvpull_verbs_address_set_port(
		&address, ntohs(fabric->cm.get_src_port(connect->listener)));
	kvpull_verbs_address_print(&address, connect->address);
	kvpull_info(shared->log, "verbs: listening at %s", connect->address);
	return 0;
err_listen:
	kvpull_error(shared->log, "verbs: listening on port %u: %s",
		     shared->params.listen_port, strerror(errno));
	return KVPULL_EDEVICE;
}

static struct kvpull_verbs_end *end_take(struct kvpull_verbs_connect *connect,
					 enum kvpull_verbs_role role)
{
	uint32_t at;

	for (at = 0; at < connect->end_count; at++) {
		struct kvpull_verbs_end *end = &connect->ends[at];

		if (end->role != role || end->state != KVPULL_VERBS_FREE)
			continue;
		end->state = KVPULL_VERBS_CONNECTING;
		end->heard_ns = connect->shared->now_ns;
		end->deadline_ns = connect->shared->now_ns +
				   connect->shared->params.connect_ns;
		end->active_at = connect->active_count;
		connect->active[connect->active_count++] = at;
		return end;
	}
	return NULL;
}

void kvpull_verbs_connect_free(struct kvpull_verbs_connect *connect,
			       struct kvpull_verbs_end *end)
{
	const uint32_t last = connect->active[--connect->active_count];

	connect->active[end->active_at] = last;
	connect->ends[last].active_at = end->active_at;
	kvpull_verbs_end_unmake(end);
}

int kvpull_verbs_connect_start(struct kvpull_verbs_connect *connect,
			       const struct kvpull_verbs_address *address,
			       uint32_t *peer)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	const struct kvpull_fabric *fabric = shared->fabric;
	struct kvpull_verbs_address own = shared->device.address;
	struct kvpull_verbs_address to = *address;
	struct kvpull_verbs_end *end;

	if (connect->gone)
		return KVPULL_EPEER;
	if (!kvpull_verbs_networks_allow(&shared->networks, address))
		return KVPULL_EROUTE;
	end = end_take(connect, KVPULL_VERBS_PEER);
	if (!end)
		return KVPULL_EFULL;
	kvpull_verbs_address_print(address, end->name);
	if (fabric->cm.create_id(connect->channel, &end->id, end,
				 RDMA_PS_TCP)) {
		end->id = NULL;
		goto err_end;
	}
	id_options(shared, end->id);
	kvpull_verbs_address_set_port(&own, 0);
	if (to.socket.any.sa_family == AF_INET6 &&
	    kvpull_verbs_address_is_link_local(&to))
		to.socket.v6.sin6_scope_id = own.socket.v6.sin6_scope_id;
	if (fabric->cm.resolve_addr(end->id, &own.socket.any, &to.socket.any,
				    RESOLVE_MS))
		goto err_end;
	end->told = 1;
	*peer = end->index;
	return 0;
err_end:
	kvpull_warn(shared->log, "verbs: connecting to %s: %s", end->name,
		    strerror(errno));
	kvpull_verbs_connect_free(connect, end);
	return KVPULL_EPEER;
}

static uint8_t rd_atomic(const struct kvpull_verbs_shared *shared)
{
	return (uint8_t)shared->params.rd_atomic;
}

static void peer_connect(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;
	uint8_t private_data[KVPULL_VERBS_PRIVATE_BYTES];
	struct rdma_conn_param param = {
		.private_data = private_data,
		.private_data_len = sizeof(private_data),
		.initiator_depth = rd_atomic(shared),
		.retry_count = (uint8_t)shared->params.retry_count,
		.rnr_retry_count = (uint8_t)shared->params.retry_count,
	};
	const int code = kvpull_verbs_end_make(end);

	if (code) {
		kvpull_verbs_end_lose(end, code, NULL);
		return;
	}
	kvpull_verbs_private_put(private_data, shared->params.notify_credits);
	if (shared->fabric->cm.connect(end->id, &param))
		kvpull_verbs_end_lose(end, KVPULL_EPEER, strerror(errno));
}

static void call_reject(struct kvpull_verbs_connect *connect,
			struct rdma_cm_id *id, const char *why)
{
	struct kvpull_verbs_shared *shared = connect->shared;

	shared->counts.calls_refused++;
	kvpull_warn(shared->log, "verbs: a caller is refused: %s", why);
	(void)shared->fabric->cm.reject(id, NULL, 0);
	id_destroy(shared, id);
}

/* Who calls: the address as the CM tells it. */
static int call_address(struct rdma_cm_id *id,
			struct kvpull_verbs_address *address)
{
	const struct sockaddr *from = &id->route.addr.dst_addr;

	memset(address, 0, sizeof(*address));
	if (from->sa_family == AF_INET)
		address->socket.v4 = id->route.addr.dst_sin;
	else if (from->sa_family == AF_INET6)
		address->socket.v6 = id->route.addr.dst_sin6;
	else
		return KVPULL_EROUTE;
	return 0;
}

static int call_accept(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;
	uint8_t private_data[KVPULL_VERBS_PRIVATE_BYTES];
	struct rdma_conn_param param = {
		.private_data = private_data,
		.private_data_len = sizeof(private_data),
		.responder_resources = rd_atomic(shared),
		.rnr_retry_count = (uint8_t)shared->params.retry_count,
	};
	int code = kvpull_verbs_end_make(end);

	if (code)
		return code;
	kvpull_verbs_private_put(private_data, shared->params.notify_credits);
	if (shared->fabric->cm.accept(end->id, &param)) {
		kvpull_warn(shared->log, "verbs: accepting %s: %s", end->name,
			    strerror(errno));
		return KVPULL_EPEER;
	}
	/* Accepting opens it to reads; nobody is let in before the handshake. */
	return kvpull_verbs_end_access(end, 0);
}

static void called(struct kvpull_verbs_connect *connect,
		   const struct cm_event *event)
{
	struct kvpull_verbs_shared *shared = connect->shared;
	struct kvpull_verbs_address from;
	struct kvpull_verbs_end *end;

	if (event->credits_code) {
		shared->counts.frames_bad++;
		call_reject(connect, event->id,
			    "it speaks something else, or another version");
		return;
	}
	if (call_address(event->id, &from) ||
	    !kvpull_verbs_networks_allow(&shared->networks, &from)) {
		call_reject(connect, event->id,
			    "it is not in the configured networks");
		return;
	}
	end = end_take(connect, KVPULL_VERBS_CALLER);
	if (!end) {
		call_reject(connect, event->id, "no room: raise consumers_max");
		return;
	}
	kvpull_verbs_address_print(&from, end->name);
	end->id = event->id;
	end->id->context = end;
	end->credits = event->credits < shared->params.notify_credits ?
			       event->credits :
			       shared->params.notify_credits;
	id_options(shared, end->id);
	if (call_accept(end))
		kvpull_verbs_end_lose(end, KVPULL_EPEER, "accepting");
}

static void established(struct kvpull_verbs_end *end,
			const struct cm_event *event)
{
	const struct kvpull_verbs_params *params = &end->shared->params;

	if (end->state != KVPULL_VERBS_CONNECTING)
		return;
	end->connected = 1;
	if (end->role == KVPULL_VERBS_PEER) {
		if (event->credits_code) {
			end->shared->counts.frames_bad++;
			kvpull_verbs_end_lose(
				end, event->credits_code,
				"it speaks something else, or another version");
			return;
		}
		end->credits = event->credits < params->notify_credits ?
				       event->credits :
				       params->notify_credits;
	}
	end->state = KVPULL_VERBS_OPEN;
}

static void step(struct kvpull_verbs_end *end, const struct cm_event *event)
{
	const struct kvpull_fabric *fabric = end->shared->fabric;

	if (event->type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		if (end->state == KVPULL_VERBS_CONNECTING &&
		    fabric->cm.resolve_route(end->id, RESOLVE_MS))
			kvpull_verbs_end_lose(end, KVPULL_EPEER,
					      strerror(errno));
	} else if (event->type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
		if (end->state == KVPULL_VERBS_CONNECTING)
			peer_connect(end);
	} else if (event->type == RDMA_CM_EVENT_ESTABLISHED) {
		established(end, event);
	} else if (event->type == RDMA_CM_EVENT_DISCONNECTED) {
		kvpull_verbs_end_lose(end, KVPULL_EPEER, NULL);
	} else if (event->type != RDMA_CM_EVENT_TIMEWAIT_EXIT &&
		   event->type != RDMA_CM_EVENT_ADDR_CHANGE) {
		end->connected = 0;
		kvpull_verbs_end_lose(end, KVPULL_EPEER,
				      fabric->cm.event_str(event->type));
	}
}

/* One comes for each id; the first is enough. */
static void device_lost(struct kvpull_verbs_connect *connect)
{
	uint32_t at;

	if (connect->gone)
		return;
	connect->gone = 1;
	kvpull_error(connect->shared->log,
		     "verbs: %s was removed: nothing goes by it any more",
		     connect->shared->device.choice);
	for (at = 0; at < connect->active_count; at++)
		kvpull_verbs_end_lose(&connect->ends[connect->active[at]],
				      KVPULL_EPEER, "the device was removed");
}

static void event_copy(const struct rdma_cm_event *event, struct cm_event *copy)
{
	copy->id = event->id;
	copy->type = event->event;
	copy->status = event->status;
	copy->credits = 0;
	copy->credits_code = kvpull_verbs_private_get(
		event->param.conn.private_data,
		event->param.conn.private_data_len, &copy->credits);
}

void kvpull_verbs_connect_poll(struct kvpull_verbs_connect *connect)
{
	const struct kvpull_fabric *fabric = connect->shared->fabric;
	struct rdma_cm_event *event;
	struct cm_event copy;
	int left;

	for (left = EVENTS_A_POLL; left > 0; left--) {
		if (fabric->cm.get_cm_event(connect->channel, &event))
			return;
		event_copy(event, &copy);
		(void)fabric->cm.ack_cm_event(event);
		if (copy.type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			device_lost(connect);
		else if (copy.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			called(connect, &copy);
		else if (copy.id->context)
			step(copy.id->context, &copy);
	}
}
