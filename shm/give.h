/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that give tickets back: one message, which the producer takes whether it
 * would let us in or not, and the end.
 *
 * The consumer sends at once, before the producer has accepted. A producer that
 * turns the caller away reads the socket first, then closes it. The end tells
 * whether the message was read: the kernel reports a reset where it was not.
 */
#ifndef KVPULL_SHM_GIVE_H
#define KVPULL_SHM_GIVE_H

#include "base/transport.h"

/* As in the seam. */
int KVPULL_MUST_CHECK kvpull_shm_peer_give(struct kvpull_transport *transport,
					   const char *address,
					   const void *bytes, size_t byte_count,
					   uint32_t *index);
/*
 * Producer: what a caller that is turned away has sent already goes to the sink.
 * scratch: [KVPULL_PACKET_BYTES_MAX].
 */
void kvpull_shm_give_take(const struct kvpull_give_sink *sink, int fd,
			  uint8_t *scratch);

#endif /* KVPULL_SHM_GIVE_H */
