/* SPDX-License-Identifier: Apache-2.0 */
/* Which routes a worker has, from its configuration. */
#include <stdio.h>
#include <unistd.h>

#include "plugin/progress/progress_state.h"
#include "plugin/route/route.h"
#include "shm/shm.h"

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

static int shm_open_route(struct kvpull_progress *progress,
			  struct kvpull_arena *arena,
			  struct kvpull_transport **shm)
{
	const struct kvpull_config *config = &progress->facts->config;
	char name[64];
	/* Other users are let in by the list; the folder is the operator's. */
	const int others =
		config->uid_count > 1 || config->uids[0] != geteuid();
	const struct kvpull_shm_params params = {
		.socket_mode = others ? 0666 : 0,
		.log = progress->log,
		.socket_dir = config->socket_dir,
		.name = name,
		.peers_max = config->peers_max,
		.callers_max = config->consumers_max,
		.ring_records = config->ring_records,
		.reads_max = progress->part_count_max,
		.copy_threads = config->copy_threads,
		.copy_routine = config->copy_routine,
		.poll_copies = poll_copies(config),
		.inline_bytes = config->inline_bytes,
		.connect_ns = config->connect_ms * KVPULL_NS_PER_MS,
		.refused = &progress->counts.consumers_refused,
		.uring = uring_mode(config),
		.file_thread = config->progress == KVPULL_PROGRESS_THREAD ?
				       KVPULL_FILE_THREAD_YES :
				       KVPULL_FILE_THREAD_NO,
		.uids = config->uids,
		.uid_count = config->uid_count,
	};

	/* The name dies with the incarnation: nobody inherits it. */
	(void)snprintf(name, sizeof(name), "kvpull-%016llx.sock",
		       (unsigned long long)progress->facts->incarnation);
	return kvpull_shm_open(&params, arena, shm);
}

static struct kvpull_verbs_params
verbs_params(const struct kvpull_config *config, uint32_t reads_max,
	     int engine_wake_fd, const struct kvpull_log *log)
{
	return (struct kvpull_verbs_params){
		.log = log,
		.device = config->verbs_device,
		.address = config->verbs_address,
		.networks = config->networks,
		.required = config->route == KVPULL_ROUTE_PIN_VERBS,
		.rails = config->verbs_rails,
		.port = config->verbs_port,
		.gid_index = config->verbs_gid_index == UINT16_MAX ?
				     0 :
				     config->verbs_gid_index + 1,
		.listen_port = config->verbs_listen_port,
		.peers_max = config->peers_max,
		.callers_max = config->consumers_max,
		.ring_records = config->ring_records,
		.reads_max = reads_max,
		.engine_wake_fd = engine_wake_fd,
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
}

static struct kvpull_route_params
route_params(const struct kvpull_config *config, const struct kvpull_log *log)
{
	return (struct kvpull_route_params){
		.log = log,
		.peers_max = config->peers_max,
		.callers_max = config->consumers_max,
		.waiting_max = config->consumers_max + 2 * KVPULL_CALLERS_MORE,
	};
}

/*
 * The route between machines, with shm (or NULL) beside it. On a host without
 * RDMA nothing of it is left but address space of the arena.
 */
static int verbs_open_route(struct kvpull_progress *progress,
			    struct kvpull_arena *arena,
			    struct kvpull_transport *shm)
{
	/* With progress=caller the reader is who polls: it is awake. */
	const int wakes =
		progress->facts->config.progress == KVPULL_PROGRESS_THREAD;
	const struct kvpull_verbs_params verbs = verbs_params(
		&progress->facts->config, progress->part_count_max,
		wakes ? progress->handover->engine_wake_fd : -1, progress->log);
	struct kvpull_route_params params =
		route_params(&progress->facts->config, progress->log);
	struct kvpull_transport *added;
	struct kvpull_route *route;
	int code;

	params.shm = shm;
	code = kvpull_route_open(&params, arena, &route);
	if (code)
		return code;
	code = kvpull_verbs_open(&verbs, arena, &added);
	if (!code) {
		if (!progress->facts->config.key_set)
			kvpull_warn(
				progress->log,
				"verbs without a key_file: every host of the networks may read all KV memory");
		progress->transport = kvpull_route_transport(route);
		return kvpull_route_add(route, added);
	}
	kvpull_route_discard(route);
	if (code != KVPULL_EUNSUPPORTED || !shm)
		return code;
	kvpull_debug(progress->log, "route shm only: no RDMA for verbs");
	return 0;
}

int kvpull_progress_transport_open(struct kvpull_progress *progress,
				   struct kvpull_arena *arena)
{
	const enum kvpull_route_mode mode = progress->facts->config.route;
	struct kvpull_transport *shm = NULL;
	int code = 0;

	if (mode != KVPULL_ROUTE_PIN_VERBS)
		code = shm_open_route(progress, arena, &shm);
	progress->transport = shm;
	if (code || mode == KVPULL_ROUTE_PIN_SHM)
		return code;
	return verbs_open_route(progress, arena, shm);
}
