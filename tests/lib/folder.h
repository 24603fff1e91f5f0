/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a test's sockets at its end. */
#ifndef KVPULL_TESTS_LIB_FOLDER_H
#define KVPULL_TESTS_LIB_FOLDER_H

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "plugin/status/layout.h"

/*
 * In memory it has the status files of who was there: they stay for a day. 0;
 * -1: something else was left.
 */
static inline int folder_remove(const char *path)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;

	while (folder && (entry = readdir(folder)) != NULL) {
		const char *end = strrchr(entry->d_name, '.');

		if (end && !strcmp(end, KVPULL_STATUS_SUFFIX))
			(void)unlinkat(dirfd(folder), entry->d_name, 0);
	}
	if (folder)
		(void)closedir(folder);
	return rmdir(path);
}

#endif /* KVPULL_TESTS_LIB_FOLDER_H */
