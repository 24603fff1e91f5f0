// SPDX-License-Identifier: Apache-2.0
/*
 * The owner of 32,768 chunks, in batches of random ones: what the digest of a
 * key of 36 bytes costs, a bump, a put under that digest, and what a reader pays
 * to judge a window.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <sodium.h>

#include "plugin/pool/pool.h"
#include "tests/bench/bench.h"

#define CHUNKS 32768u
#define ENTRIES (4 * CHUNKS)
#define BATCH 256u
#define BATCHES 40u
#define PARTS 4u

struct owner {
	struct kvpull_arena arena;
	struct kvpull_pool_params params;
	struct kvpull_pool *pool;
	uint64_t number; /* of keys */
	struct samples took_ns[PARTS];
	struct kvpull_pool_namespace namespace_digest;
	struct kvpull_pool_put puts[BATCH];
	uint8_t keys[BATCH][36];
	uint32_t failed;
};

static int owner_open(struct owner *owner)
{
	static const struct kvpull_log silent;
	struct kvpull_pool_params *params = &owner->params;

	kvpull_arena_init(&owner->arena, &silent);
	params->share = (struct kvpull_pool_share){ .incarnation = 1,
						    .chunk_count = CHUNKS,
						    .entry_count = ENTRIES };
	params->entries = kvpull_arena_take_table(&owner->arena, ENTRIES,
						  sizeof(*params->entries));
	params->guards = kvpull_arena_take_table(&owner->arena, CHUNKS,
						 sizeof(*params->guards));
	if (!kvpull_arena_ok(&owner->arena))
		return -1;
	owner->pool = kvpull_pool_open(params, &owner->arena);
	return owner->pool ? 0 : -1;
}

/* Different places, each with a key that was never seen. */
static void batch_draw(struct owner *owner)
{
	const uint32_t first = bench_random() % CHUNKS;
	uint32_t at;

	for (at = 0; at < BATCH; at++) {
		owner->puts[at].place = (first + at * 4099) % CHUNKS;
		owner->puts[at].epoch = 1;
		memset(owner->keys[at], 0, sizeof(owner->keys[at]));
		owner->number++;
		memcpy(owner->keys[at], &owner->number, sizeof(owner->number));
	}
}

static void batch_name(struct owner *owner)
{
	uint32_t at;

	for (at = 0; at < BATCH; at++)
		owner->failed +=
			kvpull_pool_key_make(&owner->namespace_digest,
					     owner->keys[at],
					     sizeof(owner->keys[at]),
					     &owner->puts[at].key) != 0;
}

static void batch_bump(struct owner *owner)
{
	uint32_t at;

	/* Bumps chunks one by one, as an engine evicts: a fence each. */
	for (at = 0; at < BATCH; at++)
		owner->failed +=
			kvpull_pool_bump(owner->pool, &owner->puts[at].place, 1,
					 &owner->puts[at].generation) != 0;
}

static void batch_put(struct owner *owner)
{
	uint32_t at;

	for (at = 0; at < BATCH; at++)
		owner->failed +=
			kvpull_pool_put(owner->pool, &owner->puts[at]) != 0;
}

static void batch_judge(struct owner *owner)
{
	struct kvpull_pool_found found;
	uint32_t at;

	for (at = 0; at < BATCH; at++) {
		const struct kvpull_pool_key *key = &owner->puts[at].key;
		const uint32_t first =
			kvpull_pool_window(&owner->params.share, key);

		owner->failed += !kvpull_pool_judge(
			&owner->params.share, key,
			&owner->params.entries[first], &found);
	}
}

static const struct part {
	const char *path;
	void (*run)(struct owner *owner);
} parts[PARTS] = {
	{ "bars.pool.key_ns", batch_name },
	{ "bars.pool.guard_bump_ns", batch_bump },
	{ "bars.pool.put_ns", batch_put },
	{ "bars.pool.judge_ns", batch_judge },
};

static void batch_run(struct owner *owner)
{
	uint32_t at;

	batch_draw(owner);
	for (at = 0; at < PARTS; at++) {
		const uint64_t start_ns = kvpull_clock_ns();

		parts[at].run(owner);
		samples_add(&owner->took_ns[at],
			    (double)(kvpull_clock_ns() - start_ns) / BATCH);
	}
}

void bench_pool(const struct bench *bench)
{
	static struct owner owner;
	uint32_t left = CHUNKS / BATCH + BATCHES * bench->repetitions;
	uint32_t at;

	memset(&owner, 0, sizeof(owner));
	/* As open() does: the digest of this CPU's instructions. */
	if (sodium_init() < 0 || owner_open(&owner)) {
		fprintf(stderr, "bench: pool: out of memory\n");
		kvpull_arena_fini(&owner.arena);
		return;
	}
	while (left--) {
		batch_run(&owner);
		/* Till now places were empty. */
		for (at = 0; left == BATCHES * bench->repetitions && at < PARTS;
		     at++)
			owner.took_ns[at].count = 0;
	}
	if (owner.failed > owner.number / 1000)
		fprintf(stderr, "bench: pool: %u calls failed\n", owner.failed);
	for (at = 0; at < PARTS; at++)
		results_put(bench->results, samples_at(&owner.took_ns[at], 0.5),
			    "%s", parts[at].path);
	kvpull_arena_fini(&owner.arena);
	bench_pool_node(bench);
}
