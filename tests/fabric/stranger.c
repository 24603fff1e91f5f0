/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric_stranger MODE ADDRESS PORT DIALS AT-ONCE SECONDS [MEMORY KEY]
 *
 * A caller that nobody let in. It greets as a consumer does, says no hello, and
 *   silent    waits                   mute   waits, and takes no message
 *   garbage   sends frames of all kinds, and what is none
 *   reads     READs MEMORY (hex) with KEY (hex), from the first moment on
 * It dials until DIALS have ended, AT-ONCE at a time, for SECONDS at the most;
 * silent and mute ones hold on to what they have.
 *
 * Prints one line; exit status 1: a READ succeeded.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "verbs/endpoint.h"

#define DIALS_MAX 4096u
#define QUEUE_MAX 32u /* work requests of a dial, each way */
#define READS 20u     /* of a dial that reads */
#define BUFFER_BYTES 1024u
#define HOLD_NS (KVPULL_NS_PER_S / 2) /* garbage and reads: then it hangs up */
#define IS_READ (UINT64_C(1) << 32)

enum mode {
	SILENT,
	MUTE,
	GARBAGE,
	READING
};

static const char *const mode_names[] = { "silent", "mute", "garbage",
					  "reads" };

struct dial {
	struct rdma_cm_id *id;
	uint64_t until_ns;
	uint32_t open;     /* completions that are to come */
	uint32_t answered; /* the CM said how the call ended */
};

static struct stranger {
	enum mode mode;
	struct sockaddr_in to;
	uint32_t dials_max, at_once;
	uint64_t end_ns;
	uint64_t memory;
	uint32_t key;
	struct rdma_event_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t buffer[BUFFER_BYTES];
	struct dial dials[DIALS_MAX];
	uint64_t begun, ended, established, refused, failed;
	uint64_t reads, reads_good, sends;
} us;

static int fail(const char *what)
{
	fprintf(stderr, "stranger: %s: %s\n", what, strerror(errno));
	return -1;
}

static void dial_end(struct dial *dial)
{
	if (dial->id->qp)
		rdma_destroy_qp(dial->id);
	(void)rdma_destroy_id(dial->id);
	memset(dial, 0, sizeof(*dial));
	us.ended++;
}

static int dial_begin(struct dial *dial)
{
	if (rdma_create_id(us.channel, &dial->id, dial, RDMA_PS_TCP))
		return fail("id");
	us.begun++;
	if (rdma_resolve_addr(dial->id, NULL, (struct sockaddr *)&us.to, 2000))
		return fail("address");
	return 0;
}

static int objects_make(struct rdma_cm_id *id)
{
	if (us.pd)
		return 0;
	us.pd = ibv_alloc_pd(id->verbs);
	us.cq = ibv_create_cq(id->verbs, 30000, NULL, NULL, 0);
	if (!us.pd || !us.cq)
		return fail("objects");
	us.mr = ibv_reg_mr(us.pd, us.buffer, sizeof(us.buffer),
			   IBV_ACCESS_LOCAL_WRITE);
	return us.mr ? 0 : fail("memory");
}

static uint64_t number_of(const struct dial *dial)
{
	return (uint64_t)(dial - us.dials);
}

static void receives_post(struct dial *dial)
{
	struct ibv_sge part = { .addr = (uint64_t)(uintptr_t)us.buffer,
				.length = BUFFER_BYTES,
				.lkey = us.mr->lkey };
	struct ibv_recv_wr request = { .wr_id = number_of(dial),
				       .sg_list = &part,
				       .num_sge = 1 };
	struct ibv_recv_wr *bad;
	uint32_t i;

	for (i = 0; i < QUEUE_MAX; i++)
		if (!ibv_post_recv(dial->id->qp, &request, &bad))
			dial->open++;
}

static int call(struct dial *dial)
{
	const struct kvpull_verbs_greeting greeting = {
		.kind = KVPULL_VERBS_CALL, .credits = 16, .mtu = IBV_MTU_4096
	};
	struct ibv_qp_init_attr attr = { .cap = { .max_send_wr = QUEUE_MAX,
						  .max_recv_wr = QUEUE_MAX,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES];
	struct rdma_conn_param param = { .private_data = bytes,
					 .private_data_len = sizeof(bytes),
					 .initiator_depth = 16,
					 .retry_count = 6,
					 .rnr_retry_count = 7 };

	if (objects_make(dial->id))
		return -1;
	attr.send_cq = attr.recv_cq = us.cq;
	if (rdma_create_qp(dial->id, us.pd, &attr))
		return fail("queue pair");
	if (us.mode != MUTE)
		receives_post(dial);
	kvpull_verbs_greeting_put(bytes, &greeting);
	return rdma_connect(dial->id, &param) ? fail("connect") : 0;
}

static void reads_post(struct dial *dial)
{
	struct ibv_sge part = { .addr = (uint64_t)(uintptr_t)us.buffer,
				.length = 64,
				.lkey = us.mr->lkey };
	struct ibv_send_wr request = { .wr_id = IS_READ | number_of(dial),
				       .sg_list = &part,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_READ,
				       .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	uint32_t i;

	request.wr.rdma.remote_addr = us.memory;
	request.wr.rdma.rkey = us.key;
	for (i = 0; i < READS; i++)
		if (!ibv_post_send(dial->id->qp, &request, &bad)) {
			dial->open++;
			us.reads++;
		}
}

static uint32_t draw(void)
{
	static uint32_t seed = 0x9e3779b9;

	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed;
}

/* Frames of each kind, right or nearly so, and bytes that are none. */
static void garbage_post(struct dial *dial)
{
	struct ibv_sge part = { .addr = (uint64_t)(uintptr_t)us.buffer,
				.lkey = us.mr->lkey };
	struct ibv_send_wr request = { .wr_id = number_of(dial),
				       .sg_list = &part,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	uint32_t i;

	/* All receives and sends share one buffer: their bytes are garbage. */
	for (i = 0; i < 3; i++) {
		const struct kvpull_frame frame = {
			.kind = draw() % 7,
			.acked = draw() % 2,
			.total = draw() % 3000,
			.payload = us.buffer + 512,
			.payload_bytes = draw() % 64,
		};

		part.length = kvpull_frame_put(us.buffer, &frame);
		if (draw() % 4 == 0) {
			us.buffer[draw() % 16] = (uint8_t)draw();
			part.length = 1 + draw() % 64;
		}
		if (!ibv_post_send(dial->id->qp, &request, &bad)) {
			dial->open++;
			us.sends++;
		}
	}
}

static void up(struct dial *dial)
{
	us.established++;
	dial->answered = 1;
	dial->until_ns = kvpull_clock_ns() + HOLD_NS;
	if (us.mode == READING)
		reads_post(dial);
	else if (us.mode == GARBAGE)
		garbage_post(dial);
	else
		dial->until_ns = us.end_ns;
}

static void event_take(const struct rdma_cm_event *event)
{
	const enum rdma_cm_event_type type = event->event;
	struct dial *dial = event->id->context;
	int failed = 0;

	(void)rdma_ack_cm_event((struct rdma_cm_event *)(uintptr_t)event);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		failed = rdma_resolve_route(dial->id, 2000);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		failed = call(dial);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		up(dial);
		return;
	case RDMA_CM_EVENT_REJECTED:
		us.refused++;
		dial_end(dial);
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
		/* Posted work requests come back as completions. */
		(void)rdma_disconnect(dial->id);
		dial->until_ns = kvpull_clock_ns();
		return;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return;
	default:
		failed = 1;
	}
	if (!failed)
		return;
	us.failed++;
	dial_end(dial);
}

static void completions_take(void)
{
	struct ibv_wc completions[64];
	int count;
	int i;

	if (!us.cq)
		return;
	while ((count = ibv_poll_cq(us.cq, 64, completions)) > 0)
		for (i = 0; i < count; i++) {
			const struct ibv_wc *wc = &completions[i];

			us.dials[(uint32_t)wc->wr_id].open--;
			us.reads_good += wc->wr_id & IS_READ &&
					 wc->status == IBV_WC_SUCCESS;
		}
}

/* Was the dial cut off, and have all its work requests come back? */
static int is_done(const struct dial *dial)
{
	return us.mode >= GARBAGE && !dial->open;
}

/* Each place that is free dials; whoever held on for long enough hangs up. */
static int dials_run(uint64_t now_ns)
{
	uint32_t at;

	for (at = 0; at < us.at_once; at++) {
		struct dial *dial = &us.dials[at];

		if (!dial->id) {
			if (us.begun < us.dials_max && dial_begin(dial))
				return -1;
		} else if (dial->answered &&
			   (now_ns >= dial->until_ns || is_done(dial))) {
			/* The dial's completions are ours until they came. */
			(void)rdma_disconnect(dial->id);
			completions_take();
			if (!dial->open || now_ns >= us.end_ns ||
			    now_ns >= dial->until_ns + KVPULL_NS_PER_S)
				dial_end(dial);
		}
	}
	return 0;
}

static int run(void)
{
	struct pollfd waits = { .fd = us.channel->fd, .events = POLLIN };
	uint64_t now_ns = kvpull_clock_ns();
	struct rdma_cm_event *event;

	while (now_ns < us.end_ns && us.ended < us.dials_max) {
		if (dials_run(now_ns))
			return -1;
		while (!rdma_get_cm_event(us.channel, &event))
			event_take(event);
		completions_take();
		(void)poll(&waits, 1, 1);
		now_ns = kvpull_clock_ns();
	}
	return 0;
}

static int arguments_take(int count, char **words)
{
	size_t mode;

	if (count < 7)
		return -1;
	for (mode = 0; mode < sizeof(mode_names) / sizeof(*mode_names); mode++)
		if (strcmp(words[1], mode_names[mode]) == 0)
			break;
	us.mode = (enum mode)mode;
	us.to.sin_family = AF_INET;
	us.to.sin_port = htons((uint16_t)strtoul(words[3], NULL, 10));
	us.dials_max = (uint32_t)strtoul(words[4], NULL, 10);
	us.at_once = (uint32_t)strtoul(words[5], NULL, 10);
	us.end_ns = kvpull_clock_ns() +
		    strtoul(words[6], NULL, 10) * KVPULL_NS_PER_S;
	if (us.mode == READING && count == 9) {
		us.memory = strtoull(words[7], NULL, 16);
		us.key = (uint32_t)strtoul(words[8], NULL, 16);
	}
	if (mode > READING || (us.mode == READING && count != 9) ||
	    inet_pton(AF_INET, words[2], &us.to.sin_addr) != 1 ||
	    us.at_once > DIALS_MAX)
		return -1;
	return 0;
}

int main(int count, char **words)
{
	int code;

	if (arguments_take(count, words)) {
		fputs("stranger: bad arguments: see its file\n", stderr);
		return 2;
	}
	us.channel = rdma_create_event_channel();
	if (!us.channel || fcntl(us.channel->fd, F_SETFL, O_NONBLOCK)) {
		(void)fail("event channel");
		return 2;
	}
	code = run();
	printf("stranger: %s: %llu dials, %llu accepted, %llu refused, %llu failed; %llu frames; %llu READs, %llu succeeded\n",
	       words[1], (unsigned long long)us.begun,
	       (unsigned long long)us.established,
	       (unsigned long long)us.refused, (unsigned long long)us.failed,
	       (unsigned long long)us.sends, (unsigned long long)us.reads,
	       (unsigned long long)us.reads_good);
	if (code)
		return 2;
	return us.reads_good > 0;
}
