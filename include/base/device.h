/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam to a device with memory of its own, a GPU: what a vendor's driver is
 * asked for. cuda/ implements it. The library takes device memory by it, hands
 * the memory to other processes as a descriptor, maps theirs, and copies.
 *
 * Addresses are the device's: the CPU never touches them. Copies are queued on
 * one stream of the library's own, in order, and end later: an event that is
 * recorded behind a copy says when. A copy that was queued cannot be taken back,
 * so memory stays mapped, and blocks stay taken, until such an event was seen.
 *
 * Errors of all calls, sorted by what they end:
 *   KVPULL_EINVAL, KVPULL_ENOMEM, KVPULL_EUNSUPPORTED
 *                    this call: nothing happened
 *   KVPULL_EREAD     this copy: parts of it may be queued, and land
 *   KVPULL_EROUTE    this peer: its memory cannot be mapped here
 *   KVPULL_EDEVICE   the device, for ever: no later call reaches the driver, and
 *                    whatever was queued may have landed or not
 * The call that meets an error logs one line; EINVAL has none. In a child made by
 * fork() every call is KVPULL_EDEVICE without a line, and none reaches the driver.
 *
 * Threads: any thread may make any call, and finds its own state of the driver
 * (context, capture mode) afterwards as it was, unless the device was lost. Calls about one memory or event
 * are not made at once, nor is close() beside any other. Calls may block for
 * milliseconds (alloc, import, unmap, a full stream), so the engine's thread
 * makes mark() alone once it serves, and query() of such an event, which another
 * thread may wait for or query meanwhile.
 */
#ifndef KVPULL_BASE_DEVICE_H
#define KVPULL_BASE_DEVICE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/log.h"

#define KVPULL_DEVICE_UUID_BYTES 16u
#define KVPULL_DEVICE_PCI_BYTES 16u
/* Pieces of one copy(): a stream of CUDA's holds about twice as many. */
#define KVPULL_DEVICE_PIECES_MAX 512u
/* Strips of one gather(), and the rows of all of them. */
#define KVPULL_DEVICE_STRIPS_MAX 512u
#define KVPULL_DEVICE_ROWS_MAX 16384u
/* Addresses, strides and lengths of a gather() are multiples of these bytes. */
#define KVPULL_DEVICE_UNIT 16u
/* Each gather() that is queued has a slot of its own. */
#define KVPULL_DEVICE_SLOTS 2u

#define KVPULL_DEVICE_READ 1u       /* a store by the device ends the device */
#define KVPULL_DEVICE_READ_WRITE 2u /* stores are possible */

/* Bytes that RDMA devices wrote into the device's memory are flushed by: */
enum kvpull_device_flush {
	KVPULL_DEVICE_FLUSH_ALWAYS = 0, /* each RDMA device, by a READ of it */
	KVPULL_DEVICE_FLUSH_AUTO,       /* likewise, but see orders_writes */
	KVPULL_DEVICE_FLUSH_DRIVER      /* flush() */
};

/* Memory that is mapped here; address 0: none. */
struct kvpull_device_memory {
	uint64_t address; /* of the device */
	uint64_t bytes;   /* a multiple of the device's granularity */
	uint64_t handle;  /* the implementation's; 0: imported */
	uint32_t access;  /* KVPULL_DEVICE_* */
	/* Rows of up to so many bytes are copied from here by gather(), the faster way. */
	uint32_t gathers;
	/* How fast copies from another GPU were when ways were compared; 0: not known. */
	uint32_t bytes_per_us;
};

/*
 * Pieces of a copy, [count] each. The caller has checked that each piece lies in
 * memory that is mapped, and that targets are mapped for stores and do not overlap:
 * nobody checks again, and a piece that does not ends the device.
 */
struct kvpull_device_pieces {
	uint64_t *targets; /* addresses */
	uint64_t *sources;
	size_t *bytes;  /* each >= 1 */
	uint32_t count; /* 1 .. KVPULL_DEVICE_PIECES_MAX */
};

/* Rows of one length: those of an id begin a stride from those of the next. */
struct kvpull_device_strip {
	uint64_t source; /* address of the row of id 0 */
	uint64_t target;
	uint64_t source_stride;
	uint64_t target_stride;
	uint64_t row_bytes;         /* >= 1 */
	const uint32_t *source_ids; /* [row_count] */
	const uint32_t *target_ids;
	uint32_t row_count; /* >= 1 */
};

/*
 * A copy of many rows by the device's processors. As with pieces, nobody checks
 * what the caller has checked, and rows of a copy have no order among them.
 */
struct kvpull_device_gather {
	const struct kvpull_device_strip *strips;
	uint32_t strip_count; /* 1 .. KVPULL_DEVICE_STRIPS_MAX */
	/* Below KVPULL_DEVICE_SLOTS: an event behind its last gather() was seen. */
	uint32_t slot;
};

struct kvpull_device;
struct kvpull_device_event; /* the driver's */

struct kvpull_device_ops {
	/*
	 * Take zeroed memory of the device that other processes can map. bytes
	 * 1 .. 2^48 are rounded up to the granularity. Waits until all of the stream is
	 * done. The caller gives it back by unmap().
	 */
	int (*alloc)(struct kvpull_device *device, uint64_t bytes,
		     struct kvpull_device_memory *memory);
	/*
	 * A new descriptor of memory that alloc() took: the caller closes it. An
	 * open descriptor, or a mapping by it, keeps the memory after unmap().
	 */
	int (*export_fd)(struct kvpull_device *device,
			 const struct kvpull_device_memory *memory, int *fd);
	/*
	 * A new dmabuf of all of the memory that alloc() took, by which an RDMA
	 * device of this process reads and writes it: the caller closes it. Only
	 * address and bytes of *memory are looked at. KVPULL_EUNSUPPORTED: the
	 * driver has none for it.
	 */
	int (*dmabuf)(struct kvpull_device *device,
		      const struct kvpull_device_memory *memory, int *fd);
	/*
	 * Map memory of another process by a descriptor that came from it, for
	 * reads; for stores, too, where the driver refuses less (memory->access, and
	 * one line). The descriptor stays the caller's and may be closed at once.
	 * bytes are the peer's claim: no multiple of the granularity is
	 * KVPULL_EPROTO, more than there is KVPULL_EROUTE, as is any other descriptor.
	 * uuid is claimed, too, of the device that has the memory: it decides how
	 * copies are made, and a false one makes them slow.
	 */
	int (*import_fd)(struct kvpull_device *device, int fd, uint64_t bytes,
			 const uint8_t *uuid,
			 struct kvpull_device_memory *memory);
	/*
	 * Give back what alloc() or import_fd() mapped: no copy of it is queued.
	 * *memory is 0 after it. Of a lost device the process keeps it.
	 */
	void (*unmap)(struct kvpull_device *device,
		      struct kvpull_device_memory *memory);

	/* An event that can be waited for. The caller gives it to event_close(). */
	int (*event_open)(struct kvpull_device *device,
			  struct kvpull_device_event **event);
	/* The event's last record was seen by query(). */
	void (*event_close)(struct kvpull_device *device,
			    struct kvpull_device_event *event);

	/*
	 * Queue a copy behind all that the stream has; pieces have no order among
	 * them. *pieces may be reused at once. On KVPULL_EREAD an event that is
	 * recorded now says when the parts that were queued have landed.
	 */
	int (*copy)(struct kvpull_device *device,
		    const struct kvpull_device_pieces *pieces);
	/*
	 * Queue a copy as copy() does, from memory whose `gathers` is not 0.
	 * *gather and the ids may be reused at once; the slot, whose memory the device reads, may not.
	 */
	int (*gather)(struct kvpull_device *device,
		      const struct kvpull_device_gather *gather);
	/* Record the event behind all that the stream has. */
	int (*record)(struct kvpull_device *device,
		      struct kvpull_device_event *event);
	/* 1: all before the last record is done, or none was made. 0: not yet. */
	int (*query)(struct kvpull_device *device,
		     struct kvpull_device_event *event);
	/*
	 * Record the event behind all that the engine has queued on its own stream,
	 * by the driver's handle: 0 is a stream, too. 1: recorded. 0: not, as that
	 * stream captures a graph, or as a capture forbids it.
	 */
	int (*mark)(struct kvpull_device *device, uint64_t stream,
		    struct kvpull_device_event *event);
	/* Let the stream wait for the event's last record: the CPU does not. */
	int (*wait)(struct kvpull_device *device,
		    struct kvpull_device_event *event);

	/*
	 * Flush writes of RDMA devices: all that the device begins from here on sees
	 * what they have written into this process's memory of it. Where can_flush.
	 */
	int (*flush)(struct kvpull_device *device);

	/* 1: a call was, or will be, KVPULL_EDEVICE. Without a call of the driver. */
	int (*is_lost)(const struct kvpull_device *device);
	/* Events are closed, and memory is unmapped, but for a lost device's. */
	void (*close)(struct kvpull_device *device);
};

/* Each implementation's struct begins with this one; its open sets all of it. */
struct kvpull_device {
	const struct kvpull_device_ops *ops;
	const struct kvpull_log *log;
	uint64_t granularity;                   /* bytes, as the driver says */
	uint8_t uuid[KVPULL_DEVICE_UUID_BYTES]; /* the same in each process */
	char pci[KVPULL_DEVICE_PCI_BYTES]; /* "0000:3d:00.0"; "": not known */
	uint32_t can_flush;                /* the driver has flush() */
	uint32_t has_batch; /* copy() is one call of the driver's, or few */
	/* The driver says that writes of RDMA devices need no flush. */
	uint32_t orders_writes;
};

/*
 * A table's open: of the driver's device of that number. Takes memory from the
 * arena alone; the log outlives the device. 0, or an error and one line.
 */
typedef int (*kvpull_device_open_fn)(struct kvpull_arena *arena,
				     const struct kvpull_log *log, int index,
				     struct kvpull_device **device);

#endif /* KVPULL_BASE_DEVICE_H */
