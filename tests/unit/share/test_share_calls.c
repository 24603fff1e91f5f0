/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the reader's table that would succeed, but for one member or pointer:
 * each is KVPULL_EINVAL, nothing is begun or counted, and the same call without
 * the fault succeeds.
 */
#include "tests/unit/share/handle.h"

#define SLOTS 4u

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;
static uint64_t id;
static int32_t codes[KVPULL_READER_ITEMS_MAX + 1];

/* An owner with slots and a reader that is connected to it; a key is listed. */
UNIT_FIXTURE(setup)
{
	const struct kvpull_reader_share share =
		handle_slots("/dev/shm", SLOTS);

	handle_begin(&world, ",\"inline_bytes\":0");
	handle_share(&world, &share);
	handle_connect(&world);
	(void)handle_fill(&world, 0, 1);
}

#define refused(call) assert_int_equal((call), KVPULL_EINVAL)

/* Nothing is in flight, and nothing was put but the key of setup(). */
static void expect_nothing_begun(void)
{
	struct kvpull_reader_record record;

	assert_int_equal(world.reader->counts.asks_live, 0);
	assert_int_equal(world.owner->counts.puts, 1);
	assert_int_equal(world.owner->counts.puts_stale, 0);
	assert_int_equal(world.owner->spills.begun.count, 0);
	assert_int_equal(handle_turn(&world, &record), 0);
}

static void expect_end(uint64_t begun, uint32_t count)
{
	struct kvpull_reader_record record;

	handle_await(&world, begun, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, count);
	assert_int_equal(world.reader->counts.asks_live, 0);
}

UNIT_TEST_WITH(read_with_one_wrong_member_is_refused, setup, handle_down)
{
	static struct kvpull_reader_piece pieces[KVPULL_READER_ITEMS_MAX + 1];
	struct kvpull_reader_read rows[10];
	struct kvpull_reader_read good = {
		.struct_size = sizeof(good),
		.peer = world.peer,
		.local = world.local,
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.codes = codes,
		.piece_count = 1,
		.incarnation = world.owner->incarnation,
	};
	uint32_t at;

	for (at = 0; at <= KVPULL_READER_ITEMS_MAX; at++)
		pieces[at] = (struct kvpull_reader_piece){ .block = at };
	assert_int_equal(
		world.ops->generation(world.owner, 0, &pieces[0].generation),
		0);
	for (at = 0; at < 10; at++)
		rows[at] = good;
	rows[0].struct_size = 0;
	rows[1].pieces = NULL;
	rows[2].codes = NULL;
	rows[3].reserved = 1;
	rows[4].piece_count = 0;
	rows[5].piece_count = KVPULL_READER_ITEMS_MAX + 1;
	rows[6].piece_bytes = sizeof(pieces[0]) - sizeof(size_t);
	rows[7].peer = world.peer + 1;
	rows[8].peer = UINT32_MAX;
	rows[9].local = world.local + 1;
	for (at = 0; at < 10; at++)
		refused(world.ops->read(world.reader, &rows[at], &id));
	refused(world.ops->read(world.reader, NULL, &id));
	refused(world.ops->read(world.reader, &good, NULL));
	expect_nothing_begun();
	assert_int_equal(world.ops->read(world.reader, &good, &id), 0);
	assert_int_equal(world.reader->counts.asks_live, 1);
	expect_end(id, 1);
	assert_int_equal(world.blocks[0], 1);
}

UNIT_TEST_WITH(probe_with_one_wrong_member_is_refused, setup, handle_down)
{
	static struct kvpull_reader_key keys[KVPULL_READER_ITEMS_MAX + 1];
	static struct kvpull_reader_place places[KVPULL_READER_ITEMS_MAX + 1];
	uint8_t bytes[HANDLE_KEY_BYTES] = { 0x5a, 1 };
	struct kvpull_reader_probe rows[9];
	const struct kvpull_reader_probe good = {
		.struct_size = sizeof(good),
		.peer = world.peer,
		.key_count = 1,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
	};
	uint32_t at;

	for (at = 0; at <= KVPULL_READER_ITEMS_MAX; at++)
		keys[at] = (struct kvpull_reader_key){ bytes, sizeof(bytes) };
	for (at = 0; at < 9; at++)
		rows[at] = good;
	rows[0].struct_size = 0;
	rows[1].keys = NULL;
	rows[2].places = NULL;
	rows[3].key_count = 0;
	rows[4].key_count = KVPULL_READER_ITEMS_MAX + 1;
	rows[5].key_bytes = sizeof(keys[0]) - sizeof(size_t);
	rows[6].place_bytes = sizeof(places[0]) - sizeof(size_t);
	rows[7].peer = world.peer + 1;
	rows[8].peer = UINT32_MAX;
	for (at = 0; at < 9; at++)
		refused(world.ops->probe(world.reader, &rows[at], &id));
	refused(world.ops->probe(world.reader, NULL, &id));
	refused(world.ops->probe(world.reader, &good, NULL));
	/* A key that is not there, or is longer than keys may be. */
	keys[0].bytes = NULL;
	refused(world.ops->probe(world.reader, &good, &id));
	keys[0] = (struct kvpull_reader_key){ bytes,
					      KVPULL_READER_KEY_BYTES_MAX + 1 };
	refused(world.ops->probe(world.reader, &good, &id));
	keys[0].byte_count = 0;
	refused(world.ops->probe(world.reader, &good, &id));
	keys[0].byte_count = sizeof(bytes);
	expect_nothing_begun();
	assert_int_equal(world.ops->probe(world.reader, &good, &id), 0);
	expect_end(id, 1);
	assert_int_equal(places[0].chunk, 0);
}

static struct kvpull_reader_put put_of(const void *key, uint32_t chunk)
{
	struct kvpull_reader_put put = { .struct_size = sizeof(put),
					 .key = { key, HANDLE_KEY_BYTES },
					 .chunk = chunk };

	assert_int_equal(
		world.ops->generation(world.owner, chunk, &put.generation), 0);
	assert_int_equal(world.ops->epoch(world.owner, &put.epoch), 0);
	return put;
}

UNIT_TEST_WITH(put_with_one_wrong_member_is_refused, setup, handle_down)
{
	const uint8_t key[HANDLE_KEY_BYTES] = { 0x5a, 2 };
	struct kvpull_reader_put good = put_of(key, 1);
	struct kvpull_reader_put rows[6];
	uint64_t epoch;
	uint32_t at;

	for (at = 0; at < 6; at++)
		rows[at] = good;
	rows[0].struct_size = 0;
	rows[1].reserved = 1;
	rows[2].key.bytes = NULL;
	rows[3].key.byte_count = 0;
	rows[4].key.byte_count = KVPULL_READER_KEY_BYTES_MAX + 1;
	rows[5].chunk = HANDLE_CHUNKS; /* the first slot */
	for (at = 0; at < 6; at++)
		refused(world.ops->put(world.owner, &rows[at]));
	refused(world.ops->put(world.owner, NULL));
	refused(world.ops->put(world.reader, &good)); /* shares nothing */
	refused(world.ops->generation(world.owner, 0, NULL));
	refused(world.ops->generation(world.owner, HANDLE_CHUNKS, &epoch));
	refused(world.ops->epoch(world.owner, NULL));
	refused(world.ops->epoch(world.reader, &epoch));
	expect_nothing_begun();
	good.generation++;
	assert_int_equal(world.ops->put(world.owner, &good), KVPULL_ESTALE);
	assert_int_equal(world.owner->counts.puts_stale, 1);
	good.generation--;
	assert_int_equal(world.ops->put(world.owner, &good), 0);
	assert_int_equal(world.owner->counts.puts, 2);
	assert_int_equal(world.owner->counts.puts_full, 0);
}

UNIT_TEST_WITH(spill_with_one_wrong_member_is_refused, setup, handle_down)
{
	static struct kvpull_reader_put puts[KVPULL_READER_ITEMS_MAX + 1];
	const uint8_t key[HANDLE_KEY_BYTES] = { 0x5a, 1 };
	struct kvpull_reader_spill rows[7];
	const struct kvpull_reader_spill good = {
		.struct_size = sizeof(good),
		.puts = puts,
		.put_bytes = sizeof(puts[0]),
		.codes = codes,
		.put_count = 1,
	};
	struct kvpull_reader_record record;
	uint32_t at;

	for (at = 0; at <= KVPULL_READER_ITEMS_MAX; at++)
		puts[at] = put_of(key, 0);
	for (at = 0; at < 7; at++)
		rows[at] = good;
	rows[0].struct_size = 0;
	rows[1].puts = NULL;
	rows[2].codes = NULL;
	rows[3].reserved = 1;
	rows[4].put_count = 0;
	rows[5].put_count = KVPULL_READER_ITEMS_MAX + 1;
	rows[6].put_bytes = sizeof(puts[0]) - sizeof(size_t);
	for (at = 0; at < 7; at++)
		refused(world.ops->spill(world.owner, &rows[at], &id));
	refused(world.ops->spill(world.owner, NULL, &id));
	refused(world.ops->spill(world.owner, &good, NULL));
	refused(world.ops->spill(world.reader, &good, &id));
	/* A put of another size than its array's, of no key, of a slot. */
	puts[0].struct_size = sizeof(puts[0]) - sizeof(size_t);
	refused(world.ops->spill(world.owner, &good, &id));
	puts[0] = put_of(key, 0);
	puts[0].key.bytes = NULL;
	refused(world.ops->spill(world.owner, &good, &id));
	puts[0] = put_of(key, 0);
	puts[0].chunk = HANDLE_CHUNKS;
	refused(world.ops->spill(world.owner, &good, &id));
	puts[0].chunk = 0;
	expect_nothing_begun();
	assert_int_equal(world.owner->spills.serial, 0);
	assert_int_equal(world.ops->spill(world.owner, &good, &id), 0);
	handle_spilled(&world, id, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, 1);
	assert_int_equal(codes[0], 0);
}

UNIT_TEST_WITH(call_without_an_output_or_of_another_size_is_refused, setup,
	       handle_down)
{
	struct kvpull_reader_record record;
	struct kvpull_reader_peer peer;
	char address[512];
	size_t byte_count;
	size_t needed;

	refused(world.ops->poll(world.reader, NULL, 1, sizeof(record)));
	refused(world.ops->poll(world.reader, &record, 1,
				sizeof(record) - sizeof(size_t)));
	assert_int_equal(world.ops->poll(world.reader, NULL, 0, sizeof(record)),
			 0);
	refused(world.ops->peers(world.reader, NULL, 1, sizeof(peer)));
	refused(world.ops->peers(world.reader, &peer, 1,
				 sizeof(peer) - sizeof(size_t)));
	/* How many there are, where there is room for none. */
	assert_int_equal(world.ops->peers(world.reader, NULL, 0, sizeof(peer)),
			 1);
	refused(world.ops->address(world.owner, NULL, 1, &byte_count));
	refused(world.ops->address(world.owner, address, 1, NULL));
	refused(world.ops->address(world.reader, address, sizeof(address),
				   &byte_count));
	assert_int_equal(world.ops->address(world.owner, NULL, 0, &needed),
			 KVPULL_ETOOSMALL);
	assert_int_equal(world.ops->address(world.owner, address, needed - 1,
					    &byte_count),
			 KVPULL_ETOOSMALL);
	assert_int_equal(
		world.ops->address(world.owner, address, needed, &byte_count),
		0);
	assert_int_equal(strlen(address) + 1, needed);
	refused(world.ops->peer_add(world.reader, NULL, &world.peer));
	refused(world.ops->peer_add(world.reader, address, NULL));
	refused(world.ops->peer_remove(world.reader, world.peer + 1));
	refused(world.ops->peer_remove(world.reader, UINT32_MAX));
	refused(world.ops->local_add(world.reader, address, 1, 1, NULL));
	assert_int_equal(world.ops->peers(world.reader, &peer, 1, sizeof(peer)),
			 1);
}

UNIT_TEST_WITH(bump_of_chunks_that_are_not_there_is_refused, setup, handle_down)
{
	const uint32_t chunks[2] = { 1, HANDLE_CHUNKS };
	const uint64_t bumps = world.owner->counts.bumps;
	uint64_t generations[2] = { 0 };
	uint64_t before;
	uint64_t now;

	assert_int_equal(world.ops->generation(world.owner, 1, &before), 0);
	refused(world.ops->guard_bump(world.owner, NULL, 1, generations));
	refused(world.ops->guard_bump(world.owner, chunks, 2, generations));
	refused(world.ops->guard_bump(world.reader, chunks, 1, generations));
	assert_int_equal(world.ops->generation(world.owner, 1, &now), 0);
	assert_int_equal(now, before);
	assert_int_equal(world.owner->counts.bumps, bumps);
	assert_int_equal(
		world.ops->guard_bump(world.owner, NULL, 0, generations), 0);
	assert_int_equal(
		world.ops->guard_bump(world.owner, chunks, 1, generations), 0);
	assert_int_equal(generations[0], before + 1);
	assert_int_equal(world.owner->counts.bumps, bumps + 1);
	assert_int_equal(world.reader->counts.bumps, 0);
}

UNIT_TEST_WITH(share_that_has_ended_takes_no_call, setup, handle_down)
{
	const uint8_t key[HANDLE_KEY_BYTES] = { 0x5a, 1 };
	const struct kvpull_reader_put put = put_of(key, 0);
	const struct kvpull_reader_spill spill = {
		.struct_size = sizeof(spill),
		.puts = &put,
		.put_bytes = sizeof(put),
		.codes = codes,
		.put_count = 1,
	};
	const uint32_t chunk = 0;
	char address[512];
	size_t byte_count;
	uint64_t number;
	uint64_t bumps;

	assert_int_equal(world.ops->unshare(world.owner), 0);
	bumps = world.owner->counts.bumps;
	refused(world.ops->unshare(world.owner));
	refused(world.ops->guard_bump(world.owner, &chunk, 1, NULL));
	refused(world.ops->put(world.owner, &put));
	refused(world.ops->spill(world.owner, &spill, &id));
	refused(world.ops->write_begin(world.owner, 0));
	refused(world.ops->write_end(world.owner, 0));
	refused(world.ops->generation(world.owner, 0, &number));
	refused(world.ops->epoch(world.owner, &number));
	refused(world.ops->address(world.owner, address, sizeof(address),
				   &byte_count));
	assert_int_equal(world.ops->guard_bump_all(world.owner, NULL, NULL), 0);
	assert_int_equal(world.owner->counts.bumps, bumps);
	assert_int_equal(world.owner->counts.puts, 1);
	assert_int_equal(world.owner->spills.serial, 0);
}
