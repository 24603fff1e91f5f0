/* SPDX-License-Identifier: Apache-2.0 */
/* The events of one poll. */
#ifndef KVPULL_BASE_EVENTS_H
#define KVPULL_BASE_EVENTS_H

#include "base/transport.h"

struct kvpull_events {
	struct kvpull_event *list; /* [capacity] */
	uint32_t capacity;
	uint32_t count;
};

static inline uint32_t kvpull_events_room(const struct kvpull_events *events)
{
	return events->capacity - events->count;
}

/* An event that is zero but for its kind and index; there is room. */
static inline struct kvpull_event *
kvpull_events_add(struct kvpull_events *events, enum kvpull_event_kind kind,
		  uint32_t index)
{
	struct kvpull_event *event = &events->list[events->count++];

	*event = (struct kvpull_event){ .kind = kind, .index = index };
	return event;
}

#endif /* KVPULL_BASE_EVENTS_H */
