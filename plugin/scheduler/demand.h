/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's tickets: who uses each, who loads, and when the last word on
 * it is said. Pure; commands go to the outbox.
 *
 * A ticket is known by its producer's first rank's incarnation, slot and
 * generation. Its users are the requests that showed it. A user is done when
 * its pull ended, when it was told that nothing is to be loaded for good, and
 * when it left. The release goes when no user is left, once.
 */
#ifndef KVPULL_PLUGIN_DEMAND_H
#define KVPULL_PLUGIN_DEMAND_H

#include "base/map.h"
#include "plugin/counters/counters.h"
#include "plugin/scheduler/kept.h"
#include "plugin/scheduler/outbox.h"

/* Tickets not of our key that are given back in a second: anybody makes them. */
#define KVPULL_STRANGERS_MAX 64u

struct kvpull_demand_ticket {
	uint64_t incarnation; /* of the producer's rank 0; 0: free */
	uint64_t generation;
	uint64_t serial;
	uint64_t map_key;
	uint64_t loader; /* key of the user that may load; share_prefix only */
	uint64_t remembered_ns;
	uint32_t slot;
	uint32_t kept;       /* its body, among the texts, until released */
	uint32_t user_count; /* not done */
	uint32_t pull_count; /* commanded, not ended */
	uint32_t prompt_tokens;
	uint32_t payload_bytes; /* in its body */
	uint32_t flags;         /* TICKET_* in demand.c */
	int32_t code; /* why nothing is loaded from it any more; 0: was read */
	uint8_t digest[KVPULL_DIGEST_BYTES];
};

enum kvpull_user_state {
	KVPULL_USER_NONE = 0, /* the request has no ticket */
	KVPULL_USER_WAITING,
	KVPULL_USER_CHOSEN,  /* was answered LOAD */
	KVPULL_USER_PULLING, /* commanded; every rank must report */
	KVPULL_USER_DONE
};

/* A request's part; the request table owns it. */
struct kvpull_user {
	uint64_t reported; /* bit a rank, of its pull */
	uint64_t ended;    /* of these: success or EEXPIRED */
	enum kvpull_user_state state;
	uint32_t ticket; /* index, while not done */
	int32_t code;    /* first failure of its pull, or why there is none */
	uint32_t flags;  /* USER_* in demand.c */
	uint32_t local_tokens;         /* CHOSEN: of the last question */
	uint32_t tokens;               /* and what was answered */
	struct kvpull_payload payload; /* of the ticket that was read */
	const char *label;             /* its request's; NULL: none */
	int32_t priority;              /* likewise; smaller goes first */
	uint32_t reserved;
};

/* Facts of a request that asks for a ticket's tokens. */
struct kvpull_demand_ask {
	uint64_t key;
	const uint8_t *digest;
	uint32_t prompt_tokens;
	uint32_t local_tokens;
};

struct kvpull_demand {
	const struct kvpull_log *log;
	struct kvpull_outbox *outbox;
	struct kvpull_texts *texts;
	union kvpull_scheduler_counts *counts;
	struct kvpull_ticket *scratch; /* a decoded ticket */
	uint8_t *scratch_bytes;        /* [KVPULL_TICKET_BYTES_MAX], its body */
	const uint8_t *ticket_key;     /* or NULL */
	uint8_t compat[KVPULL_COMPAT_BYTES];
	uint64_t lease_ns;
	uint64_t ranks_all;
	uint32_t share_prefix;
	uint32_t has_state; /* a group of the engine is of states */
	uint32_t pulls_max; /* chosen and commanded ones, at once */
	uint32_t pull_blocks_max;

	struct kvpull_demand_ticket *tickets;
	struct kvpull_index_pool pool;
	struct kvpull_index_list releasing;  /* a RELEASE is to be put */
	struct kvpull_index_list remembered; /* released and unused */
	struct kvpull_map by_identity;
	uint32_t *remote_ids; /* [KVPULL_TICKET_BLOCKS_MAX] */
	uint32_t *local_ids;
	uint64_t serial_next;
	uint64_t now_ns;          /* of this call */
	uint64_t stranger_serial; /* claimed, its RELEASE is to be put; 0: none */
	uint64_t strangers_ns; /* the second in which stranger_count counts */
	uint32_t count_max;
	uint32_t chosen_count; /* users that were told to load, not yet commanded */
	uint32_t pull_count;   /* commanded, not ended */
	uint32_t live_count;   /* not released */
	uint32_t was_replaced; /* the worker of one of several ranks was */
	uint32_t stranger_count;
};

void kvpull_demand_init(struct kvpull_demand *demand, uint32_t count_max,
			struct kvpull_arena *arena);

/*
 * Decode into demand->scratch. 0, KVPULL_ENOTICKET, KVPULL_ENOTMINE. A whole
 * ticket that is not of our key is given back.
 */
int KVPULL_MUST_CHECK kvpull_demand_decode(struct kvpull_demand *demand,
					   const void *text, size_t text_bytes);

/*
 * A request showed the ticket that was just decoded. The first one claims it, by
 * its label, which lives as long as the user, and with its priority. 0,
 * KVPULL_EFULL, KVPULL_ENOTICKET (it is not the ticket of this name that others
 * showed); on error the user has no ticket.
 */
int KVPULL_MUST_CHECK kvpull_demand_join(struct kvpull_demand *demand,
					 struct kvpull_user *user,
					 const char *label, int32_t priority);

/* As kvpull_demand_join(), for a request that will never read. */
int KVPULL_MUST_CHECK kvpull_demand_reject(struct kvpull_demand *demand);

/* KVPULL_MATCH_*; *tokens is written with LOAD. */
int kvpull_demand_match(struct kvpull_demand *demand, struct kvpull_user *user,
			const struct kvpull_demand_ask *ask, uint32_t *tokens);

/*
 * The user has local blocks: command its pull. 0; KVPULL_ETRUNCATED,
 * KVPULL_EFULL, KVPULL_EEXPIRED: it is pulling all the same, and the caller
 * must see to it that it is reported (a PULL with that reason).
 * KVPULL_EINVAL: it was not told to load, or the blocks make no sense.
 */
int KVPULL_MUST_CHECK
kvpull_demand_pull(struct kvpull_demand *demand, struct kvpull_user *user,
		   const struct kvpull_allocation *allocation);

/* A PULL that the workers report FAILED. 0, KVPULL_EFULL. */
int KVPULL_MUST_CHECK kvpull_demand_refuse(struct kvpull_demand *demand,
					   uint64_t key, int32_t reason);

/* The user needs nothing any more. While it is pulling: no effect. */
void kvpull_demand_leave(struct kvpull_demand *demand, struct kvpull_user *user,
			 uint64_t key);

/*
 * The weights or the user's adapter change. A user that waits is done; of one
 * that was told to load the pull fails with KVPULL_EMISMATCH.
 */
void kvpull_demand_change(struct kvpull_demand *demand,
			  struct kvpull_user *user, uint64_t key);

/*
 * The engine goes on with what was loaded. 0, and later changes are not the
 * pull's any more; KVPULL_EMISMATCH: kvpull_demand_change() came before.
 */
int KVPULL_MUST_CHECK kvpull_demand_use(struct kvpull_user *user);

/*
 * A rank reported the end of the user's pull; 0 and *ended = 1 when it was the
 * last rank. KVPULL_ENOKEY: not pulling, or this rank reported it before.
 */
int KVPULL_MUST_CHECK kvpull_demand_report(struct kvpull_demand *demand,
					   struct kvpull_user *user,
					   uint32_t rank,
					   const struct kvpull_result *result,
					   uint32_t *ended);

/*
 * Tells the payload of the ticket that the user pulled, as payload_get() of the
 * ABI: once the pull ended well.
 */
int KVPULL_MUST_CHECK kvpull_demand_payload(const struct kvpull_demand *demand,
					    const struct kvpull_user *user,
					    void *bytes, size_t capacity,
					    size_t *byte_count);

/*
 * A rank has another worker: its claims are gone, so nothing is loaded from
 * the tickets known. Its open pulls: see kvpull_demand_report().
 */
void kvpull_demand_rank_restart(struct kvpull_demand *demand);

/* Put the waiting RELEASEs into the log, as far as there is room. */
void kvpull_demand_flush(struct kvpull_demand *demand);
/* Time goes on: forget what was released a lease ago. First in every call. */
void kvpull_demand_expire(struct kvpull_demand *demand, uint64_t now_ns);
void kvpull_demand_forget(struct kvpull_demand *demand);

#endif /* KVPULL_PLUGIN_DEMAND_H */
