/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's streams, each a thread with a queue, and its events. */
#include "tests/fake/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include "base/clock.h"

static int unlock(int code)
{
	(void)pthread_mutex_unlock(&fake.lock);
	return code;
}

static void lock(void)
{
	(void)pthread_mutex_lock(&fake.lock);
}

static void changed_wait(void)
{
	(void)pthread_cond_wait(&fake.changed, &fake.lock);
}

static void changed_say(void)
{
	(void)pthread_cond_broadcast(&fake.changed);
}

/* ---- work ---- */

void fake_inside(uint64_t bytes)
{
	if (!fake.inside_us || bytes <= FAKE_WHOLE_BYTES)
		return;
	(void)unlock(0);
	fake_nap(fake.inside_us);
	lock();
}

static int copy_run(const struct fake_entry *entry)
{
	const uint64_t half = entry->bytes / 2;
	void *to =
		entry->kind == FAKE_COPY_TO_HOST ?
			(void *)(uintptr_t)entry->target :
			fake_memory(entry->gpu, entry->target, entry->bytes, 1);
	const void *from =
		entry->kind == FAKE_COPY_FROM_HOST ?
			(const void *)(uintptr_t)entry->source :
			fake_memory(entry->gpu, entry->source, entry->bytes, 0);

	if (!to || !from)
		return GPU_EILLEGAL_ADDRESS;
	memmove(to, from, half);
	fake_inside(entry->bytes);
	memmove((uint8_t *)to + half, (const uint8_t *)from + half,
		entry->bytes - half);
	return GPU_OK;
}

static int fill_run(const struct fake_entry *entry)
{
	void *to = fake_memory(entry->gpu, entry->target, entry->bytes, 1);
	const uint64_t half = entry->bytes / 2;

	if (!to)
		return GPU_EILLEGAL_ADDRESS;
	memset(to, entry->fill, half);
	fake_inside(entry->bytes);
	memset((uint8_t *)to + half, entry->fill, entry->bytes - half);
	return GPU_OK;
}

static void record_run(const struct fake_entry *entry)
{
	entry->event->done = entry->event_turn;
	entry->event->done_ns = kvpull_clock_ns();
}

static void entry_run(const struct fake_entry *entry)
{
	int code = GPU_OK;

	switch (entry->kind) {
	case FAKE_COPY:
	case FAKE_COPY_TO_HOST:
	case FAKE_COPY_FROM_HOST:
		code = copy_run(entry);
		break;
	case FAKE_FILL:
		code = fill_run(entry);
		break;
	case FAKE_LAUNCH:
		code = fake_kernel_run(entry);
		break;
	case FAKE_RUN:
		(void)unlock(0);
		entry->kernel(entry->context);
		lock();
		break;
	case FAKE_RECORD:
		record_run(entry);
		break;
	case FAKE_WAIT:
		while (entry->event->done < entry->event_turn &&
		       !fake_sticky(entry->gpu) &&
		       !fake_sticky(entry->event->gpu))
			changed_wait();
		break;
	}
	if (code && !fake_sticky(entry->gpu))
		fake_lose(entry->gpu, code);
}

/* An entry stays in the queue until it is done: what it touches is in use. */
static void *stream_run(void *context)
{
	struct gpu_stream *stream = context;

	lock();
	for (;;) {
		while (stream->head == stream->tail && !stream->is_ending)
			changed_wait();
		if (stream->head == stream->tail)
			break;
		if (fake.late_us) {
			(void)unlock(0);
			fake_nap(fake.late_us);
			lock();
		}
		if (!fake_sticky(stream->gpu))
			entry_run(
				&stream->queue[stream->head % FAKE_QUEUE_MAX]);
		stream->head++;
		changed_say();
	}
	(void)unlock(0);
	return NULL;
}

static int is_stream(const struct gpu_stream *stream)
{
	const struct gpu_stream *at = fake.streams;

	while (at && at != stream)
		at = at->next;
	return at != NULL;
}

int fake_queue(struct gpu_stream *stream, const struct fake_entry *entry)
{
	lock();
	/* The NULL stream waits for all others: no test of ours may use it. */
	if (!is_stream(stream))
		fake_wrong("work on a stream that is none");
	/* A kernel is launched in the context of its module: see cuLaunchKernel(). */
	if (entry->kind == FAKE_LAUNCH && entry->gpu != stream->gpu)
		return unlock(GPU_EINVALID_HANDLE);
	while (stream->tail - stream->head == FAKE_QUEUE_MAX &&
	       !fake_sticky(stream->gpu))
		changed_wait();
	if (fake_sticky(stream->gpu))
		return unlock(fake_sticky(stream->gpu));
	stream->queue[stream->tail % FAKE_QUEUE_MAX] = *entry;
	stream->queue[stream->tail % FAKE_QUEUE_MAX].gpu = stream->gpu;
	stream->tail++;
	changed_say();
	return unlock(GPU_OK);
}

int fake_run(struct gpu_stream *stream, void (*kernel)(void *context),
	     void *context)
{
	const struct fake_entry entry = { .kind = FAKE_RUN,
					  .kernel = kernel,
					  .context = context };

	return fake_queue(stream, &entry);
}

static int spans_meet(const struct fake_span *span, uint64_t address,
		      uint64_t bytes)
{
	return span->bytes && span->address < address + bytes &&
	       address < span->address + span->bytes;
}

static int entry_uses(const struct fake_entry *entry, uint64_t address,
		      uint64_t bytes)
{
	uint32_t i;

	for (i = 0; i < FAKE_SPANS_MAX; i++)
		if (spans_meet(&entry->spans[i], address, bytes))
			return 1;
	return entry->kind == FAKE_LAUNCH &&
	       fake_kernel_uses(entry, address, bytes);
}

int fake_is_used(uint64_t address, uint64_t bytes)
{
	const struct gpu_stream *stream;
	uint64_t at;

	for (stream = fake.streams; stream; stream = stream->next)
		for (at = stream->head; at < stream->tail; at++)
			if (entry_uses(&stream->queue[at % FAKE_QUEUE_MAX],
				       address, bytes))
				return 1;
	return 0;
}

int fake_is_launched(const struct gpu_module *module)
{
	const struct gpu_stream *stream;
	int is_launched = 0;
	uint64_t at;

	lock();
	for (stream = fake.streams; stream; stream = stream->next)
		for (at = stream->head; at < stream->tail; at++)
			is_launched |= fake_is_of(
				&stream->queue[at % FAKE_QUEUE_MAX], module);
	return unlock(is_launched);
}

/* ---- streams ---- */

int cuStreamCreate(struct gpu_stream **stream, uint32_t flags)
{
	struct gpu_stream *made;

	FAKE_READY();
	if (flags != GPU_STREAM_NON_BLOCKING)
		return GPU_EINVALID_VALUE;
	made = calloc(1, sizeof(*made));
	if (!made)
		return GPU_EOUT_OF_MEMORY;
	made->gpu = fake_current();
	if (pthread_create(&made->thread, NULL, stream_run, made)) {
		free(made);
		return GPU_EOUT_OF_MEMORY;
	}
	lock();
	made->next = fake.streams;
	fake.streams = made;
	*stream = made;
	return unlock(GPU_OK);
}

int cuStreamDestroy(struct gpu_stream *stream)
{
	struct gpu_stream **at = &fake.streams;
	uint32_t gpu;

	if (fake.pid != getpid())
		return GPU_ENOT_INITIALIZED;
	lock();
	if (!is_stream(stream))
		return unlock(GPU_EINVALID_HANDLE);
	stream->is_ending = 1;
	changed_say();
	(void)unlock(0);
	(void)pthread_join(stream->thread, NULL);
	lock();
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	gpu = stream->gpu;
	free(stream);
	return unlock(fake_sticky(gpu));
}

int cuStreamSynchronize(struct gpu_stream *stream)
{
	uint64_t until;

	FAKE_READY();
	lock();
	if (!is_stream(stream))
		fake_wrong("a wait for a stream that is none");
	until = stream->tail;
	while (stream->head < until)
		changed_wait();
	return unlock(fake_sticky(stream->gpu));
}

/* ---- events ---- */

int cuEventCreate(struct gpu_event **event, uint32_t flags)
{
	FAKE_READY();
	if (flags &
	    ~(uint32_t)(GPU_EVENT_BLOCKING_SYNC | GPU_EVENT_DISABLE_TIMING))
		return GPU_EINVALID_VALUE;
	*event = calloc(1, sizeof(**event));
	if (!*event)
		return GPU_EOUT_OF_MEMORY;
	lock();
	(*event)->gpu = fake_current();
	(*event)->flags = flags;
	fake.events++;
	return unlock(GPU_OK);
}

int cuEventDestroy(struct gpu_event *event)
{
	FAKE_READY();
	lock();
	if (event->done < event->recorded)
		fake_wrong("an event is destroyed before it was reached");
	fake.events--;
	free(event);
	return unlock(GPU_OK);
}

int cuEventRecord(struct gpu_event *event, struct gpu_stream *stream)
{
	struct fake_entry entry = { .kind = FAKE_RECORD, .event = event };

	FAKE_READY();
	lock();
	if (is_stream(stream) && stream->is_capturing)
		fake_wrong("an event is recorded into a graph");
	if (is_stream(stream) && stream->gpu != event->gpu)
		return unlock(GPU_EINVALID_HANDLE);
	entry.event_turn = ++event->recorded;
	(void)unlock(0);
	return fake_queue(stream, &entry);
}

int cuStreamIsCapturing(struct gpu_stream *stream, int *status)
{
	FAKE_READY();
	lock();
	if (stream && !is_stream(stream))
		fake_wrong("a question about a stream that is none");
	/* A capture of any stream forbids the NULL stream. */
	if (!stream && fake.is_capturing)
		return unlock(GPU_ECAPTURE_IMPLICIT);
	*status = stream ? stream->is_capturing : 0;
	return unlock(GPU_OK);
}

int fake_capture(struct gpu_stream *stream, int is_capturing)
{
	lock();
	stream->is_capturing = is_capturing;
	fake.is_capturing = is_capturing;
	return unlock(GPU_OK);
}

int cuStreamWaitEvent(struct gpu_stream *stream, struct gpu_event *event,
		      uint32_t flags)
{
	struct fake_entry entry = { .kind = FAKE_WAIT, .event = event };

	FAKE_READY();
	if (flags)
		return GPU_EINVALID_VALUE;
	lock();
	entry.event_turn = event->recorded;
	(void)unlock(0);
	return fake_queue(stream, &entry);
}

int cuEventQuery(struct gpu_event *event)
{
	int is_done;

	FAKE_READY();
	lock();
	is_done = event->done == event->recorded;
	return unlock(is_done ? GPU_OK : GPU_ENOT_READY);
}

int cuEventSynchronize(struct gpu_event *event)
{
	uint64_t until;

	FAKE_READY();
	lock();
	until = event->recorded;
	while (event->done < until && !fake_sticky(event->gpu))
		changed_wait();
	return unlock(fake_sticky(event->gpu));
}

int cuEventElapsedTime(float *ms, struct gpu_event *from, struct gpu_event *to)
{
	FAKE_READY();
	lock();
	if ((from->flags | to->flags) & GPU_EVENT_DISABLE_TIMING ||
	    !from->recorded || !to->recorded)
		return unlock(GPU_EINVALID_HANDLE);
	if (from->done < from->recorded || to->done < to->recorded)
		return unlock(GPU_ENOT_READY);
	*ms = (float)(to->done_ns - from->done_ns) / 1e6f;
	return unlock(GPU_OK);
}
