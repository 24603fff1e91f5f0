/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P and D with their blocks in a device's memory, in one process, as engines call
 * the library; the driver is the fake, which both call by themselves, too. For
 * children: see tests/unit/cuda/world.h.
 */
#ifndef KVPULL_TESTS_UNIT_DEVICE_ENGINES_H
#define KVPULL_TESTS_UNIT_DEVICE_ENGINES_H

#include "kvpull/connector.h"
#include "tests/unit/cuda/world.h"

#define ENGINE_BLOCKS 64u
#define ENGINE_BLOCK_BYTES 65536u
#define ENGINE_BYTES ((uint64_t)ENGINE_BLOCKS * ENGINE_BLOCK_BYTES)

struct engine {
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	uint64_t address; /* of its blocks */
	/* The last pull's end; 0: it goes on. */
	uint64_t key;
	uint32_t kind;
	int32_t reason;
	uint32_t sent; /* holds that ended */
	char ticket[4096];
	size_t ticket_bytes;
};

extern struct engine p;
extern struct engine d;
extern struct kvpull_error_detail detail;
extern const struct kvpull_worker_ops *worker_ops;

/* Both run until a warning or an error has that text, for some seconds at most. */
int said_in_time(const char *text);
/* The driver, the engines' stream and context, and a folder. */
void engines_begin(void);
/* @keys: more of the configuration, after a comma. 0, or open()'s error. */
int engine_open(struct engine *engine, const char *keys);
/* Take its blocks of that kind of memory, and register them: 0, or an error. */
int engine_register(struct engine *engine, uint32_t region_kind);
/* Both open, with blocks in device memory. */
void engines_open(const char *keys);
void engine_close(struct engine *engine);
/* Both, and what engines_begin() made; nothing is left. */
void engines_close(void);

/* Fill a block with bytes that @seed tells; is it filled so? */
void block_put(const struct engine *engine, uint32_t block, uint32_t seed);
int block_is(const struct engine *engine, uint32_t block, uint32_t seed);
/* block_put() on the engines' stream: the bytes are there when that has ended. */
void block_put_later(const struct engine *engine, uint32_t block,
		     uint32_t seed);
/* The engine's own fault: the driver ends the context. */
void device_break(void);
/* Queue a fill of the block with zeros, on the engines' stream. */
void block_zero(const struct engine *engine, uint32_t block);
/*
 * The engines' stream stops here: what is queued from now on is not begun until
 * stream_go(), however long all others take.
 */
void stream_stop(void);
void stream_go(void);
/* The engines' stream goes on to its end. */
void stream_end(void);

/* P holds [0, count) of its blocks for a request; flags: KVPULL_FINISH_*. */
void hold(uint64_t key, uint32_t count, uint32_t flags);
/* D begins to pull them into its blocks from @first on. */
void pull(uint64_t key, uint32_t first, uint32_t count);
void pull_abort(uint64_t key);
/* A step of D; its mark is taken before: @stream, or NULL: none. */
void step(const uint64_t *stream);
/* P ends all its holds; it reports them at once. */
void hold_revoke(void);
/* Both run so many times, or until the pull has ended. Return: the times. */
uint32_t turns(uint32_t count);
/*
 * Both run so long that a pull that waits for nothing ends, on a machine with time
 * for it. Return: no pull has ended.
 */
int a_while(void);
/* D alone, P alone, once. */
void turn_of_d(void);
void turn_of_p(void);
/* Both run until the pull has ended. Return: KVPULL_POLL_*. */
uint32_t pull_end(void);
/* A step of D, with a mark as step() takes it, whose pull ends well; or so. */
void step_loads(const uint64_t *stream);
void step_fails(const uint64_t *stream, int32_t reason);

#endif
