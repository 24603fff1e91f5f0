/* SPDX-License-Identifier: Apache-2.0 */
/* The same-node route against bad names, folders, callers and producers. */

#include <sys/sysinfo.h>

#include "tests/unit/shm/raw.h"

uint32_t world_blocks = 64u; /* nobody reads much here */

UNIT_TEST_OPEN(peers_beyond_the_table_are_refused)
{
	struct kvpull_transport *d = world->d.transport;
	uint32_t peer;
	uint32_t i;

	for (i = 0; i < 4; i++)
		assert_int_equal(d->ops->connect(d, "p", &peer), 0);
	assert_int_equal(d->ops->connect(d, "p", &peer), KVPULL_EFULL);
	d->ops->disconnect(d, peer);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	assert_int_equal(d->ops->connect(d, "p", &peer), 0);
}

UNIT_TEST_OPEN(regions_of_other_kinds_are_not_served)
{
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_serve serve;

	assert_int_equal(p->ops->serve(p, &world->serve), KVPULL_EINVAL);
	serve = world->serve;
	serve.regions[0].kind = KVPULL_REGION_DMABUF;
	assert_int_equal(p->ops->serve(p, &serve), KVPULL_EUNSUPPORTED);
	serve = world->serve;
	serve.entries_fd = -1;
	assert_int_equal(p->ops->serve(p, &serve), KVPULL_EUNSUPPORTED);
	serve = world->serve;
	serve.regions[0].fd = -1;
	assert_int_equal(p->ops->serve(p, &serve), KVPULL_EINVAL);
}

UNIT_TEST_OPEN(descriptors_of_a_caller_are_not_taken)
{
	int fds[30];
	uint32_t before;
	uint32_t i;
	int fd;

	fd = raw_connect(world, "p");
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	for (i = 0; i < 30; i++)
		fds[i] = STDERR_FILENO;
	before = fds_open();
	if (has_passrights()) {
		/* The descriptors do not even leave. */
		assert_int_equal(raw_try_send(fd, fds, 30), EPERM);
		raw_send(fd, NULL, 0);
		(void)world_expect(world, &world->p,
				   KVPULL_EVENT_CALLER_MESSAGE);
		assert_int_equal(fds_open(), before);
	} else {
		raw_send(fd, fds, 30);
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
		/*
		 * The caller's socket and pidfd are closed, and nothing came
		 * instead.
		 */
		assert_int_equal(fds_open(), before - 2);
	}
	(void)close(fd);
}

UNIT_TEST_IN(descriptors_are_taken_once, imposter)
{
	struct world *world = &imposter->world;
	int fds[KVPULL_PACKET_FDS_MAX];
	uint32_t i;

	for (i = 0; i < KVPULL_PACKET_FDS_MAX; i++)
		fds[i] = STDERR_FILENO;
	/* world_close() sees that the first ones are closed too. */
	imposter_welcome(imposter, fds, KVPULL_PACKET_FDS_MAX);
	raw_send(imposter->socket, fds, 1);
	(void)world_peer_down(world, KVPULL_EPROTO);
	(void)close(imposter->socket);
}

/* A welcome that is good but for its doorbell, which is closed. */
static void bell_is_refused(struct imposter *imposter, const int *good,
			    int bell)
{
	const int fds[4] = { good[0], good[1], bell, good[3] };

	assert_true(bell >= 0);
	assert_int_equal(attach_with(imposter, fds, 4), KVPULL_EPROTO);
	(void)close(bell);
}

/* Regions of the welcome do not match their descriptors. */
static void regions_are_refused(struct imposter *imposter, const int good[5])
{
	struct world *world = &imposter->world;
	int more[5];

	/* Shorter than the welcome says. */
	world->serve.regions[0].bytes += 1 << 21;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EPROTO);
	world->serve.regions[0].bytes -= 1 << 21;
	/* Beyond its end, and so far that the sum is small again. */
	world->serve.regions[0].fd_offset = 1 << 21;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EPROTO);
	world->serve.regions[0].fd_offset = UINT64_MAX;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EPROTO);
	world->serve.regions[0].bytes = UINT64_MAX;
	world->serve.regions[0].fd_offset = WORLD_BLOCK_BYTES;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EPROTO);
	world->serve.regions[0].bytes = world->kv.bytes;
	world->serve.regions[0].fd_offset = 0;
	/*
	 * A region names a descriptor that is there, and belongs to no region.
	 */
	memcpy(more, good, sizeof(more));
	more[4] = good[3];
	world->serve.regions[0].fd_index = 1;
	assert_int_equal(attach_with(imposter, more, 5), KVPULL_EPROTO);
	world->serve.regions[0].fd_index = UINT32_MAX - 3;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EPROTO);
	world->serve.regions[0].fd_index = 0;
	world->serve.slot_count = UINT32_MAX;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EPROTO);
	world->serve.slot_count = 0;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EPROTO);
	world->serve.slot_count = WORLD_SLOTS;
	world->serve.region_count = 0;
	assert_int_equal(attach_with(imposter, good, 3), KVPULL_EPROTO);
	world->serve.region_count = KVPULL_REGIONS_MAX + 1;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EPROTO);
	world->serve.region_count = 1;
	world->serve.regions[0].kind = KVPULL_REGION_STAGED;
	assert_int_equal(attach_with(imposter, good, 4), KVPULL_EUNSUPPORTED);
}

/* A memfd as a producer makes it, and no page of it: nobody maps it here. */
static int sparse_make(uint64_t bytes)
{
	const int fd =
		memfd_create("test-sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[32];
	int handed;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS,
			       F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
				       F_SEAL_FUTURE_WRITE),
			 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	handed = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(handed >= 0);
	(void)close(fd);
	return handed;
}

/* A descriptor of 64 TiB, or two regions that only together are too much. */
UNIT_TEST_IN(memory_beyond_what_this_node_has_is_refused_by_name, imposter)
{
	struct world *world = &imposter->world;
	struct kvpull_region_view *regions;
	struct sysinfo node;
	uint64_t bytes;
	struct good good;

	regions = world->serve.regions;
	good_begin(&good, world);
	assert_int_equal(sysinfo(&node), 0);
	bytes = ((uint64_t)node.totalram + node.totalswap) * node.mem_unit;
	good.fds[3] = sparse_make(KVPULL_SEGMENT_BYTES_MAX);
	regions[0].bytes = KVPULL_SEGMENT_BYTES_MAX;
	assert_int_equal(attach_with(imposter, good.fds, 4),
			 KVPULL_EUNSUPPORTED);
	assert_non_null(strstr(lines.bad, "RAM and swap of this node"));
	regions[0].bytes = bytes;
	assert_int_equal(attach_with(imposter, good.fds, 4), 0);
	/* A few bytes, far behind. */
	regions[0].fd_offset = bytes;
	regions[0].bytes = 4096;
	assert_int_equal(attach_with(imposter, good.fds, 4),
			 KVPULL_EUNSUPPORTED);
	regions[0].fd_offset = 0;
	regions[0].bytes = bytes - 4096;
	regions[1] = regions[0];
	regions[1].bytes = 8192;
	regions[1].fd_index = 1;
	good.fds[4] = good.fds[3];
	world->serve.region_count = 2;
	assert_int_equal(attach_with(imposter, good.fds, 5),
			 KVPULL_EUNSUPPORTED);
	(void)close(good.fds[3]);
	good_end(&good);
}

/* ulimit -v of the engine: mmap() would fail for ever. */
UNIT_TEST_IN(memory_beyond_our_address_space_is_refused_by_name, imposter)
{
	struct world *world = &imposter->world;
	struct rlimit before;
	struct rlimit space;
	struct good good;

	good_begin(&good, world);
	good.fds[3] = sparse_make(2u << 20);
	world->serve.regions[0].bytes = 2u << 20;
	imposter_welcome(imposter, good.fds, 4);
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	space = before;
	space.rlim_cur = 1u << 20;
	assert_int_equal(setrlimit(RLIMIT_AS, &space), 0);
	assert_int_equal(world_attach(world, &world->serve),
			 KVPULL_EUNSUPPORTED);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_non_null(strstr(lines.bad, "ulimit -v"));
	(void)close(good.fds[3]);
	(void)close(imposter->socket);
	good_end(&good);
}

UNIT_TEST_IN(welcome_with_wrong_descriptors_is_refused, imposter)
{
	struct world *world = &imposter->world;
	struct good all;
	const int *good = all.fds;
	int bad[4];
	int pipes[2];
	uint32_t i;

	good_begin(&all, world);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(attach_with(imposter, good, 4), 0);
	assert_int_equal(attach_with(imposter, good, 3), KVPULL_EPROTO);
	assert_int_equal(attach_with(imposter, good, 0), KVPULL_EPROTO);
	assert_int_equal(attach_with(imposter, good, 5), KVPULL_EPROTO);
	/* Each in turn another thing: a pipe that a write would block on. */
	for (i = 0; i < 4; i++) {
		memcpy(bad, good, sizeof(bad));
		bad[i] = pipes[1];
		assert_int_equal(attach_with(imposter, bad, 4), KVPULL_EPROTO);
	}
	/* Descriptors that can block, do not ring, or are locked. */
	bell_is_refused(imposter, good, eventfd(0, EFD_CLOEXEC));
	bell_is_refused(imposter, good,
			socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	bell_is_refused(imposter, good,
			socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	/* Memory that its owner could cut short below our feet. */
	memcpy(bad, good, sizeof(bad));
	bad[3] = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(bad[3], world_blocks * WORLD_BLOCK_BYTES),
			 0);
	assert_int_equal(attach_with(imposter, bad, 4), KVPULL_EPROTO);
	(void)close(bad[3]);
	regions_are_refused(imposter, good);
	/* A file is read, and a read of a pipe would never end. */
	world->serve.regions[0].kind = KVPULL_REGION_FILE;
	memcpy(bad, good, sizeof(bad));
	bad[3] = pipes[0];
	assert_int_equal(attach_with(imposter, bad, 4), KVPULL_EPROTO);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	good_end(&all);
}

/* The producer controls the doorbell's flags and value, also after attach. */
UNIT_TEST_IN(doorbell_of_a_hostile_producer_does_not_block, imposter)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	struct world *world = &imposter->world;
	struct kvpull_transport *d = world->d.transport;
	struct good good;

	good_begin(&good, world);
	imposter_welcome(imposter, good.fds, 4);
	assert_int_equal(world_attach(world, &world->serve), 0);
	/* Full, and a write to it waits. */
	while (send(good.bells[1], good.fds, sizeof(good.fds), MSG_DONTWAIT) >
	       0)
		;
	assert_int_equal(fcntl(good.bells[1], F_SETFL, 0), 0);
	assert_int_equal(kvpull_ring_arm(&good.ring), 0);
	(void)alarm(60); /* ends the program if it hangs */
	assert_int_equal(d->ops->notify(d, world->peer, &record), 0);
	(void)alarm(0);
	good_end(&good);
	(void)close(imposter->socket);
}

/* The producer would have to read, or drop, bytes in its doorbell. */
UNIT_TEST_OPEN(consumer_puts_nothing_into_its_doorbell)
{
	static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX];
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_event event;
	int fds[KVPULL_PACKET_FDS_MAX];
	uint32_t count = KVPULL_PACKET_FDS_MAX;
	uint32_t at;
	int fd;

	fd = raw_connect(world, "p");
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	assert_int_equal(
		p->ops->admit(p, event.index, "welcome", 7, &world->ring), 0);
	assert_int_equal(kvpull_endpoint_receive(fd, bytes, fds, &count), 7);
	assert_int_equal(count, 4);
	/* A program that the host starts would keep them. */
	for (at = 0; at < count; at++)
		assert_true(fcntl(fds[at], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(raw_try_send(fds[2], NULL, 0), EPIPE);
	assert_int_equal(raw_try_send(fds[2], fds, 1), EPIPE);
	while (count)
		(void)close(fds[--count]);
	(void)close(fd);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
}

/* D refuses foreign memory with that table of entries, in these words. */
static void table_is_refused(struct world *world,
			     struct kvpull_revocation_entry *entries,
			     const char *words)
{
	struct kvpull_serve remote;

	world_serve_foreign(world);
	world_welcome(world);
	remote = world->serve;
	remote.entries = entries;
	assert_int_equal(world_attach(world, &remote), KVPULL_EROUTE);
	assert_non_null(strstr(lines.bad, words));
}

UNIT_TEST_OPEN(foreign_memory_that_cannot_be_read_is_refused)
{
	table_is_refused(world, NULL, "cannot be read");
}

UNIT_TEST_OPEN(table_of_another_process_is_refused)
{
	static struct kvpull_revocation_entry other[WORLD_SLOTS];

	table_is_refused(world, other, "another process");
}

UNIT_TEST_OPEN(flood_of_messages_costs_at_most_eight_a_poll)
{
	int fds[WORLD_CALLERS_MAX];
	uint32_t seen[WORLD_CALLERS_MAX] = { 0 };
	uint32_t turn;
	uint32_t i;

	for (i = 0; i < WORLD_CALLERS_MAX; i++) {
		fds[i] = raw_connect(world, "p");
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	}
	for (turn = 0; turn < 5; turn++)
		for (i = 0; i < WORLD_CALLERS_MAX; i++)
			raw_send(fds[i], NULL, 0);
	for (turn = 0; turn < 5; turn++) {
		side_look(world, &world->p);
		assert_in_range(world->p.queue_count, 1, 8);
		while (world->p.queue_count) {
			const struct kvpull_event event = world_expect(
				world, &world->p, KVPULL_EVENT_CALLER_MESSAGE);

			assert_int_equal(event.data_bytes, 1);
			seen[event.index]++;
		}
		/* And each gets its turn. */
		for (i = 0; i < WORLD_CALLERS_MAX; i++)
			assert_int_equal(seen[i], turn + 1);
	}
	for (i = 0; i < WORLD_CALLERS_MAX; i++)
		(void)close(fds[i]);
}

UNIT_TEST_OPEN(events_beyond_the_capacity_wait)
{
	struct kvpull_event event;
	struct kvpull_transport *p = world->p.transport;
	int fds[WORLD_CALLERS_MAX];
	uint32_t kinds[KVPULL_EVENT_CALLER_DOWN + 1] = { 0 };
	uint32_t i;

	for (i = 0; i < WORLD_CALLERS_MAX; i++) {
		fds[i] = raw_connect(world, "p");
		raw_send(fds[i], NULL, 0);
		(void)shutdown(fds[i], SHUT_WR);
	}
	for (i = 0; i < 100; i++) {
		p->ops->disarm(p);
		if (p->ops->poll(p, world->now_ns + i, &event, 1) == 1)
			kinds[event.kind]++;
	}
	assert_int_equal(kinds[KVPULL_EVENT_CALLER_UP], WORLD_CALLERS_MAX);
	assert_int_equal(kinds[KVPULL_EVENT_CALLER_MESSAGE], WORLD_CALLERS_MAX);
	assert_int_equal(kinds[KVPULL_EVENT_CALLER_DOWN], WORLD_CALLERS_MAX);
	assert_int_equal(p->ops->poll(p, world->now_ns, &event, 0), 0);
	for (i = 0; i < WORLD_CALLERS_MAX; i++)
		(void)close(fds[i]);
}

UNIT_TEST_OPEN(new_callers_leave_room_for_the_messages_of_old_ones)
{
	struct kvpull_event events[16];
	struct kvpull_transport *p = world->p.transport;
	int fds[3];
	uint32_t total = 0;
	uint32_t i;

	fds[0] = raw_connect(world, "p");
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	/* The listener is ready first, then the caller. */
	fds[1] = raw_connect(world, "p");
	fds[2] = raw_connect(world, "p");
	raw_send(fds[0], NULL, 0);
	for (i = 0; i < 4; i++) {
		int count;

		p->ops->disarm(p);
		count = p->ops->poll(p, world->now_ns, events, 2);
		assert_in_range(count, 0, 2);
		total += (uint32_t)count;
	}
	assert_int_equal(total, 3);
	for (i = 0; i < 3; i++)
		(void)close(fds[i]);
}

UNIT_TEST_OPEN(messages_beyond_the_limit_are_refused)
{
	static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX + 1];
	struct kvpull_transport *p;
	struct kvpull_event event;

	world_greet(world);
	p = world->p.transport;
	assert_int_equal(
		p->ops->caller_send(p, world->caller, bytes, sizeof(bytes)),
		KVPULL_EPROTO);
	assert_int_equal(p->ops->admit(p, world->caller, bytes, sizeof(bytes),
				       &world->ring),
			 KVPULL_EPROTO);
	/* Nothing happened: it can be told why not, or get a smaller one. */
	assert_int_equal(p->ops->admit(p, world->caller, bytes,
				       KVPULL_MESSAGE_BYTES_MAX, &world->ring),
			 0);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.data_bytes, KVPULL_MESSAGE_BYTES_MAX);
	assert_int_equal(world_attach(world, &world->serve), 0);
	assert_int_equal(
		p->ops->admit(p, world->caller, bytes, 1, &world->ring),
		KVPULL_EPEER);
}

UNIT_TEST_OPEN(admit_of_a_caller_that_left_fails)
{
	struct kvpull_transport *p;

	world_greet(world);
	p = world->p.transport;
	side_close(&world->d);
	assert_int_equal(
		p->ops->admit(p, world->caller, "welcome", 7, &world->ring),
		KVPULL_EPEER);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(
		p->ops->admit(p, world->caller, "welcome", 7, &world->ring),
		KVPULL_EPEER);
}

UNIT_TEST_OPEN(message_too_long_for_a_packet_ends_its_caller)
{
	static uint8_t bytes[KVPULL_PACKET_BYTES_MAX + 1];
	struct kvpull_event event;
	int fd;

	fd = raw_connect(world, "p");
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	assert_int_equal(send(fd, bytes, KVPULL_PACKET_BYTES_MAX, MSG_NOSIGNAL),
			 KVPULL_PACKET_BYTES_MAX);
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_MESSAGE);
	assert_int_equal(event.data_bytes, KVPULL_PACKET_BYTES_MAX);
	/* The packet's begin alone might be a good message. */
	assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL),
			 sizeof(bytes));
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	(void)close(fd);
}

/* The engine drains its ring until then. */
UNIT_TEST_OPEN(caller_is_neither_refused_nor_forgotten_too_early)
{
	struct kvpull_transport *p = world->p.transport;
	uint32_t index;
	int fd;

	fd = raw_connect(world, "p");
	index = raw_admit(world);
	p->ops->refuse(p, index, "no", 2);
	p->ops->forget(p, index);
	assert_int_equal(kvpull_ring_ready(world->ring), 0);
	raw_send(fd, NULL, 0);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_MESSAGE);
	p->ops->drop(p, index);
	p->ops->refuse(p, index, "no", 2);
	p->ops->forget(p, index);
	assert_int_equal(
		world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN).index,
		index);
	assert_int_equal(kvpull_ring_ready(world->ring), 0);
	p->ops->forget(p, index);
	(void)close(fd);
}

/* All at once: the others are told by the next poll. */
UNIT_TEST_OPEN(ends_beyond_the_capacity_wait)
{
	struct kvpull_event events[2 * WORLD_CALLERS_MAX];
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_transport *d = world->d.transport;
	uint32_t peers[WORLD_CALLERS_MAX];
	uint32_t callers[WORLD_CALLERS_MAX];
	uint32_t i;

	for (i = 0; i < WORLD_CALLERS_MAX; i++) {
		world_greet(world);
		peers[i] = world->peer;
		callers[i] = world->caller;
	}
	for (i = 0; i < WORLD_CALLERS_MAX; i++) {
		p->ops->drop(p, callers[i]);
		d->ops->disconnect(d, peers[i]);
	}
	/* The first poll ends their reads. */
	assert_int_equal(d->ops->poll(d, world->now_ns, events, 0), 0);
	for (i = 0; i < WORLD_CALLERS_MAX; i++) {
		assert_int_equal(p->ops->poll(p, world->now_ns, events, 1), 1);
		assert_int_equal(events[0].kind, KVPULL_EVENT_CALLER_DOWN);
		assert_int_equal(d->ops->poll(d, world->now_ns, events, 1), 1);
		assert_int_equal(events[0].kind, KVPULL_EVENT_PEER_DOWN);
	}
}
