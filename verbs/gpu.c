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
	reads->peers[own->peer].gpu_waits--;
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
	reads->peers[own->peer].gpu_waits += !code;
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

/* The end of its time, which begins in a poll: a cancel has an older now_ns. */
static uint64_t loop_until_ns(const struct kvpull_verbs_reads *reads,
			      struct kvpull_verbs_loop *loop)
{
	if (!loop->until_ns)
		loop->until_ns = reads->shared->now_ns +
				 KVPULL_VERBS_FLUSH_TIMES *
					 reads->shared->params.flush_ns;
	return loop->until_ns;
}

static void waits_end(struct kvpull_verbs_reads *reads, const uint32_t *list,
		      uint32_t *count, int code)
{
	uint32_t at;

	for (at = 0; at < *count; at++) {
		struct kvpull_verbs_read *own = &reads->reads[list[at]];

		reads->peers[own->peer].gpu_waits--;
		reads->flushed(reads, own, code);
	}
	*count = 0;
}

/* Ends what waits for this loop: its bytes were not flushed. */
static void loop_fail(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_loop *loop)
{
	loop->is_reading = 0;
	waits_end(reads, loop->open, &loop->open_count, KVPULL_EREAD);
	waits_end(reads, loop->wanted, &loop->wanted_count, KVPULL_EREAD);
}

/*
 * Post the next READ, for all that want one, unless one is in flight. Where the
 * loop is broken they wait until their time is over.
 */
static void loop_pump(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_loop *loop)
{
	uint32_t *const wanted = loop->wanted;

	if (loop->is_reading || !loop->wanted_count ||
	    !kvpull_verbs_loop_works(loop))
		return;
	loop->wanted = loop->open;
	loop->open = wanted;
	loop->open_count = loop->wanted_count;
	loop->wanted_count = 0;
	loop->until_ns = 0;
	reads->shared->counts.gpu_flushes++;
	loop->is_reading = !kvpull_verbs_loop_read(loop, loop->wanted_at);
}

static void loop_done(struct kvpull_verbs_reads *reads,
		      struct kvpull_verbs_loop *loop)
{
	loop->is_reading = 0;
	waits_end(reads, loop->open, &loop->open_count, 0);
	loop_pump(reads, loop);
}

static uint32_t loop_waits(const struct kvpull_verbs_loop *loop)
{
	return loop->open_count + loop->wanted_count;
}

/*
 * Bytes that a NIC has written may be seen until the loop's time is over, also where
 * the loop failed before.
 */
static void loop_run(struct kvpull_verbs_reads *reads,
		     struct kvpull_verbs_loop *loop)
{
	const int code = loop->is_reading ? kvpull_verbs_loop_poll(loop) : 0;

	if (code == 1)
		loop_done(reads, loop);
	else if (code)
		loop->is_reading = 0;
	if (!loop_waits(loop) ||
	    reads->shared->now_ns < loop_until_ns(reads, loop))
		return;
	if (loop->is_reading)
		kvpull_verbs_loop_late(loop);
	loop_fail(reads, loop);
}

uint32_t kvpull_verbs_gpu_run(struct kvpull_verbs_reads *reads)
{
	uint32_t broken = 0;
	uint32_t rail;

	for (rail = 0; rail < reads->shared->rail_count; rail++) {
		loop_run(reads, loop_at(reads, rail));
		broken |= loop_at(reads, rail)->is_broken << rail;
	}
	return broken;
}

uint64_t kvpull_verbs_gpu_due_ns(struct kvpull_verbs_reads *reads)
{
	uint64_t due_ns = UINT64_MAX;
	uint32_t rail;

	for (rail = 0; rail < reads->shared->rail_count; rail++) {
		struct kvpull_verbs_loop *loop = loop_at(reads, rail);

		if (loop_waits(loop) && loop_until_ns(reads, loop) < due_ns)
			due_ns = loop->until_ns;
	}
	return due_ns;
}

void kvpull_verbs_gpu_forget(struct kvpull_verbs_reads *reads,
			     struct kvpull_verbs_read *own)
{
	if (own->state == KVPULL_VERBS_READ_MARK)
		kvpull_device_thread_cancel(reads->shared->params.gpu,
					    &own->job);
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
	for (index = 0; index < reads->shared->params.reads_max; index++) {
		struct kvpull_verbs_flushes *flushes =
			&reads->reads[index].flushes;

		if (flushes->at[device])
			flushes->code = KVPULL_EREAD;
		flushes->at[device] = 0;
	}
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

	if (!kvpull_verbs_loop_works(loop))
		loop->until_ns = 0;
	reads->peers[own->peer].gpu_waits++;
	own->flushes.open++;
	loop->wanted[loop->wanted_count++] = own->read->index;
	loop->wanted_at = own->flushes.at[rail];
	loop_pump(reads, loop);
}

uint32_t kvpull_verbs_gpu_flush(struct kvpull_verbs_reads *reads,
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
		return own->flushes.open;
	if (job_start(reads, own, NULL, 1))
		own->flushes.code = KVPULL_EREAD;
	else
		own->flushes.open++;
	return own->flushes.open;
}
