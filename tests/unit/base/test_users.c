/* SPDX-License-Identifier: Apache-2.0 */
/* Who is believed by a uid, in the first user namespace and in others. */
#include <string.h>
#include <unistd.h>

#include "base/users.h"
#include "tests/lib/unit.h"

static const char first_map[] = "         0          0 4294967295\n";

static struct kvpull_users users_of(const char *uid_map)
{
	struct kvpull_users users = { 0 };

	kvpull_users_parse(&users, uid_map, "65534\n");
	return users;
}

UNIT_TEST(map_of_all_users_leaves_none_unknown)
{
	struct kvpull_users users = users_of(first_map);

	assert_int_equal(users.has_unknown, 0);
	/* The same, in pieces. */
	users = users_of("0 0 1000\n1000 1001 1\n1001 1000 1\n"
			 "1002 1002 4294966293\n");
	assert_int_equal(users.has_unknown, 0);
	assert_int_equal(kvpull_users_is_unknown(&users, 65534), 0);
}

/* Nobody's uid is mapped, and is that of everybody else as well. */
UNIT_TEST(mapped_overflow_uid_is_many_users_all_the_same)
{
	const char *const maps[] = {
		"0 100000 65536\n", "0 1000 1\n", "65534 65534 1\n",
		"0 0 4294967294\n", "",           "damaged",
	};
	size_t i;

	for (i = 0; i < sizeof(maps) / sizeof(*maps); i++) {
		const struct kvpull_users users = users_of(maps[i]);

		assert_int_equal(kvpull_users_is_unknown(&users, 65534), 1);
		assert_int_equal(kvpull_users_is_unknown(&users, 0), 0);
		assert_int_equal(kvpull_users_is_unknown(&users, 65533), 0);
	}
}

UNIT_TEST(number_of_unknown_users_is_the_kernels)
{
	struct kvpull_users users = { 0 };

	kvpull_users_parse(&users, "0 1000 1\n", "4000\n");
	assert_int_equal(kvpull_users_is_unknown(&users, 4000), 1);
	assert_int_equal(kvpull_users_is_unknown(&users, 65534), 0);
	kvpull_users_parse(&users, "0 1000 1\n", "");
	assert_int_equal(kvpull_users_is_unknown(&users, 65534), 1);
	/* The largest uid, and the number that is none. */
	kvpull_users_parse(&users, "0 1000 1\n", "4294967294\n");
	assert_int_equal(kvpull_users_is_unknown(&users, UINT32_MAX - 1), 1);
	kvpull_users_parse(&users, "0 1000 1\n", "4294967295\n");
	assert_int_equal(kvpull_users_is_unknown(&users, UINT32_MAX), 0);
	assert_int_equal(kvpull_users_is_unknown(&users, 65534), 1);
}

/* A warning that a key is needed, and the words on a peer that is refused. */
UNIT_TEST(key_is_lacking_where_an_unknown_user_is_listed)
{
	static const uint32_t listed[] = { 7, 65534 };
	struct kvpull_users users = { .uids = listed, .uid_count = 2 };

	kvpull_users_parse(&users, "0 1000 1\n", "65534\n");
	assert_int_equal(kvpull_users_lack_key(&users), 1);
	assert_string_equal(
		kvpull_users_doubt(&users, 65534),
		"is any user that this user namespace does not map: set key_file at both ends");
	users.is_keyed = 1;
	assert_int_equal(kvpull_users_lack_key(&users), 0);
	users.is_keyed = 0;
	users.uid_count = 1;
	assert_int_equal(kvpull_users_lack_key(&users), 0);
	assert_string_equal(
		kvpull_users_doubt(&users, 65534),
		"is any user that this user namespace does not map: list it in uids and set key_file, at both ends");
	assert_string_equal(kvpull_users_doubt(&users, 8),
			    "is not one of uids");
	users.uid_count = 2;
	kvpull_users_parse(&users, "0 0 4294967295\n", "65534\n");
	assert_int_equal(kvpull_users_lack_key(&users), 0);
}

UNIT_TEST(unknown_user_is_believed_with_a_key_alone)
{
	static const uint32_t uids[2] = { 7, 65534 };
	struct kvpull_users users = users_of("0 100000 65536\n");

	users.uids = uids;
	users.uid_count = 2;
	assert_int_equal(kvpull_users_believe(&users, 7), 1);
	assert_int_equal(kvpull_users_believe(&users, 8), 0);
	assert_int_equal(kvpull_users_believe(&users, 65534), 0);
	assert_int_equal(kvpull_users_lack_key(&users), 1);
	assert_non_null(strstr(kvpull_users_doubt(&users, 65534),
			       "does not map: set key_file at both ends"));
	assert_string_equal(kvpull_users_doubt(&users, 8),
			    "is not one of uids");
	users.is_keyed = 1;
	assert_int_equal(kvpull_users_believe(&users, 65534), 1);
	assert_int_equal(kvpull_users_lack_key(&users), 0);
	/* The list says who; the key says that it is they. */
	users.uid_count = 1;
	assert_int_equal(kvpull_users_believe(&users, 65534), 0);
	assert_non_null(strstr(kvpull_users_doubt(&users, 65534),
			       "list it in uids and set key_file"));
	users = users_of(first_map);
	users.uids = uids;
	users.uid_count = 2;
	assert_int_equal(kvpull_users_believe(&users, 65534), 1);
	assert_int_equal(kvpull_users_lack_key(&users), 0);
}

UNIT_TEST(own_user_is_believed_where_nobody_is_listed)
{
	struct kvpull_users users = users_of(first_map);

	assert_int_equal(kvpull_users_believe(&users, geteuid()), 1);
	assert_int_equal(kvpull_users_believe(&users, geteuid() + 1), 0);
	users.has_unknown = 1;
	users.unknown = geteuid();
	assert_int_equal(kvpull_users_believe(&users, geteuid()), 0);
	assert_int_equal(kvpull_users_lack_key(&users), 1);
}

UNIT_TEST(look_reads_this_process)
{
	struct kvpull_users users = { .unknown = 1 };

	kvpull_users_look(&users);
	assert_true(users.unknown > 1);
	assert_in_range(users.has_unknown, 0, 1);
}
