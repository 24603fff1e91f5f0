/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose entries for peers are all used: claims that wait have half of
 * them, and pulls whose reads run the others.
 */
#ifndef KVPULL_TESTS_UNIT_WORKER_ROOM
#define KVPULL_TESTS_UNIT_WORKER_ROOM

#include "tests/unit/worker/peer.h"

#define WAITED 4u /* peers_max */

/* More tickets and pulls than entries. */
int room_setup(void **state);
/* Likewise, and every entry is used: all_used(). */
int room_setup_full(void **state);
/* Likewise, and reads end as they begin. */
int room_setup_quick(void **state);

#define ROOM_TEST(name)                                                        \
	UNIT_TEST_OF(name, struct world, world, room_setup, world_teardown)
#define FULL_ROOM_TEST(name)                                                   \
	UNIT_TEST_OF(name, struct world, world, room_setup_full, world_teardown)
#define QUICK_ROOM_TEST(name)                                                  \
	UNIT_TEST_OF(name, struct world, world, room_setup_quick,              \
		     world_teardown)

/* A pull's key is its producer's number. */
void claim_and_pull(struct world *world, uint32_t producer, uint32_t ranks);

/* Every entry is an open claim's: the second half are pulls', whose reads run. */
void all_used(struct world *world);

/* The read from that producer ends. Return: its peer. */
uint32_t read_end(struct world *world, uint32_t producer);

/* The same, and its connection goes down, which leaves its entry free. */
uint32_t peer_end(struct world *world, uint32_t producer);

/*
 * The read from `from` ends, and soon the entry of its peer is that of `to`; so
 * do the reads from the next ones, for the next of that list, which 0 ends.
 */
void goes_to(struct world *world, uint32_t from, uint32_t to);
void go_to(struct world *world, uint32_t from, const uint32_t *to);
#define GO_TO(world, from, ...)                                                \
	go_to(world, from, (const uint32_t[]){ __VA_ARGS__, 0 })

/* Claims that wait are tried again so often. */
void tries_pass(struct world *world, uint32_t times);

#endif /* KVPULL_TESTS_UNIT_WORKER_ROOM */
