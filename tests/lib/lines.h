/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that were logged: how many of each level, and the last ones. */
#ifndef KVPULL_TESTS_LIB_LINES_H
#define KVPULL_TESTS_LIB_LINES_H

#include <stdio.h>
#include <string.h>

#include "base/log.h"

static struct {
	uint32_t counts[KVPULL_LOG_DEBUG + 1];
	char bad[KVPULL_LOG_LINE_BYTES]; /* a warning or an error */
	char info[KVPULL_LOG_LINE_BYTES];
} lines;

static inline void lines_forget(void)
{
	memset(&lines, 0, sizeof(lines));
}

static inline void lines_keep(void *context, uint32_t level, const char *line)
{
	(void)context;
	lines.counts[level]++;
	(void)snprintf(level > KVPULL_LOG_WARN ? lines.info : lines.bad,
		       KVPULL_LOG_LINE_BYTES, "%s", line);
}

static const struct kvpull_log lines_log = { .write = lines_keep,
					     .level = KVPULL_LOG_DEBUG };

#endif /* KVPULL_TESTS_LIB_LINES_H */
