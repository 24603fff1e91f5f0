/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of states: a slot has what a recurrent layer keeps of so many tokens,
 * and its bytes follow from their number. Slots of other numbers lie beside it.
 */
#ifndef KVPULL_TESTS_SIM_STATE_H
#define KVPULL_TESTS_SIM_STATE_H

#include "tests/sim/sim.h"

#define SIM_STATE_OTHER 1000u /* more tokens than a request has */

/* Logical index of the slot with the state after so many tokens, 1 .. */
static inline uint32_t sim_state_block(uint32_t tokens)
{
	return (tokens - 1) / SIM_BLOCK_TOKENS;
}

/* The number of tokens from which the bytes of a slot at that index follow. */
static inline uint32_t sim_state_index(const struct sim_request *request,
				       uint32_t block)
{
	return block == sim_state_block(request->computed) ?
		       request->computed :
		       SIM_STATE_OTHER + block;
}

#endif /* KVPULL_TESTS_SIM_STATE_H */
