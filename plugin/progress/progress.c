/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side: one bounded run of I/O, in fixed order (the
 * engine's commands, transport events, peers, tickets, pulls), and the thread
 * that repeats it. With progress=caller the engine's thread runs it in poll().
 *
 * The thread spins for KVPULL_SPIN_NS after its last work, then asks both its
 * ring and the transport for a wake-up, looks once more, and sleeps until then
 * or until the next timer. It never yields: since Linux 6.18 who does gives a
 * whole slice away, and stood for 60 ms behind two engines on two cores; who
 * sleeps is woken ahead of them.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/pause.h"
#include "plugin/route/route.h"
#include "plugin/worker/worker.h"
#include "shm/shm.h"

#define SLEEP_MS_MAX 1000

void kvpull_progress_tell(struct kvpull_worker *worker, uint32_t kind,
			  uint32_t index)
{
	const struct kvpull_record record = { .kind = kind, .slot = index };
	const int code = kvpull_ring_push(&worker->from_writer, &record);

	/* Sized for every index that can travel. */
	kvpull_check(&worker->log, code >= 0);
	if (code == 1)
		worker->progress.wake_wanted = 1;
}

/*
 * The engine sleeps, and was told something. After releases went out: other
 * processes wait for those.
 */
static void engine_wake(struct kvpull_worker *worker)
{
	if (!worker->progress.wake_wanted)
		return;
	worker->progress.wake_wanted = 0;
	/* A caller is awake: its poll, this one or the next, drains it. */
	if (worker->config.progress == KVPULL_PROGRESS_THREAD)
		(void)eventfd_write(worker->engine_wake_fd, 1);
}

void kvpull_progress_timer(struct kvpull_worker *worker, uint64_t at_ns)
{
	if (at_ns < worker->progress.timer_ns)
		worker->progress.timer_ns = at_ns;
}

static void command(struct kvpull_worker *worker,
		    const struct kvpull_record *record, uint64_t now_ns)
{
	struct kvpull_transport *transport = worker->progress.transport;

	switch (record->kind) {
	case KVPULL_TO_CLAIM:
		worker->progress.claim_serials[record->slot] =
			record->generation;
		kvpull_claim_new(worker, record->slot, now_ns);
		break;
	case KVPULL_TO_RELEASE:
		if (worker->progress.claim_serials[record->slot] ==
		    record->generation)
			kvpull_claim_release(worker, record->slot, now_ns);
		break;
	case KVPULL_TO_PULL:
		worker->progress.pull_serials[record->slot] =
			(uint32_t)record->generation;
		kvpull_pull_new(worker, record->slot, now_ns);
		break;
	case KVPULL_TO_ABORT:
		if (worker->progress.pull_serials[record->slot] ==
		    record->generation)
			kvpull_pull_abort(worker, record->slot, KVPULL_EABORTED,
					  now_ns);
		break;
	case KVPULL_TO_FORGET:
		worker->callers[record->slot].state = KVPULL_CALLER_FREE;
		transport->ops->forget(transport, record->slot);
		break;
	case KVPULL_TO_DROP:
		if (worker->callers[record->slot].state == KVPULL_CALLER_IN)
			transport->ops->drop(transport, record->slot);
		break;
	default:
		kvpull_check(&worker->log, 0 && "unknown record");
	}
}

static int commands(struct kvpull_worker *worker, uint64_t now_ns)
{
	struct kvpull_record record;
	const int ready = kvpull_ring_ready(&worker->to_reader);
	int left;

	kvpull_check(&worker->log, ready >= 0);
	for (left = ready; left > 0; left--) {
		kvpull_ring_pop(&worker->to_reader, &record);
		command(worker, &record, now_ns);
	}
	if (ready)
		kvpull_ring_pop_end(&worker->to_reader);
	return ready;
}

static int events(struct kvpull_worker *worker, uint64_t now_ns)
{
	struct kvpull_transport *transport = worker->progress.transport;
	struct kvpull_event event[KVPULL_EVENTS_MAX];
	int count;
	int index;

	count = transport->ops->poll(transport, now_ns, event,
				     KVPULL_EVENTS_MAX);
	for (index = 0; index < count; index++) {
		switch (event[index].kind) {
		case KVPULL_EVENT_PEER_MESSAGE:
		case KVPULL_EVENT_PEER_DOWN:
			kvpull_remote_event(worker, &event[index], now_ns);
			break;
		case KVPULL_EVENT_READ_DONE:
		case KVPULL_EVENT_CHECK_DONE:
			kvpull_pull_event(worker, &event[index], now_ns);
			break;
		case KVPULL_EVENT_CALLER_UP:
		case KVPULL_EVENT_CALLER_MESSAGE:
		case KVPULL_EVENT_CALLER_DOWN:
			kvpull_serve_event(worker, &event[index]);
			break;
		case KVPULL_EVENT_NONE: /* counts as work */
		case KVPULL_EVENT_NOTE: /* the route puts them into rings */
			break;
		}
	}
	return count;
}

int kvpull_progress_run(struct kvpull_worker *worker, uint64_t now_ns)
{
	int worked;

	/* Before, nobody knows which routes there will be to a ticket's P. */
	if (!worker->progress.serving)
		return 0;
	worked = commands(worker, now_ns);
	worked += events(worker, now_ns);
	worker->progress.timer_ns = UINT64_MAX;
	kvpull_remote_run(worker, now_ns);
	kvpull_claim_run(worker, now_ns);
	engine_wake(worker);
	kvpull_pull_run(worker, now_ns);
	engine_wake(worker);
	return worked;
}

/* Milliseconds until the next timer, rounded up; -1 never happens. */
static int sleep_ms(const struct kvpull_worker *worker, uint64_t now_ns)
{
	const uint64_t at_ns = worker->progress.timer_ns;
	uint64_t ms;

	if (at_ns <= now_ns)
		return 0;
	ms = (at_ns - now_ns + KVPULL_NS_PER_MS - 1) / KVPULL_NS_PER_MS;
	return ms < SLEEP_MS_MAX ? (int)ms : SLEEP_MS_MAX;
}

static void sleep_until_work(struct kvpull_worker *worker, uint64_t now_ns)
{
	struct kvpull_progress *progress = &worker->progress;
	struct kvpull_transport *transport = progress->transport;
	struct epoll_event events_ready[8];
	eventfd_t ignored;
	int stay = kvpull_ring_arm(&worker->to_reader);
	int count = 0;

	stay |= transport->ops->arm(transport);
	if (!stay)
		count = epoll_wait(progress->wait_fd, events_ready, 8,
				   sleep_ms(worker, now_ns));
	transport->ops->disarm(transport);
	kvpull_ring_disarm(&worker->to_reader);
	/* Told by level: what is not read now ends the next sleep at once. */
	for (; count > 0; count--)
		if (events_ready[count - 1].data.fd == progress->wake_fd)
			(void)eventfd_read(progress->wake_fd, &ignored);
}

static void *thread_main(void *argument)
{
	struct kvpull_worker *worker = argument;
	struct kvpull_progress *progress = &worker->progress;
	uint64_t busy_until = 0;

	/* Stops when close() says so; nothing else is ordered by it. */
	while (!atomic_load_explicit(&progress->stop, memory_order_relaxed)) {
		const uint64_t now_ns = worker->now_ns(worker->now_context);

		if (kvpull_progress_run(worker, now_ns) > 0) {
			busy_until = now_ns + KVPULL_SPIN_NS;
			continue;
		}
		if (now_ns < busy_until)
			kvpull_pause();
		else
			sleep_until_work(worker, now_ns);
	}
	return NULL;
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	event.data.fd = fd;
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

int kvpull_progress_start(struct kvpull_worker *worker)
{
	struct kvpull_progress *progress = &worker->progress;
	struct kvpull_transport *transport = progress->transport;
	sigset_t all;
	sigset_t old;
	int failed;

	progress->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	failed = progress->wait_fd < 0 ||
		 watch(progress->wait_fd, progress->wake_fd) ||
		 watch(progress->wait_fd, transport->ops->fd(transport));
	if (failed) {
		kvpull_error(&worker->log, "progress thread: epoll: %s",
			     strerror(errno));
		return KVPULL_EDEVICE;
	}
	/* The engine's signals are the engine's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&progress->thread, NULL, thread_main, worker);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed) {
		kvpull_error(&worker->log, "progress thread: error %d", failed);
		return KVPULL_EDEVICE;
	}
	(void)pthread_setname_np(progress->thread, "kvpull-progress");
	progress->thread_runs = 1;
	return 0;
}

static enum kvpull_uring_mode uring_mode(const struct kvpull_config *config)
{
	if (config->uring == KVPULL_OFF)
		return KVPULL_URING_NO;
	return config->progress == KVPULL_PROGRESS_THREAD ?
		       KVPULL_URING_ONE_THREAD :
		       KVPULL_URING_ANY_THREAD;
}

/* One pull may need a part a rank, whatever pulls_max is. */
static uint32_t part_count_max(const struct kvpull_config *config)
{
	return config->pulls_max * 4 > KVPULL_RANKS_MAX ?
		       config->pulls_max * 4 :
		       KVPULL_RANKS_MAX;
}

/* A caller may poll seldom, and want its time for itself. */
static uint32_t poll_copies(const struct kvpull_config *config)
{
	if (config->progress_copies == KVPULL_AUTO)
		return config->progress == KVPULL_PROGRESS_THREAD;
	return config->progress_copies == KVPULL_ON;
}

static int shm_open_route(struct kvpull_worker *worker,
			  struct kvpull_transport **shm)
{
	const struct kvpull_config *config = &worker->config;
	char name[64];
	/* Other users are let in by the list; the folder is the operator's. */
	const int others =
		config->uid_count > 1 || config->uids[0] != geteuid();
	const struct kvpull_shm_params params = {
		.socket_mode = others ? 0666 : 0,
		.log = &worker->log,
		.socket_dir = config->socket_dir,
		.name = name,
		.peers_max = config->peers_max,
		.callers_max = config->consumers_max,
		.ring_records = config->ring_records,
		.reads_max = worker->progress.part_count_max,
		.copy_threads = config->copy_threads,
		.poll_copies = poll_copies(config),
		.inline_bytes = config->inline_bytes,
		.connect_ns = config->connect_ms * KVPULL_NS_PER_MS,
		.uring = uring_mode(config),
		.uids = config->uids,
		.uid_count = config->uid_count,
	};

	/* The name dies with the incarnation: nobody inherits it. */
	(void)snprintf(name, sizeof(name), "kvpull-%016llx.sock",
		       (unsigned long long)worker->incarnation);
	return kvpull_shm_open(&params, &worker->arena, shm);
}

static struct kvpull_verbs_params
verbs_params(const struct kvpull_config *config, const struct kvpull_log *log)
{
	return (struct kvpull_verbs_params){
		.log = log,
		.device = config->verbs_device,
		.address = config->verbs_address,
		.networks = config->networks,
		.required = config->route == KVPULL_ROUTE_PIN_VERBS,
		.rails = config->verbs_rails,
		.port = config->verbs_port,
		.gid_index = config->verbs_gid_index == UINT16_MAX ?
				     0 :
				     config->verbs_gid_index + 1,
		.listen_port = config->verbs_listen_port,
		.peers_max = config->peers_max,
		.callers_max = config->consumers_max,
		.reads_max = part_count_max(config),
		.notify_credits = config->verbs_credits,
		.depth = config->verbs_depth,
		.batch = config->verbs_batch,
		.rd_atomic = config->verbs_rd_atomic,
		.retry_count = config->verbs_retry_count,
		.ack_timeout = config->verbs_ack_timeout,
		.traffic_class = config->verbs_traffic_class,
		.slice_bytes = config->verbs_slice_bytes,
		.window_bytes = config->verbs_window_bytes,
		.connect_ns = config->connect_ms * KVPULL_NS_PER_MS,
		.flush_ns = config->flush_after_ms * KVPULL_NS_PER_MS,
	};
}

static struct kvpull_route_params
route_params(const struct kvpull_config *config, const struct kvpull_log *log)
{
	return (struct kvpull_route_params){
		.log = log,
		.peers_max = config->peers_max,
		.callers_max = config->consumers_max,
		.ring_records = config->ring_records,
		.engine_wake_fd = -1,
	};
}

size_t kvpull_progress_bytes(const struct kvpull_config *config)
{
	const struct kvpull_verbs_params verbs = verbs_params(config, NULL);
	const struct kvpull_route_params route = route_params(config, NULL);

	return kvpull_verbs_bytes(&verbs) + kvpull_route_bytes(&route);
}

/*
 * The route between machines, with shm (or NULL) beside it. On a host without
 * RDMA nothing of it is left but the arena's address space.
 */
static int verbs_open_route(struct kvpull_worker *worker,
			    struct kvpull_transport *shm)
{
	struct kvpull_progress *progress = &worker->progress;
	struct kvpull_verbs_params verbs =
		verbs_params(&worker->config, &worker->log);
	struct kvpull_route_params params =
		route_params(&worker->config, &worker->log);
	struct kvpull_transport *added;
	struct kvpull_route *route;
	int code;

	params.shm = shm;
	if (worker->config.progress == KVPULL_PROGRESS_THREAD)
		params.engine_wake_fd = worker->engine_wake_fd;
	code = kvpull_route_open(&params, &worker->arena, &route);
	if (code)
		return code;
	verbs.sink = kvpull_route_sink(route);
	code = kvpull_verbs_open(&verbs, &worker->arena, &added);
	if (!code) {
		if (!worker->config.key_set)
			kvpull_warn(
				&worker->log,
				"verbs without a key_file: every host of the networks may read all KV memory");
		progress->transport = kvpull_route_transport(route);
		return kvpull_route_add(route, added);
	}
	kvpull_route_discard(route);
	if (code != KVPULL_EUNSUPPORTED || !shm)
		return code;
	kvpull_debug(&worker->log, "route shm only: no RDMA for verbs");
	return 0;
}

static int transport_open(struct kvpull_worker *worker,
			  const struct kvpull_worker_setup *setup)
{
	struct kvpull_progress *progress = &worker->progress;
	const enum kvpull_route_mode mode = worker->config.route;
	struct kvpull_transport *shm = NULL;
	int code = 0;

	if (setup->transport) {
		progress->transport =
			setup->transport(setup->transport_context, worker);
		return progress->transport ? 0 : KVPULL_ENOMEM;
	}
	if (mode != KVPULL_ROUTE_PIN_VERBS)
		code = shm_open_route(worker, &shm);
	progress->transport = shm;
	if (code || mode == KVPULL_ROUTE_PIN_SHM)
		return code;
	return verbs_open_route(worker, shm);
}

static int tables_take(struct kvpull_worker *worker)
{
	const struct kvpull_config *config = &worker->config;
	struct kvpull_progress *progress = &worker->progress;
	struct kvpull_arena *arena = &worker->arena;
	uint32_t index;

	progress->part_count_max = part_count_max(config);
	progress->remotes = kvpull_arena_take(arena, config->peers_max,
					      sizeof(*progress->remotes));
	progress->remote_of = kvpull_arena_take(arena, config->peers_max,
						sizeof(*progress->remote_of));
	progress->parts = kvpull_arena_take(arena, progress->part_count_max,
					    sizeof(*progress->parts));
	progress->live = kvpull_arena_take(arena, config->pulls_max,
					   sizeof(*progress->live));
	progress->claim_serials =
		kvpull_arena_take(arena, worker->claim_count_max,
				  sizeof(*progress->claim_serials));
	progress->pull_serials = kvpull_arena_take(
		arena, config->pulls_max, sizeof(*progress->pull_serials));
	progress->peers = kvpull_arena_take(arena, config->peers_max,
					    sizeof(*progress->peers));
	progress->welcome =
		kvpull_arena_take(arena, 1, sizeof(*progress->welcome));
	progress->hello = kvpull_arena_take(arena, 1, sizeof(*progress->hello));
	progress->message =
		kvpull_arena_take(arena, 1, KVPULL_MESSAGE_BYTES_MAX);
	kvpull_map_init(&progress->remote_map, config->peers_max, arena);
	if (!kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	for (index = 0; index < config->peers_max; index++) {
		struct kvpull_plan *plan = &progress->remotes[index].plan;

		plan->strip_count_max = KVPULL_STRIPS_MAX;
		plan->strips = kvpull_arena_take(arena, KVPULL_STRIPS_MAX,
						 sizeof(*plan->strips));
	}
	for (index = 0; index < progress->part_count_max; index++) {
		progress->parts[index].read.index = index;
		progress->parts[index].next_free =
			index + 1 < progress->part_count_max ? index + 1 :
							       KVPULL_NONE;
	}
	progress->part_free = 0;
	progress->part_left = progress->part_count_max;
	progress->claim_work = KVPULL_NONE;
	progress->timer_ns = UINT64_MAX;
	(void)pthread_mutex_init(&progress->peers_lock, NULL);
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

int kvpull_progress_open(struct kvpull_worker *worker,
			 const struct kvpull_worker_setup *setup)
{
	int code = tables_take(worker);

	if (code)
		return code;
	worker->engine_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	worker->progress.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->engine_wake_fd < 0 || worker->progress.wake_fd < 0) {
		kvpull_error(&worker->log, "eventfd: %s", strerror(errno));
		return KVPULL_EDEVICE;
	}
	return transport_open(worker, setup);
}

void kvpull_progress_close(struct kvpull_worker *worker)
{
	struct kvpull_progress *progress = &worker->progress;

	if (progress->thread_runs) {
		atomic_store_explicit(&progress->stop, 1, memory_order_relaxed);
		(void)eventfd_write(progress->wake_fd, 1);
		(void)pthread_join(progress->thread, NULL);
	}
	if (progress->transport)
		progress->transport->ops->close(progress->transport);
	if (progress->wake_fd >= 0)
		(void)close(progress->wake_fd);
	if (progress->wait_fd >= 0)
		(void)close(progress->wait_fd);
}
