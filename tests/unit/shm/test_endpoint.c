/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of the same-node route: errors that the kernel seldom returns. */
#include "tests/unit/shm/world.h"

UNIT_TEST(send_that_fails_for_an_unknown_reason_loses_the_peer)
{
	const struct kvpull_message message = { .bytes = (const uint8_t *)"x",
						.byte_count = 1 };
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	/* ENOTSOCK */
	assert_int_equal(kvpull_endpoint_send(ends[1], &message, NULL),
			 KVPULL_EPEER);
	assert_int_equal(close(ends[0]), 0);
	assert_int_equal(close(ends[1]), 0);
}

/* An empty packet is read as the end of its connection. */
UNIT_TEST(message_of_no_bytes_or_too_many_is_not_sent)
{
	static const uint8_t bytes[KVPULL_PACKET_BYTES_MAX + 1];
	struct kvpull_message message = { .bytes = bytes };
	uint8_t got;
	int ends[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(kvpull_endpoint_send(ends[1], &message, NULL),
			 KVPULL_EPROTO);
	message.byte_count = sizeof(bytes);
	assert_int_equal(kvpull_endpoint_send(ends[1], &message, NULL),
			 KVPULL_EPROTO);
	message.byte_count = 1;
	message.fd_count = KVPULL_PACKET_FDS_MAX + 1;
	assert_int_equal(kvpull_endpoint_send(ends[1], &message, NULL),
			 KVPULL_EPROTO);
	assert_int_equal(recv(ends[0], &got, 1, MSG_DONTWAIT), -1);
	assert_int_equal(close(ends[0]), 0);
	assert_int_equal(close(ends[1]), 0);
}

UNIT_TEST(peer_without_credentials_is_lost)
{
	struct kvpull_identity identity;
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(kvpull_identity_get(&identity, ends[0]), KVPULL_EPEER);
	assert_int_equal(identity.pidfd, -1);
	assert_int_equal(close(ends[0]), 0);
	assert_int_equal(close(ends[1]), 0);
}

UNIT_TEST(connection_is_closed_by_its_peer_alone)
{
	int ends[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(kvpull_endpoint_closed(ends[0]), 1);
	assert_int_equal(send(ends[1], "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(kvpull_endpoint_closed(ends[0]), 1);
	/* A socket with bytes that were not read ends by a reset. */
	assert_int_equal(send(ends[0], "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(close(ends[1]), 0);
	assert_int_equal(kvpull_endpoint_closed(ends[0]), KVPULL_EAGAIN);
	assert_int_equal(kvpull_endpoint_closed(ends[0]), 0);
	assert_int_equal(close(ends[0]), 0);
	/* EBADF */
	assert_int_equal(kvpull_endpoint_closed(ends[0]), KVPULL_EPEER);
}
