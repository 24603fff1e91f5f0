/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device: taken, handed out, mapped, given back. See base/device.h. */
#ifndef KVPULL_CUDA_MEMORY_H
#define KVPULL_CUDA_MEMORY_H

#include "base/device.h"

struct kvpull_cuda;

/* The driver's unit of such memory, of this device: in device.granularity. */
int kvpull_cuda_granularity_ask(struct kvpull_cuda *cuda);

/* Take memory->bytes, not zeroed; the context is current. unmap() gives them back. */
int kvpull_cuda_own_take(struct kvpull_cuda *cuda,
			 struct kvpull_device_memory *memory);
int kvpull_cuda_alloc(struct kvpull_device *device, uint64_t bytes,
		      struct kvpull_device_memory *memory);
int kvpull_cuda_export_fd(struct kvpull_device *device,
			  const struct kvpull_device_memory *memory, int *fd);
int kvpull_cuda_dmabuf(struct kvpull_device *device,
		       const struct kvpull_device_memory *memory, int *fd);
int kvpull_cuda_import_fd(struct kvpull_device *device, int fd, uint64_t bytes,
			  const uint8_t *uuid,
			  struct kvpull_device_memory *memory);
void kvpull_cuda_unmap(struct kvpull_device *device,
		       struct kvpull_device_memory *memory);

#endif /* KVPULL_CUDA_MEMORY_H */
