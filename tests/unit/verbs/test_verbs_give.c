/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that give tickets back, between machines: the message is the private
 * data of a call, which the producer rejects whatever it says. No place, queue
 * pair or credit is taken for it.
 */
#include "tests/unit/verbs/world.h"

#define STRANGER "192.168.7.7" /* in no network of P's */
#define BYTES 46u              /* two tickets */

static uint8_t message[BYTES] = "KVGB\2";

static int give_up(void **state)
{
	(void)state;
	world_init();
	return world_open();
}

static int give(void)
{
	return world.d.route->ops->give(world.d.route, side_address(&world.p),
					message, sizeof(message), &world.peer);
}

static void message_was_taken(uint32_t count)
{
	assert_int_equal(world.p.given_count, count);
	assert_in_range(world.p.given_bytes, BYTES, sizeof(world.p.given));
	assert_memory_equal(world.p.given, message, BYTES);
}

#define TEST(name) UNIT_TEST_WITH(name, give_up, world_down)

TEST(call_that_gives_tickets_back_is_heard_and_takes_no_place)
{
	const uint32_t live = fake_verbs_live();

	assert_int_equal(give(), 0);
	world_run(5);
	message_was_taken(1);
	assert_int_equal(world.p.ups, 0);
	side_is_down(&world.d, 0);
	assert_int_equal(world.d.messages, 0);
	world_run(5);
	assert_int_equal(fake_verbs_live(), live);
	assert_int_equal(side_counts(&world.p)->calls_refused, 0);
	/* And the next one is let in as ever. */
	world_comes_up(20);
}

TEST(caller_of_no_network_gives_tickets_back)
{
	assert_int_equal(fake_verbs_stranger(STRANGER, message, BYTES), 0);
	world_run(2);
	message_was_taken(1);
	assert_int_equal(world.p.ups, 0);
	assert_int_equal(fake_verbs_strangers(), 0);
}

TEST(caller_of_a_full_producer_gives_tickets_back)
{
	uint32_t i;

	for (i = 0; i < 64; i++) {
		struct kvpull_verbs_greeting call = {
			.kind = KVPULL_VERBS_CALL
		};

		world_stranger_calls("10.66.0.77", call);
	}
	world_run(2);
	assert_int_equal(give(), 0);
	world_run(5);
	message_was_taken(1);
	assert_int_equal(world.d.down_code, 0);
}

/* The CM fills up what we gave it with zeros. */
TEST(padded_message_is_taken)
{
	uint8_t padded[KVPULL_VERBS_GIVE_BYTES_MAX] = { 0 };

	memcpy(padded, message, BYTES);
	assert_int_equal(fake_verbs_stranger(STRANGER, padded, sizeof(padded)),
			 0);
	world_run(2);
	message_was_taken(1);
}

TEST(message_longer_than_private_data_is_not_begun)
{
	uint8_t longer[KVPULL_VERBS_GIVE_BYTES_MAX + 1] = "KVGB";

	assert_int_equal(
		world.d.route->ops->give(world.d.route, side_address(&world.p),
					 longer, sizeof(longer), &world.peer),
		KVPULL_EINVAL);
	assert_int_equal(world.d.route->ops->give_bytes_max,
			 KVPULL_VERBS_GIVE_BYTES_MAX);
}

TEST(call_that_nobody_hears_ends_with_a_code)
{
	static const struct {
		enum fake_verbs_answer answer;
		int32_t code;
	} cases[] = {
		{ FAKE_VERBS_UNREACHABLE, KVPULL_EPEER },
		{ FAKE_VERBS_CONNECT_ERROR, KVPULL_EPEER },
		/* By a producer that does not know such calls. */
		{ FAKE_VERBS_REJECTED, KVPULL_EREJECTED },
	};
	uint32_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_verbs_knobs.answer = cases[i].answer;
		assert_int_equal(give(), 0);
		world_run(10);
		assert_int_equal(world.d.downs, i + 1);
		assert_int_equal(world.d.down_code, cases[i].code);
	}
	assert_int_equal(world.p.given_count, 0);
}

TEST(call_that_is_never_answered_ends_in_time)
{
	fake_verbs_knobs.answer = FAKE_VERBS_SILENCE;
	assert_int_equal(give(), 0);
	world_run(6000);
	side_is_down(&world.d, KVPULL_EPEER);
}

/* P alone does not know D's network. */
UNIT_FIXTURE(apart_up)
{
	world_init();
	assert_int_equal(side_open(&world.d), 0);
	world.networks = "10.99.0.0/16";
	side_begin(&world.p);
	assert_int_equal(side_serve(&world.d), 0);
	world_fill();
}

UNIT_TEST_WITH(consumer_that_the_producer_rejects_knows_that_and_gives_back,
	       apart_up, world_down)
{
	world_connect_run(5);
	assert_int_equal(world.d.down_code, KVPULL_EREJECTED);
	assert_int_equal(give(), 0);
	world_run(5);
	message_was_taken(1);
	assert_int_equal(world.d.down_code, 0);
}

TEST(host_where_nobody_listens_has_not_rejected_anybody)
{
	const char *address = side_address(&world.p);
	char closed[KVPULL_ADDRESS_BYTES_MAX];

	(void)snprintf(closed, sizeof(closed), "%s", address);
	side_close(&world.p);
	assert_int_equal(
		world.d.route->ops->connect(world.d.route, closed, &world.peer),
		0);
	world_run(5);
	assert_int_equal(world.d.down_code, KVPULL_EPEER);
}
