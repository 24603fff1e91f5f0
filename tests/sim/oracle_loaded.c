/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle, when a pull is done: are its bytes those of its ticket? */
#include <string.h>

#include "tests/sim/sim.h"

/* Promise 1. */
void sim_oracle_loaded(struct sim_proc *proc, const struct sim_request *request)
{
	const struct sim_hold *hold = &proc->world->holds[request->hold];
	const uint32_t row_words = SIM_HEAD_BYTES / sizeof(uint64_t);
	const uint32_t words = (uint32_t)proc->heads * row_words;
	uint32_t layer;
	uint32_t at;
	uint32_t word;

	for (at = 0; at < request->block_count * SIM_LAYERS * words; at++) {
		const uint32_t block = at / words % request->block_count;
		uint64_t found;

		layer = at / words / request->block_count;
		word = at % words;
		memcpy(&found,
		       proc->memory +
			       ((size_t)layer * SIM_BLOCKS +
				request->blocks[block]) *
				       proc->block_bytes +
			       word * sizeof(found),
		       sizeof(found));
		if (found != sim_stamp(hold->content,
				       request->first_index + block,
				       layer * SIM_HEADS * row_words +
					       proc->rank * words %
						       (SIM_HEADS * row_words) +
					       word))
			sim_fail(
				proc->world,
				"process %u: request %llu is LOADED with wrong bytes in block %u layer %u",
				proc->index, (unsigned long long)request->key,
				block, layer);
	}
}
