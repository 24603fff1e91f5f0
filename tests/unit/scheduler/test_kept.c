/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of a ticket that a consumer keeps, compared with the ticket itself.
 */

#include <stdlib.h>
#include <string.h>

#include "plugin/scheduler/kept.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define CHUNKS 400u
#define BLOCKS 3000u
#define ROUNDS 2000u

struct world {
	struct kvpull_arena arena;
	struct kvpull_texts texts;
	struct kvpull_ticket ticket;
	uint32_t ids[KVPULL_TICKET_BLOCKS_MAX];
	uint32_t got[KVPULL_TICKET_BLOCKS_MAX];
	uint8_t body[KVPULL_TICKET_BYTES_MAX];
	char text[KVPULL_TICKET_BYTES_MAX];
	uint32_t index;
	struct kvpull_ticket kept;
	uint64_t seed;
};

static uint32_t below(struct world *world, uint32_t bound)
{
	return (uint32_t)(random_next(&world->seed) >> 33) % bound;
}

static struct world *opened(void)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	world->seed = 88172645463325252u;
	kvpull_arena_init(&world->arena, NULL);
	kvpull_texts_init(&world->texts, CHUNKS, &world->arena);
	world->ticket.block_ids = world->ids;
	world->ticket.generation = 1;
	world->ticket.rank_count = 1;
	/* The groups lie behind it. */
	memcpy(world->ticket.engine_id, "prefill-3", sizeof("prefill-3"));
	world->ticket.ranks[0] = (struct kvpull_ticket_rank){
		.incarnation = 1, .tag = 2, .address = "shm:here"
	};
	return world;
}

static void closed(struct world *world)
{
	kvpull_arena_fini(&world->arena);
	free(world);
}

/* Adds a group, of ids in runs of 1 .. run_max. */
static void group_add(struct world *world, uint32_t first_index,
		      uint32_t block_count, uint32_t run_max)
{
	struct kvpull_ticket *ticket = &world->ticket;
	struct kvpull_ticket_group *group =
		&ticket->groups[ticket->group_count++];
	uint32_t left = 0;
	uint32_t id = 0;
	uint32_t i;

	group->block_tokens = 16;
	group->first_index = first_index;
	group->block_count = block_count;
	group->first_id = 0;
	if (ticket->group_count > 1)
		group->first_id = group[-1].first_id + group[-1].block_count;
	for (i = 0; i < block_count; i++, id++, left--) {
		if (!left) {
			left = 1 + below(world, run_max);
			id = below(world, UINT32_MAX - 70000);
		}
		world->ids[group->first_id + i] = id;
	}
}

/* As a consumer does: decoded, kept, and read again where another was. */
static size_t keep(struct world *world)
{
	size_t text_bytes;

	assert_int_equal(kvpull_ticket_encode(&world->ticket, NULL, world->body,
					      world->text, sizeof(world->text),
					      &text_bytes),
			 0);
	memset(world->body, 0xee, sizeof(world->body));
	assert_int_equal(kvpull_ticket_decode(world->text, text_bytes, NULL,
					      world->body, &world->kept),
			 0);
	world->index = kvpull_texts_put(&world->texts, world->body,
					world->kept.body_bytes);
	assert_int_not_equal(world->index, KVPULL_NONE);
	memset(world->body, 0xee, sizeof(world->body));
	memset(&world->kept, 0xee, sizeof(world->kept));
	assert_int_equal(kvpull_kept_get(&world->texts, world->index,
					 world->body, &world->kept),
			 0);
	return world->kept.body_bytes;
}

static int get(struct world *world, uint32_t group, uint32_t first,
	       uint32_t count)
{
	const struct kvpull_blocks wanted = { .first_index = first,
					      .block_count = count };

	memset(world->got, 0xee, sizeof(world->got));
	return kvpull_kept_ids(&world->kept, group, &wanted, world->got);
}

/* Thousands of them are small: a copy would read all of their lines. */
UNIT_TEST(small_one_is_read_where_it_lies_and_a_large_one_is_put_together)
{
	struct world *world = opened();
	const uint8_t *ids;

	group_add(world, 0, 4, 1);
	assert_true(keep(world) <= KVPULL_TEXT_CHUNK_BYTES);
	ids = world->kept.ids.bytes;
	assert_true(ids > world->texts.bytes &&
		    ids < world->texts.bytes + KVPULL_TEXT_CHUNK_BYTES);
	assert_int_equal(get(world, 0, 1, 3), 0);
	assert_memory_equal(world->got, world->ids + 1, 12);
	world->ticket.group_count = 0;
	group_add(world, 0, BLOCKS, 1);
	assert_true(keep(world) > KVPULL_TEXT_CHUNK_BYTES);
	ids = world->kept.ids.bytes;
	assert_true(ids > world->body &&
		    ids < world->body + sizeof(world->body));
	assert_int_equal(get(world, 0, 0, BLOCKS), 0);
	assert_memory_equal(world->got, world->ids, BLOCKS * 4);
	closed(world);
}

UNIT_TEST(any_part_of_any_group_is_what_the_ticket_said)
{
	static const uint32_t run_max[] = { 1, 2, 3, 40, 5000 };
	uint32_t round;

	for (round = 0; round < 5; round++) {
		struct world *world = opened();
		uint32_t part;

		group_add(world, 7, BLOCKS, run_max[round]);
		group_add(world, 0, 1, 1);
		group_add(world, 100, BLOCKS / 3, run_max[(round + 2) % 5]);
		(void)keep(world);
		assert_int_equal(world->kept.group_count, 3);
		for (part = 0; part < ROUNDS; part++) {
			const uint32_t group = below(world, 3);
			const struct kvpull_ticket_group *from =
				&world->ticket.groups[group];
			const uint32_t skip = below(world, from->block_count);
			const uint32_t count =
				1 + below(world, from->block_count - skip);

			assert_int_equal(get(world, group,
					     from->first_index + skip, count),
					 0);
			assert_memory_equal(world->got,
					    world->ids + from->first_id + skip,
					    count * sizeof(uint32_t));
			assert_int_equal(world->got[count], 0xeeeeeeee);
		}
		closed(world);
	}
}

UNIT_TEST(neighbours_are_kept_short)
{
	struct world *world = opened();

	group_add(world, 0, BLOCKS, 1);
	assert_true(keep(world) > BLOCKS * sizeof(uint32_t));
	world->ticket.group_count = 0;
	group_add(world, 0, BLOCKS, BLOCKS);
	assert_true(keep(world) < 1000);
	closed(world);
}

UNIT_TEST(what_is_kept_is_told_from_any_other_body)
{
	struct world *world = opened();
	uint32_t at;

	group_add(world, 0, BLOCKS, 1);
	(void)keep(world);
	assert_true(kvpull_texts_are(&world->texts, world->index, world->body,
				     world->kept.body_bytes));
	for (at = 0; at < world->kept.body_bytes; at++) {
		world->body[at] ^= 1;
		assert_false(kvpull_texts_are(&world->texts, world->index,
					      world->body,
					      world->kept.body_bytes));
		world->body[at] ^= 1;
	}
	world->kept.body_bytes--;
	assert_false(kvpull_texts_are(&world->texts, world->index, world->body,
				      world->kept.body_bytes));
	world->kept.body_bytes += 2;
	assert_false(kvpull_texts_are(&world->texts, world->index, world->body,
				      world->kept.body_bytes));
	closed(world);
}

UNIT_TEST(blocks_beyond_the_group_are_truncated)
{
	struct world *world = opened();

	group_add(world, 10, 20, 1);
	group_add(world, 0, 20, 20);
	(void)keep(world);
	assert_int_equal(get(world, 0, 10, 20), 0);
	assert_int_equal(get(world, 0, 9, 1), KVPULL_ETRUNCATED);
	assert_int_equal(get(world, 0, 11, 20), KVPULL_ETRUNCATED);
	assert_int_equal(get(world, 1, 0, 21), KVPULL_ETRUNCATED);
	assert_int_equal(get(world, 1, UINT32_MAX, 1), KVPULL_ETRUNCATED);
	assert_int_equal(get(world, 0, UINT32_MAX, UINT32_MAX),
			 KVPULL_ETRUNCATED);
	assert_int_equal(get(world, 0, 0, 0), 0);
	closed(world);
}

UNIT_TEST(the_largest_ticket_fits)
{
	struct world *world = opened();

	group_add(world, 0, KVPULL_TICKET_BLOCKS_MAX, 1);
	(void)keep(world);
	assert_int_equal(get(world, 0, 0, KVPULL_TICKET_BLOCKS_MAX), 0);
	assert_memory_equal(world->got, world->ids, sizeof(world->ids));
	closed(world);
}
