/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The give-back message: a consumer that is not let in gives tickets back by
 * their tags. Pure.
 *
 * The form never changes, whatever versions both sides have: a magic, a count,
 * and that many words of 20 bytes. Bytes behind the last word are ignored,
 * since the CM of a fabric pads its private data. Nothing answers the message.
 */
#ifndef KVPULL_PLUGIN_GIVE_H
#define KVPULL_PLUGIN_GIVE_H

#include "base/fields.h"
#include "base/transport.h"

#define KVPULL_GIVE_WORDS_MAX 4096u /* a call */
#define KVPULL_GIVE_HEAD_BYTES 6u
#define KVPULL_GIVE_WORD_BYTES 20u

/* Slot, generation and tag of one ticket, at one producer rank. */
struct kvpull_give_word {
	uint32_t slot;
	uint32_t reserved;
	uint64_t generation;
	uint64_t tag;
};

struct kvpull_give {
	uint32_t magic; /* put() writes it */
	uint32_t word_count;
	struct kvpull_give_word words[KVPULL_GIVE_WORDS_MAX];
};

extern const struct kvpull_table kvpull_give_table;

/* Words that a message of so many bytes has room for. */
uint32_t kvpull_give_room(size_t byte_count);
/* Returns the bytes written; 0: no word, too many, or no room. */
size_t kvpull_give_put(uint8_t *bytes, size_t capacity,
		       const struct kvpull_give *give);
/* 0, or KVPULL_EPROTO. Slots, generations and tags are not judged here. */
int KVPULL_MUST_CHECK kvpull_give_get(const void *bytes, size_t byte_count,
				      struct kvpull_give *give);

#endif /* KVPULL_PLUGIN_GIVE_H */
