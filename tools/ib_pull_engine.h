/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of an engine, for the tool and for the scenarios: a scheduler half
 * and the worker halves of all ranks in one process, a pool of KV blocks that
 * are really reused, and the steps between them. It loads the library as an
 * engine does and knows nothing of it but the ABI.
 */
#ifndef KVPULL_TOOLS_IB_PULL_ENGINE_H
#define KVPULL_TOOLS_IB_PULL_ENGINE_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "kvpull/connector.h"

#define ENGINE_EVENTS_MAX 4096u
#define ENGINE_RANKS_MAX 8u
#define ENGINE_COUNTERS_MAX 64u /* of a half, or of a reader */
#define ENGINE_WAIT_MS 250      /* whatever happens says so before */
#define ENGINE_HEADS 8u /* KV heads of the model, split over the ranks */

/*
 * All groups are alike, but that the last one may be of states; a block is
 * block_bytes over all ranks, a layer.
 */
struct engine_shape {
	uint32_t block_bytes; /* of one layer, all heads; multiple of 64 */
	uint32_t block_count; /* in the pool */
	uint32_t layer_count; /* over all groups; a multiple of group_count */
	uint32_t group_count;
	uint32_t block_tokens;
	uint32_t has_states; /* 1: the last group is KVPULL_GROUP_STATE */
};

/* A GPU as the engine itself uses it: work on a stream of its own. */
struct engine_gpu {
	uint32_t kind; /* KVPULL_DEVICE_* */
	int32_t index;
	uint64_t stream; /* the driver's handle */
	uint32_t marks; /* 0: its steps have no mark, as of a careless engine */
	/* Queue a store of these bytes, which may be reused at once. */
	void (*put)(uint64_t address, const void *bytes, uint64_t byte_count);
	/* Load them, behind all that was queued. */
	void (*get)(uint64_t address, void *bytes, uint64_t byte_count);
	/* Wait for all that was queued. */
	void (*wait)(void);
};

struct engine_params {
	const struct kvpull_connector_ops *ops;
	const struct kvpull_host *host;
	const char *config_json;
	const char *engine_id;
	struct engine_shape shape;
	uint32_t tp_size;
	uint32_t pp_size; /* 0: 1; stages have about as many layers each */
	/* NULL: host memory. Else the blocks are the GPU's. */
	const struct engine_gpu *gpu;
	uint32_t foreign; /* 1: own memory, not the provider's */
	uint32_t device;  /* 1: said to be a device's, by a wrong descriptor */
	uint32_t contiguous; /* 1: ids that follow one another */
	const char *weights;
	const char *model; /* NULL: "ib_pull" */
	const char *dtype; /* NULL: "bytes" */
	const char *revision;
	const char *layout; /* NULL: "LBHNC" */
	uint32_t quiet;     /* 1: why it did not open is in .detail alone */
	/*
	 * Not 0: only this rank + 1 is opened, without the scheduler half, which
	 * is in another process.
	 */
	uint32_t only_rank;
};

/* Phases of a pull's time. */
enum engine_phase {
	ENGINE_QUEUE = 0, /* until a thread took it up */
	ENGINE_CONNECT,   /* until its peers were there, and had written */
	ENGINE_READ,
	ENGINE_CHECK,
	ENGINE_PHASES
};

struct engine_event {
	uint64_t key;
	uint32_t kind;    /* KVPULL_POLL_*, told once for all ranks */
	int32_t reason;   /* the first rank's that is not 0 */
	uint64_t bytes;   /* of all ranks */
	uint64_t took_ns; /* the longest */
	uint64_t phase_ns[ENGINE_PHASES]; /* of that one; LOADED */
	uint64_t ranks;                   /* that reported, a bit each */
};

struct engine {
	const struct kvpull_connector_ops *ops;
	struct engine_shape shape;
	uint32_t tp_size, pp_size;
	uint32_t rank_count; /* pp_size stages of tp_size each */
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *workers[ENGINE_RANKS_MAX];
	uint8_t *memory[ENGINE_RANKS_MAX];
	/* In a rank's memory: of a block of one layer, of a layer, of all. */
	uint64_t block_bytes, layer_bytes, memory_bytes;
	const struct engine_gpu *gpu;
	uint64_t *words; /* room for a rank's part of a block */
	uint32_t foreign;
	uint32_t *free_blocks;
	uint32_t free_count;
	uint8_t *bytes; /* step and result bytes */
	/* Events that every rank reported, then those that await other ranks. */
	struct engine_event *events;
	uint32_t event_count, open_count;
	uint64_t double_reports; /* must stay 0 */
	uint64_t next_key;
	struct kvpull_error_detail detail; /* why it did not open */
	/* A rank that was started again knows no pull below. */
	uint64_t first_key[ENGINE_RANKS_MAX];
};

/* Layers of a group that are in a rank's stage: first to end - 1. */
struct engine_layers {
	uint32_t first, end;
};
struct engine_layers engine_layers(const struct engine *engine, uint32_t rank,
				   uint32_t group);

/*
 * dlopen the library that KVPULL_TEST_LIBRARY names, else the one beside this
 * program, or the installed one; NULL: said.
 */
const struct kvpull_connector_ops *engine_library(void);
/* Writes a function of the same library. 0, or 1: a line was printed. */
int engine_library_find(const char *name, void *function);

/* 0, or an error that was printed. */
int engine_open(struct engine *engine, const struct engine_params *params);
void engine_close(struct engine *engine);

/* Makes a rank's part of a step, if there are bytes of one, and its poll. */
int engine_rank_turn(struct engine *engine, uint32_t rank, const void *bytes,
		     size_t byte_count, struct kvpull_poll_record *records,
		     uint32_t capacity);
/*
 * A rank's worker was replaced: the scheduler half is told, and pulls that
 * waited for the old one's reports have failed.
 */
int engine_rank_restarted(struct engine *engine, uint32_t rank);

/* Makes one step of scheduler and ranks. 0 or an error. */
int engine_step(struct engine *engine);
/* Poll the ranks without a step, as one does that waits. 0 or an error. */
int engine_poll(struct engine *engine);
/* 1: the next step has something to say: do not sleep before it. */
int engine_has_step(const struct engine *engine);
/* The value of the row of that name; 0: there is none. The last row is all 0. */
uint64_t engine_counter(const struct kvpull_counter *row, const char *name);
/* A counter of all ranks; 0: this library counts nothing of that name. */
uint64_t engine_count(const struct engine *engine, const char *name);
/* Descriptors that the engine sleeps on, one a rank. Returns how many. */
uint32_t engine_waits(const struct engine *engine,
		      struct pollfd waits[ENGINE_RANKS_MAX]);
/* A rank's peers; returns how many of them are in the table. */
uint32_t engine_peers(const struct engine *engine, uint32_t rank,
		      struct kvpull_peer_info *peers, uint32_t capacity);
/* Take the next event; 0 = none. */
int engine_event(struct engine *engine, struct engine_event *event);

/* Blocks of the pool, scattered if not asked otherwise; 0, or KVPULL_EFULL. */
int engine_blocks_take(struct engine *engine, uint32_t *ids, uint32_t count);
void engine_blocks_give(struct engine *engine, const uint32_t *ids,
			uint32_t count);

/* Write, or compare, a block's pattern on all ranks and layers of a group. */
void engine_block_fill(struct engine *engine, uint32_t group, uint32_t id,
		       uint64_t seed);
/* Bytes of it that are wrong. */
uint64_t engine_block_wrong(const struct engine *engine, uint32_t group,
			    uint32_t id, uint64_t seed);

static inline uint64_t engine_now_ns(void)
{
	return kvpull_clock_ns();
}

/* The next of a row of numbers (xorshift) that *state, never 0, begins. */
uint64_t engine_random(uint64_t *state);

#endif /* KVPULL_TOOLS_IB_PULL_ENGINE_H */
