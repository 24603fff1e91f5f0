/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inet_pton() decides what an IP address is; names are never resolved. An
 * IPv4-mapped IPv6 address is refused: it would pass by the IPv4 networks.
 */
#include "verbs/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define IP_BYTES_MAX 64u

int kvpull_verbs_item_next(const char **list, char *item, size_t item_bytes_max)
{
	const char *const from = *list;
	size_t item_bytes;

	if (!from)
		return 0;
	item_bytes = strcspn(from, ",");
	if (item_bytes >= item_bytes_max)
		return KVPULL_EINVAL;
	memcpy(item, from, item_bytes);
	item[item_bytes] = '\0';
	*list = from[item_bytes] ? from + item_bytes + 1 : NULL;
	return 1;
}

int kvpull_verbs_rank_list(const char *list, uint32_t rank, char *out,
			   size_t capacity)
{
	uint32_t part_count = 1;
	size_t bytes;
	const char *at;

	for (at = list; *at; at++)
		part_count += *at == ';';
	for (rank %= part_count; rank; rank--)
		list = strchr(list, ';') + 1;
	bytes = strcspn(list, ";");
	if (bytes >= capacity)
		return KVPULL_EINVAL;
	for (at = list; at < list + bytes; at++)
		if (*at != ' ')
			*out++ = *at;
	*out = '\0';
	return 0;
}

static int ip_parse(const char *text, size_t text_bytes,
		    struct kvpull_verbs_address *address)
{
	struct kvpull_verbs_address parsed;
	char ip[IP_BYTES_MAX];

	if (!text_bytes || text_bytes >= sizeof(ip))
		return KVPULL_EINVAL;
	memcpy(ip, text, text_bytes);
	ip[text_bytes] = '\0';
	memset(&parsed, 0, sizeof(parsed));
	if (inet_pton(AF_INET, ip, &parsed.socket.v4.sin_addr) == 1) {
		parsed.socket.v4.sin_family = AF_INET;
	} else if (inet_pton(AF_INET6, ip, &parsed.socket.v6.sin6_addr) == 1) {
		if (IN6_IS_ADDR_V4MAPPED(&parsed.socket.v6.sin6_addr))
			return KVPULL_EINVAL;
		parsed.socket.v6.sin6_family = AF_INET6;
	} else {
		return KVPULL_EINVAL;
	}
	*address = parsed;
	return 0;
}

static int number_parse(const char *text, uint32_t number_max, uint32_t *number)
{
	uint32_t value = 0;
	size_t i;

	if (!text[0])
		return KVPULL_EINVAL;
	for (i = 0; text[i]; i++) {
		if (text[i] < '0' || text[i] > '9')
			return KVPULL_EINVAL;
		value = value * 10 + (uint32_t)(text[i] - '0');
		if (value > number_max)
			return KVPULL_EINVAL;
	}
	*number = value;
	return 0;
}

int kvpull_verbs_address_parse_ip(const char *text,
				  struct kvpull_verbs_address *address)
{
	return ip_parse(text, strnlen(text, IP_BYTES_MAX), address);
}

int kvpull_verbs_address_parse(const char *text,
			       struct kvpull_verbs_address *address)
{
	const size_t text_bytes = strnlen(text, KVPULL_ADDRESS_BYTES_MAX);
	struct kvpull_verbs_address parsed;
	const char *colon;
	uint32_t port;
	int bracket;

	if (text_bytes == KVPULL_ADDRESS_BYTES_MAX)
		return KVPULL_EINVAL;
	colon = strrchr(text, ':');
	bracket = text[0] == '[';
	if (!colon || number_parse(colon + 1, 65535, &port) || !port)
		return KVPULL_EINVAL;
	if (bracket && (colon < text + 2 || colon[-1] != ']'))
		return KVPULL_EINVAL;
	if (ip_parse(text + bracket,
		     (size_t)(colon - text) - 2 * (size_t)bracket, &parsed))
		return KVPULL_EINVAL;
	/* "1:2:3" is not an IPv6 address with a port. */
	if ((parsed.socket.any.sa_family == AF_INET6) != bracket)
		return KVPULL_EINVAL;
	kvpull_verbs_address_set_port(&parsed, (uint16_t)port);
	*address = parsed;
	return 0;
}

int kvpull_verbs_addresses_parse(const char *text,
				 struct kvpull_verbs_addresses *addresses)
{
	char one[KVPULL_ADDRESS_BYTES_MAX];
	int more;

	addresses->count = 0;
	while ((more = kvpull_verbs_item_next(&text, one, sizeof(one))) > 0)
		if (addresses->count == KVPULL_VERBS_RAILS_MAX ||
		    kvpull_verbs_address_parse(
			    one, &addresses->list[addresses->count++]))
			return KVPULL_EINVAL;
	return more;
}

void kvpull_verbs_address_print_ip(const struct kvpull_verbs_address *address,
				   char text[KVPULL_VERBS_IP_BYTES])
{
	const int is_v6 = address->socket.any.sa_family == AF_INET6;
	const void *ip = is_v6 ? (const void *)&address->socket.v6.sin6_addr :
				 (const void *)&address->socket.v4.sin_addr;

	memcpy(text, "?", 2);
	(void)inet_ntop(is_v6 ? AF_INET6 : AF_INET, ip, text,
			KVPULL_VERBS_IP_BYTES);
}

void kvpull_verbs_address_print(const struct kvpull_verbs_address *address,
				char text[KVPULL_ADDRESS_BYTES_MAX])
{
	const int is_v6 = address->socket.any.sa_family == AF_INET6;
	char ip[KVPULL_VERBS_IP_BYTES];

	kvpull_verbs_address_print_ip(address, ip);
	(void)snprintf(text, KVPULL_ADDRESS_BYTES_MAX,
		       is_v6 ? "[%s]:%u" : "%s:%u", ip,
		       ntohs(is_v6 ? address->socket.v6.sin6_port :
				     address->socket.v4.sin_port));
}

void kvpull_verbs_address_set_port(struct kvpull_verbs_address *address,
				   uint16_t port)
{
	if (address->socket.any.sa_family == AF_INET6)
		address->socket.v6.sin6_port = htons(port);
	else
		address->socket.v4.sin_port = htons(port);
}

int kvpull_verbs_address_take(const struct sockaddr *from,
			      struct kvpull_verbs_address *address)
{
	memset(address, 0, sizeof(*address));
	if (from->sa_family == AF_INET)
		memcpy(&address->socket.v4, from, sizeof(address->socket.v4));
	else if (from->sa_family == AF_INET6)
		memcpy(&address->socket.v6, from, sizeof(address->socket.v6));
	else
		return KVPULL_EROUTE;
	return 0;
}

void kvpull_verbs_address_of_gid(const uint8_t gid[16],
				 struct kvpull_verbs_address *address)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0,    0,
					    0, 0, 0, 0, 0xff, 0xff };

	memset(address, 0, sizeof(*address));
	if (memcmp(gid, mapped, sizeof(mapped)) == 0) {
		address->socket.v4.sin_family = AF_INET;
		memcpy(&address->socket.v4.sin_addr, gid + 12, 4);
		return;
	}
	address->socket.v6.sin6_family = AF_INET6;
	memcpy(&address->socket.v6.sin6_addr, gid, 16);
}

/* The address's bytes, and how many they are. */
static const uint8_t *ip_of(const struct kvpull_verbs_address *address,
			    uint32_t *byte_count)
{
	if (address->socket.any.sa_family == AF_INET6) {
		*byte_count = 16;
		return address->socket.v6.sin6_addr.s6_addr;
	}
	*byte_count = 4;
	return (const uint8_t *)&address->socket.v4.sin_addr;
}

int kvpull_verbs_address_is(const struct kvpull_verbs_address *one,
			    const struct kvpull_verbs_address *other)
{
	uint32_t byte_count;
	uint32_t other_bytes;
	const uint8_t *ip = ip_of(one, &byte_count);
	const uint8_t *other_ip = ip_of(other, &other_bytes);

	return byte_count == other_bytes &&
	       memcmp(ip, other_ip, byte_count) == 0;
}

int kvpull_verbs_address_is_link_local(
	const struct kvpull_verbs_address *address)
{
	uint32_t byte_count;
	const uint8_t *ip = ip_of(address, &byte_count);

	if (byte_count == 4)
		return ip[0] == 169 && ip[1] == 254;
	return ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80;
}

static int network_parse(const char *text, struct kvpull_network *network)
{
	const char *slash = strchr(text, '/');
	struct kvpull_verbs_address address;
	const uint8_t *ip;
	uint32_t byte_count;

	if (!slash || ip_parse(text, (size_t)(slash - text), &address))
		return KVPULL_ECONFIG;
	ip = ip_of(&address, &byte_count);
	if (number_parse(slash + 1, byte_count * 8, &network->prefix_bits))
		return KVPULL_ECONFIG;
	network->family = address.socket.any.sa_family;
	memcpy(network->bytes, ip, byte_count);
	return 0;
}

int kvpull_verbs_networks_parse(const char *text,
				struct kvpull_networks *networks)
{
	struct kvpull_networks parsed = { 0 };
	char one[IP_BYTES_MAX];
	int more = 0;

	while (text && *text &&
	       (more = kvpull_verbs_item_next(&text, one, sizeof(one))) > 0)
		if (parsed.count == KVPULL_NETWORKS_MAX ||
		    network_parse(one + strspn(one, " "),
				  &parsed.list[parsed.count++]))
			return KVPULL_ECONFIG;
	if (more < 0)
		return KVPULL_ECONFIG;
	*networks = parsed;
	return 0;
}

void kvpull_verbs_network_of(const struct kvpull_verbs_address *address,
			     const struct kvpull_verbs_address *mask,
			     struct kvpull_network *network)
{
	uint32_t byte_count;
	const uint8_t *ip = ip_of(address, &byte_count);
	const uint8_t *bits = ip_of(mask, &byte_count);
	uint32_t at;

	memset(network, 0, sizeof(*network));
	network->family = address->socket.any.sa_family;
	memcpy(network->bytes, ip, byte_count);
	for (at = 0; at < byte_count * 8; at++) {
		if (!(bits[at / 8] & 0x80u >> at % 8))
			break;
		network->prefix_bits++;
	}
}

static int network_has(const struct kvpull_network *network, uint32_t family,
		       const uint8_t *ip)
{
	const uint32_t whole = network->prefix_bits / 8;
	const uint32_t rest = network->prefix_bits % 8;
	const uint32_t mask = 0xff00u >> rest & 0xffu;

	if (network->family != family || memcmp(network->bytes, ip, whole))
		return 0;
	return !rest ||
	       ((uint32_t)(network->bytes[whole] ^ ip[whole]) & mask) == 0;
}

int kvpull_verbs_networks_allow(const struct kvpull_networks *networks,
				const struct kvpull_verbs_address *address)
{
	uint32_t byte_count;
	const uint8_t *ip = ip_of(address, &byte_count);
	uint32_t i;

	for (i = 0; i < networks->count; i++)
		if (network_has(&networks->list[i],
				address->socket.any.sa_family, ip))
			return 1;
	return 0;
}
