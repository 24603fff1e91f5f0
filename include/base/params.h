/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that cross the ABI: struct_size first, filled in by the caller with
 * its own sizeof, which may be of an older or a newer header than ours.
 */
#ifndef KVPULL_BASE_PARAMS_H
#define KVPULL_BASE_PARAMS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"

/* No params struct comes near it: a larger struct_size is not a size. */
#define KVPULL_PARAMS_BYTES_MAX 65536u

/**
 * Copy a caller's struct into ours, once.
 *
 * @own     our struct of own_bytes; its struct_size becomes own_bytes, since
 *          after this every member has a value. Written only on success.
 * @theirs  begins with size_t struct_size. Shorter than ours: the rest of ours
 *          is zero, the default. Longer: accepted if the extra bytes are zero.
 * Return: 0, or KVPULL_EINVAL (NULL, a struct_size that cannot be or that cuts
 * a member, or a member set that we do not know).
 */
int KVPULL_MUST_CHECK kvpull_params_take(void *own, size_t own_bytes,
					 const void *theirs);

/* As kvpull_params_take(); detail (may be NULL) says why not, of which struct. */
int KVPULL_MUST_CHECK
kvpull_params_take_named(void *own, size_t own_bytes, const void *theirs,
			 const char *name, struct kvpull_error_detail *detail);

/*
 * 0, or KVPULL_EINVAL: kvpull_params_give() would refuse this output struct.
 * Asked first by a call that does something before it has what to give.
 */
int KVPULL_MUST_CHECK kvpull_params_check_output(const void *theirs);

/**
 * Fill in a caller's output struct: min(struct_size, own_bytes) bytes, less
 * struct_size itself, which stays the caller's.
 * Return: 0, or KVPULL_EINVAL (NULL, or a struct_size as of no struct).
 */
int KVPULL_MUST_CHECK kvpull_params_give(void *theirs, const void *own,
					 size_t own_bytes);

/*
 * 0, or KVPULL_EINVAL: no size of a caller's array element, of which the first
 * version had first_bytes.
 */
int KVPULL_MUST_CHECK kvpull_element_check(size_t element_bytes,
					   size_t first_bytes);

/* The caller's element of to_bytes from ours of own_bytes. */
static inline void kvpull_element_give(void *to, size_t to_bytes,
				       const void *own, size_t own_bytes)
{
	const size_t bytes = to_bytes < own_bytes ? to_bytes : own_bytes;

	memcpy(to, own, bytes);
	memset((uint8_t *)to + bytes, 0, to_bytes - bytes);
}

/**
 * Copy a caller's array into ours. Shorter elements: the rest of ours is zero.
 *
 * @own         out; [count] of own_bytes; undefined on failure
 * @from_bytes  of theirs; of an element's first version: first_bytes
 * Return: 0, or KVPULL_EINVAL: no such size, or a member set that we do not know.
 */
int KVPULL_MUST_CHECK kvpull_elements_take(void *own, size_t own_bytes,
					   uint32_t count, const void *theirs,
					   size_t from_bytes,
					   size_t first_bytes);

/**
 * Say why something was refused: one line. Texts too long are cut, control
 * characters become '?'. NULL and a detail whose struct_size cannot be are
 * left alone; in a shorter one a text is cut to what is there.
 *
 * @field  config key or struct member; NULL or "": none.
 * Return: code.
 */
int __attribute__((format(printf, 4, 5)))
kvpull_detail_set(struct kvpull_error_detail *detail, int code,
		  const char *field, const char *format, ...);

/*
 * Makes one line of user text: each newline or control character becomes '?'.
 */
void kvpull_text_clean(char *text);

/* "EPEER"; of what is no error of ours "?". For log lines. */
const char *kvpull_error_name(int code);
/* Text of an error: what it means and what to do, as the ABI returns it. */
const char *kvpull_error_text(int code);

#endif /* KVPULL_BASE_PARAMS_H */
