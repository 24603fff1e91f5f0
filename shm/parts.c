/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: no more than KVPULL_MESSAGE_BYTES_MAX bytes and
 * KVPULL_ENDPOINT_FDS_MAX descriptors are ever kept of one peer, however many
 * messages they belong to.
 */
#include "shm/parts.h"

#include <string.h>
#include <sys/socket.h>

#include "base/least.h"

_Static_assert(sizeof(KVPULL_PARTS_MORE) == KVPULL_PARTS_WORD_BYTES + 1 &&
		       sizeof(KVPULL_PARTS_LAST) == sizeof(KVPULL_PARTS_MORE),
	       "words of one length");

int kvpull_parts_send(int fd, const struct kvpull_message *message,
		      const struct kvpull_log *log)
{
	/* All parts are on their way at once: with the kernel's own share. */
	const int room_bytes = 2 * KVPULL_MESSAGE_BYTES_MAX;
	const uint8_t *bytes = message->bytes;
	size_t bytes_left = message->byte_count;
	uint32_t fds_left = message->fd_count;
	struct kvpull_message part;
	int code = 0;

	if (bytes_left > KVPULL_MESSAGE_BYTES_MAX ||
	    (bytes_left <= KVPULL_PACKET_BYTES_MAX &&
	     fds_left <= KVPULL_PACKET_FDS_MAX))
		return kvpull_endpoint_send(fd, message, log);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room_bytes,
			 sizeof(room_bytes));
	while (!code && (bytes_left || fds_left)) {
		part = (struct kvpull_message){
			.word = KVPULL_PARTS_MORE,
			.bytes = bytes + (message->byte_count - bytes_left),
			.byte_count = kvpull_least(bytes_left,
						   KVPULL_PARTS_PIECE_BYTES),
			.fds = message->fds + (message->fd_count - fds_left),
			.fd_count = (uint32_t)kvpull_least(
				fds_left, KVPULL_PACKET_FDS_MAX),
		};
		bytes_left -= part.byte_count;
		fds_left -= part.fd_count;
		if (!bytes_left && !fds_left)
			part.word = KVPULL_PARTS_LAST;
		code = kvpull_endpoint_send(fd, &part, log);
	}
	return code;
}

static int begins_with(const uint8_t *bytes, int byte_count, const char *word)
{
	return byte_count >= (int)KVPULL_PARTS_WORD_BYTES &&
	       !memcmp(bytes, word, KVPULL_PARTS_WORD_BYTES);
}

/* A packet that came with so many descriptors; as kvpull_parts_receive(). */
static int packet_take(struct kvpull_parts *parts, uint8_t *bytes,
		       int byte_count, uint32_t fd_count)
{
	const int is_last = begins_with(bytes, byte_count, KVPULL_PARTS_LAST);
	const uint32_t piece_bytes =
		(uint32_t)byte_count - KVPULL_PARTS_WORD_BYTES;

	if (!is_last && !begins_with(bytes, byte_count, KVPULL_PARTS_MORE)) {
		parts->fds_ended = fd_count > 0;
		return byte_count;
	}
	if (piece_bytes > KVPULL_MESSAGE_BYTES_MAX - parts->byte_count ||
	    (!is_last && piece_bytes < KVPULL_PARTS_PIECE_BYTES &&
	     fd_count < KVPULL_PACKET_FDS_MAX))
		return KVPULL_EPROTO;
	memcpy(parts->bytes + parts->byte_count,
	       bytes + KVPULL_PARTS_WORD_BYTES, piece_bytes);
	parts->byte_count += piece_bytes;
	if (!is_last)
		return 0;
	parts->fds_ended = 1;
	memcpy(bytes, parts->bytes, parts->byte_count);
	return parts->byte_count ? (int)parts->byte_count : KVPULL_EPROTO;
}

int kvpull_parts_receive(struct kvpull_parts *parts, int fd, uint8_t *bytes)
{
	uint32_t fd_count = (uint32_t)kvpull_least(KVPULL_ENDPOINT_FDS_MAX -
							   parts->fd_count,
						   KVPULL_PACKET_FDS_MAX);
	int received;

	if (parts->fds_ended)
		return kvpull_endpoint_receive(fd, bytes, NULL, NULL);
	received = kvpull_endpoint_receive(
		fd, bytes, parts->fds + parts->fd_count, &fd_count);
	if (received <= 0)
		return received;
	parts->fd_count += fd_count;
	return packet_take(parts, bytes, received, fd_count);
}
