/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* Return: 1: this second has room for another line. */
static int budget_take(struct kvpull_log_budget *budget)
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

void kvpull_log(const struct kvpull_log *log, uint32_t level,
		const char *format, ...)
{
	char line[KVPULL_LOG_LINE_BYTES];
	va_list arguments;

	if (!log || !log->write || level > log->level)
		return;
	if (log->budget && level > KVPULL_LOG_ERROR &&
	    !budget_take(log->budget))
		return;
	va_start(arguments, format);
	(void)vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	log->write(log->context, level, line);
}

void kvpull_check_failed(const struct kvpull_log *log, const char *condition,
			 const char *file, int line)
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
