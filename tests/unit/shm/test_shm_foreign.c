/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the engine's own, read by process_vm_readv(): two transports. */
#include "tests/unit/shm/world.h"

#include <sys/syscall.h>

#include "shm/read.h"

/* Connected; P's memory is foreign, though its process is ours. */
static void foreign_open(struct world *world)
{
	world_open(world);
	world_serve_foreign(world);
	world_connect(world);
}

UNIT_TEST_IN_WORLD(foreign_region_is_read_in_slices, foreign_open)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;

	read = world_read(world, 3);
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 1);
	world_read_verify(world, 3);
	read = world_read(world, 2500);
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	/* 4 MiB of 10 a poll. */
	assert_int_equal(side_poll(world, &world->d), 1);
	assert_int_equal(side_poll(world, &world->d), 1);
	(void)world_read_done(world, 0);
	world_read_verify(world, 2500);
	kvpull_revocation_write(&world->entries[3], 8);
	assert_int_equal(d->ops->check_start(d, world->peer, &read), 1);
	assert_int_equal(world->checked[0].incarnation, WORLD_INCARNATION);
	assert_int_equal(world->checked[0].revoked, 8);
	/* Past the end of what is there: a failed read, not a short one. */
	world->strip.remote_offset = UINT64_C(1) << 46;
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	(void)world_read_done(world, KVPULL_EREAD);
	world->strip.remote_offset = 0;
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	d->ops->read_cancel(d, world->peer, &read);
	(void)world_read_done(world, KVPULL_EABORTED);
}

UNIT_TEST_IN_WORLD(foreign_neighbours_are_merged_only_on_both_sides,
		   foreign_open)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;
	uint32_t order;
	uint32_t i;

	for (order = 0; order < 8; order++) {
		read = world_read(world, 8);
		for (i = 0; i < 8; i++) {
			world->ids[i] = order & 1 ? 7 - i : i;
			world->local_ids[i] = order & 2 ? 7 - i : i;
		}
		if (order & 4)
			world->ids[4] = 100;
		assert_int_equal(d->ops->read_start(d, world->peer, &read), 1);
		world_read_verify(world, 8);
		/* So much is copied at once; more waits for a poll. */
		(void)side_poll(world, &world->d);
	}
}

UNIT_TEST_IN_WORLD(half_a_foreign_read_is_a_failed_one, foreign_open)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;

	read = world_read(world, 2);
	world->ids[0] = 0;
	world->ids[1] = 1;
	world->strip.remote_block_stride = UINT64_C(1) << 46;
	assert_int_equal(d->ops->read_start(d, world->peer, &read),
			 KVPULL_EREAD);
}

UNIT_TEST_IN_WORLD(foreign_read_of_a_lost_peer_ends_early, foreign_open)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;
	struct kvpull_read other;

	read = world_read(world, world_blocks);
	other = read;
	other.index = 2;
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	assert_int_equal(d->ops->read_start(d, world->peer, &other), 0);
	d->ops->disconnect(d, world->peer);
	/* The first poll cancels, the second tells. */
	(void)side_poll(world, &world->d);
	assert_int_equal(side_poll(world, &world->d), 3);
	(void)world_read_done(world, KVPULL_EPEER);
	(void)world_read_done(world, KVPULL_EPEER);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
}

/* A pid may be another process's by now: only the pidfd tells. */
UNIT_TEST_IN_WORLD(entry_of_a_dead_peers_pid_is_not_believed, world_begin)
{
	struct kvpull_shm_peer peer;
	struct kvpull_shm shm = { .peers = { .peers = &peer, .peer_max = 1 },
				  .reads = { .peers = &shm.peers } };
	const uint32_t slot = 3;
	struct kvpull_revocation_value entry;
	struct kvpull_read read = { .slots = &slot,
				    .entries = &entry,
				    .slot_count = 1 };
	pid_t child;

	world_memory_make(world);
	peer = (struct kvpull_shm_peer){
		.state = KVPULL_SHM_PEER_ATTACHED,
		.memory.foreign_count = 1,
		.memory.must_live = 1,
		.memory.slot_count = WORLD_SLOTS,
		.memory.entries_memory = world->entries_memory.base,
		.memory.entries_remote = (uintptr_t)world->entries,
		.identity = { .pid = getpid(), .pidfd = -1 },
	};
	assert_int_equal(kvpull_shm_read_check(&shm.transport, 0, &read), 1);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(0);
	peer.identity.pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_true(peer.identity.pidfd >= 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(kvpull_shm_read_check(&shm.transport, 0, &read),
			 KVPULL_EPEER);
	(void)close(peer.identity.pidfd);
}

UNIT_TEST_OPEN(foreign_and_mapped_rows_mix_in_one_read)
{
	struct kvpull_transport *d;
	struct kvpull_strip strips[2];
	struct kvpull_serve remote;
	struct kvpull_read read;
	uint32_t i;

	side_close(&world->p);
	world->serve.regions[1] = world->serve.regions[0];
	world->serve.regions[1].kind = KVPULL_REGION_FOREIGN;
	world->serve.regions[1].fd = -1;
	world->serve.region_count = 2;
	world_serve(world, "p");
	world_welcome(world);
	remote = world->serve;
	/* P's own address of memory that D maps says nothing. */
	remote.regions[0].base = NULL;
	assert_int_equal(world_attach(world, &remote), 0);
	d = world->d.transport;
	/* Four rows a block, every other one of each kind. */
	read = world_read(world, 6);
	for (i = 0; i < 2; i++) {
		strips[i] = world->strip;
		strips[i].region_index = i;
		strips[i].row_bytes = 512;
		strips[i].row_count = 4;
		strips[i].remote_offset = i * 512;
		strips[i].remote_row_stride = 1024;
		strips[i].local += i * 512;
		strips[i].local_row_stride = 1024;
	}
	read.strips = strips;
	read.strip_count = 2;
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 1);
	world_read_verify(world, 6);
}

/* P in a child: serves a foreign region and admits who said so, until killed. */
static void child_serve(struct world *world, int said_fd)
{
	struct kvpull_transport *p;
	struct kvpull_event event;
	struct kvpull_ring *ring;
	char byte;
	const struct kvpull_shm_params params = world_params(world, "child");

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	side_open(&world->p, &params);
	p = world->p.transport;
	if (p->ops->serve(p, &world->serve))
		_exit(1);
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	if (read(said_fd, &byte, 1) != 1 ||
	    p->ops->admit(p, event.index, "welcome", 7, &ring))
		_exit(1);
	for (;;)
		(void)pause();
}

UNIT_TEST_IN_WORLD(killed_producer_of_foreign_memory_is_seen, world_begin)
{
	struct kvpull_transport *d;
	struct kvpull_read read;
	uint32_t turn;
	int pipes[2];
	pid_t child;

	world_memory_make(world);
	assert_int_equal(pipe(pipes), 0);
	world->serve.regions[0].kind = KVPULL_REGION_FOREIGN;
	/* DONTFORK keeps the segment from a child: private memory for it. */
	world->serve.regions[0].base =
		mmap(NULL, world->kv.bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(world->serve.regions[0].base, world->kv.base, world->kv.bytes);
	assert_int_equal(madvise(world->entries_memory.base,
				 world->entries_memory.bytes, MADV_DOFORK),
			 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		child_serve(world, pipes[0]);
	world_open_consumer(world);
	d = world->d.transport;
	for (turn = 0; turn < WORLD_TURNS_MAX; turn++) {
		if (!d->ops->connect(d, "child", &world->peer))
			break;
		side_rest(&world->d);
	}
	/* In place of a hello: descriptors are taken from now on. */
	assert_int_equal(write(pipes[1], "h", 1), 1);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(world_attach(world, &world->serve), 0);
	read = world_read(world, 8);
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 1);
	world_read_verify(world, 8);
	assert_int_equal(d->ops->check_start(d, world->peer, &read), 1);
	assert_int_equal(world->checked[0].incarnation, WORLD_INCARNATION);
	assert_int_equal(kill(child, SIGKILL), 0);
	/* Dead, whether or not the owner has polled since: a zombie first. */
	assert_int_equal(waitid(P_PID, (id_t)child, &(siginfo_t){ 0 },
				WEXITED | WNOWAIT),
			 0);
	assert_int_equal(d->ops->check_start(d, world->peer, &read),
			 KVPULL_EPEER);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	assert_int_equal(waitpid(child, NULL, 0), child);
	(void)munmap(world->serve.regions[0].base, world->kv.bytes);
	/* A killed listener leaves its socket; the next one takes it over. */
	world->serve.regions[0].base = world->kv.base;
	world_serve(world, "child");
}

UNIT_TEST_IN_WORLD(entry_of_a_foreign_peer_says_what_is_ready, foreign_open)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;

	read = world_read(world, 1);
	kvpull_revocation_write(&world->entries[3], 8);
	atomic_store_explicit(&world->entries[3].ready, 9,
			      memory_order_relaxed);
	assert_int_equal(d->ops->check_start(d, world->peer, &read), 1);
	assert_int_equal(world->checked[0].revoked, 8);
	assert_int_equal(world->checked[0].ready, 9);
}

/* The pid answers, as a successor's would: the bytes are not the dead one's. */
UNIT_TEST_IN_WORLD(foreign_memory_counts_only_while_its_owner_lives,
		   foreign_open)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_shm_peer *peer;
	struct kvpull_read read;
	int32_t pidfd;
	pid_t child;

	peer = &kvpull_shm_of(d)->peers.peers[world->peer];
	read = world_read(world, 1);
	assert_int_equal(d->ops->check_start(d, world->peer, &read), 1);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(0);
	pidfd = peer->identity.pidfd;
	peer->identity.pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_true(peer->identity.pidfd >= 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(d->ops->check_start(d, world->peer, &read),
			 KVPULL_EPEER);
	(void)close(peer->identity.pidfd);
	peer->identity.pidfd = pidfd;
}

UNIT_TEST_OPEN(foreign_memory_needs_an_owner_whose_death_is_seen)
{
	struct kvpull_shm_peer *peer;
	int32_t pidfd;

	world_serve_foreign(world);
	world_welcome(world);
	peer = &kvpull_shm_of(world->d.transport)->peers.peers[world->peer];
	pidfd = peer->identity.pidfd;
	peer->identity.pidfd = -1;
	assert_int_equal(world_attach(world, &world->serve), KVPULL_EROUTE);
	assert_non_null(strstr(lines.bad, "no pidfd"));
	peer->identity.pidfd = pidfd;
}

/* So many rows that no one system call takes them, and none is a neighbour. */
UNIT_TEST_IN_WORLD(foreign_rows_that_are_short_are_read_in_vectors,
		   foreign_open)
{
	const uint64_t row_bytes = 16;
	const uint32_t rows = 2000;
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;
	uint32_t i;

	read = world_read(world, rows);
	for (i = 0; i < rows; i++)
		world->ids[i] = (rows - 1 - i) * 4;
	world->strip.row_bytes = row_bytes;
	world->strip.remote_block_stride = row_bytes;
	world->strip.local_block_stride = row_bytes;
	read.byte_count = rows * row_bytes;
	if (!d->ops->read_start(d, world->peer, &read))
		(void)world_read_done(world, 0);
	for (i = 0; i < rows; i++)
		assert_memory_equal(world->local + i * row_bytes,
				    world->kv.base + world->ids[i] * row_bytes,
				    row_bytes);
}

/* A strip's ids are those of its group; a group without blocks has no row. */
UNIT_TEST_IN_WORLD(foreign_rows_of_each_group_have_its_ids, foreign_open)
{
	struct kvpull_strip strips[3];
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;
	uint32_t i;

	read = world_read(world, 6);
	world->group_first[1] = 2;
	world->group_first[2] = 2;
	for (i = 0; i < 3; i++) {
		strips[i] = world->strip;
		strips[i].group_index = i;
	}
	/* The read would write there. */
	strips[1].local += (size_t)8 * WORLD_BLOCK_BYTES;
	world->local[8 * WORLD_BLOCK_BYTES] = 77;
	world->local[10 * WORLD_BLOCK_BYTES] = 77;
	read.strips = strips;
	read.strip_count = 3;
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 1);
	world_read_verify(world, 6);
	assert_int_equal(world->local[8 * WORLD_BLOCK_BYTES], 77);
	assert_int_equal(world->local[10 * WORLD_BLOCK_BYTES], 77);
}
