/* SPDX-License-Identifier: Apache-2.0 */
/* Marsaglia's xorshift64: the same numbers on every machine from one seed. */
#ifndef KVPULL_TESTS_LIB_RANDOM_H
#define KVPULL_TESTS_LIB_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* *state is the seed, never 0. */
static inline uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline void random_fill(uint64_t *state, uint8_t *bytes,
			       size_t byte_count)
{
	size_t at;

	for (at = 0; at < byte_count; at++)
		bytes[at] = (uint8_t)(random_next(state) >> 32);
}

#endif /* KVPULL_TESTS_LIB_RANDOM_H */
