/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of callers that are older or newer than the library. A caller's
 * struct is read as far as its struct_size says, never beyond.
 */
#include "base/params.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static size_t struct_size_of(const void *theirs)
{
	size_t struct_size;

	memcpy(&struct_size, theirs, sizeof(struct_size));
	return struct_size;
}

/* A struct with a size_t in it ends between members as large as that. */
static int is_struct_size(size_t struct_size)
{
	return struct_size >= sizeof(size_t) &&
	       struct_size <= KVPULL_PARAMS_BYTES_MAX &&
	       struct_size % sizeof(size_t) == 0;
}

static int is_zero(const uint8_t *bytes, size_t byte_count)
{
	size_t i;

	for (i = 0; i < byte_count; i++)
		if (bytes[i])
			return 0;
	return 1;
}

int kvpull_params_take(void *own, size_t own_bytes, const void *theirs)
{
	size_t struct_size;

	if (!theirs || own_bytes < sizeof(size_t))
		return KVPULL_EINVAL;
	struct_size = struct_size_of(theirs);
	if (!is_struct_size(struct_size))
		return KVPULL_EINVAL;
	if (struct_size > own_bytes) {
		if (!is_zero((const uint8_t *)theirs + own_bytes,
			     struct_size - own_bytes))
			return KVPULL_EINVAL;
		struct_size = own_bytes;
	}
	memset(own, 0, own_bytes);
	memcpy(own, theirs, struct_size);
	memcpy(own, &own_bytes, sizeof(own_bytes));
	return 0;
}

int kvpull_params_take_named(void *own, size_t own_bytes, const void *theirs,
			     const char *name,
			     struct kvpull_error_detail *detail)
{
	size_t struct_size;

	if (!kvpull_params_take(own, own_bytes, theirs))
		return 0;
	if (!theirs)
		return kvpull_detail_set(detail, KVPULL_EINVAL, name,
					 "%s is NULL", name);
	struct_size = struct_size_of(theirs);
	if (!is_struct_size(struct_size))
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, "struct_size",
			"%s has a struct_size of %zu: fill in the struct's sizeof",
			name, struct_size);
	return kvpull_detail_set(
		detail, KVPULL_EINVAL, "struct_size",
		"%s has %zu bytes, this library knows %zu, and what is beyond them is not 0: it needs a newer library",
		name, struct_size, own_bytes);
}

int kvpull_params_check_output(const void *theirs)
{
	if (!theirs || !is_struct_size(struct_size_of(theirs)))
		return KVPULL_EINVAL;
	return 0;
}

int kvpull_params_give(void *theirs, const void *own, size_t own_bytes)
{
	size_t bytes;

	if (kvpull_params_check_output(theirs))
		return KVPULL_EINVAL;
	bytes = struct_size_of(theirs);
	if (bytes > own_bytes)
		bytes = own_bytes;
	if (bytes > sizeof(size_t))
		memcpy((uint8_t *)theirs + sizeof(size_t),
		       (const uint8_t *)own + sizeof(size_t),
		       bytes - sizeof(size_t));
	return 0;
}

int kvpull_element_check(size_t element_bytes, size_t first_bytes)
{
	return element_bytes >= first_bytes && is_struct_size(element_bytes) ?
		       0 :
		       KVPULL_EINVAL;
}

int kvpull_elements_take(void *own, size_t own_bytes, uint32_t count,
			 const void *theirs, size_t from_bytes,
			 size_t first_bytes)
{
	const uint8_t *from = theirs;
	uint8_t *to = own;
	uint32_t i;

	if (kvpull_element_check(from_bytes, first_bytes))
		return KVPULL_EINVAL;
	for (i = 0; i < count; i++) {
		kvpull_element_give(to, own_bytes, from, from_bytes);
		if (from_bytes > own_bytes &&
		    !is_zero(from + own_bytes, from_bytes - own_bytes))
			return KVPULL_EINVAL;
		to += own_bytes;
		from += from_bytes;
	}
	return 0;
}

/* A struct that ends inside a text: its last byte there ends the text. */
static void text_end(struct kvpull_error_detail *detail)
{
	const size_t end = detail->struct_size;

	if (end > offsetof(struct kvpull_error_detail, field) &&
	    end <= sizeof(*detail))
		((char *)detail)[end - 1] = '\0';
}

void kvpull_text_clean(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

int kvpull_detail_set(struct kvpull_error_detail *detail, int code,
		      const char *field, const char *format, ...)
{
	struct kvpull_error_detail own = { .struct_size = sizeof(own),
					   .code = code };
	va_list arguments;

	if (!detail)
		return code;
	(void)snprintf(own.field, sizeof(own.field), "%s", field ? field : "");
	va_start(arguments, format);
	(void)vsnprintf(own.message, sizeof(own.message), format, arguments);
	va_end(arguments);
	kvpull_text_clean(own.field);
	kvpull_text_clean(own.message);
	if (!kvpull_params_give(detail, &own, sizeof(own)))
		text_end(detail);
	return code;
}

const char *kvpull_error_name(int code)
{
	switch (code) {
#define KVPULL_ERROR_NAME(name, value, text)                                   \
	case KVPULL_##name:                                                    \
		return #name;
		KVPULL_ERRORS(KVPULL_ERROR_NAME)
#undef KVPULL_ERROR_NAME
	default:
		return "?";
	}
}

const char *kvpull_error_text(int code)
{
	switch (code) {
	case KVPULL_OK:
		return "success";
#define KVPULL_ERROR_TEXT(name, value, text)                                   \
	case KVPULL_##name:                                                    \
		return text;
		KVPULL_ERRORS(KVPULL_ERROR_TEXT)
#undef KVPULL_ERROR_TEXT
	default:
		return "unknown error: the library is newer than its caller";
	}
}
