/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One input is one sequence against real workers (sequence/): frames, events of
 * the CM, completions, sockets, deadlines, and the engines' own calls between
 * them. Sequences share a world, opened anew every 1,000.
 */
#include "tests/fuzz/sequence/sequence.h"

#define STEPS_MAX 200u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	seq_run(data, data_bytes < SEQ_BYTES_MAX ? data_bytes : SEQ_BYTES_MAX,
		7, STEPS_MAX);
	return 0;
}
