/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner: the name of its chunks, their memory, and the guards.
 *
 * Invariants: memory of a share is mapped until close(), and before that no
 * guard is of its incarnation any more; nobody is let in before all of it is
 * there. The arena is sealed before share() returns.
 */
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "base/params.h"
#include "plugin/share/share_state.h"

#define ENTRIES_A_CHUNK 4u

/* Sets the namespace in both of its forms. */
static int names_set(struct kvpull_reader *share,
		     const struct kvpull_reader_naming *names,
		     struct kvpull_error_detail *detail)
{
	const struct kvpull_model *model = names->model;
	const char *const texts[KVPULL_SHARE_TEXTS] = {
		model->model,  model->revision,  model->weights, model->dtype,
		model->layout, model->attention, model->config,  model->engine,
		names->hash,   names->seed,
	};
	struct kvpull_share_naming naming = {
		.layer_count = model->layer_count,
		.head_count = model->head_count,
		.head_bytes = model->head_bytes,
		.replicated = model->replicated,
		.tp_size = names->tp_size,
	};
	int code = kvpull_share_naming_texts(&naming, texts, detail);

	if (!code)
		code = kvpull_pool_namespace_make(names,
						  &share->namespace_digest);
	if (!code)
		share->naming = naming;
	return code;
}

int kvpull_share_names_take(struct kvpull_reader *share,
			    const struct kvpull_reader_naming *theirs,
			    struct kvpull_error_detail *detail)
{
	struct kvpull_reader_naming names;
	struct kvpull_model model;
	int code = kvpull_params_take_named(&names, sizeof(names), theirs,
					    "naming", detail);

	if (!code)
		code = kvpull_params_take_named(&model, sizeof(model),
						names.model, "model", detail);
	if (!code && names.reserved)
		code = kvpull_detail_set(detail, KVPULL_EINVAL, "reserved",
					 "a reserved member is not 0");
	if (!code && model.replicated > 1)
		code = kvpull_detail_set(detail, KVPULL_EINVAL, "replicated",
					 "replicated is %u: it is 0 or 1",
					 model.replicated);
	names.model = &model;
	return code ? code : names_set(share, &names, detail);
}

void kvpull_share_memory_free(struct kvpull_reader *share, uint64_t close_by_ns)
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

/* Makes the slots, which are served after the chunks. */
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

static void terms_set(struct kvpull_reader *share,
		      const struct kvpull_reader_share *params)
{
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
}

int kvpull_share_begin(struct kvpull_reader *share,
		       const struct kvpull_reader_share *theirs,
		       struct kvpull_memory *memory,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_memory own = { .struct_size = sizeof(own) };
	const struct kvpull_region_view *chunks;
	struct kvpull_reader_share params;
	int code;

	if (!share || kvpull_params_check_output(memory) ||
	    kvpull_params_take_named(&params, sizeof(params), theirs, "share",
				     detail))
		return KVPULL_EINVAL;
	code = share_check(share, &params, detail);
	if (code)
		return code;
	terms_set(share, &params);
	code = chunks_take(share, &params, detail);
	if (code)
		return code;
	code = slots_make(share, &params, detail);
	if (code) {
		kvpull_share_memory_free(share, kvpull_clock_close_by());
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
		kvpull_share_memory_free(share, kvpull_clock_close_by());
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

struct kvpull_pool *kvpull_share_pool(const struct kvpull_reader *share)
{
	return share && !share->is_ended ? share->pool : NULL;
}

struct kvpull_pool *kvpull_share_pool_of(const struct kvpull_reader *share,
					 uint32_t chunk)
{
	return share && chunk < share->terms.chunk_count ?
		       kvpull_share_pool(share) :
		       NULL;
}

int kvpull_share_end(struct kvpull_reader *share)
{
	if (!kvpull_share_pool(share))
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

int kvpull_share_address(struct kvpull_reader *share, char *text,
			 size_t capacity, size_t *byte_count)
{
	char own[KVPULL_TICKET_ADDRESS_BYTES_MAX];

	if (!kvpull_share_pool(share) || !byte_count || (!text && capacity))
		return KVPULL_EINVAL;
	kvpull_routes_print(&share->routes, own, sizeof(own));
	if (!own[0])
		return KVPULL_EINVAL;
	*byte_count = strlen(own) + 1;
	if (capacity < *byte_count)
		return KVPULL_ETOOSMALL;
	memcpy(text, own, *byte_count);
	return 0;
}

int kvpull_share_bump(struct kvpull_reader *share, const uint32_t *chunks,
		      uint32_t count, uint64_t *generations)
{
	struct kvpull_pool *pool = kvpull_share_pool(share);
	uint32_t at;
	int code;

	if (!pool || (!chunks && count))
		return KVPULL_EINVAL;
	for (at = 0; at < count; at++)
		if (chunks[at] >= share->terms.chunk_count)
			return KVPULL_EINVAL;
	code = kvpull_pool_bump(pool, chunks, count, generations);
	share->counts.bumps += code ? 0 : count;
	return code;
}

int kvpull_share_bump_all(struct kvpull_reader *share,
			  const struct kvpull_reader_naming *naming,
			  struct kvpull_error_detail *detail)
{
	struct kvpull_pool *pool = kvpull_share_pool(share);

	if (!share ||
	    (naming && kvpull_share_names_take(share, naming, detail)))
		return KVPULL_EINVAL;
	if (pool) {
		kvpull_pool_bump_all(pool);
		share->counts.bumps += share->terms.chunk_count;
	}
	if (naming)
		kvpull_share_reader_set_namespace(share->reader,
						  &share->namespace_digest);
	return 0;
}

int kvpull_share_generation(struct kvpull_reader *share, uint32_t chunk,
			    uint64_t *generation)
{
	const struct kvpull_pool *pool = kvpull_share_pool_of(share, chunk);

	if (!pool || !generation)
		return KVPULL_EINVAL;
	*generation = kvpull_pool_generation(pool, chunk);
	return 0;
}

int kvpull_share_epoch(struct kvpull_reader *share, uint64_t *epoch)
{
	const struct kvpull_pool *pool = kvpull_share_pool(share);

	if (!pool || !epoch)
		return KVPULL_EINVAL;
	*epoch = kvpull_pool_epoch(pool);
	return 0;
}

int kvpull_share_write_begin(struct kvpull_reader *share, uint32_t chunk)
{
	struct kvpull_pool *pool = kvpull_share_pool_of(share, chunk);

	return pool ? kvpull_pool_write_begin(pool, chunk) : KVPULL_EINVAL;
}

int kvpull_share_write_end(struct kvpull_reader *share, uint32_t chunk)
{
	struct kvpull_pool *pool = kvpull_share_pool_of(share, chunk);

	return pool ? kvpull_pool_write_end(pool, chunk) : KVPULL_EINVAL;
}
