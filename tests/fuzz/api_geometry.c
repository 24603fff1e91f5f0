/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where blocks truly lie, and lies that both ends tell of it in the same way.
 *
 * A lie breaks what registration can see: the sum of a layer's bytes, bounds, caches
 * that keep clear of each other, a member that must be set. Others cannot be seen by
 * anybody and are not drawn. Where one is believed the world goes on with it: blocks
 * are written and compared where they truly lie, so a pull shows it.
 */
#include "tests/fuzz/api.h"

void api_geometry_draw(struct api_shape *shape)
{
	shape->block_tokens = 1 + (uint32_t)api_below(8);
	shape->row_count = api_chance(500) ? 1 : shape->block_tokens;
	shape->plane_count = 1 + (uint32_t)api_below(API_PLANES_MAX);
	shape->is_unlike = (uint32_t)api_chance(200);
	shape->is_window = (uint32_t)api_chance(500);
}

uint32_t api_token_bytes(uint32_t layer)
{
	return api_world->shape.is_unlike && layer % 2 ? 16 : 8;
}

uint32_t api_head_bytes(uint32_t layer)
{
	const struct api_shape *shape = &api_world->shape;

	return api_token_bytes(layer) * shape->block_tokens / shape->row_count;
}

static uint32_t heads_of(const struct api_engine *engine)
{
	return api_world->shape.replicated ? API_HEADS :
					     API_HEADS / engine->tp_size;
}

/* How a rank lays out its blocks. */
struct layout {
	uint32_t heads;
	uint32_t head_first;
	uint32_t layer_count; /* of a cache */
	uint32_t rows_outer;
	uint32_t planes_inner; /* K and V in turn, a block each */
	uint64_t padding;
};

/* Caches of some layers from this place on, a plane each; return their end. */
static uint64_t planes_make(struct api_rank *to, const struct layout *layout,
			    uint32_t layer, uint64_t place)
{
	const struct api_shape *shape = &api_world->shape;
	const uint32_t head_bytes = api_head_bytes(layer);
	const uint64_t extent =
		(uint64_t)layout->heads * shape->row_count * head_bytes;
	const uint64_t stride =
		(layout->planes_inner ? shape->plane_count : 1) * extent +
		layout->padding;
	const uint64_t bytes = stride * API_BLOCKS * layout->layer_count;
	const int is_state = shape->is_state && layer >= API_LAYERS;
	uint32_t plane;

	for (plane = 0; plane < shape->plane_count; plane++)
		to->caches[to->cache_count++] = (struct kvpull_cache){
			.struct_size = sizeof(*to->caches),
			.group_index = layer / API_LAYERS,
			.layer_first = layer,
			.layer_count = layout->layer_count,
			.offset =
				place +
				plane * (layout->planes_inner ? extent : bytes),
			.layer_stride = stride * API_BLOCKS,
			.block_stride = stride,
			.row_stride = layout->rows_outer ?
					      layout->heads * head_bytes :
					      head_bytes,
			.head_stride = layout->rows_outer ?
					       head_bytes :
					       shape->row_count * head_bytes,
			.block_count = API_BLOCKS,
			.row_count = shape->row_count,
			.head_first = layout->head_first,
			.head_count = layout->heads,
			.head_bytes = head_bytes,
			.token_bytes = is_state ? 0 :
				       shape->is_unlike || api_chance(500) ?
						  api_token_bytes(layer) :
						  0,
		};
	return place + (layout->planes_inner ? 1 : shape->plane_count) * bytes;
}

void api_caches_make(struct api_engine *engine, uint32_t rank)
{
	const struct api_shape *shape = &api_world->shape;
	struct api_rank *to = &engine->ranks[rank];
	const uint32_t heads = heads_of(engine);
	const uint32_t is_one = (uint32_t)api_chance(500) && !shape->is_unlike;
	const struct layout layout = {
		.heads = heads,
		.head_first = shape->replicated ? 0 : rank * heads,
		.layer_count = is_one ? API_LAYERS : 1,
		.rows_outer = (uint32_t)api_below(2),
		.planes_inner = (uint32_t)api_below(2),
		.padding = 64 * api_below(2),
	};
	uint64_t place = 0;
	uint32_t layer;

	to->cache_count = 0;
	for (layer = 0; layer < shape->group_count * API_LAYERS;
	     layer += layout.layer_count)
		place = planes_make(to, &layout, layer, place);
	to->memory_bytes = place;
}

uint8_t *api_place(const struct api_rank *rank, uint32_t layer, uint32_t plane,
		   uint32_t id, uint32_t row, uint32_t head)
{
	const struct kvpull_cache *cache = rank->caches;

	while (layer < cache->layer_first ||
	       layer - cache->layer_first >= cache->layer_count)
		cache++;
	cache += plane; /* planes of the same layers follow each other */
	return rank->memory + cache->offset +
	       (layer - cache->layer_first) * cache->layer_stride +
	       id * cache->block_stride + row * cache->row_stride +
	       head * cache->head_stride;
}

/* ---- lies ---- */

static uint64_t amount_below(uint64_t bound)
{
	return api_world->lie.amount % bound;
}

static uint64_t extent_of(const struct kvpull_cache *cache)
{
	return (uint64_t)cache->head_count * cache->row_count *
	       cache->head_bytes;
}

/* All caches of a plane lack rows, or the ends of their rows. */
static int rows_lack(struct kvpull_cache *caches, uint32_t cache_count,
		     uint32_t plane)
{
	const int is_rows = api_world->lie.kind == API_LIE_ROWS;
	uint32_t at;

	if (is_rows && caches->row_count == 1)
		return 0;
	for (at = plane; at < cache_count; at += api_world->shape.plane_count) {
		uint32_t *member = is_rows ? &caches[at].row_count :
					     &caches[at].head_bytes;

		*member = 1 + (uint32_t)amount_below(*member - 1);
	}
	return 1;
}

static int plane_drop(struct kvpull_cache *caches, uint32_t *cache_count,
		      uint32_t plane)
{
	uint32_t at;

	if (api_world->shape.plane_count == 1 || api_world->shape.is_unlike)
		return 0; /* each cache says its own bytes: nobody can see it */
	*cache_count /= 2;
	for (at = 0; at < *cache_count; at++)
		caches[at] = caches[2 * at + plane];
	return 1;
}

/* A cache begins in a block of another one of its group. */
static int place_shift(struct kvpull_cache *caches, uint32_t cache_count,
		       uint32_t distance)
{
	const uint32_t at = (uint32_t)amount_below(cache_count);
	const struct kvpull_cache *from = &caches[at];
	struct kvpull_cache *to = &caches[at + distance];

	if (at + distance >= cache_count ||
	    from->group_index != to->group_index)
		return 0;
	to->offset = from->offset + amount_below(extent_of(from));
	return 1;
}

static int stride_shrink(struct kvpull_cache *cache)
{
	const uint64_t stride = 1 + amount_below(extent_of(cache) - 1);

	if (api_world->lie.amount & 1 || cache->layer_count == 1)
		cache->block_stride = stride;
	else
		cache->layer_stride = stride;
	return 1;
}

static int member_clear(struct kvpull_cache *cache)
{
	uint32_t *members[] = { &cache->layer_count, &cache->block_count,
				&cache->row_count,   &cache->head_count,
				&cache->head_bytes,  &cache->token_bytes };

	*members[amount_below(api_world->shape.is_unlike ? 6 : 5)] = 0;
	return 1;
}

static uint64_t end_of(const struct kvpull_cache *cache)
{
	return cache->offset + (cache->layer_count - 1) * cache->layer_stride +
	       (cache->block_count - 1) * cache->block_stride +
	       extent_of(cache);
}

static int end_exceed(struct kvpull_region *region, struct kvpull_cache *caches,
		      uint32_t cache_count)
{
	struct kvpull_cache *last = &caches[cache_count - 1];

	switch (amount_below(3)) {
	case 0:
		region->bytes = end_of(last) - 1 - amount_below(64);
		break;
	case 1:
		last->offset += region->bytes - end_of(last) + 1;
		break;
	default:
		last->block_count *= 2 + (uint32_t)amount_below(1000);
		break;
	}
	return 1;
}

int api_lie_tell(const struct api_rank *rank, struct kvpull_region *region,
		 struct kvpull_cache *caches, uint32_t *cache_count)
{
	const uint32_t planes = api_world->shape.plane_count;
	const uint32_t plane = (uint32_t)amount_below(planes);
	uint32_t at;

	for (at = 0; at < rank->cache_count; at++)
		caches[at] = rank->caches[at];
	*cache_count = rank->cache_count;
	at = (uint32_t)amount_below(*cache_count);
	switch (api_world->lie.kind) {
	case API_LIE_ROWS:
	case API_LIE_HEAD_BYTES:
		return rows_lack(caches, *cache_count, plane);
	case API_LIE_PLANE:
		return plane_drop(caches, cache_count, plane);
	case API_LIE_TWICE:
		caches[*cache_count] = caches[at];
		++*cache_count;
		return 1;
	case API_LIE_OFFSET:
		return planes > 1 && place_shift(caches, *cache_count, 1);
	case API_LIE_LAYER:
		return place_shift(caches, *cache_count, planes);
	case API_LIE_STRIDE:
		return stride_shrink(&caches[at]);
	case API_LIE_ZERO:
		return member_clear(&caches[at]);
	case API_LIE_BEYOND:
		return end_exceed(region, caches, *cache_count);
	default:
		return 0;
	}
}

int api_lie_tell_model(struct kvpull_model *model, struct kvpull_group *groups)
{
	if (api_world->lie.kind != API_LIE_MODEL)
		return 0;
	switch (amount_below(7)) {
	case 0:
		model->model = NULL;
		break;
	case 1:
		model->dtype = "";
		break;
	case 2:
		model->layout = NULL;
		break;
	case 3:
		model->layer_count = 0;
		break;
	case 4:
		model->head_count = 0;
		break;
	case 5:
		groups[0].block_tokens = 0;
		break;
	default: /* all of it */
		*model = (struct kvpull_model){ .struct_size = sizeof(*model) };
		break;
	}
	return 1;
}

void api_lie_taken(const struct api_engine *engine, uint32_t rank)
{
	const enum api_lie_kind kind = api_world->lie.kind;

	api_trace("%s rank %u: lie %u is believed", engine->name, rank, kind);
	api_world->lie.taken++;
	if (kind == API_LIE_MODEL || kind == API_LIE_ZERO ||
	    kind == API_LIE_BEYOND)
		api_fail("%s rank %u: lie %u is believed", engine->name, rank,
			 kind);
}
