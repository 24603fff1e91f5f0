/* SPDX-License-Identifier: Apache-2.0 */
/* The last error that is logged during a call, for the call's detail. */
#ifndef KVPULL_BASE_KEPT_ERROR_H
#define KVPULL_BASE_KEPT_ERROR_H

#include "base/log.h"

struct kvpull_kept_error {
	struct kvpull_log log; /* as it was */
	char message[KVPULL_LOG_LINE_BYTES];
};

/* Lines of the log go through kept until end(). Not while threads write them. */
void kvpull_kept_begin(struct kvpull_log *log, struct kvpull_kept_error *kept);
/* Return: code. Where it is an error, detail has the line that was logged. */
int kvpull_kept_end(struct kvpull_log *log,
		    const struct kvpull_kept_error *kept, int code,
		    struct kvpull_error_detail *detail);

#endif /* KVPULL_BASE_KEPT_ERROR_H */
