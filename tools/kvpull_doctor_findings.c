/* SPDX-License-Identifier: Apache-2.0 */
/* The list of findings, and files below the root folder that checks read. */
#include "tools/kvpull_doctor_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void doctor_say(struct doctor *doctor, enum doctor_level level,
		const char *name, const char *format, const char *advice, ...)
{
	struct doctor_finding *finding;
	va_list words;

	if (doctor->finding_count == DOCTOR_FINDINGS_MAX)
		return;
	finding = &doctor->findings[doctor->finding_count++];
	finding->level = level;
	finding->name = name;
	(void)snprintf(finding->advice, sizeof(finding->advice), "%s", advice);
	va_start(words, advice);
	(void)vsnprintf(finding->text, sizeof(finding->text), format, words);
	va_end(words);
}

void doctor_advise(struct doctor *doctor, const char *format, ...)
{
	struct doctor_finding *finding =
		&doctor->findings[doctor->finding_count - 1];
	va_list words;

	va_start(words, format);
	(void)vsnprintf(finding->advice, sizeof(finding->advice), format,
			words);
	va_end(words);
}

void doctor_say_unknown(struct doctor *doctor, enum doctor_level level,
			const char *name, const char *folder)
{
	doctor_say(doctor, SAY_NOT_SEEN(level, name), doctor->root, folder);
}

enum doctor_level doctor_verbs_level(const struct doctor *doctor,
				     enum doctor_level otherwise)
{
	if (doctor->route == KVPULL_ROUTE_PIN_VERBS)
		return DOCTOR_FAIL;
	return doctor->route == KVPULL_ROUTE_PIN_SHM ? DOCTOR_NOTE : otherwise;
}

/* Its first bytes. Return: how many there are, or -1 and an empty text. */
static int read_path(const char *path, char *text, size_t text_bytes)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	text[0] = '\0';
	if (fd < 0)
		return -1;
	got = read(fd, text, text_bytes - 1);
	(void)close(fd);
	if (got < 0)
		return -1;
	text[got] = '\0';
	return (int)got;
}

int doctor_read_all(const struct doctor *doctor, char *text, size_t text_bytes,
		    const char *format, ...)
{
	char name[DOCTOR_PATH_BYTES_MAX];
	char path[2 * DOCTOR_PATH_BYTES_MAX];
	va_list words;

	va_start(words, format);
	(void)vsnprintf(name, sizeof(name), format, words);
	va_end(words);
	(void)snprintf(path, sizeof(path), "%s%s", doctor->root, name);
	return read_path(path, text, text_bytes);
}

int doctor_read(const struct doctor *doctor, char *line, size_t line_bytes,
		const char *format, ...)
{
	char name[DOCTOR_PATH_BYTES_MAX];
	va_list words;

	va_start(words, format);
	(void)vsnprintf(name, sizeof(name), format, words);
	va_end(words);
	if (doctor_read_all(doctor, line, line_bytes, "%s", name) < 0)
		return -1;
	line[strcspn(line, "\n")] = '\0';
	return (int)strlen(line);
}

long long doctor_number(const struct doctor *doctor, long long otherwise,
			const char *format, ...)
{
	char name[DOCTOR_PATH_BYTES_MAX];
	char line[64];
	char *end;
	long long number;
	va_list words;

	va_start(words, format);
	(void)vsnprintf(name, sizeof(name), format, words);
	va_end(words);
	if (doctor_read(doctor, line, sizeof(line), "%s", name) < 1)
		return otherwise;
	errno = 0;
	number = strtoll(line, &end, 10);
	return errno || end == line ? otherwise : number;
}

int doctor_exists(const struct doctor *doctor, const char *path)
{
	char whole[2 * DOCTOR_PATH_BYTES_MAX];

	(void)snprintf(whole, sizeof(whole), "%s%s", doctor->root, path);
	return access(whole, F_OK) == 0;
}

int doctor_matches(const struct doctor *doctor, const char *pattern)
{
	char path[2 * DOCTOR_PATH_BYTES_MAX];
	glob_t found;
	int code;

	(void)snprintf(path, sizeof(path), "%s%s", doctor->root, pattern);
	code = glob(path, 0, NULL, &found);
	if (!code)
		globfree(&found);
	return !code;
}

int doctor_item_next(const char **list, char *item, size_t item_bytes)
{
	size_t bytes;

	*list += strspn(*list, ",; ");
	bytes = strcspn(*list, ",;");
	(void)snprintf(item, item_bytes, "%.*s", (int)bytes, *list);
	*list += bytes;
	return bytes != 0;
}

int doctor_sees(const struct doctor *doctor, const char *folder)
{
	char whole[2 * DOCTOR_PATH_BYTES_MAX];
	const struct dirent *entry;
	int found = 0;
	DIR *list;

	(void)snprintf(whole, sizeof(whole), "%s%s", doctor->root, folder);
	list = opendir(whole);
	while (list && !found && (entry = readdir(list)) != NULL)
		found = entry->d_name[0] != '.';
	if (list)
		(void)closedir(list);
	return found;
}
