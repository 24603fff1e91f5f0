/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ports of unlike MTU: the smaller one is agreed upon as they connect. The CM
 * knows only what the caller's port carries.
 */
#include "tests/lib/lines.h"
#include "tests/unit/verbs/world.h"

static void world_of(enum ibv_mtu of_p, enum ibv_mtu of_d)
{
	world_init();
	fake_verbs_knobs.mtu[0] = of_p;
	fake_verbs_knobs.mtu[1] = of_d;
	world_machines_open();
}

UNIT_TEST(any_pair_of_mtus_pulls)
{
	uint32_t pair;

	for (pair = 0; pair < 25; pair++) {
		world_of(IBV_MTU_256 + pair / 5, IBV_MTU_256 + pair % 5);
		world_pulls();
		assert_int_equal(world_down(state), 0);
	}
}

/* An MTU is set while a process runs: its next connection goes by it. */
UNIT_TEST_DOWN(mtu_is_looked_at_anew_by_each_connection)
{
	world_of(IBV_MTU_4096, IBV_MTU_4096);
	fake_verbs_knobs.mtu[0] = IBV_MTU_1024;
	world_pulls();
	fake_verbs_knobs.mtu[1] = IBV_MTU_512;
	fake_verbs_cut();
	world_run(WORLD_MS_FLUSHED);
	world.d.ups = world.d.reads_done = 0;
	world_pulls();
}

/* Likewise, and D is connected; its READs are not answered from now on. */
static void world_with_a_hole(enum ibv_mtu mtu)
{
	lines_forget();
	world_of(mtu, mtu);
	world.d.log = lines_from(KVPULL_LOG_WARN);
	world_comes_up(20);
}

static void read_is_lost(void)
{
	fake_verbs_knobs.fail_at[FAKE_VERBS_READ] = 1;
	fake_verbs_knobs.fail_status = IBV_WC_RETRY_EXC_ERR;
	world_read_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.downs, 1);
}

UNIT_TEST_DOWN(path_that_loses_whole_frames_is_named)
{
	world_with_a_hole(IBV_MTU_256);
	read_is_lost();
	assert_non_null(strstr(lines.last,
			       "READs of whole frames, of MTU 256, do not"));
}

UNIT_TEST_DOWN(path_that_carried_a_whole_frame_is_not_blamed)
{
	world_with_a_hole(IBV_MTU_256);
	world_read_run(5);
	assert_int_equal(world.d.reads_done, 1);
	read_is_lost();
	assert_null(strstr(lines.last, "MTU"));
}

UNIT_TEST_DOWN(loss_of_a_small_read_says_nothing_of_the_mtu)
{
	world_with_a_hole(IBV_MTU_4096);
	/* Nothing is a neighbour of anything: 256 bytes a READ. */
	world_scatter();
	read_is_lost();
	assert_null(strstr(lines.last, "MTU"));
}
