/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam's table over its parts: connections (CM), endpoints (queue pairs,
 * frames) and reads. One poll, in this order, each part bounded:
 *   CM and channel events · completions of each endpoint · posts · time-outs ·
 *   ends
 *
 * Looking at descriptors is a system call; so a busy owner looks once in
 * LOOK_POLLS polls or LOOK_NS, and always around a sleep. Completion queues
 * are looked at in each poll: that is user memory.
 */
#include "verbs/verbs.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "verbs/connect.h"
#include "verbs/read.h"
#include "verbs/run.h"

#define LOOK_POLLS 16u
#define LOOK_NS UINT64_C(1000000)
#define LINGER_NS (KVPULL_NS_PER_S / 2)
#define CLOSE_NS (KVPULL_NS_PER_S / 5)

struct verbs {
	struct kvpull_transport transport; /* first: the seam's handle */
	struct kvpull_fabric fabric;
	struct kvpull_verbs_shared shared;
	struct kvpull_verbs_connect connect;
	struct kvpull_verbs_end *peers;   /* [peers_max] */
	struct kvpull_verbs_end *callers; /* [callers_max], behind peers */
	struct kvpull_verbs_reads reads;
	int wait_fd;
	int timer_fd;
	uint32_t look_now;
	uint32_t polls; /* since the last look */
	uint64_t looked_ns;
	uint64_t timer_ns; /* set in timer_fd; 0: not */
};

static struct verbs *verbs_of(struct kvpull_transport *transport)
{
	return (struct verbs *)(void *)transport;
}

static const struct verbs *
verbs_of_const(const struct kvpull_transport *transport)
{
	return (const struct verbs *)(const void *)transport;
}

static struct kvpull_verbs_end *peer_at(const struct verbs *verbs,
					uint32_t index)
{
	kvpull_check(verbs->shared.log, index < verbs->shared.params.peers_max);
	return &verbs->peers[index];
}

static struct kvpull_verbs_end *caller_at(const struct verbs *verbs,
					  uint32_t index)
{
	kvpull_check(verbs->shared.log,
		     index < verbs->shared.params.callers_max);
	return &verbs->callers[index];
}

static int verbs_serve(struct kvpull_transport *transport,
		       const struct kvpull_serve *serve)
{
	struct verbs *verbs = verbs_of(transport);
	int code;

	if (verbs->shared.regions.count)
		return KVPULL_EINVAL;
	code = kvpull_verbs_regions_register(&verbs->shared.regions,
					     &verbs->shared.device, serve);
	if (!code)
		code = kvpull_verbs_connect_listen(&verbs->connect);
	return code;
}

static const char *verbs_address(const struct kvpull_transport *transport)
{
	return verbs_of_const(transport)->connect.address;
}

static int verbs_reachable(const struct kvpull_transport *transport,
			   const char *text)
{
	const struct verbs *verbs = verbs_of_const(transport);
	struct kvpull_verbs_address address;

	if (!verbs->shared.regions.count || verbs->connect.gone ||
	    kvpull_verbs_address_parse(text, &address) ||
	    !kvpull_verbs_networks_allow(&verbs->shared.networks, &address))
		return KVPULL_EROUTE;
	return 0;
}

static int verbs_connect(struct kvpull_transport *transport, const char *text,
			 uint32_t *peer)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_address address;

	if (kvpull_verbs_address_parse(text, &address))
		return KVPULL_EROUTE;
	verbs->look_now = 1;
	return kvpull_verbs_connect_start(&verbs->connect, &address, peer);
}

static int verbs_peer_send(struct kvpull_transport *transport, uint32_t peer,
			   const void *bytes, size_t byte_count)
{
	struct kvpull_verbs_end *end = peer_at(verbs_of(transport), peer);

	return kvpull_verbs_end_say(end, &end->message, bytes, byte_count);
}

static int verbs_attach(struct kvpull_transport *transport, uint32_t peer,
			const struct kvpull_serve *remote)
{
	struct kvpull_verbs_end *end = peer_at(verbs_of(transport), peer);

	if (end->state != KVPULL_VERBS_OPEN)
		return KVPULL_EPEER;
	if (!end->keys_known || kvpull_keys_check(&end->keys, remote))
		return KVPULL_EPROTO;
	end->state = KVPULL_VERBS_IN;
	return 0;
}

static void verbs_disconnect(struct kvpull_transport *transport, uint32_t peer)
{
	kvpull_verbs_end_lose(peer_at(verbs_of(transport), peer), KVPULL_EPEER,
			      NULL);
}

static int verbs_read_start(struct kvpull_transport *transport, uint32_t peer,
			    struct kvpull_read *read)
{
	struct verbs *verbs = verbs_of(transport);

	(void)peer_at(verbs, peer);
	return kvpull_verbs_read_start(&verbs->reads, peer, read);
}

static void verbs_read_cancel(struct kvpull_transport *transport, uint32_t peer,
			      struct kvpull_read *read)
{
	(void)peer;
	kvpull_verbs_read_cancel(&verbs_of(transport)->reads, read);
}

static int verbs_check_start(struct kvpull_transport *transport, uint32_t peer,
			     struct kvpull_read *read)
{
	struct verbs *verbs = verbs_of(transport);

	(void)peer_at(verbs, peer);
	return kvpull_verbs_read_check(&verbs->reads, peer, read);
}

static int verbs_notify(struct kvpull_transport *transport, uint32_t peer,
			const struct kvpull_record *record)
{
	struct kvpull_verbs_end *end = peer_at(verbs_of(transport), peer);

	if (end->state != KVPULL_VERBS_IN)
		return KVPULL_EAGAIN;
	/* The owner has one answer: later. A lost peer tells itself. */
	return kvpull_verbs_end_note(end, record) ? KVPULL_EAGAIN : 0;
}

static uint32_t verbs_notes_open(const struct kvpull_transport *transport,
				 uint32_t peer)
{
	return peer_at(verbs_of_const(transport), peer)->note_open;
}

static void verbs_beat(struct kvpull_transport *transport, uint32_t peer)
{
	struct kvpull_verbs_end *end = peer_at(verbs_of(transport), peer);

	end->beat_wanted = 1;
	kvpull_verbs_end_pump(end);
}

static int verbs_caller_send(struct kvpull_transport *transport,
			     uint32_t caller, const void *bytes,
			     size_t byte_count)
{
	struct kvpull_verbs_end *end = caller_at(verbs_of(transport), caller);

	return kvpull_verbs_end_say(end, &end->message, bytes, byte_count);
}

static int verbs_admit(struct kvpull_transport *transport, uint32_t caller,
		       const void *welcome, size_t welcome_bytes,
		       struct kvpull_ring **ring)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_end *end = caller_at(verbs, caller);
	uint8_t bytes[KVPULL_KEYS_BYTES_MAX];
	struct kvpull_keys keys;
	int code;

	if (end->state != KVPULL_VERBS_OPEN)
		return KVPULL_EPEER;
	kvpull_verbs_regions_keys(&verbs->shared.regions, &keys);
	code = kvpull_verbs_end_access(end, IBV_ACCESS_REMOTE_READ);
	if (!code)
		code = kvpull_verbs_end_say(end, &end->keys_out, bytes,
					    kvpull_keys_put(bytes, &keys));
	if (!code)
		code = kvpull_verbs_end_say(end, &end->message, welcome,
					    welcome_bytes);
	if (code)
		return KVPULL_EPEER;
	end->state = KVPULL_VERBS_IN;
	end->deadline_ns = 0;
	*ring = NULL;
	return 0;
}

static void verbs_refuse(struct kvpull_transport *transport, uint32_t caller,
			 const void *refusal, size_t refusal_bytes)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_end *end = caller_at(verbs, caller);

	end->told = 0;
	if (kvpull_verbs_end_say(end, &end->message, refusal, refusal_bytes)) {
		kvpull_verbs_end_lose(end, KVPULL_EREJECTED, NULL);
		return;
	}
	end->state = KVPULL_VERBS_LINGER;
	end->deadline_ns = verbs->shared.now_ns + LINGER_NS;
}

static void verbs_drop(struct kvpull_transport *transport, uint32_t caller)
{
	kvpull_verbs_end_lose(caller_at(verbs_of(transport), caller),
			      KVPULL_EPEER, "dropped");
}

static void verbs_forget(struct kvpull_transport *transport, uint32_t caller)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_end *end = caller_at(verbs, caller);

	kvpull_check(verbs->shared.log, end->state == KVPULL_VERBS_DOWN);
	kvpull_verbs_connect_free(&verbs->connect, end);
}

/* What was told of in the last poll is free now. */
static void gone_free(struct verbs *verbs)
{
	struct kvpull_verbs_connect *connect = &verbs->connect;
	uint32_t at = connect->active_count;

	/* From the end: a freed one is replaced by one already seen. */
	for (; at > 0; at--) {
		struct kvpull_verbs_end *end =
			&connect->ends[connect->active[at - 1]];

		if (end->state == KVPULL_VERBS_GONE)
			kvpull_verbs_connect_free(connect, end);
	}
}

static void channel_clear(struct verbs *verbs)
{
	const struct kvpull_fabric *fabric = &verbs->fabric;
	struct ibv_cq *cq;
	void *context;

	while (!verbs->fabric.ibv.get_cq_event(verbs->shared.device.channel,
					       &cq, &context)) {
		struct kvpull_verbs_end *end = context;

		fabric->ibv.ack_cq_events(cq, 1);
		end->armed = 0;
	}
}

static int look_is_due(struct verbs *verbs, uint64_t now_ns)
{
	return ++verbs->polls >= LOOK_POLLS || verbs->look_now ||
	       now_ns - verbs->looked_ns >= LOOK_NS;
}

static void look(struct verbs *verbs, uint64_t now_ns)
{
	struct epoll_event ready[4];
	const int count = epoll_wait(verbs->wait_fd, ready, 4, 0);
	uint64_t ignored;
	int at;

	for (at = 0; at < count; at++) {
		if (ready[at].data.fd == verbs->connect.channel->fd)
			kvpull_verbs_connect_poll(&verbs->connect);
		else if (ready[at].data.fd == verbs->timer_fd)
			(void)!read(verbs->timer_fd, &ignored, sizeof(ignored));
		else
			channel_clear(verbs);
	}
	verbs->look_now = 0;
	verbs->polls = 0;
	verbs->looked_ns = now_ns;
}

static int verbs_poll(struct kvpull_transport *transport, uint64_t now_ns,
		      struct kvpull_event *events, uint32_t capacity)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_connect *connect = &verbs->connect;
	struct kvpull_verbs_events told = { .events = events,
					    .capacity = capacity };
	uint32_t at;

	verbs->shared.now_ns = now_ns;
	gone_free(verbs);
	if (look_is_due(verbs, now_ns))
		look(verbs, now_ns);
	for (at = 0; at < connect->active_count; at++)
		verbs->look_now |= (uint32_t)kvpull_verbs_end_run(
			&verbs->reads, &connect->ends[connect->active[at]],
			&told);
	return (int)told.count;
}

static void timer_set(struct verbs *verbs, uint64_t at_ns)
{
	struct itimerspec timer = { 0 };

	if (verbs->timer_ns == at_ns)
		return;
	verbs->timer_ns = at_ns;
	if (at_ns != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(at_ns / KVPULL_NS_PER_S);
		timer.it_value.tv_nsec = (long)(at_ns % KVPULL_NS_PER_S) + 1;
		if (timer.it_value.tv_nsec == (long)KVPULL_NS_PER_S)
			timer.it_value.tv_nsec--;
	}
	(void)timerfd_settime(verbs->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

static int verbs_arm(struct kvpull_transport *transport)
{
	struct verbs *verbs = verbs_of(transport);
	const struct kvpull_verbs_connect *connect = &verbs->connect;
	uint64_t due_ns = UINT64_MAX;
	int more = verbs->reads.ended != KVPULL_NONE;
	uint32_t at;

	verbs->look_now = 1;
	for (at = 0; at < connect->active_count; at++) {
		struct kvpull_verbs_end *end =
			&connect->ends[connect->active[at]];
		uint64_t end_ns;

		more |= kvpull_verbs_end_arm(end);
		end_ns = kvpull_verbs_end_due_ns(end);
		if (end_ns < due_ns)
			due_ns = end_ns;
	}
	timer_set(verbs, due_ns);
	return more;
}

static void verbs_disarm(struct kvpull_transport *transport)
{
	verbs_of(transport)->look_now = 1;
}

static int verbs_fd(const struct kvpull_transport *transport)
{
	return verbs_of_const(transport)->wait_fd;
}

/* Notifications that are posted get their chance to be delivered. */
static int notes_left(const struct verbs *verbs)
{
	uint32_t at;

	for (at = 0; at < verbs->shared.params.peers_max; at++)
		if (kvpull_verbs_end_is_up(&verbs->peers[at]) &&
		    verbs->peers[at].note_open)
			return 1;
	return 0;
}

/* For whoever judges the route's economy: work requests, doorbells a byte. */
static void counts_say(const struct verbs *verbs)
{
	const struct kvpull_verbs_counts *counts = &verbs->shared.counts;

	if (!counts->work_requests && !counts->frames_sent)
		return;
	kvpull_info(
		verbs->shared.log,
		"verbs: read %llu bytes by %llu work requests, %llu doorbells, %llu completions; %llu checks, %llu frames, %llu bad, %llu queues full, %llu flushes, %llu calls refused",
		(unsigned long long)counts->read_bytes,
		(unsigned long long)counts->work_requests,
		(unsigned long long)counts->doorbells,
		(unsigned long long)counts->completions,
		(unsigned long long)counts->checks,
		(unsigned long long)counts->frames_sent,
		(unsigned long long)counts->frames_bad,
		(unsigned long long)counts->post_busy,
		(unsigned long long)counts->flushes,
		(unsigned long long)counts->calls_refused);
}

static void verbs_close(struct kvpull_transport *transport)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_connect *connect = &verbs->connect;
	const uint64_t until_ns = kvpull_clock_ns() + CLOSE_NS;
	struct kvpull_event ignored[16];

	while (verbs->peers && notes_left(verbs) &&
	       kvpull_clock_ns() < until_ns)
		(void)verbs_poll(transport, kvpull_clock_ns(), ignored, 16);
	while (connect->active_count) {
		struct kvpull_verbs_end *end =
			&connect->ends[connect->active[0]];

		kvpull_verbs_end_lose(end, KVPULL_EPEER, NULL);
		kvpull_verbs_connect_free(connect, end);
	}
	counts_say(verbs);
	kvpull_verbs_connect_close(connect);
	kvpull_verbs_reads_fini(&verbs->reads);
	kvpull_verbs_regions_deregister(&verbs->shared.regions);
	kvpull_verbs_device_close(&verbs->shared.device);
	if (verbs->wait_fd >= 0)
		(void)close(verbs->wait_fd);
	if (verbs->timer_fd >= 0)
		(void)close(verbs->timer_fd);
}

static const struct kvpull_transport_ops verbs_ops = {
	.name = "verbs",
	.serve = verbs_serve,
	.address = verbs_address,
	.reachable = verbs_reachable,
	.connect = verbs_connect,
	.peer_send = verbs_peer_send,
	.attach = verbs_attach,
	.disconnect = verbs_disconnect,
	.read_start = verbs_read_start,
	.read_cancel = verbs_read_cancel,
	.check_start = verbs_check_start,
	.notify = verbs_notify,
	.notes_open = verbs_notes_open,
	.beat = verbs_beat,
	.caller_send = verbs_caller_send,
	.admit = verbs_admit,
	.refuse = verbs_refuse,
	.drop = verbs_drop,
	.forget = verbs_forget,
	.poll = verbs_poll,
	.arm = verbs_arm,
	.disarm = verbs_disarm,
	.fd = verbs_fd,
	.close = verbs_close,
};

static void set_u32(uint32_t *member, uint32_t value)
{
	if (!*member)
		*member = value;
}

static void set_u64(uint64_t *member, uint64_t value)
{
	if (!*member)
		*member = value;
}

static void defaults_fill(struct kvpull_verbs_params *params)
{
	set_u32(&params->notify_credits, KVPULL_VERBS_CREDITS_DEFAULT);
	set_u32(&params->depth, 256);
	set_u32(&params->batch, KVPULL_VERBS_BATCH_MAX);
	set_u32(&params->rd_atomic, 16);
	set_u32(&params->parts_max, 16);
	set_u32(&params->retry_count, 6);
	set_u32(&params->ack_timeout, 14);
	set_u64(&params->slice_bytes, UINT64_C(1) << 20);
	set_u64(&params->window_bytes, UINT64_C(16) << 20);
	set_u64(&params->connect_ns, 5 * KVPULL_NS_PER_S);
	set_u64(&params->flush_ns, KVPULL_NS_PER_S / 10);
	if (params->batch > KVPULL_VERBS_BATCH_MAX)
		params->batch = KVPULL_VERBS_BATCH_MAX;
	if (params->parts_max > KVPULL_SEGMENT_PARTS_MAX)
		params->parts_max = KVPULL_SEGMENT_PARTS_MAX;
}

static void least_u32(uint32_t *member, uint32_t most)
{
	if (*member > most)
		*member = most;
}

/* What the device offers is the bound of everything. */
static void limits_apply(struct kvpull_verbs_params *params,
			 const struct kvpull_verbs_device *device)
{
	const uint32_t frames = 2 * params->notify_credits;

	least_u32(&params->parts_max, device->part_max);
	least_u32(&params->rd_atomic, device->rd_atomic_max);
	least_u32(&params->rd_atomic, UINT8_MAX);
	if (device->work_request_max > frames)
		least_u32(&params->depth, device->work_request_max - frames);
	if (device->completion_max > 2 * frames)
		least_u32(&params->depth, device->completion_max - 2 * frames);
	if (params->slice_bytes > device->message_bytes_max)
		params->slice_bytes = device->message_bytes_max;
	if (params->slice_bytes > params->window_bytes / 4)
		params->slice_bytes = params->window_bytes / 4;
}

size_t kvpull_verbs_bytes(const struct kvpull_verbs_params *params)
{
	struct kvpull_verbs_params filled = *params;
	size_t bytes = sizeof(struct verbs) + 4 * (size_t)KVPULL_CACHE_LINE;

	defaults_fill(&filled);
	bytes += filled.peers_max *
		 (sizeof(struct kvpull_verbs_end) + sizeof(uint32_t) +
		  kvpull_verbs_end_bytes(&filled, KVPULL_VERBS_PEER));
	bytes += filled.callers_max *
		 (sizeof(struct kvpull_verbs_end) + sizeof(uint32_t) +
		  kvpull_verbs_end_bytes(&filled, KVPULL_VERBS_CALLER));
	return bytes + kvpull_verbs_reads_bytes(&filled);
}

static int watch(const struct verbs *verbs, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	event.data.fd = fd;
	return epoll_ctl(verbs->wait_fd, EPOLL_CTL_ADD, fd, &event);
}

static int waits_open(struct verbs *verbs)
{
	verbs->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	verbs->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (verbs->wait_fd < 0 || verbs->timer_fd < 0 ||
	    watch(verbs, verbs->timer_fd) ||
	    watch(verbs, verbs->connect.channel->fd) ||
	    watch(verbs, verbs->shared.device.channel->fd)) {
		kvpull_error(verbs->shared.log, "verbs: epoll: %s",
			     strerror(errno));
		return KVPULL_EDEVICE;
	}
	return 0;
}

static int ends_take(struct verbs *verbs, struct kvpull_arena *arena)
{
	const struct kvpull_verbs_params *params = &verbs->shared.params;
	const uint32_t count = params->peers_max + params->callers_max;
	uint32_t at;
	int code;

	verbs->peers = (struct kvpull_verbs_end *)kvpull_arena_take(
		arena, count, sizeof(*verbs->peers));
	verbs->connect.active =
		(uint32_t *)kvpull_arena_take(arena, count, sizeof(uint32_t));
	if (!verbs->peers || !verbs->connect.active)
		return KVPULL_ENOMEM;
	verbs->callers = verbs->peers + params->peers_max;
	verbs->connect.ends = verbs->peers;
	verbs->connect.end_count = count;
	for (at = 0; at < count; at++) {
		const int is_peer = at < params->peers_max;

		code = kvpull_verbs_end_init(
			&verbs->peers[at], &verbs->shared,
			is_peer ? KVPULL_VERBS_PEER : KVPULL_VERBS_CALLER,
			is_peer ? at : at - params->peers_max, arena);
		if (code)
			return code;
	}
	return 0;
}

static int parts_open(struct verbs *verbs,
		      const struct kvpull_verbs_params *params,
		      struct kvpull_arena *arena)
{
	struct kvpull_verbs_shared *shared = &verbs->shared;
	int code;

	code = kvpull_verbs_device_open(&shared->device, shared->fabric,
					&shared->params);
	if (code)
		return code;
	limits_apply(&shared->params, &shared->device);
	code = kvpull_verbs_device_networks(&shared->device, params->networks,
					    &shared->networks);
	if (!code)
		code = ends_take(verbs, arena);
	if (!code)
		code = kvpull_verbs_reads_init(&verbs->reads, shared,
					       verbs->peers, arena);
	if (!code)
		code = kvpull_verbs_reads_register(&verbs->reads);
	if (!code)
		code = kvpull_verbs_connect_open(&verbs->connect);
	return code ? code : waits_open(verbs);
}

int kvpull_verbs_open(const struct kvpull_verbs_params *params,
		      struct kvpull_arena *arena,
		      struct kvpull_transport **transport)
{
	struct verbs *verbs =
		(struct verbs *)kvpull_arena_take(arena, 1, sizeof(*verbs));
	int code = 0;

	if (!verbs)
		return KVPULL_ENOMEM;
	verbs->transport.ops = &verbs_ops;
	verbs->transport.log = params->log;
	verbs->shared.log = params->log;
	verbs->shared.params = *params;
	verbs->shared.sink = params->sink;
	verbs->connect.shared = &verbs->shared;
	verbs->reads.shared = &verbs->shared;
	verbs->wait_fd = verbs->timer_fd = -1;
	verbs->look_now = 1;
	defaults_fill(&verbs->shared.params);
	verbs->shared.fabric = params->fabric;
	if (!params->fabric) {
		code = kvpull_fabric_load(&verbs->fabric, params->log,
					  params->required ? KVPULL_LOG_ERROR :
							     KVPULL_LOG_DEBUG);
		verbs->shared.fabric = &verbs->fabric;
	} else {
		verbs->fabric = *params->fabric;
	}
	if (!code)
		code = parts_open(verbs, params, arena);
	if (code) {
		verbs_close(&verbs->transport);
		if (params->required)
			kvpull_error(
				params->log,
				"verbs: the route is pinned, and cannot be opened (error %d)",
				code);
		return code;
	}
	*transport = &verbs->transport;
	return 0;
}

const char *kvpull_verbs_choice(const struct kvpull_transport *transport)
{
	return verbs_of_const(transport)->shared.device.choice;
}

const struct kvpull_verbs_counts *
kvpull_verbs_counts(const struct kvpull_transport *transport)
{
	return &verbs_of_const(transport)->shared.counts;
}
