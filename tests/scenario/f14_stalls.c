/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stalls at a known place. A read that takes several polls is left alone after
 * the first one, and what its blocks hold then says of each piece whether it was
 * copied. Nothing but poll() copies, which is seen afterwards. A device brings
 * all in one poll: there the stalls are before a read, and F14k has the others.
 */
#include <string.h>

#include "tests/scenario/f14.h"

#define UNTOUCHED UINT64_C(0x7e7e7e7e7e7e7e7e)

enum done {
	DONE_NOTHING,
	DONE_PART,
	DONE_ALL
};

struct stall {
	uint64_t keys[F14_CHUNKS];
	struct kvpull_reader_place places[F14_CHUNKS];
	uint32_t count; /* of pieces */
	struct kvpull_reader_piece pieces[F14_PIECES];
	uint64_t of[F14_PIECES]; /* its key */
	int32_t codes[F14_PIECES];
	enum done done[F14_PIECES]; /* when the stall began */
	uint64_t first;             /* newest key then */
	uint64_t last;              /* and when it ended */
};

static uint64_t *block_at(const struct f14_reader *reader, uint32_t block)
{
	return (uint64_t *)(void *)(reader->blocks +
				    (size_t)block * F14_CHUNK_BYTES);
}

static enum done done_of(const struct f14_reader *reader, uint32_t block)
{
	const uint64_t *words = block_at(reader, block);
	uint32_t untouched = 0;
	uint32_t at;

	for (at = 0; at < F14_CHUNK_BYTES / sizeof(*words); at++)
		untouched += words[at] == UNTOUCHED;
	return !untouched                                    ? DONE_ALL :
	       untouched == F14_CHUNK_BYTES / sizeof(*words) ? DONE_NOTHING :
							       DONE_PART;
}

/* The owner goes on, for some keys; this process does nothing. */
static void stall_wait(struct f14_reader *reader, const struct f14_arena *arena,
		       struct stall *stall)
{
	const uint64_t until = engine_now_ns() + F14_LIMIT_NS;
	const uint64_t keys = 1 + random_next(&reader->random) % F14_CHUNKS;
	uint32_t at;

	/* Pairs with the release in owner_main(). */
	stall->first =
		atomic_load_explicit(&arena->newest, memory_order_acquire);
	for (at = 0; at < stall->count; at++)
		stall->done[at] = done_of(reader, at);
	do {
		scenario_check(engine_now_ns() < until, "the owner stands");
		scenario_sleep_ns(F14_NAP_NS_MAX / F14_CHUNKS);
		/* As above. */
		stall->last = atomic_load_explicit(&arena->newest,
						   memory_order_acquire);
	} while (stall->last < stall->first + keys);
	for (at = 0; at < stall->count; at++)
		scenario_check(stall->done[at] == done_of(reader, at),
			       "something was copied in the stall");
}

/* Reads twice each place that was found. */
static void stall_pieces(struct stall *stall)
{
	uint32_t round;
	uint32_t at;

	stall->count = 0;
	for (round = 0; round < F14_PIECES / F14_CHUNKS; round++)
		for (at = 0; at < F14_CHUNKS; at++) {
			const struct kvpull_reader_place *place =
				&stall->places[at];

			if (place->chunk == KVPULL_READER_NONE)
				continue;
			stall->of[stall->count] = stall->keys[at];
			stall->pieces[stall->count] =
				(struct kvpull_reader_piece){
					place->chunk, stall->count,
					place->generation
				};
			stall->count++;
		}
}

/* Was the piece's chunk bumped between the begin and the end of the stall? */
static int is_reused(const struct stall *stall, uint32_t piece)
{
	const uint64_t next = stall->of[piece] + F14_CHUNKS;

	/* The owner may have been at the one after the newest. */
	return next > stall->first + 1 && next <= stall->last;
}

static void stall_judge(const struct f14_reader *reader,
			const struct stall *stall,
			struct f14_stall_counts *counts)
{
	uint32_t piece;

	for (piece = 0; piece < stall->count; piece++) {
		const uint64_t *words = block_at(reader, piece);
		const uint32_t count = F14_CHUNK_BYTES / sizeof(*words);
		const int32_t code = stall->codes[piece];
		uint32_t right = 0;
		uint32_t at;

		for (at = 0; !code && at < count; at++)
			right += words[at] == f14_word_of(stall->of[piece], at);
		counts->good += !code && right == count;
		counts->wrong += !code && right != count;
		if (!is_reused(stall, piece))
			continue;
		counts->uncopied += stall->done[piece] == DONE_NOTHING;
		counts->in_part += stall->done[piece] == DONE_PART;
		counts->copied += stall->done[piece] == DONE_ALL;
		counts->believed += !code;
	}
}

/* A read, with a stall before it or in it. */
static int stall_try(struct f14_reader *reader, const struct f14_arena *arena,
		     struct f14_stall_counts *counts)
{
	static struct stall stall;
	struct kvpull_reader_record record;
	struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = reader->peer,
		.local = reader->local,
		.pieces = stall.pieces,
		.piece_bytes = sizeof(stall.pieces[0]),
		.codes = stall.codes,
	};
	const int is_before =
		scenario_is_remote() || random_next(&reader->random) % 2;
	const uint64_t newest =
		atomic_load_explicit(&arena->newest, memory_order_relaxed);
	uint64_t id;
	uint32_t at;
	int code;

	for (at = 0; at < F14_CHUNKS; at++)
		stall.keys[at] = newest - at;
	memset(reader->blocks, (int)(UNTOUCHED & 0xff),
	       (size_t)F14_PIECES * F14_CHUNK_BYTES);
	code = f14_probe(reader, stall.keys, F14_CHUNKS, stall.places, &record);
	stall_pieces(&stall);
	if (code || !stall.count)
		return code;
	if (is_before)
		stall_wait(reader, arena, &stall);
	read.piece_count = stall.count;
	read.incarnation = record.incarnation;
	code = reader->ops->read(reader->handle, &read, &id);
	if (code)
		return code;
	/* Two polls' work: the first one does a part of it. */
	at = (uint32_t)reader->ops->poll(reader->handle, &record, 1,
					 sizeof(record));
	if (!at && !is_before)
		stall_wait(reader, arena, &stall);
	if (!at)
		f14_await(reader, &record);
	if (at && !is_before) {
		counts->over++;
		return 0;
	}
	counts->stalls++;
	stall_judge(reader, &stall, counts);
	return record.code == KVPULL_ESTALE ? 0 : record.code;
}

void f14_stalls(const struct scenario *scenario, uint64_t stalls,
		uint64_t limit_ns, struct f14_stall_counts *counts)
{
	const uint64_t until = engine_now_ns() + limit_ns * patience();
	struct f14_arena *arena = f14_arena_make();
	const pid_t pid = f14_owner_start(scenario, arena);
	struct f14_reader reader;

	memset(counts, 0, sizeof(*counts));
	scenario_check(!f14_reader_start(&reader, scenario, arena, "w1"),
		       "not connected");
	while (counts->stalls < stalls && engine_now_ns() < until)
		scenario_check(!stall_try(&reader, arena, counts),
			       "a probe or a read failed");
	f14_reader_stop(&reader);
	f14_owner_stop(arena, pid);
	scenario_say(
		"%llu stalls; reused in one: %llu pieces between probe and copy, %llu in their copy, %llu between copy and check; %llu of them believed; %llu good pieces, %llu wrong; %llu reads were over at once",
		(unsigned long long)counts->stalls,
		(unsigned long long)counts->uncopied,
		(unsigned long long)counts->in_part,
		(unsigned long long)counts->copied,
		(unsigned long long)counts->believed,
		(unsigned long long)counts->good,
		(unsigned long long)counts->wrong,
		(unsigned long long)counts->over);
}
