/* SPDX-License-Identifier: Apache-2.0 */
/* A producer's rejection carries its reason, and the consumer's line has it. */
#include "tests/lib/lines.h"
#include "tests/unit/verbs/world.h"

/* D as it is, and P with these networks. */
static void rejecting_open(const char *networks)
{
	lines_forget();
	world.networks = networks;
	side_begin(&world.p);
	assert_int_equal(side_serve(&world.d), 0);
	world_fill();
	world.d.log = lines_from(KVPULL_LOG_WARN);
}

static int up(void **state)
{
	(void)state;
	world_init();
	return side_open(&world.d);
}

static void calls_and_is_rejected(void)
{
	world_connect_run(5);
	side_is_down(&world.d, KVPULL_EREJECTED);
	assert_int_equal(world.p.ups, 0);
}

UNIT_TEST_WITH(rejection_by_networks_names_our_address, up, world_down)
{
	rejecting_open("10.99.0.0/16");
	calls_and_is_rejected();
	assert_non_null(
		strstr(lines.last,
		       "our address 10.66.0.1 is in none of its networks"));
}

/* Bytes of a later kvpull: this one cannot read the reason behind them. */
UNIT_TEST_WITH(rejection_by_another_version_says_so, up, world_down)
{
	struct kvpull_verbs_greeting other = { .kind = KVPULL_VERBS_CALL,
					       .credits = 1,
					       .mtu = IBV_MTU_256 };
	uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES];

	kvpull_verbs_greeting_put(bytes, &other);
	bytes[4]++;
	rejecting_open("10.66.0.0/16");
	fake_verbs_knobs.answer = FAKE_VERBS_REJECTED_SAID;
	memcpy(fake_verbs_knobs.rejection, bytes, sizeof(bytes));
	calls_and_is_rejected();
	assert_non_null(
		strstr(lines.last, "it speaks another version of kvpull"));
}

UNIT_TEST_WITH(rejection_of_our_version_says_so, up, world_down)
{
	const struct kvpull_verbs_greeting other = { .kind = KVPULL_VERBS_OTHER,
						     .credits = 1,
						     .mtu = IBV_MTU_256 };

	rejecting_open("10.66.0.0/16");
	fake_verbs_knobs.answer = FAKE_VERBS_REJECTED_SAID;
	kvpull_verbs_greeting_put(fake_verbs_knobs.rejection, &other);
	calls_and_is_rejected();
	assert_non_null(
		strstr(lines.last, "it speaks another version of kvpull"));
}

UNIT_TEST_WITH(rejection_by_another_program_is_not_put_down_to_networks, up,
	       world_down)
{
	rejecting_open("10.66.0.0/16");
	fake_verbs_knobs.answer = FAKE_VERBS_REJECTED_SAID;
	memset(fake_verbs_knobs.rejection, 'x',
	       sizeof(fake_verbs_knobs.rejection));
	calls_and_is_rejected();
	assert_non_null(strstr(lines.last, "it is no kvpull"));
}
