/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that refuses each descriptor, and each watch of one, in turn: the
 * call that asked for it says so, leaves nothing open, and can be tried again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "kvpull/reader.h"
#include "tests/lib/host_reader.h"
#include "tests/lib/lines.h"
#include "tests/unit/abi/world.h"

#define NEVER UINT32_MAX

static uint32_t calls;
static uint32_t refused_call = NEVER;

static int is_refused(void)
{
	if (calls++ != refused_call)
		return 0;
	errno = EMFILE;
	return 1;
}

/* In the place of libc's, for the library that is linked to this program. */
int epoll_create1(int flags)
{
	return is_refused() ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

int eventfd(unsigned int value, int flags)
{
	return is_refused() ? -1 : (int)syscall(SYS_eventfd2, value, flags);
}

int timerfd_create(clockid_t clock, int flags)
{
	return is_refused() ? -1 :
			      (int)syscall(SYS_timerfd_create, clock, flags);
}

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	return operation == EPOLL_CTL_ADD && is_refused() ?
		       -1 :
		       (int)syscall(SYS_epoll_ctl, set, operation, fd, event);
}

static const char *const configs[] = {
	"{\"copy_threads\":0,\"route\":\"shm\",\"progress\":\"caller\"}",
	"{\"copy_threads\":0,\"route\":\"shm\",\"progress\":\"thread\"}",
};

UNIT_TEST(open_without_a_descriptor_or_watch_leaves_nothing)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_open_params params = open_params("engine");
	const uint32_t fds = fds_open();
	uint32_t at;

	for (at = 0; at < sizeof(configs) / sizeof(*configs); at++) {
		uint32_t refused = 0;

		params.config_json = configs[at];
		do {
			struct kvpull_error_detail detail = {
				.struct_size = sizeof(detail)
			};
			struct kvpull_worker *worker = NULL;
			int code;

			calls = 0;
			refused_call = refused++;
			code = ops->open(&params, &worker, &detail);
			assert_int_equal(code == 0, calls <= refused_call);
			assert_int_equal(code == 0, worker != NULL);
			assert_int_equal(code != 0, detail.message[0] != 0);
			refused_call = NEVER;
			ops->close(worker);
			assert_int_equal(fds_open(), fds);
		} while (calls >= refused);
		assert_true(refused > 4);
	}
}

UNIT_TEST(event_fd_without_a_descriptor_or_watch_can_be_tried_again)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_open_params params = open_params("engine");
	uint32_t at;

	for (at = 0; at < sizeof(configs) / sizeof(*configs); at++) {
		struct kvpull_worker *worker;
		uint32_t fds;
		int fd = -1;

		params.config_json = configs[at];
		assert_int_equal(ops->open(&params, &worker, NULL), 0);
		fds = fds_open();
		for (refused_call = 0; fd < 0; refused_call++) {
			calls = 0;
			fd = ops->event_fd(worker);
			/* Whatever was asked behind the refused one was not. */
			assert_int_equal(fd<0, calls> refused_call);
			if (fd >= 0)
				continue;
			assert_int_equal(fd, KVPULL_EDEVICE);
			assert_int_equal(fds_open(), fds);
		}
		assert_true(refused_call > 4);
		refused_call = NEVER;
		assert_int_equal(ops->event_fd(worker), fd);
		ops->close(worker);
	}
}

/* ---- a reader ---- */

static int reader_open(struct kvpull_reader **reader,
		       struct kvpull_error_detail *detail)
{
	static const struct kvpull_host host = { .struct_size = sizeof(host),
						 .log = lines_keep };
	const struct host_reader own = {
		.engine_id = "reader",
		.config = "{\"copy_threads\":0,\"uring\":\"no\"}",
		.host = &host,
	};

	return host_reader_open(kvpull_reader_v1(), &own, reader, detail);
}

UNIT_TEST(reader_without_a_descriptor_or_watch_leaves_nothing)
{
	const uint32_t fds = fds_open();
	uint32_t refused = 0;

	do {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		struct kvpull_reader *reader = NULL;
		int code;

		calls = 0;
		refused_call = refused++;
		code = reader_open(&reader, &detail);
		assert_int_equal(code == 0, calls <= refused_call);
		assert_int_equal(code == 0, reader != NULL);
		assert_int_equal(code != 0, detail.message[0] != 0);
		refused_call = NEVER;
		kvpull_reader_v1()->close(reader);
		assert_int_equal(fds_open(), fds);
	} while (calls >= refused);
	assert_true(refused > 1);
}

UNIT_TEST(readers_event_fd_without_a_descriptor_or_watch_can_be_tried_again)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	struct kvpull_reader *reader;
	uint32_t fds;
	int fd = -1;

	assert_int_equal(reader_open(&reader, NULL), 0);
	fds = fds_open();
	for (refused_call = 0; fd < 0; refused_call++) {
		calls = 0;
		lines_forget();
		fd = ops->event_fd(reader);
		assert_int_equal(fd<0, calls> refused_call);
		assert_int_equal(fd < 0, lines.of[KVPULL_LOG_ERROR][0] != '\0');
		if (fd >= 0)
			continue;
		assert_int_equal(fd, KVPULL_EDEVICE);
		assert_int_equal(
			strncmp(lines.of[KVPULL_LOG_ERROR], "event_fd: ", 10),
			0);
		assert_int_equal(fds_open(), fds);
	}
	assert_true(refused_call > 4);
	refused_call = NEVER;
	assert_int_equal(ops->event_fd(reader), fd);
	ops->close(reader);
}

/* The file of slots is watched from the share, where the handle sleeps. */
UNIT_TEST(share_without_a_descriptor_or_watch_can_be_tried_again)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = 4096,
		.chunk_count = 4,
		.slot_folder = "/dev/shm",
		.slot_count = 2,
	};
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_reader *reader;
	int code = -1;

	assert_int_equal(reader_open(&reader, NULL), 0);
	assert_true(ops->event_fd(reader) >= 0);
	for (refused_call = 0; code; refused_call++) {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		const uint32_t fds = fds_open();

		calls = 0;
		code = ops->share(reader, &share, &memory, &detail);
		assert_int_equal(code != 0, calls > refused_call);
		assert_int_equal(code != 0, detail.message[0] != 0);
		if (!code)
			continue;
		assert_in_range(fds_open(), fds, fds + 1); /* of the folder */
		assert_int_equal(ops->unshare(reader), KVPULL_EINVAL);
	}
	assert_true(refused_call > 2);
	refused_call = NEVER;
	assert_true(memory.bytes >= 4 * 4096);
	assert_int_equal(ops->unshare(reader), 0);
	ops->close(reader);
}
