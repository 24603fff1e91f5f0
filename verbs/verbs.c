/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam's table over its parts: connections (CM), bundles of rails (queue
 * pairs, frames) and reads. One poll, in this order, each part bounded:
 *   of each bundle: completions and time-outs of its rails · ends · posts
 *   CM and channel events, and after these once more the bundles
 */
#include "verbs/verbs.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/device_thread.h"
#include "base/least.h"
#include "base/params.h"
#include "verbs/back.h"
#include "verbs/check.h"
#include "verbs/dial.h"
#include "verbs/gate.h"
#include "verbs/gpu.h"
#include "verbs/read.h"
#include "verbs/run.h"
#include "verbs/serve.h"
#include "verbs/setup.h"

#define LINGER_NS (KVPULL_NS_PER_S / 2)
#define LEFT_BYTES 192u /* why a rail is left, for the log */
struct verbs {
	struct kvpull_transport transport; /* first: the seam's handle */
	struct kvpull_fabric fabric;
	struct kvpull_verbs_shared shared;
	struct kvpull_verbs_connect connect;
	struct kvpull_verbs_bundle *peers; /* [peers_max] */
	struct kvpull_verbs_bundle
		*callers; /* kvpull_verbs_callers(), behind peers */
	struct kvpull_verbs_reads reads;
	struct kvpull_verbs_back back;
	struct kvpull_verbs_watch watch;
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

static struct kvpull_verbs_bundle *peer_at(const struct verbs *verbs,
					   uint32_t index)
{
	kvpull_check(verbs->shared.log, index < verbs->shared.params.peers_max);
	return &verbs->peers[index];
}

static struct kvpull_verbs_bundle *caller_at(const struct verbs *verbs,
					     uint32_t index)
{
	kvpull_check(verbs->shared.log,
		     index < kvpull_verbs_callers(&verbs->shared.params));
	return &verbs->callers[index];
}

static int verbs_serve(struct kvpull_transport *transport,
		       const struct kvpull_serve *serve)
{
	return kvpull_verbs_serve(&verbs_of(transport)->back, serve);
}

static int verbs_local_add(struct kvpull_transport *transport, uint8_t *base,
			   uint64_t bytes)
{
	return kvpull_verbs_local_add(&verbs_of(transport)->back, base, bytes);
}

static const char *verbs_address(const struct kvpull_transport *transport)
{
	return verbs_of_const(transport)->connect.address;
}

static int verbs_reachable(const struct kvpull_transport *transport,
			   const char *text)
{
	const struct verbs *verbs = verbs_of_const(transport);
	struct kvpull_verbs_addresses addresses;

	/* A host without a region has no place for a read. */
	if ((!verbs->back.serve.region_count &&
	     !verbs->back.locals.region_count) ||
	    kvpull_verbs_addresses_parse(text, &addresses))
		return KVPULL_EROUTE;
	return kvpull_verbs_dial_allows(&verbs->connect, &addresses);
}

static int verbs_connect(struct kvpull_transport *transport, const char *text,
			 uint32_t *peer)
{
	struct verbs *verbs = verbs_of(transport);

	verbs->watch.look_now = 1;
	return kvpull_verbs_dial_start(&verbs->connect, text, NULL, peer);
}

static int verbs_give(struct kvpull_transport *transport, const char *text,
		      const void *bytes, size_t byte_count, uint32_t *peer)
{
	struct kvpull_verbs_give give = { .byte_count = (uint32_t)byte_count };
	struct verbs *verbs = verbs_of(transport);

	if (!byte_count || byte_count > sizeof(give.bytes))
		return KVPULL_EINVAL;
	memcpy(give.bytes, bytes, byte_count);
	verbs->watch.look_now = 1;
	return kvpull_verbs_dial_start(&verbs->connect, text, &give, peer);
}

/* The handshake's message, by the one lane that there is until it is over. */
static int say(const struct kvpull_verbs_bundle *bundle, const void *bytes,
	       size_t byte_count)
{
	struct kvpull_verbs_end *end = kvpull_verbs_bundle_first(bundle);

	return kvpull_verbs_end_say(end, &end->message, bytes, byte_count);
}

static int verbs_peer_send(struct kvpull_transport *transport, uint32_t peer,
			   const void *bytes, size_t byte_count)
{
	return say(peer_at(verbs_of(transport), peer), bytes, byte_count);
}

static int verbs_attach(struct kvpull_transport *transport, uint32_t peer,
			const struct kvpull_serve *remote)
{
	struct kvpull_verbs_bundle *bundle = peer_at(verbs_of(transport), peer);
	struct kvpull_verbs_end *end = kvpull_verbs_bundle_first(bundle);

	if (end->state != KVPULL_VERBS_OPEN ||
	    bundle->state != KVPULL_BUNDLE_MEETING)
		return KVPULL_EPEER;
	if (!end->keys_known || kvpull_keys_check(&end->keys, remote))
		return KVPULL_EPROTO;
	memcpy(bundle->token, end->keys.token, sizeof(bundle->token));
	bundle->qps = end->keys.qps;
	end->state = KVPULL_VERBS_IN;
	bundle->state = KVPULL_BUNDLE_IN;
	end->in_ns = bundle->shared->now_ns;
	return 0;
}

/* Sends the last message before the endpoint goes: why a welcome is refused. */
static void linger(struct kvpull_verbs_end *end)
{
	end->state = KVPULL_VERBS_LINGER;
	end->deadline_ns = end->shared->now_ns + LINGER_NS;
}

static void verbs_disconnect(struct kvpull_transport *transport, uint32_t peer)
{
	struct kvpull_verbs_bundle *bundle = peer_at(verbs_of(transport), peer);
	struct kvpull_verbs_end *end = kvpull_verbs_bundle_first(bundle);

	if (bundle->state == KVPULL_BUNDLE_MEETING &&
	    end->state == KVPULL_VERBS_OPEN && end->done != end->posted)
		linger(end);
	else if (end->state != KVPULL_VERBS_LINGER)
		kvpull_verbs_bundle_lose(bundle, KVPULL_EPEER, NULL);
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

static int verbs_read_leave(struct kvpull_transport *transport, uint32_t peer,
			    struct kvpull_read *read)
{
	(void)peer;
	return kvpull_verbs_read_leave(&verbs_of(transport)->reads, read);
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
	return kvpull_verbs_bundle_note(peer_at(verbs_of(transport), peer),
					record);
}

static uint32_t verbs_notes_open(const struct kvpull_transport *transport,
				 uint32_t peer)
{
	return kvpull_verbs_bundle_notes_open(
		peer_at(verbs_of_const(transport), peer));
}

static void verbs_beat(struct kvpull_transport *transport, uint32_t peer)
{
	struct kvpull_verbs_end *end =
		kvpull_verbs_bundle_first(peer_at(verbs_of(transport), peer));

	end->beat_wanted = 1;
	kvpull_verbs_end_pump(end);
}

static int verbs_caller_send(struct kvpull_transport *transport,
			     uint32_t caller, const void *bytes,
			     size_t byte_count)
{
	return say(caller_at(verbs_of(transport), caller), bytes, byte_count);
}

/* A fresh one: the memory is zero again, its last reader has forgotten it. */
static int ring_make(struct kvpull_verbs_bundle *bundle)
{
	const uint32_t records = bundle->shared->params.ring_records;

	memset(bundle->ring_memory, 0, kvpull_ring_bytes(records));
	return kvpull_ring_pair(&bundle->ring_reader, &bundle->ring_writer,
				bundle->ring_memory, records) ?
		       KVPULL_ENOMEM :
		       0;
}

static int verbs_admit(struct kvpull_transport *transport, uint32_t caller,
		       const void *welcome, size_t welcome_bytes,
		       struct kvpull_ring **ring)
{
	struct kvpull_verbs_bundle *bundle =
		caller_at(verbs_of(transport), caller);
	struct kvpull_verbs_end *end = kvpull_verbs_bundle_first(bundle);

	if (end->state != KVPULL_VERBS_OPEN ||
	    bundle->state != KVPULL_BUNDLE_MEETING)
		return KVPULL_EPEER;
	if (kvpull_verbs_gate_is_full(&verbs_of(transport)->connect))
		return KVPULL_EFULL;
	if (ring_make(bundle))
		return KVPULL_ENOMEM;
	kvpull_verbs_bundle_draw(bundle);
	if (say(bundle, welcome, welcome_bytes) ||
	    kvpull_verbs_bundle_open(bundle, end)) {
		/* A caller that lacks a part of its welcome is lost. */
		kvpull_verbs_bundle_lose(bundle, KVPULL_EPEER, "letting it in");
		return KVPULL_EPEER;
	}
	end->state = KVPULL_VERBS_IN;
	end->deadline_ns = 0;
	bundle->state = KVPULL_BUNDLE_IN;
	bundle->ring = &bundle->ring_writer;
	*ring = &bundle->ring_reader;
	return 0;
}

static void verbs_refuse(struct kvpull_transport *transport, uint32_t caller,
			 const void *refusal, size_t refusal_bytes)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_bundle *bundle = caller_at(verbs, caller);
	struct kvpull_verbs_end *end = kvpull_verbs_bundle_first(bundle);

	bundle->told = 0;
	if (say(bundle, refusal, refusal_bytes)) {
		kvpull_verbs_bundle_lose(bundle, KVPULL_EPEER, NULL);
		return;
	}
	linger(end);
}

static void verbs_drop(struct kvpull_transport *transport, uint32_t caller)
{
	kvpull_verbs_bundle_lose(caller_at(verbs_of(transport), caller),
				 KVPULL_EPEER, "dropped");
}

static void verbs_forget(struct kvpull_transport *transport, uint32_t caller)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_bundle *bundle = caller_at(verbs, caller);

	kvpull_check(verbs->shared.log, bundle->state == KVPULL_BUNDLE_DOWN);
	kvpull_verbs_connect_free(&verbs->connect, bundle);
}

/* Frees endpoints whose end the last poll reported. */
static void gone_free(struct verbs *verbs)
{
	struct kvpull_verbs_connect *connect = &verbs->connect;
	uint32_t at = connect->active_count;

	/* From the end: a freed one is replaced by one already seen. */
	for (; at > 0; at--) {
		struct kvpull_verbs_bundle *bundle =
			&connect->bundles[connect->active[at - 1]];

		if (bundle->state == KVPULL_BUNDLE_GONE)
			kvpull_verbs_connect_free(connect, bundle);
	}
}

/* A rail whose writes cannot be flushed is lost, and looked for again. */
static void flushes_run(struct verbs *verbs)
{
	const uint32_t broken = kvpull_verbs_gpu_run(&verbs->reads);
	char why[LEFT_BYTES];
	uint32_t rail;

	for (rail = 0; broken >> rail; rail++) {
		if (!(broken >> rail & 1))
			continue;
		(void)snprintf(
			why, sizeof(why),
			"left, as its queue pair to itself failed (%s), so that nothing flushes what it writes into memory of the GPU",
			verbs->shared.loops[rail].why);
		kvpull_verbs_connect_device_lost(&verbs->connect, rail, why);
	}
}

static void bundles_run(struct verbs *verbs, struct kvpull_events *told)
{
	struct kvpull_verbs_connect *connect = &verbs->connect;
	const struct kvpull_verbs_run run = { .connect = connect,
					      .reads = &verbs->reads,
					      .events = told };
	uint32_t at;

	flushes_run(verbs);
	for (at = 0; at < connect->active_count; at++)
		verbs->watch.look_now |= (uint32_t)kvpull_verbs_bundle_run(
			&run, kvpull_verbs_connect_bundle(connect, at));
}

static int verbs_poll(struct kvpull_transport *transport, uint64_t now_ns,
		      struct kvpull_event *events, uint32_t capacity)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_events told = { .list = events, .capacity = capacity };

	verbs->shared.now_ns = now_ns;
	/* Also reads whose peer is gone, or the device. */
	kvpull_verbs_reads_report(&verbs->reads, &told);
	if (kvpull_verbs_back_is_idle(&verbs->back))
		return (int)told.count;
	gone_free(verbs);
	kvpull_verbs_back_run(&verbs->back);
	if (verbs->connect.address_is_new && kvpull_events_room(&told)) {
		kvpull_events_add(&told, KVPULL_EVENT_ADDRESS, 0);
		verbs->connect.address_is_new = 0;
	}
	bundles_run(verbs, &told);
	if (!kvpull_verbs_watch_is_due(&verbs->watch, told.count))
		return (int)told.count;
	/* With events told, the owner may still look at an inbox: next poll. */
	if (kvpull_verbs_watch_look(&verbs->watch) && !told.count)
		bundles_run(verbs, &told);
	return (int)told.count;
}

static int verbs_arm(struct kvpull_transport *transport)
{
	struct verbs *verbs = verbs_of(transport);
	const struct kvpull_verbs_connect *connect = &verbs->connect;
	uint64_t due_ns = kvpull_least(kvpull_verbs_gpu_due_ns(&verbs->reads),
				       kvpull_verbs_back_due_ns(&verbs->back));
	int more = verbs->reads.ended != KVPULL_NONE ||
		   kvpull_verbs_gpu_arm(&verbs->reads);
	uint32_t at;

	for (at = 0; at < connect->active_count; at++) {
		struct kvpull_verbs_bundle *bundle =
			kvpull_verbs_connect_bundle(connect, at);

		more |= kvpull_verbs_bundle_arm(bundle);
		due_ns = kvpull_least(due_ns,
				      kvpull_verbs_bundle_due_ns(bundle));
	}
	kvpull_verbs_watch_until(&verbs->watch, due_ns);
	verbs->watch.may_sleep = !more;
	return more;
}

static void verbs_disarm(struct kvpull_transport *transport)
{
	struct verbs *verbs = verbs_of(transport);

	/* Without a sleep only completion queues are looked at again. */
	verbs->watch.look_now |= verbs->watch.may_sleep;
}

static int verbs_rings(const struct kvpull_transport *transport)
{
	const struct kvpull_verbs_connect *connect =
		&verbs_of_const(transport)->connect;
	uint32_t at;

	for (at = 0; at < connect->active_count; at++)
		if (kvpull_verbs_bundle_rings(
			    kvpull_verbs_connect_bundle(connect, at)))
			return 1;
	return 0;
}

static int verbs_fd(const struct kvpull_transport *transport)
{
	return verbs_of_const(transport)->watch.fd;
}

/* By these the route's cost is judged: work requests, doorbells a byte. */
static void counts_say(const struct verbs *verbs)
{
	const struct kvpull_verbs_counts *counts = &verbs->shared.counts;

	if (!counts->work_requests && !counts->frames_sent)
		return;
	kvpull_info(
		verbs->shared.log,
		"verbs: read %llu bytes by %llu work requests, %llu doorbells, %llu completions; %llu checks, %llu frames, %llu bad, %llu queues full, %llu flushes, %llu calls refused, %llu work requests moved to another queue pair, %llu READs that flush memory of a GPU",
		(unsigned long long)counts->read_bytes,
		(unsigned long long)counts->work_requests,
		(unsigned long long)counts->doorbells,
		(unsigned long long)counts->completions,
		(unsigned long long)counts->checks,
		(unsigned long long)counts->frames_sent,
		(unsigned long long)counts->frames_bad,
		(unsigned long long)counts->post_busy,
		(unsigned long long)counts->flushes,
		(unsigned long long)counts->calls_refused,
		(unsigned long long)counts->requests_moved,
		(unsigned long long)counts->gpu_flushes);
}

static int verbs_doorbell_fd(const struct kvpull_transport *transport)
{
	(void)transport;
	return -1;
}

/* Waits for nothing: an owner that has notes left polls before. */
static void verbs_close(struct kvpull_transport *transport,
			uint64_t close_by_ns)
{
	struct verbs *verbs = verbs_of(transport);
	struct kvpull_verbs_connect *connect = &verbs->connect;
	uint32_t at;

	(void)close_by_ns;
	while (connect->active_count) {
		struct kvpull_verbs_bundle *bundle =
			&connect->bundles[connect->active[0]];

		kvpull_verbs_bundle_lose(bundle, KVPULL_EPEER, NULL);
		kvpull_verbs_connect_free(connect, bundle);
	}
	counts_say(verbs);
	for (at = 0; at < verbs->shared.rail_count; at++)
		while (kvpull_verbs_back_leave(&verbs->back, at))
			;
	kvpull_verbs_dmabufs_close(&verbs->back.dmabufs);
	kvpull_verbs_connect_close(connect);
	kvpull_verbs_watch_close(&verbs->watch);
}

static const struct kvpull_transport_ops verbs_ops = {
	.name = "verbs",
	.give_bytes_max = KVPULL_VERBS_GIVE_BYTES_MAX,
	.serve = verbs_serve,
	.local_add = verbs_local_add,
	.address = verbs_address,
	.reachable = verbs_reachable,
	.connect = verbs_connect,
	.peer_send = verbs_peer_send,
	.give = verbs_give,
	.attach = verbs_attach,
	.disconnect = verbs_disconnect,
	.read_start = verbs_read_start,
	.read_cancel = verbs_read_cancel,
	.read_leave = verbs_read_leave,
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
	.rings = verbs_rings,
	.fd = verbs_fd,
	.doorbell_fd = verbs_doorbell_fd,
	.close = verbs_close,
};

static int bundles_take(struct verbs *verbs, struct kvpull_arena *arena)
{
	const struct kvpull_verbs_params *params = &verbs->shared.params;
	const uint32_t lane_count = verbs->shared.rail_count * params->qps;
	const uint32_t count = params->peers_max + kvpull_verbs_callers(params);
	struct kvpull_verbs_end *ends;
	uint32_t at;
	int code;

	KVPULL_ARENA_TAKE(arena, verbs->peers, count);
	KVPULL_ARENA_TAKE(arena, ends, (size_t)count * lane_count);
	KVPULL_ARENA_TAKE(arena, verbs->connect.active, count);
	if (!verbs->peers || !ends || !verbs->connect.active)
		return KVPULL_ENOMEM;
	verbs->shared.lane_count = lane_count;
	verbs->callers = verbs->peers + params->peers_max;
	verbs->connect.bundles = verbs->peers;
	verbs->connect.bundle_count = count;
	for (at = 0; at < count; at++) {
		const int is_peer = at < params->peers_max;
		struct kvpull_verbs_bundle *bundle = &verbs->peers[at];

		bundle->shared = &verbs->shared;
		bundle->role =
			is_peer ? KVPULL_VERBS_PEER : KVPULL_VERBS_CALLER;
		bundle->index = is_peer ? at : at - params->peers_max;
		bundle->ends = ends + (size_t)at * lane_count;
		code = kvpull_verbs_bundle_init(bundle, arena);
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
	int code = kvpull_verbs_setup_devices(shared);
	uint32_t at;

	if (!code)
		code = kvpull_verbs_setup_networks(shared, params->networks);
	if (!code)
		code = bundles_take(verbs, arena);
	if (!code)
		code = kvpull_verbs_reads_init(&verbs->reads, shared,
					       verbs->peers, arena);
	for (at = 0; !code && at < shared->rail_count; at++) {
		kvpull_verbs_regions_begin(
			&shared->locals[at], &shared->devices[at],
			&verbs->back.locals, shared->params.mr_shift);
		if (!shared->devices[at].gone)
			code = kvpull_verbs_check_register(&verbs->reads, at);
	}
	if (!code)
		code = kvpull_verbs_connect_open(&verbs->connect);
	return code ? code : kvpull_verbs_watch_open(&verbs->watch);
}

int kvpull_verbs_open(const struct kvpull_verbs_params *params,
		      struct kvpull_arena *arena,
		      struct kvpull_transport **transport)
{
	struct verbs *verbs = kvpull_arena_take(arena, 1, sizeof(*verbs));
	int code = 0;

	if (!verbs)
		return KVPULL_ENOMEM;
	verbs->transport.ops = &verbs_ops;
	verbs->transport.log = params->log;
	verbs->shared.log = params->log;
	verbs->transport.peer_count_max = params->peers_max;
	verbs->transport.caller_count_max = kvpull_verbs_callers(params);
	verbs->shared.params = *params;
	if (params->gpu)
		verbs->shared.params.gpu_pci =
			kvpull_device_thread_device(params->gpu)->pci;
	verbs->connect.shared = &verbs->shared;
	verbs->reads.shared = &verbs->shared;
	verbs->back.shared = &verbs->shared;
	verbs->back.connect = &verbs->connect;
	verbs->back.reads = &verbs->reads;
	verbs->back.watch = &verbs->watch;
	verbs->watch.connect = &verbs->connect;
	verbs->watch.fd = verbs->watch.timer_fd = -1;
	kvpull_verbs_setup_defaults(&verbs->shared.params);
	code = kvpull_verbs_setup_names(&verbs->shared);
	verbs->shared.fabric = params->fabric;
	if (!code && !params->fabric) {
		code = kvpull_fabric_load(
			&verbs->fabric, params->log,
			kvpull_verbs_absence_level(params, KVPULL_LOG_DEBUG));
		verbs->shared.fabric = &verbs->fabric;
	}
	if (!code)
		code = parts_open(verbs, params, arena);
	if (code) {
		verbs_close(&verbs->transport, 0);
		if (params->required)
			kvpull_error(
				params->log,
				"route verbs is pinned, and cannot be opened (%s): the line before says why; route auto goes on without it",
				kvpull_error_name(code));
		return code;
	}
	*transport = &verbs->transport;
	return 0;
}

const struct kvpull_verbs_counts *
kvpull_verbs_counts(const struct kvpull_transport *transport)
{
	return &verbs_of_const(transport)->shared.counts;
}
