/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: a socket is open, and waited on, exactly in OPEN and ADMITTED, a
 * pidfd in ADMITTED alone: until then the socket and its deadline tell the end,
 * and a caller that says nothing costs one descriptor. A ring segment and a
 * doorbell exist exactly from admit() to forget(); admitted_count counts them.
 *
 * A doorbell is a pair of connected stream sockets; ours is only waited on,
 * edge-triggered. The consumer's may not send, and it rings by shutting down
 * that direction once more: each time the kernel tells our end, and nothing is
 * ever queued. So ringing cannot block, whatever the other side has done to the
 * flags that it shares, and we read nothing that a consumer wrote.
 */
#include "shm/caller.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/least.h"
#include "base/wrap.h"
#include "shm/give.h"
#include "shm/parts.h"

/* Out of descriptors: let the backlog hold callers instead of spinning. */
#define LISTENER_REST_NS (100 * UINT64_C(1000000))
/* How often a producer sees to it that its name is there. */
#define NAME_NS (60 * KVPULL_NS_PER_S)
/* Beyond the table callers are told so and closed; so many a look. */
#define ACCEPT_MAX 8u

static const struct kvpull_wait_token listener_token = {
	.kind = KVPULL_WAIT_LISTENER
};

int kvpull_shm_callers_init(struct kvpull_shm_callers *callers,
			    const struct kvpull_shm_params *params,
			    struct kvpull_arena *arena)
{
	uint32_t i;

	*callers = (struct kvpull_shm_callers){
		.log = params->log,
		.wait = callers->wait,
		.folder = callers->folder,
		.shortage = callers->shortage,
		.listener = { .fd = -1, .folder_fd = -1 },
		.gate = { .log = params->log,
			  .refused = params->refused,
			  .users = params->users },
		.given = params->given,
		.caller_max = params->callers_max + KVPULL_CALLERS_MORE,
		.admitted_max = params->callers_max,
		.ring_records = params->ring_records,
		.connect_ns = params->connect_ns,
		.socket_mode = params->socket_mode,
	};
	KVPULL_ARENA_TAKE(arena, callers->callers, callers->caller_max);
	callers->doorbells = epoll_create1(EPOLL_CLOEXEC);
	if (callers->doorbells < 0) {
		kvpull_error(params->log, "epoll: %s",
			     kvpull_why(OTHER, errno));
		return KVPULL_EDEVICE;
	}
	if (!callers->callers) {
		(void)close(callers->doorbells);
		return KVPULL_ENOMEM;
	}
	for (i = 0; i < callers->caller_max; i++) {
		callers->callers[i].generation = KVPULL_WRAP_START;
		callers->callers[i].socket = -1;
		callers->callers[i].doorbell = -1;
		callers->callers[i].identity.pidfd = -1;
	}
	return 0;
}

static struct kvpull_shm_caller *
caller_at(const struct kvpull_shm_callers *callers, uint32_t index)
{
	kvpull_check(callers->log, index < callers->caller_max);
	return &callers->callers[index];
}

static void caller_hang_up(struct kvpull_shm_callers *callers,
			   struct kvpull_shm_caller *caller)
{
	kvpull_wait_end(callers->wait, &caller->socket);
	kvpull_wait_end(callers->wait, &caller->identity.pidfd);
}

/* The one way out of OPEN and ADMITTED but for refuse(). */
static void caller_lose(struct kvpull_shm_callers *callers,
			struct kvpull_shm_caller *caller)
{
	if (caller->state != KVPULL_SHM_CALLER_OPEN &&
	    caller->state != KVPULL_SHM_CALLER_ADMITTED)
		return;
	if (caller->state == KVPULL_SHM_CALLER_OPEN)
		callers->open_count--;
	caller_hang_up(callers, caller);
	caller->state = KVPULL_SHM_CALLER_LOST;
	callers->lost_count++;
}

static void ring_free(struct kvpull_shm_callers *callers,
		      struct kvpull_shm_caller *caller)
{
	if (caller->doorbell >= 0) {
		(void)epoll_ctl(callers->doorbells, EPOLL_CTL_DEL,
				caller->doorbell, NULL);
		kvpull_fd_close(&caller->doorbell);
	}
	if (caller->segment.base) {
		kvpull_segment_unmake(&caller->segment);
		callers->admitted_count--;
	}
	memset(&caller->segment, 0, sizeof(caller->segment));
}

void kvpull_shm_callers_fini(struct kvpull_shm_callers *callers)
{
	uint32_t i;

	if (callers->listener.fd >= 0)
		kvpull_wait_remove(callers->wait, callers->listener.fd);
	kvpull_listener_close(&callers->listener);
	for (i = 0; i < callers->caller_max; i++) {
		caller_hang_up(callers, &callers->callers[i]);
		ring_free(callers, &callers->callers[i]);
	}
	kvpull_fd_close(&callers->doorbells);
}

static int serve_check(const struct kvpull_serve *serve, int has_device,
		       const struct kvpull_log *log)
{
	uint32_t i;

	if (!serve->region_count || serve->region_count > KVPULL_REGIONS_MAX ||
	    !serve->slot_count || !serve->entries)
		return KVPULL_EINVAL;
	if (serve->entries_fd < 0) {
		kvpull_error(log, "revocation table without a descriptor");
		return KVPULL_EUNSUPPORTED;
	}
	for (i = 0; i < serve->region_count; i++) {
		const struct kvpull_region_view *region = &serve->regions[i];

		if (region->kind == KVPULL_REGION_FOREIGN)
			continue;
		if (!kvpull_region_has_fd(region) ||
		    (region->kind == KVPULL_REGION_DEVICE && !has_device)) {
			kvpull_error(
				log,
				"region %u of kind %u: not on route shm; device memory needs an RDMA device (kvpull_doctor)",
				i, region->kind);
			return KVPULL_EUNSUPPORTED;
		}
		if (region->fd < 0)
			return KVPULL_EINVAL;
	}
	return 0;
}

/* Makes a listener that is waited on, and its folder. */
static int listener_make(struct kvpull_shm_callers *callers, const char *name,
			 struct kvpull_listener *made)
{
	int code = kvpull_folder_make(callers->folder, callers->log);

	if (!code)
		code = kvpull_listener_open(made, callers->folder, name,
					    callers->socket_mode, callers->log);
	if (code)
		return code;
	code = kvpull_wait_add(callers->wait, made->fd, listener_token);
	if (code)
		kvpull_listener_close(made);
	return code;
}

int kvpull_shm_callers_serve(struct kvpull_transport *transport,
			     const struct kvpull_serve *serve)
{
	struct kvpull_shm_callers *callers = &kvpull_shm_of(transport)->callers;
	const struct kvpull_shm_params *params =
		&kvpull_shm_of(transport)->params;
	int code = serve_check(serve,
			       kvpull_shm_of(transport)->device.thread != NULL,
			       callers->log);

	if (!code && callers->listener.fd >= 0)
		code = KVPULL_EINVAL;
	if (code)
		return code;
	callers->serve = *serve;
	(void)kvpull_serve_number_fds(&callers->serve);
	return listener_make(callers, params->name, &callers->listener);
}

/*
 * Makes the name again. Cleaners of /tmp remove old files, and users remove
 * what looks like rubbish. No consumer would find this worker again, and
 * engines run for weeks.
 */
static void name_keep(struct kvpull_shm_callers *callers, uint64_t now_ns)
{
	struct kvpull_listener made = { .fd = -1, .folder_fd = -1 };

	callers->named_ns = now_ns + NAME_NS;
	if (kvpull_listener_is_named(&callers->listener, callers->folder,
				     now_ns))
		return;
	kvpull_warn(
		callers->log,
		"socket %s was removed from %s: it is made again; let nobody clean that folder while engines run",
		callers->listener.name, callers->folder->path);
	if (listener_make(callers, callers->listener.name, &made))
		return;
	kvpull_wait_remove(callers->wait, callers->listener.fd);
	kvpull_listener_close(&callers->listener);
	callers->listener = made;
}

static uint32_t caller_free_index(const struct kvpull_shm_callers *callers)
{
	uint32_t i;

	for (i = 0; i < callers->caller_max; i++)
		if (callers->callers[i].state == KVPULL_SHM_CALLER_FREE)
			return i;
	return KVPULL_NONE;
}

static int caller_wait(struct kvpull_shm_callers *callers, uint32_t index,
		       int fd, enum kvpull_wait_kind kind)
{
	const struct kvpull_wait_token token = {
		.kind = kind,
		.index = index,
		.generation = callers->callers[index].generation
	};

	return kvpull_wait_add(callers->wait, fd, token);
}

/* Tell a caller why it is not taken. After _FULL it may call again. */
static void away_say(const struct kvpull_shm_callers *callers, int fd,
		     const char *why)
{
	const struct kvpull_message message = { .bytes = why,
						.byte_count = strlen(why) + 1 };

	/* The send fails for a caller that has gone or does not read. */
	if (kvpull_endpoint_send(fd, &message, NULL))
		kvpull_debug(callers->log, "caller: not told why: %s", why);
}

/* Callers that wait and have something in common: how many, the oldest. */
struct crowd {
	uint32_t max;
	uint32_t count;
	struct kvpull_shm_caller *oldest;
};

static void crowd_add(struct crowd *crowd, struct kvpull_shm_caller *caller)
{
	crowd->count++;
	if (!crowd->oldest || caller->deadline_ns < crowd->oldest->deadline_ns)
		crowd->oldest = caller;
}

/*
 * Make a place to wait in for one more caller, if need be that of the one who
 * has waited longest: of the same process, else of the same user, else of all.
 * 0, or KVPULL_EFULL.
 */
static int room_make(struct kvpull_shm_callers *callers,
		     const struct kvpull_identity *identity, uint64_t now_ns)
{
	struct crowd crowds[] = { { .max = KVPULL_GATE_PROCESS_MAX },
				  { .max = KVPULL_GATE_USER_MAX },
				  { .max = KVPULL_GATE_WAITING_MAX } };
	uint32_t i;

	for (i = 0; callers->open_count && i < callers->caller_max; i++) {
		struct kvpull_shm_caller *caller = &callers->callers[i];

		if (caller->state != KVPULL_SHM_CALLER_OPEN)
			continue;
		/*
		 * The kernel says pid 0 for a process of another PID namespace.
		 */
		if (identity->pid && caller->identity.pid == identity->pid)
			crowd_add(&crowds[0], caller);
		if (caller->identity.uid == identity->uid)
			crowd_add(&crowds[1], caller);
		crowd_add(&crowds[2], caller);
	}
	for (i = 0; i < sizeof(crowds) / sizeof(crowds[0]); i++) {
		struct kvpull_shm_caller *oldest = crowds[i].oldest;

		if (crowds[i].count < crowds[i].max)
			continue;
		kvpull_gate_crowd(&callers->gate, identity->uid, now_ns);
		if (now_ns + callers->connect_ns - oldest->deadline_ns <
		    KVPULL_GATE_GRACE_NS)
			return KVPULL_EFULL;
		away_say(callers, oldest->socket, KVPULL_ENDPOINT_FULL);
		caller_lose(callers, oldest);
		return 0;
	}
	return 0;
}

/* Judged before it takes a place: NULL, or the text that it is told. */
static const char *caller_judge(struct kvpull_shm_callers *callers, int fd,
				struct kvpull_identity *identity,
				uint64_t now_ns)
{
	if (kvpull_identity_get(identity, fd) ||
	    !kvpull_gate_knows(&callers->gate, identity->uid, now_ns))
		return KVPULL_ENDPOINT_USER;
	if (kvpull_gate_reserves(&callers->gate, fd, now_ns))
		return KVPULL_ENDPOINT_FULL;
	return room_make(callers, identity, now_ns) ? KVPULL_ENDPOINT_FULL :
						      NULL;
}

static void turn_away(const struct kvpull_shm_callers *callers, int fd,
		      const char *why, const struct kvpull_shm_batch *batch)
{
	kvpull_shm_give_take(&callers->given, fd,
			     kvpull_shm_batch_buffer(batch));
	away_say(callers, fd, why);
	(void)close(fd);
}

static void caller_open(struct kvpull_shm_callers *callers, int fd,
			struct kvpull_shm_batch *batch)
{
	struct kvpull_identity identity;
	const char *why = caller_judge(callers, fd, &identity, batch->now_ns);
	const uint32_t index = why ? KVPULL_NONE : caller_free_index(callers);
	struct kvpull_shm_caller *caller;

	if (index == KVPULL_NONE) {
		turn_away(callers, fd, why ? why : KVPULL_ENDPOINT_FULL, batch);
		return;
	}
	caller = &callers->callers[index];
	caller->generation++;
	if (caller_wait(callers, index, fd, KVPULL_WAIT_CALLER_SOCKET)) {
		(void)kvpull_shortage(callers->shortage, "a consumer waits",
				      KVPULL_CALL_WATCH);
		turn_away(callers, fd, KVPULL_ENDPOINT_FULL, batch);
		return;
	}
	caller->socket = fd;
	caller->identity = identity;
	caller->state = KVPULL_SHM_CALLER_OPEN;
	caller->deadline_ns = batch->now_ns + callers->connect_ns;
	callers->open_count++;
	kvpull_events_add(&batch->told, KVPULL_EVENT_CALLER_UP, index)->uid =
		identity.uid;
}

void kvpull_shm_callers_accept(struct kvpull_shm_callers *callers,
			       struct kvpull_shm_batch *batch,
			       uint32_t accept_max)
{
	uint32_t i;

	for (i = 0; i < accept_max && i < ACCEPT_MAX; i++) {
		int fd;
		const int code =
			kvpull_listener_accept(&callers->listener, &fd);

		if (code == KVPULL_EFULL) {
			(void)kvpull_shortage(callers->shortage,
					      "consumers wait",
					      KVPULL_CALL_OTHER);
			kvpull_wait_remove(callers->wait, callers->listener.fd);
			callers->resume_ns = batch->now_ns + LISTENER_REST_NS;
		}
		if (code)
			return;
		caller_open(callers, fd, batch);
	}
}

static void caller_receive(struct kvpull_shm_callers *callers, uint32_t index,
			   struct kvpull_shm_batch *batch)
{
	struct kvpull_shm_caller *caller = &callers->callers[index];
	const int received = kvpull_endpoint_receive(
		caller->socket, kvpull_shm_batch_buffer(batch), NULL, NULL);

	if (received < 0)
		caller_lose(callers, caller);
	if (received > 0)
		kvpull_shm_batch_message(batch, KVPULL_EVENT_CALLER_MESSAGE,
					 index, caller->identity.uid,
					 (size_t)received);
}

void kvpull_shm_callers_ready(struct kvpull_shm_callers *callers,
			      const struct kvpull_wait_token *token,
			      struct kvpull_shm_batch *batch)
{
	struct kvpull_shm_caller *caller = caller_at(callers, token->index);

	/* Something before it in the same batch may have ended it. */
	if (caller->socket < 0 ||
	    ((caller->generation ^ token->generation) & 0xffffff))
		return;
	if (token->kind == KVPULL_WAIT_CALLER_DEATH)
		caller_lose(callers, caller);
	else
		caller_receive(callers, token->index, batch);
}

void kvpull_shm_callers_expire(struct kvpull_shm_callers *callers,
			       uint64_t now_ns)
{
	uint32_t i;

	if (callers->listener.fd >= 0 && !callers->resume_ns &&
	    now_ns >= callers->named_ns)
		name_keep(callers, now_ns);
	if (callers->resume_ns && now_ns >= callers->resume_ns)
		callers->resume_ns =
			kvpull_wait_add(callers->wait, callers->listener.fd,
					listener_token) ?
				now_ns + LISTENER_REST_NS :
				0;
	for (i = 0; callers->open_count && i < callers->caller_max; i++) {
		struct kvpull_shm_caller *caller = &callers->callers[i];

		if (caller->state == KVPULL_SHM_CALLER_OPEN &&
		    now_ns >= caller->deadline_ns)
			caller_lose(callers, caller);
	}
}

uint64_t kvpull_shm_callers_due_ns(const struct kvpull_shm_callers *callers)
{
	uint64_t due_ns = callers->resume_ns;
	uint32_t i;

	if (!due_ns)
		due_ns = callers->listener.fd < 0 ? UINT64_MAX :
						    callers->named_ns;

	for (i = 0; callers->open_count && i < callers->caller_max; i++) {
		const struct kvpull_shm_caller *caller = &callers->callers[i];

		if (caller->state == KVPULL_SHM_CALLER_OPEN)
			due_ns = kvpull_least(due_ns, caller->deadline_ns);
	}
	return due_ns;
}

void kvpull_shm_callers_report(struct kvpull_shm_callers *callers,
			       struct kvpull_shm_batch *batch)
{
	uint32_t i;

	for (i = 0; callers->lost_count && kvpull_events_room(&batch->told) &&
		    i < callers->caller_max;
	     i++) {
		struct kvpull_shm_caller *caller = &callers->callers[i];

		if (caller->state != KVPULL_SHM_CALLER_LOST)
			continue;
		callers->lost_count--;
		caller->state = KVPULL_SHM_CALLER_DOWN;
		kvpull_events_add(&batch->told, KVPULL_EVENT_CALLER_DOWN, i);
	}
}

int kvpull_shm_caller_send(struct kvpull_transport *transport, uint32_t index,
			   const void *bytes, size_t byte_count)
{
	struct kvpull_shm_callers *callers = &kvpull_shm_of(transport)->callers;
	const struct kvpull_shm_caller *caller = caller_at(callers, index);
	const struct kvpull_message message = { .bytes = bytes,
						.byte_count = byte_count };

	if (caller->socket < 0)
		return KVPULL_EPEER;
	return kvpull_endpoint_send(caller->socket, &message, callers->log);
}

/* 0 and the consumer's end in *bell, which is to be closed; or -1, errno. */
static int doorbell_make(struct kvpull_shm_callers *callers, uint32_t index,
			 int *bell)
{
	struct kvpull_shm_caller *caller = &callers->callers[index];
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		       ends))
		return -1;
	caller->doorbell = ends[0];
	*bell = ends[1];
	event.data.u32 = index;
	/* The first shutdown rings, too: here, before anybody listens. */
	return shutdown(*bell, SHUT_WR) ||
			       epoll_ctl(callers->doorbells, EPOLL_CTL_ADD,
					 caller->doorbell, &event) ?
		       -1 :
		       0;
}

/* The ring and its doorbell, for this consumer alone. */
static int ring_make(struct kvpull_shm_callers *callers, uint32_t index,
		     int *bell)
{
	struct kvpull_shm_caller *caller = &callers->callers[index];

	/* A consumer can cause its failure: the line is ours, once a second. */
	if (kvpull_segment_make(&caller->segment, "kvpull-ring",
				kvpull_ring_bytes(callers->ring_records),
				KVPULL_SEGMENT_SHARED, 0, NULL)) {
		/* An attempt that failed leaves nothing to free. */
		memset(&caller->segment, 0, sizeof(caller->segment));
		return kvpull_shortage(callers->shortage, "a consumer's ring",
				       KVPULL_CALL_SHARE);
	}
	callers->admitted_count++;
	if (kvpull_ring_init(&caller->ring, caller->segment.base,
			     callers->ring_records))
		return KVPULL_ENOMEM;
	if (doorbell_make(callers, index, bell))
		return kvpull_shortage(callers->shortage,
				       "a consumer's doorbell",
				       KVPULL_CALL_WATCH);
	return 0;
}

/* Watch for its death from here on: 0, or KVPULL_EAGAIN. */
static int death_watch(struct kvpull_shm_callers *callers, uint32_t index)
{
	struct kvpull_identity *identity = &callers->callers[index].identity;
	int code =
		kvpull_identity_watch(identity, callers->callers[index].socket);

	if (!code && identity->pidfd >= 0)
		code = caller_wait(callers, index, identity->pidfd,
				   KVPULL_WAIT_CALLER_DEATH);
	return code ? kvpull_shortage(callers->shortage, "a consumer's pidfd",
				      KVPULL_CALL_WATCH) :
		      0;
}

/*
 * Makes everything that an admitted caller has, but uses no descriptor kept for
 * the engine.
 */
static int belongings_make(struct kvpull_shm_callers *callers, uint32_t index,
			   int *bell)
{
	const struct kvpull_shm_caller *caller = &callers->callers[index];
	const uint64_t now_ns = callers->shortage->now_ns;
	int code = ring_make(callers, index, bell);

	if (!code)
		code = death_watch(callers, index);
	if (!code &&
	    (kvpull_gate_reserves(&callers->gate, caller->segment.fd, now_ns) ||
	     kvpull_gate_reserves(&callers->gate, caller->doorbell, now_ns) ||
	     kvpull_gate_reserves(&callers->gate, caller->identity.pidfd,
				  now_ns)))
		code = KVPULL_EAGAIN;
	return code;
}

static int welcome_send(const struct kvpull_shm_callers *callers,
			const struct kvpull_shm_caller *caller, int bell,
			const struct kvpull_message *welcome)
{
	const struct kvpull_serve *serve = &callers->serve;
	int fds[KVPULL_ENDPOINT_FDS_MAX];
	struct kvpull_message message = *welcome;
	uint32_t i;
	int code;

	message.fds = fds;
	fds[message.fd_count++] = serve->entries_fd;
	fds[message.fd_count++] = caller->segment.fd;
	fds[message.fd_count++] = bell;
	for (i = 0; i < serve->region_count; i++)
		if (kvpull_region_has_fd(&serve->regions[i]) &&
		    serve->regions[i].fd_index ==
			    message.fd_count - KVPULL_ENDPOINT_FDS_OWN)
			fds[message.fd_count++] = serve->regions[i].fd;
	code = kvpull_parts_send(caller->socket, &message, callers->log);
	if (code != KVPULL_EAGAIN)
		return code;
	/* A caller that does not read its socket is as good as gone. */
	return kvpull_errno_is_shortage(errno) ?
		       kvpull_shortage(callers->shortage,
				       "a consumer's copies of descriptors",
				       KVPULL_CALL_OTHER) :
		       KVPULL_EPEER;
}

int kvpull_shm_caller_admit(struct kvpull_transport *transport, uint32_t index,
			    const void *welcome, size_t welcome_bytes,
			    struct kvpull_ring **ring)
{
	struct kvpull_shm_callers *callers = &kvpull_shm_of(transport)->callers;
	struct kvpull_shm_caller *caller = caller_at(callers, index);
	const struct kvpull_message message = { .bytes = welcome,
						.byte_count = welcome_bytes };
	int bell = -1;
	int code;

	if (caller->state != KVPULL_SHM_CALLER_OPEN)
		return KVPULL_EPEER;
	if (callers->admitted_count >= callers->admitted_max)
		return KVPULL_EFULL;
	code = belongings_make(callers, index, &bell);
	if (!code)
		code = welcome_send(callers, caller, bell, &message);
	kvpull_fd_close(&bell);
	if (code) {
		kvpull_wait_end(callers->wait, &caller->identity.pidfd);
		ring_free(callers, caller);
		return code;
	}
	caller->state = KVPULL_SHM_CALLER_ADMITTED;
	callers->open_count--;
	*ring = &caller->ring;
	return 0;
}

void kvpull_shm_caller_refuse(struct kvpull_transport *transport,
			      uint32_t index, const void *refusal,
			      size_t refusal_bytes)
{
	struct kvpull_shm_callers *callers = &kvpull_shm_of(transport)->callers;
	struct kvpull_shm_caller *caller = caller_at(callers, index);

	if (caller->state != KVPULL_SHM_CALLER_OPEN)
		return;
	/* If it cannot be sent, the closed socket says as much. */
	if (refusal_bytes &&
	    kvpull_shm_caller_send(transport, index, refusal, refusal_bytes))
		kvpull_debug(callers->log, "caller %u: refusal not sent",
			     index);
	caller_hang_up(callers, caller);
	caller->state = KVPULL_SHM_CALLER_FREE;
	callers->open_count--;
}

void kvpull_shm_caller_drop(struct kvpull_transport *transport, uint32_t index)
{
	struct kvpull_shm_callers *callers = &kvpull_shm_of(transport)->callers;

	caller_lose(callers, caller_at(callers, index));
}

void kvpull_shm_caller_forget(struct kvpull_transport *transport,
			      uint32_t index)
{
	struct kvpull_shm_callers *callers = &kvpull_shm_of(transport)->callers;
	struct kvpull_shm_caller *caller = caller_at(callers, index);

	if (caller->state != KVPULL_SHM_CALLER_DOWN)
		return;
	ring_free(callers, caller);
	caller->state = KVPULL_SHM_CALLER_FREE;
}
