/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proposes a value of `networks` from the routing table. Its default, the
 * subnet of the own address, connects nothing on a routed fabric or a /31.
 */
#include "tools/kvpull_doctor_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/config/config.h"
#include "verbs/address.h"

#define ROUTES_MAX 256u
#define LINE_BYTES_MAX 512
#define WORDS_MAX 12u
#define ROUTE_UP 0x1u
#define ROUTE_REJECT 0x200u
#define NETWORK_BYTES_MAX (INET6_ADDRSTRLEN + 4)

struct route {
	struct kvpull_network network;
	char netdev[32];
};

struct routes {
	struct route list[ROUTES_MAX];
	uint32_t count;
};

/* Splits a row at blanks; returns how many words it has. */
static uint32_t row_split(char *line, char *words[WORDS_MAX])
{
	uint32_t count = 0;
	char *rest = NULL;
	char *word;

	for (word = strtok_r(line, " \t\n", &rest); word && count < WORDS_MAX;
	     word = strtok_r(NULL, " \t\n", &rest))
		words[count++] = word;
	return count;
}

/* Returns 0, or -1 if it is no hexadecimal number. */
static int hex_parse(const char *word, uint32_t *number)
{
	char *end;

	errno = 0;
	*number = (uint32_t)strtoul(word, &end, 16);
	return errno || end == word || *end ? -1 : 0;
}

static int is_way(uint32_t flags)
{
	return (flags & (ROUTE_UP | ROUTE_REJECT)) == ROUTE_UP;
}

static void netdev_keep(struct route *route, const char *name)
{
	(void)snprintf(route->netdev, sizeof(route->netdev), "%s", name);
}

/* A row of /proc/net/route; numbers are as they lie in memory. 0 or -1. */
static int route4_parse(char *line, struct route *route)
{
	char *words[WORDS_MAX];
	uint32_t to;
	uint32_t flags;
	uint32_t mask;

	if (row_split(line, words) < 8 || hex_parse(words[1], &to) ||
	    hex_parse(words[3], &flags) || hex_parse(words[7], &mask) ||
	    !is_way(flags))
		return -1;
	netdev_keep(route, words[0]);
	route->network.family = AF_INET;
	route->network.prefix_bits = (uint32_t)__builtin_popcount(mask);
	memcpy(route->network.bytes, &to, sizeof(to));
	return 0;
}

/* A row of /proc/net/ipv6_route. 0 or -1. */
static int route6_parse(char *line, struct route *route)
{
	char *words[WORDS_MAX];
	uint32_t flags;
	uint32_t byte;
	uint32_t at;

	if (row_split(line, words) < 10 || strlen(words[0]) != 32 ||
	    hex_parse(words[1], &route->network.prefix_bits) ||
	    route->network.prefix_bits > 128 || hex_parse(words[8], &flags) ||
	    !is_way(flags))
		return -1;
	netdev_keep(route, words[9]);
	route->network.family = AF_INET6;
	for (at = 16; at-- > 0;) {
		if (hex_parse(words[0] + 2 * at, &byte))
			return -1;
		route->network.bytes[at] = (uint8_t)byte;
		words[0][2 * at] = '\0';
	}
	return 0;
}

static void table_read(const struct doctor *doctor, const char *name,
		       int (*parse)(char *, struct route *),
		       struct routes *routes)
{
	char path[2 * DOCTOR_PATH_BYTES_MAX];
	char line[LINE_BYTES_MAX];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s%s", doctor->root, name);
	file = fopen(path, "re");
	while (file && routes->count < ROUTES_MAX &&
	       fgets(line, sizeof(line), file)) {
		struct route *route = &routes->list[routes->count];

		memset(route, 0, sizeof(*route));
		if (parse(line, route))
			continue;
		/* The default route is everybody, and no proposal. */
		routes->count += route->network.prefix_bits > 0;
	}
	if (file)
		(void)fclose(file);
}

static void routes_read(const struct doctor *doctor, struct routes *routes)
{
	routes->count = 0;
	table_read(doctor, "/proc/net/route", route4_parse, routes);
	table_read(doctor, "/proc/net/ipv6_route", route6_parse, routes);
}

static int has(const struct kvpull_network *network,
	       const struct kvpull_verbs_address *address)
{
	const struct kvpull_networks one = { .count = 1, .list = { *network } };

	return kvpull_verbs_networks_allow(&one, address);
}

/* The narrowest network that a route leads to the address by; NULL: none. */
static const struct kvpull_network *
network_find(const struct routes *routes,
	     const struct kvpull_verbs_address *address)
{
	const struct kvpull_network *found = NULL;
	uint32_t at;

	for (at = 0; at < routes->count; at++) {
		const struct kvpull_network *network =
			&routes->list[at].network;

		if (has(network, address) &&
		    (!found || network->prefix_bits > found->prefix_bits))
			found = network;
	}
	return found;
}

static void network_print(const struct kvpull_network *network,
			  char text[NETWORK_BYTES_MAX])
{
	char ip[INET6_ADDRSTRLEN] = "?";

	(void)inet_ntop((int)network->family, network->bytes, ip, sizeof(ip));
	(void)snprintf(text, NETWORK_BYTES_MAX, "%s/%u", ip,
		       network->prefix_bits);
}

/* The address alone where only the default route leads to it. */
static void network_of(const struct routes *routes, const char *text,
		       char network[NETWORK_BYTES_MAX])
{
	struct kvpull_verbs_address address;
	const struct kvpull_network *found;

	network[0] = '\0';
	if (kvpull_verbs_address_parse_ip(text, &address))
		return;
	found = network_find(routes, &address);
	if (found)
		network_print(found, network);
	else
		(void)snprintf(network, NETWORK_BYTES_MAX, "%s/%d", text,
			       address.socket.any.sa_family == AF_INET ? 32 :
									 128);
}

static int covers(const char *network, const char *text)
{
	struct kvpull_verbs_address address;
	struct kvpull_networks networks;

	return !kvpull_verbs_networks_parse(network, &networks) &&
	       !kvpull_verbs_address_parse_ip(text, &address) &&
	       kvpull_verbs_networks_allow(&networks, &address);
}

void doctor_networks_propose(const struct doctor *doctor, const char *peer,
			     char text[DOCTOR_NETWORKS_BYTES_MAX])
{
	static struct routes routes;
	char own[NETWORK_BYTES_MAX];
	char other[NETWORK_BYTES_MAX];

	routes_read(doctor, &routes);
	network_of(&routes, doctor->link_address, own);
	network_of(&routes, peer, other);
	if (!own[0] || covers(other, doctor->link_address))
		own[0] = '\0';
	else if (covers(own, peer))
		other[0] = '\0';
	(void)snprintf(text, DOCTOR_NETWORKS_BYTES_MAX, "%s%s%s", own,
		       own[0] && other[0] ? "," : "", other);
}

/* A wider route by the same device leads there, too. */
static int is_inside(const struct routes *routes, const struct route *route)
{
	uint32_t at;

	for (at = 0; at < routes->count; at++) {
		const struct route *other = &routes->list[at];
		struct kvpull_verbs_address address;
		char network[NETWORK_BYTES_MAX];

		network_print(&route->network, network);
		*strchr(network, '/') = '\0';
		if (other->network.prefix_bits < route->network.prefix_bits &&
		    strcmp(other->netdev, route->netdev) == 0 &&
		    !kvpull_verbs_address_parse_ip(network, &address) &&
		    has(&other->network, &address))
			return 1;
	}
	return 0;
}

/* Networks beyond the own one that the chosen port's netdev leads to. */
static uint32_t others_print(const struct doctor *doctor,
			     const struct routes *routes,
			     char text[DOCTOR_NETWORKS_BYTES_MAX])
{
	struct kvpull_verbs_address own;
	uint32_t count = 0;
	const struct kvpull_network *near;
	size_t used = 0;
	uint32_t at;

	text[0] = '\0';
	if (kvpull_verbs_address_parse_ip(doctor->link_address, &own))
		return 0;
	near = network_find(routes, &own);
	for (at = 0; at < routes->count; at++) {
		const struct route *route = &routes->list[at];
		char network[NETWORK_BYTES_MAX];

		if (strcmp(route->netdev, doctor->link_netdev) != 0 ||
		    route->network.family != own.socket.any.sa_family ||
		    route->network.bytes[0] == 0xfe ||
		    route->network.bytes[0] == 0xff ||
		    route->network.prefix_bits == 128)
			continue;
		count += !has(&route->network, &own) ||
			 (near &&
			  route->network.prefix_bits < near->prefix_bits);
		if (is_inside(routes, route))
			continue;
		network_print(&route->network, network);
		if (used + strlen(network) + 2 > DOCTOR_NETWORKS_BYTES_MAX)
			break;
		used += (size_t)snprintf(text + used,
					 DOCTOR_NETWORKS_BYTES_MAX - used,
					 "%s%s", used ? "," : "", network);
	}
	return count;
}

void doctor_networks(struct doctor *doctor)
{
	static struct routes routes;
	char all[DOCTOR_NETWORKS_BYTES_MAX];

	if (!doctor->link_netdev[0] || doctor->config->networks[0])
		return;
	routes_read(doctor, &routes);
	if (!others_print(doctor, &routes, all))
		return;
	doctor_say(doctor, SAY_NETWORKS, doctor->link_netdev);
	doctor_advise(doctor, "on all hosts: networks=%s", all);
}
