/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for time that a producer missed (semantics B.4), naively: every gap
 * there ever was is kept and looked through.
 */
#ifndef KVPULL_TESTS_UNIT_HOLD_GAPS
#define KVPULL_TESTS_UNIT_HOLD_GAPS

#include <stdint.h>

#define GAPS_KEPT 6000u

struct gap {
	uint64_t begun_ns;
	uint64_t ended_ns;
};

struct gaps {
	uint64_t lease_ns;
	uint64_t looked_ns;
	uint64_t stopped_ns;
	uint32_t count;
	struct gap all[GAPS_KEPT];
};

/*
 * Time has come to now_ns; stopped_ns: the thread's stops, KVPULL_NO_THREAD:
 * there is none. Return: what moves all leases and graces.
 */
uint64_t gaps_pass(struct gaps *gaps, uint64_t now_ns, uint64_t stopped_ns,
		   int is_poll);
/* How much later they are judged now. */
uint64_t gaps_late(const struct gaps *gaps, uint64_t now_ns);

#endif /* KVPULL_TESTS_UNIT_HOLD_GAPS */
