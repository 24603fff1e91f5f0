/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work requests are carried out when a completion queue is polled, in the order
 * in which they were posted to their queue pair. One that fails moves its queue
 * pair to ERR; all that is left in it is flushed.
 */
#include "tests/fake/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define QUEUE_MAX 2048u
#define PARTS_MAX 32
#define IDS_MAX 256u
#define REGIONS_MAX 512u
#define EVENTS_MAX 64u

struct fake_send {
	struct ibv_send_wr request;
	struct ibv_sge parts[PARTS_MAX];
};

struct fake_receive {
	uint64_t wr_id;
	struct ibv_sge part;
};

struct fake_cq {
	struct ibv_cq cq; /* first */
	struct ibv_wc *ring;
	uint32_t first, count;
	uint32_t armed;
	uint32_t told; /* an event waits in the channel */
};

struct fake_id;

struct fake_qp {
	struct ibv_qp qp; /* first */
	struct fake_id *id;
	struct fake_send *sends; /* [QUEUE_MAX] */
	struct fake_receive *receives;
	uint32_t send_first, send_count;
	uint32_t receive_first, receive_count;
	uint32_t send_max, receive_max;
	uint32_t access;
	uint32_t broken;
};

struct fake_event {
	struct rdma_cm_event event;
	uint8_t private_data[56];
};

struct fake_channel {
	struct rdma_event_channel channel; /* first */
	struct fake_event events[EVENTS_MAX];
	uint32_t first, count;
};

struct fake_id {
	struct rdma_cm_id id; /* first */
	struct fake_id *other;
	uint32_t initiator;
	uint32_t listening;
	uint32_t connected;
};

struct fake_comp_channel {
	struct ibv_comp_channel channel; /* first */
	struct fake_cq *cqs[IDS_MAX];
	uint32_t count;
};

struct fake_region {
	struct ibv_mr mr;
	int access;
};

struct fake_verbs_knobs fake_verbs_knobs;

static struct {
	struct ibv_device device;
	struct ibv_context context;
	struct fake_id *ids[IDS_MAX];
	struct fake_region *regions[REGIONS_MAX];
	uint32_t live;
	uint32_t counts[FAKE_VERBS_KINDS];
	uint32_t doorbells;
	uint32_t next_key;
	uint16_t next_port;
} fake;

static const struct kvpull_fabric fabric;

/* Return: 1 if this one may be made. */
static int may_make(void)
{
	if (fake_verbs_knobs.make_at && !--fake_verbs_knobs.make_at) {
		errno = ENOMEM;
		return 0;
	}
	fake.live++;
	return 1;
}

static void *make(size_t bytes)
{
	return may_make() ? calloc(1, bytes) : NULL;
}

static int unmake(void *object)
{
	fake.live--;
	free(object);
	return 0;
}

/* ---- completions ---- */

static void channel_tell(struct fake_cq *cq)
{
	struct fake_comp_channel *channel =
		(struct fake_comp_channel *)(void *)cq->cq.channel;

	if (!cq->armed || cq->told)
		return;
	cq->armed = 0;
	cq->told = 1;
	channel->cqs[channel->count++] = cq;
	(void)eventfd_write(channel->channel.fd, 1);
}

static void complete(struct fake_qp *qp, uint64_t wr_id,
		     enum ibv_wc_status status, uint32_t byte_count)
{
	struct fake_cq *cq = (struct fake_cq *)(void *)qp->qp.send_cq;
	struct ibv_wc *wc =
		&cq->ring[(cq->first + cq->count++) % (4 * QUEUE_MAX)];

	*wc = (struct ibv_wc){ .wr_id = wr_id,
			       .status = status,
			       .byte_len = byte_count,
			       .qp_num = qp->qp.qp_num };
	channel_tell(cq);
}

static void flush(struct fake_qp *qp)
{
	qp->broken = 1;
	for (; qp->send_count; qp->send_count--) {
		complete(qp, qp->sends[qp->send_first].request.wr_id,
			 IBV_WC_WR_FLUSH_ERR, 0);
		qp->send_first = (qp->send_first + 1) % QUEUE_MAX;
	}
	for (; qp->receive_count; qp->receive_count--) {
		complete(qp, qp->receives[qp->receive_first].wr_id,
			 IBV_WC_WR_FLUSH_ERR, 0);
		qp->receive_first = (qp->receive_first + 1) % QUEUE_MAX;
	}
}

/* Return: the status that the test wants for this one. */
static enum ibv_wc_status status_of(enum fake_verbs_kind kind)
{
	fake.counts[kind]++;
	if (!fake_verbs_knobs.fail_at[kind] || --fake_verbs_knobs.fail_at[kind])
		return IBV_WC_SUCCESS;
	return fake_verbs_knobs.fail_status;
}

static const struct fake_region *region_find(uint32_t key, uint64_t address,
					     uint64_t bytes)
{
	uint32_t i;

	for (i = 0; i < REGIONS_MAX; i++) {
		const struct fake_region *region = fake.regions[i];
		uint64_t at;

		if (!region || region->mr.rkey != key)
			continue;
		at = address - (uint64_t)(uintptr_t)region->mr.addr;
		if (at <= region->mr.length && bytes <= region->mr.length - at)
			return region;
	}
	return NULL;
}

static enum ibv_wc_status read_do(const struct fake_qp *qp,
				  const struct fake_send *send)
{
	const struct fake_id *other = qp->id->other;
	const struct fake_qp *remote =
		other ? (struct fake_qp *)(void *)other->id.qp : NULL;
	const struct fake_region *from;
	uint64_t address = send->request.wr.rdma.remote_addr;
	uint64_t bytes = 0;
	int i;

	if (!remote || remote->broken)
		return IBV_WC_RETRY_EXC_ERR;
	for (i = 0; i < send->request.num_sge; i++)
		bytes += send->parts[i].length;
	from = region_find(send->request.wr.rdma.rkey, address, bytes);
	if (!from || !(from->access & IBV_ACCESS_REMOTE_READ) ||
	    !(remote->access & IBV_ACCESS_REMOTE_READ))
		return IBV_WC_REM_ACCESS_ERR;
	for (i = 0; i < send->request.num_sge; i++) {
		const struct ibv_sge *part = &send->parts[i];
		const struct fake_region *to =
			region_find(part->lkey, part->addr, part->length);

		if (!to || !(to->access & IBV_ACCESS_LOCAL_WRITE))
			return IBV_WC_LOC_PROT_ERR;
		memcpy((void *)(uintptr_t)part->addr,
		       (const void *)(uintptr_t)address, part->length);
		address += part->length;
	}
	return IBV_WC_SUCCESS;
}

/* Return: 0; -1: it has no receive buffer. */
static int receive_do(struct fake_qp *qp, const void *bytes,
		      uint32_t byte_count)
{
	struct fake_receive *receive = &qp->receives[qp->receive_first];
	enum ibv_wc_status status;

	if (!qp->receive_count)
		return -1;
	qp->receive_first = (qp->receive_first + 1) % QUEUE_MAX;
	qp->receive_count--;
	status = status_of(FAKE_VERBS_RECEIVE);
	if (byte_count > receive->part.length)
		status = IBV_WC_LOC_LEN_ERR;
	if (status == IBV_WC_SUCCESS)
		memcpy((void *)(uintptr_t)receive->part.addr, bytes,
		       byte_count);
	complete(qp, receive->wr_id, status, byte_count);
	if (status != IBV_WC_SUCCESS)
		flush(qp);
	return 0;
}

static enum ibv_wc_status send_do(const struct fake_qp *qp,
				  const struct fake_send *send)
{
	const struct fake_id *other = qp->id->other;
	struct fake_qp *remote =
		other ? (struct fake_qp *)(void *)other->id.qp : NULL;

	if (!remote || remote->broken)
		return IBV_WC_RETRY_EXC_ERR;
	/* The credits' promise: there always is one. */
	if (receive_do(remote, (const void *)(uintptr_t)send->parts[0].addr,
		       send->parts[0].length))
		return IBV_WC_RNR_RETRY_EXC_ERR;
	return IBV_WC_SUCCESS;
}

static enum fake_verbs_kind kind_of(const struct fake_send *send)
{
	if (send->request.opcode == IBV_WR_SEND)
		return FAKE_VERBS_SEND;
	return send->parts[0].length > 32 || send->request.num_sge > 1 ?
		       FAKE_VERBS_READ :
		       FAKE_VERBS_CHECK;
}

static void qp_run(struct fake_qp *qp)
{
	while (qp->send_count && !qp->broken) {
		const struct fake_send *send = &qp->sends[qp->send_first];
		const enum fake_verbs_kind kind = kind_of(send);
		enum ibv_wc_status status = status_of(kind);

		if (status == IBV_WC_SUCCESS)
			status = kind == FAKE_VERBS_SEND ? send_do(qp, send) :
							   read_do(qp, send);
		qp->send_first = (qp->send_first + 1) % QUEUE_MAX;
		qp->send_count--;
		if (status != IBV_WC_SUCCESS ||
		    send->request.send_flags & IBV_SEND_SIGNALED)
			complete(qp, send->request.wr_id, status, 0);
		if (status != IBV_WC_SUCCESS)
			flush(qp);
	}
}

static void all_run(void)
{
	uint32_t i;

	if (fake_verbs_knobs.held)
		return;
	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->id.qp)
			qp_run((struct fake_qp *)(void *)fake.ids[i]->id.qp);
}

static int poll_cq(struct ibv_cq *ibv_cq, int capacity, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)(void *)ibv_cq;
	int count = 0;

	all_run();
	while (cq->count && count < capacity) {
		wc[count++] = cq->ring[cq->first];
		cq->first = (cq->first + 1) % (4 * QUEUE_MAX);
		cq->count--;
	}
	return count;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)solicited;
	((struct fake_cq *)(void *)cq)->armed = 1;
	return 0;
}

static int post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *request,
		     struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)(void *)ibv_qp;
	uint32_t number = 1;

	fake.doorbells++;
	for (; request; request = request->next, number++) {
		struct fake_send *send;

		*bad = request;
		if (fake_verbs_knobs.post_times &&
		    number == fake_verbs_knobs.post_at) {
			fake_verbs_knobs.post_times--;
			return fake_verbs_knobs.post_error;
		}
		if (qp->send_count == qp->send_max)
			return ENOMEM;
		send = &qp->sends[(qp->send_first + qp->send_count) % QUEUE_MAX];
		send->request = *request;
		memcpy(send->parts, request->sg_list,
		       (size_t)request->num_sge * sizeof(send->parts[0]));
		qp->send_count++;
	}
	if (qp->broken)
		flush(qp);
	return 0;
}

static int post_recv(struct ibv_qp *ibv_qp, struct ibv_recv_wr *request,
		     struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)(void *)ibv_qp;
	struct fake_receive *receive;

	*bad = request;
	if (qp->receive_count == qp->receive_max)
		return ENOMEM;
	receive = &qp->receives[(qp->receive_first + qp->receive_count) %
				QUEUE_MAX];
	receive->wr_id = request->wr_id;
	receive->part = request->sg_list[0];
	qp->receive_count++;
	if (qp->broken)
		flush(qp);
	return 0;
}

/* ---- libibverbs ---- */

static const char *get_device_name(struct ibv_device *device)
{
	return device->name;
}

static int query_device(struct ibv_context *context,
			struct ibv_device_attr *attr)
{
	(void)context;
	*attr = (struct ibv_device_attr){ .phys_port_cnt = 1,
					  .max_qp_wr = QUEUE_MAX,
					  .max_cqe = 4 * QUEUE_MAX,
					  .max_sge = PARTS_MAX,
					  .max_sge_rd = PARTS_MAX,
					  .max_qp_rd_atom = 16,
					  .max_mr_size = UINT64_MAX };
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port,
		      struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)compat;

	(void)context;
	(void)port;
	attr->state = IBV_PORT_ACTIVE;
	attr->active_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = 2;
	attr->active_width = 1;
	attr->active_speed = 32;
	return 0;
}

static int query_gid(struct ibv_context *context, uint32_t port,
		     uint32_t gid_index, struct ibv_gid_entry *entry,
		     uint32_t flags, size_t bytes)
{
	static const uint8_t gids[2][16] = {
		{ 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 },
		{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 66, 0, 1 },
	};

	(void)context;
	(void)port;
	(void)flags;
	(void)bytes;
	memcpy(entry->gid.raw, gids[gid_index], 16);
	entry->gid_type = IBV_GID_TYPE_ROCE_V2;
	return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = make(sizeof(*pd));

	if (pd)
		pd->context = context;
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	return unmake(pd);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *base, size_t bytes,
			     int access)
{
	struct fake_region *region = make(sizeof(*region));
	uint32_t i;

	for (i = 0; region && i < REGIONS_MAX; i++) {
		if (fake.regions[i])
			continue;
		fake.regions[i] = region;
		region->access = access;
		region->mr.context = pd->context;
		region->mr.pd = pd;
		region->mr.addr = base;
		region->mr.length = bytes;
		region->mr.lkey = region->mr.rkey = ++fake.next_key;
		return &region->mr;
	}
	return NULL;
}

static int dereg_mr(struct ibv_mr *mr)
{
	uint32_t i;

	for (i = 0; i < REGIONS_MAX; i++)
		if (fake.regions[i] && &fake.regions[i]->mr == mr)
			fake.regions[i] = NULL;
	return unmake(mr);
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
	struct fake_comp_channel *channel = make(sizeof(*channel));

	if (!channel)
		return NULL;
	channel->channel.context = context;
	channel->channel.fd =
		eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	return &channel->channel;
}

static int destroy_comp_channel(struct ibv_comp_channel *channel)
{
	(void)close(channel->fd);
	return unmake(channel);
}

static struct ibv_cq *create_cq(struct ibv_context *context, int entries,
				void *cq_context,
				struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq = make(sizeof(*cq));

	(void)entries;
	(void)vector;
	if (!cq)
		return NULL;
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->ring = calloc(4 * QUEUE_MAX, sizeof(*cq->ring));
	return &cq->cq;
}

static int destroy_cq(struct ibv_cq *ibv_cq)
{
	struct fake_cq *cq = (struct fake_cq *)(void *)ibv_cq;
	struct fake_comp_channel *channel =
		(struct fake_comp_channel *)(void *)ibv_cq->channel;
	uint32_t i;

	for (i = 0; i < channel->count; i++)
		if (channel->cqs[i] == cq)
			channel->cqs[i] = NULL;
	free(cq->ring);
	return unmake(cq);
}

static int modify_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)(void *)ibv_qp;

	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->access = attr->qp_access_flags;
	/* What is held is in the wire: it is not flushed yet. */
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR &&
	    !fake_verbs_knobs.held)
		flush(qp);
	return 0;
}

static int get_cq_event(struct ibv_comp_channel *ibv_channel,
			struct ibv_cq **cq, void **context)
{
	struct fake_comp_channel *channel =
		(struct fake_comp_channel *)(void *)ibv_channel;
	eventfd_t ignored;

	while (channel->count) {
		struct fake_cq *last = channel->cqs[--channel->count];

		(void)eventfd_read(channel->channel.fd, &ignored);
		if (!last)
			continue;
		last->told = 0;
		*cq = &last->cq;
		*context = last->cq.cq_context;
		return 0;
	}
	errno = EAGAIN;
	return -1;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	(void)cq;
	(void)count;
}

static const char *wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_WR_FLUSH_ERR ? "flushed" : "failed";
}

/* ---- librdmacm ---- */

static void tell(struct fake_id *id, enum rdma_cm_event_type type,
		 const void *private_data, uint8_t private_bytes)
{
	struct fake_channel *channel =
		(struct fake_channel *)(void *)id->id.channel;
	struct fake_event *event =
		&channel->events[(channel->first + channel->count) % EVENTS_MAX];

	if (channel->count == EVENTS_MAX)
		return;
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
}

static struct rdma_event_channel *create_event_channel(void)
{
	struct fake_channel *channel = make(sizeof(*channel));

	if (!channel)
		return NULL;
	channel->channel.fd =
		eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	return &channel->channel;
}

static struct fake_id *id_make(struct rdma_event_channel *channel,
			       void *context)
{
	struct fake_id *id = make(sizeof(*id));
	uint32_t i;

	for (i = 0; id && i < IDS_MAX; i++) {
		if (fake.ids[i])
			continue;
		fake.ids[i] = id;
		id->id.verbs = &fake.context;
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
	for (i = 0; i < IDS_MAX; i++) {
		if (fake.ids[i] == id)
			fake.ids[i] = NULL;
		else if (fake.ids[i] && fake.ids[i]->other == id)
			fake.ids[i]->other = NULL;
	}
	return unmake(id);
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
	(void)unmake(cm_channel);
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	id->route.addr.src_sin = *(struct sockaddr_in *)(void *)address;
	if (!id->route.addr.src_sin.sin_port)
		id->route.addr.src_sin.sin_port = htons(++fake.next_port);
	return 0;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from,
			struct sockaddr *to, int timeout_ms)
{
	(void)timeout_ms;
	id->route.addr.src_sin = *(struct sockaddr_in *)(void *)from;
	id->route.addr.dst_sin = *(struct sockaddr_in *)(void *)to;
	tell((struct fake_id *)(void *)id,
	     fake_verbs_knobs.answer == FAKE_VERBS_ADDR_ERROR ?
		     RDMA_CM_EVENT_ADDR_ERROR :
		     RDMA_CM_EVENT_ADDR_RESOLVED,
	     NULL, 0);
	return 0;
}

static int resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)timeout_ms;
	tell((struct fake_id *)(void *)id,
	     fake_verbs_knobs.answer == FAKE_VERBS_ROUTE_ERROR ?
		     RDMA_CM_EVENT_ROUTE_ERROR :
		     RDMA_CM_EVENT_ROUTE_RESOLVED,
	     NULL, 0);
	return 0;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp = make(sizeof(*qp));

	if (!qp)
		return -1;
	qp->id = (struct fake_id *)(void *)id;
	qp->qp.context = &fake.context;
	qp->qp.pd = pd;
	qp->qp.send_cq = qp->qp.recv_cq = attr->send_cq;
	qp->qp.qp_num = ++fake.next_key;
	qp->send_max = attr->cap.max_send_wr;
	qp->receive_max = attr->cap.max_recv_wr;
	qp->sends = calloc(QUEUE_MAX, sizeof(*qp->sends));
	qp->receives = calloc(QUEUE_MAX, sizeof(*qp->receives));
	id->qp = &qp->qp;
	return 0;
}

static void destroy_qp(struct rdma_cm_id *id)
{
	struct fake_qp *qp = (struct fake_qp *)(void *)id->qp;

	id->qp = NULL;
	free(qp->sends);
	free(qp->receives);
	(void)unmake(qp);
}

static struct fake_id *listener_find(in_port_t port)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->listening &&
		    fake.ids[i]->id.route.addr.src_sin.sin_port == port)
			return fake.ids[i];
	return NULL;
}

static int cm_connect(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	static const enum rdma_cm_event_type errors[FAKE_VERBS_ANSWERS] = {
		[FAKE_VERBS_UNREACHABLE] = RDMA_CM_EVENT_UNREACHABLE,
		[FAKE_VERBS_CONNECT_ERROR] = RDMA_CM_EVENT_CONNECT_ERROR,
		[FAKE_VERBS_REJECTED] = RDMA_CM_EVENT_REJECTED,
	};
	const enum fake_verbs_answer answer = fake_verbs_knobs.answer;
	struct fake_id *id = (struct fake_id *)(void *)cm_id;
	struct fake_id *listener =
		listener_find(cm_id->route.addr.dst_sin.sin_port);
	struct fake_id *call;

	id->initiator = 1;
	if (answer == FAKE_VERBS_SILENCE)
		return 0;
	if (answer != FAKE_VERBS_ACCEPT || !listener) {
		tell(id, listener ? errors[answer] : RDMA_CM_EVENT_REJECTED,
		     NULL, 0);
		return 0;
	}
	call = id_make(listener->id.channel, listener->id.context);
	if (!call)
		return -1;
	call->other = id;
	id->other = call;
	call->id.route.addr.dst_sin = cm_id->route.addr.src_sin;
	tell(call, RDMA_CM_EVENT_CONNECT_REQUEST, param->private_data,
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

	if (!id->other)
		return 0;
	/* As the kernel does: accepting opens it. */
	((struct fake_qp *)(void *)cm_id->qp)->access = IBV_ACCESS_REMOTE_READ;
	id->connected = id->other->connected = 1;
	tell(id, RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
	tell(id->other, RDMA_CM_EVENT_ESTABLISHED, param->private_data,
	     param->private_data_len);
	return 0;
}

static int cm_reject(struct rdma_cm_id *cm_id, const void *private_data,
		     uint8_t private_bytes)
{
	struct fake_id *id = (struct fake_id *)(void *)cm_id;

	if (id->other)
		tell(id->other, RDMA_CM_EVENT_REJECTED, private_data,
		     private_bytes);
	return 0;
}

static int cm_disconnect(struct rdma_cm_id *cm_id)
{
	struct fake_id *id = (struct fake_id *)(void *)cm_id;

	if (id->connected && id->other && id->other->connected)
		tell(id->other, RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
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
	struct ibv_context **list = make(2 * sizeof(*list));

	if (!list)
		return NULL;
	list[0] = &fake.context;
	*count = 1;
	return list;
}

static void free_devices(struct ibv_context **list)
{
	(void)unmake(list);
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

/* clang-format off */
static const struct kvpull_fabric fabric = {
	.cm = {
		create_event_channel, destroy_event_channel, create_id,
		destroy_id, bind_addr, resolve_addr, resolve_route, create_qp,
		destroy_qp, cm_connect, cm_listen, cm_accept, cm_reject,
		cm_disconnect, get_cm_event, ack_cm_event, get_src_port,
		get_devices, free_devices, set_option, event_str,
	},
	.ibv = {
		get_device_name, query_device, alloc_pd, dealloc_pd, reg_mr,
		dereg_mr, create_comp_channel, destroy_comp_channel, create_cq,
		destroy_cq, modify_qp, get_cq_event, ack_cq_events,
		wc_status_str, query_gid, query_port,
	},
};
/* clang-format on */

void fake_verbs_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	memset(&fake_verbs_knobs, 0, sizeof(fake_verbs_knobs));
	memcpy(fake.device.name, "fake0", sizeof("fake0"));
	fake.context.device = &fake.device;
	fake.context.ops.poll_cq = poll_cq;
	fake.context.ops.req_notify_cq = req_notify_cq;
	fake.context.ops.post_send = post_send;
	fake.context.ops.post_recv = post_recv;
	fake.next_port = 1000;
}

const struct kvpull_fabric *fake_verbs_fabric(void)
{
	return &fabric;
}

uint32_t fake_verbs_live(void)
{
	return fake.live;
}

uint32_t fake_verbs_count(enum fake_verbs_kind kind)
{
	return fake.counts[kind];
}

uint32_t fake_verbs_doorbells(void)
{
	return fake.doorbells;
}

void fake_verbs_remove_device(void)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i])
			tell(fake.ids[i], RDMA_CM_EVENT_DEVICE_REMOVAL, NULL,
			     0);
}

void fake_verbs_cut(void)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->connected)
			tell(fake.ids[i], RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
}

uint32_t fake_verbs_inject(int initiator, const void *bytes,
			   uint32_t byte_count)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++) {
		const struct fake_id *id = fake.ids[i];

		if (!id || !id->id.qp || !id->connected ||
		    (int)id->initiator != initiator)
			continue;
		if (!receive_do((struct fake_qp *)(void *)id->id.qp, bytes,
				byte_count))
			count++;
	}
	return count;
}
