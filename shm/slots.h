/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side of a file of slots: an unnamed file, made here, and writes of
 * whole slots into it, 32 at once through io_uring; without it, and what it gave
 * up several times, one after the other, by a thread that pwrites.
 *
 * Written and read with O_DIRECT where the file system has it, else both through
 * the page cache: the two are never mixed, which a reader has by the descriptor
 * that it is handed (KVPULL_FILE_DIRECT_STRICT). A write whose end was not seen
 * may still land: its slot is nobody's until _poll() tells it.
 */
#ifndef KVPULL_SHM_SLOTS_H
#define KVPULL_SHM_SLOTS_H

#include "shm/disk.h"

#define KVPULL_SLOTS_DEPTH 32u
#define KVPULL_SLOT_BYTES_MAX (1u << 30)

struct kvpull_slots_params {
	const struct kvpull_log *log;
	const char *folder; /* of a local file system */
	uint64_t slot_bytes;
	uint32_t slot_count;
	enum kvpull_uring_mode uring;
};

struct kvpull_slots_write {
	const uint8_t *from;
	uint64_t offset;
	uint32_t done; /* bytes that were written */
	uint32_t tries;
	uint64_t tag;
	uint32_t is_open;
};

/* Zeroed: there is none. */
struct kvpull_slots {
	const struct kvpull_log *log;
	struct kvpull_uring uring;
	struct kvpull_disk disk; /* instead of it, or beside it */
	uint64_t bytes;          /* of the file; 0: there is none */
	uint32_t slot_bytes;
	uint32_t align; /* of memory, offsets and lengths; 1: not direct */
	int fd;
	int read_fd; /* O_RDONLY, for readers */
	int wake_fd; /* an eventfd: something was written */
	uint32_t open_count;
	struct kvpull_slots_write writes[KVPULL_SLOTS_DEPTH];
};

struct kvpull_slots_result {
	uint64_t tag;
	int32_t code; /* 0: all of it; KVPULL_EREAD, which is logged */
};

/**
 * Make the file, as long as it will be: a disk that is too small says so here.
 *
 * @why  out on failure: what to do, a static text; errno is logged
 * Return: 0; KVPULL_EINVAL (slot_bytes, the folder); KVPULL_ENOMEM (no
 * descriptor is left); KVPULL_EDEVICE;
 * KVPULL_EAGAIN (no thread for now).
 */
int KVPULL_MUST_CHECK
kvpull_slots_open(struct kvpull_slots *slots,
		  const struct kvpull_slots_params *params, const char **why);
/*
 * Waits for writes until close_by_ns. Return: how many hang, or 1: they may still read
 * their memory, which must stay mapped. Zeroed: nothing is done.
 */
uint32_t kvpull_slots_close(struct kvpull_slots *slots, uint64_t close_by_ns);
/* 1: it was cut; a write would make it long again, with zeros in listed slots. */
int kvpull_slots_is_short(const struct kvpull_slots *slots);
/*
 * slot_bytes, from memory that is aligned and there until the result comes; if
 * it changes meanwhile, nobody may read the slot. KVPULL_EAGAIN: 32 are open.
 */
int KVPULL_MUST_CHECK kvpull_slots_write(struct kvpull_slots *slots,
					 uint32_t slot, const uint8_t *from,
					 uint64_t tag);
/* Begin what was queued. Return: results, 0 .. capacity. */
uint32_t kvpull_slots_poll(struct kvpull_slots *slots,
			   struct kvpull_slots_result *results,
			   uint32_t capacity);
/* Before a sleep on wake_fd: 1: a poll has something to do. */
int kvpull_slots_arm(struct kvpull_slots *slots);

#endif /* KVPULL_SHM_SLOTS_H */
