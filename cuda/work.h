/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on the device's stream, events and marks. See base/device.h. */
#ifndef KVPULL_CUDA_WORK_H
#define KVPULL_CUDA_WORK_H

#include "base/device.h"

int kvpull_cuda_event_open(struct kvpull_device *device,
			   struct kvpull_device_event **event);
void kvpull_cuda_event_close(struct kvpull_device *device,
			     struct kvpull_device_event *event);
int kvpull_cuda_copy(struct kvpull_device *device,
		     const struct kvpull_device_pieces *pieces);
int kvpull_cuda_record(struct kvpull_device *device,
		       struct kvpull_device_event *event);
int kvpull_cuda_query(struct kvpull_device *device,
		      struct kvpull_device_event *event);
int kvpull_cuda_mark(struct kvpull_device *device, uint64_t stream,
		     struct kvpull_device_event *event);
int kvpull_cuda_wait(struct kvpull_device *device,
		     struct kvpull_device_event *event);

int kvpull_cuda_flush(struct kvpull_device *device);

#endif /* KVPULL_CUDA_WORK_H */
