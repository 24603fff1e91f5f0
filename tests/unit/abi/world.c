/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/abi/world.h"

#include <string.h>

#include "tests/lib/host.h"

const struct kvpull_cache four_blocks = { .struct_size = sizeof(four_blocks),
					  .layer_count = 1,
					  .block_stride = 1024,
					  .head_stride = 64,
					  .row_stride = 64,
					  .block_count = 4,
					  .row_count = 16,
					  .head_count = 1,
					  .head_bytes = 64 };

struct kvpull_open_params open_params(const char *engine_id)
{
	static const struct kvpull_group group = { .block_tokens = 16 };
	static const struct kvpull_model model = { .struct_size = sizeof(model),
						   .model = "m",
						   .dtype = "u8",
						   .layout = "LBHNC",
						   .layer_count = 1,
						   .head_count = 1,
						   .head_bytes = 64 };

	return host_params(engine_id,
			   "{\"progress\":\"caller\",\"copy_threads\":0}",
			   &model, &group);
}

struct kvpull_worker *worker_open(void)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	struct kvpull_worker *worker;

	assert_int_equal(ops->worker->open(&params, &worker, NULL), 0);
	return worker;
}

struct kvpull_regions four_blocks_in(const struct kvpull_region *region)
{
	return host_regions(region, &four_blocks);
}

/* A refusal has the code that the call returned, a member and a reason. */
static void is_refused(const struct kvpull_error_detail *detail, int code,
		       const char *field, const char *words)
{
	assert_int_equal(detail->code, code);
	assert_string_equal(detail->field, field);
	if (!strstr(detail->message, words))
		fail_msg("\"%s\" is not in: %s", words, detail->message);
}

void both_refuse(const struct kvpull_open_params *params, int code,
		 const char *field, const char *words)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	struct kvpull_error_detail details[2] = {
		{ .struct_size = sizeof(details[0]) },
		{ .struct_size = sizeof(details[1]) },
	};
	struct kvpull_scheduler *scheduler = NULL;
	struct kvpull_worker *worker = NULL;

	assert_int_equal(ops->scheduler->open(params, &scheduler, &details[0]),
			 code);
	is_refused(&details[0], code, field, words);
	assert_null(scheduler);
	assert_int_equal(ops->worker->open(params, &worker, &details[1]), code);
	is_refused(&details[1], code, field, words);
	assert_null(worker);
}

void refused_with(const struct kvpull_open_params *params, const char *field,
		  const char *words)
{
	both_refuse(params, KVPULL_EINVAL, field, words);
}

struct kvpull_region region_alloc(struct kvpull_worker *worker)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };

	assert_int_equal(ops->memory_alloc(worker, 4096, 0, &memory), 0);
	return (struct kvpull_region){ .struct_size =
					       sizeof(struct kvpull_region),
				       .fd = -1,
				       .base = memory.base,
				       .bytes = 4096 };
}

void regions_refused(struct kvpull_worker *worker,
		     const struct kvpull_regions *regions, const char *words)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	assert_int_equal(ops->regions_register(worker, regions, &detail),
			 KVPULL_EINVAL);
	assert_non_null(strstr(detail.message, words));
}
