/* SPDX-License-Identifier: Apache-2.0 */
/* The model engine's blocks: what they hold, written and compared. */
#include "tools/ib_pull_engine.h"

#include <stdlib.h>

static uint64_t pattern(uint64_t seed, uint64_t place)
{
	uint64_t word = seed + place * UINT64_C(0x9e3779b97f4a7c15);

	word ^= word >> 31;
	word *= UINT64_C(0xbf58476d1ce4e5b9);
	return word ^ word >> 27;
}

static uint8_t *block_at(const struct engine *engine, uint32_t rank,
			 uint32_t layer, uint32_t id)
{
	return engine->memory[rank] + layer * engine_layer_bytes(engine) +
	       id * engine_rank_block_bytes(engine);
}

/* Room for a block of a GPU; NULL where the CPU reads and writes it in place. */
static uint64_t *words_take(const struct engine *engine)
{
	uint64_t *words;

	if (!engine->gpu)
		return NULL;
	words = malloc(engine_rank_block_bytes(engine));
	if (!words)
		abort();
	return words;
}

enum work {
	FILL,
	COMPARE
};

/*
 * Words of a block are numbered over all ranks, head by head, so that another
 * split of the same heads holds the same bytes. Return: bytes that are wrong.
 */
static uint64_t rank_work(const struct engine *engine, uint32_t rank,
			  uint32_t layer, uint32_t id, uint64_t seed,
			  enum work work)
{
	const uint64_t words = engine_rank_block_bytes(engine) / 8;
	uint8_t *const at = block_at(engine, rank, layer, id);
	uint64_t *const taken = words_take(engine);
	/* Blocks are multiples of 64 bytes in page-aligned memory. */
	uint64_t *const block = taken ? taken : (uint64_t *)(void *)at;
	const uint64_t place = engine_tp_rank(engine, rank) * words;
	uint64_t wrong = 0;
	uint64_t word;

	if (taken && work == COMPARE)
		engine->gpu->get((uint64_t)(uintptr_t)at, taken, words * 8);
	for (word = 0; word < words; word++) {
		const uint64_t right = pattern(seed + layer, place + word);

		if (work == FILL)
			block[word] = right;
		else if (block[word] != right)
			wrong += 8;
	}
	if (taken && work == FILL)
		engine->gpu->put((uint64_t)(uintptr_t)at, taken, words * 8);
	free(taken);
	return wrong;
}

/* Other stages' layers are not written here, and must not be read here. */
static int has_layer(const struct engine *engine, uint32_t rank, uint32_t layer)
{
	const uint32_t stage = engine_pp_rank(engine, rank);

	return engine->memory[rank] &&
	       layer >= engine_stage_first(engine, stage) &&
	       layer < engine_stage_first(engine, stage + 1);
}

static uint64_t ranks_work(const struct engine *engine, uint32_t group,
			   uint32_t id, uint64_t seed, enum work work)
{
	const uint32_t layers =
		engine->shape.layer_count / engine->shape.group_count;
	uint64_t wrong = 0;
	uint32_t layer;
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++)
		for (layer = group * layers; layer < (group + 1) * layers;
		     layer++)
			if (has_layer(engine, rank, layer))
				wrong += rank_work(engine, rank, layer, id,
						   seed, work);
	return wrong;
}

void engine_block_fill(struct engine *engine, uint32_t group, uint32_t id,
		       uint64_t seed)
{
	const struct engine_carrier *carrier = engine->carrier;
	uint32_t rank;

	for (rank = 0; carrier && rank < engine->rank_count; rank++)
		carrier->fill(carrier->context, rank, group, id, seed);
	if (!carrier)
		(void)ranks_work(engine, group, id, seed, FILL);
}

uint64_t engine_block_wrong(const struct engine *engine, uint32_t group,
			    uint32_t id, uint64_t seed)
{
	const struct engine_carrier *carrier = engine->carrier;
	uint64_t wrong = 0;
	uint32_t rank;

	for (rank = 0; carrier && rank < engine->rank_count; rank++)
		wrong +=
			carrier->wrong(carrier->context, rank, group, id, seed);
	return carrier ? wrong : ranks_work(engine, group, id, seed, COMPARE);
}
