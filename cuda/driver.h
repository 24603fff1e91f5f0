/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of CUDA's driver interface that kvpull calls, in declarations of our
 * own: no machine that builds kvpull needs cuda.h. Where that header is,
 * tests/gpu/layout.cu holds these to it. Names of the interface begin with gpu_.
 *
 * GPU_CALLS has a row for each call: its name, the version of its arguments for
 * cuGetProcAddress_v2(), the arguments. Two versions of cuMemcpyBatchAsync()
 * are apart, since their arguments differ under one name. kvpull_doctor alone makes
 * the last three calls; the library looks them up, too.
 */
#ifndef KVPULL_CUDA_DRIVER_H
#define KVPULL_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* CUresult */
enum gpu_result {
	GPU_OK = 0,
	GPU_EINVALID_VALUE = 1,
	GPU_EOUT_OF_MEMORY = 2,
	GPU_ENOT_INITIALIZED = 3,
	GPU_EDEINITIALIZED = 4,
	GPU_EDEVICE_UNAVAILABLE = 46,
	GPU_EINVALID_DEVICE = 101,
	GPU_EINVALID_CONTEXT = 201,
	GPU_EECC_UNCORRECTABLE = 214,
	GPU_EPEER_ACCESS_UNSUPPORTED = 217,
	GPU_EINVALID_PTX = 218,
	GPU_ENVLINK_UNCORRECTABLE = 220,
	GPU_ECONTAINED = 226,
	GPU_EINVALID_HANDLE = 400,
	GPU_ENOT_FOUND = 500,
	GPU_ENOT_READY = 600,
	GPU_EILLEGAL_ADDRESS = 700,
	GPU_ELAUNCH_TIMEOUT = 702,
	GPU_ECONTEXT_IS_DESTROYED = 709,
	GPU_EASSERT = 710,
	GPU_EHARDWARE_STACK_ERROR = 714,
	GPU_EILLEGAL_INSTRUCTION = 715,
	GPU_EMISALIGNED_ADDRESS = 716,
	GPU_EINVALID_ADDRESS_SPACE = 717,
	GPU_EINVALID_PC = 718,
	GPU_ELAUNCH_FAILED = 719,
	GPU_ENOT_PERMITTED = 800,
	GPU_ENOT_SUPPORTED = 801,
	GPU_ECAPTURE_UNSUPPORTED = 900,
	GPU_ECAPTURE_IMPLICIT = 906,
	GPU_EUNKNOWN = 999
};

/* CUdevice_attribute */
enum gpu_attribute {
	GPU_ATTRIBUTE_PROCESSORS = 16,
	GPU_ATTRIBUTE_CACHE_BYTES = 38,
	GPU_ATTRIBUTE_COPY_ENGINES = 40,
	GPU_ATTRIBUTE_MAJOR = 75,
	GPU_ATTRIBUTE_MINOR = 76,
	GPU_ATTRIBUTE_HOST_PAGE_TABLES = 100,
	GPU_ATTRIBUTE_VMM = 102,
	GPU_ATTRIBUTE_POSIX_FD = 103,
	GPU_ATTRIBUTE_RDMA_WITH_VMM = 110,
	GPU_ATTRIBUTE_HOST_REGISTER_READ_ONLY = 113,
	GPU_ATTRIBUTE_RDMA = 116,
	GPU_ATTRIBUTE_RDMA_FLUSH = 117,
	GPU_ATTRIBUTE_RDMA_ORDERING = 118,
	GPU_ATTRIBUTE_DMABUF = 124,
	GPU_ATTRIBUTE_MPS = 133,
	GPU_ATTRIBUTE_HOST_NUMA_ID = 134
};

enum {
	GPU_ALLOCATION_PINNED = 1,
	GPU_HANDLE_POSIX_FD = 1,
	GPU_LOCATION_DEVICE = 1,
	GPU_ACCESS_READ = 1,
	GPU_ACCESS_READ_WRITE = 3,
	GPU_GRANULARITY_RECOMMENDED = 1,
	GPU_STREAM_NON_BLOCKING = 1,
	GPU_EVENT_BLOCKING_SYNC = 1,
	GPU_EVENT_DISABLE_TIMING = 2,
	GPU_HOST_PORTABLE = 1,
	GPU_ORDER_STREAM = 1,
	GPU_CAPTURE_RELAXED = 2,
	GPU_RANGE_DMABUF = 1,
	GPU_FLUSH_BY_HOST = 1,    /* bit of GPU_ATTRIBUTE_RDMA_FLUSH */
	GPU_ORDERING_OWNER = 100, /* least of GPU_ATTRIBUTE_RDMA_ORDERING */
	GPU_ORDERING_ALL = 200,
	GPU_FLUSH_CONTEXT = 0,    /* what is flushed: this context's device */
	GPU_FLUSH_TO_OWNER = 100, /* for whom: that device */
	GPU_P2P_RANK = 1          /* of links of one GPU; 0: the fastest */
};

/* CUmemLocation */
struct gpu_location {
	int32_t type;
	int32_t id;
};

/* CUmemAllocationProp */
struct gpu_allocation {
	int32_t type;
	int32_t handle_types;
	struct gpu_location location;
	void *win32;
	uint8_t compression;
	uint8_t rdma;
	uint16_t usage;
	uint8_t reserved[4];
};

/* CUmemAccessDesc */
struct gpu_access {
	struct gpu_location location;
	int32_t flags;
};

/* CUmemcpyAttributes */
struct gpu_copy_attributes {
	int32_t order;
	struct gpu_location source;
	struct gpu_location target;
	uint32_t flags;
};

/* CUcontext, CUstream, CUevent, CUmodule, CUfunction */
struct gpu_context;
struct gpu_stream;
struct gpu_event;
struct gpu_module;
struct gpu_function;

#define GPU_CALLS(X)                                                           \
	X(cuInit, 2000, (uint32_t flags))                                      \
	X(cuDriverGetVersion, 2020, (int *version))                            \
	X(cuGetErrorName, 6000, (int code, const char **name))                 \
	X(cuDeviceGet, 2000, (int *device, int ordinal))                       \
	X(cuDeviceGetUuid, 11040, (void *uuid, int device))                    \
	X(cuDeviceGetPCIBusId, 4010, (char *text, int bytes, int device))      \
	X(cuDeviceGetAttribute, 2000, (int *value, int attribute, int device)) \
	X(cuDevicePrimaryCtxRetain, 7000,                                      \
	  (struct gpu_context * *context, int device))                         \
	X(cuDevicePrimaryCtxRelease, 11000, (int device))                      \
	X(cuCtxPushCurrent, 4000, (struct gpu_context * context))              \
	X(cuCtxPopCurrent, 4000, (struct gpu_context * *context))              \
	X(cuThreadExchangeStreamCaptureMode, 10010, (int *mode))               \
	X(cuMemGetAllocationGranularity, 10020,                                \
	  (size_t * bytes, const struct gpu_allocation *allocation,            \
	   int which))                                                         \
	X(cuMemCreate, 10020,                                                  \
	  (uint64_t * handle, size_t bytes,                                    \
	   const struct gpu_allocation *allocation, uint64_t flags))           \
	X(cuMemRelease, 10020, (uint64_t handle))                              \
	X(cuMemAddressReserve, 10020,                                          \
	  (uint64_t * address, size_t bytes, size_t alignment,                 \
	   uint64_t wanted, uint64_t flags))                                   \
	X(cuMemAddressFree, 10020, (uint64_t address, size_t bytes))           \
	X(cuMemMap, 10020,                                                     \
	  (uint64_t address, size_t bytes, size_t offset, uint64_t handle,     \
	   uint64_t flags))                                                    \
	X(cuMemUnmap, 10020, (uint64_t address, size_t bytes))                 \
	X(cuMemSetAccess, 10020,                                               \
	  (uint64_t address, size_t bytes, const struct gpu_access *access,    \
	   size_t count))                                                      \
	X(cuMemExportToShareableHandle, 10020,                                 \
	  (void *exported, uint64_t handle, int type, uint64_t flags))         \
	X(cuMemImportFromShareableHandle, 10020,                               \
	  (uint64_t * handle, void *exported, int type))                       \
	X(cuMemGetHandleForAddressRange, 11070,                                \
	  (void *exported, uint64_t address, size_t bytes, int type,           \
	   uint64_t flags))                                                    \
	X(cuFlushGPUDirectRDMAWrites, 11030, (int target, int scope))          \
	X(cuStreamCreate, 2000, (struct gpu_stream * *stream, uint32_t flags)) \
	X(cuStreamDestroy, 4000, (struct gpu_stream * stream))                 \
	X(cuStreamSynchronize, 2000, (struct gpu_stream * stream))             \
	X(cuStreamIsCapturing, 10000,                                          \
	  (struct gpu_stream * stream, int *status))                           \
	X(cuStreamWaitEvent, 3020,                                             \
	  (struct gpu_stream * stream, struct gpu_event * event,               \
	   uint32_t flags))                                                    \
	X(cuEventCreate, 2000, (struct gpu_event * *event, uint32_t flags))    \
	X(cuEventDestroy, 4000, (struct gpu_event * event))                    \
	X(cuEventRecord, 2000,                                                 \
	  (struct gpu_event * event, struct gpu_stream * stream))              \
	X(cuEventQuery, 2000, (struct gpu_event * event))                      \
	X(cuMemcpyDtoDAsync, 3020,                                             \
	  (uint64_t target, uint64_t source, size_t bytes,                     \
	   struct gpu_stream * stream))                                        \
	X(cuMemsetD8Async, 3020,                                               \
	  (uint64_t target, uint8_t byte, size_t bytes,                        \
	   struct gpu_stream * stream))                                        \
	X(cuMemHostAlloc, 2020, (void **memory, size_t bytes, uint32_t flags)) \
	X(cuMemFreeHost, 2000, (void *memory))                                 \
	X(cuModuleLoadData, 2000,                                              \
	  (struct gpu_module * *module, const void *image))                    \
	X(cuModuleUnload, 2000, (struct gpu_module * module))                  \
	X(cuModuleGetFunction, 2000,                                           \
	  (struct gpu_function * *function, struct gpu_module * module,        \
	   const char *name))                                                  \
	X(cuLaunchKernel, 4000,                                                \
	  (struct gpu_function * function, uint32_t grid_x, uint32_t grid_y,   \
	   uint32_t grid_z, uint32_t block_x, uint32_t block_y,                \
	   uint32_t block_z, uint32_t shared_bytes,                            \
	   struct gpu_stream * stream, void **arguments, void **extra))        \
	X(cuDeviceGetCount, 2000, (int *count))                                \
	X(cuDeviceCanAccessPeer, 4000, (int *can, int device, int peer))       \
	X(cuDeviceGetP2PAttribute, 8000,                                       \
	  (int *value, int attribute, int source, int target))

/* cuMemcpyBatchAsync() of 12.8 and of 13.0; a driver before 12.8 has neither. */
typedef int (*gpu_batch_12_fn)(uint64_t *targets, uint64_t *sources,
			       size_t *bytes, size_t count,
			       struct gpu_copy_attributes *attributes,
			       size_t *attribute_from, size_t attribute_count,
			       size_t *failed, struct gpu_stream *stream);
typedef int (*gpu_batch_13_fn)(uint64_t *targets, uint64_t *sources,
			       size_t *bytes, size_t count,
			       struct gpu_copy_attributes *attributes,
			       size_t *attribute_from, size_t attribute_count,
			       struct gpu_stream *stream);

/* cuGetProcAddress_v2(), the one symbol that is looked up by dlsym(). */
typedef int (*gpu_proc_address_fn)(const char *symbol, void **function,
				   int version, uint64_t flags, int *status);

#endif /* KVPULL_CUDA_DRIVER_H */
