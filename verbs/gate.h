/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers that wait to be let in, or say nothing at all: how many places they
 * may have, and who gives up its own for a new one.
 *
 * A flood is cut down to its address's share; within it, and among all, the one
 * that has waited longest goes. It had WAITING_NS for its hello, which is some
 * round trips: so whoever comes in good faith has the time, and a burst of
 * those is not a flood. A call that finds no place is told so, and is made
 * again.
 */
#ifndef KVPULL_VERBS_GATE_H
#define KVPULL_VERBS_GATE_H

#include "verbs/connect.h"

#define KVPULL_VERBS_WAITING_MAX KVPULL_VERBS_CALLERS_MORE
#define KVPULL_VERBS_WAITING_ADDRESS_MAX 16u
#define KVPULL_VERBS_WAITING_NS (50 * KVPULL_NS_PER_MS)

/* 1: as many callers as may have rings have one; no other is admitted. */
int kvpull_verbs_gate_is_full(const struct kvpull_verbs_connect *connect);

/* Counts another call from this address. 0 or KVPULL_EFULL. */
int KVPULL_MUST_CHECK
kvpull_verbs_gate_pass(const struct kvpull_verbs_connect *connect,
		       const struct kvpull_verbs_address *from);

#endif /* KVPULL_VERBS_GATE_H */
