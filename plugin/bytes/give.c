/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/bytes/give.h"

/* clang-format off */
/* Words are judged one by one: a wrong one does not spoil its neighbours. */
static const struct kvpull_field word_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_give_word, slot, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_give_word, generation, .min = 0),
	KVPULL_FIELD_OF(U64, struct kvpull_give_word, tag, .min = 0),
};
static const struct kvpull_table word_table =
	KVPULL_TABLE("word", word_fields, .is_good = NULL);

static const struct kvpull_field give_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_give, magic,
			.min = KVPULL_GIVE_MAGIC, .max = KVPULL_GIVE_MAGIC),
	KVPULL_ROWS_OF(ROWS16, struct kvpull_give, words, word_count,
		       &word_table, .min = 1, .max = KVPULL_GIVE_WORDS_MAX),
};
const struct kvpull_table kvpull_give_table =
	KVPULL_TABLE("give-back", give_fields, .is_good = NULL);
/* clang-format on */

uint32_t kvpull_give_room(size_t byte_count)
{
	const size_t words = byte_count < KVPULL_GIVE_HEAD_BYTES ?
				     0 :
				     (byte_count - KVPULL_GIVE_HEAD_BYTES) /
					     KVPULL_GIVE_WORD_BYTES;

	return words < KVPULL_GIVE_WORDS_MAX ? (uint32_t)words :
					       KVPULL_GIVE_WORDS_MAX;
}

size_t kvpull_give_put(uint8_t *bytes, size_t capacity,
		       const struct kvpull_give *give)
{
	struct kvpull_wire_writer writer = { bytes, capacity, 0 };

	if (kvpull_fields_check(&kvpull_give_table, give))
		return 0;
	kvpull_fields_put_body(&writer, &kvpull_give_table, give);
	return kvpull_wire_fits(&writer) ? writer.used : 0;
}

int kvpull_give_get(const void *bytes, size_t byte_count,
		    struct kvpull_give *give)
{
	struct kvpull_wire_reader reader = { bytes, byte_count, 0, 0 };

	kvpull_fields_get_body(&reader, &kvpull_give_table, give);
	return reader.bad || kvpull_fields_check(&kvpull_give_table, give) ?
		       KVPULL_EPROTO :
		       0;
}
