/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys, for config.c, which loads them. Pure.
 */
#ifndef KVPULL_PLUGIN_CONFIG_TABLE_H
#define KVPULL_PLUGIN_CONFIG_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "plugin/config/config.h"

#define KVPULL_ENVIRONMENT_PREFIX "KVPULL_"
#define KVPULL_KEY_NAME_BYTES 32u /* longest key, with NUL and room */

/* plugin/config/keys.h describes the types. */
enum kvpull_config_key_type {
	KVPULL_KEY_U32,
	KVPULL_KEY_U64,
	KVPULL_KEY_POWER,
	KVPULL_KEY_SWITCH,
	KVPULL_KEY_CHOICE,
	KVPULL_KEY_FOLDER,
	KVPULL_KEY_TEXT,
	KVPULL_KEY_SECRET,
	KVPULL_KEY_UIDS
};

struct kvpull_config_key {
	const char *name;
	enum kvpull_config_key_type type;
	size_t offset;
	const char *value; /* default */
	uint64_t min;
	uint64_t max;
	const char *unit;
	const char *meaning;
};

extern const struct kvpull_config_key kvpull_config_keys[];
extern const size_t kvpull_config_key_count;

/* The range as people read it: "10 .. 3600000 ms", "one of auto, no". */
void kvpull_config_key_range(const struct kvpull_config_key *key, char *text,
			     size_t capacity);
/* The key whose name is the fewest edits away from this one. */
const struct kvpull_config_key *kvpull_config_key_nearest(const char *name);
/* KVPULL_<KEY> */
void kvpull_config_key_variable(const struct kvpull_config_key *key, char *name,
				size_t capacity);

#endif /* KVPULL_PLUGIN_CONFIG_TABLE_H */
