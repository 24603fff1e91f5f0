/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of this route: "IPv4:PORT" or "[IPv6]:PORT", numbers only. They
 * come in tickets, through clients, so only those of configured networks are
 * ever connected to. Pure.
 */
#ifndef KVPULL_VERBS_ADDRESS_H
#define KVPULL_VERBS_ADDRESS_H

#include <netinet/in.h>
#include <stdint.h>

#include "base/transport.h"

#define KVPULL_NETWORKS_MAX 16u
#define KVPULL_VERBS_IP_BYTES 46u /* text of an address, with NUL */

struct kvpull_verbs_address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_storage storage;
	} socket;
};

struct kvpull_network {
	uint32_t family; /* AF_INET, AF_INET6 */
	uint32_t prefix_bits;
	uint8_t bytes[16];
};

struct kvpull_networks {
	uint32_t count; /* 0: nothing is allowed */
	struct kvpull_network list[KVPULL_NETWORKS_MAX];
};

/*
 * The next item of a list "a,b,c", which is NULL behind the last one. Return: 1;
 * 0: there was none; KVPULL_EINVAL: it is longer than it may be.
 */
int KVPULL_MUST_CHECK kvpull_verbs_item_next(const char **list, char *item,
					     size_t item_bytes_max);
/*
 * The part of a list "a, b; c, d" that is a local rank's, without its blanks, into
 * out[capacity]: with fewer parts than ranks they begin again. 0, or
 * KVPULL_EINVAL: no room.
 */
int KVPULL_MUST_CHECK kvpull_verbs_rank_list(const char *list, uint32_t rank,
					     char *out, size_t capacity);
/* An address with its port, 1 .. 65535. 0 or KVPULL_EINVAL. */
int KVPULL_MUST_CHECK
kvpull_verbs_address_parse(const char *text,
			   struct kvpull_verbs_address *address);
/* Parses an address without a port; the port is then 0. */
int KVPULL_MUST_CHECK
kvpull_verbs_address_parse_ip(const char *text,
			      struct kvpull_verbs_address *address);
/* "ADDRESS,ADDRESS": where one process is reached, a rail each. */
#define KVPULL_VERBS_RAILS_MAX 8u
#define KVPULL_VERBS_QPS_MAX 4u /* lanes of a rail, a queue pair each */
#define KVPULL_VERBS_LANES_MAX (KVPULL_VERBS_RAILS_MAX * KVPULL_VERBS_QPS_MAX)

struct kvpull_verbs_addresses {
	uint32_t count; /* 1 .. KVPULL_VERBS_RAILS_MAX */
	struct kvpull_verbs_address list[KVPULL_VERBS_RAILS_MAX];
};

/* 0 or KVPULL_EINVAL: too many, or one that is none. */
int KVPULL_MUST_CHECK
kvpull_verbs_addresses_parse(const char *text,
			     struct kvpull_verbs_addresses *addresses);
/* Text as parse() takes it; a scope is not written: it is the host's own. */
void kvpull_verbs_address_print(const struct kvpull_verbs_address *address,
				char text[KVPULL_ADDRESS_BYTES_MAX]);
/* Likewise without the port and brackets, as the configuration names it. */
void kvpull_verbs_address_print_ip(const struct kvpull_verbs_address *address,
				   char text[KVPULL_VERBS_IP_BYTES]);
void kvpull_verbs_address_set_port(struct kvpull_verbs_address *address,
				   uint16_t port);
/* An address of IPv4 or IPv6, or KVPULL_EROUTE: of neither. */
int kvpull_verbs_address_take(const struct sockaddr *from,
			      struct kvpull_verbs_address *address);
/* The address that a GID stands for on RoCE: IPv4-mapped, or IPv6. */
void kvpull_verbs_address_of_gid(const uint8_t gid[16],
				 struct kvpull_verbs_address *address);
/* 1 if both have the same IP address; ports do not count. */
int kvpull_verbs_address_is(const struct kvpull_verbs_address *one,
			    const struct kvpull_verbs_address *other);
int kvpull_verbs_address_is_link_local(
	const struct kvpull_verbs_address *address);

/* "10.0.0.0/8,fd00::/8"; NULL or "": none. 0 or KVPULL_ECONFIG. */
int KVPULL_MUST_CHECK
kvpull_verbs_networks_parse(const char *text, struct kvpull_networks *networks);
/* The network of an address and its netmask, both of one family. */
void kvpull_verbs_network_of(const struct kvpull_verbs_address *address,
			     const struct kvpull_verbs_address *mask,
			     struct kvpull_network *network);
int kvpull_verbs_networks_allow(const struct kvpull_networks *networks,
				const struct kvpull_verbs_address *address);

#endif /* KVPULL_VERBS_ADDRESS_H */
