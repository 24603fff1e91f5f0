/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that no host in its senses makes: each has an answer, and changes
 * nothing.
 */
#include "tests/fuzz/api.h"

#include <stdlib.h>
#include <string.h>

static void garbage_give(struct api_engine *engine)
{
	const uint32_t rank = (uint32_t)api_below(engine->tp_size);
	const size_t byte_count = 1 + api_below(64);
	uint8_t *bytes = malloc(byte_count);
	size_t at;

	api_expect(bytes != NULL);
	for (at = 0; at < byte_count; at++)
		bytes[at] = (uint8_t)api_below(256);
	switch (api_below(3)) {
	case 0:
		api_expect(
			api_world->ops->worker->step(engine->ranks[rank].worker,
						     bytes, byte_count) < 0);
		break;
	case 1:
		api_expect(api_world->ops->scheduler->result_take(
				   engine->scheduler, bytes, byte_count) < 0);
		break;
	default:
		api_expect(api_world->ops->scheduler->rank_info(
				   engine->scheduler, bytes, byte_count) < 0);
		break;
	}
	free(bytes);
}

/* Each layer of the model with all of its bytes, and nothing else. */
static int covers(const struct kvpull_cache *caches, uint32_t cache_count)
{
	const struct api_shape *shape = &api_world->shape;
	const uint32_t layer_count = shape->group_count * API_LAYERS;
	uint64_t layers[API_GROUPS_MAX * API_LAYERS] = { 0 };
	uint32_t at;
	uint32_t layer;

	for (at = 0; at < cache_count; at++)
		for (layer = caches[at].layer_first;
		     layer - caches[at].layer_first < caches[at].layer_count;
		     layer++) {
			if (layer >= layer_count)
				return 0;
			layers[layer] += (uint64_t)caches[at].row_count *
					 caches[at].head_bytes;
		}
	for (layer = 0; layer < layer_count; layer++) {
		const uint64_t bytes = (uint64_t)shape->plane_count *
				       shape->row_count * api_head_bytes(layer);

		/*
		 * With unlike layers the cache's own word may be the odd one.
		 */
		if (!layers[layer] ||
		    (!shape->is_unlike && layers[layer] != bytes))
			return 0;
	}
	for (at = 0; at < cache_count; at++)
		if (caches[at].group_index >= api_world->shape.group_count)
			return 0;
	return 1;
}

#define CACHE_WORDS (sizeof(struct kvpull_cache) / sizeof(uint32_t))

/* Regions and caches with one member that may be anything. */
static void register_odd(struct api_engine *engine)
{
	const uint32_t rank = (uint32_t)api_below(engine->tp_size);
	struct api_rank *to = &engine->ranks[rank];
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct api_struct told = api_output_make(&detail, sizeof(detail));
	struct kvpull_region region = {
		.struct_size = sizeof(region),
		.kind = (uint32_t)api_below(6),
		.fd = -1,
		.base = to->memory,
		.bytes = to->memory_bytes,
	};
	struct kvpull_regions regions = {
		.struct_size = sizeof(regions),
		.regions = &region,
		.region_count = api_chance(800) ? 1 : api_odd_u32(),
		.cache_count = to->cache_count,
	};
	struct api_struct given;
	uint8_t *caches = api_copy(to->caches, sizeof(to->caches));
	uint32_t word;
	size_t at;
	int code;

	if (regions.region_count > 1 &&
	    regions.region_count <= KVPULL_REGIONS_MAX)
		regions.region_count = 0;
	if (api_chance(500)) {
		word = api_odd_u32();
		at = (size_t)api_below(to->cache_count * CACHE_WORDS);
		/* No peer may claim more bytes than there are. */
		at += at % CACHE_WORDS == 0;
		memcpy(caches + 4 * at, &word, sizeof(word));
	}
	if (api_chance(200))
		regions.cache_count = 0;
	regions.caches = (const struct kvpull_cache *)(void *)caches;
	if (api_chance(100))
		regions.caches = NULL;
	given = api_struct_make(&regions, sizeof(regions));
	/* A good one is as good as any; others are refused and change nothing. */
	code = api_world->ops->worker->regions_register(to->worker, given.given,
							told.given);
	api_trace("%s rank %u: odd registration: %d", engine->name, rank, code);
	free(given.given);
	free(told.given);
	if (to->registered)
		api_expect(code == KVPULL_EINVAL);
	if (!code) {
		to->registered = 1;
		api_expect(covers(regions.caches, regions.cache_count));
		/* Not as our own bytes lie: nothing is to be read from it. */
		if (memcmp(caches, to->caches, sizeof(to->caches)))
			api_worker_restart(engine, rank);
	}
	free(caches);
}

static void open_odd(struct api_engine *engine)
{
	struct kvpull_open_params params = api_open_params(engine, 0);
	struct kvpull_model model = *params.model;
	struct kvpull_host host = *params.host;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct api_struct told = api_output_make(&detail, sizeof(detail));
	struct kvpull_scheduler *scheduler = NULL;
	struct kvpull_worker *worker = NULL;
	struct api_struct given_model = api_struct_make(&model, sizeof(model));
	struct api_struct given_host = api_struct_make(&host, sizeof(host));
	struct api_struct given;
	int code;

	params.model = given_model.given;
	params.host = given_host.given;
	switch (api_below(8)) {
	case 0:
		params.tp_size = api_odd_u32();
		break;
	case 1:
		params.tp_rank = api_odd_u32();
		break;
	case 2:
		params.group_count = api_chance(500) ? 0 : 9;
		break;
	case 3:
		params.groups = NULL;
		break;
	case 4:
		params.config_json = api_chance(500) ? "{" : "[1]";
		break;
	case 5:
		params.engine_id = NULL;
		break;
	case 6:
		params.reserved = api_odd_u32();
		break;
	default:
		params.pp_size = api_odd_u32();
		break;
	}
	given = api_struct_make(&params, sizeof(params));
	if (api_chance(500)) {
		code = api_world->ops->scheduler->open(given.given, &scheduler,
						       told.given);
		api_expect((code == 0) == (scheduler != NULL));
		api_world->ops->scheduler->close(scheduler);
	} else {
		code = api_world->ops->worker->open(given.given, &worker,
						    told.given);
		api_expect((code == 0) == (worker != NULL));
		api_world->ops->worker->close(worker);
	}
	api_trace("odd open: %d", code);
	if (given.is_bad)
		api_expect(code == KVPULL_EINVAL);
	free(given.given);
	free(given_model.given);
	free(given_host.given);
	free(told.given);
}

static void texts(void)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct api_struct told = api_output_make(&detail, sizeof(detail));

	api_expect(api_world->ops->error_text((int)api_odd_u32()) != NULL);
	api_expect(api_world->ops->config_check("{\"lease_ms\": 1}",
						told.given) == KVPULL_ECONFIG);
	api_expect(api_world->ops->config_check("{\"lease_ms\": 10}",
						told.given) == 0);
	free(told.given);
}

/* A buffer that is not there, with a size. */
static int buffer_drop(struct api_engine *engine, struct kvpull_worker *worker)
{
	const struct kvpull_scheduler_ops *scheduler =
		api_world->ops->scheduler;
	const struct kvpull_worker_ops *ops = api_world->ops->worker;
	const uint32_t size = 1 + (uint32_t)api_below(API_STEP_BYTES);
	const uint64_t key = api_key_of_nobody();
	uint32_t count;
	size_t used;

	switch (api_below(12)) {
	case 0:
		return scheduler->rank_info(engine->scheduler, NULL, size);
	case 10:
		return scheduler->payload_get(engine->scheduler, key, NULL,
					      size, &used);
	case 1:
		return scheduler->request_rejected(engine->scheduler, NULL,
						   size);
	case 2:
		return scheduler->ticket_get(engine->scheduler, key, NULL, size,
					     &used);
	case 3:
		return scheduler->step_build(engine->scheduler, NULL, size,
					     &used);
	case 4:
		return scheduler->result_take(engine->scheduler, NULL, size);
	case 5:
		return ops->rank_info(worker, NULL, size, &used);
	case 6:
		return ops->step(worker, NULL, size);
	case 7:
		return ops->poll(worker, NULL, size,
				 sizeof(struct kvpull_poll_record));
	case 8:
		return ops->failed_blocks(worker, key, NULL, size, &count);
	case 9:
		return ops->result_build(worker, NULL, size, &used);
	default:
		return ops->peers(worker, NULL, size,
				  sizeof(struct kvpull_peer_info));
	}
}

/* An answer with no place for it. */
static int answer_drop(struct api_engine *engine, struct kvpull_worker *worker)
{
	const struct kvpull_scheduler_ops *scheduler =
		api_world->ops->scheduler;
	const struct kvpull_worker_ops *ops = api_world->ops->worker;
	const struct kvpull_open_params params = api_open_params(engine, 0);
	const struct api_request *request = api_request_any(engine);
	const uint64_t key = request ? request->key : api_key_of_nobody();
	static uint8_t bytes[API_STEP_BYTES];

	switch (api_below(10)) {
	case 0:
		return scheduler->open(&params, NULL, NULL);
	case 8:
		return scheduler->payload_get(engine->scheduler, key, bytes,
					      sizeof(bytes), NULL);
	case 1:
		return ops->open(&params, NULL, NULL);
	case 2:
		return scheduler->matched_tokens(engine->scheduler, key, 0,
						 NULL);
	case 3:
		return scheduler->ticket_get(engine->scheduler, key, bytes,
					     sizeof(bytes), NULL);
	case 4:
		return scheduler->step_build(engine->scheduler, bytes,
					     sizeof(bytes), NULL);
	case 5:
		return ops->rank_info(worker, bytes, sizeof(bytes), NULL);
	case 6:
		return ops->failed_blocks(worker, key,
					  (uint32_t *)(void *)bytes, 4, NULL);
	case 7:
		return ops->result_build(worker, bytes, sizeof(bytes), NULL);
	default:
		return api_world->ops->ticket_peek(bytes, sizeof(bytes), NULL);
	}
}

static void pointer_drop(struct api_engine *engine)
{
	struct kvpull_worker *worker =
		engine->ranks[api_below(engine->tp_size)].worker;

	api_expect(buffer_drop(engine, worker) == KVPULL_EINVAL);
	api_expect(answer_drop(engine, worker) == KVPULL_EINVAL);
}

void api_hostile(struct api_engine *engine)
{
	switch (api_below(5)) {
	case 3:
		pointer_drop(engine);
		break;
	case 0:
		garbage_give(engine);
		break;
	case 1:
		register_odd(engine);
		break;
	case 2:
		open_odd(engine);
		break;
	default:
		texts();
		break;
	}
}
