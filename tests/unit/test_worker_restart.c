/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as producer: what it makes of others' restarts, of a consumer's
 * worker within its grace, and of its own scheduler half.
 */
#include "tests/unit/worker_peer.h"

#define KEY 7u
#define SLOT 3u
#define GENERATION 9u
#define INSTANCE 0x11u
#define WORKER 0x12u
#define SUCCESSOR 0x13u

static int setup_grace(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	world_open(world,
		   ",\"pulls_max\":4,\"tickets_max\":4,\"grace_ms\":1000");
	*state = world;
	return 0;
}

static void hold(struct world *world, uint64_t generation, uint64_t key)
{
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_HOLD,
		.slot = SLOT,
		.key = key,
		.generation = generation,
	};

	world_send(world, &command, 1);
}

/* The one rank of an instance connects: this worker of it. */
static struct world_caller *consumer(struct world *world, uint32_t index,
				     uint64_t incarnation)
{
	const struct world_hello who = {
		.instance = INSTANCE,
		.incarnation = incarnation,
		.uid = world->config.uids[0],
	};
	struct world_caller *caller = world_hello(world, index, &who);

	assert_int_equal(caller->state, 2);
	return caller;
}

/* It claims the hold, and its connection is lost. */
static void claim_and_go(struct world *world, struct world_caller *caller)
{
	const struct kvpull_record claim = {
		.kind = KVPULL_NOTE_CLAIM,
		.slot = SLOT,
		.generation = GENERATION,
		.tag = kvpull_ticket_tag(world->worker->secret, SLOT,
					 GENERATION),
	};

	hold(world, GENERATION, KEY);
	assert_in_range(kvpull_ring_push(&caller->writer, &claim), 0, 1);
	world_poll(world, 1);
	(void)world_event(world, KVPULL_EVENT_CALLER_DOWN, 0);
	world_poll(world, 2);
	world_pass(world, 100 * WORLD_MS);
	world_silent(world, KEY);
}

static void beat(struct world *world, struct world_caller *caller,
		 uint32_t times)
{
	while (times--) {
		kvpull_ring_beat(&caller->writer);
		world_pass(world, 100 * WORLD_MS);
	}
}

static void flapped_connection_keeps_its_claims(void **state)
{
	struct world *world = *state;

	claim_and_go(world, consumer(world, 0, WORKER));
	beat(world, consumer(world, 1, WORKER), 30);
	world_silent(world, KEY);
}

/* It will never release them, and its heartbeats must not renew them. */
static void restarted_worker_does_not_keep_its_predecessors_claims(void **state)
{
	struct world *world = *state;

	claim_and_go(world, consumer(world, 0, WORKER));
	beat(world, consumer(world, 1, SUCCESSOR), 1);
	world_reported(world, KEY, KVPULL_POLL_SENT, KVPULL_END_RELEASED);
	beat(world, &world->callers[1], 1);
	assert_int_equal(world->worker->callers[1].joined, 1);
}

static int gap_is_told(struct world *world)
{
	struct kvpull_result_header header;
	uint8_t bytes[4096];
	struct kvpull_wire_reader reader = { .data = bytes };

	assert_int_equal(kvpull_worker_result_build(world->worker, bytes,
						    sizeof(bytes),
						    &reader.byte_count),
			 0);
	assert_int_equal(kvpull_step_get_result_header(&reader, &header), 0);
	return (int)header.gap;
}

/* A hold that found its slot busy would never be reported. */
static void slots_of_an_old_scheduler_half_are_reported_first(void **state)
{
	struct world *world = *state;
	uint32_t i;

	hold(world, 1, KEY);
	world_poll(world, 1);
	world->incarnation++;
	world->sequence = 0;
	hold(world, 2, KEY + 1);
	assert_int_equal(gap_is_told(world), 1);
	world_poll(world, 1);
	world_reported(world, KEY, KVPULL_POLL_SENT, KVPULL_END_REVOKED);
	world->sequence = 0;
	hold(world, 2, KEY + 1);
	assert_int_equal(gap_is_told(world), 0);
	world_poll(world, 1);
	world_silent(world, KEY + 1);
	for (i = 0; i < 32; i++)
		world_pass(world, 100 * WORLD_MS);
	world_reported(world, KEY + 1, KVPULL_POLL_SENT, KVPULL_END_EXPIRED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			flapped_connection_keeps_its_claims, setup_grace,
			world_teardown),
		cmocka_unit_test_setup_teardown(
			restarted_worker_does_not_keep_its_predecessors_claims,
			setup_grace, world_teardown),
		cmocka_unit_test_setup_teardown(
			slots_of_an_old_scheduler_half_are_reported_first,
			world_setup, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
