/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads that a producer's engine puts into tickets, and who is told of them. */
#include "tests/unit/scheduler/world.h"

static uint8_t sent[KVPULL_PAYLOAD_BYTES_MAX];
static uint8_t told[KVPULL_PAYLOAD_BYTES_MAX + 1];
static struct world_ticket ticket;

/* A ticket of another half, with so many bytes of payload. */
static void ticket_make(uint32_t payload_bytes, uint64_t incarnation)
{
	struct world *world = world_of(1, incarnation);
	struct kvpull_finish finish = world_finish_of(1, &ticket);
	uint32_t i;

	finish.payload = sent;
	finish.payload_bytes = payload_bytes;
	for (i = 0; i < sizeof(sent); i++)
		sent[i] = (uint8_t)(i * 7 + incarnation);
	world_enter(world, 1, 0, 1);
	assert_int_equal(world_finish_with(world, &finish), KVPULL_FINISH_HELD);
	ticket.bytes = finish.ticket_bytes;
	world_close(world);
}

static void pull_begin(struct world *world, uint64_t key)
{
	assert_int_equal(world_want(world, key, &ticket, 1), 0);
	load(world, key);
	world_settle(world);
}

/* Read a ticket of that payload for a request, to a good end. */
static void pulled(struct world *world, uint64_t key, uint32_t payload_bytes,
		   uint64_t incarnation)
{
	ticket_make(payload_bytes, incarnation);
	pull_begin(world, key);
	end_pull(world, key, 0);
}

/* Return: as payload_get(), with all the room that a payload can need. */
static int ask(struct world *world, uint64_t key, size_t *bytes)
{
	*bytes = SIZE_MAX;
	memset(told, 0xee, sizeof(told));
	return kvpull_scheduler_payload_get(world->scheduler, key, told,
					    KVPULL_PAYLOAD_BYTES_MAX, bytes);
}

static void assert_told(struct world *world, uint64_t key, size_t wanted)
{
	size_t bytes;

	assert_int_equal(ask(world, key, &bytes), 0);
	assert_int_equal(bytes, wanted);
	assert_memory_equal(told, sent, wanted);
	assert_int_equal(told[wanted], 0xee);
}

static void assert_refused(struct world *world, uint64_t key, int code)
{
	size_t bytes;
	size_t i;

	assert_int_equal(ask(world, key, &bytes), code);
	for (i = 0; i < sizeof(told); i++)
		assert_int_equal(told[i], 0xee);
}

UNIT_TEST(payload_is_told_when_the_pull_ended_well)
{
	static const uint32_t sizes[] = { 1, 16, 1024, 1025,
					  KVPULL_PAYLOAD_BYTES_MAX };
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct world *world = world_of_consumer(1);

		pulled(world, 7, sizes[i], 5);
		assert_told(world, 7, sizes[i]);
		/* Asked again, and after the engine went on. */
		assert_int_equal(kvpull_scheduler_loaded(world->scheduler, 7),
				 0);
		assert_told(world, 7, sizes[i]);
		world_close(world);
	}
}

WORLD_TEST(ticket_without_a_payload_tells_no_bytes, world_of_consumer(1))
{
	pulled(world, 7, 0, 5);
	assert_told(world, 7, 0);
}

WORLD_TEST(payload_of_an_unread_ticket_is_not_told, world_of_consumer(1))
{
	ticket_make(32, 5);
	assert_refused(world, 7, KVPULL_ENOKEY);
	assert_int_equal(world_want(world, 7, &ticket, 1), 0);
	assert_refused(world, 7, KVPULL_ENOTICKET);
	assert_int_equal(world_match(world, 7, 0), KVPULL_MATCH_LOAD);
	assert_refused(world, 7, KVPULL_ENOTICKET);
	assert_int_equal(world_allocate(world, 7, 0, 4), 0);
	assert_refused(world, 7, KVPULL_EAGAIN);
	world_settle(world);
	end_pull(world, 7, KVPULL_EEXPIRED);
	assert_refused(world, 7, KVPULL_EEXPIRED);
	finish(world, 7, KVPULL_FINISH_STOP);
	assert_refused(world, 7, KVPULL_ENOKEY);
}

/* The first rank's word is not enough, and the last one's failure counts. */
WORLD_TEST(payload_waits_for_each_rank, world_of_consumer(2))
{
	ticket_make(32, 5);
	pull_begin(world, 7);
	pull_ended(world, 0, 7, 0);
	assert_refused(world, 7, KVPULL_EAGAIN);
	pull_ended(world, 1, 7, 0);
	assert_told(world, 7, 32);
	finish(world, 7, KVPULL_FINISH_STOP);
	ticket_make(32, 6);
	pull_begin(world, 8);
	world_pull_ended(world, 0, 8, 0);
	world_pull_ended(world, 1, 8, KVPULL_EPEER);
	world_settle(world);
	assert_refused(world, 8, KVPULL_EPEER);
}

/* Each request has the payload of the ticket that it showed itself. */
WORLD_TEST(payload_goes_with_its_ticket, world_of_consumer(1))
{
	pulled(world, 7, 32, 5);
	pulled(world, 8, 48, 6);
	assert_told(world, 8, 48);
	ticket_make(32, 5);
	assert_told(world, 7, 32);
}

WORLD_TEST(sibling_that_loaded_nothing_is_told_nothing, world_of_consumer(1))
{
	ticket_make(32, 5);
	pull_begin(world, 7);
	assert_int_equal(world_want(world, 8, &ticket, 1), 0);
	assert_int_equal(world_match(world, 8, 0), KVPULL_MATCH_WAIT);
	end_pull(world, 7, 0);
	assert_int_equal(world_match(world, 8, 63), KVPULL_MATCH_NOTHING);
	assert_refused(world, 8, KVPULL_ENOTICKET);
	assert_told(world, 7, 32);
}

WORLD_TEST(payload_from_before_a_change_is_not_told, world_of_consumer(1))
{
	pulled(world, 7, 32, 5);
	world_change(world, 0);
	assert_refused(world, 7, KVPULL_EMISMATCH);
}

/* The engine uses what it loaded: a later change is not the pull's any more. */
WORLD_TEST(payload_that_is_used_outlives_a_change, world_of_consumer(1))
{
	pulled(world, 7, 32, 5);
	assert_int_equal(kvpull_scheduler_loaded(world->scheduler, 7), 0);
	world_change(world, 0);
	assert_told(world, 7, 32);
}

WORLD_TEST(payload_that_is_too_long_for_the_buffer_says_its_size,
	   world_of_consumer(1))
{
	size_t bytes = 0;

	pulled(world, 7, 100, 5);
	memset(told, 0xee, sizeof(told));
	assert_int_equal(kvpull_scheduler_payload_get(world->scheduler, 7, told,
						      99, &bytes),
			 KVPULL_ETOOSMALL);
	assert_int_equal(bytes, 100);
	assert_int_equal(told[0], 0xee);
	assert_int_equal(kvpull_scheduler_payload_get(world->scheduler, 7, NULL,
						      0, &bytes),
			 KVPULL_ETOOSMALL);
}

static struct world *narrow_open(uint32_t requests_max)
{
	struct kvpull_config config = world_config();

	/* Chunks of texts: 2 x 1 + 1 + 1, and 1,024 of the log's MiB. */
	config.max_holds = 1;
	config.families_max = 1;
	config.tickets_max = 1;
	config.step_log_mib = 1;
	config.requests_max = requests_max;
	return world_open(&config, 1, 9);
}

/* 257 payloads of four chunks each fill 1,028; every other pull is good. */
WORLD_TEST(payload_without_room_fails_no_pull, narrow_open(300))
{
	uint32_t full = 0;
	uint64_t key;

	for (key = 1; key <= 260; key++) {
		size_t bytes;
		int code;

		pulled(world, key, KVPULL_PAYLOAD_BYTES_MAX - 1000, key + 100);
		assert_int_equal(kvpull_scheduler_loaded(world->scheduler, key),
				 0);
		code = ask(world, key, &bytes);
		assert_true(!code || code == KVPULL_EFULL);
		assert_int_equal(bytes, KVPULL_PAYLOAD_BYTES_MAX - 1000);
		full += code == KVPULL_EFULL;
		if (code)
			break;
		world->now_ns += 2 * WORLD_LEASE_NS;
	}
	assert_int_equal(full, 1);
	/* The end of a request without a payload takes no other request's. */
	finish(world, key, KVPULL_FINISH_STOP);
	ticket_make(KVPULL_PAYLOAD_BYTES_MAX - 1000, key + 99);
	assert_told(world, key - 1, KVPULL_PAYLOAD_BYTES_MAX - 1000);
}

/* A payload is given up with its request: the room does not run out. */
WORLD_TEST(payload_is_dropped_with_its_request, narrow_open(4))
{
	uint64_t key;

	for (key = 1; key <= 300; key++) {
		pulled(world, key, KVPULL_PAYLOAD_BYTES_MAX, key + 100);
		assert_told(world, key, KVPULL_PAYLOAD_BYTES_MAX);
		finish(world, key, KVPULL_FINISH_STOP);
		world->now_ns += 2 * WORLD_LEASE_NS;
	}
}
