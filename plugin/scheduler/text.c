/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: the chunks in use are exactly those of texts with references.
 * Chunks are taken from where the last were given back, so few pages are
 * touched.
 */
#include <string.h>

#include "plugin/scheduler/text.h"

void kvpull_texts_init(struct kvpull_texts *texts, uint32_t chunk_count,
		       struct kvpull_arena *arena)
{
	kvpull_index_pool_init(&texts->pool, chunk_count, arena);
	KVPULL_ARENA_TAKE(arena, texts->chunks, chunk_count);
	texts->bytes =
		kvpull_arena_take(arena, chunk_count, KVPULL_TEXT_CHUNK_BYTES);
}

static size_t piece_bytes(size_t left)
{
	return left < KVPULL_TEXT_CHUNK_BYTES ? left : KVPULL_TEXT_CHUNK_BYTES;
}

static uint8_t *chunk_bytes(const struct kvpull_texts *texts, uint32_t index)
{
	return texts->bytes + (size_t)index * KVPULL_TEXT_CHUNK_BYTES;
}

uint32_t kvpull_texts_put(struct kvpull_texts *texts, const void *text,
			  size_t byte_count)
{
	const uint8_t *from = (const uint8_t *)text;
	const size_t needed = (byte_count + KVPULL_TEXT_CHUNK_BYTES - 1) /
			      KVPULL_TEXT_CHUNK_BYTES;
	uint32_t first = KVPULL_NONE;
	uint32_t last = KVPULL_NONE;
	size_t at;

	if (!byte_count || byte_count > UINT32_MAX ||
	    needed > texts->pool.count_max -
			     kvpull_index_pool_used(&texts->pool))
		return KVPULL_NONE;
	for (at = 0; at < byte_count; at += KVPULL_TEXT_CHUNK_BYTES) {
		const uint32_t index = kvpull_index_pool_take(&texts->pool);

		texts->chunks[index] =
			(struct kvpull_text_chunk){ .next = KVPULL_NONE };
		memcpy(chunk_bytes(texts, index), from + at,
		       piece_bytes(byte_count - at));
		if (last == KVPULL_NONE)
			first = index;
		else
			texts->chunks[last].next = index;
		last = index;
	}
	texts->chunks[first].byte_count = (uint32_t)byte_count;
	texts->chunks[first].references = 1;
	return first;
}

size_t kvpull_texts_size(const struct kvpull_texts *texts, uint32_t index)
{
	return texts->chunks[index].byte_count;
}

void kvpull_texts_get(const struct kvpull_texts *texts, uint32_t index,
		      void *text)
{
	uint8_t *bytes = (uint8_t *)text;
	size_t left = texts->chunks[index].byte_count;

	for (; left; index = texts->chunks[index].next) {
		const size_t piece = piece_bytes(left);

		memcpy(bytes, chunk_bytes(texts, index), piece);
		bytes += piece;
		left -= piece;
	}
}

const uint8_t *kvpull_texts_view(const struct kvpull_texts *texts,
				 uint32_t index, void *text)
{
	if (texts->chunks[index].byte_count <= KVPULL_TEXT_CHUNK_BYTES)
		return chunk_bytes(texts, index);
	kvpull_texts_get(texts, index, text);
	return (const uint8_t *)text;
}

int kvpull_texts_give(const struct kvpull_texts *texts, uint32_t index,
		      void *bytes, size_t capacity, size_t *byte_count)
{
	*byte_count = texts->chunks[index].byte_count;
	if (*byte_count > capacity)
		return KVPULL_ETOOSMALL;
	kvpull_texts_get(texts, index, bytes);
	return 0;
}

int kvpull_texts_are(const struct kvpull_texts *texts, uint32_t index,
		     const void *text, size_t byte_count)
{
	const uint8_t *bytes = (const uint8_t *)text;

	if (texts->chunks[index].byte_count != byte_count)
		return 0;
	for (; byte_count; index = texts->chunks[index].next) {
		const size_t piece = piece_bytes(byte_count);

		if (memcmp(bytes, chunk_bytes(texts, index), piece) != 0)
			return 0;
		bytes += piece;
		byte_count -= piece;
	}
	return 1;
}

void kvpull_texts_acquire(struct kvpull_texts *texts, uint32_t index)
{
	texts->chunks[index].references++;
}

void kvpull_texts_release(struct kvpull_texts *texts, uint32_t index)
{
	if (--texts->chunks[index].references)
		return;
	while (index != KVPULL_NONE) {
		const uint32_t next = texts->chunks[index].next;

		kvpull_index_pool_give(&texts->pool, index);
		index = next;
	}
}
