/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: an address and port is a socket in the fabric's folder. */
#include "tests/fake/rdma/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REJECTED_BY_PROGRAM 28 /* IB_CM_REJ_CONSUMER_DEFINED */
#define VERSION_AT 4u          /* of a greeting, in the private data */
#define NOBODY_LISTENS 8       /* IB_CM_REJ_INVALID_SERVICE_ID */
#define PORT_MIN 1000u
#define PORT_COUNT 60000u
#define PORTS_A_PROCESS 16u

static struct end *end_cast(struct rdma_cm_id *id)
{
	return (struct end *)(void *)id;
}

static struct sockaddr_un place_of(const struct sockaddr_in *address)
{
	struct sockaddr_un place = { .sun_family = AF_UNIX };
	char ip[INET_ADDRSTRLEN];

	(void)inet_ntop(AF_INET, &address->sin_addr, ip, sizeof(ip));
	(void)snprintf(place.sun_path, sizeof(place.sun_path), "%s/%s-%u",
		       fake_rdma.folder, ip, ntohs(address->sin_port));
	return place;
}

static struct ibv_context *context_of(const struct sockaddr_in *address)
{
	uint32_t at;

	for (at = 0;
	     address->sin_family == AF_INET && at < fake_rdma.device_count;
	     at++)
		if (fake_rdma.addresses[at].s_addr == address->sin_addr.s_addr)
			return &fake_rdma.contexts[at];
	return NULL;
}

void fake_rdma_tell(struct end *end, enum rdma_cm_event_type type, int status,
		    const struct packet *packet)
{
	struct cm_channel *channel =
		(struct cm_channel *)(void *)end->id.channel;
	struct cm_event *event = calloc(1, sizeof(*event));

	if (!event)
		return;
	event->event.id = &end->id;
	event->event.event = type;
	event->event.status = status;
	if (packet && packet->byte_count) {
		memcpy(event->bytes, packet->bytes, packet->byte_count);
		event->event.param.conn.private_data = event->bytes;
		event->event.param.conn.private_data_len =
			(uint8_t)packet->byte_count;
	}
	if (channel->oldest)
		channel->newest->next = event;
	else
		channel->oldest = event;
	channel->newest = event;
	(void)eventfd_write(channel->channel.fd, 1);
}

int fake_rdma_send(const struct end *end, uint32_t kind, const void *bytes,
		   uint32_t byte_count)
{
	struct packet packet = { .kind = kind,
				 .byte_count = byte_count,
				 .domain = end->pair ?
						   end->pair->qp.pd->handle :
						   0,
				 .from = end->id.route.addr.src_sin };
	const size_t head = offsetof(struct packet, bytes);

	if (byte_count)
		memcpy(packet.bytes, bytes, byte_count);
	return send(end->socket, &packet, head + byte_count, MSG_NOSIGNAL) ==
			       (ssize_t)(head + byte_count) ?
		       0 :
		       -1;
}

static void watch(struct end *end)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = end };

	(void)epoll_ctl(fake_rdma.epoll, EPOLL_CTL_ADD, end->socket, &event);
}

static void hang_up(struct end *end)
{
	if (end->socket >= 0)
		(void)close(end->socket);
	end->socket = -1;
}

static struct end *end_make(struct rdma_event_channel *channel, void *context)
{
	struct end *end = calloc(1, sizeof(*end));

	if (!end)
		return NULL;
	end->socket = -1;
	end->id.channel = channel;
	end->id.context = context;
	end->next = fake_rdma.ends;
	fake_rdma.ends = end;
	return end;
}

void fake_rdma_called(struct end *listener)
{
	struct end *end = end_make(listener->id.channel, listener->id.context);

	if (!end)
		return;
	end->socket = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC);
	end->id.verbs = listener->id.verbs;
	end->id.port_num = 1;
	end->id.route.addr.src_sin = listener->id.route.addr.src_sin;
	if (end->socket >= 0)
		watch(end);
}

static void answered(struct end *end, const struct packet *packet)
{
	end->is_up = 1;
	end->domain = packet->domain;
	fake_rdma_tell(end, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, packet);
}

void fake_rdma_arrived(struct end *end, const struct packet *packet)
{
	const uint32_t kind = packet ? packet->kind : PACKET_BYE;

	if (kind == PACKET_CALL && fake_rdma_has("foreign")) {
		(void)fake_rdma_send(end, PACKET_REJECT, "nobody's", 8);
	} else if (kind == PACKET_CALL) {
		end->id.route.addr.dst_sin = packet->from;
		fake_rdma_tell(end, RDMA_CM_EVENT_CONNECT_REQUEST, 0, packet);
	} else if (kind == PACKET_ANSWER) {
		answered(end, packet);
	} else if (kind == PACKET_READY) {
		fake_rdma_tell(end, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	} else if (kind == PACKET_SEND && end->pair) {
		fake_rdma_receive(end->pair, packet);
	} else if (kind == PACKET_REJECT) {
		hang_up(end);
		fake_rdma_tell(end, RDMA_CM_EVENT_REJECTED, REJECTED_BY_PROGRAM,
			       packet);
	} else if (kind == PACKET_BYE) {
		hang_up(end);
		if (end->is_up)
			fake_rdma_tell(end, RDMA_CM_EVENT_DISCONNECTED, 0,
				       NULL);
		end->is_up = 0;
	}
}

/* ---- librdmacm's calls ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *channel = calloc(1, sizeof(*channel));

	fake_rdma_begin();
	if (channel)
		channel->channel.fd =
			eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	return (struct rdma_event_channel *)(void *)channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	(void)close(channel->fd);
	free(channel);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space space)
{
	struct end *end;

	(void)space;
	(void)pthread_mutex_lock(&fake_rdma.lock);
	end = end_make(channel, context);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	if (end)
		*id = &end->id;
	return end ? 0 : -1;
}

static void events_forget(const struct rdma_cm_id *id)
{
	struct cm_channel *channel = (struct cm_channel *)(void *)id->channel;
	struct cm_event *event;

	for (event = channel->oldest; event; event = event->next)
		if (event->event.id == id)
			event->event.id = NULL;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct end *end = end_cast(id);
	struct end **at = &fake_rdma.ends;
	struct sockaddr_un place;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	while (*at != end)
		at = &(*at)->next;
	*at = end->next;
	events_forget(id);
	if (end->pair)
		end->pair->end = NULL;
	if (end->is_listener) {
		place = place_of(&id->route.addr.src_sin);
		(void)unlink(place.sun_path);
	}
	hang_up(end);
	fake_rdma_untold(end);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	free(end);
	return 0;
}

/* Processes that have one address begin to look at places of their own. */
static void port_find(struct sockaddr_in *address)
{
	static uint32_t next;
	struct sockaddr_un place;

	if (!next)
		next = (uint32_t)getpid() * PORTS_A_PROCESS;
	do {
		address->sin_port =
			htons((uint16_t)(PORT_MIN + next++ % PORT_COUNT));
		place = place_of(address);
	} while (!access(place.sun_path, F_OK));
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	id->route.addr.src_sin = *(struct sockaddr_in *)(void *)address;
	id->verbs = context_of(&id->route.addr.src_sin);
	id->port_num = 1;
	if (!id->verbs) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	if (!id->route.addr.src_sin.sin_port)
		port_find(&id->route.addr.src_sin);
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from,
		      struct sockaddr *to, int timeout_ms)
{
	(void)timeout_ms;
	id->route.addr.src_sin = *(struct sockaddr_in *)(void *)from;
	id->route.addr.dst_sin = *(struct sockaddr_in *)(void *)to;
	id->verbs = context_of(&id->route.addr.src_sin);
	id->port_num = 1;
	(void)pthread_mutex_lock(&fake_rdma.lock);
	fake_rdma_tell(end_cast(id),
		       fake_rdma_has("no-address") ?
			       RDMA_CM_EVENT_ADDR_ERROR :
			       RDMA_CM_EVENT_ADDR_RESOLVED,
		       0, NULL);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)timeout_ms;
	(void)pthread_mutex_lock(&fake_rdma.lock);
	fake_rdma_tell(end_cast(id),
		       fake_rdma_has("no-route") ? RDMA_CM_EVENT_ROUTE_ERROR :
						   RDMA_CM_EVENT_ROUTE_RESOLVED,
		       0, NULL);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
		      int *mask)
{
	(void)id;
	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_INIT) {
		*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		return 0;
	}
	attr->path_mtu = IBV_MTU_4096;
	attr->max_rd_atomic = attr->max_dest_rd_atomic = UINT8_MAX;
	attr->retry_cnt = attr->rnr_retry = 7;
	if (attr->qp_state == IBV_QPS_RTR)
		*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_MIN_RNR_TIMER;
	else
		*mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return 0;
}

static void pair_link(struct end *end, uint32_t number)
{
	struct pair *pair = fake_rdma.pairs;

	while (pair && pair->qp.qp_num != number)
		pair = pair->next;
	end->pair = pair;
	if (pair)
		pair->end = end;
}

static int call_send(const struct end *end, const struct rdma_conn_param *param)
{
	uint8_t bytes[PRIVATE_BYTES_MAX];

	memcpy(bytes, param->private_data, param->private_data_len);
	bytes[VERSION_AT] += (uint8_t)fake_rdma_has("version");
	return fake_rdma_send(end, PACKET_CALL, bytes, param->private_data_len);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	const struct sockaddr_un place = place_of(&id->route.addr.dst_sin);
	struct end *end = end_cast(id);

	(void)pthread_mutex_lock(&fake_rdma.lock);
	pair_link(end, param->qp_num);
	if (fake_rdma_has("silent"))
		goto out;
	if (fake_rdma_has("unreachable")) {
		fake_rdma_tell(end, RDMA_CM_EVENT_UNREACHABLE, 0, NULL);
		goto out;
	}
	end->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(end->socket, (const struct sockaddr *)&place,
		    sizeof(place)) ||
	    call_send(end, param)) {
		hang_up(end);
		fake_rdma_tell(end, RDMA_CM_EVENT_REJECTED, NOBODY_LISTENS,
			       NULL);
		goto out;
	}
	watch(end);
out:
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}

/* A process that was killed left its socket: nobody answers there. */
static void place_clean(const struct sockaddr_un *place)
{
	const int caller = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (connect(caller, (const struct sockaddr *)place, sizeof(*place)) &&
	    errno == ECONNREFUSED)
		(void)unlink(place->sun_path);
	(void)close(caller);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	const struct sockaddr_un place = place_of(&id->route.addr.src_sin);
	struct end *end = end_cast(id);
	int code;

	end->socket = socket(AF_UNIX,
			     SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	place_clean(&place);
	code = bind(end->socket, (const struct sockaddr *)&place,
		    sizeof(place)) ||
	       listen(end->socket, backlog ? backlog : 16);
	if (code)
		return -1;
	end->is_listener = 1;
	(void)pthread_mutex_lock(&fake_rdma.lock);
	watch(end);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct end *end = end_cast(id);
	int code;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	pair_link(end, param->qp_num);
	end->is_up = 1;
	code = fake_rdma_send(end, PACKET_ANSWER, param->private_data,
			      param->private_data_len);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return code;
}

int rdma_establish(struct rdma_cm_id *id)
{
	return fake_rdma_send(end_cast(id), PACKET_READY, NULL, 0);
}

int rdma_reject(struct rdma_cm_id *id, const void *bytes, uint8_t byte_count)
{
	return fake_rdma_send(end_cast(id), PACKET_REJECT, bytes, byte_count);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct end *end = end_cast(id);

	(void)pthread_mutex_lock(&fake_rdma.lock);
	if (end->is_up)
		(void)fake_rdma_send(end, PACKET_BYE, NULL, 0);
	end->is_up = 0;
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *rdma_channel,
		      struct rdma_cm_event **event)
{
	struct cm_channel *channel = (struct cm_channel *)(void *)rdma_channel;
	struct cm_event *first;
	eventfd_t ignored;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	while ((first = channel->oldest) != NULL) {
		channel->oldest = first->next;
		(void)eventfd_read(rdma_channel->fd, &ignored);
		if (first->event.id)
			break;
		free(first);
	}
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	if (!first) {
		errno = EAGAIN;
		return -1;
	}
	*event = &first->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(event);
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value,
		    size_t bytes)
{
	(void)id;
	(void)level;
	(void)name;
	(void)value;
	(void)bytes;
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type type)
{
	static const char *const names[] = {
		[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
		[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
		[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
		[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
	};

	return type <= RDMA_CM_EVENT_REJECTED && names[type] ? names[type] :
							       "a CM event";
}
