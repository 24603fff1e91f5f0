/* SPDX-License-Identifier: Apache-2.0 */
/* Frames are counted in 32 bits for as long as a connection lives. */
#include "tests/unit/verbs/world.h"

#include "verbs/endpoint.h"

/* As if so many frames had come and gone before. */
static void frames_before(uint32_t count)
{
	struct kvpull_verbs_end *of_d = fake_verbs_owner(1);
	struct kvpull_verbs_end *of_p = fake_verbs_owner(0);

	assert_int_equal(of_d->sent, of_d->acked);
	of_d->sent = of_d->acked = of_d->beat_sent = count;
	of_p->received = of_p->told_acked = count;
}

/* Credits that are no power of two do not divide the count's range. */
UNIT_TEST(notes_are_counted_across_the_wrap)
{
	const struct kvpull_transport_ops *ops;
	uint32_t credits;
	uint32_t back;

	for (credits = 4; credits <= 9; credits++)
		for (back = 1; back <= 2 * credits; back++) {
			(void)world_init();
			world.credits = credits;
			(void)world_open();
			ops = world.d.route->ops;
			world_connect_run(20);
			frames_before(0u - back);
			assert_int_equal(world_note_send(1), 0);
			ops->beat(world.d.route, world.peer);
			assert_int_equal(world_note_send(2), 0);
			world_run(10);
			assert_int_equal(world.note_count, 2);
			assert_int_equal(world.beat_count, 1);
			assert_int_equal(
				ops->notes_open(world.d.route, world.peer), 0);
			assert_int_equal(world.d.downs, 0);
			assert_int_equal(world_down(state), 0);
		}
}
