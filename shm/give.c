/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/give.h"

#include "shm/peer.h"

int kvpull_shm_peer_give(struct kvpull_transport *transport,
			 const char *address, const void *bytes,
			 size_t byte_count, uint32_t *index)
{
	struct kvpull_shm_peers *peers = &kvpull_shm_of(transport)->peers;
	struct kvpull_shm_peer *peer;
	int code = kvpull_shm_peer_connect(transport, address, index);

	if (code)
		return code;
	peer = kvpull_shm_peer_at(peers, *index);
	peer->gives = 1;
	/* The producer was faster and has closed: call again. */
	if (kvpull_shm_peer_send(transport, *index, bytes, byte_count))
		kvpull_shm_peer_lose(peers, peer, KVPULL_EAGAIN);
	return 0;
}

void kvpull_shm_give_take(const struct kvpull_give_sink *sink, int fd,
			  uint8_t *scratch)
{
	int received;

	if (!sink->take)
		return;
	received = kvpull_endpoint_receive(fd, scratch, NULL, NULL);
	if (received > 0)
		kvpull_give_sink_take(sink, scratch, (size_t)received);
}
