/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/worker/node.h"

void node_make(struct node *node, const char *id, const char *more,
	       struct kvpull_worker_setup setup)
{
	struct kvpull_open_params params = world_params(&world_model);
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	char json[512];

	memset(node, 0, sizeof(*node));
	params.engine_id = id;
	setup.params = &params;
	setup.config = &node->config;
	(void)snprintf(
		json, sizeof(json),
		"{\"progress\":\"caller\",\"copy_threads\":0,"
		"\"max_holds\":8,\"peers_max\":4,\"pull_blocks_max\":16,"
		"\"requests_max\":8,\"pulls_max\":4,\"tickets_max\":4%s}",
		more);
	if (kvpull_config_load(&node->config, json, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
	assert_int_equal(kvpull_worker_create(&setup, &node->worker, &detail),
			 0);
	node->memory = worker_register(node->worker);
	node->scheduler = setup.incarnation + 0x1000;
}

void node_send(struct node *node, const struct kvpull_command *command)
{
	uint8_t bytes[WORLD_STEP_BYTES];
	struct kvpull_wire_writer writer = { .data = bytes,
					     .capacity = sizeof(bytes) };
	struct kvpull_step_header header = {
		.incarnation = node->scheduler,
		.first_sequence = node->sequence + 1,
		.record_count = command != NULL,
		.rank_count = 1,
		.ack_incarnations = { node->worker->facts.incarnation },
	};

	kvpull_step_put_header(&writer, &header);
	if (command)
		kvpull_step_put_command(&writer, command);
	node->sequence += header.record_count;
	assert_int_equal(kvpull_worker_step(node->worker, bytes, writer.used),
			 0);
}

void node_hold(struct node *p, uint32_t slot)
{
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_HOLD,
		.slot = slot,
		.key = slot,
		.generation = GENERATION,
	};

	node_send(p, &command);
}

void node_claim(struct node *d, const struct node *p, uint32_t slot)
{
	struct kvpull_ticket_rank rank = { 0 };
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_CLAIM,
		.slot = slot,
		.generation = GENERATION,
		.rank_count = 1,
		.ticket_serial = 1,
		.ranks = &rank,
	};

	rank.incarnation = p->worker->facts.incarnation;
	rank.tag = kvpull_ticket_tag(p->worker->secret, slot, GENERATION);
	kvpull_handover_address_get(&p->worker->handover, rank.address);
	node_send(d, &command);
}

void node_pull(struct node *d)
{
	static const uint32_t remote[2] = { 3, 4 };
	static const uint32_t local[2] = { 5, 6 };
	const struct kvpull_command command =
		world_pull_of(101, 1, remote, local, 2);

	node_send(d, &command);
	assert_int_equal(kvpull_worker_start_loads(d->worker), 0);
}

void node_release(struct node *d)
{
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_RELEASE,
		.ticket_serial = 1,
	};

	node_send(d, &command);
}

void node_poll(struct node *node)
{
	const int count = kvpull_worker_poll(
		node->worker, node->records + node->count,
		RECORDS_MAX - node->count, sizeof(struct kvpull_poll_record));

	assert_true(count >= 0);
	node->count += (uint32_t)count;
}
