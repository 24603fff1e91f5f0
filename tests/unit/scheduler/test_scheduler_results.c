/* SPDX-License-Identifier: Apache-2.0 */
/* Results that do not fit their worker, or what the scheduler half knows. */
#include "plugin/scheduler/scheduler_state.h"
#include "tests/unit/scheduler/world.h"

static uint64_t known_worker(const struct world *world, uint32_t rank)
{
	return world->scheduler->ranks[rank].info.incarnation;
}

/* A worker that we know says the RANK of somebody else, or another model's. */
PRODUCER_TEST(rank_speaks_for_itself_alone, 2)
{
	struct kvpull_result results[5];
	uint32_t at;

	for (at = 0; at < 5; at++)
		results[at] = (struct kvpull_result){
			.kind = KVPULL_RESULT_RANK,
			.rank = world_rank_info(world, 0),
		};
	results[0].rank = world_rank_info(world, 1);
	results[1].rank.incarnation++;
	results[2].rank.compat[0] ^= 1;
	results[3].rank.stage.rank = 1;
	for (at = 0; at < 5; at++) {
		world_add(world, 0, &results[at]);
		world_settle(world);
		assert_int_equal(world_counts(world).results_bad,
				 at < 4 ? at + 1 : 4);
		assert_int_equal(known_worker(world, 0), 700);
		assert_int_equal(known_worker(world, 1), 701);
	}
	expect_line(world, "");
	assert_int_equal(world_counts(world).unknown_keys, 0);
}

/* Bytes of a worker that we do not know, which brings this RANK alone. */
static void stranger_says(struct world *world, uint64_t incarnation,
			  const struct kvpull_rank_info *info)
{
	const struct kvpull_result_header header = {
		.incarnation = incarnation,
		.first_sequence = 1,
		.record_count = 1,
		.step_incarnation = 7,
	};
	const struct kvpull_result result = { .kind = KVPULL_RESULT_RANK,
					      .rank = *info };
	uint8_t bytes[4096];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };

	kvpull_step_put_result_header(&writer, &header);
	kvpull_step_put_result(&writer, &result);
	assert_int_equal(world_hear(world, bytes, writer.used), 0);
}

PRODUCER_TEST(worker_is_not_known_by_the_rank_of_another_one, 2)
{
	struct kvpull_rank_info info = world_rank_info(world, 0);

	info.incarnation = 900;
	stranger_says(world, 901, &info);
	info.stage.rank = 1;
	stranger_says(world, 900, &info);
	assert_int_equal(world_counts(world).results_replayed, 2);
	assert_int_equal(known_worker(world, 0), 700);
	assert_int_equal(known_worker(world, 1), 701);
	info.stage.rank = 0;
	stranger_says(world, 900, &info);
	assert_int_equal(known_worker(world, 0), 900);
	expect_line(
		world,
		"rank 0 has another worker: the old one's holds are ended and its pulls failed");
}

PRODUCER_TEST(results_of_a_rank_that_is_not_there_are_refused, 2)
{
	struct kvpull_result_header header = {
		.incarnation = 700,
		.first_sequence = 1,
		.step_incarnation = 7,
	};
	uint8_t bytes[256];

	for (header.rank = 1; header.rank <= 2; header.rank++) {
		struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };
		const int wanted = header.rank == 1 ? 0 : KVPULL_EINVAL;

		header.incarnation = 700 + header.rank;
		kvpull_step_put_result_header(&writer, &header);
		assert_int_equal(world_hear(world, bytes, writer.used), wanted);
		assert_int_equal(world_counts(world).results_bad,
				 wanted ? 1 : 0);
	}
}

/* Each is counted, and frees nothing of what the same message names rightly. */
PRODUCER_TEST(reports_of_what_is_not_known_are_counted, 1)
{
	struct kvpull_result result = { .kind = KVPULL_RESULT_PULL_ENDED,
					.key = 99 };

	hold_settled(world, 1);
	world_add(world, 0, &result);
	/* A request that pulls nothing. */
	world_enter(world, 2, 0, 1);
	result.key = 2;
	world_add(world, 0, &result);
	/* The slot behind the last one; the hold's own, of another key. */
	result = (struct kvpull_result){ .kind = KVPULL_RESULT_HOLD_ENDED,
					 .slot = world->config.max_holds,
					 .key = 1,
					 .generation = 1 };
	world_add(world, 0, &result);
	result.slot = world_command(world, KVPULL_COMMAND_HOLD)->slot;
	result.generation =
		world_command(world, KVPULL_COMMAND_HOLD)->generation;
	result.key = 2;
	world_add(world, 0, &result);
	world_settle(world);
	assert_int_equal(world_counts(world).unknown_keys, 4);
	assert_int_equal(world_counts(world).holds_live, 1);
	hold_ended(world, 0, 1, KVPULL_END_RELEASED);
	assert_int_equal(world_counts(world).unknown_keys, 4);
	assert_int_equal(world_counts(world).holds_live, 0);
}

static int step_refused(struct kvpull_worker *worker, const void *bytes,
			size_t byte_count)
{
	(void)worker;
	(void)bytes;
	(void)byte_count;
	return KVPULL_EINVAL;
}

/* A worker in the same process speaks for one rank: others would hear nothing. */
UNIT_TEST(half_of_several_ranks_takes_no_worker_to_itself)
{
	struct world *world = world_of_producer(2);

	assert_int_equal(kvpull_scheduler_worker_attach(world->scheduler, NULL,
							step_refused),
			 KVPULL_EINVAL);
	assert_null(world->scheduler->worker_step);
	world_close(world);
	world = world_of_producer(1);
	assert_int_equal(kvpull_scheduler_worker_attach(world->scheduler, NULL,
							step_refused),
			 0);
	world_close(world);
}
