/* SPDX-License-Identifier: Apache-2.0 */
/* A pool's owner that reuses every chunk, and who reads it. */
#ifndef KVPULL_TESTS_F14_H
#define KVPULL_TESTS_F14_H

#include <stdatomic.h>
#include <sys/types.h>

#include "kvpull/reader.h"
#include "tests/scenario/scenario.h"

#define F14_CHUNKS 64u
#define F14_CHUNK_BYTES 32768u
#define F14_PIECES 128u /* of a read that takes two polls; each chunk twice */
#define F14_NAP_NS_MAX 1000000u
#define F14_LIMIT_NS (5 * SCENARIO_NS_PER_S * patience())
#define F14_REST_ASKED 1u
#define F14_REST_TAKEN 2u
#define F14_SLOTS 16u

/* Shared by the case and the owner. */
struct f14_arena {
	_Atomic uint64_t newest; /* key that was put last */
	_Atomic uint32_t stop;
	_Atomic uint32_t is_up;
	_Atomic uint32_t rest;   /* the owner reuses nothing: F14_REST_ */
	_Atomic uint32_t slower; /* the owner's naps are so many times longer */
	char path[64];  /* of the owner's memory; "": share() makes it */
	char slots[64]; /* folder of its file of slots; "": it has none */
	_Atomic uint64_t filed[F14_SLOTS]; /* keys that are in the file alone */
	/* Sums over all rounds, each of which is a process. */
	_Atomic uint64_t good;
	_Atomic uint64_t longest_ns;
	char address[256];
	char said[512]; /* by the owner, when it refused */
};

struct f14_reader {
	const struct kvpull_reader_ops *ops;
	struct kvpull_reader *handle;
	uint8_t *blocks; /* [F14_PIECES][F14_CHUNK_BYTES] */
	uint32_t local;
	uint32_t peer;
	uint64_t random;
	uint64_t tries, good, stale, missed, wrong, torn;
	char said[512];
};

extern uint32_t f14_readers_max; /* consumers_max of handles from here on */

struct kvpull_reader *f14_handle_open(const struct scenario *scenario,
				      const struct kvpull_reader_ops **ops,
				      const char *weights, char *said);
struct f14_arena *f14_arena_make(void);
pid_t f14_owner_start(const struct scenario *scenario, struct f14_arena *arena);
void f14_owner_stop(struct f14_arena *arena, pid_t pid);

/* A word of a key's bytes. */
uint64_t f14_word_of(uint64_t key, uint32_t at);

/* Until it is connected or given up. Return: its code. */
int32_t f14_reader_start(struct f14_reader *reader,
			 const struct scenario *scenario,
			 const struct f14_arena *arena, const char *weights);
void f14_reader_stop(struct f14_reader *reader);
/* Return: 0, or why nothing was begun. */
int f14_probe(struct f14_reader *reader, const uint64_t *keys, uint32_t count,
	      struct kvpull_reader_place *places,
	      struct kvpull_reader_record *record);
/* Waits for the record of a probe or read that was begun. */
void f14_await(struct f14_reader *reader, struct kvpull_reader_record *record);

/* Makes a probe of young keys and a read. Returns 0, or why it could not. */
int f14_try(struct f14_reader *reader, const struct f14_arena *arena);

/* f14_file.c: an owner with a file of its own */
struct f14_arena *f14_arena_of_file(void);
/* As an engine has it: made by it, mapped, and with a name. */
void f14_file_make(const char *path, struct kvpull_reader_share *share);
void f14_shortened(const struct scenario *scenario);
void f14_successor(const struct scenario *scenario);

/* f14_bounds.c */
void f14_full(const struct scenario *scenario);
void f14_sparse(const struct scenario *scenario);

/* f14_slots.c: an owner that spills each chunk, and bumps it then */
struct f14_arena *f14_arena_of_slots(const char *folder);
void f14_slots_key(const struct f14_arena *arena, uint32_t at, uint64_t *key);
/* The key's chunk is full: to the file with it. */
void f14_slots_reuse(const struct kvpull_reader_ops *ops,
		     struct kvpull_reader *handle, struct f14_arena *arena,
		     uint64_t key);

/* f14_stalls.c */
struct f14_stall_counts {
	uint64_t stalls;
	/* Pieces whose chunk was reused in a stall, by how much was copied. */
	uint64_t uncopied, in_part, copied;
	uint64_t believed; /* of those */
	uint64_t good, wrong;
	uint64_t over; /* reads that left no time to stall in */
};

/* So many stalls, before a read or in it, and says what came of them. */
void f14_stalls(const struct scenario *scenario, uint64_t stalls,
		uint64_t limit_ns, struct f14_stall_counts *counts);

#endif /* KVPULL_TESTS_F14_H */
