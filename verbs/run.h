/* SPDX-License-Identifier: Apache-2.0 */
/* One endpoint's share of a poll: its completions, frames, times and end. */
#ifndef KVPULL_VERBS_RUN_H
#define KVPULL_VERBS_RUN_H

#include "verbs/endpoint.h"
#include "verbs/events.h"
#include "verbs/read.h"

/* Return: 1 if there may be more to do at once. */
int kvpull_verbs_end_run(struct kvpull_verbs_reads *reads,
			 struct kvpull_verbs_end *end,
			 struct kvpull_verbs_events *events);
/* When it has something due by itself; UINT64_MAX: never. */
uint64_t kvpull_verbs_end_due_ns(const struct kvpull_verbs_end *end);
/* Before the owner sleeps. Return: 1 if a poll now may find something. */
int kvpull_verbs_end_arm(struct kvpull_verbs_end *end);

#endif /* KVPULL_VERBS_RUN_H */
