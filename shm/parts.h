/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer's message that is larger than a packet, or has more descriptors
 * than a packet can carry, goes in parts. Each part but the last begins with
 * KVPULL_PARTS_MORE and is full, of bytes or of descriptors; the last one begins
 * with KVPULL_PARTS_LAST. What fits into one packet goes as it is: the owners'
 * messages begin with other bytes.
 *
 * So a hostile producer's parts are bounded in number by the largest message;
 * in time they are by connect_ns, as all that comes before attach() is.
 */
#ifndef KVPULL_SHM_PARTS_H
#define KVPULL_SHM_PARTS_H

#include "shm/endpoint.h"

#define KVPULL_PARTS_MORE "KVPmore:"
#define KVPULL_PARTS_LAST "KVPlast:"
#define KVPULL_PARTS_WORD_BYTES 8u
#define KVPULL_PARTS_PIECE_BYTES                                               \
	(KVPULL_PACKET_BYTES_MAX - KVPULL_PARTS_WORD_BYTES)

/* The parts of a message that have come so far. */
struct kvpull_parts {
	uint8_t *bytes; /* [KVPULL_MESSAGE_BYTES_MAX] */
	int *fds;       /* [KVPULL_ENDPOINT_FDS_MAX] */
	uint32_t byte_count;
	uint32_t fd_count;
	uint32_t fds_ended; /* no more descriptors are taken */
};

/* As kvpull_endpoint_send(), of up to KVPULL_MESSAGE_BYTES_MAX in all. */
int KVPULL_MUST_CHECK kvpull_parts_send(int fd,
					const struct kvpull_message *message,
					const struct kvpull_log *log);

/**
 * Receive a packet with its descriptors, which are added to parts->fds.
 *
 * @bytes  out; [KVPULL_MESSAGE_BYTES_MAX]: a message, when it is whole
 * Return: its bytes > 0; 0: nothing, or a part that is not the last; else as
 * kvpull_endpoint_receive(), and KVPULL_EPROTO for a part that breaks the rules.
 */
int KVPULL_MUST_CHECK kvpull_parts_receive(struct kvpull_parts *parts, int fd,
					   uint8_t *bytes);

#endif /* KVPULL_SHM_PARTS_H */
