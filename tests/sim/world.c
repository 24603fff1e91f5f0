/* SPDX-License-Identifier: Apache-2.0 */
/* Instances and their processes, deaths and returns, and the turns of a seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/inside.h"
#include "tests/sim/device.h"

static uint64_t proc_now(void *context)
{
	struct sim_proc *proc = context;

	/* A closing worker waits for the network by its clock. */
	if (proc->closing)
		proc->clock_extra_ns += 5 * KVPULL_NS_PER_MS;
	return proc->world->now_ns + proc->clock_extra_ns;
}

static void log_line(void *context, uint32_t level, const char *message)
{
	const struct sim_world *world = context;

	(void)level;
	printf("  %9.3f ms    %s\n", (double)world->now_ns / 1e6, message);
}

static void config_fill(struct sim_instance *instance)
{
	const struct sim_world *world = instance->world;
	const struct sim_shape *shape = &world->shape;

	instance->config = (struct kvpull_config){
		.lease_ms = world->lease_ns / KVPULL_NS_PER_MS,
		.hold_max_ms = world->hold_max_ns / KVPULL_NS_PER_MS,
		.deadline_ms = world->deadline_ns / KVPULL_NS_PER_MS,
		.grace_ms =
			shape->network ? 0 : world->grace_ns / KVPULL_NS_PER_MS,
		.max_holds = shape->holds,
		.families_max = shape->families,
		.tickets_max = shape->tickets,
		.requests_max = shape->requests,
		.step_log_mib = 1,
		.share_prefix = instance->share_prefix,
		.abort_revokes = instance->abort_revokes,
		.progress = KVPULL_PROGRESS_CALLER,
		.huge = KVPULL_OFF,
		.device =
			shape->device ? KVPULL_DEVICE_AUTO : KVPULL_DEVICE_OFF,
		.inline_bytes = 65536,
		.pulls_max = shape->pulls,
		.pull_blocks_max = 64,
		.peers_max = shape->peers,
		.consumers_max = shape->places ? shape->places : shape->callers,
		.ring_records = shape->ring_records,
		.flush_after_ms = 100,
		.connect_ms = (shape->impatient ? 12 : 50) +
			      5 * world->delay_us / 1000,
		.key_set =
			shape->keyed || instance->stranger == SIM_STRANGER_KEY,
		.key = { instance->stranger == SIM_STRANGER_KEY ? 8 : 7 },
		.uid_count = 1,
		.log_level = KVPULL_LOG_DEBUG,
	};
}

static struct kvpull_model model_of(const struct sim_instance *instance)
{
	const struct sim_world *world = instance->world;

	return (struct kvpull_model){
		.struct_size = sizeof(struct kvpull_model),
		.model = instance->stranger == SIM_STRANGER_MODEL ? "another" :
								    "sim",
		.dtype = "u8",
		.layout = "LBHNC",
		.layer_count = world->shape.layers,
		.head_count = world->shape.heads,
		.head_bytes = SIM_HEAD_BYTES / SIM_BLOCK_TOKENS,
		.replicated = world->shape.replicated,
	};
}

static const struct kvpull_group groups[SIM_GROUPS] = {
	{ .block_tokens = SIM_BLOCK_TOKENS },
	{ .block_tokens = SIM_BLOCK_TOKENS, .kind = KVPULL_GROUP_SLIDING },
};
static const struct kvpull_group state_groups[SIM_GROUPS] = {
	{ .block_tokens = SIM_BLOCK_TOKENS },
	{ .block_tokens = SIM_BLOCK_TOKENS, .kind = KVPULL_GROUP_STATE },
};

static struct kvpull_open_params params_of(const struct sim_instance *instance,
					   uint32_t rank,
					   const struct kvpull_model *model)
{
	const uint32_t tp = instance->ranks / instance->stages.count;

	return (struct kvpull_open_params){
		.struct_size = sizeof(struct kvpull_open_params),
		.model = model,
		.engine_id = instance->produces ? "producer" : "consumer",
		.tp_size = tp,
		.tp_rank = rank % tp,
		.pp_size = instance->stages.count,
		.pp_rank = rank / tp,
		.groups = instance->world->shape.state ? state_groups : groups,
		.group_count = instance->world->shape.window ? 2 : 1,
		.device_kind =
			instance->world->shape.device ? KVPULL_DEVICE_CUDA : 0,
	};
}

static void rank_tell(struct sim_instance *instance, uint32_t rank)
{
	struct sim_world *world = instance->world;
	uint8_t info[1024];
	size_t bytes = 0;

	if (kvpull_worker_rank_info(instance->procs[rank]->worker, info,
				    sizeof(info), &bytes) ||
	    kvpull_scheduler_rank_info(instance->scheduler, info, bytes,
				       world->now_ns))
		sim_fail(world, "instance %u: rank %u is refused",
			 instance->index, rank);
	instance->procs[rank]->known = 1;
}

/* Work that a lost rank was computing is lost. */
static void running_abort(struct sim_instance *instance)
{
	uint32_t at;

	for (at = 0; at < instance->request_count; at++) {
		struct sim_request *request = &instance->requests[at];
		struct kvpull_finish finish = {
			.struct_size = sizeof(finish),
			.key = request->key,
			.reason = KVPULL_FINISH_ERROR,
		};

		if (request->state != SIM_RUNNING)
			continue;
		(void)kvpull_scheduler_request_finished(
			instance->scheduler, &finish, instance->world->now_ns);
		request->state = SIM_IDLE;
		sim_blocks_give(instance, request);
	}
}

void sim_rank_open(struct sim_instance *instance, uint32_t rank)
{
	struct sim_world *world = instance->world;
	struct sim_proc *proc = &world->procs[world->proc_count];
	const struct kvpull_model model = model_of(instance);
	const struct kvpull_open_params params =
		params_of(instance, rank, &model);
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	uint32_t at;
	struct kvpull_worker_setup setup = {
		.params = &params,
		.config = &instance->config,
		.log = instance->log,
		.transport = sim_transport_make,
		.transport_context = proc,
		.now_ns = proc_now,
		.now_context = proc,
	};

	/* Far apart, as if drawn: who gave a peer up has the next number there. */
	*proc = (struct sim_proc){ .world = world,
				   .instance = instance,
				   .index = world->proc_count,
				   .rank = rank,
				   .alive = 1,
				   .run_ns = world->now_ns,
				   .lag_ns = world->now_ns,
				   .incarnation = ++world->incarnation_next
						  << 16 };
	setup.incarnation = proc->incarnation;
	/* The packets that the predecessor was sent, and never read. */
	proc->strays = instance->late[rank];
	instance->late[rank] = (struct sim_queue){ 0 };
	if (kvpull_worker_create(&setup, &proc->worker, &detail))
		sim_fail(world, "a worker cannot open: %s", detail.message);
	world->proc_count++;
	for (at = 0; at < instance->open.count; at++)
		sim_list_add(&proc->untaken, instance->open.at[at]);
	instance->procs[rank] = proc;
	instance->rank_restart_ns[rank] = 0;
	proc->digest = kvpull_holds_digest(proc->worker->holds);
	sim_misfit_draw(proc);
	sim_regions_register(proc);
	/* The thread is the simulation's: sim_proc_turn() runs it. */
	if (world->shape.thread)
		proc->worker->facts.config.progress = KVPULL_PROGRESS_THREAD;
	sim_trace(world, "process %lu opens: instance %lu rank %lu",
		  proc->index, instance->index, rank);
}

void sim_instance_open(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	struct kvpull_model model;
	struct kvpull_open_params params;
	struct kvpull_compat compat;
	struct kvpull_scheduler_setup setup = {
		.log = &instance->log,
		.config = &instance->config,
		.compat = &compat,
		.rank_count = instance->ranks,
		.pp_size = instance->stages.count,
	};
	uint32_t rank;
	uint32_t at;

	sim_stranger_draw(instance);
	model = model_of(instance);
	params = params_of(instance, 0, &model);
	setup.engine_id = params.engine_id;
	config_fill(instance);
	instance->log = (struct kvpull_log){
		.write = world->verbose ? log_line : NULL,
		.context = world,
		.level = KVPULL_LOG_DEBUG,
	};
	instance->incarnation = ++world->incarnation_next;
	instance->abandoned = 0;
	setup.incarnation = instance->incarnation;
	if (kvpull_compat_init(&compat, &params) ||
	    kvpull_scheduler_create(&setup, &instance->scheduler))
		sim_fail(world, "a scheduler half cannot open");
	instance->digest = kvpull_scheduler_digest(instance->scheduler);
	sim_queue_clear(&instance->past);
	instance->past = instance->unheard;
	instance->unheard = (struct sim_queue){ 0 };
	memset(instance->requests, 0,
	       instance->request_count * sizeof(*instance->requests));
	for (at = 0; at < instance->block_count; at++)
		instance->free_blocks[at] = at;
	instance->free_count = instance->block_count;
	instance->alive = 1;
	instance->revoked = instance->restarts = instance->draining = 0;
	instance->lost = 0;
	instance->suspects = 0;
	for (rank = 0; rank < instance->ranks; rank++) {
		sim_rank_open(instance, rank);
		/*
		 * A rank that is not announced now is known by its first
		 * result.
		 */
		if (sim_chance(world, 800))
			rank_tell(instance, rank);
	}
}

static void proc_forget(struct sim_proc *proc)
{
	proc->alive = 0;
	sim_net_kill(proc);
	if (proc->world->shape.late_bytes && proc->instance->alive) {
		sim_queue_clear(&proc->instance->late[proc->rank]);
		proc->instance->late[proc->rank] = proc->steps;
		proc->steps = (struct sim_queue){ 0 };
	}
	sim_queue_clear(&proc->steps);
	sim_queue_clear(&proc->strays);
	sim_queue_clear(&proc->gifts);
	while (proc->out_first) {
		struct sim_output *output = proc->out_first;

		proc->out_first = output->next;
		if (proc->world->shape.late_bytes && output->byte_count)
			sim_queue_add(&proc->instance->unheard, output->bytes,
				      output->byte_count);
		free(output);
	}
	proc->out_last = NULL;
	memset(proc->block_key, 0, sizeof(proc->block_key));
}

void sim_rank_kill(struct sim_instance *instance, uint32_t rank)
{
	struct sim_proc *proc = instance->procs[rank];

	if (!proc->alive)
		return;
	proc->readable = (uint32_t)sim_chance(proc->world, 500);
	sim_trace(proc->world, "process %lu is killed", proc->index, 0, 0);
	proc_forget(proc);
	sim_oracle_proc_dead(proc);
}

static void scheduler_close(struct sim_instance *instance)
{
	uint32_t rank;

	kvpull_scheduler_destroy(instance->scheduler);
	instance->scheduler = NULL;
	instance->alive = 0;
	instance->incarnation = 0;
	sim_queue_clear(&instance->strays);
	for (rank = 0; rank < instance->ranks; rank++)
		sim_queue_clear(&instance->late[rank]);
}

void sim_instance_kill(struct sim_instance *instance)
{
	uint32_t rank;

	for (rank = 0; rank < instance->ranks; rank++) {
		sim_rank_kill(instance, rank);
		instance->rank_restart_ns[rank] = 0;
	}
	scheduler_close(instance);
}

/* A worker's memory goes away; what it says while it closes is not counted. */
static void proc_destroy(struct sim_proc *proc)
{
	/* A dead one says nothing any more. */
	if (!proc->alive)
		proc->worker->memories.registered = 0;
	proc->closing = 1;
	proc->worker->facts.config.progress = KVPULL_PROGRESS_CALLER;
	kvpull_worker_destroy(proc->worker);
	proc->worker = NULL;
	proc->transport.serve = NULL;
	if (proc->alive)
		proc_forget(proc);
}

void sim_instance_close(struct sim_instance *instance)
{
	uint32_t rank;

	if (!instance->alive)
		return;
	for (rank = 0; rank < instance->ranks; rank++) {
		sim_trace(instance->world, "process %lu is closed",
			  instance->procs[rank]->index, 0, 0);
		if (instance->procs[rank]->alive)
			proc_destroy(instance->procs[rank]);
		instance->rank_restart_ns[rank] = 0;
	}
	scheduler_close(instance);
}

static uint64_t later(struct sim_world *world)
{
	return world->now_ns +
	       sim_below(world, 2) * sim_below(world, world->lease_ns) +
	       sim_below(world, 10 * KVPULL_NS_PER_MS) + 1;
}

/* Draws one of all disasters that can happen to processes. */
static void disaster(struct sim_world *world)
{
	struct sim_instance *instance =
		&world->instances[sim_below(world, world->instance_count)];
	const uint32_t rank = (uint32_t)sim_below(world, instance->ranks);

	if (!instance->alive || instance->abandoned ||
	    world->proc_count + 8 > world->shape.procs)
		return;
	world->counts.kills++;
	switch (sim_below(world, 5)) {
	case 0:
		sim_instance_kill(instance);
		instance->restart_ns = later(world);
		break;
	case 1:
		sim_instance_close(instance);
		instance->restart_ns = later(world);
		break;
	default:
		/* A rank that was never known cannot be restarted alone. */
		if (instance->rank_restart_ns[rank] ||
		    !instance->procs[rank]->known)
			break;
		sim_rank_kill(instance, rank);
		instance->rank_restart_ns[rank] = later(world);
		break;
	}
}

static void recover(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	uint32_t rank;

	if (!instance->alive) {
		if (world->now_ns >= instance->restart_ns && !world->quiet)
			sim_instance_open(instance);
		return;
	}
	for (rank = 0; rank < instance->ranks; rank++) {
		if (!instance->rank_restart_ns[rank] ||
		    world->now_ns < instance->rank_restart_ns[rank])
			continue;
		sim_rank_open(instance, rank);
		instance->restarts++;
		rank_tell(instance, rank);
		if (instance->produces)
			running_abort(instance);
		else
			sim_consumer_rank_lost(instance, rank);
	}
}

static void stall(struct sim_world *world)
{
	struct sim_instance *instance =
		&world->instances[sim_below(world, world->instance_count)];
	const uint64_t until_ns =
		world->now_ns +
		sim_below(world, world->lease_ns +
					 sim_below(world, world->hold_max_ns));

	if (sim_chance(world, 500)) {
		instance->stalled_ns = until_ns;
		sim_trace(world, "instance %lu stalls", instance->index, 0, 0);
	} else if (instance->alive) {
		instance->procs[sim_below(world, instance->ranks)]->frozen_ns =
			until_ns;
	}
}

/* A consumer whose engine never steps again, and whose workers live. */
static void abandon(struct sim_world *world)
{
	struct sim_instance *instance =
		&world->instances[sim_below(world, world->instance_count)];

	if (!instance->alive || instance->produces)
		return;
	instance->abandoned = 1;
	sim_trace(world, "instance %lu steps no more", instance->index, 0, 0);
}

static void instance_turn(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	uint32_t rank;

	recover(instance);
	if (!instance->alive)
		return;
	if (world->now_ns >= instance->stalled_ns && !instance->abandoned &&
	    sim_chance(world, 600)) {
		if (instance->produces)
			sim_producer_turn(instance);
		else
			sim_consumer_turn(instance);
		sim_engine_step(instance);
	}
	for (rank = 0; rank < instance->ranks; rank++)
		if (sim_chance(world, 600))
			sim_proc_turn(instance->procs[rank]);
	if (world->now_ns >= instance->stalled_ns && !instance->abandoned)
		sim_engine_results(instance);
	if (!instance->lost)
		return;
	sim_instance_kill(instance);
	instance->restart_ns = later(world);
}

static void misfortune(struct sim_world *world)
{
	if (sim_chance(world, world->kills))
		disaster(world);
	if (sim_chance(world, world->losses))
		sim_net_lose(world);
	if (world->shape.device && world->kills && sim_chance(world, 4))
		sim_device_lose(world);
	if (sim_chance(world, world->kills / 2))
		stall(world);
	if (world->abandons && sim_chance(world, 2))
		abandon(world);
	if (world->shape.gives && sim_chance(world, world->tidy ? 10 : 80))
		sim_give_turn(world);
}

static void turn(struct sim_world *world)
{
	const uint32_t first =
		(uint32_t)sim_below(world, world->instance_count);
	const uint64_t kind = sim_below(world, 100);
	uint32_t at;

	world->turn++;
	if (world->quiet)
		world->now_ns += sim_below(world, world->lease_ns / 15);
	else
		world->now_ns += sim_below(world, kind < 70 ? 1000000 :
						  kind < 97 ? 4000000 :
							      20000000);
	for (at = 0; at < world->instance_count; at++) {
		struct sim_instance *instance =
			&world->instances[(first + at) % world->instance_count];

		sim_net_run(world, instance);
		instance_turn(instance);
	}
	for (at = 0; at <= world->big_instances / 32 && !world->quiet; at++)
		misfortune(world);
}

/* Leases in which all holds of a big world can be open, and every fault. */
static void big_fill(struct sim_world *world)
{
	world->instance_count = world->big_instances;
	world->lease_ns = 2 * KVPULL_NS_PER_S;
	world->hold_max_ns = 3 * world->lease_ns;
	world->deadline_ns = world->lease_ns / 2;
	world->bytes_faulty = world->kills = world->losses = 10;
	world->cuts = 500;
}

/*
 * A crowd has one consumer, whose pulls have time for all that wait for entries
 * before them; in half of the crowds nothing goes wrong: there each pull comes.
 */
static void crowd_fill(struct sim_world *world)
{
	world->instance_count = SIM_INSTANCES_MAX;
	world->lease_ns = 400 * KVPULL_NS_PER_MS;
	world->hold_max_ns = 3 * world->lease_ns;
	world->deadline_ns = 2 * world->lease_ns;
	world->grace_ns = world->shape.network ? world->lease_ns : 0;
	world->shape.pulls = 8;
	if (world->delay_us > 200)
		return;
	world->kills = world->abandons = world->losses = world->cuts = 0;
	world->bytes_faulty = 0;
	world->shape.impatient = 0;
	world->smooth = 1;
	world->steps *= 2;
}

/*
 * Nothing goes wrong but refusals, leases are long, and few give back for others:
 * what a consumer that is refused keeps to itself would expire.
 */
static void tidy_fill(struct sim_world *world)
{
	world->tidy = 1;
	world->lease_ns = 400 * KVPULL_NS_PER_MS;
	world->hold_max_ns = 3 * world->lease_ns;
	world->deadline_ns = world->lease_ns / 3;
	world->grace_ns = world->shape.network ? world->lease_ns : 0;
	world->kills = world->abandons = world->losses = 0;
	world->bytes_faulty = 0;
	world->shape.pace = 0;
}

static void world_fill(struct sim_world *world)
{
	static const uint32_t delays[] = { 0, 200, 2000, 10000 };
	static const uint64_t leases[] = { 60, 150, 400 };
	uint32_t at;

	world->state = world->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	sim_shape_draw(world);
	world->now_ns = KVPULL_NS_PER_S;
	world->lease_ns = leases[sim_below(world, 3)] * KVPULL_NS_PER_MS;
	world->hold_max_ns = world->lease_ns * (2 + sim_below(world, 4));
	world->deadline_ns =
		sim_chance(world, 500) ? world->lease_ns : world->lease_ns / 3;
	world->grace_ns = sim_chance(world, 150) ? world->lease_ns / 2 : 0;
	if (world->shape.network)
		world->grace_ns = world->lease_ns;
	world->delay_us = delays[sim_below(world, 4)];
	world->bytes_faulty = sim_chance(world, 400) ? 20 : 0;
	world->kills = sim_chance(world, 700) ? 15 : 0;
	world->abandons = sim_chance(world, 200) != 0;
	world->losses = sim_chance(world, 500) ? 10 : 0;
	world->cuts = sim_chance(world, 500) ? 500 : 0;
	world->instance_count = 2;
	world->instance_count += (uint32_t)sim_below(world, 4);
	if (world->shape.gives && sim_chance(world, 500))
		tidy_fill(world);
	if (world->big)
		big_fill(world);
	if (world->shape.crowd)
		crowd_fill(world);
	/* Only a network's reads are cut. */
	if (world->shape.device)
		world->cuts = 0;
	sim_index_open(world);
	for (at = 0; at < world->instance_count; at++) {
		struct sim_instance *instance = &world->instances[at];

		instance->world = world;
		instance->index = at;
		instance->produces = sim_produces(world, at) != 0;
		instance->ranks = 1 + (uint32_t)sim_below(world, 2);
		if (world->shape.wide)
			instance->ranks = sim_shape_tp(world, at);
		sim_shape_stages(world, at, instance->ranks, &instance->stages);
		instance->ranks *= instance->stages.count;
		instance->one_process = (uint32_t)sim_chance(world, 500);
		instance->share_prefix = (uint32_t)sim_chance(world, 700);
		instance->splits = (uint32_t)sim_chance(world, 500);
		instance->abort_revokes = (uint32_t)sim_chance(world, 200);
		sim_instance_open(instance);
	}
}

/*
 * The instance's engine steps again: words that it had not told its workers yet
 * begin now.
 */
static void comes_back(struct sim_instance *instance)
{
	uint32_t at;

	for (at = 0; at < instance->request_count && instance->abandoned; at++)
		if (instance->requests[at].state == SIM_PULLING)
			instance->requests[at].since_ns =
				instance->world->now_ns;
	instance->stalled_ns = instance->abandoned = 0;
}

/* Until nothing can be left: every hold is past hold_max, every lease over. */
static void quieten(struct sim_world *world)
{
	const uint64_t until_ns = world->now_ns + world->hold_max_ns +
				  8 * world->lease_ns + world->deadline_ns +
				  50000 * (uint64_t)world->delay_us +
				  KVPULL_NS_PER_S / 2;
	uint32_t at;

	world->quiet = 1;
	world->quiet_ns = world->now_ns;
	world->shape.pace = 0;
	for (at = 0; at < world->instance_count; at++)
		comes_back(&world->instances[at]);
	for (at = 0; at < world->proc_count; at++)
		world->procs[at].frozen_ns = 0;
	while (world->now_ns < until_ns)
		turn(world);
}

void sim_world_run(struct sim_world *world)
{
	uint32_t at;

	world_fill(world);
	while (world->big ? world->hold_count < world->big :
			    world->turn < world->steps)
		turn(world);
	quieten(world);
	sim_oracle_end(world);
	for (at = 0; at < world->instance_count; at++)
		if (!world->instances[at].produces)
			sim_instance_close(&world->instances[at]);
	/* The producers see their consumers go, and a grace pass. */
	world->quiet = 2;
	for (at = 0; at < 60; at++) {
		world->now_ns += world->lease_ns / 20;
		turn(world);
	}
	sim_oracle_end(world);
	for (at = 0; at < world->instance_count; at++)
		sim_instance_close(&world->instances[at]);
	for (at = 0; at < world->proc_count; at++)
		if (world->procs[at].worker)
			proc_destroy(&world->procs[at]);
	sim_net_close(world);
	sim_index_close(world);
}
