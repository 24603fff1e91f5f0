// SPDX-License-Identifier: Apache-2.0
/*
 * Digests of many keys. A probe of 100 keys took more time for its digests than
 * for all else, and a digest is a chain of dependent steps: so four keys go side
 * by side, a lane of a vector each, where the CPU has them (AVX2, AVX-512VL). Keys whose
 * digest takes more than one block of BLAKE2b go one by one.
 */
#include <string.h>

#include "plugin/pool/key.h"

#define LANES 4u

#if defined(__x86_64__)

#define BLOCK_BYTES 128u
#define BLOCK_WORDS 16u
#define ROUNDS 12u
#define ONE_BLOCK_KEY_MAX (BLOCK_BYTES - KVPULL_POOL_NAMESPACE_BYTES)
/* BLAKE2b's parameter block: a digest of 32 bytes, no key, no tree. */
#define PARAMETERS UINT64_C(0x01010020)
#define INLINE static inline __attribute__((always_inline))

typedef uint64_t lanes __attribute__((vector_size(32)));

/* RFC 7693, 2.6 and 2.7. */
static const uint64_t iv[8] = {
	0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
	0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
	0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};
static const uint8_t sigma[10][BLOCK_WORDS] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
	{ 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
	{ 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
	{ 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
	{ 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
	{ 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
	{ 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
	{ 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
	{ 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
};

/* GCC's analyzer takes a vector for a number of as many bits as it has words. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wanalyzer-shift-count-overflow"
#endif
#define ROTATE(x, bits) ((x) >> (bits) | (x) << (64 - (bits)))

INLINE void mix(lanes *v, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
		const lanes *x, const lanes *y)
{
	v[a] += v[b] + *x;
	v[d] = ROTATE(v[d] ^ v[a], 32);
	v[c] += v[d];
	v[b] = ROTATE(v[b] ^ v[c], 24);
	v[a] += v[b] + *y;
	v[d] = ROTATE(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = ROTATE(v[b] ^ v[c], 63);
}

/* The first and last block of each lane, of so many bytes. */
INLINE void blocks_digest(uint64_t words[LANES][BLOCK_WORDS],
			  const uint64_t bytes[LANES],
			  struct kvpull_pool_key *keys)
{
	lanes m[BLOCK_WORDS], v[16];
	uint32_t round;
	uint32_t at;

	for (at = 0; at < BLOCK_WORDS; at++)
		m[at] = (lanes){ words[0][at], words[1][at], words[2][at],
				 words[3][at] };
	for (at = 0; at < 8; at++)
		v[at] = v[at + 8] = (lanes){ iv[at], iv[at], iv[at], iv[at] };
	v[0] ^= PARAMETERS;
	v[12] ^= (lanes){ bytes[0], bytes[1], bytes[2], bytes[3] };
	v[14] = ~v[14];
#pragma GCC unroll 12
	for (round = 0; round < ROUNDS; round++) {
		const uint8_t *s = sigma[round % 10];

		mix(v, 0, 4, 8, 12, m + s[0], m + s[1]);
		mix(v, 1, 5, 9, 13, m + s[2], m + s[3]);
		mix(v, 2, 6, 10, 14, m + s[4], m + s[5]);
		mix(v, 3, 7, 11, 15, m + s[6], m + s[7]);
		mix(v, 0, 5, 10, 15, m + s[8], m + s[9]);
		mix(v, 1, 6, 11, 12, m + s[10], m + s[11]);
		mix(v, 2, 7, 8, 13, m + s[12], m + s[13]);
		mix(v, 3, 4, 9, 14, m + s[14], m + s[15]);
	}
	for (at = 0; at < LANES; at++) {
		keys[at].words[0] = iv[0] ^ PARAMETERS ^ v[0][at] ^ v[8][at];
		keys[at].words[1] = iv[1] ^ v[1][at] ^ v[9][at];
		keys[at].words[2] = iv[2] ^ v[2][at] ^ v[10][at];
		keys[at].words[3] = iv[3] ^ v[3][at] ^ v[11][at];
	}
}

#define DIGEST(isa)                                                            \
	static __attribute__((target(#isa))) void isa##_digest(                \
		uint64_t words[LANES][BLOCK_WORDS],                            \
		const uint64_t bytes[LANES], struct kvpull_pool_key *keys)     \
	{                                                                      \
		blocks_digest(words, bytes, keys);                             \
	}

DIGEST(avx2)
/* Rotates in one step, and has registers for all that is mixed. */
DIGEST(avx512vl)

/* Return: 1: the four are made; 0: one by one. */
static int four_make(const struct kvpull_pool_namespace *namespace_digest,
		     const struct kvpull_reader_key own[LANES],
		     struct kvpull_pool_key *keys)
{
	uint64_t words[LANES][BLOCK_WORDS] = { { 0 } };
	uint64_t bytes[LANES];
	uint32_t at;

	if (!__builtin_cpu_supports("avx2"))
		return 0;
	for (at = 0; at < LANES; at++) {
		if (!own[at].bytes || !own[at].byte_count ||
		    own[at].byte_count > ONE_BLOCK_KEY_MAX)
			return 0;
		bytes[at] = KVPULL_POOL_NAMESPACE_BYTES + own[at].byte_count;
		memcpy(words[at], namespace_digest->bytes,
		       KVPULL_POOL_NAMESPACE_BYTES);
		memcpy(&words[at][KVPULL_POOL_NAMESPACE_BYTES /
				  sizeof(words[at][0])],
		       own[at].bytes, own[at].byte_count);
	}
	if (__builtin_cpu_supports("avx512vl"))
		avx512vl_digest(words, bytes, keys);
	else
		avx2_digest(words, bytes, keys);
	return 1;
}

#else

static int four_make(const struct kvpull_pool_namespace *namespace_digest,
		     const struct kvpull_reader_key own[LANES],
		     const struct kvpull_pool_key *keys)
{
	(void)namespace_digest;
	(void)own;
	(void)keys;
	return 0;
}

#endif

int kvpull_pool_keys_make(const struct kvpull_pool_namespace *namespace_digest,
			  const struct kvpull_reader_key *own, uint32_t count,
			  struct kvpull_pool_key *keys)
{
	uint32_t at = 0;

	while (at < count) {
		if (count - at >= LANES &&
		    four_make(namespace_digest, own + at, keys + at)) {
			at += LANES;
			continue;
		}
		if (!own[at].bytes ||
		    kvpull_pool_key_make(namespace_digest, own[at].bytes,
					 own[at].byte_count, &keys[at]))
			return KVPULL_EINVAL;
		at++;
	}
	return 0;
}
