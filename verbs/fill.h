/* SPDX-License-Identifier: Apache-2.0 */
/* The work requests of a batch of data, in the reads' own table of them. */
#ifndef KVPULL_VERBS_FILL_H
#define KVPULL_VERBS_FILL_H

#include "verbs/reads.h"

/* Bounds of a slice that goes by this end. */
struct kvpull_slice_limits
kvpull_verbs_fill_limits(const struct kvpull_verbs_end *end);
/*
 * Fill a batch from the cursor on, which goes to behind it. Return: its work
 * requests, count_max at most.
 */
uint32_t kvpull_verbs_fill(struct kvpull_verbs_reads *reads,
			   const struct kvpull_verbs_end *end,
			   const struct kvpull_verbs_read *own,
			   struct kvpull_cursor *cursor, uint32_t count_max);

#endif /* KVPULL_VERBS_FILL_H */
