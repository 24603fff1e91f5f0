/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shm/world.h"

__attribute__((weak)) uint32_t world_blocks = WORLD_BLOCKS_MAX;

struct kvpull_shm_params world_params(const struct world *world,
				      const char *name)
{
	return (struct kvpull_shm_params){
		.log = &world->log,
		.socket_dir = world->folder,
		.name = name,
		.peers_max = 4,
		.callers_max = WORLD_CALLERS_MAX,
		.ring_records = 16,
		.reads_max = 4,
		.copy_threads = 1,
		.inline_bytes = WORLD_INLINE_BYTES,
		.connect_ns = UINT64_C(1000000000),
		.file_thread = KVPULL_FILE_THREAD_YES,
	};
}

void side_open(struct side *side, const struct kvpull_shm_params *params)
{
	kvpull_arena_init(&side->arena, params->log);
	assert_int_equal(
		kvpull_shm_open(params, &side->arena, &side->transport), 0);
	assert_true(kvpull_arena_ok(&side->arena));
	kvpull_arena_seal(&side->arena);
	side->queue_first = 0;
	side->queue_count = 0;
}

void side_close(struct side *side)
{
	if (!side->transport)
		return;
	side->transport->ops->close(side->transport, kvpull_clock_close_by());
	side->transport = NULL;
	kvpull_arena_fini(&side->arena);
}

void world_memory_make(struct world *world)
{
	uint32_t i;

	assert_int_equal(kvpull_segment_make(&world->kv, "test-kv",
					     world_blocks * WORLD_BLOCK_BYTES,
					     KVPULL_SEGMENT_READ_ONLY, 0,
					     &world->log),
			 0);
	assert_int_equal(
		kvpull_segment_make(&world->entries_memory, "test-entries",
				    WORLD_SLOTS * sizeof(*world->entries),
				    KVPULL_SEGMENT_READ_ONLY, 0, &world->log),
		0);
	world->entries = (void *)world->entries_memory.base;
	for (i = 0; i < world_blocks * WORLD_BLOCK_BYTES / 512; i++)
		memset(world->kv.base + (size_t)i * 512, (int)(i % 251 + 1),
		       512);
	for (i = 0; i < WORLD_SLOTS; i++)
		atomic_store_explicit(&world->entries[i].incarnation,
				      WORLD_INCARNATION, memory_order_relaxed);
	world->serve = (struct kvpull_serve){
		.regions = { { .kind = KVPULL_REGION_PROVIDED,
			       .fd = world->kv.fd,
			       .base = world->kv.base,
			       .bytes = world->kv.bytes } },
		.region_count = 1,
		.slot_count = WORLD_SLOTS,
		.entries = world->entries,
		.entries_fd = world->entries_memory.fd,
	};
}

static void world_memory_unmake(struct world *world)
{
	kvpull_segment_unmake(&world->kv);
	kvpull_segment_unmake(&world->entries_memory);
}

void world_begin(struct world *world)
{
	memset(world, 0, sizeof(*world));
	world->fds_at_start = fds_open();
	(void)snprintf(world->folder, sizeof(world->folder), "%s",
		       "/tmp/kvpull-test-XXXXXX");
	assert_non_null(mkdtemp(world->folder));
	lines_forget();
	world->log = lines_from(KVPULL_LOG_WARN);
	world->now_ns = UINT64_C(1000000000000);
	world->local = mmap(NULL, world_blocks * WORLD_BLOCK_BYTES,
			    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	assert_true(world->local != MAP_FAILED);
}

void world_end(struct world *world)
{
	side_close(&world->d);
	side_close(&world->p);
	(void)munmap(world->local, world_blocks * WORLD_BLOCK_BYTES);
	/* Empty: a listener removes its own socket. */
	assert_int_equal(rmdir(world->folder), 0);
	/* And nobody's descriptor is left behind, whatever the test did. */
	assert_int_equal(fds_open(), world->fds_at_start);
}

void world_serve_as(struct world *world, const struct kvpull_shm_params *params)
{
	struct kvpull_transport *p;

	side_open(&world->p, params);
	p = world->p.transport;
	assert_int_equal(p->ops->serve(p, &world->serve), 0);
}

void world_serve(struct world *world, const char *name)
{
	const struct kvpull_shm_params params = world_params(world, name);
	struct kvpull_transport *p;

	(void)kvpull_serve_number_fds(&world->serve);
	side_open(&world->p, &params);
	p = world->p.transport;
	assert_string_equal(p->ops->address(p), "");
	assert_int_equal(p->ops->serve(p, &world->serve), 0);
	assert_string_equal(p->ops->address(p), name);
}

void world_serve_foreign(struct world *world)
{
	side_close(&world->p);
	world->serve.regions[0].kind = KVPULL_REGION_FOREIGN;
	world->serve.regions[0].fd = -1;
	world_serve(world, "p");
}

void world_open_consumer(struct world *world)
{
	const struct kvpull_shm_params params = world_params(world, "d");

	side_open(&world->d, &params);
}

void world_open(struct world *world)
{
	world_begin(world);
	world_memory_make(world);
	world_serve(world, "p");
	world_open_consumer(world);
}

void world_close(struct world *world)
{
	side_close(&world->d);
	side_close(&world->p);
	world_memory_unmake(world);
	world_end(world);
}

uint32_t side_poll(struct world *world, struct side *side)
{
	struct kvpull_event events[8];
	int count;
	int i;

	if (!side->transport)
		return 0;
	world->now_ns += 1000;
	count = side->transport->ops->poll(side->transport, world->now_ns,
					   events, 8);
	assert_in_range(count, 0, 8);
	for (i = 0; i < count; i++) {
		const uint32_t at = (side->queue_first + side->queue_count) %
				    WORLD_QUEUE_MAX;

		if (events[i].kind == KVPULL_EVENT_NONE)
			continue;
		assert_true(side->queue_count < WORLD_QUEUE_MAX);
		side->queue_count++;
		side->queue[at] = events[i];
		if (events[i].data) {
			memcpy(side->data[at], events[i].data,
			       events[i].data_bytes < 64 ?
				       events[i].data_bytes :
				       64);
			side->queue[at].data = side->data[at];
		}
	}
	return (uint32_t)count;
}

void side_look(struct world *world, struct side *side)
{
	side->transport->ops->disarm(side->transport);
	(void)side_poll(world, side);
}

/* As side_rest(); 1: it was woken, or did not sleep. */
static int side_sleep(struct side *side)
{
	struct kvpull_transport *transport = side->transport;
	struct pollfd fd = { .fd = transport->ops->fd(transport),
			     .events = POLLIN };
	const int is_woken =
		transport->ops->arm(transport) || poll(&fd, 1, 20) > 0;

	transport->ops->disarm(transport);
	return is_woken;
}

void side_rest(struct side *side)
{
	(void)side_sleep(side);
}

struct kvpull_event world_expect(struct world *world, struct side *side,
				 enum kvpull_event_kind kind)
{
	struct kvpull_event event = { .kind = KVPULL_EVENT_NONE };
	uint32_t idle = 0;
	uint32_t turn;

	/* However long it takes, if something of it comes in between. */
	for (turn = 0; turn < WORLD_WAKES_MAX && idle < WORLD_TURNS_MAX &&
		       !side->queue_count;
	     turn++) {
		(void)side_poll(world, &world->p);
		(void)side_poll(world, &world->d);
		if (!side->queue_count)
			idle = side_sleep(side) ? 0 : idle + 1;
	}
	assert_true(side->queue_count > 0);
	event = side->queue[side->queue_first];
	side->queue_first = (side->queue_first + 1) % WORLD_QUEUE_MAX;
	side->queue_count--;
	assert_int_equal(event.kind, kind);
	return event;
}

uint32_t world_peer_down(struct world *world, int32_t code)
{
	const struct kvpull_event event =
		world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);

	assert_int_equal(event.code, code);
	return event.index;
}

const struct kvpull_read *world_read_done(struct world *world, int32_t code)
{
	const struct kvpull_event event =
		world_expect(world, &world->d, KVPULL_EVENT_READ_DONE);

	assert_int_equal(event.index, world->peer);
	assert_int_equal(event.code, code);
	return event.read;
}

void world_call(struct world *world)
{
	struct kvpull_transport *d = world->d.transport;

	assert_int_equal(d->ops->connect(d, "p", &world->peer), 0);
}

void world_greet(struct world *world)
{
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_event event;

	world_call(world);
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	assert_int_equal(event.uid, getuid());
	world->caller = event.index;
	assert_int_equal(p->ops->caller_send(p, world->caller, "who", 3), 0);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.index, world->peer);
	assert_int_equal(event.uid, geteuid());
	assert_int_equal(event.data_bytes, 3);
	assert_memory_equal(event.data, "who", 3);
	assert_int_equal(d->ops->peer_send(d, world->peer, "hello", 5), 0);
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_MESSAGE);
	assert_int_equal(event.index, world->caller);
	assert_int_equal(event.data_bytes, 5);
	assert_memory_equal(event.data, "hello", 5);
}

void world_welcome(struct world *world)
{
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_event event;

	world_greet(world);
	assert_int_equal(
		p->ops->admit(p, world->caller, "welcome", 7, &world->ring), 0);
	assert_non_null(world->ring);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_memory_equal(event.data, "welcome", 7);
}

int world_attach(struct world *world, const struct kvpull_serve *remote)
{
	struct kvpull_transport *d = world->d.transport;

	return d->ops->attach(d, world->peer, remote);
}

void world_connect(struct world *world)
{
	world_welcome(world);
	assert_int_equal(world_attach(world, &world->serve), 0);
}

void world_open_connected(struct world *world)
{
	world_open(world);
	world_connect(world);
}

struct kvpull_read world_read(struct world *world, uint32_t block_count)
{
	uint32_t i;

	for (i = 0; i < block_count; i++) {
		world->ids[i] = world_blocks - 1 - i;
		world->local_ids[i] = i;
	}
	for (i = 1; i <= KVPULL_GROUPS_MAX; i++)
		world->group_first[i] = block_count;
	world->strip = (struct kvpull_strip){
		.remote_block_stride = WORLD_BLOCK_BYTES,
		.local = world->local,
		.local_block_stride = WORLD_BLOCK_BYTES,
		.row_bytes = WORLD_BLOCK_BYTES,
		.row_count = 1,
	};
	memset(world->local, 0, (size_t)block_count * WORLD_BLOCK_BYTES);
	world->slots[0] = 3;
	return (struct kvpull_read){
		.index = 1,
		.strip_count = 1,
		.strips = &world->strip,
		.remote_ids = world->ids,
		.local_ids = world->local_ids,
		.group_first = world->group_first,
		.byte_count = (uint64_t)block_count * WORLD_BLOCK_BYTES,
		.slots = world->slots,
		.entries = world->checked,
		.slot_count = 1,
	};
}

void world_read_verify(const struct world *world, uint32_t block_count)
{
	uint32_t i;

	for (i = 0; i < block_count; i++)
		assert_memory_equal(world->local + (size_t)world->local_ids[i] *
							   WORLD_BLOCK_BYTES,
				    world->kv.base + (size_t)world->ids[i] *
							     WORLD_BLOCK_BYTES,
				    WORLD_BLOCK_BYTES);
}
