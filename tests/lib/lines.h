/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines that were logged: how many of each level, the last ones, and all
 * one after the other. Any thread may log, and so may a forked child, which
 * keeps its own lines. A line goes to the `struct lines` that is the log's
 * context, without one to `lines`. With TEST_LOG set, lines are printed, too.
 */
#ifndef KVPULL_TESTS_LIB_LINES_H
#define KVPULL_TESTS_LIB_LINES_H

#include <string.h>

#include "base/log.h"

/* Counts may be read at any time, texts while no other thread logs. */
struct lines {
	_Atomic uint32_t counts[KVPULL_LOG_DEBUG + 1]; /* of each level */
	_Atomic uint32_t bad_count;                    /* warnings and errors */
	uint32_t level; /* that of the last line */
	uint32_t used;  /* bytes of all */
	char last[KVPULL_LOG_LINE_BYTES];
	char bad[KVPULL_LOG_LINE_BYTES]; /* the last warning or error */
	char of[KVPULL_LOG_DEBUG + 1][KVPULL_LOG_LINE_BYTES]; /* the last ones */
	char all[1 << 16]; /* each with a newline; begun anew when it is full */
};

extern struct lines lines;
extern const struct kvpull_log lines_log; /* all levels, to `lines` */

/* A log's callback, and a host's. */
void lines_keep(void *context, uint32_t level, const char *line);

/* A log to `lines` of this level and worse ones. */
static inline struct kvpull_log lines_from(uint32_t level)
{
	return (struct kvpull_log){ .write = lines_keep, .level = level };
}

void lines_forget(void);

/* 1: a line since then has these words. Any thread may ask. */
int lines_said(const char *words);

#endif /* KVPULL_TESTS_LIB_LINES_H */
