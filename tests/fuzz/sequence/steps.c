/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of a sequence's bytes, and the invariants after it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/sequence/sequence.h"

#define SEQUENCES_A_WORLD 1000u
#define SETTLE_TURNS 24u
#define HONEST_TURNS 400u

static struct seq_world world;
static int world_is_open;
static struct seq_totals totals;

int seq_will_open(void)
{
	return !world_is_open;
}

void seq_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)fflush(stdout);
	(void)fputs("sequence: ", stderr);
	(void)vfprintf(stderr, format, arguments);
	(void)fputc('\n', stderr);
	va_end(arguments);
	abort();
}

const struct seq_totals *seq_totals(void)
{
	return &totals;
}

/* Past every deadline, one after the other. */
static void time_step(void)
{
	static const uint64_t steps_us[] = { 1,     100,   1000,   2500,
					     5000,  10000, 20000,  50000,
					     60000, 90000, 250000, 2100000 };

	world.now_ns += steps_us[seq_below(world.dice, 12)] * 1000;
}

static struct seq_engine *engine_any(void)
{
	return &world.engines[seq_below(world.dice, SEQ_ENGINES)];
}

/* Gives an id an event that a kernel may give in the id's state. */
static void cm_step(void)
{
	static const enum rdma_cm_event_type calling[] = {
		RDMA_CM_EVENT_ADDR_ERROR,    RDMA_CM_EVENT_ROUTE_ERROR,
		RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE,
		RDMA_CM_EVENT_REJECTED,      RDMA_CM_EVENT_ADDR_CHANGE,
		RDMA_CM_EVENT_ESTABLISHED,
	};
	static const enum rdma_cm_event_type connected[] = {
		RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT,
		RDMA_CM_EVENT_ADDR_CHANGE,  RDMA_CM_EVENT_DISCONNECTED,
		RDMA_CM_EVENT_UNREACHABLE,  RDMA_CM_EVENT_ESTABLISHED,
		RDMA_CM_EVENT_REJECTED,
	};
	uint8_t bytes[64] = { 0 };
	uint32_t at = seq_below(world.dice, 32);
	const uint32_t event = seq_below(world.dice, 7);
	const uint32_t byte_count =
		seq_one_in(world.dice, 4) ? seq_below(world.dice, 56) : 0;
	struct fake_id *id = NULL;
	uint32_t i;

	memset(bytes, (int)seq_below(world.dice, 256), sizeof(bytes));
	for (i = 0; i < IDS_MAX && !id; i++)
		if (fake_verbs_state.ids[i] && at-- == 0)
			id = fake_verbs_state.ids[i];
	if (!id || id->listening)
		return;
	fake_verbs_tell(&id->id,
			id->connected ? connected[event] : calling[event],
			byte_count ? bytes : NULL, (uint8_t)byte_count);
}

/* The fabric goes wrong. */
static void fabric_step(void)
{
	static const int errors[] = { ENOMEM, EAGAIN, EINVAL, EIO };
	struct seq_dice *dice = world.dice;
	struct fake_verbs_knobs *knobs = &fake_verbs_knobs;

	switch (seq_below(dice, 10)) {
	case 0:
		knobs->fail_at[seq_below(dice, FAKE_VERBS_LOOP)] =
			1 + seq_below(dice, 4);
		knobs->fail_status = 1 + seq_below(dice, IBV_WC_GENERAL_ERR);
		break;
	case 1:
		knobs->post_at = 1 + seq_below(dice, 3);
		knobs->post_times = 1 + seq_below(dice, 3);
		knobs->post_error = errors[seq_below(dice, 4)];
		break;
	case 2:
		knobs->make_at = 1 + seq_below(dice, 8);
		break;
	case 3:
		knobs->held ^= 1;
		break;
	case 4:
		knobs->budget = seq_below(dice, 6);
		break;
	case 5:
		knobs->held_devices ^= 1u << seq_below(dice, 2);
		break;
	case 6:
		knobs->answer = seq_below(dice, FAKE_VERBS_ANSWERS);
		break;
	case 7:
		knobs->mute ^= 1;
		break;
	case 8:
		knobs->eager ^= 1;
		break;
	default:
		fake_verbs_run();
	}
}

/* Rare: it may be gone for good, so the world ends soon after it. */
static void device_step(void)
{
	static const enum ibv_event_type types[] = { IBV_EVENT_PORT_ERR,
						     IBV_EVENT_QP_FATAL,
						     IBV_EVENT_CQ_ERR,
						     IBV_EVENT_DEVICE_FATAL };
	uint32_t rail;

	if (!seq_one_in(world.dice, 256))
		return;
	world.worn = 1;
	if (seq_one_in(world.dice, 2))
		fake_verbs_remove_device();
	else
		fake_verbs_async(seq_below(world.dice, world.options.rails),
				 types[seq_below(world.dice, 4)]);
	/* Half of them are back before anybody has looked for them. */
	for (rail = 0; rail < world.options.rails; rail++)
		if (seq_one_in(world.dice, 2))
			fake_verbs_return(rail, 0);
}

static void hold_step(void)
{
	struct seq_dice *dice = world.dice;

	switch (seq_below(dice, 8)) {
	case 0:
		(void)kvpull_worker_revoke_all(world.engines[SEQ_P].worker,
					       KVPULL_END_REVOKED);
		break;
	case 1:
		seq_engine_ready(&world.engines[SEQ_P]);
		break;
	case 2:
		seq_ticket_forge(&world,
				 &world.engines[1 + seq_below(dice, 2)]);
		break;
	default:
		(void)seq_engine_prefill(
			&world.engines[SEQ_P],
			1 + seq_below(dice, SEQ_REQUEST_BLOCKS_MAX),
			(uint32_t)seq_one_in(dice, 8));
	}
}

static void pull_step(void)
{
	struct seq_engine *engine =
		&world.engines[1 + seq_below(world.dice, 2)];
	const struct seq_ticket *ticket =
		&world.tickets[seq_below(world.dice, SEQ_TICKETS)];

	switch (seq_below(world.dice, 8)) {
	case 0:
		seq_engine_abort(engine, seq_below(world.dice, SEQ_REQUESTS));
		break;
	case 1:
		if (ticket->bytes)
			(void)kvpull_scheduler_request_rejected(
				engine->scheduler, ticket->text, ticket->bytes,
				world.now_ns);
		break;
	default:
		(void)seq_engine_pull(engine, ticket);
	}
}

static void engine_step(void)
{
	struct seq_engine *engine = engine_any();

	switch (seq_below(world.dice, 6)) {
	case 0:
		seq_engine_step(engine);
		break;
	case 1:
		(void)kvpull_progress_run(engine->worker->progress,
					  seq_world_now(&world));
		break;
	case 2:
		seq_engine_poll(engine);
		break;
	default:
		seq_engine_turn(engine);
	}
}

void seq_talk(struct seq_engine *engine)
{
	uint32_t left;

	for (left = 3; left; left--) {
		world.now_ns += KVPULL_NS_PER_MS;
		(void)kvpull_progress_run(engine->worker->progress,
					  seq_world_now(&world));
	}
}

static void step(void)
{
	static void (*const steps[32])(void) = {
		engine_step, engine_step, engine_step, engine_step, engine_step,
		engine_step, engine_step, time_step,   time_step,   time_step,
		cm_step,     cm_step,     fabric_step, fabric_step, hold_step,
		hold_step,   pull_step,   pull_step,   pull_step,   device_step,
	};
	const uint32_t at = seq_below(world.dice, 32);

	if (steps[at])
		steps[at]();
	else if (at < 27)
		seq_stranger_step(&world);
	else
		seq_raw_step(&world);
}

static void turns(uint32_t count, uint64_t step_ns)
{
	uint32_t who;

	for (; count; count--) {
		world.now_ns += step_ns;
		for (who = 0; who < SEQ_ENGINES; who++)
			seq_engine_turn(&world.engines[who]);
	}
}

static uint32_t open_count(void)
{
	uint32_t count = 0;
	uint32_t who;

	for (who = 0; who < SEQ_ENGINES; who++)
		count += seq_engine_open_requests(&world.engines[who]) +
			 seq_audit_reads_open(&world.engines[who].shm) +
			 seq_audit_reads_open(&world.engines[who].verbs);
	return count;
}

static void strangers_leave(void)
{
	seq_strangers_leave(&world);
	seq_raws_leave(&world);
}

/* Strangers go, the fabric is well again, and time passes: all ends. */
static void settle(void)
{
	uint32_t left;

	fake_verbs_knobs = (struct fake_verbs_knobs){ 0 };
	strangers_leave();
	seq_engine_ready(&world.engines[SEQ_P]);
	turns(4, KVPULL_NS_PER_MS);
	/* Silent peers are asked, and lost rails are tried again. */
	turns(3, 2100 * KVPULL_NS_PER_MS);
	/* Steps in which a handshake ends in time. */
	for (left = SETTLE_TURNS; left; left--) {
		strangers_leave();
		turns(1, 25 * KVPULL_NS_PER_MS);
		if (left + 8 < SETTLE_TURNS && !open_count() &&
		    fake_verbs_live() == world.quiet_objects)
			break;
	}
	for (left = 32; open_count() && left; left--) {
		strangers_leave();
		turns(1, 60 * KVPULL_NS_PER_MS);
	}
	strangers_leave();
	if (open_count())
		seq_fail("%u reads and requests never end", open_count());
}

/* Return: 0, or why it failed. */
static int pull_try(enum seq_who who)
{
	struct seq_engine *engine = &world.engines[who];
	const struct seq_ticket *ticket = seq_engine_prefill(
		&world.engines[SEQ_P],
		1 + (uint32_t)(world.number % SEQ_REQUEST_BLOCKS_MAX), 0);
	struct seq_request *request =
		ticket ? seq_engine_pull(engine, ticket) : NULL;
	uint32_t left;

	if (!request)
		seq_fail("an honest pull of engine %u cannot begin", who);
	request->mine = 1;
	engine->loaded = engine->failed = 0;
	for (left = HONEST_TURNS; left && !engine->loaded && !engine->failed &&
				  seq_engine_open_requests(engine);
	     left--)
		turns(1, 100000);
	if (engine->loaded == 1)
		return 0;
	return engine->failed ? engine->reason : 1;
}

/* The pull of somebody honest, in a world that is well. */
static void pull_check(enum seq_who who)
{
	int code = pull_try(who);

	/* Over the fabric nobody may have told it that its peer had hung up. */
	if (code == KVPULL_EPEER && who == SEQ_V)
		code = pull_try(who);
	if (code)
		seq_fail("an honest pull of engine %u fails (%d)", who, code);
}

static void pulls_check(void)
{
	pull_check(SEQ_D);
	if (seq_has_verbs(&world))
		pull_check(SEQ_V);
	turns(8, KVPULL_NS_PER_MS);
}

/*
 * All objects of the fabric and all descriptors are those of honest ones; at
 * the latest when a rail was tried again that had failed often.
 */
static void leaks_check(void)
{
	uint32_t objects = fake_verbs_live();
	uint32_t fds = seq_fds();
	uint32_t left;

	if (!world.quiet_fds) {
		world.quiet_fds = fds;
		world.quiet_objects = objects;
	}
	for (left = 8;
	     left && (objects != world.quiet_objects || fds != world.quiet_fds);
	     left--) {
		turns(1, 17 * KVPULL_NS_PER_S);
		turns(16, 5 * KVPULL_NS_PER_MS);
		strangers_leave();
		pulls_check();
		objects = fake_verbs_live();
		fds = seq_fds();
	}
	if (objects != world.quiet_objects)
		seq_fail("%u objects of the fabric, and %u before", objects,
			 world.quiet_objects);
	if (fds != world.quiet_fds)
		seq_fail("%u descriptors, and %u before", fds, world.quiet_fds);
}

static void world_begin(uint64_t seed)
{
	const struct seq_options options = {
		.seed = 1 + seed % 100000,
		.rails = 1 + (uint32_t)(seed >> 1 & 1),
		.key = (uint32_t)(seed & 1),
		.copies_late = (uint32_t)(seed >> 2 & 1),
		.grace = (uint32_t)(seed >> 3 & 1),
		.sleeps = (uint32_t)(seed >> 4 & 1),
		.foreign = (uint32_t)(seed >> 5 & 1),
	};

	seq_world_open(&world, &options);
	world_is_open = 1;
	totals.worlds++;
	pulls_check();
	turns(40, 25 * KVPULL_NS_PER_MS);
	pulls_check();
	leaks_check();
}

void seq_world_end(void)
{
	if (!world_is_open)
		return;
	world_is_open = 0;
	seq_world_close(&world);
}

void seq_run(const uint8_t *bytes, size_t byte_count, uint64_t seed,
	     uint32_t steps_max)
{
	struct seq_dice dice = { .bytes = bytes, .count = byte_count };
	static struct seq_dice none;
	uint32_t steps;

	if (!world_is_open)
		world_begin(seed);
	world.dice = &dice;
	for (steps = 0; steps < steps_max && dice.at < dice.count; steps++)
		step();
	world.dice = &none;
	settle();
	pulls_check();
	if (seq_has_verbs(&world))
		leaks_check();
	totals.pulls += world.pulls;
	totals.welcomes += world.welcomes;
	world.pulls = world.welcomes = 0;
	totals.steps += steps;
	totals.sequences++;
	if (world.worn || ++world.sequences == SEQUENCES_A_WORLD)
		seq_world_end();
}
