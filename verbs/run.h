/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bundle's share of a poll: completions, frames, deadlines and ends of its
 * lanes.
 */
#ifndef KVPULL_VERBS_RUN_H
#define KVPULL_VERBS_RUN_H

#include "base/events.h"
#include "verbs/connect.h"
#include "verbs/read.h"

struct kvpull_verbs_run {
	struct kvpull_verbs_connect *connect;
	struct kvpull_verbs_reads *reads;
	struct kvpull_events *events;
};

/* Return: 1 if there may be more to do at once. */
int kvpull_verbs_bundle_run(const struct kvpull_verbs_run *run,
			    struct kvpull_verbs_bundle *bundle);
/* When it has something due by itself; UINT64_MAX: never. */
uint64_t kvpull_verbs_bundle_due_ns(const struct kvpull_verbs_bundle *bundle);
/* Before the owner sleeps. Return: 1 if a poll now may find something. */
int kvpull_verbs_bundle_arm(struct kvpull_verbs_bundle *bundle);
/* Return: 1 if something came since then, and its event is unread. */
int kvpull_verbs_bundle_rings(const struct kvpull_verbs_bundle *bundle);

#endif /* KVPULL_VERBS_RUN_H */
