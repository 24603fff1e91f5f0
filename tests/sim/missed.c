/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time that a producer's process missed, by the rules of semantics B.4: the
 * oracle's own account of it.
 */
#include "tests/sim/sim.h"

static uint64_t long_ns(const struct sim_proc *proc, uint64_t from_ns)
{
	const uint64_t gap_ns = proc->world->now_ns - from_ns;

	return gap_ns > proc->world->lease_ns / 3 ? gap_ns : 0;
}

/* The thread's stops so far, with one that goes on. */
static uint64_t stops(const struct sim_proc *proc)
{
	return proc->missed.stops_ns + long_ns(proc, proc->missed.told_ns);
}

static void beside_thread(struct sim_proc *proc, uint64_t gap_ns)
{
	struct sim_missed *missed = &proc->missed;
	const uint64_t before_ns = missed->seen_ns;

	missed->seen_ns = stops(proc);
	missed->looked_ns = proc->world->now_ns;
	if (gap_ns <= proc->world->lease_ns / 3 || missed->seen_ns < before_ns)
		return;
	proc->missed_ns += missed->seen_ns - before_ns < gap_ns ?
				   missed->seen_ns - before_ns :
				   gap_ns;
}

void sim_missed_look(struct sim_proc *proc, int is_poll)
{
	struct sim_missed *missed = &proc->missed;
	const uint64_t now_ns = proc->world->now_ns;
	uint64_t gap_ns;

	if (!missed->looked_ns)
		missed->looked_ns = now_ns;
	gap_ns = now_ns - missed->looked_ns;
	if (proc->world->shape.thread) {
		beside_thread(proc, gap_ns);
		return;
	}
	if (gap_ns > proc->world->lease_ns)
		proc->missed_ns += gap_ns;
	else if (!is_poll)
		return;
	else if (long_ns(proc, missed->looked_ns))
		missed->gaps[missed->gap_count++ % SIM_GAPS] =
			(struct sim_gap){ gap_ns, now_ns };
	missed->looked_ns = now_ns;
}

void sim_missed_thread_ran(struct sim_proc *proc)
{
	struct sim_missed *missed = &proc->missed;
	const uint64_t now_ns = proc->world->now_ns;

	if (missed->ran_ns)
		missed->stops_ns += long_ns(proc, missed->ran_ns);
	if (now_ns - missed->told_ns >= proc->world->lease_ns / 64)
		missed->told_ns = now_ns;
	missed->ran_ns = now_ns;
}

uint64_t sim_missed_late(const struct sim_proc *proc)
{
	const struct sim_world *world = proc->world;
	uint64_t late_ns = 0;
	uint32_t at;

	for (at = 0; at < SIM_GAPS; at++) {
		const struct sim_gap *gap = &proc->missed.gaps[at];

		if (world->now_ns < gap->ended_ns + world->lease_ns &&
		    gap->gap_ns > late_ns)
			late_ns = gap->gap_ns;
	}
	return late_ns;
}
