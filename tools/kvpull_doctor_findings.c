/* SPDX-License-Identifier: Apache-2.0 */
/* The list of findings, and files below the root folder that checks read. */
#include "tools/kvpull_doctor_parts.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text_file.h"

static enum doctor_level level_of(const struct doctor *doctor,
				  enum doctor_level level)
{
	if (level < DOCTOR_RDMA)
		return level;
	if (doctor->route == KVPULL_ROUTE_PIN_SHM)
		return DOCTOR_NOTE;
	return level == DOCTOR_RDMA && doctor->route == KVPULL_ROUTE_PIN_VERBS ?
		       DOCTOR_FAIL :
		       DOCTOR_WARN;
}

void doctor_say(struct doctor *doctor, enum doctor_level level,
		const char *name, const char *format, ...)
{
	char text[8 * DOCTOR_TEXT_BYTES_MAX];
	struct doctor_finding *finding;
	va_list words;
	char *advice = text;

	if (doctor->finding_count == DOCTOR_FINDINGS_MAX)
		return;
	va_start(words, format);
	(void)vsnprintf(text, sizeof(text), format, words);
	va_end(words);
	finding = &doctor->findings[doctor->finding_count++];
	finding->level = level_of(doctor, level);
	finding->name = name;
	doctor->counts[finding->level]++;
	(void)snprintf(finding->text, sizeof(finding->text), "%s",
		       strsep(&advice, DOCTOR_ADVICE));
	(void)snprintf(finding->advice, sizeof(finding->advice), "%s",
		       advice ? advice : "");
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

struct doctor_file doctor_at(const struct doctor *doctor, const char *format,
			     ...)
{
	char name[DOCTOR_PATH_BYTES_MAX];
	struct doctor_file file;
	va_list words;

	va_start(words, format);
	(void)vsnprintf(name, sizeof(name), format, words);
	va_end(words);
	(void)snprintf(file.text, sizeof(file.text), "%s%s", doctor->root,
		       name);
	return file;
}

size_t doctor_read(struct doctor_file file, char *line, size_t line_bytes)
{
	kvpull_text_read(file.text, line, line_bytes);
	line[strcspn(line, "\n")] = '\0';
	return strlen(line);
}

long long doctor_number(struct doctor_file file, long long otherwise)
{
	char text[64];
	char *end;
	long long number;

	(void)doctor_read(file, text, sizeof(text));
	errno = 0;
	number = strtoll(text, &end, 10);
	return errno || end == text ? otherwise : number;
}

int doctor_matches(struct doctor_file pattern)
{
	glob_t found;
	const int code = glob(pattern.text, 0, NULL, &found);

	if (!code)
		globfree(&found);
	return !code;
}

int doctor_exists(struct doctor_file file)
{
	return access(file.text, F_OK) == 0;
}

int doctor_sees(const struct doctor *doctor, const char *folder)
{
	char name[DOCTOR_NAME_BYTES];

	return !doctor_entry(doctor_at(doctor, "%s", folder), "", 0, name);
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

int doctor_entry(struct doctor_file folder, const char *prefix, uint32_t index,
		 char name[DOCTOR_NAME_BYTES])
{
	struct dirent **entries = NULL;
	const int count = scandir(folder.text, &entries, NULL, versionsort);
	int code = -1;
	int at;

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

int doctor_is_older(const char *release, unsigned long major,
		    unsigned long minor)
{
	char *rest;
	const unsigned long its_major = strtoul(release, &rest, 10);
	const unsigned long its_minor =
		*rest == '.' ? strtoul(rest + 1, NULL, 10) : 0;

	return its_major < major || (its_major == major && its_minor < minor);
}
