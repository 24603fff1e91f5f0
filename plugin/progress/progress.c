/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side: one bounded run of I/O, in fixed order (the
 * engine's commands, transport events, peers, tickets, pulls), and the thread
 * that repeats it. With progress=caller the engine's thread runs it in poll().
 *
 * The thread spins for KVPULL_SPIN_NS after its last work, then asks both its
 * ring and the transport for a wake-up, looks once more, and sleeps until then
 * or until the next timer. It never yields: since Linux 6.18 a thread that yields
 * gives its whole slice away, and this one stood for 60 ms behind two engines on
 * two cores. A thread that sleeps is woken ahead of them.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/epoll.h"
#include "base/fd.h"
#include "base/params.h"
#include "base/pause.h"
#include "base/thread.h"
#include "plugin/progress/progress.h"
#include "plugin/progress/progress_state.h"

#define SLEEP_MS_MAX 1000u
/*
 * The thread runs so often at least, so that kvpull_handover_ran() does not take
 * it for stopped.
 */
#define RUNS_A_LEASE (2 * KVPULL_BEATS_A_LEASE)
/* A run does so many commands at most: the first is done before the last begins. */
#define COMMANDS_MAX 64

/*
 * The engine sleeps, and was told something. After releases went out: other
 * processes wait for those. Before them it would be awake 20 to 50 us sooner on
 * two idle cores, but on busy ones it runs first: a quarter of the releases then
 * came 2 to 6 ms later.
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
		progress->claims.all[record->slot].order;

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
			kvpull_reads_fail(&progress->reads, record->slot,
					  KVPULL_EABORTED);
		break;
	case KVPULL_TO_FORGET:
		kvpull_callers_forget(&progress->callers, record->slot);
		break;
	case KVPULL_TO_DROP:
		kvpull_callers_drop(&progress->callers, record->slot);
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

static void address_tell(const struct kvpull_progress *progress)
{
	char text[KVPULL_TICKET_ADDRESS_BYTES_MAX];

	kvpull_routes_print(&progress->routes, text, sizeof(text));
	kvpull_handover_address_set(progress->handover, text);
}

static void event_take(struct kvpull_progress *progress,
		       const struct kvpull_route *route,
		       const struct kvpull_event *event, uint64_t now_ns)
{
	switch (event->kind) {
	case KVPULL_EVENT_PEER_MESSAGE:
	case KVPULL_EVENT_PEER_DOWN:
		kvpull_remote_event(progress, route, event, now_ns);
		break;
	case KVPULL_EVENT_PEER_RATE:
		kvpull_remote_rate(progress, route, event, now_ns);
		break;
	case KVPULL_EVENT_READ_DONE:
	case KVPULL_EVENT_CHECK_DONE:
		kvpull_pull_event(progress, event);
		break;
	case KVPULL_EVENT_CALLER_UP:
	case KVPULL_EVENT_CALLER_MESSAGE:
	case KVPULL_EVENT_CALLER_DOWN:
		kvpull_callers_event(&progress->callers, route, event, now_ns);
		break;
	case KVPULL_EVENT_ADDRESS:
		address_tell(progress);
		break;
	case KVPULL_EVENT_NONE: /* counts as work */
		break;
	}
}

static int events(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct kvpull_event event[KVPULL_EVENTS_MAX];
	const struct kvpull_route *route;
	uint32_t left = KVPULL_EVENTS_MAX;
	uint32_t turn;

	for (turn = 0; turn < progress->routes.count; turn++) {
		const int count = kvpull_routes_poll(
			&progress->routes, turn, now_ns, event, left, &route);
		int index;

		for (index = 0; index < count; index++)
			event_take(progress, route, &event[index], now_ns);
		left -= (uint32_t)count;
	}
	return (int)(KVPULL_EVENTS_MAX - left);
}

int kvpull_progress_run(struct kvpull_progress *progress, uint64_t now_ns)
{
	int worked;

	/* Before, nobody knows which routes there will be to a ticket's P. */
	if (!progress->serving)
		return 0;
	if (progress->facts->config.progress == KVPULL_PROGRESS_THREAD)
		kvpull_handover_ran(
			progress->handover, progress->run_ns, now_ns,
			progress->facts->config.lease_ms * KVPULL_NS_PER_MS);
	progress->run_ns = now_ns;
	kvpull_status_ran(&progress->facts->status->progress, now_ns);
	kvpull_status_keep_young(progress->facts->status, now_ns);
	worked = commands(progress, now_ns);
	worked += events(progress, now_ns);
	progress->timer_ns = UINT64_MAX;
	kvpull_remote_run(progress, now_ns);
	kvpull_claim_run(progress, now_ns);
	kvpull_give_run(progress, now_ns);
	engine_wake(progress);
	kvpull_due_by(&progress->timer_ns,
		      kvpull_reads_run(&progress->reads, now_ns));
	engine_wake(progress);
	kvpull_show_failures(progress, now_ns);
	kvpull_show_mapped(progress);
	return worked;
}

/* Milliseconds until the next timer, rounded up; -1 never happens. */
static int sleep_ms(const struct kvpull_progress *progress, uint64_t now_ns)
{
	const uint64_t at_ns = progress->timer_ns;
	uint64_t most_ms = progress->facts->config.lease_ms / RUNS_A_LEASE;
	uint64_t ms;

	if (at_ns <= now_ns)
		return 0;
	ms = (at_ns - now_ns + KVPULL_NS_PER_MS - 1) / KVPULL_NS_PER_MS;
	if (most_ms > SLEEP_MS_MAX)
		most_ms = SLEEP_MS_MAX;
	return ms < most_ms ? (int)ms : (int)most_ms;
}

static void sleep_until_work(struct kvpull_progress *progress, uint64_t now_ns)
{
	struct epoll_event events_ready[8];
	eventfd_t ignored;
	int stay = kvpull_ring_arm(&progress->end.reader);
	int count = 0;

	stay |= kvpull_routes_arm(&progress->routes);
	if (!stay)
		count = epoll_wait(progress->thread.wait_fd, events_ready, 8,
				   sleep_ms(progress, now_ns));
	kvpull_routes_disarm(&progress->routes);
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
	while (!atomic_load_explicit(&progress->thread.stop,
				     memory_order_relaxed)) {
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

int kvpull_progress_start(struct kvpull_progress *progress)
{
	struct kvpull_progress_thread *thread = &progress->thread;
	int failed;

	thread->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	failed = thread->wait_fd < 0 ||
		 kvpull_epoll_add(thread->wait_fd,
				  progress->handover->progress_wake_fd,
				  EPOLLIN) ||
		 kvpull_routes_watch(&progress->routes, thread->wait_fd);
	if (failed) {
		kvpull_error(progress->log, "progress thread: epoll: %s",
			     kvpull_why(WATCH, errno));
		return KVPULL_EDEVICE;
	}
	failed = kvpull_thread_start(&thread->id, "kvpull-progress",
				     thread_main, progress);
	if (failed) {
		kvpull_error(progress->log, "progress thread: %s",
			     kvpull_why(THREAD, failed));
		return KVPULL_EDEVICE;
	}
	thread->runs = 1;
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
	KVPULL_ARENA_TAKE(arena, progress->pulls, config->pulls_max);
	progress->reads = (struct kvpull_reads){
		.owner = &kvpull_pull_owner,
		.own = progress,
		.log = progress->log,
	};
	kvpull_reads_init(&progress->reads, config->pulls_max,
			  part_count_max(config), arena);
}

static int tables_take(struct kvpull_progress *progress,
		       struct kvpull_arena *arena)
{
	const struct kvpull_config *config = &progress->facts->config;
	struct kvpull_scratch *scratch = &progress->scratch;
	int code;

	slots_take(progress, config, arena);
	KVPULL_ARENA_TAKE(arena, scratch->welcome, 1);
	KVPULL_ARENA_TAKE(arena, scratch->view, 1);
	KVPULL_ARENA_TAKE(arena, scratch->hello, 1);
	KVPULL_ARENA_TAKE(arena, scratch->give, 1);
	scratch->message =
		kvpull_arena_take(arena, 1, KVPULL_MESSAGE_BYTES_MAX);
	progress->callers = (struct kvpull_callers){
		.owner = &kvpull_serve_owner,
		.own = progress,
		.log = progress->log,
		.config = config,
		.all = kvpull_arena_take(arena,
					 progress->facts->caller_count_max,
					 sizeof(*progress->callers.all)),
		.message = scratch->message,
		.given = { .take = kvpull_serve_given, .context = progress },
		.refused = &progress->counts->consumers_refused,
	};
	code = kvpull_remotes_init(progress, arena);
	KVPULL_ARENA_TAKE(arena, progress->told.peers, progress->remotes.count);
	kvpull_room_init(progress, arena);
	kvpull_claims_init(&progress->claims, config, arena);
	return code || kvpull_arena_ok(arena) ? code : KVPULL_ENOMEM;
}

/* Takes the routes that a test has opened. */
static int routes_take(struct kvpull_progress *progress,
		       const struct kvpull_progress_params *params)
{
	struct kvpull_transport *transport;
	uint32_t at = 0;
	int code = 0;

	while (!code &&
	       (transport = params->transport(params->transport_context,
					      progress->log, at++)))
		code = kvpull_routes_add(&progress->routes, transport);
	return code || progress->routes.count ? code : KVPULL_ENOMEM;
}

static int routes_open(struct kvpull_progress *progress,
		       const struct kvpull_progress_params *params)
{
	const struct kvpull_config *config = &progress->facts->config;
	const struct kvpull_route_params route = {
		.log = progress->log,
		.config = config,
		.arena = params->arena,
		.incarnation = progress->facts->incarnation,
		.reads_max = part_count_max(config),
		/* With progress=caller the reader is who polls: awake. */
		.engine_wake_fd = config->progress == KVPULL_PROGRESS_THREAD ?
					  progress->handover->engine_wake_fd :
					  -1,
		.refused = &progress->counts->consumers_refused,
		.given = { .take = kvpull_serve_given, .context = progress },
		/* Who polls by itself has no thread of ours. */
		.disk_thread = config->progress == KVPULL_PROGRESS_THREAD,
		.device_kind = progress->facts->device_kind,
		.device_index = progress->facts->device_index,
		.rank = progress->facts->stage.rank,
	};
	int code;

	if (params->transport)
		code = routes_take(progress, params);
	else
		code = kvpull_routes_open(&progress->routes, &route);
	kvpull_check(progress->log, progress->routes.caller_count <=
					    progress->facts->caller_count_max);
	return code;
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
	progress->counts = params->facts->status->counts;
	progress->end = params->end;
	progress->thread.wait_fd = -1;
	progress->timer_ns = progress->gives.due_ns = UINT64_MAX;
	(void)pthread_mutex_init(&progress->told.lock, NULL);
	*out = progress;
	code = routes_open(progress, params);
	if (!code)
		code = tables_take(progress, params->arena);
	if (!code)
		kvpull_show_device(progress);
	return code;
}

int kvpull_progress_serve(struct kvpull_progress *progress)
{
	const int code =
		kvpull_routes_serve(&progress->routes, &progress->facts->serve);

	progress->serving = !code;
	address_tell(progress);
	return code;
}

void kvpull_progress_close(struct kvpull_progress *progress,
			   uint64_t close_by_ns)
{
	if (!progress)
		return;
	if (progress->thread.runs) {
		atomic_store_explicit(&progress->thread.stop, 1,
				      memory_order_relaxed);
		(void)eventfd_write(progress->handover->progress_wake_fd, 1);
		(void)pthread_join(progress->thread.id, NULL);
	}
	kvpull_show_failures(progress, UINT64_MAX);
	kvpull_routes_close(&progress->routes, close_by_ns);
	kvpull_fd_close(&progress->thread.wait_fd);
}

const struct kvpull_progress_counts *
kvpull_progress_counts(const struct kvpull_progress *progress)
{
	return progress->counts;
}

uint32_t kvpull_progress_callers_max(const struct kvpull_config *config)
{
	return kvpull_routes_callers_max(config);
}

int kvpull_progress_watch(const struct kvpull_progress *progress, int epoll_fd)
{
	int failed = kvpull_routes_watch_doorbells(&progress->routes, epoll_fd);

	if (!failed &&
	    progress->facts->config.progress == KVPULL_PROGRESS_CALLER)
		failed = kvpull_routes_watch(&progress->routes, epoll_fd);
	return failed;
}

struct kvpull_device_thread *
kvpull_progress_device(const struct kvpull_progress *progress)
{
	return kvpull_routes_device(&progress->routes);
}

uint32_t kvpull_progress_help(const struct kvpull_progress *progress)
{
	return kvpull_routes_help(&progress->routes);
}

int kvpull_progress_arm(struct kvpull_progress *progress)
{
	return kvpull_routes_arm(&progress->routes);
}

void kvpull_progress_disarm(struct kvpull_progress *progress)
{
	kvpull_routes_disarm(&progress->routes);
}

int kvpull_progress_rings(const struct kvpull_progress *progress)
{
	return kvpull_routes_rings(&progress->routes);
}

uint64_t kvpull_progress_due_ns(const struct kvpull_progress *progress)
{
	return progress->timer_ns;
}

int kvpull_progress_peers(struct kvpull_progress *progress,
			  struct kvpull_peer_info *peers, uint32_t capacity,
			  size_t peer_bytes)
{
	struct kvpull_told *told = &progress->told;
	uint8_t *to = (uint8_t *)peers;
	uint32_t count;
	uint32_t index;

	(void)pthread_mutex_lock(&told->lock);
	count = told->count;
	for (index = 0; index < count && index < capacity; index++) {
		kvpull_element_give(to, peer_bytes, &told->peers[index],
				    sizeof(told->peers[index]));
		to += peer_bytes;
	}
	(void)pthread_mutex_unlock(&told->lock);
	return (int)count;
}
