/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/hold/missed.h"

static int is_long(const struct kvpull_missed *missed, uint64_t gap_ns)
{
	return gap_ns > missed->lease_ns / KVPULL_BEATS_A_LEASE;
}

/*
 * A stop that began before the last look may be longer than the time since: no
 * more than that time was missed.
 */
static void beside_thread(struct kvpull_missed *missed, uint64_t gap_ns,
			  uint64_t stopped_ns)
{
	const uint64_t stops_ns = stopped_ns > missed->stopped_ns ?
					  stopped_ns - missed->stopped_ns :
					  0;

	missed->stopped_ns = stopped_ns;
	if (!is_long(missed, gap_ns))
		return;
	missed->shift_ns += stops_ns < gap_ns ? stops_ns : gap_ns;
}

void kvpull_missed_pass(struct kvpull_missed *missed, uint64_t now_ns,
			uint64_t stopped_ns, int is_poll)
{
	const uint64_t gap_ns = now_ns - missed->looked_ns;

	if (stopped_ns != KVPULL_NO_THREAD) {
		beside_thread(missed, gap_ns, stopped_ns);
	} else if (gap_ns > missed->lease_ns) {
		missed->shift_ns += gap_ns;
	} else if (!is_poll) {
		/* The gap goes on until the next poll. */
		return;
	} else if (is_long(missed, gap_ns)) {
		missed->gaps[missed->gap_next++ % KVPULL_GAPS_MAX] =
			(struct kvpull_missed_gap){
				.gap_ns = gap_ns,
				.until_ns = now_ns + missed->lease_ns
			};
	}
	missed->looked_ns = now_ns;
}

uint64_t kvpull_missed_late(const struct kvpull_missed *missed, uint64_t now_ns,
			    uint64_t *until_ns)
{
	uint64_t late_ns = 0;
	uint32_t at;

	*until_ns = UINT64_MAX;
	for (at = 0; at < KVPULL_GAPS_MAX; at++) {
		const struct kvpull_missed_gap *gap = &missed->gaps[at];

		if (gap->until_ns <= now_ns)
			continue;
		if (gap->gap_ns > late_ns)
			late_ns = gap->gap_ns;
		if (gap->until_ns < *until_ns)
			*until_ns = gap->until_ns;
	}
	return late_ns;
}

uint64_t kvpull_missed_judged_ns(const struct kvpull_missed *missed,
				 uint64_t due_ns, uint64_t now_ns)
{
	uint64_t until_ns;
	const uint64_t late_ns = kvpull_missed_late(missed, now_ns, &until_ns);

	if (due_ns > UINT64_MAX - late_ns)
		return UINT64_MAX;
	if (until_ns >= due_ns + late_ns)
		return due_ns + late_ns;
	return until_ns > due_ns ? until_ns : due_ns;
}
