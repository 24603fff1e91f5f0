/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners with pools and one reader, in this process, over the loop route: its
 * delays, repeats and cuts come from a seed. A hook may act as the owner at the
 * two moments that matter: before the data is read, and before the guards are.
 */
#ifndef KVPULL_TESTS_UNIT_SHARE_WORLD_H
#define KVPULL_TESTS_UNIT_SHARE_WORLD_H

#include "plugin/share/reader.h"
#include "tests/fake/loop.h"
#include "tests/unit/pool/world.h"

#define SHARE_CHUNKS 16u
#define SHARE_CHUNK_BYTES 256u
#define SHARE_BLOCKS 32u
#define SHARE_STEP_NS 50000u

struct share_world {
	struct loop_net *net;
	struct pool_world owner;
	uint8_t chunks[SHARE_CHUNKS][SHARE_CHUNK_BYTES];
	struct kvpull_serve serve;
	struct kvpull_transport *owner_end;
	struct kvpull_transport *route;  /* the reader's */
	struct kvpull_transport_ops ops; /* the route's, with the hooks */
	struct kvpull_share_reader_peer params;
	struct kvpull_arena arena;
	struct kvpull_share_reader *reader;
	uint8_t blocks[SHARE_BLOCKS][SHARE_CHUNK_BYTES];
	uint64_t seed;
	uint64_t now_ns;
	uint32_t handle; /* the route's, of the owner */
	uint32_t peer;
	uint32_t local;
	uint32_t is_down;
	uint32_t caller;
	/* Called before a read or a check begins, once each. */
	void (*before_data)(struct share_world *world);
	void (*before_guards)(struct share_world *world);
	uint32_t checks;
};

/* Opens a world; there is one at a time. */
struct share_world *share_open(uint64_t seed);
void share_close(struct share_world *world);

/* A test of *world, a world of each of these seeds in turn; or of one seed. */
#define SHARE_TEST(name, first, last)                                          \
	static void name##_of(struct share_world *world);                      \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		uint64_t seed;                                                 \
                                                                               \
		for (seed = (first); seed <= (last); seed++) {                 \
			struct share_world *world = share_open(seed);          \
                                                                               \
			name##_of(world);                                      \
			share_close(world);                                    \
		}                                                              \
	}                                                                      \
	static void name##_of(struct share_world *world)

#define UNIT_TEST_SEEDS(name, count) SHARE_TEST(name, 1, count)
#define UNIT_TEST_SHARE(name, seed) SHARE_TEST(name, seed, seed)

/* Bump, write and put: the bytes say key and generation. */
void share_put(struct share_world *world, uint64_t key, uint32_t place);
/* These are the bytes of this key under this generation. */
int share_is_of(const uint8_t *chunk, uint64_t key, uint64_t generation);

/* Poll until an end is there. */
void share_wait(struct share_world *world, struct kvpull_share_reader_end *end);
/* Makes one round of polls. */
void share_turn(struct share_world *world);
/* Ask for one key and wait for the answer. Return: places. */
uint32_t share_probe(struct share_world *world, uint64_t key,
		     struct kvpull_pool_found *found);
/* Begin to read the places found, into the blocks from `first` on. */
int share_read(struct share_world *world, const struct kvpull_pool_found *found,
	       uint32_t count, uint32_t first, uint64_t *id);

#endif /* KVPULL_TESTS_UNIT_SHARE_WORLD_H */
