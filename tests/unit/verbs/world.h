/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two verbs routes in one process over the fake fabric: a producer P with
 * blocks and a revocation table, a consumer D that reads them. Time is ours.
 */
#ifndef KVPULL_TESTS_UNIT_VERBS_WORLD
#define KVPULL_TESTS_UNIT_VERBS_WORLD

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/ring.h"
#include "tests/fake/verbs.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"
#include "verbs/frame.h"
#include "verbs/verbs.h"

#define WORLD_BLOCKS 64u
#define WORLD_BLOCK_BYTES 256u
#define WORLD_BYTES (WORLD_BLOCKS * WORLD_BLOCK_BYTES)
#define WORLD_SLOTS 8u
#define WORLD_NOTES 1024u
#define WORLD_RING_RECORDS 16u
#define WORLD_CALLERS 64u
#define WORLD_INCARNATION 77u
#define WORLD_MS_FLUSHED 250u /* both time-outs of a lost rail, and some */
#define WORLD_STEP_NS KVPULL_NS_PER_MS

/* A side: P or D. */
struct world_side {
	struct kvpull_arena arena;
	struct kvpull_transport *route;
	struct kvpull_log log;
	uint8_t *memory;
	struct kvpull_revocation_entry *entries;
	struct kvpull_serve serve;
	/* what it was told */
	uint32_t ups, downs, messages, addresses;
	int32_t down_code;
	uint32_t handle; /* of the last one */
	uint32_t reads_done, checks_done;
	int32_t read_code, check_code;
	char message[64];
	struct kvpull_ring *rings[WORLD_CALLERS];   /* of who was let in */
	uint8_t given[KVPULL_VERBS_GIVE_BYTES_MAX]; /* the last give-back */
	uint32_t given_bytes, given_count;
};

struct world {
	struct world_side p, d;
	struct kvpull_record notes[WORLD_NOTES];
	uint32_t note_count, beat_count;
	uint32_t keeps_rings; /* nobody takes what is in them */
	uint32_t refuses;     /* P refuses who says hello */
	uint32_t silent;      /* P does not challenge */
	uint32_t leaves;      /* D says why, and goes, when it is welcomed */
	uint32_t attach_code;
	const char *networks; /* of who is opened next */
	uint32_t batch;       /* work requests of one doorbell; 0: as it is */
	uint32_t rails;
	uint32_t qps;
	uint32_t depth;
	uint64_t window_bytes;
	uint32_t callers_max;         /* 0: 4 */
	uint32_t credits;             /* likewise */
	const char *device, *address; /* as configured */
	uint32_t listen_port;
	uint32_t device_port, gid_index; /* as in struct kvpull_verbs_params */
	uint32_t local_rank;
	const char *gpu_pci;
	uint32_t mr_shift;
	uint32_t traffic_class, ack_timeout;
	uint32_t device_flush;
	struct kvpull_device_thread *gpu; /* of who is opened next */
	int interfaces_error; /* errno of listing the interfaces; 0: none */
	uint64_t now_ns;
	uint32_t peer;
	struct kvpull_strip strip;
	uint32_t remote_ids[WORLD_BLOCKS], local_ids[WORLD_BLOCKS];
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	struct kvpull_read read;
	uint32_t slots[WORLD_SLOTS];
	struct kvpull_revocation_value checked[WORLD_SLOTS];
};

extern struct world world;
/* Node of a page, or -errno. NULL: the kernel may not be asked. */
extern int (*world_node)(const void *page);
extern uint64_t world_began_ns; /* 0: later than the kernel's clock gets */

/* Records that fill a ring are no notes. */
#define WORLD_FILLER KVPULL_NOTE_RELEASE

void side_drain(struct world_side *side);
/* Adds the side's warnings to the lines that are kept, from now on. */
void side_count_lines(struct world_side *side);
/* Keeps the side's lines of this level or a worse one, and forgets the others. */
void side_hear(struct world_side *side, uint32_t level);
struct kvpull_verbs_params world_params(struct world_side *side);
int side_open(struct world_side *side);
void side_fill(struct world_side *side);

/* A route learns the time by polls, the first of which precedes all else. */
void route_begin(struct kvpull_transport *route);
int side_serve(struct world_side *side);
/* Opened, and serves. */
void side_begin(struct world_side *side);
const char *side_address(const struct world_side *side);
const struct kvpull_verbs_counts *side_counts(const struct world_side *side);
/* Assert that a side's peer ended once, with this code. */
void side_is_down(const struct world_side *side, int32_t code);
/* D is closed, and opened with what the world says now. */
void world_consumer_again(void);
/* From that address, which says no more than this. */
void world_stranger_calls(const char *address,
			  struct kvpull_verbs_greeting greeting);
void side_close(struct world_side *side);
void world_init(void);
void world_fill(void);
void side_event(struct world_side *side, const struct kvpull_event *event);
int side_would_wake(const struct world_side *side);
void side_poll(struct world_side *side);

/* A step passes, and this side alone polls. */
void side_step(struct world_side *side);

/* Until its owner sleeps. */
void side_sleep(struct world_side *side);
void world_run(uint32_t steps);

/* D connects; 0, or what connect() says. */
int world_connect(void);
/* Connect, and let both sides run so many steps. */
void world_connect_run(uint32_t steps);
/* D is let in within so many steps. */
void world_comes_up(uint32_t steps);
void world_disconnect(void);

/* Block i of P to block (i * 7) % n of D: nothing merges at D. */
void world_read_make(uint32_t index);
int world_read_start(void);
/* Likewise, of a read that the test made by itself. */
int world_start(struct kvpull_read *read);
void world_cancel(struct kvpull_read *read);
/* Begin a read, and let both sides run so many steps. */
void world_read_run(uint32_t steps);
/*
 * Likewise, while work requests are held: all of them, or those of these
 * devices, by bit.
 */
void world_read_held(uint32_t steps);
void world_read_held_by(uint32_t devices, uint32_t steps);
/* Assert that one read has ended, with this code. */
void world_read_ended(int32_t code);
void world_read_cancel(void);
int world_read_is_right(void);
/* A read ends in so many steps, and every byte is right. */
void world_reads(uint32_t steps);
/* D connects to P and reads, and every byte is right. */
void world_pulls(void);

/* So far, by one rail's device. */
uint32_t world_reads_by(uint32_t device);

/* The one read of all blocks, each to its own number, of several rails. */
void world_read_is_good(void);
/* Likewise, after so many steps of both sides. */
void world_read_ends_well(uint32_t steps);
/* Likewise, and the read begins before those. */
void world_reads_well(uint32_t steps);
/* Begin to read P's entries for that read; 0, or what check_start() says. */
int world_check_start(void);
/* Assert that a hold is judged so by the first entry that was read. */
void world_entry_judges(int code);
/* P's entry is read for that read, the first one that is, and it holds. */
void world_check_is_good(void);
int world_note_send(uint64_t generation);

/* To D (1) or to P (0), by the other side's queue pair. */
void world_inject(int initiator, const struct kvpull_frame *frame);

/* D says so much that P's ring has no room, and nobody drains it. */
void world_ring_fill(void);
/* Both are open: they serve, P's memory is filled, and a read is made. */
void world_serve(void);
int world_open(void);
/* P by the first of two devices, D by the second. */
void world_machines_open(void);
int world_up_batch(uint32_t batch);
int world_up(void **state);

/* Up, and D attached to P. */
int world_attached(void **state);
/* So many devices, a rail each, four work requests a doorbell; nobody is open. */
void world_rails_init(uint32_t count);
/* No block is a neighbour of another one: 64 work requests. */
void world_scatter(void);
int world_rails_open(void);
/* D's side of its only peer. */
struct kvpull_verbs_bundle *world_bundle(void);
/* Two rails that take two batches each. */
void world_shallow_rails_up(void);
int world_rails_up_count(uint32_t count);
int world_rails_up(void **state);

/* Everything is closed, and nothing is left. */
int world_down(void **state);

/* Tests by where they begin; each ends with world_down(). */
#define UNIT_TEST_DOWN(name) UNIT_TEST_WITH(name, NULL, world_down)
#define UNIT_TEST_UP(name) UNIT_TEST_WITH(name, world_up, world_down)
#define UNIT_TEST_ATTACHED(name)                                               \
	UNIT_TEST_WITH(name, world_attached, world_down)
#define UNIT_TEST_RAILS(name) UNIT_TEST_WITH(name, world_rails_up, world_down)

#endif /* KVPULL_TESTS_UNIT_VERBS_WORLD */
