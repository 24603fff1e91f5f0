/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle, when a pull is done: are its bytes those of its ticket? */
#include <string.h>

#include "tests/sim/device.h"

/* On a device a kernel reads it again, behind all that was queued before. */
static void block_check(const struct sim_proc *proc,
			const struct sim_request *request,
			struct sim_work *kernel, uint32_t layer, uint32_t index,
			uint32_t id)
{
	const struct sim_hold *hold = &proc->world->holds[request->hold];
	const uint32_t row_words = SIM_HEAD_BYTES / sizeof(uint64_t);
	const uint32_t words = (uint32_t)proc->heads * row_words;
	const uint32_t row = (layer * proc->world->shape.heads +
			      (uint32_t)proc->head_first) *
			     row_words;
	uint8_t *const from =
		proc->memory + ((size_t)(layer - proc->layer_first) *
					proc->instance->block_count +
				id) * proc->block_bytes;
	uint32_t word;

	sim_kernel_words(kernel, from, words, hold->content, index, row);
	for (word = 0; word < words; word++) {
		uint64_t found;

		memcpy(&found, from + word * sizeof(found), sizeof(found));
		if (found != sim_stamp(hold->content, index, row + word))
			sim_fail(
				proc->world,
				"process %u: request %llu is LOADED with wrong bytes in block %u layer %u",
				proc->index, (unsigned long long)request->key,
				index, layer);
	}
}

/* Checks promise 1 of the oracle. */
void sim_oracle_loaded(struct sim_proc *proc, const struct sim_request *request)
{
	struct sim_world *world = proc->world;
	const struct sim_hold *hold = &world->holds[request->hold];
	struct sim_work *kernel = sim_kernel(
		proc, SIM_WORK_USE,
		(proc->layer_end - proc->layer_first) * request->block_count);
	struct sim_group group;
	uint32_t layer;
	uint32_t at;

	if (kernel)
		kernel->key = request->key;
	for (layer = proc->layer_first; layer < proc->layer_end; layer++) {
		sim_group_fill(world, request, hold->block_count,
			       layer && world->shape.window, &group);
		for (at = 0; at < group.count; at++)
			block_check(proc, request, kernel, layer,
				    layer && world->shape.state ?
					    hold->computed :
					    group.first + at,
				    group.ids[at]);
	}
}
