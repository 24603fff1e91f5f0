/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner of a share: its places, their guards, and which key each is listed
 * under. Pure: no I/O, no clock, no thread, no allocation after open. One
 * thread's.
 *
 * A guard is a revocation entry: the generation of the bytes in its place is one
 * more than the last that was revoked. A place's life:
 *   bump (new generation) -> write_begin -> bytes -> write_end -> put -> bump ...
 * A place whose write has not ended is quarantined: bumped it may be, filled and
 * put it may not.
 */
#ifndef KVPULL_PLUGIN_POOL_H
#define KVPULL_PLUGIN_POOL_H

#include "plugin/pool/directory.h"

struct kvpull_pool_params {
	struct kvpull_pool_share share;
	/* The directory that readers see; begins as zeros; not owned. */
	struct kvpull_pool_entry *entries; /* [share.entry_count] */
	/*
	 * [chunks and slots], zeroed. A predecessor's, where readers may still
	 * be, must count on: one word of a guard may come before its
	 * successor's incarnation is there, and the other one after.
	 */
	struct kvpull_revocation_entry *guards;
};

struct kvpull_pool_put {
	struct kvpull_pool_key key;
	uint32_t place;
	uint32_t reserved;
	uint64_t generation; /* under which its bytes were written */
	uint64_t epoch;      /* in which they were computed */
};

struct kvpull_pool; /* pool.c */

/*
 * NULL: the arena is too small. entry_count is at least a window; README.md
 * has the figures of how many a place needs.
 */
struct kvpull_pool *kvpull_pool_open(const struct kvpull_pool_params *params,
				     struct kvpull_arena *arena);

/* Counts the namespaces: the first is 1, kvpull_pool_bump_all() begins another. */
uint64_t kvpull_pool_epoch(const struct kvpull_pool *pool);

/*
 * Generation of the bytes that are in the place now. 0: there is no such place.
 */
uint64_t kvpull_pool_generation(const struct kvpull_pool *pool, uint32_t place);

/*
 * Bytes are about to be written into the place. Return: 0; KVPULL_EAGAIN: the
 * end of an earlier write was not seen; KVPULL_EINVAL: no such place, or it was
 * written, put or read (_use()) under this generation: bump it first.
 */
int KVPULL_MUST_CHECK kvpull_pool_write_begin(struct kvpull_pool *pool,
					      uint32_t place);

/* No byte of the write can land any more. KVPULL_EINVAL: none was begun. */
int KVPULL_MUST_CHECK kvpull_pool_write_end(struct kvpull_pool *pool,
					    uint32_t place);

/* 1: the end of a write to it was not seen. */
int kvpull_pool_is_writing(const struct kvpull_pool *pool, uint32_t place);

/* Where the key is listed as a place of this one's kind, or KVPULL_NONE. */
uint32_t kvpull_pool_find(const struct kvpull_pool *pool,
			  const struct kvpull_pool_key *key, uint32_t place);

/*
 * Are the bytes in the place those of the put, complete? As kvpull_pool_put():
 * 0, KVPULL_ESTALE, KVPULL_EAGAIN, KVPULL_EINVAL.
 */
int KVPULL_MUST_CHECK kvpull_pool_check(const struct kvpull_pool *pool,
					const struct kvpull_pool_put *put);

/*
 * The bytes of a put are about to be read: what is written there next is of
 * another generation. Nothing where they are not those in the place.
 */
void kvpull_pool_use(struct kvpull_pool *pool,
		     const struct kvpull_pool_put *put);

/*
 * List a place, whose bytes are complete and visible, under a key. Where the key
 * has another place of the kind, it is listed here instead. Return: 0; nothing
 * is changed by
 *   KVPULL_ESTALE  guard or namespace have moved on: the bytes are not the key's
 *   KVPULL_EAGAIN  the place is quarantined
 *   KVPULL_EFULL   no entry is free in this key's window: readers will miss it
 *   KVPULL_EINVAL  no such place, or the place has another key
 */
int KVPULL_MUST_CHECK kvpull_pool_put(struct kvpull_pool *pool,
				      const struct kvpull_pool_put *put);

/*
 * Withdraw the places' entries, move their guards on, and fence: when this has
 * returned no read of the old bytes is believed. generations may be NULL, or has
 * room for the new ones. KVPULL_EINVAL: one is no place; nothing was done.
 */
int KVPULL_MUST_CHECK kvpull_pool_bump(struct kvpull_pool *pool,
				       const uint32_t *places, uint32_t count,
				       uint64_t *generations);

/*
 * Likewise all places: a reset, or new weights, before their first byte. What
 * was computed before is never put: the epoch moves on, and who makes the keys
 * takes the new namespace from here on.
 */
void kvpull_pool_bump_all(struct kvpull_pool *pool);

/* The owner's end: all is withdrawn, and no guard is of its incarnation. */
void kvpull_pool_close(struct kvpull_pool *pool);

#endif /* KVPULL_PLUGIN_POOL_H */
