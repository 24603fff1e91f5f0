/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strangers on the fabric: queue pairs of our own, driven by the fake's calls
 * and by nothing of the product. As callers they dial any engine, as producers
 * they answer who follows a forged ticket. What must hold: a READ succeeds only
 * for who was let in.
 */
#include <arpa/inet.h>
#include <string.h>

#include "tests/fuzz/sequence/sequence.h"
#include "verbs/address.h"
#include "verbs/endpoint.h"

#define READ_ID 1000u
/*
 * Frames that are never sent from: a revocation table, and the bytes of READs.
 */
#define ENTRIES_FRAME (2 * SEQ_FRAMES - 2)
#define READ_FRAME (2 * SEQ_FRAMES - 1)

static const struct kvpull_fabric *fabric(void)
{
	return fake_verbs_fabric();
}

static struct sockaddr_in address_of(const char *text, uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(port) };

	(void)inet_pton(AF_INET, text, &address.sin_addr);
	return address;
}

void seq_strangers_open(struct seq_world *world)
{
	struct sockaddr_in address = address_of("10.66.0.1", 7000);

	world->listen_channel = fabric()->cm.create_event_channel();
	if (!world->listen_channel ||
	    fabric()->cm.create_id(world->listen_channel, &world->listener,
				   NULL, RDMA_PS_TCP))
		seq_fail("a stranger cannot listen");
	(void)fabric()->cm.bind_addr(world->listener,
				     (struct sockaddr *)(void *)&address);
	(void)fabric()->cm.listen(world->listener, 4);
}

/* Frames, a completion queue and a queue pair with all its receives. */
static int stranger_make(struct seq_stranger *stranger)
{
	struct ibv_qp_init_attr attr = { .cap = { .max_send_wr = 64,
						  .max_recv_wr = SEQ_FRAMES } };
	enum ibv_qp_state state;
	uint32_t at;

	stranger->pd = fabric()->ibv.alloc_pd(stranger->id->verbs);
	stranger->bell = fabric()->ibv.create_comp_channel(stranger->id->verbs);
	if (!stranger->pd || !stranger->bell)
		return -1;
	stranger->mr = fabric()->ibv.reg_mr(
		stranger->pd, stranger->frames, sizeof(stranger->frames),
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	stranger->cq = fabric()->ibv.create_cq(stranger->id->verbs, 64, NULL,
					       stranger->bell, 0);
	if (!stranger->mr || !stranger->cq)
		return -1;
	attr.send_cq = attr.recv_cq = stranger->cq;
	stranger->qp = fabric()->ibv.create_qp(stranger->pd, &attr);
	if (!stranger->qp)
		return -1;
	/* At once, so that it can send before anybody has answered. */
	for (state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		struct ibv_qp_attr next = { .qp_state = state };

		if (fabric()->ibv.modify_qp(stranger->qp, &next, IBV_QP_STATE))
			return -1;
	}
	for (at = 0; at < SEQ_FRAMES; at++) {
		struct ibv_sge part = {
			.addr = (uint64_t)(uintptr_t)stranger->frames[at],
			.length = KVPULL_FRAME_BYTES,
			.lkey = stranger->mr->lkey
		};
		struct ibv_recv_wr request = { .wr_id = at,
					       .sg_list = &part,
					       .num_sge = 1 };
		struct ibv_recv_wr *bad;

		(void)ibv_post_recv(stranger->qp, &request, &bad);
	}
	return 0;
}

static void stranger_unmake(struct seq_stranger *stranger)
{
	if (stranger->qp)
		(void)fabric()->ibv.destroy_qp(stranger->qp);
	if (stranger->cq)
		(void)fabric()->ibv.destroy_cq(stranger->cq);
	if (stranger->bell)
		(void)fabric()->ibv.destroy_comp_channel(stranger->bell);
	if (stranger->mr)
		(void)fabric()->ibv.dereg_mr(stranger->mr);
	if (stranger->pd)
		(void)fabric()->ibv.dealloc_pd(stranger->pd);
	if (stranger->id)
		(void)fabric()->cm.destroy_id(stranger->id);
	if (stranger->channel && !stranger->serves)
		fabric()->cm.destroy_event_channel(stranger->channel);
	memset(stranger, 0, sizeof(*stranger));
}

/* The stranger leaves with a farewell, or without. */
static void stranger_leave(struct seq_stranger *stranger, int says_so)
{
	if (stranger->id && says_so)
		(void)fabric()->cm.disconnect(stranger->id);
	stranger_unmake(stranger);
}

static void listener_clear(struct seq_world *world)
{
	struct rdma_cm_event *event;

	while (!fabric()->cm.get_cm_event(world->listen_channel, &event)) {
		struct rdma_cm_id *id = event->id;

		(void)fabric()->cm.ack_cm_event(event);
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		(void)fabric()->cm.reject(id, NULL, 0);
		(void)fabric()->cm.destroy_id(id);
	}
}

void seq_strangers_leave(struct seq_world *world)
{
	uint32_t at;

	for (at = 0; at < SEQ_STRANGERS; at++)
		if (world->strangers[at].used)
			stranger_leave(&world->strangers[at], at & 1);
	listener_clear(world);
}

void seq_strangers_close(struct seq_world *world)
{
	seq_strangers_leave(world);
	(void)fabric()->cm.destroy_id(world->listener);
	fabric()->cm.destroy_event_channel(world->listen_channel);
}

static uint32_t private_data_put(struct seq_world *world,
				 uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES])
{
	static const uint32_t credits[] = { 4, 32, 1, 65535, 0 };
	struct seq_dice *dice = world->dice;
	const struct seq_stranger *other =
		&world->strangers[seq_below(dice, SEQ_STRANGERS)];
	struct kvpull_verbs_greeting greeting = {
		.kind = KVPULL_VERBS_CALL,
		.credits = 4,
		.mtu = IBV_MTU_4096,
	};

	if (seq_one_in(dice, 6)) {
		greeting.kind = seq_below(dice, 6);
		greeting.credits = credits[seq_below(dice, 5)];
		greeting.rail = seq_below(dice, 6);
		greeting.lane = greeting.rail / 2;
		greeting.mtu = seq_below(dice, 7);
		memcpy(greeting.token, other->token, sizeof(greeting.token));
	}
	kvpull_verbs_greeting_put(bytes, &greeting);
	return seq_one_in(dice, 4) ?
		       (uint32_t)seq_mutate(world, bytes,
					    KVPULL_VERBS_PRIVATE_BYTES) :
		       KVPULL_VERBS_PRIVATE_BYTES;
}

static uint16_t port_of(const struct seq_engine *engine)
{
	const struct kvpull_transport *verbs = engine->verbs.transport;
	struct kvpull_verbs_addresses addresses;

	if (kvpull_verbs_addresses_parse(verbs->ops->address(verbs),
					 &addresses))
		seq_fail("an engine's own address is none");
	return ntohs(addresses.list[0].socket.v4.sin_port);
}

static void stranger_call(struct seq_world *world,
			  struct seq_stranger *stranger)
{
	static const char *const from[] = { "10.66.0.7", "10.66.0.8",
					    "10.66.0.7", "10.66.0.7",
					    "10.66.1.7", "10.66.0.8",
					    "10.66.0.8", "10.77.0.1" };
	struct seq_dice *dice = world->dice;
	uint8_t private_data[64] = { 0 };
	struct rdma_conn_param param = { .private_data = private_data };
	struct sockaddr_in own = address_of(from[seq_below(dice, 8)], 0);
	struct sockaddr_in to;

	stranger->used = 1;
	/* P most of all; but D listens, too. */
	stranger->of =
		&world->engines[seq_one_in(dice, 3) ? 1 + seq_below(dice, 2) :
						      SEQ_P];
	to = address_of("10.66.0.1", port_of(stranger->of));
	stranger->channel = fabric()->cm.create_event_channel();
	if (!stranger->channel ||
	    fabric()->cm.create_id(stranger->channel, &stranger->id, NULL,
				   RDMA_PS_TCP)) {
		stranger->id = NULL;
		stranger_unmake(stranger);
		return;
	}
	(void)fabric()->cm.resolve_addr(stranger->id,
					(struct sockaddr *)(void *)&own,
					(struct sockaddr *)(void *)&to, 1);
	param.private_data_len = (uint8_t)private_data_put(world, private_data);
	if (!stranger_make(stranger)) {
		param.qp_num = stranger->qp->qp_num;
		if (!fabric()->cm.connect(stranger->id, &param))
			return;
	}
	stranger_unmake(stranger);
}

/* A consumer has come by a forged ticket. */
static void stranger_answer(struct seq_world *world,
			    struct seq_stranger *stranger)
{
	struct seq_dice *dice = world->dice;
	uint8_t private_data[64] = { 0 };
	struct rdma_conn_param param = { .private_data = private_data };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (fabric()->cm.get_cm_event(world->listen_channel, &event))
		return;
	id = event->id;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	(void)fabric()->cm.ack_cm_event(event);
	stranger->used = stranger->serves = 1;
	stranger->of = &world->engines[SEQ_D];
	stranger->channel = world->listen_channel;
	stranger->id = id;
	param.private_data_len = (uint8_t)private_data_put(world, private_data);
	if (seq_one_in(dice, 8)) {
		(void)fabric()->cm.reject(id, private_data,
					  param.private_data_len);
		stranger_unmake(stranger);
	} else if (stranger_make(stranger) || fabric()->cm.accept(id, &param)) {
		stranger_unmake(stranger);
	}
}

static void post(struct seq_stranger *stranger, struct ibv_send_wr *request)
{
	struct ibv_send_wr *bad;

	request->send_flags = IBV_SEND_SIGNALED;
	(void)ibv_post_send(stranger->qp, request, &bad);
}

static void bytes_send(struct seq_stranger *stranger, const void *bytes,
		       size_t byte_count)
{
	uint8_t *frame = stranger->frames[SEQ_FRAMES +
					  stranger->sends % (SEQ_FRAMES - 2)];
	struct ibv_sge part = { .addr = (uint64_t)(uintptr_t)frame,
				.length = (uint32_t)byte_count,
				.lkey = stranger->mr->lkey };
	struct ibv_send_wr request = { .wr_id = stranger->sends,
				       .sg_list = &part,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND };

	if (byte_count > KVPULL_FRAME_BYTES)
		return;
	memcpy(frame, bytes, byte_count);
	stranger->sends++;
	post(stranger, &request);
}

static void frame_send(struct seq_world *world, struct seq_stranger *stranger,
		       struct kvpull_frame *frame)
{
	uint8_t bytes[KVPULL_FRAME_BYTES + 32];
	size_t byte_count;

	frame->acked = stranger->received;
	if (seq_one_in(world->dice, 16))
		frame->acked = (uint32_t)seq_u64(world->dice);
	byte_count = kvpull_frame_put(bytes, frame);
	bytes_send(stranger, bytes, seq_mutate(world, bytes, byte_count));
}

/* In pieces, in order; or one of them is missing, or comes twice. */
static void message_send(struct seq_world *world, struct seq_stranger *stranger,
			 const uint8_t *bytes, size_t byte_count, uint32_t kind)
{
	const uint32_t odd = seq_below(world->dice, 64);
	uint32_t offset;

	for (offset = 0; offset < byte_count;
	     offset += KVPULL_FRAME_PAYLOAD_BYTES) {
		const uint32_t left = (uint32_t)byte_count - offset;
		struct kvpull_frame frame = {
			.kind = kind,
			.total = (uint32_t)byte_count,
			.offset = offset,
			.payload = bytes + offset,
			.payload_bytes = left < KVPULL_FRAME_PAYLOAD_BYTES ?
						 left :
						 KVPULL_FRAME_PAYLOAD_BYTES,
		};

		if (odd == 1)
			frame.offset += KVPULL_FRAME_PAYLOAD_BYTES;
		if (odd == 2 && offset)
			continue;
		frame_send(world, stranger, &frame);
		if (odd == 3)
			frame_send(world, stranger, &frame);
	}
}

static void keys_send(struct seq_world *world, struct seq_stranger *stranger)
{
	struct seq_dice *dice = world->dice;
	uint8_t bytes[KVPULL_KEYS_BYTES_MAX];
	const uint64_t base = (uint64_t)(uintptr_t)stranger->frames;
	uint8_t *entries = stranger->frames[ENTRIES_FRAME];
	const uint64_t incarnation = SEQ_STRANGE_INCARNATION;
	struct kvpull_keys keys = {
		.region_count = 1,
		.slot_count = 8,
		.entries = { .address = (uint64_t)(uintptr_t)entries,
			     .bytes = 8 * 32 },
		.entries_key = stranger->mr->rkey,
		.mr_shift = 12 + seq_below(dice, 20),
	};
	uint32_t at;

	keys.regions[0] = (struct kvpull_range){
		.address = base,
		.bytes = SEQ_BLOCKS * SEQ_BLOCK_BYTES,
	};
	keys.mr_count = (uint32_t)kvpull_keys_layout(&keys);
	for (at = 0; at < keys.mr_count; at++)
		keys.mr_keys[at] = stranger->mr->rkey;

	memset(entries, 0, KVPULL_FRAME_BYTES);
	for (at = 0; at < 8; at++)
		memcpy(entries + (size_t)at * 32, &incarnation,
		       sizeof(incarnation));
	if (seq_one_in(dice, 4))
		keys.token[0] = keys.token[1] = 5;
	if (seq_one_in(dice, 8))
		keys.slot_count = seq_below(dice, 300);
	if (seq_one_in(dice, 8))
		keys.regions[0].bytes = seq_u64(dice);
	if (seq_one_in(dice, 8))
		keys.mr_keys[0]++;
	if (seq_one_in(dice, 8))
		keys.mr_count = seq_below(dice, KVPULL_MRS_MAX);
	message_send(world, stranger, bytes, kvpull_keys_put(bytes, &keys),
		     KVPULL_FRAME_KEYS);
}

static void note_send(struct seq_world *world, struct seq_stranger *stranger)
{
	struct kvpull_record record;
	uint8_t payload[32];
	struct kvpull_frame frame = { .kind = KVPULL_FRAME_NOTE,
				      .payload = payload,
				      .payload_bytes = sizeof(payload) };

	seq_record(world, stranger->of, &record);
	kvpull_frame_put_record(payload, &record);
	frame.offset = stranger->note_number++;
	if (seq_one_in(world->dice, 8))
		frame.offset = (uint32_t)seq_u64(world->dice);
	frame_send(world, stranger, &frame);
}

static void plain_send(struct seq_world *world, struct seq_stranger *stranger)
{
	static const uint32_t kinds[] = {
		KVPULL_FRAME_BEAT, KVPULL_FRAME_BEAT, KVPULL_FRAME_ACK, 0, 9,
		KVPULL_FRAME_KEYS
	};
	struct kvpull_frame frame = { .kind = kinds[seq_below(world->dice, 6)] };

	frame_send(world, stranger, &frame);
}

/*
 * Reads memory that the engine really serves: keys and addresses may be known.
 */
static void read_post(struct seq_stranger *stranger, uint32_t entry)
{
	const struct kvpull_worker *worker = stranger->of->worker;
	const void *base = entry ? (void *)worker->entries.base :
				   (void *)stranger->of->memory;
	struct ibv_sge part = {
		.addr = (uint64_t)(uintptr_t)stranger->frames[READ_FRAME],
		.length = 32,
		.lkey = stranger->mr->lkey
	};
	struct ibv_send_wr request = { .wr_id = READ_ID,
				       .sg_list = &part,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_READ };
	uint32_t at;

	for (at = 0; at < REGIONS_MAX; at++) {
		const struct fake_region *region = fake_verbs_state.regions[at];

		if (!region || region->mr.addr != base)
			continue;
		request.wr.rdma.rkey = region->mr.rkey;
		request.wr.rdma.remote_addr = (uint64_t)(uintptr_t)base;
		post(stranger, &request);
		return;
	}
}

/* Takes the parts of an engine's frame that a stranger needs. */
static void frame_take(struct seq_world *world, struct seq_stranger *stranger,
		       const uint8_t *bytes, size_t byte_count)
{
	static struct kvpull_hello hello;
	struct kvpull_frame frame;
	const int good = !kvpull_frame_get(bytes, byte_count, &frame);
	int kind;

	if (!good)
		seq_fail("an engine sends a frame that is none");
	stranger->received += frame.kind != KVPULL_FRAME_ACK;
	if (frame.kind == KVPULL_FRAME_KEYS && !frame.offset &&
	    !kvpull_keys_get(frame.payload, frame.payload_bytes,
			     &stranger->keys)) {
		stranger->let_in = 1;
		memcpy(stranger->token, stranger->keys.token,
		       sizeof(stranger->token));
	}
	if (frame.kind != KVPULL_FRAME_MESSAGE || frame.offset)
		return;
	kind = kvpull_handshake_kind(frame.payload, frame.payload_bytes);
	if (kind == KVPULL_MESSAGE_CHALLENGE)
		stranger->nonce_known = !kvpull_handshake_get_challenge(
			frame.payload, frame.payload_bytes, stranger->nonce);
	if (kind == KVPULL_MESSAGE_HELLO &&
	    !kvpull_handshake_get_hello(frame.payload, frame.payload_bytes,
					seq_key(world), stranger->nonce,
					&hello)) {
		memcpy(stranger->nonce, hello.nonce, sizeof(stranger->nonce));
		stranger->nonce_known = 1;
	}
	if (kind == KVPULL_MESSAGE_WELCOME)
		world->welcomes++;
}

static void received_take(struct seq_world *world,
			  struct seq_stranger *stranger,
			  const struct ibv_wc *wc)
{
	struct ibv_sge part = {
		.addr = (uint64_t)(uintptr_t)stranger->frames[wc->wr_id],
		.length = KVPULL_FRAME_BYTES,
		.lkey = stranger->mr->lkey
	};
	struct ibv_recv_wr request = { .wr_id = wc->wr_id,
				       .sg_list = &part,
				       .num_sge = 1 };
	struct ibv_recv_wr *bad;

	frame_take(world, stranger, stranger->frames[wc->wr_id], wc->byte_len);
	(void)ibv_post_recv(stranger->qp, &request, &bad);
}

/* Did its engine let it in? A READ may come back before the keys do. */
static int was_let_in(const struct seq_stranger *stranger)
{
	const struct fake_id *other =
		((const struct fake_id *)(const void *)stranger->id)->other;
	const struct kvpull_verbs_end *end = other ? other->id.context : NULL;

	return stranger->serves || stranger->let_in || !end ||
	       stranger->of->verbs.admitted[end->index];
}

static void stranger_listen(struct seq_world *world,
			    struct seq_stranger *stranger)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(stranger->cq, 1, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS)
			continue;
		if (wc.byte_len && wc.wr_id < SEQ_FRAMES)
			received_take(world, stranger, &wc);
		else if (wc.wr_id == READ_ID && !was_let_in(stranger))
			seq_fail("a stranger reads before it was let in");
	}
}

/* Says that it is there, to who has accepted it; some never do. */
static void stranger_establish(struct seq_world *world,
			       struct seq_stranger *stranger)
{
	const struct fake_id *id =
		(const struct fake_id *)(const void *)stranger->id;

	if (stranger->serves || stranger->established || !id->connected ||
	    seq_one_in(world->dice, 8))
		return;
	stranger->established = 1;
	(void)fabric()->cm.establish(stranger->id);
}

static void stranger_say(struct seq_world *world, struct seq_stranger *stranger)
{
	static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX + 32];
	struct seq_dice *dice = world->dice;
	size_t byte_count = 0;
	uint32_t kind;

	switch (seq_below(dice, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		byte_count =
			stranger->serves ?
				seq_challenge(world, stranger->nonce, bytes) :
				seq_hello(world, stranger->of, stranger->nonce,
					  bytes);
		break;
	case 4:
	case 5:
		if (stranger->serves)
			keys_send(world, stranger);
		byte_count = seq_welcome(world, stranger->of, stranger->nonce,
					 bytes, &kind);
		break;
	case 6:
		byte_count = seq_refusal(world, bytes);
		break;
	case 7:
		byte_count = seq_garbage(world, bytes);
		bytes_send(stranger, bytes, byte_count);
		return;
	case 8:
	case 9:
		keys_send(world, stranger);
		return;
	case 10:
	case 11:
	case 12:
		note_send(world, stranger);
		return;
	case 13:
	case 14:
		plain_send(world, stranger);
		return;
	default:
		byte_count = seq_garbage(world, bytes);
	}
	byte_count = seq_mutate(world, bytes, byte_count);
	message_send(world, stranger, bytes, byte_count, KVPULL_FRAME_MESSAGE);
}

/* The next right word: what an honest one would say. */
static void stranger_greet(struct seq_world *world,
			   struct seq_stranger *stranger)
{
	uint8_t bytes[4096];
	size_t byte_count = 0;
	uint32_t kind;

	seq_talk(stranger->of);
	stranger_establish(world, stranger);
	seq_talk(stranger->of);
	stranger_listen(world, stranger);
	if (!stranger->serves && stranger->nonce_known && !stranger->let_in)
		byte_count =
			seq_hello(world, stranger->of, stranger->nonce, bytes);
	if (stranger->serves && !stranger->nonce_known)
		byte_count = seq_challenge(world, stranger->nonce, bytes);
	if (stranger->serves && stranger->nonce_known && !stranger->let_in) {
		keys_send(world, stranger);
		byte_count = seq_welcome(world, stranger->of, stranger->nonce,
					 bytes, &kind);
		stranger->let_in = 1;
	}
	if (byte_count)
		message_send(world, stranger, bytes, byte_count,
			     KVPULL_FRAME_MESSAGE);
	seq_talk(stranger->of);
	stranger_listen(world, stranger);
}

void seq_stranger_step(struct seq_world *world)
{
	struct seq_dice *dice = world->dice;
	/* A few of them, so that each gets far. */
	struct seq_stranger *stranger = &world->strangers[seq_below(
		dice, seq_one_in(dice, 4) ? SEQ_STRANGERS : 3)];

	if (!stranger->used) {
		if (seq_one_in(dice, 3))
			stranger_answer(world, stranger);
		else
			stranger_call(world, stranger);
		return;
	}
	switch (seq_below(dice, 12)) {
	case 0:
		stranger_listen(world, stranger);
		break;
	case 1:
		read_post(stranger, seq_below(dice, 2));
		break;
	case 2:
		stranger_listen(world, stranger);
		stranger_leave(stranger, (int)seq_below(dice, 2));
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		stranger_greet(world, stranger);
		break;
	default:
		stranger_establish(world, stranger);
		stranger_listen(world, stranger);
		stranger_say(world, stranger);
	}
}
