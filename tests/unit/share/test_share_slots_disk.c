/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that fails or hangs under a file of slots, for those who read there and
 * for who writes: an error or a miss within the deadline, others are served
 * meanwhile, and close() returns.
 */
#undef _FORTIFY_SOURCE /* whose pread() may be inline */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/unit/share/handle.h"

#define SLOTS 4u
#define IN_MEMORY 7u /* this chunk has no slot */
#define DEADLINE_NS (200 * KVPULL_NS_PER_MS)
#define FDS_MAX 1024
#define CLOSE_NS (10 * KVPULL_NS_PER_S)

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;
static _Atomic uint32_t hangs; /* pread() and pwrite() do not return */
static int32_t codes[KVPULL_READER_ITEMS_MAX];

static void hang(void)
{
	while (atomic_load_explicit(&hangs, memory_order_acquire))
		(void)poll(NULL, 0, 1);
}

/* In the place of libc's, for the library that is linked to this program. */
ssize_t pread(int fd, void *bytes, size_t byte_count, off_t offset)
{
	const struct iovec part = { .iov_base = bytes, .iov_len = byte_count };

	hang();
	return preadv(fd, &part, 1, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t byte_count, off_t offset)
{
	const struct iovec part = { .iov_base = (void *)(uintptr_t)bytes,
				    .iov_len = byte_count };

	hang();
	return pwritev(fd, &part, 1, offset);
}

int unit_thread_hangs(void)
{
	return (int)atomic_load_explicit(&hangs, memory_order_acquire);
}

static void spill_begin(uint32_t count, uint64_t deadline_ns, uint64_t *id)
{
	assert_int_equal(
		handle_spill(&world, 0, count, 0, deadline_ns, codes, id), 0);
}

/* Keys 1 .. SLOTS are in the file alone, key 8 in memory alone. */
static void begin(const char *more)
{
	const struct kvpull_reader_share share =
		handle_slots("/var/tmp", SLOTS);
	struct kvpull_reader_record record;
	uint64_t id;
	uint32_t at;

	handle_begin(&world, more);
	handle_share(&world, &share);
	handle_connect(&world);
	handle_fill_first(&world, SLOTS);
	(void)handle_fill(&world, IN_MEMORY, IN_MEMORY + 1);
	spill_begin(SLOTS, 0, &id);
	handle_spilled(&world, id, &record);
	assert_int_equal(record.code, 0);
	for (at = 0; at < SLOTS; at++)
		handle_bump(&world, at);
}

UNIT_FIXTURE(setup)
{
	begin("");
}

UNIT_FIXTURE(setup_no_uring)
{
	begin(",\"uring\":\"no\"");
}

/* Each descriptor of the file but the two that the owner opened. */
static void readers_disk_becomes(int becomes)
{
	const struct kvpull_slots *file = &world.owner->spills.file;
	struct stat wanted;
	struct stat is;
	int fd;

	assert_int_equal(fstat(file->fd, &wanted), 0);
	for (fd = 3; fd < FDS_MAX; fd++)
		if (fd != file->fd && fd != file->read_fd && !fstat(fd, &is) &&
		    is.st_ino == wanted.st_ino && is.st_dev == wanted.st_dev)
			assert_true(dup2(becomes, fd) >= 0);
	(void)close(becomes);
}

/* A thread that was left behind keeps what wakes its owner, and no more. */
static void disk_goes_on(void)
{
	const uint32_t before = fds_open();

	atomic_store_explicit(&hangs, 0, memory_order_release);
	while (fds_open() == before)
		(void)poll(NULL, 0, 1);
	world.world.fds_at_start++;
}

static void probe(struct kvpull_reader_place *places,
		  struct kvpull_reader_record *record)
{

	(void)handle_probed(&world, IN_MEMORY + 1, places, record);
	assert_int_equal(record->count, SLOTS + 1);
	assert_int_equal(places[0].in_file, 1);
	assert_int_equal(places[IN_MEMORY].in_file, 0);
}

static void read_begin(const struct kvpull_reader_place *place, uint32_t block,
		       uint64_t incarnation, int32_t *code, uint64_t *id)
{
	assert_int_equal(handle_read_into(&world, block, place, 1, incarnation,
					  kvpull_clock_ns() + DEADLINE_NS, code,
					  id),
			 0);
}

/* A slot cannot be read; a chunk meanwhile can. */
static void expect_read_ends_with(int32_t code)
{
	struct kvpull_reader_place places[HANDLE_CHUNKS];
	struct kvpull_reader_record record;
	const uint64_t began_ns = kvpull_clock_ns();
	int32_t of_slot = 1;
	int32_t of_chunk = 1;
	uint32_t ended = 0;
	uint64_t ids[2];

	probe(places, &record);
	read_begin(&places[0], 0, record.incarnation, &of_slot, &ids[0]);
	read_begin(&places[IN_MEMORY], 1, record.incarnation, &of_chunk,
		   &ids[1]);
	while (ended < 2) {
		assert_true(kvpull_clock_ns() - began_ns < HANDLE_WAIT_NS);
		ended += (uint32_t)handle_turn(&world, &record);
	}
	assert_int_equal(of_slot, code);
	assert_int_equal(of_chunk, 0);
	assert_int_equal(world.blocks[HANDLE_CHUNK_BYTES], IN_MEMORY + 1);
	assert_in_range(kvpull_clock_ns() - began_ns, 0, HANDLE_WAIT_NS);
}

static void expect_reader_closes(void)
{
	const uint64_t began_ns = kvpull_clock_ns();

	world.ops->close(world.reader);
	world.reader = NULL;
	assert_in_range(kvpull_clock_ns() - began_ns, 0, CLOSE_NS);
}

static void expect_failed_read(void)
{
	/* Nothing is mapped there: EIO. */
	readers_disk_becomes(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
	expect_read_ends_with(KVPULL_EREAD);
	expect_reader_closes();
}

UNIT_TEST_WITH(a_slot_that_the_disk_cannot_read_is_an_error, setup, handle_down)
{
	expect_failed_read();
}

UNIT_TEST_WITH(likewise_by_a_thread, setup_no_uring, handle_down)
{
	expect_failed_read();
}

/* A pipe that nobody writes. */
UNIT_TEST_WITH(a_disk_that_hangs_for_a_reader_is_late, setup, handle_down)
{
	int ends[2];

	if (!world.owner->spills.file.uring.is_open)
		skip();
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	readers_disk_becomes(ends[0]);
	expect_read_ends_with(KVPULL_EDEADLINE);
	expect_reader_closes();
	(void)close(ends[1]);
}

UNIT_TEST_WITH(a_thread_that_hangs_for_a_reader_is_late, setup_no_uring,
	       handle_down)
{
	atomic_store_explicit(&hangs, 1, memory_order_release);
	expect_read_ends_with(KVPULL_EDEADLINE);
	expect_reader_closes();
	disk_goes_on();
}

/* The slot belongs to no key, and readers read the chunk in memory. */
UNIT_TEST_WITH(a_thread_that_hangs_for_the_owner_is_late, setup_no_uring,
	       handle_down)
{
	struct kvpull_reader_place places[HANDLE_CHUNKS];
	struct kvpull_reader_record record;
	uint64_t began_ns;
	uint64_t id;

	(void)handle_fill(&world, 0, 1);
	assert_int_equal(world.ops->guard_bump_all(world.owner, NULL, NULL), 0);
	(void)handle_fill(&world, 0, 1);
	atomic_store_explicit(&hangs, 1, memory_order_release);
	began_ns = kvpull_clock_ns();
	spill_begin(1, began_ns + DEADLINE_NS, &id);
	handle_spilled(&world, id, &record);
	assert_int_equal(record.code, KVPULL_EDEADLINE);
	assert_in_range(kvpull_clock_ns() - began_ns, DEADLINE_NS,
			HANDLE_WAIT_NS);
	assert_int_equal(handle_probed(&world, 1, places, &record), 1);
	assert_int_equal(places[0].chunk, 0);
	began_ns = kvpull_clock_ns();
	world.ops->close(world.owner);
	world.owner = NULL;
	assert_in_range(kvpull_clock_ns() - began_ns, 0, CLOSE_NS);
	disk_goes_on();
}
