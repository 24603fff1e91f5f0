/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/host.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_MAX 65535

/* The zone behind % is a network device's name, which getaddrinfo() judges. */
static int is_ipv6(struct cli_host host)
{
	struct in6_addr parsed;

	host.name[strcspn(host.name, "%")] = '\0';
	return inet_pton(AF_INET6, host.name, &parsed) == 1;
}

int cli_host_parse(const char *text, struct cli_host *host)
{
	int end = 0;

	memset(host, 0, sizeof(*host));
	if (*text != '[') {
		end = snprintf(host->name, sizeof(host->name), "%s", text);
		return end < (int)sizeof(host->name) ? 0 : -1;
	}
	/* Without a closing bracket end stays 0, where the opening one is. */
	(void)sscanf(text, "[%255[^]]]%n:%5[0-9]%n", host->name, &end,
		     host->port, &end);
	if (text[end] || !is_ipv6(*host))
		return -1;
	if (!host->port[0])
		return 0;
	host->number = (uint32_t)strtoul(host->port, NULL, 10);
	(void)snprintf(host->port, sizeof(host->port), "%u", host->number);
	return host->number && host->number <= PORT_MAX ? 0 : -1;
}
