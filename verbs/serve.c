/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/serve.h"

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

/* The node of memory of the host says which devices are near. */
static void rails_move(struct kvpull_verbs_back *back,
		       const struct kvpull_serve *serve)
{
	kvpull_verbs_back_look(back);
	/* Later it would end what is connected. */
	if (back->connect->active_count || back->locals.region_count)
		return;
	back->shared->params.memory_node =
		(uint32_t)(kvpull_verbs_node_of(serve) + 1);
	kvpull_verbs_back_move(back);
}

/* What the route keeps of it: no slots of files; a GPU's memory by its dmabufs. */
static int serve_take(struct kvpull_verbs_back *back,
		      const struct kvpull_serve *serve)
{
	back->serve = *serve;
	back->serve.region_count = kvpull_serve_memory_count(serve);
	if (!kvpull_serve_has_devices(serve))
		return 0;
	return kvpull_verbs_dmabufs_make(&back->dmabufs,
					 back->shared->params.gpu, &back->serve,
					 back->shared->log);
}

static void serve_drop(struct kvpull_verbs_back *back)
{
	uint32_t at;

	back->serve.region_count = 0;
	for (at = 0; at < back->shared->rail_count; at++) {
		kvpull_verbs_connect_hush(back->connect, at);
		kvpull_verbs_regions_shrink(&back->shared->regions[at], 0);
	}
	kvpull_verbs_dmabufs_close(&back->dmabufs);
}

int kvpull_verbs_serve(struct kvpull_verbs_back *back,
		       const struct kvpull_serve *serve)
{
	struct kvpull_verbs_shared *shared = back->shared;
	const struct kvpull_serve *own = &back->serve;
	uint32_t at;
	int code;

	if (own->region_count || !serve->region_count || !serve->slot_count ||
	    !serve->entries)
		return KVPULL_EINVAL;
	rails_move(back, serve);
	code = serve_take(back, serve);
	for (at = 0; !code && at < shared->rail_count; at++) {
		if (!is_there(shared, at))
			continue;
		kvpull_verbs_regions_begin(&shared->regions[at],
					   &shared->devices[at], own,
					   shared->params.mr_shift);
		code = regions_register(&shared->regions[at], own);
	}
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
