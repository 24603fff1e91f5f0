/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a sequence against real workers (sequence/): frames, events of
 * the CM, completions, sockets, deadlines, and the engines' own calls between
 * them. Sequences share a world, opened anew every 1,000.
 */
#include <stdlib.h>

#include "tests/fuzz/sequence/sequence.h"

#define STEPS_MAX 200u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);
int __lsan_is_turned_off(void);

/*
 * A world that is open has objects whose only pointers lie in arenas, where
 * LeakSanitizer does not look. Sequences count what is left themselves.
 */
int __lsan_is_turned_off(void)
{
	return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	static int closes;

	if (!closes)
		closes = !atexit(seq_world_end);
	seq_run(data, data_bytes < SEQ_BYTES_MAX ? data_bytes : SEQ_BYTES_MAX,
		7, STEPS_MAX);
	return 0;
}
