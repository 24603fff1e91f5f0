/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/worker/world.h"

__attribute__((weak)) uint32_t world_holds = 8;
__attribute__((weak)) uint32_t world_pull_blocks = 16;

struct world *world_of(struct kvpull_transport *transport)
{
	return (struct world *)(void *)transport;
}

struct kvpull_event *world_event(struct world *world,
				 enum kvpull_event_kind kind, uint32_t index)
{
	struct kvpull_event *event = &world->queue[world->queue_count];

	assert_in_range(world->queue_count, 0, WORLD_QUEUE - 1);
	*event = (struct kvpull_event){ .kind = kind,
					.index = index,
					.uid = world->peer_uid };
	event->data = world->data[world->queue_count++];
	return event;
}

static int fake_serve(struct kvpull_transport *transport,
		      const struct kvpull_serve *serve)
{
	(void)transport;
	(void)serve;
	return 0;
}

static const char *fake_address(const struct kvpull_transport *transport)
{
	const struct world *world =
		(const struct world *)(const void *)transport;

	return world->address ? world->address : "self";
}

static int fake_reachable(const struct kvpull_transport *transport,
			  const char *address)
{
	const struct world *world = (const void *)transport;

	/* As verbs: nobody is, before our own memory is known. */
	if (!world->worker->progress->serving)
		return KVPULL_EROUTE;
	return strcmp(address, "nowhere") == 0 ? KVPULL_EROUTE :
						 world->reachable_code;
}

static int fake_connect(struct kvpull_transport *transport, const char *address,
			uint32_t *peer)
{
	struct world *world = world_of(transport);
	uint32_t index = 0;

	world->connects++;
	if (world->connect_code)
		return world->connect_code;
	while (index < WORLD_PEERS && world->peers[index].used)
		index++;
	if (index == WORLD_PEERS)
		return KVPULL_EFULL;
	world->peers[index] = (struct world_peer){ .used = 1 };
	(void)snprintf(world->peers[index].address,
		       sizeof(world->peers[index].address), "%s", address);
	*peer = index;
	return 0;
}

static int fake_peer_send(struct kvpull_transport *transport, uint32_t index,
			  const void *bytes, size_t byte_count)
{
	struct world_peer *peer = &world_of(transport)->peers[index];

	/* Or why it does not take our welcome. */
	if (kvpull_handshake_kind(bytes, byte_count) == KVPULL_MESSAGE_REFUSAL)
		return kvpull_handshake_get_refusal(bytes, byte_count,
						    &peer->refusal);
	assert_int_equal(kvpull_handshake_get_hello(bytes, byte_count, NULL,
						    peer->nonce, &peer->hello),
			 0);
	return 0;
}

static int fake_give(struct kvpull_transport *transport, const char *address,
		     const void *bytes, size_t byte_count, uint32_t *peer)
{
	struct world *world = world_of(transport);
	struct kvpull_give *give = &world->give;

	world->gives++;
	if (world->give_code)
		return world->give_code;
	assert_int_equal(kvpull_give_get(bytes, byte_count, give), 0);
	world->connects--;
	return fake_connect(transport, address, peer);
}

static int fake_attach(struct kvpull_transport *transport, uint32_t index,
		       const struct kvpull_serve *remote)
{
	struct world *world = world_of(transport);

	(void)remote;
	if (world->attach_code)
		return world->attach_code;
	world->peers[index].attached = 1;
	return 0;
}

/* The connection's end comes when the test says so: world_down(). */
static void fake_disconnect(struct kvpull_transport *transport, uint32_t index)
{
	world_of(transport)->peers[index].disconnected++;
}

static int fake_read_start(struct kvpull_transport *transport, uint32_t peer,
			   struct kvpull_read *read)
{
	struct world *world = world_of(transport);

	assert_true(world->peers[peer].attached);
	world->read_starts++;
	if (world->read_code)
		return world->read_code;
	assert_in_range(read->index, 0, WORLD_READS - 1);
	assert_null(world->reads[read->index].read);
	world->reads[read->index] =
		(struct world_read){ .read = read, .peer = peer };
	return 0;
}

static void fake_read_cancel(struct kvpull_transport *transport, uint32_t peer,
			     struct kvpull_read *read)
{
	struct world_read *mine = &world_of(transport)->reads[read->index];

	assert_ptr_equal(mine->read, read);
	assert_int_equal(mine->peer, peer);
	mine->cancelled = 1;
}

void world_entry(const struct world *world, uint32_t peer,
		 struct kvpull_read *read)
{
	read->entries[0] = world->entry;
	if (!read->entries[0].incarnation)
		read->entries[0].incarnation = world->peers[peer].hello.wanted;
}

static int fake_check_start(struct kvpull_transport *transport, uint32_t peer,
			    struct kvpull_read *read)
{
	struct world *world = world_of(transport);

	assert_true(world->peers[peer].attached);
	world_entry(world, peer, read);
	if (world->check_code)
		return world->check_code;
	world->reads[read->index] = (struct world_read){ .read = read,
							 .peer = peer,
							 .checking = 1 };
	return 0;
}

int fake_notify(struct kvpull_transport *transport, uint32_t peer,
		const struct kvpull_record *record)
{
	struct world *world = world_of(transport);

	assert_true(world->peers[peer].attached);
	if (world->notify_code)
		return world->notify_code;
	assert_in_range(world->note_count, 0, WORLD_NOTES - 1);
	world->notes[world->note_count] = *record;
	world->notes[world->note_count++].extra = peer;
	return 0;
}

uint32_t fake_notes_open(const struct kvpull_transport *transport,
			 uint32_t peer)
{
	(void)peer;
	return ((const struct world *)(const void *)transport)->notes_open;
}

static void fake_beat(struct kvpull_transport *transport, uint32_t peer)
{
	world_of(transport)->peers[peer].beats++;
}

static int fake_caller_send(struct kvpull_transport *transport, uint32_t index,
			    const void *bytes, size_t byte_count)
{
	struct world_caller *caller = &world_of(transport)->callers[index];

	return kvpull_handshake_get_challenge(bytes, byte_count, caller->nonce);
}

static int fake_admit(struct kvpull_transport *transport, uint32_t index,
		      const void *welcome, size_t welcome_bytes,
		      struct kvpull_ring **ring)
{
	struct world_caller *caller = &world_of(transport)->callers[index];
	const size_t bytes = kvpull_ring_bytes(16);

	(void)welcome;
	(void)welcome_bytes;
	if (caller->admit_code)
		return caller->admit_code;
	caller->memory = aligned_alloc(64, bytes);
	assert_non_null(caller->memory);
	memset(caller->memory, 0, bytes);
	assert_int_equal(kvpull_ring_init(&caller->ring, caller->memory, 16),
			 0);
	assert_int_equal(
		kvpull_ring_writer_init(&caller->writer, caller->memory, bytes),
		0);
	caller->state = 2;
	*ring = &caller->ring;
	return 0;
}

static void fake_refuse(struct kvpull_transport *transport, uint32_t index,
			const void *refusal, size_t refusal_bytes)
{
	struct world_caller *caller = &world_of(transport)->callers[index];

	/* A call that gives tickets back is not answered. */
	if (!refusal_bytes) {
		caller->closed++;
		caller->state = 0;
		return;
	}
	/* The consumer gets the refusal, whatever the reason. */
	assert_int_equal(kvpull_handshake_get_refusal(refusal, refusal_bytes,
						      &caller->refusal),
			 0);
	caller->refused++;
	caller->state = 0;
}

static void fake_drop(struct kvpull_transport *transport, uint32_t index)
{
	world_of(transport)->callers[index].dropped = 1;
}

static void fake_forget(struct kvpull_transport *transport, uint32_t index)
{
	struct world_caller *caller = &world_of(transport)->callers[index];

	free(caller->memory);
	caller->memory = NULL;
	caller->forgotten++;
	caller->state = 0;
}

static int fake_poll(struct kvpull_transport *transport, uint64_t now_ns,
		     struct kvpull_event *events, uint32_t capacity)
{
	struct world *world = world_of(transport);
	const uint32_t count = world->queue_count;

	(void)now_ns;
	assert_in_range(count, 0, capacity);
	memcpy(events, world->queue, count * sizeof(*events));
	world->queue_count = 0;
	return (int)count;
}

static int fake_arm(struct kvpull_transport *transport)
{
	return world_of(transport)->queue_count > 0;
}

static void fake_disarm(struct kvpull_transport *transport)
{
	(void)transport;
}

static int fake_rings(const struct kvpull_transport *transport)
{
	(void)transport;
	return 0;
}

static int fake_fd(const struct kvpull_transport *transport)
{
	(void)transport;
	return -1;
}

static int fake_doorbell_fd(const struct kvpull_transport *transport)
{
	(void)transport;
	return -1;
}

static void fake_close(struct kvpull_transport *transport, uint64_t close_by_ns)
{
	struct world *world = world_of(transport);
	uint32_t index;

	(void)close_by_ns;
	for (index = 0; index < WORLD_CALLERS; index++)
		free(world->callers[index].memory);
}

const struct kvpull_transport_ops fake_ops = {
	.name = "fake",
	.vouches = 1,
	.serve = fake_serve,
	.address = fake_address,
	.reachable = fake_reachable,
	.connect = fake_connect,
	.peer_send = fake_peer_send,
	.give_bytes_max =
		KVPULL_GIVE_HEAD_BYTES + WORLD_GIVES * KVPULL_GIVE_WORD_BYTES,
	.give = fake_give,
	.attach = fake_attach,
	.disconnect = fake_disconnect,
	.read_start = fake_read_start,
	.read_cancel = fake_read_cancel,
	.check_start = fake_check_start,
	.notify = fake_notify,
	.notes_open = fake_notes_open,
	.beat = fake_beat,
	.caller_send = fake_caller_send,
	.admit = fake_admit,
	.refuse = fake_refuse,
	.drop = fake_drop,
	.forget = fake_forget,
	.poll = fake_poll,
	.arm = fake_arm,
	.disarm = fake_disarm,
	.rings = fake_rings,
	.fd = fake_fd,
	.doorbell_fd = fake_doorbell_fd,
	.close = fake_close,
};

static struct kvpull_transport *
world_transport(void *context, const struct kvpull_log *log, uint32_t at)
{
	struct world *world = context;

	if (at)
		return NULL;
	world->transport.ops = &fake_ops;
	world->transport.log = log;
	world->transport.peer_count_max = WORLD_PEERS;
	world->transport.caller_count_max = WORLD_CALLERS;
	return &world->transport;
}

void world_far(struct world *world)
{
	static struct kvpull_transport_ops far;

	far = *world->transport.ops;
	far.vouches = 0;
	world->transport.ops = &far;
}

static uint64_t world_now(void *context)
{
	struct world *world = context;

	world->now_ns += world->tick_ns;
	return world->now_ns;
}

struct kvpull_open_params world_params(const struct kvpull_model *model)
{
	return (struct kvpull_open_params){
		.struct_size = sizeof(struct kvpull_open_params),
		.model = model,
		.engine_id = "engine",
		.tp_size = 1,
		.groups = &world_group,
		.group_count = 1,
	};
}

struct kvpull_cache world_cache(uint32_t rank, uint32_t size)
{
	return (struct kvpull_cache){
		.struct_size = sizeof(struct kvpull_cache),
		.layer_count = 1,
		.block_stride = WORLD_BLOCK_BYTES / size,
		.head_stride = WORLD_BLOCK_BYTES / 4,
		.block_count = WORLD_BLOCKS,
		.row_count = 1,
		.head_first = rank * (4 / size),
		.head_count = 4 / size,
		.head_bytes = WORLD_BLOCK_BYTES / 4,
	};
}

void world_register(struct world *world)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_region region = { .struct_size = sizeof(region),
					.fd = -1 };
	const struct kvpull_cache cache = world_cache(0, 1);
	const struct kvpull_regions regions = {
		.struct_size = sizeof(regions),
		.regions = &region,
		.caches = &cache,
		.region_count = 1,
		.cache_count = 1,
	};

	assert_int_equal(kvpull_worker_memory_alloc(
				 world->worker,
				 WORLD_BLOCKS * WORLD_BLOCK_BYTES, 0, &memory),
			 0);
	world->memory = memory.base;
	region.base = memory.base;
	region.bytes = WORLD_BLOCKS * WORLD_BLOCK_BYTES;
	if (kvpull_worker_regions_register(world->worker, &regions, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
}

void world_create(struct world *world, const char *more)
{
	struct kvpull_open_params params = world_params(&world_model);
	struct kvpull_worker_setup setup = {
		.params = &params,
		.config = &world->config,
		.log = { .write = lines_keep,
			 .context = &world->lines,
			 .level = KVPULL_LOG_DEBUG },
		.incarnation = 0xd0,
		.transport = world_transport,
		.transport_context = world,
		.now_ns = world_now,
		.now_context = world,
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	char json[512];

	(void)snprintf(json, sizeof(json),
		       "{\"progress\":\"caller\",\"copy_threads\":0,"
		       "\"max_holds\":%u,\"peers_max\":4,"
		       "\"consumers_max\":4,\"pull_blocks_max\":%u,"
		       "\"requests_max\":8,\"lease_ms\":3000,"
		       "\"hold_max_ms\":6000,\"connect_ms\":100,"
		       "\"deadline_ms\":500%s}",
		       world_holds, world_pull_blocks, more);
	if (kvpull_config_load(&world->config, json, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
	world->now_ns = 1000 * WORLD_MS;
	world->incarnation = 0x5c;
	world->peer_uid = world->config.uids[0];
	world->read_code = 0;
	world->check_code = 1;
	assert_int_equal(kvpull_worker_create(&setup, &world->worker, &detail),
			 0);
	world->ack_incarnation = world->worker->facts.incarnation;
}

void world_open(struct world *world, const char *more)
{
	world_create(world, more);
	world_register(world);
}

int world_begin(void **state, const char *more)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	world_open(world, more);
	*state = world;
	return 0;
}

int world_setup(void **state)
{
	return world_begin(state, ",\"pulls_max\":4,\"tickets_max\":4");
}

int world_teardown(void **state)
{
	struct world *world = *state;

	world->tick_ns = 20 * WORLD_MS;
	if (world->worker)
		kvpull_worker_destroy(world->worker);
	free(world);
	return 0;
}

void world_poll(struct world *world, uint32_t times)
{
	while (times--) {
		const int count = kvpull_worker_poll(
			world->worker, world->records + world->record_count,
			64 - world->record_count,
			sizeof(struct kvpull_poll_record));

		assert_true(count >= 0);
		world->record_count += (uint32_t)count;
	}
}

void world_pass(struct world *world, uint64_t ns)
{
	world->now_ns += ns;
	world_poll(world, 1);
}

int world_send_code(struct world *world, const struct kvpull_command *commands,
		    uint32_t count)
{
	uint8_t bytes[WORLD_STEP_BYTES];
	struct kvpull_wire_writer writer = { .data = bytes,
					     .capacity = sizeof(bytes) };
	struct kvpull_step_header header = {
		.incarnation = world->incarnation,
		.first_sequence = world->sequence + 1,
		.record_count = count,
		.rank_count = 1,
		.acks = { world->ack },
		.ack_incarnations = { world->ack_incarnation },
	};
	uint32_t index;

	kvpull_step_put_header(&writer, &header);
	for (index = 0; index < count; index++)
		kvpull_step_put_command(&writer, &commands[index]);
	assert_true(kvpull_wire_fits(&writer));
	world->sequence += count;
	return kvpull_worker_step(world->worker, bytes, writer.used);
}

void world_send(struct world *world, const struct kvpull_command *commands,
		uint32_t count)
{
	assert_int_equal(world_send_code(world, commands, count), 0);
}

static uint64_t world_rank_incarnation(uint64_t serial, uint32_t rank)
{
	return 0xa000 + serial / 100 * 16 + rank;
}

void world_claim(struct world *world, uint64_t serial, uint32_t ranks)
{
	struct kvpull_ticket_rank rank[WORLD_RANKS_MAX] = { 0 };
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_CLAIM,
		.slot = (uint32_t)(serial % 100),
		.generation = serial,
		.rank_count = ranks,
		.ticket_serial = serial,
		.ranks = rank,
		.priority = world->priority,
		.label = "cmpl-7",
	};
	uint32_t index;

	for (index = 0; index < ranks; index++) {
		rank[index].incarnation = world_rank_incarnation(serial, index);
		rank[index].tag = serial * 10 + index;
		(void)snprintf(rank[index].address, sizeof(rank[index].address),
			       "fake:%u-%u", (uint32_t)(serial / 100), index);
	}
	world_send(world, &command, 1);
}

void world_pull_command(struct world *world, uint64_t key, uint64_t serial,
			uint32_t flags)
{
	static const uint32_t remote[2] = { 3, 4 };
	static const uint32_t local[2] = { 5, 6 };
	struct kvpull_command command = {
		.kind = KVPULL_COMMAND_PULL,
		.key = key,
		.flags = flags,
		.ticket_serial = serial,
		.group_count = 1,
		.remote_ids = remote,
		.local_ids = local,
		.priority = world->priority,
		.label = "cmpl-7",
	};

	command.group_first[1] = 2;
	world_send(world, &command, 1);
}

void world_pull(struct world *world, uint64_t key, uint64_t serial,
		uint32_t flags)
{
	world_pull_command(world, key, serial, flags);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
}

void world_command(struct world *world, enum kvpull_command_kind kind,
		   uint64_t key, uint64_t serial)
{
	const struct kvpull_command command = { .kind = kind,
						.key = key,
						.ticket_serial = serial };

	world_send(world, &command, 1);
}

uint32_t world_notes(const struct world *world, uint32_t kind)
{
	uint32_t count = 0;
	uint32_t index;

	for (index = 0; index < world->note_count; index++)
		count += world->notes[index].kind == kind;
	return count;
}

void world_reported(const struct world *world, uint64_t key, uint32_t kind,
		    int32_t reason)
{
	uint32_t found = 0;
	uint32_t index;

	for (index = 0; index < world->record_count; index++) {
		if (world->records[index].key != key)
			continue;
		found++;
		assert_int_equal(world->records[index].kind, kind);
		assert_int_equal(world->records[index].reason, reason);
	}
	assert_int_equal(found, 1);
}

void world_silent(const struct world *world, uint64_t key)
{
	uint32_t index;

	for (index = 0; index < world->record_count; index++)
		assert_int_not_equal(world->records[index].key, key);
}
