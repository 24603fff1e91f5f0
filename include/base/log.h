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
#include "kvpull/connector.h"

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

/* 1 if this second has room for another line. */
static inline int kvpull_log_budget_take(struct kvpull_log_budget *budget)
{
	const uint64_t second = kvpull_clock_ns() / KVPULL_NS_PER_S;

	if (atomic_exchange_explicit(&budget->second, second,
				     memory_order_relaxed) != second)
		atomic_store_explicit(&budget->lines, 0, memory_order_relaxed);
	if (atomic_fetch_add_explicit(&budget->lines, 1, memory_order_relaxed) <
	    KVPULL_LOG_LINES_MAX)
		return 1;
	atomic_fetch_add_explicit(&budget->suppressed, 1, memory_order_relaxed);
	return 0;
}

static inline void __attribute__((format(printf, 3, 4)))
kvpull_log(const struct kvpull_log *log, uint32_t level, const char *format,
	   ...)
{
	char line[KVPULL_LOG_LINE_BYTES];
	va_list arguments;

	if (!log || !log->write || level > log->level)
		return;
	if (log->budget && level > KVPULL_LOG_ERROR &&
	    !kvpull_log_budget_take(log->budget))
		return;
	va_start(arguments, format);
	(void)vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	log->write(log->context, level, line);
}

#define kvpull_error(log, ...) kvpull_log(log, KVPULL_LOG_ERROR, __VA_ARGS__)
#define kvpull_warn(log, ...) kvpull_log(log, KVPULL_LOG_WARN, __VA_ARGS__)
#define kvpull_info(log, ...) kvpull_log(log, KVPULL_LOG_INFO, __VA_ARGS__)
#define kvpull_debug(log, ...) kvpull_log(log, KVPULL_LOG_DEBUG, __VA_ARGS__)

static inline void kvpull_check_failed(const struct kvpull_log *log,
				       const char *condition, const char *file,
				       int line)
{
	char message[KVPULL_LOG_LINE_BYTES];

	(void)snprintf(
		message, sizeof(message),
		"check failed: %s at %s:%d: a block in use would be freed or overwritten",
		condition, file, line);
	kvpull_error(log, "%s", message);
	if (log && log->fatal)
		log->fatal(log->context, message);
	abort();
}

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

#endif /* KVPULL_BASE_LOG_H */
