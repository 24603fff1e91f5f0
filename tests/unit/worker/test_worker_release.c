/* SPDX-License-Identifier: Apache-2.0 */
/* A release is the consumer's until its peer took it. */
#include <sys/eventfd.h>

#include "tests/unit/worker/peer.h"

#define FIRST 101u
#define SECOND 102u /* of the same peer, which stays wanted by it */

static void released_without_answer(struct world *world)
{
	world->notes_open = 1;
	(void)claim_up(world, FIRST);
	claim(world, SECOND, 1);
	release(world, FIRST);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
}

static void again(struct world *world)
{
	world_down(world, world_peer_at(world, "1-0"));
	world_pass(world, 10 * WORLD_MS);
	(void)world_up(world, "1-0", 0, 1);
	world_poll(world, 2);
}

WORLD_TEST(lost_release_is_said_again)
{
	released_without_answer(world);
	/* The release, and the other ticket's claim behind it. */
	world->notes_open = 2;
	again(world);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 2);
	assert_int_equal(world->worker->claims.map.count, 2);
	world->notes_open = 0;
	world_pass(world, 20 * WORLD_MS);
	world_poll(world, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 2);
	assert_int_equal(world->worker->claims.map.count, 1);
}

/* The engine has not read yet that its claim is over when it begins a pull. */
WORLD_TEST(pull_of_a_claim_that_ended_meanwhile_expires)
{
	(void)claim_up(world, FIRST);
	world->worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	world_command(world, KVPULL_COMMAND_RELEASE, 0, FIRST);
	(void)kvpull_worker_progress(world->worker);
	(void)kvpull_worker_progress(world->worker);
	assert_null(world->worker->progress->claims.all[0].order);
	world_pull(world, 5, FIRST, 0);
	(void)kvpull_worker_progress(world->worker);
	world->worker->facts.config.progress = KVPULL_PROGRESS_CALLER;
	world_poll(world, 1);
	failed(world, 5, KVPULL_EEXPIRED);
}

WORLD_TEST(taken_release_is_not_said_again)
{
	released_without_answer(world);
	world->notes_open = 0;
	world_pass(world, 20 * WORLD_MS);
	world_poll(world, 1);
	again(world);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
	assert_int_equal(world->worker->claims.map.count, 1);
}

/* With steady traffic something is always on its way. */
WORLD_TEST(release_is_taken_when_later_notes_are_not)
{
	released_without_answer(world);
	world_claim(world, SECOND + 1, 1);
	world_pass(world, 20 * WORLD_MS);
	world_poll(world, 1);
	assert_int_equal(world->worker->claims.map.count, 2);
}

WORLD_TEST(untaken_release_ends_at_hold_max)
{
	released_without_answer(world);
	world_pass(world, world->worker->facts.config.hold_max_ms * WORLD_MS +
				  WORLD_MS);
	world_poll(world, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
	assert_int_equal(world->worker->claims.map.count, 1);
}

/* Was the engine woken before the release was said? */
static uint32_t woken;

static int notify_and_look(struct kvpull_transport *transport, uint32_t peer,
			   const struct kvpull_record *record)
{
	eventfd_t wakes;

	if (record->kind == KVPULL_NOTE_RELEASE)
		woken = !eventfd_read(
			world_of(transport)->worker->handover.engine_wake_fd,
			&wakes);
	return fake_notify(transport, peer, record);
}

/* Another machine waits for the one, this one's thread for the other. */
WORLD_TEST(release_is_said_before_the_engine_is_woken)
{
	struct kvpull_worker *worker = world->worker;
	eventfd_t wakes;

	world->ops.notify = notify_and_look;
	world->check_code = 0;
	claim_pull(world, 1, FIRST, 1, KVPULL_FLAG_RELEASE);
	(void)world_up(world, "1-0", 0, 1);
	world_done(world, 0, 0);
	assert_int_equal(kvpull_ring_arm(&worker->end.reader), 0);
	(void)eventfd_read(worker->handover.engine_wake_fd, &wakes);
	woken = 2;
	world_done_queue(world, 0, 0);
	/* An engine that polls for itself is awake. */
	worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	(void)kvpull_progress_run(worker->progress, world->now_ns);
	assert_int_equal(woken, 0);
	assert_int_equal(eventfd_read(worker->handover.engine_wake_fd, &wakes),
			 0);
	worker->facts.config.progress = KVPULL_PROGRESS_CALLER;
	world_poll(world, 1);
	loaded(world, 1);
}

/* A system call for each poll after it would be as many as polls. */
WORLD_TEST(thread_that_sleeps_is_woken_once)
{
	struct kvpull_worker *worker = world->worker;
	eventfd_t wakes;

	worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	assert_int_equal(kvpull_ring_arm(&worker->progress->end.reader), 0);
	(void)eventfd_read(worker->handover.progress_wake_fd, &wakes);
	world_claim(world, FIRST, 1);
	world_poll(world, 3);
	assert_int_equal(
		eventfd_read(worker->handover.progress_wake_fd, &wakes), 0);
	assert_int_equal(wakes, 1);
}

/* The scheduler half forgets a ticket when it has commanded the release. */
WORLD_TEST(untaken_releases_leave_room_for_tickets)
{
	const uint32_t tickets = world->worker->facts.config.tickets_max;
	uint32_t at;

	world->notes_open = tickets;
	for (at = 0; at < tickets; at++)
		world_claim(world, FIRST + at, 1);
	world_poll(world, 1);
	(void)world_up(world, "1-0", 0, 1);
	for (at = 0; at < tickets; at++)
		world_command(world, KVPULL_COMMAND_RELEASE, 0, FIRST + at);
	world_poll(world, 2);
	assert_int_equal(world->worker->claims.map.count, tickets);
	for (at = 0; at < tickets; at++)
		world_claim(world, FIRST + tickets + at, 1);
	world_poll(world, 1);
	assert_int_equal(world->worker->claims.map.count, 2 * tickets);
	assert_string_equal(world->lines.of[KVPULL_LOG_WARN], "");
}

static int no_room_is_said(struct world *world, uint64_t serial)
{
	world->lines.of[KVPULL_LOG_WARN][0] = '\0';
	world_claim(world, serial, 1);
	return strncmp(world->lines.of[KVPULL_LOG_WARN],
		       "no room for another ticket", 26) == 0;
}

UNIT_TEST_WITH(full_table_of_tickets_says_so_once_a_second, world_setup,
	       world_teardown)
{
	struct world *world = *state;
	uint64_t serial = FIRST;

	untaken_releases_leave_room_for_tickets(state);
	serial += kvpull_config_claims_max(&world->worker->facts.config);
	assert_true(no_room_is_said(world, serial));
	assert_false(no_room_is_said(world, serial + 1));
	world->now_ns += KVPULL_NS_PER_S - 1;
	assert_false(no_room_is_said(world, serial + 2));
	world->now_ns++;
	assert_true(no_room_is_said(world, serial + 3));
}

/* The place of a claim is a pull's until its last pull ends, or its release. */
WORLD_TEST(claim_waits_only_after_its_last_pull_ended)
{
	const struct kvpull_claim *claim =
		&world->worker->progress->claims.all[0];
	uint64_t key;

	world_claim(world, 101, 1);
	world_pull(world, 8, 101, 0);
	pull(world, 9, 101, 0);
	assert_int_equal(claim->pull_count, 2);
	for (key = 8; key <= 9; key++) {
		assert_int_equal(claim->waits, 0);
		abort_pull(world, key);
	}
	assert_int_equal(claim->pull_count, 0);
	assert_int_equal(claim->waits, 1);
	pull(world, 10, 101, 0);
	assert_int_equal(claim->waits, 0);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, 101);
	abort_pull(world, 10);
	assert_int_equal(claim->waits, 0);
}
