/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm/segment: what is made, what is handed over, what of a peer is refused.
 * What a hostile holder of a descriptor can do: tests/stress/hostile_segment.c.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/segment.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define SEALS_SIZE (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define SEALS_READ_ONLY (SEALS_SIZE | F_SEAL_FUTURE_WRITE)
#define PAGE 4096u

UNIT_FIXTURE(setup)
{
	lines_forget();
}

static struct kvpull_shared make(size_t bytes, enum kvpull_segment_kind kind)
{
	struct kvpull_shared shared;

	assert_int_equal(kvpull_segment_make(&shared, "test", bytes, kind, 0,
					     &lines_log),
			 0);
	return shared;
}

/* As a peer maps it. */
static uint8_t *map(const struct kvpull_shared *shared, size_t bytes,
		    enum kvpull_segment_kind kind)
{
	uint8_t *base = NULL;

	assert_int_equal(
		kvpull_segment_map(shared->fd, bytes, kind, &lines_log, &base),
		0);
	return base;
}

static int count_descriptors(void)
{
	int count = 0;
	int fd;

	for (fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

TEST(segment_is_zeroed_and_its_makers_to_write)
{
	struct kvpull_shared shared = make(3 * PAGE, KVPULL_SEGMENT_READ_ONLY);
	size_t at;

	for (at = 0; at < shared.bytes; at++)
		assert_int_equal(shared.base[at], 0);
	memset(shared.base, 0x77, shared.bytes);
	assert_true(shared.took_ns > 0);
	kvpull_segment_unmake(&shared);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
}

TEST(bytes_are_rounded_up_to_a_page)
{
	struct kvpull_shared shared = make(PAGE + 1, KVPULL_SEGMENT_READ_ONLY);
	struct stat status;

	assert_int_equal(shared.bytes, 2 * PAGE);
	assert_int_equal(fstat(shared.fd, &status), 0);
	assert_int_equal(status.st_size, 2 * PAGE);
	kvpull_segment_unmake(&shared);
}

TEST(read_only_segment_is_handed_over_sealed)
{
	struct kvpull_shared shared = make(PAGE, KVPULL_SEGMENT_READ_ONLY);

	assert_int_equal(fcntl(shared.fd, F_GET_SEALS) & SEALS_READ_ONLY,
			 SEALS_READ_ONLY);
	assert_int_equal(fcntl(shared.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_true(fcntl(shared.fd, F_GETFD) & FD_CLOEXEC);
	kvpull_segment_unmake(&shared);
}

TEST(shared_segment_is_sealed_against_resizing_only)
{
	struct kvpull_shared shared = make(PAGE, KVPULL_SEGMENT_SHARED);
	const int seals = fcntl(shared.fd, F_GET_SEALS);

	assert_int_equal(seals & SEALS_SIZE, SEALS_SIZE);
	assert_int_equal(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE), 0);
	assert_int_equal(fcntl(shared.fd, F_GETFL) & O_ACCMODE, O_RDWR);
	assert_true(fcntl(shared.fd, F_GETFD) & FD_CLOEXEC);
	kvpull_segment_unmake(&shared);
}

TEST(reader_sees_what_the_maker_writes)
{
	struct kvpull_shared shared = make(2 * PAGE, KVPULL_SEGMENT_READ_ONLY);
	uint8_t *base = NULL;

	base = map(&shared, 2 * PAGE, KVPULL_SEGMENT_READ_ONLY);
	shared.base[PAGE + 5] = 42;
	assert_int_equal(base[PAGE + 5], 42);
	assert_int_equal(mprotect(base, PAGE, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	/* The maker's end may go first. */
	kvpull_segment_unmake(&shared);
	assert_int_equal(base[PAGE + 5], 42);
	kvpull_segment_unmap(base, 2 * PAGE);
}

TEST(both_ends_write_a_shared_segment)
{
	struct kvpull_shared shared = make(PAGE, KVPULL_SEGMENT_SHARED);
	uint8_t *base = NULL;

	base = map(&shared, 100, KVPULL_SEGMENT_SHARED);
	shared.base[1] = 1;
	base[2] = 2;
	assert_int_equal(base[1], 1);
	assert_int_equal(shared.base[2], 2);
	kvpull_segment_unmap(base, 100);
	kvpull_segment_unmake(&shared);
}

/* Pages of address space that this process has mapped. */
static unsigned long mapped_pages(void)
{
	const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	char text[128] = "";

	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	(void)close(fd);
	return strtoul(text, NULL, 10);
}

TEST(large_mappings_are_aligned_and_leave_no_rest)
{
	const size_t bytes = KVPULL_HUGE_BYTES + 3 * PAGE + 17;
	struct kvpull_shared shared = make(bytes, KVPULL_SEGMENT_READ_ONLY);
	const unsigned long pages = mapped_pages();
	uint8_t *base = NULL;

	assert_int_equal((uintptr_t)shared.base % KVPULL_HUGE_BYTES, 0);
	/* A length that is no whole page, as a peer's message may have it. */
	base = map(&shared, bytes, KVPULL_SEGMENT_READ_ONLY);
	assert_int_equal((uintptr_t)base % KVPULL_HUGE_BYTES, 0);
	shared.base[bytes - 1] = 9;
	assert_int_equal(base[bytes - 1], 9);
	kvpull_segment_unmap(base, bytes);
	assert_int_equal(mapped_pages(), pages);
	kvpull_segment_unmake(&shared);
}

/* Kibibytes of a line of the mapping at base in smaps. */
static unsigned long smaps_kib(const uint8_t *base, const char *key)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	unsigned long kib = 0;
	unsigned long from;
	unsigned long to;
	int inside = 0;
	char line[512];

	assert_non_null(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from == (uintptr_t)base;
		else if (inside && !strncmp(line, key, strlen(key)))
			(void)sscanf(line + strlen(key), "%lu", &kib);
	}
	(void)fclose(smaps);
	return kib;
}

/* VmFlags of the mapping at base: "dd" is not in core dumps. */
static int is_dumped(const uint8_t *base)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	unsigned long from;
	unsigned long to;
	int inside = 0;
	int kept = 0;
	char line[512];

	assert_non_null(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from == (uintptr_t)base;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			kept = strstr(line, " dd ") != NULL;
	}
	(void)fclose(smaps);
	return !kept;
}

TEST(no_end_is_in_core_dumps)
{
	struct kvpull_shared shared = make(PAGE, KVPULL_SEGMENT_READ_ONLY);
	uint8_t *base = NULL;

	base = map(&shared, PAGE, KVPULL_SEGMENT_READ_ONLY);
	assert_false(is_dumped(shared.base));
	assert_false(is_dumped(base));
	kvpull_segment_unmap(base, PAGE);
	kvpull_segment_unmake(&shared);
}

TEST(huge_bytes_are_those_that_smaps_counts)
{
	const size_t bytes = 3 * KVPULL_HUGE_BYTES + PAGE;
	struct kvpull_shared shared;
	size_t at;

	assert_int_equal(kvpull_segment_make(&shared, "test", bytes,
					     KVPULL_SEGMENT_READ_ONLY, 2,
					     &lines_log),
			 0);
	assert_int_equal(shared.huge_bytes % KVPULL_HUGE_BYTES, 0);
	assert_true(shared.huge_bytes <= bytes);
	for (at = 0; at < shared.bytes; at += PAGE) {
		assert_int_equal(shared.base[at], 0);
		shared.base[at] = 1;
	}
	assert_int_equal(smaps_kib(shared.base, "ShmemPmdMapped:") * 1024,
			 shared.huge_bytes);
	at = shared.huge_bytes;
	kvpull_segment_unmake(&shared);
	if (!at)
		skip(); /* no MADV_COLLAPSE, or no huge page is free */
}

TEST(unasked_huge_pages_are_not_made)
{
	struct kvpull_shared shared =
		make(2 * KVPULL_HUGE_BYTES, KVPULL_SEGMENT_READ_ONLY);

	assert_int_equal(shared.huge_bytes, 0);
	/* Lazily: nothing was touched. */
	assert_int_equal(smaps_kib(shared.base, "Rss:"), 0);
	kvpull_segment_unmake(&shared);
}

TEST(segments_below_a_huge_page_are_made_with_threads_asked)
{
	struct kvpull_shared shared;

	assert_int_equal(kvpull_segment_make(&shared, "test", PAGE,
					     KVPULL_SEGMENT_READ_ONLY, 64,
					     &lines_log),
			 0);
	assert_int_equal(shared.huge_bytes, 0);
	kvpull_segment_unmake(&shared);
}

/* Is there a mapping at this address? */
static int is_mapped(void *base)
{
	return msync(base, PAGE, MS_ASYNC) == 0;
}

TEST(children_get_no_copy)
{
	struct kvpull_shared shared = make(PAGE, KVPULL_SEGMENT_READ_ONLY);
	uint8_t *base = NULL;
	int status = -1;
	pid_t child;

	base = map(&shared, PAGE, KVPULL_SEGMENT_READ_ONLY);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(is_mapped(shared.base) + 2 * is_mapped(base));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(is_mapped(shared.base));
	kvpull_segment_unmap(base, PAGE);
	kvpull_segment_unmake(&shared);
}

TEST(unmake_gives_all_back_and_may_be_repeated)
{
	const int descriptors = count_descriptors();
	struct kvpull_shared shared = make(PAGE, KVPULL_SEGMENT_READ_ONLY);
	struct kvpull_shared zeroed = { 0 };
	uint8_t *base = shared.base;

	assert_int_equal(count_descriptors(), descriptors + 1);
	kvpull_segment_unmake(&shared);
	assert_int_equal(count_descriptors(), descriptors);
	assert_false(is_mapped(base));
	kvpull_segment_unmake(&shared);
	kvpull_segment_unmake(&zeroed);
	assert_int_equal(count_descriptors(), descriptors);
}

TEST(sizes_out_of_bounds_are_refused)
{
	struct kvpull_shared shared = { .reserved = 7 };

	assert_int_equal(kvpull_segment_make(&shared, "test", 0,
					     KVPULL_SEGMENT_SHARED, 0,
					     &lines_log),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_segment_make(&shared, "test", SIZE_MAX,
					     KVPULL_SEGMENT_SHARED, 0,
					     &lines_log),
			 KVPULL_EINVAL);
	assert_int_equal(shared.reserved, 7);
}

TEST(failed_make_says_why_and_keeps_nothing)
{
	const int descriptors = count_descriptors();
	struct kvpull_shared shared = { .reserved = 7 };
	struct rlimit before;
	struct rlimit small;

	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	small = before;
	small.rlim_cur = (rlim_t)1 << 44;
	assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
	assert_int_equal(kvpull_segment_make(&shared, "test", (size_t)1 << 45,
					     KVPULL_SEGMENT_READ_ONLY, 0,
					     &lines_log),
			 KVPULL_ENOMEM);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 1);
	assert_non_null(strstr(lines.bad, "cannot map"));
	assert_int_equal(count_descriptors(), descriptors);
	assert_int_equal(shared.reserved, 7);
}

/* Make with so many descriptors free; the error line must say this. */
static void expect_out_of_descriptors(int free_count, const char *what)
{
	const int descriptors = count_descriptors();
	struct kvpull_shared shared;
	struct rlimit before;
	struct rlimit small;
	const int lowest = dup(0);
	int code;

	assert_true(lowest >= 0);
	(void)close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	small = before;
	small.rlim_cur = (rlim_t)(lowest + free_count);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	code = kvpull_segment_make(&shared, "test", PAGE,
				   KVPULL_SEGMENT_READ_ONLY, 0, &lines_log);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(code, KVPULL_ENOMEM);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 1);
	assert_non_null(strstr(lines.bad, what));
	assert_non_null(strstr(lines.bad, "Too many open files"));
	assert_int_equal(count_descriptors(), descriptors);
}

TEST(make_without_a_descriptor_left_fails)
{
	expect_out_of_descriptors(0, "cannot create a memfd");
}

TEST(make_without_a_descriptor_to_hand_over_fails)
{
	expect_out_of_descriptors(1, "cannot reopen read-only");
}

/* The kernel would end the process, and all of its host with it. */
TEST(make_beyond_the_longest_file_is_an_error)
{
	const struct rlimit limit = { PAGE, PAGE };
	struct kvpull_shared shared;
	int status = -1;
	pid_t child;
	int code;

	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		(void)signal(SIGXFSZ, SIG_DFL);
		if (setrlimit(RLIMIT_FSIZE, &limit))
			_exit(1);
		code = kvpull_segment_make(&shared, "test", 2 * PAGE,
					   KVPULL_SEGMENT_READ_ONLY, 0,
					   &lines_log);
		_exit(code != KVPULL_EDEVICE ||
		      !strstr(lines.bad, "ulimit -f"));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* A memfd of our own, sealed as told, opened as told. */
static int peer_memfd(size_t bytes, int seals, int access)
{
	const int fd = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[32];
	int reopened;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reopened = open(path, access | O_CLOEXEC);
	assert_true(reopened >= 0);
	(void)close(fd);
	return reopened;
}

/* Refused with one line that says why; nothing is mapped; closes fd. */
static void expect_refused(int fd, size_t bytes, enum kvpull_segment_kind kind,
			   const char *why)
{
	uint8_t untouched;
	uint8_t *base = &untouched;

	lines_forget();
	assert_int_equal(kvpull_segment_map(fd, bytes, kind, &lines_log, &base),
			 KVPULL_EPROTO);
	assert_ptr_equal(base, &untouched);
	/* A peer can cause it: so it is one of the lines that are counted. */
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 1);
	assert_non_null(strstr(lines.bad, why));
	if (fd >= 0)
		(void)close(fd);
}

TEST(each_missing_seal_is_refused)
{
	static const int needed[] = { F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL };
	size_t index;

	for (index = 0; index < 3; index++) {
		expect_refused(peer_memfd(PAGE,
					  SEALS_READ_ONLY & ~needed[index],
					  O_RDONLY),
			       PAGE, KVPULL_SEGMENT_READ_ONLY, "resizing");
		expect_refused(
			peer_memfd(PAGE, SEALS_SIZE & ~needed[index], O_RDWR),
			PAGE, KVPULL_SEGMENT_SHARED, "resizing");
	}
	expect_refused(peer_memfd(PAGE, SEALS_SIZE, O_RDONLY), PAGE,
		       KVPULL_SEGMENT_READ_ONLY, "not sealed against writing");
}

TEST(seals_that_would_stop_the_writer_are_refused)
{
	expect_refused(peer_memfd(PAGE, SEALS_READ_ONLY, O_RDWR), PAGE,
		       KVPULL_SEGMENT_SHARED, "is sealed against writing");
	expect_refused(peer_memfd(PAGE, SEALS_SIZE | F_SEAL_WRITE, O_RDWR),
		       PAGE, KVPULL_SEGMENT_SHARED,
		       "is sealed against writing");
}

TEST(wrong_open_modes_are_refused)
{
	expect_refused(peer_memfd(PAGE, SEALS_READ_ONLY, O_RDWR), PAGE,
		       KVPULL_SEGMENT_READ_ONLY, "not opened read-only");
	expect_refused(peer_memfd(PAGE, SEALS_SIZE, O_RDONLY), PAGE,
		       KVPULL_SEGMENT_SHARED, "reading and writing");
	expect_refused(peer_memfd(PAGE, SEALS_SIZE, O_WRONLY), PAGE,
		       KVPULL_SEGMENT_SHARED, "reading and writing");
	expect_refused(peer_memfd(PAGE, SEALS_READ_ONLY, O_PATH), PAGE,
		       KVPULL_SEGMENT_READ_ONLY, "is no memfd");
}

TEST(sizes_that_the_file_has_not_are_refused)
{
	static const size_t bytes[] = { 0, PAGE + 1, (size_t)1 << 46,
					(size_t)1 << 63, SIZE_MAX };
	size_t index;

	for (index = 0; index < sizeof(bytes) / sizeof(*bytes); index++)
		expect_refused(peer_memfd(PAGE, SEALS_READ_ONLY, O_RDONLY),
			       bytes[index], KVPULL_SEGMENT_READ_ONLY,
			       "shorter");
}

TEST(files_that_are_no_memfds_are_refused)
{
	int ends[2];

	expect_refused(-1, PAGE, KVPULL_SEGMENT_READ_ONLY, "is no memfd");
	assert_int_equal(pipe(ends), 0);
	(void)close(ends[1]);
	expect_refused(ends[0], PAGE, KVPULL_SEGMENT_READ_ONLY, "is no memfd");
	expect_refused(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), PAGE,
		       KVPULL_SEGMENT_READ_ONLY, "is no memfd");
	expect_refused(open("/dev/zero", O_RDWR | O_CLOEXEC), PAGE,
		       KVPULL_SEGMENT_SHARED, "is no memfd");
}

/* mmap() of one may reach beyond the range that was asked for. */
TEST(hugetlb_memfds_are_refused)
{
	const int fd = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING |
						    MFD_HUGETLB);

	if (fd < 0)
		skip(); /* the kernel has no hugetlbfs */
	assert_int_equal(ftruncate(fd, (off_t)2 * KVPULL_HUGE_BYTES), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, SEALS_SIZE), 0);
	expect_refused(fd, PAGE, KVPULL_SEGMENT_SHARED, "ordinary pages");
}

/* The descriptor may be of a file system that never answers. */
TEST(size_of_what_has_no_seals_is_not_asked)
{
	struct kvpull_shared shared = make(PAGE, KVPULL_SEGMENT_SHARED);
	const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	uint64_t bytes = 0;

	assert_int_equal(kvpull_segment_bytes(shared.fd, &bytes), 0);
	assert_int_equal(bytes, PAGE);
	assert_int_equal(kvpull_segment_bytes(fd, &bytes), KVPULL_EPROTO);
	assert_int_equal(kvpull_segment_bytes(-1, &bytes), KVPULL_EPROTO);
	(void)close(fd);
	kvpull_segment_unmake(&shared);
}

TEST(map_beyond_the_address_space_is_no_memory)
{
	const int fd = peer_memfd((size_t)1 << 62, SEALS_READ_ONLY, O_RDONLY);
	uint8_t *base;

	assert_int_equal(kvpull_segment_map(fd, (size_t)1 << 62,
					    KVPULL_SEGMENT_READ_ONLY,
					    &lines_log, &base),
			 KVPULL_ENOMEM);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
	(void)close(fd);
}
