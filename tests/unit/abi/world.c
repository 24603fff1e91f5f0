/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/abi/world.h"

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
