/* SPDX-License-Identifier: Apache-2.0 */
/* A reader whose owner says what does not fit, at any time, or nothing. */
#include "base/params.h"
#include "tests/unit/share/handle.h"

uint32_t world_blocks = HANDLE_CHUNKS;
uint64_t handle_look_ns = 10000;

static struct handle_world world;

UNIT_FIXTURE(setup)
{
	false_begin(&world, "");
}

UNIT_FIXTURE(setup_hasty)
{
	false_begin(&world, ",\"connect_ms\":80");
}

/* The peer is given up with this code, and its number is free. */
static void expect_gone(int32_t code)
{
	struct kvpull_reader_place place;
	uint64_t id;

	assert_int_equal(handle_settle(&world), code);
	assert_int_equal(handle_probe(&world, 1, &place, &id), code);
	handle_remove(&world);
	assert_int_equal(handle_peer(&world, world.peer).code, KVPULL_EINVAL);
}

/* ---- what a share tells ---- */

static void more_chunks(struct kvpull_share_welcome *welcome)
{
	welcome->chunk_count++;
}

static void all_chunks(struct kvpull_share_welcome *welcome)
{
	welcome->chunk_count = KVPULL_SHARE_PLACES_MAX;
	welcome->slot_count = KVPULL_SHARE_PLACES_MAX;
	welcome->chunk_bytes = 1;
	welcome->regions[1].bytes = KVPULL_SHARE_PLACES_MAX;
}

static void longer_chunks(struct kvpull_share_welcome *welcome)
{
	welcome->chunk_bytes++;
}

/* Times 8 it is 0. */
static void chunks_that_wrap(struct kvpull_share_welcome *welcome)
{
	welcome->chunk_bytes = UINT64_C(1) << 61;
}

static void more_entries(struct kvpull_share_welcome *welcome)
{
	welcome->entry_count++;
}

static void no_window(struct kvpull_share_welcome *welcome)
{
	welcome->entry_count = KVPULL_POOL_WINDOW - 1;
}

static void more_guards(struct kvpull_share_welcome *welcome)
{
	welcome->slot_count = 4096;
}

static void longer_memory(struct kvpull_share_welcome *welcome)
{
	welcome->regions[1].bytes += 65536;
}

static void later_memory(struct kvpull_share_welcome *welcome)
{
	welcome->regions[0].fd_offset = 4096;
}

static void memory_that_wraps(struct kvpull_share_welcome *welcome)
{
	welcome->regions[1].fd_offset = UINT64_MAX - welcome->regions[1].bytes;
}

static void another_descriptor(struct kvpull_share_welcome *welcome)
{
	welcome->regions[1].fd_index = 7;
}

static void one_descriptor(struct kvpull_share_welcome *welcome)
{
	welcome->regions[1].fd_index = welcome->regions[0].fd_index;
}

static void a_device(struct kvpull_share_welcome *welcome)
{
	welcome->regions[0].kind = KVPULL_REGION_DMABUF;
}

/*
 * A process reads its own memory at the addresses of the welcome; the owner is
 * this process, too.
 */
static void wild_guards(struct kvpull_share_welcome *welcome)
{
	uint32_t at;

	for (at = 0; at < KVPULL_SHARE_REGION_COUNT; at++) {
		welcome->regions[at].kind = KVPULL_REGION_FOREIGN;
		welcome->regions[at].fd_index = 0;
		welcome->regions[at].fd_offset = 0;
	}
	welcome->guards_address = 4096;
}

/* A descriptor that is read as a file is need not be sealed. */
UNIT_TEST_WITH(a_directory_that_is_a_file_answers_or_ends, setup, handle_down)
{
	struct kvpull_reader_place places[HANDLE_CHUNKS];
	struct kvpull_share_welcome welcome;
	struct kvpull_reader_record record;
	uint64_t begun_ns, lease_ns;
	uint64_t id;

	assert_int_equal(pool_put(&world.pool, 1, 1), 0);
	false_challenge(&world);
	false_hello(&world);
	false_welcome(&world, &welcome);
	welcome.regions[0].kind = KVPULL_REGION_FILE;
	welcome.regions[0].address = 0;
	false_admit(&world, &welcome);
	if (handle_settle(&world))
		return;
	begun_ns = kvpull_clock_ns();
	assert_int_equal(handle_probe(&world, HANDLE_CHUNKS, places, &id), 0);
	/* The engine set no deadline, so the lease is the deadline. */
	lease_ns = world.reader->config.lease_ms * KVPULL_NS_PER_MS;
	assert_in_range(kvpull_share_reader_due_ns(world.reader->reader),
			begun_ns + lease_ns, kvpull_clock_ns() + lease_ns);
	handle_await(&world, id, &record);
	assert_int_equal(record.count, record.code ? 0 : 1);
}

static void another_namespace(struct kvpull_share_welcome *welcome)
{
	welcome->namespace_digest[31] ^= 1;
}

static const struct misfit {
	void (*change)(struct kvpull_share_welcome *welcome);
	int32_t code;
} misfits[] = {
	{ more_chunks, KVPULL_EPROTO },
	{ all_chunks, KVPULL_EPROTO },
	{ longer_chunks, KVPULL_EPROTO },
	{ chunks_that_wrap, KVPULL_EPROTO },
	{ more_entries, KVPULL_EPROTO },
	{ no_window, KVPULL_EPROTO },
	{ more_guards, KVPULL_EPROTO },
	{ longer_memory, KVPULL_EPROTO },
	{ later_memory, KVPULL_EPROTO },
	{ memory_that_wraps, KVPULL_EPROTO },
	{ another_descriptor, KVPULL_EPROTO },
	{ one_descriptor, KVPULL_EPROTO },
	{ a_device, KVPULL_EUNSUPPORTED },
	{ wild_guards, KVPULL_EPROTO },
	{ another_namespace, KVPULL_EREJECTED },
};

UNIT_TEST_WITH(a_share_that_does_not_fit_is_not_taken, setup, handle_down)
{
	const uint32_t fds = fds_open();
	struct kvpull_share_welcome welcome;
	uint32_t at;

	for (at = 0; at < sizeof(misfits) / sizeof(misfits[0]); at++) {
		false_challenge(&world);
		false_hello(&world);
		false_welcome(&world, &welcome);
		misfits[at].change(&welcome);
		false_admit(&world, &welcome);
		if (handle_settle(&world) != misfits[at].code)
			fail_msg("misfit %u: %s", at,
				 kvpull_error_name(handle_settle(&world)));
		expect_gone(misfits[at].code);
		/* The one that is refused is told, by name. */
		if (misfits[at].code == KVPULL_EREJECTED) {
			const struct kvpull_event event = false_event(
				&world, KVPULL_EVENT_CALLER_MESSAGE);
			struct kvpull_refusal refusal;

			assert_int_equal(
				kvpull_handshake_get_refusal(
					event.data, event.data_bytes, &refusal),
				0);
			assert_string_equal(refusal.field, "namespace");
		}
		(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
		/* And all that it handed over is closed. */
		assert_int_equal(fds_open(), fds);
		handle_add(&world, "shm:false");
	}
	false_connect(&world);
	assert_int_equal(handle_peer(&world, world.peer).incarnation,
			 POOL_INCARNATION);
}

UNIT_TEST_WITH(descriptors_that_are_not_sealed_are_not_taken, setup,
	       handle_down)
{
	struct kvpull_transport *route = world.world.p.transport;
	const int plain = memfd_create("test-plain", MFD_CLOEXEC);
	struct kvpull_serve *serve = &world.world.serve;
	uint32_t which;

	assert_true(plain >= 0);
	assert_int_equal(ftruncate(plain, 1 << 20), 0);
	for (which = 0; which < 3; which++) {
		const struct kvpull_serve kept = *serve;
		const struct kvpull_shm_params params =
			world_params(&world.world, "false");

		if (which < 2)
			serve->regions[which].fd = plain;
		else
			serve->entries_fd = plain;
		/* The route serves other readers from here on. */
		side_close(&world.world.p);
		handle_until(&world, KVPULL_PEER_WAIT);
		side_open(&world.world.p, &params);
		route = world.world.p.transport;
		assert_int_equal(route->ops->serve(route, serve), 0);
		handle_until(&world, KVPULL_PEER_CONNECTING);
		{
			struct kvpull_share_welcome welcome;

			false_challenge(&world);
			false_hello(&world);
			false_welcome(&world, &welcome);
			false_admit(&world, &welcome);
		}
		expect_gone(KVPULL_EPROTO);
		*serve = kept;
		handle_add(&world, "shm:false");
	}
	(void)close(plain);
}

/* ---- and when ---- */

static void before_the_challenge(uint32_t what)
{
	struct kvpull_share_welcome welcome;
	uint8_t bytes[4096];

	world.caller = false_event(&world, KVPULL_EVENT_CALLER_UP).index;
	memset(&world.hello, 0, sizeof(world.hello));
	false_welcome(&world, &welcome);
	if (what == 0)
		false_admit(&world, &welcome);
	else if (what == 1)
		false_say(&world, bytes,
			  kvpull_share_put_welcome(bytes, sizeof(bytes),
						   &welcome, NULL,
						   world.hello.nonce));
	else
		false_say(&world, "garbage", 7);
}

UNIT_TEST_WITH(what_comes_before_the_challenge_is_not_taken, setup, handle_down)
{
	uint32_t what;

	for (what = 0; what < 3; what++) {
		before_the_challenge(what);
		assert_true(handle_settle(&world) < 0);
		expect_gone(KVPULL_EPROTO);
		(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
		handle_add(&world, "shm:false");
	}
}

UNIT_TEST_WITH(a_second_challenge_is_not_answered, setup, handle_down)
{
	uint8_t bytes[256];

	false_challenge(&world);
	false_hello(&world);
	false_say(&world, bytes,
		  kvpull_handshake_put_challenge(bytes, sizeof(bytes),
						 world.nonce));
	expect_gone(KVPULL_EPROTO);
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
}

UNIT_TEST_WITH(a_share_without_descriptors_or_for_another_hello_is_not_taken,
	       setup, handle_down)
{
	struct kvpull_share_welcome welcome;
	uint8_t bytes[4096];

	false_challenge(&world);
	false_hello(&world);
	false_welcome(&world, &welcome);
	false_say(&world, bytes,
		  kvpull_share_put_welcome(bytes, sizeof(bytes), &welcome, NULL,
					   world.hello.nonce));
	expect_gone(KVPULL_EPROTO);
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
	handle_add(&world, "shm:false");
	false_challenge(&world);
	false_hello(&world);
	world.hello.nonce[0] ^= 1;
	false_admit(&world, &welcome);
	assert_true(handle_settle(&world) < 0);
	assert_int_not_equal(handle_settle(&world), KVPULL_EAGAIN);
}

/* A message of an owner that is up costs it the connection, and no more. */
UNIT_TEST_WITH(after_its_share_an_owner_has_nothing_to_say, setup, handle_down)
{
	struct kvpull_reader_place places[HANDLE_CHUNKS];
	struct kvpull_reader_record record;
	struct kvpull_share_welcome welcome;
	int32_t codes[HANDLE_CHUNKS];
	uint8_t bytes[4096];
	uint32_t what;
	uint64_t id;

	assert_int_equal(pool_put(&world.pool, 1, 1), 0);
	for (what = 0; what < 4; what++) {
		false_connect(&world);
		places[0] = (struct kvpull_reader_place){ .chunk = 1,
							  .generation = 1 };
		assert_int_equal(handle_read(&world, places, 1,
					     POOL_INCARNATION, codes, &id),
				 0);
		false_welcome(&world, &welcome);
		if (what == 0)
			false_say(&world, bytes,
				  kvpull_share_put_welcome(bytes, sizeof(bytes),
							   &welcome, NULL,
							   world.hello.nonce));
		else if (what == 1)
			false_say(&world, bytes,
				  kvpull_handshake_put_challenge(
					  bytes, sizeof(bytes), world.nonce));
		else if (what == 2)
			false_refuse(&world, KVPULL_EREJECTED);
		else
			false_say(&world, "garbage", 7);
		handle_await(&world, id, &record);
		assert_true(codes[0] == 0 || codes[0] == KVPULL_EPEER);
		assert_int_equal(record.count, codes[0] == 0);
		handle_until(&world, KVPULL_PEER_CONNECTING);
		(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
	}
	false_connect(&world);
}

/* ---- refusals ---- */

UNIT_TEST_WITH(a_refusal_at_any_time_is_final_and_named, setup, handle_down)
{
	world.caller = false_event(&world, KVPULL_EVENT_CALLER_UP).index;
	false_refuse(&world, KVPULL_EAUTH);
	expect_gone(KVPULL_EAUTH);
	assert_non_null(strstr(world.heard[1].all, "mood is bad there"));
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
	handle_add(&world, "shm:false");
	false_challenge(&world);
	false_hello(&world);
	false_refuse(&world, KVPULL_EVERSION);
	expect_gone(KVPULL_EVERSION);
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
}

UNIT_TEST_WITH(a_refusal_of_huge_texts_breaks_nothing, setup, handle_down)
{
	static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX];
	struct kvpull_refusal refusal;
	size_t count;

	memset(&refusal, 0, sizeof(refusal));
	refusal.code = KVPULL_EREJECTED;
	memset(refusal.field, 'f', sizeof(refusal.field) - 1);
	memset(refusal.ours, '%', sizeof(refusal.ours) - 1);
	memset(refusal.theirs, 'n', sizeof(refusal.theirs) - 1);
	world.caller = false_event(&world, KVPULL_EVENT_CALLER_UP).index;
	count = kvpull_handshake_put_refusal(bytes, sizeof(bytes), &refusal);
	assert_true(count > 0);
	false_say(&world, bytes, count);
	expect_gone(KVPULL_EREJECTED);
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
	/* Longer than one can be: of a length that the wire would carry. */
	handle_add(&world, "shm:false");
	world.caller = false_event(&world, KVPULL_EVENT_CALLER_UP).index;
	memset(bytes + count, 'x', KVPULL_PACKET_BYTES_MAX - count);
	false_say(&world, bytes, KVPULL_PACKET_BYTES_MAX);
	expect_gone(KVPULL_EPROTO);
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
}

/*
 * The connection has ended: the reader calls again, or has given the owner up.
 */
static void connects_again(uint32_t attempts)
{
	const uint64_t until = kvpull_clock_ns() + HANDLE_WAIT_NS;

	while (handle_link(&world)->peer.state != KVPULL_PEER_GONE &&
	       (handle_link(&world)->peer.state != KVPULL_PEER_CONNECTING ||
		handle_link(&world)->peer.retry.attempts != attempts)) {
		assert_true(kvpull_clock_ns() < until);
		(void)handle_turn(&world, NULL);
	}
}

#define CALLS_MAX 7u

/* Refused three times as often as a fault is tried again. */
static void refused_for_long(int32_t code)
{
	uint32_t calls;

	for (calls = 0; calls < 3 * CALLS_MAX; calls++) {
		world.caller =
			false_event(&world, KVPULL_EVENT_CALLER_UP).index;
		false_refuse(&world, code);
		(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
		handle_until(&world, KVPULL_PEER_CONNECTING);
		assert_int_equal(handle_link(&world)->peer.retry.attempts, 0);
	}
}

UNIT_TEST_WITH(an_owner_without_room_is_called_until_it_has_some, setup,
	       handle_down)
{
	const char *said;

	refused_for_long(KVPULL_EFULL);
	refused_for_long(KVPULL_ENOMEM);
	refused_for_long(KVPULL_EAGAIN);
	false_connect(&world);
	/* The reader logs the first refusal in a row, and no other. */
	said = strstr(world.heard[1].all, "mood is bad there");
	assert_non_null(said);
	assert_null(strstr(said + 1, "mood is bad there"));
}

/* ---- silence, and connections that do not last ---- */

UNIT_TEST_WITH(an_owner_that_says_nothing_is_given_up, setup_hasty, handle_down)
{
	uint32_t calls = 0;

	while (handle_link(&world)->peer.state != KVPULL_PEER_GONE) {
		if (calls % 2) {
			false_challenge(&world);
			false_hello(&world);
		} else {
			(void)false_event(&world, KVPULL_EVENT_CALLER_UP);
		}
		assert_true(calls++ < CALLS_MAX);
		(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
		connects_again(calls);
	}
	assert_int_equal(calls, CALLS_MAX);
	expect_gone(KVPULL_EPEER);
}

static void owner_drops(void)
{
	struct kvpull_transport *route = world.world.p.transport;

	route->ops->drop(route, world.caller);
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
}

UNIT_TEST_WITH(an_owner_that_is_up_for_moments_is_given_up, setup, handle_down)
{
	uint32_t calls = 0;

	while (handle_link(&world)->peer.state != KVPULL_PEER_GONE) {
		false_connect(&world);
		assert_true(calls++ < CALLS_MAX);
		owner_drops();
		connects_again(calls);
	}
	assert_int_equal(calls, CALLS_MAX);
	expect_gone(KVPULL_EPEER);
}

UNIT_TEST_WITH(one_that_lasted_has_all_its_attempts_again, setup, handle_down)
{
	uint32_t calls;

	for (calls = 0; calls < 20; calls++) {
		false_connect(&world);
		/* The connection seems to have lasted longer than connect_ms. */
		handle_link(&world)->peer.retry.up_ns = 0;
		owner_drops();
		handle_until(&world, KVPULL_PEER_CONNECTING);
	}
	false_connect(&world);
}

/* The owner was restarting, or has no room: that is no refusal. */
UNIT_TEST_WITH(an_owner_that_goes_right_after_its_challenge_is_called_again,
	       setup, handle_down)
{
	struct kvpull_transport *route = world.world.p.transport;
	struct kvpull_event event = { .kind = KVPULL_EVENT_NONE };
	uint8_t bytes[256];

	while (event.kind != KVPULL_EVENT_CALLER_UP)
		if (!route->ops->poll(route, kvpull_clock_ns(), &event, 1))
			(void)handle_turn(&world, NULL);
	assert_int_equal(route->ops->caller_send(
				 route, event.index, bytes,
				 kvpull_handshake_put_challenge(
					 bytes, sizeof(bytes), world.nonce)),
			 0);
	route->ops->drop(route, event.index);
	handle_until(&world, KVPULL_PEER_WAIT);
	/* Without a turn of the reader, whose next call may come first. */
	while (event.kind != KVPULL_EVENT_CALLER_DOWN)
		(void)route->ops->poll(route, kvpull_clock_ns(), &event, 1);
	route->ops->forget(route, event.index);
	false_connect(&world);
}

/* ---- who it is ---- */

UNIT_TEST_WITH(an_owner_of_another_user_is_told_nothing, setup, handle_down)
{
	struct kvpull_event event = { .kind = KVPULL_EVENT_PEER_MESSAGE,
				      .uid = geteuid() + 1 };
	uint8_t bytes[256];

	handle_until(&world, KVPULL_PEER_CONNECTING);
	event.index = handle_link(&world)->peer.handle;
	event.data = bytes;
	event.data_bytes = kvpull_handshake_put_challenge(bytes, sizeof(bytes),
							  world.nonce);
	kvpull_peers_event(&world.reader->peers,
			   handle_link(&world)->peer.route, &event,
			   kvpull_clock_ns());
	expect_gone(KVPULL_EAUTH);
	assert_non_null(strstr(world.heard[1].all, "is not asked: its user"));
	(void)false_event(&world, KVPULL_EVENT_CALLER_UP);
	/* No hello came. */
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
}

/* A route may have more of it in hand than the message that cost it its place. */
UNIT_TEST_WITH(what_was_said_after_a_refusal_is_not_heard, setup, handle_down)
{
	struct kvpull_event event = { .kind = KVPULL_EVENT_PEER_MESSAGE,
				      .uid = geteuid() };
	struct kvpull_refusal refusal;
	uint8_t bytes[2048];

	handle_until(&world, KVPULL_PEER_CONNECTING);
	event.index = handle_link(&world)->peer.handle;
	event.data = bytes;
	kvpull_refusal_texts(&refusal, KVPULL_EREJECTED, "mood", "bad", "good");
	event.data_bytes =
		kvpull_handshake_put_refusal(bytes, sizeof(bytes), &refusal);
	kvpull_peers_event(&world.reader->peers,
			   handle_link(&world)->peer.route, &event,
			   kvpull_clock_ns());
	event.data_bytes = kvpull_handshake_put_challenge(bytes, sizeof(bytes),
							  world.nonce);
	kvpull_peers_event(&world.reader->peers,
			   handle_link(&world)->peer.route, &event,
			   kvpull_clock_ns());
	expect_gone(KVPULL_EREJECTED);
}

/* ---- what its memory says ---- */

/* An attacker that knows the secret can seal anything. */
static void forge(uint32_t entry, const struct kvpull_pool_key *key,
		  uint64_t place, uint64_t incarnation, uint64_t generation)
{
	uint64_t words[KVPULL_POOL_WORDS];

	memcpy(words, key->words, sizeof(key->words));
	words[4] = place;
	words[5] = incarnation;
	words[6] = generation;
	words[7] = kvpull_pool_seal(words, world.pool.params.share.secret);
	memcpy(world.directory.base + (size_t)entry * sizeof(words), words,
	       sizeof(words));
}

/* All the window of a key is this place. */
static void forge_all(uint64_t place, uint64_t incarnation, uint64_t generation)
{
	const struct kvpull_pool_key key = pool_key(&world.pool, 1);
	uint32_t at;

	for (at = 0; at < HANDLE_ENTRIES; at++)
		forge(at, &key, place, incarnation, generation);
}

UNIT_TEST_WITH(forged_entries_lead_to_no_other_memory, setup, handle_down)
{
	const uint64_t places[] = { HANDLE_CHUNKS, UINT32_MAX,
				    (UINT64_C(1) << 32) + 1, UINT64_MAX };
	struct kvpull_reader_place found[KVPULL_READER_ITEMS_MAX];
	struct kvpull_reader_record record;
	int32_t codes[1];
	uint64_t id;
	uint32_t at;

	false_connect(&world);
	for (at = 0; at < sizeof(places) / sizeof(places[0]); at++) {
		forge_all(places[at], POOL_INCARNATION, 1);
		assert_int_equal(handle_probed(&world, KVPULL_READER_ITEMS_MAX,
					       found, &record),
				 0);
		assert_int_equal(record.code, 0);
		assert_int_equal(found[0].chunk, KVPULL_READER_NONE);
	}
	forge_all(1, POOL_INCARNATION + 1, 1);
	assert_int_equal(handle_probed(&world, 1, found, &record), 0);
	/* A generation that is not the guard's: the guard decides. */
	forge_all(1, POOL_INCARNATION, UINT64_MAX);
	assert_int_equal(handle_probed(&world, 1, found, &record), 1);
	assert_int_equal(
		handle_read(&world, found, 1, record.incarnation, codes, &id),
		0);
	handle_await(&world, id, &record);
	assert_int_equal(codes[0], KVPULL_ESTALE);
	assert_int_equal(record.count, 0);
}

/* Two guards of sixteen are bumped between the polls of a read. */
UNIT_TEST_WITH(guards_that_change_in_a_read_make_those_pieces_stale, setup,
	       handle_down)
{
	struct kvpull_reader_place places[HANDLE_CHUNKS];
	struct kvpull_reader_record record;
	int32_t codes[HANDLE_CHUNKS];
	uint64_t id;
	uint32_t at;

	false_connect(&world);
	for (at = 0; at < HANDLE_CHUNKS; at++)
		assert_int_equal(pool_put(&world.pool, at + 1, at), 0);
	assert_int_equal(handle_probed(&world, HANDLE_CHUNKS, places, &record),
			 HANDLE_CHUNKS);
	at = 3;
	assert_int_equal(kvpull_pool_bump(world.pool.pool, &at, 1, NULL), 0);
	/* And one whose guard is another life's. */
	atomic_store_explicit(&world.world.entries[5].incarnation,
			      POOL_INCARNATION + 1, memory_order_relaxed);
	assert_int_equal(handle_read(&world, places, HANDLE_CHUNKS,
				     record.incarnation, codes, &id),
			 0);
	handle_await(&world, id, &record);
	for (at = 0; at < HANDLE_CHUNKS; at++)
		assert_int_equal(codes[at],
				 at == 3 || at == 5 ? KVPULL_ESTALE : 0);
	assert_int_equal(record.count, HANDLE_CHUNKS - 2);
	assert_int_equal(record.code, KVPULL_ESTALE);
}
