/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Route choice: one transport (base/transport.h) over both routes. Same node:
 * shm, else verbs; `route` pins one. A peer's address tells its route: those
 * of verbs have a port, names of sockets have no ':'.
 */
#ifndef KVPULL_PLUGIN_ROUTE_H
#define KVPULL_PLUGIN_ROUTE_H

#include "base/arena.h"
#include "base/transport.h"
#include "verbs/verbs.h"

/* A caller that comes over the network: its uid is not known. */
#define KVPULL_ROUTE_UID_NONE KVPULL_UID_NONE

struct kvpull_route_params {
	const struct kvpull_log *log;
	struct kvpull_transport *shm; /* NULL: verbs is pinned */
	uint32_t peers_max;           /* of both together, and of each */
	uint32_t callers_max;         /* of verbs */
	uint32_t waiting_max; /* places beside: no route keeps out the other */
};

struct kvpull_route;

/* 0, KVPULL_ENOMEM, KVPULL_EDEVICE. verbs is added by kvpull_route_add(). */
int KVPULL_MUST_CHECK
kvpull_route_open(const struct kvpull_route_params *params,
		  struct kvpull_arena *arena, struct kvpull_route **route);
/* Takes it over: close() closes it. 0 or KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK kvpull_route_add(struct kvpull_route *route,
				       struct kvpull_transport *verbs);
/* Without verbs: what open() made is undone; shm is left alone. */
void kvpull_route_discard(struct kvpull_route *route);
struct kvpull_transport *kvpull_route_transport(struct kvpull_route *route);

/*
 * The address to use among those of a ticket's rank, "route:text;route:text",
 * by this transport, whichever it is. 0; KVPULL_EROUTE: none is allowed;
 * KVPULL_EAGAIN: a route cannot tell now.
 */
int KVPULL_MUST_CHECK
kvpull_route_choose(const struct kvpull_transport *transport,
		    const char *addresses,
		    char address[KVPULL_ADDRESS_BYTES_MAX]);
/* Own addresses as a ticket carries them. */
void kvpull_route_print(const struct kvpull_transport *transport, char *text,
			size_t capacity);
#define KVPULL_ROUTE_SHM 1u
#define KVPULL_ROUTE_VERBS 2u

/* One of them, and why, of a chosen address. */
uint32_t kvpull_route_tell(const struct kvpull_transport *transport,
			   const char *address, const char **why);
/* The doorbells of the same-node route; -1: there is none. */
int kvpull_route_doorbell_fd(const struct kvpull_transport *transport);

#endif /* KVPULL_PLUGIN_ROUTE_H */
