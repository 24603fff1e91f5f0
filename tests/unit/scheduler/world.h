/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler half with workers that only keep the books of the two sequences:
 * real step and result bytes, commands written down as they are applied.
 */
#ifndef KVPULL_TESTS_UNIT_SCHEDULER_WORLD
#define KVPULL_TESTS_UNIT_SCHEDULER_WORLD

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "plugin/scheduler/scheduler.h"
#include "tests/lib/inside.h"
#include "tests/lib/lines.h"
#include "tests/lib/step.h"
#include "tests/lib/unit.h"

#define WORLD_RANKS_MAX 6u
#define WORLD_QUEUE_MAX 256u
#define WORLD_SEEN_MAX 4096u
#define WORLD_BYTES (2u << 20)
#define WORLD_TICKET_BYTES 4096u
#define WORLD_LEASE_NS (30000 * KVPULL_NS_PER_MS)

extern uint32_t world_groups; /* 1, if a test program has no other */
/* All FULL, likewise. */
extern uint32_t world_group_kinds[KVPULL_GROUPS_MAX];

struct world_rank {
	const char *address; /* NULL: shm:worker-RANK */
	uint64_t incarnation;
	uint64_t floor;
	uint64_t step_incarnation;
	uint64_t applied;
	uint64_t result_first; /* first not acknowledged */
	uint64_t result_next;
	uint32_t gap;
	uint32_t slot_count;
	struct kvpull_result queue[WORLD_QUEUE_MAX];
};

/* A command as rank 0 applied it. */
struct world_seen {
	struct kvpull_command command;
	uint32_t pair_count;
	uint32_t remote[32];
	uint32_t local[32];
};

struct world {
	struct kvpull_log log;
	struct kvpull_config config;
	struct kvpull_compat compat;
	struct kvpull_scheduler *scheduler;
	uint64_t now_ns;
	uint32_t rank_count;
	uint32_t pp_size;
	uint32_t seen_count;
	uint32_t blind; /* 1: nothing is written down */
	struct kvpull_step_scratch scratch;
	struct world_rank ranks[WORLD_RANKS_MAX];
	struct world_seen seen[WORLD_SEEN_MAX];
	uint8_t bytes[WORLD_BYTES];
	struct lines lines;
};

struct world_ticket {
	char text[WORLD_TICKET_BYTES];
	size_t bytes;
};

struct kvpull_config world_config(void);
struct kvpull_rank_info world_rank_info(const struct world *world,
					uint32_t rank);
void world_tell_rank(struct world *world, uint32_t rank);

/* A worker starts; nobody was told yet. */
void world_worker_start(struct world *world, uint32_t rank,
			uint64_t incarnation);

/* incarnation: of the scheduler half; the workers' follow from it. */
struct world *world_open_stages(const struct kvpull_config *config,
				uint32_t rank_count, uint32_t pp_size,
				uint64_t incarnation);
struct world *world_open_silent(const struct kvpull_config *config,
				uint32_t tp_size, uint64_t incarnation);
struct world *world_open(const struct kvpull_config *config, uint32_t tp_size,
			 uint64_t incarnation);
void world_close(struct world *world);
void world_deliver_to(struct world *world, uint32_t index, const uint8_t *bytes,
		      size_t byte_count);

/* Build a step into world->bytes; returns its size. */
size_t world_build(struct world *world);
void world_step(struct world *world);
void world_add(struct world *world, uint32_t rank,
	       const struct kvpull_result *result);

/* Another worker takes a rank; it says so in both ways, as workers do. */
void world_worker_replace(struct world *world, uint32_t rank,
			  uint64_t incarnation);

/* Writes the worker's result_build() into bytes. */
size_t world_result(const struct world *world, uint32_t index, uint8_t *bytes,
		    size_t capacity);
void world_take(struct world *world, uint32_t rank);
void world_take_all(struct world *world);

/* A few rounds in both directions: nothing is left unsaid. */
void world_settle(struct world *world);
uint32_t world_count(const struct world *world, enum kvpull_command_kind kind);

/* The last command of this kind. */
const struct world_seen *world_last(const struct world *world,
				    enum kvpull_command_kind kind);
union kvpull_scheduler_counts world_counts(struct world *world);

/* A request that wants a hold; digest_byte names its prompt. */
void world_enter(struct world *world, uint64_t key, uint64_t parent_key,
		 int digest_byte);

static const uint32_t world_blocks[4] = { 10, 11, 20, 21 };

int world_finish(struct world *world, uint64_t key, uint32_t reason,
		 struct world_ticket *ticket);

/* A request of its own, held. */
int world_hold(struct world *world, uint64_t key, struct world_ticket *ticket);
void world_hold_ended(struct world *world, uint32_t rank, uint64_t key,
		      int32_t reason);

/* A consumer's request with this ticket. */
int world_want(struct world *world, uint64_t key,
	       const struct world_ticket *ticket, int digest_byte);
int world_match(struct world *world, uint64_t key, uint32_t local_tokens);

static const uint32_t world_local_blocks[4] = { 7, 8, 9, 3 };

int world_allocate(struct world *world, uint64_t key, uint32_t first_index,
		   uint32_t block_count);
void world_pull_ended(struct world *world, uint32_t rank, uint64_t key,
		      int32_t reason);

/* A real ticket, from a producer that is gone afterwards; without its last blocks. */
struct world_ticket world_make_short_ticket(uint64_t incarnation,
					    uint32_t lacking);
struct world_ticket world_make_ticket(uint64_t incarnation);

#endif /* KVPULL_TESTS_UNIT_SCHEDULER_WORLD */
