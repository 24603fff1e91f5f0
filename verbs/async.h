/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous events of a device, which belong to no work request: the device
 * is broken, a port has no link, a queue pair is in error.
 */
#ifndef KVPULL_VERBS_ASYNC_H
#define KVPULL_VERBS_ASYNC_H

#include "verbs/connect.h"

/*
 * Takes all pending events of this device's context. They may concern other
 * devices that share the context. Returns 0, or KVPULL_EDEVICE: no further
 * event will come.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_async_poll(struct kvpull_verbs_connect *connect, uint32_t device);

#endif /* KVPULL_VERBS_ASYNC_H */
