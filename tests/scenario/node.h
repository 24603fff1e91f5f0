/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine in a process of its own, driven over a socket pair.
 *
 * The driver (the case's process) sends one message and gets one reply; what
 * ends in the engine meanwhile comes as events. node.c is the driver's side,
 * node_engine.c the engine's process.
 */
#ifndef KVPULL_TESTS_NODE_H
#define KVPULL_TESTS_NODE_H

#include <sys/types.h>

#include "plugin/counters/counters.h"
#include "tests/scenario/scenario.h"

#define NODE_TICKET_BYTES_MAX 16384u
#define NODE_EVENTS_MAX 8192u
#define NODE_BLOCKS_MAX 1024u /* of a request, all groups */

enum node_op {
	NODE_PREFILL = 1, /* P: prefill and finish, n siblings */
	NODE_SIBLING,     /* P: a late sibling of key's family finishes */
	NODE_PULL,        /* D: admit, pull, compare, finish; n siblings */
	NODE_ADMIT,       /* D: admit alone: the ticket is claimed */
	NODE_START,       /* D: pull what was admitted */
	NODE_ABORT,       /* either: the client went away; replies kind NOTHING
			     where no pull had begun */
	NODE_REJECT,      /* D: refused before admission, n times */
	NODE_STATS,
	/* The engine's thread stops for at_ns; 0: for ever. key: aborts it first. */
	NODE_FREEZE,
	NODE_FORK,   /* leave a child that holds what we have open */
	NODE_SPIN,   /* flags 1: poll without sleeping */
	NODE_REVOKE, /* revoke_all */
	NODE_DRAIN,
	NODE_RANK_KILL,  /* split: kill rank .kind, with SIGKILL */
	NODE_RANK_START, /* split: start it again */
	NODE_QUIT,       /* close and exit */
	NODE_REPLY,
	NODE_EVENT
};

/* Kinds of an event beside KVPULL_POLL_*. */
#define NODE_EVENT_NOTHING 16u /* D: nothing to load: served locally */

/* Flags of NODE_PREFILL, NODE_PULL and NODE_ADMIT. */
#define NODE_FLAG_KEEP 1u      /* do not finish after the load */
#define NODE_FLAG_UNCHECKED 2u /* P overwrites: do not compare */

struct node_message {
	uint32_t op;
	int32_t code;
	uint64_t key;   /* of the first sibling; the others follow */
	uint64_t seed;  /* of the blocks, and the prompt's digest */
	uint64_t at_ns; /* when it was done or seen there */
	uint64_t wrong; /* bytes */
	uint64_t bytes;
	uint64_t took_ns;
	uint32_t blocks; /* a group */
	uint32_t siblings;
	uint32_t kind; /* of an event */
	int32_t reason;
	uint32_t flags;
	uint32_t ticket_bytes;
	char ticket[NODE_TICKET_BYTES_MAX];
};

struct node_stats {
	union kvpull_scheduler_counts scheduler;
	union kvpull_worker_counts ranks[ENGINE_RANKS_MAX];
	uint64_t double_reports;
	uint64_t late_releases; /* steps that saw a release and no end */
	uint64_t lost_requests; /* events for requests not known */
	uint32_t requests_open;
	uint32_t blocks_free;
	uint32_t blocks_all;
	uint32_t fds;
	uint32_t maps; /* of memfds */
	uint32_t reserved;
};

struct node_params {
	const struct scenario *scenario;
	const char *id;
	const char *config; /* more JSON members, "" or "\"lease_ms\":10" */
	struct engine_shape shape;
	uint32_t tp_size;
	uint32_t pp_size; /* 0: 1 */
	uint32_t foreign;
	uint32_t gpu;      /* blocks of a GPU's, as with scenario->device */
	uint32_t device;   /* memory that no device exported */
	uint32_t scribble; /* P: overwrite what came back */
	uint32_t spin;     /* 1: never sleep */
	const char *weights;
	const char *model;
	const char *dtype;
	const char *revision;
	const char *layout;
	const char *socket_dir;    /* NULL: the case's folder */
	uint32_t uid;              /* not 0: become this user */
	uint32_t split;            /* 1: each rank is a process of its own */
	void (*before_open)(void); /* in the new process; NULL: nothing */
	const char *log_path;      /* NULL: none */
	/* In the new process; NULL: engine_library(). */
	const struct kvpull_connector_ops *(*library)(void);
};

struct node {
	const char *id;
	pid_t pid;
	int control;
	uint32_t event_first;
	uint32_t event_count;
	struct node_message *events; /* circular, tickets not kept */
};

/* Start an engine; returns when it serves. Fails the case on error. */
void node_open(struct node *node, const struct node_params *params);
/* As node_open(), but says what open returned. */
int node_try(struct node *node, const struct node_params *params);
/* Starts the process alone, which opens meanwhile. For node_kill(). */
void node_start(struct node *node, const struct node_params *params);
void node_close(struct node *node); /* clean shutdown */
/* Both are empty, and end. */
void node_pair_close(struct node *p, struct node *d);
void node_kill(struct node *node); /* SIGKILL, reaped */

/* Send, and wait for the reply. */
void node_call(struct node *node, struct node_message *message);
/* Send alone; the reply is to be fetched by node_reply(). */
void node_send(struct node *node, const struct node_message *message);
int node_reply(struct node *node, struct node_message *reply);
/* Next event; 0: none within the limit. */
int node_event(struct node *node, struct node_message *event,
	       uint64_t limit_ns);
/* Next event of any of them; returns its node's index, -1: none. */
int node_event_any(struct node *const *nodes, uint32_t count,
		   struct node_message *event, uint64_t limit_ns);
/* Wait for the end of one request; others' events are dropped. */
void node_await(struct node *node, uint64_t key, struct node_message *event,
		uint64_t limit_ns);
void node_stats_get(struct node *node, struct node_stats *stats);
/* Each of a producer's ranks has heard of so many claims since its open. */
void node_claims_await(struct node *node, uint32_t rank_count, uint64_t claims,
		       uint64_t limit_ns);

/*
 * A prefill; the ticket is left in the message. Fails if it is not held.
 * Return: the hold's key.
 */
uint64_t node_prefill(struct node *node, struct node_message *message,
		      uint32_t blocks, uint64_t seed);
/* Pull what message says (ticket, blocks, seed) at another node. */
uint64_t node_pull(struct node *node, const struct node_message *message);
/* So many requests, one by one, every byte compared; then both are empty. */
void node_pulls(struct node *p, struct node *d, uint32_t blocks,
		uint32_t count);
/*
 * All is over: pools full, tables empty, nothing reported twice. Waits up to
 * five seconds for the last words.
 */
void node_check_empty(struct node *node);

/* Sockets in a folder, also those that do not listen yet. */
uint32_t node_sockets(const char *folder);

/* The engine's process; node_engine.c. */
void node_engine_main(const struct node_params *params, int control)
	__attribute__((noreturn));

#endif /* KVPULL_TESTS_NODE_H */
