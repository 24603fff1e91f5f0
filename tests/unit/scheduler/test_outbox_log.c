/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of commands itself, beside a list that says what it must hold: a log
 * that is never empty goes round its ring, and ends in the middle of a command.
 */
#include <string.h>

#include "plugin/scheduler/outbox.h"
#include "tests/lib/random.h"
#include "tests/lib/step.h"
#include "tests/lib/unit.h"

#define OURS 7u
#define WORKER 70u
#define RESEND_NS 1000u
#define LOG_BYTES_LEAST 300u
#define LOG_BYTES_MOST 400u
#define ROUNDS 300u
#define NOW_NS 50u

struct log {
	struct kvpull_arena arena;
	struct kvpull_outbox outbox;
	struct kvpull_step_scratch scratch;
	uint64_t seed;
	uint64_t applied; /* by the worker; all before was forgotten */
	uint64_t next;    /* sequence of the next command */
	size_t used;
	size_t bytes[ROUNDS + 2]; /* of each command, by its sequence */
	uint8_t message[4096];
};

static struct log *opened(size_t log_bytes)
{
	struct log *log = calloc(1, sizeof(*log));
	const struct kvpull_outbox_params params = {
		.incarnation = OURS,
		.resend_ns = RESEND_NS,
		.log_bytes = log_bytes,
		.rank_count = 1,
	};

	assert_non_null(log);
	log->seed = log_bytes;
	log->next = 1;
	kvpull_arena_init(&log->arena, NULL);
	kvpull_outbox_init(&log->outbox, &params, &log->arena);
	assert_true(kvpull_arena_ok(&log->arena));
	kvpull_outbox_rank_start(&log->outbox, 0, WORKER);
	return log;
}

static void closed(struct log *log)
{
	kvpull_arena_fini(&log->arena);
	free(log);
}

/* A command that its sequence tells: its key, and how long its label is. */
static struct kvpull_command command_of(uint64_t sequence)
{
	struct kvpull_command command = { .kind = KVPULL_COMMAND_HOLD,
					  .key = sequence * 1000003,
					  .slot = (uint32_t)sequence,
					  .generation = sequence };

	memset(command.label, (int)('a' + sequence % 26),
	       sequence * 7 % KVPULL_STEP_LABEL_BYTES);
	return command;
}

static size_t bytes_of(const struct kvpull_command *command)
{
	struct kvpull_wire_writer writer = { NULL, 0, 0 };

	kvpull_step_put_command(&writer, command);
	return writer.used;
}

/* Put the next command: it is kept if, and only if, its bytes are free. */
static int put(struct log *log)
{
	const struct kvpull_command command = command_of(log->next);
	const size_t bytes = bytes_of(&command);
	const size_t left = log->outbox.capacity - log->used;
	const int wanted = bytes <= left ? 0 : KVPULL_EFULL;

	assert_int_equal(kvpull_outbox_put(&log->outbox, &command), wanted);
	if (wanted)
		return 0;
	log->bytes[log->next++] = bytes;
	log->used += bytes;
	return 1;
}

/* The worker has applied so many more, and acknowledges that. */
static int applies(struct log *log, uint64_t more, uint32_t gap)
{
	struct kvpull_result_header header = {
		.incarnation = WORKER,
		.first_sequence = 1,
		.step_incarnation = OURS,
		.gap = gap,
	};
	uint32_t skip = 1;

	for (; more; more--)
		log->used -= log->bytes[++log->applied];
	header.step_sequence = log->applied;
	return kvpull_outbox_take(&log->outbox, &header, NOW_NS, &skip);
}

/* The next message has the commands from `first` on, each as it was put. */
static void says_all_from(struct log *log, uint64_t first)
{
	struct kvpull_wire_reader reader = { .data = log->message };
	struct kvpull_step_header header;
	struct kvpull_command command;
	uint64_t sequence;

	assert_int_equal(kvpull_outbox_build(&log->outbox, log->message,
					     sizeof(log->message),
					     &reader.byte_count, NOW_NS),
			 0);
	assert_int_equal(
		step_check(log->message, reader.byte_count, &log->scratch), 0);
	assert_int_equal(step_get_header(&reader, &header), 0);
	assert_int_equal(header.first_sequence, first);
	assert_int_equal(header.record_count, log->next - first);
	for (sequence = first; sequence < log->next; sequence++) {
		const struct kvpull_command wanted = command_of(sequence);

		assert_int_equal(
			step_get_command(&reader, &log->scratch, &command), 0);
		assert_int_equal(command.key, wanted.key);
		assert_int_equal(command.slot, wanted.slot);
		assert_string_equal(command.label, wanted.label);
	}
	assert_true(kvpull_wire_done(&reader));
}

/* A log that is never empty does not begin anew at its start. */
UNIT_TEST(log_that_goes_round_says_each_command_as_it_was_put)
{
	size_t log_bytes;

	for (log_bytes = LOG_BYTES_LEAST; log_bytes <= LOG_BYTES_MOST;
	     log_bytes++) {
		struct log *log = opened(log_bytes);

		assert_true(put(log));
		while (log->next <= ROUNDS) {
			const uint64_t first = log->next;
			const uint64_t unapplied = first - 1 - log->applied;

			if (!put(log)) {
				assert_int_equal(applies(log, 1, 0), 0);
				continue;
			}
			if (first == 2)
				says_all_from(log, 1);
			else if (random_next(&log->seed) >> 33 & 1)
				says_all_from(log, first);
			else {
				/* The message got lost, and so does the next. */
				says_all_from(log, first);
				assert_int_equal(applies(log, unapplied / 3, 1),
						 0);
				says_all_from(log, log->applied + 1);
			}
		}
		closed(log);
	}
}

/* All scalars at their largest: what a half that has room must be able to say. */
UNIT_TEST(log_with_room_takes_the_largest_command_without_arrays)
{
	const struct kvpull_command largest = {
		.kind = KVPULL_COMMAND_HOLD,
		.slot = KVPULL_TICKET_SLOTS_MAX - 1,
		.key = UINT64_MAX,
		.generation = UINT64_MAX,
		.flags = KVPULL_TICKET_READY_NEEDED,
		.ticket_serial = UINT64_MAX,
		.blocks = UINT32_MAX,
		.label = "abcdefghijklmnopqrstuvw",
	};
	struct log *log = opened(LOG_BYTES_LEAST);
	uint32_t count = 0;

	assert_int_equal(strlen(largest.label), KVPULL_STEP_LABEL_BYTES - 1);
	for (; kvpull_outbox_has_room(&log->outbox); count++)
		assert_int_equal(kvpull_outbox_put(&log->outbox, &largest), 0);
	assert_true(count > 0);
	closed(log);
}

UNIT_TEST(message_that_does_not_fit_says_its_size_and_changes_nothing)
{
	struct log *log = opened(LOG_BYTES_LEAST);
	size_t wanted = 0;
	size_t bytes = 0;

	assert_true(put(log));
	assert_int_equal(kvpull_outbox_build(&log->outbox, log->message, 0,
					     &wanted, NOW_NS),
			 KVPULL_ETOOSMALL);
	assert_int_equal(kvpull_outbox_build(&log->outbox, log->message,
					     wanted - 1, &bytes, NOW_NS),
			 KVPULL_ETOOSMALL);
	assert_int_equal(bytes, wanted);
	assert_int_equal(kvpull_outbox_build(&log->outbox, log->message, wanted,
					     &bytes, NOW_NS),
			 0);
	assert_int_equal(bytes, wanted);
	assert_false(kvpull_outbox_has_unsent(&log->outbox));
	closed(log);
}

/* A clock that a guest's freeze, or a caller, sets back is no silence. */
UNIT_TEST(sent_commands_go_again_after_the_silence_and_not_before)
{
	struct log *log = opened(LOG_BYTES_LEAST);
	struct kvpull_outbox *outbox = &log->outbox;

	assert_true(put(log));
	says_all_from(log, 1);
	kvpull_outbox_tick(outbox, NOW_NS - 1);
	kvpull_outbox_tick(outbox, NOW_NS + RESEND_NS - 1);
	assert_false(kvpull_outbox_has_unsent(outbox));
	kvpull_outbox_tick(outbox, NOW_NS + RESEND_NS);
	assert_true(kvpull_outbox_has_unsent(outbox));
	assert_int_equal(outbox->resends, 1);
	says_all_from(log, 1);
	/* An acknowledgement is no silence, and all of it is applied. */
	assert_int_equal(applies(log, 1, 0), 0);
	kvpull_outbox_tick(outbox, NOW_NS + RESEND_NS);
	assert_false(kvpull_outbox_has_unsent(outbox));
	assert_int_equal(outbox->resends, 1);
	closed(log);
}

/* Sequences of another half, or of a predecessor, say nothing of our commands. */
UNIT_TEST(words_of_other_halves_and_predecessors_move_nothing)
{
	struct log *log = opened(LOG_BYTES_MOST);
	struct kvpull_outbox *outbox = &log->outbox;
	struct kvpull_result_header header = {
		.incarnation = WORKER,
		.first_sequence = 1,
		.step_incarnation = OURS + 1,
		.step_sequence = UINT64_MAX,
		.gap = 1,
	};
	uint32_t skip = 1;

	assert_true(put(log) && put(log) && put(log));
	says_all_from(log, 1);
	assert_int_equal(applies(log, 1, 0), 0);
	assert_int_equal(kvpull_outbox_take(outbox, &header, NOW_NS, &skip), 0);
	assert_int_equal(skip, 0);
	header.step_sequence = log->applied;
	assert_int_equal(kvpull_outbox_take(outbox, &header, NOW_NS, &skip), 0);
	assert_false(kvpull_outbox_has_unsent(outbox));
	/* A successor begins behind all three, and has applied no two of them. */
	kvpull_outbox_rank_start(outbox, 0, WORKER + 1);
	header = (struct kvpull_result_header){ .incarnation = WORKER + 1,
						.first_sequence = 1,
						.step_incarnation = OURS,
						.step_sequence = 2 };
	assert_int_equal(kvpull_outbox_take(outbox, &header, NOW_NS, &skip), 0);
	assert_false(outbox->ranks[0].following);
	header.step_sequence = 3;
	assert_int_equal(kvpull_outbox_take(outbox, &header, NOW_NS, &skip), 0);
	assert_true(outbox->ranks[0].following);
	header.step_sequence = 4; /* the next one, which was not said */
	assert_int_equal(kvpull_outbox_take(outbox, &header, NOW_NS, &skip),
			 KVPULL_EINVAL);
	closed(log);
}
