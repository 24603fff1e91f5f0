/* SPDX-License-Identifier: Apache-2.0 */
/* The rule by which a peer is called again. */
#include "plugin/session/retry.h"
#include "tests/lib/unit.h"

#define MS KVPULL_NS_PER_MS
#define CONNECT_NS (5000 * MS)

/* The wait until the next call, in ms; UINT32_MAX: there is none. */
static uint32_t wait_ms(struct kvpull_retry *retry, int32_t code)
{
	const uint64_t now_ns = 7000 * MS;

	if (kvpull_retry_failed(retry, code, now_ns))
		return UINT32_MAX;
	return (uint32_t)((retry->at_ns - now_ns) / MS);
}

UNIT_TEST(a_shortage_is_never_an_attempt_and_waits_double_to_160_ms)
{
	static const int32_t codes[] = { KVPULL_EAGAIN, KVPULL_EFULL,
					 KVPULL_ENOMEM };
	struct kvpull_retry retry = { 0 };
	uint32_t expected = 10;
	uint32_t at;

	for (at = 0; at < 100; at++) {
		assert_int_equal(wait_ms(&retry, codes[at % 3]), expected);
		expected = expected < 160 ? 2 * expected : 160;
	}
	assert_int_equal(retry.attempts, 0);
}

UNIT_TEST(a_fault_is_tried_again_six_times_and_waits_double)
{
	struct kvpull_retry retry = { 0 };
	uint32_t expected;

	for (expected = 10; expected <= 320; expected *= 2) {
		assert_int_equal(wait_ms(&retry, KVPULL_EPEER), expected);
		/* A shortage between two faults takes no attempt. */
		(void)wait_ms(&retry, KVPULL_EFULL);
	}
	assert_int_equal(wait_ms(&retry, KVPULL_EPEER), UINT32_MAX);
	assert_int_equal(wait_ms(&retry, KVPULL_EFULL), 160);
}

UNIT_TEST(attempts_begin_anew_after_a_connection_that_stayed_up)
{
	struct kvpull_retry retry = { .up_ns = 1000 * MS, .attempts = 6 };
	const uint64_t now_ns = retry.up_ns + CONNECT_NS;

	retry.wait_ns = 80 * MS;
	assert_int_equal(
		kvpull_retry_lost(&retry, KVPULL_EPEER, CONNECT_NS, now_ns), 0);
	assert_int_equal(retry.at_ns, now_ns);
	assert_int_equal(wait_ms(&retry, KVPULL_EAGAIN), 10);
	assert_int_equal(wait_ms(&retry, KVPULL_EPEER), 10);
}

UNIT_TEST(a_connection_that_breaks_before_is_a_fault)
{
	struct kvpull_retry retry = { .up_ns = 1000 * MS, .attempts = 5 };
	const uint64_t now_ns = retry.up_ns + CONNECT_NS - 1;

	assert_int_equal(
		kvpull_retry_lost(&retry, KVPULL_EPEER, CONNECT_NS, now_ns), 0);
	assert_int_equal(retry.at_ns, now_ns + 320 * MS);
	assert_int_equal(
		kvpull_retry_lost(&retry, KVPULL_EPEER, CONNECT_NS, now_ns),
		KVPULL_EPEER);
}

/* Whether or not it was given up, and called again, in between. */
UNIT_TEST(waits_double_to_5_s_while_connections_break)
{
	struct kvpull_retry retry = { .up_ns = 1000 * MS };
	const uint64_t now_ns = retry.up_ns + 1;
	uint64_t expected = 10 * MS;
	uint32_t at;

	for (at = 0; at < 30; at++) {
		retry.attempts %= KVPULL_RETRY_ATTEMPTS_MAX;
		assert_int_equal(kvpull_retry_lost(&retry, KVPULL_EPEER,
						   CONNECT_NS, now_ns),
				 0);
		assert_int_equal(retry.at_ns, now_ns + expected);
		expected = expected < 5120 * MS ? 2 * expected : 5120 * MS;
	}
	assert_int_equal(kvpull_retry_lost(&retry, KVPULL_EPEER, CONNECT_NS,
					   retry.up_ns + CONNECT_NS),
			 0);
	assert_int_equal(retry.breaks, 0);
}

/* We cut it, to end a read: its peer lives. */
UNIT_TEST(a_connection_that_was_cut_is_made_again_at_once)
{
	struct kvpull_retry retry = { .up_ns = 1000 * MS, .attempts = 6 };

	assert_int_equal(kvpull_retry_lost(&retry, KVPULL_EABORTED, CONNECT_NS,
					   1001 * MS),
			 0);
	assert_int_equal(retry.at_ns, 1001 * MS);
	assert_int_equal(retry.attempts, 6);
}
