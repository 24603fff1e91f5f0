/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: posted - done <= queue_max, one batch record for each post that
 * has not completed; send_open counts frames among them; sent - acked <=
 * credits; the queue pair exists from make() to settle() or unmake().
 */
#include "verbs/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/least.h"
#include "base/wrap.h"
#include "verbs/pair.h"

#define WHY_BYTES_MAX 256u /* of a lost connection, for the log */
#define RECEIVE_ID (UINT64_C(1) << 63)

static uint32_t queue_max_of(const struct kvpull_verbs_params *params,
			     enum kvpull_verbs_role role)
{
	return 2 * params->notify_credits +
	       (role == KVPULL_VERBS_PEER ? params->depth : 0);
}

static void end_clear(struct kvpull_verbs_end *end)
{
	const size_t at = offsetof(struct kvpull_verbs_end, state);

	memset((uint8_t *)end + at, 0, sizeof(*end) - at);
	end->rail_there = end->held = KVPULL_NONE;
	end->device = end->rail; /* of a peer's call; a caller's is found */
	end->sent = end->acked = end->beat_sent = KVPULL_WRAP_START;
	end->received = end->told_acked = KVPULL_WRAP_START;
	end->inbox.total = end->inbox.used = 0;
	end->message.total = end->message.sent = 0;
	end->keys_out.total = end->keys_out.sent = 0;
}

int kvpull_verbs_end_init(struct kvpull_verbs_end *end,
			  struct kvpull_arena *arena)
{
	const struct kvpull_verbs_params *params = &end->shared->params;

	end->frame_max = 2 * params->notify_credits;
	end->queue_max = queue_max_of(params, end->role);
	end->buffers = kvpull_arena_take(arena, (size_t)2 * end->frame_max,
					 KVPULL_FRAME_BYTES);
	for (end->note_mask = 1; end->note_mask < params->notify_credits - 1;)
		end->note_mask = 2 * end->note_mask + 1;
	KVPULL_ARENA_TAKE(arena, end->is_note, (size_t)end->note_mask + 1);
	KVPULL_ARENA_TAKE(arena, end->batches, end->queue_max);
	end->inbox.capacity = KVPULL_MESSAGE_BYTES_MAX;
	KVPULL_ARENA_TAKE(arena, end->inbox.data, end->inbox.capacity);
	end->message.capacity = KVPULL_MESSAGE_BYTES_MAX;
	KVPULL_ARENA_TAKE(arena, end->message.data, end->message.capacity);
	end->keys_out.capacity = KVPULL_KEYS_BYTES_MAX;
	KVPULL_ARENA_TAKE(arena, end->keys_out.data, end->keys_out.capacity);
	end_clear(end);
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

const char *kvpull_verbs_lane_print(uint32_t rail, uint32_t lane,
				    char text[KVPULL_VERBS_LANE_BYTES])
{
	if (lane)
		(void)snprintf(text, KVPULL_VERBS_LANE_BYTES,
			       "queue pair %u of rail %u", lane, rail);
	else
		(void)snprintf(text, KVPULL_VERBS_LANE_BYTES, "rail %u", rail);
	return text;
}

static uint8_t *buffer_at(const struct kvpull_verbs_end *end, uint32_t index)
{
	return end->buffers + (size_t)index * KVPULL_FRAME_BYTES;
}

static int receive_post(struct kvpull_verbs_end *end, uint32_t buffer)
{
	struct ibv_sge part = {
		.addr = (uint64_t)(uintptr_t)buffer_at(end, buffer),
		.length = KVPULL_FRAME_BYTES,
		.lkey = end->memory->lkey,
	};
	struct ibv_recv_wr request = { .wr_id = RECEIVE_ID | buffer,
				       .sg_list = &part,
				       .num_sge = 1 };
	struct ibv_recv_wr *bad;

	if (ibv_post_recv(end->qp, &request, &bad))
		return KVPULL_EDEVICE;
	end->receive_open++;
	return 0;
}

void kvpull_verbs_end_begin(struct kvpull_verbs_end *end)
{
	end->state = KVPULL_VERBS_CONNECTING;
	end->heard_ns = end->shared->now_ns;
	end->deadline_ns = end->shared->now_ns + end->shared->params.connect_ns;
}

/* Completions of peers, and of a node's ranks, interrupt unlike processors. */
static int vector_of(const struct kvpull_verbs_end *end)
{
	const uint32_t turn =
		end->shared->params.local_rank + end->bundle->index;
	const int count = end->id->verbs->num_comp_vectors;

	return count > 0 ? (int)(turn % (uint32_t)count) : 0;
}

int kvpull_verbs_end_make(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;
	const struct kvpull_fabric *fabric = shared->fabric;
	const struct kvpull_verbs_device *device =
		&shared->devices[end->device];
	uint32_t i;

	if (end->id->verbs != device->context) {
		kvpull_warn(shared->log,
			    "verbs: %s would go by another device than %s",
			    end->name, device->choice);
		return KVPULL_EROUTE;
	}
	end->memory = kvpull_verbs_device_register(device, end->buffers,
						   (size_t)2 * end->frame_max *
							   KVPULL_FRAME_BYTES,
						   IBV_ACCESS_LOCAL_WRITE);
	end->cq = fabric->ibv.create_cq(device->context,
					(int)(end->queue_max + end->frame_max),
					end, device->channel, vector_of(end));
	if (!end->memory || !end->cq || kvpull_verbs_pair_make(end)) {
		kvpull_error(
			shared->log,
			"verbs: %s: queue pair of %u + %u work requests: %s",
			end->name, end->queue_max, end->frame_max,
			kvpull_why(LOCK, errno));
		return KVPULL_ENOMEM;
	}
	for (i = 0; i < end->frame_max; i++)
		if (receive_post(end, i))
			return KVPULL_EDEVICE;
	return 0;
}

void kvpull_verbs_id_destroy(const struct kvpull_verbs_shared *shared,
			     struct rdma_cm_id *id)
{
	if (id && shared->fabric->cm.destroy_id(id))
		kvpull_warn(shared->log, "verbs: id: %s",
			    kvpull_why(OTHER, errno));
}

void kvpull_verbs_end_unmake(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;
	const struct kvpull_fabric *fabric = shared->fabric;

	kvpull_verbs_pair_unmake(end);
	if (end->cq && fabric->ibv.destroy_cq(end->cq))
		kvpull_warn(shared->log, "verbs: completion queue: %s",
			    kvpull_why(OTHER, errno));
	kvpull_verbs_device_deregister(&shared->devices[end->device],
				       end->memory);
	kvpull_verbs_id_destroy(shared, end->id);
	end_clear(end);
}

/*
 * Rate limit: log at most one lost endpoint per second that was never admitted.
 */
static int is_said(const struct kvpull_verbs_end *end)
{
	struct kvpull_verbs_shared *shared = end->shared;

	if (end->role == KVPULL_VERBS_CALLER ? end->bundle->ring != NULL :
					       end->code != KVPULL_EFULL)
		return 1;
	return kvpull_second_passed(&shared->said_ns, shared->now_ns);
}

void kvpull_verbs_end_lose(struct kvpull_verbs_end *end, int code,
			   const char *why)
{
	const struct kvpull_fabric *fabric = end->shared->fabric;

	if (end->state == KVPULL_VERBS_FREE || end->state >= KVPULL_VERBS_LOST)
		return;
	end->code = code;
	if (why && is_said(end))
		kvpull_warn(end->shared->log, "%s %s qp 0x%x lost: %s",
			    end->role == KVPULL_VERBS_PEER ? "peer" : "caller",
			    end->name, end->qp ? end->qp->qp_num : 0, why);
	end->state = KVPULL_VERBS_LOST;
	end->deadline_ns = 0;
	kvpull_verbs_pair_stop(end);
	if (end->connected)
		(void)fabric->cm.disconnect(end->id);
	end->connected = 0;
}

void kvpull_verbs_end_settle(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_shared *shared = end->shared;
	/* A caller that was not admitted has nothing in flight that matters. */
	const int quiet =
		!end->qp || (end->done == end->posted && !end->receive_open) ||
		(end->role == KVPULL_VERBS_CALLER && !end->bundle->ring);

	if (!end->deadline_ns)
		end->deadline_ns = shared->now_ns + shared->params.flush_ns;
	if (!quiet && shared->now_ns < end->deadline_ns)
		return;
	kvpull_verbs_pair_unmake(end);
	end->done = end->posted;
	end->state = KVPULL_VERBS_QUIET;
}

static void completion_lose(struct kvpull_verbs_end *end,
			    const struct ibv_wc *completion)
{
	if (end->state >= KVPULL_VERBS_LOST)
		return;
	kvpull_verbs_end_lose(
		end, KVPULL_EPEER,
		end->shared->fabric->ibv.wc_status_str(completion->status));
}

static uint32_t mtu_bytes(const struct kvpull_verbs_end *end)
{
	return 128u << end->mtu;
}

/* Does the answer to this batch fill a frame? */
static int is_large(const struct kvpull_verbs_end *end,
		    const struct kvpull_verbs_batch *batch)
{
	return batch->kind == KVPULL_VERBS_READ &&
	       batch->bytes >= (uint64_t)batch->count * mtu_bytes(end);
}

static const struct kvpull_verbs_batch *
batch_of(const struct kvpull_verbs_end *end, uint64_t number)
{
	uint32_t left;
	uint32_t at = end->batch_first;

	for (left = end->batch_count; left; left--) {
		if (end->batches[at].last >= number)
			return &end->batches[at];
		at = at + 1 == end->queue_max ? 0 : at + 1;
	}
	return NULL;
}

/*
 * The handshake came through in small frames; a large READ gets no answer, and
 * none did on this connection. A switch between may drop whole frames.
 */
static int is_hole(const struct kvpull_verbs_end *end,
		   const struct ibv_wc *completion)
{
	const struct kvpull_verbs_batch *batch =
		batch_of(end, completion->wr_id);

	return completion->status == IBV_WC_RETRY_EXC_ERR && batch &&
	       is_large(end, batch) && !end->large_came;
}

static void hole_say(struct kvpull_verbs_end *end,
		     const struct ibv_wc *completion)
{
	char why[WHY_BYTES_MAX];

	(void)snprintf(
		why, sizeof(why),
		"%s: small messages arrive, and READs of whole frames, of MTU %u, do not: if the peer lives, let the path carry them (kvpull_doctor --peer)",
		end->shared->fabric->ibv.wc_status_str(completion->status),
		mtu_bytes(end));
	kvpull_verbs_end_lose(end, KVPULL_EPEER, why);
}

static enum kvpull_verbs_seen sent_take(struct kvpull_verbs_end *end,
					const struct ibv_wc *completion)
{
	const uint64_t number = completion->wr_id;

	if (number >= end->posted) {
		kvpull_verbs_end_lose(
			end, KVPULL_EPEER,
			"the device completed what was not posted");
		return KVPULL_VERBS_NOTHING;
	}
	if (number >= end->done)
		end->done = number + 1;
	if (completion->status != IBV_WC_SUCCESS) {
		end->failed = 1;
		if (is_hole(end, completion))
			hole_say(end, completion);
		else
			completion_lose(end, completion);
	} else if (!end->failed) {
		end->good = end->done;
	}
	return KVPULL_VERBS_SENT;
}

/* The other side acknowledges frames; both counts are free-running. */
static int acks_take(struct kvpull_verbs_end *end, uint32_t acked)
{
	const uint32_t more = acked - end->acked;

	if (more > end->sent - end->acked)
		return KVPULL_EPROTO;
	if (more)
		end->unanswered_ns = end->shared->now_ns;
	for (; end->acked != acked; end->acked++)
		end->note_open -= end->is_note[end->acked & end->note_mask];
	return 0;
}

static enum kvpull_verbs_seen received_take(struct kvpull_verbs_end *end,
					    const struct ibv_wc *completion,
					    struct kvpull_frame *frame)
{
	const uint32_t buffer = (uint32_t)completion->wr_id;
	int code;

	kvpull_check(end->shared->log,
		     end->receive_open > 0 && buffer < end->frame_max);
	end->receive_open--;
	if (completion->status != IBV_WC_SUCCESS) {
		completion_lose(end, completion);
		return KVPULL_VERBS_SENT;
	}
	end->held = buffer;
	code = kvpull_frame_get(buffer_at(end, buffer), completion->byte_len,
				frame);
	if (!code)
		code = acks_take(end, frame->acked + KVPULL_WRAP_START);
	if (code) {
		end->shared->counts.frames_bad++;
		kvpull_verbs_end_lose(end, code,
				      code == KVPULL_EVERSION ?
					      "another version of the frames" :
					      "a frame that is none");
		return KVPULL_VERBS_SENT;
	}
	if (frame->kind == KVPULL_FRAME_ACK)
		return KVPULL_VERBS_SENT;
	end->received++;
	return KVPULL_VERBS_FRAME;
}

/* The frame last seen was used: its buffer may receive again. */
static void held_give(struct kvpull_verbs_end *end)
{
	const uint32_t buffer = end->held;

	if (buffer == KVPULL_NONE)
		return;
	end->held = KVPULL_NONE;
	if (end->state < KVPULL_VERBS_LOST && receive_post(end, buffer))
		kvpull_verbs_end_lose(end, KVPULL_EPEER, "post of a receive");
}

enum kvpull_verbs_seen kvpull_verbs_end_poll(struct kvpull_verbs_end *end,
					     struct kvpull_frame *frame)
{
	struct ibv_wc completion;
	int count;

	held_give(end);
	count = ibv_poll_cq(end->cq, 1, &completion);
	if (count < 0)
		kvpull_verbs_end_lose(end, KVPULL_EPEER,
				      "poll of the completion queue");
	if (count <= 0)
		return KVPULL_VERBS_NOTHING;
	if (completion.wr_id & RECEIVE_ID)
		return received_take(end, &completion, frame);
	return sent_take(end, &completion);
}

int kvpull_verbs_end_pop(struct kvpull_verbs_end *end,
			 struct kvpull_verbs_batch *batch)
{
	while (end->batch_count &&
	       end->batches[end->batch_first].last < end->good) {
		const uint32_t first = end->batch_first;

		end->batch_first = first + 1 == end->queue_max ? 0 : first + 1;
		end->batch_count--;
		if (is_large(end, &end->batches[first]))
			end->large_came = 1;
		if (end->batches[first].kind != KVPULL_VERBS_SEND) {
			*batch = end->batches[first];
			end->requests_open -= batch->slots;
			end->bytes_open -= batch->bytes;
			return 1;
		}
		end->send_open--;
	}
	return 0;
}

uint32_t kvpull_verbs_end_room(const struct kvpull_verbs_end *end)
{
	return end->queue_max - (uint32_t)(end->posted - end->done);
}

static uint64_t bytes_of(const struct ibv_send_wr *requests, uint32_t count)
{
	uint64_t bytes = 0;
	uint32_t i;
	int part;

	for (i = 0; i < count; i++)
		for (part = 0; part < requests[i].num_sge; part++)
			bytes += requests[i].sg_list[part].length;
	return bytes;
}

static void batch_push(struct kvpull_verbs_end *end,
		       const struct kvpull_verbs_batch *batch,
		       const struct ibv_send_wr *requests, uint32_t count)
{
	uint32_t at = end->batch_first + end->batch_count;
	struct kvpull_verbs_batch *pushed;

	kvpull_check(end->shared->log, end->batch_count < end->queue_max);
	if (at >= end->queue_max)
		at -= end->queue_max;
	end->posted += batch->slots;
	pushed = &end->batches[at];
	*pushed = *batch;
	pushed->last = end->posted - 1;
	pushed->count = count;
	pushed->bytes = 0;
	end->batch_count++;
	if (batch->kind == KVPULL_VERBS_SEND)
		return;
	pushed->bytes = bytes_of(requests, count);
	end->requests_open += batch->slots;
	end->bytes_open += pushed->bytes;
}

/*
 * The device took the first requests of a post and refused the others, among
 * them the only one that was to be signalled. So that the end of those that were
 * taken is seen, the last of them is posted once more, signalled. Return: how
 * many were posted: 1, or 0 if the queue is full.
 */
static uint32_t tail_post(struct kvpull_verbs_end *end,
			  struct ibv_send_wr *last)
{
	struct ibv_send_wr *bad;

	last->wr_id++;
	last->next = NULL;
	last->send_flags = (unsigned int)IBV_SEND_SIGNALED;
	return ibv_post_send(end->qp, last, &bad) ? 0 : 1;
}

int kvpull_verbs_end_post(struct kvpull_verbs_end *end,
			  struct ibv_send_wr *requests, uint32_t count,
			  const struct kvpull_verbs_batch *batch,
			  uint32_t *posted_count)
{
	struct kvpull_verbs_batch pushed = *batch;
	struct ibv_send_wr *bad = NULL;
	uint32_t taken = 0;
	uint32_t i;
	int failed;

	kvpull_check(end->shared->log, count <= kvpull_verbs_end_room(end));
	for (i = 0; i < count; i++) {
		requests[i].wr_id = end->posted + i;
		requests[i].next = i + 1 < count ? &requests[i + 1] : NULL;
		requests[i].send_flags =
			i + 1 < count ? 0 : (unsigned int)IBV_SEND_SIGNALED;
	}
	failed = ibv_post_send(end->qp, requests, &bad);
	if (!failed)
		taken = count;
	for (; failed && taken < count && &requests[taken] != bad; taken++)
		;
	*posted_count = taken;
	pushed.slots = taken;
	if (failed && taken)
		pushed.slots += tail_post(end, &requests[taken - 1]);
	if (taken)
		batch_push(end, &pushed, requests, taken);
	if (!failed || pushed.slots > taken)
		end->signalled = end->posted;
	if (!failed)
		return 0;
	/* A full queue signals as it empties; without that the error is real. */
	if ((failed == ENOMEM || failed == EAGAIN) &&
	    end->signalled > end->done) {
		end->shared->counts.post_busy++;
		return KVPULL_EAGAIN;
	}
	kvpull_verbs_end_lose(end, KVPULL_EPEER, kvpull_why(OTHER, failed));
	return KVPULL_EPEER;
}

static uint32_t credits_left(const struct kvpull_verbs_end *end)
{
	return end->credits - (end->sent - end->acked);
}

static int frame_send(struct kvpull_verbs_end *end, struct kvpull_frame *frame)
{
	const struct kvpull_verbs_batch batch = { .kind = KVPULL_VERBS_SEND };
	const uint32_t buffer = end->frame_max + end->send_next;
	struct ibv_sge part = {
		.addr = (uint64_t)(uintptr_t)buffer_at(end, buffer),
		.lkey = end->memory->lkey,
	};
	struct ibv_send_wr request = { .sg_list = &part,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND };
	uint32_t posted_count;
	int code;

	if (!kvpull_verbs_end_is_up(end))
		return KVPULL_EPEER;
	if (end->send_open == end->frame_max || !kvpull_verbs_end_room(end) ||
	    (frame->kind != KVPULL_FRAME_ACK && !credits_left(end)))
		return KVPULL_EAGAIN;
	frame->acked = kvpull_verbs_end_taken(end) - KVPULL_WRAP_START;
	part.length = kvpull_frame_put(buffer_at(end, buffer), frame);
	code = kvpull_verbs_end_post(end, &request, 1, &batch, &posted_count);
	if (code)
		return code;
	end->shared->counts.frames_sent++;
	end->told_acked = kvpull_verbs_end_taken(end);
	end->send_open++;
	end->send_next = (end->send_next + 1) % end->frame_max;
	if (frame->kind == KVPULL_FRAME_ACK)
		return 0;
	if (end->sent == end->acked)
		end->unanswered_ns = end->shared->now_ns;
	end->is_note[end->sent & end->note_mask] =
		frame->kind == KVPULL_FRAME_NOTE;
	end->note_open += frame->kind == KVPULL_FRAME_NOTE;
	end->sent++;
	return 0;
}

int kvpull_verbs_end_say(struct kvpull_verbs_end *end,
			 struct kvpull_verbs_outbox *outbox, const void *bytes,
			 size_t byte_count)
{
	if (!kvpull_verbs_end_is_up(end) || !byte_count ||
	    byte_count > outbox->capacity)
		return KVPULL_EPEER;
	if (outbox->sent != outbox->total)
		return KVPULL_EAGAIN;
	memcpy(outbox->data, bytes, byte_count);
	outbox->total = (uint32_t)byte_count;
	outbox->sent = 0;
	return 0;
}

int kvpull_verbs_end_note(struct kvpull_verbs_end *end,
			  const struct kvpull_record *record, uint32_t number)
{
	uint8_t bytes[KVPULL_FRAME_RECORD_BYTES];
	struct kvpull_frame frame = { .kind = KVPULL_FRAME_NOTE,
				      .offset = number - KVPULL_WRAP_START,
				      .payload = bytes,
				      .payload_bytes = sizeof(bytes) };

	kvpull_frame_put_record(bytes, record);
	return frame_send(end, &frame);
}

/* Return: 1 if all of it is sent. */
static int outbox_pump(struct kvpull_verbs_end *end,
		       struct kvpull_verbs_outbox *outbox, uint32_t kind)
{
	while (outbox->sent < outbox->total) {
		struct kvpull_frame frame = {
			.kind = kind,
			.total = outbox->total,
			.offset = outbox->sent,
			.payload = outbox->data + outbox->sent,
			.payload_bytes =
				kvpull_least_u32(outbox->total - outbox->sent,
						 KVPULL_FRAME_PAYLOAD_BYTES),
		};

		if (frame_send(end, &frame))
			return 0;
		outbox->sent += frame.payload_bytes;
	}
	return 1;
}

void kvpull_verbs_end_pump(struct kvpull_verbs_end *end)
{
	struct kvpull_frame beat = { .kind = KVPULL_FRAME_BEAT,
				     .offset = !end->beat_wanted };
	struct kvpull_frame ack = { .kind = KVPULL_FRAME_ACK };

	held_give(end);
	if (!kvpull_verbs_end_is_up(end))
		return;
	/* The keys come first: they are there when the welcome is told. */
	if (outbox_pump(end, &end->keys_out, KVPULL_FRAME_KEYS))
		(void)outbox_pump(end, &end->message, KVPULL_FRAME_MESSAGE);
	/* One heartbeat in flight is enough. */
	if ((end->beat_wanted || end->ask_wanted) &&
	    end->state == KVPULL_VERBS_IN &&
	    (int32_t)(end->acked - end->beat_sent) >= 0 &&
	    !frame_send(end, &beat)) {
		end->beat_wanted = end->ask_wanted = 0;
		end->beat_sent = end->sent;
	}
	/* Never more of these than frames that came: see the header. */
	if (end->told_acked != kvpull_verbs_end_taken(end))
		(void)frame_send(end, &ack);
}
