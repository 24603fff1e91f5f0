/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler half's side of holds: which slot is whose, and which ranks
 * have reported its end. A rank's own truth is in plugin/hold/hold.h.
 */
#ifndef KVPULL_PLUGIN_SLOT_H
#define KVPULL_PLUGIN_SLOT_H

#include "base/map.h"
#include "plugin/scheduler/family.h"
#include "plugin/scheduler/outbox.h"

#define KVPULL_LABEL_BYTES 48u /* of a request's label that logs keep */

struct kvpull_slot {
	uint64_t key;        /* 0: free */
	uint64_t generation; /* last given out */
	uint64_t reported;   /* bit a rank */
	uint64_t taken_ns;
	uint64_t parent_key;
	uint32_t text;
	int32_t end_reason; /* of the last END that was queued */
	uint32_t ending;    /* an END was queued: ranks know, or will */
	uint32_t silent;    /* its silence was logged */
	char label[KVPULL_LABEL_BYTES];
};

struct kvpull_slots {
	const struct kvpull_log *log;
	struct kvpull_slot *slots;
	struct kvpull_index_pool pool;
	struct kvpull_index_list live;   /* oldest first */
	struct kvpull_index_list ending; /* an END is to be put */
	struct kvpull_map by_key;
	struct kvpull_families *families;
	struct kvpull_texts *texts;
	uint64_t ranks_all; /* a bit for every rank */
	uint64_t ended;     /* counter */
};

struct kvpull_slot_take {
	uint64_t key;
	uint64_t parent_key; /* 0: no family */
	uint64_t generation;
	uint64_t now_ns;
	uint32_t text; /* its reference passes to the slot */
	uint32_t slot;
	const char *label;
};

void kvpull_slots_init(struct kvpull_slots *slots, uint32_t count_max,
		       struct kvpull_arena *arena);

/* The slot and generation that a take would get; KVPULL_EFULL. */
int KVPULL_MUST_CHECK kvpull_slots_peek(const struct kvpull_slots *slots,
					uint32_t slot_count, uint64_t floor,
					struct kvpull_slot_take *take);
/* Takes the slot and generation that _peek() returned. */
void kvpull_slots_take(struct kvpull_slots *slots,
		       const struct kvpull_slot_take *take);

/* The slot that holds this request, or KVPULL_NONE. */
uint32_t kvpull_slots_find(const struct kvpull_slots *slots, uint64_t key);

/*
 * A rank reported the end of a hold. Return: 0; KVPULL_ENOKEY: no such hold,
 * or this rank reported it before.
 */
int KVPULL_MUST_CHECK kvpull_slots_report(struct kvpull_slots *slots,
					  uint32_t rank,
					  const struct kvpull_result *result,
					  uint64_t now_ns);

/* Tell every rank to end this hold; once. */
void kvpull_slots_end(struct kvpull_slots *slots, uint32_t slot,
		      int32_t reason);
void kvpull_slots_end_all(struct kvpull_slots *slots, int32_t reason);

/* The rank has another worker: what the old one held is gone. */
void kvpull_slots_rank_restart(struct kvpull_slots *slots, uint32_t rank);

/* Put the waiting ENDs into the log, as far as there is room. */
void kvpull_slots_flush(struct kvpull_slots *slots,
			struct kvpull_outbox *outbox);

/*
 * 1: the oldest hold is older than max_ns, so a rank is silent. Logs which,
 * once.
 */
int kvpull_slots_are_old(struct kvpull_slots *slots, uint64_t max_ns,
			 uint64_t now_ns);

#endif /* KVPULL_PLUGIN_SLOT_H */
