/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books of the pool's simulation: which key each place was listed under, from
 * when to when, and what its bytes must be. Nothing here asks the code what it
 * thinks; where a window is full is read from the directory's memory.
 */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/pool.h"

#define STILL UINT64_MAX /* listed */

uint64_t sim_pool_word(uint32_t weights, uint32_t key, uint32_t word)
{
	return sim_stamp((uint64_t)weights << 32 | (key + 1), word, 0);
}

void sim_pool_code_is(const struct pool_world *world, const char *call, int is,
		      int expected)
{
	if (is != expected)
		sim_fail(world->sim, "%s returned %d, not %d", call, is,
			 expected);
}

static uint32_t *listed_at(const struct pool_home *home, uint32_t place,
			   uint32_t weights, uint32_t key)
{
	const struct pool_world *world = home->world;
	const uint32_t kind = place >= world->chunks;

	return &home->listed[(kind * POOL_WEIGHTS + weights) * world->keys +
			     key];
}

static void unlist(struct pool_home *home, struct pool_place *place)
{
	struct pool_listing *listing = &home->listings[place->listing];

	listing->until = ++home->world->tick;
	*listed_at(home, (uint32_t)(place - home->places), listing->weights,
		   listing->key) = SIM_NONE;
	place->listing = SIM_NONE;
}

void sim_pool_was_bumped(struct pool_home *home, uint32_t index)
{
	struct pool_place *place = &home->places[index];

	if (place->listing != SIM_NONE)
		unlist(home, place);
	place->generation++;
	place->is_used = 0;
	place->bumped = ++home->world->tick;
}

static int bytes_are(const struct pool_world *world, const uint64_t *words,
		     uint32_t weights, uint32_t key)
{
	uint32_t at;

	for (at = 0; at < world->words; at++)
		if (words[at] != sim_pool_word(weights, key, at))
			return 0;
	return 1;
}

static void place_is_right(const struct pool_home *home, uint32_t index)
{
	const struct pool_listing *listing =
		&home->listings[home->places[index].listing];

	if (!bytes_are(home->world,
		       home->words + (uint64_t)index * home->world->words,
		       listing->weights, listing->key))
		sim_fail(
			home->world->sim,
			"owner %u lists place %u under key %u with wrong bytes",
			home->index, index, listing->key);
}

void sim_pool_look(struct pool_home *home)
{
	const uint32_t index = sim_pool_pick(
		home->world, home->world->chunks + home->world->slots);

	if (home->places[index].listing != SIM_NONE)
		place_is_right(home, index);
}

static int put_code(const struct pool_home *home,
		    const struct kvpull_pool_put *put, uint32_t key)
{
	const struct pool_place *place = &home->places[put->place];

	if (put->epoch != home->epoch || put->generation != place->generation)
		return KVPULL_ESTALE;
	if (place->job != SIM_NONE)
		return KVPULL_EAGAIN;
	if (place->listing != SIM_NONE &&
	    home->listings[place->listing].key != key)
		return KVPULL_EINVAL;
	return 0;
}

static void window_is_full(const struct pool_home *home,
			   const struct kvpull_pool_put *put)
{
	const uint32_t first = kvpull_pool_window(&home->share, &put->key);
	uint32_t at;

	for (at = first; at < first + KVPULL_POOL_WINDOW; at++)
		if (!atomic_load_explicit(&home->entries[at].words[7],
					  memory_order_relaxed))
			sim_fail(home->world->sim,
				 "owner %u is full, and entry %u is free",
				 home->index, at);
}

static void list(struct pool_home *home, uint32_t index, uint32_t key)
{
	struct pool_place *place = &home->places[index];
	uint32_t *listed = listed_at(home, index, home->weights, key);

	if (*listed != SIM_NONE)
		unlist(home, &home->places[home->listings[*listed].place]);
	if (home->listing_count == home->listing_capacity) {
		home->listing_capacity = 2 * home->listing_capacity + 64;
		home->listings =
			sim_grown(home->listings, home->listing_capacity,
				  sizeof(*home->listings));
	}
	home->listings[home->listing_count] = (struct pool_listing){
		.generation = place->generation,
		.from = ++home->world->tick,
		.until = STILL,
		.weights = home->weights,
		.key = key,
		.place = index,
		.before = place->last,
	};
	place->is_used = 1;
	place->last = place->listing = *listed = home->listing_count++;
	place_is_right(home, index);
}

void sim_pool_was_put(struct pool_home *home, const struct kvpull_pool_put *put,
		      uint32_t key, int code)
{
	const int expected = put_code(home, put, key);
	struct pool_counts *counts = &home->world->counts;

	counts->old_put += expected == KVPULL_ESTALE;
	if (!expected && code == KVPULL_EFULL &&
	    home->places[put->place].listing == SIM_NONE) {
		window_is_full(home, put);
		counts->full++;
		return;
	}
	sim_pool_code_is(home->world, "put", code, expected);
	if (!code && home->places[put->place].listing == SIM_NONE)
		list(home, put->place, key);
}

/* Writes of the route for a reader. */

void sim_pool_may_write(const struct pool_proc *proc,
			const struct kvpull_read *read, uint32_t item)
{
	const uint32_t task = proc->tasks_of[read->index];
	const uint8_t *local = read->strips[0].local;
	uint32_t of;

	if (!proc->marks[task].is_open && task != proc->is_beginning)
		sim_fail(proc->world->sim,
			 "process %u: read %u is written after its end",
			 proc->index, read->index);
	if (local != (const void *)proc->blocks &&
	    !(proc->home && local == (const void *)proc->home->words))
		return;
	of = local != (const void *)proc->blocks;
	if (proc->owners[of][read->local_ids[item]] != task)
		sim_fail(
			proc->world->sim,
			"process %u: block %u is written for read %u, which has not got it",
			proc->index, read->local_ids[item], read->index);
}

/* How a probe or a read ended. */

/* Has it a reason, and was it what we asked to end? */
static void code_is_due(const struct pool_proc *proc,
			const struct pool_task *task,
			const struct pool_mark *mark, int32_t code)
{
	const struct pool_world *world = proc->world;
	const int is_late =
		task->deadline_ns && world->sim->now_ns >= task->deadline_ns;
	const int is_renamed = task->name != proc->name;
	int is_due = 0;

	switch (code) {
	case 0:
		is_due = mark->came && !mark->code && !is_renamed &&
			 !task->is_cancelled;
		break;
	case KVPULL_ESTALE:
		is_due = is_renamed || (task->state == POOL_TASK_READS &&
					mark->checked && !mark->code);
		break;
	case KVPULL_EABORTED:
		is_due = task->is_cancelled != 0;
		break;
	case KVPULL_EDEADLINE:
		is_due = is_late;
		break;
	case KVPULL_EAGAIN:
		is_due = mark->code == KVPULL_EABORTED;
		break;
	case KVPULL_EPEER:
		is_due = mark->code == KVPULL_EPEER ||
			 (!mark->begun && task->conn->state == POOL_CONN_DOWN);
		break;
	default:
		break;
	}
	if (!is_due)
		sim_fail(
			world->sim,
			"process %u: task %u ends with %d, and the route said %d",
			proc->index, (uint32_t)(task - proc->tasks), code,
			mark->code);
}

/* Was the key listed there at any time in which the window came? */
static int was_listed(const struct pool_task *task,
		      const struct pool_mark *mark, uint32_t key,
		      const struct kvpull_pool_place *found)
{
	const struct pool_home *home = task->home;
	uint32_t at = home->places[found->index].last;

	for (; at != SIM_NONE; at = home->listings[at].before) {
		const struct pool_listing *listing = &home->listings[at];

		if (listing->generation == found->generation &&
		    listing->key == key && listing->weights == task->weights &&
		    listing->from < mark->came && listing->until > mark->begun)
			return 1;
	}
	return 0;
}

static void miss_is_due(const struct pool_proc *proc,
			const struct pool_task *task,
			const struct pool_mark *mark, uint32_t at,
			uint32_t kind)
{
	const struct pool_home *home = task->home;
	const uint32_t listing =
		*listed_at(home, kind ? proc->world->chunks : 0, task->weights,
			   task->keys[at]);

	if (listing != SIM_NONE && !home->taken && !home->is_hostile &&
	    home->listings[listing].from < mark->begun)
		sim_fail(
			proc->world->sim,
			"process %u misses key %u, which owner %u lists and never said it lost",
			proc->index, task->keys[at], home->index);
	proc->world->counts.missed += !kind;
}

static void found_is_right(const struct pool_proc *proc,
			   const struct pool_task *task,
			   const struct pool_mark *mark, uint32_t at,
			   const struct kvpull_pool_place *found, uint32_t kind)
{
	const struct pool_world *world = proc->world;

	if (found->index == KVPULL_NONE) {
		miss_is_due(proc, task, mark, at, kind);
		return;
	}
	if (found->index >= world->chunks + world->slots ||
	    (found->index >= world->chunks) != kind)
		sim_fail(world->sim, "process %u finds place %u, which is none",
			 proc->index, found->index);
	proc->world->counts.found++;
	if (!task->home->is_hostile &&
	    !was_listed(task, mark, task->keys[at], found))
		sim_fail(
			world->sim,
			"process %u finds key %u at place %u generation %" PRIu64
			" of owner %u, which was not listed there",
			proc->index, task->keys[at], found->index,
			found->generation, task->home->index);
}

void sim_pool_probe_ended(struct pool_proc *proc, struct pool_task *task,
			  const struct kvpull_share_reader_end *end)
{
	const struct pool_mark *mark = &proc->marks[task - proc->tasks + 1];
	uint32_t at;

	if (end->codes || !end->found || end->count != task->count ||
	    end->incarnation != task->incarnation)
		sim_fail(proc->world->sim, "a probe's end is another's");
	code_is_due(proc, task, mark, end->code);
	for (at = 0; !end->code && at < end->count; at++) {
		found_is_right(proc, task, mark, at, &end->found[at].memory, 0);
		found_is_right(proc, task, mark, at, &end->found[at].file, 1);
	}
}

static const uint64_t *destination(const struct pool_proc *proc,
				   const struct pool_task *task, uint32_t at)
{
	const uint64_t *base = task->local ? proc->home->words : proc->blocks;

	return base +
	       (uint64_t)task->pieces[at].destination * proc->world->words;
}

static void good_is_right(const struct pool_proc *proc,
			  const struct pool_task *task,
			  const struct pool_mark *mark, uint32_t at)
{
	const struct pool_piece *piece = &task->pieces[at];
	const struct pool_home *home = task->home;
	const struct pool_place *place = &home->places[piece->place];

	if (home->is_hostile)
		return;
	if (!bytes_are(proc->world, destination(proc, task, at), task->weights,
		       piece->key))
		sim_fail(proc->world->sim,
			 "process %u: key %u is good with wrong bytes",
			 proc->index, piece->key);
	if (piece->is_wrong || (home->taken && home->taken < mark->came) ||
	    (place->generation != piece->generation &&
	     place->bumped < mark->came))
		sim_fail(proc->world->sim,
			 "process %u: place %u is good at generation %" PRIu64
			 ", and was bumped before its last byte came",
			 proc->index, piece->place, piece->generation);
}

static void stale_is_right(const struct pool_proc *proc,
			   const struct pool_task *task, uint32_t at)
{
	const struct pool_piece *piece = &task->pieces[at];
	const struct pool_home *home = task->home;

	if (!home->is_hostile && !home->taken && !piece->is_wrong &&
	    task->name == proc->name && home->state != POOL_CLOSED &&
	    home->places[piece->place].generation == piece->generation)
		sim_fail(
			proc->world->sim,
			"process %u: place %u is stale, and nothing has changed",
			proc->index, piece->place);
}

void sim_pool_read_ended(struct pool_proc *proc, struct pool_task *task,
			 const struct kvpull_share_reader_end *end)
{
	const struct pool_mark *mark = &proc->marks[task - proc->tasks + 1];
	struct pool_counts *counts = &proc->world->counts;
	int32_t first = 0;
	uint32_t at;

	if (end->found || !end->codes || end->count != task->count ||
	    end->incarnation != task->incarnation)
		sim_fail(proc->world->sim, "a read's end is another's");
	for (at = 0; at < end->count; at++) {
		const int32_t code = end->codes[at];

		first = first ? first : code;
		code_is_due(proc, task, mark, code);
		if (!code) {
			if (!mark->checked)
				sim_fail(
					proc->world->sim,
					"process %u: a piece is good, and no guard was read",
					proc->index);
			good_is_right(proc, task, mark, at);
			counts->good++;
		} else if (code == KVPULL_ESTALE) {
			stale_is_right(proc, task, at);
			counts->stale++;
		}
	}
	sim_pool_code_is(proc->world, "a read's end", end->code, first);
}
