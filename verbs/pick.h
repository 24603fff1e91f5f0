/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best of several ports: RoCE v2 with an IPv4 address, RoCE v2 with a
 * routable IPv6 address, InfiniBand, link-local last; then the faster link, then
 * the one below most of the GPU's PCI bridges, then a near one. Equal ones are shared out: each worker of the node
 * begins with another one, by its turn. Pure.
 */
#ifndef KVPULL_VERBS_PICK_H
#define KVPULL_VERBS_PICK_H

#include "verbs/address.h"
#include "verbs/fabric.h"
#include "verbs/gid.h"

/* A port, by the best of its GIDs. */
struct kvpull_verbs_port {
	struct ibv_context *context;
	struct kvpull_verbs_address address;
	uint32_t port;
	uint32_t gid_index;
	enum kvpull_gid_rank rank;
	uint32_t bridges; /* that the GPU is below, too; 0 without a GPU */
	/* From memory or, where its node is not known, from the process's CPUs. */
	uint32_t distance;
	uint32_t link_mbps;
	uint32_t mtu_bytes;
	uint32_t is_taken; /* by another rail */
};

/* The respect in which one port is better than another, the weightiest first. */
enum kvpull_verbs_respect {
	KVPULL_VERBS_BY_KIND = 0,
	KVPULL_VERBS_BY_SPEED,
	KVPULL_VERBS_BY_BRIDGES,
	KVPULL_VERBS_BY_NEARNESS,
	KVPULL_VERBS_EQUAL
};

/* The port that was chosen, and why. */
struct kvpull_verbs_choice {
	const struct kvpull_verbs_port *port; /* NULL: none is free */
	uint32_t free_count;                  /* ports to choose from */
	uint32_t equal_count; /* as good as the best, taken or not */
	enum kvpull_verbs_respect
		respect; /* the least weighty one that decided */
};

void kvpull_verbs_pick(const struct kvpull_verbs_port *ports,
		       uint32_t port_count, uint32_t turn,
		       struct kvpull_verbs_choice *choice);

#endif /* KVPULL_VERBS_PICK_H */
