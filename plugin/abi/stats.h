/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of both halves as Prometheus text. Pure. */
#ifndef KVPULL_PLUGIN_STATS_H
#define KVPULL_PLUGIN_STATS_H

#include <stddef.h>

#include "kvpull/connector.h"

/**
 * Write the counters: HELP, TYPE and value of each, names kvpull_worker_* and
 * kvpull_scheduler_*. Members beyond a struct's struct_size are left out.
 *
 * @worker, @scheduler  NULL: not there.
 * @text                cut at capacity, always NUL-terminated if that is > 0.
 * Return: bytes of the whole text without the NUL; >= capacity: it was cut.
 */
size_t kvpull_stats_text(const struct kvpull_worker_stats *worker,
			 const struct kvpull_scheduler_stats *scheduler,
			 char *text, size_t capacity);

#endif /* KVPULL_PLUGIN_STATS_H */
