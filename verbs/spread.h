/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lanes of a peer as pace.h sees them, a rail each: which of them takes the
 * next batch of reads, how many bytes a batch has, and which lane is given up
 * because its reads are late.
 */
#ifndef KVPULL_VERBS_SPREAD_H
#define KVPULL_VERBS_SPREAD_H

#include "verbs/bundle.h"

/* The lane for the next batch; NULL: wait for one. stuck: places, by bit. */
struct kvpull_verbs_end *
kvpull_verbs_spread_pick(const struct kvpull_verbs_bundle *bundle,
			 uint64_t bytes, uint32_t stuck);
/* Bytes of one batch by this lane of a read of so many. end NULL: a fast one. */
uint64_t kvpull_verbs_spread_share(const struct kvpull_verbs_bundle *bundle,
				   const struct kvpull_verbs_end *end,
				   uint64_t byte_count);
/* A batch of reads is about to be posted. */
void kvpull_verbs_spread_post(struct kvpull_verbs_end *end);
/* A batch is complete, and not in flight any more. */
void kvpull_verbs_spread_done(struct kvpull_verbs_end *end, uint64_t bytes);
/*
 * Loses lanes whose reads are late. A late answer is ignored like that of any
 * lost lane: its reads go by others when nothing can land through it any more.
 */
void kvpull_verbs_spread_cut(struct kvpull_verbs_bundle *bundle);
/* When a lane is late, if nothing completes; UINT64_MAX: never. */
uint64_t kvpull_verbs_spread_due_ns(const struct kvpull_verbs_bundle *bundle);

#endif /* KVPULL_VERBS_SPREAD_H */
