/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Out of descriptors or memory: that is ours and not the peer's, and it passes.
 * So whatever fails for it is to be tried again, and one line a second says so.
 */
#ifndef KVPULL_SHM_SHORTAGE_H
#define KVPULL_SHM_SHORTAGE_H

#include <stdint.h>

#include "base/cause.h"
#include "base/log.h"

struct kvpull_shortage {
	const struct kvpull_log *log;
	uint64_t now_ns; /* of the last poll */
	uint64_t said_ns;
};

/* 1: that errno is a shortage; 0: it is something else. */
int kvpull_errno_is_shortage(int error);

/* Say so, with errno, and return KVPULL_EAGAIN. call: what was refused. */
int kvpull_shortage(struct kvpull_shortage *shortage, const char *what,
		    enum kvpull_call call);

#endif /* KVPULL_SHM_SHORTAGE_H */
