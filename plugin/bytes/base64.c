/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tickets are long where blocks are scattered, so six bytes are eight digits at
 * once: written by pairs of digits, read by digits that lie in their place. Where
 * the CPU has shuffles (SSSE3), twelve bytes are sixteen digits, in a third of
 * the time; what is left takes the other way.
 */
#include "plugin/bytes/base64.h"

#include <endian.h>
#include <string.h>
#if defined(__x86_64__)
#include <tmmintrin.h>
#endif

/* clang-format off */
#define DIGITS(X) \
	X('A', 0) X('B', 1) X('C', 2) X('D', 3) X('E', 4) X('F', 5) \
	X('G', 6) X('H', 7) X('I', 8) X('J', 9) X('K', 10) X('L', 11) \
	X('M', 12) X('N', 13) X('O', 14) X('P', 15) X('Q', 16) X('R', 17) \
	X('S', 18) X('T', 19) X('U', 20) X('V', 21) X('W', 22) X('X', 23) \
	X('Y', 24) X('Z', 25) X('a', 26) X('b', 27) X('c', 28) X('d', 29) \
	X('e', 30) X('f', 31) X('g', 32) X('h', 33) X('i', 34) X('j', 35) \
	X('k', 36) X('l', 37) X('m', 38) X('n', 39) X('o', 40) X('p', 41) \
	X('q', 42) X('r', 43) X('s', 44) X('t', 45) X('u', 46) X('v', 47) \
	X('w', 48) X('x', 49) X('y', 50) X('z', 51) X('0', 52) X('1', 53) \
	X('2', 54) X('3', 55) X('4', 56) X('5', 57) X('6', 58) X('7', 59) \
	X('8', 60) X('9', 61) X('-', 62) X('_', 63)

/* All pairs that begin with this digit. */
#define PAIRS(c) \
	c "A" c "B" c "C" c "D" c "E" c "F" c "G" c "H" c "I" c "J" c "K" \
	c "L" c "M" c "N" c "O" c "P" c "Q" c "R" c "S" c "T" c "U" c "V" \
	c "W" c "X" c "Y" c "Z" c "a" c "b" c "c" c "d" c "e" c "f" c "g" \
	c "h" c "i" c "j" c "k" c "l" c "m" c "n" c "o" c "p" c "q" c "r" \
	c "s" c "t" c "u" c "v" c "w" c "x" c "y" c "z" c "0" c "1" c "2" \
	c "3" c "4" c "5" c "6" c "7" c "8" c "9" c "-" c "_"

/* pairs[hi][lo]: the two base64url digits of 12 bits. Not NUL-terminated. */
static const char pairs[64][128] = {
	PAIRS("A"), PAIRS("B"), PAIRS("C"), PAIRS("D"), PAIRS("E"), PAIRS("F"),
	PAIRS("G"), PAIRS("H"), PAIRS("I"), PAIRS("J"), PAIRS("K"), PAIRS("L"),
	PAIRS("M"), PAIRS("N"), PAIRS("O"), PAIRS("P"), PAIRS("Q"), PAIRS("R"),
	PAIRS("S"), PAIRS("T"), PAIRS("U"), PAIRS("V"), PAIRS("W"), PAIRS("X"),
	PAIRS("Y"), PAIRS("Z"), PAIRS("a"), PAIRS("b"), PAIRS("c"), PAIRS("d"),
	PAIRS("e"), PAIRS("f"), PAIRS("g"), PAIRS("h"), PAIRS("i"), PAIRS("j"),
	PAIRS("k"), PAIRS("l"), PAIRS("m"), PAIRS("n"), PAIRS("o"), PAIRS("p"),
	PAIRS("q"), PAIRS("r"), PAIRS("s"), PAIRS("t"), PAIRS("u"), PAIRS("v"),
	PAIRS("w"), PAIRS("x"), PAIRS("y"), PAIRS("z"), PAIRS("0"), PAIRS("1"),
	PAIRS("2"), PAIRS("3"), PAIRS("4"), PAIRS("5"), PAIRS("6"), PAIRS("7"),
	PAIRS("8"), PAIRS("9"), PAIRS("-"), PAIRS("_"),
};

/* A digit's value in its place of a group of four, and that it is one. */
#define GOOD (15u << 24)
#define FIRST(c, v) [c] = (v) << 18 | 1u << 24,
#define SECOND(c, v) [c] = (v) << 12 | 1u << 25,
#define THIRD(c, v) [c] = (v) << 6 | 1u << 26,
#define FOURTH(c, v) [c] = (v) | 1u << 27,

static const uint32_t values[4][UINT8_MAX + 1] = {
	{ DIGITS(FIRST) },
	{ DIGITS(SECOND) },
	{ DIGITS(THIRD) },
	{ DIGITS(FOURTH) },
};
/* clang-format on */

#if defined(__x86_64__)

#define TARGET __attribute__((target("ssse3")))
#define WIDE_BYTES 12u
#define WIDE_DIGITS 16u

/* Turns six bits in each byte into their digits. */
static inline TARGET __m128i wide_digits(__m128i sixes)
{
	/*
	 * Added to a value, each shift gives its digit: of a-z, 0-9 (ten), -, _
	 * and A-Z.
	 */
	const __m128i shifts =
		_mm_setr_epi8('a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
			      '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
			      '0' - 52, '-' - 62, '_' - 63, 'A', 0, 0);
	const __m128i is_first = _mm_cmpgt_epi8(_mm_set1_epi8(26), sixes);
	const __m128i kind =
		_mm_or_si128(_mm_subs_epu8(sixes, _mm_set1_epi8(51)),
			     _mm_and_si128(is_first, _mm_set1_epi8(13)));

	return _mm_add_epi8(sixes, _mm_shuffle_epi8(shifts, kind));
}

/* Bytes that were written; 16 are read for 12. */
static TARGET size_t put_wide(const uint8_t *bytes, size_t byte_count,
			      char *text)
{
	/* Each four digits are of three bytes, in the order b a c b. */
	const __m128i order = _mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7,
					    10, 9, 11, 10);
	size_t at = 0;

	for (; byte_count - at >= WIDE_DIGITS; at += WIDE_BYTES) {
		const __m128i in = _mm_shuffle_epi8(
			_mm_loadu_si128((const void *)(bytes + at)), order);
		const __m128i odd = _mm_mulhi_epu16(
			_mm_and_si128(in, _mm_set1_epi32(0x0fc0fc00)),
			_mm_set1_epi32(0x04000040));
		const __m128i even = _mm_mullo_epi16(
			_mm_and_si128(in, _mm_set1_epi32(0x003f03f0)),
			_mm_set1_epi32(0x01000010));

		_mm_storeu_si128((void *)text,
				 wide_digits(_mm_or_si128(odd, even)));
		text += WIDE_DIGITS;
	}
	return at;
}

/*
 * Digits that were read, up to the first sixteen of which one is none; 16 bytes
 * are written for 12, so that the last ones are not for it.
 */
static TARGET size_t get_wide(const uint8_t *text, size_t text_bytes,
			      uint8_t *bytes)
{
	/* By the high half of a digit: bits that its low half may not have. */
	const __m128i kinds = _mm_setr_epi8(32, 32, 1, 2, 4, 8, 4, 16, 32, 32,
					    32, 32, 32, 32, 32, 32);
	const __m128i others = _mm_setr_epi8(37, 33, 33, 33, 33, 33, 33, 33, 33,
					     33, 35, 59, 59, 58, 59, 51);
	const __m128i shifts =
		_mm_setr_epi8(0, 0, 62 - '-', 52 - '0', -'A', -'A', 26 - 'a',
			      26 - 'a', 0, 0, 0, 0, 0, 0, 0, 0);
	const __m128i order = _mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13,
					    12, -1, -1, -1, -1);
	const __m128i low_half = _mm_set1_epi8(15);
	size_t at = 0;

	for (; text_bytes - at >= WIDE_DIGITS + 6; at += WIDE_DIGITS) {
		const __m128i in = _mm_loadu_si128((const void *)(text + at));
		const __m128i high =
			_mm_and_si128(_mm_srli_epi16(in, 4), low_half);
		const __m128i low = _mm_and_si128(in, low_half);
		const __m128i bad =
			_mm_and_si128(_mm_shuffle_epi8(kinds, high),
				      _mm_shuffle_epi8(others, low));
		const __m128i is_last = _mm_cmpeq_epi8(in, _mm_set1_epi8('_'));
		__m128i sixes =
			_mm_add_epi8(in, _mm_shuffle_epi8(shifts, high));

		if (_mm_movemask_epi8(_mm_cmpgt_epi8(bad, _mm_setzero_si128())))
			break;
		/* The digit '_' lies among P to Z: correct its value. */
		sixes = _mm_add_epi8(
			sixes,
			_mm_and_si128(is_last, _mm_set1_epi8(63 - '_' + 'A')));
		sixes = _mm_madd_epi16(
			_mm_maddubs_epi16(sixes, _mm_set1_epi32(0x01400140)),
			_mm_set1_epi32(0x00011000));
		_mm_storeu_si128((void *)bytes, _mm_shuffle_epi8(sixes, order));
		bytes += WIDE_BYTES;
	}
	return at;
}

#endif

static void put_pair(uint64_t bits, char *text)
{
	memcpy(text, &pairs[bits >> 6][2 * (bits & 63)], 2);
}

/* Digits of the one or two bytes after the last group of three. */
static void put_rest(const uint8_t *bytes, size_t byte_count, char *text)
{
	char four[4];
	uint32_t group = (uint32_t)bytes[0] << 16;

	if (byte_count > 1)
		group |= (uint32_t)bytes[1] << 8;
	if (byte_count > 2)
		group |= bytes[2];
	put_pair(group >> 12, four);
	put_pair(group & 0xfff, four + 2);
	memcpy(text, four, byte_count + 1);
}

void kvpull_base64_put(const uint8_t *bytes, size_t byte_count, char *text)
{
	uint64_t group;

#if defined(__x86_64__)
	if (__builtin_cpu_supports("ssse3")) {
		const size_t done = put_wide(bytes, byte_count, text);

		bytes += done;
		byte_count -= done;
		text += done / 3 * 4;
	}
#endif
	/* Eight are read: two belong to the next. */
	for (; byte_count >= sizeof(group); byte_count -= 6, bytes += 6) {
		memcpy(&group, bytes, sizeof(group));
		group = be64toh(group);
		put_pair(group >> 52, text);
		put_pair(group >> 40 & 0xfff, text + 2);
		put_pair(group >> 28 & 0xfff, text + 4);
		put_pair(group >> 16 & 0xfff, text + 6);
		text += 8;
	}
	for (; byte_count > 3; byte_count -= 3, bytes += 3, text += 4)
		put_rest(bytes, 3, text);
	if (byte_count)
		put_rest(bytes, byte_count, text);
}

static uint32_t group_get(const uint8_t *text)
{
	return values[0][text[0]] | values[1][text[1]] | values[2][text[2]] |
	       values[3][text[3]];
}

/*
 * Reads the last one to three digits. Returns the bytes, 0 if they are no
 * digits.
 */
static size_t get_rest(const uint8_t *text, size_t text_bytes, uint8_t *bytes)
{
	uint8_t four[4] = { 'A', 'A', 'A', 'A' };
	uint32_t group;

	memcpy(four, text, text_bytes);
	group = group_get(four);
	if (text_bytes < 2 || (group & GOOD) != GOOD ||
	    (group & (text_bytes == 2 ? 0xffffu : 0xffu)))
		return 0;
	bytes[0] = (uint8_t)(group >> 16);
	if (text_bytes == 3)
		bytes[1] = (uint8_t)(group >> 8);
	return text_bytes - 1;
}

size_t kvpull_base64_get(const char *text, size_t text_bytes, uint8_t *bytes)
{
	const uint8_t *from = (const uint8_t *)text;
	const uint8_t *const start = bytes;
	uint32_t good = GOOD;
	size_t rest;

#if defined(__x86_64__)
	if (__builtin_cpu_supports("ssse3")) {
		const size_t done = get_wide(from, text_bytes, bytes);

		from += done;
		text_bytes -= done;
		bytes += done / 4 * 3;
	}
#endif
	/* Eight bytes are written while two more are sure to follow. */
	for (; text_bytes >= 11; text_bytes -= 8, from += 8, bytes += 6) {
		const uint32_t high = group_get(from);
		const uint32_t low = group_get(from + 4);
		const uint64_t six = htobe64((uint64_t)high << 40 |
					     (uint64_t)(low & 0xffffff) << 16);

		good &= high & low;
		memcpy(bytes, &six, sizeof(six));
	}
	for (; text_bytes >= 4; text_bytes -= 4, from += 4, bytes += 3) {
		const uint32_t group = group_get(from);

		good &= group;
		bytes[0] = (uint8_t)(group >> 16);
		bytes[1] = (uint8_t)(group >> 8);
		bytes[2] = (uint8_t)group;
	}
	if (good != GOOD)
		return 0;
	if (!text_bytes)
		return (size_t)(bytes - start);
	rest = get_rest(from, text_bytes, bytes);
	return rest ? (size_t)(bytes - start) + rest : 0;
}
