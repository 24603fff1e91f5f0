/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device, port and GID that a rail goes by: chosen at open (search.h), said
 * in the log with the reason, and never changed behind the user's back. Rails
 * that are not named go by different ports.
 */
#ifndef KVPULL_VERBS_DEVICE_H
#define KVPULL_VERBS_DEVICE_H

#include "verbs/address.h"
#include "verbs/fabric.h"
#include "verbs/search.h"

#define KVPULL_VERBS_CHOICE_BYTES 256u

enum kvpull_verbs_device_gone {
	KVPULL_VERBS_DEVICE_THERE = 0,
	KVPULL_VERBS_DEVICE_LOST,
	KVPULL_VERBS_DEVICE_CLOSED,
	KVPULL_VERBS_DEVICE_RETURNING
};

struct kvpull_verbs_device {
	const struct kvpull_fabric *fabric;
	const struct kvpull_log *log;
	struct ibv_context **list; /* rdma_cm's; kept to keep them open */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct kvpull_verbs_address address; /* own; port 0 */
	struct kvpull_networks subnets;      /* of the own address */
	uint32_t port;
	uint32_t gid_index;
	uint32_t gone;    /* enum kvpull_verbs_device_gone */
	uint32_t rail;    /* of those that are asked for */
	uint32_t rank;    /* enum kvpull_gid_rank; NONE: it was never open */
	uint32_t is_late; /* it was not there at open */
	char choice[KVPULL_VERBS_CHOICE_BYTES];
	char why[KVPULL_VERBS_WHY_BYTES]; /* that choice */
	struct ibv_device_attr limits;
};

/*
 * Rail `rail` of those that are asked for, unlike devices[0 .. device_count), into
 * devices[device_count]. 0, KVPULL_EUNSUPPORTED (nothing fits),
 * KVPULL_ECONFIG, KVPULL_EDEVICE.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_device_open(struct kvpull_verbs_device *devices,
			 uint32_t device_count, uint32_t rail,
			 const struct kvpull_fabric *fabric,
			 const struct kvpull_verbs_params *params);
/*
 * Likewise, of one that is closed, into its own place, by a GID of this rank or
 * a better one; its log stays silent.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_device_open_again(struct kvpull_verbs_device *devices,
			       uint32_t device_count, uint32_t index,
			       const struct kvpull_verbs_params *params,
			       uint32_t rank_least);
/*
 * The rail goes by a link-local address, and there is a routable one by now that
 * the configuration allows.
 */
int kvpull_verbs_device_is_outdone(const struct kvpull_verbs_device *devices,
				   uint32_t device_count, uint32_t index,
				   const struct kvpull_verbs_params *params);
/* The rail would go by another port, had it to choose now. */
int kvpull_verbs_device_is_elsewhere(const struct kvpull_verbs_device *devices,
				     uint32_t device_count, uint32_t index,
				     const struct kvpull_verbs_params *params);
/* Does the device's GID still belong to its address? */
int kvpull_verbs_device_has_address(const struct kvpull_verbs_device *device);
/* MTU of the port now: enum ibv_mtu. */
uint32_t kvpull_verbs_device_mtu(const struct kvpull_verbs_device *device);
/* Finds the subnets of the own address; warns of an address in none. */
void kvpull_verbs_device_subnets(struct kvpull_verbs_device *device,
				 uint32_t level);
/* Memory that it may reach. NULL: it may not, and a line says why. */
struct ibv_mr *
kvpull_verbs_device_register(const struct kvpull_verbs_device *device,
			     void *base, uint64_t bytes, int access);
/* memory NULL: nothing is done. */
void kvpull_verbs_device_deregister(const struct kvpull_verbs_device *device,
				    struct ibv_mr *memory);
/* No descriptor may ever stop the owner's thread. 0 or KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK kvpull_verbs_unblock(int fd);
void kvpull_verbs_device_close(struct kvpull_verbs_device *device);

#endif /* KVPULL_VERBS_DEVICE_H */
