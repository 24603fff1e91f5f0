/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a GPU and its driver what kvpull's device memory will rest on, without
 * kvpull: memory of one process is exported as a file descriptor, handed over a
 * Unix socket, mapped by another process and copied from. Each answer is a line
 * of JSON on standard output; tests/gpu/card.sh runs the commands and makes the
 * table. libcuda.so.1 is opened at run time.
 *
 *   probe facts                    of the driver and of the device
 *   probe serve SOCKET MIB PTX     P: takes memory, exports it to one caller
 *   probe share SOCKET PTX         D: imports P's memory, maps it, times that
 *   probe copy SOCKET PTX REPEATS  D: copies scattered blocks in each way
 *   probe store FD MIB PTX ACCESS  stores through a mapping of the descriptor
 *
 * Exit status: 0 all calls did as they should, 1 one did not, 77 no driver.
 */
#include "tests/gpu/probe.h"

#include "base/clock.h"
#include <dlfcn.h>
#include <stdarg.h>

#define PTX_BYTES_MAX (1u << 20)

struct probe_calls gpu;
struct probe_self self;

/* ---- what is said ---- */

void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)fputs("probe: ", stderr);
	(void)vfprintf(stderr, format, arguments);
	(void)fputc('\n', stderr);
	va_end(arguments);
	_exit(1);
}

void fact(const char *name, const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	(void)printf("{\"name\": \"%s\", \"value\": \"%s\"}\n", name, text);
	(void)fflush(stdout);
}

static int compare_doubles(const void *a, const void *b)
{
	const double *left = a;
	const double *right = b;

	return (*left > *right) - (*left < *right);
}

void measured(const char *name, const char *unit, double *values,
	      uint32_t count)
{
	qsort(values, count, sizeof(*values), compare_doubles);
	(void)printf(
		"{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.3f, \"low\": %.3f, \"high\": %.3f, \"count\": %u}\n",
		name, unit, values[count / 2], values[0], values[count - 1],
		count);
	(void)fflush(stdout);
}

void must_be(const char *name, int is_so)
{
	fact(name, "%s", is_so ? "yes" : "NO");
	if (!is_so)
		fail("%s: no", name);
}

double now_us(void)
{
	return (double)kvpull_clock_ns() / 1e3;
}

/* ---- the driver ---- */

const char *name_of(int code)
{
	const char *name = NULL;

	return gpu.cuGetErrorName && !gpu.cuGetErrorName(code, &name) && name ?
		       name :
		       "unknown";
}

void must(int code, const char *call)
{
	if (code)
		fail("%s: %d %s", call, code, name_of(code));
}
#define MUST(call) must(gpu.call, #call)

/* @function is a pointer to a pointer to a function, which ISO C cannot name. */
static int look_up(gpu_proc_address_fn address_of, const char *name,
		   int version, void *function)
{
	void *found = NULL;
	int status = 0;

	if (address_of(name, &found, version, 0, &status) || status || !found)
		return -1;
	memcpy(function, &found, sizeof(found));
	return 0;
}

#define LOOK_UP(name, version, arguments)                                      \
	if (look_up(address_of, #name, version, &gpu.name))                    \
		fail("this driver has no " #name " of " #version);

/*
 * cuMemcpyBatchAsync() has two forms under one name. A driver of 12.8 that is
 * asked for that of 13.0 gives its own, so that the driver's version decides.
 */
static void driver_open(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	gpu_proc_address_fn address_of;
	int version = 0;
	void *symbol;

	if (!library) {
		(void)fprintf(stderr, "probe: no driver: %s\n", dlerror());
		exit(77);
	}
	symbol = dlsym(library, "cuGetProcAddress_v2");
	if (!symbol)
		fail("the driver is older than 12.0");
	memcpy(&address_of, &symbol, sizeof(symbol));
	GPU_ALL_CALLS(LOOK_UP)
	MUST(cuDriverGetVersion(&version));
	if (version >= 13000)
		(void)look_up(address_of, "cuMemcpyBatchAsync", 13000,
			      &gpu.batch_13);
	else if (version >= 12080)
		(void)look_up(address_of, "cuMemcpyBatchAsync", 12080,
			      &gpu.batch_12);
	MUST(cuInit(0));
}

static int attribute(int which)
{
	int value = 0;

	MUST(cuDeviceGetAttribute(&value, which, self.device));
	return value;
}

/* The primary context, which is the engine's: never one of our own. */
static void device_open(void)
{
	const struct gpu_allocation shared = {
		.type = GPU_ALLOCATION_PINNED,
		.handle_types = GPU_HANDLE_POSIX_FD,
		.location = { GPU_LOCATION_DEVICE, 0 },
	};

	MUST(cuDeviceGet(&self.device, 0));
	MUST(cuDevicePrimaryCtxRetain(&self.context, self.device));
	MUST(cuCtxPushCurrent(self.context));
	MUST(cuStreamCreate(&self.stream, GPU_STREAM_NON_BLOCKING));
	MUST(cuMemGetAllocationGranularity(&self.granularity, &shared,
					   GPU_GRANULARITY_RECOMMENDED));
	self.blocks = 2 * (uint32_t)attribute(GPU_ATTRIBUTE_PROCESSORS);
}

static void device_close(void)
{
	if (self.module)
		MUST(cuModuleUnload(self.module));
	MUST(cuStreamDestroy(self.stream));
	MUST(cuCtxPopCurrent(&self.context));
	MUST(cuDevicePrimaryCtxRelease(self.device));
}

void kernels_load(const char *path)
{
	static char text[PTX_BYTES_MAX];
	FILE *file = fopen(path, "r");

	if (!file || fread(text, 1, sizeof(text) - 1, file) < 1)
		fail("%s cannot be read", path);
	(void)fclose(file);
	MUST(cuModuleLoadData(&self.module, text));
	MUST(cuModuleGetFunction(&self.gather, self.module, "gather"));
	MUST(cuModuleGetFunction(&self.stamp, self.module, "stamp"));
	MUST(cuModuleGetFunction(&self.compare, self.module, "compare"));
}

void launch(struct gpu_function *kernel, uint32_t blocks, void **arguments)
{
	MUST(cuLaunchKernel(kernel, blocks, 1, 1, GATHER_LANES, 1, 1, 0,
			    self.stream, arguments, NULL));
}

int region_stamp(const struct region *region, uint64_t seed)
{
	uint64_t address = region->address;
	uint64_t pieces = region->bytes / GATHER_PIECE_BYTES;
	void *arguments[] = { &address, &pieces, &seed };

	launch(self.stamp, self.blocks, arguments);
	return gpu.cuStreamSynchronize(self.stream);
}

/* ---- memory ---- */

int region_map(struct region *region, uint64_t handle, int access)
{
	const struct gpu_access wanted = {
		.location = { GPU_LOCATION_DEVICE, self.device },
		.flags = access,
	};
	int code;

	MUST(cuMemAddressReserve(&region->address, region->bytes, 0, 0, 0));
	code = gpu.cuMemMap(region->address, region->bytes, 0, handle, 0);
	if (!code) {
		code = gpu.cuMemSetAccess(region->address, region->bytes,
					  &wanted, 1);
		if (!code)
			return 0;
		MUST(cuMemUnmap(region->address, region->bytes));
	}
	MUST(cuMemAddressFree(region->address, region->bytes));
	return code;
}

void region_unmap(const struct region *region)
{
	MUST(cuMemUnmap(region->address, region->bytes));
	MUST(cuMemAddressFree(region->address, region->bytes));
}

void region_take(struct region *region, size_t bytes, int *fd)
{
	struct gpu_allocation allocation = {
		.type = GPU_ALLOCATION_PINNED,
		.handle_types = GPU_HANDLE_POSIX_FD,
		.location = { GPU_LOCATION_DEVICE, self.device },
		.rdma = (uint8_t)attribute(GPU_ATTRIBUTE_RDMA_WITH_VMM),
	};
	uint64_t handle;

	region->bytes = (bytes + self.granularity - 1) / self.granularity *
			self.granularity;
	if (gpu.cuMemCreate(&handle, region->bytes, &allocation, 0)) {
		/* Some drivers have the attribute and refuse the flag. */
		allocation.rdma = 0;
		MUST(cuMemCreate(&handle, region->bytes, &allocation, 0));
	}
	must(region_map(region, handle, GPU_ACCESS_READ_WRITE), "own memory");
	if (fd)
		MUST(cuMemExportToShareableHandle(fd, handle,
						  GPU_HANDLE_POSIX_FD, 0));
	MUST(cuMemRelease(handle));
}

/* ---- what is asked ---- */

static void attributes_say(void)
{
	static const struct {
		const char *name;
		int which;
	} rows[] = {
		{ "device.multiprocessors", GPU_ATTRIBUTE_PROCESSORS },
		{ "device.cache_bytes", GPU_ATTRIBUTE_CACHE_BYTES },
		{ "device.copy_engines", GPU_ATTRIBUTE_COPY_ENGINES },
		{ "device.major", GPU_ATTRIBUTE_MAJOR },
		{ "device.minor", GPU_ATTRIBUTE_MINOR },
		{ "device.host_page_tables", GPU_ATTRIBUTE_HOST_PAGE_TABLES },
		{ "device.vmm", GPU_ATTRIBUTE_VMM },
		{ "device.posix_fd", GPU_ATTRIBUTE_POSIX_FD },
		{ "device.rdma_with_vmm", GPU_ATTRIBUTE_RDMA_WITH_VMM },
		{ "device.register_read_only",
		  GPU_ATTRIBUTE_HOST_REGISTER_READ_ONLY },
		{ "device.rdma", GPU_ATTRIBUTE_RDMA },
		{ "device.rdma_flush", GPU_ATTRIBUTE_RDMA_FLUSH },
		{ "device.rdma_ordering", GPU_ATTRIBUTE_RDMA_ORDERING },
		{ "device.dmabuf", GPU_ATTRIBUTE_DMABUF },
		{ "device.host_numa", GPU_ATTRIBUTE_HOST_NUMA_ID },
	};
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++)
		fact(rows[at].name, "%d", attribute(rows[at].which));
}

/* Can a NIC have it? The descriptor is closed at once. */
static void dmabuf_say(void)
{
	struct region region;
	int fd = -1;
	int code;

	region_take(&region, self.granularity, NULL);
	code = gpu.cuMemGetHandleForAddressRange(
		&fd, region.address, region.bytes, GPU_RANGE_DMABUF, 0);
	fact("driver.dmabuf", "%d %s", code, name_of(code));
	if (!code)
		(void)close(fd);
	region_unmap(&region);
}

static void facts(void)
{
	int mode = GPU_CAPTURE_RELAXED;
	int version = 0;
	int count = 0;
	char name[128];
	char bus[32];
	size_t bytes = 0;

	MUST(cuDriverGetVersion(&version));
	fact("driver.version", "%d", version);
	fact("driver.batch", "%s",
	     gpu.batch_13 ? "13.0" :
	     gpu.batch_12 ? "12.8" :
			    "none");
	MUST(cuDeviceGetCount(&count));
	fact("device.count", "%d", count);
	MUST(cuDeviceGetName(name, (int)sizeof(name), self.device));
	fact("device.name", "%s", name);
	MUST(cuDeviceGetPCIBusId(bus, (int)sizeof(bus), self.device));
	fact("device.bus", "%s", bus);
	MUST(cuDeviceTotalMem(&bytes, self.device));
	fact("device.mib", "%zu", bytes >> 20);
	fact("device.granularity", "%zu", self.granularity);
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	fact("driver.capture_mode", "%d", mode);
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	attributes_say();
	dmabuf_say();
}

static void usage(void)
{
	(void)fputs(
		"usage: probe facts | serve SOCKET MIB PTX | share SOCKET PTX | copy SOCKET PTX REPEATS | store FD MIB PTX read|read-write\n",
		stderr);
	exit(2);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const int words = argc - 2;

	driver_open();
	device_open();
	if (!strcmp(what, "facts")) {
		facts();
	} else if (!strcmp(what, "serve") && words == 3) {
		kernels_load(argv[4]);
		serve(argv[2], strtoull(argv[3], NULL, 10));
	} else if (!strcmp(what, "share") && words == 2) {
		kernels_load(argv[3]);
		share(argv[2], argv[3]);
	} else if (!strcmp(what, "copy") && words == 3) {
		kernels_load(argv[3]);
		copy(argv[2], (uint32_t)strtoul(argv[4], NULL, 10));
	} else if (!strcmp(what, "store") && words == 4) {
		store(argv + 2);
	} else {
		usage();
	}
	device_close();
	return 0;
}
