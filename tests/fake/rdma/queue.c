/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs: work is done when it is posted. A lost READ is seen a second
 * later, as retries of a device take.
 */
#include "tests/fake/rdma/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

#define RETRIES_NS 1000000000u
#define HOLE_BYTES 1024u
#define BREAK_READS 1000u
#define BREAK_LOOPS 4u

static void channel_tell(struct queue *queue)
{
	struct channel *channel = (struct channel *)(void *)queue->cq.channel;

	if (!queue->is_armed || queue->is_told || channel->count == EVENTS_MAX)
		return;
	queue->is_armed = 0;
	queue->is_told = 1;
	channel->told[channel->count++] = queue;
	(void)eventfd_write(channel->channel.fd, 1);
}

static void complete(struct pair *pair, uint64_t wr_id,
		     enum ibv_wc_status status, uint32_t byte_count)
{
	struct queue *queue = (struct queue *)(void *)pair->qp.send_cq;

	if (queue->count == queue->ring_max)
		return;
	queue->ring[(queue->first + queue->count++) % queue->ring_max] =
		(struct ibv_wc){ .wr_id = wr_id,
				 .status = status,
				 .byte_len = byte_count,
				 .qp_num = pair->qp.qp_num };
	channel_tell(queue);
}

static void flush(struct pair *pair)
{
	pair->is_broken = 1;
	pair->lost_ns = 0;
	for (; pair->receive_count; pair->receive_count--) {
		complete(pair, pair->receives[pair->receive_first].wr_id,
			 IBV_WC_WR_FLUSH_ERR, 0);
		pair->receive_first =
			(pair->receive_first + 1) % pair->receive_max;
	}
}

void fake_rdma_lost(void)
{
	const uint64_t now_ns = kvpull_clock_ns();
	struct pair *pair;

	for (pair = fake_rdma.pairs; pair; pair = pair->next) {
		if (!pair->lost_ns || now_ns < pair->lost_ns)
			continue;
		complete(pair, pair->lost_wr_id, IBV_WC_RETRY_EXC_ERR, 0);
		flush(pair);
	}
}

void fake_rdma_receive(struct pair *pair, const struct packet *packet)
{
	const uint32_t at = pair->receive_first;

	if (pair->is_broken || !pair->receive_count)
		return;
	pair->receive_first = (at + 1) % pair->receive_max;
	pair->receive_count--;
	memcpy((void *)(uintptr_t)pair->receives[at].part.addr, packet->bytes,
	       packet->byte_count);
	complete(pair, pair->receives[at].wr_id, IBV_WC_SUCCESS,
		 packet->byte_count);
}

static uint64_t bytes_of(const struct ibv_send_wr *request)
{
	uint64_t bytes = 0;
	int at;

	for (at = 0; at < request->num_sge; at++)
		bytes += request->sg_list[at].length;
	return bytes;
}

/* Each READ of the last device whose number is a multiple is lost, and that is seen. */
static int is_break(const struct pair *pair)
{
	const struct ibv_context *last =
		&fake_rdma.contexts[fake_rdma.device_count - 1];

	if (!fake_rdma_has("breaks") || pair->qp.context != last)
		return 0;
	return pair->is_loop ? ++fake_rdma.loops % BREAK_LOOPS == 0 :
			       ++fake_rdma.reads % BREAK_READS == 0;
}

static enum ibv_wc_status work_do(struct pair *pair,
				  const struct ibv_send_wr *request)
{
	if (request->opcode == IBV_WR_RDMA_READ)
		return is_break(pair) ? IBV_WC_RETRY_EXC_ERR :
					fake_rdma_read(pair, request);
	if (!pair->end ||
	    fake_rdma_send(pair->end, PACKET_SEND,
			   (const void *)(uintptr_t)request->sg_list[0].addr,
			   request->sg_list[0].length))
		return IBV_WC_RETRY_EXC_ERR;
	return IBV_WC_SUCCESS;
}

/* Behind a READ that is lost nothing is done. */
static void work_take(struct pair *pair, const struct ibv_send_wr *request)
{
	enum ibv_wc_status status;

	if (pair->lost_ns)
		return;
	if (pair->is_broken) {
		complete(pair, request->wr_id, IBV_WC_WR_FLUSH_ERR, 0);
		return;
	}
	if (fake_rdma_has("hole") && request->opcode == IBV_WR_RDMA_READ &&
	    bytes_of(request) > HOLE_BYTES) {
		pair->lost_ns = kvpull_clock_ns() + RETRIES_NS;
		pair->lost_wr_id = request->wr_id;
		return;
	}
	status = work_do(pair, request);
	if (status != IBV_WC_SUCCESS || request->send_flags & IBV_SEND_SIGNALED)
		complete(pair, request->wr_id, status, 0);
	if (status != IBV_WC_SUCCESS)
		flush(pair);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *request,
		     struct ibv_send_wr **bad)
{
	(void)bad;
	(void)pthread_mutex_lock(&fake_rdma.lock);
	for (; request; request = request->next)
		work_take((struct pair *)(void *)qp, request);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *request,
		     struct ibv_recv_wr **bad)
{
	struct pair *pair = (struct pair *)(void *)qp;
	uint32_t at;

	(void)bad;
	(void)pthread_mutex_lock(&fake_rdma.lock);
	at = (pair->receive_first + pair->receive_count++) % pair->receive_max;
	pair->receives[at].wr_id = request->wr_id;
	pair->receives[at].part = request->sg_list[0];
	if (pair->is_broken)
		flush(pair);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int capacity, struct ibv_wc *wc)
{
	struct queue *queue = (struct queue *)(void *)cq;
	int count = 0;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	for (; queue->count && count < capacity; queue->count--) {
		wc[count++] = queue->ring[queue->first];
		queue->first = (queue->first + 1) % queue->ring_max;
	}
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return count;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)solicited;
	(void)pthread_mutex_lock(&fake_rdma.lock);
	((struct queue *)(void *)cq)->is_armed = 1;
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}

void fake_rdma_ops(struct ibv_context *context)
{
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
}

/* ---- libibverbs' calls ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->channel.context = context;
	channel->channel.fd =
		eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	return &channel->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	(void)close(channel->fd);
	free(channel);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries,
			     void *cq_context, struct ibv_comp_channel *channel,
			     int vector)
{
	struct queue *queue = calloc(1, sizeof(*queue));

	(void)vector;
	if (!queue)
		return NULL;
	queue->cq.context = context;
	queue->cq.channel = channel;
	queue->cq.cq_context = cq_context;
	queue->ring_max = 2 * (uint32_t)entries;
	queue->ring = calloc(queue->ring_max, sizeof(*queue->ring));
	return &queue->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct channel *channel = (struct channel *)(void *)cq->channel;
	struct queue *queue = (struct queue *)(void *)cq;
	uint32_t at;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	for (at = 0; at < channel->count; at++)
		if (channel->told[at] == queue)
			channel->told[at] = NULL;
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	free(queue->ring);
	free(queue);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *ibv_channel, struct ibv_cq **cq,
		     void **cq_context)
{
	struct channel *channel = (struct channel *)(void *)ibv_channel;
	struct queue *queue = NULL;
	eventfd_t ignored;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	while (!queue && channel->count) {
		queue = channel->told[--channel->count];
		(void)eventfd_read(ibv_channel->fd, &ignored);
	}
	if (queue)
		queue->is_told = 0;
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	if (!queue) {
		errno = EAGAIN;
		return -1;
	}
	*cq = &queue->cq;
	*cq_context = queue->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	(void)cq;
	(void)count;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct pair *pair = calloc(1, sizeof(*pair));

	if (!pair)
		return NULL;
	pair->qp.context = pd->context;
	pair->qp.pd = pd;
	pair->qp.qp_context = attr->qp_context;
	pair->qp.send_cq = pair->qp.recv_cq = attr->send_cq;
	pair->receive_max = attr->cap.max_recv_wr;
	pair->receives = calloc(pair->receive_max, sizeof(*pair->receives));
	(void)pthread_mutex_lock(&fake_rdma.lock);
	pair->qp.qp_num = ++fake_rdma.next_number;
	pair->next = fake_rdma.pairs;
	fake_rdma.pairs = pair;
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return &pair->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct pair *pair = (struct pair *)(void *)qp;
	struct pair **at = &fake_rdma.pairs;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	while (*at != pair)
		at = &(*at)->next;
	*at = pair->next;
	if (pair->end)
		pair->end->pair = NULL;
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	free(pair->receives);
	free(pair);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct pair *pair = (struct pair *)(void *)qp;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	if (mask & IBV_QP_DEST_QPN && !pair->end)
		pair->is_loop = attr->dest_qp_num == qp->qp_num;
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
		flush(pair);
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return 0;
}
