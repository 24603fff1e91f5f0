/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of both routes are mapped into one range, densely: an entry is taken
 * at connect() or CALLER_UP and given back at the poll after PEER_DOWN, or at
 * forget(). An event that tells a handle's end may lie behind others of the
 * same poll: until the next one the handle is not used again.
 */
#include "plugin/route/route.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "plugin/bytes/handshake.h"
#include "plugin/route/places.h"
#include "shm/shm.h"

#define REFUSAL_BYTES 1024u

struct kvpull_route {
	struct kvpull_transport transport; /* first: the seam's handle */
	struct kvpull_transport *sides[KVPULL_SIDES];
	struct kvpull_places peers;
	struct kvpull_places callers;
	uint32_t turn; /* the side that is polled first */
	int wait_fd;
};

static const struct kvpull_transport_ops route_ops;

static struct kvpull_route *route_of(struct kvpull_transport *transport)
{
	return (struct kvpull_route *)(void *)transport;
}

static const struct kvpull_route *
route_of_const(const struct kvpull_transport *transport)
{
	return (const struct kvpull_route *)(const void *)transport;
}

static int has_device_memory(const struct kvpull_serve *serve)
{
	uint32_t i;

	for (i = 0; i < serve->region_count; i++)
		if (serve->regions[i].kind == KVPULL_REGION_DMABUF)
			return 1;
	return 0;
}

static int route_serve(struct kvpull_transport *transport,
		       const struct kvpull_serve *serve)
{
	struct kvpull_route *route = route_of(transport);
	struct kvpull_transport *verbs = route->sides[KVPULL_SIDE_VERBS];
	struct kvpull_transport *shm = route->sides[KVPULL_SIDE_SHM];
	/* No CPU reads or writes a device's memory: it is the one way. */
	const int verbs_only = verbs && has_device_memory(serve);
	int code = 0;

	if (shm && !verbs_only)
		code = shm->ops->serve(shm, serve);
	if (code || !verbs)
		return code;
	code = verbs->ops->serve(verbs, serve);
	/* Where it is refused, host memory may be tried next. */
	if (shm && verbs_only && !code) {
		shm->ops->close(shm);
		route->sides[KVPULL_SIDE_SHM] = NULL;
		kvpull_info(transport->log,
			    "route shm is closed: a region is device memory");
	}
	if (!shm || verbs_only || !code)
		return code;
	kvpull_warn(
		transport->log,
		"route verbs is not used: its memory could not be served (error %d); peers on other machines are refused",
		code);
	return 0;
}

static const char *route_address(const struct kvpull_transport *transport)
{
	const struct kvpull_route *route = route_of_const(transport);
	const struct kvpull_transport *side =
		route->sides[route->sides[KVPULL_SIDE_SHM] ? KVPULL_SIDE_SHM :
							     KVPULL_SIDE_VERBS];

	/* One of them: kvpull_route_print() has both. */
	return side->ops->address(side);
}

static enum kvpull_side side_of(const char *address)
{
	return strchr(address, ':') ? KVPULL_SIDE_VERBS : KVPULL_SIDE_SHM;
}

static int route_reachable(const struct kvpull_transport *transport,
			   const char *address)
{
	const struct kvpull_transport *side =
		route_of_const(transport)->sides[side_of(address)];

	return side ? side->ops->reachable(side, address) : KVPULL_EROUTE;
}

static int route_connect(struct kvpull_transport *transport,
			 const char *address, uint32_t *peer)
{
	struct kvpull_route *route = route_of(transport);
	const enum kvpull_side kind = side_of(address);
	struct kvpull_transport *side = route->sides[kind];
	uint32_t inner, outer;
	int code;

	if (!side)
		return KVPULL_EROUTE;
	/* Before it is made: there is no way back from a connection. */
	outer = kvpull_place_find(&route->peers);
	if (outer == KVPULL_NONE)
		return KVPULL_EFULL;
	code = side->ops->connect(side, address, &inner);
	if (code)
		return code;
	kvpull_place_take(&route->peers, outer, kind, inner);
	*peer = outer;
	return 0;
}

/* The route and the handle behind an outer one. */
static struct kvpull_transport *peer_side(const struct kvpull_route *route,
					  uint32_t peer, uint32_t *inner)
{
	const struct kvpull_place *place = kvpull_place_at(&route->peers, peer);

	*inner = place->inner;
	return route->sides[place->side];
}

static struct kvpull_transport *caller_side(const struct kvpull_route *route,
					    uint32_t caller, uint32_t *inner)
{
	const struct kvpull_place *place =
		kvpull_place_at(&route->callers, caller);

	*inner = place->inner;
	return route->sides[place->side];
}

static int route_peer_send(struct kvpull_transport *transport, uint32_t peer,
			   const void *bytes, size_t byte_count)
{
	struct kvpull_transport *side =
		peer_side(route_of(transport), peer, &peer);

	return side->ops->peer_send(side, peer, bytes, byte_count);
}

static int route_attach(struct kvpull_transport *transport, uint32_t peer,
			const struct kvpull_serve *remote)
{
	struct kvpull_transport *side =
		peer_side(route_of(transport), peer, &peer);

	return side->ops->attach(side, peer, remote);
}

static void route_disconnect(struct kvpull_transport *transport, uint32_t peer)
{
	struct kvpull_transport *side =
		peer_side(route_of(transport), peer, &peer);

	side->ops->disconnect(side, peer);
}

static int route_read_start(struct kvpull_transport *transport, uint32_t peer,
			    struct kvpull_read *read)
{
	struct kvpull_transport *side =
		peer_side(route_of(transport), peer, &peer);

	return side->ops->read_start(side, peer, read);
}

static void route_read_cancel(struct kvpull_transport *transport, uint32_t peer,
			      struct kvpull_read *read)
{
	struct kvpull_transport *side =
		peer_side(route_of(transport), peer, &peer);

	side->ops->read_cancel(side, peer, read);
}

static int route_check_start(struct kvpull_transport *transport, uint32_t peer,
			     struct kvpull_read *read)
{
	struct kvpull_transport *side =
		peer_side(route_of(transport), peer, &peer);

	return side->ops->check_start(side, peer, read);
}

static int route_notify(struct kvpull_transport *transport, uint32_t peer,
			const struct kvpull_record *record)
{
	struct kvpull_transport *side =
		peer_side(route_of(transport), peer, &peer);

	return side->ops->notify(side, peer, record);
}

static uint32_t route_notes_open(const struct kvpull_transport *transport,
				 uint32_t peer)
{
	const struct kvpull_transport *side =
		peer_side(route_of_const(transport), peer, &peer);

	return side->ops->notes_open(side, peer);
}

static void route_beat(struct kvpull_transport *transport, uint32_t peer)
{
	struct kvpull_transport *side =
		peer_side(route_of(transport), peer, &peer);

	side->ops->beat(side, peer);
}

static int route_caller_send(struct kvpull_transport *transport,
			     uint32_t caller, const void *bytes,
			     size_t byte_count)
{
	struct kvpull_transport *side =
		caller_side(route_of(transport), caller, &caller);

	return side->ops->caller_send(side, caller, bytes, byte_count);
}

static int route_admit(struct kvpull_transport *transport, uint32_t caller,
		       const void *welcome, size_t welcome_bytes,
		       struct kvpull_ring **ring)
{
	struct kvpull_route *route = route_of(transport);
	const struct kvpull_place *place =
		kvpull_place_at(&route->callers, caller);
	struct kvpull_transport *side = route->sides[place->side];

	return side->ops->admit(side, place->inner, welcome, welcome_bytes,
				ring);
}

static void route_refuse(struct kvpull_transport *transport, uint32_t caller,
			 const void *refusal, size_t refusal_bytes)
{
	struct kvpull_route *route = route_of(transport);
	struct kvpull_place *place = kvpull_place_at(&route->callers, caller);
	struct kvpull_transport *side = route->sides[place->side];

	side->ops->refuse(side, place->inner, refusal, refusal_bytes);
	/* No event of it follows, unless its end is in this poll's already. */
	if (!place->ended)
		kvpull_place_free(&route->callers, place);
}

static void route_drop(struct kvpull_transport *transport, uint32_t caller)
{
	struct kvpull_transport *side =
		caller_side(route_of(transport), caller, &caller);

	side->ops->drop(side, caller);
}

static void route_forget(struct kvpull_transport *transport, uint32_t caller)
{
	struct kvpull_route *route = route_of(transport);
	struct kvpull_place *place = kvpull_place_at(&route->callers, caller);
	struct kvpull_transport *side = route->sides[place->side];

	side->ops->forget(side, place->inner);
	kvpull_place_free(&route->callers, place);
}

/* A caller beyond what both routes together may have. */
static void call_refuse(struct kvpull_route *route, enum kvpull_side kind,
			uint32_t inner)
{
	struct kvpull_refusal refusal = { .code = KVPULL_EFULL };
	uint8_t bytes[REFUSAL_BYTES];
	size_t byte_count;

	(void)snprintf(refusal.field, sizeof(refusal.field), "consumers_max");
	(void)snprintf(refusal.ours, sizeof(refusal.ours), "%u",
		       route->callers.count_max);
	byte_count =
		kvpull_handshake_put_refusal(bytes, sizeof(bytes), &refusal);
	kvpull_warn(route->transport.log,
		    "a consumer is refused: raise consumers_max");
	route->sides[kind]->ops->refuse(route->sides[kind], inner, bytes,
					byte_count);
}

/* One that was refused may have said more before, or ended. */
static int caller_event_map(struct kvpull_route *route, enum kvpull_side kind,
			    struct kvpull_event *event)
{
	struct kvpull_transport *side = route->sides[kind];
	const uint32_t outer = route->callers.outer[kind][event->index];
	const int is_down = event->kind == KVPULL_EVENT_CALLER_DOWN;

	if (outer == KVPULL_NONE) {
		if (is_down)
			side->ops->forget(side, event->index);
		return 0;
	}
	event->index = outer;
	if (is_down)
		kvpull_place_at(&route->callers, outer)->ended = 1;
	return 1;
}

/* Return: 1 if the event is for the owner, its handle being an outer one. */
static int event_map(struct kvpull_route *route, enum kvpull_side kind,
		     struct kvpull_event *event)
{
	uint32_t outer;

	switch (event->kind) {
	case KVPULL_EVENT_PEER_MESSAGE:
		event->index = route->peers.outer[kind][event->index];
		break;
	case KVPULL_EVENT_PEER_DOWN:
		event->index = route->peers.outer[kind][event->index];
		kvpull_place_at(&route->peers, event->index)->ended = 1;
		route->peers.ended_count++;
		break;
	case KVPULL_EVENT_CALLER_UP:
		outer = kvpull_place_find(&route->callers);
		if (outer == KVPULL_NONE) {
			call_refuse(route, kind, event->index);
			return 0;
		}
		kvpull_place_take(&route->callers, outer, kind, event->index);
		event->index = outer;
		break;
	case KVPULL_EVENT_CALLER_MESSAGE:
	case KVPULL_EVENT_CALLER_DOWN:
		return caller_event_map(route, kind, event);
	case KVPULL_EVENT_READ_DONE:
	case KVPULL_EVENT_CHECK_DONE:
	case KVPULL_EVENT_NONE:
		break;
	}
	return 1;
}

static uint32_t side_poll(struct kvpull_route *route, enum kvpull_side kind,
			  uint64_t now_ns, struct kvpull_event *events,
			  uint32_t capacity)
{
	struct kvpull_transport *side = route->sides[kind];
	uint32_t kept = 0;
	int count;
	int at;

	if (!side || !capacity)
		return 0;
	count = side->ops->poll(side, now_ns, events, capacity);
	for (at = 0; at < count; at++) {
		if (!event_map(route, kind, &events[at]))
			continue;
		if (kept != (uint32_t)at)
			events[kept] = events[at];
		kept++;
	}
	return kept;
}

static int route_poll(struct kvpull_transport *transport, uint64_t now_ns,
		      struct kvpull_event *events, uint32_t capacity)
{
	struct kvpull_route *route = route_of(transport);
	const enum kvpull_side first =
		route->turn ? KVPULL_SIDE_VERBS : KVPULL_SIDE_SHM;
	const enum kvpull_side second =
		route->turn ? KVPULL_SIDE_SHM : KVPULL_SIDE_VERBS;
	uint32_t count;

	kvpull_places_free_ended(&route->peers);
	route->turn ^= 1;
	/* A flood on one side leaves the other its share. */
	count = side_poll(route, first, now_ns, events, capacity / 2);
	count += side_poll(route, second, now_ns, events + count,
			   capacity - count);
	return (int)count;
}

static int route_arm(struct kvpull_transport *transport)
{
	struct kvpull_route *route = route_of(transport);
	int more = 0;
	int kind;

	for (kind = 0; kind < KVPULL_SIDES; kind++)
		if (route->sides[kind])
			more |= route->sides[kind]->ops->arm(
				route->sides[kind]);
	return more;
}

static void route_disarm(struct kvpull_transport *transport)
{
	struct kvpull_route *route = route_of(transport);
	int kind;

	for (kind = 0; kind < KVPULL_SIDES; kind++)
		if (route->sides[kind])
			route->sides[kind]->ops->disarm(route->sides[kind]);
}

static int route_rings(const struct kvpull_transport *transport)
{
	const struct kvpull_route *route = route_of_const(transport);
	int kind;

	for (kind = 0; kind < KVPULL_SIDES; kind++)
		if (route->sides[kind] &&
		    route->sides[kind]->ops->rings(route->sides[kind]))
			return 1;
	return 0;
}

static int route_fd(const struct kvpull_transport *transport)
{
	return route_of_const(transport)->wait_fd;
}

static void route_close(struct kvpull_transport *transport)
{
	struct kvpull_route *route = route_of(transport);
	int kind;

	for (kind = 0; kind < KVPULL_SIDES; kind++)
		if (route->sides[kind])
			route->sides[kind]->ops->close(route->sides[kind]);
	if (route->wait_fd >= 0)
		(void)close(route->wait_fd);
}

static const struct kvpull_transport_ops route_ops = {
	.name = "route",
	.serve = route_serve,
	.address = route_address,
	.reachable = route_reachable,
	.connect = route_connect,
	.peer_send = route_peer_send,
	.attach = route_attach,
	.disconnect = route_disconnect,
	.read_start = route_read_start,
	.read_cancel = route_read_cancel,
	.check_start = route_check_start,
	.notify = route_notify,
	.notes_open = route_notes_open,
	.beat = route_beat,
	.caller_send = route_caller_send,
	.admit = route_admit,
	.refuse = route_refuse,
	.drop = route_drop,
	.forget = route_forget,
	.poll = route_poll,
	.arm = route_arm,
	.disarm = route_disarm,
	.rings = route_rings,
	.fd = route_fd,
	.close = route_close,
};

void kvpull_route_discard(struct kvpull_route *route)
{
	(void)close(route->wait_fd);
}

struct kvpull_transport *kvpull_route_transport(struct kvpull_route *route)
{
	return &route->transport;
}

static int side_watch(struct kvpull_route *route, enum kvpull_side kind)
{
	struct epoll_event event = { .events = EPOLLIN };
	const int fd = route->sides[kind]->ops->fd(route->sides[kind]);

	event.data.fd = fd;
	if (fd < 0 || !epoll_ctl(route->wait_fd, EPOLL_CTL_ADD, fd, &event))
		return 0;
	kvpull_error(route->transport.log, "route: epoll: %s", strerror(errno));
	return KVPULL_EDEVICE;
}

int kvpull_route_open(const struct kvpull_route_params *params,
		      struct kvpull_arena *arena, struct kvpull_route **out)
{
	struct kvpull_route *route = (struct kvpull_route *)kvpull_arena_take(
		arena, 1, sizeof(*route));
	int code;

	if (!route)
		return KVPULL_ENOMEM;
	route->transport.ops = &route_ops;
	route->transport.log = params->log;
	code = kvpull_places_init(&route->peers, params->peers_max, params->log,
				  arena);
	if (!code)
		code = kvpull_places_init(&route->callers,
					  params->callers_max +
						  params->waiting_max,
					  params->log, arena);
	if (code)
		return code;
	route->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	if (route->wait_fd < 0) {
		kvpull_error(params->log, "route: epoll: %s", strerror(errno));
		return KVPULL_EDEVICE;
	}
	route->sides[KVPULL_SIDE_SHM] = params->shm;
	if (params->shm)
		code = side_watch(route, KVPULL_SIDE_SHM);
	*out = route;
	return code;
}

int kvpull_route_add(struct kvpull_route *route, struct kvpull_transport *verbs)
{
	route->sides[KVPULL_SIDE_VERBS] = verbs;
	return side_watch(route, KVPULL_SIDE_VERBS);
}

/* Which of a ticket's addresses may be used by one plain transport. */
static int plain_choose(const struct kvpull_transport *transport,
			const char *addresses,
			char address[KVPULL_ADDRESS_BYTES_MAX])
{
	int code;

	if (kvpull_ticket_address(addresses, transport->ops->name, address))
		return KVPULL_EROUTE;
	code = transport->ops->reachable(transport, address);
	return code == KVPULL_EAGAIN || !code ? code : KVPULL_EROUTE;
}

int kvpull_route_choose(const struct kvpull_transport *transport,
			const char *addresses,
			char address[KVPULL_ADDRESS_BYTES_MAX])
{
	int kind;

	if (transport->ops != &route_ops)
		return plain_choose(transport, addresses, address);
	for (kind = 0; kind < KVPULL_SIDES; kind++) {
		const struct kvpull_transport *side =
			route_of_const(transport)->sides[kind];
		int code = KVPULL_EROUTE;

		if (side)
			code = plain_choose(side, addresses, address);
		/* Who cannot tell now is not passed over for a slower one. */
		if (!code || code == KVPULL_EAGAIN)
			return code;
	}
	return KVPULL_EROUTE;
}

/* Return: bytes of the text. */
static size_t side_print(const struct kvpull_transport *side, char *text,
			 size_t capacity)
{
	const int bytes = snprintf(text, capacity, "%s:%s", side->ops->name,
				   side->ops->address(side));

	return bytes > 0 && (size_t)bytes < capacity ? (size_t)bytes : 0;
}

void kvpull_route_print(const struct kvpull_transport *transport, char *text,
			size_t capacity)
{
	size_t used = 0;
	int kind;

	text[0] = '\0';
	if (transport->ops != &route_ops) {
		(void)side_print(transport, text, capacity);
		return;
	}
	for (kind = 0; kind < KVPULL_SIDES; kind++) {
		const struct kvpull_transport *side =
			route_of_const(transport)->sides[kind];

		/* A route that could not serve has none. */
		if (!side || !*side->ops->address(side) || capacity - used < 2)
			continue;
		if (used)
			text[used++] = ';';
		used += side_print(side, text + used, capacity - used);
	}
}

uint32_t kvpull_route_tell(const struct kvpull_transport *transport,
			   const char *address, const char **why)
{
	const struct kvpull_route *route = route_of_const(transport);

	if (transport->ops != &route_ops ||
	    side_of(address) == KVPULL_SIDE_SHM) {
		*why = "same node: its socket is in our folder";
		return KVPULL_ROUTE_SHM;
	}
	*why = route->sides[KVPULL_SIDE_SHM] ?
		       "another node: its socket is not in our folder" :
		       "no other route is open";
	return KVPULL_ROUTE_VERBS;
}

int kvpull_route_doorbell_fd(const struct kvpull_transport *transport)
{
	if (transport->ops == &route_ops)
		transport = route_of_const(transport)->sides[KVPULL_SIDE_SHM];
	return transport && strcmp(transport->ops->name, "shm") == 0 ?
		       kvpull_shm_doorbell_fd(transport) :
		       -1;
}
