/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as producer whose consumers_max is reached: which consumer makes room
 * for a new one, and what the hold table takes it for.
 */
#include "plugin/hold/hold_state.h"
#include "tests/unit/worker/holder.h"

#define FULL 4u /* consumers_max: callers 0 to 3; caller 4 comes late */

static void say_of(struct world *world, uint32_t index, uint32_t kind)
{
	say(world, &world->callers[index], kind);
}

static struct world_caller *call(struct world *world, uint32_t index,
				 uint64_t instance, uint32_t rank,
				 uint32_t rank_count)
{
	const struct world_hello who = {
		.instance = instance,
		.incarnation = (index + 1) << KVPULL_SELF_BITS,
		.rank = rank,
		.rank_count = rank_count,
	};

	return world_hello(world, index, &who);
}

static void in(struct world *world, uint32_t index, uint64_t instance,
	       uint32_t rank, uint32_t rank_count)
{
	assert_int_equal(call(world, index, instance, rank, rank_count)->state,
			 2);
}

/* Consumers 0 to 3, each of one rank, heard in this order. */
static void crowd(struct world *world)
{
	uint32_t index;

	for (index = 0; index < FULL; index++) {
		in(world, index, 0x11 + index, 0, 1);
		world_pass(world, 200 * WORLD_MS);
	}
}

static void all_say(struct world *world, uint32_t kind)
{
	uint32_t index;

	for (index = 0; index < FULL; index++)
		say_of(world, index, kind);
	world_poll(world, 1);
}

/* Caller 4 is told EFULL; then the engine has polled. */
static void one_more(struct world *world, uint32_t rank_count)
{
	const struct world_caller *caller =
		call(world, FULL, 0x99, 0, rank_count);

	assert_int_equal(caller->state, 0);
	assert_int_equal(caller->refusal.code, KVPULL_EFULL);
	world_poll(world, 2);
}

static uint32_t dropped(const struct world *world)
{
	uint32_t set = 0;
	uint32_t index;

	for (index = 0; index < FULL; index++)
		set |= world->callers[index].dropped << index;
	return set;
}

/* Let these consumers go for one more of so many ranks. */
static void makes_room(struct world *world, uint32_t rank_count, uint32_t set)
{
	one_more(world, rank_count);
	assert_int_equal(dropped(world), set);
}

static void leave(struct world *world, uint32_t index)
{
	caller_down(world, index, 3);
	world->callers[index].dropped = 0;
}

WORLD_TEST(consumer_that_was_heard_longest_ago_makes_room)
{
	crowd(world);
	kvpull_ring_beat(&world->callers[0].writer);
	makes_room(world, 1, 1u << 1);
	warned(world, "make room");
	/* No other consumer does while it goes. */
	makes_room(world, 1, 1u << 1);
	leave(world, 1);
	in(world, FULL, 0x99, 0, 1);
	/* It comes back when it has something to say, and another one goes. */
	assert_int_equal(call(world, 1, 0x12, 0, 1)->state, 0);
	world_poll(world, 2);
	assert_int_equal(dropped(world), 1u << 2);
}

WORLD_TEST(instance_with_a_new_rank_does_not_keep_the_others_places)
{
	in(world, 0, 0x11, 0, 2);
	world_pass(world, 200 * WORLD_MS);
	in(world, 1, 0x12, 0, 1);
	in(world, 2, 0x13, 0, 1);
	world_pass(world, 200 * WORLD_MS);
	/* The sibling of caller 3 was silent for longest, and cannot go alone. */
	in(world, 3, 0x11, 1, 2);
	makes_room(world, 1, 1u << 1);
}

HELD_TEST(consumer_with_a_claim_makes_no_room)
{
	crowd(world);
	all_say(world, KVPULL_NOTE_CLAIM);
	makes_room(world, 1, 0);
	say_of(world, 3, KVPULL_NOTE_RELEASE);
	world_poll(world, 1);
	makes_room(world, 1, 0); /* the others' hold keeps it */
	all_say(world, KVPULL_NOTE_RELEASE);
	ended(world, KVPULL_END_RELEASED);
	makes_room(world, 1, 1u << 0);
}

/* Ranks 0 and 1 of one instance; rank 0 was heard longest ago of all. */
HELD_TEST(consumer_whose_sibling_has_a_claim_makes_no_room)
{
	in(world, 0, 0x11, 0, 2);
	in(world, 1, 0x11, 1, 2);
	world_pass(world, 200 * WORLD_MS);
	in(world, 2, 0x12, 0, 1);
	in(world, 3, 0x13, 0, 1);
	world_pass(world, 200 * WORLD_MS);
	say_of(world, 1, KVPULL_NOTE_CLAIM);
	world_poll(world, 1);
	makes_room(world, 1, 1u << 2);
}

WORLD_TEST(all_ranks_of_an_instance_make_room_together)
{
	in(world, 0, 0x11, 0, 2);
	in(world, 1, 0x11, 1, 2);
	in(world, 2, 0x12, 0, 1);
	in(world, 3, 0x13, 0, 1);
	world_pass(world, 200 * WORLD_MS);
	kvpull_ring_beat(&world->callers[1].writer);
	one_more(world, 3);
	/* Three places: those of the pair, and the next one's. */
	assert_int_equal(dropped(world), 1u << 0 | 1u << 1 | 1u << 2);
}

/* A claim of the newcomer may be on its way. */
WORLD_TEST(new_consumer_makes_no_room)
{
	uint32_t index;

	for (index = 0; index < FULL; index++)
		in(world, index, 0x11 + index, 0, 1);
	world_pass(world, 99 * WORLD_MS);
	makes_room(world, 1, 0);
	world_pass(world, WORLD_MS);
	makes_room(world, 1, 1u << 0);
}

/* Said when it was too late: its hold waits for it, as for one that is away. */
WORLD_TEST(claim_of_a_consumer_that_makes_room_counts)
{
	world_far(world);
	hold(world);
	crowd(world);
	makes_room(world, 1, 1u << 0);
	say_of(world, 0, KVPULL_NOTE_CLAIM);
	leave(world, 0);
	world_silent(world, KEY);
	/* Here again, it releases what it claimed. */
	in(world, 0, 0x11, 0, 1);
	say_of(world, 0, KVPULL_NOTE_RELEASE);
	world_poll(world, 1);
	ended(world, KVPULL_END_RELEASED);
}

/* A loss over a network would keep its entry for a lease of grace. */
WORLD_TEST(consumer_that_makes_room_did_not_die)
{
	const struct kvpull_instance *instance;

	world_far(world);
	crowd(world);
	one_more(world, 1);
	instance = &world->worker->holds->instances
			    .all[world->worker->crowd.notes[0].instance];
	assert_int_equal(instance->id, 0x11);
	leave(world, 0);
	assert_int_equal(instance->rank_count, 0);
}

/* No consumer of so many ranks is ever let in: it is told for good. */
WORLD_TEST(instance_of_more_ranks_than_places_is_refused_by_name)
{
	const struct world_caller *caller = call(world, 0, 0x11, 0, FULL + 1);

	assert_int_equal(caller->state, 0);
	assert_int_equal(caller->refusal.code, KVPULL_EREJECTED);
	assert_string_equal(caller->refusal.field, "consumers_max");
	assert_string_equal(caller->refusal.ours, "4");
	assert_string_equal(caller->refusal.theirs, "5");
}

/* A consumer that waits calls again and again. */
HELD_TEST(full_producer_says_so_once_a_second)
{
	uint32_t index;
	uint32_t said = 0;

	crowd(world);
	all_say(world, KVPULL_NOTE_CLAIM);
	for (index = 0; index < 20; index++) {
		world->lines.of[KVPULL_LOG_WARN][0] = '\0';
		one_more(world, 1);
		said += world->lines.of[KVPULL_LOG_WARN][0] != '\0';
		world_pass(world, 160 * WORLD_MS);
	}
	assert_in_range(said, 2, 4);
}

/* A caller without a place has room made; 1: a line says so. */
static int room_is_said(struct world *world, uint32_t index)
{
	world->lines.of[KVPULL_LOG_WARN][0] = '\0';
	one_more(world, 1);
	assert_int_equal(dropped(world) >> index & 1, 1);
	leave(world, index);
	return !strcmp(
		world->lines.of[KVPULL_LOG_WARN],
		"1 consumer ranks without a claim make room for a new one: raise consumers_max (4)");
}

WORLD_TEST(room_that_is_made_is_said_once_a_second)
{
	crowd(world);
	assert_int_equal(room_is_said(world, 0), 1);
	in(world, 0, 0x21, 0, 1);
	world_pass(world, 200 * WORLD_MS);
	assert_int_equal(room_is_said(world, 1), 0);
	in(world, 1, 0x22, 0, 1);
	world_pass(world, 1000 * WORLD_MS);
	assert_int_equal(room_is_said(world, 2), 1);
}
