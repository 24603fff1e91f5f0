/* SPDX-License-Identifier: Apache-2.0 */
/* A worker as producer: who is let in beside, or in the place of, whom. */
#include "plugin/progress/progress_state.h"
#include "tests/unit/worker/peer.h"

#include <inttypes.h>

#define INSTANCE 21u

/* Names of two processes, and of a later life of the first. */
#define PROCESS (UINT64_C(5) << KVPULL_SELF_BITS)
#define LATER (PROCESS + 1)
#define ANOTHER (UINT64_C(6) << KVPULL_SELF_BITS)

/* A rank of one instance says hello; uid: 0: ours. */
static struct world_caller *hello_say(struct world *world, uint32_t index,
				      uint64_t incarnation, uint32_t uid)
{
	const struct world_hello who = {
		.instance = INSTANCE,
		.incarnation = incarnation,
		.uid = uid,
	};

	return world_hello(world, index, &who);
}

static void hello_is_let_in(struct world *world, uint32_t index,
			    uint64_t incarnation)
{
	assert_int_equal(hello_say(world, index, incarnation, 0)->state, 2);
}

static uint64_t refused_count(const struct world *world)
{
	return atomic_load_explicit(
		&kvpull_progress_counts(world->worker->progress)
			 ->consumers_refused,
		memory_order_relaxed);
}

static void process_that_calls_again(struct world *world, uint64_t again)
{
	const struct world_caller *first = hello_say(world, 0, PROCESS, 0);
	const struct world_caller *second = hello_say(world, 1, again, 0);

	assert_int_equal(first->dropped, 1);
	assert_int_equal(second->refused, 1);
	assert_int_equal(second->refusal.code, KVPULL_EAGAIN);
	/* Nothing that an operator should look at. */
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN], "");
	assert_int_equal(refused_count(world), 0);
	caller_down(world, 0, 3);
	hello_is_let_in(world, 1, again);
}

WORLD_TEST(process_that_calls_again_ends_its_first_call)
{
	process_that_calls_again(world, PROCESS);
}

/* Also one that gave us up meanwhile: we may not know yet that it went. */
WORLD_TEST(later_life_of_a_process_ends_its_first_call)
{
	process_that_calls_again(world, LATER);
}

WORLD_TEST(another_process_does_not_end_a_consumer)
{
	const struct world_caller *first = hello_say(world, 0, PROCESS, 0);
	const struct world_caller *second = hello_say(world, 1, ANOTHER, 0);

	assert_int_equal(second->refusal.code, KVPULL_EAGAIN);
	warned(world, "rank is another process's here and the same");
	assert_int_equal(refused_count(world), 1);
	assert_int_equal(first->dropped, 0);
	assert_int_equal(first->state, 2);
}

WORLD_TEST(uid_counts_on_this_machine_only)
{
	const uint32_t uid = world->config.uids[0];

	assert_int_equal(hello_say(world, 0, 5, uid + 1)->refusal.code,
			 KVPULL_EAUTH);
	/* Here there is always one; who has none is nobody. */
	assert_int_equal(hello_say(world, 1, 5, KVPULL_UID_NONE)->refusal.code,
			 KVPULL_EAUTH);
	world_far(world);
	assert_int_equal(hello_say(world, 2, 5, KVPULL_UID_NONE)->state, 2);
}

/* This caller is refused for this field; another caller is let in. */
static void refused_for(struct world *world, struct world_hello who,
			int32_t code, const char *field)
{
	const struct world_caller *caller;

	who.instance = INSTANCE;
	who.incarnation = ANOTHER;
	caller = world_hello(world, 1, &who);
	assert_int_equal(caller->refused, 1);
	assert_int_equal(caller->refusal.code, code);
	assert_string_equal(caller->refusal.field, field);
	assert_int_equal(caller->state, 0);
	hello_is_let_in(world, 2, PROCESS);
}

/* A.1: its ticket is of a worker that was here before. */
WORLD_TEST(consumer_of_another_incarnation_is_refused)
{
	const struct world_hello who = {
		.wanted = world->worker->facts.incarnation + 1
	};

	refused_for(world, who, KVPULL_EPEER, "incarnation");
}

/* Two builds from between two versions: one number, and other bytes. */
WORLD_TEST(consumer_of_another_wire_layout_is_refused)
{
	const uint64_t layout = kvpull_handshake_layout(KVPULL_WIRE_VERSION);
	const struct world_hello who = { .wire_layout = layout + 1 };
	const struct kvpull_refusal *refusal = &world->callers[1].refusal;
	char text[48];

	refused_for(world, who, KVPULL_EVERSION, "wire layout");
	(void)snprintf(text, sizeof(text), "version %u of %" PRIx64,
		       KVPULL_WIRE_VERSION, layout);
	assert_string_equal(refusal->ours, text);
	(void)snprintf(text, sizeof(text), "version %u of %" PRIx64,
		       KVPULL_WIRE_VERSION, layout + 1);
	assert_string_equal(refusal->theirs, text);
}

WORLD_TEST(consumer_of_another_model_is_refused)
{
	struct kvpull_compat compat = world->worker->facts.compat;
	const struct world_hello who = { .compat = &compat };

	compat.model[0] ^= 1;
	refused_for(world, who, KVPULL_EREJECTED, "model");
}

WORLD_TEST(ranks_of_an_instance_agree_on_their_number)
{
	struct world_hello who = { .instance = INSTANCE,
				   .incarnation = PROCESS,
				   .rank_count = 2 };
	const struct world_caller *caller;

	assert_int_equal(world_hello(world, 0, &who)->state, 2);
	who.incarnation = ANOTHER;
	who.rank = 1;
	who.rank_count = 3;
	caller = world_hello(world, 1, &who);
	assert_int_equal(caller->refusal.code, KVPULL_EREJECTED);
	assert_string_equal(caller->refusal.field, "rank_count");
	who.rank_count = 2;
	assert_int_equal(world_hello(world, 2, &who)->state, 2);
}

/* The line says who it is that was refused, as its hello and the kernel do. */
static void refused_with(struct world *world, int32_t code, const char *why)
{
	char line[256];

	assert_int_equal(hello_say(world, 0, 5, 0)->refusal.code, code);
	(void)snprintf(
		line, sizeof(line),
		"consumer refused: %s; it is consumer rank 0 pid 0 of user %u",
		why, world->config.uids[0]);
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN], line);
}

WORLD_TEST(worker_that_closes_says_so)
{
	atomic_store_explicit(&world->worker->handover.closing, 1,
			      memory_order_relaxed);
	refused_with(world, KVPULL_EPEER,
		     "state is closing here and open there (EPEER)");
	atomic_store_explicit(&world->worker->handover.closing, 0,
			      memory_order_relaxed);
}

/* The text was "admission is 0 here and 0 there". */
WORLD_TEST(refusal_for_want_of_descriptors_says_so)
{
	world->callers[0].admit_code = KVPULL_EAGAIN;
	refused_with(
		world, KVPULL_EAGAIN,
		"room for descriptors (ulimit -n) is used up here and needed there (EAGAIN)");
}

/* The route could not hand the welcome over. */
WORLD_TEST(refusal_for_want_of_a_welcome_says_why_it_did_not_come)
{
	world->callers[0].admit_code = KVPULL_ENOMEM;
	refused_with(world, KVPULL_ENOMEM,
		     "welcome is ENOMEM here and not come there (ENOMEM)");
	assert_int_equal(world->callers[0].refused, 1);
	assert_int_equal(world->worker->crowd.active_count, 0);
	world->callers[0].admit_code = 0;
	hello_is_let_in(world, 0, 5);
	assert_int_equal(world->worker->crowd.active_count, 1);
}

/* A place is used again; its next caller has no name before its hello is read. */
WORLD_TEST(refusal_does_not_name_the_caller_before)
{
	const uint32_t uid = world->config.uids[0] + 1;
	char line[256];

	world->callers[0].admit_code = KVPULL_EAGAIN;
	(void)hello_say(world, 0, 5, 0);
	(void)hello_say(world, 0, 6, uid);
	(void)snprintf(line, sizeof(line),
		       "consumer refused: uid is %u here and %u there (EAUTH); "
		       "it is of an unknown engine of user %u",
		       world->config.uids[0], uid, uid);
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN], line);
}

/* Callers that wait have places of their own: that is no right to be let in. */
WORLD_TEST(consumer_beyond_the_bound_is_refused)
{
	const struct world_caller *caller = NULL;
	uint32_t index;

	for (index = 0; index < WORLD_CALLERS; index++) {
		const struct world_hello who = {
			.instance = INSTANCE + index,
			.incarnation = (index + 1) * PROCESS,
		};

		caller = world_hello(world, index, &who);
		assert_int_equal(caller->state,
				 index < world->config.consumers_max ? 2 : 0);
	}
	assert_int_equal(caller->refusal.code, KVPULL_EFULL);
	assert_string_equal(caller->refusal.field, "consumers_max");
	/* And again when one of them has gone. */
	caller_down(world, 0, 3);
	hello_is_let_in(world, 0, ANOTHER);
}

/*
 * All ranks of an instance or none: some ranks of each of two instances would
 * keep the others out, and neither could pull.
 */
WORLD_TEST(instance_is_let_in_with_all_its_ranks_or_none)
{
	static const struct {
		uint64_t instance;
		uint32_t rank;
		uint32_t rank_count;
		uint32_t state; /* 2: it is in */
	} cases[] = { { 1, 0, 3, 2 }, { 2, 0, 2, 0 }, { 3, 0, 1, 2 },
		      { 1, 1, 3, 2 }, { 4, 0, 1, 0 }, { 1, 2, 3, 2 } };
	uint32_t caller = 0;
	uint32_t at;

	for (at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		const struct world_hello who = {
			.instance = INSTANCE + cases[at].instance,
			.incarnation = (at + 1) * PROCESS,
			.rank = cases[at].rank,
			.rank_count = cases[at].rank_count,
		};

		assert_int_equal(world_hello(world, caller, &who)->state,
				 cases[at].state);
		if (cases[at].state)
			caller++;
		else
			assert_int_equal(world->callers[caller].refusal.code,
					 KVPULL_EFULL);
		world_poll(world, 3);
	}
}

/* A host need not wait for our answer: its end may come with its word. */
WORLD_TEST(end_that_comes_with_a_bad_word_is_forgotten_once)
{
	struct world_caller *caller = &world->callers[0];

	world_word(world, 0)->data_bytes = 1;
	caller_down(world, 0, 1);
	assert_int_equal(caller->refused, 1);
	assert_int_equal(caller->forgotten, 1);
	/* And its place is another's. */
	world_poll(world, 3);
	assert_int_equal(caller->forgotten, 1);
	hello_is_let_in(world, 0, ANOTHER);
}

WORLD_TEST(word_of_a_refused_caller_is_not_heard)
{
	const uint32_t uid = world->config.uids[0];
	const struct world_caller *caller = hello_say(world, 0, 5, uid + 1);
	struct kvpull_event *event;

	event = world_event(world, KVPULL_EVENT_CALLER_MESSAGE, 0);
	event->uid = uid;
	event->data_bytes = 1;
	world_poll(world, 1);
	assert_int_equal(caller->refused, 1);
	assert_int_equal(caller->state, 0);
}

/* Each refusal is counted; the log has eight a second, so that others fit. */
WORLD_TEST(refusals_are_logged_eight_times_a_second)
{
	const uint32_t uid = world->config.uids[0];
	uint32_t said[2] = { 0 };
	uint32_t call;

	for (call = 0; call < 40; call++) {
		if (call == 20)
			world_pass(world, KVPULL_NS_PER_S);
		world->lines.of[KVPULL_LOG_WARN][0] = '\0';
		(void)hello_say(world, 0, 5, uid + 1);
		said[call / 20] += world->lines.of[KVPULL_LOG_WARN][0] != '\0';
	}
	assert_int_equal(said[0], 8);
	assert_int_equal(said[1], 8);
	assert_int_equal(refused_count(world), 40);
}
