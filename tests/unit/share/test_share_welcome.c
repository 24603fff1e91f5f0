/* SPDX-License-Identifier: Apache-2.0 */
/* Shares that a reader cannot take: who is called again, who is given up. */
#include "tests/unit/share/handle.h"

uint32_t world_blocks = HANDLE_CHUNKS;
uint64_t handle_look_ns = 10000;

static struct handle_world world;
static struct kvpull_transport_ops hooked;
static const struct kvpull_transport_ops *real;
static int attach_code;
static uint32_t attaches;

UNIT_FIXTURE(setup)
{
	false_begin(&world, "");
}

/* The owner sends this welcome, whatever becomes of it. */
static void welcomed(const struct kvpull_share_welcome *welcome)
{
	struct kvpull_share_welcome good;

	false_challenge(&world);
	false_hello(&world);
	false_welcome(&world, &good);
	false_admit(&world, welcome ? welcome : &good);
}

/* Has the reader's transport in the place of its attach(). */
static int hooked_attach(struct kvpull_transport *transport, uint32_t peer,
			 const struct kvpull_serve *remote)
{
	attaches++;
	return attach_code ? attach_code :
			     real->attach(transport, peer, remote);
}

static void hook(int code)
{
	struct kvpull_transport *route =
		handle_link(&world)->peer.route->transport;

	if (route->ops != &hooked)
		real = route->ops;
	hooked = *real;
	hooked.attach = hooked_attach;
	route->ops = &hooked;
	attach_code = code;
	attaches = 0;
}

/* A connection that was lost in between is no word of the owner's. */
UNIT_TEST_WITH(owner_that_is_lost_as_its_share_is_taken_is_called_again, setup,
	       handle_down)
{
	hook(KVPULL_EPEER);
	welcomed(NULL);
	handle_until(&world, KVPULL_PEER_WAIT);
	assert_int_equal(attaches, 1);
	assert_int_equal(handle_link(&world)->error, KVPULL_EPEER);
	assert_int_equal(handle_peer(&world, world.peer).code, KVPULL_EAGAIN);
	assert_int_equal(world.reader->counts.peers_live, 0);
	assert_int_equal(world.reader->counts.peer_failures, 1);
	hook(0);
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
	false_connect(&world);
	assert_int_equal(attaches, 1);
	assert_int_equal(world.reader->counts.peers_live, 1);
	assert_int_equal(world.reader->counts.peer_connects, 1);
	assert_int_equal(handle_link(&world)->error, 0);
}

/* And a share that cannot be mapped is not there by waiting. */
UNIT_TEST_WITH(owner_whose_share_does_not_fit_is_given_up, setup, handle_down)
{
	hook(KVPULL_EPROTO);
	welcomed(NULL);
	assert_int_equal(handle_settle(&world), KVPULL_EPROTO);
	assert_int_equal(attaches, 1);
	assert_int_equal(handle_link(&world)->peer.state, KVPULL_PEER_GONE);
	assert_int_equal(world.reader->counts.peer_failures, 1);
	assert_int_equal(world.reader->counts.peer_connects, 0);
}

/* Both sides are told the versions. */
UNIT_TEST_WITH(welcome_of_a_kind_of_later_versions_is_refused_by_version, setup,
	       handle_down)
{
	struct kvpull_transport *route = world.world.p.transport;
	struct kvpull_share_welcome welcome;
	struct kvpull_refusal refusal;
	struct kvpull_event event;
	uint8_t bytes[4096];
	size_t count;
	char text[32];

	false_challenge(&world);
	false_hello(&world);
	false_welcome(&world, &welcome);
	count = kvpull_share_put_welcome(bytes, sizeof(bytes), &welcome, NULL,
					 world.hello.nonce);
	assert_true(count > 7);
	bytes[4] = 99; /* kind, and version */
	bytes[5] = KVPULL_WIRE_VERSION + 3;
	assert_int_equal(route->ops->admit(route, world.caller, bytes, count,
					   &world.world.ring),
			 0);
	assert_int_equal(handle_settle(&world), KVPULL_EVERSION);
	assert_non_null(strstr(world.heard[1].all,
			       "wire version (by message kind) is "));
	event = false_event(&world, KVPULL_EVENT_CALLER_MESSAGE);
	assert_int_equal(kvpull_handshake_get_refusal(
				 event.data, event.data_bytes, &refusal),
			 0);
	assert_int_equal(refusal.code, KVPULL_EVERSION);
	(void)snprintf(text, sizeof(text), "%u", KVPULL_WIRE_VERSION);
	assert_string_equal(refusal.ours, text);
	(void)snprintf(text, sizeof(text), "%u", KVPULL_WIRE_VERSION + 3);
	assert_string_equal(refusal.theirs, text);
}
