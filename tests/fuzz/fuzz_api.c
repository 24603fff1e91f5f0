/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to calls of the public ABI: see api.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/pool.h"

#define CALLS_MAX 400u
#define POOL_WORLD 0xff /* the first byte: a world of pools */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	api_calls_init("replay: this target with the input", 0);
	api_draw_bytes(data, data_bytes);
	if (data_bytes && data[0] == POOL_WORLD)
		pool_run(CALLS_MAX);
	else
		api_run(CALLS_MAX, 0);
	return 0;
}
