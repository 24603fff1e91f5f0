/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of ranks and stages that an engine opens with. */
#include <string.h>

#include "tests/unit/abi/world.h"

UNIT_TEST(rank_behind_the_last_is_refused)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_worker *worker;

	params.tp_rank = params.tp_size;
	refused_with(&params, "tp_rank", "tp_rank 1 of tp_size 1");
	params.tp_rank = 0;
	params.tp_size = 0;
	refused_with(&params, "tp_rank", "tp_rank 0 of tp_size 0");
	params.tp_size = KVPULL_RANKS_MAX + 1;
	refused_with(&params, "tp_rank", "of tp_size 65: size is 1 .. 64");
	params.tp_size = KVPULL_RANKS_MAX;
	params.tp_rank = KVPULL_RANKS_MAX - 1;
	assert_int_equal(ops->open(&params, &worker, NULL), 0);
	ops->close(worker);
}

UNIT_TEST(pipeline_rank_behind_the_last_is_refused)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_worker *worker;

	params.pp_rank = 1;
	refused_with(&params, "pp_rank", "pp_rank 1 of pp_size 1, tp_size 1");
	params.pp_size = 1;
	refused_with(&params, "pp_rank", "pp_rank 1 of pp_size 1, tp_size 1");
	params.pp_size = params.pp_rank = 2;
	refused_with(&params, "pp_rank", "pp_rank 2 of pp_size 2, tp_size 1");
	params.pp_rank = 0;
	params.tp_size = 2;
	params.pp_size = KVPULL_RANKS_MAX / 2 + 1;
	refused_with(
		&params, "pp_rank",
		"pp_rank 0 of pp_size 33, tp_size 2: an engine has at most 64 ranks");
	params.pp_size = UINT32_MAX;
	refused_with(&params, "pp_rank", "an engine has at most 64 ranks");
	params.pp_size = KVPULL_RANKS_MAX / 2;
	params.pp_rank = params.pp_size - 1;
	assert_int_equal(ops->open(&params, &worker, NULL), 0);
	ops->close(worker);
	params.reserved2 = 1;
	refused_with(&params, "reserved", "a reserved member is not 0");
}
