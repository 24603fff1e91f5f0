/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/reads/judge.h"

#include "kvpull/connector.h"

int kvpull_guard_judge(enum kvpull_guard_kind kind,
		       const struct kvpull_revocation_value *guard,
		       uint64_t incarnation, uint64_t generation)
{
	const int is_same = guard->incarnation == incarnation;

	if (kind == KVPULL_GUARD_CHUNK)
		return is_same && guard->revoked + 1 == generation ?
			       0 :
			       KVPULL_ESTALE;
	if (!is_same || generation <= guard->revoked)
		return KVPULL_EEXPIRED;
	return kind == KVPULL_GUARD_WRITTEN && guard->ready < generation ?
		       KVPULL_EAGAIN :
		       0;
}
