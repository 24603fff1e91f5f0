/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of file regions: rows, faults, turns, memlock. */
#include "base/clock.h"
#include "tests/unit/disk/sandbox.h"
#include "tests/unit/disk/world.h"

/* Strip s has group s, 4 blocks of 3 rows, apart from the other strips. */
static void strip_random(struct world *world, uint32_t s)
{
	const uint64_t row_bytes = 1 + random_next(&world->random) %
					       (s ? 200000 >> (4 * s) : 145000);
	const uint64_t gap = random_next(&world->random) % 6000;
	const uint64_t row_stride = row_bytes + gap;
	struct kvpull_strip *strip = &world->strips[s];

	*strip = (struct kvpull_strip){
		.region_index = s == 2 ? 0 : 1,
		.group_index = s,
		.remote_offset = random_next(&world->random) % 10000,
		.remote_block_stride = row_stride * 3,
		.remote_row_stride = row_stride,
		.local = world->local + s * (LOCAL_BYTES / 4) +
			 random_next(&world->random) % 64,
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
		region_open(world,
			    round % 3 ? random_next(&world->random) % 9000 : 0);
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
		read_well(world, 0);
		/* No slice was one that O_DIRECT does not take. */
		assert_int_equal(world->regions[1].align > 1,
				 world->regions[1].direct_fd >= 0);
	}
	pieces_are_back(world);
	assert_int_equal(lines.bad_count, 0);
}

UNIT_TEST(rows_of_any_place_and_size_come_right)
{
	in_each_way(rows_read);
}

/* To the file's last byte, which no page ends at. */
static void tail_read(struct world *world)
{
	assert_int_equal(ftruncate(world->fd, 10000), 0);
	(void)read_plain(world, 0, 2, 5000);
	read_well(world, 0);
	pieces_are_back(world);
}

UNIT_TEST(file_that_ends_inside_a_page_is_read_to_its_end)
{
	in_each_way(tail_read);
}

static void pieces_are(struct world *world, uint64_t stride, uint32_t count)
{
	struct kvpull_strip *strip = read_plain(world, 0, 8, 4096);

	strip->remote_block_stride = stride;
	world->ended_count = 0;
	start(world, 0);
	poll_once(world);
	assert_int_equal(world->files.uring.in_flight, count);
	poll_until(world, 1);
	verify(world, &world->read[0]);
}

static void neighbours_read(struct world *world)
{
	if (world->way == WAY_PREAD)
		return;
	pieces_are(world, 4096, 1);
	pieces_are(world, 8192, 1);
	pieces_are(world, 8193, 8);
	pieces_are_back(world);
}

UNIT_TEST(rows_that_are_near_share_a_piece)
{
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

UNIT_TEST(read_without_a_row_in_a_file_ends_at_once)
{
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

UNIT_TEST(rows_of_two_files_share_no_piece)
{
	in_each_way(two_files_read);
}

/* ---- faults ---- */

/* Read 0, which fails and says so once. */
static void read_fails(struct world *world)
{
	start(world, 0);
	poll_until(world, 1);
	only_one_ended(world, 0, KVPULL_EREAD);
	assert_int_equal(lines.bad_count, 1);
}

static void truncated_read(struct world *world)
{
	(void)read_plain(world, 0, 48, 65536);
	assert_int_equal(ftruncate(world->fd, 1000000), 0);
	read_fails(world);
	assert_non_null(strstr(lines.bad, "the file ends"));
	pieces_are_back(world);
	only_one_ended(world, 0, KVPULL_EREAD);
	/* Bytes before the file's end can still be read. */
	memset(world->local, UNTOUCHED, LOCAL_BYTES);
	(void)read_plain(world, 1, 8, 65536);
	read_well(world, 1);
}

UNIT_TEST(file_that_was_truncated_fails_the_read_once)
{
	in_each_way(truncated_read);
}

/* Each time some of it comes, and never all: that is an end, too. */
static void cut_read(struct world *world)
{
	(void)read_plain(world, 0, 1, 16384);
	assert_int_equal(ftruncate(world->fd, 10000), 0);
	read_fails(world);
	pieces_are_back(world);
}

UNIT_TEST(piece_that_never_comes_whole_fails_the_read)
{
	in_each_way(cut_read);
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
	assert_int_equal(lines.bad_count, 1);
}

UNIT_TEST(device_that_fails_fails_the_read_once)
{
	in_each_way(error_read);
}

/* Half of it the first time, as some file systems and old kernels do. */
static void short_read(struct world *world)
{
	(void)read_plain(world, 0, 16, 4096);
	assert_int_equal(ftruncate(world->fd, 40000), 0);
	start(world, 0);
	poll_once(world);
	rest(world);
	assert_int_equal(pwrite(world->fd, world->content, FILE_BYTES, 0),
			 FILE_BYTES);
	poll_until(world, 1);
	only_one_ended(world, 0, 0);
	verify(world, &world->read[0]);
	assert_int_equal(lines.bad_count, 0);
	pieces_are_back(world);
}

UNIT_TEST(piece_that_comes_half_is_read_again)
{
	in_each_way(short_read);
}

/* As on a file system whose O_DIRECT wants more than it says. */
UNIT_TEST(refused_direct_reads_go_through_the_page_cache)
{
	static struct world world;

	if (!world_begin(&world, WAY_DIRECT)) {
		/* A slice that no device can take. */
		world.regions[1].align = 2;
		read_plain(&world, 0, 4, 200000)->remote_offset = 2;
		read_well(&world, 0);
		/* tmpfs takes any slice. */
		assert_in_range(world.regions[1].align, 1, 2);
		assert_int_equal(lines.bad_count, 0);
		pieces_are_back(&world);
	}
	world_end(&world);
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
	assert_int_equal(world->reads[3].pieces_open, 1);
	poll_until(world, 4);
	/* The thread keeps their order; what a kernel reads at once has none. */
	if (world->way == WAY_PREAD)
		assert_ptr_equal(world->ended[0], &world->reads[3]);
	assert_int_equal(world->ended_count, 4);
	verify(world, &world->read[0]);
	pieces_are_back(world);
}

UNIT_TEST(short_read_does_not_wait_for_long_ones)
{
	in_each_way(turns_read);
}

/* 32 pieces: seven turns of four are the urgent one's, and one the oldest's. */
static void urgent_read(struct world *world)
{
	uint32_t i;

	(void)read_plain(world, 0, 48, 131072);
	for (i = 0; i < READS_MAX; i++) {
		world->read[i] = world->read[0];
		world->read[i].priority = i == 3 ? -1 : 0;
		start(world, i);
	}
	poll_once(world);
	assert_int_equal(world->reads[0].pieces_open, 4);
	assert_int_equal(world->reads[1].pieces_open, 0);
	assert_int_equal(world->reads[2].pieces_open, 0);
	assert_int_equal(world->reads[3].pieces_open, 28);
	poll_until(world, 4);
	verify(world, &world->read[0]);
	pieces_are_back(world);
}

UNIT_TEST(pieces_of_the_most_urgent_read_go_first)
{
	in_each_way(urgent_read);
}

static void few_read(struct world *world)
{
	struct kvpull_file_read *ended;
	uint32_t turn = 0;
	uint32_t i;

	(void)read_plain(world, 0, 4, 4096);
	for (i = 0; i < READS_MAX; i++) {
		world->read[i] = world->read[0];
		start(world, i);
	}
	do {
		assert_int_equal(kvpull_files_poll(&world->files, &ended, 0),
				 0);
		/* Not rest(): the first one's end keeps it awake. */
		(void)poll(NULL, 0, 1);
	} while (in_flight(world) && turn++ < TURNS_MAX);
	for (i = 0; i < READS_MAX; i++) {
		assert_int_equal(kvpull_files_arm(&world->files), 1);
		assert_int_equal(kvpull_files_poll(&world->files, &ended, 1),
				 1);
		assert_int_equal(ended->code, 0);
	}
	pieces_are_back(world);
}

UNIT_TEST(ends_that_find_no_room_come_later)
{
	in_each_way(few_read);
}

/* ---- memlock ---- */

/* As in a container: 8 MiB are enough, and without any it works as well. */
static int memlock_child(int memlock)
{
	const uint64_t until = kvpull_clock_ns() + 20 * KVPULL_NS_PER_S;
	static struct world world;

	if (sandbox_drop_privileges((rlim_t)memlock))
		return SANDBOX_SKIP;
	if (world_begin(&world, WAY_CACHED) && memlock)
		return SANDBOX_SKIP;
	if (world.files.uring.is_fixed != (memlock >= 8 << 20))
		return 1;
	(void)read_plain(&world, 0, 48, 131072);
	start(&world, 0);
	while (!world.ended_count && kvpull_clock_ns() < until)
		poll_once(&world);
	if (world.ended_count != 1 || world.reads[0].code)
		return 2;
	return memcmp(world.local, world.content, (size_t)48 * 131072) ? 3 : 0;
}

UNIT_TEST(memlock_of_8_mib_takes_the_buffers)
{
	sandbox_expect(memlock_child, 8 << 20);
}

UNIT_TEST(less_memlock_than_the_buffers_need_is_enough)
{
	sandbox_expect(memlock_child, 0);
	sandbox_expect(memlock_child, 1 << 20);
}
