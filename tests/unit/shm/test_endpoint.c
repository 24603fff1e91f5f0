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
