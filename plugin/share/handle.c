/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open, close, the owner's memory, and one bounded run of I/O.
 *
 * Invariants: memory of a share is mapped until close(), and before that no
 * guard is of its incarnation any more; nobody is let in before all of it is
 * there. Arenas are sealed before open() and share() return.
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
#define ENTRIES_A_CHUNK 4u

_Static_assert(KVPULL_READER_ITEMS_MAX == KVPULL_SHARE_READER_ITEMS_MAX &&
		       KVPULL_READER_OPEN_MAX ==
			       KVPULL_SHARE_READER_READS_MAX &&
		       KVPULL_READER_KEY_BYTES_MAX == KVPULL_POOL_KEY_BYTES_MAX,
	       "the public bounds of a probe and a read");
_Static_assert(KVPULL_READER_PEERS_MAX == KVPULL_SHARE_READER_PEERS_MAX,
	       "of peers");
_Static_assert(KVPULL_READER_LOCALS_MAX == KVPULL_SHARE_READER_LOCALS_MAX &&
		       KVPULL_READER_BLOCKS_MAX ==
			       KVPULL_SHARE_READER_BLOCKS_MAX &&
		       KVPULL_READER_CHUNKS_MAX == KVPULL_SHARE_PLACES_MAX &&
		       KVPULL_READER_NONE == KVPULL_NONE,
	       "of memory");

/* Both forms of a namespace; nothing is changed where it is refused. */
static int names_take(struct kvpull_reader *share,
		      const struct kvpull_share_names *names,
		      struct kvpull_error_detail *detail)
{
	const struct kvpull_model *model = &names->model;
	const char *const texts[KVPULL_SHARE_TEXTS] = {
		model->model,  model->revision,  model->weights, model->dtype,
		model->layout, model->attention, model->config,  model->engine,
		names->hash,   names->seed,
	};
	const struct kvpull_pool_naming pool = {
		.model = model,
		.hash = names->hash,
		.seed = names->seed,
		.tp_size = names->tp_size,
	};
	struct kvpull_share_naming naming = {
		.layer_count = model->layer_count,
		.head_count = model->head_count,
		.head_bytes = model->head_bytes,
		.replicated = model->replicated,
		.tp_size = names->tp_size,
	};
	int code;

	if (model->replicated > 1)
		return kvpull_detail_set(detail, KVPULL_EINVAL, "replicated",
					 "replicated is %u: it is 0 or 1",
					 model->replicated);
	code = kvpull_share_naming_texts(&naming, texts, detail);
	if (!code)
		code = kvpull_pool_namespace_make(&pool,
						  &share->namespace_digest);
	if (!code)
		share->naming = naming;
	return code;
}

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
	share->links = kvpull_arena_take(arena, share->links_max,
					 sizeof(*share->links));
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
	share->hello = kvpull_arena_take(arena, 1, sizeof(*share->hello));
	share->welcome = kvpull_arena_take(arena, 1, sizeof(*share->welcome));
	share->view = kvpull_arena_take(arena, 1, sizeof(*share->view));
	share->serve = kvpull_arena_take(arena, 1, sizeof(*share->serve));
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
		.reads_max = KVPULL_SHARE_READER_READS_MAX,
		.slots_max = KVPULL_SHARE_READER_ITEMS_MAX,
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
		code = names_take(share, setup->names, detail);
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

static void memory_free(struct kvpull_reader *share, uint64_t close_by_ns)
{
	share->pool = NULL;
	/* A late write would read what is mapped there next, for readers. */
	if (kvpull_share_spills_close(&share->spills, close_by_ns) &&
	    share->chunks.base) {
		(void)close(share->chunks.fd);
		share->chunks.base = NULL;
	}
	kvpull_arena_fini(&share->pool_arena);
	kvpull_segment_unmake(&share->directory);
	kvpull_segment_unmake(&share->guards);
	kvpull_segment_unmake(&share->chunks);
	kvpull_file_take_back(&share->lent);
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
	memory_free(share, close_by_ns);
	kvpull_arena_fini(&share->arena);
	(void)munmap(share, sizeof(*share));
}

/* ---- the owner ---- */

static int base_is_known(const struct kvpull_reader_share *params)
{
	return !(params->flags & KVPULL_READER_SHARE_FD) || params->base;
}

static int share_check(const struct kvpull_reader *share,
		       const struct kvpull_reader_share *params,
		       struct kvpull_error_detail *detail)
{
	const char *what = NULL;

	if (share->pool)
		what = "there was a share before: open another handle";
	else if (!params->chunk_count ||
		 params->chunk_count > KVPULL_READER_CHUNKS_MAX)
		what = "chunk_count is 1 .. 1048576";
	else if (!params->chunk_bytes ||
		 params->chunk_bytes >
			 KVPULL_SEGMENT_BYTES_MAX / params->chunk_count)
		what = "chunk_bytes is 0, or all chunks are too large";
	else if (params->entry_count > KVPULL_SHARE_ENTRIES_MAX ||
		 (params->entry_count &&
		  params->entry_count < KVPULL_POOL_WINDOW))
		what = "entry_count is 0 or 8 .. 16777216";
	else if (params->flags && params->flags != KVPULL_MEMORY_HUGE &&
		 params->flags != KVPULL_READER_SHARE_FD)
		what = "flags is 0, KVPULL_MEMORY_HUGE or KVPULL_READER_SHARE_FD";
	else if (params->flags != KVPULL_READER_SHARE_FD &&
		 (params->fd > 0 || params->fd < -1 || params->fd_offset ||
		  params->base))
		what = "without KVPULL_READER_SHARE_FD fd is 0 or -1, fd_offset and base are 0";
	else if (!params->slot_count != !params->slot_folder ||
		 params->reserved)
		what = "slot_count and slot_folder come together, reserved is 0";
	else if (params->slot_count > KVPULL_READER_CHUNKS_MAX)
		what = "slot_count is at most 1048576";
	else if (params->slot_count && !base_is_known(params))
		what = "slots are written from where the file is mapped: base says where";
	if (!what)
		return 0;
	return kvpull_detail_set(detail, KVPULL_EINVAL, "share", "%s", what);
}

static struct kvpull_region_view region_of(const struct kvpull_shared *memory)
{
	return (struct kvpull_region_view){ .kind = KVPULL_REGION_PROVIDED,
					    .fd = memory->fd,
					    .base = memory->base,
					    .bytes = memory->bytes };
}

static int failed(struct kvpull_error_detail *detail, int code)
{
	return code ? kvpull_detail_set(
			      detail, code, "share",
			      "its memory could not be made or served: see the log") :
		      0;
}

/* Made, or the engine's own; and as they are served. */
static int chunks_take(struct kvpull_reader *share,
		       const struct kvpull_reader_share *params,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_region_view *region =
		&share->serve->regions[KVPULL_SHARE_REGION_CHUNKS];
	const uint32_t huge = params->flags & KVPULL_MEMORY_HUGE &&
			      share->config.huge == KVPULL_AUTO;
	const uint64_t bytes = params->chunk_count * params->chunk_bytes;
	const char *why;
	int code;

	if (!(params->flags & KVPULL_READER_SHARE_FD)) {
		code = kvpull_segment_make(&share->chunks, "kvpull-chunks",
					   bytes, KVPULL_SEGMENT_READ_ONLY,
					   huge ? 2 : 0, &share->log);
		*region = region_of(&share->chunks);
		return failed(detail, code);
	}
	code = kvpull_file_lend(params->fd, params->fd_offset, bytes,
				&share->lent, &why);
	if (code)
		kvpull_detail_set(detail, code, "fd", "the file %s", why);
	*region = (struct kvpull_region_view){ .kind = KVPULL_REGION_UNSEALED,
					       .fd = share->lent.fd,
					       .base = params->base,
					       .bytes = bytes,
					       .fd_offset = params->fd_offset };
	return code;
}

/* Made, and served behind the chunks. */
static int slots_make(struct kvpull_reader *share,
		      const struct kvpull_reader_share *params,
		      struct kvpull_error_detail *detail)
{
	const struct kvpull_slots_params slots = {
		.log = &share->log,
		.folder = params->slot_folder,
		.slot_bytes = params->chunk_bytes,
		.slot_count = params->slot_count,
		.uring = share->config.uring == KVPULL_OFF ?
				 KVPULL_URING_NO :
				 KVPULL_URING_ANY_THREAD,
	};
	struct kvpull_share_spills *spills = &share->spills;
	const char *why;
	int code;

	share->serve->region_count = KVPULL_SHARE_REGION_COUNT;
	if (!params->slot_count)
		return 0;
	spills->chunks = share->serve->regions[KVPULL_SHARE_REGION_CHUNKS].base;
	spills->chunk_bytes = params->chunk_bytes;
	spills->slot_first = params->chunk_count;
	code = kvpull_slots_open(&spills->file, &slots, &why);
	if (!code && (uintptr_t)spills->chunks % spills->file.align) {
		why = "base is not aligned to what O_DIRECT asks for there";
		code = KVPULL_EINVAL;
	}
	if (code == KVPULL_EAGAIN)
		code = KVPULL_ENOMEM; /* nothing is busy: no thread is left */
	if (code)
		return kvpull_detail_set(detail, code, "slot_folder", "%s",
					 why);
	spills->slot_count = params->slot_count;
	share->serve->regions[share->serve->region_count++] =
		(struct kvpull_region_view){ .kind = KVPULL_REGION_SLOTS,
					     .fd = spills->file.read_fd,
					     .bytes = spills->file.bytes };
	return 0;
}

static int memory_make(struct kvpull_reader *share)
{
	int code;

	code = kvpull_segment_make(
		&share->guards, "kvpull-guards",
		((size_t)share->terms.chunk_count + share->terms.slot_count) *
			sizeof(struct kvpull_revocation_entry),
		KVPULL_SEGMENT_READ_ONLY, 0, &share->log);
	if (!code)
		code = kvpull_segment_make(
			&share->directory, "kvpull-directory",
			(size_t)share->terms.entry_count *
				sizeof(struct kvpull_pool_entry),
			KVPULL_SEGMENT_READ_ONLY, 0, &share->log);
	return code;
}

static int pool_open(struct kvpull_reader *share)
{
	struct kvpull_serve *serve = share->serve;
	/* Page-aligned mappings serve the alignments. */
	struct kvpull_pool_params params = {
		.share = share->terms,
		.entries = (struct kvpull_pool_entry *)(void *)
				   share->directory.base,
		.guards = (struct kvpull_revocation_entry *)(void *)
				  share->guards.base,
	};

	serve->regions[KVPULL_SHARE_REGION_DIRECTORY] =
		region_of(&share->directory);
	serve->slot_count = share->terms.chunk_count + share->terms.slot_count;
	serve->entries = params.guards;
	serve->entries_fd = share->guards.fd;
	(void)kvpull_serve_number_fds(serve);
	kvpull_arena_init(&share->pool_arena, &share->log);
	share->pool = kvpull_pool_open(&params, &share->pool_arena);
	share->spills.pool = share->pool;
	if (share->terms.slot_count &&
	    kvpull_share_spills_open(&share->spills, &share->pool_arena))
		share->pool = NULL;
	kvpull_arena_seal(&share->pool_arena);
	return share->pool ? 0 : KVPULL_ENOMEM;
}

int kvpull_share_begin(struct kvpull_reader *share,
		       const struct kvpull_reader_share *params,
		       struct kvpull_memory *memory,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_memory own = { .struct_size = sizeof(own) };
	const struct kvpull_region_view *chunks;
	int code = share_check(share, params, detail);

	if (code)
		return code;
	share->chunk_bytes = params->chunk_bytes;
	share->terms = (struct kvpull_pool_share){
		.incarnation = share->incarnation,
		.chunk_count = params->chunk_count,
		.slot_count = params->slot_count,
		.entry_count = params->entry_count,
	};
	if (!params->entry_count)
		share->terms.entry_count =
			(params->chunk_count + params->slot_count) *
				ENTRIES_A_CHUNK +
			KVPULL_POOL_WINDOW;
	randombytes_buf(share->terms.secret, sizeof(share->terms.secret));
	code = chunks_take(share, params, detail);
	if (code)
		return code;
	code = slots_make(share, params, detail);
	if (code) {
		memory_free(share, kvpull_clock_close_by());
		return code;
	}
	code = memory_make(share);
	if (!code)
		code = pool_open(share);
	if (!code && kvpull_share_sleep_watch(share))
		code = KVPULL_EDEVICE;
	if (!code)
		code = kvpull_routes_serve(&share->routes, share->serve);
	if (code) {
		memory_free(share, kvpull_clock_close_by());
		return failed(detail, code);
	}
	kvpull_share_show_pool(share);
	chunks = &share->serve->regions[KVPULL_SHARE_REGION_CHUNKS];
	own.base = chunks->base;
	own.bytes = chunks->bytes;
	own.huge_bytes = share->chunks.huge_bytes;
	own.took_ns = share->chunks.took_ns;
	own.fd = share->lent.is_lent ? -1 : share->chunks.fd;
	return kvpull_params_give(memory, &own, sizeof(own));
}

int kvpull_share_end(struct kvpull_reader *share)
{
	if (!share->pool || share->is_ended)
		return KVPULL_EINVAL;
	share->is_ended = 1;
	kvpull_pool_close(share->pool);
	kvpull_share_show_pool(share);
	kvpull_share_spills_cancel(&share->spills);
	/* Connected readers would find nothing any more, and not know why. */
	kvpull_share_callers_drop(share);
	kvpull_share_wake(share);
	return 0;
}

struct kvpull_pool *kvpull_share_pool(struct kvpull_reader *share)
{
	return share->is_ended ? NULL : share->pool;
}

struct kvpull_pool *kvpull_share_pool_of(struct kvpull_reader *share,
					 uint32_t chunk)
{
	return chunk < share->terms.chunk_count ? kvpull_share_pool(share) :
						  NULL;
}

void kvpull_share_address(const struct kvpull_reader *share,
			  char text[KVPULL_TICKET_ADDRESS_BYTES_MAX])
{
	text[0] = '\0';
	if (share->pool && !share->is_ended)
		kvpull_routes_print(&share->routes, text,
				    KVPULL_TICKET_ADDRESS_BYTES_MAX);
}

int kvpull_share_bump(struct kvpull_reader *share, const uint32_t *chunks,
		      uint32_t count, uint64_t *generations)
{
	struct kvpull_pool *pool = kvpull_share_pool(share);
	uint32_t at;
	int code;

	for (at = 0; at < count; at++)
		if (chunks[at] >= share->terms.chunk_count)
			return KVPULL_EINVAL;
	code = pool ? kvpull_pool_bump(pool, chunks, count, generations) :
		      KVPULL_EINVAL;
	share->counts.bumps += code ? 0 : count;
	return code;
}

int kvpull_share_put(struct kvpull_reader *share,
		     const struct kvpull_pool_put *put)
{
	struct kvpull_pool *pool = kvpull_share_pool_of(share, put->place);
	const int code = pool ? kvpull_pool_put(pool, put) : KVPULL_EINVAL;

	share->counts.puts += !code;
	share->counts.puts_stale += code == KVPULL_ESTALE;
	share->counts.puts_full += code == KVPULL_EFULL;
	return code;
}

int kvpull_share_bump_all(struct kvpull_reader *share,
			  const struct kvpull_share_names *names,
			  struct kvpull_error_detail *detail)
{
	struct kvpull_pool *pool = kvpull_share_pool(share);
	const int code = names ? names_take(share, names, detail) : 0;

	if (code)
		return code;
	if (pool) {
		kvpull_pool_bump_all(pool);
		share->counts.bumps += share->terms.chunk_count;
	}
	if (names)
		kvpull_share_reader_set_namespace(share->reader,
						  &share->namespace_digest);
	return 0;
}

/* ---- both ---- */

int kvpull_share_local_add(struct kvpull_reader *share, void *base,
			   uint64_t block_bytes, uint32_t block_count,
			   uint32_t *local)
{
	int code = kvpull_share_reader_local_add(
		share->reader, base, block_bytes, block_count, local);

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
	const uint64_t now_ns = kvpull_clock_ns();
	struct kvpull_event events[EVENTS_MAX];
	const struct kvpull_route *route;
	uint32_t left = EVENTS_MAX;
	uint32_t worked;
	uint32_t count;
	uint32_t turn;

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
