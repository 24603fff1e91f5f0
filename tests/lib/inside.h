/* SPDX-License-Identifier: Apache-2.0 */
/* Access of tests to the insides of both halves. */
#ifndef KVPULL_TESTS_LIB_INSIDE_H
#define KVPULL_TESTS_LIB_INSIDE_H

#include "plugin/hold/hold.h"
#include "plugin/progress/progress.h"
#include "plugin/scheduler/scheduler.h"

/*
 * Digest of all state but generations and counters: equal to that of a fresh
 * table when nothing is held, staged, joined or unreported.
 */
uint64_t kvpull_holds_digest(const struct kvpull_holds *holds);
/* Likewise, and without sequences. */
uint64_t kvpull_scheduler_digest(const struct kvpull_scheduler *scheduler);

/* Pulls that run. Neither of these two while the thread does. */
uint32_t kvpull_progress_pulls(const struct kvpull_progress *progress);
/* 1 if a ticket of that rank is claimed, its last word not taken. */
int kvpull_progress_owes(const struct kvpull_progress *progress, uint32_t slot,
			 uint64_t generation, uint64_t incarnation);

#endif /* KVPULL_TESTS_LIB_INSIDE_H */
