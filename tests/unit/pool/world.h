/* SPDX-License-Identifier: Apache-2.0 */
/* An owner's pool in this process, and a reader that looks at its memory. */
#ifndef KVPULL_TESTS_UNIT_POOL_WORLD
#define KVPULL_TESTS_UNIT_POOL_WORLD

#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "base/transport.h"
#include "plugin/pool/pool.h"
#include "tests/lib/unit.h"

#define POOL_INCARNATION UINT64_C(0x1234567890abcdef)

struct pool_world {
	struct kvpull_arena arena;
	struct kvpull_pool_params params;
	struct kvpull_pool_namespace namespace_digest;
	struct kvpull_pool *pool;
};

struct kvpull_reader_naming pool_naming(void);
void pool_world_open(struct pool_world *world, uint32_t chunk_count,
		     uint32_t slot_count, uint32_t entry_count);
void pool_world_close(struct pool_world *world);

/* A test of *world, a pool of so many chunks, slots and entries. */
#define UNIT_TEST_POOL(name, chunks, slots, entries)                           \
	static void name##_of(struct pool_world *world);                       \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		struct pool_world world;                                       \
                                                                               \
		pool_world_open(&world, chunks, slots, entries);               \
		name##_of(&world);                                             \
		pool_world_close(&world);                                      \
	}                                                                      \
	static void name##_of(struct pool_world *world)

struct kvpull_pool_key pool_key(const struct pool_world *world,
				uint64_t number);
int pool_put_under(struct pool_world *world, uint64_t number, uint32_t place,
		   uint64_t generation);
int pool_put(struct pool_world *world, uint64_t number, uint32_t place);
uint32_t pool_probe_key(const struct pool_world *world,
			const struct kvpull_pool_key *key,
			struct kvpull_pool_found *found);
uint32_t pool_probe(const struct pool_world *world, uint64_t number,
		    struct kvpull_pool_found *found);
int pool_is_valid(const struct pool_world *world,
		  const struct kvpull_pool_place *place);

#endif /* KVPULL_TESTS_UNIT_POOL_WORLD */
