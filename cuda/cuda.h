/* SPDX-License-Identifier: Apache-2.0 */
/* base/device.h by CUDA's driver. */
#ifndef KVPULL_CUDA_CUDA_H
#define KVPULL_CUDA_CUDA_H

#include "base/arena.h"
#include "base/device.h"

/**
 * Open a GPU for this process: load libcuda.so.1, retain the device's primary
 * context, make a stream of our own. No thread is started by kvpull; the driver
 * may start its own.
 *
 * @arena   not sealed yet; the device is taken from it.
 * @log     outlives the device.
 * @index   the driver's number of the device in this process, from 0.
 * @device  out, on success; its close() gives all of it back but the library,
 *          which stays loaded.
 *
 * Return: 0, or
 *   KVPULL_EUNSUPPORTED  no driver, too old a one, no such device, or one that
 *                        cannot share its memory by descriptors: one line says which
 *   KVPULL_ENOMEM        the arena or the device has no room
 *   KVPULL_EDEVICE       the device is broken
 *
 * Threads: any; not in a child of a process that used CUDA (KVPULL_EDEVICE or
 * KVPULL_EUNSUPPORTED there).  Blocks: seconds, in the driver's own start.
 */
int KVPULL_MUST_CHECK kvpull_cuda_open(struct kvpull_arena *arena,
				       const struct kvpull_log *log, int index,
				       struct kvpull_device **device);

#endif /* KVPULL_CUDA_CUDA_H */
