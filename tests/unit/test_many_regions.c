/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that registers two buffers a layer, in a few mappings: regions of
 * one mapping share its descriptor, so that their number is not bounded by that
 * of descriptors.
 */
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "kvpull/connector.h"

#define REGIONS KVPULL_REGIONS_MAX
#define LAYERS (REGIONS / 2)
#define MAPPINGS 4u
#define BLOCKS 4u
#define BLOCK_BYTES 256u
#define REGION_BYTES (BLOCKS * BLOCK_BYTES)
#define MAPPING_BYTES ((uint64_t)REGIONS / MAPPINGS * REGION_BYTES)
#define TURNS_MAX 200000

struct side {
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	uint8_t *memory[MAPPINGS];
	uint32_t kinds;
};

static const struct kvpull_connector_ops *ops;

/* Region i is K (even) or V of layer i / 2. */
static uint8_t *region_of(const struct side *side, uint32_t i)
{
	return side->memory[i * MAPPINGS / REGIONS] +
	       i % (REGIONS / MAPPINGS) * REGION_BYTES;
}

static void regions_register(struct side *side)
{
	static struct kvpull_region regions[REGIONS];
	static struct kvpull_cache caches[REGIONS];
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct kvpull_regions given = { .struct_size = sizeof(given),
					      .regions = regions,
					      .caches = caches,
					      .region_count = REGIONS,
					      .cache_count = REGIONS };
	uint32_t i;

	for (i = 0; i < REGIONS; i++) {
		regions[i] = (struct kvpull_region){
			.struct_size = sizeof(regions[i]),
			.fd = -1,
			.base = region_of(side, i),
			.bytes = REGION_BYTES,
		};
		caches[i] = (struct kvpull_cache){
			.struct_size = sizeof(caches[i]),
			.region_index = i,
			.layer_first = i / 2,
			.layer_count = 1,
			.block_stride = BLOCK_BYTES,
			.head_stride = BLOCK_BYTES,
			.block_count = BLOCKS,
			.row_count = 1,
			.head_count = 1,
			.head_bytes = BLOCK_BYTES,
		};
	}
	if (ops->worker->regions_register(side->worker, &given, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
}

static void side_open(struct side *side, const char *id, const char *dir)
{
	static const struct kvpull_group group = { .block_tokens = 16 };
	static const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "m",
		.layer_count = LAYERS,
		.head_count = 1,
		.head_bytes = 16,
	};
	char config[160];
	const struct kvpull_open_params params = {
		.struct_size = sizeof(params),
		.config_json = config,
		.model = &model,
		.engine_id = id,
		.tp_size = 1,
		.groups = &group,
		.group_bytes = sizeof(group),
		.group_count = 1,
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	uint8_t info[1024];
	size_t info_bytes;
	uint32_t i;

	(void)snprintf(
		config, sizeof(config),
		"{\"progress\":\"caller\",\"copy_threads\":0,\"route\":\"shm\",\"max_holds\":64,\"socket_dir\":\"%s\"}",
		dir);
	if (ops->scheduler->open(&params, &side->scheduler, &detail) ||
	    ops->worker->open(&params, &side->worker, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
	for (i = 0; i < MAPPINGS; i++) {
		struct kvpull_memory memory = { .struct_size = sizeof(memory) };

		assert_int_equal(ops->worker->memory_alloc(side->worker,
							   MAPPING_BYTES, 0,
							   &memory),
				 0);
		side->memory[i] = memory.base;
	}
	regions_register(side);
	assert_int_equal(ops->worker->rank_info(side->worker, info,
						sizeof(info), &info_bytes),
			 0);
	assert_int_equal(
		ops->scheduler->rank_info(side->scheduler, info, info_bytes),
		0);
}

static void side_close(struct side *side)
{
	ops->worker->close(side->worker);
	ops->scheduler->close(side->scheduler);
}

static void turn(struct side *side)
{
	static uint8_t bytes[1 << 16];
	struct kvpull_poll_record records[4];
	size_t byte_count;
	int count;

	assert_int_equal(ops->scheduler->step_build(side->scheduler, bytes,
						    sizeof(bytes), &byte_count),
			 0);
	assert_int_equal(ops->worker->step(side->worker, bytes, byte_count), 0);
	assert_int_equal(ops->worker->start_loads(side->worker, NULL), 0);
	count = ops->worker->poll(side->worker, records, 4, sizeof(*records));
	while (count > 0)
		side->kinds |= 1u << records[--count].kind;
	assert_int_equal(ops->worker->result_build(side->worker, bytes,
						   sizeof(bytes), &byte_count),
			 0);
	if (byte_count)
		assert_int_equal(ops->scheduler->result_take(side->scheduler,
							     bytes, byte_count),
				 0);
	(void)sched_yield();
}

/* Block 1 of P to block 2 of D. */
static void pull(struct side *p, struct side *d)
{
	static const uint32_t from = 1;
	static const uint32_t to = 2;
	const struct kvpull_blocks at_p = { .block_count = 1,
					    .block_ids = &from };
	const struct kvpull_blocks at_d = { .block_count = 1,
					    .block_ids = &to };
	struct kvpull_request request = { .struct_size = sizeof(request),
					  .key = 1,
					  .prompt_tokens = 16,
					  .flags = KVPULL_REQUEST_WANTS_HOLD };
	char ticket[4096];
	struct kvpull_finish finish = { .struct_size = sizeof(finish),
					.key = 1,
					.computed_tokens = 16,
					.group_count = 1,
					.groups = &at_p,
					.group_bytes = sizeof(at_p),
					.ticket = ticket,
					.ticket_capacity = sizeof(ticket) };
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = 2,
		.external_tokens = 16,
		.group_count = 1,
		.groups = &at_d,
		.group_bytes = sizeof(at_d),
	};
	uint32_t tokens;
	int i;

	assert_int_equal(ops->scheduler->request_new(p->scheduler, &request),
			 0);
	assert_int_equal(
		ops->scheduler->request_finished(p->scheduler, &finish),
		KVPULL_FINISH_HELD);
	request.key = 2;
	request.flags = KVPULL_REQUEST_PULL;
	request.ticket = ticket;
	request.ticket_bytes = finish.ticket_bytes;
	assert_int_equal(ops->scheduler->request_new(d->scheduler, &request),
			 0);
	assert_int_equal(
		ops->scheduler->matched_tokens(d->scheduler, 2, 0, &tokens),
		KVPULL_MATCH_LOAD);
	assert_int_equal(ops->scheduler->allocated(d->scheduler, &allocation),
			 0);
	for (i = 0; i < TURNS_MAX && !(p->kinds && d->kinds); i++) {
		turn(p);
		turn(d);
	}
}

static uint32_t descriptors_open(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t count = 0;

	assert_non_null(folder);
	while (readdir(folder))
		count++;
	(void)closedir(folder);
	return count;
}

static void regions_of_a_mapping_share_its_descriptor(void **state)
{
	const struct rlimit limit = { 1024, 1024 };
	struct side p = { .kinds = 0 };
	struct side d = { .kinds = 0 };
	char dir[] = "/tmp/kvpull-test-XXXXXX";
	uint32_t before;
	uint32_t i;

	(void)state;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_non_null(mkdtemp(dir));
	ops = kvpull_connector_v1();
	before = descriptors_open();
	side_open(&p, "prefill", dir);
	side_open(&d, "decode", dir);
	for (i = 0; i < REGIONS; i++)
		memset(region_of(&p, i) + BLOCK_BYTES, 1 + (int)(i % 251),
		       BLOCK_BYTES);
	pull(&p, &d);
	assert_int_equal(p.kinds, 1u << KVPULL_POLL_SENT);
	assert_int_equal(d.kinds, 1u << KVPULL_POLL_LOADED);
	for (i = 0; i < REGIONS; i++) {
		const uint8_t *got = region_of(&d, i) + (size_t)2 * BLOCK_BYTES;

		assert_int_equal(got[0], 1 + i % 251);
		assert_memory_equal(got, region_of(&p, i) + BLOCK_BYTES,
				    BLOCK_BYTES);
	}
	assert_in_range(descriptors_open() - before, 1, 80);
	side_close(&d);
	side_close(&p);
	assert_int_equal(descriptors_open(), before);
	(void)rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regions_of_a_mapping_share_its_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
