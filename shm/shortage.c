/* SPDX-License-Identifier: Apache-2.0 */
/* Peers can cause what is said here: each line comes once a second at most. */
#include "shm/shortage.h"

#include <errno.h>

#include "base/clock.h"

int kvpull_errno_is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM ||
	       error == ENOBUFS || error == ENOSPC || error == ETOOMANYREFS;
}

int kvpull_shortage(struct kvpull_shortage *shortage, const char *what,
		    enum kvpull_call call)
{
	const int error = errno;
	struct kvpull_cause cause;

	if (kvpull_second_passed(&shortage->said_ns, shortage->now_ns))
		kvpull_warn(shortage->log, "%s: %s; it is tried again", what,
			    kvpull_cause_of(&cause, call, error));
	return KVPULL_EAGAIN;
}
