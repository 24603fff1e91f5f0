/* SPDX-License-Identifier: Apache-2.0 */
/* The fake fabric's librdmacm: ids, their events, and who is told what. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/fake/verbs_state.h"

#define fake fake_verbs_state
#define REJECTED_BY_PROGRAM 28 /* IB_CM_REJ_CONSUMER_DEFINED */

static struct fake_event *tell(struct fake_id *id, enum rdma_cm_event_type type,
			       const void *private_data, uint8_t private_bytes)
{
	struct fake_channel *channel =
		(struct fake_channel *)(void *)id->id.channel;
	struct fake_event *event;

	if (id->stranger)
		return NULL;
	event = &channel->events[(channel->first + channel->count) % EVENTS_MAX];
	if (channel->count == EVENTS_MAX)
		return NULL;
	channel->count++;
	memset(event, 0, sizeof(*event));
	event->event.id = &id->id;
	event->event.event = type;
	if (private_data) {
		memcpy(event->private_data, private_data, private_bytes);
		event->event.param.conn.private_data = event->private_data;
		event->event.param.conn.private_data_len = private_bytes;
	}
	(void)eventfd_write(channel->channel.fd, 1);
	return event;
}

void fake_verbs_tell(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		     const void *private_data, uint8_t private_bytes)
{
	(void)tell((struct fake_id *)(void *)id, type, private_data,
		   private_bytes);
}

static int is_full(const struct rdma_event_channel *channel)
{
	return ((const struct fake_channel *)(const void *)channel)->count ==
	       EVENTS_MAX;
}

static struct rdma_event_channel *create_event_channel(void)
{
	struct fake_channel *channel = fake_verbs_make(sizeof(*channel));

	if (!channel)
		return NULL;
	channel->channel.fd =
		eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	return &channel->channel;
}

static struct fake_id *id_make(struct rdma_event_channel *channel,
			       void *context)
{
	struct fake_id *id = fake_verbs_make(sizeof(*id));
	uint32_t i;

	for (i = 0; id && i < IDS_MAX; i++) {
		if (fake.ids[i])
			continue;
		fake.ids[i] = id;
		id->id.verbs = &fake.contexts[0];
		id->id.channel = channel;
		id->id.context = context;
		return id;
	}
	return NULL;
}

static int create_id(struct rdma_event_channel *channel,
		     struct rdma_cm_id **out, void *context,
		     enum rdma_port_space space)
{
	struct fake_id *id = id_make(channel, context);

	(void)space;
	if (!id)
		return -1;
	*out = &id->id;
	return 0;
}

static void events_forget(const struct rdma_cm_id *id)
{
	struct fake_channel *channel =
		(struct fake_channel *)(void *)id->channel;
	uint32_t i;

	for (i = 0; i < channel->count; i++) {
		struct fake_event *event =
			&channel->events[(channel->first + i) % EVENTS_MAX];

		if (event->event.id == id)
			event->event.id = NULL;
	}
}

static int destroy_id(struct rdma_cm_id *cm_id)
{
	struct fake_id *id = (struct fake_id *)(void *)cm_id;
	uint32_t i;

	events_forget(cm_id);
	if (id->other && id->other->stranger)
		free(id->other);
	if (id->qp)
		id->qp->id = NULL;
	for (i = 0; i < IDS_MAX; i++) {
		if (fake.ids[i] == id)
			fake.ids[i] = NULL;
		else if (fake.ids[i] && fake.ids[i]->other == id)
			fake.ids[i]->other = NULL;
	}
	return fake_verbs_unmake(id);
}

/* Calls that nobody has looked at die with their listener, as in a kernel. */
static void destroy_event_channel(struct rdma_event_channel *cm_channel)
{
	struct fake_channel *channel =
		(struct fake_channel *)(void *)cm_channel;
	uint32_t i;

	for (i = 0; i < channel->count; i++) {
		struct rdma_cm_event *event =
			&channel->events[(channel->first + i) % EVENTS_MAX]
				 .event;

		if (event->id && event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			(void)destroy_id(event->id);
	}
	(void)close(cm_channel->fd);
	(void)fake_verbs_unmake(cm_channel);
}

/* As a kernel says of an address that no interface has. */
static int is_absent(const struct sockaddr_in *address)
{
	const uint32_t ip = ntohl(address->sin_addr.s_addr);
	const uint32_t index = ip >> 8 & 0xff;

	return index < fake.device_count &&
	       (fake.absent >> index & 1 ||
		(ip & 0xff) != 1u + fake.moved[index]);
}

static void address_copy(struct sockaddr_storage *to,
			 const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from,
	       from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					     sizeof(struct sockaddr_in));
}

static int shape_bind(struct rdma_cm_id *id, const struct sockaddr *address)
{
	if (fake_verbs_shape_bind(id, address))
		return -1;
	address_copy(&id->route.addr.src_storage, address);
	/* The port of an IPv6 address lies at the same place. */
	if (!id->route.addr.src_sin.sin_port)
		id->route.addr.src_sin.sin_port = htons(++fake.next_port);
	return 0;
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	if (fake.shapes)
		return shape_bind(id, address);
	if (is_absent((struct sockaddr_in *)(void *)address)) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	id->route.addr.src_sin = *(struct sockaddr_in *)(void *)address;
	id->verbs = fake_verbs_context(&id->route.addr.src_sin);
	id->port_num = 1;
	if (fake_verbs_knobs.port_taken &&
	    id->route.addr.src_sin.sin_port == fake_verbs_knobs.port_taken) {
		errno = EADDRINUSE;
		return -1;
	}
	if (!id->route.addr.src_sin.sin_port)
		id->route.addr.src_sin.sin_port = htons(++fake.next_port);
	return 0;
}

static enum fake_verbs_answer answer_to(const struct rdma_cm_id *id)
{
	const uint32_t device = fake_verbs_knobs.answer_device;

	return device && device != fake_verbs_index(id->verbs) + 1 ?
		       FAKE_VERBS_ACCEPT :
		       fake_verbs_knobs.answer;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from,
			struct sockaddr *to, int timeout_ms)
{
	(void)timeout_ms;
	address_copy(&id->route.addr.src_storage, from);
	address_copy(&id->route.addr.dst_storage, to);
	if (!fake.shapes)
		id->verbs = fake_verbs_context(&id->route.addr.src_sin);
	else if (fake_verbs_shape_bind(id, from))
		return -1;
	(void)tell((struct fake_id *)(void *)id,
		   answer_to(id) == FAKE_VERBS_ADDR_ERROR ?
			   RDMA_CM_EVENT_ADDR_ERROR :
			   RDMA_CM_EVENT_ADDR_RESOLVED,
		   NULL, 0);
	return 0;
}

static int resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)timeout_ms;
	(void)tell((struct fake_id *)(void *)id,
		   answer_to(id) == FAKE_VERBS_ROUTE_ERROR ?
			   RDMA_CM_EVENT_ROUTE_ERROR :
			   RDMA_CM_EVENT_ROUTE_RESOLVED,
		   NULL, 0);
	return 0;
}

/* The attributes of a transition; like the kernel, it gives full access. */
static int init_qp_attr(struct rdma_cm_id *cm_id, struct ibv_qp_attr *attr,
			int *mask)
{
	const struct fake_id *id = (struct fake_id *)(void *)cm_id;

	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_INIT) {
		*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		attr->qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
		return 0;
	}
	if (!id->other) {
		errno = EINVAL;
		return -1;
	}
	/* The CM knows the caller's end of the path alone. */
	attr->path_mtu = fake_verbs_mtu(id->initiator ? id->id.verbs :
							id->other->id.verbs);
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

/* Return: 0, or -1: no such queue pair. */
static int qp_link(struct fake_id *id, uint32_t number)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++) {
		struct fake_qp *qp = fake.qps[i];

		if (!qp || qp->qp.qp_num != number)
			continue;
		qp->id = id;
		id->qp = qp;
		return 0;
	}
	errno = EINVAL;
	return -1;
}

/* Port and address, of either family. */
static int is_same(const struct rdma_addr *own, const struct rdma_addr *other)
{
	const struct sockaddr_in6 *one = &own->src_sin6;
	const struct sockaddr_in6 *to = &other->dst_sin6;

	if (one->sin6_family != to->sin6_family ||
	    one->sin6_port != to->sin6_port)
		return 0;
	return one->sin6_family == AF_INET6 ?
		       !memcmp(&one->sin6_addr, &to->sin6_addr, 16) :
		       own->src_sin.sin_addr.s_addr ==
			       other->dst_sin.sin_addr.s_addr;
}

static struct fake_id *listener_find(const struct rdma_addr *address)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->listening &&
		    is_same(&fake.ids[i]->id.route.addr, address))
			return fake.ids[i];
	return NULL;
}

static void reject_tell(struct fake_id *id, const void *private_data,
			uint8_t private_bytes)
{
	struct fake_event *event =
		tell(id, RDMA_CM_EVENT_REJECTED, private_data, private_bytes);

	if (event)
		event->event.status = REJECTED_BY_PROGRAM;
}

static int cm_connect(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	static const enum rdma_cm_event_type errors[FAKE_VERBS_ANSWERS] = {
		[FAKE_VERBS_UNREACHABLE] = RDMA_CM_EVENT_UNREACHABLE,
		[FAKE_VERBS_CONNECT_ERROR] = RDMA_CM_EVENT_CONNECT_ERROR,
		[FAKE_VERBS_REJECTED] = RDMA_CM_EVENT_REJECTED,
	};
	const enum fake_verbs_answer answer = answer_to(cm_id);
	struct fake_id *id = (struct fake_id *)(void *)cm_id;
	struct fake_id *listener = listener_find(&cm_id->route.addr);
	struct fake_id *call;

	/* The CM has no more room for a request's private data. */
	if (param->private_data_len >
	    sizeof(((struct fake_event *)0)->private_data)) {
		errno = EINVAL;
		return -1;
	}
	if (qp_link(id, param->qp_num))
		return -1;
	id->initiator = 1;
	fake.calls++;
	if (answer == FAKE_VERBS_SILENCE)
		return 0;
	if (answer == FAKE_VERBS_REJECTED_SAID) {
		reject_tell(id, fake_verbs_knobs.rejection,
			    sizeof(fake_verbs_knobs.rejection));
		return 0;
	}
	/* An answer that came too late for its own step is none. */
	if (errors[answer] || !listener) {
		(void)tell(id,
			   listener ? errors[answer] : RDMA_CM_EVENT_REJECTED,
			   NULL, 0);
		return 0;
	}
	/* A call that nobody is told of would stay for ever. */
	if (is_full(listener->id.channel)) {
		(void)tell(id, RDMA_CM_EVENT_REJECTED, NULL, 0);
		return 0;
	}
	call = id_make(listener->id.channel, listener->id.context);
	if (!call)
		return -1;
	call->id.verbs = listener->id.verbs;
	call->other = id;
	id->other = call;
	call->id.route.addr.dst_storage = cm_id->route.addr.src_storage;
	call->id.route.addr.src_storage = cm_id->route.addr.dst_storage;
	(void)tell(call, RDMA_CM_EVENT_CONNECT_REQUEST, param->private_data,
		   param->private_data_len);
	return 0;
}

static int cm_listen(struct rdma_cm_id *id, int backlog)
{
	(void)backlog;
	((struct fake_id *)(void *)id)->listening = 1;
	return 0;
}

static int cm_accept(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)(void *)cm_id;

	if (qp_link(id, param->qp_num))
		return -1;
	if (!id->other)
		return 0;
	id->connected = id->other->connected = 1;
	if (fake_verbs_knobs.eager)
		fake_verbs_run();
	(void)tell(id->other, RDMA_CM_EVENT_CONNECT_RESPONSE,
		   param->private_data, param->private_data_len);
	if (id->other->stranger)
		(void)tell(id, RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
	return 0;
}

static int cm_establish(struct rdma_cm_id *cm_id)
{
	const struct fake_id *id = (struct fake_id *)(void *)cm_id;

	if (id->other)
		(void)tell(id->other, RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
	return 0;
}

static int cm_reject(struct rdma_cm_id *cm_id, const void *private_data,
		     uint8_t private_bytes)
{
	struct fake_id *id = (struct fake_id *)(void *)cm_id;

	if (id->other)
		reject_tell(id->other, private_data, private_bytes);
	return 0;
}

static int cm_disconnect(struct rdma_cm_id *cm_id)
{
	struct fake_id *id = (struct fake_id *)(void *)cm_id;

	if (id->connected && id->other && id->other->connected &&
	    !fake_verbs_knobs.mute)
		(void)tell(id->other, RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
	id->connected = 0;
	return 0;
}

static int get_cm_event(struct rdma_event_channel *cm_channel,
			struct rdma_cm_event **event)
{
	struct fake_channel *channel =
		(struct fake_channel *)(void *)cm_channel;
	eventfd_t ignored;

	while (channel->count) {
		struct fake_event *first = &channel->events[channel->first];

		channel->first = (channel->first + 1) % EVENTS_MAX;
		channel->count--;
		(void)eventfd_read(cm_channel->fd, &ignored);
		if (!first->event.id)
			continue;
		*event = &first->event;
		return 0;
	}
	errno = EAGAIN;
	return -1;
}

static int ack_cm_event(struct rdma_cm_event *event)
{
	(void)event;
	return 0;
}

static uint16_t get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

static struct ibv_context **get_devices(int *count)
{
	struct ibv_context **list =
		fake_verbs_make((FAKE_VERBS_DEVICES_MAX + 1) * sizeof(*list));
	uint32_t i;

	fake.listings++;
	if (!list)
		return NULL;
	*count = 0;
	for (i = 0; i < fake.device_count; i++)
		if (!(fake.removed >> i & 1) &&
		    !(fake.shapes && fake.shapes[i].hidden))
			list[(*count)++] = &fake.contexts[i];
	return list;
}

static void free_devices(struct ibv_context **list)
{
	(void)fake_verbs_unmake(list);
}

static int set_option(struct rdma_cm_id *id, int level, int name, void *value,
		      size_t bytes)
{
	(void)id;
	(void)level;
	(void)name;
	(void)value;
	(void)bytes;
	return 0;
}

static const char *event_str(enum rdma_cm_event_type type)
{
	(void)type;
	return "a CM event";
}

void fake_verbs_cm_fill(struct kvpull_fabric *fabric)
{
	fabric->cm.create_event_channel = create_event_channel;
	fabric->cm.destroy_event_channel = destroy_event_channel;
	fabric->cm.create_id = create_id;
	fabric->cm.destroy_id = destroy_id;
	fabric->cm.bind_addr = bind_addr;
	fabric->cm.resolve_addr = resolve_addr;
	fabric->cm.resolve_route = resolve_route;
	fabric->cm.init_qp_attr = init_qp_attr;
	fabric->cm.connect = cm_connect;
	fabric->cm.listen = cm_listen;
	fabric->cm.accept = cm_accept;
	fabric->cm.establish = cm_establish;
	fabric->cm.reject = cm_reject;
	fabric->cm.disconnect = cm_disconnect;
	fabric->cm.get_cm_event = get_cm_event;
	fabric->cm.ack_cm_event = ack_cm_event;
	fabric->cm.get_src_port = get_src_port;
	fabric->cm.get_devices = get_devices;
	fabric->cm.free_devices = free_devices;
	fabric->cm.set_option = set_option;
	fabric->cm.event_str = event_str;
}

void fake_verbs_retries(int initiator, uint32_t *lost, uint32_t *full)
{
	uint32_t i;

	*lost = *full = 0;
	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->qp &&
		    (int)fake.ids[i]->initiator == initiator) {
			*lost = fake.ids[i]->qp->retry_count;
			*full = fake.ids[i]->qp->rnr_retry_count;
		}
}

void fake_verbs_reads(int initiator, uint32_t *sent, uint32_t *answered)
{
	uint32_t i;

	*sent = *answered = UINT32_MAX;
	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->qp &&
		    (int)fake.ids[i]->initiator == initiator) {
			*sent = fake.ids[i]->qp->reads_sent;
			*answered = fake.ids[i]->qp->reads_answered;
		}
}

uint32_t fake_verbs_access(int initiator)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->qp &&
		    (int)fake.ids[i]->initiator == initiator)
			return fake.ids[i]->qp->access;
	return 0;
}

void *fake_verbs_owner(int initiator)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->qp &&
		    (int)fake.ids[i]->initiator == initiator)
			return fake.ids[i]->qp->qp.qp_context;
	return NULL;
}

void fake_verbs_remove_device(void)
{
	uint32_t i;

	fake.removed = UINT32_MAX;
	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i])
			(void)tell(fake.ids[i], RDMA_CM_EVENT_DEVICE_REMOVAL,
				   NULL, 0);
}

void fake_verbs_cut(void)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->connected)
			(void)tell(fake.ids[i], RDMA_CM_EVENT_DISCONNECTED,
				   NULL, 0);
}

void fake_verbs_cut_device(uint32_t device)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->connected &&
		    fake.ids[i]->id.verbs == &fake.contexts[device])
			(void)tell(fake.ids[i], RDMA_CM_EVENT_DISCONNECTED,
				   NULL, 0);
}

static int is_owned(const struct fake_id *id, const void *owner)
{
	return id && id->qp && id->qp->qp.qp_context == owner;
}

void fake_verbs_cut_owner(const void *owner)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->connected &&
		    (is_owned(fake.ids[i], owner) ||
		     is_owned(fake.ids[i]->other, owner)))
			(void)tell(fake.ids[i], RDMA_CM_EVENT_DISCONNECTED,
				   NULL, 0);
}

int fake_verbs_stranger(const char *address, const void *private_data,
			uint8_t private_bytes)
{
	struct fake_id *stranger = calloc(1, sizeof(*stranger));
	struct fake_id *listener = NULL;
	struct fake_id *call;
	uint32_t i;

	for (i = 0; i < IDS_MAX && !listener; i++)
		if (fake.ids[i] && fake.ids[i]->listening)
			listener = fake.ids[i];
	call = listener ? id_make(listener->id.channel, NULL) : NULL;
	if (!stranger || !call) {
		free(stranger);
		return -1;
	}
	stranger->stranger = stranger->initiator = 1;
	stranger->other = call;
	call->other = stranger;
	call->id.verbs = stranger->id.verbs = listener->id.verbs;
	call->id.route.addr.dst_sin.sin_family = AF_INET;
	(void)inet_pton(AF_INET, address,
			&call->id.route.addr.dst_sin.sin_addr);
	(void)tell(call, RDMA_CM_EVENT_CONNECT_REQUEST, private_data,
		   private_bytes);
	return 0;
}

uint32_t fake_verbs_strangers(void)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		count += fake.ids[i] && fake.ids[i]->other &&
			 fake.ids[i]->other->stranger && fake.ids[i]->connected;
	return count;
}
