/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: a piece that the kernel has is never free, so its bounce buffer
 * is written by one read at a time; pieces_open of a read counts the pieces
 * that name it as their owner; only those are copied into its blocks.
 */
#include "shm/file_read.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cause.h"

/* Results of no meaning (interrupted, short): so often, then an error. */
#define TRIES_MAX 8u
/* Rows so near to each other are cheaper to read with what is between. */
#define GAP_BYTES KVPULL_FILE_ALIGN_MAX
/* In turns: pieces of one read before it is the next one's turn. */
#define TURN_PIECES 4u
#define RESULTS_MAX 16u

int kvpull_files_open(struct kvpull_files *files, uint32_t read_max,
		      struct kvpull_arena *arena, const struct kvpull_log *log)
{
	void *mapped;
	uint32_t i;

	*files = (struct kvpull_files){
		.log = log,
		.read_max = read_max,
	};
	KVPULL_ARENA_TAKE(arena, files->pieces, KVPULL_FILE_DEPTH);
	KVPULL_ARENA_TAKE(arena, files->reads, read_max);
	kvpull_index_list_init(&files->queue, read_max, arena);
	kvpull_turns_init(&files->asking, read_max, arena);
	if (!kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	/* The arena does not own this memory: see close(). */
	mapped = mmap(NULL, KVPULL_FILE_BOUNCE_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED)
		return KVPULL_ENOMEM;
	files->bounce = mapped;
	(void)madvise(mapped, KVPULL_FILE_BOUNCE_BYTES, MADV_DONTFORK);
	(void)madvise(mapped, KVPULL_FILE_BOUNCE_BYTES, MADV_DONTDUMP);
	for (i = 0; i < KVPULL_FILE_DEPTH; i++) {
		files->pieces[i].bounce =
			files->bounce + (size_t)i * KVPULL_FILE_PIECE_BYTES;
		files->pieces[i].next_free =
			i + 1 < KVPULL_FILE_DEPTH ? i + 1 : KVPULL_NONE;
	}
	return 0;
}

void kvpull_files_close(struct kvpull_files *files, uint64_t close_by_ns)
{
	const uint32_t hangs = kvpull_disk_close(&files->disk, close_by_ns);

	/* A late write must not hit what is mapped there next. */
	if (kvpull_uring_close(&files->uring, close_by_ns) || hangs)
		kvpull_warn(files->log,
			    "reads are still under way: %zu bytes stay mapped",
			    KVPULL_FILE_BOUNCE_BYTES);
	else if (files->bounce)
		(void)munmap(files->bounce, KVPULL_FILE_BOUNCE_BYTES);
	files->bounce = NULL;
}

int kvpull_files_prepare(struct kvpull_files *files,
			 enum kvpull_uring_mode mode,
			 enum kvpull_file_thread thread, int wake_fd)
{
	int code;

	if (files->is_prepared)
		return 0;
	/* kvpull_uring_open() logs why not; a thread reads then. */
	code = kvpull_uring_open(&files->uring, mode, KVPULL_FILE_DEPTH,
				 wake_fd, files->log);
	if (!code && kvpull_uring_register(&files->uring, files->bounce,
					   KVPULL_FILE_BOUNCE_BYTES))
		kvpull_debug(files->log, "io_uring reads to plain memory");
	if (code && thread == KVPULL_FILE_THREAD_NO)
		kvpull_error(
			files->log,
			"a peer's files cannot be read: progress caller needs io_uring for them; allow it, or set progress to thread");
	else if (code)
		code = kvpull_disk_open(&files->disk, wake_fd, files->log);
	files->is_prepared = !code;
	return code;
}

/* The next row that lies in a file; as kvpull_rows_next(). */
static int row_next(const struct kvpull_file_read *file_read,
		    struct kvpull_rows_cursor *cursor, uint64_t byte_max,
		    struct kvpull_row *row)
{
	const struct kvpull_read *read = file_read->read;

	while (kvpull_rows_next(read, cursor, byte_max, row)) {
		if (file_read->files[row->strip->region_index].bytes)
			return 1;
		/* Strips in memory are read by others: on to the next one. */
		*cursor = (struct kvpull_rows_cursor){
			.strip_index = (uint32_t)(row->strip - read->strips) + 1
		};
	}
	return 0;
}

/* The row's place in the piece; 1: it cannot join it. */
static int row_place(const struct kvpull_file_piece *piece,
		     const struct kvpull_row *row, uint64_t at)
{
	const uint64_t end = piece->start + piece->needed;

	if (!piece->needed)
		return 0;
	return row->strip->region_index != piece->region_index || at < end ||
	       at - end > GAP_BYTES ||
	       at + row->bytes > piece->start + KVPULL_FILE_PIECE_BYTES;
}

/* Take rows from the read until one does not fit. 0: there were none left. */
static int piece_fill(struct kvpull_file_piece *piece,
		      struct kvpull_file_read *file_read)
{
	struct kvpull_rows_cursor ahead = file_read->cursor;
	const struct kvpull_file *file = NULL;
	struct kvpull_row row;

	piece->from = file_read->cursor;
	piece->needed = 0;
	piece->row_bytes = 0;
	while (row_next(file_read, &ahead, KVPULL_FILE_PIECE_BYTES, &row)) {
		const uint64_t at =
			file_read->files[row.strip->region_index].offset +
			row.remote_offset;
		uint64_t room;

		if (row_place(piece, &row, at))
			break;
		if (!piece->needed) {
			piece->region_index = row.strip->region_index;
			file = &file_read->files[piece->region_index];
			piece->start = at & ~(uint64_t)(file->align - 1);
		}
		/* Only the first row of a piece can be longer than its room. */
		room = piece->start + KVPULL_FILE_PIECE_BYTES - at;
		ahead = file_read->cursor;
		(void)row_next(file_read, &ahead, room, &row);
		file_read->cursor = ahead;
		piece->needed = (uint32_t)(at + row.bytes - piece->start);
		piece->row_bytes += row.bytes;
	}
	if (!file)
		return 0;
	piece->bytes = (piece->needed + file->align - 1) & ~(file->align - 1);
	return 1;
}

/* Copy what has come to where it belongs; what has not is told. */
static void piece_land(const struct kvpull_file_piece *piece, uint32_t bytes)
{
	const struct kvpull_read *read = piece->owner->read;
	struct kvpull_rows_cursor cursor = piece->from;
	uint64_t left = piece->row_bytes;
	struct kvpull_row row;

	while (left && row_next(piece->owner, &cursor, left, &row)) {
		const uint64_t at =
			piece->owner->files[piece->region_index].offset +
			row.remote_offset;

		left -= row.bytes;
		if (at + row.bytes <= piece->start + bytes)
			memcpy(row.local, piece->bounce + (at - piece->start),
			       row.bytes);
		else
			read->codes[row.at] = KVPULL_EREAD;
	}
}

/* Detaches the read's pieces: their results are ignored. */
static void file_read_end(struct kvpull_files *files,
			  struct kvpull_file_read *file_read, int code)
{
	uint32_t i;

	for (i = 0; file_read->pieces_open && i < KVPULL_FILE_DEPTH; i++)
		if (files->pieces[i].owner == file_read) {
			kvpull_uring_drop(&files->uring, i);
			kvpull_disk_drop(&files->disk, i);
			files->pieces[i].owner = NULL;
			file_read->pieces_open--;
		}
	kvpull_turns_remove(&files->asking, file_read->read->index);
	file_read->exhausted = 1;
	file_read->code = code;
}

static void piece_free(struct kvpull_files *files,
		       struct kvpull_file_piece *piece)
{
	if (piece->owner)
		piece->owner->pieces_open--;
	piece->owner = NULL;
	piece->next_free = files->piece_free;
	files->piece_free = (uint32_t)(piece - files->pieces);
}

/*
 * Give it to the kernel: there is room, one entry a piece. What did not come
 * the first time comes through the page cache, where the two may be mixed.
 */
static void piece_queue(struct kvpull_files *files,
			struct kvpull_file_piece *piece)
{
	const struct kvpull_file *file =
		&piece->owner->files[piece->region_index];
	const uint32_t is_direct =
		file->is_strict ||
		(files->uring.is_open && file->align > 1 && !piece->tries);
	const struct kvpull_uring_io read = {
		.memory = piece->bounce,
		.offset = piece->start,
		.bytes = piece->bytes,
		.fd = is_direct ? file->direct_fd : file->fd,
		.tag = (uint64_t)(piece - files->pieces),
	};

	piece->is_direct = is_direct;
	kvpull_check(files->log,
		     files->uring.is_open ?
			     !kvpull_uring_queue(&files->uring, &read) :
			     !kvpull_disk_queue(&files->disk, &read));
}

/* 1: it is to be read again; 0: its result is final. */
static int is_again(struct kvpull_file_piece *piece, int32_t result)
{
	struct kvpull_file *file = &piece->owner->files[piece->region_index];

	if (++piece->tries > TRIES_MAX)
		return 0;
	if (result == -EINVAL && piece->is_direct && !file->is_strict) {
		/* The file takes no O_DIRECT after all: never again. */
		file->align = 1;
		return 1;
	}
	/* More than 0: half of it was cached, or lies in another extent. */
	return result > 0 || result == -EAGAIN || result == -EINTR ||
	       result == -ECANCELED;
}

static void piece_ended(struct kvpull_files *files,
			struct kvpull_file_piece *piece, int32_t result)
{
	struct kvpull_file_read *owner = piece->owner;

	if (owner && result < (int32_t)piece->needed &&
	    is_again(piece, result)) {
		piece_queue(files, piece);
		return;
	}
	if (owner && result >= (int32_t)piece->needed) {
		piece_land(piece, piece->needed);
	} else if (owner) {
		kvpull_warn(files->log, "file region %u: %u bytes at %llu: %s",
			    piece->region_index, piece->needed,
			    (unsigned long long)piece->start,
			    result < 0 ? kvpull_why(OTHER, -result) :
					 "the file ends");
		if (owner->read->codes)
			piece_land(piece, result < 0 ? 0 : (uint32_t)result);
		else
			file_read_end(files, owner, KVPULL_EREAD);
	}
	piece_free(files, piece);
}

static void results_take(struct kvpull_files *files)
{
	struct kvpull_uring_result results[RESULTS_MAX];
	uint32_t count;
	uint32_t i;

	do {
		count = files->uring.is_open ?
				kvpull_uring_poll(&files->uring, results,
						  RESULTS_MAX) :
				kvpull_disk_poll(&files->disk, results,
						 RESULTS_MAX);
		for (i = 0; i < count; i++) {
			kvpull_check(files->log,
				     results[i].tag < KVPULL_FILE_DEPTH);
			piece_ended(files, &files->pieces[results[i].tag],
				    results[i].code);
		}
	} while (count == RESULTS_MAX);
}

/* The next piece of a read, filled and owned; NULL: none is left. */
static struct kvpull_file_piece *piece_take(struct kvpull_files *files,
					    struct kvpull_file_read *file_read)
{
	struct kvpull_file_piece *piece = &files->pieces[files->piece_free];

	if (!piece_fill(piece, file_read)) {
		file_read->exhausted = 1;
		return NULL;
	}
	/* A longer one would be read into its neighbour's buffer. */
	kvpull_check(files->log, piece->bytes <= KVPULL_FILE_PIECE_BYTES);
	files->piece_free = piece->next_free;
	piece->owner = file_read;
	piece->tries = 0;
	file_read->pieces_open++;
	return piece;
}

static void pieces_queue(struct kvpull_files *files,
			 struct kvpull_file_read *file_read)
{
	uint32_t i;

	for (i = 0; i < TURN_PIECES && !file_read->exhausted &&
		    files->piece_free != KVPULL_NONE;
	     i++) {
		struct kvpull_file_piece *piece = piece_take(files, file_read);

		if (piece)
			piece_queue(files, piece);
	}
}

/* Until no read asks for anything, or no piece is free. */
static void turns(struct kvpull_files *files)
{
	while (files->asking.arrival.count &&
	       files->piece_free != KVPULL_NONE) {
		const uint32_t index = kvpull_turns_next(&files->asking);

		kvpull_turns_remove(&files->asking, index);
		kvpull_turns_give(&files->asking);
		pieces_queue(files, files->reads[index]);
		if (!files->reads[index]->exhausted)
			kvpull_turns_push(&files->asking, index,
					  files->reads[index]->read->priority);
	}
	kvpull_uring_flush(&files->uring);
}

static int is_ended(const struct kvpull_file_read *file_read)
{
	return file_read->exhausted && !file_read->pieces_open;
}

void kvpull_files_start(struct kvpull_files *files,
			struct kvpull_file_read *file_read,
			const struct kvpull_read *read,
			struct kvpull_file *peer_files)
{
	*file_read =
		(struct kvpull_file_read){ .read = read, .files = peer_files };
	kvpull_check(files->log, read->index < files->read_max);
	files->reads[read->index] = file_read;
	kvpull_index_list_push(&files->queue, read->index);
	kvpull_turns_push(&files->asking, read->index, read->priority);
}

void kvpull_files_cancel(struct kvpull_files *files,
			 struct kvpull_file_read *file_read, int code)
{
	if (file_read->read && !is_ended(file_read))
		file_read_end(files, file_read, code);
}

uint32_t kvpull_files_poll(struct kvpull_files *files,
			   struct kvpull_file_read **ended, uint32_t capacity)
{
	uint32_t count = 0;
	uint32_t index;
	uint32_t next;

	results_take(files);
	turns(files);
	for (index = files->queue.first;
	     index != KVPULL_NONE && count < capacity; index = next) {
		next = files->queue.links[index].next;
		if (!is_ended(files->reads[index]))
			continue;
		ended[count++] = files->reads[index];
		kvpull_index_list_remove(&files->queue, index);
	}
	return count;
}

int kvpull_files_arm(struct kvpull_files *files)
{
	uint32_t i;

	for (i = files->queue.first; i != KVPULL_NONE;
	     i = files->queue.links[i].next) {
		const struct kvpull_file_read *file_read = files->reads[i];

		if (is_ended(file_read) ||
		    (!file_read->exhausted && files->piece_free != KVPULL_NONE))
			return 1;
	}
	return kvpull_uring_arm(&files->uring) || kvpull_disk_arm(&files->disk);
}
