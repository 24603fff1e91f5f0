/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one fuzz entry over the files and folders of argv, once each: the corpus
 * as a test, without libFuzzer. Exit status 2: a file could not be read, or
 * there was none.
 */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX (1u << 20)
#define PATH_BYTES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

/* 1: it ran. A copy of exact size, so that ASan sees a read past its end. */
static int replay_file(const char *path)
{
	static uint8_t bytes[FILE_BYTES_MAX];
	FILE *file = fopen(path, "rb");
	size_t byte_count;
	uint8_t *copy;

	if (!file) {
		perror(path);
		exit(2);
	}
	byte_count = fread(bytes, 1, sizeof(bytes), file);
	(void)fclose(file);
	copy = malloc(byte_count ? byte_count : 1);
	if (!copy)
		exit(2);
	memcpy(copy, bytes, byte_count);
	(void)LLVMFuzzerTestOneInput(copy, byte_count);
	free(copy);
	return 1;
}

static int replay_folder(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int count = 0;

	if (!folder) {
		perror(path);
		exit(2);
	}
	while ((entry = readdir(folder)) != NULL) {
		char name[PATH_BYTES_MAX];

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(name, sizeof(name), "%s/%s", path,
			       entry->d_name);
		count += replay_file(name);
	}
	(void)closedir(folder);
	return count;
}

int main(int argc, char **argv)
{
	int count = 0;
	int i;

	for (i = 1; i < argc; i++) {
		struct stat status;

		if (!stat(argv[i], &status) && S_ISDIR(status.st_mode))
			count += replay_folder(argv[i]);
		else
			count += replay_file(argv[i]);
	}
	(void)printf("%s: %d inputs\n", argv[0], count);
	return count ? 0 : 2;
}
