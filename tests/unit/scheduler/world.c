/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/scheduler/world.h"

__attribute__((weak)) uint32_t world_groups = 1;
__attribute__((weak)) uint32_t world_group_kinds[KVPULL_GROUPS_MAX];

struct kvpull_config world_config(void)
{
	return (struct kvpull_config){
		.lease_ms = 30000,
		.hold_max_ms = 480000,
		.max_holds = 64,
		.families_max = 16,
		.tickets_max = 16,
		.requests_max = 256,
		.step_log_mib = 1,
		.share_prefix = 1,
		.pull_blocks_max = 1024,
		.pulls_max = 64,
	};
}

/* Each stage has as many layers as the others; the model has one a stage. */
static struct kvpull_stage world_stage(const struct world *world, uint32_t rank)
{
	const uint32_t stage = rank / (world->rank_count / world->pp_size);

	return (struct kvpull_stage){ .rank = rank,
				      .rank_count = world->rank_count,
				      .pp_size = world->pp_size,
				      .layer_first = stage,
				      .layer_end = stage + 1 };
}

struct kvpull_rank_info world_rank_info(const struct world *world,
					uint32_t rank)
{
	const struct world_rank *from = &world->ranks[rank];
	struct kvpull_rank_info info = {
		.incarnation = from->incarnation,
		.generation_floor = from->floor,
		.stage = world_stage(world, rank),
		.slot_count = from->slot_count,
	};

	kvpull_compat_digest(&world->compat, info.compat);
	memset(info.secret, (int)(rank + 1), sizeof(info.secret));
	(void)snprintf(info.address, sizeof(info.address), "shm:worker-%u",
		       rank);
	if (from->address)
		(void)snprintf(info.address, sizeof(info.address), "%s",
			       from->address);
	return info;
}

int world_tell_info(struct world *world, const struct kvpull_rank_info *info)
{
	uint8_t bytes[1024];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };

	kvpull_step_put_rank_info(&writer, info);
	return kvpull_scheduler_rank_info(world->scheduler, bytes, writer.used,
					  world->now_ns);
}

void world_tell_rank(struct world *world, uint32_t rank)
{
	const struct kvpull_rank_info info = world_rank_info(world, rank);

	assert_int_equal(world_tell_info(world, &info), 0);
}

void world_worker_start(struct world *world, uint32_t rank,
			uint64_t incarnation)
{
	world->ranks[rank] = (struct world_rank){
		.incarnation = incarnation,
		.result_first = 1,
		.result_next = 1,
		.slot_count = world->config.max_holds,
	};
}

struct world *world_open_stages(const struct kvpull_config *config,
				uint32_t rank_count, uint32_t pp_size,
				uint64_t incarnation)
{
	struct world *world = (struct world *)calloc(1, sizeof(*world));
	struct kvpull_scheduler_setup setup = {
		.config = config,
		.engine_id = "engine",
		.rank_count = rank_count,
		.pp_size = pp_size,
		.incarnation = incarnation,
	};
	uint32_t group;
	uint32_t rank;

	assert_non_null(world);
	world->config = *config;
	world->rank_count = rank_count;
	world->pp_size = world->compat.layer_count = pp_size;
	world->now_ns = KVPULL_NS_PER_S;
	world->log = lines_from(KVPULL_LOG_WARN);
	world->log.context = &world->lines;
	world->compat.group_count = world_groups;
	for (group = 0; group < world_groups; group++)
		world->compat.groups[group] = (struct kvpull_group){
			.block_tokens = 16, .kind = world_group_kinds[group]
		};
	(void)snprintf(world->compat.model, sizeof(world->compat.model), "m");
	world->scratch.remote_ids =
		(uint32_t *)calloc(KVPULL_TICKET_BLOCKS_MAX, sizeof(uint32_t));
	world->scratch.local_ids =
		(uint32_t *)calloc(KVPULL_TICKET_BLOCKS_MAX, sizeof(uint32_t));
	setup.log = &world->log;
	setup.compat = &world->compat;
	assert_int_equal(kvpull_scheduler_create(&setup, &world->scheduler), 0);
	for (rank = 0; rank < rank_count; rank++)
		world_worker_start(world, rank, incarnation * 100 + rank);
	world->fresh = kvpull_scheduler_digest(world->scheduler);
	return world;
}

struct world *world_open_silent(const struct kvpull_config *config,
				uint32_t tp_size, uint64_t incarnation)
{
	return world_open_stages(config, tp_size, 1, incarnation);
}

struct world *world_open(const struct kvpull_config *config, uint32_t tp_size,
			 uint64_t incarnation)
{
	struct world *world = world_open_silent(config, tp_size, incarnation);
	uint32_t rank;

	for (rank = 0; rank < tp_size; rank++)
		world_tell_rank(world, rank);
	world->fresh = kvpull_scheduler_digest(world->scheduler);
	return world;
}

struct world *world_of(uint32_t tp_size, uint64_t incarnation)
{
	const struct kvpull_config config = world_config();

	return world_open(&config, tp_size, incarnation);
}

struct world *world_of_producer(uint32_t tp_size)
{
	return world_of(tp_size, 7);
}

struct world *world_of_consumer(uint32_t tp_size)
{
	return world_of(tp_size, 9);
}

struct world *world_of_key(int key_byte)
{
	struct kvpull_config config = world_config();

	config.key_set = 1;
	memset(config.key, key_byte, sizeof(config.key));
	return world_open(&config, 1, 9);
}

struct world *world_of_rank_1(void)
{
	const struct kvpull_config config = world_config();
	struct world *world = world_open_silent(&config, 2, 9);

	world_tell_rank(world, 1);
	return world;
}

struct world *world_of_silent(uint32_t tp_size)
{
	const struct kvpull_config config = world_config();

	return world_open_silent(&config, tp_size, 7);
}

void world_close(struct world *world)
{
	kvpull_scheduler_destroy(world->scheduler);
	free(world->scratch.remote_ids);
	free(world->scratch.local_ids);
	free(world);
}

static void world_write_down(struct world *world,
			     const struct kvpull_command *command)
{
	struct world_seen *seen = &world->seen[world->seen_count++];
	uint32_t i;

	assert_true(world->seen_count < WORLD_SEEN_MAX);
	seen->command = *command;
	if (command->kind != KVPULL_COMMAND_PULL)
		return;
	seen->pair_count = command->group_first[command->group_count];
	for (i = 0; i < seen->pair_count && i < 32; i++) {
		seen->remote[i] = command->remote_ids[i];
		seen->local[i] = command->local_ids[i];
	}
}

/* The rule at the top of plugin/scheduler/outbox.c. */
static int world_follows(struct world_rank *rank, uint32_t index,
			 const struct kvpull_step_header *header)
{
	const uint64_t named = header->ack_incarnations[index];

	if (rank->applied)
		return header->first_sequence <= rank->applied + 1;
	if (header->first_sequence == 1)
		return named == rank->incarnation;
	if (named != rank->incarnation || !rank->gap || !header->acks[index])
		return 0;
	rank->applied = header->first_sequence - 1;
	return 1;
}

void world_deliver_to(struct world *world, uint32_t index, const uint8_t *bytes,
		      size_t byte_count)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	struct world_rank *rank = &world->ranks[index];
	struct kvpull_step_header header;
	struct kvpull_command command;
	uint32_t i;

	assert_int_equal(step_check(bytes, byte_count, &world->scratch), 0);
	assert_int_equal(step_get_header(&reader, &header), 0);
	rank->step_incarnation = header.incarnation;
	if (header.ack_incarnations[index] == rank->incarnation &&
	    header.acks[index] >= rank->result_first)
		rank->result_first = header.acks[index] + 1;
	if (!world_follows(rank, index, &header)) {
		rank->gap = 1;
		return;
	}
	rank->gap = 0;
	for (i = 0; i < header.record_count; i++) {
		assert_int_equal(
			step_get_command(&reader, &world->scratch, &command),
			0);
		if (header.first_sequence + i <= rank->applied)
			continue;
		rank->applied = header.first_sequence + i;
		if (index == 0 && !world->blind)
			world_write_down(world, &command);
	}
}

size_t world_build(struct world *world)
{
	size_t byte_count = 0;

	assert_int_equal(
		kvpull_scheduler_step_build(world->scheduler, world->bytes,
					    sizeof(world->bytes), &byte_count,
					    world->now_ns),
		0);
	return byte_count;
}

void world_step(struct world *world)
{
	const size_t byte_count = world_build(world);
	uint32_t rank;

	for (rank = 0; byte_count && rank < world->rank_count; rank++)
		world_deliver_to(world, rank, world->bytes, byte_count);
}

void world_add(struct world *world, uint32_t rank,
	       const struct kvpull_result *result)
{
	struct world_rank *from = &world->ranks[rank];

	from->queue[from->result_next++ % WORLD_QUEUE_MAX] = *result;
}

void world_add_rank(struct world *world, uint32_t rank)
{
	const struct kvpull_result result = {
		.kind = KVPULL_RESULT_RANK,
		.rank = world_rank_info(world, rank),
	};

	world_add(world, rank, &result);
}

void world_worker_replace(struct world *world, uint32_t rank,
			  uint64_t incarnation)
{
	world_worker_start(world, rank, incarnation);
	world_add_rank(world, rank);
	world_tell_rank(world, rank);
}

struct world_said world_say(const struct world *world, uint32_t index)
{
	const struct world_rank *rank = &world->ranks[index];
	struct world_said said = { .byte_count = 0 };
	struct kvpull_wire_writer writer = { said.bytes, sizeof(said.bytes),
					     0 };
	const struct kvpull_result_header header = {
		.incarnation = rank->incarnation,
		.first_sequence = rank->result_first,
		.record_count =
			(uint32_t)(rank->result_next - rank->result_first),
		.rank = index,
		.step_incarnation = rank->step_incarnation,
		.step_sequence = rank->applied,
		.gap = rank->gap,
	};
	uint64_t sequence;

	kvpull_step_put_result_header(&writer, &header);
	for (sequence = rank->result_first; sequence < rank->result_next;
	     sequence++)
		kvpull_step_put_result(
			&writer, &rank->queue[sequence % WORLD_QUEUE_MAX]);
	assert_true(kvpull_wire_fits(&writer));
	said.byte_count = writer.used;
	return said;
}

void world_hears(struct world *world, const struct world_said *said)
{
	assert_int_equal(world_hear(world, said->bytes, said->byte_count), 0);
}

void world_take(struct world *world, uint32_t rank)
{
	const struct world_said said = world_say(world, rank);

	world_hears(world, &said);
}

void world_take_all(struct world *world)
{
	uint32_t rank;

	for (rank = 0; rank < world->rank_count; rank++)
		world_take(world, rank);
}

void world_settle(struct world *world)
{
	uint32_t round;

	for (round = 0; round < 4; round++) {
		world_step(world);
		world_take_all(world);
	}
}

uint32_t world_count(const struct world *world, enum kvpull_command_kind kind)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < world->seen_count; i++)
		count += world->seen[i].command.kind == kind;
	return count;
}

void expect_settled(struct world *world, enum kvpull_command_kind kind,
		    uint32_t count)
{
	world_settle(world);
	assert_int_equal(world_count(world, kind), count);
}

const struct world_seen *world_last(const struct world *world,
				    enum kvpull_command_kind kind)
{
	uint32_t i;

	for (i = world->seen_count; i-- > 0;)
		if (world->seen[i].command.kind == kind)
			return &world->seen[i];
	fail_msg("no command of kind %d was applied", (int)kind);
	return &world->seen[0]; /* not reached; NULL would be warned of */
}

const struct kvpull_command *world_command(const struct world *world,
					   enum kvpull_command_kind kind)
{
	return &world_last(world, kind)->command;
}

void expect_ends(const struct world *world, uint32_t count, int32_t reason)
{
	assert_int_equal(world_count(world, KVPULL_COMMAND_END), count);
	assert_int_equal(world_command(world, KVPULL_COMMAND_END)->reason,
			 reason);
}

static void expect_words(const char *line, const char *words)
{
	if (!strstr(line, words))
		fail_msg("\"%s\" is not in: %s", words, line);
}

void expect_warning(const struct world *world, const char *words)
{
	expect_words(world->lines.of[KVPULL_LOG_WARN], words);
}

void expect_error(const struct world *world, const char *words)
{
	expect_words(world->lines.of[KVPULL_LOG_ERROR], words);
}

void expect_line(const struct world *world, const char *line)
{
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN], line);
}

void expect_fresh(const struct world *world)
{
	assert_true(kvpull_scheduler_digest(world->scheduler) == world->fresh);
}

union kvpull_scheduler_counts world_counts(struct world *world)
{
	union kvpull_scheduler_counts counts;

	kvpull_scheduler_counts(world->scheduler, &counts);
	return counts;
}
