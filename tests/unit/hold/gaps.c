/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/hold/gaps.h"

#include "tests/unit/hold/world.h"

uint64_t gaps_pass(struct gaps *gaps, uint64_t now_ns, uint64_t stopped_ns,
		   int is_poll)
{
	const struct gap gap = { gaps->looked_ns, now_ns };
	const uint64_t long_ns = now_ns - gaps->looked_ns;
	const uint64_t stops_ns = stopped_ns - gaps->stopped_ns;
	const int has_thread = stopped_ns != KVPULL_NO_THREAD;

	if (!has_thread && !is_poll && long_ns <= gaps->lease_ns)
		return 0;
	gaps->looked_ns = now_ns;
	if (has_thread)
		gaps->stopped_ns = stopped_ns;
	if (has_thread && long_ns > gaps->lease_ns / 3)
		return stops_ns < long_ns ? stops_ns : long_ns;
	if (!has_thread && long_ns > gaps->lease_ns)
		return long_ns;
	if (!has_thread) {
		assert_true(gaps->count < GAPS_KEPT);
		gaps->all[gaps->count++] = gap;
	}
	return 0;
}

uint64_t gaps_late(const struct gaps *gaps, uint64_t now_ns)
{
	uint64_t late_ns = 0;
	uint32_t at;

	for (at = 0; at < gaps->count; at++) {
		const uint64_t long_ns =
			gaps->all[at].ended_ns - gaps->all[at].begun_ns;

		if (long_ns > gaps->lease_ns / 3 && long_ns > late_ns &&
		    now_ns < gaps->all[at].ended_ns + gaps->lease_ns)
			late_ns = long_ns;
	}
	return late_ns;
}
