/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzer of the public ABI: three engines in one process, each a scheduler half
 * and one or two workers, and calls in any order with any arguments. What is
 * drawn comes from bytes (libFuzzer) or from a seed; the library's clock and
 * its random numbers are ours, so that a run is the same run again.
 *
 * api_draw     where chance and time come from, and how a failure is told
 * api_args     arguments: structs of wrong sizes, buffers of exact sizes
 * api_geometry where blocks truly lie, and lies that both ends tell of it
 * api_oracle   what each block holds, and what reports must say of it
 * api_engine   opening and closing of halves and workers
 * api_table    the requests that an engine remembers
 * api_request  calls about requests and tickets
 * api_finish   request_finished()
 * api_worker   calls of a worker, and the bytes between the halves
 * api_hostile  calls that no host in its senses makes
 * api_run      the order of it all, and the end: tables are empty
 */
#ifndef KVPULL_TESTS_FUZZ_API_H
#define KVPULL_TESTS_FUZZ_API_H

#include <stddef.h>
#include <stdint.h>

#include "kvpull/connector.h"

#define API_ENGINES 3u
#define API_RANKS_MAX 2u
#define API_GROUPS_MAX 2u
#define API_LAYERS 2u     /* of a group */
#define API_PLANES_MAX 2u /* K and V apart */
#define API_CACHES_MAX (API_GROUPS_MAX * API_LAYERS * API_PLANES_MAX)
#define API_HEADS 4u
#define API_BLOCKS 24u /* of a group, in a rank */
#define API_HOLD_BLOCKS_MAX 6u
#define API_REQUESTS_MAX 192u /* remembered, an engine */
#define API_HOLDS_MAX 256u    /* remembered, of all engines */
#define API_MESSAGES_MAX 24u  /* kept, to come late or twice */
#define API_RECORDS_MAX 64u
#define API_STEP_BYTES 16384u
#define API_TICKET_BYTES 8192u
#define API_NS_PER_MS UINT64_C(1000000)

/* ---- chance, time, failure: api_draw ---- */

void api_draw_bytes(const uint8_t *data, size_t data_bytes);
void api_draw_seed(uint64_t seed);
/* 1: the bytes are used up, and all draws are 0. */
int api_draw_over(void);
uint64_t api_below(uint64_t bound);
int api_chance(uint32_t per_mille);
uint64_t api_mix(uint64_t value);

/* The library's clock: ours, or with fake 0 the machine's. */
void api_clock_init(int fake);
uint64_t api_now_ns(void);
/* A fake clock goes on; a true one is waited for. */
void api_sleep_ns(uint64_t ns);
/* Sets the cost of each look at the fake clock. */
void api_clock_cost(uint64_t ns);
/* Sets the clock back to that time: nobody saw the time in between. */
void api_clock_back(uint64_t ns);

/* Call number, for the report of a failure; name is not copied. */
void api_call(const char *name);
uint64_t api_calls(void);
void api_calls_init(const char *how_to_replay, int verbose);
void __attribute__((format(printf, 1, 2))) api_trace(const char *format, ...);
void __attribute__((noreturn, format(printf, 1, 2)))
api_fail(const char *format, ...);
#define api_expect(condition)                                                  \
	do {                                                                   \
		if (!(condition))                                              \
			api_fail("%s:%d: %s", __FILE__, __LINE__, #condition); \
	} while (0)

/* ---- arguments: api_args ---- */

/* A struct as a host may give it, in a heap block of exactly its size. */
struct api_struct {
	void *given;        /* free it; NULL was drawn, too */
	int is_bad;         /* KVPULL_EINVAL is the only right answer */
	size_t known_bytes; /* of it, that both sides know */
};

/* own of own_bytes begins with struct_size; *own becomes what the call sees. */
struct api_struct api_struct_make(void *own, size_t own_bytes);
/* A struct that ended before its group_bytes: elements of no size. */
int api_groups_are_cut(const struct kvpull_blocks *groups, uint32_t group_count,
		       size_t group_bytes);
/* Likewise of an output: no tail is looked at. */
struct api_struct api_output_make(const void *own, size_t own_bytes);
/* A copy in a heap block of exactly byte_count bytes; free it. */
void *api_copy(const void *bytes, size_t byte_count);
/* A u32 that is seldom in any bounds. */
uint32_t api_odd_u32(void);
uint64_t api_key_of_nobody(void);

/* ---- the world ---- */

struct api_block {
	uint64_t content; /* 0: not known */
	uint32_t holds;   /* that name it and are not reported ended here */
	uint32_t writers; /* open pulls into it */
};

struct api_message {
	uint8_t *bytes;
	size_t byte_count;
	uint32_t engine;
	uint32_t rank;     /* of results: the worker's */
	uint32_t half;     /* life of the scheduler half then */
	uint32_t life;     /* of results: the worker's */
	uint32_t follows;  /* of results: what that worker followed */
	uint32_t is_known; /* of results: says who the worker is */
};

struct api_rank {
	struct kvpull_worker *worker;
	uint8_t *memory;
	void *foreign; /* memory of our own, or NULL */
	uint64_t memory_bytes;
	uint32_t registered;
	uint32_t ended;   /* told that its scheduler half is another one */
	uint32_t known;   /* by its scheduler half */
	uint32_t follows; /* life of the half whose steps it takes; 0: none */
	uint32_t life;
	uint32_t cache_count;
	struct kvpull_cache caches[API_CACHES_MAX]; /* as they truly lie */
	struct api_block blocks[API_GROUPS_MAX][API_BLOCKS];
};

struct api_blocks {
	uint32_t first_index;
	uint32_t count;
	uint32_t ids[API_HOLD_BLOCKS_MAX];
};

/* A hold that was taken once, as long as its ticket may come back. */
struct api_hold {
	uint64_t serial; /* 0: free */
	uint64_t key;
	uint32_t engine;
	uint32_t tp_size;
	uint32_t named; /* bit a rank: its blocks count this hold */
	uint32_t ready; /* bit a rank: its blocks are written */
	uint32_t tokens;
	uint8_t digest[KVPULL_DIGEST_BYTES];
	struct api_blocks groups[API_GROUPS_MAX];
	/* of each rank; 0: not known */
	uint64_t content[API_RANKS_MAX][API_GROUPS_MAX][API_HOLD_BLOCKS_MAX];
	uint8_t *ticket;
	size_t ticket_bytes;
	uint8_t payload[KVPULL_PAYLOAD_BYTES_MAX];
};

struct api_request {
	uint64_t key;  /* 0: free */
	uint32_t life; /* of the scheduler half that knows it */
	uint32_t flags;
	uint32_t finished;
	uint32_t is_unknown;   /* maybe: a table was full */
	uint32_t local_tokens; /* of the last matched_tokens() */
	uint32_t tokens;       /* LOAD: what it said */
	uint8_t digest[KVPULL_DIGEST_BYTES];
	uint32_t prompt_tokens;
	uint64_t hold_serial; /* of the ticket it showed; 0: none */
	uint64_t adapter;
	/* producer */
	uint32_t changed; /* weights or adapter, since it entered */
	uint32_t held;
	uint32_t sent;                     /* bit a rank */
	uint32_t sent_life[API_RANKS_MAX]; /* of the worker that said it */
	/* consumer */
	uint32_t pulling; /* 1: blocks are named; 2: refused, none are */
	uint32_t refusal;
	uint32_t tainted; /* its blocks are others', too */
	uint32_t ended;   /* bit a rank */
	uint32_t late; /* bit a rank: lost, and may be reported all the same */
	struct api_blocks local[API_GROUPS_MAX];
};

struct api_engine {
	uint32_t index;
	uint32_t tp_size;
	uint32_t draining;
	uint32_t life;       /* of the scheduler half */
	uint32_t introduced; /* bit a rank: it knew some worker of it */
	char name[32];
	char config[768];
	struct kvpull_scheduler *scheduler;
	struct api_rank ranks[API_RANKS_MAX];
	struct api_request requests[API_REQUESTS_MAX];
	uint32_t request_next;
};

struct api_shape {
	uint32_t group_count;
	uint32_t block_tokens;
	uint32_t row_count; /* 1, or a row a token */
	uint32_t plane_count;
	uint32_t is_unlike; /* each second layer has twice the bytes */
	uint32_t is_window; /* the second group has a sliding window */
	uint32_t is_state; /* or slots, each with the state after some tokens */
	uint32_t replicated;
	uint64_t lease_ns;
	uint64_t hold_max_ns;
	uint32_t is_threaded;
	uint32_t is_alone; /* 1: tables so tight that pulls are refused */
};

struct api_counts {
	uint64_t holds, loaded, failed, expired, released, restarts, refused;
	uint64_t lies;     /* that were refused */
	uint64_t payloads; /* that were told, not empty */
	uint64_t bytes;
};

/* The lie that all engines of a world tell in the same way. */
enum api_lie_kind {
	API_LIE_NONE,
	API_LIE_ROWS,       /* fewer than there are */
	API_LIE_HEAD_BYTES, /* likewise */
	API_LIE_PLANE,      /* K alone, or V */
	API_LIE_TWICE,      /* a cache is registered twice */
	API_LIE_OFFSET,     /* V lies in K */
	API_LIE_LAYER,      /* a layer lies in the one before */
	API_LIE_STRIDE,     /* blocks lie in each other */
	API_LIE_ZERO,       /* a member of a cache that must be set */
	API_LIE_BEYOND,     /* the last block ends after its region */
	API_LIE_MODEL,      /* a member of the record that must be set */
	API_LIE_KINDS
};

struct api_lie {
	enum api_lie_kind kind;
	uint64_t amount; /* of whatever it is; drawn once a world */
	uint32_t taken;  /* registrations that believed it */
};

struct api_world {
	const struct kvpull_connector_ops *ops;
	struct api_shape shape;
	struct api_lie lie;
	char folder[64];
	struct api_engine engines[API_ENGINES];
	struct api_hold holds[API_HOLDS_MAX];
	uint64_t hold_next; /* serials; slot = serial % API_HOLDS_MAX */
	uint64_t key_next;
	uint64_t content_next;
	struct api_message steps[API_MESSAGES_MAX];
	struct api_message results[API_MESSAGES_MAX];
};

extern struct api_world *api_world;
extern struct api_counts api_counts;

/* ---- the engines: api_engine ---- */

void api_world_open(int is_threaded);
void api_world_close(void);
int api_worker_open(struct api_engine *engine, uint32_t rank);
void api_worker_register(struct api_engine *engine, uint32_t rank);
void api_worker_restart(struct api_engine *engine, uint32_t rank);
void api_scheduler_restart(struct api_engine *engine);
void api_rank_introduce(struct api_engine *engine, uint32_t rank);
/* The scheduler half knows the rank's worker: what it knew before is lost. */
void api_rank_known(struct api_engine *engine, uint32_t rank);
struct kvpull_open_params api_open_params(const struct api_engine *engine,
					  uint32_t rank);

/*
 * Lists as the ABI has them, each list of exactly its length. A count that no call
 * may look at the list of, it is so large, is put into one of them seldom.
 */
struct api_lists {
	struct kvpull_blocks *blocks; /* [group_count]; free it, and the ids */
	uint32_t *ids[API_GROUPS_MAX];
	int is_odd;
};

struct api_lists api_lists_make(const struct api_blocks *from);
void api_lists_free(struct api_lists *lists);
/* Ids of blocks that nobody has, or, seldom, of others' or of none. */
void api_ids_draw(const struct api_engine *engine, uint32_t group,
		  struct api_blocks *blocks);

/* ---- geometry: api_geometry ---- */

void api_geometry_draw(struct api_shape *shape);
/* A rank's caches, in its own way: memory_bytes, caches, cache_count. */
void api_caches_make(struct api_engine *engine, uint32_t rank);
/* Bytes of a row of a head of a plane of a layer. */
uint32_t api_head_bytes(uint32_t layer);
uint32_t api_token_bytes(uint32_t layer);
/* Where a row of a head lies; plane: which of the layer's caches. */
uint8_t *api_place(const struct api_rank *rank, uint32_t layer, uint32_t plane,
		   uint32_t id, uint32_t row, uint32_t head);
/*
 * What the world's lie makes of a rank's regions: caches has room for one more than
 * API_CACHES_MAX. 0: nothing, of this rank it is no lie.
 */
int api_lie_tell(const struct api_rank *rank, struct kvpull_region *region,
		 struct kvpull_cache *caches, uint32_t *cache_count);
/* Likewise of a model record, and of the groups that are given with it. */
int api_lie_tell_model(struct kvpull_model *model, struct kvpull_group *groups);
/* A registration that believed it: 1; a failure where no read could show it. */
void api_lie_taken(const struct api_engine *engine, uint32_t rank);

/* ---- blocks and reports: api_oracle ---- */

/* Write new bytes on one rank. */
uint64_t api_block_write(struct api_engine *engine, uint32_t rank,
			 uint32_t group, uint32_t id, uint64_t content);
uint64_t api_content_new(void);
/* A worker's memory is new, or gone: nothing counts on it. */
void api_rank_forget(struct api_engine *engine, uint32_t rank, int is_new);
/* request_finished() answered HELD. */
void api_hold_taken(struct api_engine *engine, struct api_request *request,
		    struct api_hold *hold);
/* Before request_finished(): blocks that are free get bytes of this hold. */
void api_hold_fill(struct api_engine *engine, struct api_hold *hold,
		   int is_ready);
void api_hold_write(struct api_engine *engine, struct api_hold *hold,
		    uint32_t rank);
struct api_hold *api_hold_of(uint64_t serial);
/* Serial of the hold with this ticket; 0: none. */
uint64_t api_hold_serial(const void *ticket, size_t ticket_bytes);
/* A place for another one, with its groups still to be drawn. */
struct api_hold *api_hold_add(void);
/* allocated() answered that it will be reported: code 0, or why it failed. */
void api_pull_begun(struct api_engine *engine, struct api_request *request,
		    int code);
void api_record_take(struct api_engine *engine, uint32_t rank,
		     const struct kvpull_poll_record *record);
/* The rank's worker is gone, or another: its pulls are never reported. */
void api_pulls_lost(struct api_engine *engine, uint32_t rank);
/* Likewise, of what a scheduler half was asked for that is gone, too. */
void api_orphans_lost(struct api_engine *engine, uint32_t rank);
int api_block_is_free(const struct api_engine *engine, uint32_t group,
		      uint32_t id);
/* Every block has the bytes that were last written to it. */
void api_memory_check(void);

/* ---- requests: api_table ---- */

struct api_request *api_request_find(struct api_engine *engine, uint64_t key);
struct api_request *api_request_any(struct api_engine *engine);
/* A request that fits, if there is one near, and seldom one that does not. */
struct api_request *api_request_pick(struct api_engine *engine,
				     int (*fits)(const struct api_request *));
struct api_request *api_request_add(struct api_engine *engine);
/* Reports that are still owed; prints them if asked. */
uint32_t api_owed(const struct api_engine *engine, int is_told);

/* ---- calls ---- */

void api_request_new(struct api_engine *engine);
void api_matched(struct api_engine *engine);
void api_allocated(struct api_engine *engine);
void api_finished(struct api_engine *engine);
void api_rejected(struct api_engine *engine);
void api_ticket_get(struct api_engine *engine);
void api_payload_get(struct api_engine *engine);
void api_ticket_peek(struct api_engine *engine);
/* An honest end of everything that is known. */
void api_requests_end(struct api_engine *engine);

/* Build a step, give it to all ranks, load, poll, and take their results. */
void api_step(struct api_engine *engine);
void api_step_honest(struct api_engine *engine);
void api_step_late(struct api_engine *engine);
void api_result_late(struct api_engine *engine);
void api_poll(struct api_engine *engine);
void api_poll_rank(struct api_engine *engine, uint32_t rank, uint32_t capacity);
void api_worker_call(struct api_engine *engine);
void api_hold_ready(struct api_engine *engine);
void api_messages_drop(void);

void api_scheduler_call(struct api_engine *engine);
void api_hostile(struct api_engine *engine);

/* ---- the end, and all of it ---- */

/* Open, calls (fewer if the bytes are used up), end, close. */
void api_run(uint64_t calls, int is_threaded);

#endif /* KVPULL_TESTS_FUZZ_API_H */
