/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of each table, a line each. The screen, JSON and Prometheus' text
 * are made from these lines and have no column of their own.
 *
 * X(name, head, width, priority, metric, help, cell)
 *   name      member of the JSON object; "a.b": b of its object a; NO: none
 *   head      on the screen; NO: not there
 *   width     least, on the screen, and not below the head's length;
 *             negative: text, from the left
 *   priority  a narrow screen leaves out the highest first; 0: shown whole
 *   metric    its name in Prometheus, and its help; NO: none. Without a help
 *             it is a label of the table's metrics
 *   cell      how the value is read; its kind is its type in all three
 */
#ifndef KVPULL_TOOLS_KVPULL_TOP_COLUMNS_H
#define KVPULL_TOOLS_KVPULL_TOP_COLUMNS_H

#include <stddef.h>

/* clang-format off */
#define NO NULL

/* Columns of each file; half: "worker" or "reader", in metrics. */
#define FILE_COLUMNS(X, head, rank_head, half, silent) \
	X("engine", head, -13, 1, NO, NO, TEXT(worker->header.engine_id)) \
	X("rank", rank_head, 4, 4, NO, NO, NUMBER(worker->header.rank)) \
	X("pid", "PID", 7, 1, NO, NO, NUMBER(worker->header.pid)) \
	X("state", NO, 0, 0, NO, NO, WORD(file_states[worker->state])) \
	X(NO, "STATE", -7, 1, NO, NO, is_ended(worker) ? \
		DATE(file_states[worker->state], ended_ago(row->top, worker)) : \
		WORD(file_states[worker->state])) \
	X(NO, NO, 0, 0, "kvpull_" half "_up", "1: its process lives and is not stopped", \
		NUMBER(worker->state == TOP_RUNNING)) \
	X("rank_count", NO, 0, 0, NO, NO, NUMBER(worker->header.rank_count)) \
	X("uid", NO, 0, 0, NO, NO, NUMBER(worker->header.uid)) \
	X("incarnation", NO, 0, 0, NO, NO, HEX(worker->header.incarnation)) \
	X("host", NO, 0, 0, NO, NO, TEXT(worker->header.host)) \
	X("library", NO, 0, 0, NO, NO, TEXT(worker->header.library)) \
	X("path", NO, 0, 0, NO, NO, TEXT(worker->path)) \
	X("up_s", NO, 0, 0, NO, NO, AGE(top_ago(worker, worker->header.opened_ns))) \
	X("engine_thread_s", "POLLED", 6, 1, silent, "Since the engine's last poll", \
		AGE(top_ran(worker, KVPULL_STATUS_ENGINE) + worker->gone_ns))

#define WORKER_COLUMNS(X) \
	FILE_COLUMNS(X, "ENGINE", "RANK", "worker", "kvpull_worker_engine_silent_seconds") \
	X("progress_thread_s", NO, 0, 0, "kvpull_worker_progress_silent_seconds", "Since the progress thread's last run", \
		AGE(top_ran(worker, KVPULL_STATUS_PROGRESS) + worker->gone_ns)) \
	X("step_s", NO, 0, 0, NO, NO, SINCE(GET(&top_thread(worker, KVPULL_STATUS_ENGINE)->step_ns))) \
	X("lease_s", NO, 0, 0, NO, NO, AGE(worker->header.lease_ns)) \
	X("holds.held", "HOLDS", 5, 1, NO, NO, NUMBER(holds.held)) \
	X("holds.blocks", "BLOCKS", 6, 1, "kvpull_worker_hold_blocks", "Blocks held now", NUMBER(holds.blocks)) \
	X("holds.oldest_s", "OLDEST", 6, 2, "kvpull_worker_hold_oldest_seconds", "Age of the oldest hold", \
		AGE(goes_on(worker, holds.oldest_ns))) \
	X("holds.max", NO, 0, 0, "kvpull_worker_holds_max", "Holds that there is room for", NUMBER(worker->header.max_holds)) \
	X("holds.staged", NO, 0, 0, NO, NO, NUMBER(holds.staged)) \
	X("holds.ended", NO, 0, 0, NO, NO, NUMBER(holds.ended)) \
	X("holds.claimed", NO, 0, 0, NO, NO, NUMBER(holds.claimed)) \
	X(NO, "PULLS", 5, 2, NO, NO, COUNTER("pulls_live")) \
	X(NO, "MiB", 8, 5, NO, NO, throughput_put(cell++, worker)) \
	X("errors_last_minute", "ERR", 3, 3, NO, NO, NUMBER(top_errors(worker))) \
	X(NO, "TICKETS", 7, 5, NO, NO, COUNTER("claims_live")) \
	X(NO, "SENDING", 7, 6, NO, NO, COUNTER("releases_queued"))

#define POOL_COLUMNS(X) \
	FILE_COLUMNS(X, "POOL", NO, "reader", "kvpull_reader_silent_seconds") \
	X("role", "ROLE", -6, 1, NO, NO, WORD(top_role(worker))) \
	X("shares", NO, 0, 0, NO, NO, FLAG(shared)) \
	X("chunks", "CHUNKS", 7, 2, "kvpull_reader_chunks", "Chunks that it shares", NUMBER(shared * GET(&pool->chunk_count))) \
	X("chunk_bytes", NO, 0, 0, "kvpull_reader_chunk_bytes", "Bytes of such a chunk", NUMBER(shared * GET(&pool->chunk_bytes))) \
	X("slots", NO, 0, 0, "kvpull_reader_slots", "Slots of its file", NUMBER(shared * GET(&pool->slot_count))) \
	X(NO, "READERS", 7, 2, NO, NO, COUNTER("readers_live")) \
	X(NO, "PEERS", 5, 2, NO, NO, COUNTER("peers_live")) \
	X(NO, NO, 0, 0, "kvpull_reader_peers_given_up", "Owners that it does not read any more", NUMBER(top_given_up(worker))) \
	X(NO, "MiB", 8, 4, NO, NO, throughput_put(cell++, worker)) \
	X("errors_last_minute", "ERR", 3, 3, NO, NO, NUMBER(top_errors(worker))) \
	X(NO, "ASKS", 4, 2, NO, NO, COUNTER("asks_live")) \
	X(NO, "GOOD", 8, 5, NO, NO, COUNTER("pieces_good")) \
	X(NO, "STALE", 6, 6, NO, NO, COUNTER("pieces_stale")) \
	X(NO, "FAILED", 6, 3, NO, NO, COUNTER("pieces_failed"))

#define AGE_COLUMNS(X) \
	X(NO, "HOLDS BY AGE  < 1 s", 19, 0, NO, NO, NUMBER(sum.ages[0])) \
	X(NO, "< 10 s", 8, 0, NO, NO, NUMBER(sum.ages[1])) \
	X(NO, "< 1 min", 9, 0, NO, NO, NUMBER(sum.ages[2])) \
	X(NO, "older", 7, 0, NO, NO, NUMBER(sum.ages[3])) \
	X(NO, "unclaimed", 11, 0, NO, NO, NUMBER(sum.held - sum.claimed))

#define HOLD_COLUMNS(X) \
	X("label", "OLDEST HOLDS", -12, 0, NO, NO, label_put(cell++, hold->label)) \
	X("age_s", "AGE", 7, 0, NO, NO, SINCE(GET(&hold->taken_ns))) \
	X("blocks", "BLOCKS", 6, 1, NO, NO, NUMBER(GET(&now->blocks))) \
	X("heard_s", "HEARD", 7, 2, NO, NO, SINCE(GET(&now->word_ns))) \
	X("claimed_by", "CLAIMED BY", -13, 0, NO, NO, by && *by->row->engine_id ? TEXT(by->row->engine_id) : NOTHING("nobody")) \
	X("claimed_pid", "PID", 7, 0, NO, NO, by && by->row->pid ? NUMBER(by->row->pid) : NOTHING("-")) \
	X(NO, "OF", -10, 3, NO, NO, TEXT(worker->header.engine_id)) \
	X("slot", "SLOT", 6, 5, NO, NO, NUMBER(slot)) \
	X("generation", "GENERATION", 10, 4, NO, NO, NUMBER(GET(&hold->generation))) \
	X("key", "KEY", 8, 6, NO, NO, NUMBER(GET(&hold->key)))

#define CONSUMER_COLUMNS(X) \
	X("engine", "CONSUMER", -13, 1, "consumer", NO, TEXT(who->engine_id)) \
	X("rank", "RANK", 4, 4, "consumer_rank", NO, NUMBER(who->rank)) \
	X("pid", "PID", 7, 1, "consumer_pid", NO, NUMBER(who->pid)) \
	X("uid", NO, 0, 0, NO, NO, NUMBER(who->uid)) \
	X("rank_count", NO, 0, 0, NO, NO, NUMBER(who->rank_count)) \
	X("instance", NO, 0, 0, NO, NO, HEX(GET(&who->instance))) \
	X("incarnation", NO, 0, 0, "consumer_incarnation", NO, HEX(GET(&who->incarnation))) \
	X("connected", NO, 0, 0, NO, NO, FLAG(GET(&who->state) == KVPULL_SHOWN_HERE)) \
	X(NO, "STATE", -5, 1, NO, NO, caller_state_put(cell++, row, who)) \
	X("route", "ROUTE", -5, 5, NO, NO, TEXT(who->route)) \
	X("heard_s", "HEARD", 6, 1, "kvpull_consumer_silent_seconds", "Since a consumer was last heard of", \
		AGE(one->heard_ns + worker->gone_ns)) \
	X("holds", "HOLDS", 5, 1, NO, NO, NUMBER(one->holds)) \
	X("blocks", "BLOCKS", 6, 1, "kvpull_consumer_hold_blocks", "Blocks that a consumer keeps", NUMBER(one->blocks)) \
	X("oldest_s", "OLDEST", 6, 1, "kvpull_consumer_oldest_seconds", "Age of a consumer's oldest hold", \
		AGE(goes_on(worker, one->oldest_ns))) \
	X("expired", "EXPIRED", 7, 3, NO, NO, NUMBER(GET(&one->words->expired))) \
	X(NO, "OF", -10, 2, NO, NO, TEXT(worker->header.engine_id)) \
	X("claims", "CLAIMS", 6, 5, NO, NO, NUMBER(GET(&one->words->claims))) \
	X("releases", "RELEASES", 8, 6, NO, NO, NUMBER(GET(&one->words->releases)))

#define READER_COLUMNS(X) \
	X("engine", "READER", -13, 1, NO, NO, TEXT(who->engine_id)) \
	X("pid", "PID", 7, 1, NO, NO, NUMBER(who->pid)) \
	X("uid", "UID", 10, 2, NO, NO, NUMBER(who->uid)) \
	X("incarnation", NO, 0, 0, NO, NO, HEX(GET(&who->incarnation))) \
	X("connected", NO, 0, 0, NO, NO, FLAG(GET(&who->state) == KVPULL_SHOWN_HERE)) \
	X(NO, "STATE", -5, 1, NO, NO, caller_state_put(cell++, row, who)) \
	X("route", "ROUTE", -5, 2, NO, NO, TEXT(who->route)) \
	X("since_s", "SINCE", 6, 1, NO, NO, SINCE(GET(&who->since_ns))) \
	X(NO, "OF", -10, 1, NO, NO, TEXT(worker->header.engine_id)) \
	X(NO, "PID", 7, 1, NO, NO, NUMBER(worker->header.pid))

#define PEER_COLUMNS(X) \
	X("engine", "PEER", -13, 1, NO, NO, TEXT(peer->engine_id)) \
	X("pid", "PID", 7, 1, NO, NO, NUMBER(peer->pid)) \
	X("route", "ROUTE", -5, 2, NO, NO, TEXT(peer->route)) \
	X("state", "STATE", -10, 1, NO, NO, WORD(NAME_OF(peer_states, GET(&peer->state)))) \
	X("error", "ERROR", -9, 1, NO, NO, GET(&peer->error) ? WORD(kvpull_error_name(GET(&peer->error))) : NOTHING("-")) \
	X("claims", "CLAIMS", 6, 4, NO, NO, NUMBER(GET(&peer->claims))) \
	X(NO, "MiB", 7, 3, NO, NO, NUMBER(peer_bytes >> 20)) \
	X("bytes", NO, 0, 0, NO, NO, NUMBER(peer_bytes)) \
	X("pulls", NO, 0, 0, NO, NO, NUMBER(GET(&peer->pulls) + GET(&peer->small_pulls))) \
	X("since_s", NO, 0, 0, NO, NO, SINCE(GET(&peer->since_ns))) \
	X(NO, "BY", -13, 2, NO, NO, TEXT(worker->header.engine_id)) \
	X("retries", "RETRY", 5, 5, NO, NO, NUMBER(GET(&peer->retries))) \
	X("failures", "FAILED", 6, 4, NO, NO, NUMBER(GET(&peer->failures))) \
	X("address", "ADDRESS", -12, 3, NO, NO, TEXT(peer->address)) \
	X("why", "WHY THAT ROUTE", -14, 6, NO, NO, TEXT(peer->why))

#define GPU_COLUMNS(X) \
	X("uuid", "GPU", -12, 1, NO, NO, gpu_put(cell++, worker)) \
	X("state", "STATE", -5, 1, NO, NO, WORD(gpu_is_lost(worker) ? "LOST" : "up")) \
	X(NO, "OF", -10, 1, NO, NO, TEXT(worker->header.engine_id)) \
	X(NO, "RANK", 4, 4, NO, NO, NUMBER(worker->header.rank)) \
	X(NO, "PID", 7, 1, NO, NO, NUMBER(worker->header.pid)) \
	X("mapped_bytes", NO, 0, 0, NO, NO, COUNTER("device_mapped_bytes")) \
	X(NO, "MAPPED MiB", 10, 2, NO, NO, NUMBER(top_counter_named(worker, "device_mapped_bytes") >> 20)) \
	X("stores", "STORES", 6, 3, NO, NO, COUNTER("device_stores"))

#define PULL_COLUMNS(X) \
	X("label", "PULLS NOW", -12, 0, NO, NO, label_put(cell++, pull->label)) \
	X("age_s", "AGE", 7, 0, NO, NO, SINCE(GET(&pull->started_ns))) \
	X("blocks", "BLOCKS", 7, 1, NO, NO, NUMBER(place >> 32)) \
	X("state", "STATE", -10, 0, NO, NO, WORD(NAME_OF(pull_states, (uint32_t)GET(&pull->state)))) \
	X(NO, "BY", -13, 0, NO, NO, TEXT(worker->header.engine_id)) \
	X("slot", "SLOT", 6, 2, NO, NO, NUMBER((uint32_t)place)) \
	X("generation", "GENERATION", 10, 2, NO, NO, NUMBER(GET(&pull->generation))) \
	X("key", "KEY", 8, 3, NO, NO, NUMBER(GET(&pull->key)))

#define EVENT_COLUMNS(X) \
	X(NO, "LAST EVENTS", 11, 0, NO, NO, SINCE(note->at_ns)) \
	X(NO, "WHAT", -14, 0, NO, NO, WORD(NAME_OF(event_names, note->what))) \
	X(NO, "SLOT", 6, 0, NO, NO, NUMBER(note->slot)) \
	X(NO, "GENERATION", 10, 0, NO, NO, NUMBER(note->generation)) \
	X(NO, "WHO", -16, 0, NO, NO, who_put(cell++, worker, note)) \
	X(NO, "OUTCOME", -9, 0, NO, NO, outcome_put(cell++, note)) \
	X(NO, "THREAD", -8, 0, NO, NO, WORD(thread))

#define FINDING_COLUMNS(X) \
	X("what", NO, 0, 0, NO, NO, WORD(finding->what)) \
	X("engine", NO, 0, 0, NO, NO, *finding->engine ? WORD(finding->engine) : NOTHING("nobody")) \
	X("pid", NO, 0, 0, NO, NO, finding->pid ? NUMBER(finding->pid) : NOTHING("-")) \
	X("since_s", NO, 0, 0, NO, NO, AGE(finding->since_ns)) \
	X("holds", NO, 0, 0, NO, NO, NUMBER(finding->holds)) \
	X("blocks", NO, 0, 0, NO, NO, NUMBER(finding->blocks)) \
	X("seen_by", NO, 0, 0, NO, NO, NUMBER(finding->at->header.pid)) \
	X("text", NO, 0, 0, NO, NO, TEXT(finding->text))

#define UNREAD_COLUMNS(X) \
	X("path", NO, 0, 0, NO, NO, TEXT(unread->path)) \
	X("why", NO, 0, 0, NO, NO, TEXT(unread->why))
/* clang-format on */

#endif /* KVPULL_TOOLS_KVPULL_TOP_COLUMNS_H */
