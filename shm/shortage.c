/* SPDX-License-Identifier: Apache-2.0 */
/* Peers can cause what is said here: each line comes once a second at most. */
#include "shm/shortage.h"

#include <errno.h>
#include <string.h>

int kvpull_errno_is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM ||
	       error == ENOBUFS || error == ENOSPC || error == ETOOMANYREFS;
}

int kvpull_second_passed(uint64_t *said_ns, uint64_t now_ns)
{
	if (*said_ns && now_ns - *said_ns < KVPULL_NS_PER_S)
		return 0;
	*said_ns = now_ns ? now_ns : 1;
	return 1;
}

int kvpull_shortage(struct kvpull_shortage *shortage, const char *what,
		    int error)
{
	if (kvpull_second_passed(&shortage->said_ns, shortage->now_ns))
		kvpull_warn(shortage->log, "%s: %s; it is tried again%s", what,
			    strerror(error),
			    error == EMFILE || error == ETOOMANYREFS ?
				    " (ulimit -n)" :
				    "");
	return KVPULL_EAGAIN;
}
