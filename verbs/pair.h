/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue pair of an end and its transitions. They are made here and not by
 * librdmacm, which opens a queue pair to reads and writes as it is connected:
 * whoever is not let in yet could read, for as long as it takes to close it
 * again.
 */
#ifndef KVPULL_VERBS_PAIR_H
#define KVPULL_VERBS_PAIR_H

#include "verbs/state.h"

/*
 * Makes the queue pair of an endpoint that has its CQ, on an id that knows its
 * device; it accepts receives.
 */
int KVPULL_MUST_CHECK kvpull_verbs_pair_make(struct kvpull_verbs_end *end);
/* READs that the device sends, or answers, at once: its bounds are unlike. */
uint8_t kvpull_verbs_pair_reads(const struct kvpull_verbs_end *end);
/* To the other side, as the CM knows it: it receives and sends. */
int KVPULL_MUST_CHECK kvpull_verbs_pair_connect(struct kvpull_verbs_end *end);
/* The other side may read our memory from now on. */
int KVPULL_MUST_CHECK kvpull_verbs_pair_open(struct kvpull_verbs_end *end);
/* Nothing goes by it any more; what is in it is flushed. */
void kvpull_verbs_pair_stop(struct kvpull_verbs_end *end);
/* After this no write can land, whether or not it was flushed. */
void kvpull_verbs_pair_unmake(struct kvpull_verbs_end *end);

#endif /* KVPULL_VERBS_PAIR_H */
