/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the producer's engine put into a ticket for the consumer's. It is kept
 * for the request whose pull of that ticket ended well, and for no other: the
 * bytes of a ticket that was not read are those of whoever made it. Pure.
 */
#ifndef KVPULL_PLUGIN_PAYLOAD_H
#define KVPULL_PLUGIN_PAYLOAD_H

#include "plugin/scheduler/demand.h"

/* The user's pull of the ticket ended, with user->code; its body is kept still. */
void kvpull_payload_keep(struct kvpull_demand *demand, struct kvpull_user *user,
			 const struct kvpull_demand_ticket *entry);

/* As payload_get() of the ABI, for a request that is known. */
int KVPULL_MUST_CHECK kvpull_payload_get(const struct kvpull_demand *demand,
					 const struct kvpull_user *user,
					 void *payload, size_t capacity,
					 size_t *payload_bytes);

/* The user's request is over. */
void kvpull_payload_drop(struct kvpull_demand *demand,
			 struct kvpull_user *user);

#endif /* KVPULL_PLUGIN_PAYLOAD_H */
