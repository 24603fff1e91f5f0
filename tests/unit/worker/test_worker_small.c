/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small pulls: copied by the engine's thread from lent memory, or handed over
 * to progress whole. The route of these tests lends, and a hook of the test acts
 * in the middle of a copy.
 */
#include "tests/unit/worker/peer.h"

#define KEY 5u
#define SERIAL 700u
#define SLOT 0u /* of that ticket */
#define SLOTS 100u
#define MANY 66u
#define BIG_BLOCKS WORLD_BLOCKS

static struct kvpull_revocation_entry entries[WORLD_PEERS][SLOTS];
static struct kvpull_mapping *lent[WORLD_PEERS];
static uint32_t slots_lent;
static uint32_t copies;
static void (*in_copy)(uint32_t peer);

static int test_copy(const struct kvpull_mapping *mapping,
		     const struct kvpull_read *read)
{
	const uint32_t peer = (uint32_t)(uintptr_t)mapping->context;

	/* Pinned memory cannot be taken away. */
	assert_ptr_equal(lent[peer], mapping);
	assert_false(kvpull_mapping_take(lent[peer]));
	assert_int_not_equal(read->byte_count, 0);
	copies++;
	if (in_copy)
		in_copy(peer);
	return 0;
}

static int test_lend(struct kvpull_transport *transport, uint32_t peer,
		     struct kvpull_mapping *mapping)
{
	const struct world *world = world_of(transport);
	uint32_t at;

	for (at = 0; at < SLOTS; at++)
		atomic_store_explicit(&entries[peer][at].incarnation,
				      world->peers[peer].hello.wanted,
				      memory_order_relaxed);
	mapping->entries = entries[peer];
	mapping->slot_count = slots_lent;
	mapping->copy = test_copy;
	mapping->context = (void *)(uintptr_t)peer;
	lent[peer] = mapping;
	return 0;
}

static void world_lends(struct world *world)
{

	world->ops.lend = test_lend;
	memset(entries, 0, sizeof(entries));
	slots_lent = SLOTS;
	copies = 0;
	in_copy = NULL;
}

/* A producer's rank, of so many, is connected; so many slots are lent. */
static uint32_t lent_up(struct world *world, uint32_t slots, uint32_t rank,
			uint32_t size)
{
	world_lends(world);
	slots_lent = slots;
	world_claim(world, SERIAL, 1);
	world_poll(world, 2);
	return world_up(world, "7-0", rank, size);
}

/* A producer of one rank. */
static uint32_t one_up(struct world *world)
{
	return lent_up(world, SLOTS, 0, 1);
}

/* A test that begins with it. */
#define LENT_TEST(name) WORLD_TEST_AFTER(name, (void)one_up(world))

static void read_ends(struct world *world, uint64_t key)
{
	world_done(world, 0, 0);
	loaded(world, key);
}

static void lose(struct world *world, uint32_t peer)
{
	kvpull_mapping_close(lent[peer]);
	world_down(world, peer);
}

#define MORE ",\"pulls_max\":80,\"tickets_max\":4"

LENT_TEST(small_pull_is_done_in_the_next_poll)
{
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
	assert_int_equal(copies, 0);
	world_poll(world, 1);
	loaded(world, KEY);
	assert_int_equal(copies, 1);
	assert_int_equal(world->read_starts, 0);
	assert_int_equal(world_notes(world, KVPULL_NOTE_CLAIM), 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
	assert_int_equal(world->records[0].bytes, 2 * WORLD_BLOCK_BYTES);
}

/* Memory that is not lent any more is read by the other thread at once. */
WORLD_TEST(pull_of_a_peer_that_was_lost_waits_for_no_poll)
{
	const struct kvpull_worker *worker = world->worker;
	const uint32_t peer = one_up(world);

	world_pull(world, KEY, SERIAL, 0);
	assert_int_not_equal(worker->small.turns.arrival.first, KVPULL_NONE);
	world_poll(world, 1);
	assert_int_equal(copies, 1);
	kvpull_mapping_close(lent[peer]);
	world_pull(world, KEY + 1, SERIAL, 0);
	assert_int_equal(worker->small.turns.arrival.first, KVPULL_NONE);
	world_poll(world, 1);
	assert_int_equal(copies, 1);
	assert_int_equal(world->read_starts, 1);
	read_ends(world, KEY + 1);
}

WORLD_TEST(pull_of_a_peer_that_is_lost_before_its_turn_is_handed_over)
{
	const uint32_t peer = one_up(world);

	world_pull(world, KEY, SERIAL, 0);
	assert_int_not_equal(world->worker->small.turns.arrival.first,
			     KVPULL_NONE);
	kvpull_mapping_close(lent[peer]);
	world_poll(world, 1);
	assert_int_equal(copies, 0);
	assert_true(kvpull_mapping_is_free(lent[peer]));
	assert_int_equal(world->read_starts, 1);
	read_ends(world, KEY);
}

/* The engine's thread copies it, so nothing else wakes that thread. */
LENT_TEST(small_pull_wakes_an_engine_that_sleeps)
{
	struct kvpull_worker *worker = world->worker;

	world_pull_command(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
	worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	assert_int_equal(kvpull_wakeup_open(&worker->wakeup,
					    worker->handover.engine_wake_fd),
			 0);
	kvpull_wakeup_clear(&worker->wakeup);
	assert_int_equal(kvpull_worker_start_loads(worker), 0);
	assert_int_equal(worker->wakeup.is_kept, 1);
}

LENT_TEST(small_pull_says_when_it_reached_each_phase)
{
	const struct kvpull_poll_record *record = &world->records[0];

	world->now_ns += WORLD_MS;
	world->tick_ns = 10; /* at each look at the clock */
	pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
	loaded(world, KEY);
	assert_int_equal(world->read_starts, 0);
	assert_in_range(record->begun_ns, 10, 100);
	assert_int_equal(record->connected_ns, record->begun_ns);
	assert_int_equal(record->asked_ns, record->begun_ns);
	assert_int_equal(record->came_ns, record->asked_ns + 10);
	assert_int_equal(record->took_ns, record->came_ns + 10);
}

static void revoke_first(uint32_t peer)
{
	(void)peer;
	kvpull_revocation_write(&entries[0][SLOT], SERIAL);
}

/* Revoked in mid copy, by this, its pull expires after so many copies. */
static void expires(struct world *world, void (*revoke)(uint32_t peer),
		    uint32_t flags, uint32_t count)
{
	in_copy = revoke;
	world->read_code = world->check_code = 1;
	world->entry.revoked = SERIAL;
	pull(world, KEY, SERIAL, flags);
	assert_int_equal(copies, count);
	failed(world, KEY, KVPULL_EEXPIRED);
}

LENT_TEST(hold_that_ends_in_mid_copy_is_expired)
{
	/* The other thread has the texts for the log line. */
	expires(world, revoke_first, KVPULL_FLAG_RELEASE, 1);
	warned(world, "request cmpl-7 key");
	world_poll(world, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
}

/* Two ranks of one ticket, connected, their memory lent. */
static void two_up(struct world *world, uint32_t rank_of_first)
{
	world_lends(world);
	world_claim(world, SERIAL, 2);
	world_poll(world, 2);
	assert_int_equal(world_up(world, "7-0", rank_of_first, 2), 0);
	assert_int_equal(world_up(world, "7-1", !rank_of_first, 2), 1);
}

static void revoke_first_in_second(uint32_t peer)
{
	if (peer == 1)
		revoke_first(peer);
}

WORLD_TEST(entries_are_read_after_the_data_of_all_ranks)
{
	two_up(world, 0);
	expires(world, revoke_first_in_second, 0, 2);
}

static void revoke_second(uint32_t peer)
{
	if (peer == 1)
		kvpull_revocation_write(&entries[1][SLOT], SERIAL);
}

WORLD_TEST(entry_of_each_rank_is_judged)
{
	two_up(world, 0);
	expires(world, revoke_second, 0, 2);
}

static void close_first(uint32_t peer)
{
	kvpull_mapping_close(lent[peer]);
	assert_false(kvpull_mapping_is_free(lent[peer]));
}

WORLD_TEST(peer_that_is_lost_in_mid_copy_is_judged_by_progress)
{
	const uint32_t peer = one_up(world);

	in_copy = close_first;
	pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
	assert_int_equal(copies, 1);
	world_silent(world, KEY);
	assert_int_equal(world->read_starts, 1);
	assert_true(kvpull_mapping_is_free(lent[peer]));
	world_down(world, peer);
	world_lost(world, peer, KVPULL_EPEER);
	failed(world, KEY, KVPULL_EPEER);
}

WORLD_TEST(peer_that_came_back_is_lent_again)
{
	lose(world, one_up(world));
	world_pass(world, 10 * WORLD_MS);
	assert_int_equal(world_up(world, "7-0", 0, 1), 0);
	pull(world, KEY, SERIAL, 0);
	assert_int_equal(copies, 1);
	loaded(world, KEY);
}

static void is_handed_over(struct world *world, uint32_t flags)
{
	pull(world, KEY, SERIAL, flags);
	assert_int_equal(copies, 0);
}

static void does_not_fit(struct world *world)
{
	is_handed_over(world, 0);
	failed(world, KEY, KVPULL_EPROTO);
}

LENT_TEST(what_waits_to_be_written_is_handed_over)
{
	is_handed_over(world, KVPULL_FLAG_READY);
	world_silent(world, KEY);
}

WORLD_TEST(memory_that_is_not_lent_is_read_by_progress)
{
	const uint32_t peer = one_up(world);

	kvpull_mapping_close(lent[peer]);
	is_handed_over(world, 0);
	assert_int_equal(world->read_starts, 1);
	read_ends(world, KEY);
}

WORLD_TEST(slot_beyond_what_is_lent_is_handed_over)
{
	(void)lent_up(world, SLOT, 0, 1);
	is_handed_over(world, 0);
	assert_int_equal(world->read_starts, 1);
}

WORLD_TEST(rank_that_is_another_is_handed_over)
{
	(void)lent_up(world, SLOTS, 1, 2);
	does_not_fit(world);
}

WORLD_TEST(ranks_that_are_exchanged_are_handed_over)
{
	two_up(world, 1);
	does_not_fit(world);
}

/* Both have the model's only layer. */
WORLD_TEST(stages_that_share_a_layer_are_handed_over)
{
	static const char *const names[] = { "7-0", "7-1" };
	struct kvpull_welcome welcome;
	uint32_t at;

	world_lends(world);
	world_claim(world, SERIAL, 2);
	world_poll(world, 2);
	for (at = 0; at < 2; at++) {
		const uint32_t peer = greeted(world, names[at], 0, 1, &welcome);
		welcome.pp_rank = at;
		welcome.pp_size = 2;
		world_welcome_send(world, peer, &welcome);
	}
	does_not_fit(world);
}

WORLD_TEST(rank_of_a_larger_instance_is_handed_over)
{
	(void)lent_up(world, SLOTS, 0, 2);
	does_not_fit(world);
}

/* A pin that is kept leaves a lost peer mapped, and never connected again. */
WORLD_TEST(refused_ticket_leaves_no_pin)
{
	uint32_t peer;

	peer = lent_up(world, SLOT, 0, 1);
	is_handed_over(world, 0);
	kvpull_mapping_close(lent[peer]);
	assert_true(kvpull_mapping_is_free(lent[peer]));
}

/* A block that the peer does not have would be read from elsewhere. */
WORLD_TEST(block_beyond_the_peers_is_handed_over)
{
	const uint32_t remote = WORLD_BLOCKS;
	const uint32_t local = 0;
	const struct kvpull_command command =
		world_pull_of(KEY, SERIAL, &remote, &local, 1);

	(void)one_up(world);
	world_send(world, &command, 1);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
	world_poll(world, 1);
	assert_int_equal(copies, 0);
	failed(world, KEY, KVPULL_ETRUNCATED);
}

LENT_TEST(released_ticket_is_not_copied)
{
	world_command(world, KVPULL_COMMAND_RELEASE, 0, SERIAL);
	is_handed_over(world, 0);
	failed(world, KEY, KVPULL_EEXPIRED);
}

LENT_TEST(release_takes_a_waiting_pull_along)
{
	world_pull(world, KEY, SERIAL, 0);
	world_command(world, KVPULL_COMMAND_RELEASE, 0, SERIAL);
	world_poll(world, 1);
	assert_int_equal(copies, 0);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 0);
	read_ends(world, KEY);
	world_poll(world, 1);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 1);
}

LENT_TEST(aborted_before_its_turn_is_not_copied)
{
	world_pull(world, KEY, SERIAL, 0);
	abort_pull(world, KEY);
	assert_int_equal(copies, 0);
	if (world->reads[0].read)
		world_done(world, 0, KVPULL_EABORTED);
	failed(world, KEY, KVPULL_EABORTED);
}

LENT_TEST(late_pull_is_not_begun)
{
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
	world_pass(world, 501 * WORLD_MS);
	assert_int_equal(copies, 0);
	failed(world, KEY, KVPULL_EDEADLINE);
	assert_int_equal(world_notes(world, KVPULL_NOTE_RELEASE), 0);
}

static void big_pull(struct world *world, uint64_t key)
{
	uint32_t ids[BIG_BLOCKS];
	const struct kvpull_command command =
		world_pull_of(key, SERIAL, ids, ids, BIG_BLOCKS);
	uint32_t at;

	for (at = 0; at < BIG_BLOCKS; at++)
		ids[at] = at;
	world_send(world, &command, 1);
	assert_int_equal(kvpull_worker_start_loads(world->worker), 0);
}

WORLD_TEST_WITH(poll_copies_128_kib, MORE)
{
	struct kvpull_poll_record records[MANY];
	uint32_t at;

	(void)one_up(world);
	for (at = 0; at < MANY; at++)
		big_pull(world, 100 + at);
	assert_int_equal(kvpull_worker_poll(world->worker, records, MANY,
					    sizeof(*records)),
			 131072 / (BIG_BLOCKS * WORLD_BLOCK_BYTES));
	assert_int_equal(records[0].key, 100);
	assert_int_equal(kvpull_worker_poll(world->worker, records, MANY,
					    sizeof(*records)),
			 2);
	assert_int_equal(records[1].key, 100 + MANY - 1);
	assert_int_equal(copies, MANY);
}

static uint32_t helps;
static uint32_t help_bytes;

static uint32_t test_help(struct kvpull_transport *transport)
{
	(void)transport;
	helps++;
	return help_bytes;
}

/* A pull that the other thread has: the test says when that one runs. */
static void pull_of_the_thread(struct world *world)
{

	(void)one_up(world);
	world->ops.help = test_help;
	helps = 0;
	help_bytes = 1;
	world->worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	world->worker->facts.config.inline_bytes = 2 * WORLD_BLOCK_BYTES - 1;
	world_poll(world, 1);
	assert_int_equal(helps, 0);
	world_pull(world, KEY, SERIAL, KVPULL_FLAG_RELEASE);
}

#define HELP_TEST(name) WORLD_TEST_AFTER(name, pull_of_the_thread(world))

HELP_TEST(poll_with_nothing_to_tell_helps_to_copy)
{
	pull(world, KEY + 1, SERIAL, KVPULL_FLAG_RELEASE);
	assert_int_equal(helps, 1);
	(void)kvpull_worker_progress(world->worker);
	assert_int_equal(world->read_starts, 2);
	help_bytes = 0;
	world_poll(world, 2);
	assert_int_equal(helps, 3);
	world_done(world, 0, 0);
	(void)kvpull_worker_progress(world->worker);
	/* Records come first. */
	helps = 0;
	world_poll(world, 1);
	assert_int_equal(helps, 0);
	loaded(world, KEY);
	world_done(world, 1, 0);
	(void)kvpull_worker_progress(world->worker);
	/* And then there is no pull. */
	helps = 0;
	world_poll(world, 2);
	assert_int_equal(helps, 0);
}

HELP_TEST(poll_that_may_copy_nothing_does_not_help)
{
	world->worker->facts.config.inline_bytes = 0;
	world_poll(world, 1);
	assert_int_equal(helps, 0);
}

HELP_TEST(engine_that_sleeps_does_not_help)
{
	assert_true(kvpull_worker_event_fd(world->worker) >= 0);
	world_poll(world, 2);
	assert_int_equal(helps, 0);
}

HELP_TEST(who_makes_progress_itself_does_not_help)
{
	world->worker->facts.config.progress = KVPULL_PROGRESS_CALLER;
	world_poll(world, 3);
	assert_int_equal(world->read_starts, 1);
	assert_int_equal(helps, 0);
}

LENT_TEST(large_pull_is_handed_over)
{
	world->worker->facts.config.inline_bytes = 2 * WORLD_BLOCK_BYTES - 1;
	is_handed_over(world, 0);
	assert_int_equal(world->read_starts, 1);
}

/* Copied in one poll, and told in the order in which they were copied. */
WORLD_TEST_WITH(small_pulls_are_copied_by_priority, MORE)
{
	static const uint64_t order[] = { 4, 2, 5, 6, 7, 8, 9, 1, 3 };
	uint64_t key;

	(void)one_up(world);
	for (key = 1; key <= 9; key++) {
		world->priority = key == 1 ? INT32_MAX :
				  key == 3 ? 7 :
				  key == 4 ? -1 :
					     0;
		world_pull(world, key, SERIAL, 0);
	}
	world_poll(world, 2);
	assert_int_equal(copies, 9);
	assert_int_equal(world->record_count, 9);
	for (key = 0; key < 9; key++)
		assert_int_equal(world->records[key].key, order[key]);
}
