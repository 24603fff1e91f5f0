/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes of a worker: which there are, which one leads to a peer, and the
 * waiting for all of them. A peer and a caller keep the route that they came
 * by; whatever is said to them goes to its table (base/transport.h), not
 * through here.
 */
#ifndef KVPULL_PLUGIN_ROUTE_H
#define KVPULL_PLUGIN_ROUTE_H

#include "base/arena.h"
#include "base/transport.h"
#include "plugin/config/config.h"

#define KVPULL_ROUTES_MAX 4u

/* Parameters that every route is opened with. */
struct kvpull_route_params {
	const struct kvpull_log *log;
	const struct kvpull_config *config;
	struct kvpull_arena *arena;
	uint64_t incarnation;
	uint32_t reads_max; /* read->index is below it */
	uint32_t slots_max; /* of one read's check; 0: 1 */
	int engine_wake_fd; /* written when a ring's reader sleeps; -1: none */
	struct kvpull_give_sink given; /* of callers that get no place */
	_Atomic uint64_t *refused;     /* counts callers turned away */
	uint32_t disk_thread; /* one reads files, where io_uring is not allowed */
	uint32_t device_kind; /* KVPULL_DEVICE_*: the owner's, as its engine says */
	int device_index;     /* of that kind */
	/* kvpull_routes_open() sets it: of the routes that are open before. */
	struct kvpull_device_thread *gpu; /* NULL: none */
	uint32_t is_home; /* likewise; of the route that is opened */
	uint32_t rank;    /* among the workers of the node, unless configured */
};

/* The engine has a device, and the configuration does not rule it out. */
static inline int
kvpull_route_wants_device(const struct kvpull_route_params *params)
{
	return params->device_kind == KVPULL_DEVICE_CUDA &&
	       params->config->device != KVPULL_DEVICE_OFF;
}

/* A route that can be chosen; ways.c lists them in order of preference. */
struct kvpull_route_way {
	const char *name;           /* as its table has it */
	enum kvpull_route_mode pin; /* the `route` that allows no other */
	uint32_t opens_device;      /* it starts the thread of a device */
	/*
	 * KVPULL_EUNSUPPORTED: this host has nothing for it, which is no
	 * failure where there is another.
	 */
	int (*open)(const struct kvpull_route_params *params,
		    struct kvpull_transport **transport);
};

extern const struct kvpull_route_way kvpull_route_ways[];
extern const uint32_t kvpull_route_way_count;

struct kvpull_route {
	struct kvpull_transport *transport;
	/* Handles of this route among those of all routes: handle + first. */
	uint32_t peer_first;
	uint32_t caller_first;
	uint32_t local_count; /* pieces of memory that it was given */
	uint32_t no_peers;    /* it could not take the first one */
	/*
	 * Open for its device's thread alone, as the configuration does not allow
	 * it: nothing is served or read by it.
	 */
	uint32_t is_home;
};

/*
 * On one node: a name in the folder is anybody's who can write there, once its
 * maker has ended. Over a network nobody says who: the key decides.
 */
static inline int kvpull_route_trusts(const struct kvpull_route *route,
				      const struct kvpull_config *config,
				      uint32_t uid)
{
	const struct kvpull_users users = kvpull_config_users(config);

	return !route->transport->ops->vouches ||
	       kvpull_users_believe(&users, uid);
}

struct kvpull_routes {
	const struct kvpull_log *log;
	struct kvpull_route list[KVPULL_ROUTES_MAX]; /* the preferred one first */
	uint32_t count;
	uint32_t turn; /* the one that is polled first */
	uint32_t peer_count;
	uint32_t caller_count;
};

/*
 * Opens the routes of the configuration. On failure close() ends those that are
 * open.
 */
int KVPULL_MUST_CHECK
kvpull_routes_open(struct kvpull_routes *routes,
		   const struct kvpull_route_params *params);
/* Callers that all of them together may have. */
uint32_t kvpull_routes_callers_max(const struct kvpull_config *config);
/* Adds a route after the others; close() closes it, too. KVPULL_EFULL. */
int KVPULL_MUST_CHECK kvpull_routes_add(struct kvpull_routes *routes,
					struct kvpull_transport *transport);
void kvpull_routes_close(struct kvpull_routes *routes, uint64_t close_by_ns);

/*
 * Regions are known: listen. What cannot serve them is not used, with a
 * warning, where a preferred one does.
 */
int KVPULL_MUST_CHECK kvpull_routes_serve(struct kvpull_routes *routes,
					  const struct kvpull_serve *serve);
/*
 * Own memory that reads may land in, beside what is served. A route that cannot
 * take the first piece leads to nobody, with a warning, where a preferred one
 * does; of later pieces that is an error, as in the seam.
 */
int KVPULL_MUST_CHECK kvpull_routes_local_add(struct kvpull_routes *routes,
					      uint8_t *base, uint64_t bytes);
/* Own addresses as a ticket carries them, "name:text;name:text". */
void kvpull_routes_print(const struct kvpull_routes *routes, char *text,
			 size_t capacity);

/* The route that was chosen for a peer. */
struct kvpull_route_choice {
	const struct kvpull_route *route;
	const char *why; /* static text */
	char address[KVPULL_ADDRESS_BYTES_MAX];
};

/*
 * The first route that reaches one of the addresses of a ticket's rank. 0;
 * KVPULL_EROUTE: none is allowed; KVPULL_EAGAIN: a route cannot tell now.
 */
int KVPULL_MUST_CHECK kvpull_routes_choose(const struct kvpull_routes *routes,
					   const char *addresses,
					   struct kvpull_route_choice *choice);

/* The device's thread of the route that has one; NULL: there is none. */
struct kvpull_device_thread *
kvpull_routes_device(const struct kvpull_routes *routes);

/*
 * A round is `count` turns, in each of which one route works; another one
 * begins each round, and none can take the others' share of the events. Return:
 * events written; *route: whose.
 */
int kvpull_routes_poll(struct kvpull_routes *routes, uint32_t turn,
		       uint64_t now_ns, struct kvpull_event *events,
		       uint32_t capacity, const struct kvpull_route **route);

/* As in the seam: the first one with something to be done. Engine's thread. */
uint32_t kvpull_routes_help(const struct kvpull_routes *routes);

/* As in the seam, over all of them. */
int KVPULL_MUST_CHECK kvpull_routes_arm(const struct kvpull_routes *routes);
void kvpull_routes_disarm(const struct kvpull_routes *routes);
int kvpull_routes_rings(const struct kvpull_routes *routes);
/* 0, or -1 with errno: what wakes them, or the doorbells, are in the epoll. */
int KVPULL_MUST_CHECK kvpull_routes_watch(const struct kvpull_routes *routes,
					  int epoll_fd);
int KVPULL_MUST_CHECK
kvpull_routes_watch_doorbells(const struct kvpull_routes *routes, int epoll_fd);

#endif /* KVPULL_PLUGIN_ROUTE_H */
