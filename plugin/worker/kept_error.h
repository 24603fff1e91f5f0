/* SPDX-License-Identifier: Apache-2.0 */
/* The last error that a worker logs during a call, for the call's detail. */
#ifndef KVPULL_PLUGIN_KEPT_ERROR_H
#define KVPULL_PLUGIN_KEPT_ERROR_H

#include "plugin/worker/worker.h"

struct kvpull_kept_error {
	struct kvpull_log log; /* the worker's own */
	char message[KVPULL_LOG_LINE_BYTES];
};

/* Not while the worker has threads: they read its log. */
void kvpull_kept_begin(struct kvpull_worker *worker,
		       struct kvpull_kept_error *kept);
/* Return: code. Where it is an error, detail has the line that was logged. */
int kvpull_kept_end(struct kvpull_worker *worker,
		    const struct kvpull_kept_error *kept, int code,
		    struct kvpull_error_detail *detail);

#endif /* KVPULL_PLUGIN_KEPT_ERROR_H */
