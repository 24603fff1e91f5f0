/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target: the function that is given inputs, and how it says no. */
#ifndef KVPULL_TESTS_FUZZ_FUZZ_H
#define KVPULL_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static inline void expect(int condition)
{
	if (!condition)
		abort();
}

#endif /* KVPULL_TESTS_FUZZ_FUZZ_H */
