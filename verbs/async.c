/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event is copied and acknowledged before it is acted on: destroying a queue
 * pair waits for its events. A context is rdma_cm's, so it may be shared with
 * other users of this process: objects that are not ours are left alone.
 *
 * A port without a link costs its rails at once where a bundle has others. The
 * only rail of a bundle stays: links flap, and retries bridge that.
 */
#include "verbs/async.h"

#include <errno.h>

#define EVENTS_A_POLL 16

/* An event, and whom it may be about. */
struct match {
	const struct ibv_async_event *event;
	const struct kvpull_verbs_device *devices;
	const struct ibv_context *context;
};

static int is_of_port(const struct match *match,
		      const struct kvpull_verbs_device *device)
{
	return device->context == match->context &&
	       (int)device->port == match->event->element.port_num;
}

static int is_about(const struct match *match,
		    const struct kvpull_verbs_end *end)
{
	if (match->event->event_type == IBV_EVENT_PORT_ERR)
		return is_of_port(match, &match->devices[end->device]) &&
		       kvpull_verbs_bundle_has_other(end->bundle, end->device);
	if (match->event->event_type == IBV_EVENT_CQ_ERR)
		return end->cq && end->cq == match->event->element.cq;
	return end->qp && end->qp == match->event->element.qp;
}

static void ends_lose(const struct kvpull_verbs_connect *connect,
		      const struct match *match, const char *why)
{
	uint32_t at;

	for (at = 0; at < kvpull_verbs_connect_ends(connect); at++) {
		struct kvpull_verbs_end *end =
			kvpull_verbs_connect_end(connect, at);

		if (is_about(match, end))
			kvpull_verbs_end_lose(end, KVPULL_EPEER, why);
	}
}

/* Nothing else says that an address was taken away. */
static void addresses_look(struct kvpull_verbs_connect *connect,
			   const struct match *match)
{
	uint32_t at;

	for (at = 0; at < connect->shared->rail_count; at++)
		if (match->devices[at].context == match->context &&
		    !kvpull_verbs_device_has_address(&match->devices[at]))
			kvpull_verbs_connect_device_lost(
				connect, at, "left without its address");
}

static void port_say(const struct kvpull_verbs_connect *connect,
		     const struct match *match)
{
	const int is_up = match->event->event_type == IBV_EVENT_PORT_ACTIVE;
	uint32_t at;

	for (at = 0; at < connect->shared->rail_count; at++) {
		const struct kvpull_verbs_device *device = &match->devices[at];

		if (is_of_port(match, device))
			kvpull_log(connect->shared->log,
				   is_up ? KVPULL_LOG_INFO : KVPULL_LOG_WARN,
				   "verbs: %s: the port has %s link",
				   device->choice, is_up ? "a" : "no");
	}
}

static void event_take(struct kvpull_verbs_connect *connect,
		       const struct match *match)
{
	switch (match->event->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		kvpull_verbs_connect_devices_lost(connect, match->context,
						  "found broken by its driver");
		break;
	case IBV_EVENT_GID_CHANGE:
		addresses_look(connect, match);
		break;
	case IBV_EVENT_PORT_ERR:
		port_say(connect, match);
		ends_lose(connect, match, "its port has no link");
		break;
	case IBV_EVENT_PORT_ACTIVE:
		port_say(connect, match);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		ends_lose(connect, match,
			  "the device found its queue pair in error");
		break;
	case IBV_EVENT_CQ_ERR:
		ends_lose(connect, match,
			  "the device found its completion queue in error");
		break;
	default:
		break;
	}
}

int kvpull_verbs_async_poll(struct kvpull_verbs_connect *connect,
			    uint32_t device)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	struct ibv_context *context = shared->devices[device].context;
	struct ibv_async_event event;
	const struct match match = { .event = &event,
				     .devices = shared->devices,
				     .context = context };
	int left;

	for (left = EVENTS_A_POLL; left > 0; left--) {
		if (shared->fabric->ibv.get_async_event(context, &event))
			return errno == EAGAIN || errno == EINTR ?
				       0 :
				       KVPULL_EDEVICE;
		shared->fabric->ibv.ack_async_event(&event);
		event_take(connect, &match);
	}
	return 0;
}
