/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of kvpull_reader_v1() in one folder, and beside them whoever is not
 * one: an owner that says what it likes, over a route of its own.
 */
#ifndef KVPULL_TESTS_UNIT_SHARE_HANDLE_H
#define KVPULL_TESTS_UNIT_SHARE_HANDLE_H

#include "base/clock.h"
#include "kvpull/reader.h"
#include "plugin/share/share_state.h"
#include "tests/lib/patience.h"
#include "tests/unit/pool/world.h"
#include "tests/unit/shm/raw.h"

#define HANDLE_CHUNKS 8u
#define HANDLE_CHUNK_BYTES 4096u
#define HANDLE_ENTRIES 64u
#define HANDLE_BLOCKS (8u * KVPULL_READER_ITEMS_MAX)
#define HANDLE_KEY_BYTES 36u
#define HANDLE_ADDRESS_BYTES 512u
#define HANDLE_WAIT_NS (20 * KVPULL_NS_PER_S * patience())

/*
 * 0: the machine's clock. A test program in which nothing is done but by polls
 * defines it: each look at the clock takes so long, and a host that stands
 * still takes no time.
 */
extern uint64_t handle_look_ns;

struct handle_world {
	struct world world; /* the folder; p: the false owner's route */
	const struct kvpull_reader_ops *ops;
	char config[512];
	size_t chunk_bytes; /* of owner and reader; HANDLE_CHUNK_BYTES at first */
	uint32_t chunk_count;  /* likewise: HANDLE_CHUNKS */
	struct lines heard[2]; /* of owner and reader */
	struct kvpull_reader *owner;
	struct kvpull_reader *reader;
	struct kvpull_memory memory;
	uint8_t *blocks; /* [HANDLE_BLOCKS][chunk_bytes] */
	uint32_t local;
	uint32_t peer;
	/* The false owner. */
	struct kvpull_shared directory;
	struct pool_world pool;
	uint32_t caller;
	uint8_t nonce[KVPULL_NONCE_BYTES];
	struct kvpull_reader_hello hello;
};

/* A test: more is a row of the configuration, ",\"connect_ms\":10". */
void handle_begin(struct handle_world *world, const char *more);
void handle_end(struct handle_world *world);
/* A fixture: handle_end() of the world that was begun last. */
int handle_down(void **state);

struct kvpull_reader_naming handle_naming(struct kvpull_model *model,
					  const char *weights);
struct kvpull_reader *handle_open(struct handle_world *world, uint32_t who,
				  const char *weights);
/* Chunks of the usual size, and so many slots in that folder. */
struct kvpull_reader_share handle_slots(const char *folder,
					uint32_t slot_count);
/* Another owner is told why it may not share so. */
void handle_refused(struct handle_world *world,
		    const struct kvpull_reader_share *params, const char *why);
/* world->owner shares into world->memory. Return: what share() says. */
int handle_share_as(struct handle_world *world,
		    const struct kvpull_reader_share *params);
/* world->owner is opened, and shares into world->memory. */
void handle_share(struct handle_world *world,
		  const struct kvpull_reader_share *params);
/* The same, of world->chunk_count chunks. */
void handle_owner(struct handle_world *world);
/* world->reader, with its blocks. */
void handle_reader(struct handle_world *world);
/* The address of world->owner, which is text. */
const char *handle_address(struct handle_world *world,
			   char text[HANDLE_ADDRESS_BYTES]);
/* world->reader begins to connect to an address, or to world->owner: NULL. */
void handle_add(struct handle_world *world, const char *address);
/* Runs everyone once. Returns the records of the reader. */
int handle_turn(struct handle_world *world,
		struct kvpull_reader_record *record);
/* A peer as peers() tells it; code KVPULL_EINVAL: it is not told. */
struct kvpull_reader_peer handle_peer(struct handle_world *world,
				      uint32_t peer);
/* Until world->peer is connected or given up. Return: its code. */
int32_t handle_settle(struct handle_world *world);
void handle_await(struct handle_world *world, uint64_t id,
		  struct kvpull_reader_record *record);
/* The link of world->peer, and its waits cut short. */
struct kvpull_share_link *handle_link(struct handle_world *world);
void handle_until(struct handle_world *world, enum kvpull_peer_state state);

/* The owner lists a chunk under this key. Return: what put() says. */
int handle_put(struct handle_world *world, uint32_t chunk, uint64_t key,
	       uint64_t generation, uint64_t epoch);
/* The owner's chunk is written and put; no sooner. Return: its generation. */
uint64_t handle_fill(struct handle_world *world, uint32_t chunk, uint64_t key);
/* Chunks 0 .. count - 1 are filled, each with key chunk + 1. */
void handle_fill_first(struct handle_world *world, uint32_t count);
/*
 * Begin to spill chunks first .. first + count - 1, with key chunk + 1 + more;
 * deadline_ns 0: none. Return: what spill() says.
 */
int handle_spill(struct handle_world *world, uint32_t first, uint32_t count,
		 uint64_t more, uint64_t deadline_ns, int32_t *codes,
		 uint64_t *id);
/* Polls the owner until this spill has ended. */
void handle_spilled(struct handle_world *world, uint64_t id,
		    struct kvpull_reader_record *record);
/* Keys 1 .. count are asked for. */
int handle_probe(struct handle_world *world, uint32_t count,
		 struct kvpull_reader_place *places, uint64_t *id);
/* Begin to read places into the blocks from `first` on; deadline_ns 0: none. */
int handle_read_into(struct handle_world *world, uint32_t first,
		     const struct kvpull_reader_place *places, uint32_t count,
		     uint64_t incarnation, uint64_t deadline_ns, int32_t *codes,
		     uint64_t *id);
/* Likewise into the first blocks, without a deadline. */
int handle_read(struct handle_world *world,
		const struct kvpull_reader_place *places, uint32_t count,
		uint64_t incarnation, int32_t *codes, uint64_t *id);

/* The same three to their ends, which are good ones; the owner is there. */
void handle_connect(struct handle_world *world);
/* Return: how many keys are found. */
uint32_t handle_probed(struct handle_world *world, uint32_t count,
		       struct kvpull_reader_place *places,
		       struct kvpull_reader_record *record);
/* Return: the record's code. */
int32_t handle_read_end(struct handle_world *world,
			const struct kvpull_reader_place *places,
			uint32_t count, uint64_t incarnation, int32_t *codes);
/* world->peer is removed. */
void handle_remove(struct handle_world *world);
/* The owner gives a chunk another generation. */
void handle_bump(struct handle_world *world, uint32_t chunk);

/* The false owner: a pool that serves all that an owner does, as "false". */
void false_owner(struct handle_world *world);
/* A world of a false owner, and a reader that begins to connect to it. */
void false_begin(struct handle_world *world, const char *more);
/* Next event of the false owner; its data are valid until the one after. */
struct kvpull_event false_event(struct handle_world *world,
				enum kvpull_event_kind kind);
void false_challenge(struct handle_world *world);
void false_hello(struct handle_world *world);
void false_say(struct handle_world *world, const void *bytes, size_t count);
void false_refuse(struct handle_world *world, int32_t code);
/* As an owner would fill it in. */
void false_welcome(const struct handle_world *world,
		   struct kvpull_share_welcome *welcome);
void false_admit(struct handle_world *world,
		 const struct kvpull_share_welcome *welcome);
/* Connects to the false owner, until world->peer is up. */
void false_connect(struct handle_world *world);

#endif /* KVPULL_TESTS_UNIT_SHARE_HANDLE_H */
