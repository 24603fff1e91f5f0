/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two same-node transports in one process, a folder for their sockets, and
 * virtual time. Waiting is on the transport's own descriptor, so it ends when
 * there is something to see; loops are bounded by WORLD_TURNS_MAX.
 */
#ifndef KVPULL_TESTS_UNIT_SHM_WORLD
#define KVPULL_TESTS_UNIT_SHM_WORLD

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ring.h"
#include "shm/endpoint.h"
#include "shm/segment.h"
#include "shm/shm.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define WORLD_TURNS_MAX 2000u
#define WORLD_WAKES_MAX 200000u
#define WORLD_QUEUE_MAX 64u
#define WORLD_CALLERS_MAX 4u
#define WORLD_SLOTS 8u
#define WORLD_BLOCK_BYTES 4096u
#define WORLD_BLOCKS_MAX 2560u /* 10 MiB: more than two foreign slices */
#define WORLD_INCARNATION UINT64_C(0x1234567890abcdef)
#define WORLD_INLINE_BYTES 65536u

/*
 * Blocks of the region: WORLD_BLOCKS_MAX, unless a test program sets another
 * count.
 */
extern uint32_t world_blocks;

struct side {
	struct kvpull_transport *transport;
	struct kvpull_arena arena;
	struct kvpull_event queue[WORLD_QUEUE_MAX]; /* data: first 64 bytes */
	uint8_t data[WORLD_QUEUE_MAX][64];
	uint32_t queue_first;
	uint32_t queue_count;
};

struct world {
	char folder[64];
	struct kvpull_log log;
	struct side p;
	struct side d;
	uint64_t now_ns;
	uint32_t fds_at_start;
	struct kvpull_shared kv;
	struct kvpull_shared entries_memory;
	struct kvpull_revocation_entry *entries;
	struct kvpull_serve serve;
	uint8_t *local;
	uint32_t slots[WORLD_SLOTS];
	struct kvpull_revocation_value checked[WORLD_SLOTS];
	uint32_t caller;
	uint32_t peer;
	struct kvpull_ring *ring;
	uint32_t ids[WORLD_BLOCKS_MAX];
	uint32_t local_ids[WORLD_BLOCKS_MAX];
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	struct kvpull_strip strip;
};

struct kvpull_shm_params world_params(const struct world *world,
				      const char *name);
void side_open(struct side *side, const struct kvpull_shm_params *params);
void side_close(struct side *side);

/* The blocks of P, in a segment; each 512 bytes differ from their neighbours. */
void world_memory_make(struct world *world);
void world_begin(struct world *world);
void world_end(struct world *world);
/* P is opened, and serves the memory; its name alone is given, or all. */
void world_serve(struct world *world, const char *name);
void world_serve_as(struct world *world,
		    const struct kvpull_shm_params *params);
/* P ends, and serves the same memory as one of its engine's own. */
void world_serve_foreign(struct world *world);

/* D, as world_params() has it. */
void world_open_consumer(struct world *world);

/* P with its memory, listening as "p"; and D. */
void world_open(struct world *world);
void world_close(struct world *world);

/* A test of *world, which `begin` opens and world_close() closes. */
#define UNIT_TEST_IN_WORLD(name, begin)                                        \
	UNIT_TEST_BETWEEN(name, world, begin, world_close)

#define UNIT_TEST_OPEN(name) UNIT_TEST_IN_WORLD(name, world_open)
#define UNIT_TEST_CONNECTED(name) UNIT_TEST_IN_WORLD(name, world_open_connected)

uint32_t side_poll(struct world *world, struct side *side);

/* Look at once, whatever the transport saves itself in a tight loop. */
void side_look(struct world *world, struct side *side);

/* Sleep as an owner does, until its descriptor or 20 ms. */
void side_rest(struct side *side);

/* The side's next event, which must be of that kind. */
struct kvpull_event world_expect(struct world *world, struct side *side,
				 enum kvpull_event_kind kind);

/* D's next event: its peer is down, for that reason. Return: which peer. */
uint32_t world_peer_down(struct world *world, int32_t code);
/* D's next event: a read from world->peer ended so. Return: which read. */
const struct kvpull_read *world_read_done(struct world *world, int32_t code);

/* D connects to "p"; world->peer is P. */
void world_call(struct world *world);
/* world_call(), challenge, hello; P has not answered yet. */
void world_greet(struct world *world);
void world_welcome(struct world *world);
int world_attach(struct world *world, const struct kvpull_serve *remote);
void world_connect(struct world *world);
void world_open_connected(struct world *world);

/* A read of block_count blocks, the last first, into local blocks 0, 1 ... */
struct kvpull_read world_read(struct world *world, uint32_t block_count);
void world_read_verify(const struct world *world, uint32_t block_count);

#endif /* KVPULL_TESTS_UNIT_SHM_WORLD */
