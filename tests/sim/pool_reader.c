/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader's engine: it probes, takes its time, reads what was found into blocks
 * of its own or into chunks that it then lists itself, changes its mind and its
 * weights. What it asks for carelessly must be refused.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/pool.h"

/* The codes that a call may answer; without any it is 0. */
struct refusals {
	int codes[8];
	uint32_t count;
};

static void refusal_add(struct refusals *refusals, int applies, int code)
{
	if (applies)
		refusals->codes[refusals->count++] = code;
}

static void code_is_one(const struct pool_proc *proc, const char *call,
			int code, const struct refusals *refusals)
{
	uint32_t at = 0;

	while (at < refusals->count && refusals->codes[at] != code)
		at++;
	if (refusals->count ? at == refusals->count : code != 0)
		sim_fail(
			proc->world->sim,
			"process %u: %s returned %d, for which there is no reason",
			proc->index, call, code);
}

static uint32_t number_of(const struct pool_proc *proc,
			  const struct pool_task *task)
{
	return (uint32_t)(task - proc->tasks) + 1;
}

static int is_open(const struct pool_task *task)
{
	return task->state == POOL_TASK_PROBES ||
	       task->state == POOL_TASK_READS;
}

static uint32_t open_count(const struct pool_proc *proc)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < POOL_TASKS; at++)
		count += (uint32_t)is_open(&proc->tasks[at]);
	return count;
}

void sim_pool_reader_open(struct pool_proc *proc)
{
	static const struct kvpull_log silent;
	const struct pool_world *world = proc->world;
	int code;

	kvpull_arena_init(&proc->arena, &silent);
	proc->reader = kvpull_share_reader_open(
		&world->namespaces[proc->weights], &proc->arena);
	if (!proc->reader)
		sim_fail(world->sim, "a reader does not open");
	kvpull_arena_seal(&proc->arena);
	proc->blocks = calloc((size_t)POOL_BLOCKS * world->words, 8);
	proc->owners[0] = calloc(POOL_BLOCKS, sizeof(uint32_t));
	proc->owners[1] = calloc(world->chunks, sizeof(uint32_t));
	if (!proc->blocks || !proc->owners[0] || !proc->owners[1])
		abort();
	code = kvpull_share_reader_local_add(
		proc->reader, (uint8_t *)proc->blocks, world->words * 8,
		POOL_BLOCKS, &proc->locals[0]);
	if (!code && proc->home)
		code = kvpull_share_reader_local_add(
			proc->reader, (uint8_t *)proc->home->words,
			world->words * 8, world->chunks, &proc->locals[1]);
	sim_pool_code_is(world, "local_add", code, 0);
}

void sim_pool_reader_close(struct pool_proc *proc)
{
	kvpull_arena_fini(&proc->arena);
	free(proc->blocks);
	free(proc->owners[0]);
	free(proc->owners[1]);
	memset(proc->conns, 0, sizeof(proc->conns));
	memset(proc->reads, 0, sizeof(proc->reads));
	memset(proc->marks, 0, sizeof(proc->marks));
	memset(proc->tasks, 0, sizeof(proc->tasks));
}

void sim_pool_reader_rename(struct pool_proc *proc)
{
	proc->name++;
	proc->world->counts.renamed += open_count(proc) != 0;
	kvpull_share_reader_set_namespace(
		proc->reader, &proc->world->namespaces[proc->weights]);
}

/* Connections. */

static void call(struct pool_proc *proc)
{
	struct pool_world *world = proc->world;
	const uint32_t recent = world->home_count < 8 ? world->home_count : 8;
	struct pool_home *home = &world->homes[world->home_count - 1 -
					       sim_pool_pick(world, recent)];
	const int is_far = sim_pool_chance(world, 300);
	uint32_t at = 0;

	while (at < POOL_CONNS && proc->conns[at].state != POOL_CONN_FREE)
		at++;
	if (at == POOL_CONNS || home->state != POOL_LIVE || home->proc == proc)
		return;
	proc->conns[at] = (struct pool_conn){
		.state = POOL_CONN_CALLS,
		.weights = home->weights, /* may be others when it is up */
		.is_far = (uint32_t)is_far,
		.due = world->sim->turn + sim_pool_pick(world, 10),
		.home = home,
	};
}

static int peer_add(struct pool_proc *proc, const struct pool_conn *conn,
		    uint32_t *peer)
{
	const struct pool_world *world = proc->world;
	const struct pool_home *home = conn->home;
	const struct kvpull_share_reader_peer params = {
		.transport = &proc->transport,
		.handle = (uint32_t)(conn - proc->conns),
		.share = home->share,
		.namespace_digest = world->namespaces[conn->weights],
		.chunk_bytes = (uint64_t)world->words * 8,
	};
	struct kvpull_serve serve = {
		.region_count = KVPULL_SHARE_REGION_COUNT,
		.slot_count = world->chunks + world->slots,
	};

	serve.regions[KVPULL_SHARE_REGION_DIRECTORY].bytes =
		world->entries * sizeof(struct kvpull_pool_entry);
	serve.regions[KVPULL_SHARE_REGION_CHUNKS].bytes =
		(uint64_t)world->chunks * world->words * 8;
	return kvpull_share_reader_peer_add(proc->reader, &params, &serve,
					    peer);
}

/* An owner that lies of its memory is no peer. */
static void welcome_of_a_liar(struct pool_proc *proc, struct pool_conn *conn)
{
	struct kvpull_pool_share *share = &conn->home->share;
	const struct kvpull_pool_share real = *share;
	uint32_t peer;

	switch (sim_pool_pick(proc->world, 4)) {
	case 0:
		share->chunk_count++;
		share->slot_count -= share->slot_count != 0;
		break;
	case 1:
		share->slot_count++;
		break;
	case 2:
		share->entry_count++;
		break;
	default:
		share->entry_count = KVPULL_POOL_WINDOW - 1;
		break;
	}
	sim_pool_code_is(proc->world, "peer_add of a liar",
			 peer_add(proc, conn, &peer), KVPULL_EPROTO);
	*share = real;
}

static void welcome(struct pool_proc *proc, struct pool_conn *conn)
{
	if (conn->due > proc->world->sim->turn)
		return;
	conn->state = POOL_CONN_FREE;
	if (conn->home->state != POOL_LIVE)
		return;
	if (conn->home->is_hostile)
		welcome_of_a_liar(proc, conn);
	sim_pool_code_is(proc->world, "peer_add",
			 peer_add(proc, conn, &conn->peer), 0);
	conn->state = POOL_CONN_UP;
}

static void remove_peer(struct pool_proc *proc, struct pool_conn *conn)
{
	int expected = conn->state == POOL_CONN_DOWN ? 0 : KVPULL_EAGAIN;
	uint32_t at;

	for (at = 0; at < POOL_TASKS; at++)
		if (is_open(&proc->tasks[at]) && proc->tasks[at].conn == conn)
			expected = KVPULL_EAGAIN;
	sim_pool_code_is(
		proc->world, "peer_remove",
		kvpull_share_reader_peer_remove(proc->reader, conn->peer),
		expected);
	if (!expected)
		conn->state = POOL_CONN_FREE;
}

static void conns_turn(struct pool_proc *proc)
{
	struct pool_world *world = proc->world;
	uint32_t at;

	if (sim_pool_chance(world, world->quiet ? 0 : 100))
		call(proc);
	for (at = 0; at < POOL_CONNS; at++) {
		struct pool_conn *conn = &proc->conns[at];

		/* A dead one is seen sooner or later. */
		if (conn->state == POOL_CONN_UP &&
		    conn->home->state != POOL_LIVE &&
		    sim_pool_chance(world, 20))
			sim_pool_conn_lose(conn, POOL_CONN_LOST);
		if (conn->state == POOL_CONN_CALLS)
			welcome(proc, conn);
		else if (conn->state == POOL_CONN_DOWN ||
			 (conn->state != POOL_CONN_FREE &&
			  sim_pool_chance(world, 10)))
			remove_peer(proc, conn);
	}
}

static int is_removable(const struct pool_conn *conn)
{
	return conn->state != POOL_CONN_FREE && conn->state != POOL_CONN_CALLS;
}

/* Picks a connection that stands, or did. */
static struct pool_conn *conn_pick(struct pool_proc *proc,
				   const struct pool_proc *to)
{
	const uint32_t first = sim_pool_pick(proc->world, POOL_CONNS);
	uint32_t at;

	for (at = 0; at < POOL_CONNS; at++) {
		struct pool_conn *conn =
			&proc->conns[(first + at) % POOL_CONNS];

		if (is_removable(conn) && (!to || conn->home->proc == to))
			return conn;
	}
	return NULL;
}

/* Probes and reads. */

/* Adds the refusals that keep any task from beginning at this peer. */
static void peer_refusals(const struct pool_proc *proc,
			  const struct pool_conn *conn,
			  struct refusals *refusals)
{
	refusal_add(refusals, conn->state == POOL_CONN_DOWN, KVPULL_EPEER);
	refusal_add(refusals, conn->weights != proc->weights, KVPULL_ESTALE);
	refusal_add(refusals, open_count(proc) == KVPULL_READER_OPEN_MAX,
		    KVPULL_EFULL);
}

static uint64_t deadline(const struct pool_world *world)
{
	return sim_pool_chance(world, 300) ?
		       world->sim->now_ns +
			       POOL_STEP_NS * sim_pool_pick(world, 60) :
		       0;
}

static void task_begun(struct pool_proc *proc, struct pool_task *task,
		       enum pool_task_state state, uint64_t id)
{
	uint32_t at;

	for (at = 0; at < POOL_TASKS; at++)
		if (is_open(&proc->tasks[at]) &&
		    (uint32_t)proc->tasks[at].id == (uint32_t)id)
			sim_fail(proc->world->sim,
				 "process %u: read %u is taken twice",
				 proc->index, (uint32_t)id);
	proc->marks[number_of(proc, task)].is_open = 1;
	task->state = state;
	task->id = id;
	task->name = proc->name;
	task->late = 0;
	task->is_cancelled = 0;
}

static int probe_begin(struct pool_proc *proc, struct pool_task *task,
		       struct pool_conn *conn)
{
	struct pool_world *world = proc->world;
	struct kvpull_pool_key keys[KVPULL_READER_ITEMS_MAX];
	struct kvpull_share_reader_probe probe = {
		.peer = conn->peer,
		.key_count = 1 + sim_pool_pick(world, 8),
		.keys = keys,
	};
	struct refusals refusals = { .count = 0 };
	uint32_t at;
	int code;

	probe.deadline_ns = deadline(world);
	if (sim_pool_chance(world, world->big ? 500 : 10))
		probe.key_count = KVPULL_READER_ITEMS_MAX;
	for (at = 0; at < probe.key_count; at++) {
		task->keys[at] = sim_pool_pick(world, world->keys);
		keys[at] = *sim_pool_key(world, proc->weights, task->keys[at]);
	}
	if (sim_pool_chance(world, world->careless))
		probe.key_count = sim_pool_chance(world, 500) ?
					  0 :
					  KVPULL_READER_ITEMS_MAX + 1;
	peer_refusals(proc, conn, &refusals);
	refusal_add(&refusals, probe.key_count - 1 >= KVPULL_READER_ITEMS_MAX,
		    KVPULL_EINVAL);
	task->weights = proc->weights;
	task->conn = conn;
	task->home = conn->home;
	task->count = probe.key_count;
	task->incarnation = conn->home->share.incarnation;
	task->deadline_ns = probe.deadline_ns;
	proc->is_beginning = number_of(proc, task);
	code = kvpull_share_reader_probe(proc->reader, &probe, &task->id);
	proc->is_beginning = 0;
	code_is_one(proc, "probe", code, &refusals);
	world->counts.busy += code == KVPULL_EFULL;
	if (!code)
		task_begun(proc, task, POOL_TASK_PROBES, task->id);
	return code;
}

/* A free block, mostly. */
static uint32_t block_pick(struct pool_proc *proc)
{
	const uint32_t first = sim_pool_pick(proc->world, POOL_BLOCKS);
	uint32_t at;

	if (sim_pool_chance(proc->world, proc->world->careless))
		return first;
	for (at = 0; at < POOL_BLOCKS; at++)
		if (!proc->owners[0][(first + at) % POOL_BLOCKS])
			return (first + at) % POOL_BLOCKS;
	return first;
}

/* A chunk of our own, which is then listed here, too. */
static void own_chunk_take(struct pool_proc *proc, struct pool_task *task)
{
	struct pool_job *job =
		proc->home ? sim_pool_job_free(proc->home) : NULL;

	task->job = SIM_NONE;
	task->local = 0;
	if (!job || proc->home->is_hostile || task->home->is_hostile ||
	    !sim_pool_chance(proc->world, 400))
		return;
	*job = (struct pool_job){
		.weights = task->weights,
		.key = task->pieces[0].key,
		.epoch = proc->home->epoch,
		.from = SIM_NONE,
		.is_read = 1,
	};
	if (!sim_pool_job_place(proc->home, job, proc->world->chunks)) {
		job->state = POOL_JOB_FREE;
		return;
	}
	task->local = 1;
	task->job = (uint32_t)(job - proc->home->jobs);
	task->count = 1;
	task->pieces[0].destination = job->place;
}

/* 1: every destination is ours from here on, and nothing of before is in it. */
static int blocks_take(struct pool_proc *proc, struct pool_task *task)
{
	const uint32_t words = proc->world->words;
	int all = 1;
	uint32_t at;

	for (at = 0; at < task->count; at++) {
		struct pool_piece *piece = &task->pieces[at];
		uint64_t *base = proc->blocks;

		if (task->local)
			base = proc->home->words;
		else
			piece->destination = block_pick(proc);
		if (proc->owners[task->local][piece->destination]) {
			all = 0;
			continue;
		}
		proc->owners[task->local][piece->destination] =
			number_of(proc, task);
		memset(base + (uint64_t)piece->destination * words, 0,
		       words * sizeof(*base));
	}
	return all;
}

static void blocks_give(struct pool_proc *proc, const struct pool_task *task)
{
	const uint32_t blocks = task->local ? proc->world->chunks : POOL_BLOCKS;
	uint32_t at;

	for (at = 0; at < blocks; at++)
		if (proc->owners[task->local][at] == number_of(proc, task))
			proc->owners[task->local][at] = 0;
}

/* is_good: what was read may be listed. */
static void own_chunk_give(struct pool_proc *proc, struct pool_task *task,
			   int is_good)
{
	struct pool_job *job;

	if (task->job == SIM_NONE)
		return;
	job = &proc->home->jobs[task->job];
	sim_pool_job_written(proc->home, job);
	job->is_read = 0;
	if (!is_good)
		job->state = POOL_JOB_FREE;
	else
		proc->world->counts.promoted++;
}

/* Something that no careful engine asks for; 0: it is asked in earnest. */
static void ask_carelessly(struct pool_proc *proc, struct pool_task *task,
			   struct kvpull_reader_read *read,
			   struct kvpull_reader_piece *pieces,
			   struct refusals *refusals)
{
	struct pool_world *world = proc->world;
	const uint32_t at = sim_pool_pick(world, task->count);

	if (!sim_pool_chance(world, world->careless))
		return;
	switch (sim_pool_pick(world, 7)) {
	case 0:
		pieces[at].chunk = world->chunks + sim_pool_pick(world, 3);
		break;
	case 1:
		pieces[at].block = POOL_BLOCKS + world->chunks;
		break;
	case 2:
		read->local = KVPULL_READER_LOCALS_MAX;
		break;
	case 3:
		read->piece_count = 0;
		break;
	case 4:
		read->incarnation++;
		refusal_add(refusals, 1, KVPULL_ESTALE);
		return;
	case 5:
		read->peer = KVPULL_READER_PEERS_MAX - 1;
		break;
	default:
		pieces[at].generation +=
			sim_pool_chance(world, 500) ? UINT64_MAX : 1000;
		task->pieces[at].is_wrong = 1;
		return;
	}
	refusal_add(refusals, 1, KVPULL_EINVAL);
}

static void read_begin(struct pool_proc *proc, struct pool_task *task,
		       struct pool_conn *conn)
{
	struct pool_world *world = proc->world;
	struct kvpull_reader_piece pieces[POOL_PIECES];
	struct refusals refusals = { .count = 0 };
	struct kvpull_reader_read read = {
		.peer = conn->peer,
		.pieces = pieces,
		.incarnation = task->incarnation,
		.deadline_ns = deadline(world),
	};
	uint32_t at;
	int code;

	own_chunk_take(proc, task);
	refusal_add(&refusals, !blocks_take(proc, task), KVPULL_EINVAL);
	world->counts.twice += refusals.count;
	peer_refusals(proc, conn, &refusals);
	refusal_add(&refusals, task->home != conn->home, KVPULL_ESTALE);
	world->counts.other_incarnation += task->home != conn->home;
	for (at = 0; at < task->count; at++)
		pieces[at] = (struct kvpull_reader_piece){
			.chunk = task->pieces[at].place,
			.block = task->pieces[at].destination,
			.generation = task->pieces[at].generation,
		};
	read.local = proc->locals[task->local];
	read.piece_count = task->count;
	ask_carelessly(proc, task, &read, pieces, &refusals);
	task->conn = conn;
	task->deadline_ns = read.deadline_ns;
	proc->is_beginning = number_of(proc, task);
	code = kvpull_share_reader_read(proc->reader, &read, &task->id);
	proc->is_beginning = 0;
	code_is_one(proc, "read", code, &refusals);
	if (!code) {
		task_begun(proc, task, POOL_TASK_READS, task->id);
		return;
	}
	blocks_give(proc, task);
	own_chunk_give(proc, task, 0);
	task->state = POOL_TASK_FREE;
}

/* Keeps the keys that were found, some of them twice: to be read in a while. */
static void found_take(struct pool_proc *proc, struct pool_task *task,
		       const struct kvpull_share_reader_end *end)
{
	struct pool_world *world = proc->world;
	uint32_t count = 0;
	uint32_t at = 0;

	while (at < end->count && count < POOL_PIECES) {
		const struct kvpull_pool_place *place = &end->found[at].memory;

		if (place->index != KVPULL_NONE)
			task->pieces[count++] = (struct pool_piece){
				.key = task->keys[at],
				.place = place->index,
				.generation = place->generation,
			};
		if (!sim_pool_chance(world, 50))
			at++;
	}
	task->count = count;
	task->due = world->sim->turn;
	if (sim_pool_chance(world, 500))
		task->due += sim_pool_pick(world, 30);
	task->state = count ? POOL_TASK_FOUND : POOL_TASK_FREE;
}

static void task_ended(struct pool_proc *proc, struct pool_task *task,
		       const struct kvpull_share_reader_end *end)
{
	struct pool_counts *counts = &proc->world->counts;
	struct pool_mark *mark = &proc->marks[number_of(proc, task)];

	counts->cancelled += end->code == KVPULL_EABORTED;
	counts->deadlines += end->code == KVPULL_EDEADLINE;
	if (task->state == POOL_TASK_READS) {
		sim_pool_read_ended(proc, task, end);
		blocks_give(proc, task);
		own_chunk_give(proc, task, end->code == 0);
		task->state = POOL_TASK_FREE;
	} else {
		sim_pool_probe_ended(proc, task, end);
		task->state = POOL_TASK_FREE;
		if (!end->code)
			found_take(proc, task, end);
	}
	*mark = (struct pool_mark){ .is_open = 0 };
}

static void ends_take(struct pool_proc *proc)
{
	struct kvpull_share_reader_end end;

	while (kvpull_share_reader_end(proc->reader, &end)) {
		uint32_t at = 0;

		while (at < POOL_TASKS && !(is_open(&proc->tasks[at]) &&
					    proc->tasks[at].id == end.id))
			at++;
		if (at == POOL_TASKS)
			sim_fail(proc->world->sim,
				 "process %u: an end that nobody waits for",
				 proc->index);
		task_ended(proc, &proc->tasks[at], &end);
	}
}

static void cancel(struct pool_proc *proc, struct pool_task *task)
{
	const uint64_t id = task->id;
	const int code = kvpull_share_reader_cancel(proc->reader, id);

	if (!code && is_open(task)) {
		task->is_cancelled = 1;
		return;
	}
	/*
	 * The task had ended, and its end is told now, unless it was told
	 * before.
	 */
	sim_pool_code_is(proc->world, "cancel", code, KVPULL_EINVAL);
	ends_take(proc);
	if (is_open(task) && task->id == id)
		sim_fail(proc->world->sim,
			 "process %u: task %u has ended and is not told",
			 proc->index, number_of(proc, task) - 1);
}

static void task_turn(struct pool_proc *proc, struct pool_task *task)
{
	struct pool_world *world = proc->world;
	struct pool_conn *conn;

	if (task->state == POOL_TASK_FOUND && task->due <= world->sim->turn) {
		conn = conn_pick(proc, task->home->proc);
		/* A probe under other weights found nothing that is ours. */
		if (conn && task->name == proc->name)
			read_begin(proc, task, conn);
		else
			task->state = POOL_TASK_FREE;
		return;
	}
	if (!is_open(task))
		return;
	if (task->deadline_ns && world->sim->now_ns >= task->deadline_ns &&
	    ++task->late > POOL_PATIENCE)
		sim_fail(world->sim,
			 "process %u: task %u goes on after its deadline",
			 proc->index, number_of(proc, task) - 1);
	if (!world->quiet && sim_pool_chance(world, 5))
		cancel(proc, task);
}

static void tasks_begin(struct pool_proc *proc)
{
	struct pool_world *world = proc->world;
	const int is_flood = sim_pool_chance(world, 3);
	uint32_t at;

	for (at = 0; at < POOL_TASKS; at++) {
		struct pool_task *task = &proc->tasks[at];
		struct pool_conn *conn = conn_pick(proc, NULL);

		if (!conn)
			return;
		if (task->state != POOL_TASK_FREE)
			continue;
		if (!is_flood && !sim_pool_chance(world, world->asks))
			return;
		if (probe_begin(proc, task, conn) && is_flood)
			return;
	}
}

void sim_pool_reader_turn(struct pool_proc *proc)
{
	struct pool_world *world = proc->world;
	uint32_t at;

	sim_pool_route_poll(proc);
	kvpull_share_reader_work(proc->reader, world->sim->now_ns);
	ends_take(proc);
	conns_turn(proc);
	for (at = 0; at < POOL_TASKS; at++)
		task_turn(proc, &proc->tasks[at]);
	if (!world->quiet)
		tasks_begin(proc);
}

void sim_pool_reader_is_empty(struct pool_proc *proc)
{
	const struct pool_conn nobody = { .home = &proc->world->homes[0] };
	uint32_t peer;
	uint32_t at;

	for (at = 0; at < POOL_TASKS; at++)
		if (proc->tasks[at].state != POOL_TASK_FREE)
			sim_fail(proc->world->sim,
				 "process %u: task %u has no end", proc->index,
				 at);
	proc->conns[0] = nobody;
	for (at = 0; at < KVPULL_READER_PEERS_MAX; at++)
		sim_pool_code_is(proc->world, "the last peer_add",
				 peer_add(proc, &proc->conns[0], &peer), 0);
	sim_pool_code_is(proc->world, "a peer_add too many",
			 peer_add(proc, &proc->conns[0], &peer), KVPULL_EFULL);
}
