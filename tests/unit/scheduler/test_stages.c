/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of several stages: their layers, and that each of them counts. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

/* As an engine with two ranks in each of three stages. */
static struct world *opened_silent(void)
{
	const struct kvpull_config config = world_config();

	return world_open_stages(&config, 6, 3, 7);
}

#define STAGES_TEST(name) WORLD_TEST(name, opened_silent())

/* Nine layers, three a stage, but for what the test changes. */
static struct kvpull_rank_info rank_of(struct world *world, uint32_t rank)
{
	struct kvpull_rank_info info = world_rank_info(world, rank);

	world->scheduler->layer_count = 9;
	info.stage.layer_first = 3 * (rank / 2);
	info.stage.layer_end = info.stage.layer_first + 3;
	return info;
}

static void tell(struct world *world, uint32_t rank)
{
	const struct kvpull_rank_info info = rank_of(world, rank);

	assert_int_equal(world_tell_info(world, &info), 0);
}

/* The rank says that its layers are these: it is refused. */
static void layers_refused(struct world *world, uint32_t rank,
			   uint32_t layer_first, uint32_t layer_end)
{
	struct kvpull_rank_info info = rank_of(world, rank);

	info.stage.layer_first = layer_first;
	info.stage.layer_end = layer_end;
	assert_int_equal(world_tell_info(world, &info), KVPULL_EINVAL);
}

STAGES_TEST(stages_of_unlike_lengths_are_taken)
{
	uint32_t rank;

	for (rank = 6; rank-- > 0;) {
		struct kvpull_rank_info info = rank_of(world, rank);

		if (rank >= 2 && rank < 4)
			info.stage.layer_first = 1;
		if (rank < 2)
			info.stage.layer_end = 1;
		assert_int_equal(world_tell_info(world, &info), 0);
	}
	assert_int_equal(kvpull_scheduler_ranks_missing(world->scheduler), 0);
}

/* The rank that is told last is refused, whichever it is: no ticket is made. */
STAGES_TEST(layer_without_a_rank_is_refused_by_name)
{
	uint32_t rank;

	for (rank = 0; rank < 4; rank++)
		tell(world, rank);
	layers_refused(world, 4, 7, 9);
	expect_error(
		world,
		"rank 4 is refused: layers that no rank has: rank 2 of 6 has layers 3 to 5, and rank 4 has 7 to 8");
	layers_refused(world, 4, 6, 8);
	expect_error(world, "the layers behind them");
	tell(world, 5);
	assert_int_equal(kvpull_scheduler_ranks_missing(world->scheduler), 1);
	hold_refused(world, 1);
	tell(world, 4);
	hold(world, 2);
}

STAGES_TEST(layer_of_two_stages_is_refused_by_name)
{
	tell(world, 2);
	layers_refused(world, 0, 0, 4);
	expect_error(
		world,
		"rank 0 is refused: layers that two stages have: rank 0 of 6 has layers 0 to 3, and rank 2 has 3 to 5");
	layers_refused(world, 3, 3, 7);
	expect_error(world, "ranks of one stage");
}

/* A worker that is started again is held against the others, not against itself. */
STAGES_TEST(layers_of_a_new_worker_are_compared_again)
{
	uint32_t rank;

	for (rank = 0; rank < 6; rank++)
		tell(world, rank);
	world_worker_start(world, 2, 4711);
	layers_refused(world, 2, 3, 5);
	tell(world, 2);
}

STAGES_TEST(new_worker_need_not_have_the_layers_of_the_old_one)
{
	struct kvpull_rank_info info;

	tell(world, 2);
	world_worker_start(world, 2, 4711);
	info = rank_of(world, 2);
	info.stage.layer_end = 5;
	assert_int_equal(world_tell_info(world, &info), 0);
}

STAGES_TEST(rank_of_another_number_of_stages_is_refused)
{
	struct kvpull_rank_info info = rank_of(world, 0);

	info.stage.pp_size = 2;
	assert_int_equal(world_tell_info(world, &info), KVPULL_EINVAL);
	expect_error(
		world,
		"rank 0 of 6 in 2 stages refused: ours are 6 in 3, or its model record differs");
}

/* P's blocks are the engine's when the last of all stages has reported. */
STAGES_TEST(rank_of_each_stage_reports_a_hold)
{
	struct world_ticket ticket;
	uint32_t rank;

	for (rank = 0; rank < 6; rank++)
		world_tell_rank(world, rank);
	assert_int_equal(world_hold(world, 1, &ticket), KVPULL_FINISH_HELD);
	assert_int_equal(world->scheduler->ticket->rank_count, 6);
	world_step(world);
	for (rank = 0; rank < 6; rank++) {
		assert_int_equal(world_counts(world).holds_live, 1);
		world_hold_ended(world, rank, 1, KVPULL_END_RELEASED);
		world_take(world, rank);
	}
	assert_int_equal(world_counts(world).holds_live, 0);
}
