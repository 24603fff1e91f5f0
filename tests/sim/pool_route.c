/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The route between the processes of a pool: every read is brought by words of
 * eight bytes, in any order, each as it is in the peer's memory at that moment;
 * so are the guards. It ends late, is cut, or hangs until it is cancelled.
 */
#include <string.h>

#include "tests/sim/pool.h"

static struct pool_proc *of(struct kvpull_transport *transport)
{
	return (struct pool_proc *)transport;
}

/* 0: its memory can be read, whatever is in it. */
static int conn_code(const struct pool_conn *conn)
{
	if (conn->state == POOL_CONN_CUT)
		return KVPULL_EABORTED;
	return conn->state == POOL_CONN_UP &&
			       !(conn->is_far &&
				 conn->home->state == POOL_KILLED) ?
		       0 :
		       KVPULL_EPEER;
}

static uint64_t soon(const struct pool_world *world)
{
	return world->sim->turn + sim_pool_pick(world, 4);
}

/* Words of an item of a read: a window, a chunk, a guard. */
static uint32_t words_of(const struct pool_read *mine)
{
	return mine->is_check ? 2 :
				(uint32_t)(mine->read->strips->row_bytes / 8);
}

static const uint64_t *remote_word(const struct pool_proc *proc,
				   const struct pool_read *mine, uint32_t item,
				   uint32_t word)
{
	const struct pool_world *world = proc->world;
	const struct pool_home *home = mine->conn->home;
	const struct kvpull_strip *strip = mine->read->strips;
	const int is_chunk = strip->region_index == KVPULL_SHARE_REGION_CHUNKS;
	const uint64_t bytes =
		is_chunk ? (uint64_t)world->chunks * world->words * 8 :
			   world->entries * sizeof(struct kvpull_pool_entry);
	const uint64_t offset =
		strip->remote_offset +
		mine->read->remote_ids[item] * strip->remote_block_stride;

	if (offset + strip->row_bytes > bytes)
		sim_fail(world->sim, "process %u reads beyond a region",
			 proc->index);
	return (is_chunk ? home->words :
			   (const uint64_t *)(const void *)home->entries) +
	       offset / 8 + word;
}

static void data_copy(struct pool_proc *proc, struct pool_read *mine,
		      uint32_t item, uint32_t word)
{
	const struct kvpull_strip *strip = mine->read->strips;
	const uint64_t value = *remote_word(proc, mine, item, word);

	sim_pool_may_write(proc, mine->read, item);
	memcpy(strip->local +
		       mine->read->local_ids[item] * strip->local_block_stride +
		       (uint64_t)word * 8,
	       &value, sizeof(value));
}

static void guard_copy(struct pool_read *mine, uint32_t item, uint32_t word)
{
	const struct kvpull_revocation_entry *guard =
		&mine->conn->home->guards[mine->read->slots[item]];
	struct kvpull_revocation_value *value = &mine->read->entries[item];

	if (word)
		value->revoked = atomic_load_explicit(&guard->revoked,
						      memory_order_relaxed);
	else
		value->incarnation = atomic_load_explicit(&guard->incarnation,
							  memory_order_relaxed);
}

static void step(struct pool_proc *proc, struct pool_read *mine)
{
	uint32_t left = mine->burst;

	while (left-- && mine->order.next < mine->order.count) {
		const uint32_t at = sim_pool_order_next(&mine->order);
		const uint32_t item = at / words_of(mine);
		const uint32_t word = at % words_of(mine);

		if (mine->is_check)
			guard_copy(mine, item, word);
		else
			data_copy(proc, mine, item, word);
	}
}

/* Counts a window whose words changed while they came. */
static void torn_count(struct pool_proc *proc, const struct pool_read *mine)
{
	const struct kvpull_strip *strip = mine->read->strips;
	const uint32_t word = sim_pool_pick(proc->world, words_of(mine));
	const uint64_t now = *remote_word(proc, mine, 0, word);

	proc->world->counts.torn +=
		memcmp(strip->local +
			       mine->read->local_ids[0] *
				       strip->local_block_stride +
			       (uint64_t)word * 8,
		       &now, sizeof(now)) != 0;
}

/* All has come, or nothing more will. */
static void is_over(struct pool_proc *proc, struct pool_read *mine, int code)
{
	struct pool_mark *mark =
		&proc->marks[proc->tasks_of[mine->read->index]];

	/*
	 * The route looks whether the owner is dead after it read the guards.
	 */
	if (!code && mine->is_check && !mine->conn->home->is_sealed &&
	    mine->conn->home->state != POOL_LIVE) {
		code = KVPULL_EPEER;
		proc->world->counts.dead_checks++;
	}
	mine->code = code;
	mine->is_done = 1;
	mine->due = soon(proc->world);
	mark->code = mark->code ? mark->code : code;
	if (code)
		return;
	*(mine->is_check ? &mark->checked : &mark->came) = ++proc->world->tick;
	if (!mine->is_check)
		torn_count(proc, mine);
}

static int begin(struct pool_proc *proc, uint32_t peer,
		 struct kvpull_read *read, uint32_t is_check)
{
	struct pool_world *world = proc->world;
	struct pool_conn *conn = &proc->conns[peer];
	struct pool_read *mine = &proc->reads[read->index];
	const int code = conn_code(conn);
	struct pool_mark *mark;

	if (mine->read)
		sim_fail(world->sim, "read %u is begun twice", read->index);
	if (proc->is_beginning && !is_check)
		proc->tasks_of[read->index] = proc->is_beginning;
	mark = &proc->marks[proc->tasks_of[read->index]];
	if (!code && !is_check && sim_pool_chance(world, 20))
		return KVPULL_EAGAIN;
	if (!mark->begun)
		mark->begun = ++world->tick;
	*mine = (struct pool_read){ .read = read,
				    .conn = conn,
				    .is_check = is_check };
	if (code) {
		mark->code = code;
		mine->read = NULL;
		return code;
	}
	mine->order = sim_pool_order(world, read->slot_count * words_of(mine));
	mine->burst =
		1 + sim_pool_pick(world, mine->order.count / world->haste);
	mine->due = soon(world);
	if (!sim_pool_chance(world, 150))
		return 0;
	mine->burst = UINT32_MAX;
	step(proc, mine);
	is_over(proc, mine, 0);
	mine->read = NULL;
	return mine->code ? mine->code : 1;
}

static int read_start(struct kvpull_transport *transport, uint32_t peer,
		      struct kvpull_read *read)
{
	return begin(of(transport), peer, read, 0);
}

static int check_start(struct kvpull_transport *transport, uint32_t peer,
		       struct kvpull_read *read)
{
	return begin(of(transport), peer, read, 1);
}

static void read_cancel(struct kvpull_transport *transport, uint32_t peer,
			struct kvpull_read *read)
{
	struct pool_proc *proc = of(transport);
	struct pool_read *mine = &proc->reads[read->index];

	(void)peer;
	if (mine->read != read || mine->is_done || mine->is_cancelled)
		return;
	mine->is_cancelled = 1;
	mine->quiet =
		proc->world->sim->turn + sim_pool_pick(proc->world, POOL_QUIET);
}

const struct kvpull_transport_ops sim_pool_ops = {
	.name = "sim",
	.read_start = read_start,
	.read_cancel = read_cancel,
	.check_start = check_start,
};

void sim_pool_conn_lose(struct pool_conn *conn, enum pool_conn_state state)
{
	if (conn->state == POOL_CONN_UP)
		conn->state = state;
}

/* A cancelled one goes on for a while; then it is over, if need be by a cut. */
static void cancelled_run(struct pool_proc *proc, struct pool_read *mine)
{
	struct pool_world *world = proc->world;

	if (mine->quiet > world->sim->turn) {
		if (!mine->conn->is_hung && sim_pool_chance(world, 500))
			step(proc, mine);
	} else if (mine->conn->is_hung || sim_pool_chance(world, 200)) {
		sim_pool_conn_lose(mine->conn, POOL_CONN_CUT);
		world->counts.cuts++;
		is_over(proc, mine, KVPULL_EABORTED);
		return;
	} else {
		is_over(proc, mine, KVPULL_EABORTED);
		return;
	}
	if (mine->order.next == mine->order.count)
		is_over(proc, mine, 0);
}

static void run_one(struct pool_proc *proc, struct pool_read *mine)
{
	const int code = conn_code(mine->conn);

	if (code) {
		is_over(proc, mine,
			mine->is_cancelled ? KVPULL_EABORTED : code);
	} else if (mine->is_cancelled) {
		cancelled_run(proc, mine);
	} else if (!mine->conn->is_hung) {
		step(proc, mine);
		mine->due = soon(proc->world);
		if (mine->order.next == mine->order.count)
			is_over(proc, mine, 0);
	}
}

void sim_pool_route_run(struct pool_proc *proc)
{
	uint32_t at;

	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++) {
		struct pool_read *mine = &proc->reads[at];

		if (mine->read && !mine->is_done &&
		    mine->due <= proc->world->sim->turn)
			run_one(proc, mine);
	}
}

static int has_reads(const struct pool_proc *proc, const struct pool_conn *conn)
{
	uint32_t at;

	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		if (proc->reads[at].read && proc->reads[at].conn == conn)
			return 1;
	return 0;
}

static void down_tell(struct pool_proc *proc, struct pool_conn *conn)
{
	const struct kvpull_event event = {
		.kind = KVPULL_EVENT_PEER_DOWN,
		.index = (uint32_t)(conn - proc->conns),
		.code = conn->state == POOL_CONN_CUT ? KVPULL_EABORTED :
						       KVPULL_EPEER,
	};

	conn->state = POOL_CONN_DOWN;
	kvpull_share_reader_take(proc->reader, &proc->transport, &event);
}

void sim_pool_route_poll(struct pool_proc *proc)
{
	const uint32_t first =
		sim_pool_pick(proc->world, KVPULL_READER_OPEN_MAX);
	uint32_t at;

	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++) {
		struct pool_read *mine =
			&proc->reads[(first + at) % KVPULL_READER_OPEN_MAX];
		const struct kvpull_event event = {
			.kind = mine->is_check ? KVPULL_EVENT_CHECK_DONE :
						 KVPULL_EVENT_READ_DONE,
			.code = mine->code,
			.read = mine->read,
		};

		if (!mine->read || !mine->is_done ||
		    mine->due > proc->world->sim->turn)
			continue;
		mine->read = NULL;
		kvpull_share_reader_take(proc->reader, &proc->transport,
					 &event);
	}
	for (at = 0; at < POOL_CONNS; at++)
		if ((proc->conns[at].state == POOL_CONN_LOST ||
		     proc->conns[at].state == POOL_CONN_CUT) &&
		    !has_reads(proc, &proc->conns[at]))
			down_tell(proc, &proc->conns[at]);
}
