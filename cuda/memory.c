/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory by CUDA's virtual memory management: one allocation, one range of
 * addresses, one mapping of it, whole and at its begin. The mapping keeps the
 * memory, and an open descriptor does.
 */
#include "cuda/memory.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cuda/context.h"

/* No device has so many bytes, and rounding them up cannot wrap. */
#define BYTES_MAX ((uint64_t)1 << 48)

static struct gpu_access access_of(const struct kvpull_cuda *cuda, int flags)
{
	return (struct gpu_access){
		.location = { GPU_LOCATION_DEVICE, cuda->index },
		.flags = flags,
	};
}

/* Addresses for @memory->bytes, and the allocation there. */
static int range_map(struct kvpull_cuda *cuda,
		     struct kvpull_device_memory *memory, uint64_t handle,
		     enum kvpull_cuda_scope scope)
{
	uint64_t address = 0;
	int code = KVPULL_CUDA_TRY(cuda, scope, cuMemAddressReserve, &address,
				   memory->bytes, 0, 0, 0);

	if (code)
		return code;
	code = KVPULL_CUDA_TRY(cuda, scope, cuMemMap, address, memory->bytes, 0,
			       handle, 0);
	if (!code)
		memory->address = address;
	else if (!kvpull_cuda_is_lost(cuda))
		(void)cuda->calls.cuMemAddressFree(address, memory->bytes);
	return code;
}

static void release(struct kvpull_cuda *cuda, uint64_t handle)
{
	if (kvpull_cuda_is_lost(cuda))
		return;
	(void)KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuMemRelease, handle);
}

static void range_unmap(struct kvpull_cuda *cuda,
			const struct kvpull_device_memory *memory)
{
	if (kvpull_cuda_is_lost(cuda))
		return;
	if (KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuMemUnmap, memory->address,
			    memory->bytes))
		return;
	(void)KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuMemAddressFree,
			      memory->address, memory->bytes);
}

static void memory_free(struct kvpull_cuda *cuda,
			const struct kvpull_device_memory *memory)
{
	if (memory->address)
		range_unmap(cuda, memory);
	if (memory->handle)
		release(cuda, memory->handle);
}

/* ---- own memory ---- */

/* Memory of this device that other processes can map. */
static struct gpu_allocation shared_of(const struct kvpull_cuda *cuda)
{
	return (struct gpu_allocation){
		.type = GPU_ALLOCATION_PINNED,
		.handle_types = GPU_HANDLE_POSIX_FD,
		.location = { GPU_LOCATION_DEVICE, cuda->index },
		.rdma = (uint8_t)cuda->can_rdma,
	};
}

int kvpull_cuda_granularity_ask(struct kvpull_cuda *cuda)
{
	const struct gpu_allocation shared = shared_of(cuda);
	size_t bytes = 0;
	const int code = cuda->calls.cuMemGetAllocationGranularity(
		&bytes, &shared, GPU_GRANULARITY_RECOMMENDED);

	cuda->device.granularity = bytes;
	return kvpull_cuda_check(cuda, "cuMemGetAllocationGranularity", code,
				 KVPULL_CUDA_CALL);
}

/*
 * Drivers that can pin device memory for NICs in general may refuse it for this
 * memory: copies between GPUs do without.
 */
static int create(struct kvpull_cuda *cuda, uint64_t bytes, uint64_t *handle)
{
	struct gpu_allocation allocation = shared_of(cuda);
	int code = cuda->calls.cuMemCreate(handle, bytes, &allocation, 0);

	if (allocation.rdma &&
	    (code == GPU_ENOT_SUPPORTED || code == GPU_ENOT_PERMITTED)) {
		kvpull_info(
			cuda->device.log,
			"cuda: device %d: no NIC can read this memory: cuMemCreate: %d: GPUs of this node can",
			cuda->index, code);
		allocation.rdma = 0;
		code = cuda->calls.cuMemCreate(handle, bytes, &allocation, 0);
	}
	return kvpull_cuda_check(cuda, "cuMemCreate", code, KVPULL_CUDA_CALL);
}

/* A wait that fails leaves unknown what may still be stored: the device is lost. */
static int zero(struct kvpull_cuda *cuda,
		const struct kvpull_device_memory *memory)
{
	int code;

	code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuMemsetD8Async,
			       memory->address, 0, memory->bytes, cuda->stream);
	if (code)
		return code;
	return KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_DEVICE, cuStreamSynchronize,
			       cuda->stream);
}

static int own_map(struct kvpull_cuda *cuda,
		   struct kvpull_device_memory *memory)
{
	const struct gpu_access wanted = access_of(cuda, GPU_ACCESS_READ_WRITE);
	int error = range_map(cuda, memory, memory->handle, KVPULL_CUDA_CALL);

	if (error)
		return error;
	return KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL, cuMemSetAccess,
			       memory->address, memory->bytes, &wanted, 1);
}

int kvpull_cuda_own_take(struct kvpull_cuda *cuda,
			 struct kvpull_device_memory *memory)
{
	int error = create(cuda, memory->bytes, &memory->handle);

	if (error)
		return error;
	error = own_map(cuda, memory);
	if (error)
		memory_free(cuda, memory);
	return error;
}

int kvpull_cuda_alloc(struct kvpull_device *device, uint64_t bytes,
		      struct kvpull_device_memory *memory)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	const uint64_t unit = device->granularity;
	struct kvpull_device_memory taken = {
		.bytes = (bytes + unit - 1) / unit * unit,
		.access = KVPULL_DEVICE_READ_WRITE,
	};
	int error;
	int mode;

	if (!bytes || bytes > BYTES_MAX)
		return KVPULL_EINVAL;
	error = kvpull_cuda_enter(cuda, &mode);
	if (error)
		return error;
	error = kvpull_cuda_own_take(cuda, &taken);
	if (!error) {
		error = zero(cuda, &taken);
		if (error)
			memory_free(cuda, &taken);
	}
	if (!kvpull_cuda_leave(cuda, mode, error))
		*memory = taken;
	return error;
}

/* Leave the driver after a call that made a descriptor, which is handed on. */
static int fd_leave(struct kvpull_cuda *cuda, int mode, int code, int made,
		    int *fd)
{
	if (kvpull_cuda_leave(cuda, mode, code))
		return code;
	/* A program that the engine starts would keep the memory by it. */
	(void)fcntl(made, F_SETFD, FD_CLOEXEC);
	*fd = made;
	return 0;
}

int kvpull_cuda_export_fd(struct kvpull_device *device,
			  const struct kvpull_device_memory *memory, int *fd)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int exported = -1;
	int code;
	int mode;

	if (!memory->handle)
		return KVPULL_EINVAL;
	code = kvpull_cuda_enter(cuda, &mode);
	if (code)
		return code;
	code = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_CALL,
			       cuMemExportToShareableHandle, &exported,
			       memory->handle, GPU_HANDLE_POSIX_FD, 0);
	return fd_leave(cuda, mode, code, exported, fd);
}

int kvpull_cuda_dmabuf(struct kvpull_device *device,
		       const struct kvpull_device_memory *memory, int *fd)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int exported = -1;
	int code;
	int mode;

	code = kvpull_cuda_enter(cuda, &mode);
	if (code)
		return code;
	code = KVPULL_CUDA_TRY(
		cuda, KVPULL_CUDA_CALL, cuMemGetHandleForAddressRange,
		&exported, memory->address, memory->bytes, GPU_RANGE_DMABUF, 0);
	return fd_leave(cuda, mode, code, exported, fd);
}

/* ---- memory of others ---- */

/*
 * For reads where the driver has that: a mapping for stores could be written
 * into by a fault of ours.
 */
static int access_take(struct kvpull_cuda *cuda,
		       struct kvpull_device_memory *memory)
{
	struct gpu_access wanted = access_of(cuda, GPU_ACCESS_READ);
	int code = cuda->calls.cuMemSetAccess(memory->address, memory->bytes,
					      &wanted, 1);

	if (code == GPU_EINVALID_VALUE || code == GPU_ENOT_SUPPORTED) {
		kvpull_warn(
			cuda->device.log,
			"cuda: device %d: a peer's memory is mapped for stores, too: cuMemSetAccess for reads alone: %d",
			cuda->index, code);
		wanted.flags = GPU_ACCESS_READ_WRITE;
		memory->access = KVPULL_DEVICE_READ_WRITE;
		code = cuda->calls.cuMemSetAccess(memory->address,
						  memory->bytes, &wanted, 1);
	}
	return kvpull_cuda_check(cuda, "cuMemSetAccess", code,
				 KVPULL_CUDA_PEER);
}

static int foreign_take(struct kvpull_cuda *cuda, int fd,
			struct kvpull_device_memory *memory)
{
	uint64_t handle;
	int code;

	/* The driver wants the descriptor as a pointer's value. */
	code = KVPULL_CUDA_TRY(
		cuda, KVPULL_CUDA_PEER, cuMemImportFromShareableHandle, &handle,
		(void *)(uintptr_t)(unsigned int)fd, GPU_HANDLE_POSIX_FD);
	if (code)
		return code;
	code = range_map(cuda, memory, handle, KVPULL_CUDA_PEER);
	if (!code)
		code = access_take(cuda, memory);
	if (code)
		memory_free(cuda, memory);
	/* The mapping keeps the memory from here on. */
	release(cuda, handle);
	return code;
}

/* A GPU's own memory is copied by its processors: its copy engines are slow. */
static uint32_t is_gathered(const struct kvpull_cuda *cuda, const uint8_t *uuid)
{
	return cuda->slots && !memcmp(uuid, cuda->device.uuid,
				      sizeof(cuda->device.uuid)) ?
		       UINT32_MAX :
		       0;
}

int kvpull_cuda_import_fd(struct kvpull_device *device, int fd, uint64_t bytes,
			  const uint8_t *uuid,
			  struct kvpull_device_memory *memory)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	struct kvpull_device_memory taken = {
		.bytes = bytes,
		.access = KVPULL_DEVICE_READ,
		.gathers = is_gathered(cuda, uuid),
	};
	int error;
	int mode;

	if (fd < 0)
		return KVPULL_EINVAL;
	if (!bytes || bytes > BYTES_MAX || bytes % device->granularity)
		return KVPULL_EPROTO;
	error = kvpull_cuda_enter(cuda, &mode);
	if (error)
		return error;
	error = foreign_take(cuda, fd, &taken);
	if (!kvpull_cuda_leave(cuda, mode, error))
		*memory = taken;
	return error;
}

void kvpull_cuda_unmap(struct kvpull_device *device,
		       struct kvpull_device_memory *memory)
{
	struct kvpull_cuda *const cuda = kvpull_cuda_of(device);
	int mode;

	if (memory->address && !kvpull_cuda_enter(cuda, &mode)) {
		memory_free(cuda, memory);
		(void)kvpull_cuda_leave(cuda, mode, 0);
	}
	*memory = (struct kvpull_device_memory){ 0 };
}
