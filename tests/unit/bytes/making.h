/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of messages that several tests make, and bytes that they put in by hand. */
#ifndef KVPULL_TESTS_UNIT_BYTES_MAKING
#define KVPULL_TESTS_UNIT_BYTES_MAKING

#include "plugin/bytes/handshake.h"

void text_set(char *to, const char *value);

/* Little-endian, in so many bytes. */
void value_put(uint8_t *to, uint64_t value, size_t value_bytes);

/* A record of a model with two groups. */
struct kvpull_compat compat_make(void);

/* The checksum that a message of the test's own making needs, in its last bytes. */
void checksum_put(uint8_t *bytes, size_t byte_count,
		  const uint8_t nonce[KVPULL_NONCE_BYTES], const char *use);

#endif /* KVPULL_TESTS_UNIT_BYTES_MAKING */
