/* SPDX-License-Identifier: Apache-2.0 */
/* A listener a rail, and the addresses that tickets carry. */
#ifndef KVPULL_VERBS_LISTEN_H
#define KVPULL_VERBS_LISTEN_H

#include "verbs/state.h"

/* Calls that are not looked at yet; what is beyond it the kernel refuses. */
#define KVPULL_VERBS_LISTEN_BACKLOG 1024

/* 0 or KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_listen(struct kvpull_verbs_connect *connect);
/*
 * Makes one rail listen again, at its former port. Returns 0, or
 * KVPULL_EDEVICE: the rail no longer listens.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_listen_again(struct kvpull_verbs_connect *connect,
				  uint32_t rail);
void kvpull_verbs_connect_hush(struct kvpull_verbs_connect *connect,
			       uint32_t rail);

#endif /* KVPULL_VERBS_LISTEN_H */
