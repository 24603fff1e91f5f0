/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preference of GID types, worst first. The route takes the best, and
 * kvpull_doctor says which that would be.
 */
#ifndef KVPULL_VERBS_GID_H
#define KVPULL_VERBS_GID_H

enum kvpull_gid_rank {
	KVPULL_GID_NONE = 0,
	KVPULL_GID_V1,
	KVPULL_GID_LINK_LOCAL,
	KVPULL_GID_INFINIBAND,
	KVPULL_GID_IPV6,
	KVPULL_GID_IPV4,
	KVPULL_GID_RANKS
};

static inline const char *kvpull_gid_rank_name(enum kvpull_gid_rank rank)
{
	static const char *const names[KVPULL_GID_RANKS] = {
		"none",       "RoCE v1",      "RoCE v2 link-local",
		"InfiniBand", "RoCE v2 IPv6", "RoCE v2 IPv4",
	};

	return names[rank];
}

#endif /* KVPULL_VERBS_GID_H */
