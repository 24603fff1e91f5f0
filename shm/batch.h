/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of one poll, and the buffers that their messages lie in until the
 * next one.
 */
#ifndef KVPULL_SHM_BATCH_H
#define KVPULL_SHM_BATCH_H

#include "base/transport.h"
#include "shm/wait.h"

struct kvpull_shm_batch {
	struct kvpull_event *events;
	uint32_t count;
	uint32_t capacity;
	uint64_t now_ns;
	uint8_t *buffers; /* [KVPULL_WAIT_BATCH_MAX][KVPULL_MESSAGE_BYTES_MAX] */
	uint32_t buffers_used; /* one a ready socket, so there are enough */
};

static inline uint32_t
kvpull_shm_batch_room(const struct kvpull_shm_batch *batch)
{
	return batch->capacity - batch->count;
}

/* The caller has made sure that there is room. */
static inline struct kvpull_event *
kvpull_shm_batch_add(struct kvpull_shm_batch *batch,
		     enum kvpull_event_kind kind, uint32_t index)
{
	struct kvpull_event *event = &batch->events[batch->count++];

	*event = (struct kvpull_event){ .kind = kind, .index = index };
	return event;
}

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
	struct kvpull_event *event = kvpull_shm_batch_add(batch, kind, index);

	event->uid = uid;
	event->data = kvpull_shm_batch_buffer(batch);
	event->data_bytes = byte_count;
	batch->buffers_used++;
}

#endif /* KVPULL_SHM_BATCH_H */
