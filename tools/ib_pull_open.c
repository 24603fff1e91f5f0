/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the engine of a role, shows the library's log lines, and polls. */
#include "tools/ib_pull_parts.h"

#include <stdlib.h>
#include <string.h>

#include "tools/json.h"

#define HOLD_MAX_MS 480000u /* the library's own */

/* Log lines to show, and whether one of them named a device. */
static struct {
	uint32_t level;
	uint32_t has_device;
} lines;

static void log_line(void *context, uint32_t level, const char *message)
{
	/* The device, its port, GID, link and MTU: part of what was measured. */
	const int is_device =
		!strncmp(message, "verbs: ", 7) && strstr(message, ", MTU ");

	(void)context;
	lines.has_device |= (uint32_t)is_device;
	if (level <= lines.level || is_device)
		fprintf(stderr, "%s\n", message);
}

char *ib_config_make(const struct ib_options *options)
{
	json_t *config = json_pack(
		"{s:s, s:s, s:i, s:i, s:s*}", "socket_dir", options->dir,
		"progress", options->thread ? "thread" : "caller",
		"copy_threads", (int)options->copy_threads, "lease_ms",
		(int)options->lease_ms, "verbs_device", options->device);
	char *text;

	/* Keep the library's own ratio of hold_max to the lease. */
	if (options->lease_ms > HOLD_MAX_MS)
		set(config, "hold_max_ms", 16 * options->lease_ms);
	if (options->gid_index)
		set(config, "verbs_gid_index", options->gid_index - 1);
	text = json_dumps(config, 0);
	json_decref(config);
	if (!text)
		fprintf(stderr, "--dir and --device must be text in UTF-8\n");
	return text;
}

int ib_engine_open(const struct ib_options *options, struct engine *engine)
{
	static const struct kvpull_host host = {
		.struct_size = sizeof(host),
		.log = log_line,
		.log_level = KVPULL_LOG_INFO,
	};
	struct engine_params params = {
		.ops = engine_library(),
		.host = &host,
		.engine_id = options->name,
		.shape = options->shape,
		.tp_size = options->tp_size,
		.foreign = options->foreign,
		.contiguous = options->contiguous,
	};
	const int is_asked = getenv("KVPULL_LOG_LEVEL") != NULL;
	char *config;
	int code;

	/* A user who sets the library's own variable gets all lines. */
	lines.level = is_asked ? KVPULL_LOG_DEBUG :
				 KVPULL_LOG_WARN + options->verbose;
	config = params.ops ? ib_config_make(options) : NULL;
	if (!config)
		return 1;
	params.config_json = config;
	code = engine_open(engine, &params);
	free(config);
	/* The library goes without RDMA in silence, unless a device is named. */
	if (!code && !is_asked && !lines.has_device && !options->device &&
	    (options->gid_index || (options->port && !options->host)))
		fprintf(stderr,
			"%s: no RDMA device can be used here: pulls stay on this machine; kvpull_doctor says more\n",
			options->name);
	return code;
}

int ib_engine_spin(struct engine *engine, uint32_t polls)
{
	int code = 0;

	while (!code && polls-- && !engine->event_count)
		code = engine_poll(engine);
	return code;
}
