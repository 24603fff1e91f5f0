/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API fuzzer's other world: handles of kvpull_reader_v1(), owners and readers
 * of each other, and beside them an owner and a caller that say anything.
 *
 * pool_world   handles, their opening, and the end: all is answered, a newcomer
 *              is served
 * pool_owner   what an owner's host does, by the rules and against them
 * pool_reader  probes and reads, and what their ends must be
 * pool_false   the false owner and the false caller
 */
#ifndef KVPULL_TESTS_FUZZ_POOL_H
#define KVPULL_TESTS_FUZZ_POOL_H

#include "kvpull/reader.h"
#include "tests/fuzz/api.h"

#define POOL_HANDLES 3u
#define POOL_CHUNKS 12u
#define POOL_CHUNK_BYTES 1024u
#define POOL_SLOTS 5u /* of a file: soon taken again */
#define POOL_BLOCKS 48u
#define POOL_KEYS 20u
#define POOL_WEIGHTS 3u
#define POOL_FINDS 64u
#define POOL_PEERS 4u
#define POOL_ITEMS 16u /* of an ask, but for odd ones */

/* The bytes of a chunk, or those that are being written. */
struct pool_chunk {
	uint64_t key; /* 0: nothing */
	uint32_t weights;
	uint32_t is_writing;
	uint64_t generation;
	uint64_t epoch;
};

struct pool_find {
	uint64_t key; /* 0: none; UINT64_MAX: nobody's, its bytes are any */
	uint64_t incarnation;
	uint64_t generation;
	uint32_t weights;
	uint32_t peer;
	uint32_t chunk;
	uint32_t reserved;
};

struct pool_ask {
	uint64_t id; /* 0: free */
	uint32_t is_probe;
	uint32_t is_spill;
	uint32_t count;
	uint32_t peer;
	uint32_t is_false;
	uint32_t weights;
	struct pool_find finds[KVPULL_READER_ITEMS_MAX];
	uint32_t blocks[KVPULL_READER_ITEMS_MAX];
	uint8_t *places; /* exactly as long as the call was told */
	size_t place_bytes;
	int32_t *codes;
};

struct pool_peer {
	uint32_t is_used;
	uint32_t is_false;
	uint32_t number;
};

struct pool_handle {
	struct kvpull_reader *reader;
	uint32_t weights;
	uint32_t is_shared;
	/* When what is written next was computed. */
	uint32_t computed_weights;
	uint32_t has_slots;
	uint64_t computed_epoch; /* 0: never */
	char address[256];
	uint8_t *memory;
	struct pool_chunk chunks[POOL_CHUNKS];
	uint8_t *blocks; /* [POOL_BLOCKS][POOL_CHUNK_BYTES] */
	uint32_t local;
	uint32_t find_next;
	struct pool_find finds[POOL_FINDS];
	struct pool_peer peers[POOL_PEERS];
	struct pool_ask asks[KVPULL_READER_OPEN_MAX];
};

struct pool_counts {
	uint64_t puts, found, good, stale, other, messages, spilled, filed;
};

struct pool_world {
	const struct kvpull_reader_ops *ops;
	char folder[64];
	char config[512];
	struct pool_handle handles[POOL_HANDLES];
};

extern struct pool_world *pool_world;
extern struct pool_counts pool_counts;

/* ---- pool_world ---- */

void pool_run(uint64_t calls);
void pool_handle_open(struct pool_handle *handle);
void pool_handle_close(struct pool_handle *handle);
/* Naming with the handle's weights; the caller owns the model. */
struct kvpull_reader_naming pool_naming_of(struct kvpull_model *model,
					   uint32_t weights);

/* ---- pool_owner ---- */

uint64_t pool_word(uint64_t key, uint32_t weights, uint32_t at);
void pool_share(struct pool_handle *handle);
void pool_unshare(struct pool_handle *handle);
void pool_write_begin(struct pool_handle *handle);
void pool_write_on(struct pool_handle *handle);
void pool_write_end(struct pool_handle *handle);
void pool_put(struct pool_handle *handle);
void pool_bump(struct pool_handle *handle);
void pool_bump_all(struct pool_handle *handle);
void pool_spill(struct pool_handle *handle);
void pool_spill_ended(const struct pool_ask *ask,
		      const struct kvpull_reader_record *record);
void pool_owner_odd(struct pool_handle *handle);

/* ---- pool_reader ---- */

void pool_peer_add(struct pool_handle *handle);
void pool_peer_remove(struct pool_handle *handle);
void pool_probe(struct pool_handle *handle);
void pool_read(struct pool_handle *handle);
void pool_cancel(struct pool_handle *handle);
void pool_poll(struct pool_handle *handle);
void pool_reader_odd(struct pool_handle *handle);
/* Asks that have not ended. */
uint32_t pool_open(const struct pool_handle *handle);
/* The ask with this id; 0: a free one, or NULL. */
struct pool_ask *pool_ask_of(struct pool_handle *handle, uint64_t id);
/*
 * Judges the answer of a call that begins something: its ask is then open, or
 * free.
 */
void pool_ask_begun(struct pool_ask *ask, int code, int is_bad, uint64_t id);
/* The handle is closed: nobody writes into their arrays any more. */
void pool_asks_drop(struct pool_handle *handle);

/* ---- pool_false ---- */

void pool_false_open(void);
void pool_false_close(void);
/* The false owner's address, of its route. */
const char *pool_false_address(void);
/* The false owner looks at what came, and answers somehow. */
void pool_false_turn(struct pool_handle *handle);
/* The false caller calls at a handle's share. */
void pool_false_call(struct pool_handle *handle);

#endif /* KVPULL_TESTS_FUZZ_POOL_H */
