/* SPDX-License-Identifier: Apache-2.0 */
/* The producer's side of connecting: events of the CM about callers. */
#ifndef KVPULL_VERBS_ACCEPT_H
#define KVPULL_VERBS_ACCEPT_H

#include "verbs/connect.h"

/* Accepts or rejects a connection request. */
void kvpull_verbs_accept_call(struct kvpull_verbs_connect *connect,
			      const struct kvpull_verbs_cm_event *event);
/* The caller has received our answer. */
void kvpull_verbs_accept_established(struct kvpull_verbs_end *end);

#endif /* KVPULL_VERBS_ACCEPT_H */
