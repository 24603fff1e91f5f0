/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs are hidden files of the case's folder. Engines may see it under another
 * name or run as another user: each opens its log before that.
 */
#include "tests/scenario/logs.h"

#include <stdlib.h>
#include <string.h>

#define LOGS_MAX 16u
#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())

static char paths[LOGS_MAX][512];
static char ids[LOGS_MAX][32];
static uint32_t count;
static const char *folder;

void logs_open(const struct scenario *scenario)
{
	folder = scenario->folder;
}

const char *log_path(const char *id)
{
	uint32_t index;

	for (index = 0; index < count; index++)
		if (!strcmp(ids[index], id))
			return paths[index];
	if (count == LOGS_MAX)
		scenario_fail("too many logs");
	(void)snprintf(ids[count], sizeof(ids[0]), "%s", id);
	(void)snprintf(paths[count], sizeof(paths[0]), "%s/.%s.log", folder,
		       id);
	return paths[count++];
}

static int log_finds(const char *path, const char *words)
{
	char line[1024];
	FILE *log = fopen(path, "re");
	int found = 0;

	while (log && !found && fgets(line, sizeof(line), log))
		found = strstr(line, words) != NULL;
	if (log)
		(void)fclose(log);
	return found;
}

void log_has(const char *id, const char *words)
{
	const char *path = log_path(id);
	const uint64_t until = engine_now_ns() + LIMIT_NS;

	while (!log_finds(path, words)) {
		scenario_check(engine_now_ns() < until,
			       "%s's log does not say \"%s\"", id, words);
		scenario_sleep_ns(5 * SCENARIO_NS_PER_MS);
	}
}
