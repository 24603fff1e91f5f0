/* SPDX-License-Identifier: Apache-2.0 */
/* The consumer's side: by which rail each address of a peer is called. */
#include "verbs/dial.h"

#include <errno.h>
#include <stdio.h>

#include "base/cause.h"
#include "base/least.h"
#include "verbs/pair.h"

/* Reason of a rejection by a program: the CM's IB_CM_REJ_CONSUMER_DEFINED. */
#define REJECTED_BY_PRODUCER 28
/* Limit for resolving; the handshake's deadline bounds the rest. */
#define RESOLVE_MS 2000
#define WHY_BYTES_MAX (KVPULL_ADDRESS_BYTES_MAX + 64u) /* of a rejection */
/* A lane that was lost: how often it is tried, and when it is a good one. */
#define JOIN_NS (KVPULL_NS_PER_S / 4)
#define JOIN_DOUBLINGS_MAX 6u
#define STEADY_NS (10 * KVPULL_NS_PER_S)

static uint32_t ways_count(const struct kvpull_verbs_end *end)
{
	uint32_t count = 0;
	uint32_t rail;

	for (rail = 0; rail < end->shared->rail_count; rail++)
		count += end->bundle->ways[rail].known;
	return count ? count : 1;
}

/* Begins the connection of one lane. 0 or KVPULL_EPEER. */
static int lane_call(struct kvpull_verbs_connect *connect,
		     struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	const struct kvpull_fabric *fabric = shared->fabric;
	struct kvpull_verbs_address own = shared->devices[end->rail].address;
	struct kvpull_verbs_address to = end->bundle->ways[end->rail].address;

	kvpull_verbs_end_begin(end);
	end->joins = end->bundle->state == KVPULL_BUNDLE_IN;
	/* This leaves time to try the other ways. */
	if (!end->joins)
		end->deadline_ns = shared->now_ns +
				   shared->params.connect_ns / ways_count(end);
	kvpull_verbs_address_print(&to, end->name);
	if (fabric->cm.create_id(connect->channel, &end->id, end,
				 RDMA_PS_TCP)) {
		end->id = NULL;
		goto err_end;
	}
	kvpull_verbs_connect_options(shared, end->id);
	kvpull_verbs_address_set_port(&own, 0);
	if (to.socket.any.sa_family == AF_INET6 &&
	    kvpull_verbs_address_is_link_local(&to))
		to.socket.v6.sin6_scope_id = own.socket.v6.sin6_scope_id;
	if (!fabric->cm.resolve_addr(end->id, &own.socket.any, &to.socket.any,
				     RESOLVE_MS))
		return 0;
err_end:
	kvpull_warn(shared->log, "verbs: connecting to %s: %s", end->name,
		    kvpull_why(OTHER, errno));
	kvpull_verbs_end_unmake(end);
	return KVPULL_EPEER;
}

static int is_there(const struct kvpull_verbs_way *way,
		    const struct kvpull_verbs_address *address)
{
	/* The port of an IPv6 address lies at the same place. */
	return way->known && kvpull_verbs_address_is(&way->address, address) &&
	       way->address.socket.v4.sin_port == address->socket.v4.sin_port;
}

/* May this rail be the way to that address, which no other rail goes to? */
static int may_go(const struct kvpull_verbs_bundle *bundle, uint32_t rail,
		  const struct kvpull_verbs_address *address, int near)
{
	const struct kvpull_verbs_shared *shared = bundle->shared;
	const struct kvpull_verbs_device *device = &shared->devices[rail];
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++)
		if (is_there(&bundle->ways[at], address))
			return 0;
	return !bundle->ways[rail].known &&
	       device->address.socket.any.sa_family ==
		       address->socket.any.sa_family &&
	       kvpull_verbs_networks_allow(&shared->networks, address) &&
	       (!near ||
		kvpull_verbs_networks_allow(&device->subnets, address));
}

/* By which own rail each of a peer's addresses is reached: the same subnet. */
static void ways_find(struct kvpull_verbs_bundle *bundle)
{
	const struct kvpull_verbs_addresses *addresses = &bundle->addresses;
	const uint32_t rail_count = bundle->shared->rail_count;
	uint32_t near;
	uint32_t at;

	/* First neighbours, then whatever is left. */
	for (near = 2; near-- > 0;)
		for (at = 0; at < rail_count * addresses->count; at++) {
			const uint32_t rail = at / addresses->count;
			const struct kvpull_verbs_address *address =
				&addresses->list[at % addresses->count];

			if (!may_go(bundle, rail, address, (int)near))
				continue;
			bundle->ways[rail].known = 1;
			bundle->ways[rail].address = *address;
		}
}

void kvpull_verbs_dial_again(struct kvpull_verbs_connect *connect)
{
	uint32_t at;

	for (at = 0; at < connect->active_count; at++)
		ways_find(kvpull_verbs_connect_bundle(connect, at));
}

static int all_gone(const struct kvpull_verbs_shared *shared)
{
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++)
		if (!shared->devices[at].gone)
			return 0;
	return 1;
}

int kvpull_verbs_dial_allows(const struct kvpull_verbs_connect *connect,
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

int kvpull_verbs_dial_next(struct kvpull_verbs_connect *connect,
			   struct kvpull_verbs_bundle *bundle)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	uint32_t rail;

	for (rail = 0; rail < shared->rail_count; rail++) {
		struct kvpull_verbs_end *end = &bundle->ends[rail];

		if (!bundle->ways[rail].known || end->attempts ||
		    shared->devices[rail].gone)
			continue;
		end->attempts++;
		if (lane_call(connect, end))
			continue;
		bundle->first = rail;
		return 0;
	}
	return KVPULL_EPEER;
}

int kvpull_verbs_dial_start(struct kvpull_verbs_connect *connect,
			    const char *text,
			    const struct kvpull_verbs_give *give,
			    uint32_t *peer)
{
	struct kvpull_verbs_addresses addresses;
	struct kvpull_verbs_bundle *bundle;

	if (kvpull_verbs_addresses_parse(text, &addresses))
		return KVPULL_EROUTE;
	if (all_gone(connect->shared))
		return KVPULL_EPEER;
	if (kvpull_verbs_dial_allows(connect, &addresses))
		return KVPULL_EROUTE;
	bundle = kvpull_verbs_connect_take(connect, KVPULL_VERBS_PEER);
	if (!bundle)
		return KVPULL_EFULL;
	if (give)
		bundle->give = *give;
	bundle->addresses = addresses;
	ways_find(bundle);
	if (kvpull_verbs_dial_next(connect, bundle)) {
		kvpull_verbs_connect_free(connect, bundle);
		return KVPULL_EPEER;
	}
	bundle->told = 1;
	*peer = bundle->index;
	return 0;
}

static int may_join(const struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_bundle *bundle = end->bundle;

	return bundle->role == KVPULL_VERBS_PEER &&
	       bundle->state == KVPULL_BUNDLE_IN &&
	       (bundle->token[0] | bundle->token[1]) &&
	       end->lane < bundle->qps && bundle->ways[end->rail].known &&
	       !bundle->shared->devices[end->rail].gone &&
	       end->state == KVPULL_VERBS_FREE;
}

void kvpull_verbs_dial_join(struct kvpull_verbs_connect *connect,
			    struct kvpull_verbs_bundle *bundle)
{
	const uint64_t now_ns = connect->shared->now_ns;
	uint32_t place;

	for (place = 0; place < connect->shared->lane_count; place++) {
		struct kvpull_verbs_end *end = &bundle->ends[place];
		uint32_t doublings;

		if (now_ns < end->retry_ns || !may_join(end))
			continue;
		/*
		 * A lane that fails again soon is retried less and less often.
		 */
		if (end->in_ns && now_ns - end->in_ns > STEADY_NS)
			end->attempts = 0;
		end->in_ns = 0;
		doublings = kvpull_least_u32(end->attempts, JOIN_DOUBLINGS_MAX);
		end->retry_ns = now_ns + (JOIN_NS << doublings);
		end->attempts++;
		(void)lane_call(connect, end);
	}
}

uint64_t kvpull_verbs_dial_join_ns(const struct kvpull_verbs_bundle *bundle)
{
	uint64_t due_ns = UINT64_MAX;
	uint32_t place;

	for (place = 0; place < bundle->shared->lane_count; place++) {
		const struct kvpull_verbs_end *end = &bundle->ends[place];

		if (may_join(end))
			due_ns = kvpull_least(due_ns, end->retry_ns);
	}
	return due_ns;
}

void kvpull_verbs_dial_resolved(struct kvpull_verbs_end *end)
{
	if (end->state == KVPULL_VERBS_CONNECTING &&
	    end->shared->fabric->cm.resolve_route(end->id, RESOLVE_MS))
		kvpull_verbs_end_lose(end, KVPULL_EPEER,
				      kvpull_why(OTHER, errno));
}

void kvpull_verbs_dial_routed(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;
	uint8_t private_data[KVPULL_VERBS_PRIVATE_BYTES];
	struct rdma_conn_param param;
	int code;

	if (end->state != KVPULL_VERBS_CONNECTING)
		return;
	code = kvpull_verbs_end_make(end);
	if (code) {
		kvpull_verbs_end_lose(end, code, NULL);
		return;
	}
	end->mtu = kvpull_verbs_device_mtu(&shared->devices[end->device]);
	param = kvpull_verbs_connect_param(end, private_data);
	if (end->bundle->give.byte_count) {
		param.private_data = end->bundle->give.bytes;
		param.private_data_len = (uint8_t)end->bundle->give.byte_count;
	}
	if (shared->fabric->cm.connect(end->id, &param))
		kvpull_verbs_end_lose(end, KVPULL_EPEER,
				      kvpull_why(OTHER, errno));
}

void kvpull_verbs_dial_answered(struct kvpull_verbs_end *end,
				const struct kvpull_verbs_cm_event *event)
{
	const struct kvpull_fabric *fabric = end->shared->fabric;

	if (end->state != KVPULL_VERBS_CONNECTING)
		return;
	end->connected = 1;
	if (end->bundle->give.byte_count) {
		kvpull_verbs_bundle_lose(end->bundle, KVPULL_EPROTO,
					 "it accepted what gives tickets back");
		return;
	}
	if (event->greeting_code) {
		end->shared->counts.frames_bad++;
		kvpull_verbs_end_lose(
			end, event->greeting_code,
			"it speaks something else, or another version");
		return;
	}
	kvpull_verbs_connect_agree(end, &event->greeting);
	if (kvpull_verbs_pair_connect(end) || fabric->cm.establish(end->id)) {
		kvpull_verbs_end_lose(end, KVPULL_EPEER,
				      kvpull_why(OTHER, errno));
		return;
	}
	end->state = KVPULL_VERBS_OPEN;
}

/* Why a program there turned us away: as it says, if it is one of ours. */
static void rejection_print(const struct kvpull_verbs_end *end, uint32_t kind,
			    char text[WHY_BYTES_MAX])
{
	const struct kvpull_verbs_address *own =
		&end->shared->devices[end->device].address;
	char name[KVPULL_ADDRESS_BYTES_MAX];

	if (kind == KVPULL_VERBS_OUTSIDE) {
		kvpull_verbs_address_print(own, name);
		*strrchr(name, ':') = '\0';
		(void)snprintf(
			text, WHY_BYTES_MAX,
			"it rejects us: our address %s is in none of its networks",
			name);
		return;
	}
	(void)snprintf(text, WHY_BYTES_MAX, "it rejects us: %s",
		       kind == KVPULL_VERBS_OTHER ?
			       "it speaks another version of kvpull" :
			       "it is no kvpull, or of another version");
}

void kvpull_verbs_dial_rejected(struct kvpull_verbs_end *end,
				const struct kvpull_verbs_cm_event *event)
{
	const uint32_t kind = event->greeting_code == KVPULL_EVERSION ?
				      KVPULL_VERBS_OTHER :
			      event->greeting_code ? 0 :
						     event->greeting.kind;
	char why[WHY_BYTES_MAX];

	if (end->bundle->give.byte_count) {
		kvpull_verbs_bundle_lose(
			end->bundle,
			event->give.byte_count ? KVPULL_OK : KVPULL_EREJECTED,
			NULL);
		return;
	}
	if (end->joins && kind == KVPULL_VERBS_UNKNOWN) {
		kvpull_verbs_bundle_lose(
			end->bundle, KVPULL_EPEER,
			"one of its queue pairs leads to another incarnation");
		return;
	}
	end->connected = 0;
	if (kind == KVPULL_VERBS_FULL) {
		kvpull_verbs_end_lose(end, KVPULL_EFULL, "no room there");
		return;
	}
	if (event->status != REJECTED_BY_PRODUCER) {
		kvpull_verbs_end_lose(
			end, KVPULL_EPEER,
			end->shared->fabric->cm.event_str(event->type));
		return;
	}
	rejection_print(end, kind, why);
	kvpull_verbs_end_lose(end, KVPULL_EREJECTED, why);
}
