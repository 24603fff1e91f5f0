/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same-node route without memory: each table in turn finds none; and rings of
 * a producer that are smaller or larger than any ring.
 */
#include "tests/lib/refuse.h"
#include "tests/unit/shm/raw.h"

uint32_t world_blocks = 16u;

REFUSABLE(int, madvise, -1, (void *at, size_t bytes, int advice),
	  (at, bytes, advice))

/* Opens with so much memory. Return: the code; *used: what was taken of it. */
static int open_within(struct world *world, size_t bytes_max, size_t *used)
{
	const struct kvpull_shm_params params = world_params(world, "p");
	const uint32_t fds = fds_open();
	struct kvpull_transport *transport = NULL;
	struct kvpull_arena arena;
	int code;

	kvpull_arena_init(&arena, NULL);
	arena.bytes_max = bytes_max;
	code = kvpull_shm_open(&params, &arena, &transport);
	*used = arena.used;
	if (!code) {
		assert_true(kvpull_arena_ok(&arena));
		transport->ops->close(transport, kvpull_clock_close_by());
	}
	kvpull_arena_fini(&arena);
	assert_int_equal(fds_open(), fds);
	return code;
}

/* The next table fits within *bytes_max more bytes: makes that exact. */
static void bound_find(struct world *world, size_t start, size_t *bytes_max)
{
	size_t low = *bytes_max;
	size_t step = 64;
	size_t used;

	while (open_within(world, low + step, &used) && used == start)
		step *= 2;
	for (low += step / 2; step > 64; step /= 2) {
		if (open_within(world, low + step / 4, &used) && used == start)
			low += step / 4;
	}
	*bytes_max = low + 64;
}

UNIT_TEST(route_that_finds_no_memory_half_way_leaves_nothing_open)
{
	struct world world;
	size_t bytes_max = 0;
	size_t before = SIZE_MAX;
	uint32_t tables = 0;
	size_t used;
	int code;

	world_begin(&world);
	for (;;) {
		code = open_within(&world, bytes_max, &used);
		if (!code)
			break;
		assert_int_equal(code, KVPULL_ENOMEM);
		/* A table more fits than with less memory, and no other. */
		assert_true(used != before);
		before = used;
		tables++;
		bound_find(&world, used, &bytes_max);
	}
	/* Four peers alone have six tables each. */
	assert_true(tables > 24);
	assert_int_equal(lines.bad_count, 0);
	world_end(&world);
}

/* A memfd as a producer makes it for a ring. */
static int ring_make(uint64_t bytes)
{
	const int fd =
		memfd_create("test-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS,
			       F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
			 0);
	return fd;
}

/* A producer whose ring has that length; is_mapped: whether it is mapped. */
static void ring_is_refused(struct imposter *imposter, uint64_t bytes,
			    uint32_t is_mapped)
{
	struct world *world = &imposter->world;
	struct kvpull_transport *d = world->d.transport;
	int fds[4] = { world->entries_memory.fd, ring_make(bytes), -1,
		       world->kv.fd };
	int bells[2];
	uint64_t mapped;

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells), 0);
	fds[2] = bells[1];
	imposter_welcome(imposter, fds, 4);
	mapped = refuse_mapped();
	/* Twice for the region and for the table, then for the ring. */
	refuse("madvise", 4, ENOMEM);
	assert_int_equal(world_attach(world, &world->serve),
			 is_mapped ? KVPULL_EAGAIN : KVPULL_EPROTO);
	assert_int_equal(refuse_end(), is_mapped);
	assert_int_equal(refuse_mapped(), mapped);
	assert_int_equal(world_attach(world, &world->serve), KVPULL_EPROTO);
	assert_int_equal(refuse_mapped(), mapped);
	d->ops->disconnect(d, world->peer);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	(void)close(imposter->socket);
	(void)close(bells[0]);
	(void)close(bells[1]);
	(void)close(fds[1]);
}

UNIT_TEST_IN(ring_of_no_bytes_or_too_many_is_not_mapped, imposter)
{
	const uint64_t most =
		kvpull_ring_bytes(KVPULL_RING_RECORDS_MAX) + KVPULL_HUGE_BYTES;

	ring_is_refused(imposter, 0, 0);
	ring_is_refused(imposter, 1, 1);
	ring_is_refused(imposter, most, 1);
	ring_is_refused(imposter, most + 1, 0);
}

/* Zeros where a ring's size should be: the doorbell is not taken either. */
UNIT_TEST_IN(ring_without_a_header_is_refused, imposter)
{
	struct world *world = &imposter->world;
	int fds[4];
	int bells[2];
	uint64_t mapped;
	uint32_t fds_before;

	fds[0] = world->entries_memory.fd;
	fds[1] = ring_make(kvpull_ring_bytes(16));
	fds[3] = world->kv.fd;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells), 0);
	fds[2] = bells[1];
	imposter_connect(imposter);
	fds_before = fds_open();
	raw_send(imposter->socket, fds, 4);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	mapped = refuse_mapped();
	assert_int_equal(world_attach(world, &world->serve), KVPULL_EPROTO);
	assert_int_equal(refuse_mapped(), mapped);
	assert_int_equal(fds_open(), fds_before);
	(void)close(bells[0]);
	(void)close(bells[1]);
	(void)close(fds[1]);
	(void)close(imposter->socket);
}
