/* SPDX-License-Identifier: Apache-2.0 */
/* The same-node route end to end: two transports in one process. */
#include "tests/unit/shm/world.h"

#include "shm/peer.h"

UNIT_TEST(blocks_are_pulled_and_released_end_to_end)
{
	struct world world;
	struct kvpull_transport *d;
	struct kvpull_record record = { .kind = KVPULL_NOTE_RELEASE,
					.slot = 3,
					.generation = 9,
					.tag = 77 };
	struct kvpull_record seen;
	struct kvpull_read read;
	uint32_t fds;

	world_open(&world);
	world_welcome(&world);
	fds = fds_open();
	assert_int_equal(world_attach(&world, &world.serve), 0);
	/*
	 * D keeps the doorbell's descriptor, and not those of table, ring and
	 * region.
	 */
	assert_int_equal(fds_open(), fds - 3);
	d = world.d.transport;
	read = world_read(&world, 4);
	/* Small: done when it returns. */
	assert_int_equal(d->ops->read_start(d, world.peer, &read), 1);
	world_read_verify(&world, 4);
	kvpull_revocation_write(&world.entries[3], 41);
	assert_int_equal(d->ops->check_start(d, world.peer, &read), 1);
	assert_int_equal(world.checked[0].incarnation, WORLD_INCARNATION);
	assert_int_equal(world.checked[0].revoked, 41);
	world.slots[0] = WORLD_SLOTS;
	assert_int_equal(d->ops->check_start(d, world.peer, &read),
			 KVPULL_EPROTO);
	assert_int_equal(d->ops->notify(d, world.peer, &record), 0);
	assert_int_equal(d->ops->notes_open(d, world.peer), 1);
	assert_int_equal(kvpull_ring_ready(world.ring), 1);
	kvpull_ring_pop(world.ring, &seen);
	kvpull_ring_pop_end(world.ring);
	assert_memory_equal(&seen, &record, sizeof(seen));
	assert_int_equal(d->ops->notes_open(d, world.peer), 0);
	assert_int_equal(kvpull_ring_beat_seen(world.ring), 0);
	d->ops->beat(d, world.peer);
	assert_int_equal(kvpull_ring_beat_seen(world.ring), 1);
	world_close(&world);
}

UNIT_TEST_CONNECTED(many_guards_are_read_by_one_check)
{
	static const uint32_t slots[] = { 7, 0, 3, 7, 2 };
	const uint32_t count = sizeof(slots) / sizeof(slots[0]);
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;
	uint32_t at;

	read = world_read(world, 2);
	read.slots = slots;
	read.slot_count = count;
	for (at = 0; at < WORLD_SLOTS; at++)
		kvpull_revocation_write(&world->entries[at], 100 + at);
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 1);
	assert_int_equal(d->ops->check_start(d, world->peer, &read), 1);
	for (at = 0; at < count; at++) {
		assert_int_equal(world->checked[at].incarnation,
				 WORLD_INCARNATION);
		assert_int_equal(world->checked[at].revoked, 100 + slots[at]);
	}
	/* A slot that is not there ends the whole check. */
	read.slots = world->slots;
	world->slots[count - 1] = WORLD_SLOTS;
	assert_int_equal(d->ops->check_start(d, world->peer, &read),
			 KVPULL_EPROTO);
}

/* The segment is mapped once, as far as its longest region goes. */
UNIT_TEST_OPEN(regions_of_one_segment_may_differ_in_length)
{
	struct kvpull_transport *d;
	struct kvpull_read read;

	side_close(&world->p);
	world->serve.regions[1] = world->serve.regions[0];
	world->serve.regions[2] = world->serve.regions[0];
	world->serve.regions[0].bytes = WORLD_BLOCK_BYTES;
	world->serve.regions[2].bytes = WORLD_BLOCK_BYTES;
	world->serve.region_count = 3;
	world_serve(world, "p");
	world_connect(world);
	d = world->d.transport;
	read = world_read(world, 4);
	world->strip.region_index = 1;
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 1);
	world_read_verify(world, 4);
}

UNIT_TEST_OPEN(memory_with_descriptor_0_is_served)
{
	int input;

	side_close(&world->p);
	input = input_close();
	assert_int_equal(dup2(world->serve.regions[0].fd, 0), 0);
	world->serve.regions[0].fd = 0;
	world_serve(world, "p");
	world_connect(world);
	input_open(input);
}

UNIT_TEST_CONNECTED(event_of_an_earlier_peer_ends_no_other)
{
	struct kvpull_shm_peers *peers;
	const struct kvpull_shm_peer *peer;
	struct kvpull_wait_token token = { .kind = KVPULL_WAIT_PEER_DEATH };

	peers = &kvpull_shm_of(world->d.transport)->peers;
	peer = kvpull_shm_peer_at(peers, world->peer);
	token.index = world->peer;
	token.generation = peer->generation - 1;
	kvpull_shm_peers_ready(peers, &token, NULL);
	assert_int_equal(peer->state, KVPULL_SHM_PEER_ATTACHED);
	token.generation = peer->generation;
	kvpull_shm_peers_ready(peers, &token, NULL);
	assert_int_equal(peer->state, KVPULL_SHM_PEER_LOST);
}

UNIT_TEST_CONNECTED(full_ring_says_again_and_loses_nothing)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	uint32_t i;

	for (i = 0; i < 16; i++)
		assert_int_equal(d->ops->notify(d, world->peer, &record), 0);
	assert_int_equal(d->ops->notify(d, world->peer, &record),
			 KVPULL_EAGAIN);
	assert_int_equal(d->ops->notes_open(d, world->peer), 16);
	assert_int_equal(kvpull_ring_ready(world->ring), 16);
}

UNIT_TEST_CONNECTED(note_rings_the_doorbell_of_a_sleeping_producer_only)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	struct epoll_event event;
	int doorbells;

	doorbells = world->p.transport->ops->doorbell_fd(world->p.transport);
	/* Once for itself, when it was made. */
	assert_int_equal(epoll_wait(doorbells, &event, 1, 0), 1);
	assert_int_equal(d->ops->notify(d, world->peer, &record), 0);
	assert_int_equal(epoll_wait(doorbells, &event, 1, 0), 0);
	assert_int_equal(kvpull_ring_ready(world->ring), 1);
	kvpull_ring_pop(world->ring, &record);
	kvpull_ring_pop_end(world->ring);
	/* Twice: it is never read, and each ring is told. */
	assert_int_equal(kvpull_ring_arm(world->ring), 0);
	assert_int_equal(d->ops->notify(d, world->peer, &record), 0);
	assert_int_equal(epoll_wait(doorbells, &event, 1, 0), 1);
	assert_int_equal(event.data.u32, world->caller);
	assert_int_equal(epoll_wait(doorbells, &event, 1, 0), 0);
	kvpull_ring_disarm(world->ring);
	assert_int_equal(kvpull_ring_ready(world->ring), 1);
	kvpull_ring_pop(world->ring, &record);
	kvpull_ring_pop_end(world->ring);
	assert_int_equal(kvpull_ring_arm(world->ring), 0);
	assert_int_equal(d->ops->notify(d, world->peer, &record), 0);
	assert_int_equal(epoll_wait(doorbells, &event, 1, 0), 1);
}

/* As an engine sleeps: on another epoll, which it polls only when told. */
UNIT_TEST_CONNECTED(doorbell_that_was_not_answered_rings_again)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	struct kvpull_transport *d = world->d.transport;
	uint32_t i;
	int sleeper;

	sleeper = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(sleeper, EPOLL_CTL_ADD,
				   world->p.transport->ops->doorbell_fd(
					   world->p.transport),
				   &event),
			 0);
	(void)epoll_wait(sleeper, &event, 1, 0);
	/* More often than any queue of the kernel's is long. */
	for (i = 0; i < 2000; i++) {
		assert_int_equal(epoll_wait(sleeper, &event, 1, 0), 0);
		assert_int_equal(kvpull_ring_arm(world->ring), 0);
		assert_int_equal(d->ops->notify(d, world->peer, &record), 0);
		assert_int_equal(epoll_wait(sleeper, &event, 1, 0), 1);
		assert_int_equal(kvpull_ring_ready(world->ring), 1);
		kvpull_ring_pop(world->ring, &record);
		kvpull_ring_pop_end(world->ring);
	}
	(void)close(sleeper);
}

UNIT_TEST_CONNECTED(large_read_is_copied_by_workers)
{
	struct pollfd fd = { .events = POLLIN };
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;

	fd.fd = d->ops->fd(d);
	side_look(world, &world->d);
	read = world_read(world, 2048);
	/* An owner that sleeps is woken by the end, once. */
	assert_int_equal(d->ops->arm(d), 0);
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	assert_int_equal(poll(&fd, 1, 60000), 1);
	assert_int_equal(d->ops->arm(d), 1);
	d->ops->disarm(d);
	assert_ptr_equal(world_read_done(world, 0), &read);
	world_read_verify(world, 2048);
	assert_int_equal(d->ops->arm(d), 0);
	assert_int_equal(poll(&fd, 1, 0), 0);
	d->ops->disarm(d);
	/* The same index serves again. */
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	(void)world_read_done(world, 0);
}

UNIT_TEST_OPEN(without_workers_poll_copies_a_slice_at_a_time)
{
	uint64_t polled = 0;
	struct kvpull_shm_params params;
	struct kvpull_transport *d;
	struct kvpull_read read;

	side_close(&world->d);
	params = world_params(world, "d");
	params.copy_threads = 0;
	side_open(&world->d, &params);
	world_connect(world);
	d = world->d.transport;
	assert_int_equal(d->ops->arm(d), 0);
	d->ops->disarm(d);
	read = world_read(world, 2048);
	assert_true(read.byte_count > 4u << 20);
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	do {
		/* An owner that would sleep now must not. */
		assert_int_equal(d->ops->arm(d), 1);
		d->ops->disarm(d);
		/* With or without events the poll did work, and says so. */
		assert_int_equal(side_poll(world, &world->d), 1);
		polled += 2u << 20;
	} while (!world->d.queue_count);
	assert_true(polled >= read.byte_count &&
		    polled - read.byte_count < 2u << 20);
	(void)world_read_done(world, 0);
	world_read_verify(world, 2048);
	assert_int_equal(d->ops->arm(d), 0);
	d->ops->disarm(d);
}

UNIT_TEST_CONNECTED(cancelled_read_ends_once)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_event event;
	struct kvpull_read read;

	read = world_read(world, world_blocks);
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	d->ops->read_cancel(d, world->peer, &read);
	d->ops->read_cancel(d, world->peer, &read);
	event = world_expect(world, &world->d, KVPULL_EVENT_READ_DONE);
	assert_ptr_equal(event.read, &read);
	assert_true(event.code == KVPULL_EABORTED || event.code == 0);
	d->ops->read_cancel(d, world->peer, &read);
	side_look(world, &world->d);
	assert_int_equal(world->d.queue_count, 0);
}

static void reads_end_before_their_peer(uint32_t copy_threads)
{
	struct world world;
	struct kvpull_shm_params params;
	struct kvpull_transport *d;
	struct kvpull_event event;
	struct kvpull_read read;
	struct kvpull_read other;

	world_open(&world);
	side_close(&world.d);
	params = world_params(&world, "d");
	params.copy_threads = copy_threads;
	side_open(&world.d, &params);
	world_connect(&world);
	d = world.d.transport;
	read = world_read(&world, world_blocks);
	other = read;
	other.index = 2;
	assert_int_equal(d->ops->read_start(d, world.peer, &read), 0);
	assert_int_equal(d->ops->read_start(d, world.peer, &other), 0);
	d->ops->disconnect(d, world.peer);
	assert_int_equal(
		d->ops->read_start(d, world.peer,
				   &(struct kvpull_read){ .index = 3 }),
		KVPULL_EPEER);
	event = world_expect(&world, &world.d, KVPULL_EVENT_READ_DONE);
	assert_true(event.code == KVPULL_EPEER || event.code == 0);
	event = world_expect(&world, &world.d, KVPULL_EVENT_READ_DONE);
	assert_true(event.code == KVPULL_EPEER || event.code == 0);
	assert_int_equal(world_peer_down(&world, KVPULL_EPEER), world.peer);
	event = world_expect(&world, &world.p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(event.index, world.caller);
	/* The ring can be drained until the caller is forgotten. */
	assert_int_equal(kvpull_ring_ready(world.ring), 0);
	world.p.transport->ops->forget(world.p.transport, world.caller);
	/* And everything can begin again. */
	world_connect(&world);
	assert_int_equal(world.caller, event.index);
	world_close(&world);
}

/* A worker may be done with both before; polls never are. */
UNIT_TEST(reads_end_before_their_peer_is_down)
{
	reads_end_before_their_peer(1);
	reads_end_before_their_peer(0);
}

UNIT_TEST_CONNECTED(last_notes_of_a_consumer_survive_it)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_record record = { .kind = KVPULL_NOTE_RELEASE, .tag = 5 };
	struct kvpull_record seen = { .kind = 0 };

	assert_int_equal(d->ops->notify(d, world->peer, &record), 0);
	side_close(&world->d);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(kvpull_ring_ready(world->ring), 1);
	kvpull_ring_pop(world->ring, &seen);
	assert_int_equal(seen.tag, 5);
}

UNIT_TEST_CONNECTED(end_of_a_producer_fails_what_comes_later)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	struct kvpull_read read;
	uint32_t peer;

	read = world_read(world, 2);
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 1);
	side_close(&world->p);
	/* The peer's bytes are there and right until its end is seen. */
	assert_int_equal(d->ops->check_start(d, world->peer, &read), 1);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	assert_int_equal(d->ops->check_start(d, world->peer, &read),
			 KVPULL_EPEER);
	assert_int_equal(d->ops->read_start(d, world->peer, &read),
			 KVPULL_EPEER);
	assert_int_equal(d->ops->notify(d, world->peer, &record), KVPULL_EPEER);
	assert_int_equal(d->ops->peer_send(d, world->peer, "x", 1),
			 KVPULL_EPEER);
	assert_int_equal(d->ops->notes_open(d, world->peer), 0);
	d->ops->beat(d, world->peer);
	assert_int_equal(d->ops->connect(d, "p", &peer), KVPULL_EPEER);
}

/*
 * A child that the host fork()ed has copies of all descriptors, and never
 * closes them.
 */
static pid_t child_stays(void)
{
	const pid_t child = fork();

	assert_true(child >= 0);
	if (child)
		return child;
	/* Where the test fails nobody ends it. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		(void)pause();
}

UNIT_TEST(end_of_either_side_is_seen_though_a_child_of_it_lives)
{
	uint32_t who;

	for (who = 0; who < 2; who++) {
		struct world world;
		pid_t child;

		world_open(&world);
		world_connect(&world);
		child = child_stays();
		side_close(who ? &world.d : &world.p);
		(void)world_expect(&world, who ? &world.p : &world.d,
				   who ? KVPULL_EVENT_CALLER_DOWN :
					 KVPULL_EVENT_PEER_DOWN);
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
		world_close(&world);
	}
}

UNIT_TEST_CONNECTED(dropped_caller_is_down_once)
{
	struct kvpull_transport *p = world->p.transport;

	p->ops->drop(p, world->caller);
	p->ops->drop(p, world->caller);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 0);
	p->ops->forget(p, world->caller);
	p->ops->forget(p, world->caller);
}

UNIT_TEST_OPEN(refusal_arrives_before_the_end)
{
	struct kvpull_transport *p;
	struct kvpull_event event;

	world_greet(world);
	p = world->p.transport;
	/* Unread at P: its close looks like a reset to D. */
	assert_int_equal(world->d.transport->ops->peer_send(
				 world->d.transport, world->peer, "more", 4),
			 0);
	p->ops->refuse(p, world->caller, "no", 2);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_memory_equal(event.data, "no", 2);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 0);
}

/* D in a child, which has a child of its own that keeps its socket open. */
static void child_consume(struct world *world, int ready_fd)
{
	struct kvpull_transport *d;
	const struct kvpull_shm_params params = world_params(world, "d");

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	side_open(&world->d, &params);
	d = world->d.transport;
	if (d->ops->connect(d, "p", &world->peer))
		_exit(1);
	if (!fork()) {
		const pid_t self = getpid();

		/*
		 * The grandchild keeps D's socket open, and says that it does.
		 */
		if (write(ready_fd, &self, sizeof(self)) != sizeof(self))
			_exit(1);
		/* If the test fails, the grandchild does not stay for ever. */
		(void)alarm(30);
		for (;;)
			(void)pause();
	}
	for (;;)
		(void)pause();
}

UNIT_TEST_IN_WORLD(killed_consumer_with_a_living_child_is_seen, world_begin)
{
	struct kvpull_shm_params params;
	struct kvpull_event event;
	int pipes[2];
	pid_t grandchild;
	pid_t child;

	world_memory_make(world);
	/* Orphans come to us, so that the grandchild can be ended and reaped. */
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	assert_int_equal(pipe(pipes), 0);
	params = world_params(world, "p");
	params.copy_threads = 0;
	world_serve_as(world, &params);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		child_consume(world, pipes[1]);
	/*
	 * P takes descriptors only after it has seen who calls, as before a
	 * hello.
	 */
	assert_int_equal(read(pipes[0], &grandchild, sizeof(grandchild)),
			 sizeof(grandchild));
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	assert_int_equal(world->p.transport->ops->admit(world->p.transport,
							event.index, "welcome",
							7, &world->ring),
			 0);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(kill(grandchild, SIGKILL), 0);
	assert_int_equal(waitpid(grandchild, NULL, 0), grandchild);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
}
