// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/share/handle.h"

#include <sys/syscall.h>

/* Later than the machine's: what its own timers wait for does not come. */
#define LOOKS_BEGIN_NS (UINT64_C(1) << 60)

__attribute__((weak)) uint64_t handle_look_ns = 0;

static struct handle_world *present; /* between handle_begin() and handle_end() */

/* In the place of libc's, for the library that is linked to these tests. */
int clock_gettime(clockid_t id, struct timespec *now)
{
	static uint64_t looks;

	if (id != CLOCK_MONOTONIC || !handle_look_ns)
		return (int)syscall(SYS_clock_gettime, id, now);
	*now = kvpull_clock_timespec(LOOKS_BEGIN_NS + looks++ * handle_look_ns);
	return 0;
}

void handle_begin(struct handle_world *world, const char *more)
{
	present = world;
	memset(world, 0, sizeof(*world));
	world->chunk_bytes = HANDLE_CHUNK_BYTES;
	world->chunk_count = HANDLE_CHUNKS;
	world_begin(&world->world);
	world->ops = kvpull_reader_v1();
	(void)snprintf(
		world->config, sizeof(world->config),
		"{\"socket_dir\":\"%s\",\"status\":\"off\",\"copy_threads\":0%s}",
		world->world.folder, more);
}

void handle_end(struct handle_world *world)
{
	world->ops->close(world->reader);
	world->ops->close(world->owner);
	free(world->blocks);
	if (world->directory.base) {
		side_close(&world->world.p);
		kvpull_arena_fini(&world->pool.arena);
		kvpull_segment_unmake(&world->directory);
		kvpull_segment_unmake(&world->world.kv);
		kvpull_segment_unmake(&world->world.entries_memory);
	}
	world_end(&world->world);
}

int handle_down(void **state)
{
	(void)state;
	handle_end(present);
	return 0;
}

struct kvpull_reader_naming handle_naming(struct kvpull_model *model,
					  const char *weights)
{
	const struct kvpull_reader_naming pool = pool_naming();

	*model = *pool.model;
	model->struct_size = sizeof(*model);
	if (weights)
		model->weights = weights;
	return (struct kvpull_reader_naming){
		.struct_size = sizeof(struct kvpull_reader_naming),
		.model = model,
		.hash = pool.hash,
		.seed = pool.seed,
		.tp_size = pool.tp_size,
	};
}

struct kvpull_reader *handle_open(struct handle_world *world, uint32_t who,
				  const char *weights)
{
	struct kvpull_model model;
	const struct kvpull_reader_naming naming =
		handle_naming(&model, weights);
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .context = &world->heard[who],
					  .log = lines_keep,
					  .log_level = KVPULL_LOG_WARN };
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.host = &host,
		.config_json = world->config,
		.naming = &naming,
		.engine_id = who ? "reader" : "owner",
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_reader *opened = NULL;

	world->heard[who] = (struct lines){ 0 };
	if (world->ops->open(&params, &opened, &detail))
		fail_msg("open: %s", detail.message);
	return opened;
}

struct kvpull_reader_share handle_slots(const char *folder, uint32_t slot_count)
{
	return (struct kvpull_reader_share){
		.struct_size = sizeof(struct kvpull_reader_share),
		.chunk_bytes = HANDLE_CHUNK_BYTES,
		.chunk_count = HANDLE_CHUNKS,
		.slot_folder = folder,
		.slot_count = slot_count,
	};
}

void handle_refused(struct handle_world *world,
		    const struct kvpull_reader_share *params, const char *why)
{
	struct kvpull_reader *other = handle_open(world, 0, NULL);
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	assert_int_equal(world->ops->share(other, params, &memory, &detail),
			 KVPULL_EINVAL);
	if (!strstr(detail.message, why))
		fail_msg("%s", detail.message);
	world->ops->close(other);
}

int handle_share_as(struct handle_world *world,
		    const struct kvpull_reader_share *params)
{
	world->memory =
		(struct kvpull_memory){ .struct_size = sizeof(world->memory) };
	return world->ops->share(world->owner, params, &world->memory, NULL);
}

void handle_share(struct handle_world *world,
		  const struct kvpull_reader_share *params)
{
	world->owner = handle_open(world, 0, NULL);
	assert_int_equal(handle_share_as(world, params), 0);
}

void handle_owner(struct handle_world *world)
{
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = world->chunk_bytes,
		.chunk_count = world->chunk_count,
	};

	handle_share(world, &share);
}

void handle_reader(struct handle_world *world)
{
	world->reader = handle_open(world, 1, NULL);
	world->blocks = calloc(HANDLE_BLOCKS, world->chunk_bytes);
	assert_non_null(world->blocks);
	assert_int_equal(world->ops->local_add(world->reader, world->blocks,
					       world->chunk_bytes,
					       HANDLE_BLOCKS, &world->local),
			 0);
}

const char *handle_address(struct handle_world *world,
			   char text[HANDLE_ADDRESS_BYTES])
{
	size_t byte_count;

	assert_int_equal(
		world->ops->address(world->owner, text, 0, &byte_count),
		KVPULL_ETOOSMALL);
	assert_int_equal(world->ops->address(world->owner, text,
					     HANDLE_ADDRESS_BYTES, &byte_count),
			 0);
	assert_int_equal(strlen(text) + 1, byte_count);
	return text;
}

void handle_add(struct handle_world *world, const char *address)
{
	char text[HANDLE_ADDRESS_BYTES];

	if (!address)
		address = handle_address(world, text);
	assert_int_equal(
		world->ops->peer_add(world->reader, address, &world->peer), 0);
}

int handle_turn(struct handle_world *world, struct kvpull_reader_record *record)
{
	if (world->owner)
		assert_int_equal(world->ops->poll(world->owner, NULL, 0,
						  sizeof(*record)),
				 0);
	return world->ops->poll(world->reader, record, !!record,
				sizeof(*record));
}

struct kvpull_reader_peer handle_peer(struct handle_world *world, uint32_t peer)
{
	struct kvpull_reader_peer peers[KVPULL_READER_PEERS_MAX];
	const int count =
		world->ops->peers(world->reader, peers, KVPULL_READER_PEERS_MAX,
				  sizeof(peers[0]));
	int at;

	for (at = 0; at < count; at++)
		if (peers[at].peer == peer)
			return peers[at];
	return (struct kvpull_reader_peer){ .code = KVPULL_EINVAL };
}

int32_t handle_settle(struct handle_world *world)
{
	const uint64_t until = kvpull_clock_ns() + HANDLE_WAIT_NS;
	int32_t code = KVPULL_EAGAIN;

	while (code == KVPULL_EAGAIN && kvpull_clock_ns() < until) {
		assert_int_equal(handle_turn(world, NULL), 0);
		code = handle_peer(world, world->peer).code;
	}
	return code;
}

void handle_await(struct handle_world *world, uint64_t id,
		  struct kvpull_reader_record *record)
{
	const uint64_t until = kvpull_clock_ns() + HANDLE_WAIT_NS;

	while (handle_turn(world, record) == 0)
		assert_true(kvpull_clock_ns() < until);
	assert_int_equal(record->id, id);
}

struct kvpull_share_link *handle_link(struct handle_world *world)
{
	struct kvpull_share_link *link = &world->reader->links[world->peer];

	link->peer.retry.at_ns = 0;
	return link;
}

void handle_until(struct handle_world *world, enum kvpull_peer_state state)
{
	const uint64_t until = kvpull_clock_ns() + HANDLE_WAIT_NS;

	while (handle_link(world)->peer.state != state) {
		assert_int_equal(handle_turn(world, NULL), 0);
		assert_true(kvpull_clock_ns() < until);
	}
}

/* As pool_key() makes them. */
static void key_put(uint8_t bytes[HANDLE_KEY_BYTES], uint64_t number)
{
	memset(bytes, 0, HANDLE_KEY_BYTES);
	bytes[0] = 0x5a;
	memcpy(bytes + 1, &number, sizeof(number));
}

int handle_put(struct handle_world *world, uint32_t chunk, uint64_t key,
	       uint64_t generation, uint64_t epoch)
{
	uint8_t bytes[HANDLE_KEY_BYTES];
	const struct kvpull_reader_put put = {
		.struct_size = sizeof(put),
		.key = { bytes, sizeof(bytes) },
		.chunk = chunk,
		.generation = generation,
		.epoch = epoch,
	};

	key_put(bytes, key);
	return world->ops->put(world->owner, &put);
}

uint64_t handle_fill(struct handle_world *world, uint32_t chunk, uint64_t key)
{
	const struct kvpull_reader_ops *ops = world->ops;
	struct kvpull_reader *owner = world->owner;
	uint64_t generation;
	uint64_t epoch;

	assert_int_equal(ops->guard_bump(owner, &chunk, 1, &generation), 0);
	assert_int_equal(ops->write_begin(owner, chunk), 0);
	memset((uint8_t *)world->memory.base + chunk * world->chunk_bytes,
	       (int)key, world->chunk_bytes);
	assert_int_equal(ops->epoch(owner, &epoch), 0);
	assert_int_equal(handle_put(world, chunk, key, generation, epoch),
			 KVPULL_EAGAIN);
	assert_int_equal(ops->write_end(owner, chunk), 0);
	assert_int_equal(handle_put(world, chunk, key, generation, epoch), 0);
	return generation;
}

void handle_fill_first(struct handle_world *world, uint32_t count)
{
	uint32_t at;

	for (at = 0; at < count; at++)
		(void)handle_fill(world, at, at + 1);
}

int handle_spill(struct handle_world *world, uint32_t first, uint32_t count,
		 uint64_t more, uint64_t deadline_ns, int32_t *codes,
		 uint64_t *id)
{
	uint8_t keys[HANDLE_CHUNKS][HANDLE_KEY_BYTES];
	struct kvpull_reader_put puts[HANDLE_CHUNKS];
	const struct kvpull_reader_spill spill = {
		.struct_size = sizeof(spill),
		.puts = puts,
		.put_bytes = sizeof(puts[0]),
		.codes = codes,
		.put_count = count,
		.deadline_ns = deadline_ns,
	};
	uint32_t at;

	for (at = 0; at < count; at++) {
		key_put(keys[at], first + at + 1 + more);
		puts[at] = (struct kvpull_reader_put){
			.struct_size = sizeof(puts[0]),
			.key = { keys[at], sizeof(keys[at]) },
			.chunk = first + at,
		};
		if (world->ops->generation(world->owner, first + at,
					   &puts[at].generation) ||
		    world->ops->epoch(world->owner, &puts[at].epoch))
			return KVPULL_EINVAL;
	}
	return world->ops->spill(world->owner, &spill, id);
}

void handle_spilled(struct handle_world *world, uint64_t id,
		    struct kvpull_reader_record *record)
{
	const uint64_t until = kvpull_clock_ns() + HANDLE_WAIT_NS;

	while (world->ops->poll(world->owner, record, 1, sizeof(*record)) == 0)
		assert_true(kvpull_clock_ns() < until);
	assert_int_equal(record->id, id);
}

int handle_probe(struct handle_world *world, uint32_t count,
		 struct kvpull_reader_place *places, uint64_t *id)
{
	uint8_t bytes[KVPULL_READER_ITEMS_MAX][HANDLE_KEY_BYTES];
	struct kvpull_reader_key keys[KVPULL_READER_ITEMS_MAX];
	const struct kvpull_reader_probe params = {
		.struct_size = sizeof(params),
		.peer = world->peer,
		.key_count = count,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
	};
	uint32_t at;

	for (at = 0; at < count; at++) {
		key_put(bytes[at], at + 1);
		keys[at] = (struct kvpull_reader_key){ bytes[at],
						       sizeof(bytes[at]) };
	}
	return world->ops->probe(world->reader, &params, id);
}

int handle_read_into(struct handle_world *world, uint32_t first,
		     const struct kvpull_reader_place *places, uint32_t count,
		     uint64_t incarnation, uint64_t deadline_ns, int32_t *codes,
		     uint64_t *id)
{
	struct kvpull_reader_piece pieces[KVPULL_READER_ITEMS_MAX];
	const struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = world->peer,
		.local = world->local,
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.codes = codes,
		.piece_count = count,
		.incarnation = incarnation,
		.deadline_ns = deadline_ns,
	};
	uint32_t at;

	for (at = 0; at < count; at++)
		pieces[at] = (struct kvpull_reader_piece){
			places[at].chunk, first + at, places[at].generation
		};
	return world->ops->read(world->reader, &read, id);
}

int handle_read(struct handle_world *world,
		const struct kvpull_reader_place *places, uint32_t count,
		uint64_t incarnation, int32_t *codes, uint64_t *id)
{
	return handle_read_into(world, 0, places, count, incarnation, 0, codes,
				id);
}

void handle_connect(struct handle_world *world)
{
	handle_reader(world);
	handle_add(world, NULL);
	assert_int_equal(handle_settle(world), 0);
}

uint32_t handle_probed(struct handle_world *world, uint32_t count,
		       struct kvpull_reader_place *places,
		       struct kvpull_reader_record *record)
{
	uint64_t id;

	assert_int_equal(handle_probe(world, count, places, &id), 0);
	handle_await(world, id, record);
	return record->count;
}

int32_t handle_read_end(struct handle_world *world,
			const struct kvpull_reader_place *places,
			uint32_t count, uint64_t incarnation, int32_t *codes)
{
	struct kvpull_reader_record record;
	uint64_t id;

	assert_int_equal(
		handle_read(world, places, count, incarnation, codes, &id), 0);
	handle_await(world, id, &record);
	return record.code;
}

void handle_remove(struct handle_world *world)
{
	assert_int_equal(world->ops->peer_remove(world->reader, world->peer),
			 0);
}

void handle_bump(struct handle_world *world, uint32_t chunk)
{
	assert_int_equal(world->ops->guard_bump(world->owner, &chunk, 1, NULL),
			 0);
}

/* ---- the false owner ---- */

static void false_memory(struct handle_world *world)
{
	struct world *mine = &world->world;

	world_memory_make(mine);
	assert_int_equal(
		kvpull_segment_make(&world->directory, "test-directory",
				    HANDLE_ENTRIES *
					    sizeof(struct kvpull_pool_entry),
				    KVPULL_SEGMENT_READ_ONLY, 0, &mine->log),
		0);
	mine->serve.regions[KVPULL_SHARE_REGION_CHUNKS] =
		mine->serve.regions[0];
	mine->serve.regions[KVPULL_SHARE_REGION_DIRECTORY] =
		(struct kvpull_region_view){ .kind = KVPULL_REGION_PROVIDED,
					     .fd = world->directory.fd,
					     .base = world->directory.base,
					     .bytes = world->directory.bytes };
	mine->serve.region_count = KVPULL_SHARE_REGION_COUNT;
}

void false_owner(struct handle_world *world)
{
	const struct kvpull_reader_naming naming = pool_naming();
	struct pool_world *pool = &world->pool;

	_Static_assert(HANDLE_CHUNKS == WORLD_SLOTS &&
			       HANDLE_CHUNK_BYTES == WORLD_BLOCK_BYTES,
		       "its chunks are the world's blocks");
	false_memory(world);
	kvpull_arena_init(&pool->arena, &world->world.log);
	pool->params = (struct kvpull_pool_params){
		.share = { .incarnation = POOL_INCARNATION,
			   .chunk_count = HANDLE_CHUNKS,
			   .entry_count = HANDLE_ENTRIES,
			   .secret = { 1, 2, 3 } },
		.entries = (void *)world->directory.base,
		.guards = world->world.entries,
	};
	assert_int_equal(
		kvpull_pool_namespace_make(&naming, &pool->namespace_digest),
		0);
	pool->pool = kvpull_pool_open(&pool->params, &pool->arena);
	assert_non_null(pool->pool);
	world_serve(&world->world, "false");
}

void false_begin(struct handle_world *world, const char *more)
{
	handle_begin(world, more);
	false_owner(world);
	handle_reader(world);
	handle_add(world, "shm:false");
}

struct kvpull_event false_event(struct handle_world *world,
				enum kvpull_event_kind kind)
{
	const uint64_t until = kvpull_clock_ns() + HANDLE_WAIT_NS;
	struct kvpull_transport *route = world->world.p.transport;
	struct kvpull_event event = { .kind = KVPULL_EVENT_NONE };

	while (event.kind == KVPULL_EVENT_NONE) {
		assert_true(kvpull_clock_ns() < until);
		if (world->reader)
			(void)handle_turn(world, NULL);
		if (!route->ops->poll(route, kvpull_clock_ns(), &event, 1))
			event.kind = KVPULL_EVENT_NONE;
	}
	assert_int_equal(event.kind, kind);
	if (kind == KVPULL_EVENT_CALLER_DOWN)
		route->ops->forget(route, event.index);
	return event;
}

void false_say(struct handle_world *world, const void *bytes, size_t count)
{
	struct kvpull_transport *route = world->world.p.transport;

	assert_int_equal(
		route->ops->caller_send(route, world->caller, bytes, count), 0);
}

void false_challenge(struct handle_world *world)
{
	uint8_t bytes[256];

	world->caller = false_event(world, KVPULL_EVENT_CALLER_UP).index;
	randombytes_buf(world->nonce, sizeof(world->nonce));
	false_say(world, bytes,
		  kvpull_handshake_put_challenge(bytes, sizeof(bytes),
						 world->nonce));
}

void false_hello(struct handle_world *world)
{
	const struct kvpull_event event =
		false_event(world, KVPULL_EVENT_CALLER_MESSAGE);

	assert_int_equal(kvpull_share_get_hello(event.data, event.data_bytes,
						NULL, world->nonce,
						&world->hello),
			 0);
}

void false_refuse(struct handle_world *world, int32_t code)
{
	struct kvpull_refusal refusal;
	uint8_t bytes[2048];

	kvpull_refusal_texts(&refusal, code, "mood", "bad", "good");
	false_say(world, bytes,
		  kvpull_handshake_put_refusal(bytes, sizeof(bytes), &refusal));
}

void false_welcome(const struct handle_world *world,
		   struct kvpull_share_welcome *welcome)
{
	const struct kvpull_pool_share *share = &world->pool.params.share;

	memset(welcome, 0, sizeof(*welcome));
	welcome->incarnation = share->incarnation;
	welcome->chunk_bytes = HANDLE_CHUNK_BYTES;
	welcome->guards_address = (uintptr_t)world->world.entries;
	welcome->entry_count = share->entry_count;
	welcome->chunk_count = share->chunk_count;
	welcome->region_count = KVPULL_SHARE_REGION_COUNT;
	memcpy(welcome->namespace_digest, world->pool.namespace_digest.bytes,
	       sizeof(welcome->namespace_digest));
	memcpy(welcome->secret, share->secret, sizeof(welcome->secret));
	kvpull_welcome_regions_put(welcome->regions, &world->world.serve);
}

void false_admit(struct handle_world *world,
		 const struct kvpull_share_welcome *welcome)
{
	struct kvpull_transport *route = world->world.p.transport;
	uint8_t bytes[4096];
	const size_t count = kvpull_share_put_welcome(
		bytes, sizeof(bytes), welcome, NULL, world->hello.nonce);

	assert_true(count > 0);
	assert_int_equal(route->ops->admit(route, world->caller, bytes, count,
					   &world->world.ring),
			 0);
}

void false_connect(struct handle_world *world)
{
	struct kvpull_share_welcome welcome;

	false_challenge(world);
	false_hello(world);
	false_welcome(world, &welcome);
	false_admit(world, &welcome);
	assert_int_equal(handle_settle(world), 0);
}
