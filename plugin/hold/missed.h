/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time that a producer missed, so that a stalled one does not expire the living
 * (semantics B.4). Pure.
 *
 * With a progress thread: the time in which neither a poll nor that thread ran,
 * where it was more than a third of a lease. It moves all leases and graces.
 * Without one, by gaps between polls: more than a lease moves them by all of the
 * gap. From a third of a lease to a lease moves nothing; for one lease after
 * such a gap what is due is judged that much later: the longest of these gaps,
 * never their sum.
 * Leases and graces run on the lease clock, now - shift, which stands still for
 * the time that was missed. hold_max runs on plain time.
 */
#ifndef KVPULL_PLUGIN_MISSED_H
#define KVPULL_PLUGIN_MISSED_H

#include <stdint.h>

#include "plugin/bytes/handshake.h"

#define KVPULL_NO_THREAD UINT64_MAX

/* Gaps that end within one lease, each of them longer than a third. */
#define KVPULL_GAPS_MAX KVPULL_BEATS_A_LEASE

struct kvpull_missed_gap {
	uint64_t gap_ns;
	uint64_t until_ns; /* a lease after its end */
};

struct kvpull_missed {
	uint64_t lease_ns;
	uint64_t looked_ns;  /* start of the next gap */
	uint64_t shift_ns;   /* sum of what moved leases and graces */
	uint64_t stopped_ns; /* the progress thread's stops until looked_ns */
	struct kvpull_missed_gap gaps[KVPULL_GAPS_MAX];
	uint32_t gap_next;
};

/*
 * Time has come to now_ns. stopped_ns: the time of all stops of the progress
 * thread so far (kvpull_handover_stopped()), or KVPULL_NO_THREAD. is_poll: a
 * poll begins; else this is a call between polls, or a later moment of one.
 */
void kvpull_missed_pass(struct kvpull_missed *missed, uint64_t now_ns,
			uint64_t stopped_ns, int is_poll);

/*
 * How much later leases and graces are judged at now_ns; *until_ns: no sooner
 * than then it may be less, UINT64_MAX: it is 0.
 */
uint64_t kvpull_missed_late(const struct kvpull_missed *missed, uint64_t now_ns,
			    uint64_t *until_ns);

/*
 * The first time at which a lease or a grace that ends at due_ns (now_ns's time,
 * not the lease clock's) may be judged to have ended, as far as now_ns knows.
 */
uint64_t kvpull_missed_judged_ns(const struct kvpull_missed *missed,
				 uint64_t due_ns, uint64_t now_ns);

static inline uint64_t kvpull_missed_clock(const struct kvpull_missed *missed,
					   uint64_t now_ns)
{
	return now_ns > missed->shift_ns ? now_ns - missed->shift_ns : 0;
}

#endif /* KVPULL_PLUGIN_MISSED_H */
