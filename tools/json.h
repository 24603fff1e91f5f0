/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the objects that tools print; what there is no memory for is left out. */
#ifndef KVPULL_TOOLS_JSON_H
#define KVPULL_TOOLS_JSON_H

#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

/* Digits that a double has in any case: 17 print 36777.441 as 36777.440999999999. */
#define JSON_REALS JSON_REAL_PRECISION(15)

static inline void set_value(json_t *object, const char *key, json_t *value)
{
	(void)json_object_set_new(object, key, value);
}

static inline void set(json_t *object, const char *key, uint64_t number)
{
	set_value(object, key, json_integer((json_int_t)number));
}

static inline void set_real(json_t *object, const char *key, double number)
{
	set_value(object, key, json_real(number));
}

/* Print the object on standard output, and free it. 0, or -1: not all of it. */
static inline int json_show(json_t *object, size_t indent)
{
	const int code =
		json_dumpf(object, stdout, JSON_INDENT(indent) | JSON_REALS);

	(void)putchar('\n');
	json_decref(object);
	return code;
}

#endif /* KVPULL_TOOLS_JSON_H */
