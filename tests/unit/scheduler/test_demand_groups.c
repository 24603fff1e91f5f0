/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls of several groups: the blocks that a pull names, and their order. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/lib/fence.h"
#include "tests/unit/scheduler/world.h"

#define KEY 1u

uint32_t world_groups = 3;
/* Blocks may be left out. */
uint32_t world_group_kinds[KVPULL_GROUPS_MAX] = { KVPULL_GROUP_SLIDING,
						  KVPULL_GROUP_SLIDING,
						  KVPULL_GROUP_SLIDING };

static const uint32_t remote[3][4] = { { 10, 11, 20, 21 },
				       { 30 },
				       { 5, 6, 7, 1u << 20 } };
static const uint32_t local[3][4] = { { 1, 2, 3, 4 }, { 40 }, { 9, 8, 7, 6 } };
static const uint32_t counts[3] = { 4, 1, 4 };

static struct world_ticket ticket_make(void)
{
	struct world *producer = world_of_producer(1);
	struct kvpull_blocks groups[3];
	struct world_ticket ticket;
	struct kvpull_finish finish = world_finish_of(KEY, &ticket);
	uint32_t group;

	finish.group_count = 3;
	finish.groups = groups;
	for (group = 0; group < 3; group++)
		groups[group] =
			(struct kvpull_blocks){ .first_index =
							4 - counts[group],
						.block_count = counts[group],
						.block_ids = remote[group] };
	world_enter(producer, KEY, 0, 1);
	assert_int_equal(world_finish_with(producer, &finish),
			 KVPULL_FINISH_HELD);
	ticket.bytes = finish.ticket_bytes;
	world_close(producer);
	return ticket;
}

/* The last `wanted` blocks of each group, or as many as it has; of group `none`, none. */
static const struct world_seen *pull_part(struct world *world, uint32_t wanted,
					  uint32_t none)
{
	const struct world_ticket ticket = ticket_make();
	struct kvpull_blocks groups[3];
	const struct kvpull_allocation allocation = {
		.key = KEY,
		.external_tokens = wanted * 16,
		.group_count = 3,
		.groups = groups,
	};
	uint32_t group;

	for (group = 0; group < 3; group++) {
		const uint32_t count = group == none          ? 0 :
				       wanted < counts[group] ? wanted :
								counts[group];

		groups[group] = (struct kvpull_blocks){
			.first_index = 4 - count,
			.block_count = count,
			.block_ids = local[group] + counts[group] - count,
		};
	}
	assert_int_equal(world_want(world, KEY, &ticket, 1), 0);
	assert_int_equal(world_match(world, KEY, 64 - wanted * 16),
			 KVPULL_MATCH_LOAD);
	assert_int_equal(world_allocate_with(world, &allocation), 0);
	world_settle(world);
	return world_last(world, KVPULL_COMMAND_PULL);
}

static void assert_pairs(const struct world_seen *seen, uint32_t wanted,
			 uint32_t none)
{
	uint32_t pairs = 0;
	uint32_t group;
	uint32_t at;

	for (group = 0; group < 3; group++) {
		assert_int_equal(seen->command.group_first[group], pairs);
		for (at = 0; at < counts[group] && group != none; at++) {
			if (counts[group] - at > wanted)
				continue;
			assert_int_equal(seen->remote[pairs],
					 remote[group][at]);
			assert_int_equal(seen->local[pairs], local[group][at]);
			pairs++;
		}
	}
	assert_int_equal(seen->pair_count, pairs);
}

UNIT_TEST(pull_of_any_part_names_its_blocks)
{
	uint32_t wanted;
	uint32_t none;

	for (wanted = 1; wanted <= 4; wanted++)
		for (none = 0; none <= 3; none++) {
			struct world *world = world_of_consumer(1);

			assert_pairs(pull_part(world, wanted, none), wanted,
				     none);
			world_close(world);
		}
}

/* Each alone would fit. */
PRODUCER_TEST(more_blocks_of_all_groups_than_a_ticket_has_go_nowhere, 1)
{
	static const uint32_t ids[KVPULL_TICKET_BLOCKS_MAX];
	const struct kvpull_blocks groups[3] = {
		{ .block_count = KVPULL_TICKET_BLOCKS_MAX, .block_ids = ids },
		{ .block_count = 1, .block_ids = ids },
	};
	struct kvpull_finish finish = world_finish_of(KEY, NULL);
	uint32_t *behind =
		world->scheduler->block_ids + KVPULL_TICKET_BLOCKS_MAX;

	finish.group_count = 3;
	finish.groups = groups;
	world_enter(world, KEY, 0, 1);
	fence_open(behind, sizeof(*behind));
	*behind = 77;
	assert_int_equal(world_finish_with(world, &finish), KVPULL_FINISH_FREE);
	assert_int_equal(*behind, 77);
}
