/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads over two rails with completions in any order, from seeds: rails stop
 * and go on after any work request, are lost and come back, and reads are
 * cancelled. A read that ends well has all its bytes, its check comes after
 * them, each ends once, and after its end nothing writes.
 */
#include "tests/unit/verbs/world.h"

#define JOBS 8u
#define JOB_BLOCKS (WORLD_BLOCKS / JOBS)
#define JOB_BYTES (JOB_BLOCKS * WORLD_BLOCK_BYTES)

/* A read of its own eighth of the blocks, again and again. */
struct job {
	struct kvpull_read read;
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	uint32_t ids[JOB_BLOCKS];
	uint32_t open, checking, cancelled, good;
	size_t at;
};

static struct job jobs[JOBS];
static uint64_t random_state;

static uint32_t random_below(uint32_t bound)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1;
	return (uint32_t)(random_state >> 33) % bound;
}

static void jobs_make(void)
{
	uint32_t i;
	uint32_t k;

	memset(jobs, 0, sizeof(jobs));
	for (i = 0; i < JOBS; i++) {
		struct job *job = &jobs[i];

		/* From the last block back: none is a neighbour. */
		for (k = 0; k < JOB_BLOCKS; k++)
			job->ids[k] = (i + 1) * JOB_BLOCKS - 1 - k;
		for (k = 1; k <= KVPULL_GROUPS_MAX; k++)
			job->group_first[k] = JOB_BLOCKS;
		job->at = (size_t)i * JOB_BYTES;
		job->read = world.read;
		job->read.index = i;
		job->read.remote_ids = job->read.local_ids = job->ids;
		job->read.group_first = job->group_first;
		job->read.byte_count = JOB_BYTES;
	}
}

static void job_event(const struct kvpull_event *event)
{
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	struct job *job;

	if (event->kind != KVPULL_EVENT_READ_DONE &&
	    event->kind != KVPULL_EVENT_CHECK_DONE) {
		side_event(&world.d, event);
		return;
	}
	job = &jobs[event->read->index];
	assert_int_equal(job->open, 1);
	assert_int_equal(job->checking, event->kind == KVPULL_EVENT_CHECK_DONE);
	job->open = job->checking = 0;
	if (event->kind == KVPULL_EVENT_CHECK_DONE) {
		job->good += !event->code;
		return;
	}
	if (event->code) {
		assert_true(event->code == KVPULL_EPEER || job->cancelled ||
			    (event->code == KVPULL_EABORTED &&
			     side_counts(&world.d)->flushes));
	} else {
		/* Every byte is there before the entry is asked for. */
		assert_memory_equal(world.d.memory + job->at,
				    world.p.memory + job->at, JOB_BYTES);
		job->checking = !ops->check_start(world.d.route, world.peer,
						  &job->read);
		job->open = job->checking;
	}
	/* The read's end was reported: nothing writes here any more. */
	memset(world.d.memory + job->at, 0, JOB_BYTES);
}

static void jobs_do(void)
{
	struct job *job = &jobs[random_below(JOBS)];

	if (!job->open && !world.d.downs) {
		job->cancelled = 0;
		job->open = !world_start(&job->read);
	} else if (job->open && random_below(20) == 0) {
		job->cancelled = 1;
		world_cancel(&job->read);
	}
}

static void job_is_untouched(const struct job *job)
{
	size_t i;

	for (i = 0; !job->open && i < JOB_BYTES; i++)
		assert_int_equal(world.d.memory[job->at + i], 0);
}

static void jobs_step(void)
{
	struct kvpull_event events[8];
	uint32_t i;
	int count;

	if (world.d.downs && world_connect() == 0)
		world.d.downs = 0;
	jobs_do();
	fake_verbs_knobs.held = 0;
	fake_verbs_knobs.held_devices = random_below(4);
	fake_verbs_knobs.budget = 1 + random_below(40);
	if (random_below(50) == 0)
		fake_verbs_cut_device(random_below(2));
	world.now_ns += random_below(30) * WORLD_STEP_NS;
	side_poll(&world.p);
	count = world.d.route->ops->poll(world.d.route, world.now_ns, events,
					 1 + random_below(8));
	for (i = 0; i < (uint32_t)count; i++)
		job_event(&events[i]);
	for (i = 0; i < JOBS; i++)
		job_is_untouched(&jobs[i]);
}

static uint32_t jobs_run(uint32_t seed)
{
	void *none = NULL;
	uint32_t good = 0;
	uint32_t i;

	random_state = seed;
	(void)world_rails_up(&none);
	jobs_make();
	for (i = 0; i < 400; i++)
		jobs_step();
	for (i = 0; i < JOBS; i++)
		good += jobs[i].good;
	memset(&fake_verbs_knobs, 0, sizeof(fake_verbs_knobs));
	assert_int_equal(world_down(&none), 0);
	return good;
}

UNIT_TEST(no_order_of_completions_breaks_a_read)
{
	uint32_t good = 0;
	uint32_t seed;

	for (seed = 1; seed <= 16; seed++)
		good += jobs_run(seed);
	assert_true(good > 300);
}
