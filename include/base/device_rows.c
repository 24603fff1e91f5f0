/* SPDX-License-Identifier: Apache-2.0 */
#include "base/device_rows.h"

int kvpull_device_rows_init(struct kvpull_device_rows *rows,
			    const struct kvpull_device_mapping *mappings,
			    struct kvpull_arena *arena)
{
	struct kvpull_device_pieces *const pieces = &rows->pieces;

	rows->mappings = mappings;
	KVPULL_ARENA_TAKE(arena, pieces->targets, KVPULL_DEVICE_PIECES_MAX);
	KVPULL_ARENA_TAKE(arena, pieces->sources, KVPULL_DEVICE_PIECES_MAX);
	KVPULL_ARENA_TAKE(arena, pieces->bytes, KVPULL_DEVICE_PIECES_MAX);
	KVPULL_ARENA_TAKE(arena, rows->strips, KVPULL_DEVICE_STRIPS_MAX);
	return rows->strips ? 0 : KVPULL_ENOMEM;
}

/* The memory of a region of the job's; NULL: the peer has no such region. */
static const struct kvpull_device_memory *
memory_of(const struct kvpull_device_rows *rows,
	  const struct kvpull_device_job *job, uint32_t region_index)
{
	if (region_index >= job->region_count)
		return NULL;
	return &rows->mappings[job->regions[region_index].mapping].memory;
}

/* ---- by pieces ---- */

/* Add a row, next to the last piece or as a piece more. */
static int piece_add(struct kvpull_device_rows *rows,
		     const struct kvpull_device_job *job,
		     const struct kvpull_row *row)
{
	const struct kvpull_device_memory *const memory =
		memory_of(rows, job, row->strip->region_index);
	const uint64_t target = (uint64_t)(uintptr_t)row->local;
	struct kvpull_device_pieces *const pieces = &rows->pieces;
	const uint32_t last = pieces->count - 1;
	uint64_t source;
	uint64_t offset;

	if (!memory)
		return KVPULL_EPROTO;
	offset = job->regions[row->strip->region_index].offset;
	if (offset > memory->bytes || row->bytes > memory->bytes - offset ||
	    row->remote_offset > memory->bytes - offset - row->bytes)
		return KVPULL_EPROTO;
	source = memory->address + offset + row->remote_offset;
	if (pieces->count &&
	    pieces->targets[last] + pieces->bytes[last] == target &&
	    pieces->sources[last] + pieces->bytes[last] == source) {
		pieces->bytes[last] += row->bytes;
		return 0;
	}
	pieces->targets[pieces->count] = target;
	pieces->sources[pieces->count] = source;
	pieces->bytes[pieces->count] = row->bytes;
	pieces->count++;
	return 0;
}

static int pieces_take(struct kvpull_device_rows *rows,
		       const struct kvpull_device_job *job,
		       struct kvpull_rows_cursor *cursor, uint64_t byte_max)
{
	struct kvpull_row row;
	int code = 0;

	while (!code && rows->bytes < byte_max &&
	       rows->pieces.count < KVPULL_DEVICE_PIECES_MAX &&
	       kvpull_rows_next(job->read, cursor, byte_max - rows->bytes,
				&row)) {
		rows->bytes += row.bytes;
		code = piece_add(rows, job, &row);
	}
	return code;
}

/* ---- by strips ---- */

static uint32_t id_most(const uint32_t *ids, uint32_t count)
{
	uint32_t most = 0;
	uint32_t at;

	for (at = 0; at < count; at++)
		if (ids[at] > most)
			most = ids[at];
	return most;
}

/* Does the run's last row, by its place, end in the memory? */
static int is_mapped(const struct kvpull_device_memory *memory, uint64_t offset,
		     const struct kvpull_run *run, const uint32_t *ids)
{
	uint64_t last;

	return !__builtin_mul_overflow((uint64_t)id_most(ids, run->count),
				       run->strip->remote_block_stride,
				       &last) &&
	       !__builtin_add_overflow(last, run->remote_offset, &last) &&
	       offset <= memory->bytes &&
	       run->bytes <= memory->bytes - offset &&
	       last <= memory->bytes - offset - run->bytes;
}

static int strip_add(struct kvpull_device_rows *rows,
		     const struct kvpull_device_job *job,
		     const struct kvpull_run *run)
{
	const struct kvpull_strip *const strip = run->strip;
	const struct kvpull_device_memory *const memory =
		memory_of(rows, job, strip->region_index);
	const uint32_t *const ids = job->read->remote_ids + run->at;
	uint64_t offset;

	if (!memory)
		return KVPULL_EPROTO;
	offset = job->regions[strip->region_index].offset;
	if (!is_mapped(memory, offset, run, ids))
		return KVPULL_EPROTO;
	rows->strips[rows->strip_count++] = (struct kvpull_device_strip){
		.source = memory->address + offset + run->remote_offset,
		.target = (uint64_t)(uintptr_t)run->local,
		.source_stride = strip->remote_block_stride,
		.target_stride = strip->local_block_stride,
		.row_bytes = run->bytes,
		.source_ids = ids,
		.target_ids = job->read->local_ids + run->at,
		.row_count = run->count,
	};
	return 0;
}

static int strips_take(struct kvpull_device_rows *rows,
		       const struct kvpull_device_job *job,
		       struct kvpull_rows_cursor *cursor, uint64_t byte_max)
{
	uint32_t rows_left = KVPULL_DEVICE_ROWS_MAX;
	struct kvpull_run run;
	int code = 0;

	/* A row that is cut stays one of whole units. */
	byte_max -= byte_max % KVPULL_DEVICE_UNIT;
	while (!code && rows->bytes < byte_max && rows_left &&
	       rows->strip_count < KVPULL_DEVICE_STRIPS_MAX &&
	       kvpull_runs_next(job->read, cursor, byte_max - rows->bytes,
				rows_left, &run)) {
		rows->bytes += run.bytes * run.count;
		rows_left -= run.count;
		code = strip_add(rows, job, &run);
	}
	return code;
}

static int is_of_units(const struct kvpull_strip *strip, uint64_t offset)
{
	const uint64_t all =
		offset | strip->remote_offset | strip->remote_block_stride |
		strip->remote_row_stride | (uint64_t)(uintptr_t)strip->local |
		strip->local_block_stride | strip->local_row_stride |
		strip->row_bytes;

	return !(all % KVPULL_DEVICE_UNIT);
}

uint32_t kvpull_device_rows_can_gather(const struct kvpull_device_rows *rows,
				       const struct kvpull_device_job *job)
{
	const struct kvpull_read *const read = job->read;
	uint32_t at;

	for (at = 0; at < read->strip_count; at++) {
		const uint32_t region_index = read->strips[at].region_index;
		const struct kvpull_device_memory *const memory =
			memory_of(rows, job, region_index);

		if (!memory || read->strips[at].row_bytes > memory->gathers ||
		    !is_of_units(&read->strips[at],
				 job->regions[region_index].offset))
			return 0;
	}
	return 1;
}

int kvpull_device_rows_take(struct kvpull_device_rows *rows,
			    const struct kvpull_device_job *job,
			    struct kvpull_rows_cursor *cursor, uint32_t gathers,
			    uint64_t byte_max)
{
	rows->bytes = 0;
	rows->pieces.count = 0;
	rows->strip_count = 0;
	return gathers ? strips_take(rows, job, cursor, byte_max) :
			 pieces_take(rows, job, cursor, byte_max);
}

/* Both walks come to their end with the strips. */
int kvpull_device_rows_left(const struct kvpull_device_job *job,
			    const struct kvpull_rows_cursor *cursor)
{
	struct kvpull_rows_cursor ahead = *cursor;
	struct kvpull_row row;

	return kvpull_rows_next(job->read, &ahead, 1, &row);
}
