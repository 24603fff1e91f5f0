/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device, port and GID that this route goes by, chosen once at open, said
 * in the log with the reason, and never changed behind the user's back.
 *
 * Order: what the configuration names; RoCE v2 with an IPv4 address, RoCE v2
 * with a routable IPv6 address, InfiniBand (needs `address`), link-local last;
 * then the faster link, then the nearer NUMA node, then the first. RoCE v1
 * only if its GID is named.
 */
#ifndef KVPULL_VERBS_DEVICE_H
#define KVPULL_VERBS_DEVICE_H

#include "verbs/address.h"
#include "verbs/fabric.h"
#include "verbs/verbs.h"

#define KVPULL_VERBS_CHOICE_BYTES 256u

struct kvpull_verbs_device {
	const struct kvpull_fabric *fabric;
	const struct kvpull_log *log;
	struct ibv_context **list; /* rdma_cm's; kept to keep them open */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct kvpull_verbs_address address; /* own; port 0 */
	char choice[KVPULL_VERBS_CHOICE_BYTES];
	/* limits */
	uint32_t work_request_max;
	uint32_t completion_max;
	uint32_t part_max;
	uint32_t rd_atomic_max;
	uint64_t message_bytes_max;
	uint64_t region_bytes_max;
};

/* 0, KVPULL_EUNSUPPORTED (nothing fits), KVPULL_ECONFIG, KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK
kvpull_verbs_device_open(struct kvpull_verbs_device *device,
			 const struct kvpull_fabric *fabric,
			 const struct kvpull_verbs_params *params);
/*
 * The networks of a list; without one, the subnet of the own address: a ticket
 * comes through clients, and must not make us call anywhere. 0, KVPULL_ECONFIG.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_device_networks(const struct kvpull_verbs_device *device,
			     const char *text,
			     struct kvpull_networks *networks);
void kvpull_verbs_device_close(struct kvpull_verbs_device *device);

#endif /* KVPULL_VERBS_DEVICE_H */
