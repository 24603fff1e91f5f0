/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the CM and of devices that come too late, twice, or are about
 * somebody else: they change nothing.
 */
#include <errno.h>

#include "tests/fake/verbs_state.h"
#include "tests/unit/verbs/world.h"
#include "verbs/bundle.h"
#include "verbs/gate.h"
#include "verbs/run.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TEST(name) UNIT_TEST_ATTACHED(name)
#define TEST_UP(name) UNIT_TEST_UP(name)
#define TEST_RAILS(name) UNIT_TEST_RAILS(name)

static struct kvpull_verbs_end *end_of(int initiator)
{
	return fake_verbs_owner(initiator);
}

static void all_goes_on(void)
{
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(world.d.downs + world.p.downs, 0);
	assert_int_equal(side_counts(&world.d)->frames_bad, 0);
	world.d.reads_done = 0;
	world_reads(5);
}

TEST(events_of_a_step_that_is_over_change_nothing)
{
	static const enum rdma_cm_event_type types[] = {
		RDMA_CM_EVENT_ADDR_RESOLVED,    RDMA_CM_EVENT_ROUTE_RESOLVED,
		RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED,
		RDMA_CM_EVENT_TIMEWAIT_EXIT,    RDMA_CM_EVENT_ADDR_CHANGE,
	};
	const uint32_t calls = fake_verbs_calls();
	const uint32_t made = fake_verbs_made();
	size_t i;

	for (i = 0; i < COUNT(types); i++) {
		fake_verbs_tell(end_of(1)->id, types[i], NULL, 0);
		if (types[i] > RDMA_CM_EVENT_CONNECT_RESPONSE)
			fake_verbs_tell(end_of(0)->id, types[i], NULL, 0);
		all_goes_on();
	}
	assert_int_equal(fake_verbs_calls(), calls);
	assert_int_equal(fake_verbs_made(), made);
}

TEST(events_of_a_listener_change_nothing)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++) {
		struct fake_id *id = fake_verbs_state.ids[i];

		if (!id || !id->listening)
			continue;
		fake_verbs_tell(&id->id, RDMA_CM_EVENT_ADDR_CHANGE, NULL, 0);
		fake_verbs_tell(&id->id, RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
	}
	all_goes_on();
}

TEST_UP(peer_that_is_left_before_its_address_is_found_is_not_called)
{
	const uint32_t live = fake_verbs_live();

	assert_int_equal(world_connect(), 0);
	world_disconnect();
	world_run(WORLD_MS_FLUSHED);
	side_is_down(&world.d, KVPULL_EPEER);
	assert_int_equal(fake_verbs_calls(), 0);
	assert_int_equal(fake_verbs_live(), live);
	world_pulls();
}

/* The consumer's side is never established: it answers, and is open then. */
TEST_UP(peer_is_not_open_before_it_answers)
{
	fake_verbs_knobs.answer = FAKE_VERBS_SILENCE;
	world_connect_run(5);
	fake_verbs_tell(end_of(1)->id, RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
	world_run(5);
	assert_int_equal(end_of(1)->state, KVPULL_VERBS_CONNECTING);
	assert_int_equal(end_of(1)->connected, 0);
	world_run(5200);
	assert_int_equal(world.d.downs, 1);
}

TEST_UP(peer_that_accepts_tickets_given_back_is_none)
{
	const struct kvpull_verbs_greeting greeting = {
		.kind = KVPULL_VERBS_CALL, .credits = 4, .mtu = IBV_MTU_4096
	};
	uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES];

	side_hear(&world.d, KVPULL_LOG_WARN);
	fake_verbs_knobs.answer = FAKE_VERBS_SILENCE;
	assert_int_equal(world.d.route->ops->give(world.d.route,
						  side_address(&world.p),
						  "tickets", 7, &world.peer),
			 0);
	world_run(5);
	kvpull_verbs_greeting_put(bytes, &greeting);
	fake_verbs_tell(end_of(1)->id, RDMA_CM_EVENT_CONNECT_RESPONSE, bytes,
			sizeof(bytes));
	world_run(WORLD_MS_FLUSHED);
	assert_true(lines_said("lost: it accepted what gives tickets back"));
	side_is_down(&world.d, KVPULL_EPROTO);
	fake_verbs_knobs.answer = FAKE_VERBS_ACCEPT;
	world_pulls();
}

/* Routes of the kernel may lead from an address to another device. */
TEST_UP(peer_by_another_device_than_the_rails_is_refused)
{
	struct fake_id *id = NULL;
	uint32_t i;

	side_hear(&world.d, KVPULL_LOG_WARN);
	assert_int_equal(world_connect(), 0);
	for (i = 0; i < IDS_MAX; i++)
		if (fake_verbs_state.ids[i] &&
		    fake_verbs_state.ids[i]->id.context)
			id = fake_verbs_state.ids[i];
	assert_non_null(id);
	id->id.verbs = &fake_verbs_state.contexts[1];
	world_run(WORLD_MS_FLUSHED);
	assert_true(lines_said(
		" would go by another device than fake0 port 1 gid 1"));
	side_is_down(&world.d, KVPULL_EROUTE);
	assert_int_equal(fake_verbs_calls(), 0);
	world_pulls();
}

/* The first loss counts: neither its time nor its reason begins anew. */
TEST(peer_that_is_lost_again_ends_no_later)
{
	world_read_held(0);
	world_disconnect();
	world_run(60);
	assert_int_equal(world.d.reads_done, 0);
	fake_verbs_tell(end_of(1)->id, RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
	world_run(30);
	fake_verbs_tell(end_of(1)->id, RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
	world_run(20);
	world_read_ended(KVPULL_EPEER);
	assert_int_equal(world.d.downs, 1);
}

/* ---- devices ---- */

static void poll_once(struct world_side *side)
{
	world.now_ns += 2 * WORLD_STEP_NS;
	side_poll(side);
}

TEST_RAILS(link_of_another_port_is_not_the_rails)
{
	struct ibv_async_event *event = &fake_verbs_state.asyncs[1];

	fake_verbs_async(1, IBV_EVENT_PORT_ERR);
	event->element.port_num = 2;
	poll_once(&world.d);
	assert_int_equal(world_bundle()->ends[1].state, KVPULL_VERBS_IN);
	fake_verbs_async(1, IBV_EVENT_PORT_ERR);
	poll_once(&world.d);
	assert_int_not_equal(world_bundle()->ends[1].state, KVPULL_VERBS_IN);
	assert_int_equal(world_bundle()->ends[0].state, KVPULL_VERBS_IN);
}

TEST(event_of_a_completion_queue_of_others_ends_nothing)
{
	struct ibv_async_event *event = &fake_verbs_state.asyncs[0];
	struct ibv_cq others;

	fake_verbs_async(0, IBV_EVENT_CQ_ERR);
	event->element.cq = &others;
	poll_once(&world.d);
	all_goes_on();
}

TEST_RAILS(address_of_another_device_is_not_looked_at)
{
	side_hear(&world.d, KVPULL_LOG_ERROR);
	fake_verbs_state.absent |= 2;
	fake_verbs_async(0, IBV_EVENT_GID_CHANGE);
	poll_once(&world.d);
	assert_int_equal(lines.bad_count, 0);
	fake_verbs_async(1, IBV_EVENT_GID_CHANGE);
	poll_once(&world.d);
	assert_int_equal(lines.bad_count, 1);
	assert_true(lines_said("verbs: fake1 port 1 gid 1"));
	assert_true(lines_said("was left without its address"));
	fake_verbs_state.absent = 0;
}

static struct kvpull_fabric real;
static int async_error, queue_error; /* of asking for an event; 0: none */

static int get_async_event(struct ibv_context *context,
			   struct ibv_async_event *event)
{
	errno = async_error;
	return async_error ? -1 : real.ibv.get_async_event(context, event);
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **queue,
			void **context)
{
	errno = queue_error;
	return queue_error ? -1 :
			     real.ibv.get_cq_event(channel, queue, context);
}

static void events_fail(int of_device, int error)
{
	real = *fake_verbs_fabric();
	async_error = of_device ? error : 0;
	queue_error = of_device ? 0 : error;
	fake_verbs_fabric()->ibv.get_async_event = get_async_event;
	fake_verbs_fabric()->ibv.get_cq_event = get_cq_event;
}

/* The first of these polls tells the read's end, and looks at nothing. */
static void looks(void)
{
	struct kvpull_event events[8];
	uint32_t polls;
	int count;
	int i;

	for (polls = 0; polls < 3; polls++) {
		world.now_ns += 2 * WORLD_STEP_NS;
		count = world.d.route->ops->poll(world.d.route, world.now_ns,
						 events, 8);
		for (i = 0; i < count; i++)
			side_event(&world.d, &events[i]);
	}
}

/* A device that is gone would keep its owner awake for ever. */
UNIT_TEST(descriptor_that_fails_wakes_nobody_again)
{
	static const int errors[] = { EAGAIN, EINTR, EIO };
	uint32_t kind;
	size_t i;

	for (i = 0; i < COUNT(errors); i++)
		for (kind = 0; kind < 2; kind++) {
			(void)world_attached(state);
			world_read_held(0);
			side_sleep(&world.d);
			events_fail((int)kind, errors[i]);
			if (kind)
				fake_verbs_async(0, IBV_EVENT_COMM_EST);
			fake_verbs_knobs.held = 0;
			if (!kind)
				fake_verbs_run();
			assert_int_equal(side_would_wake(&world.d), 1);
			world.d.route->ops->disarm(world.d.route);
			looks();
			assert_int_equal(side_would_wake(&world.d),
					 errors[i] != EIO);
			async_error = queue_error = 0;
			if (kind || errors[i] != EIO)
				all_goes_on();
			assert_int_equal(world_down(state), 0);
		}
}

/* ---- time ---- */

TEST_RAILS(sleeper_is_woken_to_build_a_rail_again)
{
	const struct kvpull_verbs_bundle *bundle = world_bundle();
	const struct kvpull_verbs_end *end = &bundle->ends[1];
	uint32_t calls;

	fake_verbs_knobs.answer = FAKE_VERBS_REJECTED;
	fake_verbs_knobs.answer_device = 2;
	fake_verbs_cut_device(1);
	world_run(WORLD_MS_FLUSHED);
	assert_int_equal(bundle->ends[1].state, KVPULL_VERBS_FREE);
	assert_in_range(end->retry_ns, world.now_ns,
			world.now_ns + KVPULL_NS_PER_S);
	assert_int_equal(kvpull_verbs_bundle_due_ns(bundle), end->retry_ns);
	calls = fake_verbs_calls();
	world_run((uint32_t)((end->retry_ns - world.now_ns) / WORLD_STEP_NS) -
		  1);
	assert_int_equal(fake_verbs_calls(), calls);
	assert_int_equal(world.now_ns + WORLD_STEP_NS, end->retry_ns);
	assert_int_equal(bundle->ends[1].state, KVPULL_VERBS_FREE);
	world_run(1);
	assert_int_equal(fake_verbs_calls(), calls + 1);
}

/* The cancel's time is over: what is waited for is the flush. */
TEST(sleeper_waits_for_the_flush_of_a_rail_that_was_cut)
{
	const struct kvpull_verbs_end *end = end_of(1);

	world_read_held(0);
	world_read_cancel();
	while (!side_counts(&world.d)->flushes)
		world_run(1);
	assert_int_equal(end->state, KVPULL_VERBS_LOST);
	assert_int_equal(kvpull_verbs_bundle_due_ns(end->bundle),
			 end->deadline_ns);
	assert_true(end->deadline_ns > world.now_ns);
}

/* The owner may sleep next: no poll sends it. */
TEST(heartbeat_is_sent_by_the_call)
{
	uint32_t doorbells;

	world_run(5);
	doorbells = fake_verbs_doorbells();
	world.d.route->ops->beat(world.d.route, world.peer);
	assert_int_equal(fake_verbs_doorbells(), doorbells + 1);
}

TEST(heartbeat_waits_for_a_credit)
{
	uint32_t said = 0;

	world_run(5);
	world.beat_count = 0;
	fake_verbs_knobs.held = 1;
	while (!world_note_send(said + 1))
		said++;
	assert_int_equal(said, 4);
	world.d.route->ops->beat(world.d.route, world.peer);
	world_run(5);
	assert_int_equal(world.beat_count, 0);
	fake_verbs_knobs.held = 0;
	world_run(10);
	assert_int_equal(world.note_count, 4);
	assert_int_equal(world.beat_count, 1);
}

static const struct kvpull_verbs_greeting call = { .kind = KVPULL_VERBS_CALL };

/* A caller of the crowd goes, though another one waits longer. */
UNIT_TEST_UP(crowd_of_an_address_costs_no_other_address_a_place)
{
	const struct kvpull_transport_ops *ops = world.p.route->ops;
	uint32_t i;

	world_stranger_calls("10.66.0.78", call);
	world_run(5);
	for (i = 0; i < KVPULL_VERBS_WAITING_ADDRESS_MAX; i++)
		world_stranger_calls("10.66.0.77", call);
	world_run(60);
	assert_int_equal(world.p.ups, KVPULL_VERBS_WAITING_ADDRESS_MAX + 1);
	world_stranger_calls("10.66.0.77", call);
	world_run(5);
	assert_int_equal(world.p.downs, 1);
	/* Places are given in the order of calls. */
	assert_int_equal(ops->caller_send(world.p.route, 0, "still", 6), 0);
	assert_int_equal(ops->caller_send(world.p.route, 1, "still", 6),
			 KVPULL_EPEER);
	assert_int_equal(ops->caller_send(world.p.route, 2, "still", 6), 0);
	assert_int_equal(fake_verbs_strangers(),
			 KVPULL_VERBS_WAITING_ADDRESS_MAX + 1);
}
