/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys, as the loader, the messages and the pages use it. */
#include "plugin/config/config_table.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROW(name, type, value, min, max, unit, meaning)                        \
	{ #name,                                                               \
	  KVPULL_KEY_##type,                                                   \
	  offsetof(struct kvpull_config, name),                                \
	  value,                                                               \
	  min,                                                                 \
	  max,                                                                 \
	  unit,                                                                \
	  meaning },

const struct kvpull_config_key kvpull_config_keys[] = { KVPULL_CONFIG_KEYS(
	ROW) };

const size_t kvpull_config_key_count =
	sizeof(kvpull_config_keys) / sizeof(kvpull_config_keys[0]);

/* The range as people read it: "10 .. 3600000 ms", "one of auto, no". */
void kvpull_config_key_range(const struct kvpull_config_key *key, char *text,
			     size_t capacity)
{
	switch (key->type) {
	case KVPULL_KEY_U32:
	case KVPULL_KEY_U64:
	case KVPULL_KEY_POWER:
		(void)snprintf(
			text, capacity, "%s%" PRIu64 " .. %" PRIu64 " %s",
			key->type == KVPULL_KEY_POWER ? "power of two, " : "",
			key->min, key->max, key->unit);
		return;
	case KVPULL_KEY_SWITCH:
		(void)snprintf(text, capacity, "true or false");
		return;
	case KVPULL_KEY_CHOICE:
		(void)snprintf(text, capacity, "one of %s", key->unit);
		return;
	case KVPULL_KEY_FOLDER:
		(void)snprintf(text, capacity,
			       "absolute path, at most %" PRIu64
			       " bytes, no ;%s",
			       key->max - 1, key->min ? "" : ", or empty");
		return;
	case KVPULL_KEY_SECRET:
		(void)snprintf(text, capacity, "path without ;, or empty");
		return;
	case KVPULL_KEY_TEXT:
		(void)snprintf(text, capacity,
			       "text, at most %" PRIu64 " bytes", key->max - 1);
		return;
	case KVPULL_KEY_UIDS:
		(void)snprintf(text, capacity,
			       "1 .. %u numbers, each 0 .. %" PRIu64,
			       KVPULL_UIDS_MAX, key->max);
		return;
	}
}

/* Edits (insert, remove, replace) from a known key to what was written. */
static size_t edit_distance(const char *known, const char *written)
{
	size_t row[KVPULL_KEY_NAME_BYTES + 1];
	const size_t known_bytes = strlen(known);
	size_t i;
	size_t k;

	for (i = 0; i <= known_bytes; i++)
		row[i] = i;
	for (k = 1; written[k - 1]; k++) {
		size_t diagonal = row[0];

		row[0] = k;
		for (i = 1; i <= known_bytes; i++) {
			const size_t replaced =
				diagonal +
				(known[i - 1] !=
				 tolower((unsigned char)written[k - 1]));

			diagonal = row[i];
			if (row[i - 1] < row[i])
				row[i] = row[i - 1];
			row[i]++;
			if (replaced < row[i])
				row[i] = replaced;
		}
	}
	return row[known_bytes];
}

const struct kvpull_config_key *kvpull_config_key_nearest(const char *name)
{
	const struct kvpull_config_key *nearest = &kvpull_config_keys[0];
	size_t least = SIZE_MAX;
	size_t i;

	for (i = 0; i < kvpull_config_key_count; i++) {
		const size_t distance =
			edit_distance(kvpull_config_keys[i].name, name);

		if (distance < least) {
			least = distance;
			nearest = &kvpull_config_keys[i];
		}
	}
	return nearest;
}

void kvpull_config_key_variable(const struct kvpull_config_key *key, char *name,
				size_t capacity)
{
	size_t i;

	(void)snprintf(name, capacity, KVPULL_ENVIRONMENT_PREFIX "%s",
		       key->name);
	for (i = 0; name[i]; i++)
		name[i] = (char)toupper((unsigned char)name[i]);
}
