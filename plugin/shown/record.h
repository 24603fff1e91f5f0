/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of a worker's threads: stores into memory that they were given, and
 * nothing else. Pure: no clock and no system call, so that pure rooms can use
 * them. Each side belongs to one thread.
 */
#ifndef KVPULL_PLUGIN_SHOWN_RECORD_H
#define KVPULL_PLUGIN_SHOWN_RECORD_H

#include <string.h>

#include "plugin/shown/layout.h"

struct kvpull_status_side {
	struct kvpull_status_thread *thread;
	/* [KVPULL_STATUS_EVENTS]; NULL: nobody can look, and nothing is noted */
	struct kvpull_status_event *events;
	uint64_t event_next;
};

/* Rows of the hold table. */
struct kvpull_status_holds {
	struct kvpull_status_hold *rows;    /* [max_holds] */
	struct kvpull_status_hold_now *now; /* likewise */
	_Atomic uint64_t *held;             /* [max_holds / 64 + 1] */
	struct kvpull_status_side *side;    /* NULL: nobody can look */
};

/* A statistic with one writer: it orders nothing. */
#define kvpull_status_set(word, value)                                         \
	atomic_store_explicit(word, value, memory_order_relaxed)
#define kvpull_status_get(word) atomic_load_explicit(word, memory_order_relaxed)
#define kvpull_status_add(word, more)                                          \
	kvpull_status_set(word, kvpull_status_get(word) + (more))

/* Whether anybody can look. Without, what the hot paths would store is not. */
static inline int kvpull_status_is_on(const struct kvpull_status_side *side)
{
	return side->events != NULL;
}

/* The thread begins a run. */
static inline void kvpull_status_ran(const struct kvpull_status_side *side,
				     uint64_t now_ns)
{
	if (kvpull_status_is_on(side))
		kvpull_status_set(&side->thread->ran_ns, now_ns);
}

/* An event; slot, generation and who name the request on both sides. */
struct kvpull_status_note {
	uint64_t at_ns;
	uint64_t generation;
	uint64_t who;
	uint32_t slot;
	enum kvpull_status_what what;
	int32_t arg; /* 0 .. 65535 are kept; of a code its negative */
};

static inline void kvpull_status_note(struct kvpull_status_side *side,
				      const struct kvpull_status_note *note)
{
	struct kvpull_status_event *event;

	if (!kvpull_status_is_on(side))
		return;
	event = &side->events[side->event_next % KVPULL_STATUS_EVENTS];
	kvpull_status_set(&event->at_ns, note->at_ns);
	kvpull_status_set(&event->generation, note->generation);
	kvpull_status_set(&event->who, note->who);
	kvpull_status_set(&event->what,
			  note->slot | (uint64_t)note->what << 32 |
				  (uint64_t)(uint16_t)note->arg << 48);
	side->event_next++;
	/* Whole before it is counted: pairs with the reader's acquire. */
	atomic_store_explicit(&side->thread->event_count, side->event_next,
			      memory_order_release);
}

static inline void kvpull_status_took(const struct kvpull_status_side *side,
				      enum kvpull_status_times which,
				      uint64_t took_ns, uint64_t times)
{
	const uint32_t bucket =
		took_ns ? 63u - (uint32_t)__builtin_clzll(took_ns) : 0;

	if (!kvpull_status_is_on(side))
		return;
	kvpull_status_add(&side->thread->times[which][bucket], times);
	kvpull_status_add(&side->thread->time_sums[which], took_ns * times);
}

static inline void kvpull_status_failed(const struct kvpull_status_side *side,
					int32_t code)
{
	if (kvpull_status_is_on(side) && code < 0 &&
	    code > -(int32_t)KVPULL_STATUS_CODES)
		kvpull_status_add(&side->thread->failures[-code], 1);
}

/* A reader of the file may see half of it: it checks it, and shows it no more. */
static inline void kvpull_status_text(char *to, size_t bytes, const char *text)
{
	memset(to, 0, bytes);
	memcpy(to, text, strnlen(text, bytes - 1));
}

/* The row is another peer's from here on: what is counted there begins anew. */
static inline void kvpull_status_peer_new(struct kvpull_status_peer *row,
					  const char *route,
					  const char *address, const char *why)
{
	kvpull_status_set(&row->bytes, 0);
	kvpull_status_set(&row->pulls, 0);
	kvpull_status_set(&row->failures, 0);
	kvpull_status_set(&row->up_ns, 0);
	/* No small pull has copied from this peer yet. */
	kvpull_status_set(&row->small_bytes, 0);
	kvpull_status_set(&row->small_pulls, 0);
	row->pid = 0;
	row->engine_id[0] = '\0';
	kvpull_status_text(row->route, sizeof(row->route), route);
	kvpull_status_text(row->address, sizeof(row->address), address);
	kvpull_status_text(row->why, sizeof(row->why), why);
}

/* label: at most KVPULL_STATUS_LABEL_BYTES with its NUL. */
static inline void kvpull_status_label(_Atomic uint64_t *words,
				       const char *label)
{
	uint64_t copy[KVPULL_STATUS_LABEL_BYTES / 8] = { 0 };
	uint32_t at;

	memcpy(copy, label, strnlen(label, sizeof(copy) - 1));
	for (at = 0; at < KVPULL_STATUS_LABEL_BYTES / 8; at++)
		kvpull_status_set(&words[at], copy[at]);
}

static inline void kvpull_status_label_get(const _Atomic uint64_t *words,
					   char *label)
{
	uint64_t copy[KVPULL_STATUS_LABEL_BYTES / 8];
	uint32_t at;

	for (at = 0; at < KVPULL_STATUS_LABEL_BYTES / 8; at++)
		copy[at] = kvpull_status_get(&words[at]);
	memcpy(label, copy, sizeof(copy));
	label[KVPULL_STATUS_LABEL_BYTES - 1] = '\0';
}

#endif /* KVPULL_PLUGIN_SHOWN_RECORD_H */
