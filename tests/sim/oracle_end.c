/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle, when all is over: all is as it was. */
#include "tests/lib/inside.h"
#include "tests/sim/sim.h"

static void proc_end(const struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	const struct kvpull_worker *worker = proc->worker;
	const uint32_t running = kvpull_progress_pulls(worker->progress);
	uint32_t at;

	if (worker->pulls.map.count || worker->claims.map.count || running)
		sim_fail(
			world,
			"process %u has %u pulls, %u claims, %u running pulls left",
			proc->index, worker->pulls.map.count,
			worker->claims.map.count, running);
	for (at = 0; at < SIM_READS; at++)
		if (proc->transport.reads[at].active)
			sim_fail(world, "process %u has a read left",
				 proc->index);
	if (kvpull_holds_digest(proc->worker->holds) != proc->digest &&
	    proc->instance->produces && world->quiet > 1)
		sim_fail(world, "process %u: its hold table is not as it was",
			 proc->index);
}

void sim_oracle_end(struct sim_world *world)
{
	uint32_t index;
	uint32_t rank;
	uint32_t at;

	for (index = 0; index < world->instance_count; index++) {
		struct sim_instance *instance = &world->instances[index];

		if (!instance->alive)
			continue;
		for (at = 0; at < instance->request_count; at++)
			if (instance->requests[at].state != SIM_IDLE)
				sim_fail(
					world,
					"request %llu is still there at the end",
					(unsigned long long)instance
						->requests[at]
						.key);
		if (instance->free_count != instance->block_count)
			sim_fail(world, "instance %u has lost blocks", index);
		for (rank = 0; rank < instance->ranks; rank++)
			proc_end(instance->procs[rank]);
		if (kvpull_scheduler_digest(instance->scheduler) !=
		    instance->digest)
			sim_fail(
				world,
				"instance %u: its scheduler half is not as it was",
				index);
	}
}
