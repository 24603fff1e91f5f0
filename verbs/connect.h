/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rdma_cm does: it connects, listens, accepts, and tells of ends. All of
 * it in the background, over one event channel that never blocks.
 */
#ifndef KVPULL_VERBS_CONNECT_H
#define KVPULL_VERBS_CONNECT_H

#include "verbs/endpoint.h"

#define KVPULL_VERBS_LISTEN_BACKLOG 64

struct kvpull_verbs_connect {
	struct kvpull_verbs_shared *shared;
	struct kvpull_verbs_end *ends; /* peers, then callers */
	uint32_t *active;              /* indices of ends that are not FREE */
	uint32_t active_count;
	uint32_t end_count;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	uint32_t gone; /* the device was removed */
	uint32_t reserved;
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
/* 0, KVPULL_EFULL, KVPULL_EROUTE, KVPULL_EPEER. */
int KVPULL_MUST_CHECK
kvpull_verbs_connect_start(struct kvpull_verbs_connect *connect,
			   const struct kvpull_verbs_address *address,
			   uint32_t *peer);
/* What the channel has, at most a bounded number. */
void kvpull_verbs_connect_poll(struct kvpull_verbs_connect *connect);
/* FREE again, and its objects gone. */
void kvpull_verbs_connect_free(struct kvpull_verbs_connect *connect,
			       struct kvpull_verbs_end *end);

#endif /* KVPULL_VERBS_CONNECT_H */
