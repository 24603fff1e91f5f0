/* SPDX-License-Identifier: Apache-2.0 */
/* Polls of the verbs route: which of them tells and answers. */
#include "tests/unit/verbs/world.h"

/*
 * A look at the device that is due is put off for some polls with events; the
 * one that is not may bring the next message, too early.
 */
UNIT_TEST_DOWN(each_message_is_told_by_a_poll_of_its_own)
{
	struct kvpull_frame frame = { .kind = KVPULL_FRAME_MESSAGE,
				      .total = 4,
				      .payload_bytes = 4 };
	struct kvpull_event events[8];
	char text[8];
	uint32_t at;

	world_init();
	world.credits = 16;
	assert_int_equal(world_open(), 0);
	world.silent = 1;
	world_connect_run(5);
	side_sleep(&world.d);
	for (at = 0; at < 10; at++) {
		(void)snprintf(text, sizeof(text), "m-%u", at);
		frame.payload = (const uint8_t *)text;
		world_inject(1, &frame);
	}
	world.d.route->ops->disarm(world.d.route);
	for (at = 0; at < 10; at++) {
		(void)snprintf(text, sizeof(text), "m-%u", at);
		assert_int_equal(world.d.route->ops->poll(world.d.route,
							  world.now_ns, events,
							  8),
				 1);
		assert_int_equal(events[0].kind, KVPULL_EVENT_PEER_MESSAGE);
		assert_string_equal((const char *)events[0].data, text);
	}
}

/* The other side would have to wait with its next note for a poll. */
UNIT_TEST_ATTACHED(half_of_the_credits_are_given_back_at_once)
{
	const struct kvpull_verbs_counts *counts = side_counts(&world.p);
	const uint64_t before = counts->frames_sent;
	struct kvpull_event events[8];
	uint32_t note;

	/* Of four. */
	for (note = 1; note <= 3; note++)
		assert_int_equal(world_note_send(note), 0);
	side_poll(&world.d);
	fake_verbs_run();
	(void)world.p.route->ops->poll(world.p.route, world.now_ns, events, 8);
	assert_int_equal(counts->frames_sent, before + 1);
}
