/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines and checks. Everything goes through the host's callback; without
 * one nothing is written anywhere.
 */
#ifndef KVPULL_BASE_LOG_H
#define KVPULL_BASE_LOG_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvpull/connector.h"

#define KVPULL_MUST_CHECK __attribute__((warn_unused_result))
#define KVPULL_LOG_LINE_BYTES 512

struct kvpull_log {
	kvpull_log_fn write; /* NULL: silent */
	kvpull_fatal_fn fatal;
	void *context;
	uint32_t level;
};

static inline void __attribute__((format(printf, 3, 4)))
kvpull_log(const struct kvpull_log *log, uint32_t level, const char *format, ...)
{
	char line[KVPULL_LOG_LINE_BYTES];
	va_list arguments;

	if (!log || !log->write || level > log->level)
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

	(void)snprintf(message, sizeof(message),
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
#define kvpull_check(log, condition)                                          \
	((condition) ? (void)0 :                                              \
		       kvpull_check_failed(log, #condition, __FILE__, __LINE__))

#ifdef KVPULL_DEBUG
#define kvpull_assert(condition) kvpull_check(NULL, condition)
#else
#define kvpull_assert(condition) ((void)sizeof(condition))
#endif

#endif /* KVPULL_BASE_LOG_H */
