/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's table: an owner and a reader in one process, over sockets. */
#include "tests/unit/share/handle.h"

#define CHUNKS HANDLE_CHUNKS
#define CHUNK_BYTES HANDLE_CHUNK_BYTES
#define MANY 8192u /* more than any table of items has room for */

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;
static struct kvpull_reader_key keys[MANY];
static struct kvpull_reader_place places[MANY];
static struct kvpull_reader_piece pieces[MANY];
static struct kvpull_reader_record record;
static int32_t codes[MANY];

UNIT_FIXTURE(setup)
{
	handle_begin(&world, "");
	handle_owner(&world);
}

static void fill_all(void)
{
	handle_connect(&world);
	handle_fill_first(&world, CHUNKS);
	(void)handle_probed(&world, CHUNKS, places, &record);
}

/* Read all places into the blocks of their keys. */
static int read_begin(uint64_t incarnation, uint64_t *id)
{
	return handle_read(&world, places, CHUNKS, incarnation, codes, id);
}

static void read_all(void)
{
	uint64_t id;

	assert_int_equal(read_begin(record.incarnation, &id), 0);
	handle_await(&world, id, &record);
}

UNIT_TEST_WITH(keys_are_found_and_their_bytes_read, setup, handle_down)
{
	uint32_t at;

	handle_connect(&world);
	handle_fill_first(&world, CHUNKS - 1);
	(void)handle_probed(&world, CHUNKS, places, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, CHUNKS - 1);
	assert_int_equal(places[CHUNKS - 1].chunk, KVPULL_READER_NONE);
	places[CHUNKS - 1] = places[0]; /* the same source twice */
	read_all();
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, CHUNKS);
	for (at = 0; at < CHUNKS; at++) {
		assert_int_equal(codes[at], 0);
		assert_int_equal(world.blocks[(at + 1) * CHUNK_BYTES - 1],
				 at == CHUNKS - 1 ? 1 : at + 1);
	}
}

UNIT_TEST_WITH(a_piece_that_was_bumped_is_stale_and_others_are_good, setup,
	       handle_down)
{
	uint64_t generation;
	uint64_t now;
	uint64_t id;
	uint32_t at;

	fill_all();
	generation = handle_fill(&world, 3, 99);
	assert_int_equal(world.ops->generation(world.owner, 3, &now), 0);
	assert_int_equal(now, generation);
	read_all();
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(record.count, CHUNKS - 1);
	for (at = 0; at < CHUNKS; at++)
		assert_int_equal(codes[at], at == 3 ? KVPULL_ESTALE : 0);
	assert_int_equal(read_begin(record.incarnation + 1, &id),
			 KVPULL_ESTALE);
}

UNIT_TEST_WITH(after_unshare_nothing_is_believed_and_nobody_let_in, setup,
	       handle_down)
{
	char address[HANDLE_ADDRESS_BYTES];
	uint32_t at;

	fill_all();
	(void)handle_address(&world, address);
	assert_int_equal(world.ops->unshare(world.owner), 0);
	read_all();
	assert_int_equal(record.count, 0);
	for (at = 0; at < CHUNKS; at++)
		assert_int_equal(codes[at], KVPULL_ESTALE);
	handle_remove(&world);
	while (world.ops->peer_add(world.reader, address, &world.peer))
		(void)handle_turn(&world, &record);
	assert_int_equal(handle_settle(&world), KVPULL_EPEER);
	assert_non_null(strstr(world.heard[1].all, "share is ended there"));
	assert_int_equal(world.ops->unshare(world.owner), KVPULL_EINVAL);
	assert_int_equal(handle_put(&world, 0, 1, 1, 1), KVPULL_EINVAL);
}

UNIT_TEST_WITH(probe_and_read_take_as_many_as_they_say, setup, handle_down)
{
	enum {
		MOST = KVPULL_READER_ITEMS_MAX
	};
	static uint8_t many[MOST][CHUNK_BYTES];
	struct kvpull_reader_probe asks = { .struct_size = sizeof(asks),
					    .keys = keys,
					    .key_bytes = sizeof(keys[0]),
					    .places = places,
					    .place_bytes = sizeof(places[0]) };
	struct kvpull_reader_read reads = { .struct_size = sizeof(reads),
					    .pieces = pieces,
					    .piece_bytes = sizeof(pieces[0]),
					    .codes = codes };
	static const uint8_t key[HANDLE_KEY_BYTES] = { 0x5a, 1 };
	uint64_t id;
	uint32_t at;

	handle_connect(&world);
	(void)handle_fill(&world, 0, 1);
	for (at = 0; at <= MOST; at++)
		keys[at] = (struct kvpull_reader_key){ key, sizeof(key) };
	asks.peer = reads.peer = world.peer;
	assert_int_equal(world.ops->local_add(world.reader, many, CHUNK_BYTES,
					      MOST, &reads.local),
			 0);
	asks.key_count = MOST + 1;
	assert_int_equal(world.ops->probe(world.reader, &asks, &id),
			 KVPULL_EINVAL);
	asks.key_count = MOST;
	assert_int_equal(world.ops->probe(world.reader, &asks, &id), 0);
	handle_await(&world, id, &record);
	assert_int_equal(record.count, MOST);
	for (at = 0; at < MOST; at++)
		pieces[at] =
			(struct kvpull_reader_piece){ places[at].chunk, at,
						      places[at].generation };
	reads.incarnation = record.incarnation;
	reads.piece_count = MOST + 1;
	assert_int_equal(world.ops->read(world.reader, &reads, &id),
			 KVPULL_EINVAL);
	reads.piece_count = MOST;
	assert_int_equal(world.ops->read(world.reader, &reads, &id), 0);
	handle_await(&world, id, &record);
	assert_int_equal(record.count, MOST);
}

UNIT_TEST_WITH(another_namespace_is_refused_by_name_on_both_sides, setup,
	       handle_down)
{
	struct kvpull_reader_probe params = { .struct_size = sizeof(params) };
	uint64_t number = 1;
	const struct kvpull_reader_key key = { &number, sizeof(number) };
	struct kvpull_reader_place place;
	uint64_t id;

	world.reader = handle_open(&world, 1, "w2");
	handle_add(&world, NULL);
	assert_int_equal(handle_settle(&world), KVPULL_EREJECTED);
	assert_non_null(strstr(
		world.heard[0].all,
		"reader refused: weights is 1 here and w2 there (EREJECTED)"));
	assert_non_null(
		strstr(world.heard[1].all, "weights is 1 there and w2 here"));
	params.peer = world.peer;
	params.key_count = 1;
	params.keys = &key;
	params.key_bytes = sizeof(key);
	params.places = &place;
	params.place_bytes = sizeof(place);
	assert_int_equal(world.ops->probe(world.reader, &params, &id),
			 KVPULL_EREJECTED);
}

UNIT_TEST_WITH(new_weights_end_what_the_old_ones_began, setup, handle_down)
{
	struct kvpull_model model;
	const struct kvpull_reader_naming naming = handle_naming(&model, "w2");
	uint64_t epoch;
	uint64_t generation;
	uint64_t id;

	fill_all();
	assert_int_equal(world.ops->epoch(world.owner, &epoch), 0);
	assert_int_equal(world.ops->guard_bump_all(world.owner, &naming, NULL),
			 0);
	read_all();
	assert_int_equal(record.count, 0);
	/* Bytes computed before are not put. */
	assert_int_equal(world.ops->generation(world.owner, 0, &generation), 0);
	assert_int_equal(handle_put(&world, 0, 1, generation, epoch),
			 KVPULL_ESTALE);
	assert_int_equal(handle_put(&world, 0, 1, generation, epoch + 1), 0);
	/* A reader of the old ones has another key for it. */
	(void)handle_probed(&world, CHUNKS, places, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, 0);
	/* And once it has the new ones, too, it asks no peer of the old. */
	assert_int_equal(world.ops->guard_bump_all(world.reader, &naming, NULL),
			 0);
	assert_int_equal(read_begin(record.incarnation, &id), KVPULL_ESTALE);
	handle_remove(&world);
}

UNIT_TEST_WITH(what_is_not_there_is_refused, setup, handle_down)
{
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes = 1,
						   .chunk_count = 1 };
	const uint32_t chunk = CHUNKS;
	struct kvpull_model model;
	struct kvpull_reader_naming naming = handle_naming(&model, NULL);
	struct kvpull_reader_params params = { .struct_size = sizeof(params),
					       .naming = &naming,
					       .engine_id = "reader" };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	handle_connect(&world);
	assert_int_equal(
		world.ops->share(world.owner, &share, &world.memory, NULL),
		KVPULL_EINVAL);
	assert_int_equal(world.ops->guard_bump(world.owner, &chunk, 1, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->guard_bump(world.reader, &chunk, 0, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->write_end(world.owner, 0), KVPULL_EINVAL);
	assert_int_equal(world.ops->peer_remove(world.reader, 63),
			 KVPULL_EINVAL);
	assert_int_equal(
		world.ops->peer_add(world.reader, "shm:/nowhere", &world.peer),
		KVPULL_EROUTE);
	assert_int_equal(world.ops->cancel(world.reader, 1), KVPULL_EINVAL);
	/* The first id of a spill; this pool has no file. */
	assert_int_equal(
		world.ops->cancel(world.reader, KVPULL_READER_OPEN_MAX),
		KVPULL_EINVAL);
	assert_int_equal(world.ops->peers(NULL, NULL, 0,
					  sizeof(struct kvpull_reader_peer)),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->poll(world.reader, NULL, 1, 24),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->poll(NULL, NULL, 0, 24), KVPULL_EINVAL);
	naming.hash = NULL;
	assert_int_equal(world.ops->open(&params, NULL, NULL), KVPULL_EINVAL);
	world.ops->close(world.reader);
	assert_int_equal(world.ops->open(&params, &world.reader, &detail),
			 KVPULL_EINVAL);
	assert_string_equal(detail.field, "hash");
	naming = handle_naming(&model, NULL);
	params.config_json = "{\"lease_ms\":0}";
	assert_int_equal(world.ops->open(&params, &world.reader, &detail),
			 KVPULL_ECONFIG);
	assert_string_equal(detail.field, "lease_ms");
	world.reader = NULL;
	world.ops->close(NULL);
}

#define refused(call) assert_int_equal((call), KVPULL_EINVAL)

/* All else is as it should be. */
UNIT_TEST_WITH(call_without_a_handle_is_refused, setup, handle_down)
{
	static const uint64_t name = 1;
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes = 1,
						   .chunk_count = 1 };
	const struct kvpull_reader_key key = { &name, sizeof(name) };
	const struct kvpull_reader_put put = { .struct_size = sizeof(put),
					       .key = key };
	const struct kvpull_reader_piece piece = { 0 };
	struct kvpull_reader_place place;
	int32_t code;
	const struct kvpull_reader_spill spills = { .struct_size =
							    sizeof(spills),
						    .puts = &put,
						    .put_bytes = sizeof(put),
						    .codes = &code,
						    .put_count = 1 };
	const struct kvpull_reader_probe asks = { .struct_size = sizeof(asks),
						  .key_count = 1,
						  .keys = &key,
						  .key_bytes = sizeof(key),
						  .places = &place,
						  .place_bytes =
							  sizeof(place) };
	const struct kvpull_reader_read reads = { .struct_size = sizeof(reads),
						  .pieces = &piece,
						  .piece_bytes = sizeof(piece),
						  .codes = &code,
						  .piece_count = 1 };
	struct kvpull_model model;
	const struct kvpull_reader_naming naming = handle_naming(&model, NULL);
	const uint32_t chunk = 0;
	char address[HANDLE_ADDRESS_BYTES];
	size_t byte_count;
	uint64_t number;

	(void)handle_address(&world, address);
	refused(world.ops->share(NULL, &share, &world.memory, NULL));
	refused(world.ops->unshare(NULL));
	refused(world.ops->address(NULL, address, sizeof(address),
				   &byte_count));
	refused(world.ops->guard_bump(NULL, &chunk, 1, NULL));
	refused(world.ops->guard_bump_all(NULL, &naming, NULL));
	refused(world.ops->generation(NULL, 0, &number));
	refused(world.ops->epoch(NULL, &number));
	refused(world.ops->write_begin(NULL, 0));
	refused(world.ops->write_end(NULL, 0));
	refused(world.ops->put(NULL, &put));
	refused(world.ops->spill(NULL, &spills, &number));
	refused(world.ops->local_add(NULL, world.blocks, CHUNK_BYTES, CHUNKS,
				     &world.local));
	refused(world.ops->peer_add(NULL, address, &world.peer));
	refused(world.ops->peer_remove(NULL, 0));
	refused(world.ops->probe(NULL, &asks, &number));
	refused(world.ops->read(NULL, &reads, &number));
	refused(world.ops->cancel(NULL, 1));
	refused(world.ops->poll(NULL, &record, 1, sizeof(record)));
	refused(world.ops->event_fd(NULL));
}

UNIT_TEST_WITH(more_items_than_there_can_be_are_refused, setup, handle_down)
{
	static const uint64_t name = 1;
	static struct kvpull_reader_put puts[MANY];
	const struct kvpull_reader_probe probe_all = {
		.struct_size = sizeof(probe_all),
		.key_count = MANY,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
	};
	const struct kvpull_reader_read read_all = {
		.struct_size = sizeof(read_all),
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.codes = codes,
		.piece_count = MANY,
	};
	const struct kvpull_reader_spill spill_all = {
		.struct_size = sizeof(spill_all),
		.puts = puts,
		.put_bytes = sizeof(puts[0]),
		.codes = codes,
		.put_count = MANY,
	};
	uint64_t id;
	uint32_t at;

	for (at = 0; at < MANY; at++) {
		keys[at] = (struct kvpull_reader_key){ &name, sizeof(name) };
		puts[at] = (struct kvpull_reader_put){
			.struct_size = sizeof(puts[at]),
			.key = keys[at],
		};
	}
	assert_int_equal(world.ops->probe(world.owner, &probe_all, &id),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->read(world.owner, &read_all, &id),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->spill(world.owner, &spill_all, &id),
			 KVPULL_EINVAL);
}
