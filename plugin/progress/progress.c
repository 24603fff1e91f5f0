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
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/pause.h"
#include "plugin/progress/progress_state.h"
#include "plugin/route/route.h"

#define SLEEP_MS_MAX 1000
/* In a run: the first of many is done before the last is begun. */
#define COMMANDS_MAX 64

/*
 * The engine sleeps, and was told something. After releases went out: other
 * processes wait for those.
 */
static void engine_wake(struct kvpull_progress *progress)
{
	if (!progress->wake_wanted)
		return;
	progress->wake_wanted = 0;
	/* A caller is awake: its poll, this one or the next, drains it. */
	if (progress->facts->config.progress == KVPULL_PROGRESS_THREAD)
		(void)eventfd_write(progress->handover->engine_wake_fd, 1);
}

static int is_claim(const struct kvpull_progress *progress,
		    const struct kvpull_record *record)
{
	const struct kvpull_claim_order *order =
		progress->claims[record->slot].order;

	return order && order->serial == record->generation;
}

static int is_pull(const struct kvpull_progress *progress,
		   const struct kvpull_record *record)
{
	const struct kvpull_pull *pull = &progress->pulls[record->slot];

	return pull->order && pull->serial == record->generation;
}

static void command(struct kvpull_progress *progress,
		    const struct kvpull_record *record, uint64_t now_ns)
{
	switch (record->kind) {
	case KVPULL_TO_CLAIM:
		kvpull_claim_new(progress, record->slot, now_ns);
		break;
	case KVPULL_TO_RELEASE:
		if (is_claim(progress, record))
			kvpull_claim_release(progress, record->slot);
		break;
	case KVPULL_TO_PULL:
		kvpull_pull_new(progress, record->slot,
				(uint32_t)record->generation);
		break;
	case KVPULL_TO_ABORT:
		if (is_pull(progress, record))
			kvpull_pull_abort(progress, record->slot,
					  KVPULL_EABORTED);
		break;
	case KVPULL_TO_FORGET:
		kvpull_serve_forget(progress, record->slot);
		break;
	case KVPULL_TO_DROP:
		kvpull_serve_drop(progress, record->slot);
		break;
	default:
		kvpull_check(progress->log, 0 && "unknown record");
	}
}

static int commands(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_record record;
	int ready = kvpull_ring_ready(&progress->end.reader);
	int left;

	kvpull_check(progress->log, ready >= 0);
	/* A caller gave them itself, and may sleep after its poll. */
	if (ready > COMMANDS_MAX &&
	    progress->facts->config.progress == KVPULL_PROGRESS_THREAD)
		ready = COMMANDS_MAX;
	for (left = ready; left > 0; left--) {
		kvpull_ring_pop(&progress->end.reader, &record);
		command(progress, &record, now_ns);
	}
	if (ready)
		kvpull_ring_pop_end(&progress->end.reader);
	return ready;
}

static int events(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_transport *transport = progress->transport;
	struct kvpull_event event[KVPULL_EVENTS_MAX];
	int count;
	int index;

	count = transport->ops->poll(transport, now_ns, event,
				     KVPULL_EVENTS_MAX);
	for (index = 0; index < count; index++) {
		switch (event[index].kind) {
		case KVPULL_EVENT_PEER_MESSAGE:
		case KVPULL_EVENT_PEER_DOWN:
			kvpull_remote_event(progress, &event[index], now_ns);
			break;
		case KVPULL_EVENT_READ_DONE:
		case KVPULL_EVENT_CHECK_DONE:
			kvpull_pull_event(progress, &event[index]);
			break;
		case KVPULL_EVENT_CALLER_UP:
		case KVPULL_EVENT_CALLER_MESSAGE:
		case KVPULL_EVENT_CALLER_DOWN:
			kvpull_serve_event(progress, &event[index]);
			break;
		case KVPULL_EVENT_NONE: /* counts as work */
			break;
		}
	}
	return count;
}

int kvpull_progress_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	int worked;

	/* Before, nobody knows which routes there will be to a ticket's P. */
	if (!progress->serving)
		return 0;
	worked = commands(progress, now_ns);
	worked += events(progress, now_ns);
	progress->timer_ns = UINT64_MAX;
	kvpull_remote_run(progress, now_ns);
	kvpull_claim_run(progress, now_ns);
	engine_wake(progress);
	kvpull_pull_run(progress, now_ns);
	engine_wake(progress);
	return worked;
}

/* Milliseconds until the next timer, rounded up; -1 never happens. */
static int sleep_ms(const struct kvpull_progress *progress, uint64_t now_ns)
{
	const uint64_t at_ns = progress->timer_ns;
	uint64_t ms;

	if (at_ns <= now_ns)
		return 0;
	ms = (at_ns - now_ns + KVPULL_NS_PER_MS - 1) / KVPULL_NS_PER_MS;
	return ms < SLEEP_MS_MAX ? (int)ms : SLEEP_MS_MAX;
}

static void sleep_until_work(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_transport *transport = progress->transport;
	struct epoll_event events_ready[8];
	eventfd_t ignored;
	int stay = kvpull_ring_arm(&progress->end.reader);
	int count = 0;

	stay |= transport->ops->arm(transport);
	if (!stay)
		count = epoll_wait(progress->wait_fd, events_ready, 8,
				   sleep_ms(progress, now_ns));
	transport->ops->disarm(transport);
	kvpull_ring_disarm(&progress->end.reader);
	/* Told by level: what is not read now ends the next sleep at once. */
	for (; count > 0; count--)
		if (events_ready[count - 1].data.fd ==
		    progress->handover->progress_wake_fd)
			(void)eventfd_read(progress->handover->progress_wake_fd,
					   &ignored);
}

static void *thread_main(void *argument)
{
	struct kvpull_progress *progress = argument;
	uint64_t busy_until = 0;

	/* Stops when close() says so; nothing else is ordered by it. */
	while (!atomic_load_explicit(&progress->stop, memory_order_relaxed)) {
		const uint64_t now_ns = kvpull_facts_now(progress->facts);

		if (kvpull_progress_run(progress, now_ns) > 0) {
			busy_until = now_ns + KVPULL_SPIN_NS;
			continue;
		}
		if (now_ns < busy_until)
			kvpull_pause();
		else
			sleep_until_work(progress, now_ns);
	}
	return NULL;
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	event.data.fd = fd;
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

int kvpull_progress_start(struct kvpull_progress *progress)
{
	struct kvpull_transport *transport = progress->transport;
	sigset_t all;
	sigset_t old;
	int failed;

	progress->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	failed = progress->wait_fd < 0 ||
		 watch(progress->wait_fd,
		       progress->handover->progress_wake_fd) ||
		 watch(progress->wait_fd, transport->ops->fd(transport));
	if (failed) {
		kvpull_error(progress->log, "progress thread: epoll: %s",
			     strerror(errno));
		return KVPULL_EDEVICE;
	}
	/* The engine's signals are the engine's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&progress->thread, NULL, thread_main, progress);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed) {
		kvpull_error(progress->log, "progress thread: error %d",
			     failed);
		return KVPULL_EDEVICE;
	}
	(void)pthread_setname_np(progress->thread, "kvpull-progress");
	progress->thread_runs = 1;
	return 0;
}

/* One pull may need a part a rank, whatever pulls_max is. */
static uint32_t part_count_max(const struct kvpull_config *config)
{
	return config->pulls_max * 4 > KVPULL_RANKS_MAX ?
		       config->pulls_max * 4 :
		       KVPULL_RANKS_MAX;
}

static void slots_take(struct kvpull_progress *progress,
		       const struct kvpull_config *config,
		       struct kvpull_arena *arena)
{
	progress->pulls = kvpull_arena_take(arena, config->pulls_max,
					    sizeof(*progress->pulls));
	progress->claims = kvpull_arena_take(arena, config->tickets_max,
					     sizeof(*progress->claims));
	progress->callers =
		kvpull_arena_take(arena, progress->facts->caller_count_max,
				  sizeof(*progress->callers));
	progress->live = kvpull_arena_take(arena, config->pulls_max,
					   sizeof(*progress->live));
	kvpull_index_list_init(&progress->parts_waits, config->pulls_max,
			       arena);
	kvpull_index_list_init(&progress->again_waits, config->pulls_max,
			       arena);
}

static int remotes_take(struct kvpull_progress *progress,
			const struct kvpull_config *config,
			struct kvpull_arena *arena)
{
	uint32_t index;

	progress->remotes = kvpull_arena_take(arena, config->peers_max,
					      sizeof(*progress->remotes));
	progress->remote_of = kvpull_arena_take(arena, config->peers_max,
						sizeof(*progress->remote_of));
	progress->peers = kvpull_arena_take(arena, config->peers_max,
					    sizeof(*progress->peers));
	kvpull_map_init(&progress->remote_map, config->peers_max, arena);
	if (!kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	for (index = 0; index < config->peers_max; index++) {
		struct kvpull_plan *plan = &progress->remotes[index].plan;

		plan->strip_count_max = KVPULL_STRIPS_MAX;
		plan->strips = kvpull_arena_take(arena, KVPULL_STRIPS_MAX,
						 sizeof(*plan->strips));
	}
	return kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
}

static void parts_take(struct kvpull_progress *progress,
		       const struct kvpull_config *config,
		       struct kvpull_arena *arena)
{
	progress->part_count_max = part_count_max(config);
	kvpull_index_pool_init(&progress->part_pool, progress->part_count_max,
			       arena);
	progress->parts = kvpull_arena_take(arena, progress->part_count_max,
					    sizeof(*progress->parts));
}

static int tables_take(struct kvpull_progress *progress,
		       struct kvpull_arena *arena)
{
	const struct kvpull_config *config = &progress->facts->config;
	int code;

	slots_take(progress, config, arena);
	parts_take(progress, config, arena);
	progress->welcome =
		kvpull_arena_take(arena, 1, sizeof(*progress->welcome));
	progress->hello = kvpull_arena_take(arena, 1, sizeof(*progress->hello));
	progress->message =
		kvpull_arena_take(arena, 1, KVPULL_MESSAGE_BYTES_MAX);
	code = remotes_take(progress, config, arena);
	return code || kvpull_arena_ok(arena) ? code : KVPULL_ENOMEM;
}

int kvpull_progress_open(const struct kvpull_progress_params *params,
			 struct kvpull_progress **out)
{
	struct kvpull_progress *progress =
		kvpull_arena_take(params->arena, 1, sizeof(*progress));
	int code;

	if (!progress)
		return KVPULL_ENOMEM;
	progress->facts = params->facts;
	progress->log = &params->facts->log;
	progress->handover = params->handover;
	progress->end = params->end;
	progress->wait_fd = -1;
	progress->claim_work = KVPULL_NONE;
	progress->claim_room = KVPULL_NONE;
	progress->parts_turn = KVPULL_NONE;
	progress->room_ns = progress->lists_ns = UINT64_MAX;
	progress->timer_ns = UINT64_MAX;
	(void)pthread_mutex_init(&progress->peers_lock, NULL);
	*out = progress;
	code = tables_take(progress, params->arena);
	if (code)
		return code;
	if (!params->transport)
		return kvpull_progress_transport_open(progress, params->arena);
	progress->transport =
		params->transport(params->transport_context, progress->log);
	return progress->transport ? 0 : KVPULL_ENOMEM;
}

int kvpull_progress_serve(struct kvpull_progress *progress)
{
	struct kvpull_transport *transport = progress->transport;
	const int code =
		transport->ops->serve(transport, &progress->facts->serve);

	progress->serving = !code;
	return code;
}

void kvpull_progress_close(struct kvpull_progress *progress)
{
	if (!progress)
		return;
	if (progress->thread_runs) {
		atomic_store_explicit(&progress->stop, 1, memory_order_relaxed);
		(void)eventfd_write(progress->handover->progress_wake_fd, 1);
		(void)pthread_join(progress->thread, NULL);
	}
	if (progress->transport)
		progress->transport->ops->close(progress->transport);
	if (progress->wait_fd >= 0)
		(void)close(progress->wait_fd);
}

void kvpull_progress_address(const struct kvpull_progress *progress, char *text,
			     size_t capacity)
{
	kvpull_route_print(progress->transport, text, capacity);
}

const struct kvpull_progress_counts *
kvpull_progress_counts(const struct kvpull_progress *progress)
{
	return &progress->counts;
}

int kvpull_progress_doorbell_fd(const struct kvpull_progress *progress)
{
	return kvpull_route_doorbell_fd(progress->transport);
}

int kvpull_progress_fd(const struct kvpull_progress *progress)
{
	return progress->transport->ops->fd(progress->transport);
}

int kvpull_progress_arm(struct kvpull_progress *progress)
{
	return progress->transport->ops->arm(progress->transport);
}

void kvpull_progress_disarm(struct kvpull_progress *progress)
{
	progress->transport->ops->disarm(progress->transport);
}

int kvpull_progress_rings(const struct kvpull_progress *progress)
{
	return progress->transport->ops->rings(progress->transport);
}

uint64_t kvpull_progress_due_ns(const struct kvpull_progress *progress)
{
	return progress->timer_ns;
}

void kvpull_progress_use(const struct kvpull_progress *progress,
			 struct kvpull_progress_use *use)
{
	uint32_t index;

	*use = (struct kvpull_progress_use){
		.pulls_live = progress->live_count,
		.serving = progress->serving,
	};
	for (index = 0; index < progress->facts->config.peers_max; index++)
		use->peers += progress->remotes[index].incarnation != 0;
}
