/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that hangs for ever, without io_uring: the owner's thread goes on,
 * reads end when they are told to, and close() returns. Once pread() was called
 * on the progress thread, and heartbeats stopped.
 */
#undef _FORTIFY_SOURCE /* whose pread() is inline, and cannot be replaced */
#include <stdatomic.h>
#include <sys/uio.h>

#include "tests/unit/disk/world.h"

static _Atomic uint32_t hangs;  /* 1: pread() does not return */
static _Atomic uint32_t inside; /* it was called, and has not returned */
static _Atomic uint32_t calls;
static uint32_t ends_late; /* 1: it returns when close() waits for it */

/* In the place of libc's, for the library that is linked to this program. */
ssize_t pread(int fd, void *bytes, size_t byte_count, off_t offset)
{
	const struct iovec part = { .iov_base = bytes, .iov_len = byte_count };
	ssize_t got;

	atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
	atomic_store_explicit(&inside, 1, memory_order_release);
	while (atomic_load_explicit(&hangs, memory_order_acquire))
		(void)poll(NULL, 0, 1);
	got = preadv(fd, &part, 1, offset);
	atomic_store_explicit(&inside, 0, memory_order_release);
	return got;
}

static void hang_set(uint32_t value)
{
	atomic_store_explicit(&hangs, value, memory_order_release);
}

int unit_thread_hangs(void)
{
	if (ends_late)
		hang_set(0);
	return (int)atomic_load_explicit(&hangs, memory_order_acquire);
}

static void inside_await(uint32_t value)
{
	uint32_t turn;

	for (turn = 0; turn < TURNS_MAX; turn++) {
		if (atomic_load_explicit(&inside, memory_order_acquire) ==
		    value)
			return;
		(void)poll(NULL, 0, 1);
	}
	fail();
}

/* A read whose first piece hangs. */
static void hang_begin(struct world *world)
{
	hang_set(1);
	atomic_store_explicit(&calls, 0, memory_order_relaxed);
	assert_int_equal(world_begin(world, WAY_PREAD), 0);
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	poll_once(world);
	inside_await(1);
}

static void fds_await(uint32_t value)
{
	uint32_t turn;

	for (turn = 0; turn < TURNS_MAX && fds_open() != value; turn++)
		(void)poll(NULL, 0, 1);
	assert_int_equal(fds_open(), value);
}

static int is_untouched(const struct world *world)
{
	size_t i;

	for (i = 0; i < LOCAL_BYTES; i++)
		if (world->local[i] != UNTOUCHED)
			return 0;
	return 1;
}

UNIT_TEST(owner_does_not_wait_for_the_disk)
{
	static struct world world;
	struct pollfd woken = { .events = POLLIN };
	eventfd_t ignored;
	uint32_t turn;

	hang_begin(&world);
	for (turn = 0; turn < 100; turn++)
		poll_once(&world);
	assert_int_equal(world.ended_count, 0);
	/* The owner may sleep, and is woken when the disk goes on. */
	assert_int_equal(kvpull_files_arm(&world.files), 0);
	hang_set(0);
	/*
	 * A result that came before the next sleep wakes the owner only once.
	 */
	woken.fd = world.wake_fd;
	assert_int_equal(poll(&woken, 1, 20000), 1);
	assert_int_equal(eventfd_read(world.wake_fd, &ignored), 0);
	assert_int_equal(kvpull_files_arm(&world.files), 1);
	poll_until(&world, 1);
	only_one_ended(&world, 0, 0);
	verify(&world, &world.read[0]);
	pieces_are_back(&world);
	world_end(&world);
}

/* A deadline: nothing is written from then on, whenever the disk goes on. */
UNIT_TEST(read_that_hangs_ends_when_told)
{
	static struct world world;

	hang_begin(&world);
	kvpull_files_cancel(&world.files, &world.reads[0], KVPULL_EDEADLINE);
	assert_int_equal(kvpull_files_arm(&world.files), 1);
	poll_once(&world);
	only_one_ended(&world, 0, KVPULL_EDEADLINE);
	/* The file may go, too: what was not begun is not read from others. */
	kvpull_file_close(&world.regions[1]);
	hang_set(0);
	pieces_are_back(&world);
	/* Other pieces of the read were not read at all. */
	assert_int_equal(atomic_load_explicit(&calls, memory_order_relaxed), 1);
	only_one_ended(&world, 0, KVPULL_EDEADLINE);
	assert_true(is_untouched(&world));
	region_open(&world, 0);
	(void)read_plain(&world, 1, 8, 65536);
	read_well(&world, 1);
	world_end(&world);
}

/* close() returns, and leaves the memory that the read may still touch. */
UNIT_TEST(close_leaves_a_read_that_hangs)
{
	static struct world world;
	uint8_t *bounce;
	uint32_t left;

	hang_begin(&world);
	bounce = world.files.bounce;
	kvpull_files_close(&world.files, kvpull_clock_close_by());
	assert_int_equal(atomic_load_explicit(&inside, memory_order_acquire),
			 1);
	assert_int_equal(lines.bad_count, 1);
	assert_non_null(strstr(lines.bad, "stay mapped"));
	assert_int_equal(msync(bounce, KVPULL_FILE_BOUNCE_BYTES, MS_ASYNC), 0);
	/* The disk goes on after all: into its own buffer, and no further. */
	left = fds_open();
	hang_set(0);
	inside_await(0);
	fds_await(left - 1);
	assert_memory_equal(bounce, world.content, 131072);
	assert_true(is_untouched(&world));
	world_end_closed(&world);
}

/* Descriptors of reads that had not begun are closed. */
UNIT_TEST(close_drops_what_a_slow_disk_did_not_read)
{
	static struct world world;
	uint32_t with_reads;

	hang_begin(&world);
	assert_int_equal(world.files.disk.in_flight, KVPULL_FILE_DEPTH);
	with_reads = fds_open();
	ends_late = 1;
	kvpull_files_close(&world.files, kvpull_clock_close_by());
	ends_late = 0;
	assert_int_equal(atomic_load_explicit(&calls, memory_order_relaxed), 1);
	assert_int_equal(lines.bad_count, 0);
	/* Nor its own copy of the eventfd. */
	assert_int_equal(fds_open(), with_reads - KVPULL_FILE_DEPTH - 1);
	world_end_closed(&world);
}

/* A close() that has no time left must not take an idle thread for a hang. */
UNIT_TEST(idle_thread_is_joined_when_no_time_is_left)
{
	static struct world world;
	struct kvpull_disk disk;
	uint32_t before;

	hang_set(0);
	assert_int_equal(world_begin(&world, WAY_PREAD), 0);
	before = fds_open();
	assert_int_equal(kvpull_disk_open(&disk, world.wake_fd, &world.log), 0);
	assert_int_equal(kvpull_disk_close(&disk, 0), 0);
	assert_int_equal(fds_open(), before);
	world_end(&world);
}

UNIT_TEST(thread_takes_as_many_reads_as_it_has_place_for)
{
	static struct world world;
	struct kvpull_uring_io io = { .bytes = 4096 };
	struct kvpull_uring_result result;
	struct kvpull_disk disk;

	hang_begin(&world);
	io.memory = world.local;
	io.fd = world.fd;
	assert_int_equal(kvpull_disk_open(&disk, world.wake_fd, &world.log), 0);
	for (io.tag = 0; io.tag < KVPULL_DISK_DEPTH; io.tag++)
		assert_int_equal(kvpull_disk_queue(&disk, &io), 0);
	assert_int_equal(kvpull_disk_queue(&disk, &io), KVPULL_EAGAIN);
	assert_int_equal(disk.in_flight, KVPULL_DISK_DEPTH);
	hang_set(0);
	for (io.tag = 0; disk.in_flight; io.tag++) {
		while (!kvpull_disk_poll(&disk, &result, 1))
			(void)poll(NULL, 0, 1);
		assert_int_equal(result.tag, io.tag);
		assert_int_equal(result.code, 4096);
	}
	assert_int_equal(io.tag, KVPULL_DISK_DEPTH);
	assert_int_equal(kvpull_disk_close(&disk, kvpull_clock_close_by()), 0);
	poll_until(&world, 1);
	pieces_are_back(&world);
	world_end(&world);
}

/* With progress=caller there is no thread of ours: refused, by name. */
UNIT_TEST(caller_without_io_uring_is_refused_by_name)
{
	static struct world world;
	struct kvpull_files files;
	struct kvpull_arena arena;

	hang_set(0);
	assert_int_equal(world_begin(&world, WAY_PREAD), 0);
	kvpull_arena_init(&arena, &world.log);
	assert_int_equal(
		kvpull_files_open(&files, READS_MAX, &arena, &world.log), 0);
	assert_int_equal(kvpull_files_prepare(&files, KVPULL_URING_NO,
					      KVPULL_FILE_THREAD_NO,
					      world.wake_fd),
			 KVPULL_EUNSUPPORTED);
	assert_non_null(strstr(lines.bad, "progress caller needs io_uring"));
	assert_int_equal(files.is_prepared, 0);
	kvpull_files_close(&files, kvpull_clock_close_by());
	kvpull_arena_fini(&arena);
	world_end(&world);
}
