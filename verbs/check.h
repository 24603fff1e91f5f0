/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the entries of checks are read into: memory that the devices know, in
 * which an entry says "revoked" until a device has written it.
 */
#ifndef KVPULL_VERBS_CHECK_H
#define KVPULL_VERBS_CHECK_H

#include "verbs/reads.h"

/* The arena reports a shortage of memory. */
void kvpull_verbs_check_init(struct kvpull_verbs_reads *reads,
			     struct kvpull_arena *arena);
/* Registers the memory with one device: 0 or KVPULL_ENOMEM. */
int KVPULL_MUST_CHECK
kvpull_verbs_check_register(struct kvpull_verbs_reads *reads, uint32_t device);
void kvpull_verbs_check_deregister(struct kvpull_verbs_reads *reads,
				   uint32_t device);

/* The work request at this place: reads the entry of the read's n-th slot. */
void kvpull_verbs_check_fill(struct kvpull_verbs_reads *reads,
			     const struct kvpull_verbs_end *end,
			     const struct kvpull_read *read, uint32_t number,
			     uint32_t at);
/* Gives the entries that were read to the read's owner. */
void kvpull_verbs_check_give(const struct kvpull_verbs_reads *reads,
			     const struct kvpull_read *read);

#endif /* KVPULL_VERBS_CHECK_H */
