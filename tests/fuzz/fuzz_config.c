/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: lines of an environment up to the first byte of 0, behind
 * it the JSON, if there is more. What is taken is in its ranges; what is
 * refused says why in one line.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/config/config.h"
#include "plugin/config/config_table.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_BYTES_MAX 65536u
#define VARIABLES_MAX 64u

static int is_text(const char *text, size_t capacity)
{
	return memchr(text, '\0', capacity) != NULL;
}

static void range_check(const struct kvpull_config *config,
			const struct kvpull_config_key *key)
{
	const uint8_t *member = (const uint8_t *)config + key->offset;
	uint64_t number = 0;
	uint32_t narrow = 0;

	switch (key->type) {
	case KVPULL_KEY_U64:
		memcpy(&number, member, sizeof(number));
		break;
	case KVPULL_KEY_U32:
	case KVPULL_KEY_POWER:
	case KVPULL_KEY_SWITCH:
	case KVPULL_KEY_CHOICE:
		memcpy(&narrow, member, sizeof(narrow));
		number = narrow;
		break;
	case KVPULL_KEY_FOLDER:
	case KVPULL_KEY_TEXT:
		expect(is_text((const char *)member, key->max));
		return;
	case KVPULL_KEY_SECRET:
	case KVPULL_KEY_UIDS:
		return;
	}
	expect(number <= key->max);
	expect(number >= key->min || number == strtoull(key->value, NULL, 10));
	if (key->type == KVPULL_KEY_POWER)
		expect(!(number & (number - 1)));
}

static void load(const char *json)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_config config;
	const int code = kvpull_config_load(&config, json, &detail);
	size_t i;

	if (code) {
		expect(code == KVPULL_ECONFIG && detail.code == code);
		expect(is_text(detail.field, sizeof(detail.field)));
		expect(is_text(detail.message, sizeof(detail.message)));
		expect(detail.message[0] && !strchr(detail.message, '\n'));
		return;
	}
	for (i = 0; i < kvpull_config_key_count; i++)
		range_check(&config, &kvpull_config_keys[i]);
	expect(config.hold_max_ms >= config.lease_ms);
	expect(config.uid_count && config.uid_count <= KVPULL_UIDS_MAX);
	expect(is_text(config.service_link, sizeof(config.service_link)));
}

/* Makes an environment for one call: each line is a variable. */
static char **environment_of(char *text)
{
	static char *variables[VARIABLES_MAX + 1];
	char *rest = text;
	size_t count = 0;

	while (count < VARIABLES_MAX && rest && *rest) {
		variables[count++] = rest;
		rest = strchr(rest, '\n');
		if (rest)
			*rest++ = '\0';
	}
	variables[count] = NULL;
	return variables;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	char **const environment = environ;
	size_t variable_bytes;
	char *text;

	if (data_bytes > INPUT_BYTES_MAX)
		return 0;
	text = malloc(data_bytes + 1);
	expect(text != NULL);
	if (data_bytes)
		memcpy(text, data, data_bytes);
	text[data_bytes] = '\0';
	variable_bytes = strlen(text);
	environ = environment_of(text);
	load(variable_bytes < data_bytes ? text + variable_bytes + 1 : NULL);
	environ = environment;
	free(text);
	return 0;
}
