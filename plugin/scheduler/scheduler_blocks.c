/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler half: what an engine may name as blocks, judged where it does. */
#include <inttypes.h>

#include "plugin/scheduler/scheduler_state.h"

/*
 * The ids are below the block count of every rank's caches. Ranks that said none,
 * and lists that are too long to be read, are judged by later checks.
 */
static int are_own_ids(const struct kvpull_scheduler *scheduler,
		       const struct kvpull_scheduler_request *request,
		       const struct kvpull_blocks *groups, uint32_t group_count)
{
	uint32_t group;
	uint32_t rank;

	for (group = 0; group < group_count; group++) {
		const struct kvpull_blocks *blocks = &groups[group];
		uint32_t bound = UINT32_MAX;
		uint32_t i = 0;

		for (rank = 0; rank < scheduler->rank_count; rank++) {
			const uint32_t count =
				scheduler->ranks[rank].info.block_counts[group];

			if (count && count < bound)
				bound = count;
		}
		if (blocks->block_count > KVPULL_TICKET_BLOCKS_MAX)
			continue;
		if (kvpull_ids_are_below(blocks->block_ids, blocks->block_count,
					 bound))
			continue;
		while (i + 1 < blocks->block_count &&
		       blocks->block_ids[i] < bound)
			i++;
		kvpull_warn(scheduler->log,
			    "request %s key %" PRIu64
			    " names block %u of group %u, its caches have %u",
			    kvpull_log_label(request->label), request->key,
			    blocks->block_ids[i], group, bound);
		return 0;
	}
	return 1;
}

/* The slot with the state after `end` tokens, 1 .., and no other. */
static int is_state_of(const struct kvpull_blocks *blocks, uint64_t tokens,
		       uint64_t end)
{
	return end && blocks->block_count == 1 &&
	       blocks->first_index == (end - 1) / tokens;
}

/*
 * The blocks of each group reach to the last prompt token that was computed. Full
 * attention has those of all tokens before it, too.
 */
static int are_computed(const struct kvpull_scheduler *scheduler,
			const struct kvpull_scheduler_request *request,
			const struct kvpull_finish *finish)
{
	const uint64_t end = finish->computed_tokens < request->prompt_tokens ?
				     finish->computed_tokens :
				     request->prompt_tokens;
	uint32_t group;

	for (group = 0; group < finish->group_count; group++) {
		const struct kvpull_blocks *blocks = &finish->groups[group];
		const uint64_t tokens = scheduler->group_tokens[group];
		const uint64_t first = blocks->first_index * tokens;
		const uint64_t behind = first + blocks->block_count * tokens;
		const uint32_t kind = scheduler->group_kinds[group];

		if (kind == KVPULL_GROUP_STATE ?
			    is_state_of(blocks, tokens, end) :
			    behind >= end &&
				    (!first || kind != KVPULL_GROUP_FULL))
			continue;
		kvpull_warn(
			scheduler->log,
			"request %s key %" PRIu64
			" is finished with %u of %u prompt tokens computed, and the blocks of group %u are those of tokens %" PRIu64
			" to %" PRIu64 ": name the %s",
			kvpull_log_label(request->label), request->key,
			finish->computed_tokens, request->prompt_tokens, group,
			first, behind,
			kind == KVPULL_GROUP_STATE ?
				"one slot that has the last token" :
				"block of each token");
		return 0;
	}
	return 1;
}

/* Each token of [begin, end) lies in one of them. */
static int are_all(const struct kvpull_blocks *blocks, uint64_t tokens,
		   uint64_t begin, uint64_t end)
{
	const uint64_t first = blocks->first_index;

	return first * tokens <= begin &&
	       (first + blocks->block_count) * tokens >= end;
}

/*
 * Blocks of the tokens that matched_tokens() offered, and no others: what is
 * before them is local already, and behind them the engine computes.
 */
static int are_of_tokens(const struct kvpull_scheduler *scheduler,
			 const struct kvpull_scheduler_request *request,
			 const struct kvpull_allocation *allocation)
{
	const uint64_t begin = request->user.local_tokens;
	const uint64_t end = begin + allocation->external_tokens;
	int fits = allocation->external_tokens <= request->user.tokens;
	uint32_t group;

	for (group = 0; group < allocation->group_count; group++) {
		const struct kvpull_blocks *blocks = &allocation->groups[group];
		const uint64_t tokens = scheduler->group_tokens[group];
		const uint64_t last =
			(uint64_t)blocks->first_index + blocks->block_count;

		if (scheduler->group_kinds[group] == KVPULL_GROUP_STATE &&
		    (allocation->external_tokens != request->user.tokens ||
		     !is_state_of(blocks, tokens, end)))
			fits = 0;
		if (blocks->block_count &&
		    ((blocks->first_index + UINT64_C(1)) * tokens <= begin ||
		     (last - 1) * tokens >= end))
			fits = 0;
		/* Behind a window some are not needed; else none is left out. */
		if (scheduler->group_kinds[group] == KVPULL_GROUP_FULL &&
		    !are_all(blocks, tokens, begin, end))
			fits = 0;
	}
	if (fits)
		return 1;
	kvpull_warn(scheduler->log,
		    "request %s key %" PRIu64
		    " names other blocks than those of its tokens: %" PRIu64
		    " to %" PRIu64 " are to be loaded, and %u were offered",
		    kvpull_log_label(request->label), request->key, begin,
		    end - 1, request->user.tokens);
	return 0;
}

/* As many groups as the engine has. */
static int are_of_groups(const struct kvpull_scheduler *scheduler,
			 const struct kvpull_scheduler_request *request,
			 const struct kvpull_allocation *allocation)
{
	if (allocation->group_count == scheduler->group_count)
		return 1;
	kvpull_warn(scheduler->log,
		    "request %s key %" PRIu64
		    ": allocated() names %u groups, and open() named %u",
		    kvpull_log_label(request->label), request->key,
		    allocation->group_count, scheduler->group_count);
	return 0;
}

int kvpull_scheduler_may_pull(const struct kvpull_scheduler *scheduler,
			      const struct kvpull_scheduler_request *request,
			      const struct kvpull_allocation *allocation)
{
	return are_of_groups(scheduler, request, allocation) &&
	       are_of_tokens(scheduler, request, allocation) &&
	       are_own_ids(scheduler, request, allocation->groups,
			   allocation->group_count);
}

int kvpull_scheduler_may_hold(const struct kvpull_scheduler *scheduler,
			      const struct kvpull_scheduler_request *request,
			      const struct kvpull_finish *finish)
{
	return are_computed(scheduler, request, finish) &&
	       are_own_ids(scheduler, request, finish->groups,
			   finish->group_count);
}

int kvpull_scheduler_has_blocks(const struct kvpull_allocation *allocation)
{
	uint32_t group;

	if (allocation->group_count > KVPULL_GROUPS_MAX ||
	    (allocation->group_count && !allocation->groups))
		return 0;
	for (group = 0; group < allocation->group_count; group++)
		if (allocation->groups[group].block_count &&
		    !allocation->groups[group].block_ids)
			return 0;
	return 1;
}
