/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec of the bytes between the halves.
 *
 * Kept: a decoder writes nothing past a bound, and out parameters on success
 * only; a count is compared with the bytes that are left before it is a loop's
 * end; time is linear in the message plus KVPULL_TICKET_BLOCKS_MAX a PULL.
 *
 * Message: u32 magic, u8 version, header, records. A record: u32 bytes after
 * it, u8 kind, the scalars as varints (they are small or 0 mostly), then what
 * the kind has: CLAIM u8 ranks, each as in a ticket; PULL u8 groups, each a
 * varint of pairs and, unless 0, u8 form and the pairs; RANK the rank's
 * description.
 *
 * Pairs have the form RUNS where a run is RUN_PAIRS_MIN long on average, each
 * { zigzag distance of the remote id, likewise of the local id, varint pairs };
 * else NARROW where all ids are below 65,536: u16 remote ids, then u16 local
 * ids; else PLAIN: likewise in u32. So each list has one spelling, and an
 * engine's step does not wait for thousands of varints (measured: 8,192
 * scattered pairs took 290 us).
 */
#include "plugin/bytes/step.h"

#include <endian.h>
#include <string.h>

#define STEP_MAGIC UINT32_C(0x5453564b)      /* "KVST" */
#define RESULT_MAGIC UINT32_C(0x5352564b)    /* "KVRS" */
#define RANK_INFO_MAGIC UINT32_C(0x4952564b) /* "KVRI" */

/* Smallest records: their byte count, kind and scalars of a byte each. */
#define COMMAND_BYTES_MIN 12u
#define RESULT_BYTES_MIN 10u

#define RUN_PAIRS_MIN 64u /* on average */

enum pairs_form {
	PAIRS_RUNS = 0,
	PAIRS_PLAIN,
	PAIRS_NARROW
};

/* Where decoded pairs go; NULL both: they are only checked. */
struct pairs {
	uint32_t *remote_ids;
	uint32_t *local_ids;
};

_Static_assert(KVPULL_RANKS_MAX <= UINT8_MAX && KVPULL_GROUPS_MAX <= UINT8_MAX,
	       "counts are one byte on the wire");

static void put_start(struct kvpull_wire_writer *writer, uint32_t magic)
{
	kvpull_wire_put_u32(writer, magic);
	kvpull_wire_put_u8(writer, KVPULL_STEP_VERSION);
}

static int get_start(struct kvpull_wire_reader *reader, uint32_t magic)
{
	if (kvpull_wire_get_u32(reader) != magic)
		return KVPULL_EINVAL;
	if (kvpull_wire_get_u8(reader) != KVPULL_STEP_VERSION)
		return reader->bad ? KVPULL_EINVAL : KVPULL_EVERSION;
	return 0;
}

/* Room for a record's byte count; where it is, for put_record_end(). */
static size_t put_record_start(struct kvpull_wire_writer *writer)
{
	const size_t start = writer->used;

	kvpull_wire_put_u32(writer, 0);
	return start;
}

static void put_record_end(struct kvpull_wire_writer *writer, size_t start)
{
	struct kvpull_wire_writer patch = *writer;

	if (!kvpull_wire_fits(writer))
		return;
	patch.used = start;
	kvpull_wire_put_u32(&patch, (uint32_t)(writer->used - start - 4));
}

/* The next record's bytes as a reader of their own; none: it is bad. */
static struct kvpull_wire_reader get_record(struct kvpull_wire_reader *reader)
{
	const size_t byte_count = kvpull_wire_get_u32(reader);
	const uint8_t *bytes = kvpull_wire_get(reader, byte_count);

	return (struct kvpull_wire_reader){ bytes, bytes ? byte_count : 0, 0,
					    bytes ? 0 : 1 };
}

/* Reasons that a report may carry: 0 or an error that we know. */
static int check_error(int32_t reason)
{
	switch (reason) {
#define CASE(name, value, text) case value:
		KVPULL_ERRORS(CASE)
#undef CASE
	case KVPULL_OK:
		return 0;
	}
	return KVPULL_EINVAL;
}

static int check_end(int32_t reason)
{
	return reason >= KVPULL_END_RELEASED && reason <= KVPULL_END_RANK ?
		       0 :
		       KVPULL_EINVAL;
}

/* A first sequence and a count that do not wrap. */
static int check_sequence(uint64_t first, uint32_t count)
{
	return first && count <= UINT64_MAX - first ? 0 : KVPULL_EINVAL;
}

static uint64_t zigzag(int32_t value)
{
	return value < 0 ? ((uint64_t)(-(int64_t)value) << 1) - 1 :
			   (uint64_t)value << 1;
}

static int32_t get_zigzag(struct kvpull_wire_reader *reader)
{
	const uint64_t value = kvpull_wire_get_varint(reader);

	if (value > UINT32_MAX) {
		reader->bad = 1;
		return 0;
	}
	return value & 1 ? (int32_t)(-(int64_t)(value >> 1) - 1) :
			   (int32_t)(value >> 1);
}

void kvpull_step_put_header(struct kvpull_wire_writer *writer,
			    const struct kvpull_step_header *header)
{
	uint32_t i;

	kvpull_assert(header->rank_count <= KVPULL_RANKS_MAX);
	put_start(writer, STEP_MAGIC);
	kvpull_wire_put_u64(writer, header->incarnation);
	kvpull_wire_put_u64(writer, header->first_sequence);
	kvpull_wire_put_u32(writer, header->record_count);
	kvpull_wire_put_u8(writer, (uint8_t)header->rank_count);
	for (i = 0; i < header->rank_count; i++) {
		kvpull_wire_put_u64(writer, header->acks[i]);
		kvpull_wire_put_u64(writer, header->ack_incarnations[i]);
	}
}

int kvpull_step_get_header(struct kvpull_wire_reader *reader,
			   struct kvpull_step_header *header)
{
	struct kvpull_step_header got = { 0 };
	const int code = get_start(reader, STEP_MAGIC);
	uint32_t i;

	if (code)
		return code;
	got.incarnation = kvpull_wire_get_u64(reader);
	got.first_sequence = kvpull_wire_get_u64(reader);
	got.record_count = kvpull_wire_get_u32(reader);
	got.rank_count = kvpull_wire_get_u8(reader);
	if (!got.incarnation || !got.rank_count ||
	    got.rank_count > KVPULL_RANKS_MAX ||
	    check_sequence(got.first_sequence, got.record_count))
		return KVPULL_EINVAL;
	for (i = 0; i < got.rank_count; i++) {
		got.acks[i] = kvpull_wire_get_u64(reader);
		got.ack_incarnations[i] = kvpull_wire_get_u64(reader);
	}
	if (reader->bad ||
	    got.record_count >
		    (reader->byte_count - reader->at) / COMMAND_BYTES_MIN)
		return KVPULL_EINVAL;
	*header = got;
	return 0;
}

/* Pairs from `at` on that follow one another on both sides. */
static uint32_t run_at(const uint32_t *remote, const uint32_t *local,
		       uint32_t at, uint32_t count)
{
	uint32_t run = 1;

	while (run < count - at &&
	       remote[at + run] == (uint64_t)remote[at] + run &&
	       local[at + run] == (uint64_t)local[at] + run)
		run++;
	return run;
}

static enum pairs_form form_of(const uint32_t *remote, const uint32_t *local,
			       uint32_t count)
{
	uint32_t run_count = 0;
	uint32_t bits = 0;
	uint32_t at = 0;

	while (at < count && ++run_count <= count / RUN_PAIRS_MIN)
		at += run_at(remote, local, at, count);
	if (at == count)
		return PAIRS_RUNS;
	for (at = 0; at < count; at++)
		bits |= remote[at] | local[at];
	return bits > UINT16_MAX ? PAIRS_PLAIN : PAIRS_NARROW;
}

static void put_runs(struct kvpull_wire_writer *writer, const uint32_t *remote,
		     const uint32_t *local, uint32_t count)
{
	uint64_t remote_end = 0;
	uint64_t local_end = 0;
	uint32_t at = 0;

	while (at < count) {
		const uint32_t run = run_at(remote, local, at, count);

		kvpull_ticket_put_id(writer, remote[at], remote_end);
		kvpull_ticket_put_id(writer, local[at], local_end);
		kvpull_wire_put_varint(writer, run);
		remote_end = (uint64_t)remote[at] + run;
		local_end = (uint64_t)local[at] + run;
		at += run;
	}
}

static void put_pairs(struct kvpull_wire_writer *writer, const uint32_t *remote,
		      const uint32_t *local, uint32_t count)
{
	const enum pairs_form form = form_of(remote, local, count);

	if (!count)
		return;
	kvpull_wire_put_u8(writer, (uint8_t)form);
	if (form == PAIRS_RUNS) {
		put_runs(writer, remote, local, count);
	} else if (form == PAIRS_NARROW) {
		kvpull_wire_put_u16s(writer, remote, count);
		kvpull_wire_put_u16s(writer, local, count);
	} else {
		kvpull_wire_put_u32s(writer, remote, count);
		kvpull_wire_put_u32s(writer, local, count);
	}
}

static void run_fill(uint32_t *ids, uint32_t first, uint32_t run)
{
	uint32_t i;

	for (i = 0; i < run; i++)
		ids[i] = first + i;
}

/*
 * A run longer than what its group still lacks is refused before it is used,
 * and so are more runs than we would write.
 */
static void get_runs(struct kvpull_wire_reader *reader,
		     const struct pairs *pairs, uint32_t count)
{
	uint32_t runs_left = count / RUN_PAIRS_MIN;
	uint64_t remote_end = 0;
	uint64_t local_end = 0;
	uint32_t at = 0;

	while (at < count) {
		const uint32_t remote_first =
			kvpull_ticket_get_id(reader, remote_end);
		const uint32_t local_first =
			kvpull_ticket_get_id(reader, local_end);
		const uint64_t run = kvpull_wire_get_varint(reader);

		if (reader->bad || !runs_left-- || !run || run > count - at ||
		    run - 1 > UINT32_MAX - remote_first ||
		    run - 1 > UINT32_MAX - local_first) {
			reader->bad = 1;
			return;
		}
		if (pairs->remote_ids) {
			run_fill(pairs->remote_ids + at, remote_first,
				 (uint32_t)run);
			run_fill(pairs->local_ids + at, local_first,
				 (uint32_t)run);
		}
		remote_end = remote_first + run;
		local_end = local_first + run;
		at += (uint32_t)run;
	}
}

static void get_plain(struct kvpull_wire_reader *reader,
		      const struct pairs *pairs, uint32_t count)
{
	if (!pairs->remote_ids) {
		(void)kvpull_wire_get(reader, (size_t)count * 8);
		return;
	}
	kvpull_wire_get_u32s(reader, pairs->remote_ids, count);
	kvpull_wire_get_u32s(reader, pairs->local_ids, count);
}

/* Where a list of `count` ids keeps them while they are narrow. */
static uint8_t *narrow_of(uint32_t *ids, uint32_t count)
{
	return (uint8_t *)ids + (size_t)count * 2;
}

static void get_narrow(struct kvpull_wire_reader *reader,
		       const struct pairs *pairs, uint32_t count)
{
	const size_t list_bytes = (size_t)count * 2;
	const uint8_t *bytes = kvpull_wire_get(reader, 2 * list_bytes);

	if (!bytes || !pairs->remote_ids)
		return;
	kvpull_stream_copy(narrow_of(pairs->remote_ids, count), bytes,
			   list_bytes);
	kvpull_stream_copy(narrow_of(pairs->local_ids, count),
			   bytes + list_bytes, list_bytes);
}

/* From the front: an id is written over narrow ones that were read before. */
static void widen(uint32_t *ids, uint32_t count)
{
	const uint8_t *narrow = narrow_of(ids, count);
	uint16_t some[KVPULL_WIRE_U16S];
	uint32_t at = 0;
	uint32_t i;

	for (; count - at >= KVPULL_WIRE_U16S; at += KVPULL_WIRE_U16S) {
		memcpy(some, narrow + (size_t)at * 2, sizeof(some));
		for (i = 0; i < KVPULL_WIRE_U16S; i++)
			ids[at + i] = le16toh(some[i]);
	}
	for (; at < count; at++) {
		memcpy(some, narrow + (size_t)at * 2, sizeof(*some));
		ids[at] = le16toh(*some);
	}
}

/* 1: the ids are narrow. */
static uint32_t get_pairs(struct kvpull_wire_reader *reader,
			  const struct pairs *pairs, uint32_t count)
{
	uint8_t form;

	if (!count)
		return 0;
	form = kvpull_wire_get_u8(reader);
	if (form == PAIRS_RUNS)
		get_runs(reader, pairs, count);
	else if (form == PAIRS_PLAIN)
		get_plain(reader, pairs, count);
	else if (form == PAIRS_NARROW)
		get_narrow(reader, pairs, count);
	else
		reader->bad = 1;
	return form == PAIRS_NARROW;
}

static void put_groups(struct kvpull_wire_writer *writer,
		       const struct kvpull_command *command)
{
	uint32_t i;

	kvpull_assert(command->group_count <= KVPULL_GROUPS_MAX);
	kvpull_wire_put_u8(writer, (uint8_t)command->group_count);
	for (i = 0; i < command->group_count; i++) {
		const uint32_t first = command->group_first[i];
		const uint32_t count = command->group_first[i + 1] - first;

		kvpull_wire_put_varint(writer, count);
		put_pairs(writer, command->remote_ids + first,
			  command->local_ids + first, count);
	}
}

static void get_groups(struct kvpull_wire_reader *reader,
		       const struct pairs *to, struct kvpull_command *command)
{
	struct pairs left = *to;
	uint32_t narrow = 0;
	uint32_t pairs = 0;
	uint32_t i;

	command->group_count = kvpull_wire_get_u8(reader);
	if (!command->group_count || command->group_count > KVPULL_GROUPS_MAX)
		reader->bad = 1;
	for (i = 0; !reader->bad && i < command->group_count; i++) {
		const uint32_t count = kvpull_ticket_get_varint32(reader);

		if (count > KVPULL_TICKET_BLOCKS_MAX - pairs) {
			reader->bad = 1;
			return;
		}
		narrow |= get_pairs(reader, &left, count) << i;
		if (left.remote_ids) {
			left.remote_ids += count;
			left.local_ids += count;
		}
		pairs += count;
		command->group_first[i + 1] = pairs;
	}
	/* Groups that are not there are empty to whoever walks them all. */
	for (; i < KVPULL_GROUPS_MAX; i++)
		command->group_first[i + 1] = pairs;
	if (to->remote_ids && !reader->bad)
		kvpull_step_widen_ids(narrow, command->group_first,
				      to->remote_ids, to->local_ids);
	command->remote_ids = to->remote_ids;
	command->local_ids = to->local_ids;
}

static void put_ranks(struct kvpull_wire_writer *writer,
		      const struct kvpull_command *command)
{
	uint32_t i;

	kvpull_assert(command->rank_count <= KVPULL_RANKS_MAX);
	kvpull_wire_put_u8(writer, (uint8_t)command->rank_count);
	for (i = 0; i < command->rank_count; i++)
		kvpull_ticket_put_rank(writer, &command->ranks[i]);
}

static void get_ranks(struct kvpull_wire_reader *reader,
		      struct kvpull_step_scratch *scratch,
		      struct kvpull_command *command)
{
	uint32_t i;

	command->rank_count = kvpull_wire_get_u8(reader);
	if (!command->rank_count || command->rank_count > KVPULL_RANKS_MAX)
		reader->bad = 1;
	for (i = 0; !reader->bad && i < command->rank_count; i++)
		kvpull_ticket_get_rank(reader, &scratch->ranks[i]);
	command->ranks = scratch->ranks;
}

static int check_command(const struct kvpull_command *command)
{
	uint32_t flags = 0;

	if (command->slot >= KVPULL_TICKET_SLOTS_MAX)
		return KVPULL_EINVAL;
	if (command->kind == KVPULL_COMMAND_HOLD)
		flags = KVPULL_TICKET_READY_NEEDED;
	if (command->kind == KVPULL_COMMAND_PULL)
		flags = KVPULL_PULL_RELEASE | KVPULL_PULL_READY;
	if (command->flags & ~flags)
		return KVPULL_EINVAL;
	if (command->kind != KVPULL_COMMAND_END &&
	    command->kind != KVPULL_COMMAND_PULL && command->reason)
		return KVPULL_EINVAL;
	switch (command->kind) {
	case KVPULL_COMMAND_HOLD:
	case KVPULL_COMMAND_END:
		if (!command->key || !command->generation)
			return KVPULL_EINVAL;
		return check_end(command->reason);
	case KVPULL_COMMAND_CLAIM:
		return command->generation ? 0 : KVPULL_EINVAL;
	case KVPULL_COMMAND_PULL:
		/* With a reason: refused already, to be reported as failed. */
		return command->key ? check_error(command->reason) :
				      KVPULL_EINVAL;
	case KVPULL_COMMAND_ABORT:
		return command->key ? 0 : KVPULL_EINVAL;
	case KVPULL_COMMAND_RELEASE:
		return 0;
	}
	return KVPULL_EINVAL;
}

void kvpull_step_put_command(struct kvpull_wire_writer *writer,
			     const struct kvpull_command *command)
{
	const size_t start = put_record_start(writer);

	kvpull_assert(!check_command(command));
	kvpull_wire_put_u8(writer, (uint8_t)command->kind);
	kvpull_wire_put_varint(writer, command->slot);
	kvpull_wire_put_varint(writer, command->key);
	kvpull_wire_put_varint(writer, command->generation);
	kvpull_wire_put_varint(writer, command->flags);
	kvpull_wire_put_varint(writer, zigzag(command->reason));
	kvpull_wire_put_varint(writer, command->ticket_index);
	kvpull_wire_put_varint(writer, command->ticket_serial);
	if (command->kind == KVPULL_COMMAND_END)
		kvpull_wire_put_varint(writer, command->reported);
	if (command->kind == KVPULL_COMMAND_CLAIM)
		put_ranks(writer, command);
	if (command->kind == KVPULL_COMMAND_PULL)
		put_groups(writer, command);
	put_record_end(writer, start);
}

static int get_command(struct kvpull_wire_reader *reader,
		       struct kvpull_step_scratch *scratch,
		       const struct pairs *pairs,
		       struct kvpull_command *command)
{
	struct kvpull_wire_reader record = get_record(reader);
	struct kvpull_command got = { 0 };

	got.kind = (enum kvpull_command_kind)kvpull_wire_get_u8(&record);
	got.slot = kvpull_ticket_get_varint32(&record);
	got.key = kvpull_wire_get_varint(&record);
	got.generation = kvpull_wire_get_varint(&record);
	got.flags = kvpull_ticket_get_varint32(&record);
	got.reason = get_zigzag(&record);
	got.ticket_index = kvpull_ticket_get_varint32(&record);
	got.ticket_serial = kvpull_wire_get_varint(&record);
	if (got.kind == KVPULL_COMMAND_END)
		got.reported = kvpull_wire_get_varint(&record);
	if (record.bad || check_command(&got))
		return KVPULL_EINVAL;
	if (got.kind == KVPULL_COMMAND_CLAIM)
		get_ranks(&record, scratch, &got);
	got.pairs = record;
	if (got.kind == KVPULL_COMMAND_PULL)
		get_groups(&record, pairs, &got);
	if (!kvpull_wire_done(&record))
		return KVPULL_EINVAL;
	*command = got;
	return 0;
}

int kvpull_step_get_command(struct kvpull_wire_reader *reader,
			    struct kvpull_step_scratch *scratch,
			    struct kvpull_command *command)
{
	const struct pairs pairs = { scratch->remote_ids, scratch->local_ids };

	return get_command(reader, scratch, &pairs, command);
}

int kvpull_step_peek_command(struct kvpull_wire_reader *reader,
			     struct kvpull_step_scratch *scratch,
			     struct kvpull_command *command)
{
	const struct pairs nowhere = { NULL, NULL };

	return get_command(reader, scratch, &nowhere, command);
}

void kvpull_step_widen_ids(uint32_t narrow, const uint32_t *group_first,
			   uint32_t *remote_ids, uint32_t *local_ids)
{
	uint32_t i;

	for (i = 0; narrow >> i; i++) {
		const uint32_t first = group_first[i];
		const uint32_t count = group_first[i + 1] - first;

		if (!(narrow >> i & 1))
			continue;
		widen(remote_ids + first, count);
		widen(local_ids + first, count);
	}
}

uint32_t kvpull_step_get_ids(const struct kvpull_command *command,
			     uint32_t *remote_ids, uint32_t *local_ids)
{
	struct pairs left = { remote_ids, local_ids };
	struct kvpull_wire_reader reader = command->pairs;
	uint32_t narrow = 0;
	uint32_t i;

	kvpull_assert(command->kind == KVPULL_COMMAND_PULL);
	(void)kvpull_wire_get_u8(&reader);
	/* The room is for the counts that were peeked, whatever is read now. */
	for (i = 0; !reader.bad && i < command->group_count; i++) {
		const uint32_t count =
			command->group_first[i + 1] - command->group_first[i];

		if (kvpull_ticket_get_varint32(&reader) != count)
			return narrow;
		narrow |= get_pairs(&reader, &left, count) << i;
		left.remote_ids += count;
		left.local_ids += count;
	}
	return narrow;
}

int kvpull_step_check(const void *bytes, size_t byte_count,
		      struct kvpull_step_scratch *scratch)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	struct kvpull_step_header header;
	struct kvpull_command command;
	int code = kvpull_step_get_header(&reader, &header);
	uint32_t i;

	for (i = 0; !code && i < header.record_count; i++)
		code = kvpull_step_peek_command(&reader, scratch, &command);
	if (code)
		return code;
	return kvpull_wire_done(&reader) ? 0 : KVPULL_EINVAL;
}

void kvpull_step_put_result_header(struct kvpull_wire_writer *writer,
				   const struct kvpull_result_header *header)
{
	put_start(writer, RESULT_MAGIC);
	kvpull_wire_put_u64(writer, header->incarnation);
	kvpull_wire_put_u64(writer, header->first_sequence);
	kvpull_wire_put_u32(writer, header->record_count);
	kvpull_wire_put_u32(writer, header->tp_rank);
	kvpull_wire_put_u64(writer, header->step_incarnation);
	kvpull_wire_put_u64(writer, header->step_sequence);
	kvpull_wire_put_u8(writer, (uint8_t)header->gap);
}

int kvpull_step_get_result_header(struct kvpull_wire_reader *reader,
				  struct kvpull_result_header *header)
{
	struct kvpull_result_header got = { 0 };
	const int code = get_start(reader, RESULT_MAGIC);

	if (code)
		return code;
	got.incarnation = kvpull_wire_get_u64(reader);
	got.first_sequence = kvpull_wire_get_u64(reader);
	got.record_count = kvpull_wire_get_u32(reader);
	got.tp_rank = kvpull_wire_get_u32(reader);
	got.step_incarnation = kvpull_wire_get_u64(reader);
	got.step_sequence = kvpull_wire_get_u64(reader);
	got.gap = kvpull_wire_get_u8(reader);
	if (reader->bad || !got.incarnation || got.gap > 1 ||
	    got.tp_rank >= KVPULL_RANKS_MAX ||
	    check_sequence(got.first_sequence, got.record_count) ||
	    got.record_count >
		    (reader->byte_count - reader->at) / RESULT_BYTES_MIN)
		return KVPULL_EINVAL;
	*header = got;
	return 0;
}

static void put_rank(struct kvpull_wire_writer *writer,
		     const struct kvpull_rank_info *rank)
{
	uint32_t group;

	kvpull_wire_put_u64(writer, rank->incarnation);
	kvpull_wire_put_u64(writer, rank->generation_floor);
	kvpull_wire_put_u32(writer, rank->tp_rank);
	kvpull_wire_put_u32(writer, rank->tp_size);
	kvpull_wire_put_u32(writer, rank->slot_count);
	for (group = 0; group < KVPULL_GROUPS_MAX; group++)
		kvpull_wire_put_u32(writer, rank->block_counts[group]);
	kvpull_wire_put(writer, rank->secret, sizeof(rank->secret));
	kvpull_wire_put(writer, rank->compat, sizeof(rank->compat));
	kvpull_wire_put_text(writer, rank->address);
}

/* An empty address is a worker that has not registered its memory yet. */
static int check_rank(const struct kvpull_rank_info *rank)
{
	if (!rank->incarnation || !rank->tp_size ||
	    rank->tp_size > KVPULL_RANKS_MAX || rank->tp_rank >= rank->tp_size)
		return KVPULL_EINVAL;
	if (!rank->slot_count || rank->slot_count > KVPULL_TICKET_SLOTS_MAX)
		return KVPULL_EINVAL;
	if (!rank->address[0])
		return 0;
	return kvpull_ticket_check_address(rank->address);
}

static void get_rank(struct kvpull_wire_reader *reader,
		     struct kvpull_rank_info *rank)
{
	const uint8_t *bytes;
	uint32_t group;

	rank->incarnation = kvpull_wire_get_u64(reader);
	rank->generation_floor = kvpull_wire_get_u64(reader);
	rank->tp_rank = kvpull_wire_get_u32(reader);
	rank->tp_size = kvpull_wire_get_u32(reader);
	rank->slot_count = kvpull_wire_get_u32(reader);
	for (group = 0; group < KVPULL_GROUPS_MAX; group++)
		rank->block_counts[group] = kvpull_wire_get_u32(reader);
	bytes = kvpull_wire_get(reader, sizeof(rank->secret));
	if (bytes)
		memcpy(rank->secret, bytes, sizeof(rank->secret));
	bytes = kvpull_wire_get(reader, sizeof(rank->compat));
	if (bytes)
		memcpy(rank->compat, bytes, sizeof(rank->compat));
	kvpull_wire_get_text(reader, rank->address, sizeof(rank->address));
	if (reader->bad || check_rank(rank))
		reader->bad = 1;
}

static int check_result(const struct kvpull_result *result)
{
	if (result->slot >= KVPULL_TICKET_SLOTS_MAX)
		return KVPULL_EINVAL;
	switch (result->kind) {
	case KVPULL_RESULT_RANK:
		return result->reason ? KVPULL_EINVAL : 0;
	case KVPULL_RESULT_HOLD_ENDED:
		if (!result->key || !result->generation)
			return KVPULL_EINVAL;
		return check_end(result->reason);
	case KVPULL_RESULT_PULL_ENDED:
		return result->key ? check_error(result->reason) :
				     KVPULL_EINVAL;
	}
	return KVPULL_EINVAL;
}

void kvpull_step_put_result(struct kvpull_wire_writer *writer,
			    const struct kvpull_result *result)
{
	const size_t start = put_record_start(writer);

	kvpull_assert(!check_result(result));
	kvpull_wire_put_u8(writer, (uint8_t)result->kind);
	kvpull_wire_put_varint(writer, result->slot);
	kvpull_wire_put_varint(writer, result->key);
	kvpull_wire_put_varint(writer, result->generation);
	kvpull_wire_put_varint(writer, result->bytes);
	kvpull_wire_put_varint(writer, zigzag(result->reason));
	if (result->kind == KVPULL_RESULT_RANK)
		put_rank(writer, &result->rank);
	put_record_end(writer, start);
}

int kvpull_step_get_result(struct kvpull_wire_reader *reader,
			   struct kvpull_result *result)
{
	struct kvpull_wire_reader record = get_record(reader);
	struct kvpull_result got = { 0 };

	got.kind = (enum kvpull_result_kind)kvpull_wire_get_u8(&record);
	got.slot = kvpull_ticket_get_varint32(&record);
	got.key = kvpull_wire_get_varint(&record);
	got.generation = kvpull_wire_get_varint(&record);
	got.bytes = kvpull_wire_get_varint(&record);
	got.reason = get_zigzag(&record);
	if (record.bad || check_result(&got))
		return KVPULL_EINVAL;
	if (got.kind == KVPULL_RESULT_RANK)
		get_rank(&record, &got.rank);
	if (!kvpull_wire_done(&record))
		return KVPULL_EINVAL;
	*result = got;
	return 0;
}

int kvpull_step_check_result(const void *bytes, size_t byte_count)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	struct kvpull_result_header header;
	struct kvpull_result result;
	int code = kvpull_step_get_result_header(&reader, &header);
	uint32_t i;

	for (i = 0; !code && i < header.record_count; i++)
		code = kvpull_step_get_result(&reader, &result);
	if (code)
		return code;
	return kvpull_wire_done(&reader) ? 0 : KVPULL_EINVAL;
}

void kvpull_step_put_rank_info(struct kvpull_wire_writer *writer,
			       const struct kvpull_rank_info *rank)
{
	put_start(writer, RANK_INFO_MAGIC);
	put_rank(writer, rank);
}

int kvpull_step_get_rank_info(const void *bytes, size_t byte_count,
			      struct kvpull_rank_info *rank)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };
	struct kvpull_rank_info got = { 0 };

	if (kvpull_wire_get_u32(&reader) != RANK_INFO_MAGIC)
		return KVPULL_ENOTMINE;
	if (kvpull_wire_get_u8(&reader) != KVPULL_STEP_VERSION)
		return reader.bad ? KVPULL_EINVAL : KVPULL_EVERSION;
	get_rank(&reader, &got);
	if (!kvpull_wire_done(&reader))
		return KVPULL_EINVAL;
	*rank = got;
	return 0;
}
