/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated network's reads: blocks are copied out of the producer's
 * memory piece by piece, at times of their own, while the producer goes on.
 */
#include <string.h>

#include "tests/sim/device.h"

static struct sim_transport *of(struct kvpull_transport *transport)
{
	return (struct sim_transport *)transport;
}

static int is_readable(const struct sim_conn *conn)
{
	return conn->server && (conn->server->alive || conn->server->readable);
}

/* The strip of a piece, which is made the piece's number in it. */
static const struct kvpull_strip *strip_of(const struct kvpull_read *read,
					   uint32_t *piece)
{
	const struct kvpull_strip *strip = read->strips;

	for (;; strip++) {
		const uint32_t count =
			read->group_first[strip->group_index + 1] -
			read->group_first[strip->group_index];

		if (*piece < count)
			return strip;
		*piece -= count;
	}
}

static uint64_t bytes_before(const struct kvpull_read *read, uint32_t pieces)
{
	uint64_t bytes = 0;

	while (pieces--) {
		uint32_t piece = pieces;
		const struct kvpull_strip *strip = strip_of(read, &piece);

		bytes += strip->row_bytes * strip->row_count;
	}
	return bytes;
}

/* Copies a block of a strip. */
static void piece_copy(struct sim_proc *proc, struct sim_read *mine,
		       uint32_t piece)
{
	const struct kvpull_read *read = mine->read;
	const struct kvpull_serve *serve = mine->conn->server->transport.serve;
	const struct kvpull_strip *strip = strip_of(read, &piece);
	uint32_t at;
	uint32_t row;

	at = read->group_first[strip->group_index] + piece;
	if (!mine->key || proc->block_key[read->local_ids[at]] != mine->key)
		sim_fail(
			proc->world,
			"process %u: block %u is written for request %llu, which was reported",
			proc->index, read->local_ids[at],
			(unsigned long long)mine->key);
	for (row = 0; row < strip->row_count; row++)
		memcpy(strip->local +
			       read->local_ids[at] * strip->local_block_stride +
			       row * strip->local_row_stride,
		       serve->regions[strip->region_index].base +
			       strip->remote_offset +
			       read->remote_ids[at] *
				       strip->remote_block_stride +
			       row * strip->remote_row_stride,
		       strip->row_bytes);
}

static uint32_t pieces(const struct kvpull_read *read)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < read->strip_count; at++) {
		const uint32_t group = read->strips[at].group_index;

		count +=
			read->group_first[group + 1] - read->group_first[group];
	}
	return count;
}

/* All at once for the consumer; not for the producer. */
int sim_lent_copy(const struct kvpull_mapping *mapping,
		  const struct kvpull_read *read)
{
	struct sim_conn *conn = mapping->context;
	struct sim_proc *proc = conn->client;
	struct sim_world *world = proc->world;
	struct kvpull_read own = *read;
	struct sim_read mine = {
		.read = &own,
		.conn = conn,
		.piece_count = pieces(read),
		.key = proc->block_key[read->local_ids[0]],
	};
	uint32_t at;

	if (!conn->lent || kvpull_mapping_take(conn->lent))
		sim_fail(world, "process %u copies without a pin", proc->index);
	if (!is_readable(conn))
		return KVPULL_EPEER;
	for (at = 0; at < mine.piece_count; at++) {
		piece_copy(proc, &mine, at);
		if (sim_chance(world, 100))
			sim_producer_meanwhile(conn->server);
	}
	world->counts.small++;
	return 0;
}

static void step(struct sim_proc *proc, struct sim_read *mine)
{
	const uint32_t count = mine->piece_count - mine->first;
	uint32_t left = mine->blocks;

	while (left-- && mine->cursor < count) {
		piece_copy(proc, mine,
			   mine->first + (mine->cursor + mine->offset) % count);
		mine->cursor++;
	}
}

/* Tells of a read that was cut: its pieces from the first on without a hole. */
static void done_say(struct sim_world *world, struct sim_read *mine)
{
	const uint32_t tail = mine->piece_count - mine->first - mine->offset;
	uint32_t done = mine->first;

	if (!mine->offset)
		done += mine->cursor;
	else if (mine->cursor > tail)
		done += mine->cursor - tail;
	mine->read->done_bytes = bytes_before(mine->read, done);
	if (done > mine->first)
		world->counts.resumed++;
}

static uint64_t soon(struct sim_world *world)
{
	return world->now_ns + 1000 * sim_below(world, 2 * world->delay_us + 1);
}

/* 0: it can be read. */
static int peer_code(const struct sim_transport *own, uint32_t peer)
{
	const struct sim_conn *conn = own->peers[peer];

	if (conn ? conn->cut : own->was_cut[peer])
		return KVPULL_EABORTED;
	if (!conn || !conn->attached || conn->closing || !is_readable(conn))
		return KVPULL_EPEER;
	if (own->proc->device && conn->mapping != SIM_MAPPED)
		return KVPULL_EPEER;
	return 0;
}

int sim_read_start(struct kvpull_transport *transport, uint32_t peer,
		   struct kvpull_read *read)
{
	struct sim_transport *own = of(transport);
	struct sim_world *world = own->proc->world;
	struct sim_conn *conn = own->peers[peer];
	struct sim_read *mine = &own->reads[read->index];
	const int code = peer_code(own, peer);

	if (code)
		return code;
	if (sim_fault(world, SIM_FAULT_READ_AGAIN, 20))
		return KVPULL_EAGAIN;
	if (mine->active)
		sim_fail(world, "read %u is started twice", read->index);
	*mine = (struct sim_read){
		.active = 1,
		.read = read,
		.conn = conn,
		.at_ns = soon(world),
		.piece_count = pieces(read),
		.blocks = 1 + (uint32_t)sim_below(world, 4),
		.key = own->proc->block_key[read->local_ids[0]],
	};
	while (bytes_before(read, mine->first + 1) <= read->done_bytes)
		mine->first++;
	if (sim_chance(world, 500))
		mine->offset = (uint32_t)sim_below(world, mine->piece_count -
								  mine->first);
	sim_trace(world, "process %u starts read %u for request %u",
		  own->proc->index, read->index, mine->key);
	if (own->proc->device) {
		const int refused = sim_device_read(own, mine);

		mine->active = !refused;
		return refused;
	}
	if (!sim_chance(world, 100))
		return 0;
	mine->blocks = UINT32_MAX;
	step(own->proc, mine);
	mine->active = 0;
	return 1;
}

void sim_read_cancel(struct kvpull_transport *transport, uint32_t peer,
		     struct kvpull_read *read)
{
	struct sim_read *mine = &of(transport)->reads[read->index];

	(void)peer;
	if (!mine->active || mine->read != read || mine->checking)
		return;
	mine->cancelled = 1;
	if (mine->on_device && !mine->done)
		sim_device_cancel(of(transport)->proc, mine, KVPULL_EABORTED);
}

static void check(struct sim_read *mine)
{
	const struct kvpull_serve *serve = mine->conn->server->transport.serve;
	const struct kvpull_read *read = mine->read;
	uint32_t at;

	for (at = 0; at < read->slot_count; at++)
		read->entries[at] = kvpull_revocation_read(
			&serve->entries[read->slots[at]]);
	if (mine->conn->client->device && sim_control == SIM_CONTROL_ENTRY)
		read->entries[0].revoked = 0;
}

int sim_check_start(struct kvpull_transport *transport, uint32_t peer,
		    struct kvpull_read *read)
{
	struct sim_transport *own = of(transport);
	struct sim_world *world = own->proc->world;
	struct sim_conn *conn = own->peers[peer];
	struct sim_read *mine = &own->reads[read->index];
	const int code = peer_code(own, peer);

	if (code)
		return code;
	if (mine->active)
		sim_fail(world, "read %u is checked while it runs",
			 read->index);
	*mine = (struct sim_read){ .active = 1,
				   .checking = 1,
				   .read = read,
				   .conn = conn,
				   .at_ns = soon(world) };
	if (sim_chance(world, 500))
		return 0;
	check(mine);
	mine->active = 0;
	return 1;
}

static void run_one(struct sim_proc *proc, struct sim_read *mine)
{
	struct sim_world *world = proc->world;

	if (!is_readable(mine->conn)) {
		mine->code = KVPULL_EPEER;
		mine->done = 1;
		return;
	}
	if (mine->checking) {
		check(mine);
		mine->done = 1;
		return;
	}
	/* A cancelled read may write a little longer. */
	if (!mine->cancelled || sim_chance(world, 500))
		step(proc, mine);
	mine->at_ns = soon(world);
	if (mine->cursor == mine->piece_count - mine->first) {
		mine->done = 1;
	} else if (mine->cancelled && sim_chance(world, 500)) {
		mine->code = KVPULL_EABORTED;
		mine->done = 1;
	} else if (mine->cancelled && sim_chance(world, world->cuts)) {
		sim_net_cut(mine->conn);
	}
}

void sim_reads_run(struct sim_proc *proc)
{
	const uint64_t now_ns = proc->world->now_ns + proc->clock_extra_ns;
	uint32_t at;

	for (at = 0; at < SIM_READS; at++) {
		struct sim_read *mine = &proc->transport.reads[at];

		if (mine->active && !mine->done && !mine->on_device &&
		    mine->at_ns <= now_ns)
			run_one(proc, mine);
	}
}

void sim_reads_end(struct sim_conn *conn, int32_t code)
{
	uint32_t at;

	for (at = 0; at < SIM_READS; at++) {
		struct sim_read *mine = &conn->client->transport.reads[at];

		if (!mine->active || mine->conn != conn || mine->done)
			continue;
		/* A copy that is queued cannot be taken back: it ends later. */
		if (mine->on_device) {
			sim_device_cancel(conn->client, mine, code);
			continue;
		}
		mine->done = 1;
		mine->code = mine->cancelled ? KVPULL_EABORTED : code;
		if (mine->code == KVPULL_EABORTED && !mine->cancelled &&
		    !mine->checking)
			done_say(conn->client->world, mine);
	}
}

int sim_reads_open(const struct sim_conn *conn)
{
	uint32_t at;

	for (at = 0; at < SIM_READS; at++)
		if (conn->client->transport.reads[at].active &&
		    conn->client->transport.reads[at].conn == conn)
			return 1;
	return 0;
}

uint32_t sim_reads_told(struct sim_transport *transport,
			struct kvpull_event *events, uint32_t capacity)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < SIM_READS && count < capacity; at++) {
		struct sim_read *mine = &transport->reads[at];

		if (!mine->active || !mine->done)
			continue;
		mine->active = 0;
		events[count++] = (struct kvpull_event){
			.kind = mine->checking ? KVPULL_EVENT_CHECK_DONE :
						 KVPULL_EVENT_READ_DONE,
			.code = mine->code,
			.read = mine->read,
		};
	}
	return count;
}
