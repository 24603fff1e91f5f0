/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of counters. Every member of the two stats structs has its
 * row, in their order; the asserts below fail when one is forgotten.
 */
#include "plugin/abi/stats.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define COUNTER "counter"
#define GAUGE "gauge"

struct stat_row {
	const char *name; /* without the half's prefix */
	const char *help;
	const char *type;
	size_t offset;
};

#define WORKER(member) offsetof(struct kvpull_worker_stats, member)
#define SCHEDULER(member) offsetof(struct kvpull_scheduler_stats, member)

/* clang-format off */
static const struct stat_row worker_rows[] = {
	{ "holds_taken_total", "Holds taken by this rank", COUNTER, WORKER(holds_taken) },
	{ "holds_released_total", "Holds ended by their consumers", COUNTER, WORKER(holds_released) },
	{ "holds_expired_total", "Holds ended by lease or hold_max", COUNTER, WORKER(holds_expired) },
	{ "holds_revoked_total", "Holds aborted, revoked or ended by another rank", COUNTER, WORKER(holds_revoked) },
	{ "holds_live", "Holds now", GAUGE, WORKER(holds_live) },
	{ "staged_live", "Slots with early notifications now", GAUGE, WORKER(staged_live) },
	{ "claims_total", "Claims of consumers", COUNTER, WORKER(claims) },
	{ "releases_total", "Releases of consumers", COUNTER, WORKER(releases) },
	{ "early_total", "Notifications that came before their hold", COUNTER, WORKER(early) },
	{ "duplicates_total", "Releases that had come before", COUNTER, WORKER(duplicates) },
	{ "unknown_total", "Notifications for no hold, dropped", COUNTER, WORKER(unknown) },
	{ "bad_tag_total", "Notifications with a wrong tag, dropped", COUNTER, WORKER(bad_tag) },
	{ "claims_over_total", "Claims of an instance too many, not counted on", COUNTER, WORKER(claims_over) },
	{ "consumers_live", "Consumer ranks connected now", GAUGE, WORKER(consumers_live) },
	{ "consumers_died_total", "Consumer ranks that died", COUNTER, WORKER(consumers_died) },
	{ "consumers_refused_total", "Consumer ranks refused at the handshake", COUNTER, WORKER(consumers_refused) },
	{ "rings_broken_total", "Consumer rings with an impossible tail", COUNTER, WORKER(rings_broken) },
	{ "pulls_started_total", "Pulls started, without those refused at once", COUNTER, WORKER(pulls_started) },
	{ "pulls_done_total", "Pulls that succeeded", COUNTER, WORKER(pulls_done) },
	{ "pulls_failed_total", "Pulls started that failed", COUNTER, WORKER(pulls_failed) },
	{ "pulls_expired_total", "Pulls that failed since the hold ended first", COUNTER, WORKER(pulls_expired) },
	{ "pulls_live", "Pulls now", GAUGE, WORKER(pulls_live) },
	{ "pulled_bytes_total", "Bytes read from peers", COUNTER, WORKER(bytes_pulled) },
	{ "peers_live", "Producer ranks connected now", GAUGE, WORKER(peers_live) },
	{ "peer_connects_total", "Connections made to producer ranks", COUNTER, WORKER(peer_connects) },
	{ "peer_failures_total", "Connections to producer ranks that failed", COUNTER, WORKER(peer_failures) },
	{ "releases_queued", "Releases that peers have not taken yet", GAUGE, WORKER(releases_queued) },
	{ "step_replayed_total", "Commands seen before, dropped", COUNTER, WORKER(step_replayed) },
	{ "step_bad_total", "Step messages refused", COUNTER, WORKER(step_bad) },
	{ "step_gaps_total", "Step messages that came after a gap", COUNTER, WORKER(step_gaps) },
	{ "poll_ns_max", "Longest poll since the last reset, nanoseconds", GAUGE, WORKER(poll_ns_max) },
	{ "log_suppressed_total", "Log lines suppressed", COUNTER, WORKER(log_suppressed) },
	{ "arena_bytes", "Memory taken at open", GAUGE, WORKER(arena_bytes) },
};

static const struct stat_row scheduler_rows[] = {
	{ "holds_taken_total", "Holds taken", COUNTER, SCHEDULER(holds_taken) },
	{ "holds_ended_total", "Holds that every rank reported ended", COUNTER, SCHEDULER(holds_ended) },
	{ "holds_live", "Holds now", GAUGE, SCHEDULER(holds_live) },
	{ "families_live", "Parents remembered now", GAUGE, SCHEDULER(families_live) },
	{ "family_members_total", "Requests that finished on a sibling's hold", COUNTER, SCHEDULER(family_members) },
	{ "no_slot_total", "Requests not held: no free slot", COUNTER, SCHEDULER(no_slot) },
	{ "not_ready_total", "Requests not held: ranks not known yet", COUNTER, SCHEDULER(not_ready) },
	{ "tickets_live", "Tickets in use now, as a consumer", GAUGE, SCHEDULER(tickets_live) },
	{ "tickets_seen_total", "Tickets seen, as a consumer", COUNTER, SCHEDULER(tickets_seen) },
	{ "pulls_commanded_total", "Pulls commanded", COUNTER, SCHEDULER(pulls_commanded) },
	{ "pulls_done_total", "Pulls that succeeded", COUNTER, SCHEDULER(pulls_done) },
	{ "pulls_failed_total", "Pulls that failed", COUNTER, SCHEDULER(pulls_failed) },
	{ "rejects_total", "Requests rejected before admission", COUNTER, SCHEDULER(rejects) },
	{ "mismatches_total", "Tickets of another prompt", COUNTER, SCHEDULER(mismatches) },
	{ "bad_tickets_total", "Tickets refused", COUNTER, SCHEDULER(bad_tickets) },
	{ "unknown_keys_total", "Calls with an unknown request key", COUNTER, SCHEDULER(unknown_keys) },
	{ "steps_built_total", "Step messages built", COUNTER, SCHEDULER(steps_built) },
	{ "results_replayed_total", "Results seen before, dropped", COUNTER, SCHEDULER(results_replayed) },
	{ "results_bad_total", "Result messages refused", COUNTER, SCHEDULER(results_bad) },
	{ "resends_total", "Gaps of a worker that were filled", COUNTER, SCHEDULER(resends) },
};
/* clang-format on */

#define ROWS(rows) (sizeof(rows) / sizeof((rows)[0]))

_Static_assert(sizeof(struct kvpull_worker_stats) ==
		       sizeof(size_t) + ROWS(worker_rows) * sizeof(uint64_t),
	       "every counter of a worker has its row");
_Static_assert(sizeof(struct kvpull_scheduler_stats) ==
		       sizeof(size_t) + ROWS(scheduler_rows) * sizeof(uint64_t),
	       "every counter of a scheduler has its row");

struct stats_text {
	char *text;
	size_t capacity;
	size_t used; /* needed so far */
};

static void row_append(struct stats_text *out, const char *half,
		       const struct stat_row *row, uint64_t value)
{
	const size_t room =
		out->used < out->capacity ? out->capacity - out->used : 0;
	const int bytes = snprintf(room ? out->text + out->used : NULL, room,
				   "# HELP kvpull_%s_%s %s.\n"
				   "# TYPE kvpull_%s_%s %s\n"
				   "kvpull_%s_%s %" PRIu64 "\n",
				   half, row->name, row->help, half, row->name,
				   row->type, half, row->name, value);

	if (bytes > 0)
		out->used += (size_t)bytes;
}

static void rows_append(struct stats_text *out, const char *half,
			const struct stat_row *rows, size_t row_count,
			const void *stats)
{
	size_t struct_size;
	uint64_t value;
	size_t i;

	memcpy(&struct_size, stats, sizeof(struct_size));
	for (i = 0; i < row_count; i++) {
		if (rows[i].offset + sizeof(value) > struct_size)
			return;
		memcpy(&value, (const uint8_t *)stats + rows[i].offset,
		       sizeof(value));
		row_append(out, half, &rows[i], value);
	}
}

size_t kvpull_stats_text(const struct kvpull_worker_stats *worker,
			 const struct kvpull_scheduler_stats *scheduler,
			 char *text, size_t capacity)
{
	struct stats_text out = { .text = text, .capacity = capacity };

	if (capacity)
		text[0] = '\0';
	if (worker)
		rows_append(&out, "worker", worker_rows, ROWS(worker_rows),
			    worker);
	if (scheduler)
		rows_append(&out, "scheduler", scheduler_rows,
			    ROWS(scheduler_rows), scheduler);
	return out.used;
}
