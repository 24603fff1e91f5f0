/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer of ib_pull: ib_pull_pull.c runs it, ib_pull_request.c is the life
 * of one request, ib_pull_prefix.c its prefix cache.
 */
#ifndef KVPULL_TOOLS_IB_PULL_CONSUMER_H
#define KVPULL_TOOLS_IB_PULL_CONSUMER_H

#include "tools/ib_pull_parts.h"
#include "tools/ib_pull_prefix.h"

enum request_state {
	REQUEST_FREE = 0,
	REQUEST_WAITING, /* matched_tokens is asked each step, after its lead */
	REQUEST_LOADING,
	REQUEST_ABORTED, /* loading, and the client went away */
	REQUEST_DECODING /* of a trace: its blocks stay taken */
};

struct request {
	uint64_t key;
	uint64_t seed;
	uint64_t until_ns; /* of its lead, of decoding; its client's leaving */
	uint32_t output_tokens;
	uint32_t is_left; /* its client goes away; LOADING: at until_ns */
	uint32_t state;
	uint32_t blocks;       /* a group */
	uint32_t local_blocks; /* of them; in the prefix cache, pinned */
	uint32_t *ids; /* [groups][blocks - local_blocks], while loading */
	const uint64_t *hashes; /* of its prompt's chunks */
	uint32_t chunk_count;   /* that may be shared */
	uint32_t is_right;      /* it was loaded */
};

struct consumer {
	const struct ib_options *options;
	struct ib_result *result;
	struct engine engine;
	struct request *requests; /* [request_max] */
	uint32_t request_max;
	uint32_t live;
	uint32_t in_turn;      /* a round's requests are all admitted */
	uint32_t leaving;      /* of those that load, at the last step */
	uint64_t load_took_ns; /* the last one */
	uint32_t asked;
	uint32_t ask_count; /* as many as this run asks for; UINT32_MAX: no end */
	uint64_t random;
	struct ib_call call;
	uint32_t is_warm;
	uint32_t is_watched; /* somebody sees the progress */
	uint64_t shown_ns;   /* the last line of it; begun_ns: none was */
	struct ib_trace trace;
	struct ib_prefix prefix;
	uint64_t begun_ns;
	struct ib_interval printed;
	struct ib_answer before; /* the producer's counters at the begin */
	uint8_t *copy;           /* from its first half to the second */
	uint32_t loading;
	uint64_t aside_ns; /* in checks and copies, not in pulls */
	struct ib_times times;
};

/* Blocks of a group that a prompt has. */
static inline uint32_t ib_blocks_of(const struct ib_options *options,
				    uint32_t tokens)
{
	return (tokens - 1) / options->shape.block_tokens + 1;
}

/*
 * Asks for a ticket, then admits all of its siblings, or rejects it. Returns 0,
 * or 1: the run is over.
 */
int ib_request_admit(struct consumer *consumer,
		     const struct ib_arrival *arrival);
/* Does everything that is due for requests in flight. */
void ib_requests_run(struct consumer *consumer);
/* The engine's outcome of a pull. */
void ib_request_ended(struct consumer *consumer,
		      const struct engine_event *event);

#endif /* KVPULL_TOOLS_IB_PULL_CONSUMER_H */
