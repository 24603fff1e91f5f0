/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open, close, the owner's memory, and one bounded run of I/O.
 *
 * Invariants: memory of a share is mapped until close(), and before that no
 * guard is of its incarnation any more; nobody is let in before all of it is
 * there. Arenas are sealed before open() and share() return.
 */
#include "plugin/share/share.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sodium.h>

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

	if (model->replicated > 1) {
		kvpull_detail_set(detail, KVPULL_EINVAL, "replicated",
				  "replicated is %u: it is 0 or 1",
				  model->replicated);
		return KVPULL_EINVAL;
	}
	code = kvpull_share_naming_texts(&naming, texts, detail);
	if (!code)
		code = kvpull_pool_namespace_make(&pool,
						  &share->namespace_digest);
	if (!code)
		share->naming = naming;
	return code;
}

/* What this minor does not do is refused by name. */
static int config_take(struct kvpull_reader *share,
		       const struct kvpull_config *config,
		       struct kvpull_error_detail *detail)
{
	share->config = *config;
	if (config->route == KVPULL_ROUTE_PIN_VERBS) {
		kvpull_detail_set(
			detail, KVPULL_EUNSUPPORTED, "route",
			"a share is read on its own node in this version: route is auto or shm");
		return KVPULL_EUNSUPPORTED;
	}
	share->config.route = KVPULL_ROUTE_PIN_SHM;
	/* Who polls does the I/O. */
	share->config.progress = KVPULL_PROGRESS_CALLER;
	return 0;
}

static int id_take(struct kvpull_reader *share, const char *engine_id,
		   struct kvpull_error_detail *detail)
{
	if (!engine_id || !*engine_id ||
	    !kvpull_fields_text_is_good(engine_id, sizeof(share->engine_id))) {
		kvpull_detail_set(
			detail, KVPULL_EINVAL, "engine_id",
			"needed: 1 .. %zu bytes without control characters",
			sizeof(share->engine_id) - 1);
		return KVPULL_EINVAL;
	}
	memcpy(share->engine_id, engine_id, strlen(engine_id) + 1);
	while (!share->incarnation)
		randombytes_buf(&share->incarnation,
				sizeof(share->incarnation));
	return 0;
}

static int tables_take(struct kvpull_reader *share)
{
	struct kvpull_arena *arena = &share->arena;

	share->links_max = share->config.peers_max < KVPULL_READER_PEERS_MAX ?
				   share->config.peers_max :
				   KVPULL_READER_PEERS_MAX;
	share->links = kvpull_arena_take(arena, share->links_max,
					 sizeof(*share->links));
	share->link_of = kvpull_arena_take(arena, share->routes.peer_count,
					   sizeof(*share->link_of));
	share->callers = kvpull_arena_take(arena, share->routes.caller_count,
					   sizeof(*share->callers));
	share->message = kvpull_arena_take(arena, 1, KVPULL_MESSAGE_BYTES_MAX);
	share->hello = kvpull_arena_take(arena, 1, sizeof(*share->hello));
	share->welcome = kvpull_arena_take(arena, 1, sizeof(*share->welcome));
	share->view = kvpull_arena_take(arena, 1, sizeof(*share->view));
	share->serve = kvpull_arena_take(arena, 1, sizeof(*share->serve));
	share->reader =
		kvpull_share_reader_open(&share->namespace_digest, arena);
	return share->reader && kvpull_arena_ok(arena) ? 0 : KVPULL_ENOMEM;
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
		.engine_wake_fd = -1,
		.refused = &share->refused,
	};
	int code;

	kvpull_arena_init(&share->arena, &share->log);
	kvpull_arena_init(&share->pool_arena, &share->log);
	code = kvpull_routes_open(&share->routes, &routes);
	if (!code)
		code = tables_take(share);
	if (code)
		kvpull_detail_set(
			detail, code, "", "%s",
			code == KVPULL_ENOMEM ?
				"no memory for the tables: lower peers_max or consumers_max" :
				"an operation of this host failed: see the log");
	return code;
}

int kvpull_share_open(const struct kvpull_share_setup *setup,
		      struct kvpull_reader **out,
		      struct kvpull_error_detail *detail)
{
	struct kvpull_reader *share;
	int code;

	share = mmap(NULL, sizeof(*share), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (share == MAP_FAILED) {
		kvpull_detail_set(detail, KVPULL_ENOMEM, "", "out of memory");
		return KVPULL_ENOMEM;
	}
	share->pid = getpid();
	share->log = setup->log;
	share->log.budget = &share->log_budget;
	code = config_take(share, setup->config, detail);
	if (!code)
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

static void memory_free(struct kvpull_reader *share)
{
	if (share->directory.base)
		kvpull_segment_unmake(&share->directory);
	if (share->guards.base)
		kvpull_segment_unmake(&share->guards);
	if (share->chunks.base)
		kvpull_segment_unmake(&share->chunks);
}

void kvpull_share_close(struct kvpull_reader *share)
{
	/* A child has neither the threads nor the shared memory to end. */
	if (!share || share->pid != getpid())
		return;
	if (share->pool && !share->is_ended)
		kvpull_pool_close(share->pool);
	kvpull_routes_close(&share->routes);
	memory_free(share);
	kvpull_arena_fini(&share->pool_arena);
	kvpull_arena_fini(&share->arena);
	(void)munmap(share, sizeof(*share));
}

/* ---- the owner ---- */

static int share_check(const struct kvpull_reader *share,
		       const struct kvpull_reader_share *params,
		       struct kvpull_error_detail *detail)
{
	const char *what = NULL;

	if (share->pool || share->chunks.base)
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
	else if (params->flags & ~KVPULL_MEMORY_HUGE || params->reserved)
		what = "flags or reserved has a bit that is not known";
	if (!what)
		return 0;
	kvpull_detail_set(detail, KVPULL_EINVAL, "share", "%s", what);
	return KVPULL_EINVAL;
}

static int memory_make(struct kvpull_reader *share,
		       const struct kvpull_reader_share *params)
{
	const uint32_t huge = params->flags & KVPULL_MEMORY_HUGE &&
			      share->config.huge == KVPULL_AUTO;
	const size_t chunk_count = params->chunk_count;
	int code;

	code = kvpull_segment_make(&share->chunks, "kvpull-chunks",
				   chunk_count * params->chunk_bytes,
				   KVPULL_SEGMENT_READ_ONLY, huge ? 2 : 0,
				   &share->log);
	if (!code)
		code = kvpull_segment_make(
			&share->guards, "kvpull-guards",
			chunk_count * sizeof(struct kvpull_revocation_entry),
			KVPULL_SEGMENT_READ_ONLY, 0, &share->log);
	if (!code)
		code = kvpull_segment_make(
			&share->directory, "kvpull-directory",
			(size_t)share->terms.entry_count *
				sizeof(struct kvpull_pool_entry),
			KVPULL_SEGMENT_READ_ONLY, 0, &share->log);
	return code;
}

static struct kvpull_region_view region_of(const struct kvpull_shared *memory)
{
	return (struct kvpull_region_view){ .kind = KVPULL_REGION_PROVIDED,
					    .fd = memory->fd,
					    .base = memory->base,
					    .bytes = memory->bytes };
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
	serve->regions[KVPULL_SHARE_REGION_CHUNKS] = region_of(&share->chunks);
	serve->region_count = KVPULL_SHARE_REGION_COUNT;
	serve->slot_count = share->terms.chunk_count;
	serve->entries = params.guards;
	serve->entries_fd = share->guards.fd;
	(void)kvpull_serve_number_fds(serve);
	share->pool = kvpull_pool_open(&params, &share->pool_arena);
	kvpull_arena_seal(&share->pool_arena);
	return share->pool ? 0 : KVPULL_ENOMEM;
}

int kvpull_share_begin(struct kvpull_reader *share,
		       const struct kvpull_reader_share *params,
		       struct kvpull_memory *memory,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_memory own = { .struct_size = sizeof(own) };
	int code = share_check(share, params, detail);

	if (code)
		return code;
	share->chunk_bytes = params->chunk_bytes;
	share->terms = (struct kvpull_pool_share){
		.incarnation = share->incarnation,
		.chunk_count = params->chunk_count,
		.entry_count = params->entry_count,
	};
	if (!params->entry_count)
		share->terms.entry_count =
			params->chunk_count * ENTRIES_A_CHUNK +
			KVPULL_POOL_WINDOW;
	randombytes_buf(share->terms.secret, sizeof(share->terms.secret));
	code = memory_make(share, params);
	if (!code)
		code = pool_open(share);
	if (!code)
		code = kvpull_routes_serve(&share->routes, share->serve);
	if (code) {
		kvpull_detail_set(
			detail, code, "share",
			"its memory could not be made or served: see the log");
		return code;
	}
	own.base = share->chunks.base;
	own.bytes = share->chunks.bytes;
	own.huge_bytes = share->chunks.huge_bytes;
	own.took_ns = share->chunks.took_ns;
	own.fd = share->chunks.fd;
	return kvpull_params_give(memory, &own, sizeof(own));
}

int kvpull_share_end(struct kvpull_reader *share)
{
	if (!share->pool || share->is_ended)
		return KVPULL_EINVAL;
	share->is_ended = 1;
	kvpull_pool_close(share->pool);
	return 0;
}

struct kvpull_pool *kvpull_share_pool(struct kvpull_reader *share)
{
	return share->is_ended ? NULL : share->pool;
}

void kvpull_share_address(const struct kvpull_reader *share,
			  char text[KVPULL_TICKET_ADDRESS_BYTES_MAX])
{
	text[0] = '\0';
	if (share->pool && !share->is_ended)
		kvpull_routes_print(&share->routes, text,
				    KVPULL_TICKET_ADDRESS_BYTES_MAX);
}

int kvpull_share_bump_all(struct kvpull_reader *share,
			  const struct kvpull_share_names *names,
			  struct kvpull_error_detail *detail)
{
	struct kvpull_pool *pool = kvpull_share_pool(share);
	const int code = names ? names_take(share, names, detail) : 0;

	if (code)
		return code;
	if (pool)
		kvpull_pool_bump_all(pool);
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
	return kvpull_share_reader_local_add(share->reader, base, block_bytes,
					     block_count, local);
}

static void event_take(struct kvpull_reader *share,
		       const struct kvpull_route *route,
		       const struct kvpull_event *event, uint64_t now_ns)
{
	switch (event->kind) {
	case KVPULL_EVENT_PEER_DOWN:
		/* Before the link is told, which may free the peer. */
		kvpull_share_reader_take(share->reader, route->transport,
					 event);
		kvpull_share_link_event(share, route, event, now_ns);
		break;
	case KVPULL_EVENT_PEER_MESSAGE:
		kvpull_share_link_event(share, route, event, now_ns);
		break;
	case KVPULL_EVENT_READ_DONE:
	case KVPULL_EVENT_CHECK_DONE:
		kvpull_share_reader_take(share->reader, route->transport,
					 event);
		break;
	case KVPULL_EVENT_CALLER_UP:
	case KVPULL_EVENT_CALLER_MESSAGE:
	case KVPULL_EVENT_CALLER_DOWN:
		kvpull_share_caller_event(share, route, event);
		break;
	case KVPULL_EVENT_ADDRESS: /* who asks for it gets the one of now */
	case KVPULL_EVENT_NONE:
		break;
	}
}

int kvpull_share_poll(struct kvpull_reader *share,
		      struct kvpull_reader_record *records, uint32_t capacity,
		      size_t record_bytes)
{
	const uint64_t now_ns = kvpull_clock_ns();
	struct kvpull_event events[EVENTS_MAX];
	const struct kvpull_route *route;
	uint32_t left = EVENTS_MAX;
	uint32_t turn;

	for (turn = 0; turn < share->routes.count; turn++) {
		const int count = kvpull_routes_poll(
			&share->routes, turn, now_ns, events, left, &route);
		int at;

		for (at = 0; at < count; at++)
			event_take(share, route, &events[at], now_ns);
		left -= (uint32_t)count;
	}
	kvpull_share_links_run(share, now_ns);
	kvpull_share_reader_work(share->reader, now_ns);
	return (int)kvpull_share_ends(share, records, capacity, record_bytes);
}
