/* SPDX-License-Identifier: Apache-2.0 */
/* The smaller of two numbers. */
#ifndef KVPULL_BASE_LEAST_H
#define KVPULL_BASE_LEAST_H

#include <stdint.h>

static inline uint64_t kvpull_least(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

static inline uint32_t kvpull_least_u32(uint32_t one, uint32_t other)
{
	return one < other ? one : other;
}

#endif /* KVPULL_BASE_LEAST_H */
