/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the worker's GPU as RDMA devices register it: by a dmabuf of each
 * memory that regions lie in. The dmabufs are kept until the route closes, since a
 * device that comes back registers the memory again.
 */
#ifndef KVPULL_VERBS_DMABUF_H
#define KVPULL_VERBS_DMABUF_H

#include "base/transport.h"

struct kvpull_verbs_dmabufs {
	int fds[KVPULL_DEVICE_MEMORIES_MAX]; /* [count] */
	uint32_t count;
};

/**
 * Make a dmabuf of each memory of the GPU that serve has, and put it into the
 * views of its regions, in the place of the descriptor for peers on this node.
 *
 * @thread  NULL: the worker has no GPU.
 *
 * Return: 0; KVPULL_EUNSUPPORTED, KVPULL_ENOMEM, KVPULL_EDEVICE, and one line of
 * level warn: none was made.
 *
 * Threads: the engine's, before anything is served.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_dmabufs_make(struct kvpull_verbs_dmabufs *dmabufs,
			  const struct kvpull_device_thread *thread,
			  struct kvpull_serve *serve,
			  const struct kvpull_log *log);
void kvpull_verbs_dmabufs_close(struct kvpull_verbs_dmabufs *dmabufs);

#endif /* KVPULL_VERBS_DMABUF_H */
