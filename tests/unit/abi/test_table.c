/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the connector's table that do little: each does what it says, for the
 * key and with the buffers that it is given.
 */
#include <string.h>
#include <time.h>

#include "tests/lib/host.h"
#include "tests/unit/abi/world.h"

#define TOKENS 64u /* of a prompt: four blocks */
#define POLLS_MAX 20000u

static const struct kvpull_scheduler_ops *half;
static const struct kvpull_worker_ops *rank;

struct engine {
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
};

static struct engine p;
static uint8_t ticket[4096];
static size_t ticket_bytes;

static struct engine engine_open(const char *id)
{
	struct kvpull_region region = { 0 };
	const struct kvpull_regions regions = four_blocks_in(&region);
	struct kvpull_open_params params = open_params(id);
	struct engine engine;

	params.config_json =
		"{\"progress\":\"caller\",\"copy_threads\":0,\"route\":\"shm\",\"deadline_ms\":50}";
	assert_int_equal(half->open(&params, &engine.scheduler, NULL), 0);
	assert_int_equal(rank->open(&params, &engine.worker, NULL), 0);
	region = region_alloc(engine.worker);
	assert_int_equal(rank->regions_register(engine.worker, &regions, NULL),
			 0);
	assert_int_equal(host_introduce(engine.worker, engine.scheduler), 0);
	return engine;
}

static void engine_close(struct engine *engine)
{
	half->close(engine->scheduler);
	rank->close(engine->worker);
	*engine = (struct engine){ 0 };
}

UNIT_FIXTURE(setup)
{
	half = kvpull_connector_v1()->scheduler;
	rank = kvpull_connector_v1()->worker;
	p = engine_open("p");
}

UNIT_FIXTURE(teardown)
{
	engine_close(&p);
}

static void request(struct engine *engine, uint64_t key, uint64_t adapter)
{
	const struct kvpull_request params = {
		.struct_size = sizeof(params),
		.key = key,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
		.prompt_tokens = TOKENS,
		.adapter = adapter,
	};

	assert_int_equal(half->request_new(engine->scheduler, &params), 0);
}

/* A request that is known finishes; its ticket is the last. */
static int finish(uint64_t key)
{
	static const uint32_t ids[4] = { 0, 1, 2, 3 };
	const struct kvpull_blocks blocks = { 0, 4, ids };
	struct kvpull_finish params = {
		.struct_size = sizeof(params),
		.key = key,
		.computed_tokens = TOKENS,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.ticket = ticket,
		.ticket_capacity = sizeof(ticket),
	};
	const int answer = half->request_finished(p.scheduler, &params);

	ticket_bytes = params.ticket_bytes;
	return answer;
}

static int hold(uint64_t key)
{
	request(&p, key, 0);
	return finish(key);
}

UNIT_TEST_WITH(ticket_of_a_held_request_is_got_again, setup, teardown)
{
	uint8_t again[sizeof(ticket)];
	size_t count = 0;

	assert_int_equal(hold(7), KVPULL_FINISH_HELD);
	assert_int_equal(
		half->ticket_get(p.scheduler, 7, again, sizeof(again), &count),
		0);
	assert_int_equal(count, ticket_bytes);
	assert_memory_equal(again, ticket, count);
	count = 0;
	memset(again, 0xee, sizeof(again));
	assert_int_equal(half->ticket_get(p.scheduler, 7, again,
					  ticket_bytes - 1, &count),
			 KVPULL_ETOOSMALL);
	assert_int_equal(count, ticket_bytes);
	assert_int_equal(again[ticket_bytes - 1], 0xee);
	assert_int_equal(half->ticket_get(p.scheduler, 7, NULL, 0, &count),
			 KVPULL_ETOOSMALL);
	assert_int_equal(
		half->ticket_get(p.scheduler, 7, again, ticket_bytes, &count),
		0);
	assert_int_equal(
		half->ticket_get(p.scheduler, 8, again, sizeof(again), &count),
		KVPULL_ENOKEY);
}

UNIT_TEST_WITH(half_that_drains_holds_nothing_more, setup, teardown)
{
	assert_int_equal(half->drain(p.scheduler, 1), 0);
	assert_int_equal(hold(1), KVPULL_FINISH_FREE);
	assert_int_equal(half->drain(p.scheduler, 0), 0);
	assert_int_equal(hold(2), KVPULL_FINISH_HELD);
	assert_int_equal(half->drain(p.scheduler, 1), 1);
}

UNIT_TEST_WITH(change_of_an_adapter_holds_no_known_request_of_it, setup,
	       teardown)
{
	request(&p, 1, 5);
	request(&p, 2, 0);
	assert_int_equal(half->changed(p.scheduler, 5), 0);
	assert_int_equal(finish(1), KVPULL_FINISH_FREE);
	assert_int_equal(finish(2), KVPULL_FINISH_HELD);
	request(&p, 3, 5);
	request(&p, 4, 0);
	assert_int_equal(half->changed(p.scheduler, 0), 0);
	assert_int_equal(finish(3), KVPULL_FINISH_FREE);
	assert_int_equal(finish(4), KVPULL_FINISH_FREE);
	assert_int_equal(hold(5), KVPULL_FINISH_HELD);
}

UNIT_TEST_WITH(reset_of_an_unknown_kind_is_refused, setup, teardown)
{
	assert_int_equal(half->reset(p.scheduler, 8), KVPULL_EINVAL);
	assert_int_equal(half->reset(p.scheduler, KVPULL_RESET_CLEARED |
							  KVPULL_RESET_FORGET),
			 0);
	assert_int_equal(half->reset(p.scheduler, 0), 0);
}

/* A request of D's wants the ticket of a hold of P's. */
static void want(struct engine *d, uint64_t key)
{
	const struct kvpull_request params = {
		.struct_size = sizeof(params),
		.key = key,
		.flags = KVPULL_REQUEST_PULL,
		.prompt_tokens = TOKENS,
		.ticket = ticket,
		.ticket_bytes = ticket_bytes,
	};
	uint32_t tokens = 0;

	assert_int_equal(half->request_new(d->scheduler, &params), 0);
	assert_int_equal(half->matched_tokens(d->scheduler, key, 0, &tokens),
			 KVPULL_MATCH_LOAD);
	assert_int_equal(tokens, TOKENS);
}

static const uint32_t local_ids[4] = { 3, 1, 2, 0 };

static int allocated(struct engine *d, uint64_t key)
{
	const struct kvpull_blocks blocks = { 0, 4, local_ids };
	const struct kvpull_allocation params = {
		.struct_size = sizeof(params),
		.key = key,
		.external_tokens = TOKENS,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
	};

	return half->allocated(d->scheduler, &params);
}

UNIT_TEST_WITH(ticket_that_was_offered_before_a_change_loads_nothing, setup,
	       teardown)
{
	struct engine d = engine_open("d");

	assert_int_equal(hold(7), KVPULL_FINISH_HELD);
	want(&d, 9);
	assert_int_equal(half->match_failure(d.scheduler, 9), 0);
	assert_int_equal(half->match_failure(d.scheduler, 10), KVPULL_ENOKEY);
	assert_int_equal(half->loaded(d.scheduler, 10), KVPULL_ENOKEY);
	assert_int_equal(half->changed(d.scheduler, 0), 0);
	assert_int_equal(allocated(&d, 9), KVPULL_EMISMATCH);
	assert_int_equal(half->loaded(d.scheduler, 9), KVPULL_EMISMATCH);
	assert_int_equal(half->match_failure(d.scheduler, 9), KVPULL_EMISMATCH);
	engine_close(&d);
}

/* D's step reaches its worker, and the pull ends as its deadline passes. */
static void pull_fails(struct engine *d, uint64_t key)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct kvpull_poll_record record;
	static uint8_t step[65536];
	uint32_t polls = 0;
	size_t count;

	assert_int_equal(allocated(d, key), 0);
	assert_int_equal(
		half->step_build(d->scheduler, step, sizeof(step), &count), 0);
	assert_true(count > 0);
	assert_int_equal(rank->step(d->worker, step, count), 0);
	assert_int_equal(rank->start_loads(d->worker, NULL), 0);
	while (rank->poll(d->worker, &record, 1, sizeof(record)) == 0) {
		assert_in_range(polls++, 0, POLLS_MAX);
		(void)nanosleep(&pause, NULL);
	}
	assert_int_equal(record.key, key);
	assert_int_equal(record.kind, KVPULL_POLL_FAILED);
	assert_int_equal(record.reason, KVPULL_EDEADLINE);
}

UNIT_TEST_WITH(blocks_of_a_pull_that_failed_are_told, setup, teardown)
{
	struct engine d = engine_open("d");
	uint32_t blocks[5] = { 9, 9, 9, 9, 9 };
	uint32_t count = 0;

	assert_int_equal(hold(7), KVPULL_FINISH_HELD);
	want(&d, 9);
	/* P is never polled. */
	pull_fails(&d, 9);
	assert_int_equal(rank->failed_blocks(d.worker, 9, blocks, 3, &count),
			 KVPULL_ETOOSMALL);
	assert_int_equal(count, 4);
	assert_int_equal(blocks[0], 9);
	assert_int_equal(rank->failed_blocks(d.worker, 9, NULL, 0, &count),
			 KVPULL_ETOOSMALL);
	assert_int_equal(rank->failed_blocks(d.worker, 10, blocks, 4, &count),
			 KVPULL_ENOKEY);
	assert_int_equal(rank->failed_blocks(d.worker, 9, blocks, 4, &count),
			 0);
	assert_memory_equal(blocks, local_ids, sizeof(local_ids));
	assert_int_equal(blocks[4], 9);
	/* Until the next poll. */
	assert_int_equal(rank->poll(d.worker, NULL, 0,
				    sizeof(struct kvpull_poll_record)),
			 0);
	assert_int_equal(rank->failed_blocks(d.worker, 9, blocks, 4, &count),
			 KVPULL_ENOKEY);
	assert_int_equal(rank->hold_ready(d.worker, 9), KVPULL_ENOKEY);
	engine_close(&d);
}

UNIT_TEST(engine_may_have_as_many_groups_as_there_can_be)
{
	static const struct kvpull_group groups[KVPULL_GROUPS_MAX] = {
		{ 16, 0, 0, 0 }, { 16, 1, 0, 0 }, { 16, 0, 0, 0 },
		{ 16, 1, 0, 0 }, { 16, 0, 0, 0 }, { 16, 1, 0, 0 },
		{ 16, 0, 0, 0 }, { 16, 1, 0, 0 },
	};
	struct kvpull_open_params params = open_params("engine");
	struct engine engine;

	half = kvpull_connector_v1()->scheduler;
	rank = kvpull_connector_v1()->worker;
	params.groups = groups;
	params.group_count = KVPULL_GROUPS_MAX;
	assert_int_equal(half->open(&params, &engine.scheduler, NULL), 0);
	assert_int_equal(rank->open(&params, &engine.worker, NULL), 0);
	engine_close(&engine);
}
