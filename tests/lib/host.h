/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of the ABI, as a host of one rank and one group fills them. */
#ifndef KVPULL_TESTS_LIB_HOST_H
#define KVPULL_TESTS_LIB_HOST_H

#include "kvpull/connector.h"

/* The host keeps @model, @config and @group while open() runs. */
static inline struct kvpull_open_params
host_params(const char *engine_id, const char *config,
	    const struct kvpull_model *model, const struct kvpull_group *group)
{
	return (struct kvpull_open_params){
		.struct_size = sizeof(struct kvpull_open_params),
		.config_json = config,
		.model = model,
		.engine_id = engine_id,
		.tp_size = 1,
		.groups = group,
		.group_bytes = sizeof(*group),
		.group_count = 1,
	};
}

/* The host registers one cache, in one region. */
static inline struct kvpull_regions
host_regions(const struct kvpull_region *region,
	     const struct kvpull_cache *cache)
{
	return (struct kvpull_regions){
		.struct_size = sizeof(struct kvpull_regions),
		.regions = region,
		.caches = cache,
		.region_count = 1,
		.cache_count = 1,
	};
}

/* The scheduler is told of its worker. Return: 0, or what one of them says. */
static inline int host_introduce(struct kvpull_worker *worker,
				 struct kvpull_scheduler *scheduler)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	uint8_t info[4096];
	size_t info_bytes;
	const int code =
		ops->worker->rank_info(worker, info, sizeof(info), &info_bytes);

	return code ? code :
		      ops->scheduler->rank_info(scheduler, info, info_bytes);
}

#endif /* KVPULL_TESTS_LIB_HOST_H */
