/* SPDX-License-Identifier: Apache-2.0 */
/* A worker takes for its own what is its own: peers, steps, acks, deaths. */
#include "tests/unit/worker/holder.h"

#define OTHER 0xd1u /* another worker of this rank; ours is 0xd0 */

static uint64_t holds_live(const struct world *world)
{
	struct kvpull_hold_counts counts;

	kvpull_holds_counts(world->worker->holds, &counts);
	return counts.live;
}

/* The worker's next result, into bytes[4096]. */
static void read_result(struct world *world, uint8_t *bytes,
			struct kvpull_wire_reader *reader)
{
	reader->data = bytes;
	assert_int_equal(kvpull_worker_result_build(world->worker, bytes, 4096,
						    &reader->byte_count),
			 0);
}

/* Header of the worker's next result. */
static struct kvpull_result_header result_of(struct world *world)
{
	uint8_t bytes[4096];
	struct kvpull_wire_reader reader = { 0 };
	struct kvpull_result_header header;

	read_result(world, bytes, &reader);
	assert_int_not_equal(reader.byte_count, 0);
	assert_int_equal(kvpull_step_get_result_header(&reader, &header), 0);
	return header;
}

/* So many holds are live; 1: the next result tells of a gap. */
static void holds(struct world *world, uint64_t live, uint32_t gap)
{
	assert_int_equal(holds_live(world), live);
	assert_int_equal(result_of(world).gap, gap);
}

/* The address that it says next, and its sequence; "": it says none. */
static uint64_t address_of(struct world *world, char *address)
{
	static struct kvpull_result result;
	uint8_t bytes[4096];
	struct kvpull_wire_reader reader = { 0 };
	struct kvpull_result_header header = { 0 };
	uint32_t at;

	*address = '\0';
	read_result(world, bytes, &reader);
	if (!reader.byte_count)
		return 0;
	assert_int_equal(kvpull_step_get_result_header(&reader, &header), 0);
	for (at = 0; at < header.record_count; at++) {
		assert_int_equal(kvpull_step_get_result(&reader, &result), 0);
		if (result.kind != KVPULL_RESULT_RANK)
			continue;
		memcpy(address, result.rank.address,
		       sizeof(result.rank.address));
		return header.first_sequence + at;
	}
	return 0;
}

/* A RANK that was heard is not heard again: the new address needs another. */
WORLD_TEST(address_that_changed_is_said_once_the_last_one_was_heard)
{
	char address[KVPULL_TICKET_ADDRESS_BYTES_MAX];
	uint64_t first;

	first = address_of(world, address);
	assert_string_equal(address, "fake:self");
	world->address = "moved";
	(void)world_event(world, KVPULL_EVENT_ADDRESS, 0);
	world_poll(world, 2);
	/* And takes no room before. */
	assert_int_equal(result_of(world).record_count, 1);
	assert_int_equal(address_of(world, address), first);
	world->ack = first;
	world_send(world, NULL, 0);
	assert_int_equal(address_of(world, address), first + 1);
	assert_string_equal(address, "fake:moved");
	world->ack = first + 1;
	world_send(world, NULL, 0);
	(void)address_of(world, address);
	assert_string_equal(address, "");
}

/* The ticket has so many ranks; these come up as ranks of two. */
static void ranks_do_not_fit(struct world *world, uint32_t ranks,
			     uint32_t first, uint32_t second)
{
	claim_pull(world, KEY, 101, ranks, 0);
	(void)world_up(world, "1-0", first, 2);
	if (ranks == 2)
		(void)world_up(world, "1-1", second, 2);
	world_poll(world, 1);
	failed(world, KEY, KVPULL_EPROTO);
	assert_int_equal(world->read_starts, 0);
}

/* The ticket's parts would not cover every local byte. */
WORLD_TEST(ticket_that_names_one_rank_twice_fails)
{
	ranks_do_not_fit(world, 2, 0, 0);
}

WORLD_TEST(ticket_that_swaps_its_ranks_fails)
{
	ranks_do_not_fit(world, 2, 1, 0);
}

WORLD_TEST(ticket_that_leaves_out_a_rank_fails)
{
	ranks_do_not_fit(world, 1, 0, 0);
}

/* The welcome of the only peer of a pull. Returns the peer. */
static uint32_t welcome_of(struct world *world, struct kvpull_welcome *welcome)
{
	claim_pull(world, KEY, 101, 1, 0);
	return greeted(world, "1-0", 0, 1, welcome);
}

static void not_attached(struct world *world, uint32_t peer,
			 const struct kvpull_welcome *welcome)
{
	world_welcome_send(world, peer, welcome);
	assert_int_equal(world->peers[peer].attached, 0);
	assert_int_equal(world->peers[peer].disconnected, 1);
	world_down(world, peer);
}

/* A.1: it restarted, or another has its address; its entries are not ours. */
WORLD_TEST(peer_of_another_incarnation_is_not_believed)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	peer = welcome_of(world, &welcome);
	welcome.incarnation++;
	not_attached(world, peer, &welcome);
	failed(world, KEY, KVPULL_EPEER);
	assert_int_equal(world->read_starts, 0);
}

/*
 * The process at this address is of another user: calling again does not help.
 */
WORLD_TEST(peer_that_may_not_be_called_fails_the_pull_at_once)
{
	world->connect_code = KVPULL_EAUTH;
	world_claim(world, 101, 1);
	world_pull(world, KEY, 101, 0);
	world_poll(world, 2);
	failed(world, KEY, KVPULL_EAUTH);
}

/* Bytes behind the memory are no KV, and a route may fault on them. */
WORLD_TEST(peer_whose_blocks_end_after_its_memory_is_not_read)
{
	struct kvpull_welcome welcome;
	uint32_t peer;

	peer = welcome_of(world, &welcome);
	welcome.regions[0].bytes--;
	not_attached(world, peer, &welcome);
	/* The mistake is the peer's, and not our engine's. */
	failed(world, KEY, KVPULL_EPROTO);
	assert_int_equal(world->read_starts, 0);
}

/* The half commands the hold, behind so many commands. */
static void hold_after(struct world *world, uint64_t sequence)
{
	world->sequence = sequence;
	hold(world);
}

/* The predecessor's blocks may be another request's by now. */
WORLD_TEST(commands_for_a_predecessor_are_not_run)
{
	uint64_t named;

	/* A half that knew no worker names none, and this one neither. */
	for (named = 0; named <= OTHER; named += OTHER) {
		world->ack_incarnation = named;
		hold_after(world, 0);
		world_poll(world, 1);
		holds(world, 0, 1);
	}
	/* A half that knows this worker may repeat the commands. */
	world->ack_incarnation = world->worker->facts.incarnation;
	hold_after(world, 0);
	holds(world, 1, 0);
}

/* Missing commands may be on their way: the half is asked before they are skipped. */
WORLD_TEST(commands_after_a_gap_are_run_once_the_half_was_told)
{
	world->ack_incarnation = world->worker->facts.incarnation;
	world->ack = 1;
	hold_after(world, 5);
	holds(world, 0, 1);
	hold_after(world, 5);
	holds(world, 1, 0);
}

/* The half names this worker and took no result: it has not read of the gap. */
WORLD_TEST(commands_after_a_gap_wait_until_the_half_took_a_result)
{
	uint32_t round;

	world->ack_incarnation = world->worker->facts.incarnation;
	for (round = 0; round < 3; round++) {
		hold_after(world, 5);
		holds(world, 0, 1);
	}
	world->ack = 1;
	hold_after(world, 5);
	holds(world, 1, 0);
}

/* A.8: once by each rank, whoever its worker was. */
WORLD_TEST(what_a_predecessor_reported_is_not_reported_again)
{
	struct kvpull_command end = end_of(GENERATION, KVPULL_END_RANK);

	end.reported = 1;
	world_send(world, &end, 1);
	world_poll(world, 2);
	world_silent(world, KEY);
	end.reported = 2; /* another rank's: this one has to */
	world_send(world, &end, 1);
	world_poll(world, 2);
	ended(world, KVPULL_END_RANK);
}

WORLD_TEST(acks_for_a_predecessor_take_no_result_away)
{
	const struct kvpull_command end =
		end_of(GENERATION, KVPULL_END_ABORTED);
	uint64_t first;

	hold(world);
	world_send(world, &end, 1);
	world_poll(world, 1);
	ended(world, KVPULL_END_ABORTED);
	first = result_of(world).first_sequence;
	assert_true(result_of(world).record_count > 0);
	world->ack_incarnation = OTHER;
	world->ack = first;
	world_send(world, NULL, 0);
	assert_int_equal(result_of(world).first_sequence, first);
	world->ack_incarnation = world->worker->facts.incarnation;
	world_send(world, NULL, 0);
	assert_int_equal(world->worker->results.first, first + 1);
}

/* A consumer connects, claims the hold, and its connection is lost. */
static void claim_and_go(struct world *world, uint32_t uid)
{
	const struct world_hello who = { .instance = 0x11,
					 .incarnation = 0x120000,
					 .uid = uid };
	struct world_caller *caller;

	world->peer_uid = uid;
	caller = world_hello(world, 0, &who);
	hold(world);
	tell(world, caller, KVPULL_NOTE_CLAIM);
	caller_down(world, 0, 2);
}

WORLD_TEST(consumer_lost_on_this_node_is_dead)
{
	claim_and_go(world, world->config.uids[0]);
	ended(world, KVPULL_END_RELEASED);
}

/* A link that flaps is no death: it may come back within a lease. */
WORLD_TEST(consumer_lost_over_a_network_is_waited_for)
{
	world_far(world);
	claim_and_go(world, KVPULL_UID_NONE);
	world_live(world, LEASE_NS - 200 * WORLD_MS);
	world_silent(world, KEY);
	world_live(world, 400 * WORLD_MS);
	assert_int_equal(holds_live(world), 0);
}

/* The writer keeps releases until it sees that the records were taken. */
WORLD_TEST(records_are_given_back_in_the_poll_that_took_them)
{
	const struct world_hello who = { .instance = 0x11,
					 .incarnation = 0x120000 };
	const struct kvpull_record note = { .kind = KVPULL_NOTE_RELEASE };
	struct world_caller *caller = world_hello(world, 0, &who);
	uint32_t index;

	for (index = 0; index < 16; index++)
		assert_in_range(kvpull_ring_push(&caller->writer, &note), 0, 1);
	assert_int_equal(kvpull_ring_open_count(&caller->writer), 16);
	world_poll(world, 1);
	assert_int_equal(kvpull_ring_open_count(&caller->writer), 0);
	assert_in_range(kvpull_ring_push(&caller->writer, &note), 0, 1);
}
