/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two engines of one node for benchmarks, driven through the ABI: a producer in
 * a process of its own, and consumers here. A model of one layer whose blocks
 * are one segment each.
 */
#ifndef KVPULL_TESTS_BENCH_NODE_H
#define KVPULL_TESTS_BENCH_NODE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kvpull/connector.h"

#define NODE_BLOCKS_MAX 32768u /* of one pull */

struct node_params {
	const char *dir;  /* of the sockets */
	const char *more; /* further config, ",\"key\":value" */
	uint32_t block_bytes;
	uint32_t block_count;
	/* Another half's memory to use; NULL: its own, from the provider. */
	uint8_t *memory;
};

/* A scheduler half and a worker half. */
struct halves {
	const struct kvpull_connector_ops *ops;
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	uint8_t *memory;
	uint64_t memory_bytes;
	uint64_t huge_bytes;
	uint64_t provider_ns;
	uint8_t *bytes; /* step and result bytes */
	int memory_fd;
	int event_fd; /* -1: the engine spins */
	int paces;    /* and pauses between its polls */
	uint64_t next_key;
};

/* 0, or an error that was printed. What was opened is closed with _close. */
int halves_open(struct halves *halves, const struct node_params *params);
void halves_close(struct halves *halves);
/* From now on wait() sleeps; before it, it spins. */
void halves_sleep(struct halves *halves);
/* Between polls: a core may be half of one, and its other half copies. */
void bench_pace(void);
/* Bytes of the next step into halves->bytes; 0 or an error. */
int halves_step_build(struct halves *halves, size_t *byte_count);
/* Step of scheduler and worker, without a poll. */
int halves_step(struct halves *halves);
/* Result bytes back to the scheduler half. */
int halves_result(struct halves *halves);

struct ticket {
	char *text; /* [KVPULL_TICKET_BYTES_MAX] */
	size_t byte_count;
	uint32_t block_count;
};

int ticket_open(struct ticket *ticket);
void ticket_close(struct ticket *ticket);

enum mail_kind {
	MAIL_NONE = 0,
	MAIL_HOLD,  /* ids -> ticket */
	MAIL_SPIN,  /* poll without a pause */
	MAIL_SLEEP, /* wait on event_fd */
	MAIL_PACE,  /* poll every few us, and leave the core alone between */
	MAIL_MARK,  /* note the time */
	MAIL_END
};

/* Shared with the producer's process. */
struct mail {
	_Atomic uint64_t asked; /* commands; release, acquire by the producer */
	_Atomic uint64_t answered; /* release, acquire by us */
	_Atomic uint64_t sent; /* holds reported ended; release, acquire by us */
	_Atomic uint64_t sent_ns; /* when the last one was seen; before sent */
	uint64_t marked_ns;       /* of the last MAIL_MARK; before answered */
	int32_t code;
	uint32_t kind;
	uint32_t block_count;
	uint32_t reserved;
	uint64_t ticket_bytes;
	uint64_t memory_bytes;
	uint64_t huge_bytes;
	uint64_t provider_ns;
	int memory_fd; /* in the producer's process */
	uint32_t ids[NODE_BLOCKS_MAX];
	char ticket[KVPULL_TICKET_BYTES_MAX];
};

struct producer {
	struct mail *mail;
	pid_t pid;
	int wake_fd;
	uint64_t held; /* in all */
};

int producer_open(struct producer *producer, const struct node_params *params);
void producer_close(struct producer *producer);
/* Hold these blocks; the ticket is for them. */
int producer_hold(struct producer *producer, const uint32_t *ids,
		  uint32_t block_count, struct ticket *ticket);
int producer_mode(struct producer *producer, enum mail_kind kind);
/*
 * Wake it, to note when it was awake. By any thread, while no other asks it for
 * something; wait_marked() before it is asked for more: 0 or KVPULL_EDEADLINE.
 */
void producer_mark(struct producer *producer);
int producer_wait_marked(const struct producer *producer, uint64_t *marked_ns);
/* Until every hold was reported ended; 0 or KVPULL_EDEADLINE. */
int producer_wait_sent(const struct producer *producer);
/* The producer's memory, mapped as the library does; NULL: said. */
uint8_t *producer_map(const struct producer *producer);

/* A request that showed its ticket. */
struct admission {
	uint64_t key;
	uint64_t took_ns; /* request_new() .. matched_tokens(), a step between */
};

struct pull_times {
	uint64_t admit_ns;  /* how long: of admission.took_ns */
	uint64_t begin_ns;  /* before allocated() */
	uint64_t built_ns;  /* step_build() returned */
	uint64_t posted_ns; /* start_loads() returned */
	uint64_t loaded_ns; /* poll() said LOADED */
};

/* A request with this ticket enters and is to be loaded. */
int consumer_show(struct halves *consumer, const struct ticket *ticket,
		  struct admission *admission);
/* Makes one poll; with progress=caller it sends the claim. */
int consumer_claim(struct halves *consumer);
/* Admits the request and sends the claim. */
int consumer_admit(struct halves *consumer, const struct ticket *ticket,
		   struct admission *admission);
/* Local blocks for it: the pull is in the next step. */
int consumer_allocate(struct halves *consumer, uint64_t key,
		      const uint32_t *ids, uint32_t block_count);
/*
 * Wait for the end of `count` pulls; first_ns (may be NULL): of the first one.
 * 0, or the reason of one that failed.
 */
int consumer_wait_loaded(struct halves *consumer, uint32_t count,
			 uint64_t *first_ns);
void consumer_wait_notified(struct halves *consumer);
int consumer_finish(struct halves *consumer, uint64_t key);
/* Makes a whole pull and times its parts. */
int consumer_pull(struct halves *consumer, const struct ticket *ticket,
		  const uint32_t *ids, struct pull_times *times);

#endif /* KVPULL_TESTS_BENCH_NODE_H */
