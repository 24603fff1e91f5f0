/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes that there can be, and how each is opened from the configuration.
 * A new route is an entry of the list at the end, and a name of the key `route`
 * in config/.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda/cuda.h"
#include "plugin/route/route.h"
#include "shm/shm.h"
#include "verbs/verbs.h"

static enum kvpull_uring_mode uring_mode(const struct kvpull_config *config)
{
	if (config->uring == KVPULL_OFF)
		return KVPULL_URING_NO;
	return config->progress == KVPULL_PROGRESS_THREAD ?
		       KVPULL_URING_ONE_THREAD :
		       KVPULL_URING_ANY_THREAD;
}

/* A caller may poll seldom, and want its time for itself. */
static uint32_t poll_copies(const struct kvpull_config *config)
{
	if (config->progress_copies == KVPULL_AUTO)
		return config->progress == KVPULL_PROGRESS_THREAD;
	return config->progress_copies == KVPULL_ON;
}

/* The table that a device is opened by; NULL: none is wanted. */
static kvpull_device_open_fn
device_open(const struct kvpull_route_params *params)
{
	return kvpull_route_wants_device(params) ? kvpull_cuda_open : NULL;
}

static int shm_open_way(const struct kvpull_route_params *params,
			struct kvpull_transport **transport)
{
	const struct kvpull_config *config = params->config;
	char name[64];
	/* uid_list lets other users in; the operator owns the folder then. */
	const int others =
		config->uid_count > 1 || config->uids[0] != geteuid();
	const struct kvpull_shm_params shm = {
		.socket_mode = others ? 0666 : 0,
		.log = params->log,
		.socket_dir = config->socket_dir,
		.name = name,
		.peers_max = kvpull_config_peer_entries(config),
		.callers_max = config->consumers_max,
		.ring_records = config->ring_records,
		.reads_max = params->reads_max,
		.copy_threads = params->is_home ? 0 : config->copy_threads,
		.copy_routine = config->copy_routine,
		.poll_copies = poll_copies(config),
		.inline_bytes = config->inline_bytes,
		.connect_ns = config->connect_ms * KVPULL_NS_PER_MS,
		.refused = params->refused,
		.given = params->given,
		.uring = uring_mode(config),
		.file_thread = params->disk_thread ? KVPULL_FILE_THREAD_YES :
						     KVPULL_FILE_THREAD_NO,
		.users = kvpull_config_users(config),
		.device_open = device_open(params),
		.device_index = params->device_index,
		.device_required = config->device == KVPULL_DEVICE_REQUIRED,
	};

	/* The name dies with the incarnation: nobody inherits it. */
	(void)snprintf(name, sizeof(name), "kvpull-%016llx.sock",
		       (unsigned long long)params->incarnation);
	return kvpull_shm_open(&shm, params->arena, transport);
}

/* verbs_local_rank: its largest value stands for the rank of the open. */
static uint32_t local_rank(const struct kvpull_route_params *params)
{
	return params->config->verbs_local_rank == UINT16_MAX ?
		       params->rank :
		       params->config->verbs_local_rank;
}

/* Workers of one node share a configuration, and no port. 0: any. */
static uint32_t listen_port(const struct kvpull_route_params *params)
{
	const uint32_t port = params->config->verbs_listen_port;

	return port ? port + local_rank(params) : 0;
}

/* On a host without RDMA nothing of it is left but address space of the arena. */
static int verbs_open_way(const struct kvpull_route_params *params,
			  struct kvpull_transport **transport)
{
	const struct kvpull_config *config = params->config;
	const struct kvpull_verbs_params verbs = {
		.log = params->log,
		.device = config->verbs_device,
		.address = config->verbs_address,
		.networks = config->networks,
		.required = config->route == KVPULL_ROUTE_PIN_VERBS,
		.rails = config->verbs_rails,
		.qps = config->verbs_qps,
		.port = config->verbs_port,
		.gid_index = config->verbs_gid_index == UINT16_MAX ?
				     0 :
				     config->verbs_gid_index + 1,
		.keyless = !config->key_set,
		.listen_port = listen_port(params),
		.local_rank = local_rank(params),
		.peers_max = kvpull_config_peer_entries(config),
		.callers_max = config->consumers_max,
		.ring_records = config->ring_records,
		.reads_max = params->reads_max,
		.slots_max = params->slots_max,
		.engine_wake_fd = params->engine_wake_fd,
		.gpu = params->gpu,
		.device_flush = config->device_flush,
		.given = params->given,
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

	if (verbs.listen_port > UINT16_MAX) {
		kvpull_error(
			params->log,
			"verbs: verbs_listen_port %u and local rank %u make port %u: the largest is 65535",
			config->verbs_listen_port, verbs.local_rank,
			verbs.listen_port);
		return KVPULL_ECONFIG;
	}
	return kvpull_verbs_open(&verbs, params->arena, transport);
}

const struct kvpull_route_way kvpull_route_ways[] = {
	{ "shm", KVPULL_ROUTE_PIN_SHM, 1, shm_open_way },
	{ "verbs", KVPULL_ROUTE_PIN_VERBS, 0, verbs_open_way },
};
const uint32_t kvpull_route_way_count =
	sizeof(kvpull_route_ways) / sizeof(kvpull_route_ways[0]);

_Static_assert(sizeof(kvpull_route_ways) / sizeof(kvpull_route_ways[0]) <=
		       KVPULL_ROUTES_MAX,
	       "each has a place");
