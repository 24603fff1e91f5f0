/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/route/places.h"

#include "base/transport.h"

int kvpull_places_init(struct kvpull_places *places, uint32_t count_max,
		       const struct kvpull_log *log, struct kvpull_arena *arena)
{
	uint32_t index;
	int kind;

	places->log = log;
	places->count_max = count_max;
	places->places = (struct kvpull_place *)kvpull_arena_take(
		arena, count_max, sizeof(*places->places));
	for (kind = 0; kind < KVPULL_SIDES; kind++)
		places->outer[kind] = (uint32_t *)kvpull_arena_take(
			arena, count_max, sizeof(uint32_t));
	if (!kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	for (index = 0; index < count_max; index++) {
		places->places[index].inner = KVPULL_NONE;
		for (kind = 0; kind < KVPULL_SIDES; kind++)
			places->outer[kind][index] = KVPULL_NONE;
	}
	return 0;
}

struct kvpull_place *kvpull_place_at(const struct kvpull_places *places,
				     uint32_t index)
{
	kvpull_check(places->log,
		     index < places->count_max &&
			     places->places[index].inner != KVPULL_NONE);
	return &places->places[index];
}

uint32_t kvpull_place_find(const struct kvpull_places *places)
{
	uint32_t index;

	for (index = 0; index < places->count_max; index++)
		if (places->places[index].inner == KVPULL_NONE)
			return index;
	return KVPULL_NONE;
}

void kvpull_place_take(struct kvpull_places *places, uint32_t index,
		       enum kvpull_side side, uint32_t inner)
{
	places->places[index] =
		(struct kvpull_place){ .inner = inner, .side = side };
	places->outer[side][inner] = index;
}

void kvpull_place_free(struct kvpull_places *places, struct kvpull_place *place)
{
	uint32_t *outer = &places->outer[place->side][place->inner];

	/* The route may have used its handle again already. */
	if (*outer == (uint32_t)(place - places->places))
		*outer = KVPULL_NONE;
	place->inner = KVPULL_NONE;
}

void kvpull_places_free_ended(struct kvpull_places *places)
{
	uint32_t index;

	if (!places->ended_count)
		return;
	places->ended_count = 0;
	for (index = 0; index < places->count_max; index++)
		if (places->places[index].inner != KVPULL_NONE &&
		    places->places[index].ended)
			kvpull_place_free(places, &places->places[index]);
}
