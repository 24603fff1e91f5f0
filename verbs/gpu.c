/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/gpu.h"

#include "base/device_thread.h"

static struct kvpull_verbs_loop *loop_at(const struct kvpull_verbs_reads *reads,
					 uint32_t rail)
{
	return &reads->shared->loops[rail];
}

/* ---- jobs of the GPU's thread ---- */

static void job_ended(struct kvpull_device_job *job)
{
	struct kvpull_verbs_read *own = (struct kvpull_verbs_read *)(void *)job;
	struct kvpull_verbs_reads *reads = own->reads;

	own->job_open = 0;
	reads->peers[own->peer].jobs_open--;
	if (own->state == KVPULL_VERBS_READ_MARK)
		reads->begun(reads, own, job->code);
	else
		reads->flushed(reads, own, job->code);
}

static int job_start(struct kvpull_verbs_reads *reads,
		     struct kvpull_verbs_read *own,
		     struct kvpull_device_event *after, uint32_t is_flush)
{
	int code;

	own->none = (struct kvpull_read){ .index = own->read->index,
					  .priority = own->read->priority };
	own->job = (struct kvpull_device_job){ .read = &own->none,
					       .after = after,
					       .ended = job_ended,
					       .is_flush = is_flush };
	code = kvpull_device_thread_start(reads->shared->params.gpu, &own->job);
	own->job_open = !code;
	reads->peers[own->peer].jobs_open += !code;
	return code;
}

int kvpull_verbs_gpu_mark(struct kvpull_verbs_reads *reads,
			  struct kvpull_verbs_read *own)
{
	const uint64_t after = own->read->after;

	if (!reads->shared->is_gpu || after == KVPULL_AFTER_NOTHING)
		return 1;
	if (!after)
		return KVPULL_EINVAL;
	return job_start(reads, own,
			 (struct kvpull_device_event *)(uintptr_t)after, 0);
}

/* ---- loops ---- */

/* Nothing that waits for it was flushed. */
static void loop_fail(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_loop *loop)
{
	uint32_t at;

	loop->is_reading = 0;
	for (at = 0; at < loop->open_count; at++)
		reads->flushed(reads, &reads->reads[loop->open[at]],
			       KVPULL_EREAD);
	for (at = 0; at < loop->wanted_count; at++)
		reads->flushed(reads, &reads->reads[loop->wanted[at]],
			       KVPULL_EREAD);
	loop->open_count = loop->wanted_count = 0;
}

/* Post the next READ, for all that want one, unless one is in flight. */
static void loop_pump(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_loop *loop)
{
	uint32_t *const wanted = loop->wanted;

	if (loop->is_reading || !loop->wanted_count)
		return;
	loop->wanted = loop->open;
	loop->open = wanted;
	loop->open_count = loop->wanted_count;
	loop->wanted_count = 0;
	loop->is_reading = 1;
	reads->shared->counts.gpu_flushes++;
	if (kvpull_verbs_loop_read(loop, loop->wanted_at))
		loop_fail(reads, loop);
}

static void loop_done(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_loop *loop)
{
	uint32_t at;

	loop->is_reading = 0;
	for (at = 0; at < loop->open_count; at++)
		reads->flushed(reads, &reads->reads[loop->open[at]], 0);
	loop->open_count = 0;
	loop_pump(reads, loop);
}

uint32_t kvpull_verbs_gpu_run(struct kvpull_verbs_reads *reads)
{
	uint32_t broken = 0;
	uint32_t rail;

	for (rail = 0; rail < reads->shared->rail_count; rail++) {
		struct kvpull_verbs_loop *loop = loop_at(reads, rail);
		const int code =
			loop->is_reading ? kvpull_verbs_loop_poll(loop) : 0;

		if (code == 1)
			loop_done(reads, loop);
		else if (code)
			loop_fail(reads, loop);
		broken |= loop->is_broken << rail;
	}
	return broken;
}

static uint32_t list_remove(uint32_t *list, uint32_t *count, uint32_t index)
{
	uint32_t at = 0;

	while (at < *count && list[at] != index)
		at++;
	if (at == *count)
		return 0;
	list[at] = list[--*count];
	return 1;
}

void kvpull_verbs_gpu_forget(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_read *own)
{
	const uint32_t index = own->read->index;
	uint32_t rail;

	if (own->job_open)
		kvpull_device_thread_cancel(reads->shared->params.gpu,
					    &own->job);
	for (rail = 0; own->flushes.open && rail < reads->shared->rail_count;
	     rail++) {
		struct kvpull_verbs_loop *loop = loop_at(reads, rail);
		const uint32_t removed =
			list_remove(loop->open, &loop->open_count, index) +
			list_remove(loop->wanted, &loop->wanted_count, index);

		own->flushes.open -= removed;
		own->dropped |= removed;
	}
}

void kvpull_verbs_gpu_leave(struct kvpull_verbs_reads *reads, uint32_t device)
{
	struct kvpull_verbs_loop *loop = loop_at(reads, device);
	uint32_t index;

	if (!loop->device.pd)
		return;
	kvpull_verbs_loop_stop(loop);
	loop_fail(reads, loop);
	/* What came by the rail before is not flushed by another one. */
	for (index = 0; index < reads->shared->params.reads_max; index++)
		if (reads->reads[index].flushes.at[device])
			reads->reads[index].flushes.code = KVPULL_EREAD;
}

int kvpull_verbs_gpu_arm(struct kvpull_verbs_reads *reads)
{
	int more = 0;
	uint32_t rail;

	for (rail = 0; rail < reads->shared->rail_count; rail++)
		more |= kvpull_verbs_loop_arm(loop_at(reads, rail));
	return more;
}

/* ---- a read's flush ---- */

void kvpull_verbs_gpu_wrote(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_read *own,
			    const struct kvpull_verbs_end *end,
			    const struct ibv_send_wr *last)
{
	const struct ibv_sge *part = &last->sg_list[last->num_sge - 1];

	if (reads->shared->flush != KVPULL_VERBS_FLUSHES_NOT)
		own->flushes.at[end->device] = part->addr + part->length - 1;
}

static void rail_flush(struct kvpull_verbs_reads *reads,
		       struct kvpull_verbs_read *own, uint32_t rail)
{
	struct kvpull_verbs_loop *loop = loop_at(reads, rail);

	if (!kvpull_verbs_loop_works(loop)) {
		own->flushes.code = KVPULL_EREAD;
		return;
	}
	own->flushes.open++;
	loop->wanted[loop->wanted_count++] = own->read->index;
	loop->wanted_at = own->flushes.at[rail];
	loop_pump(reads, loop);
}

void kvpull_verbs_gpu_flush(struct kvpull_verbs_reads *reads,
			    struct kvpull_verbs_read *own)
{
	const uint32_t flush = reads->shared->flush;
	uint32_t written = 0;
	uint32_t rail;

	for (rail = 0; rail < reads->shared->rail_count; rail++) {
		if (!own->flushes.at[rail])
			continue;
		written = 1;
		if (flush == KVPULL_VERBS_FLUSHES_BY_LOOPS)
			rail_flush(reads, own, rail);
		own->flushes.at[rail] = 0;
	}
	if (!written || flush != KVPULL_VERBS_FLUSHES_BY_DRIVER)
		return;
	if (job_start(reads, own, NULL, 1))
		own->flushes.code = KVPULL_EREAD;
	else
		own->flushes.open++;
}
