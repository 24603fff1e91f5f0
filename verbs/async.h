/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device says of itself, and not of one work request: that it is broken,
 * that a port has no link, that a queue pair is in error.
 */
#ifndef KVPULL_VERBS_ASYNC_H
#define KVPULL_VERBS_ASYNC_H

#include "verbs/connect.h"

/*
 * All that the context of this own device has to say; it may speak of others
 * that share it. 0, or KVPULL_EDEVICE: it will not speak again.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_async_poll(struct kvpull_verbs_connect *connect, uint32_t device);

#endif /* KVPULL_VERBS_ASYNC_H */
