/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/device.h"

#include "shm/disk.h"

/*
 * A line of the thread's. One that says why no device is open also says which
 * key asked for it, and is an error where the worker does not open without it.
 */
static void line_write(void *context, uint32_t level, const char *message)
{
	const struct kvpull_shm_device *device = context;

	if (!device->is_opening || level > KVPULL_LOG_WARN)
		kvpull_log(device->log, level, "%s", message);
	else if (device->is_required)
		kvpull_error(
			device->log,
			"device=required: %s; correct that, or set device=auto",
			message);
	else
		kvpull_warn(device->log, "device=auto, and there is none: %s",
			    message);
}

int kvpull_shm_device_open(struct kvpull_shm_device *device,
			   const struct kvpull_device_thread_params *params,
			   const struct kvpull_log *log)
{
	int code;

	if (!params->open)
		return 0;
	device->log = log;
	/* An error is made of a warning: so the thread does not drop that. */
	device->lines = (struct kvpull_log){
		.write = line_write,
		.context = device,
		.level = log->level < KVPULL_LOG_WARN ? KVPULL_LOG_WARN :
							log->level,
	};
	device->is_opening = 1;
	code = kvpull_device_thread_open(&device->thread, params,
					 &device->lines);
	device->is_opening = 0;
	/* The thread may hang in the driver, and go on if that ever returns. */
	if (code == KVPULL_EDEVICE)
		kvpull_library_keep();
	return device->is_required ? code : 0;
}

void kvpull_shm_device_close(struct kvpull_shm_device *device,
			     uint64_t close_by_ns)
{
	struct kvpull_device_thread *const thread = device->thread;

	device->thread = NULL;
	if (thread && kvpull_device_thread_close(thread, close_by_ns))
		kvpull_library_keep();
}
