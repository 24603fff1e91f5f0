/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs and completion queues. Work requests are carried out when a
 * completion queue is polled, in the order in which they were posted to their
 * queue pair. One that fails moves its queue pair to ERR; all that is left in it
 * is flushed.
 */
#include "tests/fake/verbs_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define fake fake_verbs_state

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
	struct ibv_wc *wc = &cq->ring[(cq->first + cq->count) % cq->ring_max];

	/*
	 * An overfull queue loses completions; the product's never has that
	 * many.
	 */
	if (cq->count == cq->ring_max)
		return;
	cq->count++;
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
		qp->send_first = (qp->send_first + 1) % qp->send_max;
	}
	for (; qp->receive_count; qp->receive_count--) {
		complete(qp, qp->receives[qp->receive_first].wr_id,
			 IBV_WC_WR_FLUSH_ERR, 0);
		qp->receive_first = (qp->receive_first + 1) % qp->receive_max;
	}
}

/* Return: the status that the test wants for this one. */
static enum ibv_wc_status status_of(const struct fake_qp *qp,
				    enum fake_verbs_kind kind)
{
	const uint32_t device = fake_verbs_index(qp->qp.context);

	fake.counts[device][kind]++;
	if (fake_verbs_knobs.fail_device &&
	    fake_verbs_knobs.fail_device != device + 1)
		return IBV_WC_SUCCESS;
	if (!fake_verbs_knobs.fail_at[kind] || --fake_verbs_knobs.fail_at[kind])
		return IBV_WC_SUCCESS;
	return fake_verbs_knobs.fail_status;
}

/* Keys are a device's own. */
static const struct fake_region *region_find(const struct fake_qp *qp,
					     uint32_t key, uint64_t address,
					     uint64_t bytes)
{
	const struct fake_region *region = fake.regions[key % REGIONS_MAX];
	uint64_t at;

	if (!region || region->mr.rkey != key || region->mr.pd != qp->qp.pd)
		return NULL;
	at = address - (uint64_t)(uintptr_t)region->mr.addr;
	return at <= region->mr.length && bytes <= region->mr.length - at ?
		       region :
		       NULL;
}

/* Both ends cut what they send into packets that both ports carry. */
static int is_carried(const struct fake_qp *qp, const struct fake_qp *remote)
{
	return qp->mtu == remote->mtu &&
	       qp->mtu <= fake_verbs_mtu(qp->qp.context) &&
	       qp->mtu <= fake_verbs_mtu(remote->qp.context);
}

/* ---- memory of a GPU ---- */

void fake_verbs_land(uint32_t device)
{
	while (fake.writes[device]) {
		struct fake_write *write = fake.writes[device];

		fake.writes[device] = write->next;
		memcpy(write->to, write->data, write->bytes);
		free(write);
	}
}

void fake_verbs_writes_drop(const void *base, uint64_t bytes)
{
	uint32_t i;

	for (i = 0; i < FAKE_VERBS_DEVICES_MAX; i++) {
		struct fake_write **at = &fake.writes[i];

		while (*at) {
			struct fake_write *write = *at;

			if ((uintptr_t)write->to - (uintptr_t)base >= bytes) {
				at = &write->next;
				continue;
			}
			*at = write->next;
			free(write);
		}
	}
}

uint64_t fake_verbs_unseen(void)
{
	const struct fake_write *write;
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < FAKE_VERBS_DEVICES_MAX; i++)
		for (write = fake.writes[i]; write; write = write->next)
			bytes += write->bytes;
	return bytes;
}

static void bytes_write(const struct fake_qp *qp,
			const struct fake_region *region, void *to,
			const void *from, uint64_t bytes)
{
	struct fake_write **at = &fake.writes[fake_verbs_index(qp->qp.context)];

	if (!region->is_gpu || fake_verbs_knobs.in_order) {
		memcpy(to, from, bytes);
		return;
	}
	while (*at)
		at = &(*at)->next;
	*at = malloc(sizeof(**at) + bytes);
	**at = (struct fake_write){ .to = to, .bytes = bytes };
	memcpy((*at)->data, from, bytes);
}

/* ---- work ---- */

static int is_loop(const struct fake_qp *qp)
{
	return !qp->id && qp->number_there == qp->qp.qp_num;
}

static const struct fake_qp *remote_of(const struct fake_qp *qp)
{
	if (is_loop(qp))
		return qp;
	return qp->id && qp->id->other ? qp->id->other->qp : NULL;
}

static enum ibv_wc_status read_do(const struct fake_qp *qp,
				  const struct fake_send *send)
{
	const struct fake_qp *remote = remote_of(qp);
	const struct fake_region *from;
	uint64_t address = send->request.wr.rdma.remote_addr;
	uint64_t bytes = 0;
	int i;

	if (!remote || remote->broken || remote->state < IBV_QPS_RTR ||
	    !is_carried(qp, remote))
		return IBV_WC_RETRY_EXC_ERR;
	for (i = 0; i < send->request.num_sge; i++)
		bytes += send->parts[i].length;
	from = region_find(remote, send->request.wr.rdma.rkey, address, bytes);
	if (!from || !(from->access & IBV_ACCESS_REMOTE_READ) ||
	    !(remote->access & IBV_ACCESS_REMOTE_READ))
		return IBV_WC_REM_ACCESS_ERR;
	/* A read of the GPU's memory pushes what the device wrote there before. */
	if (is_loop(qp) && from->is_gpu)
		fake_verbs_land(fake_verbs_index(qp->qp.context));
	for (i = 0; i < send->request.num_sge; i++) {
		const struct ibv_sge *part = &send->parts[i];
		const struct fake_region *to =
			region_find(qp, part->lkey, part->addr, part->length);

		if (!to || !(to->access & IBV_ACCESS_LOCAL_WRITE))
			return IBV_WC_LOC_PROT_ERR;
		bytes_write(qp, to, (void *)(uintptr_t)part->addr,
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
	qp->receive_first = (qp->receive_first + 1) % qp->receive_max;
	qp->receive_count--;
	status = status_of(qp, FAKE_VERBS_RECEIVE);
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
	const struct fake_id *other = qp->id ? qp->id->other : NULL;
	struct fake_qp *remote = other ? other->qp : NULL;

	if (other && other->stranger)
		return IBV_WC_SUCCESS;
	if (!remote || remote->broken || remote->state < IBV_QPS_RTR ||
	    !is_carried(qp, remote))
		return IBV_WC_RETRY_EXC_ERR;
	/* The credits' promise: there always is one. */
	if (receive_do(remote, (const void *)(uintptr_t)send->parts[0].addr,
		       send->parts[0].length))
		return IBV_WC_RNR_RETRY_EXC_ERR;
	return IBV_WC_SUCCESS;
}

static enum fake_verbs_kind kind_of(const struct fake_qp *qp,
				    const struct fake_send *send)
{
	if (send->request.opcode == IBV_WR_SEND)
		return FAKE_VERBS_SEND;
	if (is_loop(qp))
		return FAKE_VERBS_LOOP;
	return send->parts[0].length > 32 || send->request.num_sge > 1 ?
		       FAKE_VERBS_READ :
		       FAKE_VERBS_CHECK;
}

static int is_held(const struct fake_qp *qp)
{
	if (is_loop(qp) && fake_verbs_knobs.held_loops)
		return 1;
	return fake_verbs_knobs.held ||
	       (fake_verbs_knobs.held_owner &&
		fake_verbs_knobs.held_owner == qp->qp.qp_context) ||
	       fake_verbs_knobs.held_devices >>
			       fake_verbs_index(qp->qp.context) &
		       1;
}

static void qp_run(struct fake_qp *qp)
{
	while (qp->send_count && !qp->broken && !is_held(qp)) {
		const struct fake_send *send = &qp->sends[qp->send_first];
		const enum fake_verbs_kind kind = kind_of(qp, send);
		enum ibv_wc_status status = status_of(qp, kind);

		if (status == IBV_WC_SUCCESS)
			status = kind == FAKE_VERBS_SEND ? send_do(qp, send) :
							   read_do(qp, send);
		qp->send_first = (qp->send_first + 1) % qp->send_max;
		qp->send_count--;
		if (fake_verbs_knobs.budget && !--fake_verbs_knobs.budget)
			fake_verbs_knobs.held = 1;
		if (status != IBV_WC_SUCCESS ||
		    send->request.send_flags & IBV_SEND_SIGNALED)
			complete(qp, send->request.wr_id, status, 0);
		if (status != IBV_WC_SUCCESS)
			flush(qp);
	}
}

void fake_verbs_run(void)
{
	uint32_t i;

	if (fake_verbs_knobs.held)
		return;
	for (i = 0; i < IDS_MAX; i++)
		if (fake.ids[i] && fake.ids[i]->qp)
			qp_run(fake.ids[i]->qp);
	for (i = 0; i < IDS_MAX; i++)
		if (fake.qps[i] && is_loop(fake.qps[i]))
			qp_run(fake.qps[i]);
}

static int poll_cq(struct ibv_cq *ibv_cq, int capacity, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)(void *)ibv_cq;
	int count = 0;

	fake_verbs_run();
	while (cq->count && count < capacity) {
		wc[count++] = cq->ring[cq->first];
		cq->first = (cq->first + 1) % cq->ring_max;
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
	*bad = request;
	if (qp->state != IBV_QPS_RTS)
		return EINVAL;
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
		send = &qp->sends[(qp->send_first + qp->send_count) %
				  qp->send_max];
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
	if (qp->state == IBV_QPS_RESET)
		return EINVAL;
	if (qp->receive_count == qp->receive_max)
		return ENOMEM;
	receive = &qp->receives[(qp->receive_first + qp->receive_count) %
				qp->receive_max];
	receive->wr_id = request->wr_id;
	receive->part = request->sg_list[0];
	qp->receive_count++;
	if (qp->broken)
		flush(qp);
	return 0;
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
	struct fake_comp_channel *channel = fake_verbs_make(sizeof(*channel));

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
	return fake_verbs_unmake(channel);
}

static struct ibv_cq *create_cq(struct ibv_context *context, int entries,
				void *cq_context,
				struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq;

	if (vector < 0 || vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = fake_verbs_make(sizeof(*cq));
	if (!cq)
		return NULL;
	fake.vectors |= 1u << vector;
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->ring_max = 2 * (uint32_t)entries;
	cq->ring = calloc(cq->ring_max, sizeof(*cq->ring));
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
	return fake_verbs_unmake(cq);
}

static struct ibv_qp *create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp = fake_verbs_make(sizeof(*qp));
	uint32_t i;

	for (i = 0; qp && i < IDS_MAX; i++) {
		if (fake.qps[i])
			continue;
		fake.qps[i] = qp;
		qp->qp.context = pd->context;
		qp->qp.pd = pd;
		qp->qp.qp_context = attr->qp_context;
		qp->qp.send_cq = qp->qp.recv_cq = attr->send_cq;
		qp->qp.qp_num = ++fake.next_key;
		qp->send_max = attr->cap.max_send_wr;
		qp->receive_max = attr->cap.max_recv_wr;
		qp->sends = calloc(qp->send_max, sizeof(*qp->sends));
		qp->receives = calloc(qp->receive_max, sizeof(*qp->receives));
		return &qp->qp;
	}
	return NULL;
}

static int destroy_qp(struct ibv_qp *ibv_qp)
{
	struct fake_qp *qp = (struct fake_qp *)(void *)ibv_qp;
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.qps[i] == qp)
			fake.qps[i] = NULL;
	if (qp->id)
		qp->id->qp = NULL;
	free(qp->sends);
	free(qp->receives);
	return fake_verbs_unmake(qp);
}

/* Each state comes after the one before; of what others may do all is counted. */
static int modify_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask)
{
	const unsigned int remote = IBV_ACCESS_REMOTE_READ |
				    IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_ATOMIC;
	struct fake_qp *qp = (struct fake_qp *)(void *)ibv_qp;

	if (attr->qp_state != IBV_QPS_ERR && fake_verbs_knobs.modify_at &&
	    !--fake_verbs_knobs.modify_at) {
		errno = EIO;
		return EIO;
	}
	if (mask & IBV_QP_STATE && attr->qp_state != IBV_QPS_ERR) {
		if (attr->qp_state != qp->state + 1) {
			errno = EINVAL;
			return EINVAL;
		}
		qp->state = attr->qp_state;
	}
	if (mask & IBV_QP_PATH_MTU)
		qp->mtu = attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		qp->number_there = attr->dest_qp_num;
	if (mask & IBV_QP_RETRY_CNT)
		qp->retry_count = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->rnr_retry_count = attr->rnr_retry;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->reads_sent = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		qp->reads_answered = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_ACCESS_FLAGS) {
		qp->access = attr->qp_access_flags;
		fake.openings += !!(qp->access & remote);
	}
	/* Held work is in the wire and not flushed yet. */
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR &&
	    !is_held(qp))
		flush(qp);
	return 0;
}

static int get_cq_event(struct ibv_comp_channel *ibv_channel,
			struct ibv_cq **cq, void **context)
{
	struct fake_comp_channel *channel =
		(struct fake_comp_channel *)(void *)ibv_channel;
	eventfd_t ignored;

	fake.event_reads++;
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

void fake_verbs_queue_ops(struct ibv_context *context)
{
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
}

void fake_verbs_queue_fill(struct kvpull_fabric *table)
{
	table->ibv.create_comp_channel = create_comp_channel;
	table->ibv.destroy_comp_channel = destroy_comp_channel;
	table->ibv.create_cq = create_cq;
	table->ibv.destroy_cq = destroy_cq;
	table->ibv.create_qp = create_qp;
	table->ibv.modify_qp = modify_qp;
	table->ibv.destroy_qp = destroy_qp;
	table->ibv.get_cq_event = get_cq_event;
	table->ibv.ack_cq_events = ack_cq_events;
}

uint32_t fake_verbs_inject(int initiator, const void *bytes,
			   uint32_t byte_count)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++) {
		const struct fake_id *id = fake.ids[i];

		if (!id || !id->qp || !id->connected ||
		    (int)id->initiator != initiator)
			continue;
		if (!receive_do(id->qp, bytes, byte_count))
			count++;
	}
	return count;
}
