/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a peer is called again. Pure: no I/O, no clock, no memory of its own.
 *
 * A fault (nobody answered, the connection broke) is an attempt. Each next call
 * waits twice as long as the last one, and after KVPULL_RETRY_ATTEMPTS_MAX the
 * peer is given up.
 * A shortage (KVPULL_EAGAIN, KVPULL_EFULL, KVPULL_ENOMEM: no room there or here)
 * passes, and is never an attempt: the waits double to KVPULL_RETRY_WAIT_NS_MAX,
 * for as long as the peer is wanted.
 * Connections that come up and break soon, as where small messages pass and large
 * ones do not, are made less and less often: the waits double to 5.12 s. A peer
 * that was given up meanwhile begins with the last wait.
 * All begin anew when a connection stayed up for connect_ms.
 */
#ifndef KVPULL_PLUGIN_SESSION_RETRY_H
#define KVPULL_PLUGIN_SESSION_RETRY_H

#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"

#define KVPULL_RETRY_NS (10 * KVPULL_NS_PER_MS) /* the first wait */
#define KVPULL_RETRY_ATTEMPTS_MAX 6u            /* doubling: 0.6 s in all */
#define KVPULL_RETRY_WAIT_NS_MAX (160 * KVPULL_NS_PER_MS)
#define KVPULL_RETRY_BREAKS_MAX 9u /* doubling: 5.12 s */

struct kvpull_retry {
	uint64_t at_ns;    /* the next call, not before */
	uint64_t up_ns;    /* the last connection came up */
	uint64_t wait_ns;  /* last wait of the shortages in a row; 0: none */
	uint32_t attempts; /* faults in a row */
	uint32_t breaks;   /* connections in a row that broke soon */
};

/* 1: this error passes, and says nothing of the peer. */
int kvpull_retry_is_shortage(int32_t code);

/*
 * A call failed. Return: 0, and at_ns is the next one; KVPULL_EPEER: it was the
 * last attempt.
 */
int KVPULL_MUST_CHECK kvpull_retry_failed(struct kvpull_retry *retry,
					  int32_t code, uint64_t now_ns);

/*
 * A connection that was up since up_ns ended with this code. One that stayed up
 * for connect_ns, or that we cut ourselves (KVPULL_EABORTED), is made again at
 * once; any other end is a fault. Return: as kvpull_retry_failed().
 */
int KVPULL_MUST_CHECK kvpull_retry_lost(struct kvpull_retry *retry,
					int32_t code, uint64_t connect_ns,
					uint64_t now_ns);

#endif /* KVPULL_PLUGIN_SESSION_RETRY_H */
