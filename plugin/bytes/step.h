/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes between the halves. Pure: encode and decode, no state.
 *
 * A message is a header and records. Each record has a sequence number, the
 * header's plus its position: the receiver drops what it has seen and asks for
 * what it misses. The same engine carries both directions; the bytes are
 * checked all the same.
 *
 * Step (scheduler -> every worker): header { incarnation of the scheduler
 * half, first sequence, record count, acks a rank }, then commands.
 * Result (worker -> scheduler): header { incarnation of the worker, rank,
 * first sequence, record count, scheduler incarnation and sequence it has
 * applied, gap flag }, then results. The rank's own description (address,
 * secret, incarnation) travels as a result and alone as rank_info bytes.
 *
 * What decoders refuse, beside bytes that are too few or too many: an
 * incarnation or first sequence of 0 (a header without records has one too:
 * the next record's), a generation or key of 0 where the kind has one, a slot
 * of KVPULL_TICKET_SLOTS_MAX or above, flags and reasons that the kind does not
 * have. All scalar members of a command or result travel, whatever its kind.
 */
#ifndef KVPULL_PLUGIN_STEP_H
#define KVPULL_PLUGIN_STEP_H

#include "base/log.h"
#include "base/wire.h"
#include "plugin/bytes/stage.h"
#include "plugin/bytes/ticket.h"

enum kvpull_command_kind {
	KVPULL_COMMAND_HOLD =
		1,          /* take the hold: key, slot, generation, flags */
	KVPULL_COMMAND_END, /* end it if it is live: key, slot, generation, reason */
	KVPULL_COMMAND_CLAIM,  /* a ticket: its ranks, slot, generation */
	KVPULL_COMMAND_PULL,   /* read the blocks of a claimed ticket; with a
				    reason: report it failed, read nothing */
	KVPULL_COMMAND_ABORT,  /* end the pull of key */
	KVPULL_COMMAND_RELEASE /* the last word on a ticket */
};
#define KVPULL_COMMAND_LAST KVPULL_COMMAND_RELEASE

/* Workers keep the end of a request's label, this many bytes with the NUL. */
#define KVPULL_STEP_LABEL_BYTES 24u

/*
 * Flags of a PULL: release the ticket after success or EEXPIRED; wait for
 * ready.
 */
#define KVPULL_FLAG_RELEASE 1u
#define KVPULL_FLAG_READY 2u

/*
 * A command. The list above says which members count; the arrays of a decoded
 * command point into the decoder's scratch or the message.
 */
struct kvpull_command {
	enum kvpull_command_kind kind;
	uint32_t slot;
	uint64_t key;
	uint64_t generation;
	uint32_t flags;
	int32_t reason; /* END: KVPULL_END_*; PULL: 0 or enum kvpull_error */
	uint32_t rank_count;    /* CLAIM: producer's ranks */
	uint64_t ticket_serial; /* D: never reused */
	uint64_t reported;      /* END: ranks that must not report it again */
	const struct kvpull_ticket_rank *ranks; /* CLAIM: [rank_count] */
	/* PULL: pairs of all groups; group g's are [group_first[g], group_first[g + 1]). */
	uint32_t group_count;
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	uint32_t blocks;  /* HOLD: that it keeps, all groups */
	int32_t priority; /* CLAIM, PULL: of its request; smaller goes first */
	char label[KVPULL_STEP_LABEL_BYTES]; /* HOLD, CLAIM, PULL: its end */
	const uint32_t *remote_ids;          /* not set where it was peeked */
	const uint32_t *local_ids;
	struct kvpull_ids remote; /* as they came; to encode: instead of a list */
	struct kvpull_ids local;
};

/*
 * A scheduler half's incarnation is when it was opened (CLOCK_REALTIME), over
 * random bits, and the generations that it gives out are above that time. So
 * they are above those of each half before it, unless the clock was set back,
 * and a worker that follows it knows where tickets end that may have been given
 * out behind its back.
 */
#define KVPULL_HALF_RANDOM_BITS 21u
#define KVPULL_HALF_TICK_BITS 20u /* 1 ms; a half takes longer to open */

/* The value is never 0 unless utc_ns is. */
static inline uint64_t kvpull_half_incarnation(uint64_t utc_ns, uint32_t random)
{
	return utc_ns >> KVPULL_HALF_TICK_BITS << KVPULL_HALF_RANDOM_BITS |
	       (random & ((1u << KVPULL_HALF_RANDOM_BITS) - 1));
}

static inline uint64_t kvpull_half_floor(uint64_t incarnation)
{
	return incarnation >> KVPULL_HALF_RANDOM_BITS;
}

struct kvpull_step_header {
	uint64_t incarnation;    /* of the scheduler half: see above */
	uint64_t first_sequence; /* of the first record; starts at 1 */
	uint32_t record_count;
	uint32_t rank_count;
	uint64_t acks[KVPULL_RANKS_MAX];             /* results taken, a rank */
	uint64_t ack_incarnations[KVPULL_RANKS_MAX]; /* of the workers acked */
};

enum kvpull_result_kind {
	KVPULL_RESULT_RANK = 1,   /* rank_info */
	KVPULL_RESULT_HOLD_ENDED, /* key, slot, generation, reason */
	KVPULL_RESULT_PULL_ENDED  /* key, reason (0 or error), bytes */
};

/* Facts of a worker that a scheduler half needs to make tickets. */
struct kvpull_rank_info {
	uint64_t incarnation;
	uint64_t generation_floor; /* no smaller generation may be given out */
	struct kvpull_stage stage;
	uint32_t slot_count;
	uint32_t group_count; /* 0: not known */
	uint32_t reserved;
	/* ids of a group's caches are below; 0: it has none */
	uint32_t block_counts[KVPULL_GROUPS_MAX];
	uint8_t secret[KVPULL_SECRET_BYTES];
	uint8_t compat[KVPULL_COMPAT_BYTES];
	char address[KVPULL_TICKET_ADDRESS_BYTES_MAX];
};

struct kvpull_result {
	enum kvpull_result_kind kind;
	uint32_t slot;
	uint64_t key;
	uint64_t generation;
	uint64_t bytes;
	int32_t reason;
	uint32_t reserved;
	struct kvpull_rank_info rank; /* RANK */
};

struct kvpull_result_header {
	uint64_t incarnation; /* of the worker */
	uint64_t first_sequence;
	uint32_t record_count;
	uint32_t rank;
	uint64_t step_incarnation; /* of the scheduler half it follows; 0: none */
	uint64_t step_sequence;    /* last command applied */
	uint32_t gap;              /* 1: commands after it are missing */
	uint32_t reserved;
};

extern const struct kvpull_table kvpull_step_table; /* header */
extern const struct kvpull_table kvpull_command_table;
extern const struct kvpull_table kvpull_result_header_table;
extern const struct kvpull_table kvpull_result_table;
extern const struct kvpull_table kvpull_rank_info_table;

/* The end of a request's label, as commands carry it. */
void kvpull_step_label(char own[KVPULL_STEP_LABEL_BYTES], const char *label);

/* Encoding: header first, then each record. _fits() of the writer tells. */
void kvpull_step_put_header(struct kvpull_wire_writer *writer,
			    const struct kvpull_step_header *header);
void kvpull_step_put_command(struct kvpull_wire_writer *writer,
			     const struct kvpull_command *command);
void kvpull_step_put_result_header(struct kvpull_wire_writer *writer,
				   const struct kvpull_result_header *header);
void kvpull_step_put_result(struct kvpull_wire_writer *writer,
			    const struct kvpull_result *result);

/* Decoder's memory: what a command's arrays point to, until the next one. */
struct kvpull_step_scratch {
	struct kvpull_ticket_rank ranks[KVPULL_RANKS_MAX];
	uint32_t *remote_ids; /* [KVPULL_TICKET_BLOCKS_MAX], the caller's */
	uint32_t *local_ids;  /* likewise */
	/* Why begin() said KVPULL_EVERSION: a field that we do not know. */
	char unknown[KVPULL_FIELD_NAME_BYTES_MAX];
};

/*
 * Decoding of untrusted bytes. Each returns 0, KVPULL_EINVAL or
 * KVPULL_EVERSION (header), and then the message must be dropped. Every
 * record carries its own byte count, so that a whole message can be checked
 * before its first record is applied: see kvpull_step_begin().
 */
int KVPULL_MUST_CHECK
kvpull_step_get_header(struct kvpull_wire_reader *reader,
		       struct kvpull_step_header *header,
		       char unknown[KVPULL_FIELD_NAME_BYTES_MAX]);
/*
 * All but the ids of a PULL: kvpull_ids_copy() brings remote and local to where
 * they are wanted, so thousands of them are not copied twice.
 */
int KVPULL_MUST_CHECK
kvpull_step_peek_command(struct kvpull_wire_reader *reader,
			 struct kvpull_step_scratch *scratch,
			 struct kvpull_command *command);
/* The same, of a message that kvpull_step_begin() found good. */
int KVPULL_MUST_CHECK
kvpull_step_peek_again(struct kvpull_wire_reader *reader,
		       struct kvpull_step_scratch *scratch,
		       struct kvpull_command *command);
int KVPULL_MUST_CHECK
kvpull_step_get_result_header(struct kvpull_wire_reader *reader,
			      struct kvpull_result_header *header);
int KVPULL_MUST_CHECK kvpull_step_get_result(struct kvpull_wire_reader *reader,
					     struct kvpull_result *result);

/* Decode all of a message without keeping it; the reader is behind its header. */
int KVPULL_MUST_CHECK kvpull_step_begin(struct kvpull_wire_reader *reader,
					struct kvpull_step_scratch *scratch,
					struct kvpull_step_header *header);
/* Checks the bytes of results in the same way: 0 or the error. */
int KVPULL_MUST_CHECK kvpull_step_check_result(const void *bytes,
					       size_t byte_count);

/* rank_info() bytes: one RANK record with its own magic and version. */
void kvpull_step_put_rank_info(struct kvpull_wire_writer *writer,
			       const struct kvpull_rank_info *rank);
/* 0, KVPULL_ENOTMINE, KVPULL_EVERSION, KVPULL_EINVAL. */
int KVPULL_MUST_CHECK kvpull_step_get_rank_info(const void *bytes,
						size_t byte_count,
						struct kvpull_rank_info *rank);

#endif /* KVPULL_PLUGIN_STEP_H */
