/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is lent to another thread, while its peer comes and goes. */
#include "base/mapping.h"
#include "tests/unit/shm/world.h"

#define BLOCKS 4u

static void lend(struct world *world, struct kvpull_mapping *mapping)
{
	struct kvpull_transport *d = world->d.transport;

	assert_int_equal(d->ops->lend(d, world->peer, mapping), 0);
	kvpull_mapping_open(mapping);
}

UNIT_TEST_CONNECTED(lent_memory_is_copied)
{
	struct kvpull_mapping mapping = { 0 };
	struct kvpull_read read;

	lend(world, &mapping);
	assert_int_equal(mapping.slot_count, WORLD_SLOTS);
	assert_int_equal(
		kvpull_revocation_read(&mapping.entries[1]).incarnation,
		WORLD_INCARNATION);
	read = world_read(world, BLOCKS);
	assert_true(kvpull_mapping_take(&mapping));
	assert_int_equal(mapping.copy(&mapping, &read), 0);
	kvpull_mapping_give(&mapping);
	world_read_verify(world, BLOCKS);
}

UNIT_TEST_CONNECTED(pinned_memory_of_a_lost_peer_stays)
{
	struct kvpull_mapping mapping = { 0 };
	struct kvpull_transport *d;
	struct kvpull_read read;
	uint32_t turns;

	lend(world, &mapping);
	read = world_read(world, BLOCKS);
	d = world->d.transport;
	assert_true(kvpull_mapping_take(&mapping));
	d->ops->disconnect(d, world->peer);
	assert_false(kvpull_mapping_is_open(&mapping));
	for (turns = 0; turns < 20; turns++) {
		world->now_ns += UINT64_C(1000000);
		(void)side_poll(world, &world->d);
		assert_int_equal(world->d.queue_count, 0);
		/* And the owner may sleep meanwhile: a timer wakes it. */
		assert_int_equal(d->ops->arm(d), 0);
		d->ops->disarm(d);
	}
	assert_int_equal(mapping.copy(&mapping, &read), 0);
	world_read_verify(world, BLOCKS);
	kvpull_mapping_give(&mapping);
	assert_true(kvpull_mapping_is_free(&mapping));
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
}

UNIT_TEST_IN_WORLD(memory_that_is_not_mapped_is_not_lent, world_begin)
{
	struct kvpull_mapping mapping = { 0 };
	struct kvpull_transport *d;

	world_memory_make(world);
	world->serve.regions[0].kind = KVPULL_REGION_FOREIGN;
	world->serve.regions[0].fd = -1;
	world_serve(world, "p");
	world_open_consumer(world);
	world_connect(world);
	d = world->d.transport;
	assert_int_equal(d->ops->lend(d, world->peer, &mapping),
			 KVPULL_EUNSUPPORTED);
}

/* The engine's thread copies from mappings: a file has no address. */
UNIT_TEST_IN_WORLD(peer_with_a_file_is_not_lent, world_begin)
{
	struct kvpull_mapping mapping = { 0 };
	char path[32];
	int file;

	world_memory_make(world);
	file = memfd_create("test-file", MFD_CLOEXEC);
	assert_true(file >= 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	assert_int_equal(ftruncate(file, (off_t)world->kv.bytes), 0);
	world->serve.regions[1] = world->serve.regions[0];
	world->serve.regions[1].kind = KVPULL_REGION_FILE;
	world->serve.regions[1].fd = open(path, O_RDONLY | O_CLOEXEC);
	world->serve.region_count = 2;
	world_serve(world, "p");
	world_open_consumer(world);
	world_connect(world);
	assert_int_equal(world->d.transport->ops->lend(world->d.transport,
						       world->peer, &mapping),
			 KVPULL_EUNSUPPORTED);
	(void)close(world->serve.regions[1].fd);
	(void)close(file);
}

/*
 * A mapping of a lost peer would never be closed, and its memory is unmapped
 * soon.
 */
UNIT_TEST_CONNECTED(lost_peer_is_not_lent)
{
	struct kvpull_mapping mapping = { 0 };
	struct kvpull_transport *d = world->d.transport;

	d->ops->disconnect(d, world->peer);
	assert_int_equal(d->ops->lend(d, world->peer, &mapping), KVPULL_EPEER);
	/*
	 * The peer's end has to be reported, and no event will come: no sleep
	 * before.
	 */
	assert_int_equal(d->ops->arm(d), 1);
	d->ops->disarm(d);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
}

/* A pin's end is no event: its owner looks again by itself. */
UNIT_TEST_CONNECTED(owner_is_woken_while_a_lost_peer_is_pinned)
{
	struct kvpull_mapping mapping = { 0 };
	struct kvpull_transport *d;
	struct pollfd due = { .events = POLLIN };

	lend(world, &mapping);
	d = world->d.transport;
	due.fd = d->ops->fd(d);
	assert_true(kvpull_mapping_take(&mapping));
	d->ops->disconnect(d, world->peer);
	side_look(world, &world->d);
	side_look(world, &world->d);
	assert_int_equal(d->ops->arm(d), 0);
	assert_int_equal(poll(&due, 1, 10000), 1);
	d->ops->disarm(d);
	kvpull_mapping_give(&mapping);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
}
