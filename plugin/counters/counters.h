/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of both halves and of a reader, a row each. From a row come the
 * member that is counted in, the engine's value, its metric in kvpull_top and
 * the reference pages (make pages). Pure.
 *
 * X(name, kind, from, help)
 *   name  as engines know it, for ever. A present number ends in _live, _queued
 *         or _bytes, a peak in _max, a total in none of them.
 *   kind  TOTAL: a number of events. LIVE: a present number. PEAK: the largest
 *         since open.
 *   from  the counting part, and the member's name there:
 *         OWN       the half itself: worker->counts, scheduler->counts
 *         HOLDS     struct kvpull_hold_counts
 *         PROGRESS  struct kvpull_progress_counts
 *         WORKER, LOG, SLOTS, FAMILIES, DEMAND, OUTBOX, SHARE, REFUSED, ARENA
 *                   a member that is there for its own sake
 *   help  one line without a full stop
 *
 * A new counter is a row at the end of KVPULL_<half>_COUNTERS and the line that
 * counts: engines see it by counters().
 */
#ifndef KVPULL_PLUGIN_COUNTERS_H
#define KVPULL_PLUGIN_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "kvpull/connector.h"

/* clang-format off */
#define KVPULL_WORKER_COUNTERS(X) \
	X(holds_taken, TOTAL, HOLDS(taken), "Holds taken by this rank") \
	X(holds_released, TOTAL, HOLDS(released), "Holds ended by their consumers") \
	X(holds_expired, TOTAL, HOLDS(expired), "Holds ended by lease or hold_max") \
	X(holds_revoked, TOTAL, HOLDS(revoked), "Holds aborted, revoked or ended by another rank") \
	X(holds_live, LIVE, HOLDS(live), "Holds now") \
	X(staged_live, LIVE, HOLDS(staged), "Slots with early notifications now") \
	X(claims, TOTAL, HOLDS(claims), "Claims of consumers") \
	X(releases, TOTAL, HOLDS(releases), "Releases of consumers") \
	X(early, TOTAL, HOLDS(early), "Notifications that came before their hold") \
	X(duplicates, TOTAL, HOLDS(duplicates), "Releases that had come before") \
	X(unknown, TOTAL, HOLDS(unknown), "Notifications for no hold, dropped") \
	X(bad_tag, TOTAL, HOLDS(bad_tag), "Notifications with a wrong tag, dropped") \
	X(claims_over, TOTAL, HOLDS(claims_over), "Claims of an instance too many, not counted on") \
	X(consumers_live, LIVE, WORKER(crowd.active_count), "Consumer ranks connected now") \
	X(consumers_died, TOTAL, HOLDS(consumers_died), "Consumer ranks that died") \
	X(consumers_refused, TOTAL, PROGRESS(consumers_refused), "Consumer ranks refused at the handshake") \
	X(rings_broken, TOTAL, OWN(rings_broken), "Consumer rings with an impossible tail") \
	X(pulls_started, TOTAL, OWN(pulls_started), "Pulls started, without those refused at once") \
	X(pulls_done, TOTAL, OWN(pulls_done), "Pulls that succeeded") \
	X(pulls_failed, TOTAL, OWN(pulls_failed), "Pulls started that failed") \
	X(pulls_expired, TOTAL, OWN(pulls_expired), "Pulls that failed since the hold ended first") \
	X(pulls_live, LIVE, WORKER(pulls.map.count), "Pulls now") \
	X(bytes_pulled, TOTAL, OWN(bytes_pulled), "Bytes read from peers") \
	X(peers_live, LIVE, PROGRESS(peers_live), "Producer ranks connected now") \
	X(peer_connects, TOTAL, PROGRESS(peer_connects), "Connections made to producer ranks") \
	X(peer_failures, TOTAL, PROGRESS(peer_failures), "Connections to producer ranks that failed") \
	X(releases_queued, LIVE, PROGRESS(releases_queued), "Releases that peers have not taken yet") \
	X(step_replayed, TOTAL, OWN(step_replayed), "Commands seen before, dropped") \
	X(step_bad, TOTAL, OWN(step_bad), "Step messages refused") \
	X(step_gaps, TOTAL, OWN(step_gaps), "Step messages that came after a gap") \
	X(poll_ns_max, PEAK, OWN(poll_ns_max), "Longest poll since open, nanoseconds") \
	X(log_suppressed, TOTAL, LOG(suppressed), "Log lines suppressed") \
	X(arena_bytes, LIVE, OWN(arena_bytes), "Memory taken at open") \
	X(claims_live, LIVE, WORKER(claims.map.count), "Tickets claimed now, as a consumer") \
	X(holds_given_back, TOTAL, HOLDS(given_back), "Holds ended since a consumer that was not let in gave them back") \
	X(gives, TOTAL, PROGRESS(gives), "Tickets given back by consumers that were not let in") \
	X(gives_old, TOTAL, PROGRESS(gives_old), "Tickets given back that had been given back before") \
	X(gives_bad, TOTAL, PROGRESS(gives_bad), "Tickets given back with a wrong tag or slot, dropped") \
	X(gives_said, TOTAL, PROGRESS(gives_said), "Tickets given back, as a consumer, to producers that do not let it in") \
	X(device_mapped_bytes, LIVE, PROGRESS(device_mapped_bytes), "Bytes of peers' device memory that are mapped now") \
	X(device_stores, TOTAL, PROGRESS(device_stores), "Peers' device memories mapped for stores, too, as the driver has no mapping for reads") \
	X(devices_lost, TOTAL, OWN(devices_lost), "Devices that failed: the engine has to be restarted")

#define KVPULL_SCHEDULER_COUNTERS(X) \
	X(holds_taken, TOTAL, OWN(holds_taken), "Holds taken") \
	X(holds_ended, TOTAL, SLOTS(ended), "Holds that every rank reported ended") \
	X(holds_live, LIVE, SLOTS(live.count), "Holds now") \
	X(families_live, LIVE, FAMILIES(by_parent.count), "Parents remembered now") \
	X(family_members, TOTAL, OWN(family_members), "Requests that finished on a sibling's hold") \
	X(no_slot, TOTAL, OWN(no_slot), "Requests not held: no free slot") \
	X(not_ready, TOTAL, OWN(not_ready), "Requests not held: ranks not known yet") \
	X(tickets_live, LIVE, DEMAND(live_count), "Tickets in use now, as a consumer") \
	X(tickets_seen, TOTAL, OWN(tickets_seen), "Tickets seen, as a consumer") \
	X(pulls_commanded, TOTAL, OWN(pulls_commanded), "Pulls commanded") \
	X(pulls_done, TOTAL, OWN(pulls_done), "Pulls that succeeded") \
	X(pulls_failed, TOTAL, OWN(pulls_failed), "Pulls that failed") \
	X(rejects, TOTAL, OWN(rejects), "Requests rejected before admission") \
	X(mismatches, TOTAL, OWN(mismatches), "Tickets of another prompt") \
	X(bad_tickets, TOTAL, OWN(bad_tickets), "Tickets refused") \
	X(unknown_keys, TOTAL, OWN(unknown_keys), "Calls with an unknown request key") \
	X(steps_built, TOTAL, OWN(steps_built), "Step messages built") \
	X(results_replayed, TOTAL, OWN(results_replayed), "Results seen before, dropped") \
	X(results_bad, TOTAL, OWN(results_bad), "Result messages refused") \
	X(resends, TOTAL, OUTBOX(resends), "Gaps of a worker that were filled") \
	X(changed, TOTAL, OWN(changed), "Requests neither held nor pulled: weights or adapter changed meanwhile")

/* Counters of a handle of kvpull_reader_v1(). */
#define KVPULL_READER_COUNTERS(X) \
	X(puts, TOTAL, OWN(puts), "Chunks listed under a key") \
	X(puts_stale, TOTAL, OWN(puts_stale), "Puts refused: bumped since the chunk was written") \
	X(puts_full, TOTAL, OWN(puts_full), "Puts refused: no entry was free for the key") \
	X(bumps, TOTAL, OWN(bumps), "Guards moved on, one for each chunk") \
	X(spilled, TOTAL, SPILLS(written), "Chunks that are in the file when their spill ends") \
	X(spills_failed, TOTAL, SPILLS(failed), "Chunks not spilled: late, bumped, or the disk failed") \
	X(readers_live, LIVE, SHARE(callers.in_count), "Readers connected now") \
	X(readers_refused, TOTAL, REFUSED(refused), "Readers refused at the handshake") \
	X(peers_live, LIVE, OWN(peers_live), "Owners connected now") \
	X(peer_connects, TOTAL, OWN(peer_connects), "Connections made to owners") \
	X(peer_failures, TOTAL, OWN(peer_failures), "Connections to owners that failed or were lost") \
	X(asks_live, LIVE, OWN(asks_live), "Probes and reads in flight now") \
	X(probes, TOTAL, OWN(probes), "Probes that ended") \
	X(probes_failed, TOTAL, OWN(probes_failed), "Probes that failed") \
	X(keys_found, TOTAL, OWN(keys_found), "Keys found by probes") \
	X(keys_missed, TOTAL, OWN(keys_missed), "Keys not found by probes that were answered") \
	X(reads, TOTAL, OWN(reads), "Reads that ended") \
	X(pieces_good, TOTAL, OWN(pieces_good), "Pieces read whose guard was unchanged") \
	X(pieces_stale, TOTAL, OWN(pieces_stale), "Pieces not believed: bumped since the probe") \
	X(pieces_failed, TOTAL, OWN(pieces_failed), "Pieces not read: deadline, abort, lost peer") \
	X(bytes_read, TOTAL, OWN(bytes_read), "Bytes of good pieces") \
	X(log_suppressed, TOTAL, LOG(suppressed), "Log lines suppressed") \
	X(arena_bytes, LIVE, ARENA(used), "Memory taken for tables at open")
/* clang-format on */

/* NOLINTBEGIN(bugprone-macro-parentheses): a term of a sum, and a member. */
#define KVPULL_COUNTER_ONE(name, kind, from, help) +1
#define KVPULL_COUNTER_MEMBER(name, kind, from, help) uint64_t name;
/* NOLINTEND(bugprone-macro-parentheses) */

enum {
	KVPULL_WORKER_COUNTER_COUNT =
		0 KVPULL_WORKER_COUNTERS(KVPULL_COUNTER_ONE),
	KVPULL_SCHEDULER_COUNTER_COUNT =
		0 KVPULL_SCHEDULER_COUNTERS(KVPULL_COUNTER_ONE),
	KVPULL_READER_COUNTER_COUNT =
		0 KVPULL_READER_COUNTERS(KVPULL_COUNTER_ONE)
};

/* By name, and as the rows are numbered. */
union kvpull_worker_counts {
	struct {
		KVPULL_WORKER_COUNTERS(KVPULL_COUNTER_MEMBER)
	};
	uint64_t values[KVPULL_WORKER_COUNTER_COUNT];
};
union kvpull_scheduler_counts {
	struct {
		KVPULL_SCHEDULER_COUNTERS(KVPULL_COUNTER_MEMBER)
	};
	uint64_t values[KVPULL_SCHEDULER_COUNTER_COUNT];
};
union kvpull_reader_counts {
	struct {
		KVPULL_READER_COUNTERS(KVPULL_COUNTER_MEMBER)
	};
	uint64_t values[KVPULL_READER_COUNTER_COUNT];
};

/* A member for each row from HOLDS, and none for the others. */
#define KVPULL_IN_HOLDS_OWN(member)
#define KVPULL_IN_HOLDS_HOLDS(member) uint64_t member;
#define KVPULL_IN_HOLDS_PROGRESS(member)
#define KVPULL_IN_HOLDS_WORKER(member)
#define KVPULL_IN_HOLDS_LOG(member)
#define KVPULL_IN_HOLDS(name, kind, from, help) KVPULL_IN_HOLDS_##from

/* Counters of the hold table. */
struct kvpull_hold_counts {
	/* cppcheck-suppress unknownMacro ; it does not paste with ## twice */
	KVPULL_WORKER_COUNTERS(KVPULL_IN_HOLDS)
	uint64_t ended; /* now: not reported yet */
};

#define KVPULL_IN_PROGRESS_OWN(member)
#define KVPULL_IN_PROGRESS_HOLDS(member)
#define KVPULL_IN_PROGRESS_PROGRESS(member) _Atomic uint64_t member;
#define KVPULL_IN_PROGRESS_WORKER(member)
#define KVPULL_IN_PROGRESS_LOG(member)
#define KVPULL_IN_PROGRESS(name, kind, from, help) KVPULL_IN_PROGRESS_##from

/* Counters of the progress side, one writer each. */
struct kvpull_progress_counts {
	/* cppcheck-suppress unknownMacro ; likewise */
	KVPULL_WORKER_COUNTERS(KVPULL_IN_PROGRESS)
};

struct kvpull_counter_row {
	const char *name;
	const char *help;
	uint32_t kind; /* KVPULL_COUNTER_* */
};

/* A half's rows; values are in their order. */
struct kvpull_counter_table {
	const char *half; /* "worker" */
	const struct kvpull_counter_row *rows;
	uint32_t row_count;
};

extern const struct kvpull_counter_table kvpull_worker_counters;
extern const struct kvpull_counter_table kvpull_scheduler_counters;
extern const struct kvpull_counter_table kvpull_reader_counters;

/**
 * Fill in an engine's array, whose elements may be of an older or a newer
 * header than ours.
 *
 * @values         NULL: all 0.
 * @counters       [capacity] of counter_bytes each; NULL if capacity is 0.
 * Return: rows of the table, or KVPULL_EINVAL; see the ABI's counters().
 */
int KVPULL_MUST_CHECK
kvpull_counters_list(const struct kvpull_counter_table *table,
		     const uint64_t *values, struct kvpull_counter *counters,
		     uint32_t capacity, size_t counter_bytes);

#endif /* KVPULL_PLUGIN_COUNTERS_H */
