/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F14: a file of slots. The owner spills one chunk after the other, bumps it,
 * and so reuses a slot soon; the reader asks for what is in the file, and reads
 * it there.
 */
#include <stdio.h>

#include "tests/scenario/f14.h"

struct f14_arena *f14_arena_of_slots(const char *folder)
{
	struct f14_arena *arena = f14_arena_make();

	if (scenario_is_remote())
		scenario_refuse("a file is read on its own node");
	(void)snprintf(arena->slots, sizeof(arena->slots), "%s", folder);
	return arena;
}

void f14_slots_key(const struct f14_arena *arena, uint32_t at, uint64_t *key)
{
	*key = atomic_load_explicit(&arena->filed[at], memory_order_relaxed);
}

/* Return: its code, when it has ended. */
static int32_t spill(const struct kvpull_reader_ops *ops,
		     struct kvpull_reader *handle,
		     const struct kvpull_reader_put *put)
{
	int32_t code = 0;
	const struct kvpull_reader_spill params = {
		.struct_size = sizeof(params),
		.puts = put,
		.put_bytes = sizeof(*put),
		.codes = &code,
		.put_count = 1,
	};
	struct kvpull_reader_record record;
	uint64_t id;

	if (ops->spill(handle, &params, &id))
		scenario_fail("owner: spill");
	while (!ops->poll(handle, &record, 1, sizeof(record)))
		;
	return record.code;
}

void f14_slots_reuse(const struct kvpull_reader_ops *ops,
		     struct kvpull_reader *handle, struct f14_arena *arena,
		     uint64_t key)
{
	const uint32_t chunk = (uint32_t)(key % F14_CHUNKS);
	struct kvpull_reader_put put = {
		.struct_size = sizeof(put),
		.key = { &key, sizeof(key) },
		.chunk = chunk,
	};
	int32_t code;

	if (ops->generation(handle, chunk, &put.generation) ||
	    ops->epoch(handle, &put.epoch))
		scenario_fail("owner: generation");
	code = spill(ops, handle, &put);
	if (code && code != KVPULL_EFULL)
		scenario_fail("owner: a spill ended with %d", code);
	/* So that it is in the file alone. */
	if (ops->guard_bump(handle, &chunk, 1, NULL))
		scenario_fail("owner: bump");
	if (!code)
		atomic_store_explicit(&arena->filed[key % F14_SLOTS], key,
				      memory_order_relaxed);
}
