/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of engines, and the marks behind them. A producer's write the blocks of
 * its prompts, and whatever comes into blocks that are free. A consumer's zero
 * blocks that are new, use those that were loaded, and go on in those of requests
 * that have left meanwhile.
 */
#include "plugin/worker/worker_state.h"
#include "tests/sim/device.h"

struct sim_work *sim_kernel(struct sim_proc *proc, enum sim_work_kind kind,
			    uint32_t pieces)
{
	struct sim_work *kernel;

	if (!proc->alive || !proc->device)
		return NULL;
	kernel = sim_work_queue(proc->device, proc->device->stream, kind,
				pieces);
	proc->world->counts.kernels += kernel != NULL;
	return kernel;
}

void sim_kernel_words(struct sim_work *kernel, uint8_t *to, uint32_t words,
		      uint64_t content, uint32_t index, uint32_t row)
{
	if (!kernel)
		return;
	kernel->pieces[kernel->piece_count++] = (struct sim_piece){
		.to = to,
		.content = content,
		.index = index,
		.row = row,
		.bytes = words * (uint32_t)sizeof(uint64_t),
	};
}

static const struct sim_stream *stream_of(const struct sim_proc *proc)
{
	return &proc->device->streams[proc->device->stream];
}

void sim_kernels_note(struct sim_instance *instance,
		      struct sim_request *request)
{
	uint32_t rank;

	for (rank = 0; rank < instance->ranks; rank++)
		request->filled[rank] =
			stream_of(instance->procs[rank])->queued;
}

int sim_kernels_are_done(const struct sim_instance *instance,
			 const struct sim_request *request)
{
	uint32_t rank;

	for (rank = 0; rank < instance->ranks; rank++) {
		const struct sim_proc *proc = instance->procs[rank];

		/* A rank that is dead is not read any more. */
		if (proc->alive &&
		    (proc->device->is_lost ||
		     stream_of(proc)->done < request->filled[rank]))
			return 0;
	}
	return 1;
}

/* An engine that sees all of its work done may say so. */
static int64_t mark(struct sim_proc *proc)
{
	if (!proc->device->is_lost && !stream_of(proc)->first &&
	    sim_chance(proc->world, 300))
		return kvpull_worker_mark(proc->worker, KVPULL_STREAM_NONE);
	return kvpull_worker_mark(proc->worker, proc->device->stream);
}

int sim_kernels_ready(struct sim_proc *proc, struct sim_request *request)
{
	const uint32_t rank = proc->rank;

	if (request->marks[rank] <= 0 ||
	    request->marked_by[rank] != proc->incarnation) {
		request->marks[rank] = mark(proc);
		request->marked_by[rank] = proc->incarnation;
	}
	if (request->marks[rank] <= 0 ||
	    kvpull_worker_hold_ready_after(proc->worker, request->key,
					   request->marks[rank]))
		return 0;
	proc->world->counts.ready++;
	return 1;
}

/* All blocks that the request got. */
static void zero(struct sim_proc *proc, struct sim_request *request)
{
	const size_t layer_bytes =
		proc->instance->block_count * proc->block_bytes;
	struct sim_work *kernel = sim_kernel(
		proc, SIM_WORK_WRITE,
		(proc->layer_end - proc->layer_first) * request->block_count);
	uint32_t layer;
	uint32_t at;

	for (layer = proc->layer_first; layer < proc->layer_end; layer++)
		for (at = 0; at < request->block_count; at++)
			sim_kernel_words(kernel,
					 proc->memory +
						 (layer - proc->layer_first) *
							 layer_bytes +
						 request->blocks[at] *
							 proc->block_bytes,
					 (uint32_t)(proc->block_bytes /
						    sizeof(uint64_t)),
					 0, 0, 0);
	request->zeroed |= UINT64_C(1) << proc->rank;
}

static void zero_new(struct sim_proc *proc)
{
	uint32_t at;

	for (at = 0; at < SIM_REQUESTS; at++) {
		struct sim_request *request = &proc->instance->requests[at];

		if (request->state == SIM_PULLING &&
		    !(request->zeroed >> proc->rank & 1))
			zero(proc, request);
	}
}

void sim_kernels_before(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	const int is_late = sim_control == SIM_CONTROL_ZEROES;

	if (!is_late)
		zero_new(proc);
	/* An engine may forget it: its loads fail then, and are not wrong. */
	if (world->smooth || !sim_chance(world, 20))
		(void)mark(proc);
	if (is_late)
		zero_new(proc);
}

void sim_kernels_after(struct sim_proc *proc)
{
	struct sim_world *world = proc->world;
	uint32_t index;
	uint32_t at;

	for (index = 0; index < SIM_REQUESTS; index++) {
		const struct sim_request *request =
			&proc->instance->requests[index];

		if (request->state != SIM_LOCAL || !sim_chance(world, 300))
			continue;
		for (at = 0; at < request->block_count; at++)
			sim_fill(proc, request, at, sim_random(world));
	}
}
