/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tickets are long where blocks are scattered, so six bytes are eight digits at
 * once: written by pairs of digits, read by digits that lie in their place.
 */
#include "plugin/bytes/base64.h"

#include <endian.h>
#include <string.h>

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

/* Of 12 bits two digits; no texts: there is no zero at their ends. */
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

static void put_pair(uint64_t bits, char *text)
{
	memcpy(text, &pairs[bits >> 6][2 * (bits & 63)], 2);
}

/* What is left of a group of three bytes: its digits. */
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

/* One to three digits at the end; bytes, 0: they are none. */
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
