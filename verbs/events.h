/* SPDX-License-Identifier: Apache-2.0 */
/* The events of one poll. */
#ifndef KVPULL_VERBS_EVENTS_H
#define KVPULL_VERBS_EVENTS_H

#include "base/transport.h"

struct kvpull_verbs_events {
	struct kvpull_event *events; /* [capacity] */
	uint32_t capacity;
	uint32_t count;
};

static inline uint32_t
kvpull_verbs_events_room(const struct kvpull_verbs_events *events)
{
	return events->capacity - events->count;
}

/* A zeroed event; there is room. */
static inline struct kvpull_event *
kvpull_verbs_events_add(struct kvpull_verbs_events *events,
			enum kvpull_event_kind kind)
{
	struct kvpull_event *event = &events->events[events->count++];

	*event = (struct kvpull_event){ .kind = kind };
	return event;
}

#endif /* KVPULL_VERBS_EVENTS_H */
