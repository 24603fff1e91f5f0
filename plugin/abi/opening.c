/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/abi/opening.h"

#include <sodium.h>

#include "base/params.h"

int kvpull_opening_host(struct kvpull_host *own,
			const struct kvpull_host *theirs, const void *handle,
			struct kvpull_error_detail *detail)
{
	int code = 0;

	*own = (struct kvpull_host){ .struct_size = sizeof(*own) };
	if (!handle)
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, "",
			"there is no place for the handle: it is NULL");
	if (sodium_init() < 0)
		return kvpull_detail_set(detail, KVPULL_EDEVICE, "",
					 "libsodium cannot be initialized");
	if (theirs)
		code = kvpull_params_take_named(own, sizeof(*own), theirs,
						"host", detail);
	if (!code && own->reserved)
		code = kvpull_detail_set(detail, KVPULL_EINVAL, "reserved",
					 "a reserved member is not 0");
	return code;
}

/*
 * The key log_level overrides the engine's host.log_level in both directions.
 */
static void log_take(struct kvpull_log *log, const struct kvpull_host *host,
		     const struct kvpull_config *config)
{
	log->write = host->log;
	log->fatal = host->fatal;
	log->context = host->context;
	log->level = config->log_level;
	if (host->log_level && !config->log_level_set)
		log->level = host->log_level;
	if (config->service_link_count)
		kvpull_warn(
			log,
			"%u variables such as %s are passed over: they look like Kubernetes' links to a Service of that name, which enableServiceLinks: false leaves out of a pod",
			config->service_link_count, config->service_link);
}

int kvpull_opening_config(struct kvpull_config *config, struct kvpull_log *log,
			  const struct kvpull_host *host,
			  const char *config_json,
			  struct kvpull_error_detail *detail)
{
	const int code = kvpull_config_load(config, config_json, detail);

	if (!code)
		log_take(log, host, config);
	return code;
}
