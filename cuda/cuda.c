/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/cuda.h"

#include <unistd.h>

#include "cuda/choice.h"
#include "cuda/context.h"
#include "cuda/kernel.h"
#include "cuda/memory.h"
#include "cuda/work.h"

static int is_lost(const struct kvpull_device *device)
{
	return kvpull_cuda_is_lost(
		(const struct kvpull_cuda *)(const void *)device);
}

/* A lost device keeps all that it has: the driver would take nothing back. */
static void device_close(struct kvpull_device *device)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int mode;

	if (kvpull_cuda_enter(cuda, &mode))
		return;
	kvpull_cuda_kernel_close(cuda);
	if (!is_lost(device)) {
		(void)KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuStreamDestroy,
				      cuda->stream);
	}
	(void)kvpull_cuda_leave(cuda, mode, 0);
	if (is_lost(device))
		return;
	(void)KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuDevicePrimaryCtxRelease,
			      cuda->index);
}

static const struct kvpull_device_ops ops = {
	.alloc = kvpull_cuda_alloc,
	.export_fd = kvpull_cuda_export_fd,
	.dmabuf = kvpull_cuda_dmabuf,
	.import_fd = kvpull_cuda_import_chosen,
	.unmap = kvpull_cuda_unmap,
	.event_open = kvpull_cuda_event_open,
	.event_close = kvpull_cuda_event_close,
	.copy = kvpull_cuda_copy,
	.gather = kvpull_cuda_gather,
	.record = kvpull_cuda_record,
	.query = kvpull_cuda_query,
	.mark = kvpull_cuda_mark,
	.wait = kvpull_cuda_wait,
	.flush = kvpull_cuda_flush,
	.is_lost = is_lost,
	.close = device_close,
};

/* ---- open ---- */

static int ask(struct kvpull_cuda *cuda, int attribute, int *value)
{
	return KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuDeviceGetAttribute,
			       value, attribute, cuda->index);
}

/* Memory that other processes can map, by a descriptor. */
static int sharing_ask(struct kvpull_cuda *cuda)
{
	int has_vmm = 0;
	int has_fd = 0;
	int code = ask(cuda, GPU_ATTRIBUTE_VMM, &has_vmm);

	if (!code)
		code = ask(cuda, GPU_ATTRIBUTE_POSIX_FD, &has_fd);
	if (code || (has_vmm && has_fd))
		return code;
	kvpull_warn(
		cuda->device.log,
		"cuda: device %d cannot share its memory by file descriptors: use another GPU or driver",
		cuda->index);
	return KVPULL_EUNSUPPORTED;
}

/* The driver says whether RDMA devices reach its memory, and who flushes them. */
static int nics_ask(struct kvpull_cuda *cuda)
{
	int can_rdma = 0;
	int flushes = 0;
	int ordering = 0;
	int code = ask(cuda, GPU_ATTRIBUTE_RDMA_WITH_VMM, &can_rdma);

	if (!code)
		code = ask(cuda, GPU_ATTRIBUTE_RDMA_FLUSH, &flushes);
	if (!code)
		code = ask(cuda, GPU_ATTRIBUTE_RDMA_ORDERING, &ordering);
	cuda->can_rdma = can_rdma != 0;
	cuda->device.can_flush = (flushes & GPU_FLUSH_BY_HOST) != 0;
	cuda->device.orders_writes = ordering >= GPU_ORDERING_OWNER;
	return code;
}

/* In the small letters of the kernel's files. */
static int pci_ask(struct kvpull_cuda *cuda)
{
	char *at = cuda->device.pci;
	const int code = cuda->calls.cuDeviceGetPCIBusId(
		at, sizeof(cuda->device.pci), cuda->index);

	for (; !code && *at; at++)
		if (*at >= 'A' && *at <= 'F')
			*at = (char)(*at - 'A' + 'a');
	return kvpull_cuda_check(cuda, "cuDeviceGetPCIBusId", code,
				 KVPULL_CUDA_CALL);
}

static int device_find(struct kvpull_cuda *cuda, int index)
{
	int code = cuda->calls.cuDeviceGet(&cuda->index, index);

	if (code) {
		cuda->index = index;
		return kvpull_cuda_check(cuda, "cuDeviceGet", code,
					 KVPULL_CUDA_CALL);
	}
	code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuDeviceGetUuid,
			       cuda->device.uuid, cuda->index);
	if (!code)
		code = sharing_ask(cuda);
	if (!code)
		code = pci_ask(cuda);
	return code ? code : nics_ask(cuda);
}

/* A stream that does not wait for the default one, which is the engine's. */
static int stream_open(struct kvpull_cuda *cuda)
{
	return KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuStreamCreate,
			       &cuda->stream, GPU_STREAM_NON_BLOCKING);
}

static int parts_open(struct kvpull_cuda *cuda)
{
	int mode;
	int code = kvpull_cuda_enter(cuda, &mode);

	if (code)
		return code;
	code = kvpull_cuda_granularity_ask(cuda);
	if (!code)
		code = stream_open(cuda);
	if (!code)
		code = kvpull_cuda_kernel_open(cuda);
	return kvpull_cuda_leave(cuda, mode, code);
}

static int context_open(struct kvpull_cuda *cuda)
{
	int code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL,
				   cuDevicePrimaryCtxRetain, &cuda->context,
				   cuda->index);

	if (code)
		return code;
	code = parts_open(cuda);
	if (code && !kvpull_cuda_is_lost(cuda))
		(void)cuda->calls.cuDevicePrimaryCtxRelease(cuda->index);
	return code;
}

int kvpull_cuda_open(struct kvpull_arena *arena, const struct kvpull_log *log,
		     int index, struct kvpull_device **device)
{
	struct kvpull_cuda *const cuda =
		kvpull_arena_take(arena, 1, sizeof(*cuda));
	int code;

	if (!cuda)
		return KVPULL_ENOMEM;
	KVPULL_ARENA_TAKE(arena, cuda->choice, 1);
	if (!cuda->choice)
		return KVPULL_ENOMEM;
	cuda->device.ops = &ops;
	cuda->device.log = log;
	cuda->pid = getpid();
	code = kvpull_cuda_calls_load(&cuda->calls, log);
	cuda->device.has_batch = cuda->calls.batch_12 || cuda->calls.batch_13;
	if (!code)
		code = device_find(cuda, index);
	if (!code)
		code = context_open(cuda);
	if (!code)
		*device = &cuda->device;
	return code;
}
