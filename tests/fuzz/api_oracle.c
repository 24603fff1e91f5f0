/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of each block, and the reports that follow from them.
 *
 * Each write of a block has a content, a number that no other write has; the
 * bytes follow from it, layer by layer and head by head of the model, so that
 * ranks of another split can be compared. An engine writes blocks again as
 * soon as they are its own: a hold's on each rank that reported SENT, a pull's
 * when it was reported. Whatever is read or written after that is seen.
 */
#include "tests/fuzz/api.h"

#include <string.h>

uint64_t api_content_new(void)
{
	return api_world->content_next++;
}

/* A row of a head: of which layer and plane. */
struct row {
	uint32_t layer;
	uint32_t plane;
	uint32_t row;
	uint32_t head; /* of the rank */
};

static uint64_t word_of(uint64_t content, const struct row *row, uint32_t head,
			uint32_t word)
{
	uint64_t at = row->layer * API_PLANES_MAX + row->plane;

	at = (at << 3 | row->row) << 3 | head;
	return api_mix(content << 24 ^ at << 8 ^ word);
}

/* Expected words of a block; NULL content: any. */
struct compare {
	const struct api_engine *engine;
	uint32_t rank;
	uint32_t group;
	uint32_t id;
	uint32_t by_heads; /* contents[head / by_heads] */
	uint64_t contents[API_RANKS_MAX];
	int is_write;
};

static int row_step(const struct compare *compare, const struct row *row)
{
	const struct api_rank *rank = &compare->engine->ranks[compare->rank];
	const uint32_t global = rank->caches[0].head_first + row->head;
	const uint64_t content = compare->contents[global / compare->by_heads];
	const uint32_t words = api_head_bytes(row->layer) / sizeof(uint64_t);
	uint8_t *at = api_place(rank, row->layer, row->plane, compare->id,
				row->row, row->head);
	int is_right = 1;
	uint32_t word;

	for (word = 0; content && word < words;
	     word++, at += sizeof(uint64_t)) {
		const uint64_t value = word_of(content, row, global, word);

		if (compare->is_write)
			memcpy(at, &value, sizeof(value));
		is_right &= !memcmp(at, &value, sizeof(value));
	}
	return is_right;
}

/* 1: all is as it must be. */
static int block_walk(const struct compare *compare)
{
	const struct api_shape *shape = &api_world->shape;
	const uint32_t heads =
		compare->engine->ranks[compare->rank].caches[0].head_count;
	const uint32_t count =
		API_LAYERS * shape->plane_count * shape->row_count * heads;
	int is_right = 1;
	uint32_t at;

	for (at = 0; at < count; at++) {
		const struct row row = {
			.head = at % heads,
			.row = at / heads % shape->row_count,
			.plane = at / heads / shape->row_count %
				 shape->plane_count,
			.layer = compare->group * API_LAYERS +
				 at / heads / shape->row_count /
					 shape->plane_count,
		};

		is_right &= row_step(compare, &row);
	}
	return is_right;
}

uint64_t api_block_write(struct api_engine *engine, uint32_t rank,
			 uint32_t group, uint32_t id, uint64_t content)
{
	const struct compare compare = { .engine = engine,
					 .rank = rank,
					 .group = group,
					 .id = id,
					 .by_heads = API_HEADS,
					 .contents = { content },
					 .is_write = 1 };

	if (!engine->ranks[rank].memory)
		return 0;
	(void)block_walk(&compare);
	engine->ranks[rank].blocks[group][id].content = content;
	return content;
}

static void block_settle(struct api_engine *engine, uint32_t rank,
			 uint32_t group, uint32_t id)
{
	struct api_block *block = &engine->ranks[rank].blocks[group][id];

	if (!block->holds && !block->writers)
		(void)api_block_write(engine, rank, group, id,
				      api_content_new());
}

int api_block_is_free(const struct api_engine *engine, uint32_t group,
		      uint32_t id)
{
	uint32_t rank;

	for (rank = 0; rank < engine->tp_size; rank++)
		if (engine->ranks[rank].blocks[group][id].holds ||
		    engine->ranks[rank].blocks[group][id].writers)
			return 0;
	return 1;
}

void api_memory_check(void)
{
	const uint32_t groups = api_world->shape.group_count;
	uint32_t at;

	for (at = 0; at < API_ENGINES * API_RANKS_MAX * groups * API_BLOCKS;
	     at++) {
		const uint32_t group = at / API_BLOCKS % groups;
		const uint32_t rank = at / API_BLOCKS / groups % API_RANKS_MAX;
		const struct api_engine *engine =
			&api_world->engines[at / API_BLOCKS / groups /
					    API_RANKS_MAX];
		const struct api_block *block =
			&engine->ranks[rank].blocks[group][at % API_BLOCKS];
		const struct compare compare = { .engine = engine,
						 .rank = rank,
						 .group = group,
						 .id = at % API_BLOCKS,
						 .by_heads = API_HEADS,
						 .contents = {
							 block->content } };

		if (rank >= engine->tp_size || block->writers)
			continue;
		if (!block_walk(&compare))
			api_fail("%s rank %u group %u block %u was written to",
				 engine->name, rank, group, at % API_BLOCKS);
	}
}

/* ---- holds ---- */

struct api_hold *api_hold_of(uint64_t serial)
{
	struct api_hold *hold = &api_world->holds[serial % API_HOLDS_MAX];

	return serial && hold->serial == serial ? hold : NULL;
}

static struct api_hold *hold_find(uint64_t key)
{
	uint32_t at;

	for (at = 0; at < API_HOLDS_MAX; at++)
		if (api_world->holds[at].serial &&
		    api_world->holds[at].key == key)
			return &api_world->holds[at];
	return NULL;
}

uint64_t api_hold_serial(const void *ticket, size_t ticket_bytes)
{
	uint32_t at;

	for (at = 0; at < API_HOLDS_MAX; at++) {
		const struct api_hold *hold = &api_world->holds[at];

		if (hold->serial && hold->ticket_bytes == ticket_bytes &&
		    !memcmp(hold->ticket, ticket, ticket_bytes))
			return hold->serial;
	}
	return 0;
}

/* Of one that is counted on still there may be many: then there is none. */
struct api_hold *api_hold_add(void)
{
	struct api_hold *hold =
		&api_world->holds[api_world->hold_next % API_HOLDS_MAX];

	if (hold->named)
		return NULL;
	return hold;
}

static int is_twice(const struct api_blocks *blocks, uint32_t at)
{
	uint32_t before;

	for (before = 0; before < at; before++)
		if (blocks->ids[before] == blocks->ids[at])
			return 1;
	return 0;
}

static void fill_one(struct api_engine *engine, struct api_hold *hold,
		     uint32_t group, uint32_t at)
{
	const uint32_t id = hold->groups[group].ids[at];
	const uint64_t content = api_content_new();
	const uint64_t before = hold->ready ? content : api_content_new();
	const int is_new = api_block_is_free(engine, group, id) &&
			   !is_twice(&hold->groups[group], at);
	uint32_t rank;

	for (rank = 0; rank < engine->tp_size; rank++) {
		const struct api_block *block =
			&engine->ranks[rank].blocks[group][id];

		hold->content[rank][group][at] = is_new         ? content :
						 block->writers ? 0 :
						 hold->ready ? block->content :
							       0;
		if (is_new)
			(void)api_block_write(engine, rank, group, id, before);
	}
}

void api_hold_fill(struct api_engine *engine, struct api_hold *hold,
		   int is_ready)
{
	uint32_t group;
	uint32_t at;

	memset(hold->content, 0, sizeof(hold->content));
	hold->ready = is_ready ? UINT32_MAX : 0u;
	for (group = 0; group < api_world->shape.group_count; group++)
		for (at = 0; at < hold->groups[group].count; at++)
			if (hold->groups[group].ids[at] < API_BLOCKS)
				fill_one(engine, hold, group, at);
}

/* A hold that is not ready: its writes end now, before hold_ready(). */
void api_hold_write(struct api_engine *engine, struct api_hold *hold,
		    uint32_t rank)
{
	uint32_t group;
	uint32_t at;

	if (hold->ready >> rank & 1 || !(hold->named >> rank & 1))
		return;
	hold->ready |= 1u << rank;
	for (group = 0; group < api_world->shape.group_count; group++)
		for (at = 0; at < hold->groups[group].count; at++) {
			const uint32_t id = hold->groups[group].ids[at];
			uint64_t *content = &hold->content[rank][group][at];
			const struct api_block *block;

			if (id >= API_BLOCKS || !*content)
				continue;
			block = &engine->ranks[rank].blocks[group][id];
			if (block->holds != 1 || block->writers)
				*content = 0;
			else
				(void)api_block_write(engine, rank, group, id,
						      *content);
		}
}

/* Count a hold's blocks on a rank, or count them no more. */
static void hold_count(struct api_engine *engine, const struct api_hold *hold,
		       uint32_t rank, int is_more)
{
	uint32_t group;
	uint32_t at;

	for (group = 0; group < api_world->shape.group_count; group++)
		for (at = 0; at < hold->groups[group].count; at++) {
			const uint32_t id = hold->groups[group].ids[at];

			if (id >= API_BLOCKS)
				continue;
			if (is_more) {
				engine->ranks[rank].blocks[group][id].holds++;
				continue;
			}
			engine->ranks[rank].blocks[group][id].holds--;
			block_settle(engine, rank, group, id);
		}
}

void api_hold_taken(struct api_engine *engine, struct api_request *request,
		    struct api_hold *hold)
{
	uint32_t rank;

	request->held = 1;
	hold->key = request->key;
	hold->engine = engine->index;
	hold->tp_size = engine->tp_size;
	hold->tokens = request->prompt_tokens;
	hold->named = (1u << engine->tp_size) - 1;
	memcpy(hold->digest, request->digest, sizeof(hold->digest));
	hold->serial = api_world->hold_next++;
	for (rank = 0; rank < engine->tp_size; rank++)
		hold_count(engine, hold, rank, 1);
	api_counts.holds++;
}

static int is_pulling(const struct api_request *request, uint32_t rank)
{
	return request->key && request->pulling == 1 &&
	       !(request->ended >> rank & 1);
}

static void writers_count(struct api_engine *engine,
			  const struct api_request *request, uint32_t rank)
{
	uint32_t group;
	uint32_t at;

	for (group = 0; group < api_world->shape.group_count; group++)
		for (at = 0; at < request->local[group].count; at++) {
			const uint32_t id = request->local[group].ids[at];

			if (id >= API_BLOCKS)
				continue;
			engine->ranks[rank].blocks[group][id].writers++;
			engine->ranks[rank].blocks[group][id].content = 0;
		}
}

void api_rank_forget(struct api_engine *engine, uint32_t rank, int is_new)
{
	struct api_rank *to = &engine->ranks[rank];
	uint32_t at;

	for (at = 0; at < API_HOLDS_MAX; at++)
		if (api_world->holds[at].engine == engine->index)
			api_world->holds[at].named &= ~(1u << rank);
	memset(to->blocks, 0, sizeof(to->blocks));
	/* Pulls that its predecessor was never told of come to this one. */
	for (at = 0; at < API_REQUESTS_MAX; at++)
		if (is_pulling(&engine->requests[at], rank))
			writers_count(engine, &engine->requests[at], rank);
	for (at = 0; is_new && at < api_world->shape.group_count * API_BLOCKS;
	     at++)
		(void)api_block_write(engine, rank, at / API_BLOCKS,
				      at % API_BLOCKS, api_content_new());
}

/* ---- pulls ---- */

/* Other pulls and holds of this block have lost it. */
static void block_taint(struct api_engine *engine, uint32_t group, uint32_t id)
{
	uint32_t rank;
	uint32_t at;
	uint32_t i;

	for (at = 0; at < API_REQUESTS_MAX; at++)
		for (i = 0; i < engine->requests[at].local[group].count; i++)
			if (engine->requests[at].local[group].ids[i] == id)
				engine->requests[at].tainted = 1;
	for (at = 0; at < API_HOLDS_MAX; at++) {
		struct api_hold *hold = &api_world->holds[at];

		for (i = 0; hold->serial && hold->engine == engine->index &&
			    i < hold->groups[group].count;
		     i++)
			for (rank = 0; rank < API_RANKS_MAX; rank++)
				if (hold->groups[group].ids[i] == id)
					hold->content[rank][group][i] = 0;
	}
}

void api_pull_begun(struct api_engine *engine, struct api_request *request,
		    int code)
{
	uint32_t group;
	uint32_t rank;
	uint32_t at;

	request->pulling = code ? 2 : 1;
	request->refusal = (uint32_t)-code;
	for (group = 0; !code && group < api_world->shape.group_count; group++)
		for (at = 0; at < request->local[group].count; at++) {
			const uint32_t id = request->local[group].ids[at];

			if (id >= API_BLOCKS)
				continue;
			if (!api_block_is_free(engine, group, id) ||
			    is_twice(&request->local[group], at))
				block_taint(engine, group, id);
		}
	for (rank = 0; !code && rank < engine->tp_size; rank++)
		writers_count(engine, request, rank);
}

static void pull_ended(struct api_engine *engine, struct api_request *request,
		       uint32_t rank)
{
	uint32_t group;
	uint32_t at;

	request->ended |= 1u << rank;
	for (group = 0; group < api_world->shape.group_count; group++)
		for (at = 0; at < request->local[group].count; at++) {
			const uint32_t id = request->local[group].ids[at];

			if (id >= API_BLOCKS)
				continue;
			api_expect(
				engine->ranks[rank].blocks[group][id].writers);
			engine->ranks[rank].blocks[group][id].writers--;
			block_settle(engine, rank, group, id);
		}
}

/* 1: block number at of this group has what was held. */
static int pull_compare(const struct api_engine *engine, uint32_t rank,
			const struct api_request *request,
			const struct api_hold *hold, uint32_t group,
			uint32_t at)
{
	const struct api_blocks *local = &request->local[group];
	const uint32_t index = local->first_index + at;
	struct compare compare = { .engine = engine,
				   .rank = rank,
				   .group = group,
				   .id = local->ids[at],
				   .by_heads = API_HEADS };
	uint32_t from;

	if (index < hold->groups[group].first_index ||
	    index - hold->groups[group].first_index >=
		    hold->groups[group].count)
		return 0;
	if (!api_world->shape.replicated)
		compare.by_heads = API_HEADS / hold->tp_size;
	for (from = 0; from < hold->tp_size; from++)
		compare.contents[from] =
			hold->content[from][group]
				     [index - hold->groups[group].first_index];
	if (api_world->shape.replicated)
		compare.contents[0] = compare.contents[rank % hold->tp_size];
	return block_walk(&compare);
}

/* Words of a block of a group, in all planes of all of its layers. */
static uint64_t block_bytes(const struct api_rank *rank, uint32_t group)
{
	const struct api_shape *shape = &api_world->shape;
	uint64_t bytes = 0;
	uint32_t layer;

	for (layer = group * API_LAYERS; layer < (group + 1) * API_LAYERS;
	     layer++)
		bytes += (uint64_t)shape->plane_count * shape->row_count *
			 api_head_bytes(layer);
	return bytes * rank->caches[0].head_count;
}

static void loaded_check(const struct api_engine *engine, uint32_t rank,
			 const struct api_request *request,
			 const struct kvpull_poll_record *record)
{
	const struct api_hold *hold = api_hold_of(request->hold_serial);
	uint64_t bytes = 0;
	uint32_t group;
	uint32_t at;

	for (group = 0; group < api_world->shape.group_count; group++)
		bytes += request->local[group].count *
			 block_bytes(&engine->ranks[rank], group);
	api_counts.bytes += bytes;
	for (group = 0;
	     hold && !request->tainted && group < api_world->shape.group_count;
	     group++)
		for (at = 0; at < request->local[group].count; at++)
			if (!pull_compare(engine, rank, request, hold, group,
					  at))
				api_fail(
					"%s rank %u key %llu: LOADED, and group %u block %u is wrong",
					engine->name, rank,
					(unsigned long long)request->key, group,
					request->local[group].ids[at]);
	if (record->bytes != bytes)
		api_fail("key %llu: %llu bytes loaded, not %llu",
			 (unsigned long long)record->key,
			 (unsigned long long)record->bytes,
			 (unsigned long long)bytes);
}

/* All blocks of the pull, or nothing where it was refused before. */
static void failed_check(struct api_engine *engine, uint32_t rank,
			 const struct api_request *request,
			 const struct kvpull_poll_record *record)
{
	const struct kvpull_worker_ops *ops = api_world->ops->worker;
	uint32_t blocks[API_GROUPS_MAX * API_HOLD_BLOCKS_MAX];
	uint32_t count = UINT32_MAX;
	uint32_t at = 0;
	uint32_t group;
	const int code = ops->failed_blocks(
		engine->ranks[rank].worker, record->key, blocks,
		API_GROUPS_MAX * API_HOLD_BLOCKS_MAX, &count);

	if (code == KVPULL_ENOKEY && (record->reason == KVPULL_EFULL ||
				      record->reason == KVPULL_ETRUNCATED ||
				      record->reason == KVPULL_EEXPIRED ||
				      record->reason == KVPULL_EMISMATCH))
		return;
	if (code || request->pulling != 1)
		api_fail("key %llu FAILED %d: failed_blocks() %d",
			 (unsigned long long)record->key, record->reason, code);
	for (group = 0; group < api_world->shape.group_count; group++) {
		const struct api_blocks *local = &request->local[group];

		api_expect(at + local->count <= count);
		api_expect(!memcmp(blocks + at, local->ids,
				   local->count * sizeof(*blocks)));
		at += local->count;
	}
	api_expect(at == count);
}

static void request_lost(struct api_engine *engine, struct api_request *request,
			 uint32_t rank)
{
	if (is_pulling(request, rank))
		pull_ended(engine, request, rank);
	/* A refusal may still wait for room in the log. */
	if (request->pulling == 2 && !(request->ended >> rank & 1))
		request->late |= 1u << rank;
	if (request->pulling)
		request->ended |= 1u << rank;
}

void api_pulls_lost(struct api_engine *engine, uint32_t rank)
{
	uint32_t at;

	for (at = 0; at < API_REQUESTS_MAX; at++)
		if (engine->requests[at].life == engine->life)
			request_lost(engine, &engine->requests[at], rank);
	api_orphans_lost(engine, rank);
}

void api_orphans_lost(struct api_engine *engine, uint32_t rank)
{
	uint32_t at;

	for (at = 0; at < API_REQUESTS_MAX; at++) {
		struct api_request *request = &engine->requests[at];

		if (!request->key || request->life == engine->life)
			continue;
		request_lost(engine, request, rank);
		/* No other worker will report this rank. */
		request->sent |= 1u << rank;
	}
}

/* ---- reports ---- */

static void sent_take(struct api_engine *engine, uint32_t rank,
		      struct api_request *request, int32_t reason)
{
	struct api_hold *hold = hold_find(request->key);

	if (!request->held)
		api_fail("key %llu: SENT, and it was never held",
			 (unsigned long long)request->key);
	if (request->sent >> rank & 1 &&
	    request->sent_life[rank] == engine->ranks[rank].life)
		api_fail("%s rank %u key %llu: SENT twice", engine->name, rank,
			 (unsigned long long)request->key);
	api_expect(reason >= KVPULL_END_RELEASED &&
		   reason <= KVPULL_END_GIVEN_BACK);
	request->sent |= 1u << rank;
	request->sent_life[rank] = engine->ranks[rank].life;
	if (reason == KVPULL_END_EXPIRED)
		api_counts.expired++;
	if (reason == KVPULL_END_RELEASED)
		api_counts.released++;
	if (!hold || !(hold->named >> rank & 1))
		return;
	hold->named &= ~(1u << rank);
	hold_count(engine, hold, rank, 0);
}

void api_record_take(struct api_engine *engine, uint32_t rank,
		     const struct kvpull_poll_record *record)
{
	struct api_request *request = api_request_find(engine, record->key);

	api_trace("%s rank %u: key %llu kind %u reason %d", engine->name, rank,
		  (unsigned long long)record->key, record->kind,
		  record->reason);
	if (!request)
		api_fail("%s rank %u: key %llu is reported: nobody has it",
			 engine->name, rank, (unsigned long long)record->key);
	if (record->kind == KVPULL_POLL_SENT) {
		sent_take(engine, rank, request, record->reason);
		return;
	}
	api_expect(record->kind == KVPULL_POLL_LOADED ||
		   record->kind == KVPULL_POLL_FAILED);
	if (!request->pulling)
		api_fail("%s rank %u key %llu: reported, and never pulled",
			 engine->name, rank, (unsigned long long)record->key);
	if (request->late >> rank & 1) {
		request->late &= ~(1u << rank);
		return;
	}
	if (request->ended >> rank & 1)
		api_fail("%s rank %u key %llu: reported twice", engine->name,
			 rank, (unsigned long long)record->key);
	if (record->kind == KVPULL_POLL_LOADED) {
		api_expect(request->pulling == 1);
		loaded_check(engine, rank, request, record);
		api_counts.loaded++;
	} else {
		api_expect(record->reason < 0);
		failed_check(engine, rank, request, record);
		api_counts.failed++;
	}
	if (request->pulling == 1)
		pull_ended(engine, request, rank);
	request->ended |= 1u << rank;
}
