/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real traffic shapes. A trace is read whole and checked before anything runs.
 * JSON lines of our own keys,
 *   {"arrival_s": 0.25, "prompt_tokens": 2048, "output_tokens": 80, "n": 1,
 *    "abort": false}
 * of which only arrival_s and prompt_tokens are needed (abort: the client goes
 * away while it loads), or of Mooncake's (FAST 2025, Apache-2.0 traces),
 *   {"timestamp": 27000, "input_length": 6955, "output_length": 52,
 *    "hash_ids": [46, 47, 2353]}
 * with milliseconds and a hash for each 512 tokens and all before them; or CSV
 * whose first line has the names that Azure's LLM inference traces or BurstGPT
 * use. The first request comes at once.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "tools/ib_pull_parts.h"

#define ARRIVAL_S_MAX 1e10 /* seconds since 1970 among them */
#define REQUESTS_MAX (1u << 24)
#define HASHES_MAX (UINT64_C(1) << 28) /* of all requests */
#define COLUMNS_MAX 32u
#define TOKENS_MAX UINT32_MAX

struct reader {
	struct ib_trace *trace;
	uint64_t request_room, hash_room; /* places in trace */
	double first_s;
	uint32_t line;
	uint32_t column_count; /* of CSV; 0: JSON lines */
	uint32_t arrival, prompt,
		output; /* columns; output: COLUMNS_MAX: none */
};

/* Names of columns; output may be missing. */
static const struct {
	const char *arrival, *prompt, *output;
} csv_names[] = {
	{ "TIMESTAMP", "ContextTokens", "GeneratedTokens" },
	{ "Timestamp", "Request tokens", "Response tokens" },
};

/* Room for so many; 0, or why not. */
static const char *grow(void **table, uint64_t *room, uint64_t count,
			uint64_t count_max, size_t bytes_each)
{
	void *grown;

	if (count <= *room)
		return NULL;
	if (count > count_max)
		return "the trace is too long: split it";
	grown = realloc(*table, 2 * count * bytes_each);
	if (!grown)
		return "out of memory";
	*table = grown;
	*room = 2 * count;
	return NULL;
}

/* A count, or where it is missing what *to is; 0, or -1: out of range. */
static int count_take(const json_t *object, const char *key, uint32_t least,
		      uint32_t *to)
{
	const json_t *value = json_object_get(object, key);
	const int64_t count = value ? json_integer_value(value) : *to;

	if ((value && !json_is_integer(value)) || count < least ||
	    count > TOKENS_MAX)
		return -1;
	*to = (uint32_t)count;
	return 0;
}

/* 0, or -1: it is no time. */
static int time_take(const json_t *object, const char *key, double units_a_s,
		     struct ib_arrival *arrival)
{
	const json_t *at = json_object_get(object, key);

	arrival->at_s = json_number_value(at) / units_a_s;
	return json_is_number(at) && arrival->at_s >= 0 &&
			       arrival->at_s <= ARRIVAL_S_MAX ?
		       0 :
		       -1;
}

static const char *hashes_take(struct reader *reader, const json_t *hashes,
			       struct ib_arrival *arrival)
{
	struct ib_trace *trace = reader->trace;
	const size_t count = json_array_size(hashes);
	const json_t *hash;
	const char *why;
	size_t index;

	if (hashes && !json_is_array(hashes))
		return "hash_ids must be an array of numbers";
	if (count > (arrival->prompt_tokens - 1) / IB_CHUNK_TOKENS + 1u)
		return "hash_ids has more than one for each 512 tokens of input_length";
	why = grow((void **)&trace->hashes, &reader->hash_room,
		   trace->hash_count + count, HASHES_MAX, sizeof(uint64_t));
	if (why)
		return why;
	arrival->hash_first = trace->hash_count;
	arrival->hash_count = (uint32_t)count;
	json_array_foreach(hashes, index, hash)
	{
		if (!json_is_integer(hash) || json_integer_value(hash) < 0)
			return "hash_ids must be numbers, 0 or more";
		trace->hashes[trace->hash_count++] =
			(uint64_t)json_integer_value(hash);
	}
	return NULL;
}

static const char *mooncake_of(struct reader *reader, const json_t *object,
			       struct ib_arrival *arrival)
{
	if (time_take(object, "timestamp", 1e3, arrival))
		return "timestamp must be milliseconds, 0 or more";
	if (count_take(object, "input_length", 1, &arrival->prompt_tokens))
		return "input_length must be 1 or more";
	if (count_take(object, "output_length", 0, &arrival->output_tokens))
		return "output_length must be 0 or more";
	return hashes_take(reader, json_object_get(object, "hash_ids"),
			   arrival);
}

static const char *ours_of(const json_t *object, struct ib_arrival *arrival)
{
	const json_t *leaves = json_object_get(object, "abort");

	if (time_take(object, "arrival_s", 1, arrival))
		return "arrival_s must be seconds, 0 or more";
	if (count_take(object, "prompt_tokens", 1, &arrival->prompt_tokens))
		return "prompt_tokens must be 1 or more";
	if (count_take(object, "output_tokens", 0, &arrival->output_tokens))
		return "output_tokens must be 0 or more";
	if (count_take(object, "n", 1, &arrival->siblings) ||
	    arrival->siblings > IB_SIBLINGS_MAX)
		return "n must be 1 .. 64";
	if (leaves && !json_is_boolean(leaves))
		return "abort must be true or false";
	arrival->abort = json_is_true(leaves);
	return NULL;
}

static const char *json_take(struct reader *reader, const char *line,
			     struct ib_arrival *arrival)
{
	static json_error_t error;
	json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
	const char *why = error.text;

	if (object && json_object_get(object, "timestamp"))
		why = mooncake_of(reader, object, arrival);
	else if (object)
		why = ours_of(object, arrival);
	json_decref(object);
	return why;
}

/* Cut at its commas; how many. No name or number that we read is quoted. */
static uint32_t columns_of(char *line, char *columns[COLUMNS_MAX])
{
	uint32_t count = 0;

	line[strcspn(line, "\r\n")] = '\0';
	do
		columns[count] = strsep(&line, ",");
	while (columns[count++] && line && count < COLUMNS_MAX);
	return count;
}

static uint32_t column_find(char *const *columns, uint32_t count,
			    const char *name)
{
	uint32_t index;

	for (index = 0; index < count; index++)
		if (!strcmp(columns[index], name))
			return index;
	return COLUMNS_MAX;
}

static const char *header_take(struct reader *reader, char *line)
{
	char *columns[COLUMNS_MAX];
	const uint32_t count = columns_of(line, columns);
	size_t index;

	for (index = 0; index < sizeof(csv_names) / sizeof(*csv_names);
	     index++) {
		reader->arrival =
			column_find(columns, count, csv_names[index].arrival);
		reader->prompt =
			column_find(columns, count, csv_names[index].prompt);
		reader->output =
			column_find(columns, count, csv_names[index].output);
		reader->column_count = count;
		if (reader->arrival < count && reader->prompt < count)
			return NULL;
	}
	return "neither a JSON object nor the names of CSV columns that are known: TIMESTAMP,ContextTokens,GeneratedTokens or Timestamp,Request tokens,Response tokens";
}

/* -1: it is no number, 0 or more. */
static double number_of(const char *text)
{
	char *end;
	const double number = strtod(text, &end);

	return end == text || *end || !(number >= 0) ? -1 : number;
}

/* Seconds, or a day and its time; -1: neither. */
static double seconds_of(const char *text)
{
	struct tm day = { 0 };
	const char *rest = strptime(text, "%Y-%m-%d %H:%M:%S", &day);

	if (!rest)
		rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &day);
	if (!rest)
		return number_of(text);
	return (double)timegm(&day) + (*rest == '.' ? strtod(rest, NULL) : 0);
}

/* A whole number, with or without .0; 0: none. */
static uint32_t tokens_of(const char *text)
{
	const double tokens = number_of(text);

	return tokens >= 0 && tokens <= TOKENS_MAX && !(fmod(tokens, 1) > 0) ?
		       (uint32_t)tokens :
		       0;
}

static const char *csv_take(const struct reader *reader, char *line,
			    struct ib_arrival *arrival)
{
	char *columns[COLUMNS_MAX];

	if (columns_of(line, columns) != reader->column_count)
		return "not as many columns as the first line names";
	arrival->at_s = seconds_of(columns[reader->arrival]);
	if (arrival->at_s < 0 || arrival->at_s > ARRIVAL_S_MAX)
		return "its time is neither seconds nor a day and its time";
	arrival->prompt_tokens = tokens_of(columns[reader->prompt]);
	if (!arrival->prompt_tokens)
		return "its prompt must have 1 token or more";
	if (reader->output < reader->column_count)
		arrival->output_tokens = tokens_of(columns[reader->output]);
	return NULL;
}

static const char *line_take(struct reader *reader, char *line)
{
	struct ib_trace *trace = reader->trace;
	struct ib_arrival arrival = { .siblings = 1, .line = reader->line };
	const char *why = NULL;

	if (line[strspn(line, " \t\r\n")] == '\0')
		return NULL;
	if (!trace->count && !reader->column_count &&
	    line[strspn(line, " \t")] != '{')
		return header_take(reader, line);
	why = reader->column_count ? csv_take(reader, line, &arrival) :
				     json_take(reader, line, &arrival);
	if (!why)
		why = grow((void **)&trace->arrivals, &reader->request_room,
			   trace->count + 1, REQUESTS_MAX, sizeof(arrival));
	if (why)
		return why;
	if (!trace->count)
		reader->first_s = arrival.at_s;
	arrival.at_s -= reader->first_s;
	if (trace->count &&
	    arrival.at_s < trace->arrivals[trace->count - 1].at_s)
		return "comes before the request above it: sort the trace by time";
	trace->arrivals[trace->count++] = arrival;
	if (arrival.prompt_tokens > trace->prompt_tokens_max) {
		trace->prompt_tokens_max = arrival.prompt_tokens;
		trace->prompt_line = arrival.line;
	}
	return NULL;
}

int ib_trace_read(const char *path, struct ib_trace *trace)
{
	struct reader reader = { .trace = trace };
	const char *why = NULL;
	char *line = NULL;
	size_t line_room = 0;
	FILE *file;
	int failed;

	*trace = (struct ib_trace){ 0 };
	errno = 0;
	file = fopen(path, "re");
	while (file && !why && getline(&line, &line_room, file) >= 0) {
		reader.line++;
		why = line_take(&reader, line);
	}
	failed = !file || why || ferror(file);
	if (why)
		fprintf(stderr, "trace: line %u: %s\n", reader.line, why);
	else if (failed)
		fprintf(stderr, "%s: %s\n", path,
			strerror(errno ? errno : EIO));
	free(line);
	if (file)
		(void)fclose(file);
	return failed ? -1 : 0;
}

void ib_trace_free(struct ib_trace *trace)
{
	free(trace->arrivals);
	free(trace->hashes);
	*trace = (struct ib_trace){ 0 };
}
