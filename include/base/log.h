/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines and checks. Everything goes through the host's callback; without
 * one nothing is written anywhere. Clients and peers can cause lines: beyond
 * KVPULL_LOG_LINES_MAX a second they are counted, not written; errors always
 * are written.
 */
#ifndef KVPULL_BASE_LOG_H
#define KVPULL_BASE_LOG_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kvpull/common.h"

#define KVPULL_MUST_CHECK __attribute__((warn_unused_result))
#define KVPULL_LOG_LINE_BYTES 512
#define KVPULL_LOG_LINES_MAX 100u /* a second */

/* Shared by the threads of a handle; only statistics, so all is relaxed. */
struct kvpull_log_budget {
	_Atomic uint64_t second;
	_Atomic uint64_t lines;
	_Atomic uint64_t suppressed;
};

struct kvpull_log {
	kvpull_log_fn write; /* NULL: silent */
	kvpull_fatal_fn fatal;
	void *context;
	struct kvpull_log_budget *budget; /* NULL: no limit */
	uint32_t level;
};

void __attribute__((format(printf, 3, 4)))
kvpull_log(const struct kvpull_log *log, uint32_t level, const char *format,
	   ...);

#define kvpull_error(log, ...) kvpull_log(log, KVPULL_LOG_ERROR, __VA_ARGS__)
#define kvpull_warn(log, ...) kvpull_log(log, KVPULL_LOG_WARN, __VA_ARGS__)
#define kvpull_info(log, ...) kvpull_log(log, KVPULL_LOG_INFO, __VA_ARGS__)
#define kvpull_debug(log, ...) kvpull_log(log, KVPULL_LOG_DEBUG, __VA_ARGS__)

/* Says so, asks the host's fatal(), and ends the process. */
void __attribute__((noreturn))
kvpull_check_failed(const struct kvpull_log *log, const char *condition,
		    const char *file, int line);

/*
 * Always on: for what would free or overwrite a block in use. Wrong tokens are
 * worse than a crash. Never for bytes of another process: those are data.
 */
#define kvpull_check(log, condition)                                           \
	((condition) ?                                                         \
		 (void)0 :                                                     \
		 kvpull_check_failed(log, #condition, __FILE__, __LINE__))

#ifdef KVPULL_DEBUG
#define kvpull_assert(condition) kvpull_check(NULL, condition)
#else
#define kvpull_assert(condition) ((void)sizeof(condition))
#endif

/* In a line about a request: an engine need not give a label. */
static inline const char *kvpull_log_label(const char *label)
{
	return *label ? label : "(no label)";
}

#endif /* KVPULL_BASE_LOG_H */
