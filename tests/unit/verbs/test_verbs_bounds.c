/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much is in flight at once, how long things may take, and when a sleeper
 * is to look at them.
 */
#include "tests/unit/verbs/world.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs/listen.h"
#include "verbs/run.h"
#include "verbs/setup.h"

#define TEST(name) UNIT_TEST_ATTACHED(name)
#define TEST_UP(name) UNIT_TEST_UP(name)

static uint64_t looked_ns;

/*
 * In the place of libc's, for the library that is linked to this program: each
 * look takes a millisecond, so that close() has as many on any machine.
 */
int clock_gettime(clockid_t which, struct timespec *now)
{
	if (!looked_ns && !syscall(SYS_clock_gettime, which, now))
		looked_ns = (uint64_t)now->tv_sec * KVPULL_NS_PER_S;
	looked_ns += KVPULL_NS_PER_MS;
	*now = kvpull_clock_timespec(looked_ns);
	return 0;
}

static uint32_t looks;

/* Likewise. */
int epoll_wait(int fd, struct epoll_event *events, int event_max, int timeout)
{
	looks++;
	return (int)syscall(SYS_epoll_pwait, fd, events, event_max, timeout,
			    NULL, 8);
}

static const struct kvpull_verbs_counts *counts(void)
{
	return side_counts(&world.d);
}

/* D with what the world says now; nothing is a neighbour of anything. */
static void attached_again(void)
{
	world_consumer_again();
	world_read_make(0);
	world_scatter();
	world_comes_up(10);
}

/* In four batches. */
TEST_UP(window_is_what_may_be_in_flight)
{
	world.window_bytes = WORLD_BYTES / 4;
	attached_again();
	world_read_held(3);
	assert_int_equal(counts()->read_bytes, WORLD_BYTES / 4);
	assert_int_equal(counts()->doorbells, 4);
	fake_verbs_knobs.held = 0;
	world_read_ends_well(20);
}

/* Guards, too; what is beyond it in the send queue is for frames. */
TEST_UP(depth_is_how_many_reads_are_in_flight)
{
	world.depth = 6;
	world.batch = 4;
	attached_again();
	world_read_held(3);
	assert_int_equal(counts()->work_requests, 6);
	fake_verbs_knobs.held = 0;
	world_read_ends_well(20);
	world.read.slot_count = WORLD_SLOTS;
	fake_verbs_knobs.held = 1;
	assert_int_equal(world_check_start(), 0);
	world_run(3);
	assert_int_equal(
		((struct kvpull_verbs_end *)fake_verbs_owner(1))->requests_open,
		6);
	fake_verbs_knobs.held = 0;
	world_run(5);
	assert_int_equal(world.d.checks_done, 1);
	assert_int_equal(world.d.check_code, 0);
}

/* Eight of 20 work requests are for frames. */
TEST_UP(depth_is_what_the_device_has_beside_frames)
{
	fake_verbs_knobs.queue_max = 20;
	attached_again();
	world_read_held(3);
	assert_int_equal(counts()->work_requests, 12);
	fake_verbs_knobs.held = 0;
	world_read_ends_well(20);
}

/* Whichever side has fewer: P here, which posts twice as many receives. */
TEST_UP(credits_are_the_smaller_of_both_sides)
{
	uint64_t said = 0;

	world.credits = 16;
	attached_again();
	while (!world_note_send(said + 1))
		said++;
	assert_int_equal(said, 4);
	world_run(5);
	assert_int_equal(world.note_count, 4);
	assert_int_equal(world.d.downs, 0);
}

TEST_UP(message_fits_and_comes_after_the_one_before)
{
	static const uint8_t message[KVPULL_MESSAGE_BYTES_MAX + 1];
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	struct kvpull_transport *route = world.d.route;

	world.silent = 1;
	world_connect_run(5);
	assert_int_equal(ops->peer_send(route, world.peer, message, 0),
			 KVPULL_EPEER);
	assert_int_equal(
		ops->peer_send(route, world.peer, message, sizeof(message)),
		KVPULL_EPEER);
	assert_int_equal(
		ops->peer_send(route, world.peer, message, sizeof(message) - 1),
		0);
	assert_int_equal(ops->peer_send(route, world.peer, message, 1),
			 KVPULL_EAGAIN);
}

/* Two reads of all, one behind the other, of four work requests each 50 ms. */
static void crawl(uint32_t first_cancelled)
{
	struct kvpull_read second = world.read;
	uint32_t round;

	second.index = 1;
	world_read_held(0);
	assert_int_equal(world_start(&second), 0);
	if (first_cancelled)
		world_read_cancel();
	world_cancel(&second);
	for (round = 0; round < 33; round++) {
		fake_verbs_knobs.held = 0;
		fake_verbs_knobs.budget = 4;
		world_run(50);
	}
	assert_int_equal(world.d.reads_done, 2);
}

/*
 * Reads of others go on before the cancelled one, which is not waited for
 * without a bound.
 */
TEST_UP(cancelled_read_behind_others_is_cut_at_last)
{
	world.batch = 4;
	attached_again();
	crawl(0);
	assert_int_equal(counts()->flushes, 1);
	assert_int_equal(world.d.downs, 1);
}

/* The wire needs 800 ms for each of them, and each has a second. */
TEST_UP(cancelled_read_behind_a_cancelled_one_has_its_own_time)
{
	world.batch = 4;
	attached_again();
	crawl(1);
	assert_int_equal(counts()->flushes, 0);
	assert_int_equal(world.d.downs, 0);
}

/* The only connection of a side is due in at most so many ms. */
static void is_due_in(int initiator, uint32_t ms)
{
	const struct kvpull_verbs_end *end = fake_verbs_owner(initiator);

	assert_in_range(kvpull_verbs_bundle_due_ns(end->bundle), world.now_ns,
			world.now_ns + ms * KVPULL_NS_PER_MS);
}

/*
 * The caller never takes P's last message: its place becomes free all the same.
 */
TEST_UP(refused_caller_that_is_stuck_goes)
{
	world.refuses = 1;
	assert_int_equal(world_connect(), 0);
	while (!world.p.messages)
		world_run(1);
	fake_verbs_knobs.held = 1;
	world_run(100);
	assert_non_null(fake_verbs_owner(0));
	is_due_in(0, 500);
	world_run(900);
	assert_null(fake_verbs_owner(0));
	assert_int_equal(world.p.downs, 0);
}

/* D's call gets no answer; and then P, which was called, gets no message. */
TEST_UP(sleeper_wakes_to_end_a_handshake)
{
	fake_verbs_knobs.answer = FAKE_VERBS_SILENCE;
	world_connect_run(5);
	is_due_in(1, 5000);
	world_run(6000);
	assert_int_equal(world.d.downs, 1);
	fake_verbs_knobs.answer = FAKE_VERBS_ACCEPT;
	world.silent = 1;
	world_connect_run(5);
	is_due_in(0, 5000);
	is_due_in(1, 5000);
}

TEST(sleeper_wakes_to_cut_a_cancelled_read)
{
	world_read_held(0);
	world_read_cancel();
	is_due_in(1, 100);
}

TEST(sleeper_wakes_when_a_lost_rail_had_its_time)
{
	world_read_held(0);
	world_disconnect();
	side_poll(&world.d);
	is_due_in(1, 100);
}

TEST(sleeper_wakes_to_try_a_full_ring_again)
{
	world_ring_fill();
	assert_int_equal(world_note_send(1), 0);
	world_run(3);
	is_due_in(0, 1);
}

/* ---- the address that tickets carry ---- */

static struct rdma_cm_id listeners[KVPULL_VERBS_RAILS_MAX];
static uint32_t listener_count;

static int listener_make(struct rdma_event_channel *channel,
			 struct rdma_cm_id **id, void *context,
			 enum rdma_port_space space)
{
	(void)channel;
	(void)context;
	(void)space;
	*id = &listeners[listener_count++];
	return 0;
}

static int listener_bind(struct rdma_cm_id *id, struct sockaddr *address)
{
	(void)id;
	(void)address;
	return 0;
}

static int listener_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id;
	(void)backlog;
	return 0;
}

static uint16_t listener_port(struct rdma_cm_id *id)
{
	(void)id;
	return UINT16_MAX;
}

/* Eight rails of the longest addresses: a ticket has room for five of them. */
UNIT_TEST(rails_that_a_ticket_has_no_room_for_are_left_out)
{
	static const struct kvpull_log log = { 0 };
	static const struct kvpull_fabric fabric = {
		.cm = { .create_id = listener_make,
			.bind_addr = listener_bind,
			.listen = listener_listen,
			.get_src_port = listener_port },
	};
	static struct kvpull_verbs_shared shared = { .log = &log,
						     .fabric = &fabric,
						     .rail_count = 8 };
	static struct kvpull_verbs_connect connect = { .shared = &shared };
	struct kvpull_verbs_addresses addresses;
	uint32_t i;

	(void)state;
	for (i = 0; i < 8; i++)
		assert_int_equal(
			kvpull_verbs_address_parse_ip(
				"fd00:1111:2222:3333:4444:5555:6666:7777",
				&shared.devices[i].address),
			0);
	assert_int_equal(kvpull_verbs_connect_listen(&connect), 0);
	assert_int_equal(listener_count, 8);
	assert_int_equal(
		kvpull_verbs_addresses_parse(connect.address, &addresses), 0);
	assert_int_equal(addresses.count, 5);
	assert_int_equal(connect.address_is_new, 0);
}

/* A look is a system call; each poll looks at the completion queues alone. */
TEST(busy_owner_looks_once_in_many_polls)
{
	uint32_t at;

	(void)state;
	world_run(10);
	world.d.route->ops->disarm(world.d.route);
	side_poll(&world.d);
	looks = 0;
	for (at = 0; at < 8; at++)
		side_poll(&world.d);
	assert_in_range(looks, 0, 1);
}

/* Both sides open with what the world says now. */
static void both_connect(void)
{
	assert_int_equal(world_open(), 0);
	world_comes_up(10);
}

/* A device answers more READs at once than it sends: each side has its bound. */
UNIT_TEST_DOWN(device_sends_as_many_reads_at_once_as_it_may)
{
	uint32_t sent;
	uint32_t answered;

	world_init();
	fake_verbs_knobs.own_reads_max = 4;
	both_connect();
	fake_verbs_reads(1, &sent, &answered);
	assert_int_equal(sent, 4);
	assert_int_equal(answered, 0);
	fake_verbs_reads(0, &sent, &answered);
	assert_int_equal(sent, 0);
	assert_int_equal(answered, 16);
}

/* Each interrupts a processor of its own. */
TEST_UP(callers_have_unlike_completion_vectors)
{
	const struct kvpull_verbs_greeting call = { .kind = KVPULL_VERBS_CALL };
	uint32_t i;

	for (i = 0; i < FAKE_VERBS_VECTORS; i++)
		world_stranger_calls("10.66.0.77", call);
	world_run(2);
	assert_int_equal(fake_verbs_vectors(), (1u << FAKE_VERBS_VECTORS) - 1);
}

UNIT_TEST_DOWN(ranks_of_a_node_have_unlike_completion_vectors)
{
	world_init();
	world.local_rank = FAKE_VERBS_VECTORS + 2;
	both_connect();
	assert_int_equal(fake_verbs_vectors(), 1u << 2);
}

/* Eight rails fill the table: their regions lie behind it in the struct. */
UNIT_TEST(networks_of_all_rails_touch_no_memory_behind_their_devices)
{
	static struct kvpull_verbs_shared shared = {
		.log = &world.d.log,
		.rail_count = KVPULL_VERBS_RAILS_MAX,
	};
	const uint8_t *bytes = (const uint8_t *)shared.regions;
	size_t at;

	memset(shared.regions, 0xa5, sizeof(shared.regions));
	assert_int_equal(kvpull_verbs_setup_networks(&shared, NULL), 0);
	for (at = 0; at < sizeof(shared.regions); at++)
		assert_int_equal(bytes[at], 0xa5);
	assert_int_equal(shared.networks.count, 0);
}
