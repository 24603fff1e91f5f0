/* SPDX-License-Identifier: Apache-2.0 */
/* What rdma_cm tells: each event goes to the side that it is about. */
#ifndef KVPULL_VERBS_CM_H
#define KVPULL_VERBS_CM_H

#include "verbs/connect.h"

/* What the channel has, at most a bounded number. */
void kvpull_verbs_cm_poll(struct kvpull_verbs_connect *connect);

#endif /* KVPULL_VERBS_CM_H */
