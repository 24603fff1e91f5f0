/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/lines.h"

#include <pthread.h>

struct lines lines;
const struct kvpull_log lines_log = { .write = lines_keep,
				      .level = KVPULL_LOG_DEBUG };

static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;

static void take(void)
{
	(void)pthread_mutex_lock(&lines_lock);
}

static void give(void)
{
	(void)pthread_mutex_unlock(&lines_lock);
}

/* Another thread may hold the lock as a test forks: the child would wait for ever. */
__attribute__((constructor)) static void lock_at_fork(void)
{
	(void)pthread_atfork(take, give, give);
}

static void put(char *to, const char *line)
{
	(void)snprintf(to, KVPULL_LOG_LINE_BYTES, "%s", line);
}

static void append(struct lines *to, const char *line)
{
	const size_t bytes = strlen(line) + 1;

	if (to->used + bytes >= sizeof(to->all))
		to->used = 0;
	(void)snprintf(to->all + to->used, sizeof(to->all) - to->used, "%s\n",
		       line);
	to->used += (uint32_t)bytes;
}

void lines_keep(void *context, uint32_t level, const char *line)
{
	struct lines *to = context ? context : &lines;

	take();
	to->counts[level]++;
	to->level = level;
	put(to->last, line);
	put(to->of[level], line);
	append(to, line);
	if (level <= KVPULL_LOG_WARN) {
		to->bad_count++;
		put(to->bad, line);
	}
	give();
	if (getenv("TEST_LOG"))
		(void)printf("# %u %s\n", level, line);
}

void lines_forget(void)
{
	take();
	memset(&lines, 0, sizeof(lines));
	give();
}

int lines_said(const char *words)
{
	int found;

	take();
	found = strstr(lines.all, words) != NULL;
	give();
	return found;
}
