/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker half alone, over a transport that does only what the test says, in
 * virtual time. The test plays the scheduler half (step bytes), the peers'
 * ends of the handshake, and every read and check.
 */
#ifndef KVPULL_TESTS_UNIT_WORKER_WORLD
#define KVPULL_TESTS_UNIT_WORKER_WORLD

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/params.h"
#include "plugin/progress/progress_state.h"
#include "plugin/worker/worker.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define WORLD_READS 256u /* parts of pulls */
#define WORLD_BLOCKS 16u
#define WORLD_BLOCK_BYTES 128u
#define WORLD_RANKS_MAX 8u
#define WORLD_PEERS 8u   /* twice peers_max */
#define WORLD_CALLERS 5u /* one more than consumers_max */
#define WORLD_NOTES 128u
#define WORLD_QUEUE 64u
#define WORLD_GIVES 3u /* words of a call that gives tickets back */
#define WORLD_MS KVPULL_NS_PER_MS
#define WORLD_STEP_BYTES 65536u

/* Keys of a world, unless a test has others. */
#define WORLD_MORE ",\"pulls_max\":4,\"tickets_max\":4"

/* If a test program has no others: 8, 16. */
extern uint32_t world_holds;
extern uint32_t world_pull_blocks;

struct world_peer {
	char address[KVPULL_ADDRESS_BYTES_MAX];
	struct kvpull_hello hello;     /* what the worker said */
	struct kvpull_refusal refusal; /* and of our welcome */
	uint32_t used;
	uint32_t attached;
	uint32_t disconnected;
	uint32_t beats;
	uint8_t nonce[KVPULL_NONCE_BYTES];
};

struct world_read {
	struct kvpull_read *read; /* open; NULL: none */
	uint32_t peer;
	uint32_t cancelled;
	uint32_t checking;
};

struct world_caller {
	uint32_t state; /* 0: free, 1: up, 2: admitted, 3: down */
	uint32_t refused;
	uint32_t closed; /* without a word */
	uint32_t forgotten;
	uint32_t dropped;
	int admit_code; /* what admit() fails with */
	uint8_t nonce[KVPULL_NONCE_BYTES];
	struct kvpull_refusal refusal;
	struct kvpull_ring ring;
	struct kvpull_ring_writer writer;
	void *memory;
};

struct world {
	struct kvpull_transport transport; /* first: the worker's handle */
	struct kvpull_transport_ops ops;   /* its seam, which tests change */
	struct kvpull_worker *worker;
	struct kvpull_config config;
	uint64_t now_ns;
	uint64_t tick_ns; /* the clock's own pace: close() waits by it */
	/* what the transport answers */
	int connect_code;
	int attach_code;
	int read_code; /* of read_start: 0 = async, 1 = at once */
	int check_code;
	int notify_code;
	int give_code;
	uint32_t notes_open; /* what every peer has not taken */
	uint32_t peer_uid;
	int reachable_code;
	const char *address;                  /* own; NULL: "self" */
	struct kvpull_revocation_value entry; /* incarnation 0: the peer's own */
	/* what it was asked for */
	struct world_peer peers[WORLD_PEERS];
	struct world_read reads[WORLD_READS];
	struct world_caller callers[WORLD_CALLERS];
	struct kvpull_record notes[WORLD_NOTES];
	uint32_t note_count;
	uint32_t read_starts;
	uint32_t connects;
	uint32_t gives; /* calls that give tickets back; the last one's words */
	struct kvpull_give give;
	struct kvpull_event queue[WORLD_QUEUE];
	uint8_t data[WORLD_QUEUE][8192];
	uint32_t queue_count;
	/* the scheduler half */
	uint64_t incarnation;
	uint64_t sequence;
	uint64_t ack;
	uint64_t ack_incarnation; /* who is named; at first the worker */
	int32_t priority;         /* of the next claims and pulls */
	uint8_t *memory;
	/* what poll said, all of it */
	struct kvpull_poll_record records[64];
	uint32_t record_count;
	struct lines lines;
};

/* The seam, as the test plays it. */
extern const struct kvpull_transport_ops fake_ops;

struct world *world_of(struct kvpull_transport *transport);
struct kvpull_event *world_event(struct world *world,
				 enum kvpull_event_kind kind, uint32_t index);

/* The seam. */

void world_entry(const struct world *world, uint32_t peer,
		 struct kvpull_read *read);
int fake_notify(struct kvpull_transport *transport, uint32_t peer,
		const struct kvpull_record *record);
uint32_t fake_notes_open(const struct kvpull_transport *transport,
			 uint32_t peer);

/* From now on it is a route between machines: it vouches for nobody. */
void world_far(struct world *world);

/* Open and close. */

static const struct kvpull_group world_group = { .block_tokens = 1 };

struct kvpull_open_params world_params(const struct kvpull_model *model);

static const struct kvpull_model world_model = {
	.struct_size = sizeof(world_model),
	.model = "tiny",
	.dtype = "float32",
	.layout = "LBHNC",
	.layer_count = 1,
	.head_count = 4,
	.head_bytes = WORLD_BLOCK_BYTES / 4,
};

/* The cache of a rank of `size`, with its share of the heads. */
struct kvpull_cache world_cache(uint32_t rank, uint32_t size);
/* Memory of WORLD_BLOCKS, as one region. Return: where it is. */
uint8_t *worker_register(struct kvpull_worker *worker);
void world_register(struct world *world);

/* Opens a worker, without a registration. */
void world_create(struct world *world, const char *more);
void world_open(struct world *world, const char *more);
/* more: of the configuration. Return: 0, a fixture's. */
int world_begin(void **state, const char *more);
int world_setup(void **state);
/* Likewise, without a registration. */
int world_setup_bare(void **state);
int world_teardown(void **state);

/* A world of a test that has several, or none at first; world_end() frees it. */
struct world *world_new(const char *more);
void world_end(struct world *world);

/* Poll `times` times; what it says is kept. */
void world_poll(struct world *world, uint32_t times);
void world_pass(struct world *world, uint64_t ns);
/* With polls so often that nothing is taken for a stall. */
void world_live(struct world *world, uint64_t ns);

/* The scheduler half. */

int world_send_code(struct world *world, const struct kvpull_command *commands,
		    uint32_t count);
void world_send(struct world *world, const struct kvpull_command *commands,
		uint32_t count);

/*
 * A claim of a ticket of `ranks` ranks. Serials of one hundred are of the same
 * producer; its ranks listen at "<first serial>-<rank>".
 */
void world_claim(struct world *world, uint64_t serial, uint32_t ranks);
/* The pull of `count` blocks; the ids stay the caller's. */
struct kvpull_command world_pull_of(uint64_t key, uint64_t serial,
				    const uint32_t *remote_ids,
				    const uint32_t *local_ids, uint32_t count);
void world_pull_command(struct world *world, uint64_t key, uint64_t serial,
			uint32_t flags);
void world_pull(struct world *world, uint64_t key, uint64_t serial,
		uint32_t flags);
void world_command(struct world *world, enum kvpull_command_kind kind,
		   uint64_t key, uint64_t serial);

/* Notes of this kind that were sent to any peer. */
uint32_t world_notes(const struct world *world, uint32_t kind);

/*
 * Checks that this key has exactly one report so far, of this kind and reason.
 */
void world_reported(const struct world *world, uint64_t key, uint32_t kind,
		    int32_t reason);
void world_silent(const struct world *world, uint64_t key);
/* The first of two failed blocks of the key, asked with room for so many. */
uint32_t world_failed_blocks(const struct world *world, uint64_t key,
			     uint32_t room, int code);

/* A test in a world of its own. */
#define WORLD_TEST(name)                                                       \
	UNIT_TEST_OF(name, struct world, world, world_setup, world_teardown)

/* Likewise, and this of its configuration is the test's. */
#define WORLD_TEST_WITH(name, more)                                            \
	static int name##_setup(void **state)                                  \
	{                                                                      \
		return world_begin(state, more);                               \
	}                                                                      \
	UNIT_TEST_OF(name, struct world, world, name##_setup, world_teardown)

/* Likewise, behind `begin;`, which knows the world as `world`. */
#define WORLD_TEST_AFTER(name, begin)                                          \
	static void name##_after(struct world *world);                         \
	WORLD_TEST(name)                                                       \
	{                                                                      \
		begin;                                                         \
		name##_after(world);                                           \
	}                                                                      \
	static void name##_after(struct world *world)

#endif /* KVPULL_TESTS_UNIT_WORKER_WORLD */
