/* SPDX-License-Identifier: Apache-2.0 */
/* Every call with every pointer NULL, one at a time: KVPULL_EINVAL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/abi/world.h"

#define refused(call) assert_int_equal((call), KVPULL_EINVAL)

static uint8_t bytes[65536];
static size_t used;
static struct kvpull_error_detail why = { .struct_size = sizeof(why) };

/* A rank with four blocks of one layer. */
static void memory_register(struct kvpull_worker *worker)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_region region = region_alloc(worker);
	struct kvpull_regions regions = four_blocks_in(&region);
	void *const base = region.base;

	refused(ops->regions_register(NULL, &regions, &why));
	refused(ops->regions_register(worker, NULL, &why));
	regions.regions = NULL;
	refused(ops->regions_register(worker, &regions, NULL));
	regions.regions = &region;
	regions.caches = NULL;
	refused(ops->regions_register(worker, &regions, NULL));
	regions.caches = &four_blocks;
	region.base = NULL;
	refused(ops->regions_register(worker, &regions, NULL));
	region.base = base;
	region.bytes = 0;
	refused(ops->regions_register(worker, &regions, &why));
	assert_string_equal(why.message, "a region needs base and bytes");
	region.bytes = 4096;
	regions.region_count = 0;
	refused(ops->regions_register(worker, &regions, &why));
	assert_string_equal(
		why.message,
		"register once, 1 .. 1024 regions and 1 .. 2048 caches");
	regions.region_count = 1;
	regions.cache_count = 0;
	refused(ops->regions_register(worker, &regions, NULL));
	regions.cache_count = 1;
	assert_int_equal(ops->regions_register(worker, &regions, NULL), 0);
}

static void opens_without(void)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;

	refused(ops->scheduler->open(NULL, &scheduler, NULL));
	refused(ops->scheduler->open(&params, NULL, NULL));
	refused(ops->worker->open(NULL, &worker, NULL));
	refused(ops->worker->open(&params, NULL, &why));
	assert_int_equal(why.code, KVPULL_EINVAL);
	ops->scheduler->close(NULL);
	ops->worker->close(NULL);
	assert_int_equal(ops->config_check(NULL, NULL), 0);
	refused(ops->ticket_peek(NULL, 64, NULL));
	refused(ops->ticket_peek(bytes, 64, NULL));
	assert_int_equal(ops->config_check("{", NULL), KVPULL_ECONFIG);
}

static void worker_without(struct kvpull_worker *worker)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_poll_record record;
	struct kvpull_peer_info peer;
	uint32_t block;
	uint32_t count;

	refused(ops->memory_alloc(NULL, 4096, 0, &memory));
	refused(ops->memory_alloc(worker, 4096, 0, NULL));
	refused(ops->memory_free(NULL, bytes));
	refused(ops->memory_free(worker, NULL));
	refused(ops->rank_info(NULL, bytes, sizeof(bytes), &used));
	refused(ops->rank_info(worker, NULL, sizeof(bytes), &used));
	refused(ops->rank_info(worker, bytes, sizeof(bytes), NULL));
	refused(ops->step(NULL, bytes, 64));
	refused(ops->step(worker, NULL, 64));
	refused(ops->start_loads(NULL, NULL));
	refused(ops->hold_ready(NULL, 1));
	refused((int)ops->engine_mark(NULL, 1));
	refused(ops->hold_ready_after(NULL, 1, 1));
	refused(ops->poll(NULL, &record, 1, sizeof(record)));
	refused(ops->poll(worker, NULL, 1, sizeof(record)));
	refused(ops->failed_blocks(NULL, 1, &block, 1, &count));
	refused(ops->failed_blocks(worker, 1, NULL, 1, &count));
	refused(ops->failed_blocks(worker, 1, &block, 1, NULL));
	refused(ops->result_build(NULL, bytes, sizeof(bytes), &used));
	refused(ops->result_build(worker, NULL, sizeof(bytes), &used));
	refused(ops->result_build(worker, bytes, sizeof(bytes), NULL));
	refused(ops->revoke_all(NULL));
	refused(ops->event_fd(NULL));
	refused(ops->progress(NULL, 0));
	refused(ops->peers(NULL, &peer, 1, sizeof(peer)));
	refused(ops->peers(worker, NULL, 1, sizeof(peer)));
	refused(ops->counters(worker, NULL, 1, sizeof(struct kvpull_counter)));
}

/* No text, no answer, no length: each of them alone. */
static void scheduler_without(struct kvpull_scheduler *scheduler)
{
	const struct kvpull_scheduler_ops *ops =
		kvpull_connector_v1()->scheduler;
	struct kvpull_counter counter;
	uint32_t tokens;

	refused(ops->rank_info(NULL, bytes, 64));
	refused(ops->rank_info(scheduler, NULL, 64));
	refused(ops->ranks_missing(NULL));
	refused(ops->matched_tokens(NULL, 1, 0, &tokens));
	refused(ops->matched_tokens(scheduler, 1, 0, NULL));
	refused(ops->request_rejected(NULL, bytes, 64));
	refused(ops->request_rejected(scheduler, NULL, 64));
	refused(ops->ticket_get(NULL, 1, bytes, sizeof(bytes), &used));
	refused(ops->ticket_get(scheduler, 1, NULL, sizeof(bytes), &used));
	refused(ops->ticket_get(scheduler, 1, bytes, sizeof(bytes), NULL));
	refused(ops->payload_get(NULL, 1, bytes, sizeof(bytes), &used));
	refused(ops->payload_get(scheduler, 1, NULL, sizeof(bytes), &used));
	refused(ops->payload_get(scheduler, 1, bytes, sizeof(bytes), NULL));
	refused(ops->step_build(NULL, bytes, sizeof(bytes), &used));
	refused(ops->step_build(scheduler, NULL, sizeof(bytes), &used));
	refused(ops->step_build(scheduler, bytes, sizeof(bytes), NULL));
	refused(ops->result_take(NULL, bytes, 64));
	refused(ops->result_take(scheduler, NULL, 64));
	refused(ops->has_pending(NULL));
	refused(ops->reset(NULL, 0));
	refused(ops->drain(NULL, 0));
	refused(ops->worker_attach(NULL, NULL));
	refused(ops->changed(NULL, 0));
	refused(ops->loaded(NULL, 1));
	refused(ops->match_failure(NULL, 1));
	refused(ops->counters(scheduler, NULL, 1, sizeof(counter)));
}

/* Pointers of a request. */
static void requests_without(struct kvpull_scheduler *scheduler)
{
	const struct kvpull_scheduler_ops *ops =
		kvpull_connector_v1()->scheduler;
	static const uint32_t ids[1] = { 2 };
	struct kvpull_blocks blocks = { 0, 1, ids };
	struct kvpull_request request = { .struct_size = sizeof(request),
					  .key = 7,
					  .ticket_bytes = 64,
					  .prompt_tokens = 16,
					  .flags = KVPULL_REQUEST_PULL };
	struct kvpull_allocation allocation = { .struct_size =
							sizeof(allocation),
						.key = 7,
						.group_count = 1,
						.group_bytes = sizeof(blocks) };
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = 7,
		.reason = KVPULL_FINISH_STOP,
		.computed_tokens = 16,
		.ticket_capacity = sizeof(bytes),
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
	};

	refused(ops->request_new(scheduler, &request));
	request.ticket_bytes = 0;
	request.flags = KVPULL_REQUEST_WANTS_HOLD;
	refused(ops->request_new(NULL, &request));
	refused(ops->request_new(scheduler, NULL));
	assert_int_equal(ops->request_new(scheduler, &request), 0);
	allocation.external_tokens = 16;
	refused(ops->allocated(NULL, &allocation));
	refused(ops->allocated(scheduler, NULL));
	refused(ops->allocated(scheduler, &allocation));
	refused(ops->request_finished(NULL, &finish));
	refused(ops->request_finished(scheduler, NULL));
	refused(ops->request_finished(scheduler, &finish));
	/* Not known any more, were it not for the answers before. */
	finish.ticket = bytes;
	assert_int_equal(ops->request_finished(scheduler, &finish),
			 KVPULL_FINISH_HELD);
}

/* Blocks and a payload that are not there make no ticket. */
static void finish_without(struct kvpull_scheduler *scheduler, uint64_t key,
			   const struct kvpull_blocks *groups,
			   uint32_t payload_bytes)
{
	const struct kvpull_scheduler_ops *ops =
		kvpull_connector_v1()->scheduler;
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = key,
		.prompt_tokens = 16,
		.flags = KVPULL_REQUEST_WANTS_HOLD
	};
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = key,
		.reason = KVPULL_FINISH_STOP,
		.computed_tokens = 16,
		.group_count = 1,
		.groups = groups,
		.group_bytes = sizeof(*groups),
		.payload_bytes = payload_bytes,
		.ticket = bytes,
		.ticket_capacity = sizeof(bytes),
	};

	assert_int_equal(ops->request_new(scheduler, &request), 0);
	assert_int_equal(ops->request_finished(scheduler, &finish),
			 KVPULL_FINISH_FREE);
	assert_int_equal(finish.ticket_bytes, 0);
}

UNIT_TEST(pointer_that_is_not_there_is_refused)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	static const uint32_t ids[1] = { 2 };
	const struct kvpull_blocks blocks = { 0, 1, ids };
	const struct kvpull_blocks nothing = { .block_count = 1 };
	struct kvpull_worker *worker = worker_open();
	struct kvpull_scheduler *scheduler;

	assert_int_equal(ops->scheduler->open(&params, &scheduler, NULL), 0);
	opens_without();
	memory_register(worker);
	worker_without(worker);
	assert_int_equal(
		ops->worker->rank_info(worker, bytes, sizeof(bytes), &used), 0);
	assert_int_equal(ops->scheduler->rank_info(scheduler, bytes, used), 0);
	scheduler_without(scheduler);
	requests_without(scheduler);
	finish_without(scheduler, 8, NULL, 0);
	finish_without(scheduler, 9, &nothing, 0);
	finish_without(scheduler, 10, &blocks, 8);
	ops->scheduler->close(scheduler);
	ops->worker->close(worker);
}
