/* SPDX-License-Identifier: Apache-2.0 */
/* An owner whose callers say nothing, too much, or what is not so. */
#include "tests/unit/share/handle.h"

uint32_t world_blocks = HANDLE_CHUNKS;
uint64_t handle_look_ns = 10000;

static struct handle_world world;
static char name[KVPULL_ADDRESS_BYTES_MAX]; /* the owner's */
static uint8_t nonce[KVPULL_NONCE_BYTES];   /* that it asked with last */
static uint8_t bytes[8192];

static void begin(const char *more)
{
	struct kvpull_shm_params params;
	char text[HANDLE_ADDRESS_BYTES];

	handle_begin(&world, more);
	handle_owner(&world);
	(void)handle_address(&world, text);
	assert_int_equal(kvpull_ticket_address(text, "shm", name), 0);
	params = world_params(&world.world, "caller");
	side_open(&world.world.d, &params);
}

UNIT_FIXTURE(setup)
{
	begin("");
}

UNIT_FIXTURE(setup_hasty)
{
	begin(",\"connect_ms\":10");
}

UNIT_FIXTURE(setup_for_one)
{
	begin(",\"consumers_max\":1");
}

static const uint8_t *key; /* NULL: none; the caller's, not the owner's */

static void key_path(char path[96])
{
	(void)snprintf(path, 96, "%s/key", world.world.folder);
}

/* Both have a key: the one in the folder. */
UNIT_FIXTURE(setup_keyed)
{
	struct kvpull_shm_params params;
	char more[128];
	char path[96];
	char text[HANDLE_ADDRESS_BYTES];
	int fd;

	handle_begin(&world, "");
	key_path(path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "01234567890123456789012345678901", 32), 32);
	(void)close(fd);
	(void)snprintf(more, sizeof(more), ",\"key_file\":\"%s\"}", path);
	(void)snprintf(world.config + strlen(world.config) - 1,
		       sizeof(world.config) - strlen(world.config), "%s", more);
	handle_owner(&world);
	(void)handle_address(&world, text);
	assert_int_equal(kvpull_ticket_address(text, "shm", name), 0);
	params = world_params(&world.world, "caller");
	side_open(&world.world.d, &params);
}

UNIT_FIXTURE(teardown_keyed)
{
	char path[96];

	key = NULL;
	key_path(path);
	(void)unlink(path);
	handle_end(&world);
}

static struct kvpull_event next_event(enum kvpull_event_kind kind)
{
	const uint64_t until = kvpull_clock_ns() + HANDLE_WAIT_NS;
	struct kvpull_transport *route = world.world.d.transport;
	struct kvpull_event event = { .kind = KVPULL_EVENT_NONE };

	while (event.kind == KVPULL_EVENT_NONE) {
		assert_true(kvpull_clock_ns() < until);
		(void)world.ops->poll(world.owner, NULL, 0, 24);
		if (!route->ops->poll(route, kvpull_clock_ns(), &event, 1))
			event.kind = KVPULL_EVENT_NONE;
	}
	assert_int_equal(event.kind, kind);
	return event;
}

/* Adds a caller, which has got its challenge. */
static uint32_t call(void)
{
	struct kvpull_transport *route = world.world.d.transport;
	struct kvpull_event event;
	uint32_t peer;

	assert_int_equal(route->ops->connect(route, name, &peer), 0);
	event = next_event(KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.index, peer);
	assert_int_equal(kvpull_handshake_get_challenge(
				 event.data, event.data_bytes, nonce),
			 0);
	return peer;
}

/* Return: bytes of a good hello. */
static size_t hello_make(void)
{
	struct kvpull_reader_hello hello = { .incarnation = 7,
					     .engine_id = "false reader",
					     .pid = 1 };

	hello.naming = world.owner->naming;
	return kvpull_share_put_hello(bytes, sizeof(bytes), &hello, key, nonce);
}

static void say(uint32_t peer, const void *message, size_t count)
{
	struct kvpull_transport *route = world.world.d.transport;

	assert_int_equal(route->ops->peer_send(route, peer, message, count), 0);
}

static void hang_up(uint32_t peer)
{
	struct kvpull_transport *route = world.world.d.transport;

	route->ops->disconnect(route, peer);
	(void)next_event(KVPULL_EVENT_PEER_DOWN);
}

/* The code of the refusal that comes. */
static int32_t refused_with(void)
{
	const struct kvpull_event event = next_event(KVPULL_EVENT_PEER_MESSAGE);
	struct kvpull_refusal refusal;

	assert_int_equal(kvpull_handshake_get_refusal(
				 event.data, event.data_bytes, &refusal),
			 0);
	(void)next_event(KVPULL_EVENT_PEER_DOWN);
	return refusal.code;
}

static void let_in(uint32_t peer)
{
	struct kvpull_event event;

	say(peer, bytes, hello_make());
	event = next_event(KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(kvpull_handshake_kind(event.data, event.data_bytes),
			 KVPULL_MESSAGE_SHARE);
}

static void owner_turns(uint32_t count)
{
	while (count--)
		(void)world.ops->poll(world.owner, NULL, 0, 24);
}

/* An honest reader is served all the same. */
static void newcomer_is_served(void)
{
	struct kvpull_reader_place places[HANDLE_CHUNKS];
	struct kvpull_reader_record record;

	(void)handle_fill(&world, 0, 1);
	handle_connect(&world);
	assert_int_equal(handle_probed(&world, HANDLE_CHUNKS, places, &record),
			 1);
}

UNIT_TEST_WITH(garbage_for_a_hello_is_refused_and_leaves_nothing, setup,
	       handle_down)
{
	uint32_t fds;
	uint32_t turn;
	size_t count;

	hang_up(call()); /* the folder is open from here on */
	owner_turns(50);
	fds = fds_open();
	for (turn = 0; turn < 40; turn++) {
		const uint32_t peer = call();

		count = hello_make();
		if (turn % 4 == 0)
			say(peer, "garbage", 7);
		else if (turn % 4 == 1)
			bytes[turn * 7 % count] ^= 1;
		else if (turn % 4 == 2)
			count--;
		else /* a challenge, and a share, are nobody's hello */
			count = kvpull_handshake_put_challenge(
				bytes, sizeof(bytes), nonce);
		if (turn % 4)
			say(peer, bytes, count);
		assert_true(refused_with() < 0);
		assert_int_equal(world.owner->callers.in_count, 0);
	}
	assert_int_equal(fds_open(), fds);
	newcomer_is_served();
}

UNIT_TEST_WITH(a_hello_for_another_challenge_is_refused, setup, handle_down)
{
	const uint32_t peer = call();

	nonce[0] ^= 1;
	say(peer, bytes, hello_make());
	assert_int_equal(refused_with(), KVPULL_EPROTO);
	assert_int_equal(world.owner->callers.in_count, 0);
}

/* Or garbage for it: a reader that is in has nothing to say. */
UNIT_TEST_WITH(who_says_hello_again_is_let_go, setup, handle_down)
{
	uint32_t turn;

	for (turn = 0; turn < 2; turn++) {
		const uint32_t peer = call();
		const size_t count = hello_make();

		let_in(peer);
		assert_int_equal(world.owner->callers.in_count, 1);
		(void)hello_make();
		say(peer, bytes, turn ? 7 : count);
		/* By the owner, and not by our own patience. */
		owner_turns(200);
		assert_int_equal(world.owner->callers.in_count, 0);
		(void)next_event(KVPULL_EVENT_PEER_DOWN);
	}
	assert_non_null(
		strstr(world.heard[0].all, " is closed: after its welcome"));
	newcomer_is_served();
}

UNIT_TEST_WITH(a_caller_of_another_user_is_let_in_nowhere, setup, handle_down)
{
	const uint32_t peer = call();
	struct kvpull_event event = { .kind = KVPULL_EVENT_CALLER_MESSAGE,
				      .uid = geteuid() + 1,
				      .data = bytes };

	event.data_bytes = hello_make();
	while (world.owner->callers.all[event.index].route == NULL)
		event.index++;
	kvpull_callers_event(&world.owner->callers,
			     &world.owner->routes.list[0], &event,
			     kvpull_clock_ns());
	assert_int_equal(refused_with(), KVPULL_EAUTH);
	assert_int_equal(world.owner->callers.in_count, 0);
	assert_non_null(strstr(world.heard[0].all, "reader refused: uid"));
	(void)peer;
}

UNIT_TEST_WITH(who_goes_makes_room_for_the_next, setup_for_one, handle_down)
{
	uint32_t turn;

	for (turn = 0; turn < 5; turn++) {
		const uint32_t peer = call();

		let_in(peer);
		assert_int_equal(world.owner->callers.in_count, 1);
		hang_up(peer);
		owner_turns(50);
		assert_int_equal(world.owner->callers.in_count, 0);
	}
	newcomer_is_served();
	assert_int_equal(world.owner->callers.in_count, 1);
}

/* A caller with a challenge from before the last place was taken is refused. */
UNIT_TEST_WITH(no_more_are_in_than_may_be, setup_for_one, handle_down)
{
	uint8_t first_nonce[KVPULL_NONCE_BYTES];
	const uint32_t first = call();
	uint32_t second;

	memcpy(first_nonce, nonce, sizeof(nonce));
	second = call();
	let_in(second);
	memcpy(nonce, first_nonce, sizeof(nonce));
	say(first, bytes, hello_make());
	assert_int_equal(refused_with(), KVPULL_EFULL);
	assert_int_equal(world.owner->callers.in_count, 1);
}

/* Readers that wait for room call again and again. */
UNIT_TEST_WITH(a_full_owner_says_so_once_a_second, setup_for_one, handle_down)
{
	const uint64_t began_ns = kvpull_clock_ns();
	const char *said;
	uint64_t seconds;
	uint32_t count = 0;
	uint32_t peer;
	uint32_t turn;

	peer = call();
	let_in(peer);
	for (turn = 0; turn < 20; turn++) {
		peer = call();
		say(peer, bytes, hello_make());
		assert_int_equal(refused_with(), KVPULL_EFULL);
	}
	for (said = world.heard[0].all;
	     (said = strstr(said, "reader refused: consumers_max")); said++)
		count++;
	seconds = (kvpull_clock_ns() - began_ns) / KVPULL_NS_PER_S;
	assert_in_range(count, 1, seconds + 1);
}

UNIT_TEST_WITH(a_reader_that_refuses_us_is_let_go, setup, handle_down)
{
	struct kvpull_refusal refusal;
	const uint32_t peer = call();

	let_in(peer);
	kvpull_refusal_texts(&refusal, KVPULL_EREJECTED, "mood", "bad", "good");
	say(peer, bytes,
	    kvpull_handshake_put_refusal(bytes, sizeof(bytes), &refusal));
	owner_turns(200);
	assert_int_equal(world.owner->callers.in_count, 0);
	(void)next_event(KVPULL_EVENT_PEER_DOWN);
	assert_non_null(
		strstr(world.heard[0].all, "refused us: mood is bad there"));
}

UNIT_TEST_WITH(callers_that_never_say_hello_end_by_themselves, setup_hasty,
	       handle_down)
{
	uint32_t fds;
	uint32_t at;

	hang_up(call());
	owner_turns(50);
	fds = fds_open();
	for (at = 0; at < 4; at++)
		(void)call();
	for (at = 0; at < 4; at++)
		(void)next_event(KVPULL_EVENT_PEER_DOWN);
	owner_turns(50);
	assert_int_equal(fds_open(), fds);
	newcomer_is_served();
}

/* None of them says hello, and none goes; the newcomer needs no such patience. */
UNIT_TEST_WITH(a_newcomer_gets_in_beside_seventy_that_say_nothing, setup,
	       handle_down)
{
	int callers[70];
	uint32_t at;

	for (at = 0; at < 70; at++) {
		callers[at] = raw_connect(&world.world, name);
		owner_turns(20);
	}
	newcomer_is_served();
	for (at = 0; at < 70; at++)
		(void)close(callers[at]);
}

UNIT_TEST_WITH(a_reader_that_closes_at_any_time_leaves_nothing, setup,
	       handle_down)
{
	const uint32_t fds = fds_open();
	uint32_t turn;

	for (turn = 0; turn < 30; turn++) {
		const int fd = raw_connect(&world.world, name);

		owner_turns(turn % 5);
		if (turn % 3) {
			const size_t count = hello_make();

			(void)send(fd, bytes, count, MSG_NOSIGNAL);
		}
		owner_turns(turn % 7);
		(void)close(fd);
	}
	owner_turns(200);
	assert_int_equal(world.owner->callers.in_count, 0);
	assert_int_equal(fds_open(), fds);
	newcomer_is_served();
}

/* ---- with a key ---- */

UNIT_TEST_WITH(who_has_no_key_or_another_is_refused, setup_keyed,
	       teardown_keyed)
{
	static const uint8_t another[32] = "01234567890123456789012345678902";
	static const uint8_t ours[32] = "01234567890123456789012345678901";
	size_t count;

	say(call(), bytes, hello_make());
	assert_int_equal(refused_with(), KVPULL_EAUTH);
	key = another;
	say(call(), bytes, hello_make());
	assert_int_equal(refused_with(), KVPULL_EAUTH);
	/* A MAC that was right for one challenge is of no use in another. */
	key = ours;
	hang_up(call());
	count = hello_make();
	say(call(), bytes, count);
	assert_int_equal(refused_with(), KVPULL_EAUTH);
	assert_int_equal(world.owner->callers.in_count, 0);
	let_in(call());
	newcomer_is_served();
}

/* ---- the share's end ---- */

UNIT_TEST_WITH(readers_are_let_go_when_the_share_ends, setup, handle_down)
{
	const uint32_t asked = call();
	struct pollfd fd = { .events = POLLIN };
	uint32_t in;

	in = call();
	let_in(in);
	newcomer_is_served();
	assert_int_equal(world.owner->callers.in_count, 2);
	fd.fd = world.ops->event_fd(world.owner);
	while (poll(&fd, 1, 0))
		(void)world.ops->poll(world.owner, NULL, 0, 24);
	assert_int_equal(world.ops->unshare(world.owner), 0);
	/* An owner that sleeps has to poll, or its readers would stay. */
	assert_int_equal(poll(&fd, 1, 0), 1);
	assert_int_equal(next_event(KVPULL_EVENT_PEER_DOWN).index, in);
	assert_int_equal(world.owner->callers.in_count, 0);
	/* The readers call again, and get the reason. */
	handle_until(&world, KVPULL_PEER_GONE);
	assert_int_equal(handle_settle(&world), KVPULL_EPEER);
	assert_non_null(strstr(world.heard[1].all, "share is ended there"));
	/* And so is who was asked before. */
	say(asked, bytes, hello_make());
	assert_true(refused_with() < 0);
}

/* A share that could not be made leaves nothing, and can be tried again. */
UNIT_TEST_WITH(a_share_that_failed_can_be_tried_again, NULL, NULL)
{
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes =
							   HANDLE_CHUNK_BYTES,
						   .chunk_count =
							   HANDLE_CHUNKS };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct rlimit limit;
	struct rlimit low;
	uint32_t failed = 0;
	uint32_t left;
	uint32_t fds;
	int code = -1;

	handle_begin(&world, "");
	world.owner = handle_open(&world, 0, NULL);
	fds = fds_open();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 256;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	for (left = 0; code && left < 16; left++) {
		int taken[512];
		const uint32_t count = fds_fill(taken, left);

		world.memory = (struct kvpull_memory){ .struct_size = sizeof(
							       world.memory) };
		code = world.ops->share(world.owner, &share, &world.memory,
					&detail);
		fds_empty(taken, count);
		if (!code)
			break;
		failed++;
		assert_true(detail.message[0]);
		/* A descriptor of the folder stays. */
		assert_in_range(fds_open(), fds, fds + 1);
		assert_int_equal(world.ops->unshare(world.owner),
				 KVPULL_EINVAL);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(code, 0);
	assert_true(failed >= 3);
	newcomer_is_served();
	handle_end(&world);
}
