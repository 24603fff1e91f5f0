/* SPDX-License-Identifier: Apache-2.0 */
/* Connections whose system calls are refused, and who is at their other end. */
#include "shm/wait.h"
#include "tests/unit/shm/place.h"

#include <sys/syscall.h>

/* clang-format off */
REFUSABLE(ssize_t, sendmsg, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
REFUSABLE(ssize_t, recvmsg, -1, (int fd, struct msghdr *message, int flags), (fd, message, flags))
REFUSABLE(ssize_t, recv, -1, (int fd, void *bytes, size_t byte_count, int flags), (fd, bytes, byte_count, flags))
REFUSABLE(int, poll, -1, (struct pollfd *fds, nfds_t count, int ms), (fds, count, ms))
REFUSABLE(int, epoll_create1, -1, (int flags), (flags))
REFUSABLE(int, epoll_ctl, -1, (int fd, int what, int of, struct epoll_event *event), (fd, what, of, event))
REFUSABLE(long, syscall, -1, (long number, long a, long b, long c, long d, long e, long f), (number, a, b, c, d, e, f))
/* clang-format on */

static uint32_t peer_is_unknown; /* SO_PEERCRED gives no uid */

/* clang-format off */
REFUSABLE_THEN(int, getsockopt, -1, (int fd, int level, int option, void *value, socklen_t *bytes), (fd, level, option, value, bytes),
	       if (option == SO_PEERCRED && peer_is_unknown) ((struct ucred *)value)->uid = KVPULL_UID_NONE)
/* clang-format on */

/* ---- connections ---- */

static void pair_make(int *ends)
{
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void pair_close(const int *ends)
{
	(void)close(ends[0]);
	(void)close(ends[1]);
}

/* clang-format off */
static const struct row sends[] = {
	{ { "sendmsg", 0, EINTR }, 0, "" },
	{ { "sendmsg", 0, EAGAIN }, KVPULL_EAGAIN, "" },
	{ { "sendmsg", 0, ETOOMANYREFS }, KVPULL_EAGAIN, "" },
	{ { "sendmsg", 0, ENOBUFS }, KVPULL_EAGAIN, "" },
	{ { "sendmsg", 0, EPIPE }, KVPULL_EPEER, "" },
	{ { "sendmsg", 0, ECONNRESET }, KVPULL_EPEER, "" },
	{ { "sendmsg", 0, ENOTCONN }, KVPULL_EPEER, "" },
	{ { "sendmsg", 0, EIO }, KVPULL_EPEER, "handshake message: Input/output error" },
	{ { "sendmsg", 0, EMSGSIZE }, KVPULL_EPROTO, "handshake message of 5 bytes: Message too long" },
};
/* clang-format on */

UNIT_TEST_IN(message_that_is_not_sent_is_told_by_its_cause, place)
{
	const struct kvpull_message message = { .bytes = "hello",
						.byte_count = 5 };
	char bytes[8];
	int ends[2];
	size_t at;

	pair_make(ends);
	for (at = 0; at < sizeof(sends) / sizeof(sends[0]); at++) {
		const struct row *row = &sends[at];

		refuse(row->refused.call, row->refused.skip,
		       row->refused.error);
		row_check(row,
			  kvpull_endpoint_send(ends[0], &message, &place->log),
			  row->code == KVPULL_EPROTO ? KVPULL_LOG_ERROR :
						       KVPULL_LOG_WARN);
		/* Once, or not at all. */
		if (!row->code)
			assert_int_equal(recv(ends[1], bytes, sizeof(bytes),
					      MSG_DONTWAIT),
					 5);
		assert_int_equal(
			recv(ends[1], bytes, sizeof(bytes), MSG_DONTWAIT), -1);
	}
	pair_close(ends);
}

/* The word counts, too. */
UNIT_TEST_IN(message_of_the_largest_packet_is_sent_and_no_larger_one, place)
{
	static uint8_t bytes[KVPULL_PACKET_BYTES_MAX + 1];
	struct kvpull_message message = { .word = "word",
					  .bytes = bytes,
					  .byte_count =
						  KVPULL_PACKET_BYTES_MAX - 4 };
	int ends[2];

	pair_make(ends);
	bytes[0] = 7;
	assert_int_equal(kvpull_endpoint_send(ends[0], &message, &place->log),
			 0);
	assert_int_equal(kvpull_endpoint_receive(ends[1], bytes, NULL, NULL),
			 KVPULL_PACKET_BYTES_MAX);
	assert_memory_equal(bytes, "word\7", 5);
	assert_int_equal(lines.bad_count, 0);
	message.byte_count++;
	assert_int_equal(kvpull_endpoint_send(ends[0], &message, &place->log),
			 KVPULL_EPROTO);
	assert_string_equal(lines.bad,
			    "handshake message of 65533 bytes: limit 65536");
	message.byte_count = 0;
	assert_int_equal(kvpull_endpoint_send(ends[0], &message, &place->log),
			 0);
	assert_int_equal(kvpull_endpoint_receive(ends[1], bytes, NULL, NULL),
			 4);
	/* A packet that is longer is no message. */
	assert_int_equal(send(ends[0], bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_int_equal(kvpull_endpoint_receive(ends[1], bytes, NULL, NULL),
			 KVPULL_EPROTO);
	pair_close(ends);
}

UNIT_TEST(receive_goes_on_after_a_signal_and_after_one_reset)
{
	static const struct {
		int errors[2];
		int code;
	} cases[] = {
		{ { EINTR, EINTR }, 1 },
		{ { EINTR, ECONNRESET }, 1 },
		{ { ECONNRESET, ECONNRESET }, KVPULL_EPEER },
		{ { EINTR, EAGAIN }, 0 },
		{ { EINTR, EIO }, KVPULL_EPEER },
	};
	uint8_t bytes[KVPULL_PACKET_BYTES_MAX];
	int ends[2];
	size_t at;

	for (at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		pair_make(ends);
		assert_int_equal(send(ends[0], "x", 1, 0), 1);
		refuse("recvmsg", 0, cases[at].errors[0]);
		refuse("recvmsg", 0, cases[at].errors[1]);
		assert_int_equal(
			kvpull_endpoint_receive(ends[1], bytes, NULL, NULL),
			cases[at].code);
		assert_int_equal(refuse_end(), 2);
		pair_close(ends);
	}
}

/* SO_PASSCRED: the kernel puts a message of its own before the descriptors. */
UNIT_TEST(descriptors_are_found_behind_credentials)
{
	const struct kvpull_message message = { .bytes = "x",
						.byte_count = 1,
						.fds = (int[]){ 0 },
						.fd_count = 1 };
	const int yes = 1;
	uint8_t bytes[KVPULL_PACKET_BYTES_MAX];
	uint32_t fd_count = 2;
	int fds[2] = { -1, -1 };
	int ends[2];
	uint32_t before;

	pair_make(ends);
	assert_int_equal(
		setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)),
		0);
	before = fds_open();
	assert_int_equal(kvpull_endpoint_send(ends[0], &message, NULL), 0);
	assert_int_equal(
		kvpull_endpoint_receive(ends[1], bytes, fds, &fd_count), 1);
	assert_int_equal(fd_count, 1);
	assert_int_equal(fcntl(fds[0], F_GETFD, 0), FD_CLOEXEC);
	assert_int_equal(fds_open(), before + 1);
	(void)close(fds[0]);
	/* A descriptor more than is wanted: none stays. */
	fd_count = 0;
	assert_int_equal(kvpull_endpoint_send(ends[0], &message, NULL), 0);
	assert_int_equal(
		kvpull_endpoint_receive(ends[1], bytes, fds, &fd_count),
		KVPULL_EPROTO);
	assert_int_equal(fds_open(), before);
	pair_close(ends);
}

UNIT_TEST(errno_of_recv_tells_how_a_call_ended)
{
	static const struct {
		int error;
		int code;
	} cases[] = {
		{ EAGAIN, 1 },
		{ EINTR, 1 },
		{ ECONNRESET, KVPULL_EAGAIN },
		{ EIO, KVPULL_EPEER },
	};
	int ends[2];
	size_t at;

	pair_make(ends);
	for (at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		refuse("recv", 0, cases[at].error);
		assert_int_equal(kvpull_endpoint_closed(ends[0]),
				 cases[at].code);
		assert_int_equal(refuse_end(), 1);
	}
	pair_close(ends);
}

/* ---- who is there ---- */

UNIT_TEST(process_of_an_unknown_user_is_nobody)
{
	struct kvpull_identity identity;
	int ends[2];

	pair_make(ends);
	peer_is_unknown = 1;
	assert_int_equal(kvpull_identity_get(&identity, ends[0]), KVPULL_EPEER);
	peer_is_unknown = 0;
	refuse("getsockopt", 0, EINVAL);
	assert_int_equal(kvpull_identity_get(&identity, ends[0]), KVPULL_EPEER);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(kvpull_identity_get(&identity, ends[0]), 0);
	assert_int_equal(identity.uid, getuid());
	assert_int_equal(identity.pid, getpid());
	assert_int_equal(identity.pidfd, -1);
	pair_close(ends);
}

/* errno of SO_PEERPIDFD, of pidfd_open() (0: it works), result, has a pidfd. */
static const struct {
	int option;
	int open;
	int code;
	int has_pidfd;
} watches[] = {
	{ EMFILE, 0, KVPULL_EAGAIN, 0 },
	{ ENFILE, 0, KVPULL_EAGAIN, 0 },
	{ ENOPROTOOPT, 0, 0, 1 },
	{ EINVAL, 0, 0, 1 },
	{ ENOPROTOOPT, EMFILE, KVPULL_EAGAIN, 0 },
	{ ENOPROTOOPT, ENOMEM, KVPULL_EAGAIN, 0 },
	{ ENOPROTOOPT, ESRCH, 0, 0 },
	{ ENOPROTOOPT, ENOSYS, 0, 0 },
};

UNIT_TEST(death_of_a_peer_is_watched_by_its_pid_before_linux_6_5)
{
	struct kvpull_identity identity;
	const uint32_t fds = fds_open();
	int ends[2];
	size_t at;

	pair_make(ends);
	for (at = 0; at < sizeof(watches) / sizeof(watches[0]); at++) {
		assert_int_equal(kvpull_identity_get(&identity, ends[0]), 0);
		refuse("getsockopt", 0, watches[at].option);
		if (watches[at].open)
			refuse("syscall", 0, watches[at].open);
		assert_int_equal(kvpull_identity_watch(&identity, ends[0]),
				 watches[at].code);
		assert_int_equal(refuse_end(), watches[at].open ? 2 : 1);
		assert_int_equal(identity.pidfd >= 0, watches[at].has_pidfd);
		assert_int_equal(kvpull_identity_is_dead(&identity), 0);
		if (identity.pidfd >= 0)
			(void)close(identity.pidfd);
		assert_int_equal(fds_open(), fds + 2);
	}
	/* A process that the kernel does not name cannot be opened. */
	identity.pid = 0;
	refuse("getsockopt", 0, ENOPROTOOPT);
	assert_int_equal(kvpull_identity_watch(&identity, ends[0]), 0);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(identity.pidfd, -1);
	/* The peer is gone: its pid may be another's by now. */
	assert_int_equal(kvpull_identity_get(&identity, ends[0]), 0);
	(void)close(ends[1]);
	refuse("getsockopt", 0, ENOPROTOOPT);
	assert_int_equal(kvpull_identity_watch(&identity, ends[0]), 0);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(identity.pidfd, -1);
	(void)close(ends[0]);
	assert_int_equal(fds_open(), fds);
}

UNIT_TEST(signal_is_not_taken_for_the_peers_death)
{
	struct kvpull_identity identity = { .pidfd = -1 };
	const pid_t child = fork();

	if (!child)
		for (;;)
			(void)pause();
	assert_true(child > 0);
	assert_int_equal(kvpull_identity_is_dead(&identity), 0);
	identity.pidfd = (int32_t)syscall(SYS_pidfd_open, child, 0);
	assert_true(identity.pidfd >= 0);
	refuse("poll", 0, EINTR);
	refuse("poll", 0, EINTR);
	assert_int_equal(kvpull_identity_is_dead(&identity), 0);
	assert_int_equal(refuse_end(), 2);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	refuse("poll", 0, EINTR);
	assert_int_equal(kvpull_identity_is_dead(&identity), 1);
	assert_int_equal(refuse_end(), 1);
	(void)close(identity.pidfd);
}

/* ---- what is waited on ---- */

UNIT_TEST_IN(wait_without_descriptors_is_refused, place)
{
	const struct kvpull_wait_token token = { .index = 5 };
	struct kvpull_wait_token tokens[2];
	struct kvpull_wait wait;
	int ends[2];
	int copy;

	refuse("epoll_create1", 0, EMFILE);
	assert_int_equal(kvpull_wait_open(&wait, &place->log), KVPULL_EDEVICE);
	assert_int_equal(refuse_end(), 1);
	assert_non_null(strstr(lines.bad, "epoll: Too many open files"));
	assert_int_equal(kvpull_wait_open(&wait, &place->log), 0);
	pair_make(ends);
	refuse("epoll_ctl", 0, ENOSPC);
	assert_int_equal(kvpull_wait_add(&wait, ends[0], token),
			 KVPULL_EDEVICE);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(kvpull_wait_add(&wait, ends[0], token), 0);
	assert_int_equal(send(ends[1], "x", 1, 0), 1);
	assert_int_equal(kvpull_wait_poll(&wait, tokens, 0), 0);
	assert_int_equal(kvpull_wait_poll(&wait, tokens, 1), 1);
	assert_int_equal(tokens[0].index, 5);
	assert_int_equal(recv(ends[0], tokens, 1, MSG_DONTWAIT), 1);
	/* The other end sees the end, though a child may hold ours. */
	copy = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
	kvpull_wait_end(&wait, &ends[0]);
	assert_int_equal(ends[0], -1);
	assert_int_equal(recv(ends[1], tokens, 1, MSG_DONTWAIT), 0);
	assert_int_equal(kvpull_wait_poll(&wait, tokens, 2), 0);
	(void)close(copy);
	kvpull_wait_close(&wait);
	assert_int_equal(wait.fd, -1);
	(void)close(ends[1]);
}
