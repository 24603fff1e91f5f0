/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate of a producer: which users it knows, which descriptors it keeps for
 * the engine, and how often it says so.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "shm/gate.h"
#include "shm/shortage.h"
#include "tests/lib/lines.h"
#include "tests/lib/refuse.h"

REFUSABLE_LIMIT(RLIMIT_NOFILE)

UNIT_FIXTURE(up)
{
	lines_forget();
	limit_told = 0;
}

#define TEST(name) UNIT_TEST_WITH(name, up, NULL)

/* soft limit, the lowest descriptor that is the engine's */
static const uint32_t limits[][2] = {
	{ 4, 3 },          { 7, 6 },
	{ 8, 6 },          { 1024, 768 },
	{ 4096, 3072 },    { 4099, 3075 },
	{ 4100, 3076 },    { 8192, 7168 },
	{ 100000, 98976 }, { 1048576, 1047552 },
};

TEST(engine_keeps_a_quarter_of_the_descriptors_and_at_most_1024)
{
	struct kvpull_gate gate = { .log = &lines_log };
	uint64_t now_ns = KVPULL_NS_PER_S;
	char said[160];
	size_t at;

	for (at = 0; at < sizeof(limits) / sizeof(limits[0]); at++) {
		const int first = (int)limits[at][1];

		limit_told = limits[at][0];
		now_ns += KVPULL_NS_PER_S;
		assert_int_equal(kvpull_gate_reserves(&gate, first - 1, now_ns),
				 0);
		assert_int_equal(lines.bad_count, at);
		assert_int_equal(kvpull_gate_reserves(&gate, first, now_ns), 1);
		assert_int_equal(kvpull_gate_reserves(&gate, first, now_ns), 1);
		/* The limit is logged once a second. */
		assert_int_equal(lines.bad_count, at + 1);
		(void)snprintf(
			said, sizeof(said),
			"a consumer waits: the last %u of %u descriptors are the engine's: raise ulimit -n",
			limits[at][0] - limits[at][1], limits[at][0]);
		assert_string_equal(lines.bad, said);
	}
	/* No descriptor, or a limit that cannot be told. */
	assert_int_equal(kvpull_gate_reserves(&gate, -1, now_ns), 0);
	refuse("getrlimit", 0, EFAULT);
	assert_int_equal(kvpull_gate_reserves(&gate, 2000000, now_ns), 0);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(kvpull_gate_reserves(&gate, 2000000, now_ns), 1);
}

TEST(strangers_are_counted_and_said_once_a_second)
{
	static const uint32_t uids[] = { 7, 65534 };
	_Atomic uint64_t refused = 0;
	struct kvpull_gate gate = { .log = &lines_log,
				    .refused = &refused,
				    .users = { .uids = uids,
					       .uid_count = 2,
					       .has_unknown = 1,
					       .unknown = 65534 } };
	uint64_t now_ns = 5 * KVPULL_NS_PER_S;

	assert_int_equal(kvpull_gate_knows(&gate, 7, now_ns), 1);
	assert_int_equal(lines.bad_count, 0);
	assert_int_equal(kvpull_gate_knows(&gate, 8, now_ns), 0);
	assert_string_equal(
		lines.bad,
		"consumer refused: user 8 is not one of uids (1 calls of strangers)");
	assert_int_equal(kvpull_gate_knows(&gate, 9, now_ns), 0);
	assert_int_equal(
		kvpull_gate_knows(&gate, 9, now_ns + KVPULL_NS_PER_S - 1), 0);
	assert_int_equal(lines.bad_count, 1);
	assert_int_equal(
		kvpull_gate_knows(&gate, 65534, now_ns + KVPULL_NS_PER_S), 0);
	assert_int_equal(lines.bad_count, 2);
	assert_string_equal(
		lines.bad,
		"consumer refused: user 65534 is any user that this user namespace does not map: set key_file at both ends (3 calls of strangers)");
	assert_int_equal(refused, 4);
	/* The caller does not ask for the count. */
	gate.refused = NULL;
	assert_int_equal(kvpull_gate_knows(&gate, 8, now_ns), 0);
	assert_int_equal(refused, 4);
	gate.users.is_keyed = 1;
	assert_int_equal(kvpull_gate_knows(&gate, 65534, now_ns), 1);
}

TEST(crowd_is_counted_and_said_once_a_second)
{
	_Atomic uint64_t refused = 0;
	struct kvpull_gate gate = { .log = &lines_log, .refused = &refused };
	uint64_t now_ns = 5 * KVPULL_NS_PER_S;

	kvpull_gate_crowd(&gate, 8, now_ns);
	assert_string_equal(
		lines.bad,
		"too many callers have not said who they are: one of user 8 is to call again");
	kvpull_gate_crowd(&gate, 9, now_ns + KVPULL_NS_PER_S - 1);
	assert_int_equal(lines.bad_count, 1);
	kvpull_gate_crowd(&gate, 9, now_ns + KVPULL_NS_PER_S);
	assert_int_equal(lines.bad_count, 2);
	assert_int_equal(refused, 3);
}

TEST(shortage_is_said_once_a_second_and_ends_in_another_try)
{
	struct kvpull_shortage shortage = { .log = &lines_log,
					    .now_ns = KVPULL_NS_PER_S };

	errno = ENOSPC;
	assert_int_equal(
		kvpull_shortage(&shortage, "a ring", KVPULL_CALL_WATCH),
		KVPULL_EAGAIN);
	assert_string_equal(
		lines.bad,
		"a ring: No space left on device: raise fs.epoll.max_user_watches; it is tried again");
	shortage.now_ns += KVPULL_NS_PER_S - 1;
	assert_int_equal(
		kvpull_shortage(&shortage, "a ring", KVPULL_CALL_WATCH),
		KVPULL_EAGAIN);
	assert_int_equal(lines.bad_count, 1);
	shortage.now_ns++;
	errno = EMFILE;
	assert_int_equal(
		kvpull_shortage(&shortage, "a pidfd", KVPULL_CALL_OTHER),
		KVPULL_EAGAIN);
	assert_int_equal(lines.bad_count, 2);
	assert_non_null(strstr(lines.bad, "a pidfd: Too many open files"));
}
