/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/dmabuf.h"

#include <unistd.h>

#include "base/device_thread.h"
#include "base/params.h"

/* All of the memory that the region lies in. */
static struct kvpull_device_memory
memory_of(const struct kvpull_device_view *view,
	  const struct kvpull_region_view *region)
{
	return (struct kvpull_device_memory){
		.address = (uintptr_t)region->base - region->fd_offset,
		.bytes = view->part_bytes,
	};
}

/* A memory's first region comes before those of later memories. */
static int region_fill(struct kvpull_verbs_dmabufs *dmabufs,
		       struct kvpull_device *device,
		       const struct kvpull_serve *serve,
		       struct kvpull_region_view *region)
{
	const uint32_t at = region->fd_index;
	struct kvpull_device_memory memory;
	int code = 0;

	if (at == dmabufs->count) {
		memory = memory_of(&serve->devices[at], region);
		code = device->ops->dmabuf(device, &memory, &dmabufs->fds[at]);
		dmabufs->count += !code;
	}
	if (!code)
		region->fd = dmabufs->fds[at];
	return code;
}

int kvpull_verbs_dmabufs_make(struct kvpull_verbs_dmabufs *dmabufs,
			      const struct kvpull_device_thread *thread,
			      struct kvpull_serve *serve,
			      const struct kvpull_log *log)
{
	struct kvpull_device *const device =
		thread ? kvpull_device_thread_device(thread) : NULL;
	int code = device ? 0 : KVPULL_EUNSUPPORTED;
	uint32_t at;

	for (at = 0; !code && at < serve->region_count; at++)
		code = region_fill(dmabufs, device, serve, &serve->regions[at]);
	if (!code)
		return 0;
	kvpull_warn(
		log,
		"verbs: memory of the GPU is not served to other machines (%s): its driver makes no dmabuf of it: peers on this node alone are reached",
		kvpull_error_name(code));
	kvpull_verbs_dmabufs_close(dmabufs);
	return code;
}

void kvpull_verbs_dmabufs_close(struct kvpull_verbs_dmabufs *dmabufs)
{
	while (dmabufs->count)
		(void)close(dmabufs->fds[--dmabufs->count]);
}
