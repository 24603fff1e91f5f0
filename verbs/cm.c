/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event is copied and acknowledged before it is acted on: destroying an id
 * waits for its events.
 */
#include "verbs/cm.h"

#include <errno.h>
#include <string.h>

#include "verbs/accept.h"
#include "verbs/dial.h"

#define EVENTS_A_POLL 64

/*
 * Messages sent before the disconnect may lie in the queue: they are taken
 * first.
 */
static void hung_up(struct kvpull_verbs_end *end)
{
	if (end->role == KVPULL_VERBS_PEER && end->state == KVPULL_VERBS_OPEN)
		end->hung_up = 1;
	else
		kvpull_verbs_end_lose(end, KVPULL_EPEER, NULL);
}

static void step(struct kvpull_verbs_end *end,
		 const struct kvpull_verbs_cm_event *event)
{
	switch (event->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		kvpull_verbs_dial_resolved(end);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		kvpull_verbs_dial_routed(end);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		kvpull_verbs_dial_answered(end, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		kvpull_verbs_dial_rejected(end, event);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		kvpull_verbs_accept_established(end);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		hung_up(end);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		break;
	default:
		end->connected = 0;
		kvpull_verbs_end_lose(
			end, KVPULL_EPEER,
			end->shared->fabric->cm.event_str(event->type));
	}
}

static void event_copy(const struct rdma_cm_event *event,
		       struct kvpull_verbs_cm_event *copy)
{
	const void *bytes = event->param.conn.private_data;
	const size_t byte_count = event->param.conn.private_data_len;

	copy->id = event->id;
	copy->type = event->event;
	copy->status = event->status;
	copy->give.byte_count = 0;
	if (kvpull_is_give(bytes, byte_count) &&
	    byte_count <= sizeof(copy->give.bytes)) {
		copy->give.byte_count = (uint32_t)byte_count;
		memcpy(copy->give.bytes, bytes, byte_count);
	}
	copy->greeting_code = kvpull_verbs_greeting_get(
		event->param.conn.private_data,
		event->param.conn.private_data_len, &copy->greeting);
}

void kvpull_verbs_cm_poll(struct kvpull_verbs_connect *connect)
{
	const struct kvpull_fabric *fabric = connect->shared->fabric;
	struct rdma_cm_event *event;
	struct kvpull_verbs_cm_event copy;
	int left;

	for (left = EVENTS_A_POLL; left > 0; left--) {
		if (fabric->cm.get_cm_event(connect->channel, &event))
			return;
		event_copy(event, &copy);
		(void)fabric->cm.ack_cm_event(event);
		if (copy.type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			kvpull_verbs_connect_devices_lost(
				connect, copy.id->verbs, "removed");
		else if (copy.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			kvpull_verbs_accept_call(connect, &copy);
		else if (copy.id->context)
			step(copy.id->context, &copy);
	}
}
