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
#define WORLD_TICKET_BYTES 16384u
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
	uint64_t fresh; /* digest of the scheduler half when it was opened */
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
/* Return: as rank_info(). */
int world_tell_info(struct world *world, const struct kvpull_rank_info *info);
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
/* With the config of world_config(). */
struct world *world_of(uint32_t tp_size, uint64_t incarnation);
struct world *world_of_producer(uint32_t tp_size);
struct world *world_of_consumer(uint32_t tp_size);
/* A consumer of one rank, with a key of such bytes for its tickets. */
struct world *world_of_key(int key_byte);
/* A consumer of two ranks, of which rank 1 alone is known. */
struct world *world_of_rank_1(void);
/* A producer of which no rank is known yet. */
struct world *world_of_silent(uint32_t tp_size);
void world_close(struct world *world);

/* Calls of the engine's, with the world's clock. */
int world_ask(struct world *world, const struct kvpull_request *request);
int world_reject(struct world *world, const struct world_ticket *ticket);
int world_finish_with(struct world *world, struct kvpull_finish *finish);
int world_allocate_with(struct world *world,
			const struct kvpull_allocation *allocation);
int world_pending(const struct world *world);
int world_has_step(const struct world *world);
void world_reset(struct world *world, uint32_t flags);
void world_change(struct world *world, uint64_t adapter);
int world_hear(struct world *world, const uint8_t *bytes, size_t byte_count);
void world_deliver_to(struct world *world, uint32_t index, const uint8_t *bytes,
		      size_t byte_count);

/* Build a step into world->bytes; returns its size. */
size_t world_build(struct world *world);
void world_step(struct world *world);
void world_add(struct world *world, uint32_t rank,
	       const struct kvpull_result *result);
/* The worker says which one it is. */
void world_add_rank(struct world *world, uint32_t rank);

/* Another worker takes a rank; it says so in both ways, as workers do. */
void world_worker_replace(struct world *world, uint32_t rank,
			  uint64_t incarnation);

/* Results, as the worker's result_build() writes them. */
struct world_said {
	uint8_t bytes[16384];
	size_t byte_count;
};

struct world_said world_say(const struct world *world, uint32_t index);
/* The half takes it, now or once more. */
void world_hears(struct world *world, const struct world_said *said);
void world_take(struct world *world, uint32_t rank);
void world_take_all(struct world *world);

/* A few rounds in both directions: nothing is left unsaid. */
void world_settle(struct world *world);
uint32_t world_count(const struct world *world, enum kvpull_command_kind kind);
/* So many were applied after those rounds. */
void expect_settled(struct world *world, enum kvpull_command_kind kind,
		    uint32_t count);

/* The last command of this kind. */
const struct world_seen *world_last(const struct world *world,
				    enum kvpull_command_kind kind);
/* The scalars of a command that was seen. */
const struct kvpull_command *world_command(const struct world *world,
					   enum kvpull_command_kind kind);
union kvpull_scheduler_counts world_counts(struct world *world);

/* So many ENDs were applied, the last one for this reason. */
void expect_ends(const struct world *world, uint32_t count, int32_t reason);
/* The last warning, or error, has these words; the last warning is this line. */
void expect_warning(const struct world *world, const char *words);
void expect_error(const struct world *world, const char *words);
void expect_line(const struct world *world, const char *line);
/* Nothing is left of all that was since the world was opened. */
void expect_fresh(const struct world *world);

/* A request that wants a hold; digest_byte names its prompt. */
void world_enter(struct world *world, uint64_t key, uint64_t parent_key,
		 int digest_byte);

static const uint32_t world_blocks[4] = { 10, 11, 20, 21 };
static const struct kvpull_blocks world_group = { .block_count = 4,
						  .block_ids = world_blocks };

/* The finish of a request whose group is world_group; @ticket may be NULL. */
struct kvpull_finish world_finish_of(uint64_t key, struct world_ticket *ticket);
/* ticket may be NULL: nobody looks at it. */
int world_finish(struct world *world, uint64_t key, uint32_t reason,
		 struct world_ticket *ticket);

/* With a hold for it, or without one; a sibling's ticket has no other. */
void finish_held(struct world *world, uint64_t key, uint32_t reason,
		 struct world_ticket *ticket);
void finish_free(struct world *world, uint64_t key, uint32_t reason,
		 struct world_ticket *ticket);

/* A request of its own, held. */
int world_hold(struct world *world, uint64_t key, struct world_ticket *ticket);
void hold(struct world *world, uint64_t key);
void hold_refused(struct world *world, uint64_t key);
/* Held; the workers are told of it, and then have said that they were. */
void hold_told(struct world *world, uint64_t key);
void hold_settled(struct world *world, uint64_t key);
/* Requests from this key on, until one of them is not held: that one's key. */
uint64_t world_hold_all(struct world *world, uint64_t key);
void world_hold_ended(struct world *world, uint32_t rank, uint64_t key,
		      int32_t reason);

/* Let one rank report the end, and the rounds follow. */
void hold_ended(struct world *world, uint32_t rank, uint64_t key,
		int32_t reason);
/* Each rank reports the end of the hold. */
void world_end_hold(struct world *world, uint64_t key, int32_t reason);

/* A request that PULLs; its digest is of ones. */
struct kvpull_request world_request_of(uint64_t key,
				       const struct world_ticket *ticket);
/* A consumer's request with this ticket. */
int world_want(struct world *world, uint64_t key,
	       const struct world_ticket *ticket, int digest_byte);
/* Requests 1 .. count, each with this ticket. */
void want(struct world *world, uint64_t count,
	  const struct world_ticket *ticket);
/* Likewise, and the first one is offered all tokens. */
void want_offered(struct world *world, uint64_t count,
		  const struct world_ticket *ticket);
int world_match(struct world *world, uint64_t key, uint32_t local_tokens);

static const uint32_t world_local_blocks[4] = { 7, 8, 9, 3 };

/* 64 tokens of a request, in these groups. */
struct kvpull_allocation
world_allocation_of(uint64_t key, uint32_t group_count,
		    const struct kvpull_blocks *groups);
int world_allocate(struct world *world, uint64_t key, uint32_t first_index,
		   uint32_t block_count);
/* Why the request is offered nothing. */
void expect_failure(struct world *world, uint64_t key, int code);
/* The request is offered all tokens, and gets its blocks. */
void load(struct world *world, uint64_t key);
/* Requests 1 .. count want this ticket; the first one's pull is under way. */
void pull(struct world *world, uint64_t count,
	  const struct world_ticket *ticket);
void world_pull_ended(struct world *world, uint32_t rank, uint64_t key,
		      int32_t reason);
/* Let one rank say that the pull is over, and the rounds follow. */
void pull_ended(struct world *world, uint32_t rank, uint64_t key,
		int32_t reason);
/* Every rank says it. */
void end_pull(struct world *world, uint64_t key, int32_t reason);
/* The request is offered all tokens, and its blocks are refused so. */
void load_refused(struct world *world, uint64_t key, int code);
/* A request that is not held is over. */
void finish(struct world *world, uint64_t key, uint32_t reason);
/* A lease in which nothing happens. */
void forget_all(struct world *world);

/* A real ticket, from a producer that is gone afterwards; without its last blocks. */
struct world_ticket world_make_short_ticket(uint64_t incarnation,
					    uint32_t lacking);
struct world_ticket world_make_ticket(uint64_t incarnation);
/* Valid until the next call. */
struct kvpull_ticket *world_decode(const struct world_ticket *ticket);
void world_encode(struct kvpull_ticket *fields, struct world_ticket *ticket);

/* A test of the world that the expression `opened` makes. */
#define WORLD_TEST(name, opened)                                               \
	static void name##_in(struct world *world);                            \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		struct world *world = opened;                                  \
                                                                               \
		name##_in(world);                                              \
		world_close(world);                                            \
	}                                                                      \
	static void name##_in(__attribute__((unused)) struct world *world)

/* The same, and of a ticket of a producer that is gone. */
#define TICKET_TEST(name, opened)                                              \
	static void name##_with(struct world *world,                           \
				const struct world_ticket *ticket);            \
	WORLD_TEST(name, opened)                                               \
	{                                                                      \
		const struct world_ticket ticket = world_make_ticket(7);       \
                                                                               \
		name##_with(world, &ticket);                                   \
	}                                                                      \
	static void name##_with(__attribute__((unused)) struct world *world,   \
				__attribute__((unused))                        \
				const struct world_ticket *ticket)

/* NOLINTBEGIN(bugprone-macro-parentheses): an assignment without its left end. */
/* Opens a half whose config differs from the world's: @setting, x = value. */
#define WORLD_OPENED_WITH(name, open, setting)                                 \
	static struct world *name##_opened(void)                               \
	{                                                                      \
		struct kvpull_config config = world_config();                  \
                                                                               \
		config.setting;                                                \
		return open;                                                   \
	}
/* NOLINTEND(bugprone-macro-parentheses) */

#define PRODUCER_TEST(name, ranks) WORLD_TEST(name, world_of_producer(ranks))
#define PRODUCER_TEST_WITH(name, ranks, setting)                               \
	WORLD_OPENED_WITH(name, world_open(&config, ranks, 7), setting)        \
	WORLD_TEST(name, name##_opened())
#define CONSUMER_TEST(name, ranks) TICKET_TEST(name, world_of_consumer(ranks))
#define CONSUMER_TEST_WITH(name, ranks, setting)                               \
	WORLD_OPENED_WITH(name, world_open(&config, ranks, 9), setting)        \
	TICKET_TEST(name, name##_opened())

#endif /* KVPULL_TESTS_UNIT_SCHEDULER_WORLD */
