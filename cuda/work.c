/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/work.h"

#include "cuda/context.h"

static struct gpu_event *event_of(struct kvpull_device_event *event)
{
	return (struct gpu_event *)(void *)event;
}

/* ---- events ---- */

int kvpull_cuda_event_open(struct kvpull_device *device,
			   struct kvpull_device_event **event)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	struct gpu_event *made = NULL;
	int mode;
	int code = kvpull_cuda_enter(cuda, &mode);

	if (code)
		return code;
	code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuEventCreate, &made,
			       GPU_EVENT_DISABLE_TIMING);
	if (!kvpull_cuda_leave(cuda, mode, code))
		*event = (struct kvpull_device_event *)(void *)made;
	return code;
}

void kvpull_cuda_event_close(struct kvpull_device *device,
			     struct kvpull_device_event *event)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int mode;

	if (kvpull_cuda_enter(cuda, &mode))
		return;
	(void)KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuEventDestroy,
			      event_of(event));
	(void)kvpull_cuda_leave(cuda, mode, 0);
}

/*
 * The end of a copy is known by the event behind it alone: a record that the driver
 * refuses ends the device, and so does a query.
 */
int kvpull_cuda_record(struct kvpull_device *device,
		       struct kvpull_device_event *event)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int mode;
	int code = kvpull_cuda_enter(cuda, &mode);

	if (code)
		return code;
	code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_DEVICE, cuEventRecord,
			       event_of(event), cuda->stream);
	return kvpull_cuda_leave(cuda, mode, code);
}

int kvpull_cuda_query(struct kvpull_device *device,
		      struct kvpull_device_event *event)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int answer = 0;
	int mode;
	int code = kvpull_cuda_enter(cuda, &mode);

	if (code)
		return code;
	code = cuda->calls.cuEventQuery(event_of(event));
	if (!code)
		answer = 1;
	else if (code != GPU_ENOT_READY)
		answer = kvpull_cuda_check(cuda, "cuEventQuery", code,
					   KVPULL_CUDA_DEVICE);
	return kvpull_cuda_leave(cuda, mode, answer);
}

/* ---- order against the engine ---- */

/*
 * An event that is recorded into a graph belongs to the graph. Another stream's
 * capture forbids questions about the default stream (GPU_ECAPTURE_IMPLICIT).
 */
static int mark_record(struct kvpull_cuda *cuda, struct gpu_stream *stream,
		       struct gpu_event *event)
{
	int is_capturing = 0;
	int code = cuda->calls.cuStreamIsCapturing(stream, &is_capturing);

	if (code == GPU_ECAPTURE_IMPLICIT || (!code && is_capturing))
		return 0;
	code = kvpull_cuda_check(cuda, "cuStreamIsCapturing", code,
				 KVPULL_CUDA_CALL);
	if (code)
		return code;
	code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuEventRecord, event,
			       stream);
	return code ? code : 1;
}

int kvpull_cuda_mark(struct kvpull_device *device, uint64_t stream,
		     struct kvpull_device_event *event)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int mode;
	int code = kvpull_cuda_enter(cuda, &mode);

	if (code)
		return code;
	code = mark_record(cuda, (struct gpu_stream *)(uintptr_t)stream,
			   event_of(event));
	return kvpull_cuda_leave(cuda, mode, code);
}

int kvpull_cuda_wait(struct kvpull_device *device,
		     struct kvpull_device_event *event)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int mode;
	int code = kvpull_cuda_enter(cuda, &mode);

	if (code)
		return code;
	code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuStreamWaitEvent,
			       cuda->stream, event_of(event), 0);
	return kvpull_cuda_leave(cuda, mode, code);
}

/* ---- copies ---- */

/*
 * Sources are read in the stream's order: the other orders may read them before
 * an event that the stream waits for.
 */
static int batch_queue(struct kvpull_cuda *cuda,
		       const struct kvpull_device_pieces *pieces,
		       struct gpu_stream *stream)
{
	struct gpu_copy_attributes attributes = { .order = GPU_ORDER_STREAM };
	size_t attribute_from = 0;
	size_t failed;

	if (cuda->calls.batch_13)
		return cuda->calls.batch_13(
			pieces->targets, pieces->sources, pieces->bytes,
			pieces->count, &attributes, &attribute_from, 1, stream);
	return cuda->calls.batch_12(pieces->targets, pieces->sources,
				    pieces->bytes, pieces->count, &attributes,
				    &attribute_from, 1, &failed, stream);
}

static int each_queue(struct kvpull_cuda *cuda,
		      const struct kvpull_device_pieces *pieces,
		      struct gpu_stream *stream)
{
	int code = 0;
	uint32_t at;

	for (at = 0; at < pieces->count && !code; at++)
		code = cuda->calls.cuMemcpyDtoDAsync(pieces->targets[at],
						     pieces->sources[at],
						     pieces->bytes[at], stream);
	return code;
}

int kvpull_cuda_pieces_queue(struct kvpull_cuda *cuda,
			     const struct kvpull_device_pieces *pieces,
			     struct gpu_stream *stream)
{
	return cuda->device.has_batch ? batch_queue(cuda, pieces, stream) :
					each_queue(cuda, pieces, stream);
}

int kvpull_cuda_copy(struct kvpull_device *device,
		     const struct kvpull_device_pieces *pieces)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	const uint32_t has_batch = device->has_batch;
	int mode;
	int code;

	if (!pieces->count || pieces->count > KVPULL_DEVICE_PIECES_MAX)
		return KVPULL_EINVAL;
	code = kvpull_cuda_enter(cuda, &mode);
	if (code)
		return code;
	code = kvpull_cuda_pieces_queue(cuda, pieces, cuda->stream);
	code = kvpull_cuda_check(
		cuda, has_batch ? "cuMemcpyBatchAsync" : "cuMemcpyDtoDAsync",
		code, KVPULL_CUDA_COPY);
	return kvpull_cuda_leave(cuda, mode, code);
}

int kvpull_cuda_flush(struct kvpull_device *device)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int mode;
	int code = kvpull_cuda_enter(cuda, &mode);

	if (code)
		return code;
	code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_COPY,
			       cuFlushGPUDirectRDMAWrites, GPU_FLUSH_CONTEXT,
			       GPU_FLUSH_TO_OWNER);
	return kvpull_cuda_leave(cuda, mode, code);
}
