/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen facts of a public header, which the compiler checks. */
#ifndef KVPULL_TESTS_ABI_FROZEN_H
#define KVPULL_TESTS_ABI_FROZEN_H

#include <stddef.h>

/* The numbers below are those of LP64: x86-64 and aarch64. */
_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "LP64");

#define STRUCT(name, bytes)                                                    \
	_Static_assert(sizeof(struct name) == (bytes),                         \
		       "the size of struct " #name " changed")
#define MEMBER(name, member, offset, bytes)                                    \
	_Static_assert(offsetof(struct name, member) == (offset) &&            \
			       sizeof(((struct name *)0)->member) == (bytes),  \
		       "member " #member " of struct " #name " moved")
#define VALUE(name, value)                                                     \
	_Static_assert((name) == (value), #name " changed its value")

#endif /* KVPULL_TESTS_ABI_FROZEN_H */
