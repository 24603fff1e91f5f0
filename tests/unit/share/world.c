// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/share/world.h"

#define TURNS_MAX 10000u

static struct share_world *present;
static const struct kvpull_transport_ops *route_ops;

static int hooked_read(struct kvpull_transport *transport, uint32_t peer,
		       struct kvpull_read *read)
{
	void (*hook)(struct share_world *) = present->before_data;

	present->before_data = NULL;
	if (hook)
		hook(present);
	return route_ops->read_start(transport, peer, read);
}

static int hooked_check(struct kvpull_transport *transport, uint32_t peer,
			struct kvpull_read *read)
{
	void (*hook)(struct share_world *) = present->before_guards;

	present->before_guards = NULL;
	present->checks++;
	if (hook)
		hook(present);
	return route_ops->check_start(transport, peer, read);
}

static void reader_event(struct share_world *world,
			 const struct kvpull_event *event)
{
	int code = KVPULL_EAGAIN;

	if (event->kind == KVPULL_EVENT_PEER_DOWN)
		world->is_down = 1;
	if (event->kind == KVPULL_EVENT_PEER_MESSAGE) {
		while (code == KVPULL_EAGAIN)
			code = world->route->ops->attach(
				world->route, event->index, &world->serve);
		assert_int_equal(code, 0);
		assert_int_equal(kvpull_share_reader_peer_add(
					 world->reader, &world->params,
					 &world->serve, &world->peer),
				 0);
	}
	kvpull_share_reader_take(world->reader, world->route, event);
}

static void owner_event(struct share_world *world,
			const struct kvpull_event *event)
{
	struct kvpull_ring *ring;
	int code = KVPULL_EAGAIN;

	world->caller = event->index;
	if (event->kind == KVPULL_EVENT_CALLER_DOWN)
		world->owner_end->ops->forget(world->owner_end, event->index);
	if (event->kind != KVPULL_EVENT_CALLER_UP)
		return;
	while (code == KVPULL_EAGAIN)
		code = world->owner_end->ops->admit(
			world->owner_end, event->index, "w", 1, &ring);
	assert_int_equal(code, 0);
}

void share_turn(struct share_world *world)
{
	struct kvpull_event events[4];
	int count;
	int at;

	world->now_ns += SHARE_STEP_NS;
	count = world->owner_end->ops->poll(world->owner_end, world->now_ns,
					    events, 4);
	for (at = 0; at < count; at++)
		owner_event(world, &events[at]);
	count = world->route->ops->poll(world->route, world->now_ns, events, 4);
	for (at = 0; at < count; at++)
		reader_event(world, &events[at]);
	kvpull_share_reader_work(world->reader, world->now_ns);
}

static void share_connect(struct share_world *world)
{
	const char *address = world->owner_end->ops->address(world->owner_end);
	uint32_t turns;
	int code = KVPULL_EAGAIN;

	world->peer = KVPULL_NONE;
	world->params.transport = world->route;
	world->params.share = world->owner.params.share;
	world->params.namespace_digest = world->owner.namespace_digest;
	world->params.chunk_bytes = SHARE_CHUNK_BYTES;
	while (code == KVPULL_EAGAIN)
		code = world->route->ops->connect(world->route, address,
						  &world->params.handle);
	assert_int_equal(code, 0);
	for (turns = 0; turns < TURNS_MAX && world->peer == KVPULL_NONE;
	     turns++)
		share_turn(world);
	assert_int_not_equal(world->peer, KVPULL_NONE);
}

struct share_world *share_open(uint64_t seed)
{
	static const struct kvpull_log silent;
	struct share_world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	present = world;
	world->seed = seed;
	pool_world_open(&world->owner, SHARE_CHUNKS, 2, 64);
	world->serve = (struct kvpull_serve){
		.region_count = KVPULL_SHARE_REGION_COUNT,
		.slot_count = SHARE_CHUNKS + 2,
		.entries = world->owner.params.guards,
		.entries_fd = -1,
	};
	world->serve.regions[KVPULL_SHARE_REGION_DIRECTORY].base =
		(uint8_t *)world->owner.params.entries;
	world->serve.regions[KVPULL_SHARE_REGION_DIRECTORY].bytes =
		64 * sizeof(struct kvpull_pool_entry);
	world->serve.regions[KVPULL_SHARE_REGION_CHUNKS].base =
		&world->chunks[0][0];
	world->serve.regions[KVPULL_SHARE_REGION_CHUNKS].bytes =
		sizeof(world->chunks);
	world->net = loop_open(seed);
	world->owner_end = loop_transport(world->net, &silent, 0);
	world->route = loop_transport(world->net, &silent, 0);
	assert_int_equal(
		world->owner_end->ops->serve(world->owner_end, &world->serve),
		0);
	route_ops = world->route->ops;
	world->ops = *route_ops;
	world->ops.read_start = hooked_read;
	world->ops.check_start = hooked_check;
	world->route->ops = &world->ops;
	kvpull_arena_init(&world->arena, &silent);
	world->reader = kvpull_share_reader_open(&world->owner.namespace_digest,
						 &world->arena);
	assert_non_null(world->reader);
	kvpull_arena_seal(&world->arena);
	assert_int_equal(kvpull_share_reader_local_add(
				 world->reader, &world->blocks[0][0],
				 SHARE_CHUNK_BYTES, SHARE_BLOCKS,
				 &world->local),
			 0);
	share_connect(world);
	return world;
}

void share_close(struct share_world *world)
{
	struct kvpull_share_reader_end end;

	world->route->ops->close(world->route, kvpull_clock_close_by());
	world->owner_end->ops->close(world->owner_end, kvpull_clock_close_by());
	(void)loop_close(world->net);
	assert_int_equal(kvpull_share_reader_end(world->reader, &end), 0);
	kvpull_arena_fini(&world->arena);
	pool_world_close(&world->owner);
	free(world);
}

static void fill(uint8_t *chunk, uint64_t key, uint64_t generation)
{
	const uint64_t words[2] = { key, generation };
	uint32_t at;

	for (at = 0; at < SHARE_CHUNK_BYTES; at += sizeof(words))
		memcpy(chunk + at, words, sizeof(words));
}

int share_is_of(const uint8_t *chunk, uint64_t key, uint64_t generation)
{
	uint8_t expected[SHARE_CHUNK_BYTES];

	fill(expected, key, generation);
	return memcmp(chunk, expected, sizeof(expected)) == 0;
}

void share_put(struct share_world *world, uint64_t key, uint32_t place)
{
	struct kvpull_pool *pool = world->owner.pool;
	uint64_t generation;

	assert_int_equal(kvpull_pool_bump(pool, &place, 1, &generation), 0);
	assert_int_equal(kvpull_pool_write_begin(pool, place), 0);
	fill(world->chunks[place], key, generation);
	assert_int_equal(kvpull_pool_write_end(pool, place), 0);
	assert_int_equal(pool_put(&world->owner, key, place), 0);
}

void share_wait(struct share_world *world, struct kvpull_share_reader_end *end)
{
	uint32_t turns;

	for (turns = 0; turns < TURNS_MAX; turns++) {
		if (kvpull_share_reader_end(world->reader, end))
			return;
		share_turn(world);
	}
	fail_msg("no end came");
}

uint32_t share_probe(struct share_world *world, uint64_t number,
		     struct kvpull_pool_found *found)
{
	const struct kvpull_pool_key key = pool_key(&world->owner, number);
	const struct kvpull_share_reader_probe probe = {
		.peer = world->peer,
		.key_count = 1,
		.keys = &key,
	};
	struct kvpull_share_reader_end end;
	uint64_t id;

	assert_int_equal(kvpull_share_reader_probe(world->reader, &probe, &id),
			 0);
	share_wait(world, &end);
	assert_true(end.id == id);
	assert_int_equal(end.code, 0);
	assert_int_equal(end.count, 1);
	assert_null(end.codes);
	assert_true(end.incarnation == POOL_INCARNATION);
	*found = end.found[0];
	return (found->memory.index == KVPULL_NONE ? 0u : 1u) +
	       (found->file.index == KVPULL_NONE ? 0u : 1u);
}

int share_read(struct share_world *world, const struct kvpull_pool_found *found,
	       uint32_t count, uint32_t first, uint64_t *id)
{
	struct kvpull_reader_piece pieces[SHARE_BLOCKS];
	const struct kvpull_reader_read read = {
		.peer = world->peer,
		.local = world->local,
		.piece_count = count,
		.pieces = pieces,
		.incarnation = POOL_INCARNATION,
	};
	uint32_t at;

	assert_true(count <= SHARE_BLOCKS);
	for (at = 0; at < count; at++)
		pieces[at] = (struct kvpull_reader_piece){
			.chunk = found[at].memory.index,
			.block = first + at,
			.generation = found[at].memory.generation,
		};
	return kvpull_share_reader_read(world->reader, &read, id);
}
