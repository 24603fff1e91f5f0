/* SPDX-License-Identifier: Apache-2.0 */
/* A worker beside one of a newer version, whose words it cannot read whole. */
#include "tests/lib/newer.h"
#include "tests/unit/worker/peer.h"

static void says_which_field(const struct kvpull_refusal *refusal)
{
	assert_int_equal(refusal->code, KVPULL_EVERSION);
	assert_string_equal(refusal->field,
			    "wire version (by " NEWER_FIELD ")");
	assert_string_equal(refusal->ours, "1");
	assert_string_equal(refusal->theirs, "9");
}

WORLD_TEST(newer_producer_is_told_which_field_of_its_welcome_is_not_known)
{
	const struct kvpull_sealed_kind kind = { KVPULL_MESSAGE_WELCOME,
						 &kvpull_welcome_table };
	struct kvpull_seal seal = { NULL, NULL, "kvpull.welcome.1" };
	struct kvpull_welcome welcome;
	struct kvpull_event *event;
	uint32_t peer;

	claim_pull(world, 9, 101, 1, 0);
	peer = greeted(world, "1-0", 0, 1, &welcome);
	event = world_event(world, KVPULL_EVENT_PEER_MESSAGE, peer);
	seal.nonce = world->peers[peer].hello.nonce;
	event->data_bytes = newer_put(world->data[world->queue_count - 1], 8192,
				      &kind, &seal, &welcome);
	assert_int_not_equal(event->data_bytes, 0);
	world_poll(world, 1);
	assert_false(world->peers[peer].attached);
	says_which_field(&world->peers[peer].refusal);
	world_down(world, peer);
	failed(world, 9, KVPULL_EVERSION);
}

static struct kvpull_hello hello_of(const struct world *world)
{
	return (struct kvpull_hello){
		.compat = world->worker->facts.compat,
		.instance = 1,
		.incarnation = 2,
		.wanted = world->worker->facts.incarnation,
		.rank_count = 1,
		.engine_id = "consumer",
	};
}

WORLD_TEST(newer_consumer_is_told_which_field_of_its_hello_is_not_known)
{
	const struct kvpull_sealed_kind kind = { KVPULL_MESSAGE_HELLO,
						 &kvpull_hello_table };
	struct kvpull_seal seal = { NULL, NULL, "kvpull.hello.v01" };
	struct world_caller *caller = &world->callers[0];
	const struct world_hello older = { .instance = 1, .incarnation = 2 };
	const struct kvpull_hello hello = hello_of(world);
	struct kvpull_event *event = world_word(world, 0);

	seal.nonce = caller->nonce;
	event->data_bytes = newer_put(world->data[world->queue_count - 1], 8192,
				      &kind, &seal, &hello);
	assert_int_not_equal(event->data_bytes, 0);
	world_poll(world, 1);
	assert_int_equal(caller->refused, 1);
	says_which_field(&caller->refusal);
	/* The refused consumer has taken no place. */
	caller_down(world, 0, 1);
	assert_int_equal(world_hello(world, 1, &older)->state, 2);
}

/* A newer version's layout is not ours to judge: required fields would tell. */
WORLD_TEST(newer_consumer_that_says_nothing_unknown_is_let_in)
{
	struct world_caller *caller = &world->callers[0];
	struct kvpull_hello hello = hello_of(world);
	struct kvpull_event *event = world_word(world, 0);

	hello.sealed.version = KVPULL_WIRE_VERSION + 1;
	hello.wire_layout = kvpull_handshake_layout(KVPULL_WIRE_VERSION) + 1;
	event->data_bytes =
		kvpull_handshake_put_hello(world->data[world->queue_count - 1],
					   8192, &hello, NULL, caller->nonce);
	world_poll(world, 1);
	assert_int_equal(caller->refused, 0);
	assert_int_equal(caller->state, 2);
}
