/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producers, consumers and strangers that say what they must not: it costs them
 * their own connection, and nobody else anything.
 */
#include "tests/unit/verbs/world.h"

#include "base/wrap.h"
#include "tests/fake/verbs_state.h"
#include "verbs/bundle.h"

#define STRANGER "10.66.0.77"
#define TEST(name) UNIT_TEST_ATTACHED(name)
#define TEST_UP(name) UNIT_TEST_UP(name)
#define TEST_RAILS(name) UNIT_TEST_RAILS(name)

static void stranger_calls(struct kvpull_verbs_greeting greeting)
{
	world_stranger_calls(STRANGER, greeting);
}

static uint64_t refused(void)
{
	return side_counts(&world.p)->calls_refused;
}

/* Each right behind one that is a call. */
TEST_UP(call_that_is_none_is_refused)
{
	const struct kvpull_verbs_greeting call = { .kind = KVPULL_VERBS_CALL };
	const struct kvpull_verbs_greeting full = { .kind = KVPULL_VERBS_FULL };

	stranger_calls(call);
	assert_int_equal(fake_verbs_stranger(STRANGER, "garbage", 8), 0);
	world_run(2);
	assert_int_equal(refused(), 1);
	stranger_calls(call);
	stranger_calls(full);
	world_run(2);
	assert_int_equal(refused(), 2);
	assert_int_equal(side_counts(&world.p)->frames_bad, 2);
	assert_int_equal(fake_verbs_strangers(), 2);
}

/* There is a place for it, since one was lost and cannot come back. */
TEST_RAILS(rail_without_the_token_is_refused)
{
	const struct kvpull_verbs_greeting join = { .kind = KVPULL_VERBS_JOIN,
						    .rail = 1,
						    .token = { 1, 2 } };
	uint32_t openings;

	fake_verbs_knobs.answer = FAKE_VERBS_REJECTED;
	fake_verbs_knobs.answer_device = 2;
	fake_verbs_cut_device(1);
	world_run(2 * WORLD_MS_FLUSHED);
	openings = fake_verbs_openings();
	stranger_calls(join);
	world_run(5);
	assert_int_equal(refused(), 1);
	assert_int_equal(fake_verbs_strangers(), 0);
	assert_int_equal(fake_verbs_openings(), openings);
	assert_int_equal(world.p.downs, 0);
}

/*
 * Two processes that read each other. P knows the token of what D reads by:
 * that leads into P, and nobody joins it from there.
 */
UNIT_TEST(producer_joins_none_of_its_consumers_reading)
{
	struct kvpull_verbs_greeting join = { .kind = KVPULL_VERBS_JOIN,
					      .rail = 1 };
	const struct kvpull_verbs_end *end;

	world_init();
	fake_verbs_devices(2);
	world.networks = "10.66.0.0/16";
	world.rails = 2;
	assert_int_equal(side_open(&world.d), 0);
	assert_int_equal(side_open(&world.p), 0);
	/* Strangers call the first listener. */
	assert_int_equal(side_serve(&world.d), 0);
	assert_int_equal(side_serve(&world.p), 0);
	world_fill();
	world_connect_run(20);
	end = fake_verbs_owner(1);
	memcpy(join.token, end->bundle->token, sizeof(join.token));
	fake_verbs_knobs.answer = FAKE_VERBS_REJECTED;
	fake_verbs_knobs.answer_device = 2;
	fake_verbs_cut_device(1);
	world_run(2 * WORLD_MS_FLUSHED);
	stranger_calls(join);
	world_run(5);
	assert_int_equal(side_counts(&world.d)->calls_refused, 1);
	assert_int_equal(fake_verbs_strangers(), 0);
	assert_int_equal(world_down(state), 0);
}

/* A ticket may name any address beside a good one. */
UNIT_TEST(rails_call_in_the_networks_alone)
{
	(void)world_rails_open();
	world.networks = "10.66.0.0/24";
	world_consumer_again();
	world_comes_up(3000);
	assert_int_equal(fake_verbs_calls(), 1);
	assert_int_equal(world_down(state), 0);
}

/* By P's queue pair, as if D had sent it: P ends D, and takes nothing. */
static void costs_its_sender(const struct kvpull_frame *frame)
{
	world_inject(0, frame);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.p.downs, 1);
	assert_int_equal(side_counts(&world.p)->frames_bad, 1);
	assert_int_equal(world.note_count + world.beat_count, 0);
}

TEST(acknowledgement_of_one_frame_too_many_is_refused)
{
	const struct kvpull_verbs_end *end = fake_verbs_owner(0);
	const struct kvpull_frame frame = {
		.kind = KVPULL_FRAME_BEAT,
		.acked = end->sent - KVPULL_WRAP_START + 1,
	};

	costs_its_sender(&frame);
}

static void note_costs_its_sender(uint32_t number, uint32_t kind,
				  uint32_t bytes)
{
	const struct kvpull_verbs_end *end = fake_verbs_owner(0);
	const struct kvpull_record record = { .kind = kind };
	uint8_t payload[KVPULL_FRAME_RECORD_BYTES];
	const struct kvpull_frame frame = { .kind = KVPULL_FRAME_NOTE,
					    .acked = end->acked -
						     KVPULL_WRAP_START,
					    .offset = number,
					    .payload = payload,
					    .payload_bytes = bytes };

	kvpull_frame_put_record(payload, &record);
	costs_its_sender(&frame);
}

/* The notifications before it never come, and nobody would miss them. */
TEST(notification_after_a_gap_is_refused)
{
	note_costs_its_sender(1, KVPULL_NOTE_RELEASE,
			      KVPULL_FRAME_RECORD_BYTES);
}

TEST(notification_of_no_kind_is_refused)
{
	note_costs_its_sender(0, KVPULL_NOTE_AWAY + 1,
			      KVPULL_FRAME_RECORD_BYTES);
}

TEST(notification_that_is_cut_short_is_refused)
{
	note_costs_its_sender(0, KVPULL_NOTE_RELEASE,
			      KVPULL_FRAME_RECORD_BYTES - 1);
}

/* The place still has the keys of the connection before. */
TEST(welcome_without_keys_is_refused)
{
	const struct kvpull_frame frame = {
		.kind = KVPULL_FRAME_MESSAGE,
		.total = 8,
		.payload = (const uint8_t *)"welcome",
		.payload_bytes = 8,
	};

	world_disconnect();
	world_run(WORLD_MS_FLUSHED);
	world.silent = 1;
	world_connect_run(10);
	world_inject(1, &frame);
	world_run(2);
	assert_int_equal(world.d.ups, 2);
	assert_int_equal((int32_t)world.attach_code, KVPULL_EPROTO);
	assert_int_equal(world_read_start(), KVPULL_EPEER);
}

/* The bytes of a message that begins as keys would be told as a message. */
TEST_UP(pieces_of_two_kinds_are_no_message)
{
	static const uint8_t piece[KVPULL_FRAME_PAYLOAD_BYTES];
	struct kvpull_frame frame = {
		.kind = KVPULL_FRAME_KEYS,
		.total = sizeof(piece) + 1,
		.payload = piece,
		.payload_bytes = sizeof(piece),
	};

	world.silent = 1;
	world_connect_run(5);
	world_inject(1, &frame);
	frame.kind = KVPULL_FRAME_MESSAGE;
	frame.offset = sizeof(piece);
	frame.payload_bytes = 1;
	world_inject(1, &frame);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.downs, 1);
	assert_int_equal(side_counts(&world.d)->frames_bad, 1);
	assert_int_equal(world.d.ups, 0);
}

/* To D (1) or to P (0), which wait for the challenge. */
TEST_UP(first_frame_that_is_none_ends_the_handshake)
{
	static const uint8_t bytes[KVPULL_FRAME_PAYLOAD_BYTES];
	static const struct {
		int initiator;
		uint32_t kind, total, offset, payload_bytes;
		const char *says;
	} rows[] = {
		{ 1, KVPULL_FRAME_KEYS, 8, 0, 8, "memory keys that are none" },
		{ 1, KVPULL_FRAME_MESSAGE, 8, 0, 7,
		  "pieces that are no message" },
		{ 1, KVPULL_FRAME_MESSAGE, KVPULL_MESSAGE_BYTES_MAX + 1, 0,
		  sizeof(bytes), "pieces that are no message" },
		{ 1, KVPULL_FRAME_MESSAGE, 16, 8, 8,
		  "a message that has no place" },
		{ 0, KVPULL_FRAME_KEYS, 8, 0, 8,
		  "a message that has no place" },
		{ 0, KVPULL_FRAME_NOTE, 0, 0, KVPULL_FRAME_RECORD_BYTES,
		  "a notification before admission" },
	};
	uint32_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kvpull_frame frame = {
			.kind = rows[i].kind,
			.total = rows[i].total,
			.offset = rows[i].offset,
			.payload = bytes,
			.payload_bytes = rows[i].payload_bytes,
		};
		struct world_side *hurt =
			rows[i].initiator ? &world.d : &world.p;

		world.silent = 1;
		world.d.downs = world.p.downs = world.d.ups = 0;
		world_connect_run(5);
		side_hear(hurt, KVPULL_LOG_WARN);
		world_inject(rows[i].initiator, &frame);
		world_run(1500);
		assert_true(lines_said(rows[i].says));
		assert_int_equal(hurt->downs, 1);
		assert_int_equal(hurt->down_code, KVPULL_EPROTO);
		assert_int_equal(world.d.ups, 0);
		world.silent = 0;
		world_pulls();
		world_disconnect();
		world_run(WORLD_MS_FLUSHED);
		world.d.reads_done = 0;
	}
	assert_int_equal(side_counts(&world.d)->frames_bad, 4);
	assert_int_equal(side_counts(&world.p)->frames_bad, 2);
}

/* P's own keys, which come before the welcome: once. */
TEST_UP(keys_that_come_twice_end_the_handshake)
{
	static uint8_t keys[KVPULL_KEYS_BYTES_MAX];
	struct kvpull_frame frame = { .kind = KVPULL_FRAME_KEYS,
				      .payload = keys };
	const struct kvpull_verbs_end *end;

	world.silent = 1;
	world_connect_run(5);
	end = fake_verbs_owner(0);
	end->shared->regions[0].keys.qps = 1; /* as for who is let in */
	frame.total = kvpull_keys_put(keys, &end->shared->regions[0].keys);
	frame.payload_bytes = frame.total;
	world_inject(1, &frame);
	side_poll(&world.d);
	end = fake_verbs_owner(1);
	assert_int_equal(end->keys_known, 1);
	assert_int_equal(end->state, KVPULL_VERBS_OPEN);
	side_hear(&world.d, KVPULL_LOG_WARN);
	world_inject(1, &frame);
	world_run(WORLD_MS_FLUSHED);
	assert_true(lines_said("a message that has no place"));
	side_is_down(&world.d, KVPULL_EPROTO);
}

static void frames_are_dropped(struct world_side *side)
{
	static const uint8_t bytes[8];
	const int initiator = side == &world.d;
	const struct kvpull_verbs_end *end = fake_verbs_owner(initiator);
	const struct kvpull_frame keys = { .kind = KVPULL_FRAME_KEYS,
					   .acked = end->acked -
						    KVPULL_WRAP_START,
					   .total = 8,
					   .payload = bytes,
					   .payload_bytes = 8 };
	struct kvpull_frame message = keys;
	const uint32_t messages = side->messages;

	message.kind = KVPULL_FRAME_MESSAGE;
	world_inject(initiator, &keys);
	if (initiator)
		world_inject(initiator, &message);
	world.now_ns += WORLD_STEP_NS;
	side_poll(side);
	side_poll(side);
	assert_int_equal(side->messages, messages);
	assert_int_equal(side->downs, 0);
	assert_int_equal(kvpull_verbs_counts(side->route)->frames_bad, 0);
}

/* A consumer that was let in has no handshake any more. */
TEST(pieces_after_the_welcome_are_dropped)
{
	frames_are_dropped(&world.d);
}

TEST(keys_of_a_caller_that_was_let_in_are_dropped)
{
	frames_are_dropped(&world.p);
}

/* Frames that are injected come by no rail of this device. */
static void device_hears(uint32_t device, uint32_t hears)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++) {
		struct fake_id *id = fake_verbs_state.ids[i];

		if (id && id->qp &&
		    id->id.verbs == &fake_verbs_state.contexts[device])
			id->connected = hears;
	}
}

/* The second rail has no handshake: keys alone come by it. */
UNIT_TEST(message_by_a_rail_that_joins_costs_the_rail)
{
	const struct kvpull_frame frame = {
		.kind = KVPULL_FRAME_MESSAGE,
		.total = 8,
		.payload = (const uint8_t *)"welcome",
		.payload_bytes = 8,
	};
	const struct kvpull_verbs_bundle *bundle;
	const struct kvpull_verbs_end *end;

	(void)world_rails_open();
	fake_verbs_knobs.held_devices = 2;
	world_connect_run(20);
	end = fake_verbs_owner(1);
	bundle = end->bundle;
	assert_int_equal(bundle->ends[0].state, KVPULL_VERBS_IN);
	assert_int_equal(bundle->ends[1].state, KVPULL_VERBS_OPEN);
	device_hears(0, 0);
	world_inject(1, &frame);
	device_hears(0, 1);
	side_hear(&world.d, KVPULL_LOG_WARN);
	world_run(2000);
	assert_true(lines_said("a message that has no place"));
	assert_int_equal(side_counts(&world.d)->frames_bad, 1);
	assert_int_equal(bundle->ends[0].state, KVPULL_VERBS_IN);
	assert_int_equal(world.d.downs + world.p.downs, 0);
	assert_int_equal(world.d.ups, 1);
	/* The rail joins again, as any that was lost. */
	fake_verbs_knobs.held_devices = 0;
	world_run(6000);
	assert_int_equal(bundle->ends[1].state, KVPULL_VERBS_IN);
	assert_int_equal(world.d.messages, 2);
	assert_int_equal(world_down(state), 0);
}

/* The device is lost in the poll before, its listener is not gone yet. */
TEST(call_by_a_lost_device_is_refused)
{
	const struct kvpull_verbs_greeting call = { .kind = KVPULL_VERBS_CALL };

	side_hear(&world.p, KVPULL_LOG_WARN);
	fake_verbs_async(0, IBV_EVENT_DEVICE_FATAL);
	side_step(&world.p);
	assert_true(lines_said("found broken by its driver"));
	stranger_calls(call);
	side_step(&world.p);
	assert_int_equal(refused(), 1);
	assert_int_equal(fake_verbs_strangers(), 0);
	assert_true(lines_said(
		"verbs: caller " STRANGER
		" is refused: the device that it came by is lost (1 refused so far)"));
}

/* The fake CM proposes 7, with which soft-RoCE retries for ever. */
TEST(retry_counts_of_the_cm_are_replaced)
{
	uint32_t side;

	for (side = 0; side < 2; side++) {
		uint32_t lost;
		uint32_t full;

		fake_verbs_retries((int)side, &lost, &full);
		assert_int_equal(lost, 6);
		assert_int_equal(full, 6);
	}
}

static void longer_memory(struct kvpull_serve *welcome)
{
	welcome->regions[0].bytes++;
}

static void more_entries(struct kvpull_serve *welcome)
{
	welcome->slot_count++;
}

static void more_regions(struct kvpull_serve *welcome)
{
	welcome->regions[1] = welcome->regions[0];
	welcome->region_count++;
}

/* Reads are planned by the welcome, and carried out by the keys. */
TEST_UP(keys_of_other_memory_than_the_welcomes_are_refused)
{
	static void (*const lies[])(struct kvpull_serve *) = { longer_memory,
							       more_entries,
							       more_regions };
	const struct kvpull_serve served = world.p.serve;
	uint32_t lie;

	for (lie = 0; lie < sizeof(lies) / sizeof(lies[0]); lie++) {
		lies[lie](&world.p.serve);
		world_connect_run(10);
		assert_int_equal(world.d.ups, lie + 1);
		assert_int_equal((int32_t)world.attach_code, KVPULL_EPROTO);
		assert_int_equal(world_read_start(), KVPULL_EPEER);
		world_disconnect();
		world_run(WORLD_MS_FLUSHED);
		world.p.serve = served;
	}
	world_connect_run(10);
	assert_int_equal(world.attach_code, 0);
}

TEST_UP(answer_of_another_version_is_told_as_such)
{
	const struct kvpull_verbs_greeting greeting = {
		.kind = KVPULL_VERBS_CALL, .credits = 4, .mtu = IBV_MTU_4096
	};
	uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES];
	const struct kvpull_verbs_end *end;

	fake_verbs_knobs.answer = FAKE_VERBS_SILENCE;
	world_connect_run(5);
	end = fake_verbs_owner(1);
	kvpull_verbs_greeting_put(bytes, &greeting);
	bytes[4]++;
	fake_verbs_tell(end->id, RDMA_CM_EVENT_CONNECT_RESPONSE, bytes,
			sizeof(bytes));
	world_run(WORLD_MS_FLUSHED);
	side_is_down(&world.d, KVPULL_EVERSION);
	assert_int_equal(side_counts(&world.d)->frames_bad, 1);
}

/* The device has users beside us: here it is D's, and P hears of it. */
TEST(event_of_a_queue_pair_of_others_ends_nothing)
{
	fake_verbs_async(0, IBV_EVENT_QP_FATAL);
	side_step(&world.p);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.p.downs + world.d.downs, 0);
	world_reads(3);
}

/* The called address is no rail's any more: the listener tells the device. */
TEST_RAILS(caller_is_served_by_the_device_of_its_listener)
{
	const struct kvpull_verbs_greeting call = { .kind = KVPULL_VERBS_CALL };
	const struct kvpull_verbs_end *end = NULL;
	uint32_t device;
	uint32_t i;

	for (device = 0; device < 2; device++) {
		struct ibv_context *context =
			&fake_verbs_state.contexts[device];

		/* Strangers call the first one that listens. */
		for (i = 0; i < IDS_MAX; i++)
			if (fake_verbs_state.ids[i] &&
			    !fake_verbs_state.ids[i]->id.context)
				fake_verbs_state.ids[i]->listening =
					fake_verbs_state.ids[i]->id.verbs ==
					context;
		stranger_calls(call);
		world_run(2);
		for (i = 0; i < IDS_MAX; i++)
			if (fake_verbs_state.ids[i] &&
			    fake_verbs_state.ids[i]->other &&
			    fake_verbs_state.ids[i]->other->stranger &&
			    fake_verbs_state.ids[i]->id.verbs == context)
				end = fake_verbs_state.ids[i]->id.context;
		assert_non_null(end);
		assert_int_equal(end->device, device);
	}
	assert_int_equal(fake_verbs_strangers(), 2);
}
