/* SPDX-License-Identifier: Apache-2.0 */
/* The first part of every open of the ABI: place, host, configuration, log. */
#ifndef KVPULL_PLUGIN_ABI_OPENING_H
#define KVPULL_PLUGIN_ABI_OPENING_H

#include "base/log.h"
#include "plugin/config/config.h"

/*
 * handle: where it is to be written. own is filled in from theirs, which may be
 * NULL. 0, KVPULL_EINVAL, KVPULL_EDEVICE; detail says why.
 */
int KVPULL_MUST_CHECK kvpull_opening_host(struct kvpull_host *own,
					  const struct kvpull_host *theirs,
					  const void *handle,
					  struct kvpull_error_detail *detail);

/* Returns 0 or KVPULL_ECONFIG. */
int KVPULL_MUST_CHECK kvpull_opening_config(struct kvpull_config *config,
					    struct kvpull_log *log,
					    const struct kvpull_host *host,
					    const char *config_json,
					    struct kvpull_error_detail *detail);

#endif /* KVPULL_PLUGIN_ABI_OPENING_H */
