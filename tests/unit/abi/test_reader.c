/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's table: an owner and a reader in one process, over sockets. */
#include "kvpull/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define CHUNKS 8u
#define CHUNK_BYTES 4096u
#define PATIENCE_NS (60 * KVPULL_NS_PER_S)
#define MANY 8192u /* more than any table of items has room for */

static const struct kvpull_reader_ops *ops;
static char folder[64];
static char config[256];
static struct lines heard[2]; /* of owner and reader */

static struct kvpull_reader *owner;
static struct kvpull_reader *reader;
static struct kvpull_memory memory;
static uint8_t blocks[CHUNKS][CHUNK_BYTES];
static uint32_t peer;
static uint32_t local;

static struct kvpull_model model_of(const char *weights)
{
	return (struct kvpull_model){ .struct_size =
					      sizeof(struct kvpull_model),
				      .model = "m",
				      .weights = weights,
				      .dtype = "float16",
				      .layout = "LBHNC",
				      .layer_count = 1,
				      .head_count = 1,
				      .head_bytes = 64 };
}

static struct kvpull_reader_naming naming_of(const struct kvpull_model *model)
{
	return (struct kvpull_reader_naming){
		.struct_size = sizeof(struct kvpull_reader_naming),
		.model = model,
		.hash = "sha256",
		.tp_size = 1,
	};
}

static struct kvpull_reader *open_one(uint32_t who, const char *weights)
{
	const struct kvpull_model model = model_of(weights);
	const struct kvpull_reader_naming naming = naming_of(&model);
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .context = &heard[who],
					  .log = lines_keep,
					  .log_level = KVPULL_LOG_WARN };
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.host = &host,
		.config_json = config,
		.naming = &naming,
		.engine_id = who ? "reader" : "owner",
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_reader *opened = NULL;

	heard[who] = (struct lines){ 0 };
	if (ops->open(&params, &opened, &detail))
		fail_msg("open: %s", detail.message);
	return opened;
}

static void owner_open(void)
{
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes = CHUNK_BYTES,
						   .chunk_count = CHUNKS };

	owner = open_one(0, "w1");
	memory = (struct kvpull_memory){ .struct_size = sizeof(memory) };
	assert_int_equal(ops->share(owner, &share, &memory, NULL), 0);
	assert_true(memory.bytes >= CHUNKS * CHUNK_BYTES);
}

static int setup(void **state)
{
	(void)state;
	ops = kvpull_reader_v1();
	(void)snprintf(folder, sizeof(folder), "/tmp/kvpull-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
	(void)snprintf(
		config, sizeof(config),
		"{\"socket_dir\":\"%s\",\"status\":\"off\",\"copy_threads\":0}",
		folder);
	owner_open();
	return 0;
}

static int teardown(void **state)
{
	char command[96];

	(void)state;
	ops->close(reader);
	ops->close(owner);
	reader = owner = NULL;
	(void)snprintf(command, sizeof(command), "rmdir %s", folder);
	assert_int_equal(system(command), 0); /* nothing was left in it */
	return 0;
}

/* Runs both handles once. Returns the records of the reader. */
static int turn(struct kvpull_reader_record *record)
{
	assert_int_equal(ops->poll(owner, NULL, 0, sizeof(*record)), 0);
	return ops->poll(reader, record, 1, sizeof(*record));
}

/* Until the peer is neither on its way. Return: its code. */
static int32_t settle(void)
{
	const uint64_t until = kvpull_clock_ns() + PATIENCE_NS;
	struct kvpull_reader_peer is = { .code = KVPULL_EAGAIN };
	struct kvpull_reader_record record;

	while (is.code == KVPULL_EAGAIN && kvpull_clock_ns() < until) {
		(void)turn(&record);
		assert_int_equal(ops->peers(reader, &is, 1, sizeof(is)), 1);
	}
	return is.code;
}

static void connect_to_owner(const char *weights)
{
	char address[512];
	size_t byte_count;

	reader = open_one(1, weights);
	assert_int_equal(ops->address(owner, address, 0, &byte_count),
			 KVPULL_ETOOSMALL);
	assert_int_equal(
		ops->address(owner, address, sizeof(address), &byte_count), 0);
	assert_int_equal(strlen(address) + 1, byte_count);
	assert_int_equal(ops->peer_add(reader, address, &peer), 0);
}

static void connected(void)
{
	connect_to_owner("w1");
	assert_int_equal(settle(), 0);
	assert_int_equal(
		ops->local_add(reader, blocks, CHUNK_BYTES, CHUNKS, &local), 0);
}

static int put_under(uint32_t chunk, uint64_t key, uint64_t generation,
		     uint64_t epoch)
{
	const struct kvpull_reader_put put = {
		.struct_size = sizeof(put),
		.key = { &key, sizeof(key) },
		.chunk = chunk,
		.generation = generation,
		.epoch = epoch,
	};

	return ops->put(owner, &put);
}

static uint64_t fill(uint32_t chunk, uint64_t key)
{
	uint64_t generation;
	uint64_t epoch;

	assert_int_equal(ops->guard_bump(owner, &chunk, 1, &generation), 0);
	assert_int_equal(ops->write_begin(owner, chunk), 0);
	memset((uint8_t *)memory.base + (size_t)chunk * CHUNK_BYTES, (int)key,
	       CHUNK_BYTES);
	assert_int_equal(ops->epoch(owner, &epoch), 0);
	assert_int_equal(put_under(chunk, key, generation, epoch),
			 KVPULL_EAGAIN);
	assert_int_equal(ops->write_end(owner, chunk), 0);
	assert_int_equal(put_under(chunk, key, generation, epoch), 0);
	return generation;
}

static void await(uint64_t id, struct kvpull_reader_record *record)
{
	const uint64_t until = kvpull_clock_ns() + PATIENCE_NS;

	while (turn(record) == 0)
		assert_true(kvpull_clock_ns() < until);
	assert_int_equal(record->id, id);
}

/* Ask for the keys 1 .. CHUNKS. */
static void probe(struct kvpull_reader_place places[CHUNKS],
		  struct kvpull_reader_record *record)
{
	uint64_t numbers[CHUNKS];
	struct kvpull_reader_key keys[CHUNKS];
	const struct kvpull_reader_probe params = {
		.struct_size = sizeof(params),
		.peer = peer,
		.key_count = CHUNKS,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
	};
	uint64_t id;
	uint32_t at;

	for (at = 0; at < CHUNKS; at++) {
		numbers[at] = at + 1;
		keys[at] = (struct kvpull_reader_key){ &numbers[at],
						       sizeof(numbers[at]) };
	}
	assert_int_equal(ops->probe(reader, &params, &id), 0);
	await(id, record);
}

/* Read all places into the blocks of their keys. */
static int read_begin(const struct kvpull_reader_place places[CHUNKS],
		      uint64_t incarnation, int32_t codes[CHUNKS], uint64_t *id)
{
	struct kvpull_reader_piece pieces[CHUNKS];
	const struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = peer,
		.local = local,
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.codes = codes,
		.piece_count = CHUNKS,
		.incarnation = incarnation,
	};
	uint32_t at;

	for (at = 0; at < CHUNKS; at++)
		pieces[at] =
			(struct kvpull_reader_piece){ places[at].chunk, at,
						      places[at].generation };
	return ops->read(reader, &read, id);
}

UNIT_TEST_WITH(keys_are_found_and_their_bytes_read, setup, teardown)
{
	struct kvpull_reader_place places[CHUNKS];
	struct kvpull_reader_record record;
	int32_t codes[CHUNKS];
	uint64_t id;
	uint32_t at;

	connected();
	for (at = 0; at < CHUNKS - 1; at++)
		(void)fill(at, at + 1);
	probe(places, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, CHUNKS - 1);
	assert_int_equal(places[CHUNKS - 1].chunk, KVPULL_READER_NONE);
	places[CHUNKS - 1] = places[0]; /* the same source twice */
	assert_int_equal(read_begin(places, record.incarnation, codes, &id), 0);
	await(id, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, CHUNKS);
	for (at = 0; at < CHUNKS; at++) {
		assert_int_equal(codes[at], 0);
		assert_int_equal(blocks[at][CHUNK_BYTES - 1],
				 at == CHUNKS - 1 ? 1 : at + 1);
	}
}

UNIT_TEST_WITH(a_piece_that_was_bumped_is_stale_and_others_are_good, setup,
	       teardown)
{
	struct kvpull_reader_place places[CHUNKS];
	struct kvpull_reader_record record;
	int32_t codes[CHUNKS];
	uint64_t generation;
	uint64_t now;
	uint64_t id;
	uint32_t at;

	connected();
	for (at = 0; at < CHUNKS; at++)
		(void)fill(at, at + 1);
	probe(places, &record);
	generation = fill(3, 99);
	assert_int_equal(ops->generation(owner, 3, &now), 0);
	assert_int_equal(now, generation);
	assert_int_equal(read_begin(places, record.incarnation, codes, &id), 0);
	await(id, &record);
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(record.count, CHUNKS - 1);
	for (at = 0; at < CHUNKS; at++)
		assert_int_equal(codes[at], at == 3 ? KVPULL_ESTALE : 0);
	assert_int_equal(read_begin(places, record.incarnation + 1, codes, &id),
			 KVPULL_ESTALE);
}

UNIT_TEST_WITH(after_unshare_nothing_is_believed_and_nobody_let_in, setup,
	       teardown)
{
	struct kvpull_reader_place places[CHUNKS];
	struct kvpull_reader_record record;
	int32_t codes[CHUNKS];
	char address[512];
	size_t byte_count;
	uint64_t id;
	uint32_t at;

	connected();
	for (at = 0; at < CHUNKS; at++)
		(void)fill(at, at + 1);
	probe(places, &record);
	assert_int_equal(
		ops->address(owner, address, sizeof(address), &byte_count), 0);
	assert_int_equal(ops->unshare(owner), 0);
	assert_int_equal(read_begin(places, record.incarnation, codes, &id), 0);
	await(id, &record);
	assert_int_equal(record.count, 0);
	for (at = 0; at < CHUNKS; at++)
		assert_int_equal(codes[at], KVPULL_ESTALE);
	assert_int_equal(ops->peer_remove(reader, peer), 0);
	while (ops->peer_add(reader, address, &peer))
		(void)turn(&record);
	assert_int_equal(settle(), KVPULL_EPEER);
	assert_non_null(strstr(heard[1].all, "share is ended there"));
	assert_int_equal(ops->unshare(owner), KVPULL_EINVAL);
	assert_int_equal(put_under(0, 1, 1, 1), KVPULL_EINVAL);
}

UNIT_TEST_WITH(probe_and_read_take_as_many_as_they_say, setup, teardown)
{
	enum {
		MOST = KVPULL_READER_ITEMS_MAX
	};
	static uint8_t many[MOST][CHUNK_BYTES];
	static struct kvpull_reader_key keys[MOST + 1];
	static struct kvpull_reader_place places[MOST + 1];
	static struct kvpull_reader_piece pieces[MOST + 1];
	static int32_t codes[MOST + 1];
	struct kvpull_reader_probe asks = { .struct_size = sizeof(asks),
					    .keys = keys,
					    .key_bytes = sizeof(keys[0]),
					    .places = places,
					    .place_bytes = sizeof(places[0]) };
	struct kvpull_reader_read reads = { .struct_size = sizeof(reads),
					    .pieces = pieces,
					    .piece_bytes = sizeof(pieces[0]),
					    .codes = codes };
	const uint64_t number = 1;
	struct kvpull_reader_record record;
	uint64_t id;
	uint32_t at;

	connected();
	(void)fill(0, number);
	for (at = 0; at <= MOST; at++)
		keys[at] =
			(struct kvpull_reader_key){ &number, sizeof(number) };
	asks.peer = reads.peer = peer;
	assert_int_equal(
		ops->local_add(reader, many, CHUNK_BYTES, MOST, &reads.local),
		0);
	asks.key_count = MOST + 1;
	assert_int_equal(ops->probe(reader, &asks, &id), KVPULL_EINVAL);
	asks.key_count = MOST;
	assert_int_equal(ops->probe(reader, &asks, &id), 0);
	await(id, &record);
	assert_int_equal(record.count, MOST);
	for (at = 0; at < MOST; at++)
		pieces[at] =
			(struct kvpull_reader_piece){ places[at].chunk, at,
						      places[at].generation };
	reads.incarnation = record.incarnation;
	reads.piece_count = MOST + 1;
	assert_int_equal(ops->read(reader, &reads, &id), KVPULL_EINVAL);
	reads.piece_count = MOST;
	assert_int_equal(ops->read(reader, &reads, &id), 0);
	await(id, &record);
	assert_int_equal(record.count, MOST);
}

UNIT_TEST_WITH(another_namespace_is_refused_by_name_on_both_sides, setup,
	       teardown)
{
	struct kvpull_reader_probe params = { .struct_size = sizeof(params) };
	uint64_t number = 1;
	const struct kvpull_reader_key key = { &number, sizeof(number) };
	struct kvpull_reader_place place;
	uint64_t id;

	connect_to_owner("w2");
	assert_int_equal(settle(), KVPULL_EREJECTED);
	assert_non_null(strstr(
		heard[0].all,
		"reader refused: weights is w1 here and w2 there (EREJECTED)"));
	assert_non_null(
		strstr(heard[1].all, "weights is w1 there and w2 here"));
	params.peer = peer;
	params.key_count = 1;
	params.keys = &key;
	params.key_bytes = sizeof(key);
	params.places = &place;
	params.place_bytes = sizeof(place);
	assert_int_equal(ops->probe(reader, &params, &id), KVPULL_EREJECTED);
}

UNIT_TEST_WITH(new_weights_end_what_the_old_ones_began, setup, teardown)
{
	const struct kvpull_model model = model_of("w2");
	const struct kvpull_reader_naming naming = naming_of(&model);
	struct kvpull_reader_place places[CHUNKS];
	struct kvpull_reader_record record;
	int32_t codes[CHUNKS];
	uint64_t epoch;
	uint64_t generation;
	uint64_t id;
	uint32_t at;

	connected();
	for (at = 0; at < CHUNKS; at++)
		(void)fill(at, at + 1);
	probe(places, &record);
	assert_int_equal(ops->epoch(owner, &epoch), 0);
	assert_int_equal(ops->guard_bump_all(owner, &naming, NULL), 0);
	assert_int_equal(read_begin(places, record.incarnation, codes, &id), 0);
	await(id, &record);
	assert_int_equal(record.count, 0);
	/* Bytes computed before are not put. */
	assert_int_equal(ops->generation(owner, 0, &generation), 0);
	assert_int_equal(put_under(0, 1, generation, epoch), KVPULL_ESTALE);
	assert_int_equal(put_under(0, 1, generation, epoch + 1), 0);
	/* A reader of the old ones has another key for it. */
	probe(places, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, 0);
	/* And once it has the new ones, too, it asks no peer of the old. */
	assert_int_equal(ops->guard_bump_all(reader, &naming, NULL), 0);
	assert_int_equal(read_begin(places, record.incarnation, codes, &id),
			 KVPULL_ESTALE);
	assert_int_equal(ops->peer_remove(reader, peer), 0);
}

UNIT_TEST_WITH(what_is_not_there_is_refused, setup, teardown)
{
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes = 1,
						   .chunk_count = 1 };
	const uint32_t chunk = CHUNKS;
	struct kvpull_model model = model_of("w1");
	struct kvpull_reader_naming naming = naming_of(&model);
	struct kvpull_reader_params params = { .struct_size = sizeof(params),
					       .naming = &naming,
					       .engine_id = "reader" };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	connected();
	assert_int_equal(ops->share(owner, &share, &memory, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(ops->guard_bump(owner, &chunk, 1, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(ops->guard_bump(reader, &chunk, 0, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(ops->write_end(owner, 0), KVPULL_EINVAL);
	assert_int_equal(ops->peer_remove(reader, 63), KVPULL_EINVAL);
	assert_int_equal(ops->peer_add(reader, "shm:/nowhere", &peer),
			 KVPULL_EROUTE);
	assert_int_equal(ops->cancel(reader, 1), KVPULL_EINVAL);
	/* The first id of a spill; this pool has no file. */
	assert_int_equal(ops->cancel(reader, KVPULL_READER_OPEN_MAX),
			 KVPULL_EINVAL);
	assert_int_equal(
		ops->peers(NULL, NULL, 0, sizeof(struct kvpull_reader_peer)),
		KVPULL_EINVAL);
	assert_int_equal(ops->poll(reader, NULL, 1, 24), KVPULL_EINVAL);
	assert_int_equal(ops->poll(NULL, NULL, 0, 24), KVPULL_EINVAL);
	naming.hash = NULL;
	assert_int_equal(ops->open(&params, NULL, NULL), KVPULL_EINVAL);
	ops->close(reader);
	assert_int_equal(ops->open(&params, &reader, &detail), KVPULL_EINVAL);
	assert_string_equal(detail.field, "hash");
	naming = naming_of(&model);
	params.config_json = "{\"lease_ms\":0}";
	assert_int_equal(ops->open(&params, &reader, &detail), KVPULL_ECONFIG);
	assert_string_equal(detail.field, "lease_ms");
	reader = NULL;
	ops->close(NULL);
}

#define refused(call) assert_int_equal((call), KVPULL_EINVAL)

/* All else is as it should be. */
UNIT_TEST_WITH(call_without_a_handle_is_refused, setup, teardown)
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
	struct kvpull_reader_record record;
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
	const struct kvpull_model model = model_of("w1");
	const struct kvpull_reader_naming naming = naming_of(&model);
	const uint32_t chunk = 0;
	char address[512];
	size_t byte_count;
	uint64_t number;

	assert_int_equal(
		ops->address(owner, address, sizeof(address), &byte_count), 0);
	refused(ops->share(NULL, &share, &memory, NULL));
	refused(ops->unshare(NULL));
	refused(ops->address(NULL, address, sizeof(address), &byte_count));
	refused(ops->guard_bump(NULL, &chunk, 1, NULL));
	refused(ops->guard_bump_all(NULL, &naming, NULL));
	refused(ops->generation(NULL, 0, &number));
	refused(ops->epoch(NULL, &number));
	refused(ops->write_begin(NULL, 0));
	refused(ops->write_end(NULL, 0));
	refused(ops->put(NULL, &put));
	refused(ops->spill(NULL, &spills, &number));
	refused(ops->local_add(NULL, blocks, CHUNK_BYTES, CHUNKS, &local));
	refused(ops->peer_add(NULL, address, &peer));
	refused(ops->peer_remove(NULL, 0));
	refused(ops->probe(NULL, &asks, &number));
	refused(ops->read(NULL, &reads, &number));
	refused(ops->cancel(NULL, 1));
	refused(ops->poll(NULL, &record, 1, sizeof(record)));
	refused(ops->event_fd(NULL));
}

UNIT_TEST_WITH(more_items_than_there_can_be_are_refused, setup, teardown)
{
	static const uint64_t name = 1;
	static struct kvpull_reader_key keys[MANY];
	static struct kvpull_reader_place places[MANY];
	static struct kvpull_reader_piece pieces[MANY];
	static struct kvpull_reader_put puts[MANY];
	static int32_t codes[MANY];
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
	assert_int_equal(ops->probe(owner, &probe_all, &id), KVPULL_EINVAL);
	assert_int_equal(ops->read(owner, &read_all, &id), KVPULL_EINVAL);
	assert_int_equal(ops->spill(owner, &spill_all, &id), KVPULL_EINVAL);
}
