/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/serve.h"

#include "base/device_thread.h"
#include "verbs/listen.h"
#include "verbs/node.h"

/*
 * Register all regions of serve that are not registered yet. begin() was
 * called.
 */
static int regions_register(struct kvpull_verbs_regions *regions,
			    const struct kvpull_serve *serve)
{
	int code = kvpull_verbs_regions_grow(regions, serve);

	if (code)
		return code;
	do
		code = kvpull_verbs_regions_register(regions, serve);
	while (code > 0);
	return code;
}

/*
 * Can memory be registered with it now? When it is back, all that there is by
 * then is: one that is coming back begins again.
 */
static int is_there(struct kvpull_verbs_shared *shared, uint32_t at)
{
	struct kvpull_verbs_device *device = &shared->devices[at];

	if (device->gone == KVPULL_VERBS_DEVICE_RETURNING)
		device->gone = KVPULL_VERBS_DEVICE_LOST;
	return device->gone == KVPULL_VERBS_DEVICE_THERE;
}

/*
 * The node of memory of the host says which devices are near; of a GPU's memory it
 * was the GPU.
 */
static void rails_move(struct kvpull_verbs_back *back,
		       const struct kvpull_serve *serve)
{
	kvpull_verbs_back_look(back);
	/* A move would end connections, and lose regions. */
	if (back->connect->active_count || back->locals.region_count)
		return;
	if (!kvpull_serve_has_devices(serve))
		back->shared->params.gpu_pci = NULL;
	back->shared->params.memory_node =
		(uint32_t)(kvpull_verbs_node_of(serve) + 1);
	kvpull_verbs_back_move(back);
}

/* Who flushes what is read into memory of the GPU. */
static int flush_choose(struct kvpull_verbs_shared *shared)
{
	const struct kvpull_device *gpu =
		kvpull_device_thread_device(shared->params.gpu);

	shared->flush = KVPULL_VERBS_FLUSHES_BY_LOOPS;
	if (shared->params.device_flush == KVPULL_DEVICE_FLUSH_DRIVER)
		shared->flush = KVPULL_VERBS_FLUSHES_BY_DRIVER;
	if (shared->params.device_flush == KVPULL_DEVICE_FLUSH_AUTO &&
	    gpu->orders_writes)
		shared->flush = KVPULL_VERBS_FLUSHES_NOT;
	if (shared->flush != KVPULL_VERBS_FLUSHES_BY_DRIVER || gpu->can_flush)
		return 0;
	kvpull_warn(
		shared->log,
		"verbs: memory of the GPU is not served to other machines: its driver cannot flush what NICs write: set device_flush=always");
	return KVPULL_EUNSUPPORTED;
}

/* What the route keeps of it: no slots of files; a GPU's memory by its dmabufs. */
static int serve_take(struct kvpull_verbs_back *back,
		      const struct kvpull_serve *serve)
{
	struct kvpull_verbs_shared *shared = back->shared;
	int code;

	back->serve = *serve;
	back->serve.region_count = kvpull_serve_memory_count(serve);
	if (!kvpull_serve_has_devices(serve))
		return 0;
	code = kvpull_verbs_dmabufs_make(&back->dmabufs, shared->params.gpu,
					 &back->serve, shared->log);
	if (!code)
		code = flush_choose(shared);
	shared->is_gpu = !code;
	return code;
}

/* Makes the loop of the rail, if it has to flush. */
static int loop_make(struct kvpull_verbs_back *back, uint32_t at)
{
	struct kvpull_verbs_shared *shared = back->shared;
	struct kvpull_verbs_loop *loop = &shared->loops[at];
	int code;

	if (shared->flush != KVPULL_VERBS_FLUSHES_BY_LOOPS)
		return 0;
	code = kvpull_verbs_loop_begin(loop, &shared->devices[at], &back->serve,
				       &shared->params);
	if (!code)
		code = regions_register(&loop->regions, &back->serve);
	return code ? code : kvpull_verbs_loop_connect(loop, &shared->params);
}

static void loop_drop(struct kvpull_verbs_loop *loop)
{
	kvpull_verbs_loop_stop(loop);
	kvpull_verbs_regions_shrink(&loop->regions, 0);
	kvpull_verbs_loop_end(loop);
}

static void serve_drop(struct kvpull_verbs_back *back)
{
	uint32_t at;

	back->serve.region_count = 0;
	for (at = 0; at < back->shared->rail_count; at++) {
		kvpull_verbs_connect_hush(back->connect, at);
		kvpull_verbs_regions_shrink(&back->shared->regions[at], 0);
		loop_drop(&back->shared->loops[at]);
	}
	back->shared->is_gpu = 0;
	back->shared->flush = KVPULL_VERBS_FLUSHES_NOT;
	kvpull_verbs_dmabufs_close(&back->dmabufs);
}

/*
 * All of what is served, with the device of a rail. Where its loop cannot be made
 * the rail serves nothing, and is tried again later.
 */
static int rail_serve(struct kvpull_verbs_back *back, uint32_t at)
{
	struct kvpull_verbs_shared *shared = back->shared;
	int code;

	if (!is_there(shared, at))
		return 0;
	kvpull_verbs_regions_begin(&shared->regions[at], &shared->devices[at],
				   &back->serve, shared->params.mr_shift);
	code = regions_register(&shared->regions[at], &back->serve);
	if (code)
		return code;
	if (loop_make(back, at))
		shared->devices[at].gone = KVPULL_VERBS_DEVICE_LOST;
	return 0;
}

/* Rails were there, and each has no loop. */
static int has_no_rail(const struct kvpull_verbs_shared *shared)
{
	uint32_t lost = 0;
	uint32_t at;

	for (at = 0; at < shared->rail_count; at++) {
		if (shared->devices[at].gone == KVPULL_VERBS_DEVICE_THERE)
			return 0;
		lost += shared->devices[at].gone == KVPULL_VERBS_DEVICE_LOST &&
			shared->loops[at].device.pd;
	}
	return lost != 0;
}

int kvpull_verbs_serve(struct kvpull_verbs_back *back,
		       const struct kvpull_serve *serve)
{
	const struct kvpull_verbs_shared *shared = back->shared;
	uint32_t at;
	int code;

	if (back->serve.region_count || !serve->region_count ||
	    !serve->slot_count || !serve->entries)
		return KVPULL_EINVAL;
	rails_move(back, serve);
	code = serve_take(back, serve);
	for (at = 0; !code && at < shared->rail_count; at++)
		code = rail_serve(back, at);
	if (!code && has_no_rail(shared))
		code = KVPULL_EUNSUPPORTED;
	if (!code)
		code = kvpull_verbs_connect_listen(back->connect);
	if (code)
		serve_drop(back);
	return code;
}

int kvpull_verbs_local_add(struct kvpull_verbs_back *back, uint8_t *base,
			   uint64_t bytes)
{
	struct kvpull_verbs_shared *shared = back->shared;
	struct kvpull_serve *serve = &back->locals;
	uint32_t at;
	int code = 0;

	if (serve->region_count == KVPULL_TRANSPORT_LOCALS_MAX)
		return KVPULL_EFULL;
	serve->regions[serve->region_count++] =
		(struct kvpull_region_view){ .kind = KVPULL_REGION_PROVIDED,
					     .fd = -1,
					     .base = base,
					     .bytes = bytes };
	for (at = 0; !code && at < shared->rail_count; at++) {
		if (is_there(shared, at))
			code = regions_register(&shared->locals[at], serve);
	}
	if (!code)
		return 0;
	serve->region_count--;
	while (at--)
		kvpull_verbs_regions_shrink(&shared->locals[at],
					    serve->region_count);
	return code;
}
