/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/route/route.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/epoll.h"
#include "plugin/bytes/ticket.h"

int kvpull_routes_add(struct kvpull_routes *routes,
		      struct kvpull_transport *transport)
{
	if (routes->count == KVPULL_ROUTES_MAX)
		return KVPULL_EFULL;
	routes->list[routes->count++] = (struct kvpull_route){
		.transport = transport,
		.peer_first = routes->peer_count,
		.caller_first = routes->caller_count,
	};
	routes->peer_count += transport->peer_count_max;
	routes->caller_count += transport->caller_count_max;
	return 0;
}

/* A route that leads to peers is open. */
static int has_way(const struct kvpull_routes *routes)
{
	return routes->count && !routes->list[routes->count - 1].is_home;
}

static int way_open(struct kvpull_routes *routes,
		    const struct kvpull_route_way *way,
		    const struct kvpull_route_params *params)
{
	struct kvpull_transport *transport;
	const int code = way->open(params, &transport);

	if (!code)
		return kvpull_routes_add(routes, transport);
	if (code != KVPULL_EUNSUPPORTED || !has_way(routes))
		return code;
	kvpull_debug(params->log, "route %s is left out: nothing here for it",
		     way->name);
	return 0;
}

int kvpull_routes_open(struct kvpull_routes *routes,
		       const struct kvpull_route_params *params)
{
	const enum kvpull_route_mode mode = params->config->route;
	struct kvpull_route_params own = *params;
	uint32_t at;
	int code = 0;

	*routes = (struct kvpull_routes){ .log = params->log };
	for (at = 0; !code && at < kvpull_route_way_count; at++) {
		const struct kvpull_route_way *way = &kvpull_route_ways[at];

		own.is_home = mode != KVPULL_ROUTE_AUTO && mode != way->pin;
		if (own.is_home &&
		    (!way->opens_device || !kvpull_route_wants_device(params)))
			continue;
		own.gpu = kvpull_routes_device(routes);
		code = way_open(routes, way, &own);
		if (!code && own.is_home)
			routes->list[routes->count - 1].is_home = 1;
	}
	return code;
}

uint32_t kvpull_routes_callers_max(const struct kvpull_config *config)
{
	return kvpull_route_way_count *
	       (config->consumers_max + KVPULL_CALLERS_MORE);
}

void kvpull_routes_close(struct kvpull_routes *routes, uint64_t close_by_ns)
{
	for (; routes->count; routes->count--) {
		struct kvpull_transport *transport =
			routes->list[routes->count - 1].transport;

		transport->ops->close(transport, close_by_ns);
	}
}

int kvpull_routes_serve(struct kvpull_routes *routes,
			const struct kvpull_serve *serve)
{
	uint32_t served = 0;
	uint32_t at;

	for (at = 0; at < routes->count; at++) {
		struct kvpull_transport *transport = routes->list[at].transport;
		int code;

		if (routes->list[at].is_home)
			continue;
		code = transport->ops->serve(transport, serve);
		/* The preferred one refused: the engine may try other memory. */
		if (code && !served)
			return code;
		if (code)
			kvpull_warn(
				routes->log,
				"route %s is not used: its memory could not be served (error %d); peers that come by it are refused",
				transport->ops->name, code);
		served += !code;
	}
	return 0;
}

int kvpull_routes_local_add(struct kvpull_routes *routes, uint8_t *base,
			    uint64_t bytes)
{
	uint32_t at;

	for (at = 0; at < routes->count; at++) {
		struct kvpull_route *route = &routes->list[at];
		struct kvpull_transport *transport = route->transport;
		int code;

		if (!transport->ops->local_add || route->no_peers ||
		    route->is_home)
			continue;
		code = transport->ops->local_add(transport, base, bytes);
		if (!code) {
			route->local_count++;
			continue;
		}
		if (!at || route->local_count)
			return code;
		route->no_peers = 1;
		kvpull_warn(
			routes->log,
			"route %s reads from nobody: its memory could not be registered (error %d)",
			transport->ops->name, code);
	}
	return 0;
}

/* Return: bytes of the text. */
static size_t address_print(const struct kvpull_transport *transport,
			    char *text, size_t capacity)
{
	const int bytes =
		snprintf(text, capacity, "%s:%s", transport->ops->name,
			 transport->ops->address(transport));

	return bytes > 0 && (size_t)bytes < capacity ? (size_t)bytes : 0;
}

void kvpull_routes_print(const struct kvpull_routes *routes, char *text,
			 size_t capacity)
{
	size_t used = 0;
	uint32_t at;

	text[0] = '\0';
	for (at = 0; at < routes->count; at++) {
		const struct kvpull_transport *transport =
			routes->list[at].transport;

		/* A route that could not serve has none. */
		if (!*transport->ops->address(transport) || capacity - used < 2)
			continue;
		if (used)
			text[used++] = ';';
		used += address_print(transport, text + used, capacity - used);
	}
}

static int reach(const struct kvpull_route *route, const char *addresses,
		 char *address)
{
	const struct kvpull_transport *transport = route->transport;
	int code;

	if (route->no_peers ||
	    kvpull_ticket_address(addresses, transport->ops->name, address))
		return KVPULL_EROUTE;
	code = transport->ops->reachable(transport, address);
	return code == KVPULL_EAGAIN || !code ? code : KVPULL_EROUTE;
}

int kvpull_routes_choose(const struct kvpull_routes *routes,
			 const char *addresses,
			 struct kvpull_route_choice *choice)
{
	uint32_t at;

	choice->why = "no other route is open";
	for (at = 0; at < routes->count; at++) {
		const struct kvpull_transport *transport =
			routes->list[at].transport;
		int code;

		if (routes->list[at].is_home)
			continue;
		code = reach(&routes->list[at], addresses, choice->address);
		choice->route = &routes->list[at];
		if (!code && transport->ops->near)
			choice->why = transport->ops->near;
		/*
		 * A route that cannot say now (EAGAIN) is not passed over for a
		 * slower one.
		 */
		if (!code || code == KVPULL_EAGAIN)
			return code;
		if (transport->ops->far)
			choice->why = transport->ops->far;
	}
	return KVPULL_EROUTE;
}

int kvpull_routes_poll(struct kvpull_routes *routes, uint32_t turn,
		       uint64_t now_ns, struct kvpull_event *events,
		       uint32_t capacity, const struct kvpull_route **route)
{
	struct kvpull_transport *transport;

	*route = &routes->list[(routes->turn + turn) % routes->count];
	transport = (*route)->transport;
	if (turn + 1 == routes->count)
		routes->turn = (routes->turn + 1) % routes->count;
	/* An equal share of the room: what one does not need, the next get. */
	return transport->ops->poll(transport, now_ns, events,
				    capacity / (routes->count - turn));
}

struct kvpull_device_thread *
kvpull_routes_device(const struct kvpull_routes *routes)
{
	struct kvpull_device_thread *device = NULL;
	uint32_t at;

	for (at = 0; !device && at < routes->count; at++) {
		const struct kvpull_transport *transport =
			routes->list[at].transport;

		if (transport->ops->device)
			device = transport->ops->device(transport);
	}
	return device;
}

uint32_t kvpull_routes_help(const struct kvpull_routes *routes)
{
	uint32_t bytes = 0;
	uint32_t at;

	for (at = 0; !bytes && at < routes->count; at++) {
		struct kvpull_transport *transport = routes->list[at].transport;

		if (transport->ops->help)
			bytes = transport->ops->help(transport);
	}
	return bytes;
}

int kvpull_routes_arm(const struct kvpull_routes *routes)
{
	int more = 0;
	uint32_t at;

	for (at = 0; at < routes->count; at++) {
		struct kvpull_transport *transport = routes->list[at].transport;

		more |= transport->ops->arm(transport);
	}
	return more;
}

void kvpull_routes_disarm(const struct kvpull_routes *routes)
{
	uint32_t at;

	for (at = 0; at < routes->count; at++) {
		struct kvpull_transport *transport = routes->list[at].transport;

		transport->ops->disarm(transport);
	}
}

int kvpull_routes_rings(const struct kvpull_routes *routes)
{
	int rings = 0;
	uint32_t at;

	for (at = 0; at < routes->count; at++) {
		const struct kvpull_transport *transport =
			routes->list[at].transport;

		rings |= transport->ops->rings(transport);
	}
	return rings;
}

int kvpull_routes_watch(const struct kvpull_routes *routes, int epoll_fd)
{
	int failed = 0;
	uint32_t at;

	for (at = 0; !failed && at < routes->count; at++) {
		const struct kvpull_transport *transport =
			routes->list[at].transport;

		failed = kvpull_epoll_add(
			epoll_fd, transport->ops->fd(transport), EPOLLIN);
	}
	return failed;
}

int kvpull_routes_watch_doorbells(const struct kvpull_routes *routes,
				  int epoll_fd)
{
	int failed = 0;
	uint32_t at;

	for (at = 0; !failed && at < routes->count; at++) {
		const struct kvpull_transport *transport =
			routes->list[at].transport;
		const int fd = transport->ops->doorbell_fd(transport);

		if (fd >= 0)
			failed = kvpull_epoll_add(epoll_fd, fd,
						  EPOLLIN | EPOLLET);
	}
	return failed;
}
