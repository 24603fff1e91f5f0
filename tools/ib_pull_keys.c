/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the requests of --pool: by Zipf's law, or a trace's hash_ids. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/index.h"
#include "tools/ib_pull_parts.h"

static int zipf_make(struct ib_keys *keys)
{
	const uint32_t count = keys->options->keys;
	double sum = 0;
	uint32_t at;

	keys->summed = calloc(count, sizeof(*keys->summed));
	if (!keys->summed) {
		fprintf(stderr, "out of memory: fewer --keys\n");
		return -1;
	}
	for (at = 0; at < count; at++) {
		sum += pow(at + 1, -keys->options->zipf);
		keys->summed[at] = sum;
	}
	return 0;
}

static uint64_t zipf_draw(const struct ib_keys *keys, uint64_t *random)
{
	uint32_t first = 0;
	uint32_t end = keys->options->keys - 1;
	const double drawn =
		(double)(kvpull_index_mix(++*random, 0) >> 11) * 0x1p-53;
	const double share = drawn * keys->summed[end];

	while (first < end) {
		const uint32_t middle = first + (end - first) / 2;

		if (keys->summed[middle] < share)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

/* Requests that do not name their prefixes cannot be asked for. */
static int trace_make(struct ib_keys *keys)
{
	struct ib_trace *trace = &keys->trace;
	uint32_t kept = 0;
	uint32_t at;

	if (ib_trace_read(keys->options->trace, trace))
		return -1;
	for (at = 0; at < trace->count; at++)
		if (trace->arrivals[at].hash_count)
			trace->arrivals[kept++] = trace->arrivals[at];
	trace->count = kept;
	if (!kept)
		fprintf(stderr, "trace: no request has hash_ids\n");
	return kept ? 0 : -1;
}

int ib_keys_open(struct ib_keys *keys, const struct ib_options *options)
{
	*keys = (struct ib_keys){ .options = options };
	return options->trace ? trace_make(keys) : zipf_make(keys);
}

void ib_keys_close(struct ib_keys *keys)
{
	ib_trace_free(&keys->trace);
	free(keys->summed);
}

uint32_t ib_keys_of(const struct ib_keys *keys, uint64_t number,
		    uint64_t *random, uint64_t *to)
{
	uint32_t count = keys->options->request_blocks;
	const struct ib_arrival *arrival;
	uint32_t at;

	if (!keys->options->trace) {
		for (at = 0; at < count; at++)
			to[at] = zipf_draw(keys, random);
		return count;
	}
	arrival = &keys->trace.arrivals[number % keys->trace.count];
	if (arrival->hash_count < count)
		count = arrival->hash_count;
	memcpy(to, keys->trace.hashes + arrival->hash_first,
	       count * sizeof(*to));
	return count;
}
