/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the progress half; seen in this room alone. One thread runs it.
 *
 * progress.c  the loop, commands, events
 * serve.c     who is let in as a consumer (producer's handshake)
 * remote.c    which peers there are, and what follows when one came or went
 * meet.c      our hello, and their welcome
 * lend.c      their memory, lent to the engine's thread
 * give.c      calls that give back tickets of peers that do not let us in
 * room.c      which claims have entries for peers
 * claim.c     claimed tickets, their notifications
 * pull.c      pulls: what is read of which peer, and what follows their ends
 * progress_status.c what the thread shows in the status file, and logs of pulls
 */
#ifndef KVPULL_PLUGIN_PROGRESS_STATE_H
#define KVPULL_PLUGIN_PROGRESS_STATE_H

#include <pthread.h>

#include "base/clock.h"
#include "base/index.h"
#include "base/map.h"
#include "base/turns.h"
#include "plugin/bytes/give.h"
#include "plugin/counters/counters.h"
#include "plugin/handover/handover.h"
#include "plugin/progress/plan.h"
#include "plugin/reads/reads.h"
#include "plugin/route/route.h"
#include "plugin/session/callers.h"
#include "plugin/session/peers.h"

#define KVPULL_EVENTS_MAX 64u   /* transport events a progress run */
#define KVPULL_STRIPS_MAX 4096u /* strips of a peer's plan */
#define KVPULL_NAMED_MAX 1024u  /* that have a name of their own for us */
/* Claims without entries are tried again. */
#define KVPULL_ROOM_RETRY_NS (5 * KVPULL_NS_PER_MS)
#define KVPULL_SPIN_NS UINT64_C(5000) /* the thread, before it sleeps */

/* A claimed ticket, consumer's side. */
enum kvpull_claim_state {
	KVPULL_RANK_NEW = 0,
	KVPULL_RANK_CLAIMED,
	KVPULL_RANK_SAID, /* released; the peer has not taken it yet */
	KVPULL_RANK_RELEASED,
	KVPULL_RANK_LOST
};

struct kvpull_claim_rank {
	uint64_t note; /* SAID: the release is the peer's n-th notification */
	uint32_t peer; /* index; KVPULL_NONE: lost, or no room for it yet */
	uint32_t state;
	uint32_t listed;   /* in one of its remote's lists */
	uint32_t next;     /* in it */
	uint32_t was_told; /* its peer heard the claim, on some connection */
};

struct kvpull_claim {
	const struct kvpull_claim_order
		*order; /* NULL: the slot is the engine's */
	uint64_t since_ns;
	uint32_t pull_count; /* pulls that use it */
	uint32_t releasing;  /* the last word was said */
	uint32_t open_count; /* ranks neither released nor lost */
	uint32_t waits;      /* no pull of it runs, nor its release */
	/* The first request's, or that of a pull which is more urgent. */
	int32_t priority;
	struct kvpull_claim_rank ranks[KVPULL_RANKS_MAX];
};

/* What an earlier connection read of a part: its first bytes, of that plan. */
struct kvpull_part_done {
	uint64_t bytes;
	uint64_t digest;
};

/* What progress keeps of a pull, beside the order of the engine. */
struct kvpull_pull {
	const struct kvpull_pull_order
		*order;  /* NULL: the slot is the engine's */
	uint32_t serial; /* of its order */
	/* Has this pull in its pull_count; NULL: it was over when the pull began. */
	const struct kvpull_claim *claim;
	uint64_t bytes;    /* of its parts */
	uint64_t first_ns; /* its first bytes came; 0: not yet, or at once */
	struct kvpull_pull_phases phases;
	uint64_t done_ranks; /* bitmap of producer's ranks: which are in done */
	struct kvpull_part_done done[KVPULL_RANKS_MAX];
};

/*
 * Low bits of the name by which a consumer's worker greets: they tell its lives
 * at one producer apart, the others are its process's.
 */
#define KVPULL_SELF_BITS 16u

/* Ranks of claims, claim * KVPULL_RANKS_MAX + rank, in order. */
struct kvpull_rank_list {
	uint32_t first; /* KVPULL_NONE: empty */
	uint32_t last;
};

/* peer.why, and with ", 371 GB/s calibrated" behind it once a rate is known. */
#define KVPULL_DEVICE_WHY_OTHER "device: another GPU of this node"
#define KVPULL_DEVICE_WHY_BYTES 64u

/* A producer rank that we read. */
struct kvpull_remote {
	struct kvpull_peer peer;
	char device_why[KVPULL_DEVICE_WHY_BYTES]; /* may be peer.why */
	uint64_t incarnation;                     /* wanted; 0: free */
	uint64_t self; /* our incarnation in its hello: a new one after a give-up */
	uint32_t gave_up; /* claims on it, once */
	uint32_t giving; /* so many tickets, by peer.handle, to peer.greeted_ns */
	uint32_t gave;   /* that call has ended with give_code */
	int32_t give_code;
	struct kvpull_retry give_retry; /* the next such call */
	uint32_t claim_count;           /* open claims on it */
	uint32_t wait_count;            /* of those, such as wait */
	uint32_t drains;                /* no more come: its entry is wanted */
	/*
	 * Its entry is wanted by another, and it was told so: when it is closed,
	 * though it did not hear. 0: it is not.
	 */
	uint64_t closing_ns;
	uint32_t changed; /* came up, or was lost: its claims have work */
	struct kvpull_stage stage;
	uint64_t life;       /* of the last connection that was up */
	uint64_t cut_life;   /* of the last one that was cut on purpose */
	uint64_t fault_life; /* of the last one that was lost otherwise */
	uint64_t notes_said; /* on that connection */
	/* Until it has room for a note, or until they are given back. */
	struct kvpull_rank_list to_say;
	struct kvpull_rank_list said; /* releases that it has not taken */
	uint64_t beat_ns;             /* next heartbeat */
	uint64_t beat_every_ns;
	uint64_t used_ns;
	uint64_t named_by; /* generation of the newest ticket: it has peer.address */
	struct kvpull_plan plan;
};

/*
 * Pulls that failed alike within FAILURES_NS of the first of them, which has a line
 * of its own: a dead producer fails all of its tickets at once.
 */
struct kvpull_failures {
	uint64_t incarnation; /* of the producer; 0: none failed yet */
	uint64_t until_ns;
	int32_t code;
	uint32_t more; /* without a line, beside the first */
	char producer[KVPULL_ENGINE_ID_BYTES_MAX + KVPULL_ADDRESS_BYTES_MAX];
};

/* A producer rank that was given up, and its entry is another's. */
struct kvpull_named {
	uint64_t incarnation;
	uint64_t self; /* by which we call it next */
};

/* The names by which we greet producers. */
struct kvpull_names {
	uint64_t ours;   /* our incarnation, of which all have the high bits */
	uint64_t selves; /* that were drawn */
	uint64_t self;   /* of new entries; 0: none was drawn yet */
	struct kvpull_named *named; /* [KVPULL_NAMED_MAX] */
	uint32_t named_count;
};

/* remote.c: the producer ranks that we read. */
struct kvpull_remotes {
	struct kvpull_peers peers; /* their connections */
	struct kvpull_remote *all; /* [count] */
	struct kvpull_map map;     /* incarnation -> index */
	uint32_t count;            /* kvpull_config_peer_entries(), or fewer */
	uint32_t end;              /* remotes from here on were never taken */
	uint32_t changed;          /* some are: claims on them have work */
	uint64_t due_ns;           /* next time one has something due */
	uint64_t lives;            /* connections that were up */
	struct kvpull_names names;
};

/* claim.c: claimed tickets. */
struct kvpull_claims {
	struct kvpull_claim *all; /* [claims_max] by the slot's index */
	/* Claims of which something has changed; none that room.turns has. */
	struct kvpull_index_list work;
	uint32_t end;            /* claims from here on were never taken */
	uint32_t listed_count;   /* ranks in the lists of remotes */
	uint64_t lists_ns;       /* next look at those */
	uint64_t taken_every_ns; /* between looks at what peers took */
	uint64_t instance_id;    /* D's scheduler half; 0: unknown */
};

/* room.c: entries for peers of claims, and the claims that lack some. */
struct kvpull_room {
	struct kvpull_turns turns; /* claims that lack entries */
	uint32_t turn;             /* the one that takes entries, or NONE */
	uint32_t waited_count;     /* remotes with claims that wait */
	uint32_t waited_max;       /* mostly peers_max */
	uint64_t due_ns;           /* when those claims are tried again */
	uint64_t after_ns; /* not before: a try of many takes its time */
	uint64_t pull_ns;  /* a pull among them was tried last */
	uint64_t said_ns;  /* that there is no room, in the log */
};

/* give.c: calls that give tickets back. */
struct kvpull_gives {
	uint64_t due_ns;  /* next time one is to be made, or ends */
	uint64_t said_ns; /* that tickets were given back, in the log */
};

/* Messages on their way in or out; nobody keeps one. */
struct kvpull_scratch {
	struct kvpull_welcome *welcome;
	struct kvpull_serve *view; /* what a welcome tells of */
	struct kvpull_hello *hello;
	struct kvpull_give *give;
	uint8_t *message; /* KVPULL_MESSAGE_BYTES_MAX */
};

/* The answer of peers(); the lock is taken when a peer's state changes. */
struct kvpull_told {
	pthread_mutex_t lock;
	struct kvpull_peer_info *peers; /* [remotes.count] */
	uint32_t count;
};

/* progress=thread */
struct kvpull_progress_thread {
	pthread_t id;
	uint32_t runs;
	_Atomic uint32_t stop;
	int wait_fd; /* epoll of the handover's wake-up and the transport */
};

struct kvpull_progress {
	const struct kvpull_facts *facts;
	const struct kvpull_log *log; /* the facts' */
	struct kvpull_handover *handover;
	struct kvpull_handover_end end;
	struct kvpull_routes routes;
	struct kvpull_failures failures;
	/* A caller that was let in is a consumer, by the same index. */
	struct kvpull_callers callers;
	struct kvpull_pull *pulls; /* [pulls_max] by the slot's index */
	struct kvpull_claims claims;
	struct kvpull_remotes remotes;
	struct kvpull_room room;
	struct kvpull_reads reads; /* a request is a pull */
	struct kvpull_gives gives;
	struct kvpull_scratch scratch;
	uint32_t serving;     /* regions are known */
	uint32_t wake_wanted; /* the engine sleeps, and was told something */
	uint64_t timer_ns;    /* next time something is due */
	struct kvpull_progress_counts *counts; /* in the status file */
	uint64_t run_ns;                       /* this run began */
	struct kvpull_told told;
	struct kvpull_progress_thread thread;
};

/* The rank of a claim that a list of ranks has as this id. */
static inline struct kvpull_claim_rank *
kvpull_claim_rank_of(const struct kvpull_claims *claims, uint32_t id)
{
	return &claims->all[id / KVPULL_RANKS_MAX].ranks[id % KVPULL_RANKS_MAX];
}

/*
 * 1: the last word on the claim at this rank is to be given back by its tag: the
 * producer, or our route to it, turns us away. It is there, but not for us.
 */
static inline int kvpull_give_wants(const struct kvpull_remote *remote,
				    const struct kvpull_claim_rank *rank)
{
	if (!remote->peer.route->transport->ops->give_bytes_max)
		return 0;
	if (remote->peer.state == KVPULL_PEER_GONE)
		return remote->peer.code != KVPULL_EPEER;
	return remote->peer.state == KVPULL_PEER_WAIT && !rank->was_told &&
	       (remote->peer.retry.wait_ns == KVPULL_RETRY_WAIT_NS_MAX ||
		remote->peer.code == KVPULL_EAUTH ||
		remote->peer.code == KVPULL_EREJECTED);
}

/* UINT64_MAX: one less. A statistic with one writer. */
static inline void kvpull_count_add(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

/* Hand an index to the engine's thread. */
static inline void kvpull_progress_tell(struct kvpull_progress *progress,
					uint32_t kind, uint32_t index)
{
	progress->wake_wanted |=
		(uint32_t)kvpull_handover_push(&progress->end, kind, index, 0);
}

/* Let something be due at at_ns at the latest. */
static inline void kvpull_due_by(uint64_t *due_ns, uint64_t at_ns)
{
	if (at_ns < *due_ns)
		*due_ns = at_ns;
}

/* progress_status.c: what this thread shows of itself */
void kvpull_show_consumer(struct kvpull_progress *progress, uint32_t index,
			  uint32_t uid);
void kvpull_show_consumer_gone(struct kvpull_progress *progress,
			       uint32_t index);
void kvpull_progress_peers_tell(struct kvpull_progress *progress);
/* The peer's row has another reason for its route. */
void kvpull_show_peer_why(struct kvpull_progress *progress, uint32_t index);
/* It is connected, and has said which rank it is. */
void kvpull_show_peer_up(struct kvpull_progress *progress, uint32_t index);
void kvpull_show_peer_down(struct kvpull_progress *progress, uint32_t index,
			   int32_t code);
void kvpull_show_claim(struct kvpull_progress *progress,
		       const struct kvpull_claim *claim);
/* A rank took, or will take, the last word on a claim. */
void kvpull_show_release(struct kvpull_progress *progress,
			 const struct kvpull_claim *claim,
			 const struct kvpull_claim_rank *rank);
void kvpull_show_pull(struct kvpull_progress *progress, uint32_t index);
/* Sets the pull's row and adds the event; KVPULL_DID_NOTHING adds none. */
void kvpull_show_pull_state(struct kvpull_progress *progress, uint32_t index,
			    enum kvpull_status_what what);
/* Failed pulls that have no line of their own have one together, when it is due. */
void kvpull_show_failures(struct kvpull_progress *progress, uint64_t now_ns);
/* The device of the worker, if it has one; what it has mapped of peers. */
void kvpull_show_device(struct kvpull_progress *progress);
void kvpull_show_mapped(struct kvpull_progress *progress);
/* Before its parts are freed: what it was, in the log where it failed. */
void kvpull_show_pull_end(struct kvpull_progress *progress, uint32_t index,
			  uint64_t ended_ns);

/* serve.c */
extern const struct kvpull_callers_owner kvpull_serve_owner;
/* A give-back message, of whoever called; own: the progress half. */
void kvpull_serve_given(void *own, const void *bytes, size_t byte_count);

/* meet.c: as in kvpull_peers_owner. */
size_t kvpull_remote_hello(void *own, const struct kvpull_peer *peer,
			   const uint8_t theirs[KVPULL_NONCE_BYTES],
			   uint8_t *bytes);
int KVPULL_MUST_CHECK kvpull_remote_welcome(void *own, struct kvpull_peer *peer,
					    const struct kvpull_event *event,
					    struct kvpull_refusal *refusal);

/* remote.c */
int KVPULL_MUST_CHECK kvpull_remotes_init(struct kvpull_progress *progress,
					  struct kvpull_arena *arena);
/*
 * Find or make the peer. generation: the ticket's, and the newest one says where
 * the peer is. KVPULL_EROUTE; KVPULL_EFULL: no entry, KVPULL_EAGAIN: its way
 * cannot tell now.
 */
int KVPULL_MUST_CHECK kvpull_remote_find(struct kvpull_progress *progress,
					 const struct kvpull_ticket_rank *rank,
					 uint64_t generation, uint64_t now_ns,
					 uint32_t *peer);
/* 0: it is not known, and there is no way to it. */
int kvpull_remote_has_way(const struct kvpull_progress *progress,
			  const struct kvpull_ticket_rank *rank);
/* Its entry may be another's: nobody has a claim on it, nor is it connected. */
int kvpull_remote_is_free(const struct kvpull_remote *remote);
/* Entries of such, and those that were never taken. */
uint32_t kvpull_remote_free_count(const struct kvpull_remotes *remotes);
/*
 * Make room for so many: close the connections unused for longest. Return: how
 * many are being closed; fewer where all others are used.
 */
uint32_t kvpull_remote_idle_close(struct kvpull_remotes *remotes,
				  uint32_t count, uint64_t now_ns);
/* On its connection, which is up. 0; KVPULL_EAGAIN: it has no room. */
int KVPULL_MUST_CHECK kvpull_remote_note(struct kvpull_remote *remote,
					 const struct kvpull_record *record);
void kvpull_remote_event(struct kvpull_progress *progress,
			 const struct kvpull_route *route,
			 const struct kvpull_event *event, uint64_t now_ns);
/* Has KVPULL_EVENT_PEER_RATE: peers() and the status file say the rate. */
void kvpull_remote_rate(struct kvpull_progress *progress,
			const struct kvpull_route *route,
			const struct kvpull_event *event, uint64_t now_ns);
void kvpull_remote_run(struct kvpull_progress *progress, uint64_t now_ns);

/* give.c: after the claims, which say what is to be given back. */
void kvpull_give_run(struct kvpull_progress *progress, uint64_t now_ns);

/* lend.c: a peer is up, or down. */
void kvpull_lend(struct kvpull_progress *progress, uint32_t peer);
void kvpull_lend_end(struct kvpull_progress *progress, uint32_t peer);

/* room.c */
/* Must be called after kvpull_remotes_init(). */
void kvpull_room_init(struct kvpull_progress *progress,
		      struct kvpull_arena *arena);
/* Claims that lack entries are tried then. */
static inline uint64_t kvpull_room_due_ns(const struct kvpull_room *room)
{
	return room->due_ns > room->after_ns ? room->due_ns : room->after_ns;
}
/*
 * Entries for all ranks of the claim that lack one, or for none. 0, also where
 * there is no way to some, which are lost. Else to be tried again: KVPULL_EFULL;
 * KVPULL_EAGAIN: a way cannot tell now.
 */
int KVPULL_MUST_CHECK kvpull_room_take(struct kvpull_progress *progress,
				       uint32_t claim, uint64_t now_ns);
/*
 * The oldest claim with a pull among those that lack entries, where the next turn
 * is the oldest's; else KVPULL_NONE.
 */
uint32_t kvpull_room_oldest(const struct kvpull_progress *progress);
/* Begins to wait for an entry; a new claim has none yet. */
void kvpull_room_wait(struct kvpull_progress *progress,
		      struct kvpull_claim *claim, uint64_t now_ns);
/* A pull of it begins, or its release: it waits no more. */
void kvpull_room_want(struct kvpull_progress *progress,
		      struct kvpull_claim *claim);
/* Its pulls are over, and more may come. */
void kvpull_room_unwant(struct kvpull_progress *progress, uint32_t claim);
/* The rank was released, or is lost. */
void kvpull_room_close(struct kvpull_progress *progress,
		       struct kvpull_claim *claim,
		       struct kvpull_claim_rank *rank, uint32_t state,
		       uint64_t now_ns);

/* claim.c */
void kvpull_claims_init(struct kvpull_claims *claims,
			const struct kvpull_config *config,
			struct kvpull_arena *arena);
void kvpull_claim_new(struct kvpull_progress *progress, uint32_t claim,
		      uint64_t now_ns);
void kvpull_claim_release(struct kvpull_progress *progress, uint32_t claim);
void kvpull_claim_run(struct kvpull_progress *progress, uint64_t now_ns);
/* The first so many that wait for their peer are over. */
void kvpull_claim_given(struct kvpull_progress *progress,
			struct kvpull_remote *remote, uint32_t count,
			enum kvpull_claim_state state, uint64_t now_ns);
/* A pull begins to use the claim. */
void kvpull_claim_use(struct kvpull_progress *progress, uint32_t claim,
		      int32_t priority);
void kvpull_claim_unuse(struct kvpull_progress *progress, uint32_t claim);

/* pull.c */
extern const struct kvpull_reads_owner kvpull_pull_owner;
void kvpull_pull_new(struct kvpull_progress *progress, uint32_t pull,
		     uint32_t serial);
void kvpull_pull_event(struct kvpull_progress *progress,
		       const struct kvpull_event *event);

#endif /* KVPULL_PLUGIN_PROGRESS_STATE_H */
