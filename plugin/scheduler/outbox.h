/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of commands on their way to the workers, and what each worker has
 * taken. Pure. One message goes to all ranks; the rule by which a worker
 * follows the sequence is in outbox.c.
 */
#ifndef KVPULL_PLUGIN_OUTBOX_H
#define KVPULL_PLUGIN_OUTBOX_H

#include "base/arena.h"
#include "plugin/bytes/step.h"

/* The largest encoded command: a PULL of that many runs of one pair. */
#define KVPULL_COMMAND_BYTES_MAX ((size_t)KVPULL_TICKET_BLOCKS_MAX * 15 + 65536)

struct kvpull_outbox_rank {
	uint64_t incarnation; /* of the worker; 0: unknown */
	uint64_t predecessor; /* the worker before it, or 0 */
	uint64_t taken;       /* its results up to this one are applied */
	uint64_t base;        /* its first command */
	uint64_t applied;     /* last command that it has applied */
	uint32_t following;   /* it applies commands from base on */
	uint32_t heard;       /* a result of this incarnation was taken */
};

struct kvpull_outbox {
	const struct kvpull_log *log;
	uint64_t incarnation; /* of the scheduler half */
	uint8_t *ring;        /* [capacity] encoded commands */
	uint8_t *scratch;     /* [KVPULL_COMMAND_BYTES_MAX] */
	uint8_t *message;     /* of one rank: the largest fits; else NULL */
	size_t message_bytes;
	size_t capacity;
	uint64_t head_at; /* free-running byte counts */
	uint64_t send_at;
	uint64_t tail_at;
	uint64_t head_sequence; /* first kept */
	uint64_t send_sequence; /* first that is not sent, or sent again */
	uint64_t next_sequence;
	uint64_t progress_ns; /* last sending or acknowledgement */
	uint64_t spoken_ns;   /* last message */
	uint64_t resend_ns;   /* silence after which sent commands go again */
	uint64_t resends;
	uint32_t rank_count;
	uint32_t acks_changed;
	uint32_t acks_wanted; /* a worker has much that is not acknowledged */
	uint32_t reserved;
	struct kvpull_outbox_rank ranks[KVPULL_RANKS_MAX];
};

struct kvpull_outbox_params {
	const struct kvpull_log *log;
	uint64_t incarnation;
	uint64_t resend_ns;
	size_t log_bytes;
	uint32_t rank_count;
};

void kvpull_outbox_init(struct kvpull_outbox *outbox,
			const struct kvpull_outbox_params *params,
			struct kvpull_arena *arena);

/* Append a command. 0, or KVPULL_EFULL: nothing changed. */
int KVPULL_MUST_CHECK kvpull_outbox_put(struct kvpull_outbox *outbox,
					const struct kvpull_command *command);

/* A command without arrays would fit now. */
int kvpull_outbox_has_room(const struct kvpull_outbox *outbox);

/* Commands wait to be sent, or sent again. */
int kvpull_outbox_has_unsent(const struct kvpull_outbox *outbox);

/* Writes all that was not sent, as kvpull_scheduler_step_build() does. */
int KVPULL_MUST_CHECK kvpull_outbox_build(struct kvpull_outbox *outbox,
					  void *bytes, size_t capacity,
					  size_t *byte_count, uint64_t now_ns);

/* Sent, not acknowledged, and long silent: send it again. */
void kvpull_outbox_tick(struct kvpull_outbox *outbox, uint64_t now_ns);

/* Nothing was said for every_ns: something is to be, if only a header. */
void kvpull_outbox_speak(struct kvpull_outbox *outbox, uint64_t every_ns,
			 uint64_t now_ns);

/* A rank has a worker with this incarnation from now on. */
void kvpull_outbox_rank_start(struct kvpull_outbox *outbox, uint32_t rank,
			      uint64_t incarnation);

/**
 * Take the header of a result from the rank's worker.
 *
 * Return: 0 and in *skip how many of its records were taken before;
 * KVPULL_EAGAIN: results before it are missing, take none of its records;
 * KVPULL_EINVAL: it says what cannot be, nothing changed.
 */
int KVPULL_MUST_CHECK
kvpull_outbox_take(struct kvpull_outbox *outbox,
		   const struct kvpull_result_header *header, uint64_t now_ns,
		   uint32_t *skip);

#endif /* KVPULL_PLUGIN_OUTBOX_H */
