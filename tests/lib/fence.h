/* SPDX-License-Identifier: Apache-2.0 */
/* Open what KVPULL_ARENA_FENCE_BYTES closes, for a test that writes there. */
#ifndef KVPULL_TESTS_LIB_FENCE_H
#define KVPULL_TESTS_LIB_FENCE_H

#include <stddef.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static inline void fence_open(void *base, size_t byte_count)
{
#ifdef __SANITIZE_ADDRESS__
	__asan_unpoison_memory_region(base, byte_count);
#else
	(void)base;
	(void)byte_count;
#endif
}

#endif /* KVPULL_TESTS_LIB_FENCE_H */
