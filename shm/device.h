/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of a worker, where it has one: the thread that calls the driver, what
 * is ordered of it, and what is said where there is none.
 */
#ifndef KVPULL_SHM_DEVICE_H
#define KVPULL_SHM_DEVICE_H

#include "base/device_thread.h"

struct kvpull_shm_device {
	struct kvpull_device_thread *thread; /* NULL: none */
	const struct kvpull_log *log;
	struct kvpull_log lines; /* the thread's, which become ours */
	uint32_t is_required;
	uint32_t is_opening;
};

/*
 * Open the device that the parameters name; NULL in the place of a table: none.
 * device->is_required was set. 0 also where there is none and none is required;
 * then one line says why. Else the code of kvpull_device_thread_open(), and one
 * line that says what to do.
 */
int KVPULL_MUST_CHECK
kvpull_shm_device_open(struct kvpull_shm_device *device,
		       const struct kvpull_device_thread_params *params,
		       const struct kvpull_log *log);
/* Waits until close_by_ns at most. */
void kvpull_shm_device_close(struct kvpull_shm_device *device,
			     uint64_t close_by_ns);

#endif /* KVPULL_SHM_DEVICE_H */
