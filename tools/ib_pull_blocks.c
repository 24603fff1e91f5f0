/* SPDX-License-Identifier: Apache-2.0 */
/* The model engine's blocks: what they hold, written and compared. */
#include "tools/ib_pull_engine.h"

static uint64_t pattern(uint64_t seed, uint64_t place)
{
	uint64_t word = seed + place * UINT64_C(0x9e3779b97f4a7c15);

	word ^= word >> 31;
	word *= UINT64_C(0xbf58476d1ce4e5b9);
	return word ^ word >> 27;
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
	const struct engine_gpu *gpu = engine->gpu;
	const uint64_t bytes = engine->block_bytes;
	uint8_t *const at =
		engine->memory[rank] + layer * engine->layer_bytes + id * bytes;
	const uint64_t address = (uintptr_t)at;
	/* Blocks are multiples of 64 bytes in page-aligned memory. */
	uint64_t *const block = gpu ? engine->words : (uint64_t *)(void *)at;
	const uint64_t place = rank % engine->tp_size * (bytes / 8);
	uint64_t wrong = 0;
	uint64_t word;

	if (gpu && work == COMPARE)
		gpu->get(address, block, bytes);
	for (word = 0; word < bytes / 8; word++) {
		const uint64_t right = pattern(seed + layer, place + word);

		if (work == FILL)
			block[word] = right;
		else if (block[word] != right)
			wrong += 8;
	}
	if (gpu && work == FILL)
		gpu->put(address, block, bytes);
	return wrong;
}

/* On the ranks of this process. */
static uint64_t ranks_work(const struct engine *engine, uint32_t group,
			   uint32_t id, uint64_t seed, enum work work)
{
	uint64_t wrong = 0;
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		struct engine_layers at = engine_layers(engine, rank, group);

		for (; engine->memory[rank] && at.first < at.end; at.first++)
			wrong += rank_work(engine, rank, at.first, id, seed,
					   work);
	}
	return wrong;
}

void engine_block_fill(struct engine *engine, uint32_t group, uint32_t id,
		       uint64_t seed)
{
	(void)ranks_work(engine, group, id, seed, FILL);
}

uint64_t engine_block_wrong(const struct engine *engine, uint32_t group,
			    uint32_t id, uint64_t seed)
{
	return ranks_work(engine, group, id, seed, COMPARE);
}
