/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open, close, and one bounded run of I/O. The arena is sealed before open()
 * returns.
 */
#include "plugin/share/share.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sodium.h>

#include "base/cause.h"
#include "base/kept_error.h"
#include "base/params.h"
#include "plugin/share/share_state.h"

#define EVENTS_MAX 64u /* of the routes, a poll */
#define RECORD_BYTES_FIRST 24u

_Static_assert(KVPULL_READER_CHUNKS_MAX == KVPULL_SHARE_PLACES_MAX &&
		       KVPULL_READER_NONE == KVPULL_NONE,
	       "a place on the wire is a chunk of the table");
_Static_assert(sizeof(struct kvpull_reader_record) == RECORD_BYTES_FIRST,
	       "this is the first version");

static int id_take(struct kvpull_reader *share, const char *engine_id,
		   struct kvpull_error_detail *detail)
{
	if (!engine_id || !*engine_id ||
	    !kvpull_fields_text_is_good(engine_id, sizeof(share->engine_id)))
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, "engine_id",
			"needed: 1 .. %zu bytes without control characters",
			sizeof(share->engine_id) - 1);
	memcpy(share->engine_id, engine_id, strlen(engine_id) + 1);
	while (!share->incarnation)
		randombytes_buf(&share->incarnation,
				sizeof(share->incarnation));
	return 0;
}

static int tables_take(struct kvpull_reader *share)
{
	struct kvpull_arena *arena = &share->arena;
	uint64_t window_bytes;
	uint8_t *windows;

	share->links_max = share->config.peers_max < KVPULL_READER_PEERS_MAX ?
				   share->config.peers_max :
				   KVPULL_READER_PEERS_MAX;
	KVPULL_ARENA_TAKE(arena, share->links, share->links_max);
	share->message = kvpull_arena_take(arena, 1, KVPULL_MESSAGE_BYTES_MAX);
	share->callers = (struct kvpull_callers){
		.owner = &kvpull_share_callers_owner,
		.own = share,
		.log = &share->log,
		.config = &share->config,
		.all = kvpull_arena_take(arena, share->routes.caller_count,
					 sizeof(*share->callers.all)),
		.message = share->message,
		.refused = &share->refused,
	};
	share->peers = (struct kvpull_peers){
		.owner = &kvpull_share_peers_owner,
		.own = share,
		.log = &share->log,
		.config = &share->config,
		.of_handle = kvpull_arena_take(arena, share->routes.peer_count,
					       sizeof(*share->peers.of_handle)),
		.message = share->message,
	};
	KVPULL_ARENA_TAKE(arena, share->hello, 1);
	KVPULL_ARENA_TAKE(arena, share->welcome, 1);
	KVPULL_ARENA_TAKE(arena, share->view, 1);
	KVPULL_ARENA_TAKE(arena, share->serve, 1);
	share->reader =
		kvpull_share_reader_open(&share->namespace_digest, arena);
	if (!share->reader || !kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	windows = kvpull_share_reader_windows(share->reader, &window_bytes);
	return kvpull_routes_local_add(&share->routes, windows, window_bytes);
}

static int parts_open(struct kvpull_reader *share,
		      struct kvpull_error_detail *detail)
{
	const struct kvpull_route_params routes = {
		.log = &share->log,
		.config = &share->config,
		.arena = &share->arena,
		.incarnation = share->incarnation,
		.reads_max = KVPULL_READER_OPEN_MAX,
		.slots_max = KVPULL_READER_ITEMS_MAX,
		.engine_wake_fd = -1,
		.refused = &share->refused,
		/* poll() waits for no disk, and an engine may have no io_uring. */
		.disk_thread = 1,
	};
	struct kvpull_kept_error kept;
	int code;

	kvpull_kept_begin(&share->log, &kept);
	kvpull_arena_init(&share->arena, &share->log);
	code = kvpull_routes_open(&share->routes, &routes);
	if (!code)
		code = tables_take(share);
	if (!code)
		code = kvpull_share_show_open(share, share->naming.tp_size);
	return kvpull_kept_end(&share->log, &kept, code, detail);
}

int kvpull_share_open(const struct kvpull_share_setup *setup,
		      struct kvpull_reader **out,
		      struct kvpull_error_detail *detail)
{
	struct kvpull_reader *share;
	int code;

	share = mmap(NULL, sizeof(*share), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (share == MAP_FAILED)
		return kvpull_detail_set(detail, KVPULL_ENOMEM, "", "%s",
					 kvpull_why(MAP, errno));
	share->pid = getpid();
	share->wakeup.fd = share->wakeup.timer_fd = share->wakeup.wake_fd = -1;
	share->log = setup->log;
	share->log.budget = &share->log_budget;
	share->config = *setup->config;
	/* The thread that polls does the I/O. */
	share->config.progress = KVPULL_PROGRESS_CALLER;
	code = id_take(share, setup->engine_id, detail);
	if (!code)
		code = kvpull_share_names_take(share, setup->naming, detail);
	if (!code)
		code = parts_open(share, detail);
	if (code) {
		kvpull_share_close(share);
		return code;
	}
	kvpull_arena_seal(&share->arena);
	kvpull_info(&share->log, "reader %s open, incarnation %016llx",
		    share->engine_id, (unsigned long long)share->incarnation);
	*out = share;
	return 0;
}

void kvpull_share_close(struct kvpull_reader *share)
{
	const uint64_t close_by_ns = kvpull_clock_close_by();

	/* A child has neither the threads nor the shared memory to end. */
	if (!share || share->pid != getpid())
		return;
	if (share->pool && !share->is_ended)
		kvpull_pool_close(share->pool);
	kvpull_share_sleep_end(share);
	kvpull_routes_close(&share->routes, close_by_ns);
	kvpull_share_show_close(share);
	kvpull_share_memory_free(share, close_by_ns);
	kvpull_arena_fini(&share->arena);
	(void)munmap(share, sizeof(*share));
}

int kvpull_share_local_add(struct kvpull_reader *share, void *base,
			   uint64_t block_bytes, uint32_t block_count,
			   uint32_t *local)
{
	int code = share && local ?
			   kvpull_share_reader_local_add(share->reader, base,
							 block_bytes,
							 block_count, local) :
			   KVPULL_EINVAL;

	if (code)
		return code;
	code = kvpull_routes_local_add(&share->routes, base,
				       block_bytes * block_count);
	if (code)
		kvpull_share_reader_local_undo(share->reader);
	return code;
}

static void event_take(struct kvpull_reader *share,
		       const struct kvpull_route *route,
		       const struct kvpull_event *event, uint64_t now_ns)
{
	switch (event->kind) {
	case KVPULL_EVENT_PEER_DOWN:
		/* Before the link hears of it, which may free the peer. */
		kvpull_share_reader_take(share->reader, route->transport,
					 event);
		kvpull_peers_event(&share->peers, route, event, now_ns);
		break;
	case KVPULL_EVENT_PEER_MESSAGE:
		kvpull_peers_event(&share->peers, route, event, now_ns);
		break;
	case KVPULL_EVENT_READ_DONE:
	case KVPULL_EVENT_CHECK_DONE:
		kvpull_share_reader_take(share->reader, route->transport,
					 event);
		break;
	case KVPULL_EVENT_CALLER_UP:
	case KVPULL_EVENT_CALLER_MESSAGE:
	case KVPULL_EVENT_CALLER_DOWN:
		kvpull_callers_event(&share->callers, route, event, now_ns);
		break;
	case KVPULL_EVENT_PEER_RATE: /* of a device: shares have none */
	case KVPULL_EVENT_ADDRESS:   /* who asks for it gets the one of now */
	case KVPULL_EVENT_NONE:
		break;
	}
}

/* Links and deadlines; the routes' own is in what they wait for. */
static uint64_t due_ns(const struct kvpull_reader *share)
{
	const uint64_t links_ns = share->links_due_ns;
	const uint64_t reads_ns = kvpull_share_reader_due_ns(share->reader);
	const uint64_t spills_ns = kvpull_share_spills_due_ns(&share->spills);
	const uint64_t asks_ns = reads_ns < spills_ns ? reads_ns : spills_ns;

	return links_ns < asks_ns ? links_ns : asks_ns;
}

int kvpull_share_poll(struct kvpull_reader *share,
		      struct kvpull_reader_record *records, uint32_t capacity,
		      size_t record_bytes)
{
	struct kvpull_event events[EVENTS_MAX];
	const struct kvpull_route *route;
	uint32_t left = EVENTS_MAX;
	uint64_t now_ns;
	uint32_t worked;
	uint32_t count;
	uint32_t turn;

	if (!share || (!records && capacity) ||
	    kvpull_element_check(record_bytes, RECORD_BYTES_FIRST))
		return KVPULL_EINVAL;
	now_ns = kvpull_clock_ns();
	kvpull_share_show_run(share, now_ns);
	for (turn = 0; turn < share->routes.count; turn++) {
		const int came = kvpull_routes_poll(
			&share->routes, turn, now_ns, events, left, &route);
		int at;

		for (at = 0; at < came; at++)
			event_take(share, route, &events[at], now_ns);
		left -= (uint32_t)came;
	}
	share->links_due_ns = kvpull_share_links_run(share, now_ns);
	kvpull_share_reader_work(share->reader, now_ns);
	worked = kvpull_share_spills_run(&share->spills, now_ns);
	count = kvpull_share_ends(share, records, capacity, record_bytes);
	kvpull_share_show_counts(share);
	if (share->wakeup.fd >= 0)
		kvpull_share_sleep(share, worked + count + (EVENTS_MAX - left),
				   due_ns(share));
	return (int)count;
}
