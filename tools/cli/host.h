/* SPDX-License-Identifier: Apache-2.0 */
/* A host as a user writes it: a name, an address, [ADDRESS] or [ADDRESS]:PORT. */
#ifndef KVPULL_TOOLS_CLI_HOST_H
#define KVPULL_TOOLS_CLI_HOST_H

#include <stdint.h>

#define CLI_HOST_WRONG                                                         \
	"%s: brackets hold one IPv6 address, and :PORT from 1 to 65535 may follow"

struct cli_host {
	char name[256];  /* for getaddrinfo(), without brackets */
	char port[8];    /* in decimal; "": none was given */
	uint32_t number; /* of that port; 0: none was given */
};

/*
 * Only brackets tell an IPv6 address from its port: without them the whole text
 * is the name. Return: 0, or -1: brackets hold something else, or the text is
 * too long.
 */
int cli_host_parse(const char *text, struct cli_host *host);

#endif /* KVPULL_TOOLS_CLI_HOST_H */
