/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on the device's stream, events and marks. See base/device.h. */
#ifndef KVPULL_CUDA_WORK_H
#define KVPULL_CUDA_WORK_H

#include "base/device.h"

struct gpu_stream;
struct kvpull_cuda;

/* Queue the pieces there; the context is current. A driver's code. */
int kvpull_cuda_pieces_queue(struct kvpull_cuda *cuda,
			     const struct kvpull_device_pieces *pieces,
			     struct gpu_stream *stream);

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
