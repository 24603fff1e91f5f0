/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the objects that tools print; what there is no memory for is left out. */
#ifndef KVPULL_TOOLS_JSON_H
#define KVPULL_TOOLS_JSON_H

#include <stdint.h>

#include <jansson.h>

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

#endif /* KVPULL_TOOLS_JSON_H */
