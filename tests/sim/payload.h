/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads of tickets: their bytes follow from the content of the blocks. */
#ifndef KVPULL_TESTS_SIM_PAYLOAD_H
#define KVPULL_TESTS_SIM_PAYLOAD_H

#include "tests/sim/sim.h"

#define SIM_PAYLOAD_BYTES 24u

/* Return: how many bytes it has, 0 .. SIM_PAYLOAD_BYTES - 1. */
static inline uint32_t sim_payload_fill(uint64_t content,
					uint8_t payload[SIM_PAYLOAD_BYTES])
{
	const uint64_t stamp = sim_stamp(content, 0, 0);
	const uint32_t byte_count = (uint32_t)(stamp % SIM_PAYLOAD_BYTES);
	uint32_t at;

	for (at = 0; at < byte_count; at++)
		payload[at] = (uint8_t)(stamp >> at % 8 * 8);
	return byte_count;
}

#endif /* KVPULL_TESTS_SIM_PAYLOAD_H */
