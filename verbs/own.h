/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device and port that an own IP address leads to. rdma_cm alone knows it
 * for all kinds of links: it is asked by a bind that is undone at once.
 */
#ifndef KVPULL_VERBS_OWN_H
#define KVPULL_VERBS_OWN_H

#include "verbs/address.h"
#include "verbs/fabric.h"

#define KVPULL_VERBS_OWN_MAX 64u /* further interfaces are not looked at */

struct kvpull_verbs_own {
	struct kvpull_verbs_address address;
	const struct ibv_context *context; /* NULL: of no RDMA device */
	uint32_t port;
};

/*
 * 0: context and port, or NULL where this process cannot bind the address or no
 * RDMA device has it. KVPULL_EDEVICE with errno: rdma_cm could not be asked.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_own_find(const struct kvpull_fabric *fabric,
		      const struct kvpull_verbs_address *address,
		      struct kvpull_verbs_own *own);
/*
 * Lists the addresses of all interfaces that lead to an RDMA device. Return: how
 * many, or KVPULL_EDEVICE with errno.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_own_list(const struct kvpull_fabric *fabric,
		      struct kvpull_verbs_own own[KVPULL_VERBS_OWN_MAX]);

#endif /* KVPULL_VERBS_OWN_H */
