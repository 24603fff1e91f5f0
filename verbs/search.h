/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for the port and GID of a rail, among all that this host has.
 *
 * Order: what the configuration names, then as pick.h has it. RoCE v1 only if its
 * GID is named.
 *
 * An address counts only where rdma_cm binds it to the same device and port: an
 * InfiniBand GID has none, and a GID table also lists addresses of other network
 * namespaces.
 */
#ifndef KVPULL_VERBS_SEARCH_H
#define KVPULL_VERBS_SEARCH_H

#include "verbs/own.h"
#include "verbs/params.h"
#include "verbs/pick.h"

#define KVPULL_VERBS_PORTS_MAX 64u /* further ports are not looked at */
#define KVPULL_VERBS_WHY_BYTES 256u

struct kvpull_verbs_seek {
	const struct kvpull_fabric *fabric;
	const struct kvpull_verbs_params *params;
	struct ibv_context **list; /* rdma_cm's devices */
	uint32_t list_count;
	uint32_t rail;
	struct kvpull_verbs_own
		taken[KVPULL_VERBS_RAILS_MAX]; /* others go there */
	uint32_t taken_count;
};

/*
 * The level of a line that says that there is no RDMA as asked for: an error
 * where the route is required, a warning where a device or an address is named.
 */
uint32_t kvpull_verbs_absence_level(const struct kvpull_verbs_params *params,
				    uint32_t otherwise);
/* Rails that are asked for: by number, or by naming them. */
uint32_t kvpull_verbs_rails_wanted(const struct kvpull_verbs_params *params);

/*
 * Finds the port of a rail, and why it is that one, in words. 0;
 * KVPULL_EUNSUPPORTED: nothing fits; KVPULL_ECONFIG: what is named contradicts
 * the host. One line says what each device has, then.
 */
int KVPULL_MUST_CHECK kvpull_verbs_search(const struct kvpull_verbs_seek *seek,
					  struct kvpull_verbs_port *found,
					  char why[KVPULL_VERBS_WHY_BYTES]);

#endif /* KVPULL_VERBS_SEARCH_H */
