/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's beginning and end, its device, contexts and names. */
#include "tests/fake/cuda/cuda.h"
#include "tests/fake/cuda/ledger.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define CONTEXTS_MAX 5u /* of a thread, one above the other: see mine */

struct fake fake = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
};

/* A few bytes: with more LeakSanitizer fails on memory of such a library's threads. */
static _Thread_local struct {
	uint8_t pushed; /* contexts that are; the last one is current */
	uint8_t capture_mode;
	uint16_t contexts; /* the GPU of each, the last one in the low bits */
	uint32_t waits;    /* see fake_waits() */
} mine;
static uint8_t primary[FAKE_GPUS_MAX]; /* tokens: the primary context of each */

uint32_t fake_current(void)
{
	return mine.contexts % FAKE_GPUS_MAX;
}

void fake_wrong(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)fputs("fake cuda: ", stderr);
	(void)vfprintf(stderr, format, arguments);
	(void)fputc('\n', stderr);
	va_end(arguments);
	_exit(99);
}

/* The call of a number that the environment names; some codes end the context. */
static int numbered_refusal(const char *text, uint64_t number)
{
	char *end;
	int code;

	if (strtoull(text, &end, 10) != number)
		return GPU_OK;
	code = (int)strtol(end, NULL, 10);
	if (code == GPU_EILLEGAL_ADDRESS || code == GPU_EDEINITIALIZED)
		fake_lose(FAKE_ANY, code);
	return code;
}

/* Calls that any driver answers at once: those of marks, of questions, of frames. */
static int is_quick(const char *name)
{
	static const char *const quick[] = {
		"cuCtxPushCurrent",    "cuCtxPopCurrent",
		"cuEventCreate",       "cuEventQuery",
		"cuEventRecord",       "cuThreadExchangeStreamCaptureMode",
		"cuStreamIsCapturing",
	};
	size_t at;

	for (at = 0; at < sizeof(quick) / sizeof(*quick); at++)
		if (!strcmp(quick[at], name))
			return 1;
	return 0;
}

uint64_t fake_waits(void)
{
	return mine.waits;
}

void fake_nap(uint32_t us)
{
	const struct timespec late = kvpull_clock_timespec(us * UINT64_C(1000));

	(void)nanosleep(&late, NULL);
}

/* A call that the environment names takes its time, or for ever. */
static void be_slow(const char *name)
{
	const char *text = getenv("FAKE_CUDA_SLOW");
	const size_t bytes = strlen(name);

	if (!text || strncmp(text, name, bytes) != 0 || text[bytes] != ' ')
		return;
	while (!strcmp(text + bytes, " never"))
		(void)pause();
	fake_nap((uint32_t)strtoul(text + bytes, NULL, 10));
}

int fake_refusal(const char *name)
{
	const uint64_t number =
		1 +
		atomic_fetch_add_explicit(&fake.calls, 1, memory_order_relaxed);
	const char *text = getenv("FAKE_CUDA_REFUSE");
	const size_t bytes = strlen(name);

	mine.waits += !is_quick(name);
	be_slow(name);
	if (text && *text == '#')
		return numbered_refusal(text + 1, number);
	if (!text || strncmp(text, name, bytes) != 0 || text[bytes] != ' ')
		return GPU_OK;
	return (int)strtol(text + bytes, NULL, 10);
}

uint64_t fake_calls(void)
{
	return atomic_load_explicit(&fake.calls, memory_order_relaxed);
}

int fake_call(const char *name)
{
	const int refused = fake_refusal(name);

	if (fake.pid != getpid())
		return GPU_ENOT_INITIALIZED;
	if (!mine.pushed)
		return GPU_EINVALID_CONTEXT;
	/* The driver would end the capture, which is the engine's. */
	if (fake.is_capturing && mine.capture_mode != GPU_CAPTURE_RELAXED &&
	    strcmp(name, "cuStreamIsCapturing") != 0)
		fake_wrong("%s while a stream captures", name);
	return fake_sticky(fake_current()) ? fake_sticky(fake_current()) :
					     refused;
}

static uint32_t retained(uint32_t gpu)
{
	return atomic_load_explicit(&fake.gpus[gpu].retained,
				    memory_order_relaxed);
}

static int number_of(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text ? (int)strtol(text, NULL, 10) : otherwise;
}

int fake_has_nics(uint32_t place)
{
	return fake_gpu_number("FAKE_CUDA_RDMA", place, 0) == 2;
}

int cuInit(uint32_t flags)
{
	const int refused = fake_refusal(__func__);
	uint32_t i;

	if (flags)
		return GPU_EINVALID_VALUE;
	if (refused)
		return refused;
	/* A child of a process that called it has no driver. */
	if (fake.pid && fake.pid != getpid())
		return GPU_ENOT_INITIALIZED;
	if (fake.pid)
		return GPU_OK;
	if (fake_gpus_find())
		return FAKE_ENO_DEVICE;
	fake.pid = getpid();
	fake.late_us = (uint32_t)number_of("FAKE_CUDA_LATE_US", 0);
	fake.inside_us = (uint32_t)number_of("FAKE_CUDA_INSIDE_US", 0);
	fake.random = 34;
	for (i = 0; i < FAKE_HANDLES_MAX; i++)
		fake.handles[i].fd = -1;
	fake_ledger_open();
	return GPU_OK;
}

/* Descriptors of device memory that the program was given, or got from another one. */
static uint32_t descriptors_left(void)
{
	DIR *const folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	uint32_t left = 0;

	while (folder && (entry = readdir(folder)) != NULL) {
		char link[64] = "";

		if (readlinkat(dirfd(folder), entry->d_name, link,
			       sizeof(link) - 1) > 0)
			left += strncmp(link, "/memfd:" FAKE_MEMORY_NAME,
					strlen("/memfd:" FAKE_MEMORY_NAME)) ==
				0;
	}
	if (folder)
		(void)closedir(folder);
	return left;
}

static void all_is_given_back(void)
{
	uint32_t left = 0;
	uint32_t i;

	for (i = 0; i < FAKE_HANDLES_MAX; i++)
		left += fake.handles[i].fd >= 0;
	if (left)
		fake_wrong("%u allocations are left at exit", left);
	for (i = 0; i < FAKE_RANGES_MAX; i++)
		left += fake.ranges[i].address != 0;
	if (left)
		fake_wrong("%u address ranges are left at exit", left);
	for (i = 0; i < FAKE_HOSTS_MAX; i++)
		left += fake.hosts[i].address != 0;
	if (left)
		fake_wrong("%u pinned allocations are left at exit", left);
	for (i = 0; i < FAKE_GPUS_MAX; i++)
		left += retained(i);
	if (fake.streams || fake.events || fake.modules || left)
		fake_wrong(
			"%s, %u events, %u modules, %u contexts are left at exit",
			fake.streams ? "streams" : "no stream", fake.events,
			fake.modules, left);
	left = descriptors_left();
	if (left)
		fake_wrong("%u descriptors of memory are left at exit", left);
}

/* A program that ends has given everything back, but where its context is lost. */
__attribute__((destructor)) void fake_end(void)
{
	if (fake.pid != getpid())
		return;
	if (!fake_sticky(FAKE_ANY))
		all_is_given_back();
	fake_ledger_end();
}

int cuDriverGetVersion(int *version)
{
	const int refused = fake_refusal(__func__);

	if (refused)
		return refused;
	*version = number_of("FAKE_CUDA_VERSION", 13000);
	return GPU_OK;
}

int cuGetErrorName(int code, const char **name)
{
	static const struct {
		int code;
		const char *name;
	} rows[] = {
		{ GPU_OK, "CUDA_SUCCESS" },
		{ GPU_EINVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
		{ GPU_EOUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
		{ GPU_ENOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED" },
		{ GPU_EINVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE" },
		{ GPU_EINVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
		{ GPU_EPEER_ACCESS_UNSUPPORTED,
		  "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" },
		{ GPU_EINVALID_PTX, "CUDA_ERROR_INVALID_PTX" },
		{ GPU_EINVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE" },
		{ GPU_ENOT_FOUND, "CUDA_ERROR_NOT_FOUND" },
		{ GPU_ENOT_READY, "CUDA_ERROR_NOT_READY" },
		{ GPU_EILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ GPU_ENOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED" },
		{ GPU_ENOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED" },
	};
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++)
		if (rows[at].code == code) {
			*name = rows[at].name;
			return GPU_OK;
		}
	return GPU_EINVALID_VALUE;
}

/* ---- the device ---- */

static int device_call(const char *name, int device)
{
	const int refused = fake_refusal(name);

	if (fake.pid != getpid())
		return GPU_ENOT_INITIALIZED;
	return device < 0 || (uint32_t)device >= fake.gpu_count ?
		       GPU_EINVALID_DEVICE :
		       refused;
}
#define DEVICE_READY(device)                                                   \
	do {                                                                   \
		const int refused = device_call(__func__, device);             \
                                                                               \
		if (refused)                                                   \
			return refused;                                        \
	} while (0)

int cuDeviceGetCount(int *count)
{
	DEVICE_READY(0);
	*count = (int)fake.gpu_count;
	return GPU_OK;
}

int cuDeviceGet(int *device, int ordinal)
{
	DEVICE_READY(ordinal);
	*device = ordinal;
	return GPU_OK;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
	DEVICE_READY(device);
	(void)snprintf(name, (size_t)bytes, "fake");
	return GPU_OK;
}

int cuDeviceGetUuid(void *uuid, int device)
{
	DEVICE_READY(device);
	fake_uuid(fake.gpus[device].place, uuid);
	return GPU_OK;
}

int cuDeviceGetPCIBusId(char *text, int bytes, int device)
{
	DEVICE_READY(device);
	(void)snprintf(text, (size_t)bytes, "0000:%02X:00.0",
		       0x3d + fake.gpus[device].place);
	return GPU_OK;
}

int cuDeviceTotalMem(size_t *bytes, int device)
{
	DEVICE_READY(device);
	*bytes = (size_t)1 << 30;
	return GPU_OK;
}

static int attribute_of(int device, const char *name, int otherwise)
{
	return fake_gpu_number(name, fake.gpus[device].place, otherwise);
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	DEVICE_READY(device);
	switch (attribute) {
	case GPU_ATTRIBUTE_PROCESSORS:
		*value = 2;
		break;
	case GPU_ATTRIBUTE_MAJOR:
		*value = 9;
		break;
	case GPU_ATTRIBUTE_VMM:
		*value = 1;
		break;
	case GPU_ATTRIBUTE_RDMA_WITH_VMM:
		*value = attribute_of(device, "FAKE_CUDA_RDMA", 0) != 0;
		break;
	case GPU_ATTRIBUTE_RDMA_FLUSH:
		*value = attribute_of(device, "FAKE_CUDA_FLUSH", 0);
		break;
	case GPU_ATTRIBUTE_RDMA_ORDERING:
		*value = attribute_of(device, "FAKE_CUDA_ORDERING", 0);
		break;
	case GPU_ATTRIBUTE_POSIX_FD:
		*value = attribute_of(device, "FAKE_CUDA_POSIX_FD", 1);
		break;
	case GPU_ATTRIBUTE_RDMA:
	case GPU_ATTRIBUTE_DMABUF:
		*value = fake_has_nics(fake.gpus[device].place);
		break;
	case GPU_ATTRIBUTE_MPS:
		*value = number_of("FAKE_CUDA_MPS", 0);
		break;
	default:
		*value = 0;
		break;
	}
	return GPU_OK;
}

static int reaches(int device, int peer)
{
	return fake_reaches(fake.gpus[device].place, fake.gpus[peer].place);
}

int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
	DEVICE_READY(device);
	if ((uint32_t)peer >= fake.gpu_count)
		return GPU_EINVALID_DEVICE;
	/* A GPU is no peer of its own. */
	*can = device != peer && reaches(device, peer);
	return GPU_OK;
}

/* A GPU has no link to itself. */
int cuDeviceGetP2PAttribute(int *value, int attribute, int source, int target)
{
	DEVICE_READY(source);
	if ((uint32_t)target >= fake.gpu_count)
		return GPU_EINVALID_DEVICE;
	if (attribute != GPU_P2P_RANK)
		return GPU_EINVALID_VALUE;
	if (source == target)
		return GPU_EINVALID_DEVICE;
	*value = !reaches(source, target);
	return GPU_OK;
}

/* ---- contexts ---- */

int cuDevicePrimaryCtxRetain(struct gpu_context **context, int device)
{
	DEVICE_READY(device);
	(void)atomic_fetch_add_explicit(&fake.gpus[device].retained, 1,
					memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&fake.gpus[device].retains, 1,
					memory_order_relaxed);
	*context = (struct gpu_context *)(void *)&primary[device];
	return GPU_OK;
}

int cuDevicePrimaryCtxRelease(int device)
{
	DEVICE_READY(device);
	if (!retained((uint32_t)device))
		return GPU_EINVALID_CONTEXT;
	(void)atomic_fetch_sub_explicit(&fake.gpus[device].retained, 1,
					memory_order_relaxed);
	return GPU_OK;
}

int cuCtxPushCurrent(struct gpu_context *context)
{
	const uintptr_t gpu = (uintptr_t)context - (uintptr_t)primary;

	DEVICE_READY(0);
	if (gpu >= fake.gpu_count || !retained((uint32_t)gpu))
		return GPU_EINVALID_CONTEXT;
	if (mine.pushed == CONTEXTS_MAX)
		fake_wrong("%u contexts are pushed, and none is popped",
			   CONTEXTS_MAX);
	mine.contexts = (uint16_t)(mine.contexts * FAKE_GPUS_MAX + gpu);
	mine.pushed++;
	return GPU_OK;
}

int cuCtxPopCurrent(struct gpu_context **context)
{
	DEVICE_READY(0);
	if (!mine.pushed)
		return GPU_EINVALID_CONTEXT;
	*context = (struct gpu_context *)(void *)&primary[fake_current()];
	mine.contexts /= FAKE_GPUS_MAX;
	mine.pushed--;
	return GPU_OK;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	const int before = mine.capture_mode;

	DEVICE_READY(0);
	if (*mode < 0 || *mode > GPU_CAPTURE_RELAXED)
		return GPU_EINVALID_VALUE;
	mine.capture_mode = (uint8_t)*mode;
	*mode = before;
	return GPU_OK;
}

/* ---- names ---- */

struct fake_name {
	const char *name;
	int version;
	void (*function)(void);
};

/* NOLINTBEGIN(bugprone-macro-parentheses): a name. */
#define FAKE_NAME(name, version, arguments)                                    \
	{ #name, version, (void (*)(void))name },
/* NOLINTEND(bugprone-macro-parentheses) */
static const struct fake_name names[] = {
	GPU_ALL_CALLS(FAKE_NAME){ "cuMemcpyBatchAsync", 12080,
				  (void (*)(void))fake_batch_12 },
	{ "cuMemcpyBatchAsync", 13000, (void (*)(void))fake_batch_13 },
};

/* The newest form that is not newer than @version, nor than the driver. */
int cuGetProcAddress_v2(const char *symbol, void **function, int version,
			uint64_t flags, int *status)
{
	const int newest = number_of("FAKE_CUDA_VERSION", 13000);
	size_t at;

	if (flags)
		return GPU_EINVALID_VALUE;
	*function = NULL;
	*status = 1;
	for (at = 0; at < sizeof(names) / sizeof(*names); at++)
		if (!strcmp(names[at].name, symbol) &&
		    names[at].version <= version &&
		    names[at].version <= newest) {
			memcpy(function, &names[at].function,
			       sizeof(*function));
			*status = 0;
		}
	return *status ? GPU_ENOT_FOUND : GPU_OK;
}
