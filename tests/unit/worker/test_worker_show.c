/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's status file: what the engine's thread writes there, and when. */
#include "plugin/counters/counters.h"
#include "tests/unit/worker/holder.h"

static uint64_t shown(const struct world *world, size_t row)
{
	const struct kvpull_status *status = &world->worker->status;

	return kvpull_status_get(&status->engine.thread->counters[row]);
}

#define ROW(name)                                                              \
	(offsetof(union kvpull_worker_counts, name) / sizeof(uint64_t))

HELD_TEST(step_shows_what_it_counted)
{
	assert_int_equal(shown(world, ROW(holds_taken)), 1);
	assert_int_equal(shown(world, ROW(holds_live)), 1);
}

HEARD_TEST(poll_shows_what_it_counted)
{
	tell(world, caller, KVPULL_NOTE_CLAIM);
	assert_int_equal(shown(world, ROW(claims)), 1);
	assert_int_equal(shown(world, ROW(consumers_live)), 1);
	tell(world, caller, KVPULL_NOTE_RELEASE);
	assert_int_equal(shown(world, ROW(releases)), 1);
	assert_int_equal(shown(world, ROW(holds_released)), 1);
	assert_int_equal(shown(world, ROW(holds_live)), 0);
}

static void heard_at(const struct world *world, uint64_t at_ns)
{
	assert_int_equal(
		kvpull_status_get(&world->worker->status.words[0].heard_ns),
		at_ns);
}

/* A note or a heartbeat; a poll that finds neither changes nothing. */
HEARD_TEST(consumer_is_shown_with_the_time_of_its_last_word)
{
	uint64_t heard_ns;

	world->now_ns += WORLD_MS;
	say(world, caller, KVPULL_NOTE_CLAIM);
	heard_ns = world->now_ns;
	world_poll(world, 1);
	heard_at(world, heard_ns);
	world_pass(world, WORLD_MS);
	heard_at(world, heard_ns);
	world->now_ns += WORLD_MS;
	kvpull_ring_beat(&caller->writer);
	heard_ns = world->now_ns;
	world_poll(world, 1);
	heard_at(world, heard_ns);
}

static void pull_is_shown(const struct world *world,
			  enum kvpull_reads_state state)
{
	const uint64_t word =
		kvpull_status_get(&world->worker->status.pulls[0].state);

	assert_int_equal((uint32_t)word, state);
	/* The peer that it reads from. */
	assert_int_equal(word >> 32, 0);
}

WORLD_TEST(pull_is_shown_in_the_state_that_it_is_in)
{
	world->check_code = 0;
	claim_pull(world, KEY, 101, 1, 0);
	pull_is_shown(world, KVPULL_READS_CONNECT);
	(void)world_up(world, "1-0", 0, 1);
	world_poll(world, 1);
	pull_is_shown(world, KVPULL_READS_DATA);
	world_done(world, 0, 0);
	pull_is_shown(world, KVPULL_READS_GUARDS);
	world_done(world, 0, 0);
	loaded(world, KEY);
	pull_is_shown(world, KVPULL_READS_FREE);
}

/* How often that happened, by the events of the progress thread; where last. */
static uint32_t events_of(const struct world *world,
			  enum kvpull_status_what what, uint32_t *slot)
{
	const struct kvpull_status_side *side = &world->worker->status.progress;
	uint32_t count = 0;
	uint64_t at;

	for (at = 0; at < side->thread->event_count; at++) {
		const uint64_t word = kvpull_status_get(
			&side->events[at % KVPULL_STATUS_EVENTS].what);

		if (((word >> 32) & 0xffff) != (uint32_t)what)
			continue;
		*slot = (uint32_t)word;
		count++;
	}
	return count;
}

WORLD_TEST(pull_that_waits_for_its_blocks_is_shown_to_read_when_it_reads)
{
	uint32_t slot;

	world->check_code = 0;
	claim_pull(world, KEY, 101, 1, KVPULL_FLAG_READY);
	(void)world_up(world, "1-0", 0, 1);
	world_poll(world, 1);
	pull_is_shown(world, KVPULL_READS_WRITTEN);
	assert_int_equal(events_of(world, KVPULL_DID_READ, &slot), 0);
	world->entry.ready = 101;
	world_done(world, 0, 0);
	pull_is_shown(world, KVPULL_READS_DATA);
	assert_int_equal(events_of(world, KVPULL_DID_READ, &slot), 1);
	world_done(world, 0, 0);
	pull_is_shown(world, KVPULL_READS_GUARDS);
	assert_int_equal(events_of(world, KVPULL_DID_READ, &slot), 1);
}

WORLD_TEST(claimed_ticket_is_an_event_for_each_rank)
{
	uint32_t slot = 0;

	claim(world, 105, 2);
	assert_int_equal(events_of(world, KVPULL_DID_CLAIM_TICKET, &slot), 2);
	assert_int_equal(slot, 5);
}

static uint64_t joined(const struct world *world, uint32_t index)
{
	return kvpull_status_get(&world->worker->status.words[index].joined);
}

static void rank_joins(struct world *world, uint32_t index, uint32_t rank)
{
	const struct world_hello who = {
		.instance = 0x11,
		.incarnation = 0x12 + index,
		.rank = rank,
		.rank_count = 2,
	};

	(void)world_hello(world, index, &who);
	world_poll(world, 2);
	assert_int_not_equal(joined(world, index), 0);
}

/* A rank that joins takes the place of its predecessor, and of no other rank. */
WORLD_TEST(ranks_of_an_instance_are_shown_beside_each_other)
{
	rank_joins(world, 0, 0);
	rank_joins(world, 1, 1);
	assert_int_equal(joined(world, 0), joined(world, 1));
	(void)world_event(world, KVPULL_EVENT_CALLER_DOWN, 1);
	rank_joins(world, 2, 1);
	assert_int_equal(joined(world, 0), joined(world, 2));
	assert_int_equal(joined(world, 1), 0);
}

static void why_is(struct world *world, const char *why)
{
	struct kvpull_peer_info info;

	world_poll(world, 1);
	assert_int_equal(
		kvpull_worker_peers(world->worker, &info, 1, sizeof(info)), 1);
	assert_string_equal(info.why, why);
	assert_string_equal(world->worker->status.peers[0].why, why);
}

static void rate(struct world *world, uint32_t peer, int32_t bytes_per_us)
{
	world_event(world, KVPULL_EVENT_PEER_RATE, peer)->code = bytes_per_us;
}

WORLD_TEST(rate_from_a_peers_gpu_is_why)
{
	uint32_t peer;

	claim_pull(world, KEY, 101, 1, 0);
	peer = world_up(world, "1-0", 0, 1);
	rate(world, peer, 371900);
	why_is(world, "device: another GPU of this node, 371 GB/s calibrated");
	rate(world, peer, 9876);
	why_is(world, "device: another GPU of this node, 9.8 GB/s calibrated");
	rate(world, peer, INT32_MAX);
	why_is(world,
	       "device: another GPU of this node, 2147483 GB/s calibrated");
	/* An event of a peer that is not known here changes nothing. */
	rate(world, peer + 1, 5000);
	why_is(world,
	       "device: another GPU of this node, 2147483 GB/s calibrated");
}
