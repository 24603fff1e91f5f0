/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: an id belongs to the end in its context, or is a listener
 * (context NULL); a bundle is active from the time it has an id until it is
 * freed. An event is copied and acknowledged before it is acted on: destroying
 * an id waits for its events.
 */
#include "verbs/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "verbs/gate.h"
#include "verbs/pair.h"

#define EVENTS_A_POLL 64
/* Of resolving; the handshake's time-out ends what takes longer. */
#define RESOLVE_MS 2000
/* A rail that was lost: how often it is tried, and when it is a good one. */
#define JOIN_NS (KVPULL_NS_PER_S / 4)
#define JOIN_DOUBLINGS_MAX 6u
#define SAY_NS KVPULL_NS_PER_S
#define STEADY_NS (10 * KVPULL_NS_PER_S)

struct cm_event {
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;
	struct kvpull_verbs_greeting greeting;
	int32_t greeting_code; /* of the private data */
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
	uint32_t rail;

	for (rail = 0; rail < KVPULL_VERBS_RAILS_MAX; rail++)
		kvpull_verbs_connect_hush(connect, rail);
	if (connect->channel)
		connect->shared->fabric->cm.destroy_event_channel(
			connect->channel);
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

static struct kvpull_verbs_bundle *
bundle_take(struct kvpull_verbs_connect *connect, enum kvpull_verbs_role role)
{
	uint32_t at;

	for (at = 0; at < connect->bundle_count; at++) {
		struct kvpull_verbs_bundle *bundle = &connect->bundles[at];

		if (bundle->role != role || bundle->state != KVPULL_BUNDLE_FREE)
			continue;
		bundle->state = KVPULL_BUNDLE_MEETING;
		bundle->active_at = connect->active_count;
		connect->active[connect->active_count++] = at;
		return bundle;
	}
	return NULL;
}

static void end_begin(struct kvpull_verbs_end *end)
{
	end->state = KVPULL_VERBS_CONNECTING;
	end->heard_ns = end->shared->now_ns;
	end->deadline_ns = end->shared->now_ns + end->shared->params.connect_ns;
}

void kvpull_verbs_connect_free(struct kvpull_verbs_connect *connect,
			       struct kvpull_verbs_bundle *bundle)
{
	const uint32_t last = connect->active[--connect->active_count];

	connect->active[bundle->active_at] = last;
	connect->bundles[last].active_at = bundle->active_at;
	kvpull_verbs_bundle_unmake(bundle);
}

static uint32_t ways_count(const struct kvpull_verbs_end *end)
{
	uint32_t count = 0;
	uint32_t rail;

	for (rail = 0; rail < end->shared->rail_count; rail++)
		count += end->bundle->ways[rail].known;
	return count ? count : 1;
}

/* One rail calls. 0 or KVPULL_EPEER. */
static int rail_call(struct kvpull_verbs_connect *connect,
		     struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	const struct kvpull_fabric *fabric = shared->fabric;
	struct kvpull_verbs_address own = shared->devices[end->rail].address;
	struct kvpull_verbs_address to = end->bundle->ways[end->rail].address;

	end_begin(end);
	end->joins = end->bundle->state == KVPULL_BUNDLE_IN;
	/* The other ways are to have their time as well. */
	if (!end->joins)
		end->deadline_ns = shared->now_ns +
				   shared->params.connect_ns / ways_count(end);
	kvpull_verbs_address_print(&to, end->name);
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
	if (!fabric->cm.resolve_addr(end->id, &own.socket.any, &to.socket.any,
				     RESOLVE_MS))
		return 0;
err_end:
	kvpull_warn(shared->log, "verbs: connecting to %s: %s", end->name,
		    strerror(errno));
	kvpull_verbs_end_unmake(end);
	return KVPULL_EPEER;
}

/* By which own rail each of a peer's addresses is reached: the same subnet. */
static void ways_find(const struct kvpull_verbs_shared *shared,
		      const struct kvpull_verbs_addresses *addresses,
		      struct kvpull_verbs_way ways[KVPULL_VERBS_RAILS_MAX])
{
	uint32_t used = 0;
	uint32_t near;
	uint32_t at;

	/* First neighbours, then whatever is left. */
	for (near = 2; near-- > 0;)
		for (at = 0; at < shared->rail_count * addresses->count; at++) {
			const uint32_t rail = at / addresses->count;
			const uint32_t other = at % addresses->count;
			const struct kvpull_verbs_address *address =
				&addresses->list[other];
			const struct kvpull_verbs_device *device =
				&shared->devices[rail];

			if (ways[rail].known || used & 1u << other ||
			    device->address.socket.any.sa_family !=
				    address->socket.any.sa_family ||
			    !kvpull_verbs_networks_allow(&shared->networks,
							 address) ||
			    (near && !kvpull_verbs_networks_allow(
					     &device->subnets, address)))
				continue;
			ways[rail].known = 1;
			ways[rail].address = *address;
			used |= 1u << other;
		}
}

static int all_gone(const struct kvpull_verbs_shared *shared)
{
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++)
		if (!shared->devices[at].gone)
			return 0;
	return 1;
}

int kvpull_verbs_connect_allows(const struct kvpull_verbs_connect *connect,
				const struct kvpull_verbs_addresses *addresses)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	uint32_t at;

	for (at = 0; at < addresses->count && !all_gone(shared); at++)
		if (kvpull_verbs_networks_allow(&shared->networks,
						&addresses->list[at]))
			return 0;
	return KVPULL_EROUTE;
}

int kvpull_verbs_connect_next(struct kvpull_verbs_connect *connect,
			      struct kvpull_verbs_bundle *bundle)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	uint32_t rail;

	for (rail = 0; rail < shared->rail_count; rail++) {
		struct kvpull_verbs_way *way = &bundle->ways[rail];

		if (!way->known || way->attempts || shared->devices[rail].gone)
			continue;
		way->attempts++;
		if (rail_call(connect, &bundle->ends[rail]))
			continue;
		bundle->first = rail;
		return 0;
	}
	return KVPULL_EPEER;
}

int kvpull_verbs_connect_start(struct kvpull_verbs_connect *connect,
			       const struct kvpull_verbs_addresses *addresses,
			       uint32_t *peer)
{
	struct kvpull_verbs_bundle *bundle;

	if (all_gone(connect->shared))
		return KVPULL_EPEER;
	if (kvpull_verbs_connect_allows(connect, addresses))
		return KVPULL_EROUTE;
	bundle = bundle_take(connect, KVPULL_VERBS_PEER);
	if (!bundle)
		return KVPULL_EFULL;
	ways_find(connect->shared, addresses, bundle->ways);
	if (kvpull_verbs_connect_next(connect, bundle)) {
		kvpull_verbs_connect_free(connect, bundle);
		return KVPULL_EPEER;
	}
	bundle->told = 1;
	*peer = bundle->index;
	return 0;
}

static int may_join(const struct kvpull_verbs_bundle *bundle, uint32_t rail)
{
	return bundle->role == KVPULL_VERBS_PEER &&
	       bundle->state == KVPULL_BUNDLE_IN &&
	       (bundle->token[0] | bundle->token[1]) &&
	       bundle->ways[rail].known &&
	       !bundle->shared->devices[rail].gone &&
	       bundle->ends[rail].state == KVPULL_VERBS_FREE;
}

void kvpull_verbs_connect_join(struct kvpull_verbs_connect *connect,
			       struct kvpull_verbs_bundle *bundle)
{
	const uint64_t now_ns = connect->shared->now_ns;
	uint32_t rail;

	for (rail = 0; rail < connect->shared->rail_count; rail++) {
		struct kvpull_verbs_way *way = &bundle->ways[rail];
		uint32_t doublings;

		if (now_ns < way->retry_ns || !may_join(bundle, rail))
			continue;
		/* One that flaps is tried less and less often. */
		if (way->in_ns && now_ns - way->in_ns > STEADY_NS)
			way->attempts = 0;
		way->in_ns = 0;
		doublings = way->attempts < JOIN_DOUBLINGS_MAX ?
				    way->attempts :
				    JOIN_DOUBLINGS_MAX;
		way->retry_ns = now_ns + (JOIN_NS << doublings);
		way->attempts++;
		(void)rail_call(connect, &bundle->ends[rail]);
	}
}

uint64_t kvpull_verbs_connect_join_ns(const struct kvpull_verbs_bundle *bundle)
{
	uint64_t due_ns = UINT64_MAX;
	uint32_t rail;

	for (rail = 0; rail < bundle->shared->rail_count; rail++)
		if (may_join(bundle, rail) &&
		    bundle->ways[rail].retry_ns < due_ns)
			due_ns = bundle->ways[rail].retry_ns;
	return due_ns;
}

static uint8_t rd_atomic(const struct kvpull_verbs_shared *shared)
{
	return (uint8_t)shared->params.rd_atomic;
}

static void greeting_put(uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES],
			 const struct kvpull_verbs_end *end)
{
	const int joins = end->joins && end->role == KVPULL_VERBS_PEER;
	struct kvpull_verbs_greeting greeting = {
		.kind = joins ? KVPULL_VERBS_JOIN : KVPULL_VERBS_CALL,
		.credits = end->shared->params.notify_credits,
		.rail = end->rail,
		.mtu = end->mtu,
	};

	if (joins)
		memcpy(greeting.token, end->bundle->token,
		       sizeof(greeting.token));
	kvpull_verbs_greeting_put(bytes, &greeting);
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
	end->mtu = kvpull_verbs_device_mtu(&shared->devices[end->device]);
	greeting_put(private_data, end);
	param.qp_num = end->qp->qp_num;
	if (shared->fabric->cm.connect(end->id, &param))
		kvpull_verbs_end_lose(end, KVPULL_EPEER, strerror(errno));
}

/* All are counted; of a flood there is a line each second. */
static void refusal_say(struct kvpull_verbs_connect *connect, const char *why)
{
	struct kvpull_verbs_shared *shared = connect->shared;

	shared->counts.calls_refused++;
	if (shared->now_ns < connect->say_ns)
		return;
	connect->say_ns = shared->now_ns + SAY_NS;
	kvpull_warn(shared->log,
		    "verbs: a caller is refused: %s (%llu refused so far)", why,
		    (unsigned long long)shared->counts.calls_refused);
}

/* kind: what the caller is told by the rejection; 0: nothing. */
static void call_reject(struct kvpull_verbs_connect *connect,
			struct rdma_cm_id *id, uint32_t kind, const char *why)
{
	struct kvpull_verbs_shared *shared = connect->shared;
	uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES];
	const struct kvpull_verbs_greeting greeting = {
		.kind = kind,
		.credits = shared->params.notify_credits,
		.mtu = IBV_MTU_256,
	};

	refusal_say(connect, why);
	kvpull_verbs_greeting_put(bytes, &greeting);
	(void)shared->fabric->cm.reject(id, kind ? bytes : NULL,
					kind ? sizeof(bytes) : 0);
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

	if (!code)
		code = kvpull_verbs_pair_connect(end);
	if (code)
		return code;
	param.qp_num = end->qp->qp_num;
	greeting_put(private_data, end);
	if (shared->fabric->cm.accept(end->id, &param)) {
		kvpull_warn(shared->log, "verbs: accepting %s: %s", end->name,
			    strerror(errno));
		return KVPULL_EPEER;
	}
	return 0;
}

static uint32_t credits_of(const struct kvpull_verbs_shared *shared,
			   const struct cm_event *event)
{
	return event->greeting.credits < shared->params.notify_credits ?
		       event->greeting.credits :
		       shared->params.notify_credits;
}

static void mtu_agree(struct kvpull_verbs_end *end,
		      const struct cm_event *event)
{
	if (event->greeting.mtu < end->mtu)
		end->mtu = event->greeting.mtu;
}

/* Which own one; of those with one context any will do. */
static uint32_t device_find(const struct kvpull_verbs_shared *shared,
			    const struct ibv_context *context)
{
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++)
		if (shared->devices[at].context == context)
			return at;
	return 0;
}

/* A place for one more rail in its bundle, or NULL and it is refused. */
static struct kvpull_verbs_end *join_take(struct kvpull_verbs_connect *connect,
					  const struct cm_event *event)
{
	struct kvpull_verbs_bundle *bundle = NULL;
	struct kvpull_verbs_end *found = NULL;
	uint32_t at;

	for (at = 0; !bundle && at < connect->active_count; at++) {
		bundle = &connect->bundles[connect->active[at]];
		if (bundle->role != KVPULL_VERBS_CALLER ||
		    !kvpull_verbs_bundle_knows(bundle, event->greeting.token))
			bundle = NULL;
	}
	if (!bundle) {
		/* Another process had this address before. */
		call_reject(connect, event->id, KVPULL_VERBS_UNKNOWN,
			    "it has one more rail of no connection here");
		return NULL;
	}
	for (at = 0; at < connect->shared->rail_count; at++) {
		struct kvpull_verbs_end *end = &bundle->ends[at];

		if (end->state == KVPULL_VERBS_FREE)
			found = end;
		else if (end->rail_there == event->greeting.rail)
			kvpull_verbs_end_lose(end, KVPULL_EPEER,
					      "its rail was built again");
	}
	/* The consumer tries again; what was lost is gone by then. */
	if (!found)
		call_reject(connect, event->id, 0, "no room for one more rail");
	return found;
}

/* A place for one that wants to be let in, or NULL. */
static struct kvpull_verbs_end *
call_take(struct kvpull_verbs_connect *connect,
	  const struct kvpull_verbs_address *from)
{
	struct kvpull_verbs_bundle *bundle;

	if (kvpull_verbs_gate_pass(connect, from))
		return NULL;
	bundle = bundle_take(connect, KVPULL_VERBS_CALLER);
	if (!bundle)
		return NULL;
	bundle->from = *from;
	bundle->since_ns = connect->shared->now_ns;
	return &bundle->ends[0];
}

static void called(struct kvpull_verbs_connect *connect,
		   const struct cm_event *event)
{
	struct kvpull_verbs_shared *shared = connect->shared;
	struct kvpull_verbs_address from;
	struct kvpull_verbs_end *end;

	if (event->greeting_code || event->greeting.kind > KVPULL_VERBS_JOIN) {
		shared->counts.frames_bad++;
		call_reject(connect, event->id, 0,
			    "it speaks something else, or another version");
		return;
	}
	if (call_address(event->id, &from) ||
	    !kvpull_verbs_networks_allow(&shared->networks, &from)) {
		call_reject(connect, event->id, 0,
			    "it is not in the configured networks");
		return;
	}
	/* It came to a listener whose device is lost; it may call again. */
	if (!shared->devices[device_find(shared, event->id->verbs)].context) {
		call_reject(connect, event->id, KVPULL_VERBS_FULL,
			    "the device that it came by is lost");
		return;
	}
	if (event->greeting.kind == KVPULL_VERBS_JOIN) {
		end = join_take(connect, event);
		if (!end)
			return;
	} else {
		end = call_take(connect, &from);
		if (!end) {
			call_reject(
				connect, event->id, KVPULL_VERBS_FULL,
				"too many wait to be let in, or raise consumers_max");
			return;
		}
	}
	end_begin(end);
	kvpull_verbs_address_print(&from, end->name);
	end->id = event->id;
	end->id->context = end;
	end->device = device_find(shared, event->id->verbs);
	end->rail_there = event->greeting.rail;
	end->joins = event->greeting.kind == KVPULL_VERBS_JOIN;
	end->credits = credits_of(shared, event);
	end->mtu = kvpull_verbs_device_mtu(&shared->devices[end->device]);
	mtu_agree(end, event);
	id_options(shared, end->id);
	if (call_accept(end))
		kvpull_verbs_end_lose(end, KVPULL_EPEER, "accepting");
}

static void join_admit(struct kvpull_verbs_end *end)
{
	if (end->bundle->state != KVPULL_BUNDLE_IN ||
	    kvpull_verbs_bundle_open(end->bundle, end)) {
		kvpull_verbs_end_lose(end, KVPULL_EPEER, NULL);
		return;
	}
	end->state = KVPULL_VERBS_IN;
	end->deadline_ns = 0;
	kvpull_info(end->shared->log, "caller %s: rail %u is up", end->name,
		    end->rail_there);
}

/* A peer has answered. */
static void accepted(struct kvpull_verbs_end *end, const struct cm_event *event)
{
	const struct kvpull_fabric *fabric = end->shared->fabric;

	if (end->state != KVPULL_VERBS_CONNECTING)
		return;
	end->connected = 1;
	if (event->greeting_code) {
		end->shared->counts.frames_bad++;
		kvpull_verbs_end_lose(
			end, event->greeting_code,
			"it speaks something else, or another version");
		return;
	}
	end->credits = credits_of(end->shared, event);
	mtu_agree(end, event);
	if (kvpull_verbs_pair_connect(end) || fabric->cm.establish(end->id)) {
		kvpull_verbs_end_lose(end, KVPULL_EPEER, strerror(errno));
		return;
	}
	end->state = KVPULL_VERBS_OPEN;
}

/* A caller has heard our answer. */
static void established(struct kvpull_verbs_end *end)
{
	if (end->state != KVPULL_VERBS_CONNECTING ||
	    end->role != KVPULL_VERBS_CALLER)
		return;
	end->connected = 1;
	end->state = KVPULL_VERBS_OPEN;
	if (end->joins)
		join_admit(end);
}

static void rejected(struct kvpull_verbs_end *end, const struct cm_event *event)
{
	const uint32_t kind = event->greeting_code ? 0 : event->greeting.kind;

	if (end->joins && kind == KVPULL_VERBS_UNKNOWN) {
		kvpull_verbs_bundle_lose(
			end->bundle, KVPULL_EPEER,
			"one of its rails leads to another incarnation");
		return;
	}
	end->connected = 0;
	if (kind == KVPULL_VERBS_FULL)
		kvpull_verbs_end_lose(end, KVPULL_EFULL, "no room there");
	else
		kvpull_verbs_end_lose(
			end, KVPULL_EPEER,
			end->shared->fabric->cm.event_str(event->type));
}

/* What it said before it hung up may lie in the queue: that is taken first. */
static void hung_up(struct kvpull_verbs_end *end)
{
	if (end->role == KVPULL_VERBS_PEER && end->state == KVPULL_VERBS_OPEN)
		end->hung_up = 1;
	else
		kvpull_verbs_end_lose(end, KVPULL_EPEER, NULL);
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
	} else if (event->type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
		accepted(end, event);
	} else if (event->type == RDMA_CM_EVENT_ESTABLISHED) {
		established(end);
	} else if (event->type == RDMA_CM_EVENT_REJECTED) {
		rejected(end, event);
	} else if (event->type == RDMA_CM_EVENT_DISCONNECTED) {
		hung_up(end);
	} else if (event->type != RDMA_CM_EVENT_TIMEWAIT_EXIT &&
		   event->type != RDMA_CM_EVENT_ADDR_CHANGE) {
		end->connected = 0;
		kvpull_verbs_end_lose(end, KVPULL_EPEER,
				      fabric->cm.event_str(event->type));
	}
}

void kvpull_verbs_connect_device_lost(struct kvpull_verbs_connect *connect,
				      uint32_t device, const char *why)
{
	struct kvpull_verbs_shared *shared = connect->shared;
	uint32_t at;
	uint32_t rail;

	if (shared->devices[device].gone)
		return;
	shared->devices[device].gone = KVPULL_VERBS_DEVICE_LOST;
	kvpull_error(shared->log,
		     "verbs: %s was %s: nothing goes by it until it is back",
		     shared->devices[device].choice, why);
	for (at = 0; at < connect->active_count; at++)
		for (rail = 0; rail < shared->rail_count; rail++) {
			struct kvpull_verbs_end *end =
				&connect->bundles[connect->active[at]]
					 .ends[rail];

			if (end->device == device)
				kvpull_verbs_end_lose(end, KVPULL_EPEER,
						      "its device is gone");
		}
}

/* One comes for each id; the first of a device is enough. */
static void removed(struct kvpull_verbs_connect *connect,
		    const struct rdma_cm_id *id)
{
	uint32_t at;

	for (at = 0; at < connect->shared->rail_count; at++)
		if (connect->shared->devices[at].context == id->verbs)
			kvpull_verbs_connect_device_lost(connect, at,
							 "removed");
}

static void event_copy(const struct rdma_cm_event *event, struct cm_event *copy)
{
	copy->id = event->id;
	copy->type = event->event;
	copy->greeting_code = kvpull_verbs_greeting_get(
		event->param.conn.private_data,
		event->param.conn.private_data_len, &copy->greeting);
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
			removed(connect, copy.id);
		else if (copy.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			called(connect, &copy);
		else if (copy.id->context)
			step(copy.id->context, &copy);
	}
}
