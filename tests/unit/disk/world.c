/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/disk/world.h"

int kernel_is_busy;

/* In the place of the library's. */
int io_uring_submit(struct io_uring *ring)
{
	return kernel_is_busy ? -EBUSY : io_uring_submit_and_wait(ring, 0);
}

void *pages(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(memory != MAP_FAILED);
	return memory;
}

void region_of(struct world *world, uint64_t offset, uint64_t bytes)
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

void region_open(struct world *world, uint64_t offset)
{
	region_of(world, offset, FILE_BYTES - offset);
}

void file_make(struct world *world)
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
		const uint64_t word = random_next(&world->random);

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

int world_begin(struct world *world, enum way way)
{
	uint32_t was_open;

	memset(world, 0, sizeof(*world));
	world->way = way;
	world->random = 88172645463325252u;
	lines_forget();
	world->log = lines_from(KVPULL_LOG_WARN);
	world->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	file_make(world);
	world->local = pages(LOCAL_BYTES);
	memset(world->local, UNTOUCHED, LOCAL_BYTES);
	region_open(world, 0);
	kvpull_arena_init(&world->arena, &world->log);
	assert_int_equal(kvpull_files_open(&world->files, READS_MAX,
					   &world->arena, &world->log),
			 0);
	kvpull_arena_seal(&world->arena);
	assert_int_equal(
		kvpull_files_prepare(&world->files,
				     way == WAY_PREAD ? KVPULL_URING_NO :
							KVPULL_URING_ANY_THREAD,
				     KVPULL_FILE_THREAD_YES, world->wake_fd),
		0);
	/* Once is enough. */
	was_open = world->files.uring.is_open;
	assert_int_equal(kvpull_files_prepare(&world->files, KVPULL_URING_NO,
					      KVPULL_FILE_THREAD_NO, -1),
			 0);
	assert_int_equal(world->files.uring.is_open, was_open);
	if (way == WAY_DIRECT && world->regions[1].direct_fd < 0)
		return -1;
	return way != WAY_PREAD && !world->files.uring.is_open ? -1 : 0;
}

void world_end_closed(struct world *world)
{
	kvpull_arena_fini(&world->arena);
	kvpull_file_close(&world->regions[1]);
	(void)munmap(world->local, LOCAL_BYTES);
	(void)close(world->wake_fd);
}

void world_end(struct world *world)
{
	uint8_t *bounce = world->files.bounce;
	/* Memory that the kernel may still write to stays. */
	const int stays = world->files.uring.in_flight &&
			  !world->files.uring.is_fixed && !kernel_is_busy;

	kvpull_files_close(&world->files, kvpull_clock_close_by());
	if (!stays)
		assert_int_equal(msync(bounce, 4096, MS_ASYNC), -1);
	world_end_closed(world);
	if (lseek(world->fd, 0, SEEK_END) != (off_t)FILE_BYTES)
		assert_int_equal(
			pwrite(world->fd, world->content, FILE_BYTES, 0),
			FILE_BYTES);
}

void in_each_way(void (*test)(struct world *world))
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

struct kvpull_strip *read_plain(struct world *world, uint32_t index,
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

void start(struct world *world, uint32_t index)
{
	world->read[index].index = index;
	kvpull_files_start(&world->files, &world->reads[index],
			   &world->read[index], world->regions);
}

void poll_once(struct world *world)
{
	const uint32_t count = kvpull_files_poll(
		&world->files, &world->ended[world->ended_count],
		READS_MAX * 2 - world->ended_count);

	world->ended_count += count;
	world->polls++;
}

void rest(struct world *world)
{
	struct pollfd fd = { .fd = world->wake_fd, .events = POLLIN };
	eventfd_t ignored;

	if (!kvpull_files_arm(&world->files))
		assert_int_equal(poll(&fd, 1, 20000), 1);
	(void)eventfd_read(world->wake_fd, &ignored);
}

void poll_until(struct world *world, uint32_t ended_count)
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

uint32_t in_flight(const struct world *world)
{
	return world->files.uring.in_flight + world->files.disk.in_flight;
}

void pieces_are_back(struct world *world)
{
	uint32_t free_count = 0;
	uint32_t turn;
	uint32_t at;

	for (turn = 0; turn < TURNS_MAX; turn++) {
		if (!in_flight(world))
			break;
		rest(world);
		poll_once(world);
	}
	for (at = world->files.piece_free; at != KVPULL_NONE;
	     at = world->files.pieces[at].next_free)
		free_count++;
	assert_int_equal(free_count, KVPULL_FILE_DEPTH);
	assert_int_equal(in_flight(world), 0);
	assert_int_equal(world->files.queue.count, 0);
	assert_int_equal(kvpull_files_arm(&world->files), 0);
}

void only_one_ended(const struct world *world, uint32_t index, int code)
{
	assert_int_equal(world->ended_count, 1);
	assert_ptr_equal(world->ended[0], &world->reads[index]);
	assert_int_equal(world->reads[index].code, code);
}

void verify(const struct world *world, const struct kvpull_read *read)
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

void read_well(struct world *world, uint32_t index)
{
	world->ended_count = 0;
	start(world, index);
	poll_until(world, 1);
	only_one_ended(world, index, 0);
	verify(world, &world->read[index]);
}
