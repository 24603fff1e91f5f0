/* SPDX-License-Identifier: Apache-2.0 */
/* How probes and reads end that do not go well, and what is never begun. */
#include "tests/unit/share/world.h"

#define SEEDS 40u

/*
 * A test of a world of each seed: its body returns how often the case came
 * about, which depends on the seed. At least so many times it must.
 */
#define COUNTED_TEST(name, least)                                              \
	static uint32_t name##_of(struct share_world *world);                  \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		uint32_t count = 0;                                            \
		uint64_t seed;                                                 \
                                                                               \
		for (seed = 1; seed <= SEEDS; seed++) {                        \
			struct share_world *world = share_open(seed);          \
                                                                               \
			count += name##_of(world);                             \
			share_close(world);                                    \
		}                                                              \
		assert_true(count >= (least));                                 \
	}                                                                      \
	static uint32_t name##_of(struct share_world *world)

/* Puts and finds key 1. */
static void find(struct share_world *world, struct kvpull_pool_found *found)
{
	share_put(world, 1, 1);
	assert_int_equal(share_probe(world, 1, found), 1);
}

/* Puts and finds a key, and begins its read. */
static uint64_t begin(struct share_world *world, uint32_t block)
{
	struct kvpull_pool_found found;
	uint64_t id;

	find(world, &found);
	assert_int_equal(share_read(world, &found, 1, block, &id), 0);
	return id;
}

/* Begins to ask for key 1; deadline_ns 0: none. Return: what probe() says. */
static int ask(struct share_world *world, uint64_t deadline_ns, uint64_t *id)
{
	const struct kvpull_pool_key key = pool_key(&world->owner, 1);
	const struct kvpull_share_reader_probe probe = {
		.peer = world->peer,
		.key_count = 1,
		.keys = &key,
		.deadline_ns = deadline_ns,
	};

	return kvpull_share_reader_probe(world->reader, &probe, id);
}

static void owner_drops(struct share_world *world)
{
	world->owner_end->ops->drop(world->owner_end, world->caller);
}

UNIT_TEST_SEEDS(an_owner_lost_in_mid_read_ends_it_and_what_comes_later, SEEDS)
{
	struct kvpull_pool_found found;
	struct kvpull_share_reader_end end;
	uint64_t id;

	find(world, &found);
	if (world->seed % 2)
		world->before_data = owner_drops;
	else
		world->before_guards = owner_drops;
	assert_int_equal(share_read(world, &found, 1, 0, &id), 0);
	assert_int_equal(
		kvpull_share_reader_peer_remove(world->reader, world->peer),
		KVPULL_EAGAIN);
	share_wait(world, &end);
	assert_int_equal(end.codes[0], KVPULL_EPEER);
	while (!world->is_down)
		share_turn(world);
	assert_int_equal(share_read(world, &found, 1, 0, &id), KVPULL_EPEER);
	assert_int_equal(
		kvpull_share_reader_peer_remove(world->reader, world->peer), 0);
	assert_int_equal(share_read(world, &found, 1, 0, &id), KVPULL_EINVAL);
}

static void reader_waits(struct share_world *world)
{
	world->now_ns += 1000 * SHARE_STEP_NS;
}

COUNTED_TEST(what_is_late_ends_with_the_deadline, SEEDS / 2)
{
	const struct kvpull_reader_piece piece = { .generation = 1 };
	const struct kvpull_reader_read read = {
		.peer = world->peer,
		.local = world->local,
		.piece_count = 1,
		.pieces = &piece,
		.incarnation = POOL_INCARNATION,
		.deadline_ns = world->now_ns + 2 * SHARE_STEP_NS,
	};
	struct kvpull_share_reader_end end;
	uint32_t late = 0;
	uint32_t ends;
	uint64_t id;

	world->before_guards = reader_waits;
	assert_int_equal(kvpull_share_reader_read(world->reader, &read, &id),
			 0);
	assert_int_equal(ask(world, read.deadline_ns, &id), 0);
	for (ends = 0; ends < 2; ends++) {
		share_wait(world, &end);
		assert_true(end.code == 0 || end.code == KVPULL_EDEADLINE);
		assert_true(!end.codes || end.codes[0] == end.code);
		late += end.code == KVPULL_EDEADLINE;
	}
	return late;
}

COUNTED_TEST(a_late_read_that_is_cancelled_ends_as_late, 1)
{
	struct kvpull_share_reader_end end;
	uint64_t id;
	int code;

	assert_int_equal(ask(world, world->now_ns + SHARE_STEP_NS, &id), 0);
	reader_waits(world);
	kvpull_share_reader_work(world->reader, world->now_ns);
	code = kvpull_share_reader_cancel(world->reader, id);
	share_wait(world, &end);
	if (!code)
		assert_int_equal(end.code, KVPULL_EDEADLINE);
	return !code;
}

/*
 * The deadline wakes a sleeping engine; a cancelled read waits for its route
 * alone.
 */
COUNTED_TEST(the_next_deadline_is_told_until_it_is_over, SEEDS / 4 + 1)
{
	struct kvpull_share_reader_end end;
	uint64_t ids[2];
	uint64_t due_ns;
	int code;

	assert_int_equal(ask(world, UINT64_MAX - 1, &ids[0]), 0);
	assert_int_equal(ask(world, UINT64_MAX - 2, &ids[1]), 0);
	due_ns = kvpull_share_reader_due_ns(world->reader);
	code = kvpull_share_reader_cancel(world->reader, ids[1]);
	if (!code) {
		assert_true(due_ns == UINT64_MAX - 2);
		assert_true(kvpull_share_reader_due_ns(world->reader) !=
			    UINT64_MAX - 2);
	}
	share_wait(world, &end);
	share_wait(world, &end);
	assert_false(kvpull_share_reader_has_end(world->reader));
	assert_true(kvpull_share_reader_due_ns(world->reader) == UINT64_MAX);
	return !code;
}

COUNTED_TEST(a_block_is_free_when_a_cancelled_reads_end_was_told, SEEDS / 4 + 1)
{
	struct kvpull_share_reader_end end;
	struct kvpull_pool_found found;
	uint64_t other;
	uint64_t id = begin(world, 0);
	int code;

	code = kvpull_share_reader_cancel(world->reader, id);
	found.memory.index = 1;
	found.memory.generation = 2;
	assert_int_equal(share_read(world, &found, 1, 0, &other),
			 KVPULL_EINVAL);
	share_wait(world, &end);
	assert_true(end.id == id);
	assert_int_equal(end.codes[0], code ? 0 : KVPULL_EABORTED);
	assert_int_equal(kvpull_share_reader_cancel(world->reader, id),
			 KVPULL_EINVAL);
	assert_int_equal(share_read(world, &found, 1, 0, &other), 0);
	/* The old id is of nothing. */
	assert_int_equal(kvpull_share_reader_cancel(world->reader, id),
			 KVPULL_EINVAL);
	share_wait(world, &end);
	assert_true(end.id == other);
	assert_int_equal(end.code, 0);
	return !code;
}

COUNTED_TEST(a_connection_cut_for_another_read_says_read_again, SEEDS / 4 + 1)
{
	struct kvpull_share_reader_end end;

	share_put(world, 1, 1);
	loop_cuts(world->net, 0);
	(void)begin(world, 0);
	loop_cuts(world->net, 1000);
	share_wait(world, &end);
	assert_true(end.code == 0 || end.code == KVPULL_EAGAIN);
	return end.code == KVPULL_EAGAIN;
}

static void weights_change(struct share_world *world)
{
	struct kvpull_pool_namespace other = world->owner.namespace_digest;

	other.bytes[31] ^= 1;
	kvpull_share_reader_set_namespace(world->reader, &other);
}

UNIT_TEST_SEEDS(another_namespace_fails_what_is_in_flight_and_asks_no_more,
		SEEDS)
{
	struct kvpull_pool_found found;
	struct kvpull_share_reader_end end;
	uint64_t id;

	find(world, &found);
	if (world->seed % 2)
		world->before_data = weights_change;
	else
		world->before_guards = weights_change;
	assert_int_equal(share_read(world, &found, 1, 0, &id), 0);
	share_wait(world, &end);
	assert_int_equal(end.codes[0], KVPULL_ESTALE);
	assert_int_equal(share_read(world, &found, 1, 0, &id), KVPULL_ESTALE);
	assert_int_equal(ask(world, 0, &id), KVPULL_ESTALE);
	kvpull_share_reader_set_namespace(world->reader,
					  &world->owner.namespace_digest);
	assert_int_equal(share_probe(world, 1, &found), 1);
}

/* The engine may hear of a read's end only after its weights have changed. */
UNIT_TEST_SEEDS(an_end_that_was_not_told_is_of_the_old_weights, SEEDS)
{
	struct kvpull_share_reader_end end;
	uint32_t turns = 200;

	(void)begin(world, 0);
	while (turns--)
		share_turn(world);
	weights_change(world);
	assert_int_equal(kvpull_share_reader_end(world->reader, &end), 1);
	assert_int_equal(end.code, KVPULL_ESTALE);
	assert_int_equal(end.codes[0], KVPULL_ESTALE);
}

static struct kvpull_read *hung;
static uint32_t hung_cancels;

static int hung_read(struct kvpull_transport *transport, uint32_t peer,
		     struct kvpull_read *read)
{
	(void)transport;
	(void)peer;
	hung = read;
	return 0;
}

static void hung_cancel(struct kvpull_transport *transport, uint32_t peer,
			struct kvpull_read *read)
{
	(void)transport;
	(void)peer;
	assert_ptr_equal(read, hung);
	hung_cancels++;
}

UNIT_TEST_SHARE(a_deadline_holds_whatever_weights_were_set_before_it, 1)
{
	const uint64_t deadline_ns = world->now_ns + SHARE_STEP_NS;
	struct kvpull_event event = { .kind = KVPULL_EVENT_READ_DONE,
				      .code = KVPULL_EABORTED };
	struct kvpull_share_reader_end end;
	uint64_t id;

	hung_cancels = 0;
	world->ops.read_start = hung_read;
	world->ops.read_cancel = hung_cancel;
	assert_int_equal(ask(world, deadline_ns, &id), 0);
	weights_change(world);
	assert_int_equal(hung_cancels, 0);
	kvpull_share_reader_work(world->reader, deadline_ns);
	kvpull_share_reader_work(world->reader, deadline_ns);
	assert_int_equal(kvpull_share_reader_cancel(world->reader, id), 0);
	assert_int_equal(hung_cancels, 1);
	assert_int_equal(kvpull_share_reader_end(world->reader, &end), 0);
	event.read = hung;
	kvpull_share_reader_take(world->reader, world->route, &event);
	assert_int_equal(kvpull_share_reader_end(world->reader, &end), 1);
	assert_int_equal(end.code, KVPULL_ESTALE);
}

static void expect_refused(struct share_world *world,
			   const struct kvpull_reader_read *read, int code)
{
	uint64_t id;

	assert_int_equal(kvpull_share_reader_read(world->reader, read, &id),
			 code);
}

UNIT_TEST_SHARE(what_is_out_of_bounds_is_not_begun, 1)
{
	struct kvpull_reader_piece piece = { .generation = 1 };
	const struct kvpull_reader_read good = {
		.peer = world->peer,
		.local = world->local,
		.piece_count = 1,
		.pieces = &piece,
		.incarnation = POOL_INCARNATION,
	};
	struct kvpull_reader_read read = good;
	struct kvpull_share_reader_probe probe = { .peer = world->peer };
	uint32_t other;
	uint64_t id;

	read.peer = world->peer + 1;
	expect_refused(world, &read, KVPULL_EINVAL);
	read = good;
	read.local = 1;
	expect_refused(world, &read, KVPULL_EINVAL);
	assert_int_equal(
		kvpull_share_reader_local_add(world->reader, world->chunks[0],
					      SHARE_CHUNK_BYTES / 2, 2, &other),
		0);
	read.local = other;
	expect_refused(world, &read, KVPULL_EINVAL);
	read = good;
	read.incarnation++;
	expect_refused(world, &read, KVPULL_ESTALE);
	read = good;
	read.piece_count = KVPULL_READER_ITEMS_MAX + 1;
	expect_refused(world, &read, KVPULL_EINVAL);
	piece.chunk = SHARE_CHUNKS; /* of the file */
	expect_refused(world, &good, KVPULL_EINVAL);
	piece.chunk = 0;
	piece.block = SHARE_BLOCKS;
	expect_refused(world, &good, KVPULL_EINVAL);
	assert_int_equal(kvpull_share_reader_probe(world->reader, &probe, &id),
			 KVPULL_EINVAL);
}

static void expect_local(struct share_world *world, int code, uint8_t *base,
			 uint64_t block_bytes, uint32_t block_count)
{
	uint32_t local;

	assert_int_equal(kvpull_share_reader_local_add(world->reader, base,
						       block_bytes, block_count,
						       &local),
			 code);
}

UNIT_TEST_SHARE(own_memory_overlaps_no_other, 1)
{
	uint8_t *base = &world->blocks[0][0];

	expect_local(world, KVPULL_EINVAL, base + 1, 1, 1);
	expect_local(world, KVPULL_EINVAL, base - 1, 1, 2);
	expect_local(world, KVPULL_EINVAL, base, UINT64_MAX, 2);
	expect_local(world, KVPULL_EINVAL, base - 1, 0, 1);
	expect_local(world, KVPULL_EINVAL, base - 1, 1, 0);
	expect_local(world, KVPULL_EFULL, base + sizeof(world->blocks), 1,
		     KVPULL_READER_BLOCKS_MAX);
	expect_local(world, 0, base - 1, 1, 1);
}

static void expect_peer(struct share_world *world, int code,
			const struct kvpull_share_reader_peer *peer,
			const struct kvpull_serve *serve)
{
	uint32_t index;

	assert_int_equal(kvpull_share_reader_peer_add(world->reader, peer,
						      serve, &index),
			 code);
}

UNIT_TEST_SHARE(a_share_that_is_larger_than_what_is_served_is_refused, 1)
{
	struct kvpull_share_reader_peer peer;
	struct kvpull_serve serve;
	uint32_t at;

	for (at = 0; at < 9; at++) {
		peer = world->params;
		serve = world->serve;
		if (at == 0)
			peer.share.entry_count++;
		else if (at == 1)
			peer.share.entry_count = KVPULL_POOL_WINDOW - 1;
		else if (at == 2)
			peer.share.chunk_count++;
		else if (at == 3)
			peer.share.chunk_count = 0;
		else if (at == 4)
			peer.share.slot_count++;
		else if (at == 5)
			peer.share.slot_count = UINT32_MAX;
		else if (at == 6)
			peer.chunk_bytes = UINT64_MAX;
		else if (at == 7)
			peer.share.incarnation = 0;
		else
			serve.region_count = 1;
		expect_peer(world, KVPULL_EPROTO, &peer, &serve);
	}
	/* All slots are 0 bytes long, modulo 2^64: each would be elsewhere. */
	peer = world->params;
	serve = world->serve;
	peer.share.chunk_count = 1;
	peer.share.slot_count = UINT32_C(1) << 20;
	peer.chunk_bytes = UINT64_C(1) << 44;
	serve.slot_count = peer.share.chunk_count + peer.share.slot_count;
	serve.region_count = KVPULL_SHARE_REGION_SLOTS + 1;
	serve.regions[KVPULL_SHARE_REGION_CHUNKS].bytes = peer.chunk_bytes;
	serve.regions[KVPULL_SHARE_REGION_SLOTS].bytes = 4096;
	expect_peer(world, KVPULL_EPROTO, &peer, &serve);
	for (at = 1; at < KVPULL_READER_PEERS_MAX; at++)
		expect_peer(world, 0, &world->params, &world->serve);
	expect_peer(world, KVPULL_EFULL, &world->params, &world->serve);
}

UNIT_TEST_SHARE(more_than_reads_max_are_refused_until_an_end_is_told, 1)
{
	struct kvpull_share_reader_end end;
	struct kvpull_pool_found found;
	uint64_t id;
	uint32_t at;

	find(world, &found);
	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		assert_int_equal(ask(world, 0, &id), 0);
	assert_int_equal(ask(world, 0, &id), KVPULL_EFULL);
	assert_int_equal(share_read(world, &found, 1, 0, &id), KVPULL_EFULL);
	share_wait(world, &end);
	assert_int_equal(share_read(world, &found, 1, 0, &id), 0);
	for (at = 0; at < KVPULL_READER_OPEN_MAX; at++)
		share_wait(world, &end);
}
