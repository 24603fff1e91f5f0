/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges callers of our socket at accept, before they take a place: users by
 * the list, and no more callers than leave the engine its descriptors.
 * Rejections are counted, and logged once a second at most.
 */
#ifndef KVPULL_SHM_GATE_H
#define KVPULL_SHM_GATE_H

#include <stdint.h>

#include "base/log.h"
#include "base/users.h"

/*
 * Callers that wait to be let in: in all, of one user, of one process. The
 * next one takes the place of the one that has waited longest, once that had
 * KVPULL_GATE_GRACE_NS for its hello; before, it is to call again.
 */
#define KVPULL_GATE_WAITING_MAX 64u
#define KVPULL_GATE_USER_MAX 32u
#define KVPULL_GATE_PROCESS_MAX 8u
#define KVPULL_GATE_GRACE_NS (50 * UINT64_C(1000000))
/*
 * The engine keeps a quarter of the soft limit of descriptors, at most this
 * many.
 */
#define KVPULL_GATE_RESERVE_MAX 1024u

struct kvpull_gate {
	const struct kvpull_log *log;
	_Atomic uint64_t *refused; /* counts; NULL: nobody asks */
	struct kvpull_users users; /* who may call */
	uint32_t strangers;        /* since the last line */
	uint64_t stranger_said_ns;
	uint64_t crowd_said_ns;
	uint64_t reserve_said_ns;
};

/* 1: the user is let in; 0: it is not, which was counted and said. */
int kvpull_gate_knows(struct kvpull_gate *gate, uint32_t uid, uint64_t now_ns);
/* More than may wait; user: whose caller is turned away. */
void kvpull_gate_crowd(struct kvpull_gate *gate, uint32_t uid, uint64_t now_ns);
/*
 * The kernel gives the lowest free descriptor: one this high means that all
 * below it are in use. 1: it is of those kept for the engine (said), close it;
 * 0 also for -1.
 */
int kvpull_gate_reserves(struct kvpull_gate *gate, int fd, uint64_t now_ns);

#endif /* KVPULL_SHM_GATE_H */
