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

/* A pull's key is its producer's number. */
void claim_and_pull(struct world *world, uint32_t producer, uint32_t ranks);

/* Every entry is an open claim's: the second half are pulls', whose reads run. */
void all_used(struct world *world);

/* The read from that producer ends. Return: its peer. */
uint32_t read_end(struct world *world, uint32_t producer);

/* The same, and its connection goes down, which leaves its entry free. */
uint32_t peer_end(struct world *world, uint32_t producer);

/* The read from `from` ends, and soon the entry of its peer is that of `to`. */
void goes_to(struct world *world, uint32_t from, uint32_t to);

#endif /* KVPULL_TESTS_UNIT_WORKER_ROOM */
