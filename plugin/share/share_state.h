/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle's state; seen in this room alone.
 *
 * handle.c   open, close, poll
 * owner.c    the owner's names, memory and guards
 * callers.c  readers of our share, and their handshake
 * links.c    peers whose share we read: our hello, their welcome
 * asks.c     probes, reads and spills of an engine, and their ends
 * spill.c    chunks on their way into slots
 * sleep.c    the descriptor that an engine sleeps on
 * show.c     the status file, and the counters
 */
#ifndef KVPULL_PLUGIN_SHARE_STATE_H
#define KVPULL_PLUGIN_SHARE_STATE_H

#include <sys/types.h>

#include "base/clock.h"
#include "base/wakeup.h"
#include "plugin/bytes/share.h"
#include "plugin/counters/counters.h"
#include "plugin/pool/pool.h"
#include "plugin/route/route.h"
#include "plugin/session/callers.h"
#include "plugin/session/peers.h"
#include "plugin/share/reader.h"
#include "plugin/share/share.h"
#include "plugin/share/spill.h"
#include "plugin/status/status.h"
#include "shm/file.h"
#include "shm/segment.h"

/* A peer whose share we read. */
struct kvpull_share_link {
	struct kvpull_peer peer;
	int32_t error;      /* the last failure, since it was up; shown */
	uint32_t has_reads; /* UP, or ends of its reads are still to be told */
	uint32_t reader;    /* the reader's peer, while it has reads */
	uint32_t reserved;
	struct kvpull_reader_peer shown;
};

/* A probe or a read in flight, by the low half of its id. */
struct kvpull_share_ask {
	struct kvpull_reader_place *places; /* the caller's; NULL: a read */
	size_t place_bytes;
	int32_t *codes;
	uint32_t place_end;   /* of a probe: places that can be read */
	uint32_t peer;        /* of a read */
	uint64_t chunk_bytes; /* of its pieces */
	uint64_t begun_ns;    /* 0: nobody can look */
};

struct kvpull_reader {
	struct kvpull_log log;
	struct kvpull_log_budget log_budget;
	struct kvpull_config config;
	struct kvpull_arena arena;
	struct kvpull_routes routes;
	struct kvpull_share_naming naming;
	struct kvpull_pool_namespace namespace_digest;
	char engine_id[KVPULL_ENGINE_ID_BYTES_MAX];
	uint64_t incarnation;
	pid_t pid;
	struct kvpull_status status;
	uint64_t run_ns; /* when the last poll began, or it was opened */
	_Atomic uint64_t refused; /* by the route: they are not counted here */
	union kvpull_reader_counts counts; /* rows that are its own */
	uint8_t *message; /* scratch, KVPULL_MESSAGE_BYTES_MAX */
	struct kvpull_reader_hello *hello;    /* scratch */
	struct kvpull_share_welcome *welcome; /* scratch */
	struct kvpull_serve *view;            /* scratch */

	/* The owner. */
	struct kvpull_arena pool_arena; /* sealed when the share has begun */
	struct kvpull_shared directory;
	struct kvpull_shared guards;
	struct kvpull_shared chunks; /* one of these two */
	struct kvpull_file_lent lent;
	struct kvpull_share_spills spills; /* none without slots */
	struct kvpull_serve *serve;
	struct kvpull_pool_share terms;
	uint64_t chunk_bytes;
	struct kvpull_pool *pool;
	uint32_t is_ended;
	struct kvpull_callers callers;

	/* The reader. */
	struct kvpull_share_reader *reader;
	struct kvpull_share_link *links; /* [links_max] */
	uint32_t links_max;
	uint32_t reserved;
	struct kvpull_peers peers;
	uint64_t links_due_ns; /* they have something due by themselves */
	struct kvpull_share_ask asks[KVPULL_READER_OPEN_MAX];

	/* Wakes an engine that sleeps. */
	struct kvpull_wakeup wakeup;
};

/* owner.c: of the caller's struct; nothing is changed where it is refused. */
int KVPULL_MUST_CHECK
kvpull_share_names_take(struct kvpull_reader *share,
			const struct kvpull_reader_naming *theirs,
			struct kvpull_error_detail *detail);
void kvpull_share_memory_free(struct kvpull_reader *share,
			      uint64_t close_by_ns);
/* NULL: no handle, or nothing is shared. */
struct kvpull_pool *kvpull_share_pool(const struct kvpull_reader *share);
/* NULL: or it is no chunk: slots are the library's own. */
struct kvpull_pool *kvpull_share_pool_of(const struct kvpull_reader *share,
					 uint32_t chunk);

/* callers.c */
extern const struct kvpull_callers_owner kvpull_share_callers_owner;
/* Disconnects the callers that are in; a CALLER_DOWN follows for each. */
void kvpull_share_callers_drop(struct kvpull_reader *share);

/* links.c */
extern const struct kvpull_peers_owner kvpull_share_peers_owner;
/* Return: when they have something due by themselves; UINT64_MAX: never. */
uint64_t kvpull_share_links_run(struct kvpull_reader *share, uint64_t now_ns);
/* 0 and the reader's number of a peer, or why it cannot be asked. */
int KVPULL_MUST_CHECK kvpull_share_link_find(const struct kvpull_reader *share,
					     uint32_t peer, uint32_t *reader);

/* asks.c: what ended; records written. */
uint32_t kvpull_share_ends(struct kvpull_reader *share,
			   struct kvpull_reader_record *records,
			   uint32_t capacity, size_t record_bytes);

/* sleep.c: the next poll has something to do. Nothing if nobody sleeps. */
void kvpull_share_wake(struct kvpull_reader *share);
/*
 * After a poll of one who sleeps. worked: it had something to do, or something
 * to tell; due_ns: when the next has by itself.
 */
void kvpull_share_sleep(struct kvpull_reader *share, uint32_t worked,
			uint64_t due_ns);
/* The file of slots, too. 0; -1: errno. */
int KVPULL_MUST_CHECK kvpull_share_sleep_watch(struct kvpull_reader *share);
void kvpull_share_sleep_end(struct kvpull_reader *share);

/*
 * show.c: what others see. A few stores each, nothing where there is no file.
 * _open: 0; KVPULL_ENOMEM. The counters are as of the last poll, and the end.
 */
int KVPULL_MUST_CHECK kvpull_share_show_open(struct kvpull_reader *share,
					     uint32_t tp_size);
void kvpull_share_show_close(struct kvpull_reader *share);
void kvpull_share_show_run(struct kvpull_reader *share, uint64_t now_ns);
void kvpull_share_show_counts(struct kvpull_reader *share);
void kvpull_share_show_asked(struct kvpull_reader *share);
void kvpull_share_show_pool(struct kvpull_reader *share);
void kvpull_share_show_link_new(struct kvpull_reader *share,
				const struct kvpull_share_link *link);
/* Shows the link's state, retries and last failure. */
void kvpull_share_show_link(struct kvpull_reader *share,
			    const struct kvpull_share_link *link);
void kvpull_share_show_link_up(struct kvpull_reader *share,
			       const struct kvpull_share_link *link,
			       uint32_t pid);
void kvpull_share_show_link_down(struct kvpull_reader *share,
				 const struct kvpull_share_link *link,
				 int32_t code);
/* Shows a refusal, whichever side refused. */
void kvpull_share_show_refusal(struct kvpull_reader *share,
			       const struct kvpull_share_link *link,
			       const char *field, const char *there,
			       const char *here);
/* Let in by the hello that is in share->hello. */
void kvpull_share_show_caller(struct kvpull_reader *share,
			      const struct kvpull_caller *caller, uint32_t uid);
void kvpull_share_show_caller_gone(struct kvpull_reader *share,
				   const struct kvpull_caller *caller);
/* When a read begins; 0: nobody can look. */
uint64_t kvpull_share_show_clock(const struct kvpull_reader *share);
/* bytes: how many the good pieces have. */
void kvpull_share_show_read(struct kvpull_reader *share,
			    const struct kvpull_share_ask *ask,
			    const struct kvpull_share_reader_end *end,
			    uint64_t bytes);

#endif /* KVPULL_PLUGIN_SHARE_STATE_H */
