/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The route's state, for its parts: callers, peers and reads implement the
 * calls of the seam that are theirs alone, and shm.c those that need several.
 */
#ifndef KVPULL_SHM_STATE_H
#define KVPULL_SHM_STATE_H

#include "shm/caller.h"
#include "shm/device.h"
#include "shm/peer.h"
#include "shm/read.h"

struct kvpull_shm {
	struct kvpull_transport transport; /* first: the seam's handle */
	struct kvpull_shm_params params;   /* its texts are copies */
	struct kvpull_wait wait;
	struct kvpull_folder folder;
	struct kvpull_shortage shortage;
	struct kvpull_copy *copy;
	struct kvpull_shm_device device;
	struct kvpull_shm_callers callers;
	struct kvpull_shm_peers peers;
	struct kvpull_shm_reads reads;
	uint8_t *buffers;
	int wake_fd; /* copy workers, guest, device and io_uring write it */
	int timer_fd;
	uint32_t look_now;
	uint32_t polls; /* since the last look */
	uint64_t looked_ns;
	uint64_t timer_ns; /* what timer_fd is set for; UINT64_MAX: nothing */
};

static inline struct kvpull_shm *
kvpull_shm_of(struct kvpull_transport *transport)
{
	return (struct kvpull_shm *)(void *)transport;
}

static inline const struct kvpull_shm *
kvpull_shm_of_const(const struct kvpull_transport *transport)
{
	return (const struct kvpull_shm *)(const void *)transport;
}

#endif /* KVPULL_SHM_STATE_H */
