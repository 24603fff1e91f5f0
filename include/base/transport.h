/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam: what a route to a peer can do. shm/ and verbs/ implement it,
 * tests/sim implements it over virtual time; plugin/progress uses it, for each
 * peer and caller the table of its own route, and plugin/route opens, polls and
 * waits for all of them. Nothing of a route is known but what stands here.
 *
 * All calls and poll() are made by one thread, the owner (the progress thread,
 * or the caller with progress=caller); the exceptions are the engine's thread's:
 * the ring of a consumer, which it drains from admit() until forget(), the copy
 * from a mapping that was lent, and help().
 *
 * A connection's life, consumer's side (a *peer*):
 *   connect() -> PEER_MESSAGE (challenge) -> peer_send(hello) -> PEER_MESSAGE
 *   (welcome or refusal) -> attach() -> read, check, notify, beat ...
 *   -> disconnect() or a fault -> READ_DONE of every open read -> PEER_DOWN.
 * A route may cut a connection to end a cancelled read. Its peer is no worse for
 * that, and others read on by the next one: their ends, what read_start() and
 * check_start() return, and PEER_DOWN say KVPULL_EABORTED.
 * Producer's side (a *caller*, once admitted a consumer):
 *   CALLER_UP -> caller_send(challenge) -> CALLER_MESSAGE (hello) ->
 *   admit(welcome) or refuse(refusal) -> ... -> CALLER_DOWN -> forget().
 * A call that gives tickets back has neither: give() -> PEER_DOWN. The producer
 * gets its message as a CALLER_MESSAGE, or, of a caller that got no place, by
 * the sink that the route was opened with.
 */
#ifndef KVPULL_BASE_TRANSPORT_H
#define KVPULL_BASE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/device.h"
#include "base/revocation.h"
#include "kvpull/connector.h"

#define KVPULL_ADDRESS_BYTES_MAX 256    /* of one route, with NUL */
#define KVPULL_MESSAGE_BYTES_MAX 196608 /* handshake message */
/*
 * A route's callers have indices below callers_max and this: who has not been
 * let in, or has ended and was not forgotten, takes no consumer's place.
 */
#define KVPULL_CALLERS_MORE 96u
#define KVPULL_UID_NONE UINT32_MAX      /* over a network: nobody says who */
#define KVPULL_TRANSPORT_LOCALS_MAX 16u /* pieces of memory, by local_add() */

/*
 * First bytes of a message that gives tickets back, "KVGB". No greeting, hello
 * or frame begins so: plugin/bytes/give.h has the rest.
 */
#define KVPULL_GIVE_MAGIC UINT32_C(0x4247564b)

static inline int kvpull_is_give(const void *bytes, size_t byte_count)
{
	static const uint8_t magic[4] = { 'K', 'V', 'G', 'B' };

	return bytes && byte_count >= sizeof(magic) &&
	       memcmp(bytes, magic, sizeof(magic)) == 0;
}

/*
 * Receives the give-back messages of callers that a route turns away: by the
 * owner's thread, within poll(). take NULL: the route drops them.
 */
struct kvpull_give_sink {
	void (*take)(void *context, const void *bytes, size_t byte_count);
	void *context;
};

static inline void kvpull_give_sink_take(const struct kvpull_give_sink *sink,
					 const void *bytes, size_t byte_count)
{
	if (sink->take && kvpull_is_give(bytes, byte_count))
		sink->take(sink->context, bytes, byte_count);
}

/* A notification on its way to a producer; 32 bytes, also in shared memory. */
#define KVPULL_NOTE_CLAIM 1u
#define KVPULL_NOTE_RELEASE 2u
/*
 * KVPULL_NOTE_AWAY belongs to no hold: the consumer lives, and closes this
 * connection to make room for others. The rest of the record is 0.
 */
#define KVPULL_NOTE_AWAY 3u

struct kvpull_record {
	uint32_t kind;
	uint32_t slot;
	uint64_t generation;
	uint64_t tag;
	uint64_t extra; /* 0 in notifications */
};

_Static_assert(sizeof(struct kvpull_record) == 32, "ring slot");

/*
 * A strip: one layer's (or head slice's) blocks of one group, here and at
 * the peer. Block i of a read moves row_count rows of row_bytes:
 *   remote_offset + remote_ids[i] * remote_block_stride + row * remote_row_stride
 *   -> local + local_ids[i] * local_block_stride + row * local_row_stride
 * Both ends were checked against the regions' bounds when it was made.
 */
struct kvpull_strip {
	uint32_t region_index; /* the peer's */
	uint32_t group_index;
	uint64_t remote_offset;
	uint64_t remote_block_stride;
	uint64_t remote_row_stride;
	uint8_t *local;
	uint64_t local_block_stride;
	uint64_t local_row_stride;
	uint64_t row_bytes;
	uint32_t row_count;
};

/* A read's `after` where the engine has seen all of its work end. */
#define KVPULL_AFTER_NOTHING UINT64_MAX

/*
 * A read: one pull's blocks at one peer. The caller owns it; unchanged from
 * read_start() until its READ_DONE.
 */
struct kvpull_read {
	uint32_t index; /* 0 .. reads_max - 1: the transport's own state hangs here */
	uint32_t strip_count;
	const struct kvpull_strip *strips; /* [strip_count] */
	/* Ids of group g are [group_first[g], group_first[g + 1]). */
	const uint32_t *remote_ids;
	const uint32_t *local_ids;
	const uint32_t *group_first; /* [KVPULL_GROUPS_MAX + 1] */
	uint64_t byte_count;         /* of all strips */
	/*
	 * In: so many of its first bytes, in the order of strips, ids and rows,
	 * came by an earlier connection; they may be read again. Out, where its
	 * connection was cut: how many are there now. 0 both ways for memory of a
	 * device.
	 */
	uint64_t done_bytes;
	/*
	 * Slots whose entries check_start() reads at this peer: a ticket's
	 * slot, or many guards.
	 */
	const uint32_t *slots;                   /* [slot_count] */
	struct kvpull_revocation_value *entries; /* [slot_count], out */
	uint32_t slot_count; /* 1 .. what the route was opened for */
	/* Smaller ones go first where reads wait for each other. */
	int32_t priority;
	/*
	 * The generation of a ticket's slot, and the tag that proves the ticket to
	 * a route whose peer sends the bytes. 0: no ticket, guards are many.
	 */
	uint64_t generation;
	uint64_t tag;
	/*
	 * The address of an event of the device that must be complete before the
	 * first byte lands: by then the device is done with the own memory.
	 * KVPULL_AFTER_NOTHING: nothing is queued there. 0: nobody said, and a read
	 * into memory of a device is refused.
	 */
	uint64_t after;
	/*
	 * NULL: a block that cannot be read ends it all. Else, [ids], zeroed:
	 * blocks of a file that could not be read say why, READ_DONE 0.
	 */
	int32_t *codes;
};

/*
 * Beside the public kinds: memory of an owner's own that we cannot seal, by its
 * descriptor, for readers who can do without: its bytes change under guards.
 * On one node it is read as a file is, and is its owner's only while that lives.
 */
#define KVPULL_REGION_UNSEALED 5u
/*
 * A file whose slots change under guards, unnamed and the library's own. Last of
 * what is served: a route that reads no files serves what comes before it.
 */
#define KVPULL_REGION_SLOTS 6u
#define KVPULL_DEVICE_MEMORIES_MAX 64u /* that a worker serves */
#define KVPULL_DEVICE_PARTS_MAX 4096u  /* of one, as it is told */

/*
 * Memory of a device, in which regions lie: parts of one size, each with a
 * descriptor of its own, in one row. Routes take one part.
 */
struct kvpull_device_view {
	uint8_t uuid[KVPULL_DEVICE_UUID_BYTES]; /* of the device */
	uint64_t granularity;                   /* a power of two */
	uint64_t part_bytes; /* a multiple of it: what an import claims */
	uint32_t part_count; /* 1 .. KVPULL_DEVICE_PARTS_MAX */
	uint32_t fd_index;   /* of the first part, as regions name it */
};

/* A producer's memory, as it serves it or as its welcome told it. */
struct kvpull_region_view {
	uint32_t kind; /* KVPULL_REGION_* */
	int32_t fd;    /* serving: memfd, file, a device's; else -1 */
	uint8_t *base; /* serving: own address; foreign: the peer's */
	uint64_t bytes;
	uint64_t fd_offset; /* where the region begins in its descriptor */
	/*
	 * Provided, file, unsealed, slots, device: which of the different descriptors that are told, in
	 * the order of the regions. Regions of one mapping share one.
	 */
	uint32_t fd_index;
};

struct kvpull_serve {
	struct kvpull_region_view regions[KVPULL_REGIONS_MAX];
	uint32_t region_count;
	uint32_t slot_count;
	struct kvpull_revocation_entry *entries; /* [slot_count], own address */
	int32_t entries_fd; /* memfd of entries, sealed; -1: in process (sim) */
	uint32_t device_count;
	/* By rising fd_index. Each device region names one of these by its own. */
	struct kvpull_device_view devices[KVPULL_DEVICE_MEMORIES_MAX];
};

/* The device memory of that descriptor; NULL: there is none. */
static inline const struct kvpull_device_view *
kvpull_device_view_of(const struct kvpull_device_view *devices,
		      uint32_t device_count, uint32_t fd_index)
{
	uint32_t at = 0;

	while (at < device_count && devices[at].fd_index != fd_index)
		at++;
	return at < device_count ? &devices[at] : NULL;
}

/* A region that is read by a descriptor. */
static inline int kvpull_region_has_fd(const struct kvpull_region_view *region)
{
	return region->kind == KVPULL_REGION_PROVIDED ||
	       region->kind == KVPULL_REGION_DEVICE ||
	       region->kind == KVPULL_REGION_FILE ||
	       region->kind == KVPULL_REGION_UNSEALED ||
	       region->kind == KVPULL_REGION_SLOTS;
}

/* 1: its blocks are in memory of a device. A worker's own are all, or none is. */
static inline int kvpull_serve_has_devices(const struct kvpull_serve *serve)
{
	return serve->region_count &&
	       serve->regions[0].kind == KVPULL_REGION_DEVICE;
}

/* Regions that a route without file reads serves: all but files. */
static inline uint32_t
kvpull_serve_memory_count(const struct kvpull_serve *serve)
{
	uint32_t count = serve->region_count;

	while (count && serve->regions[count - 1].kind == KVPULL_REGION_SLOTS)
		count--;
	return count;
}

/* Fill in fd_index of what is served; returns the number of descriptors. */
static inline uint32_t kvpull_serve_number_fds(struct kvpull_serve *serve)
{
	uint32_t fd_count = 0;
	uint32_t i;

	for (i = 0; i < serve->region_count; i++) {
		struct kvpull_region_view *region = &serve->regions[i];
		uint32_t at = 0;

		if (!kvpull_region_has_fd(region))
			continue;
		while (at < i && (!kvpull_region_has_fd(&serve->regions[at]) ||
				  serve->regions[at].fd != region->fd))
			at++;
		region->fd_index =
			at < i ? serve->regions[at].fd_index : fd_count++;
	}
	return fd_count;
}

enum kvpull_event_kind {
	KVPULL_EVENT_NONE = 0, /* poll worked: call it again at once */
	/*
	 * index = peer; data until the next poll; uid: its user as the kernel
	 * of this node says, or KVPULL_UID_NONE where the route does not vouch. Who may write into the folder
	 * can take a dead producer's name: nothing that it says is believed
	 * before its user was looked at.
	 */
	KVPULL_EVENT_PEER_MESSAGE,
	/*
	 * index = peer, code; index is free after. KVPULL_EFULL (no room there)
	 * and KVPULL_EAGAIN (out of descriptors here) pass; KVPULL_EREJECTED (the
	 * peer's program turned the call down) does not, nor does KVPULL_EROUTE
	 * after attach() (its memory cannot be mapped after all).
	 */
	KVPULL_EVENT_PEER_DOWN,
	/*
	 * index = peer, which is attached; code: how many bytes a us the device
	 * copied from memory of its GPU when ways to were compared, at least 1.
	 */
	KVPULL_EVENT_PEER_RATE,
	KVPULL_EVENT_READ_DONE,      /* read, code; no write can land */
	KVPULL_EVENT_CHECK_DONE,     /* read, code; read->entries are set */
	KVPULL_EVENT_CALLER_UP,      /* index = caller; uid */
	KVPULL_EVENT_CALLER_MESSAGE, /* index = caller; data, uid */
	KVPULL_EVENT_CALLER_DOWN, /* index = caller; its ring lives till forget() */
	KVPULL_EVENT_ADDRESS      /* address() is another one */
};

struct kvpull_event {
	enum kvpull_event_kind kind;
	uint32_t index;
	int32_t code;
	uint32_t uid;
	struct kvpull_read *read;
	const uint8_t *data;
	size_t data_bytes;
};

struct kvpull_transport;
struct kvpull_ring; /* include/base/ring.h: producer's end of a consumer's ring */
struct kvpull_mapping;       /* include/base/mapping.h */
struct kvpull_device_thread; /* include/base/device_thread.h */

struct kvpull_transport_ops {
	const char *name; /* "shm", "verbs", "sim"; in tickets, logs, config */
	/* Why it was chosen, and why a later one was instead; NULL: no reason. */
	const char *near;
	const char *far;
	/*
	 * 1: its events name the user of each peer and caller, and one of whom
	 * it does not is believed nothing. 0: it never does.
	 */
	uint32_t vouches;
	uint32_t reads_files;    /* 1: peers read KVPULL_REGION_SLOTS, too */
	uint32_t give_bytes_max; /* of a give-back message, one a call */
	/*
	 * The thread that calls the driver of the device which this route copies by;
	 * before serve() it is the engine's, then the owner's. NULL, or NULL is
	 * returned: there is none.
	 */
	struct kvpull_device_thread *(*device)(
		const struct kvpull_transport *transport);
	/* Regions are known: listen. 0, KVPULL_EDEVICE, KVPULL_EUNSUPPORTED. */
	int (*serve)(struct kvpull_transport *transport,
		     const struct kvpull_serve *serve);
	/*
	 * Own memory that reads may land in, beside what is served; at any
	 * time, and there until close(). 0; KVPULL_EFULL, KVPULL_ENOMEM,
	 * KVPULL_EDEVICE, KVPULL_EUNSUPPORTED: nothing was added. A device
	 * that is away takes it when it is back. NULL: they land wherever it is.
	 */
	int (*local_add)(struct kvpull_transport *transport, uint8_t *base,
			 uint64_t bytes);
	/*
	 * Own address for tickets; "" before serve(), and until a device is
	 * there. Text, no ';' in it. It may change in poll(), which says so.
	 */
	const char *(*address)(const struct kvpull_transport *transport);
	/*
	 * Can this address be reached by this route? 0, or why not;
	 * KVPULL_EAGAIN: it could not be seen now.
	 */
	int (*reachable)(const struct kvpull_transport *transport,
			 const char *address);
	/*
	 * Start to connect. 0; KVPULL_EFULL, KVPULL_EPEER, KVPULL_EROUTE,
	 * KVPULL_EAUTH; KVPULL_EAGAIN: it or we have no room for it now.
	 */
	int (*connect)(struct kvpull_transport *transport, const char *address,
		       uint32_t *peer);
	int (*peer_send)(struct kvpull_transport *transport, uint32_t peer,
			 const void *bytes, size_t byte_count);
	/*
	 * Call the producer for one give-back message alone, whether it would
	 * let us in or not. 0: the peer's next event is PEER_DOWN, with code 0
	 * if the producer took the message or has ended; else as connect().
	 */
	int (*give)(struct kvpull_transport *transport, const char *address,
		    const void *bytes, size_t byte_count, uint32_t *peer);
	/*
	 * After a good welcome: map its memory. 0, KVPULL_EPROTO, _ENOMEM;
	 * KVPULL_EAGAIN: out of memory or descriptors for now.
	 */
	int (*attach)(struct kvpull_transport *transport, uint32_t peer,
		      const struct kvpull_serve *remote);
	/*
	 * After attach(): fill in what the engine's thread may read by itself.
	 * The route closes it as soon as the peer is lost; its memory stays,
	 * and PEER_DOWN does not come, until it is free. 0; KVPULL_EUNSUPPORTED:
	 * not all of the peer's memory is mapped. NULL: none ever is.
	 */
	int (*lend)(struct kvpull_transport *transport, uint32_t peer,
		    struct kvpull_mapping *mapping);
	/*
	 * Engine's thread, beside the owner's calls but close(): copy some of a
	 * read that runs, up to 256 KiB. Its bytes; 0: nothing is to be done.
	 * NULL: nothing ever is.
	 */
	uint32_t (*help)(struct kvpull_transport *transport);
	/*
	 * A region as it is mapped here, for the thread that polls: there until
	 * its next call of the route. NULL: it is not mapped, or the peer is
	 * lost. NULL: none ever is.
	 */
	const uint8_t *(*mapped)(const struct kvpull_transport *transport,
				 uint32_t peer, uint32_t region);
	/* Ends the peer's reads (READ_DONE each), then reports PEER_DOWN. */
	void (*disconnect)(struct kvpull_transport *transport, uint32_t peer);
	/*
	 * 0: READ_DONE will come; 1: done already; KVPULL_EAGAIN, _EPEER,
	 * _EABORTED.
	 */
	int (*read_start)(struct kvpull_transport *transport, uint32_t peer,
			  struct kvpull_read *read);
	/*
	 * READ_DONE, or CHECK_DONE (KVPULL_EABORTED, or 0 if it was over) comes
	 * when quiet.
	 */
	void (*read_cancel)(struct kvpull_transport *transport, uint32_t peer,
			    struct kvpull_read *read);
	/*
	 * Read the slots' entries, by the same route and from the same peer as
	 * the data, after all of the data. 0: CHECK_DONE will come; 1: done
	 * already; KVPULL_EPEER if the peer died before they were read;
	 * KVPULL_EABORTED. Unless it is done with code 0 they say nothing.
	 */
	int (*check_start)(struct kvpull_transport *transport, uint32_t peer,
			   struct kvpull_read *read);
	/*
	 * Leave a read that is in flight no more and is not going to be checked: its
	 * bytes may still be on their way into the memory of a GPU. 0: none is; 1:
	 * READ_DONE, with a code, comes when none is. NULL: none ever is.
	 */
	int (*read_leave)(struct kvpull_transport *transport, uint32_t peer,
			  struct kvpull_read *read);
	/* 0: will reach the peer while it lives; KVPULL_EAGAIN: later. */
	int (*notify)(struct kvpull_transport *transport, uint32_t peer,
		      const struct kvpull_record *record);
	/* Notifications that the peer's engine has not taken yet. */
	uint32_t (*notes_open)(const struct kvpull_transport *transport,
			       uint32_t peer);
	void (*beat)(struct kvpull_transport *transport, uint32_t peer);

	int (*caller_send)(struct kvpull_transport *transport, uint32_t caller,
			   const void *bytes, size_t byte_count);
	/*
	 * Let a caller in: a fresh ring is made for it, and the welcome sent.
	 * Its notifications and heartbeats come by that ring alone; *ring
	 * may be drained by another thread until forget(). 0, KVPULL_ENOMEM,
	 * KVPULL_EPEER; KVPULL_EFULL: callers_max have a ring; KVPULL_EAGAIN: out of memory or descriptors for now.
	 */
	int (*admit)(struct kvpull_transport *transport, uint32_t caller,
		     const void *welcome, size_t welcome_bytes,
		     struct kvpull_ring **ring);
	/*
	 * Send the refusal (of 0 bytes: none) and close; no CALLER_DOWN
	 * follows.
	 */
	void (*refuse)(struct kvpull_transport *transport, uint32_t caller,
		       const void *refusal, size_t refusal_bytes);
	/* Close an admitted caller; CALLER_DOWN follows. */
	void (*drop)(struct kvpull_transport *transport, uint32_t caller);
	/* After CALLER_DOWN: free its ring and index. */
	void (*forget)(struct kvpull_transport *transport, uint32_t caller);

	/* Work, without blocking; events written, 0 .. capacity. */
	int (*poll)(struct kvpull_transport *transport, uint64_t now_ns,
		    struct kvpull_event *events, uint32_t capacity);
	/*
	 * Before the owner sleeps: ask to be woken through fd(). Return 1 if
	 * something came meanwhile (do not sleep). disarm() after the sleep.
	 */
	int (*arm)(struct kvpull_transport *transport);
	void (*disarm)(struct kvpull_transport *transport);
	/* 1: fd() is readable, or is about to be, until disarm() and a poll. */
	int (*rings)(const struct kvpull_transport *transport);
	int (*fd)(const struct kvpull_transport *transport);
	/*
	 * Readable when a caller rings whose ring's reader sleeps: for an
	 * edge-triggered wait of the thread that drains the rings. Not part of
	 * fd(). -1: there is none, engine_wake_fd is written instead.
	 */
	int (*doorbell_fd)(const struct kvpull_transport *transport);
	/*
	 * Reads have ended, peers are down. Waits for threads and disks end by
	 * close_by_ns, of kvpull_clock_ns(); what goes on after is left behind.
	 */
	void (*close)(struct kvpull_transport *transport, uint64_t close_by_ns);
};

/* Each implementation's struct begins with this one; open() sets all of it. */
struct kvpull_transport {
	const struct kvpull_transport_ops *ops;
	const struct kvpull_log *log;
	uint32_t peer_count_max; /* handles of peers are below it */
	uint32_t caller_count_max; /* likewise; <= callers let in at once + MORE */
};

#endif /* KVPULL_BASE_TRANSPORT_H */
