/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of file regions, each in three ways: io_uring with O_DIRECT, io_uring
 * through the page cache, pread(). A piece's result is looked at in a later
 * poll than the one that asked for it, so that a test can act in between.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/file_read.h"
#include "tests/unit/sandbox.h"

/* In the place of the library's: 1: the kernel takes nothing now. */
static int kernel_is_busy;

int io_uring_submit(struct io_uring *ring)
{
	return kernel_is_busy ? -EBUSY : io_uring_submit_and_wait(ring, 0);
}

#define FILE_BYTES ((size_t)7 << 20)
#define LOCAL_BYTES FILE_BYTES
#define READS_MAX 4u
#define TURNS_MAX 20000u
#define UNTOUCHED 0xee

enum way {
	WAY_DIRECT = 0,
	WAY_CACHED,
	WAY_PREAD,
	WAYS
};

struct world {
	struct kvpull_log log;
	uint32_t warnings;
	char warning[KVPULL_LOG_LINE_BYTES];
	enum way way;
	struct kvpull_arena arena;
	struct kvpull_files files;
	struct kvpull_file regions[KVPULL_REGIONS_MAX];
	struct kvpull_file_read reads[READS_MAX];
	struct kvpull_read read[READS_MAX];
	struct kvpull_strip strips[4];
	uint32_t remote_ids[64];
	uint32_t local_ids[64];
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	uint8_t *content; /* what is in the file */
	uint8_t *local;
	int wake_fd;
	int fd; /* the producer's */
	uint64_t random;
	uint32_t ended_count;
	uint32_t polls;
	struct kvpull_file_read *ended[READS_MAX * 2];
};

static void note(void *context, uint32_t level, const char *line)
{
	struct world *world = context;

	if (level > KVPULL_LOG_WARN)
		return;
	world->warnings++;
	(void)snprintf(world->warning, sizeof(world->warning), "%s", line);
}

static uint64_t random_next(struct world *world)
{
	world->random ^= world->random << 13;
	world->random ^= world->random >> 7;
	world->random ^= world->random << 17;
	return world->random;
}

static void *pages(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(memory != MAP_FAILED);
	return memory;
}

/* Region 1 is the file, from `offset` on; region 0 is memory. */
static void region_of(struct world *world, uint64_t offset, uint64_t bytes)
{
	char path[32];
	int handed;

	kvpull_file_close(&world->regions[1]);
	world->regions[1] =
		(struct kvpull_file){ .bytes = bytes, .offset = offset };
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", world->fd);
	handed = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(kvpull_file_open(&world->regions[1], handed,
					  world->way == WAY_DIRECT ?
						  KVPULL_FILE_DIRECT_AUTO :
						  KVPULL_FILE_DIRECT_NO,
					  &world->log),
			 0);
	(void)close(handed);
}

static void region_open(struct world *world, uint64_t offset)
{
	region_of(world, offset, FILE_BYTES - offset);
}

/* Made once, and as it was after each test: see world_end(). */
static void file_make(struct world *world)
{
	static uint8_t *content;
	static int fd;
	size_t i;

	if (content) {
		world->content = content;
		world->fd = fd;
		return;
	}
	world->content = pages(FILE_BYTES);
	for (i = 0; i < FILE_BYTES; i += 8) {
		const uint64_t word = random_next(world);

		memcpy(world->content + i, &word, sizeof(word));
	}
	world->fd = open("/tmp", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (world->fd < 0)
		world->fd = memfd_create("test-file", MFD_CLOEXEC);
	assert_int_equal(pwrite(world->fd, world->content, FILE_BYTES, 0),
			 FILE_BYTES);
	/* As a producer's; a child of another uid reads it too. */
	assert_int_equal(fchmod(world->fd, 0444), 0);
	content = world->content;
	fd = world->fd;
}

/* 0; -1: this machine does not have that way. */
static int world_begin(struct world *world, enum way way)
{
	uint32_t was_open;

	memset(world, 0, sizeof(*world));
	world->way = way;
	world->random = 88172645463325252u;
	world->log = (struct kvpull_log){ .write = note,
					  .context = world,
					  .level = KVPULL_LOG_WARN };
	world->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	file_make(world);
	world->local = pages(LOCAL_BYTES);
	memset(world->local, UNTOUCHED, LOCAL_BYTES);
	region_open(world, 0);
	assert_int_equal(kvpull_arena_open(&world->arena,
					   kvpull_files_bytes(READS_MAX),
					   &world->log),
			 0);
	assert_int_equal(kvpull_files_open(&world->files, READS_MAX,
					   &world->arena, &world->log),
			 0);
	kvpull_arena_seal(&world->arena);
	kvpull_files_prepare(&world->files,
			     way == WAY_PREAD ? KVPULL_URING_NO :
						KVPULL_URING_ANY_THREAD,
			     world->wake_fd);
	/* Once is enough. */
	was_open = world->files.uring.is_open;
	kvpull_files_prepare(&world->files, KVPULL_URING_NO, -1);
	assert_int_equal(world->files.uring.is_open, was_open);
	if (way == WAY_DIRECT && world->regions[1].direct_fd < 0)
		return -1;
	return way != WAY_PREAD && !world->files.uring.is_open ? -1 : 0;
}

static void world_end(struct world *world)
{
	uint8_t *bounce = world->files.bounce;
	/* What the kernel may still write to, stays. */
	const int stays = world->files.uring.in_flight &&
			  !world->files.uring.is_fixed && !kernel_is_busy;

	kvpull_files_close(&world->files);
	if (!stays)
		assert_int_equal(msync(bounce, 4096, MS_ASYNC), -1);
	kvpull_arena_close(&world->arena);
	kvpull_file_close(&world->regions[1]);
	(void)munmap(world->local, LOCAL_BYTES);
	(void)close(world->wake_fd);
	if (lseek(world->fd, 0, SEEK_END) != (off_t)FILE_BYTES)
		assert_int_equal(
			pwrite(world->fd, world->content, FILE_BYTES, 0),
			FILE_BYTES);
}

/* A test of each way; what this machine does not have, is left out. */
static void in_each_way(void (*test)(struct world *world))
{
	static struct world world;
	uint32_t way;

	for (way = 0; way < WAYS; way++) {
		if (!world_begin(&world, (enum way)way))
			test(&world);
		else
			print_message("refused: way %u\n", way);
		world_end(&world);
	}
}

/* Blocks 0 .. count - 1 of one strip, in this order, from the file's start. */
static struct kvpull_strip *read_plain(struct world *world, uint32_t index,
				       uint32_t count, uint64_t row_bytes)
{
	uint32_t i;

	assert_in_range(count, 1, 64);
	for (i = 0; i < count; i++)
		world->remote_ids[i] = world->local_ids[i] = i;
	for (i = 1; i <= KVPULL_GROUPS_MAX; i++)
		world->group_first[i] = count;
	world->strips[index] =
		(struct kvpull_strip){ .region_index = 1,
				       .remote_block_stride = row_bytes,
				       .local = world->local,
				       .local_block_stride = row_bytes,
				       .row_bytes = row_bytes,
				       .row_count = 1 };
	world->read[index] =
		(struct kvpull_read){ .index = index,
				      .strip_count = 1,
				      .strips = &world->strips[index],
				      .remote_ids = world->remote_ids,
				      .local_ids = world->local_ids,
				      .group_first = world->group_first };
	return &world->strips[index];
}

static void start(struct world *world, uint32_t index)
{
	kvpull_files_start(&world->files, &world->reads[index],
			   &world->read[index], world->regions);
}

static void poll_once(struct world *world)
{
	const uint32_t count = kvpull_files_poll(
		&world->files, &world->ended[world->ended_count],
		READS_MAX * 2 - world->ended_count);

	world->ended_count += count;
	world->polls++;
}

/* As an owner: asleep, unless there is something to do. */
static void rest(struct world *world)
{
	struct pollfd fd = { .fd = world->wake_fd, .events = POLLIN };
	eventfd_t ignored;

	if (!kvpull_files_arm(&world->files))
		assert_int_equal(poll(&fd, 1, 5000), 1);
	(void)eventfd_read(world->wake_fd, &ignored);
}

static void poll_until(struct world *world, uint32_t ended_count)
{
	uint32_t turn;

	for (turn = 0; turn < TURNS_MAX; turn++) {
		poll_once(world);
		if (world->ended_count >= ended_count)
			return;
		rest(world);
	}
	fail();
}

/* All that the kernel had is back, and nobody asks for more. */
static void pieces_are_back(struct world *world)
{
	uint32_t free_count = 0;
	uint32_t turn;
	uint32_t at;

	for (turn = 0; turn < TURNS_MAX; turn++) {
		if (!world->files.uring.in_flight)
			break;
		rest(world);
		poll_once(world);
	}
	for (at = world->files.piece_free; at != KVPULL_NONE;
	     at = world->files.pieces[at].next_free)
		free_count++;
	assert_int_equal(free_count, KVPULL_FILE_DEPTH);
	assert_int_equal(world->files.uring.in_flight, 0);
	assert_int_equal(world->files.queue_count, 0);
	assert_int_equal(kvpull_files_arm(&world->files), 0);
}

static void only_one_ended(const struct world *world, uint32_t index, int code)
{
	assert_int_equal(world->ended_count, 1);
	assert_ptr_equal(world->ended[0], &world->reads[index]);
	assert_int_equal(world->reads[index].code, code);
}

/* ---- rows ---- */

/* What the read is to bring, row by row; the rest is untouched. */
static void verify(const struct world *world, const struct kvpull_read *read)
{
	uint8_t *expected = pages(LOCAL_BYTES);
	struct kvpull_rows_cursor cursor = { 0 };
	struct kvpull_row row;

	memset(expected, UNTOUCHED, LOCAL_BYTES);
	while (kvpull_rows_next(read, &cursor, UINT64_MAX, &row)) {
		if (row.strip->region_index != 1)
			continue;
		memcpy(expected + (row.local - world->local),
		       world->content + world->regions[1].offset +
			       row.remote_offset,
		       row.bytes);
	}
	assert_memory_equal(world->local, expected, LOCAL_BYTES);
	(void)munmap(expected, LOCAL_BYTES);
}

/* Strip s has group s, 4 blocks of 3 rows, apart from the other strips. */
static void strip_random(struct world *world, uint32_t s)
{
	const uint64_t row_bytes =
		1 + random_next(world) % (s ? 200000 >> (4 * s) : 145000);
	const uint64_t gap = random_next(world) % 6000;
	const uint64_t row_stride = row_bytes + gap;
	struct kvpull_strip *strip = &world->strips[s];

	*strip = (struct kvpull_strip){
		.region_index = s == 2 ? 0 : 1,
		.group_index = s,
		.remote_offset = random_next(world) % 10000,
		.remote_block_stride = row_stride * 3,
		.remote_row_stride = row_stride,
		.local = world->local + s * (LOCAL_BYTES / 4) +
			 random_next(world) % 64,
		.local_block_stride = (row_bytes + 1) * 3,
		.local_row_stride = row_bytes + 1,
		.row_bytes = row_bytes,
		.row_count = 3,
	};
}

static void rows_read(struct world *world)
{
	uint32_t round;
	uint32_t i;

	for (round = 0; round < 12; round++) {
		region_open(world, round % 3 ? random_next(world) % 9000 : 0);
		for (i = 0; i < 4; i++)
			strip_random(world, i);
		for (i = 0; i < 16; i++) {
			world->local_ids[i] = i % 4;
			world->remote_ids[i] = (i * 7 + round) % 4;
		}
		for (i = 0; i <= KVPULL_GROUPS_MAX; i++)
			world->group_first[i] = i < 4 ? i * 4 : 16;
		world->read[0] = (struct kvpull_read){
			.strip_count = 4,
			.strips = world->strips,
			.remote_ids = world->remote_ids,
			.local_ids = world->local_ids,
			.group_first = world->group_first,
		};
		memset(world->local, UNTOUCHED, LOCAL_BYTES);
		world->ended_count = 0;
		start(world, 0);
		poll_until(world, 1);
		only_one_ended(world, 0, 0);
		verify(world, &world->read[0]);
		/* No slice was one that O_DIRECT does not take. */
		assert_int_equal(world->regions[1].align > 1,
				 world->regions[1].direct_fd >= 0);
	}
	pieces_are_back(world);
	assert_int_equal(world->warnings, 0);
}

static void rows_of_any_place_and_size_come_right(void **state)
{
	(void)state;
	in_each_way(rows_read);
}

/* To the file's last byte, which no page ends at. */
static void tail_read(struct world *world)
{
	assert_int_equal(ftruncate(world->fd, 10000), 0);
	(void)read_plain(world, 0, 2, 5000);
	start(world, 0);
	poll_until(world, 1);
	only_one_ended(world, 0, 0);
	verify(world, &world->read[0]);
	pieces_are_back(world);
}

static void file_that_ends_inside_a_page_is_read_to_its_end(void **state)
{
	(void)state;
	in_each_way(tail_read);
}

static uint32_t pieces_of(struct world *world, uint64_t stride)
{
	struct kvpull_strip *strip = read_plain(world, 0, 8, 4096);

	strip->remote_block_stride = stride;
	world->ended_count = 0;
	start(world, 0);
	poll_once(world);
	return world->files.uring.in_flight;
}

static void neighbours_read(struct world *world)
{
	if (world->way == WAY_PREAD)
		return;
	assert_int_equal(pieces_of(world, 4096), 1);
	poll_until(world, 1);
	verify(world, &world->read[0]);
	assert_int_equal(pieces_of(world, 8192), 1);
	poll_until(world, 1);
	verify(world, &world->read[0]);
	assert_int_equal(pieces_of(world, 8193), 8);
	poll_until(world, 1);
	verify(world, &world->read[0]);
	pieces_are_back(world);
}

static void rows_that_are_near_share_a_piece(void **state)
{
	(void)state;
	in_each_way(neighbours_read);
}

static void memory_read(struct world *world)
{
	read_plain(world, 0, 8, 4096)->region_index = 0;
	start(world, 0);
	poll_once(world);
	only_one_ended(world, 0, 0);
	verify(world, &world->read[0]);
	pieces_are_back(world);
}

static void read_without_a_row_in_a_file_ends_at_once(void **state)
{
	(void)state;
	in_each_way(memory_read);
}

/* Two files, each with what the other does not have, at the same places. */
static void two_files_read(struct world *world)
{
	const int own = world->fd;
	const int other = memfd_create("test-other", MFD_CLOEXEC);
	uint8_t zeros[8192] = { 0 };

	assert_int_equal(pwrite(other, zeros, sizeof(zeros), 0), 8192);
	world->regions[2] = world->regions[1];
	world->regions[1] = (struct kvpull_file){ 0 };
	world->fd = other;
	region_of(world, 0, sizeof(zeros));
	world->fd = own;
	(void)read_plain(world, 0, 1, 4096);
	world->strips[1] = world->strips[0];
	world->strips[1].region_index = 2;
	world->strips[1].remote_offset = 4096;
	world->strips[1].local += 4096;
	world->read[0].strip_count = 2;
	start(world, 0);
	poll_until(world, 1);
	only_one_ended(world, 0, 0);
	assert_memory_equal(world->local, zeros, 4096);
	assert_memory_equal(world->local + 4096, world->content + 4096, 4096);
	pieces_are_back(world);
	kvpull_file_close(&world->regions[2]);
	(void)close(other);
}

static void rows_of_two_files_share_no_piece(void **state)
{
	(void)state;
	in_each_way(two_files_read);
}

/* ---- faults ---- */

static void truncated_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 65536);
	assert_int_equal(ftruncate(world->fd, 1000000), 0);
	start(world, 0);
	poll_until(world, 1);
	only_one_ended(world, 0, KVPULL_EREAD);
	assert_int_equal(world->warnings, 1);
	assert_non_null(strstr(world->warning, "the file ends"));
	pieces_are_back(world);
	only_one_ended(world, 0, KVPULL_EREAD);
	/* What is there can still be read. */
	memset(world->local, UNTOUCHED, LOCAL_BYTES);
	(void)read_plain(world, 1, 8, 65536);
	world->ended_count = 0;
	start(world, 1);
	poll_until(world, 1);
	only_one_ended(world, 1, 0);
	verify(world, &world->read[1]);
}

static void file_that_was_truncated_fails_the_read_once(void **state)
{
	(void)state;
	in_each_way(truncated_read);
}

static void error_read(struct world *world)
{
	const int fd = world->regions[1].fd;
	const int bad = open("/dev/null", O_WRONLY | O_CLOEXEC);

	/* As a device that fails: this descriptor cannot be read at all. */
	world->regions[1].align = 1;
	world->regions[1].fd = bad;
	(void)read_plain(world, 0, 48, 65536);
	start(world, 0);
	poll_until(world, 1);
	pieces_are_back(world);
	world->regions[1].fd = fd;
	(void)close(bad);
	only_one_ended(world, 0, KVPULL_EREAD);
	assert_int_equal(world->warnings, 1);
}

static void device_that_fails_fails_the_read_once(void **state)
{
	(void)state;
	in_each_way(error_read);
}

/* Half of it the first time, as some file systems and old kernels do. */
static void short_read(struct world *world)
{
	(void)read_plain(world, 0, 16, 4096);
	assert_int_equal(ftruncate(world->fd, 40000), 0);
	start(world, 0);
	poll_once(world);
	if (world->way == WAY_PREAD) {
		/* There a short read is the end of the file. */
		only_one_ended(world, 0, KVPULL_EREAD);
		return;
	}
	rest(world);
	assert_int_equal(pwrite(world->fd, world->content, FILE_BYTES, 0),
			 FILE_BYTES);
	poll_until(world, 1);
	only_one_ended(world, 0, 0);
	verify(world, &world->read[0]);
	assert_int_equal(world->warnings, 0);
	pieces_are_back(world);
}

static void piece_that_comes_half_is_read_again(void **state)
{
	(void)state;
	in_each_way(short_read);
}

/* As on a file system whose O_DIRECT wants more than it says. */
static void refused_direct_reads_go_through_the_page_cache(void **state)
{
	static struct world world;

	(void)state;
	if (!world_begin(&world, WAY_DIRECT)) {
		/* A slice that no device can take. */
		world.regions[1].align = 2;
		read_plain(&world, 0, 4, 200000)->remote_offset = 2;
		start(&world, 0);
		poll_until(&world, 1);
		only_one_ended(&world, 0, 0);
		verify(&world, &world.read[0]);
		/* tmpfs takes any slice. */
		assert_in_range(world.regions[1].align, 1, 2);
		assert_int_equal(world.warnings, 0);
		pieces_are_back(&world);
	}
	world_end(&world);
}

/* ---- cancel ---- */

static void is_untouched(const struct world *world)
{
	size_t i;

	for (i = 0; i < LOCAL_BYTES; i++)
		if (world->local[i] != UNTOUCHED)
			fail();
}

static void cancelled_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	poll_once(world);
	assert_int_equal(world->ended_count, 0);
	if (world->way != WAY_PREAD)
		assert_int_equal(world->files.uring.in_flight,
				 KVPULL_FILE_DEPTH);
	memset(world->local, UNTOUCHED, LOCAL_BYTES);
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EABORTED);
	/* The first one counts. */
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EPEER);
	assert_int_equal(kvpull_files_arm(&world->files), 1);
	poll_once(world);
	only_one_ended(world, 0, KVPULL_EABORTED);
	/* Its memory may be anybody's now. */
	memset(&world->read[0], 0xff, sizeof(world->read[0]));
	memset(&world->reads[0], 0xff, sizeof(world->reads[0]));
	pieces_are_back(world);
	assert_int_equal(world->ended_count, 1);
	is_untouched(world);
}

static void cancelled_read_ends_at_once_and_writes_no_more(void **state)
{
	(void)state;
	in_each_way(cancelled_read);
}

static void waiting_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	start(world, 0 + 1);
	(void)read_plain(world, 1, 48, 131072);
	kvpull_files_cancel(&world->files, &world->reads[1], KVPULL_EPEER);
	poll_once(world);
	only_one_ended(world, 1, KVPULL_EPEER);
	poll_until(world, 2);
	assert_ptr_equal(world->ended[1], &world->reads[0]);
	assert_int_equal(world->reads[0].code, 0);
	pieces_are_back(world);
	verify(world, &world->read[0]);
}

static void read_that_still_waits_can_be_cancelled(void **state)
{
	(void)state;
	in_each_way(waiting_read);
}

static void over_read(struct world *world)
{
	(void)read_plain(world, 0, 4, 4096);
	start(world, 0);
	poll_until(world, 1);
	only_one_ended(world, 0, 0);
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EABORTED);
	only_one_ended(world, 0, 0);
	verify(world, &world->read[0]);
	pieces_are_back(world);
}

static void read_that_was_over_stays_so(void **state)
{
	(void)state;
	in_each_way(over_read);
}

/* Its descriptors are closed as soon as it has ended, whoever has them next. */
static void closed_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	poll_once(world);
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EPEER);
	kvpull_file_close(&world->regions[1]);
	poll_once(world);
	pieces_are_back(world);
	only_one_ended(world, 0, KVPULL_EPEER);
}

static void files_close_while_their_pieces_are_under_way(void **state)
{
	(void)state;
	in_each_way(closed_read);
}

static void left_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 131072);
	start(world, 0);
	poll_once(world);
	assert_int_equal(world->ended_count, 0);
}

static void close_with_pieces_under_way_does_not_hang(void **state)
{
	(void)state;
	in_each_way(left_read);
}

/* What the kernel did not take is not read from whoever is there later. */
static void busy_read(struct world *world)
{
	const int own = world->regions[1].fd;
	const int own_direct = world->regions[1].direct_fd;
	char text[8];
	int pipes[2];

	if (world->way == WAY_PREAD)
		return;
	assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(write(pipes[1], "others'", 8), 8);
	(void)read_plain(world, 0, 16, 131072);
	start(world, 0);
	kernel_is_busy = 1;
	poll_once(world);
	assert_int_equal(kvpull_files_arm(&world->files), 1);
	kvpull_files_cancel(&world->files, &world->reads[0], KVPULL_EPEER);
	poll_once(world);
	only_one_ended(world, 0, KVPULL_EPEER);
	kvpull_file_close(&world->regions[1]);
	assert_int_equal(dup2(pipes[0], own), own);
	if (own_direct >= 0)
		assert_int_equal(dup2(pipes[0], own_direct), own_direct);
	kernel_is_busy = 0;
	poll_once(world);
	pieces_are_back(world);
	assert_int_equal(read(pipes[0], text, sizeof(text)), 8);
	(void)close(own);
	if (own_direct >= 0)
		(void)close(own_direct);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
}

static void dropped_piece_reads_nothing_of_others(void **state)
{
	(void)state;
	in_each_way(busy_read);
}

static void waiting_for_the_kernel(struct world *world)
{
	kernel_is_busy = 1;
	(void)read_plain(world, 0, 16, 131072);
	start(world, 0);
	poll_once(world);
	kvpull_files_close(&world->files);
	kernel_is_busy = 0;
	assert_int_equal(world->warnings, 0);
}

static void close_drops_what_the_kernel_did_not_take(void **state)
{
	(void)state;
	in_each_way(waiting_for_the_kernel);
}

/* ---- turns ---- */

static void turns_read(struct world *world)
{
	uint32_t one_block[KVPULL_GROUPS_MAX + 1] = { 0, 1 };

	/* Long ones first: each alone would take all pieces. */
	(void)read_plain(world, 0, 48, 131072);
	world->read[1] = world->read[0];
	world->read[2] = world->read[0];
	(void)read_plain(world, 3, 48, 131072);
	world->read[3].group_first = one_block;
	start(world, 0);
	start(world, 1);
	start(world, 2);
	start(world, 3);
	poll_once(world);
	if (world->way != WAY_PREAD)
		assert_int_equal(world->reads[3].pieces_open, 1);
	poll_until(world, 4);
	assert_ptr_equal(world->ended[0], &world->reads[3]);
	assert_int_equal(world->ended_count, 4);
	verify(world, &world->read[0]);
	pieces_are_back(world);
}

static void short_read_does_not_wait_for_long_ones(void **state)
{
	(void)state;
	in_each_way(turns_read);
}

static void few_read(struct world *world)
{
	uint32_t i;

	(void)read_plain(world, 0, 4, 4096);
	for (i = 0; i < READS_MAX; i++) {
		world->read[i] = world->read[0];
		start(world, i);
	}
	for (i = 0; i < READS_MAX; i++) {
		struct kvpull_file_read *ended;

		while (!kvpull_files_poll(&world->files, &ended, 1))
			;
		assert_int_equal(ended->code, 0);
		if (i + 1 < READS_MAX)
			assert_int_equal(kvpull_files_arm(&world->files), 1);
	}
	pieces_are_back(world);
}

static void ends_that_find_no_room_come_later(void **state)
{
	(void)state;
	in_each_way(few_read);
}

static void pread_takes_so_much_a_poll(void **state)
{
	static struct world world;

	(void)state;
	assert_int_equal(world_begin(&world, WAY_PREAD), 0);
	(void)read_plain(&world, 0, 48, 131072 + 4096);
	start(&world, 0);
	poll_until(&world, 1);
	assert_int_equal(world.polls, 2);
	verify(&world, &world.read[0]);
	world_end(&world);
}

/* ---- memlock ---- */

/* As in a container: 8 MiB are enough, and without any it works as well. */
static int memlock_child(int memlock)
{
	static struct world world;
	uint32_t turn;

	if (sandbox_drop_privileges((rlim_t)memlock))
		return SANDBOX_SKIP;
	if (world_begin(&world, WAY_CACHED) && memlock)
		return SANDBOX_SKIP;
	if (world.files.uring.is_fixed != (memlock >= 8 << 20))
		return 1;
	(void)read_plain(&world, 0, 48, 131072);
	start(&world, 0);
	for (turn = 0; turn < 1000000 && !world.ended_count; turn++)
		poll_once(&world);
	if (world.ended_count != 1 || world.reads[0].code)
		return 2;
	return memcmp(world.local, world.content, (size_t)48 * 131072) ? 3 : 0;
}

static void memlock_of_8_mib_takes_the_buffers(void **state)
{
	(void)state;
	sandbox_expect(memlock_child, 8 << 20);
}

static void less_memlock_than_the_buffers_need_is_enough(void **state)
{
	(void)state;
	sandbox_expect(memlock_child, 0);
	sandbox_expect(memlock_child, 1 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_of_any_place_and_size_come_right),
		cmocka_unit_test(
			file_that_ends_inside_a_page_is_read_to_its_end),
		cmocka_unit_test(rows_that_are_near_share_a_piece),
		cmocka_unit_test(rows_of_two_files_share_no_piece),
		cmocka_unit_test(read_without_a_row_in_a_file_ends_at_once),
		cmocka_unit_test(file_that_was_truncated_fails_the_read_once),
		cmocka_unit_test(device_that_fails_fails_the_read_once),
		cmocka_unit_test(piece_that_comes_half_is_read_again),
		cmocka_unit_test(
			refused_direct_reads_go_through_the_page_cache),
		cmocka_unit_test(
			cancelled_read_ends_at_once_and_writes_no_more),
		cmocka_unit_test(read_that_still_waits_can_be_cancelled),
		cmocka_unit_test(read_that_was_over_stays_so),
		cmocka_unit_test(files_close_while_their_pieces_are_under_way),
		cmocka_unit_test(close_with_pieces_under_way_does_not_hang),
		cmocka_unit_test(dropped_piece_reads_nothing_of_others),
		cmocka_unit_test(close_drops_what_the_kernel_did_not_take),
		cmocka_unit_test(short_read_does_not_wait_for_long_ones),
		cmocka_unit_test(ends_that_find_no_room_come_later),
		cmocka_unit_test(pread_takes_so_much_a_poll),
		cmocka_unit_test(memlock_of_8_mib_takes_the_buffers),
		cmocka_unit_test(less_memlock_than_the_buffers_need_is_enough),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
