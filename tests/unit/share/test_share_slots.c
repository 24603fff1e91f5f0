/* SPDX-License-Identifier: Apache-2.0 */
/* An owner that copies chunks into its file of slots, and readers of that. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/unit/share/handle.h"

#define SLOTS 4u
#define THREAD_ROUNDS 40u
#define DEADLINE_NS (200 * KVPULL_NS_PER_MS)

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;
static const char *folder; /* of the slots */

/* Codes of a spill, which are written until it ends. */
static int32_t codes[KVPULL_READER_ITEMS_MAX];

static void begin(const char *more, const char *slots_folder)
{
	folder = slots_folder;
	handle_begin(&world, more);
}

/* Slots on a disk, usually with O_DIRECT. */
UNIT_FIXTURE(setup)
{
	begin("", "/var/tmp");
}

UNIT_FIXTURE(setup_no_uring)
{
	begin(",\"uring\":\"no\"", "/var/tmp");
}

UNIT_FIXTURE(setup_memory)
{
	begin("", "/dev/shm");
}

static void share(void)
{
	const struct kvpull_reader_share params = handle_slots(folder, SLOTS);

	handle_share(&world, &params);
}

static void share_and_connect(void)
{
	share();
	handle_connect(&world);
}

static int spill_begin(uint32_t first, uint32_t count, uint64_t deadline_ns,
		       uint64_t *id)
{
	return handle_spill(&world, first, count, 0, deadline_ns, codes, id);
}

static int32_t spill(uint32_t first, uint32_t count)
{
	struct kvpull_reader_record record;
	uint64_t id;

	assert_int_equal(spill_begin(first, count, 0, &id), 0);
	handle_spilled(&world, id, &record);
	return record.code;
}

static void fill_and_spill(void)
{
	handle_fill_first(&world, SLOTS);
	assert_int_equal(spill(0, SLOTS), 0);
}

static void forget_chunks(void)
{
	uint32_t at;

	for (at = 0; at < SLOTS; at++)
		handle_bump(&world, at);
}

/* Keys 1 .. SLOTS, as a probe found them, and what a read of them said. */
struct found {
	struct kvpull_reader_place places[SLOTS];
	struct kvpull_reader_record record;
	int32_t codes[SLOTS];
};

static void find_all(struct found *found)
{
	assert_int_equal(
		handle_probed(&world, SLOTS, found->places, &found->record),
		SLOTS);
}

/* A reader is connected, and finds the keys in the file alone. */
static void find_in_file(struct found *found)
{
	share_and_connect();
	fill_and_spill();
	forget_chunks();
	find_all(found);
}

static int32_t read_found(struct found *found)
{
	return handle_read_end(&world, found->places, SLOTS,
			       found->record.incarnation, found->codes);
}

/* These bytes are the chunks of keys 1 .. SLOTS. */
static void expect_chunks(const uint8_t *bytes)
{
	uint32_t at;

	for (at = 0; at < SLOTS * HANDLE_CHUNK_BYTES; at++)
		assert_int_equal(bytes[at], at / HANDLE_CHUNK_BYTES + 1);
}

static void expect_read_back(void)
{
	struct found found;
	uint32_t at;

	share_and_connect();
	assert_int_equal(handle_peer(&world, world.peer).slot_count, SLOTS);
	fill_and_spill();
	/* Memory comes first. */
	find_all(&found);
	for (at = 0; at < SLOTS; at++) {
		assert_int_equal(found.places[at].chunk, at);
		assert_int_equal(found.places[at].in_file, 0);
	}
	forget_chunks();
	find_all(&found);
	for (at = 0; at < SLOTS; at++) {
		assert_int_equal(found.places[at].chunk, HANDLE_CHUNKS + at);
		assert_int_equal(found.places[at].in_file, 1);
	}
	memset(world.memory.base, 0x77, (size_t)SLOTS * HANDLE_CHUNK_BYTES);
	assert_int_equal(read_found(&found), 0);
	expect_chunks(world.blocks);
}

UNIT_TEST_WITH(what_was_bumped_in_memory_is_read_from_the_file, setup,
	       handle_down)
{
	expect_read_back();
}

UNIT_TEST_WITH(likewise_without_io_uring, setup_no_uring, handle_down)
{
	expect_read_back();
}

UNIT_TEST_WITH(likewise_on_a_file_system_in_memory, setup_memory, handle_down)
{
	expect_read_back();
}

UNIT_TEST_WITH(an_owner_reads_its_own_slots_into_its_chunks, setup, handle_down)
{
	struct kvpull_reader *owner;
	struct found found;

	share();
	fill_and_spill();
	forget_chunks();
	memset(world.memory.base, 0,
	       (size_t)HANDLE_CHUNKS * HANDLE_CHUNK_BYTES);
	assert_int_equal(world.ops->local_add(world.owner, world.memory.base,
					      HANDLE_CHUNK_BYTES, HANDLE_CHUNKS,
					      &world.local),
			 0);
	owner = world.reader = world.owner;
	handle_add(&world, NULL);
	world.owner = NULL; /* it is polled as the reader */
	assert_int_equal(handle_settle(&world), 0);
	find_all(&found);
	assert_int_equal(read_found(&found), 0);
	expect_chunks(world.memory.base);
	assert_ptr_equal(owner, world.reader);
}

UNIT_TEST_WITH(a_slot_that_is_taken_again_is_not_believed, setup, handle_down)
{
	struct found found;

	find_in_file(&found);
	(void)handle_fill(&world, SLOTS, SLOTS + 1);
	(void)handle_fill(&world, SLOTS + 1, SLOTS + 2);
	/* The two oldest make room. */
	assert_int_equal(spill(SLOTS, 2), 0);
	assert_int_equal(read_found(&found), KVPULL_ESTALE);
	assert_int_equal(found.codes[0], KVPULL_ESTALE);
	assert_int_equal(found.codes[1], KVPULL_ESTALE);
	assert_int_equal(found.codes[2], 0);
	assert_int_equal(found.codes[3], 0);
	assert_int_equal(
		handle_probed(&world, SLOTS, found.places, &found.record), 2);
	assert_int_equal(found.places[0].chunk, KVPULL_READER_NONE);
}

UNIT_TEST_WITH(what_is_there_is_not_copied_again, setup, handle_down)
{
	share();
	fill_and_spill();
	assert_int_equal(spill(0, SLOTS), 0);
	assert_int_equal(world.owner->spills.slot_next, 0);
	assert_int_equal(world.owner->spills.written, 2 * SLOTS);
}

UNIT_TEST_WITH(a_reset_withdraws_slots_too, setup, handle_down)
{
	struct kvpull_reader_place places[HANDLE_CHUNKS];
	struct kvpull_reader_record record;
	struct found found;
	uint64_t id;

	find_in_file(&found);
	/* A spill in flight belongs to the epoch before. */
	(void)handle_fill(&world, 5, 6);
	assert_int_equal(spill_begin(5, 1, 0, &id), 0);
	assert_int_equal(world.ops->guard_bump_all(world.owner, NULL, NULL), 0);
	assert_int_equal(read_found(&found), KVPULL_ESTALE);
	assert_int_equal(found.codes[SLOTS - 1], KVPULL_ESTALE);
	handle_spilled(&world, id, &record);
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(handle_probed(&world, 6, places, &record), 0);
}

/* Every write goes where `path` leads. */
static void disk_becomes(const char *path)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(dup2(fd, world.owner->spills.file.fd) >= 0);
	(void)close(fd);
}

static void expect_full(void)
{
	struct kvpull_reader_place places[SLOTS];
	struct kvpull_reader_record record;

	share_and_connect();
	(void)handle_fill(&world, 0, 1);
	disk_becomes("/dev/full");
	assert_int_equal(spill(0, 1), KVPULL_EREAD);
	assert_non_null(strstr(world.heard[0].all, "No space left"));
	assert_int_equal(codes[0], KVPULL_EREAD);
	/* The key is in memory, and its slot is free. */
	assert_int_equal(handle_probed(&world, 1, places, &record), 1);
	assert_int_equal(places[0].chunk, 0);
	assert_false(kvpull_pool_is_writing(world.owner->pool, HANDLE_CHUNKS));
}

UNIT_TEST_WITH(a_disk_that_is_full_is_an_error_of_the_spill, setup, handle_down)
{
	expect_full();
}

UNIT_TEST_WITH(likewise_by_a_thread, setup_no_uring, handle_down)
{
	expect_full();
}

UNIT_TEST_WITH(a_file_that_was_cut_is_an_error_of_pieces, setup, handle_down)
{
	struct found found;

	find_in_file(&found);
	assert_int_equal(
		ftruncate(world.owner->spills.file.fd, 2 * HANDLE_CHUNK_BYTES),
		0);
	assert_int_equal(read_found(&found), KVPULL_EREAD);
	assert_int_equal(found.codes[1], 0);
	assert_int_equal(found.codes[2], KVPULL_EREAD);
	assert_int_equal(handle_settle(&world), 0);
}

UNIT_TEST_WITH(a_file_that_was_cut_is_not_made_long_again, setup, handle_down)
{
	struct kvpull_reader_place places[2];
	struct kvpull_reader_record record;
	int32_t piece_codes[2];

	share_and_connect();
	handle_fill_first(&world, 3);
	assert_int_equal(spill(0, 2), 0);
	assert_int_equal(ftruncate(world.owner->spills.file.fd, 0), 0);
	/* Before the third slot there would be zeros, under good guards. */
	assert_int_equal(spill(2, 1), KVPULL_EREAD);
	forget_chunks();
	assert_int_equal(handle_probed(&world, 2, places, &record), 2);
	assert_int_equal(handle_read_end(&world, places, 2, record.incarnation,
					 piece_codes),
			 KVPULL_EREAD);
	assert_int_equal(piece_codes[0], KVPULL_EREAD);
	assert_int_equal(piece_codes[1], KVPULL_EREAD);
}

/*
 * A pipe that nobody reads, and is full; without io_uring the test is skipped.
 * Return: its other end.
 */
static int disk_hangs(void)
{
	static uint8_t page[4096];
	int pipes[2];

	if (!world.owner->spills.file.uring.is_open)
		skip();
	assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	while (write(pipes[1], page, sizeof(page)) > 0)
		;
	assert_int_equal(fcntl(pipes[1], F_SETFL, 0), 0);
	assert_true(dup2(pipes[1], world.owner->spills.file.fd) >= 0);
	(void)close(pipes[1]);
	return pipes[0];
}

UNIT_TEST_WITH(a_chunk_that_was_bumped_meanwhile_is_not_listed, setup,
	       handle_down)
{
	struct kvpull_reader_place places[2];
	struct kvpull_reader_record record;
	const uint32_t first = 0;
	uint8_t page[4096];
	int pipe_end;
	uint64_t id;

	share_and_connect();
	handle_fill_first(&world, 2);
	pipe_end = disk_hangs();
	assert_int_equal(spill_begin(0, 2, 0, &id), 0);
	(void)kvpull_share_spills_run(&world.owner->spills, 0);
	handle_bump(&world, first);
	while (world.ops->poll(world.owner, &record, 1, sizeof(record)) == 0)
		(void)!read(pipe_end, page, sizeof(page));
	(void)close(pipe_end);
	assert_int_equal(record.id, id);
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(record.count, 1);
	assert_int_equal(codes[0], KVPULL_ESTALE);
	assert_int_equal(codes[1], 0);
	assert_int_equal(handle_probed(&world, 2, places, &record), 1);
}

UNIT_TEST_WITH(a_disk_that_hangs_is_late_and_delays_nobody, setup, handle_down)
{
	struct kvpull_reader_place places[SLOTS];
	struct kvpull_reader_record record;
	uint64_t ids[KVPULL_READER_SPILLS_MAX + 1];
	uint64_t began_ns;
	int32_t piece_codes[SLOTS];
	uint8_t *chunks;
	int pipe_end;
	uint32_t at;

	share_and_connect();
	handle_fill_first(&world, SLOTS);
	pipe_end = disk_hangs();
	began_ns = kvpull_clock_ns();
	/* More than slots, and more than the table takes. */
	for (at = 0; at < KVPULL_READER_SPILLS_MAX; at++)
		assert_int_equal(spill_begin(at % SLOTS, 1,
					     began_ns + DEADLINE_NS, &ids[at]),
				 0);
	assert_int_equal(spill_begin(0, 1, 0, &ids[at]), KVPULL_EFULL);
	/* Begun before its deadline, however late the first poll is. */
	(void)kvpull_share_spills_run(&world.owner->spills, 0);
	/* Meanwhile its memory is read. */
	assert_int_equal(handle_probe(&world, SLOTS, places, &ids[at]), 0);
	while (world.ops->poll(world.reader, &record, 1, sizeof(record)) == 0)
		;
	assert_int_equal(handle_read_end(&world, places, SLOTS,
					 record.incarnation, piece_codes),
			 0);
	for (at = 0; at < KVPULL_READER_SPILLS_MAX; at++) {
		handle_spilled(&world, ids[at], &record);
		assert_int_equal(record.code, KVPULL_EDEADLINE);
	}
	assert_in_range(kvpull_clock_ns() - began_ns, DEADLINE_NS,
			HANDLE_WAIT_NS);
	/* All slots are written, for all that is known. */
	for (at = 0; at < SLOTS; at++)
		assert_true(kvpull_pool_is_writing(world.owner->pool,
						   HANDLE_CHUNKS + at));
	/* Slots of spills that never began are free again. */
	assert_int_equal(spill_begin(0, 1, 1, &ids[0]), 0);
	handle_spilled(&world, ids[0], &record);
	assert_int_equal(record.code, KVPULL_EDEADLINE);
	chunks = world.owner->serve->regions[KVPULL_SHARE_REGION_CHUNKS].base;
	began_ns = kvpull_clock_ns();
	world.ops->close(world.owner);
	world.owner = NULL;
	assert_in_range(kvpull_clock_ns() - began_ns, 0, HANDLE_WAIT_NS);
	/* The disk may still read these pages: they belong to no one else. */
	assert_int_equal(msync(chunks, 4096, MS_ASYNC), 0);
	(void)close(pipe_end);
}

UNIT_TEST_WITH(no_more_chunks_are_written_at_once_than_depth, setup,
	       handle_down)
{
	const struct kvpull_reader_share params =
		handle_slots(folder, 2 * KVPULL_SLOTS_DEPTH);
	uint64_t ids[KVPULL_SLOTS_DEPTH / HANDLE_CHUNKS + 1];
	struct kvpull_reader_record record;
	int pipe_end;
	uint32_t at;

	handle_share(&world, &params);
	handle_fill_first(&world, HANDLE_CHUNKS);
	pipe_end = disk_hangs();
	for (at = 0; at <= KVPULL_SLOTS_DEPTH / HANDLE_CHUNKS; at++)
		assert_int_equal(spill_begin(0, HANDLE_CHUNKS,
					     kvpull_clock_ns() + DEADLINE_NS,
					     &ids[at]),
				 0);
	(void)kvpull_share_spills_run(&world.owner->spills, 0);
	assert_int_equal(world.owner->spills.file.open_count,
			 KVPULL_SLOTS_DEPTH);
	for (at = 0; at <= KVPULL_SLOTS_DEPTH / HANDLE_CHUNKS; at++) {
		handle_spilled(&world, ids[at], &record);
		assert_int_equal(record.code, KVPULL_EDEADLINE);
	}
	world.ops->close(world.owner);
	world.owner = NULL;
	(void)close(pipe_end);
}

UNIT_TEST_WITH(one_that_is_cancelled_is_told_and_its_slot_kept, setup,
	       handle_down)
{
	struct kvpull_reader_record record;
	uint64_t id;
	int pipe_end;

	share();
	(void)handle_fill(&world, 0, 1);
	pipe_end = disk_hangs();
	assert_int_equal(spill_begin(0, 1, 0, &id), 0);
	assert_int_equal(
		world.ops->poll(world.owner, &record, 1, sizeof(record)), 0);
	assert_int_equal(world.ops->cancel(world.owner, UINT32_MAX),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->cancel(world.owner, id), 0);
	assert_int_equal(world.ops->cancel(world.owner, id), KVPULL_EINVAL);
	handle_spilled(&world, id, &record);
	assert_int_equal(record.code, KVPULL_EABORTED);
	assert_true(kvpull_pool_is_writing(world.owner->pool, HANDLE_CHUNKS));
	/* The disk comes back: nothing is listed of it. */
	(void)close(pipe_end);
	while (kvpull_pool_is_writing(world.owner->pool, HANDLE_CHUNKS))
		(void)world.ops->poll(world.owner, NULL, 0, sizeof(record));
	assert_int_equal(kvpull_index_pool_used(&world.owner->spills.free), 0);
}

UNIT_TEST_WITH(unshare_ends_spills, setup, handle_down)
{
	struct kvpull_reader_record record;
	uint64_t id;

	share();
	(void)handle_fill(&world, 0, 1);
	assert_int_equal(spill_begin(0, 1, 0, &id), 0);
	assert_int_equal(world.ops->unshare(world.owner), 0);
	handle_spilled(&world, id, &record);
	assert_int_equal(record.code, KVPULL_EABORTED);
	assert_int_equal(spill_begin(0, 1, 0, &id), KVPULL_EINVAL);
}

UNIT_TEST_WITH(who_sleeps_is_woken_by_a_spills_end, setup, handle_down)
{
	struct pollfd sleeps = { .events = POLLIN };
	struct kvpull_reader_record record;
	uint64_t id;
	int count = 0;

	world.owner = handle_open(&world, 0, NULL);
	sleeps.fd = world.ops->event_fd(world.owner);
	world.ops->close(world.owner);
	share();
	sleeps.fd = world.ops->event_fd(world.owner);
	(void)handle_fill(&world, 0, 1);
	assert_int_equal(spill_begin(0, 1, 0, &id), 0);
	while (!count) {
		assert_int_equal(poll(&sleeps, 1, 20000), 1);
		count = world.ops->poll(world.owner, &record, 1,
					sizeof(record));
	}
	assert_int_equal(record.code, 0);
}

UNIT_TEST_WITH(slots_are_no_chunks_of_the_engines, setup, handle_down)
{
	const uint32_t slot = HANDLE_CHUNKS;
	uint64_t number;

	share();
	assert_int_equal(world.ops->guard_bump(world.owner, &slot, 1, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->write_begin(world.owner, slot),
			 KVPULL_EINVAL);
	assert_int_equal(world.ops->generation(world.owner, slot, &number),
			 KVPULL_EINVAL);
	assert_int_equal(spill_begin(HANDLE_CHUNKS, 1, 0, &number),
			 KVPULL_EINVAL);
}

UNIT_TEST_WITH(a_read_is_of_chunks_or_of_slots, setup, handle_down)
{
	struct kvpull_reader_place places[SLOTS];
	struct kvpull_reader_record record;
	int32_t piece_codes[SLOTS];
	const uint32_t first = 0;
	uint64_t id;

	share_and_connect();
	fill_and_spill();
	handle_bump(&world, first);
	assert_int_equal(handle_probed(&world, SLOTS, places, &record), SLOTS);
	assert_int_equal(handle_read(&world, places, SLOTS, record.incarnation,
				     piece_codes, &id),
			 KVPULL_EINVAL);
	assert_int_equal(handle_read_end(&world, places, 1, record.incarnation,
					 piece_codes),
			 0);
}

/* As put() has it: the next write is of a new generation. */
UNIT_TEST_WITH(a_chunk_that_is_spilled_is_not_written_without_a_bump, setup,
	       handle_down)
{
	struct kvpull_reader_record record;
	const uint32_t chunk = 0;
	uint64_t id;

	share();
	/* The chunk was never written, which only its owner can know. */
	assert_int_equal(spill_begin(chunk, 1, 0, &id), 0);
	assert_int_equal(world.ops->write_begin(world.owner, chunk),
			 KVPULL_EINVAL);
	handle_spilled(&world, id, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(world.ops->write_begin(world.owner, chunk),
			 KVPULL_EINVAL);
	handle_bump(&world, chunk);
	assert_int_equal(world.ops->write_begin(world.owner, chunk), 0);
	assert_int_equal(world.ops->write_end(world.owner, chunk), 0);
}

static void *poll_once(void *argument)
{
	struct kvpull_reader_record *record = argument;

	record->count = (uint32_t)world.ops->poll(world.owner, record, 1,
						  sizeof(*record));
	return NULL;
}

/* A host may poll from threads that end: io_uring cancels what they began. */
UNIT_TEST_WITH(each_poll_may_be_another_threads, setup, handle_down)
{
	uint64_t until;
	uint32_t round;

	share();
	for (round = 0; round < THREAD_ROUNDS; round++) {
		struct kvpull_reader_record record = { 0 };
		pthread_t thread;
		uint32_t at;
		uint64_t id;

		for (at = 0; at < SLOTS; at++) {
			handle_bump(&world, at);
			(void)handle_fill(&world, at, at + 1 + round * SLOTS);
		}
		assert_int_equal(handle_spill(&world, 0, SLOTS, round * SLOTS,
					      0, codes, &id),
				 0);
		until = kvpull_clock_ns() + HANDLE_WAIT_NS;
		while (!record.id) {
			assert_int_equal(pthread_create(&thread, NULL,
							poll_once, &record),
					 0);
			assert_int_equal(pthread_join(thread, NULL), 0);
			assert_true(kvpull_clock_ns() < until);
		}
		assert_int_equal(record.code, 0);
	}
}

UNIT_TEST_WITH(the_file_is_read_as_it_is_written, setup, handle_down)
{
	const struct kvpull_slots *file;

	share();
	file = &world.owner->spills.file;
	assert_int_equal(fcntl(file->read_fd, F_GETFL) & O_DIRECT,
			 file->align > 1 ? O_DIRECT : 0);
	assert_int_equal(fcntl(file->read_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
}
