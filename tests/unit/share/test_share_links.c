/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each state of a link, and what an engine does in it: remove the peer, set
 * other weights, close. What was begun ends once, and nothing is written later.
 */
#include "tests/unit/share/handle.h"

#define PIECES                                                                 \
	KVPULL_READER_ITEMS_MAX /* by poll(): more than is copied at once */
#define POISON 0x7e7e7e7e

uint32_t world_blocks = HANDLE_CHUNKS;
uint64_t handle_look_ns = 10000;

static struct handle_world world;
static int32_t codes[PIECES];

enum phase {
	WAIT,
	CONNECTING,
	GREETED,
	UP,
	READING, /* up, with a read that has not ended */
	ENDED,   /* one that has, and was not told */
	LOST,    /* the same, and its owner has gone */
	GONE,
	PHASES
};

UNIT_FIXTURE(setup)
{
	handle_begin(&world, "");
	false_owner(&world);
	handle_reader(&world);
}

/* A read of many pieces, all of one place. */
static uint64_t read_begin(void)
{
	struct kvpull_reader_place places[PIECES];
	uint64_t id;
	uint32_t at;

	for (at = 0; at < PIECES; at++) {
		places[at] = (struct kvpull_reader_place){ .chunk = 1,
							   .generation = 1 };
		codes[at] = POISON;
	}
	assert_int_equal(handle_read(&world, places, PIECES, POOL_INCARNATION,
				     codes, &id),
			 0);
	return id;
}

static void owner_drops(void)
{
	struct kvpull_transport *route = world.world.p.transport;

	route->ops->drop(route, world.caller);
	(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
}

/* Return: the id of what is in flight, or 0. */
static uint64_t phase_begin(enum phase phase)
{
	uint64_t id = 0;
	uint32_t turn;

	handle_add(&world, "shm:false");
	if (phase == WAIT)
		return 0;
	if (phase == GONE) {
		world.caller =
			false_event(&world, KVPULL_EVENT_CALLER_UP).index;
		false_refuse(&world, KVPULL_EAUTH);
		assert_int_equal(handle_settle(&world), KVPULL_EAUTH);
		(void)false_event(&world, KVPULL_EVENT_CALLER_DOWN);
		return 0;
	}
	if (phase == CONNECTING) {
		handle_until(&world, KVPULL_PEER_CONNECTING);
		return 0;
	}
	if (phase == GREETED) {
		false_challenge(&world);
		false_hello(&world);
		return 0;
	}
	false_connect(&world);
	if (phase >= READING)
		id = read_begin();
	for (turn = 0; phase >= ENDED && turn < 64; turn++)
		assert_int_equal(handle_turn(&world, NULL), 0);
	if (phase == LOST) {
		owner_drops();
		handle_until(&world, KVPULL_PEER_WAIT);
		for (turn = 0; turn < 64; turn++) {
			assert_int_equal(handle_turn(&world, NULL), 0);
			assert_int_equal(handle_link(&world)->peer.state,
					 KVPULL_PEER_WAIT);
		}
		assert_int_equal(handle_link(&world)->has_reads, 1);
	}
	return id;
}

/* Takes and ends everything that reached the false owner in this phase. */
static void owner_forgets(void)
{
	struct kvpull_transport *route = world.world.p.transport;
	struct kvpull_event event;
	uint32_t turn;

	for (turn = 0; turn < 200; turn++) {
		assert_true(handle_turn(&world, NULL) >= 0);
		if (route->ops->poll(route, kvpull_clock_ns(), &event, 1) &&
		    event.kind == KVPULL_EVENT_CALLER_DOWN)
			route->ops->forget(route, event.index);
	}
}

/*
 * The record comes once; good pieces have the bytes. Returns the record's code.
 */
static int32_t expect_end(uint64_t id)
{
	struct kvpull_reader_record record;
	uint32_t at;

	handle_await(&world, id, &record);
	for (at = 0; at < PIECES; at++)
		assert_int_equal(codes[at], record.code);
	assert_int_equal(record.count, record.code ? 0 : PIECES);
	assert_int_equal(world.ops->cancel(world.reader, id), KVPULL_EINVAL);
	return record.code;
}

UNIT_TEST_WITH(a_peer_is_removed_in_each_state, setup, handle_down)
{
	struct kvpull_reader_place place;
	struct kvpull_reader_record record;
	uint32_t first = UINT32_MAX;
	enum phase phase;
	uint64_t id;
	uint64_t none;
	uint32_t at;

	for (phase = WAIT; phase < PHASES; phase++) {
		id = phase_begin(phase);
		if (first == UINT32_MAX)
			first = world.peer;
		/*
		 * The peer's number was free as soon as its probes and reads
		 * had ended.
		 */
		assert_int_equal(world.peer, first);
		handle_remove(&world);
		assert_int_equal(
			world.ops->peer_remove(world.reader, world.peer),
			KVPULL_EINVAL);
		assert_int_equal(handle_peer(&world, world.peer).code,
				 KVPULL_EINVAL);
		assert_int_equal(handle_probe(&world, 1, &place, &none),
				 KVPULL_EINVAL);
		if (id) {
			const int32_t code = expect_end(id);

			/* An end that was not told stands. */
			assert_int_equal(code,
					 phase == READING ? KVPULL_EPEER : 0);
		}
		for (at = 0; at < PIECES; at++)
			codes[at] = POISON;
		owner_forgets();
		assert_int_equal(handle_turn(&world, &record), 0);
		for (at = 0; at < PIECES; at++)
			assert_int_equal(codes[at], POISON);
		assert_int_equal(handle_link(&world)->peer.state,
				 KVPULL_PEER_FREE);
		assert_int_equal(handle_link(&world)->has_reads, 0);
		assert_int_equal(world.reader->counts.peers_live, 0);
		assert_int_equal(world.reader->counts.asks_live, 0);
	}
}

/* A route may have a message of its peer in hand when that is removed. */
UNIT_TEST_WITH(a_peer_that_is_removed_is_not_answered, setup, handle_down)
{
	struct kvpull_event event = { .kind = KVPULL_EVENT_PEER_MESSAGE,
				      .uid = geteuid() };
	struct kvpull_share_link *link;
	uint8_t bytes[2048];

	(void)phase_begin(CONNECTING);
	link = handle_link(&world);
	event.index = link->peer.handle;
	event.data = bytes;
	event.data_bytes = kvpull_handshake_put_challenge(bytes, sizeof(bytes),
							  world.nonce);
	handle_remove(&world);
	kvpull_peers_event(&world.reader->peers, link->peer.route, &event,
			   kvpull_clock_ns());
	assert_int_equal(link->peer.state, KVPULL_PEER_CONNECTING);
	owner_forgets();
	assert_int_equal(link->peer.state, KVPULL_PEER_FREE);
}

/* Both are asked at once; the numbers do not touch each other's. */
UNIT_TEST_WITH(a_number_is_not_used_again_before_its_reads_have_ended, setup,
	       handle_down)
{
	static const enum phase phases[] = { READING, LOST };
	uint32_t at;

	for (at = 0; at < 2; at++) {
		const uint64_t id = phase_begin(phases[at]);
		const uint32_t old = world.peer;

		assert_int_equal(world.ops->peer_remove(world.reader, old), 0);
		handle_add(&world, "shm:false");
		assert_int_not_equal(world.peer, old);
		assert_int_equal(handle_peer(&world, old).code, KVPULL_EINVAL);
		assert_int_equal(handle_peer(&world, world.peer).code,
				 KVPULL_EAGAIN);
		(void)expect_end(id);
		owner_forgets();
		handle_remove(&world);
		owner_forgets();
	}
}

UNIT_TEST_WITH(other_weights_are_set_in_each_state, setup, handle_down)
{
	struct kvpull_reader_naming naming;
	struct kvpull_reader_place place;
	struct kvpull_share_welcome welcome;
	struct kvpull_model model;
	enum phase phase;
	uint64_t id;
	uint64_t unused;

	for (phase = WAIT; phase < PHASES; phase++) {
		id = phase_begin(phase);
		naming = handle_naming(&model, "w2");
		assert_int_equal(
			world.ops->guard_bump_all(world.reader, &naming, NULL),
			0);
		if (phase == GREETED) { /* a share of the old ones comes */
			false_welcome(&world, &welcome);
			false_admit(&world, &welcome);
			assert_int_equal(handle_settle(&world),
					 KVPULL_EREJECTED);
		}
		assert_int_equal(handle_probe(&world, 1, &place, &unused),
				 phase == GREETED ? KVPULL_EREJECTED :
				 phase == GONE    ? KVPULL_EAUTH :
				 phase == LOST || phase < UP ? KVPULL_EAGAIN :
							       KVPULL_ESTALE);
		if (id)
			assert_int_equal(expect_end(id), KVPULL_ESTALE);
		handle_remove(&world);
		owner_forgets();
		naming = handle_naming(&model, NULL);
		assert_int_equal(
			world.ops->guard_bump_all(world.reader, &naming, NULL),
			0);
	}
	/* The hello tells what is set as it is said. */
	handle_add(&world, "shm:false");
	handle_until(&world, KVPULL_PEER_CONNECTING);
	naming = handle_naming(&model, "w2");
	assert_int_equal(world.ops->guard_bump_all(world.reader, &naming, NULL),
			 0);
	false_challenge(&world);
	false_hello(&world);
	assert_string_equal(world.hello.naming.weights, "w2");
}

/*
 * An address comes from a file or another program, and goes into lines of the
 * log.
 */
UNIT_TEST_WITH(an_address_that_no_owner_gives_is_refused, setup, handle_down)
{
	static const char *const bad[] = { "",        "shm",
					   "shm:a\n", "shm:\x1b[2J",
					   "a b",     "SHM:a" };
	uint32_t peer;
	uint32_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		world.heard[1] = (struct lines){ 0 };
		assert_int_equal(
			world.ops->peer_add(world.reader, bad[i], &peer),
			KVPULL_EINVAL);
		assert_non_null(strstr(world.heard[1].all, "is refused"));
		assert_null(strpbrk(world.heard[1].all, "\x1b"));
	}
}

UNIT_TEST_WITH(names_that_are_refused_change_nothing, setup, handle_down)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_reader_place place;
	struct kvpull_reader_record record;
	struct kvpull_model model;
	struct kvpull_reader_naming naming = handle_naming(&model, "w2");

	(void)phase_begin(UP);
	naming.hash = "";
	assert_int_equal(
		world.ops->guard_bump_all(world.reader, &naming, &detail),
		KVPULL_EINVAL);
	assert_string_equal(detail.field, "hash");
	naming.hash = "sha256";
	model.replicated = 2;
	assert_int_equal(
		world.ops->guard_bump_all(world.reader, &naming, &detail),
		KVPULL_EINVAL);
	assert_int_equal(pool_put(&world.pool, 1, 1), 0);
	assert_int_equal(handle_probed(&world, 1, &place, &record), 1);
}

UNIT_TEST_WITH(a_handle_is_closed_in_each_state, NULL, NULL)
{
	enum phase phase;

	for (phase = WAIT; phase < PHASES; phase++) {
		uint32_t at;

		handle_begin(&world, "");
		false_owner(&world);
		handle_reader(&world);
		(void)phase_begin(phase);
		world.ops->close(world.reader);
		world.reader = NULL;
		for (at = 0; phase == READING && at < PIECES; at++)
			assert_int_equal(codes[at], POISON);
		handle_end(&world);
	}
}

/* ---- how a read is ended early ---- */

UNIT_TEST_WITH(a_read_is_cancelled_in_each_phase, setup, handle_down)
{
	uint32_t cancelled = 0;
	enum phase phase;

	for (phase = READING; phase <= LOST; phase++) {
		const uint64_t id = phase_begin(phase);
		const int code = world.ops->cancel(world.reader, id);

		/* Once it has ended there is nothing to cancel. */
		assert_int_equal(code, phase == READING ? 0 : KVPULL_EINVAL);
		if (!code)
			assert_int_equal(world.ops->cancel(world.reader, id),
					 0);
		assert_int_equal(expect_end(id), code ? 0 : KVPULL_EABORTED);
		cancelled += !code;
		handle_remove(&world);
		owner_forgets();
	}
	assert_int_equal(cancelled, 1);
}

#define READS 8u /* more than one poll copies */

static int late_read(uint32_t first, uint64_t *id)
{
	struct kvpull_reader_place places[PIECES];
	uint32_t at;

	for (at = 0; at < PIECES; at++)
		places[at] = (struct kvpull_reader_place){ .chunk = 1,
							   .generation = 1 };
	return handle_read_into(&world, first, places, PIECES, POOL_INCARNATION,
				1, codes, id);
}

UNIT_TEST_WITH(a_deadline_that_has_passed_ends_what_has_not_ended, setup,
	       handle_down)
{
	struct kvpull_reader_record record;
	uint32_t late = 0;
	uint32_t at;
	uint64_t id;

	(void)phase_begin(UP);
	for (at = 0; at < READS; at++)
		assert_int_equal(late_read(at * PIECES, &id), 0);
	/* All of its blocks are taken until its end is told. */
	assert_int_equal(late_read(READS * PIECES - PIECES, &id),
			 KVPULL_EINVAL);
	for (at = 0; at < READS; at++) {
		while (!handle_turn(&world, &record))
			;
		assert_true(record.code == KVPULL_EDEADLINE || !record.code);
		assert_int_equal(record.count, record.code ? 0 : PIECES);
		late += record.code == KVPULL_EDEADLINE;
	}
	assert_true(late > 0);
	assert_int_equal(late_read(READS * PIECES - PIECES, &id), 0);
}

/* ---- elements of other sizes ---- */

struct later_key {
	struct kvpull_reader_key is;
	uint64_t later;
};

struct later_place {
	struct kvpull_reader_place is;
	uint64_t later[3];
};

/* The second one is not found. */
static struct kvpull_reader_probe later_probe(struct later_key keys[2],
					      struct later_place places[2])
{
	static const uint8_t key[HANDLE_KEY_BYTES] = { 0x5a, 1 };

	(void)phase_begin(UP);
	assert_int_equal(pool_put(&world.pool, 1, 1), 0);
	memset(keys, 0, 2 * sizeof(*keys));
	memset(places, 0xff, 2 * sizeof(*places));
	keys[0].is = (struct kvpull_reader_key){ key, sizeof(key) };
	keys[1].is = (struct kvpull_reader_key){ key, 1 };
	return (struct kvpull_reader_probe){
		.struct_size = sizeof(struct kvpull_reader_probe),
		.peer = world.peer,
		.key_count = 2,
		.keys = &keys[0].is,
		.key_bytes = sizeof(keys[0]),
		.places = &places[0].is,
		.place_bytes = sizeof(places[0]),
	};
}

UNIT_TEST_WITH(arrays_of_later_versions_are_filled, setup, handle_down)
{
	struct later_place places[2];
	struct later_key keys[2];
	const struct kvpull_reader_probe probe = later_probe(keys, places);
	struct {
		struct kvpull_reader_record is;
		uint64_t later;
	} records[2];
	struct {
		struct kvpull_reader_peer is;
		uint64_t later;
	} peers[2];
	uint64_t id;
	int count = 0;

	memset(records, 0xff, sizeof(records));
	memset(peers, 0xff, sizeof(peers));
	assert_int_equal(world.ops->probe(world.reader, &probe, &id), 0);
	while (!count)
		count = world.ops->poll(world.reader, &records[0].is, 2,
					sizeof(records[0]));
	assert_int_equal(count, 1);
	assert_int_equal(records[0].is.id, id);
	assert_int_equal(records[0].is.count, 1);
	assert_int_equal(records[0].later, 0);
	assert_true(records[1].later == UINT64_MAX);
	assert_int_equal(places[0].is.chunk, 1);
	assert_int_equal(places[0].later[2], 0);
	assert_int_equal(places[1].is.chunk, KVPULL_READER_NONE);
	assert_int_equal(places[1].later[0], 0);
	assert_int_equal(world.ops->peers(world.reader, &peers[0].is, 2,
					  sizeof(peers[0])),
			 1);
	assert_int_equal(peers[0].later, 0);
	assert_true(peers[1].later == UINT64_MAX);
}

static void probe_refused(struct kvpull_reader_probe probe)
{
	uint64_t id;

	assert_int_equal(world.ops->probe(world.reader, &probe, &id),
			 KVPULL_EINVAL);
}

UNIT_TEST_WITH(arrays_that_cannot_be_are_refused, setup, handle_down)
{
	struct later_place places[2];
	struct later_key keys[2];
	const struct kvpull_reader_probe good = later_probe(keys, places);
	struct kvpull_reader_probe probe = good;

	/* A set member that this version does not know is refused. */
	keys[1].later = 1;
	probe_refused(probe);
	keys[1].later = 0;
	/* And none is shorter than the first version's. */
	probe.key_bytes = sizeof(keys[0].is) - 8;
	probe_refused(probe);
	probe = good;
	probe.place_bytes = 8;
	probe_refused(probe);
	probe = good;
	probe.key_count = KVPULL_READER_ITEMS_MAX + 1;
	probe_refused(probe);
	probe.key_count = 0;
	probe_refused(probe);
}

UNIT_TEST_WITH(all_that_may_be_in_flight_is_and_ends, setup, handle_down)
{
	static struct kvpull_reader_place places[KVPULL_READER_OPEN_MAX]
						[KVPULL_READER_ITEMS_MAX];
	struct kvpull_reader_record records[KVPULL_READER_OPEN_MAX];
	const uint64_t until = kvpull_clock_ns() + HANDLE_WAIT_NS;
	uint64_t ids[KVPULL_READER_OPEN_MAX];
	uint64_t none;
	uint32_t at;
	int count = 0;

	(void)phase_begin(UP);
	assert_int_equal(pool_put(&world.pool, 256, 1), 0);
	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		assert_int_equal(handle_probe(&world, KVPULL_READER_ITEMS_MAX,
					      places[at], &ids[at]),
				 0);
	assert_int_equal(handle_probe(&world, 1, places[0], &none),
			 KVPULL_EFULL);
	while (count < (int)KVPULL_READER_OPEN_MAX) {
		count += world.ops->poll(world.reader, records + count,
					 KVPULL_READER_OPEN_MAX -
						 (uint32_t)count,
					 sizeof(records[0]));
		assert_true(kvpull_clock_ns() < until);
	}
	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++) {
		assert_int_equal(records[at].count, 1);
		assert_int_equal(places[at][255].chunk, 1);
		assert_int_equal(places[at][0].chunk, KVPULL_READER_NONE);
	}
	assert_int_equal(handle_probe(&world, 1, places[0], &none), 0);
}

/* ---- what was found before a change, and is read after it ---- */

static void set_weights(struct kvpull_reader *handle, const char *weights)
{
	struct kvpull_model model;
	const struct kvpull_reader_naming naming =
		handle_naming(&model, weights);

	assert_int_equal(world.ops->guard_bump_all(handle, &naming, NULL), 0);
}

/*
 * Reads pieces of a probe under other weights, whatever the two do in between.
 */
UNIT_TEST_WITH(what_was_found_under_other_weights_is_never_good, NULL, NULL)
{
	uint32_t way;

	for (way = 0; way < 16; way++) {
		struct kvpull_reader_place places[1];
		struct kvpull_reader_record record;
		uint64_t id;
		int code;

		handle_begin(&world, "");
		handle_owner(&world);
		handle_connect(&world);
		(void)handle_fill(&world, 0, 1);
		assert_int_equal(handle_probed(&world, 1, places, &record), 1);
		/* The owner first, or the reader; and back again, or not. */
		if (way & 1)
			set_weights(world.owner, "w2");
		set_weights(world.reader, "w2");
		if (!(way & 1))
			set_weights(world.owner, "w2");
		if (way & 2) {
			set_weights(world.owner, NULL);
			set_weights(world.reader, NULL);
		}
		if (way & 4) /* the same place, with other bytes */
			(void)handle_fill(&world, 0, 2);
		if (way & 8) {
			handle_remove(&world);
			handle_add(&world, NULL);
			assert_int_equal(handle_settle(&world), 0);
		}
		code = handle_read(&world, places, 1, record.incarnation, codes,
				   &id);
		if (code) {
			assert_int_equal(code, KVPULL_ESTALE);
		} else {
			handle_await(&world, id, &record);
			assert_int_equal(codes[0], KVPULL_ESTALE);
		}
		handle_end(&world);
	}
}

/*
 * A probe of the old weights returns no places, and not "nothing found" either.
 */
UNIT_TEST_WITH(a_probe_of_the_old_weights_tells_no_places, NULL, NULL)
{
	struct kvpull_reader_place places[1];
	struct kvpull_reader_record record;
	uint64_t id;

	handle_begin(&world, "");
	handle_owner(&world);
	handle_connect(&world);
	(void)handle_fill(&world, 0, 1);
	assert_int_equal(handle_probe(&world, 1, places, &id), 0);
	set_weights(world.reader, "w2");
	handle_await(&world, id, &record);
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(record.count, 0);
	assert_int_equal(places[0].chunk, KVPULL_READER_NONE);
	handle_end(&world);
}

/* ---- a child of fork() ---- */

UNIT_TEST_WITH(a_childs_close_ends_nothing_of_its_parents, NULL, NULL)
{
	struct kvpull_reader_place places[1];
	struct kvpull_reader_record record;
	int status = -1;
	uint64_t id;
	pid_t pid;

	handle_begin(&world, "");
	handle_owner(&world);
	handle_connect(&world);
	(void)handle_fill(&world, 0, 1);
	pid = fork();
	if (!pid) {
		world.ops->close(world.reader);
		world.ops->close(world.owner);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(handle_probed(&world, 1, places, &record), 1);
	assert_int_equal(
		handle_read(&world, places, 1, record.incarnation, codes, &id),
		0);
	handle_await(&world, id, &record);
	assert_int_equal(codes[0], 0);
	handle_end(&world);
}
