/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's state; scheduler.h lists the files that share it. */
#ifndef KVPULL_PLUGIN_SCHEDULER_STATE_H
#define KVPULL_PLUGIN_SCHEDULER_STATE_H

#include "plugin/scheduler/demand.h"
#include "plugin/scheduler/scheduler.h"
#include "plugin/scheduler/slot.h"
#include "plugin/scheduler/suspects.h"

#define KVPULL_PAST_WORKERS 8u /* a rank's earlier incarnations remembered */

/* A PULL with a reason, an ABORT, wait for room in the log. */
#define KVPULL_OWED_REFUSAL 1u
#define KVPULL_OWED_ABORT 2u

struct kvpull_scheduler_request {
	uint64_t key; /* 0: free */
	uint64_t parent_key;
	uint64_t adapter;
	struct kvpull_user user;
	uint32_t flags; /* KVPULL_REQUEST_* */
	uint32_t prompt_tokens;
	uint32_t finished; /* kept until its pull has ended */
	uint32_t changed;  /* its KV may be of before a change: never held */
	uint32_t reserved;
	uint32_t owed; /* KVPULL_OWED_* */
	int32_t refusal;
	uint64_t asked_ns; /* first, while ranks were unknown; 0: not then */
	uint8_t digest[KVPULL_DIGEST_BYTES];
	uint8_t trace[KVPULL_TRACE_BYTES];
	char label[KVPULL_LABEL_BYTES];
};

struct kvpull_scheduler_rank {
	struct kvpull_rank_info info; /* incarnation 0: unknown */
	uint64_t past[KVPULL_PAST_WORKERS];
	uint32_t past_count; /* free-running */
};

/* Full tables and mistakes of hosts that are said a line a second at most. */
enum kvpull_table_full {
	KVPULL_FULL_REQUESTS,
	KVPULL_FULL_TICKETS,
	KVPULL_FULL_HOLDS,
	KVPULL_RANKS_UNKNOWN,
	KVPULL_RANKS_UNKNOWN_HOLD,
	KVPULL_FULL_LOG,
	KVPULL_KEY_HELD,
	KVPULL_TABLES_FULL
};

struct kvpull_scheduler {
	struct kvpull_arena arena;
	struct kvpull_log own_log;
	struct kvpull_log_budget log_budget;
	const struct kvpull_log *log; /* own_log */
	struct kvpull_config config;
	struct kvpull_scheduler_rank ranks[KVPULL_RANKS_MAX];
	uint32_t rank_count; /* of all stages */
	uint32_t pp_size;
	uint32_t layer_count; /* of the model */
	uint32_t draining;
	uint32_t group_count;
	uint32_t group_tokens[KVPULL_GROUPS_MAX];
	uint32_t group_kinds[KVPULL_GROUPS_MAX]; /* KVPULL_GROUP_* */
	uint8_t compat[KVPULL_COMPAT_BYTES];
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];

	struct kvpull_scheduler_request *requests;
	struct kvpull_index_pool request_pool;
	struct kvpull_index_list owing;
	struct kvpull_map by_key;

	struct kvpull_texts texts;
	struct kvpull_families families;
	struct kvpull_suspects suspects;
	struct kvpull_slots slots;
	struct kvpull_demand demand;
	struct kvpull_outbox outbox;
	struct kvpull_worker *worker; /* of this process; NULL: steps travel */
	kvpull_step_fn *worker_step;

	struct kvpull_ticket *ticket; /* scratch */
	uint32_t *block_ids;          /* of one to encode, likewise */
	uint8_t *ticket_bytes;        /* [KVPULL_TICKET_BYTES_MAX] scratch */

	uint64_t full_say_ns[KVPULL_TABLES_FULL]; /* next line on each */
	union kvpull_scheduler_counts counts;     /* its own, since open */
};

/* Time goes on: first in every call that has it. */
void kvpull_scheduler_tick(struct kvpull_scheduler *scheduler, uint64_t now_ns);

/* Returns the request with this key, or NULL. */
struct kvpull_scheduler_request *
kvpull_scheduler_find(struct kvpull_scheduler *scheduler, uint64_t key);

/* Must be called once the last rank has reported its pull. */
void kvpull_scheduler_pull_ended(struct kvpull_scheduler *scheduler,
				 struct kvpull_scheduler_request *request);

/* The blocks that an allocation, or a finish, names are those that it may name. */
int kvpull_scheduler_may_pull(const struct kvpull_scheduler *scheduler,
			      const struct kvpull_scheduler_request *request,
			      const struct kvpull_allocation *allocation);
int kvpull_scheduler_may_hold(const struct kvpull_scheduler *scheduler,
			      const struct kvpull_scheduler_request *request,
			      const struct kvpull_finish *finish);

/* Are the groups that the allocation needs there? */
int kvpull_scheduler_has_blocks(const struct kvpull_allocation *allocation);

#endif /* KVPULL_PLUGIN_SCHEDULER_STATE_H */
