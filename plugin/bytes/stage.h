/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers of an engine's model, by the ranks that have them. Pure.
 *
 * Ranks are numbered pp_rank * tp_size + tp_rank. Ranks of one pp_rank are a stage:
 * they have the same layers, a range of the model's. The first stage begins with
 * layer 0, each other one where the stage before it ends, and the last one ends
 * with the model. So each layer is in one stage, however many layers a stage has.
 */
#ifndef KVPULL_PLUGIN_STAGE_H
#define KVPULL_PLUGIN_STAGE_H

#include <stdint.h>

#include "base/log.h"

/* A rank of an engine, and the layers of its stage. */
struct kvpull_stage {
	uint32_t rank;
	uint32_t rank_count; /* tp_size * pp_size, 1 .. KVPULL_RANKS_MAX */
	uint32_t pp_size;    /* stages */
	uint32_t layer_first;
	uint32_t layer_end; /* behind the last one */
};

/* tp_size of the engine, and tp_rank and pp_rank of that rank. */
uint32_t kvpull_stage_tp_size(const struct kvpull_stage *stage);
uint32_t kvpull_stage_tp_rank(const struct kvpull_stage *stage);
uint32_t kvpull_stage_pp_rank(const struct kvpull_stage *stage);

/* 1: all of them are in their bounds, and there is a layer. */
int kvpull_stage_is_good(const struct kvpull_stage *stage);

/*
 * The layers of one rank that is good, against the model's layer_count.
 * Return: 0, or KVPULL_EREJECTED; detail says which layers, and why.
 */
int KVPULL_MUST_CHECK kvpull_stage_check(const struct kvpull_stage *stage,
					 uint32_t layer_count,
					 struct kvpull_error_detail *detail);

/*
 * Two ranks of one engine, each of which kvpull_stage_check() has passed, in any
 * order. Ranks of stages that are not neighbours have nothing to agree on but the
 * sizes. Where each rank of an engine agrees with the rank before it, each layer
 * is in one stage.
 * Return: 0, or KVPULL_EREJECTED; detail says which layers, and why.
 */
int KVPULL_MUST_CHECK kvpull_stages_compare(const struct kvpull_stage *one,
					    const struct kvpull_stage *other,
					    struct kvpull_error_detail *detail);

#endif /* KVPULL_PLUGIN_STAGE_H */
