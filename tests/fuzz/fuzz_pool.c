/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A window of the directory, as a hostile owner may fill it: eight entries of 64
 * bytes. First byte: which of them are made whole, that is get the key that is
 * looked for and the right seal, since no mutation would find them. What is
 * found is a place of the share, of its incarnation, and was sealed.
 */
#include <string.h>

#include "base/transport.h"
#include "plugin/pool/entry.h"
#include "tests/fuzz/fuzz.h"

static const struct kvpull_pool_share share = { .incarnation = 3,
						.chunk_count = 40,
						.slot_count = 10,
						.entry_count = 100,
						.secret = { 1, 2, 3 } };
static const struct kvpull_pool_key key = { { 5, 6, 7, 8 } };

/* The naive way: some entry says exactly this. */
static int is_said(uint64_t window[][KVPULL_POOL_WORDS],
		   const struct kvpull_pool_place *place)
{
	uint32_t at;

	for (at = 0; at < KVPULL_POOL_WINDOW; at++) {
		const uint64_t *words = window[at];

		if (words[0] == 5 && words[1] == 6 && words[2] == 7 &&
		    words[3] == 8 && words[4] == place->index &&
		    words[5] == share.incarnation &&
		    words[6] == place->generation &&
		    words[7] == kvpull_pool_seal(words, share.secret))
			return 1;
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	uint64_t window[KVPULL_POOL_WINDOW][KVPULL_POOL_WORDS] = { { 0 } };
	struct kvpull_pool_found found;
	uint32_t count;
	uint32_t at;

	if (!data_bytes)
		return 0;
	memcpy(window, data + 1,
	       data_bytes - 1 < sizeof(window) ? data_bytes - 1 :
						 sizeof(window));
	for (at = 0; at < KVPULL_POOL_WINDOW; at++) {
		if (!(data[0] >> at & 1))
			continue;
		memcpy(window[at], key.words, sizeof(key.words));
		window[at][4] &= 63;
		window[at][5] &= 3;
		window[at][7] = kvpull_pool_seal(window[at], share.secret);
	}
	count = kvpull_pool_judge(&share, &key, (const void *)window, &found);
	expect(count == (found.memory.index != KVPULL_NONE) +
				(uint32_t)(found.file.index != KVPULL_NONE));
	if (found.memory.index != KVPULL_NONE) {
		expect(found.memory.index < share.chunk_count);
		expect(is_said(window, &found.memory));
	}
	if (found.file.index != KVPULL_NONE) {
		expect(found.file.index >= share.chunk_count);
		expect(found.file.index < share.chunk_count + share.slot_count);
		expect(is_said(window, &found.file));
	}
	return 0;
}
