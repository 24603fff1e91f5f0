/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a peer's file regions: pieces of up to 128 KiB, 32 at once through
 * io_uring; without it one after the other, by a thread that preads.
 *
 * A piece is read into a bounce buffer of ours and copied from there, by the
 * owner's thread. So the kernel never writes into the engine's blocks: a read
 * can end while its pieces are still under way, misaligned rows cost nothing
 * extra, and registering needs little memlock. The copy is a few percent of a
 * disk's time. Rows that lie less than a page apart share a piece.
 */
#ifndef KVPULL_SHM_FILE_READ_H
#define KVPULL_SHM_FILE_READ_H

#include "base/arena.h"
#include "base/rows.h"
#include "base/transport.h"
#include "base/turns.h"
#include "shm/disk.h"
#include "shm/file.h"
#include "shm/uring.h"

#define KVPULL_FILE_DEPTH 32u
#define KVPULL_FILE_PIECE_BYTES 131072u
#define KVPULL_FILE_BOUNCE_BYTES                                               \
	((size_t)KVPULL_FILE_DEPTH * KVPULL_FILE_PIECE_BYTES)

/* The file strips of one read. */
struct kvpull_file_read {
	const struct kvpull_read *read;   /* NULL: not started, or ended */
	struct kvpull_file *files;        /* by region_index: the peer's */
	struct kvpull_rows_cursor cursor; /* the first row not asked for */
	uint32_t exhausted;               /* all rows were asked for */
	uint32_t pieces_open;
	int32_t code; /* what it ends with */
};

struct kvpull_file_piece {
	struct kvpull_file_read *owner; /* NULL: free, or its read has ended */
	struct kvpull_rows_cursor from; /* the first row in it */
	uint64_t start;                 /* in the file */
	uint64_t row_bytes;             /* of the rows in it */
	uint32_t bytes;                 /* asked for */
	uint32_t needed;                /* fewer than this is a short read */
	uint32_t region_index;
	uint32_t tries;
	uint32_t is_direct;
	uint32_t next_free;
	uint8_t *bounce;
};

struct kvpull_files {
	const struct kvpull_log *log;
	struct kvpull_uring uring;
	struct kvpull_disk disk;          /* instead of it */
	struct kvpull_file_piece *pieces; /* [KVPULL_FILE_DEPTH] */
	struct kvpull_file_read **reads;  /* [read_max], by index */
	struct kvpull_index_list queue;   /* of them: not ended */
	struct kvpull_turns asking;       /* of those: not exhausted */
	uint8_t *bounce;                  /* its own mapping */
	uint32_t read_max;
	uint32_t piece_free; /* KVPULL_NONE: none */
	uint32_t is_prepared;
};

/* Memory alone; nothing of it is locked or touched before _prepare(). */
int KVPULL_MUST_CHECK kvpull_files_open(struct kvpull_files *files,
					uint32_t read_max,
					struct kvpull_arena *arena,
					const struct kvpull_log *log);
/* From any thread; reads that have not ended never do. */
void kvpull_files_close(struct kvpull_files *files, uint64_t close_by_ns);

/*
 * By the owner, when a file is met; once is enough. Without io_uring reads need
 * a thread. wake_fd: non-blocking eventfd, written when a piece comes.
 * Return: 0; KVPULL_EUNSUPPORTED: no io_uring, and threads are not wanted;
 * KVPULL_EAGAIN: no thread for now. Both are logged.
 */
int KVPULL_MUST_CHECK kvpull_files_prepare(struct kvpull_files *files,
					   enum kvpull_uring_mode mode,
					   enum kvpull_file_thread thread,
					   int wake_fd);
/* Read all rows of `read` that lie in a file. It ends in some poll. */
void kvpull_files_start(struct kvpull_files *files,
			struct kvpull_file_read *file_read,
			const struct kvpull_read *read,
			struct kvpull_file *peer_files);
/*
 * Nothing more is written into its blocks from here on; it ends with code at
 * the next poll, whatever its pieces do.
 */
void kvpull_files_cancel(struct kvpull_files *files,
			 struct kvpull_file_read *file_read, int code);
/*
 * Get on. Return: how many have ended; of each, code says how, and its read is
 * the caller's to clear.
 */
uint32_t kvpull_files_poll(struct kvpull_files *files,
			   struct kvpull_file_read **ended, uint32_t capacity);
/* Before a sleep on wake_fd: 1 = a poll would get on. */
int kvpull_files_arm(struct kvpull_files *files);

#endif /* KVPULL_SHM_FILE_READ_H */
