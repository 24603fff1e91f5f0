/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The route's state: types alone, for all its parts. Callers, peers and reads
 * implement the calls of the seam that are theirs alone, shm.c those that need
 * several; each finds its own part in the seam's handle by kvpull_shm_of().
 */
#ifndef KVPULL_SHM_STATE_H
#define KVPULL_SHM_STATE_H

#include "base/arena.h"
#include "base/ring.h"
#include "base/turns.h"
#include "shm/attach.h"
#include "shm/batch.h"
#include "shm/copy_plan.h"
#include "shm/device.h"
#include "shm/endpoint.h"
#include "shm/file_read.h"
#include "shm/folder.h"
#include "shm/foreign.h"
#include "shm/gate.h"
#include "shm/params.h"
#include "shm/parts.h"
#include "shm/segment.h"
#include "shm/shortage.h"
#include "shm/unmap.h"
#include "shm/wait.h"

/* ---- callers: see caller.h ---- */

enum kvpull_shm_caller_state {
	KVPULL_SHM_CALLER_FREE = 0,
	KVPULL_SHM_CALLER_OPEN,
	KVPULL_SHM_CALLER_ADMITTED,
	KVPULL_SHM_CALLER_LOST,
	KVPULL_SHM_CALLER_DOWN
};

struct kvpull_shm_caller {
	enum kvpull_shm_caller_state state;
	uint32_t generation;
	int socket;   /* -1 from LOST on */
	int doorbell; /* our end of it; -1: not admitted */
	struct kvpull_identity identity;
	uint64_t deadline_ns;         /* OPEN only */
	struct kvpull_shared segment; /* base NULL: not admitted */
	struct kvpull_ring ring;
};

struct kvpull_shm_callers {
	const struct kvpull_log *log;
	struct kvpull_wait *wait;
	struct kvpull_folder *folder;
	struct kvpull_shortage *shortage;
	struct kvpull_gate gate;
	struct kvpull_give_sink given;     /* of callers that are turned away */
	struct kvpull_shm_caller *callers; /* [caller_max] */
	struct kvpull_serve serve;
	struct kvpull_listener listener;
	int doorbells; /* epoll over the doorbells of all admitted */
	uint32_t caller_max;
	uint32_t admitted_max;
	uint32_t admitted_count; /* that have a ring, until forget */
	uint32_t ring_records;
	uint32_t open_count; /* in state OPEN; LOST: what poll looks for */
	uint32_t lost_count;
	uint64_t connect_ns;
	uint64_t resume_ns; /* the listener rests until then; 0: it works */
	uint64_t named_ns;  /* when its name is looked for; 0: at once */
	uint32_t socket_mode;
};

/* ---- peers: see peer.h ---- */

enum kvpull_shm_peer_state {
	KVPULL_SHM_PEER_FREE = 0,
	KVPULL_SHM_PEER_GREETING,
	KVPULL_SHM_PEER_ATTACHED,
	KVPULL_SHM_PEER_LOST
};

struct kvpull_shm_peer {
	enum kvpull_shm_peer_state state;
	uint32_t generation;
	int32_t code; /* LOST: why */
	int socket;   /* -1 in FREE and LOST */
	struct kvpull_identity identity;
	uint64_t deadline_ns; /* GREETING; 0: not set yet */
	uint32_t gives; /* GREETING: its call gives tickets back: see give.h */
	uint32_t reads_open;
	uint32_t reads_cancelled;    /* LOST: done once */
	struct kvpull_mapping *lent; /* to the engine's thread; NULL: not */

	struct kvpull_parts welcome; /* its descriptors; -1: taken */
	struct kvpull_shm_memory memory;
};

struct kvpull_shm_peers {
	const struct kvpull_log *log;
	struct kvpull_wait *wait;
	struct kvpull_folder *folder;
	struct kvpull_shortage *shortage;
	struct kvpull_shm_device *device;
	const struct kvpull_serve *own;
	struct kvpull_shm_peer *peers; /* [peer_max] */
	uint32_t peer_max;
	uint32_t greeting_count;
	uint32_t lost_count;
	enum kvpull_file_direct file_direct;
	uint64_t connect_ns;
	uint64_t full_said_ns;
	struct kvpull_unmaps unmaps; /* of peers that are gone */
};

/* ---- reads: see read.h ---- */

struct kvpull_copy; /* copy.h */

enum kvpull_shm_read_state {
	KVPULL_SHM_READ_IDLE = 0,
	KVPULL_SHM_READ_COPYING, /* the copy pool's */
	KVPULL_SHM_READ_DEVICE,  /* the device's thread's */
	KVPULL_SHM_READ_FOREIGN, /* in the queue */
	KVPULL_SHM_READ_SMALL,   /* likewise, to be copied in one go */
	KVPULL_SHM_READ_FILES    /* memory is done, files are not */
};

struct kvpull_shm_read {
	struct kvpull_copy_job job; /* first: the pool gives back its address */
	enum kvpull_shm_read_state state;
	uint32_t peer_index;
	struct kvpull_read *read;
	const struct kvpull_read *part; /* in memory: what the cursor is in */
	int32_t cancelled; /* 0, or the code that it will end with */
	int32_t code;      /* of the part that has ended first */
	struct kvpull_rows_cursor cursor;
	/* State of a read from a peer with files. */
	struct kvpull_read run;          /* a run of strips in memory */
	uint32_t run_end;                /* the strip behind it */
	uint32_t is_split;               /* it has a part in files */
	struct kvpull_file_read file;    /* .read NULL: no part in files */
	struct kvpull_device_job device; /* of a peer with such memory */
};

struct kvpull_shm_reads {
	const struct kvpull_log *log;
	struct kvpull_copy *copy;
	struct kvpull_shm_device *device;
	struct kvpull_shm_peers *peers;
	struct kvpull_files files;
	struct kvpull_shm_read *reads; /* [read_max] */
	struct kvpull_turns queue;
	uint32_t read_max;
	uint32_t poll_copies;
	uint32_t inline_bytes;
	uint32_t early_bytes; /* may still be copied before the next poll */
};

/* ---- the route ---- */

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
