/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of a test at its end. */
#ifndef KVPULL_TESTS_LIB_FOLDER_H
#define KVPULL_TESTS_LIB_FOLDER_H

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/shown/layout.h"

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

static inline int folder_path_remove(const char *path,
				     const struct stat *status, int kind,
				     struct FTW *where)
{
	(void)status;
	(void)kind;
	(void)where;
	return remove(path);
}

/* With all that is in it; links are not followed. 0 or -1, errno. */
static inline int folder_remove_all(const char *path)
{
	return nftw(path, folder_path_remove, 16, FTW_DEPTH | FTW_PHYS);
}

#endif /* KVPULL_TESTS_LIB_FOLDER_H */
