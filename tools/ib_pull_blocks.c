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

static uint32_t group_layers(const struct engine *engine)
{
	return engine->shape.layer_count / engine->shape.group_count;
}

/*
 * Words of a block are numbered over all ranks, head by head, so that another
 * split of the same heads holds the same bytes.
 */
static void rank_fill(struct engine *engine, uint32_t rank, uint32_t layer,
		      uint32_t id, uint64_t seed)
{
	const uint64_t words = engine_rank_block_bytes(engine) / 8;
	uint8_t *const at = block_at(engine, rank, layer, id);
	uint64_t *const taken = words_take(engine);
	/* Blocks are multiples of 64 bytes in page-aligned memory. */
	uint64_t *const to = taken ? taken : (uint64_t *)(void *)at;
	const uint64_t place = engine_tp_rank(engine, rank);
	uint64_t word;

	for (word = 0; word < words; word++)
		to[word] = pattern(seed + layer, place * words + word);
	if (taken)
		engine->gpu->put((uint64_t)(uintptr_t)at, taken, words * 8);
	free(taken);
}

static uint64_t rank_wrong(const struct engine *engine, uint32_t rank,
			   uint32_t layer, uint32_t id, uint64_t seed)
{
	const uint64_t words = engine_rank_block_bytes(engine) / 8;
	uint8_t *const at = block_at(engine, rank, layer, id);
	uint64_t *const taken = words_take(engine);
	const uint64_t *const from = taken ? taken : (uint64_t *)(void *)at;
	const uint64_t place = engine_tp_rank(engine, rank);
	uint64_t wrong = 0;
	uint64_t word;

	if (taken)
		engine->gpu->get((uint64_t)(uintptr_t)at, taken, words * 8);
	for (word = 0; word < words; word++)
		if (from[word] != pattern(seed + layer, place * words + word))
			wrong += 8;
	free(taken);
	return wrong;
}

/* Other stages' layers are not written here, and must not be read here. */
static int has_layer(const struct engine *engine, uint32_t rank, uint32_t layer)
{
	const uint32_t stage = engine_pp_rank(engine, rank);

	return layer >= engine_stage_first(engine, stage) &&
	       layer < engine_stage_first(engine, stage + 1);
}

void engine_block_fill(struct engine *engine, uint32_t group, uint32_t id,
		       uint64_t seed)
{
	const struct engine_carrier *carrier = engine->carrier;
	const uint32_t first = group * group_layers(engine);
	uint32_t layer;
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		if (carrier) {
			carrier->fill(carrier->context, rank, group, id, seed);
			continue;
		}
		if (!engine->memory[rank])
			continue;
		for (layer = first; layer < first + group_layers(engine);
		     layer++)
			if (has_layer(engine, rank, layer))
				rank_fill(engine, rank, layer, id, seed);
	}
}

uint64_t engine_block_wrong(const struct engine *engine, uint32_t group,
			    uint32_t id, uint64_t seed)
{
	const struct engine_carrier *carrier = engine->carrier;
	const uint32_t first = group * group_layers(engine);
	uint64_t wrong = 0;
	uint32_t layer;
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		if (carrier) {
			wrong += carrier->wrong(carrier->context, rank, group,
						id, seed);
			continue;
		}
		if (!engine->memory[rank])
			continue;
		for (layer = first; layer < first + group_layers(engine);
		     layer++)
			if (has_layer(engine, rank, layer))
				wrong += rank_wrong(engine, rank, layer, id,
						    seed);
	}
	return wrong;
}
