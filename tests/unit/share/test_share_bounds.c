/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of a reader, full: the last entry that is allowed, the first that
 * is not, and the place that comes free.
 */
#include "tests/unit/share/handle.h"
#include "tests/unit/share/world.h"

#define PEERS 3u

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;

UNIT_FIXTURE(setup)
{
	handle_begin(&world, ",\"peers_max\":3");
	handle_owner(&world);
	handle_reader(&world);
}

UNIT_TEST_WITH(no_more_peers_are_added_than_peers_max, setup, handle_down)
{
	struct kvpull_reader_peer peers[PEERS + 1];
	struct kvpull_reader_place place;
	char address[512];
	size_t byte_count;
	uint64_t id;
	uint32_t peer;
	uint32_t at;

	assert_int_equal(world.ops->address(world.owner, address,
					    sizeof(address), &byte_count),
			 0);
	for (at = 0; at < PEERS; at++) {
		assert_int_equal(
			world.ops->peer_add(world.reader, address, &peer), 0);
		assert_int_equal(peer, at);
	}
	assert_int_equal(world.ops->peer_add(world.reader, address, &peer),
			 KVPULL_EFULL);
	assert_int_equal(world.ops->peers(world.reader, peers, PEERS + 1,
					  sizeof(peers[0])),
			 PEERS);
	for (at = 0; at < PEERS; at++)
		assert_int_equal(peers[at].peer, at);
	assert_int_equal(world.ops->peer_remove(world.reader, PEERS),
			 KVPULL_EINVAL);
	world.peer = PEERS;
	assert_int_equal(handle_probe(&world, 1, &place, &id), KVPULL_EINVAL);
	/* The place of the second comes free. */
	assert_int_equal(world.ops->peer_remove(world.reader, 1), 0);
	assert_int_equal(world.ops->peer_remove(world.reader, 1),
			 KVPULL_EINVAL);
	memset(peers, 0xff, sizeof(peers));
	assert_int_equal(
		world.ops->peers(world.reader, peers, 1, sizeof(peers[0])),
		PEERS - 1);
	assert_int_equal(peers[0].peer, 0);
	assert_int_equal(peers[1].peer, UINT32_MAX); /* no room, not written */
	assert_int_equal(
		world.ops->peers(world.reader, peers, 2, sizeof(peers[0])),
		PEERS - 1);
	assert_int_equal(peers[1].peer, 2);
	while (world.ops->peer_add(world.reader, address, &peer))
		(void)handle_turn(&world, NULL);
	assert_int_equal(peer, 1);
	world.peer = 2;
	assert_int_equal(handle_settle(&world), 0);
}

/* A directory of one window: as many keys as it has entries. */
UNIT_TEST_WITH(no_more_keys_are_listed_than_entries, setup, handle_down)
{
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = HANDLE_CHUNK_BYTES,
		.chunk_count = KVPULL_POOL_WINDOW + 1,
		.entry_count = KVPULL_POOL_WINDOW,
	};
	struct kvpull_reader *owner = handle_open(&world, 0, NULL);
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_reader_put put = { .struct_size = sizeof(put) };
	const uint32_t first = 0;
	uint64_t key;

	assert_int_equal(world.ops->share(owner, &share, &memory, NULL), 0);
	assert_int_equal(owner->terms.entry_count, KVPULL_POOL_WINDOW);
	assert_int_equal(world.ops->epoch(owner, &put.epoch), 0);
	put.key = (struct kvpull_reader_key){ &key, sizeof(key) };
	for (key = 0; key <= KVPULL_POOL_WINDOW; key++) {
		put.chunk = (uint32_t)key;
		assert_int_equal(world.ops->generation(owner, put.chunk,
						       &put.generation),
				 0);
		assert_int_equal(world.ops->put(owner, &put),
				 key < KVPULL_POOL_WINDOW ? 0 : KVPULL_EFULL);
	}
	assert_int_equal(owner->counts.puts, KVPULL_POOL_WINDOW);
	assert_int_equal(owner->counts.puts_full, 1);
	/* A chunk that is bumped gives its entry to the next key. */
	assert_int_equal(world.ops->guard_bump(owner, &first, 1, NULL), 0);
	key = KVPULL_POOL_WINDOW;
	assert_int_equal(world.ops->put(owner, &put), 0);
	world.ops->close(owner);
}

/* A log that anybody could fill would hide what matters. */
UNIT_TEST_WITH(warnings_of_a_handle_are_bounded, setup, handle_down)
{
	const _Atomic uint64_t *suppressed =
		&world.reader->log_budget.suppressed;
	uint32_t peer;
	uint32_t at;

	for (at = 0; at < 5000; at++)
		assert_int_equal(
			world.ops->peer_add(world.reader, "no address", &peer),
			KVPULL_EINVAL);
	assert_true(atomic_load_explicit(suppressed, memory_order_relaxed) > 0);
}

UNIT_TEST_WITH(no_more_memory_is_added_than_locals_max, setup, handle_down)
{
	static uint8_t memory[KVPULL_READER_LOCALS_MAX][64];
	uint32_t local;
	uint32_t at;

	/* handle_reader() has added the first. */
	for (at = 1; at < KVPULL_READER_LOCALS_MAX; at++) {
		assert_int_equal(world.ops->local_add(world.reader, memory[at],
						      64, 1, &local),
				 0);
		assert_int_equal(local, at);
	}
	assert_int_equal(
		world.ops->local_add(world.reader, memory[0], 64, 1, &local),
		KVPULL_EFULL);
}

UNIT_TEST(no_more_blocks_are_added_than_blocks_max)
{
	struct share_world *shares = share_open(1);
	uint8_t *base = &shares->blocks[0][0] + sizeof(shares->blocks);
	uint32_t local;

	assert_int_equal(kvpull_share_reader_local_add(
				 shares->reader, base, 1,
				 KVPULL_READER_BLOCKS_MAX - SHARE_BLOCKS + 1,
				 &local),
			 KVPULL_EFULL);
	assert_int_equal(kvpull_share_reader_local_add(
				 shares->reader, base, 1,
				 KVPULL_READER_BLOCKS_MAX - SHARE_BLOCKS,
				 &local),
			 0);
	assert_int_equal(kvpull_share_reader_local_add(shares->reader,
						       shares->chunks[0], 1, 1,
						       &local),
			 KVPULL_EFULL);
	/* Blocks that are taken back are there for the next memory. */
	kvpull_share_reader_local_undo(shares->reader);
	assert_int_equal(kvpull_share_reader_local_add(shares->reader,
						       shares->chunks[0], 1, 1,
						       &local),
			 0);
	assert_int_equal(local, 1);
	share_close(shares);
}

UNIT_TEST(peer_that_is_none_is_neither_asked_nor_removed)
{
	static const uint32_t none[] = { KVPULL_READER_PEERS_MAX - 1,
					 KVPULL_READER_PEERS_MAX, UINT32_MAX };
	struct share_world *shares = share_open(1);
	struct kvpull_pool_key key = pool_key(&shares->owner, 1);
	struct kvpull_share_reader_probe probe = { .key_count = 1,
						   .keys = &key };
	uint64_t id;
	uint32_t at;

	for (at = 0; at < 3; at++) {
		probe.peer = none[at];
		assert_int_equal(
			kvpull_share_reader_probe(shares->reader, &probe, &id),
			KVPULL_EINVAL);
		assert_int_equal(kvpull_share_reader_peer_remove(shares->reader,
								 none[at]),
				 KVPULL_EINVAL);
	}
	assert_int_equal(
		kvpull_share_reader_peer_remove(shares->reader, shares->peer),
		KVPULL_EAGAIN); /* connected */
	for (at = 0; at < 3; at++)
		assert_int_equal(kvpull_share_reader_cancel(
					 shares->reader,
					 UINT64_C(1) << 32 |
						 (KVPULL_READER_OPEN_MAX + at)),
				 KVPULL_EINVAL);
	share_close(shares);
}

/* Handles of two routes may be equal. */
UNIT_TEST(peer_of_another_route_that_is_lost_ends_no_read_of_this_one)
{
	static const struct kvpull_transport other;
	struct share_world *shares = share_open(1);
	struct kvpull_pool_found found;
	struct kvpull_share_reader_end end;
	struct kvpull_event event = { .kind = KVPULL_EVENT_PEER_DOWN,
				      .index = shares->handle };
	uint64_t id;

	share_put(shares, 1, 1);
	assert_int_equal(share_probe(shares, 1, &found), 1);
	kvpull_share_reader_take(shares->reader, &other, &event);
	assert_int_equal(share_read(shares, &found, 1, 0, &id), 0);
	share_wait(shares, &end);
	assert_int_equal(end.code, 0);
	event.index++;
	kvpull_share_reader_take(shares->reader, shares->route, &event);
	assert_int_equal(share_read(shares, &found, 1, 0, &id), 0);
	share_wait(shares, &end);
	assert_int_equal(end.code, 0);
	event.index--;
	kvpull_share_reader_take(shares->reader, shares->route, &event);
	assert_int_equal(share_read(shares, &found, 1, 0, &id), KVPULL_EPEER);
	share_close(shares);
}

/* Chunks and slots, each as many and as long as are served, and one more. */
UNIT_TEST(share_is_taken_to_the_last_place_that_is_served)
{
	struct share_world *shares = share_open(1);
	struct kvpull_share_reader_peer peer = shares->params;
	struct kvpull_serve serve = shares->serve;
	uint64_t *const slots_bytes =
		&serve.regions[KVPULL_SHARE_REGION_SLOTS].bytes;
	uint32_t index;

	peer.share.slot_count = 3;
	serve.slot_count = peer.share.chunk_count + 3;
	serve.region_count = KVPULL_SHARE_REGION_SLOTS + 1;
	*slots_bytes = 3 * peer.chunk_bytes;
	assert_int_equal(kvpull_share_reader_peer_add(shares->reader, &peer,
						      &serve, &index),
			 0);
	*slots_bytes -= 1;
	assert_int_equal(kvpull_share_reader_peer_add(shares->reader, &peer,
						      &serve, &index),
			 KVPULL_EPROTO);
	*slots_bytes += 1;
	serve.slot_count--;
	assert_int_equal(kvpull_share_reader_peer_add(shares->reader, &peer,
						      &serve, &index),
			 KVPULL_EPROTO);
	serve.slot_count++;
	serve.region_count++;
	assert_int_equal(kvpull_share_reader_peer_add(shares->reader, &peer,
						      &serve, &index),
			 KVPULL_EPROTO);
	serve.region_count--;
	peer.share.slot_count = 0; /* a file of no slots */
	assert_int_equal(kvpull_share_reader_peer_add(shares->reader, &peer,
						      &serve, &index),
			 KVPULL_EPROTO);
	peer.share.slot_count = 3;
	peer.chunk_bytes = 0;
	assert_int_equal(kvpull_share_reader_peer_add(shares->reader, &peer,
						      &serve, &index),
			 KVPULL_EPROTO);
	share_close(shares);
}
