/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bundles that are in use, and what both sides of connecting share: dial.h
 * is the consumer's, accept.h the producer's, cm.h hands events to them. All of
 * it in the background, over one event channel that never blocks.
 */
#ifndef KVPULL_VERBS_CONNECT_H
#define KVPULL_VERBS_CONNECT_H

#include "verbs/bundle.h"

/* An event of the CM, and the greeting that came with it. */
struct kvpull_verbs_cm_event {
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;
	struct kvpull_verbs_greeting greeting;
	int32_t greeting_code;         /* 0: there is one */
	int32_t status;                /* of a rejection: the CM's reason */
	struct kvpull_verbs_give give; /* instead of a greeting */
};

/* Opens the event channel: 0 or KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_open(struct kvpull_verbs_connect *connect);
/* All ids must be destroyed before. */
void kvpull_verbs_connect_close(struct kvpull_verbs_connect *connect);
/* A bundle that is not in use, MEETING from now on; NULL: there is none. */
struct kvpull_verbs_bundle *
kvpull_verbs_connect_take(struct kvpull_verbs_connect *connect,
			  enum kvpull_verbs_role role);
/* FREE again, and its objects gone. */
void kvpull_verbs_connect_free(struct kvpull_verbs_connect *connect,
			       struct kvpull_verbs_bundle *bundle);
/* Sets options of a new id; options that this host lacks are left out. */
void kvpull_verbs_connect_options(const struct kvpull_verbs_shared *shared,
				  struct rdma_cm_id *id);
/* Parameters for the other side's CM, of an endpoint that was made. */
struct rdma_conn_param
kvpull_verbs_connect_param(const struct kvpull_verbs_end *end,
			   uint8_t private_data[KVPULL_VERBS_PRIVATE_BYTES]);
/* Credits and MTU: the smaller of both sides'. */
void kvpull_verbs_connect_agree(struct kvpull_verbs_end *end,
				const struct kvpull_verbs_greeting *greeting);
/* A device is lost: its endpoints end. */
void kvpull_verbs_connect_device_lost(struct kvpull_verbs_connect *connect,
				      uint32_t device, const char *why);
/* Likewise, by all devices of a context: there may be several. */
void kvpull_verbs_connect_devices_lost(struct kvpull_verbs_connect *connect,
				       const struct ibv_context *context,
				       const char *why);

/* The active bundles, and the lanes of all of them, in a row. */
static inline struct kvpull_verbs_bundle *
kvpull_verbs_connect_bundle(const struct kvpull_verbs_connect *connect,
			    uint32_t at)
{
	return &connect->bundles[connect->active[at]];
}

static inline uint32_t
kvpull_verbs_connect_ends(const struct kvpull_verbs_connect *connect)
{
	return connect->active_count * connect->shared->lane_count;
}

static inline struct kvpull_verbs_end *
kvpull_verbs_connect_end(const struct kvpull_verbs_connect *connect,
			 uint32_t at)
{
	const uint32_t lane_count = connect->shared->lane_count;

	return &kvpull_verbs_connect_bundle(connect, at / lane_count)
			->ends[at % lane_count];
}

#endif /* KVPULL_VERBS_CONNECT_H */
