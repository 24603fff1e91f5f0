/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and addresses that go and come back: what was connected ends with an
 * error, and pulls go on within 2 s of the return, without a restart.
 */
#include "tests/unit/verbs/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#define BACK_MS 2000u

static void all_ended(void)
{
	side_is_down(&world.d, KVPULL_EPEER);
	assert_int_equal(world.p.downs, 1);
	world.d.downs = world.p.downs = world.d.ups = 0;
	world.d.reads_done = world.d.checks_done = 0;
	memset(world.d.memory, 0, WORLD_BYTES);
	world_read_make(0);
}

static void all_end_in(uint32_t steps)
{
	world_run(steps);
	all_ended();
}

static void pulls(void)
{
	world_pulls();
	world_check_is_good();
}

#define TEST(name) UNIT_TEST_ATTACHED(name)

TEST(removed_device_is_used_when_it_is_back)
{
	char before[KVPULL_ADDRESS_BYTES_MAX];
	uint32_t round;

	(void)snprintf(before, sizeof(before), "%s", side_address(&world.p));
	for (round = 0; round < 5; round++) {
		world_read_held(0);
		fake_verbs_remove_device();
		world_run(3000);
		assert_int_equal(world.d.reads_done, round ? 2 : 1);
		assert_int_equal(world.d.read_code, KVPULL_EPEER);
		all_ended();
		assert_int_equal(world_connect(), KVPULL_EPEER);
		fake_verbs_knobs.held = 0;
		fake_verbs_return(0, 0);
		world_run(BACK_MS);
		/* Tickets that were given out lead here again. */
		assert_string_equal(side_address(&world.p), before);
		pulls();
	}
}

TEST(broken_device_is_used_when_it_is_back)
{
	fake_verbs_async(0, IBV_EVENT_DEVICE_FATAL);
	side_poll(&world.d);
	fake_verbs_async(0, IBV_EVENT_DEVICE_FATAL);
	side_step(&world.p);
	all_end_in(3000);
	fake_verbs_return(0, 0);
	world_run(BACK_MS);
	pulls();
}

/* The port has other addresses until then. */
TEST(address_that_was_taken_away_is_used_when_it_is_back)
{
	fake_verbs_unaddress(0);
	side_step(&world.d);
	fake_verbs_async(0, IBV_EVENT_GID_CHANGE);
	all_end_in(3000);
	assert_int_equal(world_connect(), KVPULL_EPEER);
	fake_verbs_return(0, 0);
	world_run(BACK_MS);
	pulls();
}

TEST(change_of_another_address_ends_nothing)
{
	fake_verbs_async(0, IBV_EVENT_GID_CHANGE);
	world_run(100);
	assert_int_equal(world.d.downs, 0);
	world_reads(5);
}

static void two_machines_attached_at(uint32_t port)
{
	world_init();
	world.listen_port = port;
	world_machines_open();
	world_comes_up(20);
}

static void two_machines_are_attached(void)
{
	two_machines_attached_at(0);
}

UNIT_TEST_DOWN(consumer_of_another_address_pulls_on)
{
	two_machines_are_attached();
	fake_verbs_unaddress(1);
	all_end_in(3000);
	fake_verbs_return(1, 5);
	world_run(BACK_MS);
	pulls();
}

/*
 * The owner gets the new address for later tickets, and a consumer with one of
 * those reaches it.
 */
UNIT_TEST_DOWN(producer_of_another_address_listens_there)
{
	char address[KVPULL_ADDRESS_BYTES_MAX];

	two_machines_are_attached();
	(void)snprintf(address, sizeof(address), "10.66.0.6%s",
		       strchr(side_address(&world.p), ':'));
	fake_verbs_unaddress(0);
	all_end_in(3000);
	fake_verbs_return(0, 5);
	assert_int_equal(world.p.addresses, 0);
	world_run(BACK_MS);
	assert_int_equal(world.p.addresses, 1);
	assert_string_equal(side_address(&world.p), address);
	assert_int_equal(world.d.route->ops->connect(world.d.route, address,
						     &world.peer),
			 0);
	world_run(20);
	assert_int_equal(world.d.ups, 1);
	world_reads(5);
}

/*
 * Objects that cannot be made again leave nothing behind, and are tried again.
 */
UNIT_TEST(return_that_fails_is_tried_again)
{
	uint32_t at;

	for (at = 1; at <= 8; at++) {
		(void)world_attached(state);
		fake_verbs_remove_device();
		all_end_in(3000);
		fake_verbs_return(0, 0);
		fake_verbs_knobs.make_at = at;
		world_run(BACK_MS);
		assert_int_equal(fake_verbs_knobs.make_at, 0);
		pulls();
		assert_int_equal(world_down(state), 0);
	}
}

/* The only device says so, and the consumer hears of it first. */
static void consumer_hears(enum ibv_event_type type)
{
	fake_verbs_async(0, type);
	side_step(&world.d);
}

/* Two rails by two addresses of one port. */
UNIT_FIXTURE(addresses_are_attached)
{
	world_init();
	fake_verbs_knobs.second_address = 1;
	world.networks = "10.66.0.0/16";
	world.address = "10.66.0.1,10.66.1.1";
	assert_int_equal(world_open(), 0);
	world_comes_up(20);
}

UNIT_TEST_WITH(device_is_heard_though_one_of_its_addresses_left,
	       addresses_are_attached, world_down)
{
	fake_verbs_knobs.second_address = 0;
	consumer_hears(IBV_EVENT_GID_CHANGE);
	world_run(1000);
	assert_int_equal(world.d.downs, 0);
	consumer_hears(IBV_EVENT_DEVICE_FATAL);
	all_end_in(1000);
	assert_int_equal(world_connect(), KVPULL_EPEER);
}

/* Whichever it is: the consumer pulls on by the other one. */
UNIT_TEST(producer_that_loses_one_of_its_addresses_is_pulled_from)
{
	uint32_t first;

	for (first = 0; first < 2; first++) {
		(void)addresses_are_attached(state);
		if (first) {
			fake_verbs_unaddress(0);
		} else {
			fake_verbs_knobs.second_address = 0;
			fake_verbs_async(0, IBV_EVENT_GID_CHANGE);
		}
		side_step(&world.p);
		world_run(WORLD_MS_FLUSHED);
		assert_int_equal(world.d.downs, 0);
		world_reads(5);
		assert_int_equal(world_down(state), 0);
	}
}

static void lines_begin(void)
{
	lines_forget();
	side_count_lines(&world.p);
	side_count_lines(&world.d);
}

static uint16_t port_of(const struct world_side *side)
{
	const char *text = side->route->ops->address(side->route);

	return htons((uint16_t)strtoul(strrchr(text, ':') + 1, NULL, 10));
}

/*
 * The side of this device is without its address while somebody takes its port.
 * Its memory is registered once, and there is no flood of log.
 */
static void port_is_taken(const struct world_side *side, uint32_t device)
{
	const uint32_t all = fake_verbs_registrations(); /* of both sides */
	uint32_t before;

	fake_verbs_unaddress(device);
	all_end_in(3000);
	fake_verbs_knobs.port_taken = port_of(side);
	fake_verbs_return(device, 0);
	lines_begin();
	before = fake_verbs_registrations();
	world_run(60000);
	assert_in_range(fake_verbs_registrations() - before, 1, all - 1);
	assert_in_range(lines.bad_count, 1, 4);
}

/*
 * A consumer reads by its device, and nobody calls it: its own port does not
 * matter.
 */
UNIT_TEST_DOWN(consumer_whose_port_was_taken_meanwhile_pulls_on)
{
	two_machines_are_attached();
	port_is_taken(&world.d, 1);
	pulls();
}

UNIT_TEST_DOWN(producer_whose_port_was_taken_meanwhile_listens)
{
	two_machines_are_attached();
	port_is_taken(&world.p, 0);
	assert_true(port_of(&world.p) != fake_verbs_knobs.port_taken);
	pulls();
}

/* Then no other will do, until it is free. */
UNIT_TEST_DOWN(port_that_was_asked_for_is_waited_for)
{
	two_machines_attached_at(7471);
	port_is_taken(&world.p, 0);
	assert_int_equal(port_of(&world.p), fake_verbs_knobs.port_taken);
	fake_verbs_knobs.port_taken = 0;
	world_run(BACK_MS);
	pulls();
}

TEST(device_that_takes_less_is_said_once)
{
	fake_verbs_remove_device();
	all_end_in(3000);
	fake_verbs_knobs.parts_max = 1;
	fake_verbs_return(0, 0);
	lines_begin();
	world_run(60000);
	/* Each side logs a line. */
	assert_int_equal(lines.bad_count, 2);
}

/*
 * The device's memory cannot be pinned any more: it is tried less and less
 * often.
 */
TEST(device_whose_memory_is_refused_is_no_flood_of_log)
{
	fake_verbs_remove_device();
	all_end_in(3000);
	fake_verbs_return(0, 0);
	lines_begin();
	fake_verbs_knobs.memory_error = ENOMEM;
	world_run(60000);
	assert_in_range(lines.bad_count, 2, 20);
	fake_verbs_knobs.memory_error = 0;
	world_run(16000);
	pulls();
}

/* P and D share the context, and what it says: whoever reads it first. */
static void context_is_shared(struct world_side *first)
{
	world.now_ns += WORLD_STEP_NS;
	fake_verbs_unaddress(0);
	side_poll(first);
	world_run(3000);
	fake_verbs_return(0, 5);
	world_run(BACK_MS);
}

TEST(producer_hears_of_its_address_though_another_route_heard_first)
{
	context_is_shared(&world.d);
	assert_non_null(strstr(side_address(&world.p), "10.66.0.6"));
}

TEST(consumer_hears_of_its_address_though_another_route_heard_first)
{
	context_is_shared(&world.p);
	assert_int_equal(world.d.downs, 1);
	assert_non_null(strstr(side_address(&world.d), "10.66.0.6"));
}

/* The peers try again for half a second, then they give the device up. */
TEST(device_that_goes_and_comes_is_used_at_once)
{
	uint32_t ms = 0;

	world_run(20);
	fake_verbs_remove_device();
	side_step(&world.d);
	side_poll(&world.p);
	fake_verbs_return(0, 0);
	while (!(world.d.downs && world.p.downs && !world_connect())) {
		assert_in_range(ms += 10, 0, 300);
		world_run(10);
	}
}

/* Out of descriptors or memory: that says nothing of its address. */
TEST(shortage_of_the_host_is_no_loss_of_an_address)
{
	world_run(20);
	fake_verbs_knobs.gid_error = ENOMEM;
	world_run(3000);
	assert_int_equal(world.d.downs, 0);
	assert_int_equal(world.p.downs, 0);
	fake_verbs_knobs.gid_error = 0;
}
