/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/bytes/stage.h"

#include "base/params.h"

uint32_t kvpull_stage_tp_size(const struct kvpull_stage *stage)
{
	return stage->rank_count / stage->pp_size;
}

uint32_t kvpull_stage_tp_rank(const struct kvpull_stage *stage)
{
	return stage->rank % kvpull_stage_tp_size(stage);
}

uint32_t kvpull_stage_pp_rank(const struct kvpull_stage *stage)
{
	return stage->rank / kvpull_stage_tp_size(stage);
}

int kvpull_stage_is_good(const struct kvpull_stage *stage)
{
	return stage->rank < stage->rank_count &&
	       stage->rank_count <= KVPULL_RANKS_MAX && stage->pp_size &&
	       stage->rank_count % stage->pp_size == 0 &&
	       stage->layer_first < stage->layer_end;
}

static int ranks_refuse(struct kvpull_error_detail *detail, const char *why,
			const struct kvpull_stage *before,
			const struct kvpull_stage *after)
{
	return kvpull_detail_set(
		detail, KVPULL_EREJECTED, "layers",
		"%s: rank %u of %u has layers %u to %u, and rank %u has %u to %u",
		why, before->rank, before->rank_count, before->layer_first,
		before->layer_end - 1, after->rank, after->layer_first,
		after->layer_end - 1);
}

int kvpull_stage_check(const struct kvpull_stage *stage, uint32_t layer_count,
		       struct kvpull_error_detail *detail)
{
	const uint32_t pp_rank = kvpull_stage_pp_rank(stage);
	const char *why = NULL;

	if (stage->layer_end > layer_count)
		why = "the model has fewer";
	else if (!pp_rank && stage->layer_first)
		why = "the layers before them are in no rank's caches";
	else if (pp_rank == stage->pp_size - 1 &&
		 stage->layer_end != layer_count)
		why = "the layers behind them are in no rank's caches";
	if (!why)
		return 0;
	return kvpull_detail_set(
		detail, KVPULL_EREJECTED, "layers",
		"rank %u of %u, stage %u of %u, has layers %u to %u of %u: %s",
		stage->rank, stage->rank_count, pp_rank, stage->pp_size,
		stage->layer_first, stage->layer_end - 1, layer_count, why);
}

int kvpull_stages_compare(const struct kvpull_stage *one,
			  const struct kvpull_stage *other,
			  struct kvpull_error_detail *detail)
{
	const int is_before = one->rank < other->rank;
	const struct kvpull_stage *before = is_before ? one : other;
	const struct kvpull_stage *after = is_before ? other : one;
	uint32_t stages;

	if (before->rank_count != after->rank_count ||
	    before->pp_size != after->pp_size)
		return kvpull_detail_set(
			detail, KVPULL_EREJECTED, "pp_size",
			"rank %u is one of %u ranks in %u stages, and rank %u one of %u in %u",
			before->rank, before->rank_count, before->pp_size,
			after->rank, after->rank_count, after->pp_size);
	stages = kvpull_stage_pp_rank(after) - kvpull_stage_pp_rank(before);
	if (!stages && (before->layer_first != after->layer_first ||
			before->layer_end != after->layer_end))
		return ranks_refuse(detail,
				    "ranks of one stage have unlike layers",
				    before, after);
	if (stages == 1 && before->layer_end < after->layer_first)
		return ranks_refuse(detail, "layers that no rank has", before,
				    after);
	if (stages == 1 && before->layer_end > after->layer_first)
		return ranks_refuse(detail, "layers that two stages have",
				    before, after);
	return 0;
}
