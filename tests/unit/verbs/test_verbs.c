/* SPDX-License-Identifier: Apache-2.0 */
/* The route between machines over a fake fabric: its life, reads and notes. */
#include "tests/unit/verbs/world.h"

#include <errno.h>
#include <poll.h>

#include "verbs/frame.h"

static void read_and_check(void)
{
	world_reads(3);
	assert_int_equal(world_check_start(), 0);
	world_run(3);
	assert_int_equal(world.d.checks_done, 1);
	assert_int_equal(world.d.check_code, 0);
}

UNIT_TEST_ATTACHED(pull_moves_every_byte_and_the_entry)
{
	atomic_store_explicit(&world.p.entries[3].revoked, 5,
			      memory_order_relaxed);
	atomic_store_explicit(&world.p.entries[3].ready, 6,
			      memory_order_relaxed);
	read_and_check();
	assert_int_equal(world.checked[0].incarnation, WORLD_INCARNATION);
	assert_int_equal(world.checked[0].revoked, 5);
	assert_int_equal(world.checked[0].ready, 6);
}

/*
 * The bus may carry KV bytes in any order: a completion comes after them all.
 * An entry is looked at while it is written: never. A library that is too old
 * for the flag goes without it.
 */
UNIT_TEST(memory_is_carried_in_any_order_and_entries_are_not)
{
	const int relaxed = IBV_ACCESS_RELAXED_ORDERING;
	int is_old;

	for (is_old = 0; is_old < 2; is_old++) {
		world_init();
		fake_verbs_knobs.access_unknown = is_old ? relaxed : 0;
		(void)world_open();
		assert_int_equal(fake_verbs_memory_access(world.p.memory),
				 IBV_ACCESS_REMOTE_READ |
					 IBV_ACCESS_LOCAL_WRITE |
					 (is_old ? 0 : relaxed));
		assert_int_equal(fake_verbs_memory_access(world.p.entries),
				 IBV_ACCESS_REMOTE_READ);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST_ATTACHED(read_is_one_doorbell_and_one_completion)
{
	const struct kvpull_verbs_counts *counts = side_counts(&world.d);

	read_and_check();
	/* 64 blocks, neighbours at P, 16 local ranges a work request. */
	assert_int_equal(counts->work_requests, 4);
	assert_int_equal(counts->doorbells, 1);
	assert_int_equal(counts->completions, 1);
	assert_int_equal(counts->read_bytes, WORLD_BYTES);
}

UNIT_TEST_ATTACHED(slot_outside_the_table_is_expired)
{
	world.slots[0] = WORLD_SLOTS;
	assert_int_equal(world_check_start(), KVPULL_EEXPIRED);
}

UNIT_TEST_ATTACHED(many_guards_are_read_by_one_check)
{
	static const uint32_t slots[] = { 7, 0, 3, 7, 2 };
	uint32_t at;

	memcpy(world.slots, slots, sizeof(slots));
	world.read.slot_count = 5;
	for (at = 0; at < WORLD_SLOTS; at++)
		kvpull_revocation_write(&world.p.entries[at], 100 + at);
	read_and_check();
	for (at = 0; at < world.read.slot_count; at++) {
		assert_int_equal(world.checked[at].incarnation,
				 WORLD_INCARNATION);
		assert_int_equal(world.checked[at].revoked, 100 + slots[at]);
	}
	/* A slot that is not there ends the whole check. */
	world.slots[4] = WORLD_SLOTS;
	assert_int_equal(world_check_start(), KVPULL_EEXPIRED);
}

UNIT_TEST_ATTACHED(entry_says_revoked_until_it_was_read)
{
	fake_verbs_knobs.fail_at[FAKE_VERBS_CHECK] = 1;
	fake_verbs_knobs.fail_status = IBV_WC_RETRY_EXC_ERR;
	assert_int_equal(world_check_start(), 0);
	world_run(5);
	assert_int_equal(world.d.check_code, KVPULL_EPEER);
	world_entry_judges(KVPULL_EEXPIRED);
}

UNIT_TEST_ATTACHED(empty_read_is_done_at_once)
{
	memset(world.group_first, 0, sizeof(world.group_first));
	assert_int_equal(world_read_start(), 1);
}

UNIT_TEST_ATTACHED(notes_and_beats_reach_the_ring_in_order)
{
	uint64_t generation = 0;
	uint32_t round;

	for (round = 0; round < 200; round++) {
		while (!world_note_send(generation + 1))
			generation++;
		world_run(1);
	}
	world_run(5);
	assert_true(generation >= 200);
	assert_int_equal(world.note_count, generation);
	while (generation--)
		assert_int_equal(world.notes[generation].generation,
				 generation + 1);
	world.d.route->ops->beat(world.d.route, world.peer);
	world_run(2);
	assert_int_equal(world.beat_count, 1);
	assert_int_equal(
		world.d.route->ops->notes_open(world.d.route, world.peer), 0);
}

UNIT_TEST_ATTACHED(what_wakes_a_sleeper_is_taken_before_its_event_is_read)
{
	uint32_t reads;
	uint32_t round;

	for (round = 1; round <= 3; round++) {
		world_run(3);
		side_sleep(&world.p);
		assert_int_equal(side_would_wake(&world.p), 0);
		assert_int_equal(world_note_send(round), 0);
		fake_verbs_run();
		assert_int_equal(side_would_wake(&world.p), 1);
		reads = fake_verbs_event_reads();
		world.p.route->ops->disarm(world.p.route);
		side_poll(&world.p);
		assert_int_equal(world.note_count, round);
		/* In the next poll, and once: no read finds it empty. */
		assert_int_equal(side_would_wake(&world.p), 1);
		assert_int_equal(fake_verbs_event_reads(), reads);
		side_poll(&world.p);
		assert_int_equal(side_would_wake(&world.p), 0);
		assert_int_equal(fake_verbs_event_reads() - reads, 1);
	}
}

/* Completions before the queue was armed make no event. */
UNIT_TEST_ATTACHED(route_rings_while_an_event_is_unread)
{
	const struct kvpull_transport_ops *ops = world.p.route->ops;
	uint32_t round;

	for (round = 1; round <= 3; round++) {
		world_run(3);
		assert_int_equal(world_note_send(2 * round - 1), 0);
		fake_verbs_run();
		side_sleep(&world.p);
		assert_int_equal(world.note_count, 2 * round - 1);
		assert_int_equal(ops->rings(world.p.route), 0);
		assert_int_equal(world_note_send(2 * round), 0);
		fake_verbs_run();
		assert_int_equal(ops->rings(world.p.route), 0);
		side_poll(&world.p);
		assert_int_equal(world.note_count, 2 * round);
		assert_int_equal(ops->rings(world.p.route), 1);
		ops->disarm(world.p.route);
		side_poll(&world.p);
		assert_int_equal(ops->rings(world.p.route), 0);
	}
}

static void read_ends_in_sleep(void)
{
	world_run(3);
	world_read_held(0);
	side_sleep(&world.d);
	fake_verbs_knobs.held = 0;
	fake_verbs_run();
}

UNIT_TEST_ATTACHED(end_of_a_read_is_told_before_its_event_is_read)
{
	const uint32_t reads = fake_verbs_event_reads();

	read_ends_in_sleep();
	assert_int_equal(side_would_wake(&world.d), 1);
	world.d.route->ops->disarm(world.d.route);
	side_poll(&world.d);
	assert_int_equal(world.d.reads_done, 1);
	assert_int_equal(side_would_wake(&world.d), 1);
	side_poll(&world.d);
	assert_int_equal(side_would_wake(&world.d), 0);
	assert_true(fake_verbs_event_reads() - reads >= 1);
}

/* Each poll tells of the end of a read. */
UNIT_TEST_ATTACHED(events_are_read_however_much_there_is_to_tell)
{
	uint32_t polls = 0;

	read_ends_in_sleep();
	world.d.route->ops->disarm(world.d.route);
	while (side_would_wake(&world.d)) {
		assert_true(++polls < 8);
		fake_verbs_run();
		side_poll(&world.d);
		assert_int_equal(world.d.reads_done, polls);
		assert_int_equal(world_read_start(), 0);
	}
	assert_true(polls > 1);
}

/* Two connections: two queue pairs there with an event each. */
UNIT_TEST_ATTACHED(poll_reads_as_many_events_as_queue_pairs_are_armed)
{
	const struct kvpull_record record = { .kind = 1 };
	const uint32_t first = world.peer;
	uint32_t reads;

	world_connect_run(10);
	assert_int_equal(world.p.ups, 2);
	side_sleep(&world.p);
	assert_int_equal(
		world.d.route->ops->notify(world.d.route, first, &record), 0);
	assert_int_equal(
		world.d.route->ops->notify(world.d.route, world.peer, &record),
		0);
	fake_verbs_run();
	reads = fake_verbs_event_reads();
	world.p.route->ops->disarm(world.p.route);
	side_poll(&world.p);
	assert_int_equal(world.note_count, 2);
	side_poll(&world.p);
	assert_int_equal(side_would_wake(&world.p), 0);
	assert_int_equal(fake_verbs_event_reads() - reads, 2);
}

/* Two hellos wait: the owner reads one of them in place, after the poll. */
UNIT_TEST_UP(message_is_whole_until_the_next_poll)
{
	struct kvpull_frame frame = { .kind = KVPULL_FRAME_MESSAGE,
				      .total = 4,
				      .payload_bytes = 4 };

	world.silent = 1;
	world.refuses = 1;
	world_connect_run(5);
	side_sleep(&world.p);
	frame.payload = (const uint8_t *)"one";
	world_inject(0, &frame);
	frame.payload = (const uint8_t *)"two";
	world_inject(0, &frame);
	assert_int_equal(side_would_wake(&world.p), 1);
	world.p.route->ops->disarm(world.p.route);
	side_poll(&world.p);
	assert_int_equal(world.p.messages, 1);
	assert_string_equal(world.p.message, "one");
}

/* A producer that polls for itself hears of a note before that is answered. */
UNIT_TEST_ATTACHED(note_is_told_before_it_is_answered)
{
	const struct kvpull_verbs_counts *counts = side_counts(&world.p);
	const uint64_t before = counts->frames_sent;
	struct kvpull_event events[8];
	uint32_t tries;
	int count = 0;

	assert_int_equal(world_note_send(1), 0);
	side_poll(&world.d);
	for (tries = 0; !world.note_count && tries < 100; tries++) {
		count = world.p.route->ops->poll(world.p.route, world.now_ns,
						 events, 8);
		side_drain(&world.p);
	}
	assert_int_equal(world.note_count, 1);
	assert_int_equal(counts->frames_sent, before);
	/* The route has to be polled again, though nothing comes. */
	assert_true(count > 0);
	side_poll(&world.p);
	assert_int_equal(counts->frames_sent, before + 1);
}

UNIT_TEST_ATTACHED(ring_that_is_full_stalls_notes_and_loses_none)
{
	uint64_t generation = 0;
	uint32_t round;

	world_ring_fill();
	for (round = 0; round < 50; round++) {
		while (!world_note_send(generation + 1))
			generation++;
		world_run(1);
	}
	/* Four credits, and the one that P holds back. */
	assert_in_range(generation, 4, 6);
	/* The producer does not spin until there is room. */
	side_sleep(&world.p);
	/* Reads do not wait for P. */
	world_read_run(3);
	assert_int_equal(world.d.reads_done, 1);
	world.keeps_rings = 0;
	world_run(5);
	assert_int_equal(world.note_count, generation);
}

UNIT_TEST_ATTACHED(notes_before_the_end_are_told_before_the_end)
{
	world_ring_fill();
	assert_int_equal(world_note_send(1), 0);
	world_run(1);
	side_close(&world.d);
	world_run(300);
	assert_int_equal(world.p.downs, 0);
	world.keeps_rings = 0;
	world_run(300);
	assert_int_equal(world.note_count, 1);
	assert_int_equal(world.p.downs, 1);
}

UNIT_TEST_UP(refused_caller_hears_why_and_is_forgotten)
{
	world.refuses = 1;
	world_connect_run(20);
	assert_string_equal(world.d.message, "no");
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(world.p.downs, 0);
	world.refuses = 0;
	world_run(600);
	world_comes_up(10);
}

UNIT_TEST_UP(nothing_is_readable_before_admission)
{
	world.silent = 1;
	world_connect_run(5);
	assert_int_equal(world.p.ups, 1);
	assert_int_equal(world_read_start(), KVPULL_EPEER);
	assert_int_equal(world_check_start(), KVPULL_EPEER);
	assert_int_equal(world_note_send(1), KVPULL_EAGAIN);
	assert_int_equal(fake_verbs_access(0), 0);
	/* Nor was it ever, and be it between two calls. */
	assert_int_equal(fake_verbs_openings(), 0);
}

UNIT_TEST(nothing_but_messages_is_taken_before_admission)
{
	const struct kvpull_keys keys = { .region_count = 1,
					  .slot_count = 1,
					  .mr_shift = 30,
					  .qps = 1,
					  .entries = { 4096, 32 },
					  .entries_key = 1,
					  .regions = { { 8192, 64 } },
					  .mr_count = 1,
					  .mr_keys = { 2 } };
	const struct kvpull_record record = { .kind = KVPULL_NOTE_RELEASE };
	uint8_t payload[KVPULL_KEYS_BYTES_MAX];
	struct kvpull_frame frame = { .payload = payload };
	int is_note;

	for (is_note = 0; is_note < 2; is_note++) {
		(void)world_up(state);
		world.silent = 1;
		world_connect_run(5);
		frame.kind = is_note ? KVPULL_FRAME_NOTE : KVPULL_FRAME_KEYS;
		frame.payload_bytes = is_note ? KVPULL_FRAME_RECORD_BYTES :
						kvpull_keys_put(payload, &keys);
		frame.total = is_note ? 0 : frame.payload_bytes;
		if (is_note)
			kvpull_frame_put_record(payload, &record);
		world_inject(0, &frame);
		world_run(200);
		assert_int_equal(world.note_count, 0);
		assert_int_equal(world.p.downs, 1);
		assert_int_equal(side_counts(&world.p)->frames_bad, 1);
		assert_int_equal(world_down(state), 0);
	}
}

static void say_frame(uint32_t kind)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_RELEASE };
	uint8_t payload[32];
	struct kvpull_frame frame = { .kind = kind, .payload = payload };

	if (kind == KVPULL_FRAME_NOTE) {
		kvpull_frame_put_record(payload, &record);
		frame.payload_bytes = sizeof(payload);
	}
	world_inject(0, &frame);
}

/*
 * Two SENDs of 16 bytes once ended P. The garbage loses the caller, and
 * what it said behind it was taken as if it had been let in.
 */
UNIT_TEST(nothing_reaches_a_ring_before_admission)
{
	static const uint32_t kinds[] = { KVPULL_FRAME_BEAT,
					  KVPULL_FRAME_NOTE };
	const uint8_t garbage[16] = { 0 };
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		(void)world_up(state);
		world.silent = 1;
		world_connect_run(5);
		assert_int_equal(world.p.ups, 1);
		assert_int_equal(fake_verbs_inject(0, garbage, sizeof(garbage)),
				 1);
		say_frame(kinds[i]);
		world_run(WORLD_MS_FLUSHED);
		assert_int_equal(world.beat_count + world.note_count, 0);
		assert_int_equal(world.p.downs, 1);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST_ATTACHED(admission_opens_one_side_to_reads_alone)
{
	assert_int_equal(fake_verbs_access(0), IBV_ACCESS_REMOTE_READ);
	assert_int_equal(fake_verbs_access(1), 0);
	assert_int_equal(fake_verbs_openings(), 1);
}

UNIT_TEST_UP(caller_outside_the_networks_is_rejected)
{
	side_close(&world.p);
	world.networks = "10.99.0.0/16";
	side_begin(&world.p);
	world_connect_run(5);
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(world.p.ups, 0);
	assert_int_equal(side_counts(&world.p)->calls_refused, 1);
}

UNIT_TEST_UP(handshake_that_takes_too_long_ends)
{
	world.silent = 1;
	world_connect_run(5400);
	side_is_down(&world.d, KVPULL_EPEER);
	assert_int_equal(world.p.downs, 1);
}

UNIT_TEST_UP(address_outside_the_networks_is_no_route)
{
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	static const char *const texts[] = { "10.67.0.1:5", "nonsense",
					     "[fd00::1]:5", "10.66.0.1" };
	uint32_t peer;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(ops->reachable(world.d.route, texts[i]),
				 KVPULL_EROUTE);
		assert_int_equal(ops->connect(world.d.route, texts[i], &peer),
				 KVPULL_EROUTE);
	}
	assert_int_equal(ops->reachable(world.d.route, "10.66.0.9:5"), 0);
}

UNIT_TEST_UP(flood_of_calls_is_bounded)
{
	uint32_t peers[4];
	uint32_t i;

	world.silent = 1;
	for (i = 0; i < 4; i++)
		assert_int_equal(world.d.route->ops->connect(
					 world.d.route, side_address(&world.p),
					 &peers[i]),
				 0);
	assert_int_equal(world_connect(), KVPULL_EFULL);
	world_run(5);
	assert_int_equal(world.p.ups, 4);
	/* A fifth, from elsewhere: P has no room and says so. */
	world_consumer_again();
	world.now_ns += WORLD_STEP_NS;
	assert_int_equal(world_connect(), 0);
	side_poll(&world.d);
	side_poll(&world.d);
	world_run(300);
	assert_true(world.d.downs >= 1 || world.p.ups == 5);
}

UNIT_TEST_ATTACHED(silent_peer_is_probed)
{
	const struct kvpull_verbs_counts *counts = side_counts(&world.p);
	const uint64_t before = counts->frames_sent;

	world_run(2100);
	assert_true(counts->frames_sent > before);
	fake_verbs_knobs.fail_at[FAKE_VERBS_SEND] = 1;
	fake_verbs_knobs.fail_status = IBV_WC_RETRY_EXC_ERR;
	world_run(4200);
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(world.d.downs, 1);
}

UNIT_TEST_DOWN(hostile_frames_cost_only_their_sender)
{
	uint8_t frame[KVPULL_FRAME_BYTES] = { 0 };
	struct kvpull_frame good = { .kind = KVPULL_FRAME_BEAT };
	uint32_t kind;

	for (kind = 0; kind < 12; kind++) {
		uint32_t bytes = KVPULL_FRAME_BYTES;

		(void)world_attached(state);
		switch (kind) {
		case 0: /* zeros */
			break;
		case 1:
			bytes = 3;
			break;
		case 2: /* acknowledges what was never sent */
			good.acked = 1000;
			bytes = kvpull_frame_put(frame, &good);
			break;
		case 3: /* another version */
			bytes = kvpull_frame_put(frame, &good);
			frame[2]++;
			break;
		default: /* kinds that are none, or have no payload */
			good = (struct kvpull_frame){ .kind = kind };
			bytes = kvpull_frame_put(frame, &good);
			break;
		}
		if (kind == 4) { /* BEAT is right: make it a bad note */
			good.kind = KVPULL_FRAME_NOTE;
			bytes = kvpull_frame_put(frame, &good);
		}
		if (kind == 5) /* an ACK is right */
			bytes = 1;
		assert_int_equal(fake_verbs_inject(0, frame, bytes), 1);
		world_run(300);
		assert_int_equal(world.p.downs, 1);
		assert_int_equal(world.d.downs, 1);
		assert_true(side_counts(&world.p)->frames_bad);
		assert_int_equal(world_down(state), 0);
	}
	(void)world_up(state);
}

#define TEST(name) UNIT_TEST_ATTACHED(name)
#define TEST_UP(name) UNIT_TEST_UP(name)
