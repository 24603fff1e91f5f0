/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments as hosts of other versions, and careless ones, give them. */
#include "tests/fuzz/api.h"

#include <stdlib.h>
#include <string.h>

#define PARAMS_BYTES_MAX 65536u /* a larger struct_size is not a size */

void *api_copy(const void *bytes, size_t byte_count)
{
	void *copy = malloc(byte_count ? byte_count : 1);

	if (!copy)
		abort();
	if (byte_count)
		memcpy(copy, bytes, byte_count);
	return copy;
}

uint32_t api_odd_u32(void)
{
	static const uint32_t odd[] = {
		0,
		1,
		2,
		3,
		API_BLOCKS - 1,
		API_BLOCKS,
		255,
		4096,
		65535,
		65536,
		65537,
		1u << 20,
		1u << 31,
		UINT32_MAX - 1,
		UINT32_MAX,
	};

	return odd[api_below(sizeof(odd) / sizeof(odd[0]))];
}

/* The size that a struct is given with, and what is behind ours. */
static size_t size_draw(size_t own_bytes, int *tail)
{
	*tail = 0;
	switch (api_below(8)) {
	case 0: /* an older header's */
		return 8 * api_below(own_bytes / 8 + 1);
	case 1: /* cut through a member */
		return api_below(own_bytes + 1);
	case 2: /* a newer header's, with nothing new set */
		return own_bytes + 8 * api_below(9);
	case 3: /* with something set that we do not know */
		*tail = 1;
		return own_bytes + 1 + api_below(64);
	case 4:
		return PARAMS_BYTES_MAX;
	case 5:
		return PARAMS_BYTES_MAX + 1;
	case 6:
		return SIZE_MAX - api_below(8);
	default:
		return 0;
	}
}

static struct api_struct make(void *own, size_t own_bytes, int is_output)
{
	struct api_struct made = { NULL, 0, own_bytes };
	size_t given_bytes = own_bytes;
	size_t room = own_bytes;
	int tail = 0;

	if (!api_chance(970)) {
		if (api_chance(100)) {
			made.is_bad = 1;
			made.known_bytes = 0;
			return made;
		}
		given_bytes = size_draw(own_bytes, &tail);
	}
	/* A bad size: the memory has the size member alone. */
	room = given_bytes > PARAMS_BYTES_MAX ? sizeof(size_t) : given_bytes;
	if (is_output && given_bytes > PARAMS_BYTES_MAX)
		room = own_bytes;
	if (room < sizeof(size_t))
		room = sizeof(size_t);
	made.given = calloc(1, room);
	if (!made.given)
		abort();
	memcpy(made.given, own, room < own_bytes ? room : own_bytes);
	memcpy(made.given, &given_bytes, sizeof(given_bytes));
	if (tail)
		((uint8_t *)
			 made.given)[own_bytes + api_below(room - own_bytes)] =
			1;
	made.known_bytes = room < own_bytes ? room : own_bytes;
	made.is_bad = given_bytes < sizeof(size_t) ||
		      given_bytes > PARAMS_BYTES_MAX ||
		      given_bytes % sizeof(size_t) != 0 || (tail && !is_output);
	return made;
}

struct api_struct api_struct_make(void *own, size_t own_bytes)
{
	const struct api_struct made = make(own, own_bytes, 0);

	if (!made.is_bad)
		memset((uint8_t *)own + made.known_bytes, 0,
		       own_bytes - made.known_bytes);
	return made;
}

struct api_struct api_output_make(const void *own, size_t own_bytes)
{
	uint8_t copy[1024];

	if (own_bytes > sizeof(copy))
		abort();
	memcpy(copy, own, own_bytes);
	return make(copy, own_bytes, 1);
}

int api_groups_are_cut(const struct kvpull_blocks *groups, uint32_t group_count,
		       size_t group_bytes)
{
	return groups && group_count <= KVPULL_GROUPS_MAX && !group_bytes;
}

uint64_t api_key_of_nobody(void)
{
	return api_chance(500) ? 0 : UINT64_MAX - api_odd_u32();
}

void api_ids_draw(const struct api_engine *engine, uint32_t group,
		  struct api_blocks *blocks)
{
	const int is_odd = api_chance(60);
	uint32_t id = (uint32_t)api_below(API_BLOCKS);
	uint32_t at;

	for (at = 0; at < blocks->count; at++) {
		uint32_t tries;

		for (tries = 0; tries < API_BLOCKS; tries++) {
			id = (id + 1) % API_BLOCKS;
			if (api_block_is_free(engine, group, id))
				break;
		}
		blocks->ids[at] = id;
		if (is_odd && api_chance(300))
			blocks->ids[at] =
				api_chance(800) ?
					(uint32_t)api_below(API_BLOCKS) :
					api_odd_u32();
	}
}

struct api_lists api_lists_make(const struct api_blocks *from)
{
	const uint32_t count = api_world->shape.group_count;
	struct kvpull_blocks blocks[API_GROUPS_MAX];
	struct api_lists lists = { .is_odd = 0 };
	uint32_t group;

	for (group = 0; group < count; group++) {
		lists.ids[group] = api_copy(
			from[group].ids, from[group].count * sizeof(uint32_t));
		blocks[group] = (struct kvpull_blocks){
			.first_index = from[group].first_index,
			.block_count = from[group].count,
			.block_ids = lists.ids[group],
		};
		if (api_chance(15)) {
			lists.is_odd = 1;
			blocks[group].block_count =
				UINT32_MAX - (uint32_t)api_below(2);
		} else if (api_chance(10)) {
			lists.is_odd |= from[group].count > 0;
			blocks[group].block_ids = NULL;
		}
	}
	lists.blocks = api_copy(blocks, count * sizeof(*blocks));
	return lists;
}

void api_lists_free(struct api_lists *lists)
{
	uint32_t group;

	for (group = 0; group < API_GROUPS_MAX; group++)
		free(lists->ids[group]);
	free(lists->blocks);
}
