/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File regions: blocks that lie in an unnamed file of the producer's, handed
 * over as a descriptor that can read; and memory of an engine's own that we
 * cannot seal, which is read as a file and not mapped: its owner can shorten it.
 *
 * No seal keeps a reader from writing, as one does with a memfd: only the file
 * system's own rights do. So the file must be its producer's, and gets mode
 * 0444; a consumer of another uid cannot open it for writing. One of the same
 * uid (or root) can give itself the right; see README.md.
 */
#ifndef KVPULL_SHM_FILE_H
#define KVPULL_SHM_FILE_H

#include <stdint.h>

#include "base/log.h"

/* A file system that wants more for O_DIRECT is read through the page cache. */
#define KVPULL_FILE_ALIGN_MAX 4096u

enum kvpull_file_direct {
	KVPULL_FILE_DIRECT_AUTO = 0, /* O_DIRECT where the file takes it */
	KVPULL_FILE_DIRECT_NO,
	/* As the descriptor is: its writer is either, and the two never mix. */
	KVPULL_FILE_DIRECT_STRICT
};

/* May files be read by a thread of ours, where io_uring is not allowed? */
enum kvpull_file_thread {
	KVPULL_FILE_THREAD_NO = 0,
	KVPULL_FILE_THREAD_YES
};

/* A peer's region in a file; zeroed: the region is none. */
struct kvpull_file {
	uint64_t bytes;
	uint64_t offset; /* of the region in the file */
	int fd;          /* reads through the page cache */
	int direct_fd;   /* O_DIRECT; -1: the file does not take it */
	uint32_t align;  /* of direct reads, a power of two; 1: none are made */
	uint32_t is_strict; /* no read goes through the page cache */
};

/**
 * Producer: may these bytes be served, and by which descriptor?
 *
 * @fd      the engine's, readable; stays the engine's
 * @handed  out: O_RDONLY, of the same file; the caller's to close
 * @why     out on failure: what is wrong with the file, a static text
 * Return: 0; KVPULL_EINVAL (not a regular unnamed file of ours, too short);
 * KVPULL_EDEVICE.
 */
int KVPULL_MUST_CHECK kvpull_file_serve(int fd, uint64_t offset, uint64_t bytes,
					int *handed, const char **why);

/*
 * Alignment that O_DIRECT needs; 0: the file does not take O_DIRECT, or needs
 * too much.
 */
uint32_t kvpull_file_align(int fd, uint64_t offset);
/*
 * Opens one of our files for reading alone, with flags (O_DIRECT). Returns -1
 * with errno.
 */
int kvpull_file_reader(int fd, int flags);

/* Memory of the engine's own, in a file that may have a name; zeroed: none. */
struct kvpull_file_lent {
	uint32_t is_lent;
	uint32_t mode;
	uint64_t offset;
	uint64_t bytes;
	int lock_fd; /* the engine's open file description */
	int fd;      /* O_RDONLY, of the same file */
};

/**
 * Owner: may these bytes, which change, be read by others? They are locked for
 * it alone, and the file's sticky bit, which means nothing else, says so still
 * when the owner was killed: a reader of the dead one reads what is written
 * there next.
 *
 * @fd    the engine's, open for reading and writing; may be closed after
 * @lent  out; zeroed on failure
 * Return: as kvpull_file_serve().
 */
int KVPULL_MUST_CHECK kvpull_file_lend(int fd, uint64_t offset, uint64_t bytes,
				       struct kvpull_file_lent *lent,
				       const char **why);
/*
 * After this no read of the memory is believed. A zeroed struct is left alone.
 */
void kvpull_file_take_back(struct kvpull_file_lent *lent);

/**
 * Consumer: take a peer's descriptor for its region. It is checked, and
 * duplicated: the argument stays the caller's.
 *
 * @file  in: bytes > 0 and offset, as the peer said; zeroed on failure
 * Return: 0; KVPULL_EPROTO (not a regular file for reading, too short);
 * KVPULL_ENOMEM (out of descriptors: errno, not logged).
 */
int KVPULL_MUST_CHECK kvpull_file_open(struct kvpull_file *file, int fd,
				       enum kvpull_file_direct direct,
				       const struct kvpull_log *log);
/* Closes a peer's file; a zeroed or closed one is left alone. */
void kvpull_file_close(struct kvpull_file *file);

#endif /* KVPULL_SHM_FILE_H */
