/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/bytes/making.h"

#include <string.h>

#include <sodium.h>

#include "tests/lib/unit.h"

void text_set(char *to, const char *value)
{
	memcpy(to, value, strlen(value) + 1);
}

void value_put(uint8_t *to, uint64_t value, size_t value_bytes)
{
	size_t i;

	for (i = 0; i < value_bytes; i++)
		to[i] = (uint8_t)(value >> 8 * i);
}

struct kvpull_compat compat_make(void)
{
	return (struct kvpull_compat){
		.model = "acme/tiny-7b",
		.dtype = "float16",
		.layout = "LBHNC",
		.layer_count = 32,
		.head_count = 8,
		.head_bytes = 256,
		.group_count = 2,
		.groups = { { 16, 0, 0, 0 }, { 32, 1, 0, 0 } },
	};
}

void checksum_put(uint8_t *bytes, size_t byte_count,
		  const uint8_t nonce[KVPULL_NONCE_BYTES], const char *use)
{
	crypto_generichash_blake2b_state hash;
	const size_t covered = byte_count - KVPULL_CHECKSUM_BYTES;

	assert_int_equal(crypto_generichash_blake2b_init_salt_personal(
				 &hash, NULL, 0, KVPULL_CHECKSUM_BYTES, NULL,
				 (const uint8_t *)use),
			 0);
	crypto_generichash_blake2b_update(&hash, nonce, KVPULL_NONCE_BYTES);
	crypto_generichash_blake2b_update(&hash, bytes, covered);
	crypto_generichash_blake2b_final(&hash, bytes + covered,
					 KVPULL_CHECKSUM_BYTES);
}
