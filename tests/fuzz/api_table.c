/* SPDX-License-Identifier: Apache-2.0 */
/* The requests that an engine remembers, and what reports they wait for. */
#include "tests/fuzz/api.h"

#include <string.h>

struct api_request *api_request_find(struct api_engine *engine, uint64_t key)
{
	uint32_t at;

	for (at = 0; key && at < API_REQUESTS_MAX; at++)
		if (engine->requests[at].key == key)
			return &engine->requests[at];
	return NULL;
}

/* Reports that it still waits for: bit a rank of SENT, then of pulls. */
static uint32_t owed_of(const struct api_engine *engine,
			const struct api_request *request)
{
	const uint32_t all = (1u << engine->tp_size) - 1;

	return (request->held ? all & ~request->sent : 0) |
	       (request->pulling ? all & (~request->ended | request->late) : 0)
		       << 8;
}

struct api_request *api_request_any(struct api_engine *engine)
{
	uint32_t tries;

	for (tries = 0; tries < 16; tries++) {
		/* Most often a request of the last ones. */
		const uint32_t back =
			1 + (uint32_t)api_below(
				    api_chance(800) ? 8 : API_REQUESTS_MAX);
		struct api_request *request =
			&engine->requests[(engine->request_next +
					   API_REQUESTS_MAX - back) %
					  API_REQUESTS_MAX];

		if (request->key)
			return request;
	}
	return NULL;
}

struct api_request *api_request_pick(struct api_engine *engine,
				     int (*fits)(const struct api_request *))
{
	struct api_request *request = NULL;
	uint32_t tries = api_chance(900) ? 24 : 1;

	for (; tries; tries--) {
		request = api_request_any(engine);
		if (request && request->life == engine->life && fits(request))
			break;
	}
	return request;
}

struct api_request *api_request_add(struct api_engine *engine)
{
	struct api_request *request =
		&engine->requests[engine->request_next % API_REQUESTS_MAX];

	if (request->key &&
	    (owed_of(engine, request) ||
	     (!request->finished && request->life == engine->life)))
		return NULL;
	engine->request_next++;
	memset(request, 0, sizeof(*request));
	return request;
}

uint32_t api_owed(const struct api_engine *engine, int is_told)
{
	uint32_t owed = 0;
	uint32_t at;

	for (at = 0; at < API_REQUESTS_MAX; at++) {
		const struct api_request *request = &engine->requests[at];
		const uint32_t bits = owed_of(engine, request);

		if (!request->key || request->life != engine->life)
			continue;
		/* A report that may come late need not come. */
		if (!(bits & 0xff) && !((bits >> 8) & ~request->late))
			continue;
		owed++;
		if (is_told)
			api_trace("%s: key %llu owes SENT %x, pulls %x",
				  engine->name,
				  (unsigned long long)request->key, bits & 0xff,
				  bits >> 8);
	}
	return owed;
}
