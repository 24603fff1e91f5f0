/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many pulls and many releases at once: what one of them costs does not grow
 * with the others. Once each end of a pull had all pulls
 * stepped, and each run looked at every release that its peer had not taken.
 */
#include <sys/mman.h>

#include "tests/unit/worker/peer.h"

#define MANY 20u
#define FIRST 101u
#define STORM_ROUNDS 50u

static uint32_t notifies;
static uint32_t looks; /* at what a peer took */

static int notify_count(struct kvpull_transport *transport, uint32_t peer,
			const struct kvpull_record *record)
{
	notifies++;
	return fake_notify(transport, peer, record);
}

static uint32_t notes_open_count(const struct kvpull_transport *transport,
				 uint32_t peer)
{
	looks++;
	return fake_notes_open(transport, peer);
}

/* A peer that is connected, by the claim of a ticket that is kept. */
static int many_setup(void **state)
{
	struct world *world = world_new(",\"pulls_max\":32,\"tickets_max\":64");

	*state = world;
	world->ops.notify = notify_count;
	world->ops.notes_open = notes_open_count;
	(void)claim_up(world, FIRST);
	world_poll(world, 2);
	notifies = looks = 0;
	return 0;
}

static uint64_t steps(const struct world *world)
{
	return world->worker->progress->reads.steps;
}

/* Key of the pull that this part belongs to; 0: of none that runs. */
static uint64_t part_key(const struct world *world, uint32_t part)
{
	const struct kvpull_progress *progress = world->worker->progress;
	const struct kvpull_pull *pull =
		&progress->pulls[progress->reads.parts[part].request];

	return pull->order ? pull->order->key : 0;
}

#define TEST(name)                                                             \
	UNIT_TEST_OF(name, struct world, world, many_setup, world_teardown)

static void many_pulled(struct world *world)
{
	uint64_t key;

	world->check_code = 1;
	for (key = 1; key <= MANY; key++)
		world_pull(world, key, FIRST, 0);
	world_poll(world, 3);
}

TEST(pulls_in_flight_are_not_stepped_by_others_ends)
{
	uint64_t before;
	uint32_t i;

	many_pulled(world);
	assert_int_equal(world->read_starts, MANY);
	for (i = 0; i < MANY; i++) {
		before = steps(world);
		world_done(world, i, 0);
		world_poll(world, 3);
		loaded(world, i + 1);
		/* Each pull makes its own step, when its bytes have come. */
		assert_int_equal(steps(world), before + 1);
	}
}

/* Also where some wait: only whose turn it is. */
TEST(pulls_that_wait_for_parts_start_in_order)
{
	struct kvpull_progress *progress = world->worker->progress;
	const uint32_t max = progress->reads.part_pool.count_max;
	uint64_t before;
	uint32_t i;

	/* As if others had all parts but two. */
	progress->reads.part_pool.count_max = 2;
	many_pulled(world);
	assert_int_equal(world->read_starts, 2);
	for (i = 0; i < MANY; i++) {
		uint32_t index = 0;

		/* The next two in order are the ones that are read. */
		while (!world->reads[index].read ||
		       part_key(world, index) != i + 1)
			assert_in_range(++index, 0, KVPULL_RANKS_MAX - 1);
		before = steps(world);
		world_done(world, index, 0);
		world_poll(world, 3);
		loaded(world, i + 1);
		assert_in_range(steps(world), before + 1, before + 2);
		assert_int_equal(world->read_starts,
				 i + 3 < MANY ? i + 3 : MANY);
	}
	progress->reads.part_pool.count_max = max;
}

/* A pull that needs fewer parts than the waiting one does not go first. */
TEST(small_pull_does_not_overtake)
{
	struct kvpull_progress *progress = world->worker->progress;
	const uint32_t max = progress->reads.part_pool.count_max;

	world->check_code = 1;
	world_claim(world, 201, 2);
	world_poll(world, 2);
	(void)world_up(world, "2-0", 0, 2);
	(void)world_up(world, "2-1", 1, 2);
	progress->reads.part_pool.count_max = 1;
	world_pull(world, 1, 201, 0);
	world_pull(world, 2, FIRST, 0);
	world_poll(world, 3);
	assert_int_equal(world->read_starts, 0);
	progress->reads.part_pool.count_max = max;
	world_poll(world, 2);
	assert_int_equal(world->read_starts, 3);
}

/* A pull that fails or ends while it waits leaves a whole list behind. */
TEST(pull_that_waits_can_end)
{
	struct kvpull_progress *progress = world->worker->progress;
	const uint32_t max = progress->reads.part_pool.count_max;
	static const uint32_t aborted[] = { 1, 3, 5 }; /* first, mid, last */
	uint32_t i;

	world->check_code = 1;
	progress->reads.part_pool.count_max = 0;
	for (i = 1; i <= 5; i++)
		world_pull(world, i, FIRST, 0);
	world_poll(world, 2);
	for (i = 0; i < 3; i++) {
		world_command(world, KVPULL_COMMAND_ABORT, aborted[i], 0);
		world_poll(world, 2);
		failed(world, aborted[i], KVPULL_EABORTED);
	}
	assert_int_equal(world->read_starts, 0);
	progress->reads.part_pool.count_max = max;
	world_poll(world, 2);
	assert_int_equal(world->read_starts, 2);
	for (i = 0; i < 2; i++)
		world_done(world, i, 0);
	loaded(world, 2);
	loaded(world, 4);
	assert_int_equal(progress->reads.parts_waits.arrival.count, 0);
}

/* Ends all running reads. */
static void reads_end(struct world *world, int code)
{
	uint32_t i;

	for (i = 0; i < WORLD_READS; i++)
		if (world->reads[i].read)
			world_done(world, i, code);
	world_poll(world, 1);
}

/* A pull that is read and checked at once: how many steps did it take? */
static uint64_t steps_of_a_pull(struct world *world, uint64_t key)
{
	const uint64_t before = steps(world);
	const uint32_t starts = world->read_starts;

	pull(world, key, FIRST, 0);
	assert_int_equal(world->read_starts, starts + 1);
	reads_end(world, 0);
	loaded(world, key);
	return steps(world) - before;
}

/* sglang #28651: after a storm of aborts an engine ran at 1/15 for an hour. */
TEST(storm_of_aborts_leaves_nothing_behind)
{
	const struct kvpull_progress *progress = world->worker->progress;
	uint64_t calm;
	uint32_t round;
	uint32_t i;

	world->check_code = 1;
	calm = steps_of_a_pull(world, 1);
	for (round = 0; round < STORM_ROUNDS; round++) {
		world->record_count = 0;
		for (i = 0; i < MANY; i++)
			world_pull(world, 100 + i, FIRST, 0);
		world_poll(world, 1);
		for (i = 0; i < MANY; i++)
			world_command(world, KVPULL_COMMAND_ABORT, 100 + i, 0);
		world_poll(world, 1);
		assert_int_equal(world->record_count, 0);
		reads_end(world, KVPULL_EABORTED);
		assert_int_equal(world->record_count, MANY);
		/*
		 * Without this acknowledgement the worker keeps its results,
		 * and reports no more.
		 */
		world->ack = world->worker->results.next - 1;
		world_send(world, NULL, 0);
	}
	assert_int_equal(progress->reads.live.count, 0);
	assert_int_equal(progress->reads.parts_waits.arrival.count, 0);
	assert_int_equal(world->worker->pulls.map.count, 0);
	assert_int_equal(steps_of_a_pull(world, 2), calm);
}

static void many_claimed(struct world *world)
{
	uint32_t i;

	for (i = 1; i <= MANY; i++)
		world_claim(world, FIRST + i, 1);
	world_poll(world, 2);
}

static void many_released(struct world *world)
{
	uint32_t i;

	many_claimed(world);
	for (i = 1; i <= MANY; i++)
		world_command(world, KVPULL_COMMAND_RELEASE, 0, FIRST + i);
	world_poll(world, 2);
}

TEST(releases_not_taken_cost_one_look)
{
	uint32_t run;

	/* The first of them is not taken. */
	world->notes_open = MANY;
	many_released(world);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), MANY);
	/* Without time: none. With it: at the first of them. */
	looks = 0;
	world_poll(world, 10);
	assert_int_equal(looks, 0);
	for (run = 0; run < 10; run++)
		world_pass(world, 20 * WORLD_MS);
	assert_in_range(looks, 1, 10);
	assert_int_equal(world->worker->claims.map.count, 1 + MANY);
	/* Half are taken, then all. */
	world->notes_open = MANY / 2;
	looks = 0;
	world_pass(world, 20 * WORLD_MS);
	world_poll(world, 1);
	assert_int_equal(world->worker->claims.map.count, 1 + MANY / 2);
	assert_in_range(looks, 1, MANY / 2 + 1);
	world->notes_open = 0;
	world_pass(world, 20 * WORLD_MS);
	world_poll(world, 1);
	assert_int_equal(world->worker->claims.map.count, 1);
	assert_int_equal(world->worker->progress->claims.listed_count, 0);
}

TEST(releases_without_room_are_said_in_order)
{
	uint32_t i;
	uint32_t note;

	many_claimed(world);
	world->notify_code = KVPULL_EAGAIN;
	notifies = 0;
	for (i = 1; i <= MANY; i++) {
		world_command(world, KVPULL_COMMAND_RELEASE, 0, FIRST + i);
		world_poll(world, 1);
	}
	/* Later claims do not even ask. */
	assert_int_equal(notifies, 1);
	for (i = 0; i < 10; i++)
		world_pass(world, WORLD_MS);
	assert_in_range(notifies, 2, 11);
	world->notify_code = 0;
	note = world->note_count;
	world_pass(world, WORLD_MS);
	for (i = 1; i <= MANY; i++, note++) {
		assert_int_equal(world->notes[note].kind, KVPULL_NOTE_RELEASE);
		assert_int_equal(world->notes[note].generation, FIRST + i);
	}
	assert_int_equal(world->worker->progress->claims.listed_count, 0);
}

/* A claim's lists belong to a connection: on the next one all is sent again. */
TEST(lists_end_with_their_connection)
{
	world->notes_open = MANY;
	many_released(world);
	assert_int_equal(world->worker->progress->claims.listed_count, MANY);
	world_down(world, world_peer_at(world, "1-0"));
	world_poll(world, 2);
	assert_int_equal(world->worker->progress->claims.listed_count, 0);
	world->notes_open = 0;
	world_pass(world, 10 * WORLD_MS);
	(void)world_up(world, "1-0", 0, 1);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 2 * MANY);
	assert_int_equal(world->worker->claims.map.count, 1);
}

#define WIDE ",\"tickets_max\":4096"

/*
 * Makes an access to claims in the middle of the table, where none ever was,
 * fault.
 */
static void middle_protect(const struct world *world, int protection)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const struct kvpull_claim *claims = world->worker->progress->claims.all;
	const uintptr_t first =
		((uintptr_t)&claims[2000] + page - 1) & ~(page - 1);
	const uintptr_t end = (uintptr_t)&claims[4000] & ~(page - 1);

	assert_true(first < end);
	assert_int_equal(mprotect((void *)first, end - first, protection), 0);
}

/*
 * Once each peer that came or went had the whole table looked at: 2 MiB a
 * thousand tickets, of which each page was a fault at first, all before the next
 * heartbeat. A machine on which a fault is slow lost a lease by that.
 */
WORLD_TEST_WITH(peer_that_comes_or_goes_looks_at_no_claim_that_never_was, WIDE)
{
	middle_protect(world, PROT_NONE);
	(void)claim_up(world, FIRST);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 1);
	world_down(world, world_peer_at(world, "1-0"));
	world_pass(world, 10 * WORLD_MS);
	(void)world_up(world, "1-0", 0, 1);
	world_poll(world, 2);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 2);
	middle_protect(world, PROT_READ | PROT_WRITE);
}

/* Only the caller runs commands, and it may sleep after its poll. */
WORLD_TEST_WITH(caller_leaves_no_command_to_its_next_poll, WIDE)
{
	uint64_t serial;

	for (serial = FIRST; serial < FIRST + 70; serial++)
		world_claim(world, serial, 1);
	world_poll(world, 1);
	assert_int_equal(
		kvpull_ring_ready(&world->worker->progress->end.reader), 0);
}
