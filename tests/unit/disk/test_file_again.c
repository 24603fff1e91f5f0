/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of a file whose reads fail, some times or for good, by the disk's thread. */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>

#include "tests/unit/disk/world.h"

/* The disk: so many reads fail so. */
static _Atomic uint32_t failures;
static _Atomic uint32_t reads;
static _Atomic int32_t failure;

ssize_t again_pread(int fd, void *bytes, size_t byte_count,
		    off_t offset) __asm__("pread");

ssize_t again_pread(int fd, void *bytes, size_t byte_count, off_t offset)
{
	ssize_t (*next)(int, void *, size_t, off_t);

	*(void **)&next = dlsym(RTLD_NEXT, "pread");
	atomic_fetch_add_explicit(&reads, 1, memory_order_relaxed);
	if (!atomic_load_explicit(&failures, memory_order_relaxed))
		return next(fd, bytes, byte_count, offset);
	atomic_fetch_sub_explicit(&failures, 1, memory_order_relaxed);
	errno = atomic_load_explicit(&failure, memory_order_relaxed);
	return -1;
}

struct row {
	int32_t error;
	uint32_t failures;
	uint32_t is_strict;
	int code;
	uint32_t reads; /* of the one piece */
	const char *said;
};

/* clang-format off */
static const struct row rows[] = {
	{ 0, 0, 0, 0, 1, "" },
	{ EAGAIN, 1, 0, 0, 2, "" },
	{ EAGAIN, 8, 0, 0, 9, "" },
	{ EAGAIN, 9, 0, KVPULL_EREAD, 9, "file region 1: 65536 bytes at 0: Resource temporarily unavailable" },
	{ EINTR, 3, 0, 0, 1, "" }, /* the thread itself goes on */
	{ ECANCELED, 8, 0, 0, 9, "" },
	{ EIO, 1, 0, KVPULL_EREAD, 1, "file region 1: 65536 bytes at 0: Input/output error" },
	/* Not read direct: there is no other way. */
	{ EINVAL, 1, 0, KVPULL_EREAD, 1, "file region 1: 65536 bytes at 0: Invalid argument" },
	/* A strict file is written direct: the page cache may be stale. */
	{ EINVAL, 1, 1, KVPULL_EREAD, 1, "file region 1: 65536 bytes at 0: Invalid argument" },
	{ EAGAIN, 1, 1, 0, 2, "" },
};
/* clang-format on */

UNIT_TEST(piece_is_read_again_where_its_error_passes)
{
	static struct world world;
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) {
		const struct row *row = &rows[at];
		struct kvpull_file *file;
		int direct_fd;

		assert_int_equal(world_begin(&world, WAY_PREAD), 0);
		file = &world.regions[1];
		direct_fd = file->direct_fd;
		file->is_strict = row->is_strict;
		/* Only a strict read may use it here. */
		file->direct_fd = row->is_strict ? file->fd : -1;
		(void)read_plain(&world, 0, 1, 65536);
		atomic_store_explicit(&failure, row->error,
				      memory_order_relaxed);
		atomic_store_explicit(&failures, row->failures,
				      memory_order_relaxed);
		atomic_store_explicit(&reads, 0, memory_order_relaxed);
		start(&world, 0);
		poll_until(&world, 1);
		only_one_ended(&world, 0, row->code);
		assert_int_equal(reads - (row->error == EINTR ? 3 : 0),
				 row->reads);
		assert_int_equal(failures, 0);
		assert_int_equal(lines.bad_count, row->said[0] != '\0');
		assert_string_equal(lines.bad, row->said);
		if (!row->code)
			verify(&world, &world.read[0]);
		pieces_are_back(&world);
		file->direct_fd = direct_fd;
		world_end(&world);
	}
}
