/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as producer: what it makes of others' restarts, of a consumer's
 * worker within its grace, and of its own scheduler half.
 */
#include <sys/mman.h>

#include "plugin/reads/judge.h"
#include "tests/unit/worker/holder.h"

#define INSTANCE 0x11u
#define WORKER 0x12u
#define SUCCESSOR 0x13u

#define GRACE WORLD_MORE ",\"grace_ms\":1000"

/* A rank of so many of an instance connects: this worker of it. */
static struct world_caller *rank_of(struct world *world, uint32_t index,
				    uint32_t rank, uint32_t rank_count,
				    uint64_t incarnation)
{
	const struct world_hello who = {
		.instance = INSTANCE,
		.incarnation = incarnation,
		.rank = rank,
		.rank_count = rank_count,
	};

	return world_let_in(world, index, &who);
}

/* The caller claims the hold, and its connection is lost. */
static void claim_and_go(struct world *world, struct world_caller *caller)
{
	hold(world);
	tell(world, caller, KVPULL_NOTE_CLAIM);
	caller_down(world, 0, 2);
	world_pass(world, 100 * WORLD_MS);
	world_silent(world, KEY);
}

static void beat(struct world *world, struct world_caller *caller,
		 uint32_t times)
{
	while (times--) {
		kvpull_ring_beat(&caller->writer);
		world_pass(world, 100 * WORLD_MS);
	}
}

WORLD_TEST_WITH(flapped_connection_keeps_its_claims, GRACE)
{
	claim_and_go(world, rank_of(world, 0, 0, 1, WORKER));
	beat(world, rank_of(world, 1, 0, 1, WORKER), 30);
	world_silent(world, KEY);
}

/* Records that are in the ring when a caller of this transport is let in. */
static uint32_t claims_itself;

static int admit_and_say(struct kvpull_transport *transport, uint32_t caller,
			 const void *welcome, size_t welcome_bytes,
			 struct kvpull_ring **ring)
{
	struct world *world = world_of(transport);
	const int code =
		fake_ops.admit(transport, caller, welcome, welcome_bytes, ring);

	if (claims_itself)
		say(world, &world->callers[caller], KVPULL_NOTE_CLAIM);
	say(world, &world->callers[0], KVPULL_NOTE_RELEASE);
	return code;
}

/*
 * Rank 0 claims a hold while rank 1 is gone; rank 1's next worker comes in the
 * poll that drains rank 0's release.
 */
static struct world_caller *release_and_return(struct world *world)
{
	struct world_caller *other = rank_of(world, 0, 0, 2, WORKER - 1);

	(void)rank_of(world, 1, 1, 2, WORKER);
	caller_down(world, 1, 2);
	hold(world);
	tell(world, other, KVPULL_NOTE_CLAIM);
	world->ops.admit = admit_and_say;
	return rank_of(world, 2, 1, 2, SUCCESSOR);
}

WORLD_TEST(worker_restarted_alone_pins_nothing_of_its_siblings)
{
	claims_itself = 0;
	(void)release_and_return(world);
	ended(world, KVPULL_END_RELEASED);
}

WORLD_TEST(worker_restarted_alone_is_waited_for_if_it_claims)
{
	struct world_caller *caller;

	claims_itself = 1;
	caller = release_and_return(world);
	world_poll(world, 2);
	world_silent(world, KEY);
	tell(world, caller, KVPULL_NOTE_RELEASE);
	ended(world, KVPULL_END_RELEASED);
}

/*
 * The successor will never release these claims, and its heartbeats must not
 * renew them.
 */
WORLD_TEST_WITH(restarted_worker_does_not_keep_its_predecessors_claims, GRACE)
{
	claim_and_go(world, rank_of(world, 0, 0, 1, WORKER));
	beat(world, rank_of(world, 1, 0, 1, SUCCESSOR), 1);
	ended(world, KVPULL_END_RELEASED);
	beat(world, &world->callers[1], 1);
	assert_int_equal(world->worker->crowd.notes[1].joined, 1);
}

/*
 * Rank 1 is away and owes a word. Rank 0 is lost, and in one poll its successor
 * comes and is lost, too: nobody of the instance will be there again.
 */
WORLD_TEST_WITH(successor_that_is_lost_at_once_ends_its_instance, GRACE)
{
	const struct world_hello who = {
		.instance = INSTANCE,
		.incarnation = SUCCESSOR,
		.rank_count = 2,
	};
	struct world_caller *other;

	(void)rank_of(world, 0, 0, 2, WORKER - 1);
	other = rank_of(world, 1, 1, 2, WORKER);
	hold(world);
	say(world, other, KVPULL_NOTE_CLAIM);
	tell(world, other, KVPULL_NOTE_AWAY);
	(void)world_event(world, KVPULL_EVENT_CALLER_DOWN, 1);
	caller_down(world, 0, 2);
	world_silent(world, KEY);
	(void)world_hello_put(world, 2, &who);
	caller_down(world, 2, 1);
	ended(world, KVPULL_END_RELEASED);
}

static uint32_t live_slots(const struct kvpull_revocation_entry *entries,
			   uint64_t incarnation)
{
	uint32_t count = 0;
	uint32_t slot;

	for (slot = 0; slot < world_holds; slot++) {
		const struct kvpull_revocation_value value =
			kvpull_revocation_read(&entries[slot]);

		/* As a ticket whose hold this worker was never told. */
		count += !kvpull_guard_judge(KVPULL_GUARD_HOLD, &value,
					     incarnation, UINT64_MAX);
	}
	return count;
}

/*
 * The new half gives away blocks that tickets of the old one name, also such
 * as this worker was never told of.
 */
WORLD_TEST(another_scheduler_half_ends_all_for_good)
{
	const struct kvpull_command end = end_of(1, KVPULL_END_ABORTED);
	const struct kvpull_revocation_entry *entries =
		(const void *)world->worker->entries.base;
	const uint64_t incarnation = world->worker->facts.incarnation;

	assert_int_equal(live_slots(entries, incarnation), world_holds);
	world_hold(world, KEY, SLOT, 1);
	claim_pull(world, KEY + 1, 101, 1, 0);
	(void)world_up(world, "1-0", 0, 1);
	assert_int_equal(world->read_starts, 1);
	world->incarnation++;
	world->sequence = 0;
	assert_int_equal(world_send_code(world, &end, 1), KVPULL_ECLOSED);
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 1);
	assert_int_equal(live_slots(entries, incarnation), 0);
	world_poll(world, 2);
	ended(world, KVPULL_END_REVOKED);
	assert_true(world->reads[0].cancelled);
	world_silent(world, KEY + 1);
	world_done(world, 0, KVPULL_EABORTED);
	failed(world, KEY + 1, KVPULL_EABORTED);
	/* Nor does the old one come back. */
	world->incarnation--;
	world->sequence = 9;
	assert_int_equal(world_send_code(world, &end, 1), KVPULL_ECLOSED);
	assert_int_equal(world->lines.counts[KVPULL_LOG_ERROR], 1);
}

/* A ticket of that generation, by a value of its entry. */
static void judged(const struct world *world,
		   const struct kvpull_revocation_value *value,
		   uint64_t generation, int code)
{
	assert_int_equal(kvpull_guard_judge(KVPULL_GUARD_HOLD, value,
					    world->worker->facts.incarnation,
					    generation),
			 code);
}

/*
 * A half gave out a ticket and ended before a step of its came. The first word
 * of the next one, without a command, is before its engine writes a block.
 */
WORLD_TEST(
	tickets_of_a_half_that_was_never_heard_die_at_the_next_ones_first_word)
{
	const struct kvpull_revocation_entry *entries =
		(const void *)world->worker->entries.base;
	const uint64_t generation = kvpull_half_floor(kvpull_half_incarnation(
					    1u << 20, UINT32_MAX)) +
				    1;
	struct kvpull_revocation_value value;

	world->incarnation = kvpull_half_incarnation(1u << 21, 0);
	assert_in_range(generation, 1, kvpull_half_floor(world->incarnation));
	value = kvpull_revocation_read(&entries[SLOT]);
	judged(world, &value, generation, 0);
	world_send(world, NULL, 0);
	value = kvpull_revocation_read(&entries[SLOT]);
	judged(world, &value, generation, KVPULL_EEXPIRED);
	world_hold(world, KEY, SLOT, kvpull_half_floor(world->incarnation) + 1);
	judged(world, &value, kvpull_half_floor(world->incarnation) + 1, 0);
	world_poll(world, 1);
	world_silent(world, KEY);
}

/* Consumers have the entries mapped, and the engine its memory still. */
WORLD_TEST(nothing_is_live_after_a_close)
{
	const size_t bytes =
		world_holds * sizeof(struct kvpull_revocation_entry);
	const uint64_t incarnation = world->worker->facts.incarnation;
	struct kvpull_revocation_entry *entries =
		mmap(NULL, bytes, PROT_READ, MAP_SHARED,
		     world->worker->entries.fd, 0);

	assert_ptr_not_equal(entries, MAP_FAILED);
	assert_int_equal(live_slots(entries, incarnation), world_holds);
	kvpull_worker_destroy(world->worker);
	world->worker = NULL;
	assert_int_equal(live_slots(entries, incarnation), 0);
	assert_int_equal(munmap(entries, bytes), 0);
}
