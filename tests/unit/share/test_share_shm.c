/* SPDX-License-Identifier: Apache-2.0 */
/* The reader over the route of one node: real mappings, copies by a thread. */
#include "plugin/share/reader.h"
#include "tests/unit/pool/world.h"
#include "tests/unit/shm/world.h"

#define ENTRIES 64u
#define CHUNKS WORLD_SLOTS

uint32_t world_blocks = CHUNKS;

static struct world world;
static struct kvpull_shared directory;
static struct pool_world owner;
static struct kvpull_arena arena;
static struct kvpull_share_reader *reader;
static uint32_t peer;
static uint32_t local;

static void put(uint64_t key, uint32_t place)
{
	assert_int_equal(kvpull_pool_bump(owner.pool, &place, 1, NULL), 0);
	memset(world.kv.base + place * WORLD_BLOCK_BYTES, (int)key,
	       WORLD_BLOCK_BYTES);
	assert_int_equal(pool_put(&owner, key, place), 0);
}

/* As pool_world_open(), in memory that is handed over. */
static void owner_open(void)
{
	const struct kvpull_reader_naming naming = pool_naming();

	assert_int_equal(
		kvpull_segment_make(&directory, "test-directory",
				    ENTRIES * sizeof(struct kvpull_pool_entry),
				    KVPULL_SEGMENT_READ_ONLY, 0, &world.log),
		0);
	world.serve.regions[KVPULL_SHARE_REGION_CHUNKS] =
		world.serve.regions[0];
	world.serve.regions[KVPULL_SHARE_REGION_DIRECTORY] =
		(struct kvpull_region_view){ .kind = KVPULL_REGION_PROVIDED,
					     .fd = directory.fd,
					     .base = directory.base,
					     .bytes = directory.bytes };
	world.serve.region_count = KVPULL_SHARE_REGION_COUNT;
	memset(&owner, 0, sizeof(owner));
	kvpull_arena_init(&owner.arena, &world.log);
	owner.params = (struct kvpull_pool_params){
		.share = { .incarnation = POOL_INCARNATION,
			   .chunk_count = CHUNKS,
			   .entry_count = ENTRIES,
			   .secret = { 1, 2, 3 } },
		.entries = (void *)directory.base,
		.guards = world.entries,
	};
	assert_int_equal(
		kvpull_pool_namespace_make(&naming, &owner.namespace_digest),
		0);
	owner.pool = kvpull_pool_open(&owner.params, &owner.arena);
	assert_non_null(owner.pool);
}

UNIT_FIXTURE(setup)
{
	struct kvpull_shm_params params;
	struct kvpull_share_reader_peer is;

	world_begin(&world);
	world_memory_make(&world);
	owner_open();
	world_serve(&world, "p");
	params = world_params(&world, "d");
	params.reads_max = KVPULL_READER_OPEN_MAX;
	params.inline_bytes = WORLD_BLOCK_BYTES; /* more: by the thread */
	side_open(&world.d, &params);
	world_connect(&world);
	kvpull_arena_init(&arena, &world.log);
	reader = kvpull_share_reader_open(&owner.namespace_digest, &arena);
	assert_non_null(reader);
	is = (struct kvpull_share_reader_peer){
		.transport = world.d.transport,
		.handle = world.peer,
		.share = owner.params.share,
		.namespace_digest = owner.namespace_digest,
		.chunk_bytes = WORLD_BLOCK_BYTES,
	};
	assert_int_equal(
		kvpull_share_reader_peer_add(reader, &is, &world.serve, &peer),
		0);
	assert_int_equal(kvpull_share_reader_local_add(reader, world.local,
						       WORLD_BLOCK_BYTES,
						       CHUNKS, &local),
			 0);
}

UNIT_FIXTURE(teardown)
{
	kvpull_pool_close(owner.pool);
	kvpull_arena_fini(&owner.arena);
	kvpull_arena_fini(&arena);
	kvpull_segment_unmake(&directory);
	world_close(&world);
}

static void await(struct kvpull_share_reader_end *end)
{
	struct kvpull_transport *d = world.d.transport;
	struct kvpull_event events[8];
	uint32_t turn;
	int count;
	int at;

	for (turn = 0; turn < WORLD_TURNS_MAX; turn++) {
		if (kvpull_share_reader_end(reader, end))
			return;
		world.now_ns += 1000;
		count = d->ops->poll(d, world.now_ns, events, 8);
		for (at = 0; at < count; at++)
			kvpull_share_reader_take(reader, d, &events[at]);
		kvpull_share_reader_work(reader, world.now_ns);
		if (!count)
			side_rest(&world.d);
	}
	fail_msg("no end came");
}

/* Probe keys 1 to CHUNKS; the pieces go each into the block of its key. */
static void probe_all(struct kvpull_reader_piece pieces[CHUNKS])
{
	struct kvpull_pool_key keys[CHUNKS];
	const struct kvpull_share_reader_probe probe = { .peer = peer,
							 .key_count = CHUNKS,
							 .keys = keys };
	struct kvpull_share_reader_end end;
	uint64_t id;
	uint32_t at;

	for (at = 0; at < CHUNKS; at++)
		keys[at] = pool_key(&owner, at + 1);
	assert_int_equal(kvpull_share_reader_probe(reader, &probe, &id), 0);
	await(&end);
	assert_int_equal(end.code, 0);
	for (at = 0; at < CHUNKS; at++) {
		assert_int_equal(end.found[at].memory.index, at);
		pieces[at] = (struct kvpull_reader_piece){
			.chunk = at,
			.block = at,
			.generation = end.found[at].memory.generation,
		};
	}
}

/* Every chunk is put, and a read of all pieces is filled in. */
static struct kvpull_reader_read
read_of_all(struct kvpull_reader_piece pieces[CHUNKS])
{
	uint32_t at;

	for (at = 0; at < CHUNKS; at++)
		put(at + 1, at);
	probe_all(pieces);
	return (struct kvpull_reader_read){
		.peer = peer,
		.local = local,
		.piece_count = CHUNKS,
		.pieces = pieces,
		.incarnation = POOL_INCARNATION,
	};
}

static void read_to_end(const struct kvpull_reader_read *read,
			struct kvpull_share_reader_end *end)
{
	uint64_t id;

	assert_int_equal(kvpull_share_reader_read(reader, read, &id), 0);
	await(end);
}

UNIT_TEST_WITH(pieces_are_read_from_mapped_memory_and_checked, setup, teardown)
{
	struct kvpull_reader_piece pieces[CHUNKS];
	struct kvpull_share_reader_end end;
	/* A single chunk is copied at once, eight are copied by the thread. */
	struct kvpull_reader_read read = read_of_all(pieces);
	uint32_t at;

	read_to_end(&read, &end);
	assert_int_equal(end.code, 0);
	for (at = 0; at < CHUNKS * WORLD_BLOCK_BYTES; at++)
		assert_int_equal(world.local[at], at / WORLD_BLOCK_BYTES + 1);
	/* Refilled with its own key: another generation all the same. */
	put(3, 2);
	read_to_end(&read, &end);
	for (at = 0; at < CHUNKS; at++)
		assert_int_equal(end.codes[at], at == 2 ? KVPULL_ESTALE : 0);
	read.piece_count = 1;
	read_to_end(&read, &end);
	assert_int_equal(end.code, 0);
}

UNIT_TEST_WITH(an_owner_that_ended_is_believed_nothing, setup, teardown)
{
	struct kvpull_reader_piece pieces[CHUNKS];
	struct kvpull_share_reader_end end;
	const struct kvpull_reader_read read = read_of_all(pieces);
	uint32_t at;

	kvpull_pool_close(owner.pool);
	read_to_end(&read, &end);
	for (at = 0; at < CHUNKS; at++)
		assert_int_equal(end.codes[at], KVPULL_ESTALE);
}

static void probe_begin(uint64_t number, uint64_t *id)
{
	const struct kvpull_pool_key key = pool_key(&owner, number);
	const struct kvpull_share_reader_probe probe = { .peer = peer,
							 .key_count = 1,
							 .keys = &key };

	assert_int_equal(kvpull_share_reader_probe(reader, &probe, id), 0);
}

UNIT_TEST_WITH(a_mapped_directory_is_judged_where_it_lies, setup, teardown)
{
	struct kvpull_share_reader_end end;
	struct kvpull_pool_key key = pool_key(&owner, 1);
	struct kvpull_pool_entry *window =
		owner.params.entries +
		kvpull_pool_window(&owner.params.share, &key);
	const uint32_t place = 3;
	uint64_t id;
	uint32_t at;

	put(1, place);
	probe_begin(1, &id);
	/* No poll brought it. */
	assert_int_equal(kvpull_share_reader_end(reader, &end), 1);
	assert_true(end.id == id);
	assert_int_equal(end.code, 0);
	assert_int_equal(end.found[0].memory.index, place);
	/* Half of another write: its seal is not that of what is there. */
	for (at = 0; at < KVPULL_POOL_WINDOW; at++)
		atomic_fetch_add_explicit(&window[at].words[6], 1,
					  memory_order_relaxed);
	probe_begin(1, &id);
	assert_int_equal(kvpull_share_reader_end(reader, &end), 1);
	assert_int_equal(end.code, 0);
	assert_int_equal(end.found[0].memory.index, KVPULL_NONE);
	assert_int_equal(kvpull_pool_bump(owner.pool, &place, 1, NULL), 0);
	probe_begin(1, &id);
	assert_int_equal(kvpull_share_reader_end(reader, &end), 1);
	assert_int_equal(end.found[0].memory.index, KVPULL_NONE);
}

UNIT_TEST_WITH(a_lost_owners_directory_is_not_looked_at, setup, teardown)
{
	struct kvpull_share_reader_end end;
	uint64_t id;

	put(1, 3);
	world.d.transport->ops->disconnect(world.d.transport, world.peer);
	/* The end has not been reported yet. */
	probe_begin(1, &id);
	assert_int_equal(kvpull_share_reader_end(reader, &end), 1);
	assert_int_equal(end.code, KVPULL_EPEER);
}
