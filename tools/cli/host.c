/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/host.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_DIGITS_MAX 5u
#define PORT_MAX 65535

/* The zone behind % is a network device's name, which getaddrinfo() judges. */
static int is_ipv6(const char *name)
{
	char address[INET6_ADDRSTRLEN];
	const size_t bytes = strcspn(name, "%");
	struct in6_addr parsed;

	if (bytes >= sizeof(address))
		return 0;
	memcpy(address, name, bytes);
	address[bytes] = '\0';
	return inet_pton(AF_INET6, address, &parsed) == 1;
}

/* text is what follows the closing bracket. */
static int port_parse(const char *text, struct cli_host *host)
{
	const size_t digits = text[0] ? strspn(text + 1, "0123456789") : 0;

	if (!text[0])
		return 0;
	if (text[0] != ':' || !digits || digits > PORT_DIGITS_MAX ||
	    text[1 + digits])
		return -1;
	host->number = (uint32_t)strtoul(text + 1, NULL, 10);
	(void)snprintf(host->port, sizeof(host->port), "%u", host->number);
	return host->number && host->number <= PORT_MAX ? 0 : -1;
}

int cli_host_parse(const char *text, struct cli_host *host)
{
	const size_t opening = text[0] == '[';
	const size_t bytes = opening ? strcspn(++text, "]") : strlen(text);

	memset(host, 0, sizeof(*host));
	if (bytes >= sizeof(host->name))
		return -1;
	memcpy(host->name, text, bytes);
	if (!opening)
		return 0;
	if (text[bytes] != ']' || !is_ipv6(host->name))
		return -1;
	return port_parse(text + bytes + 1, host);
}
