/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of commands.
 *
 * A command is encoded once, when it is put, and kept until every rank has
 * applied it. A message carries all from send_sequence on, so a rank that has
 * seen more drops the first ones. send_sequence goes back when a rank tells a
 * gap, and when sent commands stay unacknowledged for resend_ns: the last
 * message before a silence may be lost, and nobody would see that gap.
 *
 * Which commands are for whom. A rank's first worker needs all: its base is 1,
 * and nothing is trimmed before it applied something. A worker that replaces
 * another (a new incarnation) must not run what its predecessor was told: it
 * could write into blocks that were given back since. Its base is the next
 * sequence at the time the scheduler half hears of it; the scheduler half then
 * ends the holds that live, by commands after that base. It begins there:
 *
 *   A worker that has applied nothing begins with a message that names it as
 *   its rank's: one whose first sequence is 1; or, after it told a gap, one that
 *   acknowledges a result of it, at that message's first sequence. One that
 *   names nobody may have been meant for a predecessor that was not heard of.
 *
 * So, until a worker is heard to have applied commands, it is named only in
 * messages that start at its base; in others its predecessor is, or 0. A worker
 * that never told a gap at the base is served by a rewind to it.
 *
 * Results are the same the other way: a worker says all that was not
 * acknowledged, replays are dropped, after a gap nothing is taken. The first
 * message of an incarnation sets the start: what came before it was
 * acknowledged, by an earlier scheduler half.
 *
 * Invariant: head_sequence <= send_sequence <= next_sequence, and the ring
 * holds exactly the commands [head_sequence, next_sequence).
 */
#include <string.h>

#include "plugin/scheduler/outbox.h"

/* More than a command without arrays takes. */
#define COMMAND_BYTES_SMALL 128u
/* Header bytes of a message to one rank. */
#define HEADER_BYTES_MAX 1024u
/* A worker says at most 1024 results at once, the oldest first. */
#define ACKS_WANTED_AT 512u

void kvpull_outbox_init(struct kvpull_outbox *outbox,
			const struct kvpull_outbox_params *params,
			struct kvpull_arena *arena)
{
	uint32_t rank;

	*outbox = (struct kvpull_outbox){
		.log = params->log,
		.incarnation = params->incarnation,
		.capacity = params->log_bytes,
		.head_sequence = 1,
		.send_sequence = 1,
		.next_sequence = 1,
		.resend_ns = params->resend_ns,
		.rank_count = params->rank_count,
		/* The first step tells workers of a half before that it ended. */
		.acks_changed = 1,
	};
	outbox->ring = kvpull_arena_take(arena, 1, outbox->capacity);
	outbox->scratch = kvpull_arena_take(arena, 1, KVPULL_COMMAND_BYTES_MAX);
	if (outbox->rank_count == 1) {
		outbox->message_bytes = outbox->capacity + HEADER_BYTES_MAX;
		outbox->message =
			kvpull_arena_take(arena, 1, outbox->message_bytes);
	}
	for (rank = 0; rank < outbox->rank_count; rank++)
		outbox->ranks[rank].base = 1;
}

static void ring_put(struct kvpull_outbox *outbox, const uint8_t *bytes,
		     size_t byte_count)
{
	const size_t at = outbox->tail_at % outbox->capacity;
	const size_t room = outbox->capacity - at;
	const size_t first = byte_count < room ? byte_count : room;

	memcpy(outbox->ring + at, bytes, first);
	memcpy(outbox->ring, bytes + first, byte_count - first);
	outbox->tail_at += byte_count;
}

static void ring_write(const struct kvpull_outbox *outbox,
		       struct kvpull_wire_writer *writer)
{
	const size_t byte_count = outbox->tail_at - outbox->send_at;
	const size_t at = outbox->send_at % outbox->capacity;
	const size_t room = outbox->capacity - at;
	const size_t first = byte_count < room ? byte_count : room;

	kvpull_wire_put(writer, outbox->ring + at, first);
	kvpull_wire_put(writer, outbox->ring, byte_count - first);
}

/* Bytes of the command at this place: its own count is its first word. */
static uint64_t command_bytes(const struct kvpull_outbox *outbox, uint64_t at)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < 4; i++)
		bytes |= (uint64_t)outbox->ring[(at + i) % outbox->capacity]
			 << (8 * i);
	return bytes + 4;
}

/* Encode it where it is to lie, if it fits in one piece. 0 or KVPULL_EFULL. */
static int put_straight(struct kvpull_outbox *outbox,
			const struct kvpull_command *command)
{
	const size_t at = outbox->tail_at % outbox->capacity;
	const size_t room = outbox->capacity - at;
	const size_t left =
		outbox->capacity - (outbox->tail_at - outbox->head_at);
	struct kvpull_wire_writer writer = { outbox->ring + at,
					     room < left ? room : left, 0 };

	kvpull_step_put_command(&writer, command);
	if (!kvpull_wire_fits(&writer))
		return KVPULL_EFULL;
	outbox->tail_at += writer.used;
	return 0;
}

int kvpull_outbox_put(struct kvpull_outbox *outbox,
		      const struct kvpull_command *command)
{
	struct kvpull_wire_writer writer = { outbox->scratch,
					     KVPULL_COMMAND_BYTES_MAX, 0 };

	if (!put_straight(outbox, command)) {
		outbox->next_sequence++;
		return 0;
	}
	kvpull_step_put_command(&writer, command);
	kvpull_check(outbox->log, kvpull_wire_fits(&writer));
	if (writer.used >
	    outbox->capacity - (outbox->tail_at - outbox->head_at))
		return KVPULL_EFULL;
	ring_put(outbox, outbox->scratch, writer.used);
	outbox->next_sequence++;
	return 0;
}

int kvpull_outbox_has_room(const struct kvpull_outbox *outbox)
{
	return outbox->capacity - (outbox->tail_at - outbox->head_at) >=
	       COMMAND_BYTES_SMALL;
}

int kvpull_outbox_has_unsent(const struct kvpull_outbox *outbox)
{
	return outbox->send_sequence != outbox->next_sequence;
}

static void rewind_to(struct kvpull_outbox *outbox, uint64_t sequence)
{
	if (sequence < outbox->head_sequence)
		sequence = outbox->head_sequence;
	if (sequence >= outbox->send_sequence)
		return;
	outbox->send_at = outbox->head_at;
	for (outbox->send_sequence = outbox->head_sequence;
	     outbox->send_sequence < sequence; outbox->send_sequence++)
		outbox->send_at += command_bytes(outbox, outbox->send_at);
	outbox->resends++;
}

/* Drop what every rank has applied. */
static void trim(struct kvpull_outbox *outbox)
{
	uint64_t applied = outbox->next_sequence - 1;
	uint32_t rank;

	for (rank = 0; rank < outbox->rank_count; rank++)
		if (outbox->ranks[rank].applied < applied)
			applied = outbox->ranks[rank].applied;
	while (outbox->head_sequence <= applied) {
		outbox->head_at += command_bytes(outbox, outbox->head_at);
		outbox->head_sequence++;
	}
	if (outbox->send_sequence < outbox->head_sequence) {
		outbox->send_sequence = outbox->head_sequence;
		outbox->send_at = outbox->head_at;
	}
	/* Empty: begin where pages and cache lines are known. */
	if (outbox->head_at == outbox->tail_at)
		outbox->head_at = outbox->tail_at = outbox->send_at = 0;
}

static void fill_header(const struct kvpull_outbox *outbox,
			struct kvpull_step_header *header)
{
	uint32_t rank;

	*header = (struct kvpull_step_header){
		.incarnation = outbox->incarnation,
		.first_sequence = outbox->send_sequence,
		.record_count = (uint32_t)(outbox->next_sequence -
					   outbox->send_sequence),
		.rank_count = outbox->rank_count,
	};
	for (rank = 0; rank < outbox->rank_count; rank++) {
		const struct kvpull_outbox_rank *state = &outbox->ranks[rank];

		if (!state->following && state->base != outbox->send_sequence) {
			header->ack_incarnations[rank] = state->predecessor;
			continue;
		}
		header->ack_incarnations[rank] = state->incarnation;
		header->acks[rank] = state->taken;
	}
}

int kvpull_outbox_build(struct kvpull_outbox *outbox, void *bytes,
			size_t capacity, size_t *byte_count, uint64_t now_ns)
{
	struct kvpull_wire_writer count = { NULL, 0, 0 };
	struct kvpull_wire_writer writer = { (uint8_t *)bytes, capacity, 0 };
	struct kvpull_step_header header;
	size_t needed;

	if (!kvpull_outbox_has_unsent(outbox) && !outbox->acks_changed) {
		*byte_count = 0;
		return 0;
	}
	fill_header(outbox, &header);
	kvpull_step_put_header(&count, &header);
	needed = count.used + (outbox->tail_at - outbox->send_at);
	*byte_count = needed;
	if (needed > capacity)
		return KVPULL_ETOOSMALL;
	kvpull_step_put_header(&writer, &header);
	ring_write(outbox, &writer);
	kvpull_check(outbox->log, writer.used == needed);
	outbox->send_at = outbox->tail_at;
	outbox->send_sequence = outbox->next_sequence;
	outbox->acks_changed = 0;
	outbox->acks_wanted = 0;
	outbox->spoken_ns = now_ns;
	/* A header alone does not put off a resend. */
	if (header.record_count)
		outbox->progress_ns = now_ns;
	return 0;
}

void kvpull_outbox_speak(struct kvpull_outbox *outbox, uint64_t every_ns,
			 uint64_t now_ns)
{
	if (now_ns > outbox->spoken_ns &&
	    now_ns - outbox->spoken_ns >= every_ns)
		outbox->acks_changed = outbox->acks_wanted = 1;
}

void kvpull_outbox_tick(struct kvpull_outbox *outbox, uint64_t now_ns)
{
	uint64_t wanted = outbox->send_sequence;
	uint32_t rank;

	if (now_ns < outbox->progress_ns ||
	    now_ns - outbox->progress_ns < outbox->resend_ns)
		return;
	for (rank = 0; rank < outbox->rank_count; rank++) {
		const struct kvpull_outbox_rank *state = &outbox->ranks[rank];

		if (state->incarnation && state->applied + 1 < wanted)
			wanted = state->applied + 1;
	}
	rewind_to(outbox, wanted);
	outbox->progress_ns = now_ns;
}

void kvpull_outbox_rank_start(struct kvpull_outbox *outbox, uint32_t rank,
			      uint64_t incarnation)
{
	struct kvpull_outbox_rank *state = &outbox->ranks[rank];

	if (state->incarnation) {
		state->predecessor = state->incarnation;
		state->base = outbox->next_sequence;
		state->applied = state->base - 1;
	}
	state->incarnation = incarnation;
	state->taken = 0;
	state->following = 0;
	state->heard = 0;
	outbox->acks_changed = 1;
	trim(outbox);
}

/* Takes the header's acknowledgement of our commands. */
static void take_progress(struct kvpull_outbox *outbox,
			  const struct kvpull_result_header *header,
			  uint64_t now_ns)
{
	struct kvpull_outbox_rank *rank = &outbox->ranks[header->rank];
	const int ours = header->step_incarnation == outbox->incarnation;

	if (ours && !header->gap && header->step_sequence &&
	    header->step_sequence + 1 >= rank->base && !rank->following) {
		rank->following = 1;
		outbox->acks_changed = 1;
	}
	if (ours && header->step_sequence > rank->applied) {
		rank->applied = header->step_sequence;
		outbox->progress_ns = now_ns;
		trim(outbox);
	}
	if (!header->gap)
		return;
	if (rank->following) {
		/* An older one is a replay: the gap was filled since. */
		if (ours && header->step_sequence == rank->applied)
			rewind_to(outbox, rank->applied + 1);
		return;
	}
	rewind_to(outbox, rank->base);
	outbox->acks_changed = 1;
}

int kvpull_outbox_take(struct kvpull_outbox *outbox,
		       const struct kvpull_result_header *header,
		       uint64_t now_ns, uint32_t *skip)
{
	struct kvpull_outbox_rank *rank = &outbox->ranks[header->rank];
	uint64_t seen;

	if (header->step_incarnation == outbox->incarnation &&
	    header->step_sequence >= outbox->next_sequence)
		return KVPULL_EINVAL;
	take_progress(outbox, header, now_ns);
	*skip = 0;
	if (!header->record_count)
		return 0;
	if (!rank->heard) {
		rank->heard = 1;
		rank->taken = header->first_sequence - 1;
	}
	outbox->acks_changed = 1;
	if (header->record_count >= ACKS_WANTED_AT)
		outbox->acks_wanted = 1;
	if (header->first_sequence > rank->taken + 1)
		return KVPULL_EAGAIN;
	seen = rank->taken + 1 - header->first_sequence;
	*skip = seen < header->record_count ? (uint32_t)seen :
					      header->record_count;
	rank->taken += header->record_count - *skip;
	return 0;
}
