/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/worker/world.h"

__attribute__((weak)) uint32_t world_holds = 8;
__attribute__((weak)) uint32_t world_pull_blocks = 16;

static struct kvpull_transport *
world_transport(void *context, const struct kvpull_log *log, uint32_t at)
{
	struct world *world = context;

	if (at)
		return NULL;
	world->ops = fake_ops;
	world->transport.ops = &world->ops;
	world->transport.log = log;
	world->transport.peer_count_max = WORLD_PEERS;
	world->transport.caller_count_max = WORLD_CALLERS;
	return &world->transport;
}

void world_far(struct world *world)
{
	world->ops.vouches = 0;
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

uint8_t *worker_register(struct kvpull_worker *worker)
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

	region.bytes = WORLD_BLOCKS * WORLD_BLOCK_BYTES;
	assert_int_equal(
		kvpull_worker_memory_alloc(worker, region.bytes, 0, &memory),
		0);
	region.base = memory.base;
	if (kvpull_worker_regions_register(worker, &regions, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
	return memory.base;
}

void world_register(struct world *world)
{
	world->memory = worker_register(world->worker);
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

static struct world *world_alloc(void)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	return world;
}

struct world *world_new(const char *more)
{
	struct world *world = world_alloc();

	world_open(world, more);
	return world;
}

int world_begin(void **state, const char *more)
{
	*state = world_new(more);
	return 0;
}

int world_setup(void **state)
{
	return world_begin(state, WORLD_MORE);
}

int world_setup_bare(void **state)
{
	*state = world_alloc();
	world_create(*state, WORLD_MORE);
	return 0;
}

void world_end(struct world *world)
{
	world->tick_ns = 20 * WORLD_MS;
	if (world->worker) {
		/* No thread was started that is to be joined. */
		world->worker->facts.config.progress = KVPULL_PROGRESS_CALLER;
		kvpull_worker_destroy(world->worker);
	}
	free(world);
}

int world_teardown(void **state)
{
	world_end(*state);
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

void world_live(struct world *world, uint64_t ns)
{
	const uint64_t until_ns = world->now_ns + ns;

	while (world->now_ns < until_ns)
		world_pass(world, 100 * WORLD_MS);
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

struct kvpull_command world_pull_of(uint64_t key, uint64_t serial,
				    const uint32_t *remote_ids,
				    const uint32_t *local_ids, uint32_t count)
{
	return (struct kvpull_command){
		.kind = KVPULL_COMMAND_PULL,
		.key = key,
		.ticket_serial = serial,
		.group_count = 1,
		.group_first = { 0, count },
		.remote_ids = remote_ids,
		.local_ids = local_ids,
	};
}

void world_pull_command(struct world *world, uint64_t key, uint64_t serial,
			uint32_t flags)
{
	static const uint32_t remote[2] = { 3, 4 };
	static const uint32_t local[2] = { 5, 6 };
	struct kvpull_command command =
		world_pull_of(key, serial, remote, local, 2);

	command.flags = flags;
	command.priority = world->priority;
	(void)snprintf(command.label, sizeof(command.label), "cmpl-7");
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

uint32_t world_failed_blocks(const struct world *world, uint64_t key,
			     uint32_t room, int code)
{
	uint32_t blocks[4] = { 0 };
	uint32_t count = 0;

	assert_int_equal(kvpull_worker_failed_blocks(world->worker, key, blocks,
						     room, &count),
			 code);
	if (code != KVPULL_ENOKEY)
		assert_int_equal(count, 2);
	if (!code)
		assert_int_equal(blocks[1], blocks[0] + 1);
	return blocks[0];
}
