/* SPDX-License-Identifier: Apache-2.0 */
/**
 * kvpull connector ABI, version 1.
 *
 * An engine dlopen()s libkvpull.so.1, looks up kvpull_connector_v1() and works
 * through the two tables it returns. The scheduler half is pure bookkeeping, one
 * a scheduler process. The worker half has memory, peers, pulls and holds, one a
 * rank. Both halves serve both roles: a producer keeps blocks for others to
 * read, a consumer pulls them.
 *
 * Conventions, beside those of common.h
 * - A request key is a u64 that the engine chooses, never 0, never used twice
 *   in the life of the two halves. Block ids are u32, 0-based.
 * - Output buffers are (pointer, capacity). The library always returns the bytes
 *   needed. KVPULL_ETOOSMALL means that nothing was written and nothing changed.
 * - NULL where a pointer is needed (a handle, an answer, bytes with a count) is
 *   KVPULL_EINVAL, and nothing happened. Bytes with a count of 0 may be NULL.
 * - Steps: decisions of the scheduler half reach a worker by step_build() and
 *   step() alone. Ends reach the scheduler half by result_build() and
 *   result_take(). An engine makes a step as often as it schedules, and whenever
 *   has_pending() has KVPULL_PENDING_STEP. That includes the time after
 *   request_finished() and request_rejected(): without a step the producer waits
 *   for a release that no worker has sent.
 *   While any ticket is outstanding, the engine makes a step or calls
 *   has_pending() at least every lease_ms / 3, even with nothing to schedule. A
 *   worker that hears nothing for two leases (the longer of its own and the
 *   producer's) renews only running pulls. The producer then has its blocks back
 *   within three leases. Where both halves of an engine of one rank live in one
 *   process, worker_attach() reaches the worker without a step.
 * - Threads: all calls on one scheduler handle from one thread at a time, all
 *   calls on one worker handle likewise. Nothing blocks but open, close,
 *   memory_alloc and regions_register. Callbacks (log, fatal) run on the
 *   caller's thread, and on the worker's own threads for log alone.
 */
#ifndef KVPULL_CONNECTOR_H
#define KVPULL_CONNECTOR_H

#include <stddef.h>
#include <stdint.h>

#include "kvpull/common.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVPULL_ABI_MAJOR 1
#define KVPULL_ABI_MINOR 0

struct kvpull_scheduler; /* opaque */
struct kvpull_worker;    /* opaque */

/** A ticket's contents as ticket_peek() reads them, without a handle. */
struct kvpull_ticket_info {
	size_t struct_size;
	uint32_t version;
	uint32_t rank_count;
	uint32_t prompt_tokens;
	uint32_t block_count; /* all groups */
	uint32_t payload_bytes;
	uint32_t reserved;
	uint64_t generation;
	uint32_t slot;
	uint32_t reserved2;
	uint8_t trace[KVPULL_TRACE_BYTES]; /* the producer's; zeros: none */
};

/* Request flags. */
#define KVPULL_REQUEST_WANTS_HOLD 1u /* producer: keep the blocks at finish */
#define KVPULL_REQUEST_PULL 2u  /* consumer: load from the ticket's owner */
#define KVPULL_REQUEST_ALONE 4u /* producer: own hold, no family */

/** A request that entered the engine. */
struct kvpull_request {
	size_t struct_size;
	uint64_t key;
	uint64_t parent_key; /* n > 1: same for all siblings; 0: none */
	const void *ticket;  /* consumer: ticket text, or NULL */
	size_t ticket_bytes;
	uint32_t prompt_tokens;
	uint32_t flags;
	/*
	 * A cryptographic digest, cut to 16 bytes, of the token ids and of all
	 * else that changes their KV (LoRA, multimodal inputs, cache salt). Both
	 * engines compute it in the same way, of the prompt_tokens tokens. Zeros
	 * at both ends: nothing is compared.
	 */
	uint8_t prompt_digest[KVPULL_DIGEST_BYTES];
	/*
	 * The engine's own id, for logs; may be NULL. Cut at 47 bytes, control
	 * characters become '?'.
	 */
	const char *label;
	/*
	 * Producer: the trace that this request is part of, 16 bytes of its id
	 * and 8 of its parent's, as in W3C's traceparent. The ticket carries
	 * both; ticket_peek() returns them. Zeros: none.
	 */
	uint8_t trace[KVPULL_TRACE_BYTES];
	/*
	 * The adapter (LoRA) that computes its KV, by a number of the engine's;
	 * 0: none. changed() names it.
	 */
	uint64_t adapter;
	/*
	 * Consumer: the order of pulls that wait for each other in a worker.
	 * The smaller number goes first, as in vLLM; any int32_t, 0: the
	 * default. Equal ones go as they came. Pulls wait for entries of
	 * peers_max, for room in the library's tables, and for turns: of
	 * copies, of pieces of a file, of READs from one producer rank. A
	 * turn is a small pull, a share of a larger one (1 MiB at most), or
	 * a batch of READs or pieces.
	 * The last of eight turns goes to the pull that waits longest,
	 * whatever its priority. So none starves: a pull waits for at most
	 * eight times the turns that it and the pulls before it need.
	 * Priority does not order what has begun: copies, posted READs, a pull
	 * that takes entries already. Nor are reads from unlike producer ranks
	 * over a network, places of pulls_max (the first request that asks
	 * has one), and all that a producer does.
	 */
	int32_t priority;
	uint32_t reserved; /* 0 */
};

/* Answers of matched_tokens(). */
#define KVPULL_MATCH_NOTHING 0
#define KVPULL_MATCH_LOAD 1
#define KVPULL_MATCH_WAIT 2

struct kvpull_blocks {
	uint32_t first_index; /* logical index in the prompt of block_ids[0] */
	uint32_t block_count;
	const uint32_t *block_ids;
};

/**
 * Local blocks taken for a request that may load: the blocks that the pull will
 * write, and no others. They hold tokens [local_tokens, local_tokens +
 * external_tokens) of the prompt, as given to and answered by matched_tokens().
 * first_index is the logical index of the first block, local_tokens /
 * block_tokens. Earlier blocks are the engine's own prefix; the engine computes
 * later ones.
 */
struct kvpull_allocation {
	size_t struct_size;
	uint64_t key;
	uint32_t external_tokens; /* 0: full local hit, nothing to read */
	uint32_t group_count;
	const struct kvpull_blocks *groups; /* [group_count] */
	size_t group_bytes;                 /* sizeof(*groups) */
};

/* Why a request ended. */
#define KVPULL_FINISH_LENGTH 0u
#define KVPULL_FINISH_STOP 1u
#define KVPULL_FINISH_ABORT 2u
#define KVPULL_FINISH_ERROR 3u
#define KVPULL_FINISH_REJECT 4u

/* Answers of request_finished(): who owns the blocks now. */
#define KVPULL_FINISH_FREE 0
#define KVPULL_FINISH_HELD 1

#define KVPULL_FINISH_READY_NEEDED 1u /* writes end later: hold_ready() tells */

/**
 * The end of a request, however it ended. Groups are empty where nothing is to be
 * held. For a hold, groups name the blocks of the prompt, a row for each group of
 * open(), in that order. first_index leaves out blocks that the engine gave away
 * (behind a sliding window). Blocks of tokens beyond the prompt may be among
 * them; no consumer asks for those. A prompt token that computed_tokens counts
 * and no block has: FREE, with a line. Only reasons LENGTH and STOP can be held.
 * A STATE group names one block: the slot with the state after the lesser of
 * computed_tokens and the prompt's tokens, n; its first_index is (n - 1) /
 * block_tokens. Another slot, or none, is FREE, with a line.
 * payload travels in the ticket to the consumer's engine: see payload_get().
 * last_block_bytes travels in it, too, for routers and the like; no call of this
 * minor tells it, and consumers read whole blocks.
 */
struct kvpull_finish {
	size_t struct_size;
	uint64_t key;
	uint32_t reason;
	uint32_t flags;
	uint32_t computed_tokens;  /* tokens whose KV the blocks hold */
	uint32_t last_block_bytes; /* valid bytes of the last block; 0: all */
	uint32_t group_count;
	uint32_t payload_bytes;             /* 0 .. KVPULL_PAYLOAD_BYTES_MAX */
	const struct kvpull_blocks *groups; /* [group_count] */
	size_t group_bytes;                 /* sizeof(*groups) */
	const void *payload;
	void *ticket; /* out: text, not NUL-terminated */
	size_t ticket_capacity;
	size_t ticket_bytes; /* out: 0 = no ticket */
};

/* Bits of has_pending(). */
#define KVPULL_PENDING_STEP 1u /* step_build() has something to say */
#define KVPULL_PENDING_HOLDS 2u
#define KVPULL_PENDING_PULLS 4u

#define KVPULL_RESET_FORGET 1u /* families and pulled tickets */
#define KVPULL_RESET_REVOKE 2u /* end every hold */
/* The prefix cache is empty, and no request has blocks: see changed(). */
#define KVPULL_RESET_CLEARED 4u

/** Scheduler half. */
struct kvpull_scheduler_ops {
	size_t struct_size;
	/**
	 * Opens the scheduler half. Return 0, KVPULL_EINVAL, KVPULL_ECONFIG,
	 * KVPULL_ENOMEM or KVPULL_EUNSUPPORTED; detail (may be NULL) says why.
	 */
	int (*open)(const struct kvpull_open_params *params,
		    struct kvpull_scheduler **scheduler,
		    struct kvpull_error_detail *detail);
	/**
	 * Frees all; NULL does nothing. Decisions that no step_build() returned
	 * are lost. Close the workers, too: that releases their tickets and
	 * revokes their holds.
	 */
	void (*close)(struct kvpull_scheduler *scheduler);
	/**
	 * Takes the bytes of a worker's rank_info(), for each of the tp_size
	 * ranks. Idempotent; may be called at any time. A new incarnation of a
	 * rank ends the holds and pulls of the old one, including pulls
	 * commanded since its end. Holds that the old worker had not reported
	 * yet are reported SENT by the new one; keep their blocks until then.
	 * The old worker's pulls are never reported for this rank; other ranks
	 * report theirs. After a worker's restart call this before the next
	 * allocated().
	 * Return 0, KVPULL_EVERSION, KVPULL_ENOTMINE, KVPULL_EINVAL (the bytes
	 * are damaged, or of a worker with another tp_size or model record).
	 */
	int (*rank_info)(struct kvpull_scheduler *scheduler, const void *bytes,
			 size_t byte_count);
	/**
	 * Counts the ranks whose rank_info() is not known yet. While any is
	 * missing, request_finished() answers FREE.
	 * Return: 0 .. tp_size; KVPULL_EINVAL (NULL).
	 */
	int (*ranks_missing)(struct kvpull_scheduler *scheduler);
	/**
	 * A request entered. With KVPULL_REQUEST_PULL its ticket is claimed at
	 * the next step, and heartbeats begin. A second call is a no-op. The key
	 * of a hold names that hold until it was reported SENT: a new request
	 * with it is not known, with a line in the log.
	 * Return 0; KVPULL_ENOTICKET, KVPULL_ENOTMINE, or KVPULL_EFULL at
	 * tickets_max or step_log_mib: the request is then known without a
	 * ticket. KVPULL_EFULL at requests_max: it is not known, and neither
	 * held nor pulled; further calls count it as an unknown key.
	 * Return KVPULL_EINVAL where a member is out of its range.
	 */
	int (*request_new)(struct kvpull_scheduler *scheduler,
			   const struct kvpull_request *request);
	/**
	 * How many tokens can be pulled beyond those computed locally.
	 * Idempotent; may be called at every step. At most pulls_max pulls are
	 * open at once: further requests get KVPULL_MATCH_WAIT. While a rank is
	 * unknown the answer is WAIT, too, for a lease; then it is
	 * KVPULL_MATCH_NOTHING, and the ticket is given back.
	 * Of siblings with one ticket the first gets LOAD. The others get WAIT
	 * until that pull ended, then NOTHING: the engine's prefix cache serves
	 * them. An engine without a prefix cache sets share_prefix to false, so
	 * that each sibling pulls; else the siblings compute the prompt again.
	 * A ticket of another prompt or model is KVPULL_MATCH_NOTHING, counted
	 * in mismatches, with a line in the log.
	 * With a STATE group a ticket offers all of its tokens or none: none to
	 * a request with fewer.
	 * Return KVPULL_MATCH_LOAD (*tokens is set), _NOTHING or _WAIT;
	 * KVPULL_EINVAL (NULL).
	 */
	int (*matched_tokens)(struct kvpull_scheduler *scheduler, uint64_t key,
			      uint32_t local_tokens, uint32_t *tokens);
	/**
	 * The engine took local blocks: the pull starts at the next step. With
	 * 0 external tokens the ticket is given back instead. A second call is a
	 * no-op. The blocks are this request's until LOADED or FAILED. At most
	 * pulls_max pulls are open at once. external_tokens is at most the
	 * number that matched_tokens() offered; with a STATE group it is that
	 * number, and the group names one block, that of the last token. A
	 * group of full attention names every block of these tokens. Further blocks, a missing block, and ids
	 * beyond the caches are KVPULL_EINVAL, with a line in the log. The
	 * library does not look for ids that are named twice: the block then has
	 * the bytes of the later one.
	 * Return 0, KVPULL_ENOKEY, KVPULL_EINVAL; KVPULL_ETRUNCATED,
	 * KVPULL_EFULL, KVPULL_EMISMATCH (the pull will be reported FAILED, with
	 * this reason).
	 */
	int (*allocated)(struct kvpull_scheduler *scheduler,
			 const struct kvpull_allocation *allocation);
	/**
	 * A request ended; called once a request. Writes the ticket if there is
	 * one. A sibling of a held request gets the family's ticket, and FREE.
	 * Unknown keys are FREE and a counter. Blocks or a payload that make no
	 * ticket, and ids beyond the caches, are FREE and a line in the log.
	 * Return KVPULL_FINISH_HELD: the blocks stay until each rank reported
	 * SENT. KVPULL_FINISH_FREE: the engine owns them. KVPULL_ETOOSMALL: call
	 * again.
	 */
	int (*request_finished)(struct kvpull_scheduler *scheduler,
				struct kvpull_finish *finish);
	/**
	 * The engine refused a request with this ticket before admission. Unless
	 * other users keep the ticket, a release is queued for the next step;
	 * make that step even if there is no request.
	 * Return 0, KVPULL_ENOTICKET, KVPULL_ENOTMINE, KVPULL_EFULL.
	 */
	int (*request_rejected)(struct kvpull_scheduler *scheduler,
				const void *ticket, size_t ticket_bytes);
	/**
	 * The ticket of a held request, for engines that answer later than
	 * they finish.
	 * Return 0, KVPULL_ENOKEY (not held, or its hold has ended),
	 * KVPULL_ETOOSMALL (*ticket_bytes is what it takes), KVPULL_EINVAL.
	 */
	int (*ticket_get)(struct kvpull_scheduler *scheduler, uint64_t key,
			  void *ticket, size_t capacity, size_t *ticket_bytes);
	/**
	 * The bytes for all workers of this step, the same for each rank;
	 * *byte_count 0 = nothing.
	 * Return 0, KVPULL_ETOOSMALL (*byte_count is what it takes),
	 * KVPULL_EINVAL.
	 */
	int (*step_build)(struct kvpull_scheduler *scheduler, void *bytes,
			  size_t capacity, size_t *byte_count);
	/**
	 * Takes the bytes of a worker's result_build(). Ranks may come in any
	 * order; bytes that came before are dropped. Call it before the engine
	 * acts on the records of the same step's poll().
	 * Return 0; KVPULL_EINVAL, KVPULL_EVERSION, KVPULL_ENOTMINE: nothing was
	 * taken, and the worker's next result has it again.
	 */
	int (*result_take)(struct kvpull_scheduler *scheduler,
			   const void *bytes, size_t byte_count);
	/**
	 * Return: KVPULL_PENDING_* bits; KVPULL_ERANK: a rank has not reported
	 * the end of a hold for hold_max_ms and 10 s more; KVPULL_EINVAL (NULL).
	 */
	int (*has_pending)(struct kvpull_scheduler *scheduler);
	/**
	 * flags: KVPULL_RESET_* bits. FORGET when the engine clears its prefix
	 * cache: siblings no longer wait for blocks in it. REVOKE ends every
	 * hold in the next step, as a worker's revoke_all() does at once.
	 * CLEARED: the engine's prefix cache is empty, and no request has blocks
	 * that it got before; see changed().
	 * Return 0, KVPULL_EINVAL.
	 */
	int (*reset)(struct kvpull_scheduler *scheduler, uint32_t flags);
	/**
	 * on != 0: no new holds, until a call with 0.
	 * Return: holds left, 0 .. max_holds; KVPULL_EINVAL (NULL).
	 */
	int (*drain)(struct kvpull_scheduler *scheduler, uint32_t on);
	/**
	 * Every counter of this half since open: name, text, kind and value.
	 * scheduler NULL: the values are 0. counter_bytes: sizeof(*counters).
	 * Return: how many there are; at most capacity are written.
	 * KVPULL_EINVAL (bad counter_bytes, or no array for a capacity).
	 */
	int (*counters)(struct kvpull_scheduler *scheduler,
			struct kvpull_counter *counters, uint32_t capacity,
			size_t counter_bytes);
	/**
	 * Names the worker of an engine of one rank that lives in this process.
	 * The scheduler half's commands then reach it at once, in
	 * request_finished(), request_rejected() and step_build(), which answers
	 * with 0 bytes. So a release reaches the worker even when no step is
	 * made any more; with progress=caller the next poll() sends it. All
	 * calls on the two handles are from one thread at a time. Call it before
	 * the first step_build(), and again for another worker. Before that
	 * worker is closed, call it with NULL, or nothing on this half but
	 * close().
	 * Return 0; KVPULL_EINVAL (tp_size is not 1, NULL scheduler).
	 */
	int (*worker_attach)(struct kvpull_scheduler *scheduler,
			     struct kvpull_worker *worker);
	/**
	 * The weights change (adapter 0), or one adapter. Call it before the
	 * first byte does, at both ends.
	 * No request that is known now is held any more, of that adapter where
	 * it is one. Nor is one that tells matched_tokens() of local tokens
	 * before reset(CLEARED): so producers' requests ask, too, and are told
	 * to request_new() when they enter. Holds that exist stay.
	 * A ticket that is not LOADED yet loads nothing: matched_tokens() is
	 * NOTHING, allocated() and loaded() are KVPULL_EMISMATCH.
	 * Return 0, KVPULL_EINVAL (NULL).
	 */
	int (*changed)(struct kvpull_scheduler *scheduler, uint64_t adapter);
	/**
	 * Every rank has reported LOADED: may the request go on with the blocks?
	 * Return 0; KVPULL_EMISMATCH: changed() was called since
	 * matched_tokens() offered them, so they count as FAILED. KVPULL_ENOKEY
	 * (no such request, or it has finished), KVPULL_EINVAL (NULL).
	 */
	int (*loaded)(struct kvpull_scheduler *scheduler, uint64_t key);
	/**
	 * Why nothing was loaded, after KVPULL_MATCH_NOTHING or a FAILED pull.
	 * Return 0: the tokens are local, or the ticket was used before.
	 * KVPULL_EMISMATCH: another prompt or weights. KVPULL_EREJECTED: another
	 * model or layout. KVPULL_ERANK: a rank here is unknown.
	 * KVPULL_EABORTED: its worker was replaced. Else the reason of the pull,
	 * this request's or a sibling's; what request_new() returned;
	 * KVPULL_ENOKEY; KVPULL_EINVAL (NULL).
	 */
	int (*match_failure)(struct kvpull_scheduler *scheduler, uint64_t key);
	/**
	 * Tell the payload that the producer's engine put into a ticket
	 * (request_finished()), such as its first token. It is told to the
	 * request whose pull of that ticket was LOADED by every rank, until its
	 * request_finished(); siblings that loaded nothing are told nothing.
	 * Check what it says: the library knows that the ticket is whole, and
	 * with a key_file that its maker has the key, not what the bytes mean.
	 * Return 0: *payload_bytes are written, 0 .. KVPULL_PAYLOAD_BYTES_MAX.
	 * KVPULL_EAGAIN: its pull has not ended. KVPULL_ENOTICKET: nothing was
	 * pulled for it. What the pull failed with, or KVPULL_EMISMATCH:
	 * changed() was called before loaded(). KVPULL_EFULL: step_log_mib has
	 * no room, the pull is good. KVPULL_ETOOSMALL (*payload_bytes is what
	 * it takes), KVPULL_ENOKEY, KVPULL_EINVAL (NULL).
	 */
	int (*payload_get)(struct kvpull_scheduler *scheduler, uint64_t key,
			   void *payload, size_t capacity,
			   size_t *payload_bytes);
};

/* Kinds of a poll record. */
#define KVPULL_POLL_SENT 1u   /* producer: hold ended, this rank */
#define KVPULL_POLL_LOADED 2u /* consumer: all bytes are there and right */
#define KVPULL_POLL_FAILED 3u /* consumer: blocks undefined, not written */

/* Why a hold ended (poll record .reason of SENT). */
#define KVPULL_END_RELEASED 0
#define KVPULL_END_EXPIRED 1    /* lease or hold_max */
#define KVPULL_END_ABORTED 2    /* by the engine */
#define KVPULL_END_REVOKED 3    /* revoke_all, region removed, shutdown */
#define KVPULL_END_RANK 4       /* another rank ended it */
#define KVPULL_END_GIVEN_BACK 5 /* by a consumer that was not let in */

struct kvpull_poll_record {
	uint64_t key;
	uint32_t kind;  /* KVPULL_POLL_*; pass over others: of later versions */
	int32_t reason; /* SENT: KVPULL_END_*; FAILED: enum kvpull_error */
	uint64_t bytes; /* LOADED: read from the peer's memory */
	uint64_t took_ns; /* LOADED, FAILED: since the pull was commanded */
	/*
	 * LOADED, FAILED: when each phase was reached, likewise since the
	 * command; 0: not reached. A pull that began again after its connection
	 * was cut has the times of its last beginning. Between came_ns and
	 * took_ns the revocation entries are read.
	 */
	uint64_t begun_ns;     /* the thread that reads took it up */
	uint64_t connected_ns; /* to every peer of its ticket */
	uint64_t asked_ns;     /* for the first byte: the peers have written */
	uint64_t came_ns;      /* the last byte */
};

struct kvpull_peer_info {
	uint64_t incarnation;
	int32_t state_error; /* 0: connected, KVPULL_EAGAIN: connecting */
	uint32_t reserved;
	char route[16]; /* by name, e.g. "shm" */
	char address[128];
	char why[128]; /* why this route */
};

/** Worker half. */
struct kvpull_worker_ops {
	size_t struct_size;
	/**
	 * Opens this rank's worker; starts the threads that the configuration
	 * names. Up to 8 more threads unmap the memory of large peers that ended.
	 * Return: as the scheduler half's open(); KVPULL_EDEVICE, too.
	 */
	int (*open)(const struct kvpull_open_params *params,
		    struct kvpull_worker **worker,
		    struct kvpull_error_detail *detail);
	/**
	 * Revokes every hold, releases every claimed ticket (at most 1 s), and
	 * frees everything, the memory of memory_alloc() included. NULL does
	 * nothing. In a child made by fork() it does nothing either: the
	 * parent's worker goes on.
	 */
	void (*close)(struct kvpull_worker *worker);
	/**
	 * Memory for the KV cache that consumers on this node can map. Before
	 * regions_register(), at most KVPULL_REGIONS_MAX at once, of which 64 may
	 * be DEVICE memory. flags: KVPULL_MEMORY_*.
	 * Return 0, KVPULL_ENOMEM, KVPULL_EFULL, KVPULL_EUNSUPPORTED (DEVICE,
	 * and the worker has no device: a line says why), KVPULL_EDEVICE,
	 * KVPULL_EINVAL.
	 */
	int (*memory_alloc)(struct kvpull_worker *worker, uint64_t bytes,
			    uint32_t flags, struct kvpull_memory *memory);
	/**
	 * Frees memory before regions_register(); registered memory lives as
	 * long as the worker. Return 0, KVPULL_EINVAL (registered, or no base
	 * of memory_alloc()).
	 */
	int (*memory_free)(struct kvpull_worker *worker, void *base);
	/**
	 * Registers where the blocks lie; once. Peers can connect from then on.
	 * Every layer of the model is in one group, in one cache or (K and V
	 * apart) in several, with all of its bytes (struct kvpull_cache);
	 * anything else is KVPULL_EINVAL.
	 * Return 0, KVPULL_EINVAL, KVPULL_EUNSUPPORTED, KVPULL_ENOMEM;
	 * KVPULL_EDEVICE (a socket or a thread cannot be made; without the
	 * thread it is registered all the same: close and reopen). detail says
	 * why.
	 */
	int (*regions_register)(struct kvpull_worker *worker,
				const struct kvpull_regions *regions,
				struct kvpull_error_detail *detail);
	/**
	 * Bytes for the scheduler half's rank_info(): who this worker is and
	 * how peers reach it. After regions_register(); 1,024 bytes suffice.
	 * The engine carries them to its own scheduler half alone: they contain
	 * the secret that tickets are made with.
	 * Return 0, KVPULL_EAGAIN (nothing is registered yet),
	 * KVPULL_ETOOSMALL (*byte_count is what it takes), KVPULL_EINVAL.
	 */
	int (*rank_info)(struct kvpull_worker *worker, void *bytes,
			 size_t capacity, size_t *byte_count);
	/**
	 * Takes the step's bytes, before the forward pass. Bad bytes are an
	 * error and a counter. A worker follows one scheduler half for its whole
	 * life. Bytes of another half end every hold, pull and ticket of this
	 * worker for good, and return KVPULL_ECLOSED; all is revoked before the
	 * return. So a restarted scheduler half needs new workers. Close the old
	 * ones before KV memory is written.
	 * Return 0, KVPULL_EINVAL, KVPULL_EVERSION, KVPULL_ECLOSED.
	 */
	int (*step)(struct kvpull_worker *worker, const void *bytes,
		    size_t byte_count);
	/**
	 * Start the loads of the last steps: call it in each step, after
	 * step(). stream: NULL in this minor.
	 * Return 0, KVPULL_EUNSUPPORTED (a stream), KVPULL_EINVAL (NULL).
	 */
	int (*start_loads)(struct kvpull_worker *worker, void *stream);
	/**
	 * READY_NEEDED: every write to the request's blocks is visible. Call it
	 * on every rank's worker, after the step with the hold. Before that step
	 * it returns KVPULL_ENOKEY and is not remembered: call again.
	 * Return 0, KVPULL_ENOKEY, KVPULL_EINVAL (NULL).
	 */
	int (*hold_ready)(struct kvpull_worker *worker, uint64_t key);
	/**
	 * Returns holds and pulls that ended: at most one record per key and
	 * kind, for ever. SENT comes only for keys whose hold came in a step, to
	 * this worker or to the worker that it replaced. Never blocks. Makes no
	 * system call while nothing ended, except one to wake kvpull's own
	 * thread after this call copied the last bytes of a pull (key
	 * inline_bytes). record_bytes: sizeof(*records).
	 * Return: records written, 0 .. capacity. If the result equals capacity
	 * there may be more: call again. KVPULL_EINVAL (bad record_bytes, or no
	 * array for a capacity).
	 */
	int (*poll)(struct kvpull_worker *worker,
		    struct kvpull_poll_record *records, uint32_t capacity,
		    size_t record_bytes);
	/**
	 * Local blocks of a FAILED key, until the next poll or step. A pull
	 * that was refused before it began (KVPULL_EFULL, _ETRUNCATED, and
	 * sometimes _EEXPIRED) is KVPULL_ENOKEY here: none of its
	 * blocks was written, and all blocks of its allocated() count as not
	 * loaded.
	 * Return 0, KVPULL_ENOKEY, KVPULL_ETOOSMALL (*block_count is what it
	 * takes).
	 */
	int (*failed_blocks)(struct kvpull_worker *worker, uint64_t key,
			     uint32_t *blocks, uint32_t capacity,
			     uint32_t *block_count);
	/**
	 * Bytes for result_take(), after each poll(); *byte_count is 0 if there
	 * are none. Reports that no later step has acknowledged are repeated.
	 * Return 0, KVPULL_ETOOSMALL (*byte_count is what it takes),
	 * KVPULL_EINVAL.
	 */
	int (*result_build)(struct kvpull_worker *worker, void *bytes,
			    size_t capacity, size_t *byte_count);
	/**
	 * Ends every hold that this rank has been told of, before returning;
	 * give it the scheduler half's last step first. Return: holds ended.
	 */
	int (*revoke_all)(struct kvpull_worker *worker);
	/**
	 * A descriptor that is readable when poll() has something to do. It is
	 * level triggered: it stays readable until a poll returns no record.
	 * step(), start_loads(), progress() and revoke_all() can make it
	 * readable, too. With EPOLLET, poll until the result is 0: a result
	 * below capacity is not enough, and no further edge comes before. The
	 * worker owns it: the engine neither reads nor closes it.
	 * Return: the descriptor, the same at each call; KVPULL_EDEVICE (none
	 * can be made), KVPULL_EINVAL (NULL).
	 */
	int (*event_fd)(struct kvpull_worker *worker);
	/**
	 * progress=caller: one bounded run of I/O, as each poll() has; else
	 * KVPULL_EINVAL. budget is not looked at in this minor.
	 * Return: number of things done; 0: none.
	 */
	int (*progress)(struct kvpull_worker *worker, uint32_t budget);
	/**
	 * peer_bytes: sizeof(*peers). Return: how many there are; of them, the
	 * first capacity are written. KVPULL_EINVAL as poll().
	 */
	int (*peers)(struct kvpull_worker *worker,
		     struct kvpull_peer_info *peers, uint32_t capacity,
		     size_t peer_bytes);
	/**
	 * Every counter of this half since open: name, text, kind and value.
	 * worker NULL: the values are 0. counter_bytes: sizeof(*counters).
	 * Return: how many there are; at most capacity are written.
	 * KVPULL_EINVAL (bad counter_bytes, or no array for a capacity).
	 */
	int (*counters)(struct kvpull_worker *worker,
			struct kvpull_counter *counters, uint32_t capacity,
			size_t counter_bytes);
	/**
	 * DEVICE memory: says what the device still does with it. Call it before
	 * each step() that may have loads. By then the zeroing of their blocks is
	 * queued, and every step in flight that reads or writes them: the loads'
	 * bytes land behind all of that. The forward pass is not queued yet, so
	 * that loads do not wait for it.
	 * stream: the driver's handle (CUstream) of the stream that has it, of
	 * which 0, 1 and 2 are the driver's own default streams;
	 * KVPULL_STREAM_NONE: the engine has synchronized, and nothing is queued.
	 * A load with no mark since the step before fails (KVPULL_EINVAL), so an
	 * engine that forgets one is slow, and never wrong. Calls the driver:
	 * some microseconds.
	 * Return: > 0, the mark; 0: the stream is capturing a graph, there is
	 * none, and loads wait for the next one; KVPULL_EUNSUPPORTED (the worker
	 * has no device), KVPULL_EDEVICE, KVPULL_EINVAL (NULL).
	 */
	int64_t (*engine_mark)(struct kvpull_worker *worker, uint64_t stream);
	/**
	 * As hold_ready(), once the mark is reached: all that the device had to
	 * do for the request's blocks was queued before it. polls look at it, and
	 * event_fd() is readable meanwhile.
	 * Return 0, KVPULL_ENOKEY (as hold_ready()), KVPULL_EAGAIN (pulls_max
	 * holds wait: call again after a poll), KVPULL_EDEVICE, KVPULL_EINVAL
	 * (NULL, or no mark of engine_mark()).
	 */
	int (*hold_ready_after)(struct kvpull_worker *worker, uint64_t key,
				int64_t mark);
};

#define KVPULL_STREAM_NONE UINT64_MAX /* engine_mark(): nothing is queued */

/* Bits of .caps: what this build has; a host may lack what it needs. */
#define KVPULL_CAP_SHM 1u
#define KVPULL_CAP_FOREIGN 2u
#define KVPULL_CAP_FILE 4u
#define KVPULL_CAP_VERBS 8u
#define KVPULL_CAP_KEY 16u /* authenticated tickets and handshakes */
#define KVPULL_CAP_CUDA 32u

struct kvpull_connector_ops {
	size_t struct_size;
	uint32_t abi_major;
	uint32_t abi_minor;
	const char *version; /* of the library, "1.2.3" */
	uint64_t caps;
	/** Text of an error: what it means and what to do. Never NULL. */
	const char *(*error_text)(int code);
	/** Check a config without opening. Return 0 or KVPULL_ECONFIG. */
	int (*config_check)(const char *config_json,
			    struct kvpull_error_detail *detail);
	/** Return 0, KVPULL_ENOTICKET, KVPULL_ENOTMINE, KVPULL_EVERSION. */
	int (*ticket_peek)(const void *ticket, size_t ticket_bytes,
			   struct kvpull_ticket_info *info);
	const struct kvpull_scheduler_ops *scheduler;
	const struct kvpull_worker_ops *worker;
};

/** Exported. The tables live as long as the library. */
const struct kvpull_connector_ops *kvpull_connector_v1(void);

typedef const struct kvpull_connector_ops *(*kvpull_connector_v1_fn)(void);

#ifdef __cplusplus
}
#endif

#endif /* KVPULL_CONNECTOR_H */
