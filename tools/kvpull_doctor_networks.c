/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proposes a value of `networks` from the routing table. Its default, the
 * subnet of the own address, connects nothing on a routed fabric or a /31.
 */
#include "tools/kvpull_doctor_parts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/config/config.h"
#include "verbs/address.h"

#define ROUTES_MAX 256u
#define LINE_BYTES_MAX 512
#define ROUTE_UP 0x1u
#define ROUTE_REJECT 0x200u
#define NETWORK_BYTES_MAX (INET6_ADDRSTRLEN + 12)

/* A network that this host has a way to, as the key networks takes it. */
struct route {
	char netdev[32];
	char network[NETWORK_BYTES_MAX];
	uint32_t prefix_bits;
};

struct routes {
	struct route list[ROUTES_MAX];
	uint32_t count;
};

/* Returns 0, or -1 if it is no hexadecimal number. */
static int hex_parse(const char *word, uint32_t *number)
{
	char *end;

	*number = (uint32_t)strtoul(word, &end, 16);
	return end == word || *end ? -1 : 0;
}

/* 0; -1: the route refuses the way, or is the default: it is everybody. */
static int network_take(struct route *route, uint32_t flags, int family,
			const void *to)
{
	char address[INET6_ADDRSTRLEN] = "";

	if ((flags & (ROUTE_UP | ROUTE_REJECT)) != ROUTE_UP ||
	    !route->prefix_bits)
		return -1;
	(void)inet_ntop(family, to, address, sizeof(address));
	(void)snprintf(route->network, sizeof(route->network), "%s/%u", address,
		       route->prefix_bits);
	return 0;
}

/* A row of /proc/net/route; numbers are as they lie in memory. 0 or -1. */
static int route4_parse(const char *line, struct route *route)
{
	char words[3][9];
	uint32_t to;
	uint32_t flags;
	uint32_t mask;

	if (sscanf(line, "%31s %8s %*s %8s %*s %*s %*s %8s", route->netdev,
		   words[0], words[1], words[2]) != 4 ||
	    hex_parse(words[0], &to) || hex_parse(words[1], &flags) ||
	    hex_parse(words[2], &mask))
		return -1;
	route->prefix_bits = (uint32_t)__builtin_popcount(mask);
	return network_take(route, flags, AF_INET, &to);
}

/* A row of /proc/net/ipv6_route. 0 or -1. */
static int route6_parse(const char *line, struct route *route)
{
	char words[3][33];
	/* With a colon behind each four digits, as inet_pton() takes it. */
	char address[8 * 5 + 1];
	uint8_t to[16];
	size_t at;
	uint32_t flags;

	if (sscanf(line, "%32s %8s %*s %*s %*s %*s %*s %*s %8s %31s", words[0],
		   words[1], words[2], route->netdev) != 4 ||
	    strlen(words[0]) != 2 * sizeof(to) ||
	    hex_parse(words[1], &route->prefix_bits) ||
	    route->prefix_bits > 128 || hex_parse(words[2], &flags))
		return -1;
	for (at = 0; at < sizeof(to) / 2; at++)
		(void)snprintf(address + 5 * at, 6, "%.4s:", words[0] + 4 * at);
	address[sizeof(address) - 2] = '\0'; /* in place of the last colon */
	if (inet_pton(AF_INET6, address, to) != 1)
		return -1;
	return network_take(route, flags, AF_INET6, to);
}

static void table_read(const struct doctor *doctor, const char *name,
		       int (*parse)(const char *, struct route *),
		       struct routes *routes)
{
	char path[2 * DOCTOR_PATH_BYTES_MAX];
	char line[LINE_BYTES_MAX];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s%s", doctor->root, name);
	file = fopen(path, "re");
	while (file && routes->count < ROUTES_MAX &&
	       fgets(line, sizeof(line), file))
		if (!parse(line, &routes->list[routes->count]))
			routes->count++;
	if (file)
		(void)fclose(file);
}

static void routes_read(const struct doctor *doctor, struct routes *routes)
{
	routes->count = 0;
	table_read(doctor, "/proc/net/route", route4_parse, routes);
	table_read(doctor, "/proc/net/ipv6_route", route6_parse, routes);
}

/* Is an address, or the first one of a network, in that network? */
static int covers(const char *network, const char *text)
{
	char ip[NETWORK_BYTES_MAX];
	struct kvpull_verbs_address address;
	struct kvpull_networks networks;

	(void)snprintf(ip, sizeof(ip), "%.*s", (int)strcspn(text, "/"), text);
	return !kvpull_verbs_networks_parse(network, &networks) &&
	       !kvpull_verbs_address_parse_ip(ip, &address) &&
	       kvpull_verbs_networks_allow(&networks, &address);
}

static int is_v6(const char *address)
{
	return strchr(address, ':') != NULL;
}

/*
 * The narrowest network that a route leads to the address by; the address alone
 * where only the default route does; "": it is no address.
 */
static void network_of(const struct routes *routes, const char *address,
		       char network[NETWORK_BYTES_MAX])
{
	uint32_t bits = 0;
	uint32_t at;

	(void)snprintf(network, NETWORK_BYTES_MAX, "%s/%u", address,
		       is_v6(address) ? 128u : 32u);
	for (at = 0; at < routes->count; at++) {
		const struct route *route = &routes->list[at];

		if (covers(route->network, address) &&
		    route->prefix_bits > bits) {
			bits = route->prefix_bits;
			memcpy(network, route->network, NETWORK_BYTES_MAX);
		}
	}
	if (!covers(network, address))
		network[0] = '\0';
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
	if (covers(other, doctor->link_address))
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

		if (other->prefix_bits < route->prefix_bits &&
		    strcmp(other->netdev, route->netdev) == 0 &&
		    covers(other->network, route->network))
			return 1;
	}
	return 0;
}

/* Link-local and multicast addresses begin so, with four digits. */
static int is_of_link(const struct route *route)
{
	return strcspn(route->network, ":") == 4 &&
	       (strncmp(route->network, "fe", 2) == 0 ||
		strncmp(route->network, "ff", 2) == 0);
}

/* Networks beyond the own one that the chosen port's netdev leads to. */
static uint32_t others_print(const struct doctor *doctor,
			     const struct routes *routes,
			     char text[DOCTOR_NETWORKS_BYTES_MAX])
{
	char own[NETWORK_BYTES_MAX];
	uint32_t count = 0;
	size_t used = 0;
	uint32_t at;

	text[0] = '\0';
	network_of(routes, doctor->link_address, own);
	if (!own[0])
		return 0;
	for (at = 0; at < routes->count; at++) {
		const struct route *route = &routes->list[at];

		if (strcmp(route->netdev, doctor->link_netdev) != 0 ||
		    is_v6(route->network) != is_v6(own) || is_of_link(route) ||
		    route->prefix_bits == 128)
			continue;
		count += strcmp(route->network, own) != 0;
		if (is_inside(routes, route))
			continue;
		if (used + strlen(route->network) + 2 >
		    DOCTOR_NETWORKS_BYTES_MAX)
			break;
		used += (size_t)snprintf(
			text + used, DOCTOR_NETWORKS_BYTES_MAX - used, "%s%s",
			used ? "," : "", route->network);
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
	if (others_print(doctor, &routes, all))
		doctor_say(doctor, SAY_NETWORKS, doctor->link_netdev, all);
}
