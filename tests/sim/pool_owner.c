/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An owner's engine: it computes, copies or reads the bytes of keys into places,
 * while it evicts others at any moment. It is careless now and then: what it asks
 * for then must be refused.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/pool.h"

static uint32_t place_count(const struct pool_world *world)
{
	return world->chunks + world->slots;
}

static uint64_t *place_words(const struct pool_home *home, uint32_t place)
{
	return home->words + (uint64_t)place * home->world->words;
}

static void *zeroed(size_t count, size_t bytes)
{
	const size_t all = (count * bytes + KVPULL_CACHE_LINE - 1) /
			   KVPULL_CACHE_LINE * KVPULL_CACHE_LINE;
	void *memory = aligned_alloc(KVPULL_CACHE_LINE, all);

	if (!memory)
		abort();
	return memset(memory, 0, all);
}

/*
 * Places that outlive their owner are revoked in full before its successor's
 * first write, and their guards count on: of a guard that is read meanwhile one
 * word may be the predecessor's, and a count that began anew would be believed
 * (seed 7710362).
 */
static void memory_take(struct pool_home *home, struct pool_home *predecessor)
{
	const struct pool_world *world = home->world;
	uint32_t at;

	home->entries = predecessor->entries;
	home->guards = predecessor->guards;
	home->words = predecessor->words;
	for (at = 0; at < place_count(world); at++)
		kvpull_revocation_close(&home->guards[at]);
	kvpull_revocation_fence();
	memset((void *)home->entries, 0,
	       world->entries * sizeof(*home->entries));
}

/* The memory of this home, and of all that had it before, is another's now. */
static void memory_is_taken(struct pool_world *world,
			    const struct pool_home *by)
{
	uint32_t at;

	world->tick++;
	for (at = 0; at < by->index; at++)
		if (world->homes[at].words == by->words &&
		    !world->homes[at].taken)
			world->homes[at].taken = world->tick;
	world->counts.memory_again++;
}

static void books_open(struct pool_home *home)
{
	const struct pool_world *world = home->world;
	const uint32_t listed_count = 2 * POOL_WEIGHTS * world->keys;
	uint32_t at;

	home->epoch = 1;
	home->places = zeroed(place_count(world), sizeof(*home->places));
	for (at = 0; at < place_count(world); at++)
		home->places[at] = (struct pool_place){
			.generation = kvpull_pool_generation(home->pool, at),
			.listing = SIM_NONE,
			.last = SIM_NONE,
			.job = SIM_NONE,
		};
	home->listed = zeroed(listed_count, sizeof(*home->listed));
	memset(home->listed, 0xff, listed_count * sizeof(*home->listed));
}

struct pool_home *sim_pool_home_open(struct pool_proc *proc,
				     struct pool_home *predecessor)
{
	static const struct kvpull_log silent;
	struct pool_world *world = proc->world;
	struct pool_home *home = &world->homes[world->home_count];
	const uint64_t incarnation = sim_random(world->sim) | 1;
	const int is_sealed = sim_pool_chance(world, 500);
	const int is_hostile = sim_pool_chance(world, 60);
	struct kvpull_pool_params params;

	*home = (struct pool_home){
		.world = world,
		.proc = proc,
		.index = world->home_count++,
		.weights = proc->weights,
		.is_sealed = (uint32_t)is_sealed,
		/*
		 * A liar that has an honest owner's memory could make that one
		 * lie.
		 */
		.is_hostile = is_hostile && !world->big &&
			      (!predecessor || predecessor->is_hostile),
		.share = { .incarnation = incarnation,
			   .chunk_count = world->chunks,
			   .slot_count = world->slots,
			   .entry_count = world->entries,
			   .secret = { (uint8_t)world->home_count,
				       (uint8_t)world->sim->seed } },
	};
	if (predecessor) {
		memory_take(home, predecessor);
		memory_is_taken(world, home);
	} else {
		home->owns_memory = 1;
		home->entries = zeroed(world->entries, sizeof(*home->entries));
		home->guards =
			zeroed(place_count(world), sizeof(*home->guards));
		home->words =
			zeroed((size_t)place_count(world) * world->words, 8);
	}
	params = (struct kvpull_pool_params){ home->share, home->entries,
					      home->guards };
	kvpull_arena_init(&home->arena, &silent);
	home->pool = kvpull_pool_open(&params, &home->arena);
	if (!home->pool)
		sim_fail(world->sim, "a pool does not open");
	kvpull_arena_seal(&home->arena);
	books_open(home);
	return home;
}

void sim_pool_home_end(struct pool_home *home, enum pool_home_state state)
{
	uint32_t at;

	if (state == POOL_CLOSED) {
		kvpull_pool_close(home->pool);
		for (at = 0; at < place_count(home->world); at++)
			sim_pool_was_bumped(home, at);
	}
	home->state = state;
	home->pool = NULL;
	kvpull_arena_fini(&home->arena);
}

void sim_pool_home_free(struct pool_home *home)
{
	if (home->pool)
		sim_pool_home_end(home, POOL_CLOSED);
	if (home->owns_memory) {
		free(home->entries);
		free(home->guards);
		free(home->words);
	}
	free(home->places);
	free(home->listed);
	free(home->listings);
}

static void places_bump(struct pool_home *home, const uint32_t *places,
			uint32_t count)
{
	uint64_t generations[2] = { 0 };
	uint32_t at;

	sim_pool_code_is(
		home->world, "bump",
		kvpull_pool_bump(home->pool, places, count, generations), 0);
	for (at = 0; at < count; at++) {
		sim_pool_was_bumped(home, places[at]);
		if (home->places[places[at]].generation != generations[at])
			sim_fail(
				home->world->sim,
				"owner %u: place %u is bumped to another generation",
				home->index, places[at]);
	}
}

void sim_pool_home_bump_all(struct pool_home *home, uint32_t weights)
{
	uint32_t at;

	kvpull_pool_bump_all(home->pool);
	for (at = 0; at < place_count(home->world); at++)
		sim_pool_was_bumped(home, at);
	home->weights = weights;
	if (kvpull_pool_epoch(home->pool) != ++home->epoch)
		sim_fail(home->world->sim, "owner %u is in another epoch",
			 home->index);
	sim_trace(home->world->sim, "owner %u bumps all, weights %u",
		  home->index, weights, 0);
}

/* A job: bytes, then a put. */

struct pool_job *sim_pool_job_free(struct pool_home *home)
{
	uint32_t at;

	for (at = 0; at < POOL_JOBS; at++)
		if (home->jobs[at].state == POOL_JOB_FREE)
			return &home->jobs[at];
	return NULL;
}

static void job_begin(struct pool_home *home, struct pool_job *job)
{
	struct pool_world *world = home->world;
	const uint32_t from = sim_pool_pick(world, place_count(world));
	const uint32_t key = sim_pool_pick(world, world->keys);
	const struct pool_place *place = &home->places[from];

	*job = (struct pool_job){
		.state = POOL_JOB_COMPUTES,
		.weights = home->weights,
		.key = key,
		.epoch = home->epoch,
		.from = SIM_NONE,
		.due = world->sim->turn + sim_pool_pick(world, 12),
	};
	/* Into a slot before it is evicted, or back from there. */
	if (place->listing != SIM_NONE && sim_pool_chance(world, 300)) {
		job->from = from;
		job->from_generation = place->generation;
		job->key = home->listings[place->listing].key;
	}
}

int sim_pool_job_place(struct pool_home *home, struct pool_job *job,
		       uint32_t places)
{
	struct pool_world *world = home->world;
	const uint32_t index = sim_pool_pick(world, places);
	struct pool_place *place = &home->places[index];
	int expected = 0;

	if (!place->is_used && sim_pool_chance(world, 100)) {
		/* Nothing was written here since its last bump. */
	} else {
		places_bump(home, &index, 1);
	}
	if (place->job != SIM_NONE) {
		expected = KVPULL_EAGAIN;
		world->counts.quarantined++;
	}
	sim_pool_code_is(world, "write_begin",
			 kvpull_pool_write_begin(home->pool, index), expected);
	if (expected)
		return 0;
	place->is_used = 1;
	place->job = (uint32_t)(job - home->jobs);
	job->state = POOL_JOB_WRITES;
	job->place = index;
	job->generation = place->generation;
	job->order = sim_pool_order(world, world->words);
	return 1;
}

static void job_write(struct pool_home *home, struct pool_job *job)
{
	struct pool_world *world = home->world;
	uint64_t *words = place_words(home, job->place);
	uint32_t left = 1 + sim_pool_pick(world, world->bursts);

	while (left-- && job->order.next < job->order.count) {
		const uint32_t at = sim_pool_order_next(&job->order);

		words[at] = job->from == SIM_NONE ?
				    sim_pool_word(job->weights, job->key, at) :
				    place_words(home, job->from)[at];
	}
	if (job->order.next == job->order.count)
		sim_pool_job_written(home, job);
}

void sim_pool_job_written(struct pool_home *home, struct pool_job *job)
{
	struct pool_world *world = home->world;

	sim_pool_code_is(world, "write_end",
			 kvpull_pool_write_end(home->pool, job->place), 0);
	home->places[job->place].job = SIM_NONE;
	job->state = POOL_JOB_WRITTEN;
	if (sim_pool_chance(world, 300))
		job->due = world->sim->turn + sim_pool_pick(world, 30);
	/* Every copy out of a chunk is a read: its guard is checked after it. */
	if (job->is_forgotten ||
	    (job->from != SIM_NONE &&
	     kvpull_pool_generation(home->pool, job->from) !=
		     job->from_generation))
		job->state = POOL_JOB_FREE;
	else
		world->counts.copied += job->from != SIM_NONE;
}

/* The keys are made when it is put, whatever was computed when. */
static int place_put(struct pool_home *home, const struct pool_job *job)
{
	const struct kvpull_pool_put put = {
		.key = *sim_pool_key(home->world, home->weights, job->key),
		.place = job->place,
		.generation = job->generation,
		.epoch = job->epoch,
	};
	const int code = kvpull_pool_put(home->pool, &put);

	sim_pool_was_put(home, &put, job->key, code);
	return code;
}

static void job_turn(struct pool_home *home, struct pool_job *job)
{
	struct pool_world *world = home->world;

	if (job->state == POOL_JOB_WRITES && !job->is_read) {
		/* A job that was cancelled still writes its bytes. */
		job->is_forgotten |= (uint32_t)sim_pool_chance(world, 15);
		job_write(home, job);
		return;
	}
	if (job->state == POOL_JOB_FREE || job->is_read ||
	    job->due > world->sim->turn)
		return;
	if (job->state == POOL_JOB_COMPUTES) {
		if (!sim_pool_job_place(home, job, place_count(world)) &&
		    sim_pool_chance(world, 500))
			job->state = POOL_JOB_FREE;
		return;
	}
	(void)place_put(home, job);
	if (!sim_pool_chance(world, 100))
		job->state = POOL_JOB_FREE;
}

void sim_pool_home_fill(struct pool_home *home)
{
	struct pool_world *world = home->world;
	uint32_t at;

	for (at = 0; at < 2 * world->chunks; at++) {
		struct pool_job job = {
			.weights = home->weights,
			.key = at,
			.epoch = home->epoch,
			.place = at,
		};

		if (at >= world->chunks) {
			job.key = sim_pool_pick(world, world->keys);
			job.place = sim_pool_pick(world, world->chunks);
			places_bump(home, &job.place, 1);
		}
		job.generation = home->places[job.place].generation;
		*place_words(home, job.place) =
			sim_pool_word(job.weights, job.key, 0);
		(void)place_put(home, &job);
	}
}

/* Puts that must be refused. */

static void put_carelessly(struct pool_home *home, uint32_t index)
{
	struct pool_world *world = home->world;
	const struct pool_place *place = &home->places[index];
	struct pool_job job = {
		.key = sim_pool_pick(world, world->keys),
		.place = index,
		.generation = place->generation,
		.epoch = home->epoch,
	};
	const uint32_t listed = place->listing == SIM_NONE ?
					SIM_NONE :
					home->listings[place->listing].key;

	if (sim_pool_chance(world, 300))
		job.generation += sim_pool_chance(world, 500) ? 1 : UINT64_MAX;
	else if (sim_pool_chance(world, 300))
		job.epoch += sim_pool_chance(world, 500) ? 1 : UINT64_MAX;
	/*
	 * A put that is right in all of this would list the place under any
	 * key: a lie, and no carelessness.
	 */
	if (job.generation != place->generation || job.epoch != home->epoch ||
	    place->job != SIM_NONE || listed != SIM_NONE)
		(void)place_put(home, &job);
}

static void ask_carelessly(struct pool_home *home)
{
	struct pool_world *world = home->world;
	const uint32_t index = sim_pool_pick(world, place_count(world));
	const uint32_t places[2] = { index, place_count(world) };
	const struct pool_place *place = &home->places[index];

	if (place->job != SIM_NONE) {
		world->counts.quarantined++;
		sim_pool_code_is(world, "write_begin of a place in quarantine",
				 kvpull_pool_write_begin(home->pool, index),
				 KVPULL_EAGAIN);
	} else if (place->is_used) {
		world->counts.unbumped++;
		sim_pool_code_is(world, "write_begin without a bump",
				 kvpull_pool_write_begin(home->pool, index),
				 KVPULL_EINVAL);
	} else {
		sim_pool_code_is(world, "write_end of none",
				 kvpull_pool_write_end(home->pool, index),
				 KVPULL_EINVAL);
	}
	put_carelessly(home, index);
	sim_pool_code_is(world, "bump of no place",
			 kvpull_pool_bump(home->pool, places, 2, NULL),
			 KVPULL_EINVAL);
	if (kvpull_pool_generation(home->pool, index) != place->generation)
		sim_fail(world->sim, "owner %u: place %u has moved on",
			 home->index, index);
}

/* Entries that are sealed, and say anything; guards likewise. */
static void lie(struct pool_home *home)
{
	struct pool_world *world = home->world;
	const uint32_t key = sim_pool_pick(world, world->keys);
	const struct kvpull_pool_key *digest =
		sim_pool_key(world, home->weights, key);
	const uint32_t entry = kvpull_pool_window(&home->share, digest) +
			       sim_pool_pick(world, KVPULL_POOL_WINDOW);
	const uint32_t place = sim_pool_pick(world, place_count(world));
	uint64_t words[KVPULL_POOL_WORDS];
	uint32_t at;

	memcpy(words, digest, sizeof(*digest));
	words[4] = sim_pool_chance(world, 500) ?
			   sim_pool_pick(world, 2 * place_count(world)) :
			   sim_random(world->sim);
	words[5] = sim_pool_chance(world, 800) ? home->share.incarnation :
						 sim_random(world->sim);
	words[6] = sim_pool_pick(world, 4);
	words[7] = kvpull_pool_seal(words, home->share.secret);
	for (at = 0; at < KVPULL_POOL_WORDS; at++)
		atomic_store_explicit(&home->entries[entry].words[at],
				      words[at], memory_order_relaxed);
	kvpull_revocation_write(&home->guards[place], sim_pool_pick(world, 4));
	world->counts.hostile++;
}

/* A dead owner's memory is written for other uses where nothing holds it. */
static void scribble(struct pool_home *home)
{
	struct pool_world *world = home->world;
	const uint64_t count = (uint64_t)place_count(world) * world->words;
	uint32_t left = 4;

	if ((home->state == POOL_KILLED && home->is_sealed) || home->taken)
		return;
	while (left--) {
		const uint32_t at = sim_pool_pick(world, count);

		home->words[at] = sim_random(world->sim);
	}
}

static void evict(struct pool_home *home)
{
	struct pool_world *world = home->world;
	uint32_t places[2];

	places[0] = sim_pool_pick(world, place_count(world));
	places[1] = sim_pool_pick(world, place_count(world));
	places_bump(home, places,
		    places[0] != places[1] && sim_pool_chance(world, 300) ? 2 :
									    1);
}

void sim_pool_home_turn(struct pool_home *home)
{
	struct pool_world *world = home->world;
	struct pool_job *job = sim_pool_job_free(home);
	uint32_t at;

	if (home->state != POOL_LIVE) {
		scribble(home);
		return;
	}
	if (home->is_hostile) {
		lie(home);
		return;
	}
	if (job && !world->quiet && sim_pool_chance(world, world->fills))
		job_begin(home, job);
	for (at = 0; at < POOL_JOBS; at++)
		job_turn(home, &home->jobs[at]);
	sim_pool_look(home);
	if (!world->quiet && sim_pool_chance(world, world->evictions))
		evict(home);
	if (!world->quiet && sim_pool_chance(world, world->careless))
		ask_carelessly(home);
}
