/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's side of connecting: which own rail calls which address of a
 * peer, the first lane and those that join it, and what the CM says of a call.
 */
#ifndef KVPULL_VERBS_DIAL_H
#define KVPULL_VERBS_DIAL_H

#include "verbs/connect.h"

/* Is one of them in the allowed networks, and a device left? 0, KVPULL_EROUTE. */
int KVPULL_MUST_CHECK
kvpull_verbs_dial_allows(const struct kvpull_verbs_connect *connect,
			 const struct kvpull_verbs_addresses *addresses);
/*
 * Call, to be let in or, where give is not NULL, to give tickets back. 0,
 * KVPULL_EFULL, KVPULL_EROUTE, KVPULL_EPEER.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_dial_start(struct kvpull_verbs_connect *connect, const char *text,
			const struct kvpull_verbs_give *give, uint32_t *peer);
/* MEETING: go on by the next way. KVPULL_EPEER: there is none left. */
int KVPULL_MUST_CHECK
kvpull_verbs_dial_next(struct kvpull_verbs_connect *connect,
		       struct kvpull_verbs_bundle *bundle);
/* A device came: its rail may lead to an address that no other rail goes to. */
void kvpull_verbs_dial_again(struct kvpull_verbs_connect *connect);
/* IN: let lanes join that are not there, when their time has come. */
void kvpull_verbs_dial_join(struct kvpull_verbs_connect *connect,
			    struct kvpull_verbs_bundle *bundle);
/* Returns when _join() has something to do; UINT64_MAX: never. */
uint64_t kvpull_verbs_dial_join_ns(const struct kvpull_verbs_bundle *bundle);

/* Events of the CM: the address was resolved, then the route to it. */
void kvpull_verbs_dial_resolved(struct kvpull_verbs_end *end);
void kvpull_verbs_dial_routed(struct kvpull_verbs_end *end);
/* The producer accepted, or rejected. */
void kvpull_verbs_dial_answered(struct kvpull_verbs_end *end,
				const struct kvpull_verbs_cm_event *event);
void kvpull_verbs_dial_rejected(struct kvpull_verbs_end *end,
				const struct kvpull_verbs_cm_event *event);

#endif /* KVPULL_VERBS_DIAL_H */
