/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads that lie partly in memory, partly in a file, over the whole same-node
 * route: one READ_DONE each, whatever becomes of its parts.
 */
#include "tests/unit/shm/world.h"

#include <sys/eventfd.h>

#include "tests/lib/uring.h"

uint32_t world_blocks = 512u;

#define FILE_OFFSET 12345u  /* no page begins there */
#define BLOCKS world_blocks /* of a read: 2 MiB, more than is read inline */
#define SMALL_BLOCKS 24u    /* by the owner's thread, from the queue */
#define STRIPS 5u

enum memory {
	MEMORY_INLINE = 0, /* small enough for the owner's thread */
	MEMORY_WORKERS,    /* copy workers */
	MEMORY_FOREIGN,    /* slices in the queue */
	MEMORIES
};

struct setup {
	enum memory memory;
	enum kvpull_uring_mode uring;
	uint32_t no_file; /* strips in memory only */
	uint32_t no_memory;
	uint32_t blocks;
};

struct bench {
	struct world world;
	struct kvpull_strip strips[STRIPS + 1]; /* the last one is not read */
	struct kvpull_read read;
	int file;
};

static int read_only(int fd)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* The same bytes as in memory, so that any strip may lie in either. */
static void file_make(struct bench *bench)
{
	struct world *world = &bench->world;

	bench->file = memfd_create("test-file", MFD_CLOEXEC);
	assert_true(bench->file >= 0);
	assert_int_equal(pwrite(bench->file, world->kv.base, world->kv.bytes,
				FILE_OFFSET),
			 world->kv.bytes);
	world->serve.regions[1] = (struct kvpull_region_view){
		.kind = KVPULL_REGION_FILE,
		.bytes = world->kv.bytes,
		.fd_offset = FILE_OFFSET,
	};
	world->serve.region_count = 2;
}

/* The last block first; strip s has a fifth of each block. */
static void read_make(struct bench *bench, const struct setup *setup)
{
	struct world *world = &bench->world;
	const uint64_t bytes = WORLD_BLOCK_BYTES / STRIPS / 8 * 8;
	uint32_t s;

	bench->read = world_read(world, setup->blocks);
	for (s = 0; s < STRIPS; s++) {
		const uint64_t at = s * bytes;

		bench->strips[s] = world->strip;
		bench->strips[s].region_index = setup->no_file   ? 0 :
						setup->no_memory ? 1 :
								   s & 1;
		bench->strips[s].remote_offset = at;
		bench->strips[s].local += at;
		bench->strips[s].row_bytes =
			s + 1 < STRIPS ? bytes : WORLD_BLOCK_BYTES - at;
	}
	bench->strips[STRIPS] = bench->strips[0];
	bench->strips[STRIPS].remote_offset += bytes;
	bench->read.strips = bench->strips;
	bench->read.strip_count = STRIPS;
}

static void bench_open(struct bench *bench, const struct setup *setup)
{
	struct world *world = &bench->world;
	struct kvpull_shm_params params;

	memset(bench, 0, sizeof(*bench));
	world_begin(world);
	world_memory_make(world);
	file_make(bench);
	world->serve.regions[1].fd = read_only(bench->file);
	if (setup->memory == MEMORY_FOREIGN) {
		world->serve.regions[0].kind = KVPULL_REGION_FOREIGN;
		world->serve.regions[0].fd = -1;
	}
	world_serve(world, "p");
	params = world_params(world, "d");
	params.uring = setup->uring;
	params.inline_bytes =
		setup->memory == MEMORY_INLINE ? UINT32_MAX : 4096;
	side_open(&world->d, &params);
	world_connect(world);
	read_make(bench, setup);
}

static void bench_close(struct bench *bench)
{
	(void)close(bench->world.serve.regions[1].fd);
	(void)close(bench->file);
	world_close(&bench->world);
}

static int start(struct bench *bench)
{
	struct kvpull_transport *d = bench->world.d.transport;

	return d->ops->read_start(d, bench->world.peer, &bench->read);
}

static void cancel(struct bench *bench)
{
	struct kvpull_transport *d = bench->world.d.transport;

	d->ops->read_cancel(d, bench->world.peer, &bench->read);
}

/* The one READ_DONE; the test goes on for a while, and no other comes. */
static int done(struct bench *bench)
{
	struct world *world = &bench->world;
	const struct kvpull_event event =
		world_expect(world, &world->d, KVPULL_EVENT_READ_DONE);
	const size_t bytes = (size_t)world_blocks * WORLD_BLOCK_BYTES;
	uint32_t turn;

	assert_ptr_equal(event.read, &bench->read);
	assert_int_equal(event.index, world->peer);
	if (!event.code)
		world_read_verify(world, bench->read.group_first[1]);
	/* Nothing is written any more. */
	memset(world->local, 0x77, bytes);
	for (turn = 0; turn < 40; turn++)
		side_look(world, &world->d);
	assert_int_equal(world->d.queue_count, 0);
	assert_int_equal(world->local[0], 0x77);
	assert_memory_equal(world->local, world->local + 1, bytes - 1);
	return event.code;
}

static void in_each_way(void (*test)(struct bench *bench))
{
	static struct bench bench;
	const uint32_t ways = uring_errno() ? 1 : 2;
	uint32_t memory;
	uint32_t uring;

	for (memory = 0; memory < MEMORIES; memory++)
		for (uring = 0; uring < ways; uring++) {
			const struct setup setup = {
				.memory = (enum memory)memory,
				.uring = uring ? KVPULL_URING_ONE_THREAD :
						 KVPULL_URING_NO,
				.blocks = memory == MEMORY_INLINE ?
						  SMALL_BLOCKS :
						  BLOCKS,
			};

			bench_open(&bench, &setup);
			test(&bench);
			bench_close(&bench);
		}
}

static void mixed(struct bench *bench)
{
	struct kvpull_transport *d = bench->world.d.transport;
	uint32_t times;

	for (times = 0; times < 3; times++) {
		assert_int_equal(start(bench), 0);
		assert_int_equal(done(bench), 0);
		assert_int_equal(
			d->ops->check_start(d, bench->world.peer, &bench->read),
			1);
		assert_int_equal(bench->world.checked[0].incarnation,
				 WORLD_INCARNATION);
	}
	assert_int_equal(lines.bad_count, 0);
}

UNIT_TEST(memory_and_file_come_with_one_done)
{
	in_each_way(mixed);
}

static void read_of_one_kind(uint32_t no_file, uint32_t no_memory)
{
	static struct bench bench;
	uint32_t blocks;
	int code;

	for (blocks = 1; blocks <= BLOCKS; blocks *= BLOCKS) {
		const struct setup setup = {
			.memory = MEMORY_WORKERS,
			.uring = KVPULL_URING_ONE_THREAD,
			.no_file = no_file,
			.no_memory = no_memory,
			.blocks = blocks,
		};

		bench_open(&bench, &setup);
		/* Little memory is copied at once. */
		code = start(&bench);
		assert_true(!code || (no_file && code == 1));
		if (!code)
			assert_int_equal(done(&bench), 0);
		bench_close(&bench);
	}
}

UNIT_TEST(file_alone_comes_with_one_done)
{
	read_of_one_kind(0, 1);
}

UNIT_TEST(memory_of_a_peer_with_files_comes_with_one_done)
{
	read_of_one_kind(1, 0);
}

static void cancelled_after(struct bench *bench, uint32_t polls)
{
	struct world *world = &bench->world;
	uint32_t turn;
	int code;

	assert_int_equal(start(bench), 0);
	for (turn = 0; turn < polls && !world->d.queue_count; turn++)
		(void)side_poll(world, &world->d);
	cancel(bench);
	cancel(bench);
	code = done(bench);
	assert_true(code == KVPULL_EABORTED || code == 0);
}

static void cancelled(struct bench *bench)
{
	uint32_t polls;

	for (polls = 0; polls < 6; polls++)
		cancelled_after(bench, polls);
	/* The reader works as before. */
	assert_int_equal(start(bench), 0);
	assert_int_equal(done(bench), 0);
}

UNIT_TEST(cancel_is_told_once_wherever_it_meets_the_parts)
{
	in_each_way(cancelled);
}

/* However long the disk takes. */
UNIT_TEST(cancelled_file_read_ends_in_the_next_poll)
{
	static struct bench bench;
	const struct setup setup = {
		.uring = KVPULL_URING_ONE_THREAD,
		.no_memory = 1,
		.blocks = BLOCKS,
	};

	bench_open(&bench, &setup);
	assert_int_equal(start(&bench), 0);
	cancel(&bench);
	(void)side_poll(&bench.world, &bench.world.d);
	assert_int_equal(bench.world.d.queue_count, 1);
	assert_int_equal(done(&bench), KVPULL_EABORTED);
	bench_close(&bench);
}

static void lost(struct bench *bench)
{
	struct world *world = &bench->world;
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_event event;

	assert_int_equal(start(bench), 0);
	d->ops->disconnect(d, world->peer);
	event = world_expect(world, &world->d, KVPULL_EVENT_READ_DONE);
	assert_true(event.code == KVPULL_EPEER || event.code == 0);
	assert_int_equal(
		world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN).index,
		world->peer);
	assert_int_equal(start(bench), KVPULL_EPEER);
}

UNIT_TEST(reads_of_a_lost_peer_end_before_it_is_down)
{
	in_each_way(lost);
}

static void truncated(struct bench *bench)
{
	struct world *world = &bench->world;

	assert_int_equal(ftruncate(bench->file, 0), 0);
	assert_int_equal(start(bench), 0);
	assert_int_equal(done(bench), KVPULL_EREAD);
	assert_int_equal(lines.bad_count, 1);
	/* The read alone fails: the peer stays. */
	assert_int_equal(pwrite(bench->file, world->kv.base, world->kv.bytes,
				FILE_OFFSET),
			 world->kv.bytes);
	assert_int_equal(start(bench), 0);
	assert_int_equal(done(bench), 0);
}

/* Of memory that is not there; nothing comes of it after the call. */
UNIT_TEST(read_that_fails_at_once_begins_no_part_in_a_file)
{
	static struct bench bench;
	const struct setup setup = { .memory = MEMORY_FOREIGN,
				     .uring = KVPULL_URING_NO,
				     .blocks = 1 };
	uint32_t turn;

	bench_open(&bench, &setup);
	bench.strips[0].remote_offset = UINT64_C(1) << 46;
	assert_true(start(&bench) < 0);
	for (turn = 0; turn < 40; turn++)
		side_look(&bench.world, &bench.world.d);
	assert_int_equal(bench.world.d.queue_count, 0);
	/* Its index is free. */
	bench.strips[0].remote_offset = 0;
	assert_int_equal(start(&bench), 0);
	assert_int_equal(done(&bench), 0);
	bench_close(&bench);
}

UNIT_TEST(truncated_file_fails_its_read_alone)
{
	in_each_way(truncated);
}

/* The owner sleeps; only the transport's own descriptor can tell it. */
static void slept(struct bench *bench)
{
	struct world *world = &bench->world;
	struct kvpull_transport *d = world->d.transport;
	struct pollfd fd = { .fd = d->ops->fd(d), .events = POLLIN };
	uint32_t turn;

	assert_int_equal(start(bench), 0);
	for (turn = 0; turn < 100000 && !world->d.queue_count; turn++) {
		(void)side_poll(world, &world->d);
		if (!world->d.queue_count && !d->ops->arm(d))
			assert_int_equal(poll(&fd, 1, 20000), 1);
		d->ops->disarm(d);
	}
	assert_int_equal(done(bench), 0);
	/* And may sleep again, once a worker has woken it that was slow to. */
	for (turn = 0; d->ops->arm(d) || poll(&fd, 1, 0); turn++) {
		assert_true(turn < WORLD_TURNS_MAX);
		side_look(world, &world->d);
	}
}

UNIT_TEST(sleeping_owner_is_woken_by_pieces)
{
	in_each_way(slept);
}

static void left(struct bench *bench)
{
	assert_int_equal(start(bench), 0);
	(void)side_poll(&bench->world, &bench->world.d);
}

UNIT_TEST(close_with_reads_under_way_leaves_nothing_open)
{
	in_each_way(left);
}

/* The welcome and its descriptors must agree. */
static void attach_answers(int fd, uint64_t bytes, int code)
{
	static struct bench bench;
	struct world *world = &bench.world;
	const struct kvpull_shm_params params = world_params(world, "d");
	struct kvpull_transport *d;

	memset(&bench, 0, sizeof(bench));
	world_begin(world);
	world_memory_make(world);
	world->fds_at_start--; /* fd, which is closed at the end */
	world->serve.regions[1] = (struct kvpull_region_view){
		.kind = KVPULL_REGION_FILE, .fd = fd, .bytes = 4096
	};
	world->serve.region_count = 2;
	world_serve(world, "p");
	side_open(&world->d, &params);
	world_welcome(world);
	world->serve.regions[1].bytes = bytes;
	assert_int_equal(world_attach(world, &world->serve), code);
	d = world->d.transport;
	d->ops->disconnect(d, world->peer);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	(void)close(fd);
	world_close(world);
}

static int memfd_of(uint64_t bytes)
{
	const int fd = memfd_create("test-file", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static void file_is_judged(uint64_t told_bytes, int code)
{
	const int fd = memfd_of(4096);

	attach_answers(read_only(fd), told_bytes, code);
	(void)close(fd);
}

UNIT_TEST(hostile_files_are_refused_at_attach)
{
	int pipes[2];

	file_is_judged(4096, 0);
	file_is_judged(4097, KVPULL_EPROTO);
	file_is_judged(0, KVPULL_EPROTO);
	file_is_judged(SIZE_MAX, KVPULL_EPROTO);
	attach_answers(memfd_of(4096), 4096, KVPULL_EPROTO);
	attach_answers(eventfd(0, EFD_CLOEXEC), 4096, KVPULL_EPROTO);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	(void)close(pipes[1]);
	attach_answers(pipes[0], 4096, KVPULL_EPROTO);
}
