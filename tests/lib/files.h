/* SPDX-License-Identifier: Apache-2.0 */
/* Files below a folder that stands for "/", in tests. */
#ifndef KVPULL_TESTS_LIB_FILES_H
#define KVPULL_TESTS_LIB_FILES_H

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/unit.h"

#define FILES_PATH_BYTES 256u

/* Make the file @name below @root, and its folders. */
static inline void files_put(const char *root, const char *name,
			     const char *text)
{
	char path[FILES_PATH_BYTES];
	char *slash = path + strlen(root) + 1;
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	for (; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		(void)mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* Remove the file @name below @root, and those of its folders that are empty. */
static inline void files_unput(const char *root, const char *name)
{
	char path[FILES_PATH_BYTES];
	char *slash;

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	while ((slash = strrchr(path, '/')) > path + strlen(root) - 1) {
		(void)remove(path);
		*slash = '\0';
	}
}

#endif /* KVPULL_TESTS_LIB_FILES_H */
