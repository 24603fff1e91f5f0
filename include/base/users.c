/* SPDX-License-Identifier: Apache-2.0 */
#include "base/users.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/text_file.h"

#define OVERFLOW_UID 65534u
/* As many as there are, without the one that is none (-1). */
#define UIDS_ALL UINT64_C(4294967295)
/* More lines than a page holds leave users out, or nobody would write them. */
#define MAP_BYTES_MAX 4096u

/* Lines of three numbers, the last of which is how many uids the line maps. */
static uint64_t mapped_count(const char *uid_map)
{
	uint64_t sum = 0;
	uint64_t number;
	uint32_t column = 0;
	char *end;

	for (;; uid_map = end) {
		number = strtoull(uid_map, &end, 10);
		if (end == uid_map)
			return sum;
		column = (column + 1) % 3;
		if (!column)
			sum += number;
	}
}

void kvpull_users_parse(struct kvpull_users *users, const char *uid_map,
			const char *overflow_uid)
{
	char *end;
	const uint64_t number = strtoull(overflow_uid, &end, 10);

	users->unknown = end == overflow_uid || number >= UINT32_MAX ?
				 OVERFLOW_UID :
				 (uint32_t)number;
	users->has_unknown = mapped_count(uid_map) < UIDS_ALL;
}

void kvpull_users_look(struct kvpull_users *users)
{
	char uid_map[MAP_BYTES_MAX];
	char overflow_uid[32];

	kvpull_text_read("/proc/self/uid_map", uid_map, sizeof(uid_map));
	kvpull_text_read("/proc/sys/kernel/overflowuid", overflow_uid,
			 sizeof(overflow_uid));
	kvpull_users_parse(users, uid_map, overflow_uid);
}

static int is_listed(const struct kvpull_users *users, uint32_t uid)
{
	uint32_t at;

	if (!users->uid_count)
		return uid == geteuid();
	for (at = 0; at < users->uid_count; at++)
		if (users->uids[at] == uid)
			return 1;
	return 0;
}

int kvpull_users_is_unknown(const struct kvpull_users *users, uint32_t uid)
{
	return users->has_unknown && uid == users->unknown;
}

int kvpull_users_believe(const struct kvpull_users *users, uint32_t uid)
{
	return is_listed(users, uid) &&
	       (users->is_keyed || !kvpull_users_is_unknown(users, uid));
}

int kvpull_users_lack_key(const struct kvpull_users *users)
{
	return users->has_unknown && !users->is_keyed &&
	       is_listed(users, users->unknown);
}

const char *kvpull_users_doubt(const struct kvpull_users *users, uint32_t uid)
{
	if (!kvpull_users_is_unknown(users, uid))
		return "is not one of uids";
	return is_listed(users, uid) ?
		       "is any user that this user namespace does not map: set key_file at both ends" :
		       "is any user that this user namespace does not map: list it in uids and set key_file, at both ends";
}
