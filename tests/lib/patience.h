/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of tests hold on a quiet machine. patience() is what they are multiplied
 * by on this one: TEST_PATIENCE, which tests/patience.sh measured, and more where
 * a sanitizer slows all down. 1 where nobody measured.
 */
#ifndef KVPULL_TESTS_LIB_PATIENCE_H
#define KVPULL_TESTS_LIB_PATIENCE_H

#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define PATIENCE_OF_SANITIZER 5u
#else
#define PATIENCE_OF_SANITIZER 1u
#endif
#define PATIENCE_MAX 20u

static inline uint32_t patience(void)
{
	const char *text = getenv("TEST_PATIENCE");
	const unsigned long times = text ? strtoul(text, NULL, 10) : 1;

	return PATIENCE_OF_SANITIZER * (times < 1            ? 1u :
					times > PATIENCE_MAX ? PATIENCE_MAX :
							       (uint32_t)times);
}

#endif /* KVPULL_TESTS_LIB_PATIENCE_H */
