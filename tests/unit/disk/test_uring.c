/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_uring where it works, and how its absence is told. What must not touch
 * this process (seccomp, memlock, another uid) is done in a child, whose exit
 * status is the verdict: 0 as claimed, 77 not possible here.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/uring.h"
#include "shm/wait.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"
#include "tests/lib/uring.h"
#include "tests/unit/disk/sandbox.h"

#define PIECE 4096u
#define DEPTH 8u
#define BUFFER_BYTES ((size_t)DEPTH * PIECE)

struct bench {
	struct kvpull_uring uring;
	struct kvpull_log log;
	uint8_t *buffer;
	int wake_fd;
	int file;
	uint32_t fixed;
	uint32_t reserved;
};

static void bench_begin(struct bench *bench)
{
	uint32_t i;

	memset(bench, 0, sizeof(*bench));
	lines_forget();
	bench->log = lines_from(KVPULL_LOG_INFO);
	bench->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	bench->file = memfd_create("test-uring", MFD_CLOEXEC);
	bench->buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(bench->wake_fd >= 0 && bench->file >= 0 &&
		    bench->buffer != MAP_FAILED);
	for (i = 0; i < DEPTH; i++) {
		uint8_t page[PIECE];

		memset(page, (int)i + 1, sizeof(page));
		assert_int_equal(write(bench->file, page, sizeof(page)), PIECE);
	}
}

static void bench_end(struct bench *bench)
{
	(void)munmap(bench->buffer, BUFFER_BYTES);
	(void)close(bench->file);
	(void)close(bench->wake_fd);
}

static int bench_open(struct bench *bench, enum kvpull_uring_mode mode)
{
	const int code = kvpull_uring_open(&bench->uring, mode, DEPTH,
					   bench->wake_fd, &bench->log);

	if (code && mode != KVPULL_URING_NO)
		print_message("refused: %s\n", lines.last);
	return code;
}

static int bench_read(struct bench *bench, uint32_t piece)
{
	const struct kvpull_uring_io read = {
		.memory = bench->buffer + (size_t)piece * PIECE,
		.offset = (uint64_t)(DEPTH - 1 - piece) * PIECE,
		.bytes = PIECE,
		.fd = bench->file,
		.tag = 100 + piece,
	};

	return kvpull_uring_queue(&bench->uring, &read);
}

static void sleep_until_woken(struct bench *bench)
{
	struct pollfd fd = { .fd = bench->wake_fd, .events = POLLIN };
	eventfd_t count;

	if (kvpull_uring_arm(&bench->uring))
		return;
	assert_int_equal(poll(&fd, 1, 20000), 1);
	(void)eventfd_read(bench->wake_fd, &count);
}

/* Where the kernel has no such ring the test ends here. */
static void bench_open_or_skip(struct bench *bench, enum kvpull_uring_mode mode)
{
	if (!bench_open(bench, mode))
		return;
	bench_end(bench);
	skip();
}

/* All of the file, in reverse, at full depth; 1: as it should be. */
static int bench_read_all(struct bench *bench)
{
	struct kvpull_uring_result results[3];
	uint32_t done = 0;
	uint32_t seen = 0;
	uint32_t i;

	memset(bench->buffer, 0, BUFFER_BYTES);
	for (i = 0; i < DEPTH; i++)
		assert_int_equal(bench_read(bench, i), 0);
	assert_int_equal(bench_read(bench, 0), KVPULL_EAGAIN);
	assert_int_equal(kvpull_uring_arm(&bench->uring), 1);
	kvpull_uring_flush(&bench->uring);
	/* Nor more than there is place for results. */
	assert_int_equal(bench_read(bench, 0), KVPULL_EAGAIN);
	while (done < DEPTH) {
		const uint32_t count =
			kvpull_uring_poll(&bench->uring, results, 3);

		for (i = 0; i < count; i++) {
			assert_int_equal(results[i].code, PIECE);
			assert_in_range(results[i].tag, 100, 100 + DEPTH - 1);
			seen |= 1u << (results[i].tag - 100);
		}
		done += count;
		if (!count)
			sleep_until_woken(bench);
	}
	for (i = 0; i < DEPTH; i++)
		if (bench->buffer[(size_t)i * PIECE] != DEPTH - i ||
		    bench->buffer[(size_t)(i + 1) * PIECE - 1] != DEPTH - i)
			return 0;
	return seen == (1u << DEPTH) - 1 && !bench->uring.in_flight;
}

static void reads_come_back_with(struct bench *bench,
				 enum kvpull_uring_mode mode)
{
	bench_open_or_skip(bench, mode);
	assert_int_equal(bench_read_all(bench), 1);
	assert_int_equal(kvpull_uring_register(&bench->uring, bench->buffer,
					       BUFFER_BYTES),
			 0);
	assert_int_equal(bench_read_all(bench), 1);
	assert_int_equal(
		kvpull_uring_close(&bench->uring, kvpull_clock_close_by()), 0);
	assert_int_equal(lines.bad_count, 0);
}

UNIT_TEST_IN(reads_come_back_to_any_thread, bench)
{
	reads_come_back_with(bench, KVPULL_URING_ANY_THREAD);
}

UNIT_TEST_IN(reads_come_back_to_one_thread, bench)
{
	reads_come_back_with(bench, KVPULL_URING_ONE_THREAD);
}

UNIT_TEST_IN(switched_off_is_said_without_a_warning, bench)
{
	assert_int_equal(bench_open(bench, KVPULL_URING_NO),
			 KVPULL_EUNSUPPORTED);
	assert_int_equal(lines.bad_count, 0);
	assert_int_equal(kvpull_uring_arm(&bench->uring), 0);
	assert_int_equal(
		kvpull_uring_close(&bench->uring, kvpull_clock_close_by()), 0);
}

UNIT_TEST_IN(end_of_file_is_a_short_read, bench)
{
	struct kvpull_uring_result result;

	bench_open_or_skip(bench, KVPULL_URING_ANY_THREAD);
	assert_int_equal(ftruncate(bench->file, 100), 0);
	assert_int_equal(bench_read(bench, DEPTH - 1), 0);
	kvpull_uring_flush(&bench->uring);
	while (!kvpull_uring_poll(&bench->uring, &result, 1))
		sleep_until_woken(bench);
	assert_int_equal(result.code, 100);
	(void)kvpull_uring_close(&bench->uring, kvpull_clock_close_by());
}

UNIT_TEST_IN(dropped_read_reads_nothing_and_comes_back, bench)
{
	struct kvpull_uring_result results[2];
	uint32_t count = 0;

	bench_open_or_skip(bench, KVPULL_URING_ANY_THREAD);
	assert_int_equal(bench_read(bench, 1), 0);
	assert_int_equal(bench_read(bench, 2), 0);
	kvpull_uring_drop(&bench->uring, 102);
	kvpull_uring_drop(&bench->uring, 999);
	kvpull_uring_flush(&bench->uring);
	while (count < 2) {
		count += kvpull_uring_poll(&bench->uring, &results[count],
					   2 - count);
		if (count < 2)
			sleep_until_woken(bench);
	}
	assert_int_equal(results[0].tag + results[1].tag, 101 + 102);
	assert_int_equal(bench->buffer[PIECE], DEPTH - 1);
	assert_int_equal(bench->buffer[2 * PIECE], 0);
	/* Entries that the kernel has are not touched. */
	assert_int_equal(bench_read(bench, 2), 0);
	kvpull_uring_flush(&bench->uring);
	kvpull_uring_drop(&bench->uring, 102);
	while (!kvpull_uring_poll(&bench->uring, results, 1))
		sleep_until_woken(bench);
	assert_int_equal(bench->buffer[2 * PIECE], DEPTH - 2);
	assert_int_equal(
		kvpull_uring_close(&bench->uring, kvpull_clock_close_by()), 0);
}

/* close() does not wait for it, and none of its bytes land. */
UNIT_TEST_IN(what_was_never_handed_over_is_over_at_close, bench)
{
	bench_open_or_skip(bench, KVPULL_URING_ANY_THREAD);
	assert_int_equal(bench_read(bench, 1), 0);
	assert_int_equal(bench_read(bench, 2), 0);
	assert_int_equal(
		kvpull_uring_close(&bench->uring, kvpull_clock_close_by()), 0);
	assert_int_equal(bench->buffer[PIECE], 0);
}

/* From a pipe that nobody writes to, as from a disk that hangs. */
UNIT_TEST_IN(a_read_that_does_not_come_is_told_at_close, bench)
{
	struct kvpull_uring_io io = { .bytes = 1 };
	uint64_t began_ns;
	int pipes[2];

	bench_open_or_skip(bench, KVPULL_URING_ANY_THREAD);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	io.memory = bench->buffer;
	io.fd = pipes[0];
	assert_int_equal(kvpull_uring_queue(&bench->uring, &io), 0);
	assert_int_equal(bench_read(bench, 1), 0);
	kvpull_uring_flush(&bench->uring);
	/* The other one has come, and is not looked at. */
	sleep_until_woken(bench);
	began_ns = kvpull_clock_ns();
	assert_int_equal(kvpull_uring_close(&bench->uring, began_ns), 1);
	assert_in_range(kvpull_clock_ns() - began_ns, 0, KVPULL_CLOSE_NS / 2);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
}

static void *submit_and_leave(void *argument)
{
	struct bench *bench = argument;
	uint32_t i;

	if (bench_open(bench, KVPULL_URING_ONE_THREAD))
		return bench;
	if (bench->fixed &&
	    kvpull_uring_register(&bench->uring, bench->buffer, BUFFER_BYTES))
		return bench;
	for (i = 0; i < 4; i++)
		if (bench_read(bench, i))
			return bench;
	kvpull_uring_flush(&bench->uring);
	return NULL;
}

/* As the progress thread ends, and the engine's thread closes. */
static uint32_t close_by_another_thread(struct bench *bench, void **failed)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, submit_and_leave, bench),
			 0);
	(void)pthread_join(thread, failed);
	return kvpull_uring_close(&bench->uring, kvpull_clock_close_by());
}

UNIT_TEST(another_thread_that_closes_is_told_what_may_still_land)
{
	struct bench bench;
	uint32_t left;
	void *failed;

	bench_begin(&bench);
	left = close_by_another_thread(&bench, &failed);
	/* 0 where the kernel has no DEFER_TASKRUN (Linux 6.1). */
	assert_true(left == 4 || left == 0);
	bench_end(&bench);
	if (failed)
		skip();
}

UNIT_TEST(nothing_lands_in_a_registered_buffer_after_close)
{
	struct bench bench;
	void *failed;

	bench_begin(&bench);
	bench.fixed = 1;
	assert_int_equal(close_by_another_thread(&bench, &failed), 0);
	bench_end(&bench);
	if (failed)
		skip();
}

/* In a child: the open must fail, with a warning that has the reason. */
static int refused_child(int error)
{
	struct bench bench;

	bench_begin(&bench);
	if (sandbox_forbid_uring(error))
		return SANDBOX_SKIP;
	if (bench_open(&bench, KVPULL_URING_ANY_THREAD) != KVPULL_EUNSUPPORTED)
		return 1;
	if (lines.bad_count != 1 || !strstr(lines.last, strerror(error)))
		return 2;
	return kvpull_uring_close(&bench.uring, kvpull_clock_close_by()) ? 3 :
									   0;
}

UNIT_TEST(forbidden_with_eperm_is_unsupported)
{
	sandbox_expect(refused_child, EPERM);
}

UNIT_TEST(forbidden_with_enosys_is_unsupported)
{
	sandbox_expect(refused_child, ENOSYS);
}

/* Not registered, and reads work all the same. */
static int memlock_child(int memlock)
{
	struct bench bench;
	int code;

	bench_begin(&bench);
	if (sandbox_drop_privileges((rlim_t)memlock))
		return SANDBOX_SKIP;
	if (bench_open(&bench, KVPULL_URING_ANY_THREAD))
		return SANDBOX_SKIP;
	code = kvpull_uring_register(&bench.uring, bench.buffer, BUFFER_BYTES);
	if (code != (memlock < (int)BUFFER_BYTES ? KVPULL_ENOMEM : 0))
		return 1;
	if (!bench_read_all(&bench))
		return 2;
	return kvpull_uring_close(&bench.uring, kvpull_clock_close_by()) ? 3 :
									   0;
}

UNIT_TEST(buffers_over_memlock_are_not_needed)
{
	/* Room for the ring, not for the buffer. */
	sandbox_expect(memlock_child, BUFFER_BYTES - 8192);
}

/* Where even the ring counts. */
static int no_memlock_child(int memlock)
{
	struct bench bench;
	int code;

	bench_begin(&bench);
	if (uring_errno() || sandbox_drop_privileges((rlim_t)memlock))
		return SANDBOX_SKIP;
	code = bench_open(&bench, KVPULL_URING_ANY_THREAD);
	if (!code)
		return kvpull_uring_close(&bench.uring,
					  kvpull_clock_close_by()) ?
			       1 :
			       0;
	return code == KVPULL_EUNSUPPORTED &&
			       strstr(lines.last, strerror(ENOMEM)) ?
		       0 :
		       2;
}

UNIT_TEST(no_memlock_at_all_is_unsupported_or_no_matter)
{
	sandbox_expect(no_memlock_child, 0);
}

UNIT_TEST(buffers_within_memlock_are_registered)
{
	sandbox_expect(memlock_child, 8 << 20);
}

/* A ring's eventfd beside a socket: one wait tells of both, by their tokens. */
UNIT_TEST_IN(wait_tells_sockets_and_reads_apart, bench)
{
	struct kvpull_wait_token tokens[4];
	struct kvpull_wait wait;
	int pair[2];

	bench_open_or_skip(bench, KVPULL_URING_ONE_THREAD);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(kvpull_wait_open(&wait, &bench->log), 0);
	assert_int_equal(kvpull_wait_add(&wait, bench->wake_fd,
					 (struct kvpull_wait_token){
						 .kind = KVPULL_WAIT_COPY }),
			 0);
	assert_int_equal(
		kvpull_wait_add(&wait, pair[0],
				(struct kvpull_wait_token){
					.kind = KVPULL_WAIT_PEER_SOCKET,
					.index = 7,
					.generation = 0x1000003 }),
		0);
	assert_int_equal(kvpull_wait_poll(&wait, tokens, 4), 0);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_int_equal(kvpull_wait_poll(&wait, tokens, 4), 1);
	assert_int_equal(tokens[0].kind, KVPULL_WAIT_PEER_SOCKET);
	assert_int_equal(tokens[0].index, 7);
	assert_int_equal(tokens[0].generation, 3);
	assert_int_equal(bench_read(bench, 0), 0);
	kvpull_uring_flush(&bench->uring);
	/* The socket's event comes again as long as it is readable. */
	while (kvpull_wait_poll(&wait, tokens, 4) < 2)
		(void)kvpull_uring_arm(&bench->uring);
	kvpull_wait_remove(&wait, pair[0]);
	assert_int_equal(kvpull_wait_poll(&wait, tokens, 4), 1);
	assert_int_equal(tokens[0].kind, KVPULL_WAIT_COPY);
	kvpull_wait_close(&wait);
	(void)kvpull_uring_close(&bench->uring, kvpull_clock_close_by());
	(void)close(pair[0]);
	(void)close(pair[1]);
}
