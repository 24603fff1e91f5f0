/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of one poll, and the buffers that their messages lie in until the
 * next one.
 */
#ifndef KVPULL_SHM_BATCH_H
#define KVPULL_SHM_BATCH_H

#include "base/events.h"
#include "shm/wait.h"

struct kvpull_shm_batch {
	struct kvpull_events told;
	uint64_t now_ns;
	uint8_t *buffers; /* [KVPULL_WAIT_BATCH_MAX][KVPULL_MESSAGE_BYTES_MAX] */
	uint32_t buffers_used; /* one a ready socket, so there are enough */
};

/* The next message's buffer; it is taken when the message is added. */
static inline uint8_t *
kvpull_shm_batch_buffer(const struct kvpull_shm_batch *batch)
{
	return batch->buffers +
	       (size_t)batch->buffers_used * KVPULL_MESSAGE_BYTES_MAX;
}

static inline void kvpull_shm_batch_message(struct kvpull_shm_batch *batch,
					    enum kvpull_event_kind kind,
					    uint32_t index, uint32_t uid,
					    size_t byte_count)
{
	struct kvpull_event *event =
		kvpull_events_add(&batch->told, kind, index);

	event->uid = uid;
	event->data = kvpull_shm_batch_buffer(batch);
	event->data_bytes = byte_count;
	batch->buffers_used++;
}

#endif /* KVPULL_SHM_BATCH_H */
