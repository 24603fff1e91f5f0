/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the route between machines, and its counts: see verbs.h. */
#ifndef KVPULL_VERBS_PARAMS_H
#define KVPULL_VERBS_PARAMS_H

#include "base/transport.h"

struct kvpull_device_thread; /* base/device_thread.h */
struct kvpull_fabric;        /* verbs/fabric.h */

/* Members of value 0 or NULL stand for the default in the comment. */
struct kvpull_verbs_params {
	const struct kvpull_log *log;
	const struct kvpull_fabric *fabric; /* the host's libraries */
	const char *device; /* chosen; "a,b;c,d": a part a rank, a name a rail */
	const char *address;   /* own IP; that of the chosen GID; likewise */
	const char *networks;  /* peers and callers allowed; the own subnet */
	uint32_t required;     /* a host without RDMA is an error, said so */
	uint32_t rails;        /* as many as are named above, or 1 */
	uint32_t qps;          /* 1; queue pairs to a peer by each rail */
	uint32_t port;         /* of the device, from 1; chosen */
	uint32_t gid_index;    /* + 1; chosen */
	uint32_t listen_port;  /* any */
	uint32_t keyless;      /* callers need no key: warn of it */
	uint32_t local_rank;   /* of this worker among those of its node */
	uint32_t memory_node;  /* + 1; found at serve(), near its CPUs before */
	uint32_t peers_max;    /* required; as are the three below */
	uint32_t callers_max;  /* let in at once; others wait beside them */
	uint32_t ring_records; /* of a caller that is let in */
	uint32_t reads_max;    /* read->index is below it */
	uint32_t slots_max;    /* of one read's check; 0: 1 */
	int engine_wake_fd; /* eventfd, written when a ring's reader sleeps; -1: none */
	uint32_t notify_credits; /* 32; unacknowledged SENDs a direction */
	uint32_t depth;          /* 256; READ work requests in flight a lane */
	uint32_t batch;          /* 128; work requests a doorbell */
	uint32_t rd_atomic;      /* 16; READs that the wire carries at once */
	uint32_t parts_max;      /* 16; local ranges a work request */
	uint32_t retry_count;    /* 6, the most: 7 is for ever on soft-RoCE */
	uint32_t ack_timeout;    /* 14: 4.096 us << 14 = 67 ms */
	uint32_t traffic_class;  /* 0; RoCE takes the service level from it */
	uint32_t mr_shift;       /* 30; 1 << it is registered at once */
	uint64_t slice_bytes;    /* 1 MiB; of a work request */
	uint64_t window_bytes;   /* 16 MiB in flight a lane, in four batches */
	/* The thread that calls the driver of the GPU whose memory is served. */
	struct kvpull_device_thread *gpu; /* none */
	uint32_t device_flush;            /* enum kvpull_device_flush */
	/* Where that GPU is on the PCI bus; NULL, "": not known. */
	const char *gpu_pci;
	struct kvpull_give_sink given; /* nobody; tickets of any caller */
	uint64_t connect_ns;           /* 5 s; handshake must end within this */
	uint64_t flush_ns; /* 100 ms; a cancelled read's last chance */
};

#define KVPULL_VERBS_NAMES_BYTES 512u /* of a list of devices or addresses */

/* Counts since open, for stats and tests. */
struct kvpull_verbs_counts {
	uint64_t work_requests; /* READs of data */
	uint64_t doorbells;     /* posts of data READs */
	uint64_t completions;   /* of data READs, polled */
	uint64_t read_bytes;    /* posted */
	uint64_t checks;
	uint64_t frames_sent;
	uint64_t frames_bad;     /* hostile or of another version */
	uint64_t post_busy;      /* a post found the queue full */
	uint64_t flushes;        /* queue pairs broken to end a read */
	uint64_t calls_refused;  /* no room, or not of an allowed network */
	uint64_t requests_moved; /* from lost lanes to others */
	uint64_t gpu_flushes;    /* READs by loops */
};

#define KVPULL_VERBS_CREDITS_DEFAULT 32u
/* Places for those that were not let in yet: see gate.h. */
#define KVPULL_VERBS_CALLERS_MORE 32u

/* Handles of callers are below this. */
static inline uint32_t
kvpull_verbs_callers(const struct kvpull_verbs_params *params)
{
	return params->callers_max + KVPULL_VERBS_CALLERS_MORE;
}

#endif /* KVPULL_VERBS_PARAMS_H */
