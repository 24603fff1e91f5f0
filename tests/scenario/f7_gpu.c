/* SPDX-License-Identifier: Apache-2.0 */
/* D's own work on its blocks in a GPU's memory, beside the pulls of F7's race. */
#include <string.h>

#include "tests/scenario/f7.h"
#include "tests/scenario/gpu.h"

#define LOADS_MAX 16u
#define LOAD_BYTES_MAX 8192u

/* Loads of a step in flight: its bytes before, and as it found them. */
static struct {
	uint8_t before[LOADS_MAX][LOAD_BYTES_MAX];
	uint8_t found[LOADS_MAX][LOAD_BYTES_MAX];
	uint64_t byte_count;
} loads;

struct f7_setup f7_gpu_setup(const struct scenario *scenario, uint64_t tries)
{
	return (struct f7_setup){
		.mode = F7_IN_POLL,
		.tries = tries,
		.limit_ns = (scenario->full ? 1200 : 20 * patience()) *
			    SCENARIO_NS_PER_S,
		.gpu = F7_GPU_BOTH,
	};
}

uint64_t f7_gpu_race(const struct scenario *scenario,
		     const struct f7_setup *setup, struct f7_counts *counts)
{
	uint64_t wrong;

	f7_run(scenario, setup, counts);
	wrong = counts->wrong[F7_LARGE] + counts->wrong[F7_SMALL];
	scenario_say(
		"%llu tries, %llu expired, %llu loaded, %llu wrong, %llu disturbed",
		(unsigned long long)counts->tries,
		(unsigned long long)counts->expired,
		(unsigned long long)counts->loaded, (unsigned long long)wrong,
		(unsigned long long)counts->disturbed);
	return wrong;
}

const struct engine_gpu *f7_gpu_open(const struct f7_setup *setup)
{
	static struct engine_gpu gpu;

	gpu = *gpu_open();
	if (setup->unmarked)
		gpu.stream = KVPULL_STREAM_NONE;
	gpu.marks = setup->work != F7_CARELESS;
	return &gpu;
}

static uint64_t block_at(const struct engine *engine, uint32_t id)
{
	return (uint64_t)(uintptr_t)engine->memory[0] +
	       (uint64_t)id * engine->shape.block_bytes;
}

/* The blocks are another request's, which left while its last step goes on. */
static void loads_queue(const struct engine *engine, const uint32_t *ids,
			uint32_t count)
{
	uint32_t index;

	loads.byte_count = engine->shape.block_bytes;
	if (count > LOADS_MAX || loads.byte_count > LOAD_BYTES_MAX)
		scenario_fail("D: too many blocks for its loads");
	for (index = 0; index < count; index++)
		gpu_get_later(block_at(engine, ids[index]), loads.before[index],
			      loads.byte_count);
	engine->gpu->wait();
	for (index = 0; index < count; index++)
		gpu_get_later(block_at(engine, ids[index]), loads.found[index],
			      loads.byte_count);
}

void f7_gpu_queue(const struct f7_setup *setup, struct engine *engine,
		  const uint32_t *ids, uint32_t count)
{
	uint32_t index;

	if (!engine->gpu)
		return;
	if (setup->work == F7_LOADS) {
		loads_queue(engine, ids, count);
		return;
	}
	for (index = 0; index < count; index++)
		engine_block_fill(engine, 0, ids[index], 0);
}

int f7_gpu_step(const struct f7_setup *setup, struct engine *engine)
{
	int code;

	if (setup->work != F7_CAPTURED)
		return engine_step(engine);
	gpu_capture(1);
	code = engine_step(engine);
	gpu_capture(0);
	/* The engine's step had no mark, which it makes up for at once. */
	if (engine->ops->worker->engine_mark(engine->workers[0],
					     engine->gpu->stream) <= 0)
		scenario_fail("D: no mark behind a capture");
	return code ? code :
		      engine->ops->worker->start_loads(engine->workers[0],
						       NULL);
}

uint64_t f7_gpu_disturbed(const struct f7_setup *setup,
			  const struct engine *engine, uint32_t count)
{
	uint64_t disturbed = 0;
	uint32_t index;

	if (setup->work != F7_LOADS)
		return 0;
	engine->gpu->wait();
	for (index = 0; index < count; index++)
		disturbed += memcmp(loads.before[index], loads.found[index],
				    loads.byte_count) != 0;
	return disturbed;
}
