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

enum doctor_level doctor_verbs_level(const struct doctor *doctor)
{
	return doctor->route == KVPULL_ROUTE_PIN_VERBS ? DOCTOR_FAIL :
	       doctor->route == KVPULL_ROUTE_PIN_SHM   ? DOCTOR_NOTE :
							 DOCTOR_WARN;
}

static void line_keep(void *context, uint32_t level, const char *message)
{
	(void)level;
	(void)snprintf(context, DOCTOR_TEXT_BYTES_MAX, "%s", message);
}

struct kvpull_log doctor_log(char line[DOCTOR_TEXT_BYTES_MAX])
{
	return (struct kvpull_log){ .write = line_keep,
				    .context = line,
				    .level = KVPULL_LOG_WARN };
}

/* ---- below root ---- */

struct path {
	char text[2 * DOCTOR_PATH_BYTES_MAX];
};

static struct path __attribute__((format(printf, 2, 0)))
path_of(const struct doctor *doctor, const char *format, va_list words)
{
	char name[DOCTOR_PATH_BYTES_MAX];
	struct path path;

	(void)vsnprintf(name, sizeof(name), format, words);
	(void)snprintf(path.text, sizeof(path.text), "%s%s", doctor->root,
		       name);
	return path;
}

/* Its first bytes. Return: how many there are, or -1 and an empty text. */
static int path_read(struct path path, char *text, size_t text_bytes)
{
	const int fd = open(path.text, O_RDONLY | O_CLOEXEC);
	ssize_t got = -1;

	if (fd >= 0) {
		got = read(fd, text, text_bytes - 1);
		(void)close(fd);
	}
	text[got < 0 ? 0 : got] = '\0';
	return (int)got;
}

int doctor_read_all(const struct doctor *doctor, char *text, size_t text_bytes,
		    const char *format, ...)
{
	va_list words;
	int got;

	va_start(words, format);
	got = path_read(path_of(doctor, format, words), text, text_bytes);
	va_end(words);
	return got;
}

int doctor_read(const struct doctor *doctor, char *line, size_t line_bytes,
		const char *format, ...)
{
	va_list words;
	int got;

	va_start(words, format);
	got = path_read(path_of(doctor, format, words), line, line_bytes);
	va_end(words);
	line[strcspn(line, "\n")] = '\0';
	return got < 0 ? -1 : (int)strlen(line);
}

long long doctor_number(const struct doctor *doctor, long long otherwise,
			const char *format, ...)
{
	char text[64];
	char *end;
	long long number;
	va_list words;

	va_start(words, format);
	(void)path_read(path_of(doctor, format, words), text, sizeof(text));
	va_end(words);
	errno = 0;
	number = strtoll(text, &end, 10);
	return errno || end == text ? otherwise : number;
}

int doctor_exists(const struct doctor *doctor, const char *format, ...)
{
	struct path path;
	va_list words;

	va_start(words, format);
	path = path_of(doctor, format, words);
	va_end(words);
	return access(path.text, F_OK) == 0;
}

int doctor_matches(const struct doctor *doctor, const char *format, ...)
{
	struct path path;
	va_list words;
	glob_t found;
	int code;

	va_start(words, format);
	path = path_of(doctor, format, words);
	va_end(words);
	code = glob(path.text, 0, NULL, &found);
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

int doctor_entry(const struct doctor *doctor, const char *folder,
		 const char *prefix, uint32_t index,
		 char name[DOCTOR_NAME_BYTES])
{
	char path[2 * DOCTOR_PATH_BYTES_MAX];
	struct dirent **entries = NULL;
	int code = -1;
	int count;
	int at;

	(void)snprintf(path, sizeof(path), "%s%s", doctor->root, folder);
	count = scandir(path, &entries, NULL, versionsort);
	for (at = 0; at < count; at++) {
		const char *found = entries[at]->d_name;

		if (found[0] != '.' &&
		    !strncmp(found, prefix, strlen(prefix)) && !index--) {
			(void)snprintf(name, DOCTOR_NAME_BYTES, "%s", found);
			code = 0;
		}
		free(entries[at]);
	}
	free(entries);
	return code;
}

int doctor_sees(const struct doctor *doctor, const char *folder)
{
	char name[DOCTOR_NAME_BYTES];

	return !doctor_entry(doctor, folder, "", 0, name);
}

int doctor_is_older(const char *release, unsigned long major,
		    unsigned long minor)
{
	char *rest;
	const unsigned long its_major = strtoul(release, &rest, 10);
	const unsigned long its_minor =
		*rest == '.' ? strtoul(rest + 1, NULL, 10) : 0;

	return its_major < major || (its_major == major && its_minor < minor);
}
