// SPDX-License-Identifier: Apache-2.0
/*
 * A group is limited by those above it as well. In a container the paths begin
 * at the container's own group, and the file system shows that one as the first:
 * both lead to the same files. Of what a group uses, files that nobody has read
 * lately are given back when memory is asked for. What cannot be read limits
 * nothing.
 */
#include "shm/memory_left.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/least.h"

#define PATH_BYTES 4352u
#define LINE_BYTES 256u

/* A cgroup hierarchy: how its line begins after the number, and its files. */
struct hierarchy {
	const char *begins;
	const char *folder;
	const char *limit;
	const char *used;
	const char *idle; /* in memory.stat */
};

static const struct hierarchy hierarchies[] = {
	{ ":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	  "memory.usage_in_bytes", "total_inactive_file " },
	{ "::", "/sys/fs/cgroup", "memory.max", "memory.current",
	  "inactive_file " },
};

/*
 * The number behind the first line that begins so ("": the first line of all);
 * UINT64_MAX: there is none, as in "max".
 */
static uint64_t number_read(const char *folder, const char *name,
			    const char *begins)
{
	const size_t length = strlen(begins);
	uint64_t value = UINT64_MAX;
	char path[PATH_BYTES + 32];
	char line[LINE_BYTES];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), file)) {
		char *end;

		if (strncmp(line, begins, length))
			continue;
		/* A number that is too large is UINT64_MAX, too. */
		value = strtoull(line + length, &end, 10);
		if (end == line + length)
			value = UINT64_MAX;
		break;
	}
	(void)fclose(file);
	return value;
}

static uint64_t group_left(const struct hierarchy *hierarchy, const char *path)
{
	const uint64_t limit = number_read(path, hierarchy->limit, "");
	const uint64_t used = number_read(path, hierarchy->used, "");
	const uint64_t idle = number_read(path, "memory.stat", hierarchy->idle);
	uint64_t busy = used;

	if (limit == UINT64_MAX || used == UINT64_MAX)
		return UINT64_MAX;
	if (idle < used)
		busy -= idle;
	return limit > busy ? limit - busy : 0;
}

/* Looks from this group up to the first one. */
static uint64_t groups_left(const char *root, const struct hierarchy *hierarchy,
			    const char *group)
{
	uint64_t bytes = UINT64_MAX;
	char path[PATH_BYTES];
	size_t first;

	(void)snprintf(path, sizeof(path), "%s%s", root, hierarchy->folder);
	first = strlen(path);
	(void)snprintf(path + first, sizeof(path) - first, "%s", group);
	for (;;) {
		char *slash = strrchr(path, '/');

		bytes = kvpull_least(bytes, group_left(hierarchy, path));
		if (!slash || (size_t)(slash - path) < first)
			return bytes;
		*slash = '\0';
	}
}

static uint64_t line_left(const char *root, char *line)
{
	uint64_t bytes = UINT64_MAX;
	uint32_t i;

	line[strcspn(line, "\n")] = '\0';
	for (i = 0; i < sizeof(hierarchies) / sizeof(hierarchies[0]); i++) {
		const struct hierarchy *hierarchy = &hierarchies[i];
		const size_t length = strlen(hierarchy->begins);
		const char *rest = line + strspn(line, "0123456789");

		if (!strncmp(rest, hierarchy->begins, length))
			bytes = groups_left(root, hierarchy, rest + length);
	}
	return bytes;
}

/* Memory that the machine could give, which is more than its free memory. */
static uint64_t machine_left(const char *root)
{
	char folder[PATH_BYTES];
	uint64_t kib;

	(void)snprintf(folder, sizeof(folder), "%s/proc", root);
	kib = number_read(folder, "meminfo", "MemAvailable:");
	return kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
}

uint64_t kvpull_memory_left(const char *root)
{
	uint64_t bytes = machine_left(root);
	char path[PATH_BYTES];
	char line[PATH_BYTES];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	if (!file)
		return bytes;
	while (fgets(line, sizeof(line), file))
		bytes = kvpull_least(bytes, line_left(root, line));
	(void)fclose(file);
	return bytes;
}
