/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of tickets that are kept: texts, since a family's siblings must get the
 * same bytes, and the bodies that a consumer keeps (kept.h).
 * Chunks of fixed size from one pool, so that a short ticket costs one chunk
 * and the whole is bounded; a text lives while someone refers to it.
 */
#ifndef KVPULL_PLUGIN_TEXT_H
#define KVPULL_PLUGIN_TEXT_H

#include "base/index.h"

#define KVPULL_TEXT_CHUNK_BYTES 1024u

struct kvpull_text_chunk {
	uint32_t next;
	uint32_t byte_count; /* of the whole text; first chunk only */
	uint32_t references; /* first chunk only */
};

struct kvpull_texts {
	struct kvpull_index_pool pool;
	struct kvpull_text_chunk *chunks;
	uint8_t *bytes;
};

void kvpull_texts_init(struct kvpull_texts *texts, uint32_t chunk_count,
		       struct kvpull_arena *arena);

/* An index with one reference, or KVPULL_NONE: the pool is exhausted. */
uint32_t kvpull_texts_put(struct kvpull_texts *texts, const void *text,
			  size_t byte_count);
size_t kvpull_texts_size(const struct kvpull_texts *texts, uint32_t index);
/* Where it lies, if in one piece, else in text[kvpull_texts_size()] as by get. */
const uint8_t *kvpull_texts_view(const struct kvpull_texts *texts,
				 uint32_t index, void *text);
/* Copies a text into text[kvpull_texts_size()]. */
void kvpull_texts_get(const struct kvpull_texts *texts, uint32_t index,
		      void *text);

/* 0; KVPULL_ETOOSMALL: *byte_count is what it takes. */
int KVPULL_MUST_CHECK kvpull_texts_give(const struct kvpull_texts *texts,
					uint32_t index, void *bytes,
					size_t capacity, size_t *byte_count);

/* Returns 1 if the text has these bytes. */
int kvpull_texts_are(const struct kvpull_texts *texts, uint32_t index,
		     const void *bytes, size_t byte_count);
void kvpull_texts_acquire(struct kvpull_texts *texts, uint32_t index);
void kvpull_texts_release(struct kvpull_texts *texts, uint32_t index);

#endif /* KVPULL_PLUGIN_TEXT_H */
