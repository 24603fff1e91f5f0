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

#define ARRIVAL_S_MAX 1e6

int ib_trace_open(const char *path, FILE **file)
{
	*file = fopen(path, "re");
	if (*file)
		return 0;
	fprintf(stderr, "%s: %s\n", path, strerror(errno));
	return -1;
}

/* In its range, or `missing` where it is; -1: neither. */
static int64_t count_of(const json_t *object, const char *key, int64_t missing,
			int64_t least, int64_t most)
{
	const json_t *value = json_object_get(object, key);
	const int64_t count = json_integer_value(value);

	if (!value)
		return missing;
	return json_is_integer(value) && count >= least && count <= most ?
		       count :
		       -1;
}

static const char *arrival_of(const json_t *object, struct ib_arrival *arrival)
{
	const json_t *at = json_object_get(object, "arrival_s");
	const json_t *leaves = json_object_get(object, "abort");
	const int64_t prompt =
		count_of(object, "prompt_tokens", -1, 1, UINT32_MAX);
	const int64_t output =
		count_of(object, "output_tokens", 0, 0, UINT32_MAX);
	const int64_t siblings = count_of(object, "n", 1, 1, IB_SIBLINGS_MAX);

	arrival->at_s = json_number_value(at);
	if (!json_is_number(at) || arrival->at_s < 0 ||
	    arrival->at_s > ARRIVAL_S_MAX)
		return "arrival_s must be 0 .. 1000000 seconds";
	if (prompt < 0)
		return "prompt_tokens must be 1 or more";
	if (output < 0)
		return "output_tokens must be 0 or more";
	if (siblings < 0)
		return "n must be 1 .. 64";
	if (leaves && !json_is_boolean(leaves))
		return "abort must be true or false";
	arrival->prompt_tokens = (uint32_t)prompt;
	arrival->output_tokens = (uint32_t)output;
	arrival->siblings = (uint32_t)siblings;
	arrival->abort = json_is_true(leaves);
	return NULL;
}

int ib_trace_next(FILE *file, struct ib_arrival *arrival)
{
	char line[4096];
	json_error_t error;
	json_t *object;
	const char *why = error.text;

	do {
		if (!fgets(line, sizeof(line), file))
			return 0;
		arrival->line++;
	} while (line[strspn(line, " \t\r\n")] == '\0');
	object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
	if (object)
		why = arrival_of(object, arrival);
	json_decref(object);
	if (!why)
		return 1;
	fprintf(stderr, "trace: line %u: %s\n", arrival->line, why);
	return -1;
}
