/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that give tickets back, on one node: the producer takes the message of
 * whoever calls, let in or not, and the consumer sees whether it did.
 */
#include "shm/gate.h"
#include "tests/unit/shm/raw.h"

uint32_t world_blocks = 64u;

#define BYTES 46u /* a message of two tickets */
#define LIMIT_FDS 400u

static uint8_t message[BYTES] = "KVGB\2";
static uint8_t taken[BYTES + 1];
static size_t taken_bytes;
static uint32_t taken_count;

static void take(void *context, const void *bytes, size_t byte_count)
{
	assert_ptr_equal(context, message);
	assert_in_range(byte_count, 1, sizeof(taken));
	memcpy(taken, bytes, byte_count);
	taken_bytes = byte_count;
	taken_count++;
}

/* P that lets in that user (NULL: its own) and so many consumers; and D. */
static void give_open(struct world *world, const uint32_t *uid,
		      uint32_t callers_max)
{
	struct kvpull_shm_params params;

	world_begin(world);
	world_memory_make(world);
	params = world_params(world, "p");
	params.users.uids = uid;
	params.users.uid_count = uid ? 1 : 0;
	params.callers_max = callers_max;
	params.given = (struct kvpull_give_sink){ take, message };
	taken_count = 0;
	world_serve_as(world, &params);
	world_open_consumer(world);
}

static void give_begin(struct world *world)
{
	give_open(world, NULL, WORLD_CALLERS_MAX);
}

/* P lets in another user alone. */
static void give_begin_other(struct world *world)
{
	static uint32_t other; /* the transport keeps its address */

	other = getuid() + 1;
	give_open(world, &other, WORLD_CALLERS_MAX);
}

static uint32_t give(struct world *world)
{
	uint32_t peer;

	assert_int_equal(world->d.transport->ops->give(world->d.transport, "p",
						       message, BYTES, &peer),
			 0);
	return peer;
}

/* D's only event of that call. */
static void heard(struct world *world, uint32_t peer, int code)
{
	assert_int_equal(world_peer_down(world, code), peer);
	assert_int_equal(world->d.queue_count, 0);
}

static void message_was_taken(void)
{
	assert_int_equal(taken_count, 1);
	assert_int_equal(taken_bytes, BYTES);
	assert_memory_equal(taken, message, BYTES);
}

UNIT_TEST_IN_WORLD(caller_with_a_place_gives_tickets_back_by_its_message,
		   give_begin)
{
	struct kvpull_event event;
	uint32_t peer;

	peer = give(world);
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	world->caller = event.index;
	/* The caller does not look at its challenge. */
	assert_int_equal(
		world->p.transport->ops->caller_send(
			world->p.transport, world->caller, "challenge", 9),
		0);
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_MESSAGE);
	assert_int_equal(event.data_bytes, BYTES);
	side_look(world, &world->d);
	assert_int_equal(world->d.queue_count, 0);
	world->p.transport->ops->refuse(world->p.transport, world->caller, NULL,
					0);
	heard(world, peer, 0);
	assert_int_equal(taken_count, 0);
}

UNIT_TEST_IN_WORLD(caller_of_another_user_gives_tickets_back_before_it_is_closed,
		   give_begin_other)
{
	uint32_t peer;

	peer = give(world);
	side_look(world, &world->p);
	message_was_taken();
	assert_int_equal(world->p.queue_count, 0);
	heard(world, peer, 0);
}

/* As many callers of this process wait as may, and have had no time yet. */
UNIT_TEST_IN_WORLD(caller_in_a_crowd_gives_tickets_back_before_it_is_closed,
		   give_begin)
{
	int fds[KVPULL_GATE_PROCESS_MAX];
	uint32_t peer;
	uint32_t at;

	for (at = 0; at < KVPULL_GATE_PROCESS_MAX; at++) {
		fds[at] = raw_connect(world, "p");
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	}
	peer = give(world);
	side_look(world, &world->p);
	message_was_taken();
	heard(world, peer, 0);
	for (at = 0; at < KVPULL_GATE_PROCESS_MAX; at++)
		(void)close(fds[at]);
}

UNIT_TEST_IN_WORLD(message_that_was_not_read_is_to_be_sent_again, give_begin)
{
	uint32_t peer;

	peer = give(world);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	side_close(&world->p);
	heard(world, peer, KVPULL_EAGAIN);
}

UNIT_TEST_IN_WORLD(producer_that_has_ended_is_given_nothing, give_begin)
{
	uint32_t peer;

	side_close(&world->p);
	assert_int_equal(world->d.transport->ops->give(world->d.transport, "p",
						       message, BYTES, &peer),
			 KVPULL_EPEER);
}

UNIT_TEST_IN_WORLD(producer_that_never_answers_ends_the_call_in_time,
		   give_begin)
{
	uint32_t peer;

	peer = give(world);
	side_look(world, &world->d);
	world->now_ns += 2 * world_params(world, "d").connect_ns;
	side_look(world, &world->d);
	heard(world, peer, KVPULL_EPEER);
}

/* Garbage of a stranger goes nowhere, also where it is long. */
UNIT_TEST(stranger_that_says_nothing_gives_nothing_back)
{
	static const uint32_t uid = 12345678;
	struct world world;
	char text[16] = "";
	int fd;

	give_open(&world, &uid, 1);
	fd = raw_connect(&world, "p");
	side_look(&world, &world.p);
	assert_int_equal(taken_count, 0);
	assert_int_equal(recv(fd, text, sizeof(text), MSG_DONTWAIT),
			 sizeof(KVPULL_ENDPOINT_USER));
	assert_string_equal(text, KVPULL_ENDPOINT_USER);
	(void)close(fd);
	world_close(&world);
}

UNIT_TEST_IN_WORLD(other_bytes_of_a_stranger_are_not_taken, give_begin_other)
{
	static const uint8_t garbage[BYTES] = "KVHS";
	int fd;

	fd = raw_connect(world, "p");
	assert_int_equal(send(fd, garbage, sizeof(garbage), 0),
			 (ssize_t)sizeof(garbage));
	side_look(world, &world->p);
	assert_int_equal(taken_count, 0);
	(void)close(fd);
	fd = raw_connect(world, "p");
	assert_int_equal(send(fd, message, 3, 0), 3);
	side_look(world, &world->p);
	assert_int_equal(taken_count, 0);
	(void)close(fd);
}
