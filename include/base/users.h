/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users whom we believe, by the uid that the kernel gives for a process or a file.
 *
 * A user namespace has uids of its own. All users of the machine that it does not
 * map have one uid in it, the overflow uid (65534): that uid proves nothing, though
 * it may be mapped, too, as a container's nobody is. Only where all uids of the
 * machine are mapped it is one user.
 */
#ifndef KVPULL_BASE_USERS_H
#define KVPULL_BASE_USERS_H

#include <stdint.h>

struct kvpull_users {
	const uint32_t *uids; /* [uid_count]; there as long as the users are */
	uint32_t uid_count;   /* 0: our own user alone */
	uint32_t has_unknown; /* 1: many users may have the uid `unknown` */
	uint32_t unknown;
	uint32_t is_keyed; /* 1: a key proves who a peer is, behind its uid */
};

/* From the texts of /proc/self/uid_map and /proc/sys/kernel/overflowuid. */
void kvpull_users_parse(struct kvpull_users *users, const char *uid_map,
			const char *overflow_uid);
/*
 * Looks at this process. Where /proc cannot be read, 65534 stands for many
 * users.
 */
void kvpull_users_look(struct kvpull_users *users);

/* 1: the uid may be that of any user whom this user namespace does not know. */
int kvpull_users_is_unknown(const struct kvpull_users *users, uint32_t uid);
/* 1: a peer of this uid is one of the users, or shows by the key that it is. */
int kvpull_users_believe(const struct kvpull_users *users, uint32_t uid);
/* 1: the list has the uid of unknown users, none of whom is believed without a key. */
int kvpull_users_lack_key(const struct kvpull_users *users);
/* Why a peer of this uid is not believed, and what to do: behind "user 7 ". */
const char *kvpull_users_doubt(const struct kvpull_users *users, uint32_t uid);

#endif /* KVPULL_BASE_USERS_H */
