/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handles of two routes as one range: a place has its side and that one's
 * handle, its index is what the owner of both knows. Pure, one thread.
 */
#ifndef KVPULL_PLUGIN_PLACES_H
#define KVPULL_PLUGIN_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/log.h"

enum kvpull_side {
	KVPULL_SIDE_SHM = 0,
	KVPULL_SIDE_VERBS,
	KVPULL_SIDES
};

struct kvpull_place {
	uint32_t inner; /* the route's own handle; KVPULL_NONE: free */
	uint32_t side;
	uint32_t ended; /* free at the next poll */
	uint32_t reserved;
};

/* One of peers and callers. */
struct kvpull_places {
	const struct kvpull_log *log;
	struct kvpull_place *places;   /* [count_max] */
	uint32_t *outer[KVPULL_SIDES]; /* [count_max] inner -> place */
	uint32_t count_max;
	uint32_t ended_count;
};

/* All free. Return: 0, or KVPULL_ENOMEM. */
int KVPULL_MUST_CHECK kvpull_places_init(struct kvpull_places *places,
					 uint32_t count_max,
					 const struct kvpull_log *log,
					 struct kvpull_arena *arena);
/* One that is taken. */
struct kvpull_place *kvpull_place_at(const struct kvpull_places *places,
				     uint32_t index);
/* A free one; KVPULL_NONE: all are taken. */
uint32_t kvpull_place_find(const struct kvpull_places *places);
void kvpull_place_take(struct kvpull_places *places, uint32_t index,
		       enum kvpull_side side, uint32_t inner);
void kvpull_place_free(struct kvpull_places *places,
		       struct kvpull_place *place);
void kvpull_places_free_ended(struct kvpull_places *places);

#endif /* KVPULL_PLUGIN_PLACES_H */
