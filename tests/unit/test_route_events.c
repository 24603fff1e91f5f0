/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers whose events come all in one poll of a side: a host on the network
 * need not wait for our challenge before it speaks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plugin/route/route.h"

/* A side that tells what the test says. */
struct side {
	struct kvpull_transport transport;
	struct kvpull_event events[4];
	uint32_t count;
};

static uint32_t refusals, forgets;

static int side_poll(struct kvpull_transport *transport, uint64_t now_ns,
		     struct kvpull_event *events, uint32_t capacity)
{
	struct side *side = (struct side *)(void *)transport;
	const uint32_t count = side->count;
	uint32_t at;

	(void)now_ns;
	assert_true(count <= capacity);
	for (at = 0; at < count; at++)
		events[at] = side->events[at];
	side->count = 0;
	return (int)count;
}

static void side_refuse(struct kvpull_transport *side, uint32_t caller,
			const void *refusal, size_t refusal_bytes)
{
	(void)side;
	(void)caller;
	assert_non_null(refusal);
	assert_true(refusal_bytes > 0);
	refusals++;
}

static void side_forget(struct kvpull_transport *side, uint32_t caller)
{
	(void)side;
	(void)caller;
	forgets++;
}

static int side_fd(const struct kvpull_transport *side)
{
	(void)side;
	return -1;
}

static void side_close(struct kvpull_transport *side)
{
	(void)side;
}

static const struct kvpull_transport_ops side_ops = {
	.name = "side",
	.poll = side_poll,
	.refuse = side_refuse,
	.forget = side_forget,
	.fd = side_fd,
	.close = side_close,
};

static struct kvpull_arena arena;
static struct kvpull_log silent;
static struct side near = { .transport = { &side_ops, &silent } };
static struct side far = { .transport = { &side_ops, &silent } };
static struct kvpull_transport *route;

static int up(void **state)
{
	const struct kvpull_route_params params = {
		.shm = &near.transport,
		.log = &silent,
		.peers_max = 2,
		.callers_max = 2,
	};
	struct kvpull_route *made;

	(void)state;
	kvpull_arena_init(&arena, &silent);
	assert_int_equal(kvpull_route_open(&params, &arena, &made), 0);
	assert_int_equal(kvpull_route_add(made, &far.transport), 0);
	route = kvpull_route_transport(made);
	refusals = forgets = 0;
	return 0;
}

static int down(void **state)
{
	(void)state;
	route->ops->close(route);
	kvpull_arena_fini(&arena);
	return 0;
}

static void say(struct side *side, enum kvpull_event_kind kind, uint32_t index)
{
	side->events[side->count++] =
		(struct kvpull_event){ .kind = kind, .index = index };
}

static int poll_into(struct kvpull_event *events)
{
	return route->ops->poll(route, 1, events, 8);
}

static void caller_beyond_the_bound_is_not_heard(void **state)
{
	struct kvpull_event events[8];

	(void)state;
	say(&near, KVPULL_EVENT_CALLER_UP, 0);
	say(&far, KVPULL_EVENT_CALLER_UP, 0);
	assert_int_equal(poll_into(events), 2);
	/* No place is left: this one calls, speaks and ends at once. */
	say(&far, KVPULL_EVENT_CALLER_UP, 1);
	say(&far, KVPULL_EVENT_CALLER_MESSAGE, 1);
	say(&far, KVPULL_EVENT_CALLER_DOWN, 1);
	assert_int_equal(poll_into(events), 0);
	assert_int_equal(refusals, 1);
	assert_int_equal(forgets, 1);
}

static void early_word_of_a_refused_caller_is_dropped(void **state)
{
	struct kvpull_event events[8];

	(void)state;
	say(&far, KVPULL_EVENT_CALLER_UP, 0);
	assert_int_equal(poll_into(events), 1);
	assert_int_equal(events[0].index, 0);
	route->ops->refuse(route, 0, "no", 2);
	/* It speaks on while its refusal is on its way. */
	say(&far, KVPULL_EVENT_CALLER_MESSAGE, 0);
	assert_int_equal(poll_into(events), 0);
	assert_int_equal(refusals, 1);
}

static void end_of_a_caller_that_has_no_place_is_forgotten(void **state)
{
	struct kvpull_event events[8];

	(void)state;
	say(&far, KVPULL_EVENT_CALLER_UP, 0);
	assert_int_equal(poll_into(events), 1);
	route->ops->refuse(route, 0, "no", 2);
	say(&far, KVPULL_EVENT_CALLER_DOWN, 0);
	assert_int_equal(poll_into(events), 0);
	assert_int_equal(forgets, 1);
}

static void end_that_comes_with_the_word_is_the_owners_to_forget(void **state)
{
	struct kvpull_event events[8];

	(void)state;
	say(&far, KVPULL_EVENT_CALLER_UP, 0);
	assert_int_equal(poll_into(events), 1);
	say(&far, KVPULL_EVENT_CALLER_MESSAGE, 0);
	say(&far, KVPULL_EVENT_CALLER_DOWN, 0);
	assert_int_equal(poll_into(events), 2);
	route->ops->refuse(route, events[0].index, "no", 2);
	route->ops->forget(route, events[1].index);
	assert_int_equal(forgets, 1);
	/* Its place is free. */
	say(&far, KVPULL_EVENT_CALLER_UP, 0);
	assert_int_equal(poll_into(events), 1);
	assert_int_equal(refusals, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			caller_beyond_the_bound_is_not_heard, up, down),
		cmocka_unit_test_setup_teardown(
			early_word_of_a_refused_caller_is_dropped, up, down),
		cmocka_unit_test_setup_teardown(
			end_of_a_caller_that_has_no_place_is_forgotten, up,
			down),
		cmocka_unit_test_setup_teardown(
			end_that_comes_with_the_word_is_the_owners_to_forget,
			up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
