/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real traffic shapes: a file of JSON lines, one request each,
 * {"arrival_s": 0.25, "prompt_tokens": 2048, "output_tokens": 80, "n": 1,
 *  "abort": false}. Only arrival_s and prompt_tokens are needed. abort: the
 * client goes away while it loads.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tools/ib_pull.h"

int ib_trace_open(const char *path, FILE **file)
{
	*file = fopen(path, "re");
	if (*file)
		return 0;
	fprintf(stderr, "%s: %s\n", path, strerror(errno));
	return -1;
}

static uint32_t count_of(const json_t *object, const char *key,
			 uint32_t missing)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    json_integer_value(value) > UINT32_MAX)
		return missing;
	return (uint32_t)json_integer_value(value);
}

int ib_trace_next(FILE *file, struct ib_arrival *arrival)
{
	char line[4096];
	json_error_t error;
	json_t *object;
	const json_t *at;

	do {
		if (!fgets(line, sizeof(line), file))
			return 0;
	} while (line[strspn(line, " \t\r\n")] == '\0');
	object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
	at = json_object_get(object, "arrival_s");
	if (!json_is_number(at) || !count_of(object, "prompt_tokens", 0)) {
		fprintf(stderr,
			"trace: a line needs arrival_s and prompt_tokens: %s",
			line);
		json_decref(object);
		return -1;
	}
	arrival->at_s = json_number_value(at);
	arrival->prompt_tokens = count_of(object, "prompt_tokens", 1);
	arrival->output_tokens = count_of(object, "output_tokens", 0);
	arrival->siblings = count_of(object, "n", 1);
	arrival->abort = json_is_true(json_object_get(object, "abort"));
	if (!arrival->siblings || arrival->siblings > IB_SIBLINGS_MAX)
		arrival->siblings = 1;
	json_decref(object);
	return 1;
}
