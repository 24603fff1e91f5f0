/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: of a device that is CLOSED nothing is registered, listened to or
 * watched, and its context is NULL; none is opened while another is LOST, so
 * that those of one context leave it before one comes back to it.
 */
#include "verbs/back.h"

#include "base/clock.h"
#include "verbs/setup.h"

static int is_used(const struct kvpull_verbs_connect *connect, uint32_t device)
{
	uint32_t at;

	for (at = 0; at < kvpull_verbs_connect_ends(connect); at++) {
		const struct kvpull_verbs_end *end =
			kvpull_verbs_connect_end(connect, at);

		if (end->state != KVPULL_VERBS_FREE && end->device == device)
			return 1;
	}
	return 0;
}

static void device_leave(const struct kvpull_verbs_back *back, uint32_t at)
{
	struct kvpull_verbs_device *device = &back->shared->devices[at];

	kvpull_verbs_connect_hush(back->connect, at);
	kvpull_verbs_regions_deregister(&back->shared->regions[at]);
	kvpull_verbs_reads_forget(back->reads, at);
	if (device->channel)
		kvpull_verbs_watch_remove(back->watch, device->channel->fd);
	if (device->context)
		kvpull_verbs_watch_remove(back->watch,
					  device->context->async_fd);
	kvpull_verbs_device_close(device);
	device->gone = KVPULL_VERBS_DEVICE_CLOSED;
}

/* Return: 1 if those that are lost are closed. */
static int all_leave(const struct kvpull_verbs_back *back)
{
	int left = 0;
	uint32_t at;

	for (at = 0; at < back->shared->rail_count; at++) {
		if (back->shared->devices[at].gone != KVPULL_VERBS_DEVICE_LOST)
			continue;
		if (is_used(back->connect, at))
			left++;
		else
			device_leave(back, at);
	}
	return !left;
}

static void device_return(struct kvpull_verbs_back *back, uint32_t at)
{
	struct kvpull_verbs_shared *shared = back->shared;
	struct kvpull_verbs_device *device = &shared->devices[at];
	int code = kvpull_verbs_setup_again(shared, at);

	/* Not there yet, and that was said when it was lost. */
	if (code)
		return;
	if (back->serve.region_count)
		code = kvpull_verbs_regions_register(&shared->regions[at],
						     device, &back->serve);
	if (!code)
		code = kvpull_verbs_reads_remember(back->reads, at);
	if (!code && back->serve.region_count)
		code = kvpull_verbs_connect_listen_again(back->connect, at);
	if (!code && kvpull_verbs_watch_device(back->watch, at))
		code = KVPULL_EDEVICE;
	if (code) {
		device_leave(back, at);
		return;
	}
	device->gone = 0;
	kvpull_warn(shared->log, "verbs: %s is back: pulls go by it again",
		    device->choice);
}

void kvpull_verbs_back_run(struct kvpull_verbs_back *back)
{
	struct kvpull_verbs_shared *shared = back->shared;
	uint32_t at;

	if (kvpull_verbs_back_due_ns(back) > shared->now_ns)
		return;
	back->due_ns = shared->now_ns + KVPULL_VERBS_BACK_NS;
	if (!all_leave(back))
		return;
	for (at = 0; at < shared->rail_count; at++)
		if (shared->devices[at].gone)
			device_return(back, at);
}

uint64_t kvpull_verbs_back_due_ns(const struct kvpull_verbs_back *back)
{
	uint32_t at;

	for (at = 0; at < back->shared->rail_count; at++)
		if (back->shared->devices[at].gone)
			return back->due_ns;
	return UINT64_MAX;
}
