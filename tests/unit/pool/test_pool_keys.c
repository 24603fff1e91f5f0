/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of many keys at once are those of each. */
#include <sodium.h>
#include <string.h>

#include "plugin/pool/key.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define KEYS 12u
#define TRIES 2000u

UNIT_TEST(digests_of_many_keys_are_those_of_each)
{
	struct kvpull_pool_namespace namespace_digest;
	static uint8_t bytes[KEYS][KVPULL_READER_KEY_BYTES_MAX];
	struct kvpull_reader_key own[KEYS];
	struct kvpull_pool_key keys[KEYS];
	struct kvpull_pool_key one;
	uint64_t random = 1;
	uint32_t tries;
	uint32_t at;

	assert_true(sodium_init() >= 0);
	for (tries = 0; tries < TRIES; tries++) {
		/* Mostly such as lie in one block with the namespace. */
		const uint32_t most =
			tries % 4 ? 97 : KVPULL_READER_KEY_BYTES_MAX;
		const uint32_t count = tries % (KEYS + 1);

		random_fill(&random, namespace_digest.bytes,
			    sizeof(namespace_digest.bytes));
		for (at = 0; at < count; at++) {
			random_fill(&random, bytes[at], sizeof(bytes[at]));
			own[at] = (struct kvpull_reader_key){
				bytes[at], 1 + random_next(&random) % most
			};
		}
		assert_int_equal(kvpull_pool_keys_make(&namespace_digest, own,
						       count, keys),
				 0);
		for (at = 0; at < count; at++) {
			assert_int_equal(
				kvpull_pool_key_make(&namespace_digest,
						     own[at].bytes,
						     own[at].byte_count, &one),
				0);
			assert_memory_equal(&keys[at], &one, sizeof(one));
		}
	}
}

UNIT_TEST(one_that_is_no_key_is_refused_wherever_it_stands)
{
	const struct kvpull_pool_namespace namespace_digest = { { 1 } };
	const uint8_t bytes[KVPULL_READER_KEY_BYTES_MAX + 1] = { 0 };
	static const size_t bad[] = { 0, KVPULL_READER_KEY_BYTES_MAX + 1,
				      SIZE_MAX };
	struct kvpull_pool_key keys[8];
	size_t kind;
	uint32_t at;
	uint32_t k;

	for (kind = 0; kind < 4; kind++)
		for (at = 0; at < 8; at++) {
			struct kvpull_reader_key own[8];

			for (k = 0; k < 8; k++)
				own[k] =
					(struct kvpull_reader_key){ bytes, 36 };
			if (kind == 3)
				own[at].bytes = NULL;
			else
				own[at].byte_count = bad[kind];
			assert_int_equal(
				kvpull_pool_keys_make(&namespace_digest, own, 8,
						      keys),
				KVPULL_EINVAL);
		}
}
