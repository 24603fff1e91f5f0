/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Give-back messages, of anyone that may call at all: what is decoded is in its
 * bounds, and encodes to the same bytes.
 */
#include <string.h>

#include "plugin/bytes/give.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	static uint8_t copy[KVPULL_MESSAGE_BYTES_MAX];
	static struct kvpull_give give;
	size_t bytes;

	if (kvpull_give_get(data, data_bytes, &give))
		return 0;
	expect(kvpull_is_give(data, data_bytes));
	expect(give.word_count && give.word_count <= KVPULL_GIVE_WORDS_MAX);
	expect(give.word_count <= kvpull_give_room(data_bytes));
	bytes = kvpull_give_put(copy, sizeof(copy), &give);
	expect(bytes && bytes <= data_bytes && !memcmp(copy, data, bytes));
	return 0;
}
