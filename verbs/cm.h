/* SPDX-License-Identifier: Apache-2.0 */
/* Events of rdma_cm: each goes to the endpoint or listener that it concerns. */
#ifndef KVPULL_VERBS_CM_H
#define KVPULL_VERBS_CM_H

#include "verbs/connect.h"

/* Takes a bounded number of events from the channel. */
void kvpull_verbs_cm_poll(struct kvpull_verbs_connect *connect);

#endif /* KVPULL_VERBS_CM_H */
