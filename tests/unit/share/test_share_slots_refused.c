/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and folders that cannot have a file of slots, and the texts for the
 * host.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/share/handle.h"

#define SLOTS 4u
#define MORE_MAX 64 /* descriptors that a share may take */

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;

/* Slots on a disk, usually with O_DIRECT. */
UNIT_FIXTURE(setup)
{
	handle_begin(&world, "");
}

UNIT_FIXTURE(setup_no_uring)
{
	handle_begin(&world, ",\"uring\":\"no\"");
}

UNIT_TEST_WITH(what_cannot_be_a_file_of_slots_is_refused, setup, handle_down)
{
	const struct kvpull_reader_share owned =
		handle_slots("/var/tmp", SLOTS);
	struct kvpull_reader_share params = owned;

	params.slot_count = 0;
	handle_refused(&world, &params, "come together");
	params = handle_slots("/var/tmp", KVPULL_READER_CHUNKS_MAX + 1);
	handle_refused(&world, &params, "at most");
	params = handle_slots("/var/tmp", SLOTS);
	params.slot_folder = "/proc";
	handle_refused(&world, &params, "local file system");
	params = handle_slots("/var/tmp", KVPULL_READER_CHUNKS_MAX);
	params.chunk_bytes = 1 << 28; /* 256 TiB */
	params.chunk_count = 1;
	handle_refused(&world, &params, "no room");
	params = handle_slots("/var/tmp", SLOTS);
	params.chunk_bytes = 1000;
	handle_share(&world, &owned);
	if (world.owner->spills.file.align > 1)
		handle_refused(&world, &params, "O_DIRECT");
}

UNIT_TEST_WITH(share_that_cannot_be_is_refused_by_name, setup, handle_down)
{
	const struct kvpull_reader_share good = {
		.struct_size = sizeof(good),
		.chunk_bytes = HANDLE_CHUNK_BYTES,
		.chunk_count = HANDLE_CHUNKS,
	};
	struct kvpull_reader_share bad = good;

	bad.chunk_count = 0;
	handle_refused(&world, &bad, "chunk_count is 1 ..");
	bad.chunk_count = KVPULL_READER_CHUNKS_MAX + 1;
	handle_refused(&world, &bad, "chunk_count is 1 ..");
	bad = good;
	bad.chunk_bytes = 0;
	handle_refused(&world, &bad, "chunk_bytes is 0");
	bad = good;
	for (bad.entry_count = 1; bad.entry_count < 8; bad.entry_count++)
		handle_refused(&world, &bad, "entry_count is");
	bad.entry_count = KVPULL_SHARE_ENTRIES_MAX + 1;
	handle_refused(&world, &bad, "entry_count is");
	bad = good;
	bad.flags = KVPULL_MEMORY_HUGE | KVPULL_READER_SHARE_FD;
	handle_refused(&world, &bad, "flags is");
	bad = good;
	bad.fd = 1;
	handle_refused(&world, &bad, "fd is 0 or -1, fd_offset and base");
	bad.fd = -2;
	handle_refused(&world, &bad, "fd is 0 or -1, fd_offset and base");
	bad = good;
	bad.fd_offset = 1;
	handle_refused(&world, &bad, "fd is 0 or -1, fd_offset and base");
	bad = good;
	bad.base = &bad;
	handle_refused(&world, &bad, "fd is 0 or -1, fd_offset and base");
	bad = good;
	bad.reserved = 1;
	handle_refused(&world, &bad, "reserved is 0");
	bad = good;
	bad.slot_count = 1;
	handle_refused(&world, &bad, "come together");
}

/* Slots are written from where the engine's file is mapped. */
UNIT_TEST_WITH(slots_of_a_file_that_is_not_mapped_are_refused, setup,
	       handle_down)
{
	const int fd = memfd_create("own", MFD_CLOEXEC);
	struct kvpull_reader_share params = handle_slots("/var/tmp", SLOTS);

	assert_true(fd >= 0);
	assert_int_equal(
		ftruncate(fd, (off_t)HANDLE_CHUNKS * HANDLE_CHUNK_BYTES), 0);
	assert_int_equal(fchmod(fd, 0600), 0);
	params.flags = KVPULL_READER_SHARE_FD;
	params.fd = fd;
	handle_refused(&world, &params,
		       "slots are written from where the file is mapped");
	world.owner = handle_open(&world, 0, NULL);
	world.memory =
		(struct kvpull_memory){ .struct_size = sizeof(world.memory) };
	params.base = mmap(NULL, (size_t)HANDLE_CHUNKS * HANDLE_CHUNK_BYTES,
			   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(params.base != MAP_FAILED);
	assert_int_equal(
		world.ops->share(world.owner, &params, &world.memory, NULL), 0);
	assert_ptr_equal(world.memory.base, params.base);
	assert_int_equal(world.memory.fd, -1);
	if (world.owner->spills.file.align > 1) {
		void *const mapped = params.base;

		assert_int_equal(world.ops->unshare(world.owner), 0);
		world.ops->close(world.owner);
		world.owner = NULL;
		params.base = (uint8_t *)mapped + 8;
		handle_refused(&world, &params,
			       "base is not aligned to what O_DIRECT asks");
		params.base = mapped;
	}
	(void)munmap(params.base, (size_t)HANDLE_CHUNKS * HANDLE_CHUNK_BYTES);
	(void)close(fd);
}

/* 2^20 chunks of 2^44 bytes have 0 bytes, modulo 2^64. */
UNIT_TEST_WITH(chunks_whose_sum_wraps_are_refused, setup, handle_down)
{
	struct kvpull_reader_share params = {
		.struct_size = sizeof(params),
		.chunk_count = KVPULL_READER_CHUNKS_MAX,
		.chunk_bytes = UINT64_MAX / KVPULL_READER_CHUNKS_MAX + 1,
	};

	handle_refused(&world, &params, "all chunks are too large");
	params.chunk_bytes =
		KVPULL_SEGMENT_BYTES_MAX / KVPULL_READER_CHUNKS_MAX + 1;
	handle_refused(&world, &params, "all chunks are too large");
}

/* So many descriptors more than it has. */
static int32_t share_with(int more, const struct kvpull_reader_share *params,
			  char detail_text[static 256])
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const int lowest = dup(0);
	struct rlimit before;
	struct rlimit few;
	int32_t code;

	assert_true(lowest >= 0);
	(void)close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = (rlim_t)(lowest + more);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	world.memory =
		(struct kvpull_memory){ .struct_size = sizeof(world.memory) };
	code = world.ops->share(world.owner, params, &world.memory, &detail);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	(void)snprintf(detail_text, 256, "%s", detail.message);
	return code;
}

/* The host's file and folder are good: it is told what is not. */
static void expect_shortage_told(const struct kvpull_reader_share *params)
{
	char detail[256];
	int32_t code = KVPULL_ENOMEM;
	int more;

	world.owner = handle_open(&world, 0, NULL);
	for (more = 0; code && more < MORE_MAX; more++) {
		code = share_with(more, params, detail);
		if (code && code != KVPULL_ENOMEM && code != KVPULL_EDEVICE)
			fail_msg("%d with %d more: %s", code, more, detail);
	}
	assert_int_equal(code, 0);
}

UNIT_TEST_WITH(a_share_without_descriptors_is_told_so, setup, handle_down)
{
	const struct kvpull_reader_share params =
		handle_slots("/var/tmp", SLOTS);

	expect_shortage_told(&params);
}

UNIT_TEST_WITH(likewise_with_the_thread_for_files, setup_no_uring, handle_down)
{
	const struct kvpull_reader_share params =
		handle_slots("/var/tmp", SLOTS);

	expect_shortage_told(&params);
}

UNIT_TEST_WITH(likewise_of_the_hosts_own_file, setup, handle_down)
{
	struct kvpull_reader_share params = handle_slots("/var/tmp", 0);
	const int fd = memfd_create("own", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(
		ftruncate(fd, (off_t)HANDLE_CHUNKS * HANDLE_CHUNK_BYTES), 0);
	assert_int_equal(fchmod(fd, 0600), 0);
	params.slot_folder = NULL;
	params.flags = KVPULL_READER_SHARE_FD;
	params.fd = fd;
	expect_shortage_told(&params);
	(void)close(fd);
}

/* None is -1 in a region, too. */
UNIT_TEST_WITH(no_descriptor_is_0_or_minus_1, setup, handle_down)
{
	const struct kvpull_reader_share params = {
		.struct_size = sizeof(params),
		.chunk_bytes = HANDLE_CHUNK_BYTES,
		.chunk_count = HANDLE_CHUNKS,
		.fd = -1,
	};

	handle_share(&world, &params);
}
