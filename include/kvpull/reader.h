/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kvpull reader ABI, version 1: memory that is shared by content.
 *
 * An engine dlopen()s libkvpull.so.1, looks up kvpull_reader_v1() and works
 * through the table it returns. A handle is an owner, a reader, or both. As an
 * owner it shares memory as equal chunks and lists which chunk has the bytes of
 * which key. As a reader it probes the directories of other owners for keys, and
 * reads chunks from their memory, without help of the owner's process. Nothing
 * is held for a reader: a read is believed only where the chunk's guard is
 * unchanged after it.
 *
 * Conventions, beside those of common.h
 * - A generation belongs to the bytes of a chunk. guard_bump() begins the next
 *   one; when it has returned, no read of the old bytes is believed.
 * - A chunk's life: guard_bump(), write_begin(), bytes are written,
 *   write_end(), put(), guard_bump() ...
 *   write_end() comes when no byte of the write can land any more: a write that
 *   was cancelled has not ended. A chunk of a new share needs no bump first.
 * - A namespace says what must be equal for bytes to mean the same: model,
 *   weights, layout, hash. Owner and reader compare it when they connect, and
 *   it is part of each key.
 * - Probe results belong to the namespace of the probe. After guard_bump_all()
 *   with another namespace drop them, and probe again.
 * - Every copy out of a chunk is a read. An owner that copies from its own
 *   chunk keeps it from being bumped meanwhile, or looks at generation() after
 *   the last byte was read and before the copy is put to use.
 * - Deadlines are of CLOCK_MONOTONIC, in nanoseconds.
 * - Threads: all calls on one handle from one thread at a time. Nothing blocks
 *   but open, close and share, and where there is RDMA local_add, which
 *   registers. Probes, reads and connections advance in poll() alone. An owner
 *   polls, too: without polls it lets nobody new in. A reader that is connected
 *   needs no poll of its owner. Over a network, a peer that has not polled for a
 *   minute is taken for lost, and connected again. Callbacks (log, fatal) run on
 *   the caller's thread, log on the handle's own threads as well.
 * - Routes and their configuration keys are those of the connector. An owner's
 *   address names all routes that it serves. A reader takes the first route that
 *   it is allowed to use and that leads there: shared mappings on one node, RDMA
 *   READ between machines.
 * - A handle keeps a status file, as a worker does, by the same keys (status,
 *   status_group): kvpull_top shows it, and when it last polled.
 */
#ifndef KVPULL_READER_H
#define KVPULL_READER_H

#include <stddef.h>
#include <stdint.h>

#include "kvpull/common.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVPULL_READER_ABI_MAJOR 1
#define KVPULL_READER_ABI_MINOR 0

#define KVPULL_READER_NONE UINT32_MAX /* no chunk */
#define KVPULL_READER_ITEMS_MAX 256u  /* keys of a probe, pieces of a read */
#define KVPULL_READER_OPEN_MAX 64u    /* probes and reads in flight */
#define KVPULL_READER_SPILLS_MAX 16u  /* spills in flight */
#define KVPULL_READER_PEERS_MAX 64u   /* and at most peers_max */
#define KVPULL_READER_LOCALS_MAX 8u   /* pieces of own memory */
#define KVPULL_READER_BLOCKS_MAX 4194304u /* of all of them */
#define KVPULL_READER_CHUNKS_MAX 1048576u /* of a share */
#define KVPULL_READER_KEY_BYTES_MAX 224u

struct kvpull_reader; /* opaque */

/**
 * The parts of a namespace. The model's members model, weights, dtype and layout
 * are required: two engines that both left one out would take each other's bytes
 * for their own.
 */
struct kvpull_reader_naming {
	size_t struct_size;
	const struct kvpull_model *model;
	const char *hash; /* what keys are made with, e.g. "sha256"; needed */
	const char *seed; /* of that hash; NULL = "" */
	uint32_t tp_size;
	uint32_t reserved;
};

/** Opens a handle. Strings are copied. */
struct kvpull_reader_params {
	size_t struct_size;
	const struct kvpull_host *host;
	const char *config_json; /* as kvpull_open_params */
	const struct kvpull_reader_naming *naming;
	const char *engine_id; /* names this process in others' logs */
};

/* The chunks are memory of the engine's own, a file's. */
#define KVPULL_READER_SHARE_FD (1u << 8)

/**
 * Memory to share: made by share(), or, with KVPULL_READER_SHARE_FD, that of a
 * file which the engine has mapped.
 *
 * The file is a regular one, of /dev/shm or a memfd, with a name or without. A
 * file of FUSE or of a network file system may never answer and is KVPULL_EINVAL.
 * The file belongs to the process's own uid, is writable by no other user (0600),
 * and is open for reading and writing. share() locks its bytes for this owner
 * (F_OFD_SETLK) and sets its sticky bit until close(). A file that another owner
 * shares, or shared when it was killed, is refused: make another one. The first
 * byte of a chunk is written after share() has returned.
 * Readers read the file through the kernel and do not map it: if it was made
 * shorter, pieces behind its end have KVPULL_EREAD. Bytes read from an owner that
 * has died are not believed. No check sees a process of the owner's uid that
 * writes there without a guard_bump(), or that truncates and extends the file:
 * its readers then get wrong bytes.
 */
struct kvpull_reader_share {
	size_t struct_size;
	uint64_t chunk_bytes;
	uint32_t chunk_count; /* 1 .. KVPULL_READER_CHUNKS_MAX */
	/*
	 * Entries of the directory; 0: four a chunk. With fewer entries put()
	 * returns KVPULL_EFULL for more keys.
	 */
	uint32_t entry_count;
	uint32_t flags; /* KVPULL_MEMORY_HUGE, or KVPULL_READER_SHARE_FD */
	/* With KVPULL_READER_SHARE_FD; else 0, fd also -1. */
	int32_t fd; /* chunk c is at fd_offset + c * chunk_bytes; the engine's */
	uint64_t fd_offset;
	void *base; /* where fd_offset is mapped here; NULL: not for RDMA */
	/*
	 * A file of slots beside the chunks, each as long as a chunk: spill()
	 * copies chunks there. share() makes the file, unnamed, in this folder
	 * of a local file system. It is written and read with O_DIRECT where
	 * the file system has it; chunk_bytes is then a multiple of the
	 * alignment that O_DIRECT needs (4096 will do). At most 1 GiB a chunk.
	 * Readers on the same node read the file; others see in_file.
	 *
	 * FUSE and network file systems are refused by name, KVPULL_EINVAL. No
	 * call is made there, since an open() may never return. Name the
	 * folder, not a link to it: the kernel follows a link, which may lead
	 * there. share() itself waits for a local disk to make the file.
	 */
	const char *slot_folder; /* NULL: no slots */
	uint32_t slot_count;     /* 0 .. KVPULL_READER_CHUNKS_MAX */
	uint32_t reserved;
};

/** An engine's own key: 1 .. KVPULL_READER_KEY_BYTES_MAX bytes. */
struct kvpull_reader_key {
	const void *bytes;
	size_t byte_count;
};

/** List a chunk, whose bytes are complete, under a key. */
struct kvpull_reader_put {
	size_t struct_size;
	struct kvpull_reader_key key;
	uint32_t chunk;
	uint32_t reserved;
	uint64_t generation; /* under which the bytes were written */
	uint64_t epoch;      /* epoch() when they were computed */
};

/** Copy chunks, listed or not, into slots of the file. puts are copied. */
struct kvpull_reader_spill {
	size_t struct_size;
	const struct kvpull_reader_put *puts; /* [put_count], as of put() */
	size_t put_bytes;                     /* sizeof(*puts), as in them */
	/* Keep them valid until poll() returns the end: it writes them. */
	int32_t *codes; /* [put_count]; 0: it is in the file, and listed there */
	uint32_t put_count; /* 1 .. KVPULL_READER_ITEMS_MAX */
	uint32_t reserved;
	uint64_t deadline_ns; /* 0: deadline_ms, or lease_ms, from now */
};

/** Where a probe found a key: in memory, if it is there. */
struct kvpull_reader_place {
	/*
	 * From the peer's chunk_count on: a slot of its file.
	 * KVPULL_READER_NONE: nothing that can be read from here.
	 */
	uint32_t chunk;
	uint32_t in_file; /* 1: it is in the owner's file alone */
	uint64_t generation;
};

/** Ask a peer's directory for keys. keys are copied. */
struct kvpull_reader_probe {
	size_t struct_size;
	uint32_t peer;
	uint32_t key_count;                   /* 1 .. KVPULL_READER_ITEMS_MAX */
	const struct kvpull_reader_key *keys; /* [key_count] */
	size_t key_bytes;                     /* sizeof(*keys) */
	/* Keep them valid until poll() returns the end: it writes them. */
	struct kvpull_reader_place *places; /* [key_count] */
	size_t place_bytes;                 /* sizeof(*places) */
	uint64_t deadline_ns; /* 0: deadline_ms, or lease_ms, from now */
};

/** A chunk as a probe found it, and the block that it is read into. */
struct kvpull_reader_piece {
	uint32_t chunk;
	uint32_t block;
	uint64_t generation;
};

/** Read chunks of a peer, or slots: not both at once. pieces are copied. */
struct kvpull_reader_read {
	size_t struct_size;
	uint32_t peer;
	uint32_t local; /* whose blocks are as long as the peer's chunks */
	const struct kvpull_reader_piece *pieces; /* [piece_count] */
	size_t piece_bytes;                       /* sizeof(*pieces) */
	/* Keep them valid until poll() returns the end: it writes them. */
	int32_t *codes;       /* [piece_count]; 0: these are the key's bytes */
	uint32_t piece_count; /* 1 .. KVPULL_READER_ITEMS_MAX */
	uint32_t reserved;
	uint64_t incarnation; /* as the end of the probe told it */
	uint64_t deadline_ns; /* 0: deadline_ms, or lease_ms, from now */
};

/**
 * The end of a probe, a read or a spill. code 0: a probe was answered, all
 * pieces of a read are good, all chunks of a spill are in the file. Other codes,
 * also of pieces:
 *
 *   KVPULL_ESTALE     The chunk was bumped, or the namespace is another. Probe
 *                     again; other pieces of the read may be good.
 *
 *   KVPULL_EAGAIN     The connection was cut: try again.
 *
 *   KVPULL_EREAD      The owner's file is shorter now, or its disk failed.
 *
 *   KVPULL_EDEADLINE, KVPULL_EABORTED  Ended early; no byte can land any more.
 *
 *   KVPULL_EPEER      The peer is lost.
 */
struct kvpull_reader_record {
	uint64_t id;
	uint64_t incarnation; /* of the peer: places and generations are its */
	int32_t code;
	uint32_t count; /* keys found, pieces that are good, chunks in the file */
};

/** A peer, in the order of their numbers. */
struct kvpull_reader_peer {
	uint32_t peer;
	/*
	 * 0: connected. KVPULL_EAGAIN: connecting. Other codes say why the
	 * reader gave the peer up: remove it.
	 */
	int32_t code;
	uint64_t incarnation; /* 0: not connected */
	uint64_t chunk_bytes;
	uint32_t chunk_count;
	uint32_t slot_count; /* of its file, that can be read from here */
	char engine_id[64];
	char route[16];
	char address[128];
};

struct kvpull_reader_ops {
	size_t struct_size;
	uint32_t abi_major;
	uint32_t abi_minor;
	const char *version; /* of the library, "1.2.3" */
	/** Text of an error: what it means and what to do. Never NULL. */
	const char *(*error_text)(int code);
	/**
	 * Return 0, KVPULL_EINVAL, KVPULL_ECONFIG, KVPULL_ENOMEM,
	 * KVPULL_EDEVICE, KVPULL_EUNSUPPORTED; detail (may be NULL) says why.
	 */
	int (*open)(const struct kvpull_reader_params *params,
		    struct kvpull_reader **reader,
		    struct kvpull_error_detail *detail);
	/** Unshares, ends probes and reads, frees all. NULL does nothing. */
	void (*close)(struct kvpull_reader *reader);

	/* The owner. */

	/**
	 * Make chunks, and let readers in. Once for a handle, unless it failed.
	 * memory->base has chunk c at c * chunk_bytes; it is there until close().
	 * With KVPULL_READER_SHARE_FD it is params->base, and memory->fd is -1.
	 * Return 0, KVPULL_EINVAL, KVPULL_ENOMEM, KVPULL_EDEVICE,
	 * KVPULL_EUNSUPPORTED (a file without base, where route is verbs).
	 */
	int (*share)(struct kvpull_reader *reader,
		     const struct kvpull_reader_share *params,
		     struct kvpull_memory *memory,
		     struct kvpull_error_detail *detail);
	/**
	 * Ends the share. Once this call has returned, no read of the share is
	 * believed and no reader is let in. poll() disconnects the readers that
	 * were in, whose peers() then say KVPULL_EPEER. Return 0, KVPULL_EINVAL
	 * (nothing is shared).
	 */
	int (*unshare)(struct kvpull_reader *reader);
	/**
	 * The address for peer_add() of other handles: NUL-terminated text.
	 * *byte_count includes the NUL. Return 0, KVPULL_EINVAL (nothing is
	 * shared), KVPULL_ETOOSMALL (*byte_count is the size needed).
	 */
	int (*address)(struct kvpull_reader *reader, char *text,
		       size_t capacity, size_t *byte_count);
	/**
	 * Before the first byte of the chunks is written again: withdraw their
	 * keys and begin new generations, [count], which may be NULL.
	 * Return 0, KVPULL_EINVAL (one is no chunk: nothing was done).
	 */
	int (*guard_bump)(struct kvpull_reader *reader, const uint32_t *chunks,
			  uint32_t count, uint64_t *generations);
	/**
	 * Bumps all chunks, before the first byte of a reset or of new weights.
	 * The epoch moves on: bytes computed before are never put. naming is the
	 * namespace from here on; NULL keeps the present one. With another
	 * namespace all probes and reads in flight end with KVPULL_ESTALE. So
	 * do later ones at peers of the old namespace: remove and add these
	 * peers. Works without a share.
	 * Return 0, KVPULL_EINVAL (naming: nothing was done).
	 */
	int (*guard_bump_all)(struct kvpull_reader *reader,
			      const struct kvpull_reader_naming *naming,
			      struct kvpull_error_detail *detail);
	/** Generation of the bytes in the chunk now. Return 0, KVPULL_EINVAL. */
	int (*generation)(struct kvpull_reader *reader, uint32_t chunk,
			  uint64_t *generation);
	/** Return 0, KVPULL_EINVAL (nothing is shared). */
	int (*epoch)(struct kvpull_reader *reader, uint64_t *epoch);
	/**
	 * Return 0, KVPULL_EAGAIN (an earlier write has not ended),
	 * KVPULL_EINVAL (no chunk, or it was put or spilled: bump it first).
	 */
	int (*write_begin)(struct kvpull_reader *reader, uint32_t chunk);
	/** Return 0, KVPULL_EINVAL (none was begun). */
	int (*write_end)(struct kvpull_reader *reader, uint32_t chunk);
	/**
	 * Lists a chunk under a key. A key that was listed with another chunk is
	 * then listed with this one. Return 0. After an error nothing changed:
	 *
	 *   KVPULL_ESTALE  The chunk or namespace was bumped since the write.
	 *
	 *   KVPULL_EAGAIN  A write to the chunk has not ended.
	 *
	 *   KVPULL_EFULL   No entry is free for this key: readers will miss it.
	 *
	 *   KVPULL_EINVAL  No such chunk, no key, or the chunk has another key.
	 */
	int (*put)(struct kvpull_reader *reader,
		   const struct kvpull_reader_put *put);
	/**
	 * Copies chunks into the file and lists them there. A key then stays in
	 * memory until its chunk is bumped. It stays in the file until its slot
	 * is taken again, the oldest first, or until all is bumped. Call it when
	 * the bytes are complete, while no write to the chunk is open. A chunk
	 * that was bumped, or that lost its slot, before the end of the spill is
	 * KVPULL_ESTALE and not listed. A key that is in the file already is not
	 * copied again. The owner reads the file as other readers do: peer_add()
	 * of its own address(), then read() into a chunk of its own.
	 * Codes: those of put(), and KVPULL_EREAD (the disk failed: the log says
	 * how), KVPULL_EDEADLINE, KVPULL_EABORTED (cancelled, or unshared). A
	 * slot whose write hangs is not used meanwhile.
	 * Return 0: a record with this id will come. After an error nothing was
	 * begun:
	 *
	 *   KVPULL_EFULL   KVPULL_READER_SPILLS_MAX are in flight: poll().
	 *
	 *   KVPULL_EINVAL  No slots, no such chunk, or no key.
	 */
	int (*spill)(struct kvpull_reader *reader,
		     const struct kvpull_reader_spill *spill, uint64_t *id);

	/* The reader. */

	/**
	 * Adds memory of this process that pieces are read into, as equal
	 * blocks. It stays mapped until close(). A share's own chunks will do.
	 * Return 0, KVPULL_EFULL, KVPULL_EINVAL (empty, or overlaps an earlier
	 * one). Where there is RDMA also KVPULL_ENOMEM (memlock),
	 * KVPULL_EDEVICE, KVPULL_EUNSUPPORTED (more than devices take). A device
	 * that is away registers it on its return.
	 */
	int (*local_add)(struct kvpull_reader *reader, void *base,
			 uint64_t block_bytes, uint32_t block_count,
			 uint32_t *local);
	/**
	 * Begins to connect; peers() returns the state. A lost connection is
	 * made again, a few times. Return 0, KVPULL_EFULL, KVPULL_EROUTE,
	 * KVPULL_EAGAIN (no room for it now), KVPULL_EINVAL.
	 */
	int (*peer_add)(struct kvpull_reader *reader, const char *address,
			uint32_t *peer);
	/**
	 * Ends all probes and reads at this peer and frees its number.
	 * Return 0, KVPULL_EINVAL.
	 */
	int (*peer_remove)(struct kvpull_reader *reader, uint32_t peer);
	/**
	 * peer_bytes: sizeof(*peers). Return: how many there are; of them, the
	 * first capacity are written. KVPULL_EINVAL.
	 */
	int (*peers)(struct kvpull_reader *reader,
		     struct kvpull_reader_peer *peers, uint32_t capacity,
		     size_t peer_bytes);
	/**
	 * Return 0: a record with this id will come. After an error nothing was
	 * begun:
	 *
	 *   KVPULL_EAGAIN  The peer is not connected yet.
	 *
	 *   KVPULL_EFULL   KVPULL_READER_OPEN_MAX are in flight: poll().
	 *
	 *   KVPULL_ESTALE  The peer's namespace is no longer this handle's.
	 *
	 *   KVPULL_EINVAL, or the code with which the peer was given up.
	 */
	int (*probe)(struct kvpull_reader *reader,
		     const struct kvpull_reader_probe *probe, uint64_t *id);
	/**
	 * Begins a read. Return as probe() does. KVPULL_ESTALE also means that
	 * the incarnation is not the peer's. KVPULL_EINVAL also means that
	 * another piece, or another read in flight, writes the same block, or
	 * that the local's blocks are not as long as the peer's chunks.
	 */
	int (*read)(struct kvpull_reader *reader,
		    const struct kvpull_reader_read *read, uint64_t *id);
	/** Cancels; the record still comes. Return 0, KVPULL_EINVAL (it ended). */
	int (*cancel)(struct kvpull_reader *reader, uint64_t id);
	/**
	 * Makes one bounded run of I/O and returns the records of ends.
	 * record_bytes: sizeof(*records). Return: records written, 0 ..
	 * capacity. If the result equals capacity there may be more: call again.
	 * KVPULL_EINVAL.
	 */
	int (*poll)(struct kvpull_reader *reader,
		    struct kvpull_reader_record *records, uint32_t capacity,
		    size_t record_bytes);

	/* Calls of the owner and of the reader. */

	/**
	 * A descriptor that is readable when poll() has something to do. It is
	 * level triggered: it stays readable until a poll had nothing to do and
	 * no record. probe(), read(), cancel(), peer_add() and peer_remove()
	 * make it readable; deadlines and reconnects do in their time. With
	 * EPOLLET, poll until the result is 0: no further edge comes before.
	 * The handle owns it: the engine neither reads nor closes it. An engine
	 * that never asks for it pays nothing.
	 * Return: the descriptor, the same at each call; KVPULL_EDEVICE (none
	 * can be made), KVPULL_EINVAL (NULL).
	 */
	int (*event_fd)(struct kvpull_reader *reader);
	/**
	 * Every counter of a handle, since it was opened. reader NULL: names,
	 * texts and kinds, values are 0. counter_bytes: sizeof(*counters).
	 * Return: how many there are; at most capacity are written.
	 * KVPULL_EINVAL (bad counter_bytes, or no array for a capacity).
	 */
	int (*counters)(struct kvpull_reader *reader,
			struct kvpull_counter *counters, uint32_t capacity,
			size_t counter_bytes);
};

/** Exported. The table lives as long as the library. */
const struct kvpull_reader_ops *kvpull_reader_v1(void);

typedef const struct kvpull_reader_ops *(*kvpull_reader_v1_fn)(void);

#ifdef __cplusplus
}
#endif

#endif /* KVPULL_READER_H */
