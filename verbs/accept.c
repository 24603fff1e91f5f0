/* SPDX-License-Identifier: Apache-2.0 */
/* The producer's side: who calls, and which place it is given. */
#include "verbs/accept.h"

#include <errno.h>
#include <string.h>

#include "base/cause.h"
#include "base/clock.h"
#include "verbs/gate.h"
#include "verbs/pair.h"

/* The caller's address, as the CM reports it. */
static int call_address(const struct rdma_cm_id *id,
			struct kvpull_verbs_address *address)
{
	return kvpull_verbs_address_take(&id->route.addr.dst_addr, address);
}

/* All are counted; of a flood there is a line each second. */
static void refusal_say(struct kvpull_verbs_connect *connect,
			struct rdma_cm_id *id, const char *why)
{
	struct kvpull_verbs_shared *shared = connect->shared;
	char name[KVPULL_ADDRESS_BYTES_MAX] = "?";
	struct kvpull_verbs_address from;

	shared->counts.calls_refused++;
	if (!kvpull_second_passed(&connect->said_ns, shared->now_ns))
		return;
	if (!call_address(id, &from)) {
		kvpull_verbs_address_print(&from, name);
		*strrchr(name, ':') = '\0';
	}
	kvpull_warn(shared->log,
		    "verbs: caller %s is refused: %s (%llu refused so far)",
		    name, why,
		    (unsigned long long)shared->counts.calls_refused);
}

/* kind: what the caller is told by the rejection. */
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

	refusal_say(connect, id, why);
	kvpull_verbs_greeting_put(bytes, &greeting);
	(void)shared->fabric->cm.reject(id, bytes, sizeof(bytes));
	kvpull_verbs_id_destroy(shared, id);
}

static int call_accept(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;
	uint8_t private_data[KVPULL_VERBS_PRIVATE_BYTES];
	struct rdma_conn_param param;
	int code = kvpull_verbs_end_make(end);

	if (!code)
		code = kvpull_verbs_pair_connect(end);
	if (code)
		return code;
	param = kvpull_verbs_connect_param(end, private_data);
	if (shared->fabric->cm.accept(end->id, &param)) {
		kvpull_warn(shared->log, "verbs: accepting %s: %s", end->name,
			    kvpull_why(OTHER, errno));
		return KVPULL_EPEER;
	}
	return 0;
}

/* Is the called address that of this device's listener? */
static int is_called(const struct kvpull_verbs_device *device,
		     const struct rdma_cm_id *id)
{
	struct kvpull_verbs_address to;

	return !kvpull_verbs_address_take(&id->route.addr.src_addr, &to) &&
	       kvpull_verbs_address_is(&to, &device->address);
}

/*
 * An own one that is there. Of those with one context it is the one that was
 * called: it is lost with its own address, and no other's.
 */
static uint32_t device_find(const struct kvpull_verbs_shared *shared,
			    const struct rdma_cm_id *id)
{
	uint32_t found = KVPULL_NONE;
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++) {
		const struct kvpull_verbs_device *device = &shared->devices[at];

		if (device->context != id->verbs || device->gone)
			continue;
		if (is_called(device, id))
			return at;
		if (found == KVPULL_NONE)
			found = at;
	}
	return found;
}

/* A place for one more lane in its bundle, or NULL and it is refused. */
static struct kvpull_verbs_end *
join_take(struct kvpull_verbs_connect *connect,
	  const struct kvpull_verbs_cm_event *event)
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
			    "it has one more queue pair of no connection here");
		return NULL;
	}
	for (at = 0; at < connect->shared->lane_count; at++) {
		struct kvpull_verbs_end *end = &bundle->ends[at];

		if (end->state == KVPULL_VERBS_FREE)
			found = end;
		else if (end->rail_there == event->greeting.rail &&
			 end->lane_there == event->greeting.lane)
			kvpull_verbs_end_lose(end, KVPULL_EPEER,
					      "it was built again");
	}
	/* The consumer tries again; what was lost is gone by then. */
	if (!found)
		call_reject(connect, event->id, KVPULL_VERBS_FULL,
			    "no room for one more queue pair");
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
	bundle = kvpull_verbs_connect_take(connect, KVPULL_VERBS_CALLER);
	if (!bundle)
		return NULL;
	bundle->from = *from;
	bundle->since_ns = connect->shared->now_ns;
	return &bundle->ends[0];
}

/* Tickets given back, by whoever calls: it takes no place and no queue pair. */
static void give_take(const struct kvpull_verbs_shared *shared,
		      const struct kvpull_verbs_cm_event *event)
{
	kvpull_give_sink_take(&shared->params.given, event->give.bytes,
			      event->give.byte_count);
	(void)shared->fabric->cm.reject(event->id, event->give.bytes,
					sizeof(uint32_t));
	kvpull_verbs_id_destroy(shared, event->id);
}

void kvpull_verbs_accept_call(struct kvpull_verbs_connect *connect,
			      const struct kvpull_verbs_cm_event *event)
{
	struct kvpull_verbs_shared *shared = connect->shared;
	struct kvpull_verbs_address from;
	const uint32_t device = device_find(shared, event->id);
	struct kvpull_verbs_end *end;

	if (event->give.byte_count) {
		give_take(shared, event);
		return;
	}
	if (event->greeting_code || event->greeting.kind > KVPULL_VERBS_JOIN) {
		shared->counts.frames_bad++;
		call_reject(connect, event->id, KVPULL_VERBS_OTHER,
			    "it speaks something else, or another version");
		return;
	}
	if (call_address(event->id, &from) ||
	    !kvpull_verbs_networks_allow(&shared->networks, &from)) {
		call_reject(connect, event->id, KVPULL_VERBS_OUTSIDE,
			    "it is not in the configured networks");
		return;
	}
	/* The listener's device is lost; the caller may try again. */
	if (device == KVPULL_NONE) {
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
			call_reject(connect, event->id, KVPULL_VERBS_FULL,
				    "too many wait to be let in");
			return;
		}
	}
	kvpull_verbs_end_begin(end);
	kvpull_verbs_address_print(&from, end->name);
	end->id = event->id;
	end->id->context = end;
	end->device = device;
	end->rail_there = event->greeting.rail;
	end->lane_there = event->greeting.lane;
	end->joins = event->greeting.kind == KVPULL_VERBS_JOIN;
	end->mtu = kvpull_verbs_device_mtu(&shared->devices[end->device]);
	kvpull_verbs_connect_agree(end, &event->greeting);
	kvpull_verbs_connect_options(shared, end->id);
	if (call_accept(end))
		kvpull_verbs_end_lose(end, KVPULL_EPEER, "accepting");
}

static void join_admit(struct kvpull_verbs_end *end)
{
	char name[KVPULL_VERBS_LANE_BYTES];

	if (end->bundle->state != KVPULL_BUNDLE_IN ||
	    kvpull_verbs_bundle_open(end->bundle, end)) {
		kvpull_verbs_end_lose(end, KVPULL_EPEER, NULL);
		return;
	}
	end->state = KVPULL_VERBS_IN;
	end->deadline_ns = 0;
	kvpull_info(end->shared->log, "caller %s: %s is up", end->name,
		    kvpull_verbs_lane_print(end->rail_there, end->lane_there,
					    name));
}

void kvpull_verbs_accept_established(struct kvpull_verbs_end *end)
{
	if (end->state != KVPULL_VERBS_CONNECTING ||
	    end->role != KVPULL_VERBS_CALLER)
		return;
	end->connected = 1;
	end->state = KVPULL_VERBS_OPEN;
	if (end->joins)
		join_admit(end);
}
