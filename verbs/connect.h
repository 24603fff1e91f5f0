/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rdma_cm does: it connects, listens, accepts, and tells of ends. All of
 * it in the background, over one event channel that never blocks.
 */
#ifndef KVPULL_VERBS_CONNECT_H
#define KVPULL_VERBS_CONNECT_H

#include "verbs/bundle.h"

/* Calls that are not looked at yet; what is beyond it the kernel refuses. */
#define KVPULL_VERBS_LISTEN_BACKLOG 1024

struct kvpull_verbs_connect {
	struct kvpull_verbs_shared *shared;
	struct kvpull_verbs_bundle *bundles; /* peers, then callers */
	uint32_t *active; /* indices of bundles that are not FREE */
	uint32_t active_count;
	uint32_t bundle_count;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listeners[KVPULL_VERBS_RAILS_MAX];
	uint16_t ports[KVPULL_VERBS_RAILS_MAX]; /* of listeners; 0: none yet */
	uint64_t say_ns; /* the next refusal is logged then */
	char address[KVPULL_ADDRESS_BYTES_MAX]; /* own; "": not listening */
};

/* The channel. 0 or KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_open(struct kvpull_verbs_connect *connect);
/* All ids that are not ends'. */
void kvpull_verbs_connect_close(struct kvpull_verbs_connect *connect);
/* 0 or KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_listen(struct kvpull_verbs_connect *connect);
/* One rail, at the port that it had: 0 or KVPULL_EDEVICE; not any more. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_listen_again(struct kvpull_verbs_connect *connect,
				  uint32_t rail);
void kvpull_verbs_connect_hush(struct kvpull_verbs_connect *connect,
			       uint32_t rail);
/* Is one of them in the allowed networks, and a device left? 0, KVPULL_EROUTE. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_allows(const struct kvpull_verbs_connect *connect,
			    const struct kvpull_verbs_addresses *addresses);
/* 0, KVPULL_EFULL, KVPULL_EROUTE, KVPULL_EPEER. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_start(struct kvpull_verbs_connect *connect,
			   const struct kvpull_verbs_addresses *addresses,
			   uint32_t *peer);
/* MEETING: go on by the next way. KVPULL_EPEER: there is none left. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_next(struct kvpull_verbs_connect *connect,
			  struct kvpull_verbs_bundle *bundle);
/* IN: let rails join that are not there, when their time has come. */
void kvpull_verbs_connect_join(struct kvpull_verbs_connect *connect,
			       struct kvpull_verbs_bundle *bundle);
/* When that is, next; UINT64_MAX: never. */
uint64_t kvpull_verbs_connect_join_ns(const struct kvpull_verbs_bundle *bundle);
/* Nothing goes by a device any more. */
void kvpull_verbs_connect_device_lost(struct kvpull_verbs_connect *connect,
				      uint32_t device, const char *why);
/* What the channel has, at most a bounded number. */
void kvpull_verbs_connect_poll(struct kvpull_verbs_connect *connect);
/* FREE again, and its objects gone. */
void kvpull_verbs_connect_free(struct kvpull_verbs_connect *connect,
			       struct kvpull_verbs_bundle *bundle);

#endif /* KVPULL_VERBS_CONNECT_H */
