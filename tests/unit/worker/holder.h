/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that holds one request's blocks, and consumers that speak of them. */
#ifndef KVPULL_TESTS_UNIT_WORKER_HOLDER
#define KVPULL_TESTS_UNIT_WORKER_HOLDER

#include "tests/unit/worker/peer.h"

#define KEY 7u
#define SLOT 3u
#define GENERATION 9u
#define LEASE_NS (3000 * WORLD_MS)

void hold(struct world *world);
/* A consumer of one rank is let in. */
struct world_caller *consumer(struct world *world, uint32_t index,
			      uint64_t instance);
void say(struct world *world, struct world_caller *caller, uint32_t kind);
/* Likewise, and the worker polls. */
void tell(struct world *world, struct world_caller *caller, uint32_t kind);
/* The scheduler half ends the hold, of that generation, for this reason. */
struct kvpull_command end_of(uint64_t generation, int32_t reason);
/* The hold ended, for this reason. */
void ended(const struct world *world, int32_t reason);

/* A test in which the worker has the hold. */
#define HELD_TEST(name) WORLD_TEST_AFTER(name, hold(world))

/* Likewise, and `caller` is a consumer that was let in. */
#define HEARD_TEST(name)                                                       \
	static void name##_of_caller(struct world *world,                      \
				     struct world_caller *caller);             \
	WORLD_TEST(name)                                                       \
	{                                                                      \
		struct world_caller *caller = consumer(world, 0, 0x11);        \
                                                                               \
		hold(world);                                                   \
		name##_of_caller(world, caller);                               \
	}                                                                      \
	static void name##_of_caller(struct world *world,                      \
				     struct world_caller *caller)

#endif /* KVPULL_TESTS_UNIT_WORKER_HOLDER */
