/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk's key: BLAKE2b-256 of (namespace || the engine's key). An engine's
 * keys name tokens, and neither model nor weights. The namespace covers all
 * else that must be equal for bytes to mean the same.
 */
#ifndef KVPULL_PLUGIN_POOL_KEY_H
#define KVPULL_PLUGIN_POOL_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "kvpull/reader.h"

#define KVPULL_POOL_NAMESPACE_BYTES 32u

struct kvpull_pool_key {
	uint64_t words[4];
};

struct kvpull_pool_namespace {
	uint8_t bytes[KVPULL_POOL_NAMESPACE_BYTES];
};

/*
 * Digests the naming, each text with its length before it. KVPULL_EINVAL:
 * model, weights, dtype, layout or hash is missing. Two engines that both leave
 * one out would take each other's bytes for their own.
 */
int KVPULL_MUST_CHECK
kvpull_pool_namespace_make(const struct kvpull_reader_naming *naming,
			   struct kvpull_pool_namespace *namespace_digest);

/* KVPULL_EINVAL: no bytes, or more than KVPULL_READER_KEY_BYTES_MAX. */
int KVPULL_MUST_CHECK
kvpull_pool_key_make(const struct kvpull_pool_namespace *namespace_digest,
		     const void *bytes, size_t byte_count,
		     struct kvpull_pool_key *key);

/*
 * Makes all keys; KVPULL_EINVAL: one of the engine's keys has no valid length.
 */
int KVPULL_MUST_CHECK
kvpull_pool_keys_make(const struct kvpull_pool_namespace *namespace_digest,
		      const struct kvpull_reader_key *own, uint32_t count,
		      struct kvpull_pool_key *keys);

#endif /* KVPULL_PLUGIN_POOL_KEY_H */
