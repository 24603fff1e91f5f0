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

#include "verbs/endpoint.h"

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
/* As _is_in(), by lanes of other devices than this one. */
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
