/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine as a test describes it, in place of the fake fabric's own devices:
 * names, ports, kinds of links, and addresses of interfaces, IPv4 or IPv6.
 */
#ifndef KVPULL_TESTS_FAKE_VERBS_SHAPE_H
#define KVPULL_TESTS_FAKE_VERBS_SHAPE_H

#include <ifaddrs.h>

#include "tests/fake/verbs.h"

#define FAKE_VERBS_PLACES_MAX 6u

enum fake_verbs_link {
	FAKE_VERBS_ROCE = 0,
	FAKE_VERBS_INFINIBAND, /* its GIDs are no IP addresses */
	FAKE_VERBS_IWARP
};

/* An address of an interface over a port of the device. */
struct fake_verbs_place {
	const char *ip; /* NULL: the list's end */
	uint32_t port;  /* from 1; 0: 1 */
	uint32_t v1;    /* RoCE: its GID is one of version 1 */
	uint32_t away;  /* of another network namespace: nobody here binds it */
};

struct fake_verbs_shape {
	const char *name;
	enum fake_verbs_link link;
	uint32_t port_count; /* 0: 1 */
	uint32_t down;       /* ports without a link; bit 0 is port 1 */
	uint32_t hidden;     /* not plugged in, or not any more */
	struct fake_verbs_place places[FAKE_VERBS_PLACES_MAX];
};

/* These devices, which the caller may change at any time; after a reset: none. */
void fake_verbs_shapes(const struct fake_verbs_shape *shapes, uint32_t count);
/* The addresses of all interfaces, as getifaddrs() has them; valid until then. */
struct ifaddrs *fake_verbs_interfaces(void);

#endif /* KVPULL_TESTS_FAKE_VERBS_SHAPE_H */
