/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that maps memory of another one, as a consumer does, and copies from
 * it to its own. It gives nothing back: it ends.
 */
#include "tools/kvpull_doctor_gpu_facts.h"

#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cuda/cuda.h"

_Static_assert(DOCTOR_GPU_COPY_BYTES / DOCTOR_GPU_ROW_BYTES ==
		       KVPULL_DEVICE_PIECES_MAX,
	       "rows of a copy");

struct trial {
	struct kvpull_device *device;
	struct kvpull_device_event *event;
	struct kvpull_device_memory source;
	struct kvpull_device_memory target;
	uint32_t row_count;
};

/* By the kernel, or by the driver's calls. */
static int copy_queue(const struct trial *trial, uint32_t gathers)
{
	static uint32_t ids[KVPULL_DEVICE_PIECES_MAX];
	static uint64_t targets[KVPULL_DEVICE_PIECES_MAX];
	static uint64_t sources[KVPULL_DEVICE_PIECES_MAX];
	static size_t bytes[KVPULL_DEVICE_PIECES_MAX];
	const struct kvpull_device_strip strip = {
		.source = trial->source.address,
		.target = trial->target.address,
		.source_stride = DOCTOR_GPU_ROW_BYTES,
		.target_stride = DOCTOR_GPU_ROW_BYTES,
		.row_bytes = DOCTOR_GPU_ROW_BYTES,
		.source_ids = ids,
		.target_ids = ids,
		.row_count = trial->row_count,
	};
	const struct kvpull_device_gather gather = { .strips = &strip,
						     .strip_count = 1 };
	const struct kvpull_device_pieces pieces = { targets, sources, bytes,
						     trial->row_count };
	uint32_t at;

	for (at = 0; at < trial->row_count; at++) {
		const uint64_t offset = (uint64_t)at * DOCTOR_GPU_ROW_BYTES;

		ids[at] = at;
		targets[at] = trial->target.address + offset;
		sources[at] = trial->source.address + offset;
		bytes[at] = DOCTOR_GPU_ROW_BYTES;
	}
	return gathers ? trial->device->ops->gather(trial->device, &gather) :
			 trial->device->ops->copy(trial->device, &pieces);
}

/* One copy, until its last byte has landed: the caller ends a wait that hangs. */
static int copy_time(struct trial *trial, uint32_t gathers, double *gbps)
{
	const struct kvpull_device_ops *const ops = trial->device->ops;
	const uint64_t began_ns = kvpull_clock_ns();
	int code = copy_queue(trial, gathers);
	int answer;

	if (!code)
		code = ops->record(trial->device, trial->event);
	if (code)
		return code;
	do {
		(void)sched_yield();
		answer = ops->query(trial->device, trial->event);
	} while (!answer);
	if (answer < 0)
		return answer;
	*gbps = (double)trial->row_count * DOCTOR_GPU_ROW_BYTES /
		(double)(kvpull_clock_ns() - began_ns + 1);
	return 0;
}

static int compare_rates(const void *one, const void *other)
{
	const double *const left = one;
	const double *const right = other;

	return (*left > *right) - (*left < *right);
}

static int copies_time(struct trial *trial, struct doctor_gpu_import *import)
{
	const uint64_t until_ns = kvpull_clock_ns() + DOCTOR_GPU_COPIES_NS;
	double rates[DOCTOR_GPU_COPIES_MAX];
	int code;

	import->gathers = trial->source.gathers >= DOCTOR_GPU_ROW_BYTES;
	do {
		code = copy_time(trial, import->gathers,
				 &rates[import->copies]);
		if (code)
			return code;
	} while (++import->copies < DOCTOR_GPU_COPIES_MAX &&
		 kvpull_clock_ns() < until_ns);
	qsort(rates, import->copies, sizeof(*rates), compare_rates);
	import->gbps = rates[import->copies / 2];
	return 0;
}

void doctor_gpu_import(const struct doctor_gpu *gpu, int fd, uint64_t bytes,
		       struct doctor_gpu_import *import)
{
	const struct kvpull_log log = doctor_log(import->line);
	static struct kvpull_arena arena;
	struct trial trial = { 0 };
	const struct kvpull_device_ops *ops;

	kvpull_arena_init(&arena, &log);
	import->code =
		kvpull_cuda_open(&arena, &log, gpu->index, &trial.device);
	if (import->code)
		return;
	ops = trial.device->ops;
	import->code = ops->import_fd(trial.device, fd, bytes, gpu->uuid,
				      &trial.source);
	if (!import->code)
		import->code = ops->alloc(trial.device, bytes, &trial.target);
	if (!import->code)
		import->code = ops->event_open(trial.device, &trial.event);
	trial.row_count = bytes > DOCTOR_GPU_COPY_BYTES ?
				  KVPULL_DEVICE_PIECES_MAX :
				  (uint32_t)(bytes / DOCTOR_GPU_ROW_BYTES);
	import->bytes = (uint64_t)trial.row_count * DOCTOR_GPU_ROW_BYTES;
	if (!import->code)
		import->code = copies_time(&trial, import);
	import->access = trial.source.access;
}
