/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle is the connection to one other process: by each rail there are lanes,
 * a queue pair each, as many as both sides allow. The owner of the seam sees
 * bundles only.
 *
 * state    peer (consumer's side)              caller (producer's side)
 * FREE     -                                   -
 * MEETING  connect(): one lane; another rail's a request was accepted;
 *          is tried if it fails before it spoke CALLER_UP, handshake
 * IN       attach(): the other lanes join,     admit(): lanes that show its
 *          and join again when they were lost  token join
 * ENDING   no lane is left, or all are given up; each is flushed; reads end,
 *          then PEER_DOWN                      CALLER_DOWN
 * DOWN     -                                   admitted, reported: forget()
 * GONE     reported, or the owner never knew: free at next poll
 *
 * Frames go by one lane, the first; when it is lost, by another that is in.
 * Notifications are numbered, and kept until they are acknowledged. The new first
 * lane repeats the others, and the receiver takes each number once, from
 * whichever lane it comes.
 *
 * A lane joins by the token of its bundle, which the producer drew when it let
 * the consumer in: so a lane that is rebuilt leads to the same incarnation. If
 * it does not, all of the bundle ends.
 */
#ifndef KVPULL_VERBS_BUNDLE_H
#define KVPULL_VERBS_BUNDLE_H

#include "base/ring.h"
#include "base/turns.h"
#include "verbs/endpoint.h"

enum kvpull_verbs_bundle_state {
	KVPULL_BUNDLE_FREE = 0,
	KVPULL_BUNDLE_MEETING,
	KVPULL_BUNDLE_IN,
	KVPULL_BUNDLE_ENDING,
	KVPULL_BUNDLE_DOWN,
	KVPULL_BUNDLE_GONE
};

/* Where the other side is reached by one of the own rails. */
struct kvpull_verbs_way {
	struct kvpull_verbs_address address;
	uint32_t known;
};

struct kvpull_verbs_bundle {
	struct kvpull_verbs_shared *shared;
	enum kvpull_verbs_role role;
	uint32_t index;                /* the seam's handle */
	struct kvpull_verbs_end *ends; /* [shared->lane_count] */
	struct kvpull_record *notes;   /* peers: [notify_credits] */
	void *ring_memory;             /* callers */
	struct kvpull_turns turns;     /* peers: reads with something to post */

	/* From here on all is of one connection, and zero while it is FREE. */
	enum kvpull_verbs_bundle_state state;
	int32_t code;  /* ENDING: why */
	uint32_t told; /* the owner knows of it and is told its end */
	struct kvpull_verbs_give give; /* peers: what its only call is for */
	uint32_t greeted;   /* peers: the other side said something */
	uint32_t active_at; /* position among the active ones */
	uint32_t first;     /* place of the lane that frames go by */
	struct kvpull_verbs_way ways[KVPULL_VERBS_RAILS_MAX]; /* peers */
	struct kvpull_verbs_addresses addresses; /* peers: the other side's */
	uint64_t token[2]; /* callers: drawn; peers: as it was told */
	uint32_t qps; /* peers: lanes that it has places for, a rail of ours */
	/* callers: where they call from, and since when */
	struct kvpull_verbs_address from;
	uint64_t since_ns;
	/*
	 * callers: their notifications, which the engine's thread drains; the
	 * end that is written to is NULL until admit() let them in
	 */
	struct kvpull_ring_writer *ring;
	struct kvpull_ring ring_reader;
	struct kvpull_ring_writer ring_writer;

	/* notifications; numbers are free-running */
	uint32_t note_at;     /* the oldest that is not acknowledged */
	uint32_t note_number; /* its number */
	uint32_t note_count;
	uint32_t note_posted; /* of them, by the first lane */
	uint32_t note_next;   /* callers: the next one to take */

	/* peers: reads */
	uint32_t reads_open; /* not reported yet */
	uint32_t turn_place; /* of the lane that may post next */
	uint32_t jobs_open;  /* of the GPU's thread, for these */
	uint32_t redo_open;  /* batches of lost lanes, to be posted by others */
};

/* Takes the bundle's memory, once; shared, role, index and ends are set. */
int KVPULL_MUST_CHECK
kvpull_verbs_bundle_init(struct kvpull_verbs_bundle *bundle,
			 struct kvpull_arena *arena);
/* All its lanes' objects; it is FREE after. */
void kvpull_verbs_bundle_unmake(struct kvpull_verbs_bundle *bundle);

/* Ends the bundle; the first reason counts. why NULL: no log line. */
void kvpull_verbs_bundle_lose(struct kvpull_verbs_bundle *bundle, int code,
			      const char *why);
/* Frames go by a lane that is in. KVPULL_EPEER: there is none. */
int KVPULL_MUST_CHECK
kvpull_verbs_bundle_turn(struct kvpull_verbs_bundle *bundle);
/* May reads be posted to one of its lanes? */
int kvpull_verbs_bundle_is_in(const struct kvpull_verbs_bundle *bundle);
/* Likewise, without this device. */
int kvpull_verbs_bundle_has_other(const struct kvpull_verbs_bundle *bundle,
				  uint32_t device);
/* ENDING, and nothing can land any more. */
int kvpull_verbs_bundle_is_quiet(const struct kvpull_verbs_bundle *bundle);

/* Let what comes by this end read: its access, and the keys of its rail. */
int KVPULL_MUST_CHECK
kvpull_verbs_bundle_open(const struct kvpull_verbs_bundle *bundle,
			 struct kvpull_verbs_end *end);
/* The token that more lanes may join by, if there can be any. */
void kvpull_verbs_bundle_draw(struct kvpull_verbs_bundle *bundle);
/* The bundle of a token is this one. */
int kvpull_verbs_bundle_knows(const struct kvpull_verbs_bundle *bundle,
			      const uint64_t token[2]);
/* Keys came by one more lane of a bundle that is in. */
void kvpull_verbs_bundle_keys(struct kvpull_verbs_bundle *bundle,
			      struct kvpull_verbs_end *end);

/* As in the seam. */
int KVPULL_MUST_CHECK
kvpull_verbs_bundle_note(struct kvpull_verbs_bundle *bundle,
			 const struct kvpull_record *record);
uint32_t
kvpull_verbs_bundle_notes_open(const struct kvpull_verbs_bundle *bundle);
/* Say again by the first lane what a lost one may have swallowed. */
void kvpull_verbs_bundle_notes_pump(struct kvpull_verbs_bundle *bundle);

static inline struct kvpull_verbs_end *
kvpull_verbs_bundle_first(const struct kvpull_verbs_bundle *bundle)
{
	return &bundle->ends[bundle->first];
}

#endif /* KVPULL_VERBS_BUNDLE_H */
