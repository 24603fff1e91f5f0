/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines of both roles share this: the block pool, and the bytes that they
 * carry between the halves, late, sometimes lost, sometimes twice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/step.h"
#include "tests/sim/device.h"
#include "tests/sim/state.h"

/* Blocks. */

/*
 * Writes what the content and the logical index say into each layer of a block.
 */
void sim_fill(struct sim_proc *proc, const struct sim_request *request,
	      uint32_t at, uint64_t content)
{
	const uint32_t row_words = SIM_HEAD_BYTES / sizeof(uint64_t);
	const uint32_t words = (uint32_t)proc->heads * row_words;
	const struct sim_shape *shape = &proc->world->shape;
	struct sim_work *kernel = sim_kernel(
		proc, SIM_WORK_WRITE, proc->layer_end - proc->layer_first);
	uint32_t layer;
	uint32_t word;

	for (layer = proc->layer_first; layer < proc->layer_end; layer++) {
		const uint32_t place = layer && shape->window ?
					       request->block_count - 1 - at :
					       at;
		const uint32_t index = layer && shape->state ?
					       sim_state_index(request, place) :
					       place;
		const uint32_t row =
			(layer * shape->heads + (uint32_t)proc->head_first) *
			row_words;
		uint8_t *to =
			proc->memory + ((size_t)(layer - proc->layer_first) *
						proc->instance->block_count +
					request->blocks[at]) *
					       proc->block_bytes;

		sim_kernel_words(kernel, to, words, content, index, row);
		for (word = 0; word < words && !shape->device; word++) {
			const uint64_t stamp =
				sim_stamp(content, index, row + word);

			memcpy(to + word * sizeof(stamp), &stamp,
			       sizeof(stamp));
		}
	}
}

/* The slot with the state after all computed tokens. */
static void state_fill(const struct sim_request *request,
		       struct sim_group *group)
{
	const uint32_t place =
		sim_state_block(request->computed) - request->first_index;

	group->first = sim_state_block(request->computed);
	group->count = 1;
	group->ids[0] = request->blocks[request->block_count - 1 - place];
}

void sim_group_fill(const struct sim_world *world,
		    const struct sim_request *request, uint32_t prompt_blocks,
		    uint32_t index, struct sim_group *group)
{
	const uint32_t window = index ? world->shape.window : prompt_blocks;
	const uint32_t end = request->first_index + request->block_count;
	uint32_t at;

	if (index && world->shape.state) {
		state_fill(request, group);
		return;
	}
	group->first = prompt_blocks > window ? prompt_blocks - window : 0;
	if (group->first < request->first_index)
		group->first = request->first_index;
	if (group->first > end)
		group->first = end;
	group->count = end - group->first;
	for (at = 0; at < group->count; at++) {
		const uint32_t place = group->first + at - request->first_index;

		group->ids[at] =
			request->blocks[index ? request->block_count - 1 - place :
						place];
	}
}

uint32_t sim_groups_fill(const struct sim_world *world,
			 const struct sim_request *request,
			 uint32_t prompt_blocks, struct sim_group *groups,
			 struct kvpull_blocks *blocks)
{
	const uint32_t count = world->shape.window ? 2 : 1;
	uint32_t at;

	for (at = 0; at < count; at++) {
		sim_group_fill(world, request, prompt_blocks, at, &groups[at]);
		blocks[at] =
			(struct kvpull_blocks){ .first_index = groups[at].first,
						.block_count = groups[at].count,
						.block_ids = groups[at].ids };
	}
	return count;
}

int sim_blocks_take(struct sim_instance *instance, struct sim_request *request,
		    uint32_t count)
{
	uint32_t at;

	if (instance->free_count < count)
		return 0;
	for (at = 0; at < count; at++) {
		const uint32_t from = (uint32_t)sim_below(instance->world,
							  instance->free_count);

		request->blocks[at] = instance->free_blocks[from];
		instance->free_blocks[from] =
			instance->free_blocks[--instance->free_count];
	}
	request->block_count = count;
	return 1;
}

/* The pool takes them back, and often somebody writes into them at once. */
void sim_blocks_give(struct sim_instance *instance, struct sim_request *request)
{
	struct sim_world *world = instance->world;
	uint32_t rank;
	uint32_t at;

	for (at = 0; at < request->block_count; at++) {
		instance->free_blocks[instance->free_count++] =
			request->blocks[at];
		for (rank = 0; rank < instance->ranks; rank++)
			if (instance->produces && sim_chance(world, 700))
				sim_fill(instance->procs[rank], request, at,
					 sim_random(world));
	}
	if (instance->free_count > instance->block_count)
		sim_fail(world, "instance %u: a block is given back twice",
			 instance->index);
	request->block_count = 0;
}

/* Requests. */

struct sim_request *sim_request_find(struct sim_instance *instance,
				     uint64_t key)
{
	const uint32_t at = sim_key_find(instance->world, key)->request;
	struct sim_request *request = &instance->requests[at];

	/* Another instance's key may stand for a place that is not there. */
	if (at >= instance->request_count || request->state == SIM_IDLE ||
	    request->key != key)
		return NULL;
	return request;
}

struct sim_request *sim_request_slot(struct sim_instance *instance)
{
	struct sim_request *request = &instance->requests[instance->window];
	uint32_t at;

	for (at = 0; at < SIM_REQUESTS; at++)
		if (request[at].state == SIM_IDLE)
			return &request[at];
	return NULL;
}

/* Bytes between the halves. */

static int is_faulty(struct sim_world *world)
{
	return !world->quiet && sim_chance(world, world->bytes_faulty);
}

/* The packet comes again, after others that were sent later. */
static void stray_put(struct sim_world *world, struct sim_queue *queue,
		      const void *bytes, size_t byte_count)
{
	struct sim_packet *packet =
		sim_queue_put(world, queue, SIM_MESSAGE, bytes, byte_count);

	packet->at_ns += sim_below(world, 50 * KVPULL_NS_PER_MS);
	queue->last_ns = packet->at_ns;
}

/* For those who read a seed's whole story. */
static void step_tell(struct sim_proc *proc, const struct sim_packet *packet)
{
	struct kvpull_wire_reader reader = { .data = packet->bytes,
					     .byte_count = packet->byte_count };
	struct kvpull_step_header header;

	if (!proc->world->verbose || step_get_header(&reader, &header))
		return;
	printf("  step for process %u (%llu): %llu + %u names %llu acks %llu\n",
	       proc->index, (unsigned long long)proc->incarnation,
	       (unsigned long long)header.first_sequence, header.record_count,
	       (unsigned long long)header.ack_incarnations[proc->rank],
	       (unsigned long long)header.acks[proc->rank]);
}

/* The engine hears of an end not later than the scheduler half. */
static void pending_check(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	const int bits = kvpull_scheduler_has_pending(instance->scheduler,
						      world->now_ns);
	uint32_t at;

	if (bits < 0)
		sim_fail(world, "instance %u: a rank is said to be silent",
			 instance->index);
	for (at = 0; at < SIM_REQUESTS; at++) {
		const struct sim_request *request =
			&instance->requests[instance->window + at];

		if ((request->state == SIM_HELD &&
		     !(bits & (int)KVPULL_PENDING_HOLDS)) ||
		    (request->state == SIM_PULLING &&
		     !(bits & (int)KVPULL_PENDING_PULLS)))
			sim_fail(
				world,
				"request %llu is over for the scheduler half before its report",
				(unsigned long long)request->key);
	}
}

void sim_engine_step(struct sim_instance *instance)
{
	struct sim_world *world = instance->world;
	size_t bytes = 0;
	uint32_t rank;

	if (sim_chance(world, 200))
		pending_check(instance);
	if (kvpull_scheduler_step_build(instance->scheduler, world->scratch,
					sizeof(world->scratch), &bytes,
					world->now_ns))
		sim_fail(world, "instance %u: no step can be built",
			 instance->index);
	instance->stepped_ns = world->now_ns;
	for (rank = 0; bytes && rank < instance->ranks; rank++) {
		struct sim_proc *proc = instance->procs[rank];

		if (!proc->alive || is_faulty(world))
			continue;
		(void)sim_queue_put(world, &proc->steps, SIM_MESSAGE,
				    world->scratch, bytes);
		if (is_faulty(world))
			stray_put(world, &proc->strays, world->scratch, bytes);
	}
}

void sim_engine_record(struct sim_proc *proc,
		       const struct kvpull_poll_record *record)
{
	if (proc->instance->produces)
		sim_producer_sent(proc, record);
	else
		sim_consumer_ended(proc, record);
}

static void result_take(struct sim_instance *instance, const void *bytes,
			size_t byte_count)
{
	struct sim_world *world = instance->world;

	if (kvpull_scheduler_result_take(instance->scheduler, bytes, byte_count,
					 world->now_ns))
		sim_fail(world, "instance %u refuses what a worker says",
			 instance->index);
}

static void output_take(struct sim_proc *proc, const struct sim_output *output)
{
	struct sim_instance *instance = proc->instance;
	struct sim_world *world = proc->world;
	uint32_t at;

	for (at = 0; at < output->record_count; at++)
		sim_engine_record(proc, &output->records[at]);
	if (output->byte_count && is_faulty(world))
		stray_put(world, &instance->strays, output->bytes,
			  output->byte_count);
	if (output->lost) {
		proc->unsaid = 1;
		return;
	}
	if (!output->byte_count)
		return;
	result_take(instance, output->bytes, output->byte_count);
	proc->unsaid = 0;
	proc->known = 1;
}

int sim_ranks_are_known(const struct sim_instance *instance)
{
	uint32_t rank;

	for (rank = 0; rank < instance->ranks; rank++)
		if (!instance->procs[rank]->known)
			return 0;
	return 1;
}

void sim_engine_results(struct sim_instance *instance)
{
	const struct sim_packet *packet = instance->past.first;
	uint32_t rank;

	/*
	 * The half hears what its predecessor never heard, a packet at a time.
	 * Before it knows a rank it believes the first who speaks for it, dead
	 * or not.
	 */
	if (packet && sim_ranks_are_known(instance)) {
		result_take(instance, packet->bytes, packet->byte_count);
		sim_queue_pop(&instance->past);
	}
	while ((packet = sim_queue_due(instance->world, &instance->strays))) {
		result_take(instance, packet->bytes, packet->byte_count);
		sim_queue_pop(&instance->strays);
	}
	for (rank = 0; rank < instance->ranks; rank++) {
		struct sim_proc *proc = instance->procs[rank];

		while (proc->out_first &&
		       proc->out_first->at_ns <= proc->world->now_ns) {
			struct sim_output *output = proc->out_first;

			proc->out_first = output->next;
			if (!output->next)
				proc->out_last = NULL;
			output_take(proc, output);
			free(output);
		}
	}
}

/* The results of a poll go to the engine: at once, or by a message. */
static void output_put(struct sim_proc *proc,
		       const struct kvpull_poll_record *records,
		       uint32_t record_count)
{
	struct sim_world *world = proc->world;
	struct sim_output *output;
	size_t bytes = 0;

	if (kvpull_worker_result_build(proc->worker, world->scratch,
				       sizeof(world->scratch), &bytes))
		sim_fail(world, "process %u: no result can be built",
			 proc->index);
	if (!bytes && !record_count)
		return;
	output = malloc(sizeof(*output) + bytes);
	if (!output)
		abort();
	*output = (struct sim_output){ .record_count = record_count,
				       .byte_count = bytes };
	memcpy(output->records, records, record_count * sizeof(*records));
	memcpy(output->bytes, world->scratch, bytes);
	output->lost = is_faulty(world) != 0;
	output->at_ns =
		world->now_ns + 1000 * sim_below(world, world->delay_us + 1);
	if (proc->instance->one_process)
		output->at_ns = world->now_ns;
	if (output->at_ns < proc->out_ns)
		output->at_ns = proc->out_ns;
	proc->out_ns = output->at_ns;
	if (proc->out_last)
		proc->out_last->next = output;
	else
		proc->out_first = output;
	proc->out_last = output;
	if (proc->instance->one_process)
		sim_engine_results(proc->instance);
}

/* A consumer's outcome, seen in the poll that tells it. */
static void outcome_check(struct sim_proc *proc,
			  const struct kvpull_poll_record *record)
{
	const struct sim_request *request =
		sim_request_find(proc->instance, record->key);
	uint32_t open = 0;
	uint32_t at;

	for (at = 0; request && at < request->block_count; at++)
		open += proc->block_key[request->blocks[at]] == record->key;
	if (!open)
		sim_fail(
			proc->world,
			"process %u reports request %llu, which it does not pull",
			proc->index, (unsigned long long)record->key);
	if (record->kind == KVPULL_POLL_LOADED)
		sim_oracle_loaded(proc, request);
	for (at = 0; at < SIM_BLOCKS; at++)
		if (proc->block_key[at] == record->key)
			proc->block_key[at] = 0;
}

/*
 * Where no process dies and no connection is lost a pull fails by its peer only
 * if that did not answer by connect_ms. One that was cut for another pull is no
 * reason, nor is one that made room for others, but for a pull that had begun
 * when its process learned of that.
 */
static void peers_live_check(struct sim_proc *proc,
			     const struct kvpull_poll_record *record)
{
	struct sim_world *world = proc->world;
	const struct sim_request *request =
		sim_request_find(proc->instance, record->key);
	const struct sim_instance *peers;
	uint32_t rank;

	if (world->kills || world->losses || world->quiet ||
	    record->reason != KVPULL_EPEER ||
	    request->since_ns <= proc->went_ns)
		return;
	peers = &world->instances[world->holds[request->hold].instance];
	for (rank = 0; rank < peers->ranks; rank++)
		if (proc->unanswered >> (peers->index * SIM_RANKS_MAX + rank) &
		    1)
			return;
	sim_fail(world, "request %llu failed by a peer where none dies",
		 (unsigned long long)record->key);
}

/* Where nothing goes wrong, and there is time for all, no pull is too late. */
static void late_check(struct sim_proc *proc,
		       const struct kvpull_poll_record *record)
{
	if (proc->world->smooth && !proc->world->quiet &&
	    record->reason == KVPULL_EDEADLINE)
		sim_fail(proc->world,
			 "request %llu is too late where nothing goes wrong",
			 (unsigned long long)record->key);
}

static void record_check(struct sim_proc *proc,
			 const struct kvpull_poll_record *record)
{
	struct sim_world *world = proc->world;

	sim_trace(world,
		  record->kind == KVPULL_POLL_SENT ?
			  "process %lu reports SENT of %lu, reason %ld" :
		  record->kind == KVPULL_POLL_LOADED ?
			  "process %lu reports LOADED of %lu, code %ld" :
			  "process %lu reports FAILED of %lu, code %ld",
		  proc->index, record->key, (uint64_t)(int64_t)record->reason);
	if ((record->kind == KVPULL_POLL_SENT) != !!proc->instance->produces)
		sim_fail(world, "process %u reports what its role has not",
			 proc->index);
	if (record->kind == KVPULL_POLL_SENT)
		sim_oracle_sent(proc, record);
	else
		outcome_check(proc, record);
	if (record->kind == KVPULL_POLL_LOADED)
		world->counts.loaded++;
	if (record->kind == KVPULL_POLL_LOADED && proc->device)
		world->counts.copied++;
	if (record->kind == KVPULL_POLL_FAILED)
		world->counts.failed++;
	if (record->kind == KVPULL_POLL_FAILED) {
		peers_live_check(proc, record);
		late_check(proc, record);
	}
	if (record->kind == KVPULL_POLL_FAILED &&
	    record->reason == KVPULL_EEXPIRED) {
		world->counts.eexpired++;
		world->counts.outdated += proc->device != NULL;
	}
}

/*
 * A long gap, as a stalled producer has, moves its leases. A worker's time
 * begins with the first call to it.
 */
static void awake_note(struct sim_proc *proc, int is_poll)
{
	uint64_t gap_ns;

	sim_missed_look(proc, is_poll);

	if (!proc->awake_ns)
		proc->awake_ns = proc->world->now_ns;
	gap_ns = proc->world->now_ns - proc->awake_ns;
	if (gap_ns <= proc->world->lease_ns / 3)
		return;
	proc->stall_ns += gap_ns;
	proc->awake_ns = proc->world->now_ns;
}

/* A process that runs less often than this beats late. */
static void progress_note(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;

	sim_missed_thread_ran(proc);
	if (world->now_ns - proc->run_ns > world->lease_ns / 6)
		proc->lag_ns = world->now_ns;
	proc->run_ns = world->now_ns;
}

static void proc_poll(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	struct kvpull_poll_record records[SIM_RECORDS];
	uint32_t capacity = SIM_RECORDS;
	uint32_t at;
	int count;

	awake_note(proc, 1);
	proc->awake_ns = world->now_ns;
	proc->poll_count++;
	if (!world->shape.thread)
		progress_note(proc);
	if (sim_chance(world, 50))
		capacity = 1 + (uint32_t)sim_below(world, 3);
	do {
		count = kvpull_worker_poll(proc->worker, records, capacity,
					   sizeof(*records));
		if (count < 0 || (uint32_t)count > capacity)
			sim_fail(world, "process %u: poll said %d", proc->index,
				 count);
		sim_oracle_drained(proc);
		for (at = 0; at < (uint32_t)count; at++)
			record_check(proc, &records[at]);
		output_put(proc, records, (uint32_t)count);
	} while ((uint32_t)count == capacity);
	sim_device_polled(proc);
	sim_oracle_polled(proc);
	sim_oracle_turns(proc);
	world->counts.polls++;
}

static void steps_take(struct sim_proc *proc, struct sim_queue *queue)
{
	const struct sim_packet *packet;

	while ((packet = sim_queue_due(proc->world, queue))) {
		step_tell(proc, packet);
		if (proc->world->now_ns >
		    proc->step_ns + 2 * proc->world->lease_ns)
			proc->mute_ns = proc->world->now_ns;
		proc->step_ns = proc->world->now_ns;
		if (proc->device && !proc->instance->produces)
			sim_kernels_before(proc);
		if (kvpull_worker_step(proc->worker, packet->bytes,
				       packet->byte_count))
			sim_fail(proc->world, "process %u refuses a step",
				 proc->index);
		/*
		 * A step that came after a gap was not taken in: it wakes
		 * nobody.
		 */
		if (!proc->worker->stream.gap)
			awake_note(proc, 0);
		sim_queue_pop(queue);
		sim_oracle_told(proc);
	}
}

/*
 * Promise E.2: nobody beats for longer than two leases after its scheduler half
 * spoke last, but for what is being pulled. A hold that nobody beats for ends
 * within one more: the producers' oracle sees to that.
 */
void sim_engine_beats(const struct sim_proc *proc)
{
	uint32_t at;

	if (proc->world->now_ns <= proc->step_ns + 2 * proc->world->lease_ns)
		return;
	for (at = 0; at < SIM_BLOCKS; at++)
		if (proc->block_key[at])
			return;
	sim_fail(
		proc->world,
		"process %u beats: its half is silent for two leases, and it pulls nothing",
		proc->index);
}

/* An engine with long steps polls seldom. */
static int is_time_to_poll(const struct sim_proc *proc)
{
	const struct sim_world *world = proc->world;

	return !proc->instance->produces ||
	       world->now_ns - proc->missed.looked_ns >=
		       world->shape.pace * world->lease_ns / 10;
}

void sim_proc_turn(struct sim_proc *proc)
{
	struct sim_instance *instance = proc->instance;
	struct sim_world *world = proc->world;

	if (!proc->alive)
		return;
	if (world->now_ns < instance->stalled_ns ||
	    world->now_ns < proc->frozen_ns) {
		if (instance->splits) {
			(void)kvpull_progress_run(proc->worker->progress,
						  world->now_ns);
			progress_note(proc);
		}
		return;
	}
	steps_take(proc, &proc->steps);
	steps_take(proc, &proc->strays);
	if (sim_chance(world, 800))
		(void)kvpull_worker_start_loads(proc->worker);
	if (proc->device && !instance->produces)
		sim_kernels_after(proc);
	if ((instance->splits || world->shape.thread) &&
	    sim_chance(world, 500)) {
		(void)kvpull_progress_run(proc->worker->progress,
					  world->now_ns);
		progress_note(proc);
	}
	if (sim_chance(world, 850) && is_time_to_poll(proc))
		proc_poll(proc);
	/* A worker that retired by itself lost its device: the engine ends. */
	instance->lost |= proc->worker->stream.retired;
}

void sim_producer_meanwhile(struct sim_proc *proc)
{
	struct sim_instance *instance = proc->instance;

	if (!instance->alive)
		return;
	sim_proc_turn(proc);
	if (proc->world->now_ns < instance->stalled_ns)
		return;
	sim_engine_results(instance);
	sim_producer_turn(instance);
	sim_engine_step(instance);
}
