/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to a device's thread, and their ends. */
#ifndef KVPULL_DEVICE_JOB_H
#define KVPULL_DEVICE_JOB_H

#include "base/device.h"
#include "base/transport.h"

/* A slice has at most so many bytes, and what the device copies in 1 ms. */
#define KVPULL_DEVICE_SLICE_BYTES_MAX (UINT64_C(64) << 20)
/* But on a slow device at least so many. */
#define KVPULL_DEVICE_SLICE_BYTES_MIN UINT64_C(65536)
/* A call, or a queued slice, that takes longer ends the device. */
#define KVPULL_DEVICE_HANG_NS (10 * KVPULL_NS_PER_S)
/*
 * But of the time between two looks no more counts: a process that was stopped, or
 * a machine that was, finds its device as slow as it was before.
 */
#define KVPULL_DEVICE_LOOK_NS KVPULL_NS_PER_S

struct kvpull_device_limits {
	uint32_t job_max;     /* >= 1; read->index is below */
	uint32_t mapping_max; /* >= 1; memories that are adopted count, too */
	uint32_t mark_max;    /* events for the engine's marks */
	/* The device's rate as first assumed; it bounds a slice, and is learnt. */
	uint64_t bytes_per_ms;
};

/*
 * Records of both rings: .kind, .slot = index. Of an end the low half of .extra is
 * the code, and of an import's the high half is bytes_per_us of its memory.
 */
enum kvpull_device_kind {
	KVPULL_DEVICE_IMPORT = 1, /* of a mapping */
	KVPULL_DEVICE_UNMAP,      /* likewise */
	KVPULL_DEVICE_COPY,       /* of a job */
	KVPULL_DEVICE_CANCEL      /* likewise; it has no end of its own */
};

/* A peer's region begins in that mapping, at that byte of it. */
struct kvpull_device_region {
	uint32_t mapping;
	uint64_t offset;
};

/*
 * A read, whose strips' `local` are addresses of the device. The owner's, and
 * unchanged until its end, as the read is.
 */
struct kvpull_device_job {
	const struct kvpull_read *read; /* ->index is the job's */
	/* By region_index of the strips: imported before, or ordered. */
	const struct kvpull_device_region *regions; /* [region_count] */
	uint32_t region_count;
	/*
	 * 0, or KVPULL_EABORTED (cancelled), _EDEVICE, _EPROTO (a row beyond its
	 * mapping), the import's, or that of a call of the table.
	 */
	int32_t code;
	/*
	 * The copy begins when this mark of the engine's was reached; it is not
	 * recorded again until the job's end. NULL: at once. A job of no rows ends
	 * when the mark was reached.
	 */
	struct kvpull_device_event *after;
	/*
	 * Called in poll(), in the place of an end there: the job is of another
	 * route than the one that polls. It may start the job again. NULL: none.
	 */
	void (*ended)(struct kvpull_device_job *job);
	uint32_t is_flush; /* by the driver: no mark, no rows */
};

struct kvpull_device_end {
	enum kvpull_device_kind kind; /* _IMPORT, _UNMAP, _COPY */
	uint32_t index;               /* of the mapping or job, free again */
	int32_t code;                 /* of an import: it is not mapped */
	uint32_t bytes_per_us; /* of an import: see struct kvpull_device_memory */
	struct kvpull_device_job *job; /* of a copy */
};

#endif /* KVPULL_DEVICE_JOB_H */
