/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's own notes on its pulls: which slots are taken, which pulls wait to
 * be started or reported, and which never got a slot.
 */
#ifndef KVPULL_PLUGIN_WORKER_PULLS_H
#define KVPULL_PLUGIN_WORKER_PULLS_H

#include "base/index.h"
#include "base/map.h"
#include "plugin/config/config.h"

#define KVPULL_PULLS_HOT 8u  /* with ids in huge pages */
#define KVPULL_PAIRS_FEW 16u /* of pulls whose ids lie close together */

/* The note on a slot of the handover. */
struct kvpull_pull_note {
	uint32_t next;       /* in one of the lists of pulls */
	uint32_t serial;     /* counts the slot's uses, never 0 */
	uint32_t abort_told; /* TO_ABORT was pushed */
	uint32_t mark;       /* that it waits for; KVPULL_NONE: for none */
};

struct kvpull_pull_list {
	uint32_t first; /* KVPULL_NONE: empty */
	uint32_t last;
};

/* A pull that never got a slot: reported FAILED all the same. */
struct kvpull_refused {
	uint64_t key;
	int32_t reason;
};

/* But for `ids` and `refused`, what a step with a pull touches. */
struct kvpull_worker_pulls {
	struct kvpull_pull_note *notes; /* [pulls_max] */
	struct kvpull_map map;          /* key -> pull */
	struct kvpull_index_pool pool;
	uint32_t *ids_hot; /* [KVPULL_PULLS_HOT][2][blocks_max] */
	uint32_t *ids;     /* of the other pulls, likewise */
	uint32_t *ids_few; /* [pulls_max][2][KVPULL_PAIRS_FEW] */
	uint32_t blocks_max;
	uint32_t failed; /* reported FAILED in the last poll: list head */
	struct kvpull_pull_list start;  /* wait for start_loads */
	struct kvpull_pull_list ended;  /* to be reported */
	struct kvpull_refused *refused; /* [refused_max] circular */
	uint32_t refused_first;
	uint32_t refused_count;
	uint32_t refused_max;
};

/* hot: an arena for what a step with a pull touches. */
void kvpull_pulls_init(struct kvpull_worker_pulls *pulls,
		       const struct kvpull_config *config,
		       struct kvpull_arena *arena, struct kvpull_arena *hot);
/*
 * A slot for a key that is in none. 0; KVPULL_EFULL: there is none, or the pull has
 * too many pairs.
 */
int KVPULL_MUST_CHECK kvpull_pulls_slot(struct kvpull_worker_pulls *pulls,
					uint64_t key, uint32_t pairs,
					uint32_t *index);
/* Room for the ids of so many pairs. */
uint32_t *kvpull_pulls_ids(const struct kvpull_worker_pulls *pulls,
			   uint32_t index, uint32_t pairs);
void kvpull_pulls_add(struct kvpull_worker_pulls *pulls,
		      struct kvpull_pull_list *list, uint32_t index);
/* The first of a list that is not empty. */
uint32_t kvpull_pulls_take(struct kvpull_worker_pulls *pulls,
			   struct kvpull_pull_list *list);
/* Pulls that were reported FAILED: their places are free, their blocks gone. */
void kvpull_pulls_free_failed(struct kvpull_worker_pulls *pulls);

#endif /* KVPULL_PLUGIN_WORKER_PULLS_H */
