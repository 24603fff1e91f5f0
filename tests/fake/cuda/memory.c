/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver's memory. A memfd begins with a page that says what it is, so
 * that a foreign descriptor is refused; the bytes follow.
 */
#include "tests/fake/cuda/cuda.h"
#include "tests/fake/cuda/ledger.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_BYTES 4096u

static const char magic[16] = "kvpull fake gpu";

struct head {
	char magic[16];
	uint64_t bytes;
	uint32_t place; /* of the GPU that has it */
	uint32_t owner; /* the process that took it */
};

static void lock(void)
{
	(void)pthread_mutex_lock(&fake.lock);
}

static int unlock(int code)
{
	(void)pthread_mutex_unlock(&fake.lock);
	return code;
}

/* ---- allocations ---- */

/* Numbers begin at 1. NULL: none that is valid. */
static struct fake_handle *handle_of(uint64_t number)
{
	struct fake_handle *handle = &fake.handles[number - 1];

	if (number - 1 >= FAKE_HANDLES_MAX || handle->fd < 0 ||
	    handle->is_released)
		return NULL;
	return handle;
}

static void handle_put(struct fake_handle *handle)
{
	if (--handle->users)
		return;
	(void)close(handle->fd);
	fake_ledger_give((uint64_t)(handle - fake.handles) + 1);
	*handle = (struct fake_handle){ .fd = -1 };
}

static int handle_new(int fd, const struct head *head, uint64_t *number)
{
	uint32_t i;

	for (i = 0; i < FAKE_HANDLES_MAX; i++)
		if (fake.handles[i].fd < 0) {
			fake.handles[i] =
				(struct fake_handle){ .fd = fd,
						      .bytes = head->bytes,
						      .place = head->place,
						      .owner = head->owner,
						      .users = 1 };
			*number = i + 1;
			fake_ledger_take(*number);
			return GPU_OK;
		}
	return GPU_EOUT_OF_MEMORY;
}

static int is_device(const struct gpu_location *location)
{
	return location->type == GPU_LOCATION_DEVICE && location->id >= 0 &&
	       (uint32_t)location->id < fake.gpu_count;
}

static int is_allocation(const struct gpu_allocation *allocation)
{
	return allocation->type == GPU_ALLOCATION_PINNED &&
	       !(allocation->handle_types & ~GPU_HANDLE_POSIX_FD) &&
	       is_device(&allocation->location) && !allocation->win32;
}

int cuMemGetAllocationGranularity(size_t *bytes,
				  const struct gpu_allocation *allocation,
				  int which)
{
	FAKE_READY();
	if (!is_allocation(allocation) || which < 0 ||
	    which > GPU_GRANULARITY_RECOMMENDED)
		return GPU_EINVALID_VALUE;
	*bytes = FAKE_GRANULARITY;
	return GPU_OK;
}

int cuMemCreate(uint64_t *handle, size_t bytes,
		const struct gpu_allocation *allocation, uint64_t flags)
{
	struct head head = { .bytes = bytes, .owner = (uint32_t)getpid() };
	int code;
	int fd;

	FAKE_READY();
	if (!bytes || bytes % FAKE_GRANULARITY || flags ||
	    !is_allocation(allocation))
		return GPU_EINVALID_VALUE;
	head.place = fake.gpus[allocation->location.id].place;
	if (allocation->rdma && !fake_has_nics(head.place))
		return GPU_ENOT_SUPPORTED;
	memcpy(head.magic, magic, sizeof(magic));
	fd = memfd_create(FAKE_MEMORY_NAME, MFD_CLOEXEC);
	if (fd < 0)
		return GPU_EOUT_OF_MEMORY;
	lock();
	code = ftruncate(fd, (off_t)(HEAD_BYTES + bytes)) ||
			       pwrite(fd, &head, sizeof(head), 0) !=
				       (ssize_t)sizeof(head) ?
		       GPU_EOUT_OF_MEMORY :
		       handle_new(fd, &head, handle);
	if (code)
		(void)close(fd);
	else
		fake.handles[*handle - 1].is_fresh = 1;
	return unlock(code);
}

int cuMemRelease(uint64_t handle)
{
	struct fake_handle *at;

	FAKE_READY();
	lock();
	at = handle_of(handle);
	if (!at)
		return unlock(GPU_EINVALID_VALUE);
	at->is_released = 1;
	handle_put(at);
	return unlock(GPU_OK);
}

int cuMemExportToShareableHandle(void *exported, uint64_t handle, int type,
				 uint64_t flags)
{
	const struct fake_handle *at;
	int fd = -1;

	FAKE_READY();
	if (type != GPU_HANDLE_POSIX_FD || flags)
		return GPU_EINVALID_VALUE;
	lock();
	at = handle_of(handle);
	if (at)
		fd = dup(at->fd);
	(void)unlock(0);
	if (fd < 0)
		return GPU_EINVALID_VALUE;
	memcpy(exported, &fd, sizeof(fd));
	return GPU_OK;
}

/* The descriptor stays the caller's. A GPU that is not seen here is no device. */
int cuMemImportFromShareableHandle(uint64_t *handle, void *exported, int type)
{
	struct head head;
	struct stat status;
	int code;
	int fd;

	FAKE_READY();
	if (type != GPU_HANDLE_POSIX_FD ||
	    fstat((int)(intptr_t)exported, &status) ||
	    !S_ISREG(status.st_mode) ||
	    pread((int)(intptr_t)exported, &head, sizeof(head), 0) !=
		    (ssize_t)sizeof(head) ||
	    memcmp(head.magic, magic, sizeof(magic)))
		return GPU_EINVALID_VALUE;
	if (fake_gpu_at(head.place) == FAKE_ANY)
		return GPU_EINVALID_DEVICE;
	fd = fcntl((int)(intptr_t)exported, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return GPU_EOUT_OF_MEMORY;
	lock();
	code = handle_new(fd, &head, handle);
	if (code)
		(void)close(fd);
	return unlock(code);
}

/* ---- addresses ---- */

static struct fake_range *range_of(uint64_t address, uint64_t bytes)
{
	uint32_t i;

	for (i = 0; i < FAKE_RANGES_MAX; i++) {
		struct fake_range *range = &fake.ranges[i];

		if (range->address && address >= range->address &&
		    bytes <= range->bytes &&
		    address - range->address <= range->bytes - bytes)
			return range;
	}
	return NULL;
}

int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment,
			uint64_t wanted, uint64_t flags)
{
	struct fake_range *range = fake.ranges;
	void *memory;

	FAKE_READY();
	if (!bytes || bytes % FAKE_GRANULARITY || alignment || wanted || flags)
		return GPU_EINVALID_VALUE;
	lock();
	while (range->address)
		if (++range == fake.ranges + FAKE_RANGES_MAX)
			return unlock(GPU_EOUT_OF_MEMORY);
	memory = mmap(NULL, bytes, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return unlock(GPU_EOUT_OF_MEMORY);
	*range = (struct fake_range){ .address = (uint64_t)(uintptr_t)memory,
				      .bytes = bytes };
	*address = range->address;
	return unlock(GPU_OK);
}

int cuMemAddressFree(uint64_t address, size_t bytes)
{
	struct fake_range *range;

	FAKE_READY();
	lock();
	range = range_of(address, bytes);
	if (!range || range->address != address || range->bytes != bytes)
		return unlock(GPU_EINVALID_VALUE);
	if (range->mapped_bytes)
		fake_wrong("addresses are freed while memory is mapped there");
	(void)munmap((void *)(uintptr_t)address, bytes);
	*range = (struct fake_range){ 0 };
	return unlock(GPU_OK);
}

int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
	     uint64_t flags)
{
	struct fake_handle *memory;
	struct fake_range *range;
	void *view;

	FAKE_READY();
	lock();
	memory = handle_of(handle);
	range = range_of(address, bytes);
	if (!memory || !range || range->address != address || offset || flags ||
	    !bytes || bytes % FAKE_GRANULARITY || bytes > memory->bytes ||
	    range->mapped_bytes)
		return unlock(GPU_EINVALID_VALUE);
	view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd,
		    HEAD_BYTES);
	if (view == MAP_FAILED)
		return unlock(GPU_EOUT_OF_MEMORY);
	if (memory->is_fresh)
		memset(view, FAKE_FORMER_BYTE, bytes);
	memory->is_fresh = 0;
	memory->users++;
	range->mapped_bytes = bytes;
	range->handle = handle;
	memset(range->access, 0, sizeof(range->access));
	range->view = view;
	return unlock(GPU_OK);
}

int cuMemUnmap(uint64_t address, size_t bytes)
{
	struct fake_range *range;

	FAKE_READY();
	lock();
	range = range_of(address, bytes);
	if (!range || range->address != address || range->mapped_bytes != bytes)
		return unlock(GPU_EINVALID_VALUE);
	if (fake_is_used(address, bytes))
		fake_wrong("memory is unmapped under work that is queued");
	(void)munmap(range->view, bytes);
	handle_put(&fake.handles[range->handle - 1]);
	range->mapped_bytes = 0;
	range->view = NULL;
	return unlock(GPU_OK);
}

/* A GPU that does not reach the memory's is no device for it, by cuda.h. */
static int access_of(const struct fake_range *range,
		     const struct gpu_access *access)
{
	const char *read_refusal = getenv("FAKE_CUDA_READ");
	const uint32_t place = fake.handles[range->handle - 1].place;

	if (!fake_reaches(fake.gpus[access->location.id].place, place))
		return GPU_EINVALID_DEVICE;
	if (read_refusal && access->flags == GPU_ACCESS_READ)
		return (int)strtol(read_refusal, NULL, 10);
	return GPU_OK;
}

int cuMemSetAccess(uint64_t address, size_t bytes,
		   const struct gpu_access *access, size_t count)
{
	struct fake_range *range;
	int code;

	FAKE_READY();
	lock();
	range = range_of(address, bytes);
	if (!range || range->mapped_bytes != bytes || count != 1 ||
	    !is_device(&access->location) ||
	    (access->flags != GPU_ACCESS_READ &&
	     access->flags != GPU_ACCESS_READ_WRITE))
		return unlock(GPU_EINVALID_VALUE);
	code = access_of(range, access);
	if (!code)
		range->access[access->location.id] = (uint8_t)access->flags;
	return unlock(code);
}

/*
 * A descriptor of the bytes themselves: an RDMA device of tests/fake maps them by
 * it, behind the page that says what the file is.
 */
int cuMemGetHandleForAddressRange(void *exported, uint64_t address,
				  size_t bytes, int type, uint64_t flags)
{
	const struct fake_range *range;
	int fd = -1;

	FAKE_READY();
	if (type != GPU_RANGE_DMABUF || flags)
		return GPU_EINVALID_VALUE;
	if (!fake_has_nics(fake.gpus[fake_current()].place))
		return GPU_ENOT_SUPPORTED;
	lock();
	range = range_of(address, bytes);
	if (range && range->address == address && range->mapped_bytes == bytes)
		fd = dup(fake.handles[range->handle - 1].fd);
	(void)unlock(0);
	if (fd < 0)
		return GPU_EINVALID_VALUE;
	memcpy(exported, &fd, sizeof(fd));
	return GPU_OK;
}

/* Bytes that a NIC of tests/fake wrote are there already. */
int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	FAKE_READY();
	if (target != GPU_FLUSH_CONTEXT || scope != GPU_FLUSH_TO_OWNER)
		return GPU_EINVALID_VALUE;
	return getenv("FAKE_CUDA_FLUSH") ? GPU_OK : GPU_ENOT_SUPPORTED;
}

/* ---- memory of the host ---- */

static struct fake_span *host_of(uint64_t address, uint64_t bytes)
{
	uint32_t i;

	for (i = 0; i < FAKE_HOSTS_MAX; i++) {
		struct fake_span *host = &fake.hosts[i];

		if (host->address && address >= host->address &&
		    bytes <= host->bytes &&
		    address - host->address <= host->bytes - bytes)
			return host;
	}
	return NULL;
}

int cuMemHostAlloc(void **memory, size_t bytes, uint32_t flags)
{
	struct fake_span *host = fake.hosts;

	FAKE_READY();
	if (!bytes || flags & ~(uint32_t)GPU_HOST_PORTABLE)
		return GPU_EINVALID_VALUE;
	lock();
	while (host->address)
		if (++host == fake.hosts + FAKE_HOSTS_MAX)
			return unlock(GPU_EOUT_OF_MEMORY);
	*memory = calloc(1, bytes);
	if (!*memory)
		return unlock(GPU_EOUT_OF_MEMORY);
	*host = (struct fake_span){ (uint64_t)(uintptr_t)*memory, bytes };
	return unlock(GPU_OK);
}

int cuMemFreeHost(void *memory)
{
	struct fake_span *host;

	FAKE_READY();
	lock();
	host = host_of((uint64_t)(uintptr_t)memory, 0);
	if (!host || host->address != (uint64_t)(uintptr_t)memory)
		return unlock(GPU_EINVALID_VALUE);
	if (fake_is_used(host->address, host->bytes))
		fake_wrong("pinned memory is freed under work that is queued");
	free(memory);
	*host = (struct fake_span){ 0 };
	return unlock(GPU_OK);
}

int fake_is_host(uint64_t address)
{
	return host_of(address, 1) != NULL;
}

/* 0, or how @gpu, or some GPU, may touch the range. */
static int access_by(const struct fake_range *range, uint32_t gpu)
{
	int access = gpu == FAKE_ANY ? 0 : range->access[gpu];
	uint32_t at;

	for (at = 0; at < FAKE_GPUS_MAX && gpu == FAKE_ANY; at++)
		access |= range->access[at];
	return access;
}

void *fake_memory(uint32_t gpu, uint64_t address, uint64_t bytes, int is_store)
{
	const struct fake_range *range;
	int access;

	if (host_of(address, bytes))
		return (void *)(uintptr_t)address;
	range = range_of(address, bytes);
	access = range ? access_by(range, gpu) : 0;
	if (!access || address - range->address + bytes > range->mapped_bytes ||
	    (is_store && access != GPU_ACCESS_READ_WRITE))
		return NULL;
	return range->view + (address - range->address);
}

void *fake_view(uint64_t address, uint64_t bytes)
{
	void *view;

	lock();
	view = fake_memory(FAKE_ANY, address, bytes, 1);
	(void)unlock(0);
	return view;
}
