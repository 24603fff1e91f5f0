/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open that finds no memory half-way: each mapping in turn is refused. It
 * says so, and leaves nothing behind.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvpull/reader.h"
#include "tests/lib/host_reader.h"
#include "tests/unit/abi/world.h"

/* Sanitizers have an mmap of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HAS_OWN_MMAP 1

#define NEVER UINT32_MAX

static uint32_t calls;
static uint32_t refused_call = NEVER;
static int64_t mapped_bytes;

/* Before libc's, for the library that is linked to this program. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd,
	   off_t offset)
{
	long mapped;

	if (calls++ == refused_call) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	mapped = syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
	if (mapped != -1)
		mapped_bytes += (int64_t)(bytes + 4095) & ~INT64_C(4095);
	return (void *)mapped;
}

int munmap(void *at, size_t bytes)
{
	const long code = syscall(SYS_munmap, at, bytes);

	if (!code)
		mapped_bytes -= (int64_t)(bytes + 4095) & ~INT64_C(4095);
	return (int)code;
}

static struct kvpull_open_params params_small(void)
{
	struct kvpull_open_params params = open_params("engine");

	params.config_json = "{\"max_holds\":256,\"pulls_max\":16}";
	return params;
}

static int worker_try(struct kvpull_error_detail *detail)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_worker *worker = NULL;
	const struct kvpull_open_params params = params_small();
	const int code = ops->open(&params, &worker, detail);

	assert_int_equal(code == 0, worker != NULL);
	ops->close(worker);
	return code;
}

static int scheduler_try(struct kvpull_error_detail *detail)
{
	const struct kvpull_scheduler_ops *ops =
		kvpull_connector_v1()->scheduler;
	struct kvpull_scheduler *scheduler = NULL;
	const struct kvpull_open_params params = params_small();
	const int code = ops->open(&params, &scheduler, detail);

	assert_int_equal(code == 0, scheduler != NULL);
	ops->close(scheduler);
	return code;
}

#define CHUNKS 4u
#define SLOTS 2u

static const struct kvpull_reader_share share_small = {
	.struct_size = sizeof(share_small),
	.chunk_bytes = 4096,
	.chunk_count = CHUNKS,
	.slot_folder = "/dev/shm",
	.slot_count = SLOTS,
};

static int reader_open(struct kvpull_reader **reader,
		       struct kvpull_error_detail *detail)
{
	const struct host_reader own = {
		.engine_id = "reader",
		.config = "{\"copy_threads\":0,\"uring\":\"no\"}",
	};

	return host_reader_open(kvpull_reader_v1(), &own, reader, detail);
}

static int reader_try(struct kvpull_error_detail *detail)
{
	struct kvpull_reader *reader = NULL;
	const int code = reader_open(&reader, detail);

	assert_int_equal(code == 0, reader != NULL);
	kvpull_reader_v1()->close(reader);
	return code;
}

/* A share that found no memory can be tried again at once. */
static int share_try(struct kvpull_error_detail *detail)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	const uint32_t wanted = refused_call;
	struct kvpull_reader *reader = NULL;
	uint32_t asked;
	int code;

	refused_call = NEVER;
	assert_int_equal(reader_open(&reader, NULL), 0);
	calls = 0;
	refused_call = wanted;
	code = ops->share(reader, &share_small, &memory, detail);
	asked = calls;
	refused_call = NEVER;
	if (code) {
		assert_int_equal(ops->unshare(reader), KVPULL_EINVAL);
		assert_int_equal(
			ops->share(reader, &share_small, &memory, NULL), 0);
	}
	assert_true(memory.bytes >= CHUNKS * 4096);
	assert_int_equal(ops->unshare(reader), 0);
	ops->close(reader);
	calls = asked;
	refused_call = wanted;
	return code;
}

static uint64_t number_in(const char *path, const char *name)
{
	FILE *file = fopen(path, "re");
	char line[256];
	uint64_t number = 0;

	assert_non_null(file);
	while (!number && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			number = strtoull(line + strlen(name), NULL, 10);
	(void)fclose(file);
	return number;
}

static uint64_t resident_kib(void)
{
	return number_in("/proc/self/smaps_rollup", "Rss:");
}

/* Also for a moment. */
static uint64_t resident_kib_max(void)
{
	return number_in("/proc/self/status", "VmHWM:");
}

/* How many of its mappings, refused, made it fail. */
static uint32_t failures_of(int (*try)(struct kvpull_error_detail *))
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const uint32_t fds = fds_open();
	const int64_t bytes = mapped_bytes;
	uint32_t failures = 0;
	uint32_t refused = 0;

	do {
		int code;

		calls = 0;
		refused_call = refused++;
		code = try(&detail);
		if (code) {
			assert_int_equal(code, KVPULL_ENOMEM);
			assert_true(detail.message[0]);
			failures++;
		}
		assert_int_equal(fds_open(), fds);
		assert_int_equal(mapped_bytes, bytes);
	} while (calls > refused_call);
	refused_call = NEVER;
	return failures;
}
#endif

/* First, of a process of its own: later ones have touched what it would. */
UNIT_TEST(first_open_needs_little_memory_at_any_time)
{
#ifdef HAS_OWN_MMAP
	const pid_t pid = fork();
	int status = 0;

	if (!pid) {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		const uint64_t kib = resident_kib_max();
		struct kvpull_open_params defaults = params_small();
		struct kvpull_worker *worker;

		defaults.config_json = "{}";
		if (kvpull_connector_v1()->worker->open(&defaults, &worker,
							&detail))
			_exit(2);
		_exit(resident_kib_max() - kib > 16 * 1024);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
#else
	skip();
#endif
}

UNIT_TEST(worker_without_memory_leaves_nothing)
{
#ifdef HAS_OWN_MMAP
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	/* Objects that exist once a process are made now. */
	assert_int_equal(worker_try(&detail), 0);
	assert_true(failures_of(worker_try) > 4);
	;
#else
	skip();
#endif
}

UNIT_TEST(scheduler_without_memory_leaves_nothing)
{
#ifdef HAS_OWN_MMAP
	assert_true(failures_of(scheduler_try) > 4);
	;
#else
	skip();
#endif
}

UNIT_TEST(reader_without_memory_leaves_nothing)
{
#ifdef HAS_OWN_MMAP
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	assert_int_equal(reader_try(&detail), 0);
	assert_true(failures_of(reader_try) > 4);
	assert_int_equal(reader_try(&detail), 0);
#else
	skip();
#endif
}

UNIT_TEST(share_without_memory_leaves_nothing_and_is_tried_again)
{
#ifdef HAS_OWN_MMAP
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	assert_int_equal(share_try(&detail), 0);
	assert_true(failures_of(share_try) > 4);
#else
	skip();
#endif
}

/* The tables of its defaults are 250 MiB; they are touched when used. */
UNIT_TEST(open_touches_few_of_its_pages)
{
#ifdef HAS_OWN_MMAP
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_open_params defaults = params_small();
	struct kvpull_worker *worker;
	struct kvpull_scheduler *scheduler;
	uint64_t kib;

	assert_int_equal(worker_try(&detail), 0);
	defaults.config_json = "{}";
	kib = resident_kib();
	assert_int_equal(ops->worker->open(&defaults, &worker, &detail), 0);
	assert_int_equal(ops->scheduler->open(&defaults, &scheduler, &detail),
			 0);
	kib = resident_kib() - kib;
	ops->scheduler->close(scheduler);
	ops->worker->close(worker);
	/* Hot memory, the revocation entries; under qemu-user its own, too. */
	assert_in_range(kib, 0, 12 * 1024);
#else
	skip();
#endif
}

UNIT_TEST(peek_without_memory_says_so_and_is_tried_again)
{
#ifdef HAS_OWN_MMAP
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	static const char text[] = "not one of ours";
	const int64_t bytes = mapped_bytes;
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };

	calls = 0;
	refused_call = 0;
	assert_int_equal(ops->ticket_peek(text, sizeof(text) - 1, &info),
			 KVPULL_ENOMEM);
	refused_call = NEVER;
	assert_int_equal(ops->ticket_peek(text, sizeof(text) - 1, &info),
			 KVPULL_ENOTMINE);
	assert_int_equal(mapped_bytes, bytes);
#else
	skip();
#endif
}
