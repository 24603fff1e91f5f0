/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam's table over its parts: callers (producer's side), peers and reads
 * (consumer's side). One poll, in this order, each part bounded:
 *   reads that ended · time-outs · ready descriptors · lost peers and callers
 *
 * Looking at descriptors is a system call, which costs more than a small pull
 * may; so a busy owner looks once in LOOK_POLLS polls or LOOK_NS, and always
 * around a sleep.
 */
#include "shm/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/fd.h"
#include "base/least.h"
#include "base/mapping.h"
#include "shm/caller.h"
#include "shm/copy.h"
#include "shm/give.h"
#include "shm/peer.h"
#include "shm/read.h"

#define LOOK_POLLS 16u
#define LOOK_NS UINT64_C(1000000)
/* Bounds a slice of a device's copies: a PCIe 5 link brings so much. */
#define DEVICE_BYTES_PER_MS (UINT64_C(48) << 20)
#define BUFFERS_BYTES ((size_t)KVPULL_WAIT_BATCH_MAX * KVPULL_MESSAGE_BYTES_MAX)

static const char *shm_address(const struct kvpull_transport *transport)
{
	const struct kvpull_shm *shm = kvpull_shm_of_const(transport);

	return shm->callers.listener.fd >= 0 ? shm->callers.listener.name : "";
}

static int shm_attach(struct kvpull_transport *transport, uint32_t peer,
		      const struct kvpull_serve *remote)
{
	struct kvpull_shm *shm = kvpull_shm_of(transport);
	int code = kvpull_shm_peer_attach(&shm->peers, peer, remote);

	if (!code && kvpull_shm_peer_at(&shm->peers, peer)->memory.file_count)
		code = kvpull_files_prepare(
			&shm->reads.files, shm->params.uring,
			shm->params.file_thread, shm->wake_fd);
	return code;
}

/* By the engine's thread, beside whatever the owner does. */
static int lent_copy(const struct kvpull_mapping *mapping,
		     const struct kvpull_read *read)
{
	struct kvpull_copy_job job = { .read = read,
				       .regions = mapping->regions };

	kvpull_copy_inline(mapping->context, &job);
	return job.code;
}

static int shm_lend(struct kvpull_transport *transport, uint32_t peer,
		    struct kvpull_mapping *mapping)
{
	struct kvpull_shm *shm = kvpull_shm_of(transport);

	mapping->copy = lent_copy;
	mapping->context = shm->copy;
	return kvpull_shm_peer_lend(&shm->peers, peer, mapping);
}

/* The engine's thread may call this, too. */
static uint32_t shm_help(struct kvpull_transport *transport)
{
	return kvpull_copy_guest_help(kvpull_shm_of(transport)->copy);
}

static const uint8_t *shm_mapped(const struct kvpull_transport *transport,
				 uint32_t index, uint32_t region)
{
	const struct kvpull_shm_peer *peer = kvpull_shm_peer_at(
		&kvpull_shm_of_const(transport)->peers, index);

	return peer->state == KVPULL_SHM_PEER_ATTACHED &&
			       region < peer->memory.region_count ?
		       peer->memory.tables.regions[region] :
		       NULL;
}

static struct kvpull_device_thread *
shm_device(const struct kvpull_transport *transport)
{
	return kvpull_shm_of_const(transport)->device.thread;
}

static void shm_disconnect(struct kvpull_transport *transport, uint32_t peer)
{
	struct kvpull_shm_peers *peers = &kvpull_shm_of(transport)->peers;

	kvpull_shm_peer_lose(peers, kvpull_shm_peer_at(peers, peer),
			     KVPULL_EPEER);
}

static int shm_notify(struct kvpull_transport *transport, uint32_t index,
		      const struct kvpull_record *record)
{
	struct kvpull_shm_peers *peers = &kvpull_shm_of(transport)->peers;
	struct kvpull_shm_peer *peer = kvpull_shm_peer_at(peers, index);
	int code;

	if (peer->state != KVPULL_SHM_PEER_ATTACHED)
		return KVPULL_EPEER;
	code = kvpull_ring_push(&peer->memory.writer, record);
	if (code != 1)
		return code;
	/* shm/caller.c says how this rings. */
	if (shutdown(peer->memory.doorbell, SHUT_WR))
		kvpull_debug(peers->log, "doorbell: %s",
			     kvpull_why(OTHER, errno));
	return 0;
}

static uint32_t shm_notes_open(const struct kvpull_transport *transport,
			       uint32_t index)
{
	const struct kvpull_shm_peer *peer = kvpull_shm_peer_at(
		&kvpull_shm_of_const(transport)->peers, index);

	return peer->state == KVPULL_SHM_PEER_ATTACHED ?
		       kvpull_ring_open_count(&peer->memory.writer) :
		       0;
}

static void shm_beat(struct kvpull_transport *transport, uint32_t index)
{
	struct kvpull_shm_peer *peer =
		kvpull_shm_peer_at(&kvpull_shm_of(transport)->peers, index);

	if (peer->state == KVPULL_SHM_PEER_ATTACHED)
		kvpull_ring_beat(&peer->memory.writer);
}

static void wake_clear(const struct kvpull_shm *shm)
{
	uint64_t count;

	if (read(shm->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		kvpull_debug(shm->transport.log, "wake: %s",
			     kvpull_why(OTHER, errno));
}

static void timer_clear(struct kvpull_shm *shm)
{
	uint64_t ignored;

	(void)!read(shm->timer_fd, &ignored, sizeof(ignored));
	shm->timer_ns = UINT64_MAX;
}

/* From the last poll's time on: an owner that sleeps has just polled. */
static void timer_set(struct kvpull_shm *shm, uint64_t at_ns)
{
	struct itimerspec timer = { 0 };

	if (shm->timer_ns == at_ns)
		return;
	shm->timer_ns = at_ns;
	if (at_ns != UINT64_MAX) {
		const uint64_t now_ns = shm->shortage.now_ns;
		const uint64_t left_ns = at_ns > now_ns ? at_ns - now_ns : 1;

		timer.it_value.tv_sec = (time_t)(left_ns / KVPULL_NS_PER_S);
		timer.it_value.tv_nsec = (long)(left_ns % KVPULL_NS_PER_S);
	}
	(void)timerfd_settime(shm->timer_fd, 0, &timer, NULL);
}

static void token_take(struct kvpull_shm *shm,
		       const struct kvpull_wait_token *token,
		       struct kvpull_shm_batch *batch, uint32_t later_count)
{
	switch (token->kind) {
	case KVPULL_WAIT_COPY:
		wake_clear(shm);
		break;
	case KVPULL_WAIT_TIMER:
		timer_clear(shm);
		break;
	case KVPULL_WAIT_LISTENER:
		kvpull_shm_callers_accept(&shm->callers, batch,
					  kvpull_events_room(&batch->told) -
						  later_count);
		break;
	case KVPULL_WAIT_CALLER_SOCKET:
	case KVPULL_WAIT_CALLER_DEATH:
		kvpull_shm_callers_ready(&shm->callers, token, batch);
		break;
	case KVPULL_WAIT_PEER_SOCKET:
	case KVPULL_WAIT_PEER_DEATH:
		kvpull_shm_peers_ready(&shm->peers, token, batch);
		break;
	}
}

static int look_is_due(struct kvpull_shm *shm, uint64_t now_ns)
{
	return ++shm->polls >= LOOK_POLLS || shm->look_now ||
	       now_ns - shm->looked_ns >= LOOK_NS;
}

static void look(struct kvpull_shm *shm, struct kvpull_shm_batch *batch)
{
	struct kvpull_wait_token tokens[KVPULL_WAIT_BATCH_MAX];
	uint32_t count;
	uint32_t i;

	/* First, so that callers who are late take no place from new ones. */
	kvpull_shm_callers_expire(&shm->callers, batch->now_ns);
	kvpull_shm_peers_expire(&shm->peers, batch->now_ns);
	count = kvpull_wait_poll(&shm->wait, tokens,
				 kvpull_events_room(&batch->told));
	/* Each token that is still to come may need room for one event. */
	for (i = 0; i < count; i++)
		token_take(shm, &tokens[i], batch, count - i - 1);
	shm->look_now = count == KVPULL_WAIT_BATCH_MAX;
	shm->polls = 0;
	shm->looked_ns = batch->now_ns;
}

static int shm_poll(struct kvpull_transport *transport, uint64_t now_ns,
		    struct kvpull_event *events, uint32_t capacity)
{
	struct kvpull_shm *shm = kvpull_shm_of(transport);
	struct kvpull_shm_batch batch = { .told = { .list = events,
						    .capacity = capacity },
					  .now_ns = now_ns,
					  .buffers = shm->buffers };

	shm->shortage.now_ns = now_ns;
	kvpull_shm_reads_poll(&shm->reads, &batch);
	if (look_is_due(shm, now_ns) && kvpull_events_room(&batch.told))
		look(shm, &batch);
	if (shm->peers.lost_count) {
		kvpull_shm_reads_lose(&shm->reads);
		kvpull_shm_peers_report(&shm->peers, &batch);
	}
	if (shm->callers.lost_count)
		kvpull_shm_callers_report(&shm->callers, &batch);
	return (int)batch.told.count;
}

static int shm_arm(struct kvpull_transport *transport)
{
	struct kvpull_shm *shm = kvpull_shm_of(transport);
	struct kvpull_device_thread *const device = shm->device.thread;
	uint64_t due_ns = kvpull_least(kvpull_shm_callers_due_ns(&shm->callers),
				       kvpull_shm_peers_due_ns(&shm->peers));

	/* Other routes give orders to the device thread, too. */
	if (kvpull_device_thread_pending(device))
		due_ns = kvpull_least(due_ns,
				      shm->shortage.now_ns + KVPULL_NS_PER_S);
	shm->look_now = 1;
	timer_set(shm, due_ns);
	if (kvpull_shm_reads_are_due(&shm->reads) || shm->callers.lost_count ||
	    kvpull_shm_peers_are_due(&shm->peers))
		return 1;
	if (kvpull_files_arm(&shm->reads.files))
		return 1;
	if (!kvpull_device_thread_arm(device) && !kvpull_copy_arm(shm->copy))
		return 0;
	kvpull_device_thread_disarm(device);
	kvpull_copy_disarm(shm->copy);
	return 1;
}

static void shm_disarm(struct kvpull_transport *transport)
{
	struct kvpull_shm *shm = kvpull_shm_of(transport);

	kvpull_copy_disarm(shm->copy);
	kvpull_device_thread_disarm(shm->device.thread);
	shm->look_now = 1;
}

/* Always 0: shm copies advance inside poll() and do not make fd() readable. */
static int shm_rings(const struct kvpull_transport *transport)
{
	(void)transport;
	return 0;
}

static int shm_fd(const struct kvpull_transport *transport)
{
	return kvpull_shm_of_const(transport)->wait.fd;
}

static int shm_doorbell_fd(const struct kvpull_transport *transport)
{
	return kvpull_shm_of_const(transport)->callers.doorbells;
}

static void wakes_close(struct kvpull_shm *shm)
{
	kvpull_fd_close(&shm->wake_fd);
	kvpull_fd_close(&shm->timer_fd);
}

static void shm_close(struct kvpull_transport *transport, uint64_t close_by_ns)
{
	struct kvpull_shm *shm = kvpull_shm_of(transport);

	/* Joins the workers, so nothing reads what is unmapped next. */
	kvpull_copy_close(shm->copy);
	kvpull_shm_device_close(&shm->device, close_by_ns);
	kvpull_shm_reads_fini(&shm->reads, close_by_ns);
	kvpull_shm_peers_fini(&shm->peers, close_by_ns);
	kvpull_shm_callers_fini(&shm->callers);
	kvpull_wait_close(&shm->wait);
	kvpull_folder_close(&shm->folder);
	wakes_close(shm);
}

static const struct kvpull_transport_ops shm_ops = {
	.name = "shm",
	.near = "same node: its socket is in our folder",
	.far = "another node: its socket is not in our folder",
	.vouches = 1,
	.reads_files = 1,
	.give_bytes_max = KVPULL_PACKET_BYTES_MAX,
	.device = shm_device,
	.serve = kvpull_shm_callers_serve,
	.address = shm_address,
	.reachable = kvpull_shm_peers_reach,
	.connect = kvpull_shm_peer_connect,
	.peer_send = kvpull_shm_peer_send,
	.give = kvpull_shm_peer_give,
	.attach = shm_attach,
	.lend = shm_lend,
	.help = shm_help,
	.mapped = shm_mapped,
	.disconnect = shm_disconnect,
	.read_start = kvpull_shm_read_start,
	.read_cancel = kvpull_shm_read_cancel,
	.check_start = kvpull_shm_read_check,
	.notify = shm_notify,
	.notes_open = shm_notes_open,
	.beat = shm_beat,
	.caller_send = kvpull_shm_caller_send,
	.admit = kvpull_shm_caller_admit,
	.refuse = kvpull_shm_caller_refuse,
	.drop = kvpull_shm_caller_drop,
	.forget = kvpull_shm_caller_forget,
	.poll = shm_poll,
	.arm = shm_arm,
	.disarm = shm_disarm,
	.rings = shm_rings,
	.fd = shm_fd,
	.doorbell_fd = shm_doorbell_fd,
	.close = shm_close,
};

static const char *text_copy(struct kvpull_arena *arena, const char *text)
{
	const size_t byte_count = strlen(text) + 1;
	char *copy = kvpull_arena_take(arena, byte_count, 1);

	if (copy)
		memcpy(copy, text, byte_count);
	return copy;
}

static int memory_take(struct kvpull_shm *shm, struct kvpull_arena *arena)
{
	KVPULL_ARENA_TAKE(arena, shm->buffers, BUFFERS_BYTES);
	shm->params.socket_dir = text_copy(arena, shm->params.socket_dir);
	shm->params.name = text_copy(arena, shm->params.name);
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

/* A copy that ended, or a time-out: what ends an owner's sleep beside peers. */
static int wakes_open(struct kvpull_shm *shm)
{
	const struct kvpull_wait_token copy = { .kind = KVPULL_WAIT_COPY };
	const struct kvpull_wait_token timer = { .kind = KVPULL_WAIT_TIMER };

	shm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	shm->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	shm->timer_ns = UINT64_MAX;
	if (shm->wake_fd >= 0 && shm->timer_fd >= 0 &&
	    !kvpull_wait_add(&shm->wait, shm->wake_fd, copy) &&
	    !kvpull_wait_add(&shm->wait, shm->timer_fd, timer))
		return 0;
	kvpull_error(shm->transport.log, "eventfd, timerfd: %s",
		     kvpull_why(WATCH, errno));
	return KVPULL_EDEVICE;
}

static int copy_open(struct kvpull_shm *shm, struct kvpull_arena *arena)
{
	/* Opened for this look alone: there may never be any peers. */
	struct kvpull_folder folder = shm->folder;
	struct kvpull_copy_params params = {
		.thread_count = shm->params.copy_threads,
		.job_max = shm->params.reads_max,
		.owner_helps = shm->reads.poll_copies,
		.routine = shm->params.copy_routine,
	};
	int code = wakes_open(shm);

	/*
	 * Nothing is remembered in a folder that is missing or not safe; who
	 * listens or connects there says so.
	 */
	if (!kvpull_folder_open(&folder, NULL))
		params.folder = &folder;
	params.wake_fd = shm->wake_fd;
	if (!code)
		code = kvpull_copy_open(&shm->copy, &params, arena,
					shm->transport.log);
	kvpull_folder_close(&folder);
	if (code)
		wakes_close(shm);
	return code;
}

static int device_open(struct kvpull_shm *shm)
{
	const struct kvpull_device_thread_params params = {
		.open = shm->params.device_open,
		.index = shm->params.device_index,
		.wake_fd = shm->wake_fd,
		.limits = { .job_max = shm->params.reads_max,
			    /* Each pull, and as many holds, may have one. */
			    .mark_max = 2 * shm->params.reads_max + 1,
			    /* A share for each peer, and our own. */
			    .mapping_max = (shm->params.peers_max + 1) *
					   KVPULL_DEVICE_MEMORIES_MAX,
			    .bytes_per_ms = DEVICE_BYTES_PER_MS },
	};

	shm->device.is_required = shm->params.device_required;
	return kvpull_shm_device_open(&shm->device, &params,
				      shm->transport.log);
}

/* Sets the fields that the parts share. */
static void parts_join(struct kvpull_shm *shm)
{
	shm->folder = (struct kvpull_folder){
		.path = shm->params.socket_dir,
		.users = shm->params.users,
		.fd = -1,
	};
	shm->shortage.log = shm->transport.log;
	shm->peers.wait = shm->callers.wait = &shm->wait;
	shm->peers.folder = shm->callers.folder = &shm->folder;
	shm->peers.shortage = shm->callers.shortage = &shm->shortage;
	shm->peers.device = shm->reads.device = &shm->device;
	shm->peers.own = &shm->callers.serve;
}

static void users_judge(const struct kvpull_shm_params *params)
{
	const struct kvpull_users *users = &params->users;

	if (kvpull_users_lack_key(users))
		kvpull_warn(
			params->log,
			"no process of user %u pulls or is pulled from: %u %s",
			users->unknown, users->unknown,
			kvpull_users_doubt(users, users->unknown));
}

int kvpull_shm_open(const struct kvpull_shm_params *params,
		    struct kvpull_arena *arena,
		    struct kvpull_transport **transport)
{
	struct kvpull_shm *shm = kvpull_arena_take(arena, 1, sizeof(*shm));
	int code;

	if (!shm)
		return KVPULL_ENOMEM;
	shm->transport.ops = &shm_ops;
	shm->transport.log = params->log;
	shm->params = *params;
	users_judge(params);
	shm->look_now = 1;
	code = memory_take(shm, arena);
	if (!code)
		code = kvpull_wait_open(&shm->wait, params->log);
	if (code)
		return code;
	parts_join(shm);
	code = kvpull_shm_peers_init(&shm->peers, &shm->params, arena);
	if (!code)
		code = kvpull_shm_reads_init(&shm->reads, &shm->params,
					     &shm->peers, arena);
	if (!code)
		code = kvpull_shm_callers_init(&shm->callers, &shm->params,
					       arena);
	if (code)
		goto err_reads;
	shm->transport.peer_count_max = params->peers_max;
	shm->transport.caller_count_max = shm->callers.caller_max;
	code = copy_open(shm, arena);
	if (code)
		goto err_callers;
	code = device_open(shm);
	if (code)
		goto err_copy;
	shm->reads.copy = shm->copy;
	if (!kvpull_copy_threads(shm->copy))
		shm->reads.poll_copies = 1;
	*transport = &shm->transport;
	return 0;
err_copy:
	kvpull_copy_close(shm->copy);
	wakes_close(shm);
err_callers:
	kvpull_shm_callers_fini(&shm->callers);
err_reads:
	kvpull_shm_reads_fini(&shm->reads, kvpull_clock_close_by());
	kvpull_wait_close(&shm->wait);
	return code;
}
