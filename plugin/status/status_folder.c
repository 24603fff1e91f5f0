/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where status files lie, which of them are kept, and which are believed.
 *
 * A mapped file on a disk makes whoever writes into it wait for the disk now and
 * then, when the kernel writes its pages back: neither thread of a worker may
 * wait for that, so a file lies in memory or there is none.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/clock.h"
#include "plugin/status/status.h"
#include "shm/folder.h"

int kvpull_status_is_in_memory(const char *path)
{
	struct statfs system;
	char parent[PATH_MAX];
	char *last;

	if (statfs(path, &system)) {
		(void)snprintf(parent, sizeof(parent), "%s", path);
		last = strrchr(parent, '/');
		if (!last)
			return 0;
		last[last == parent] = '\0';
		if (statfs(parent, &system))
			return 0;
	}
	return system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

/* Descriptor of the folder if it is in memory, and one that we believe. */
static int folder_open(const char *path, const struct kvpull_config *config,
		       const char **why)
{
	struct kvpull_folder folder = { .path = path,
					.users = kvpull_config_users(config),
					.fd = -1 };
	int fd = -1;

	*why = "its file system is not in memory";
	if (!kvpull_status_is_in_memory(path))
		return -1;
	*why = "the folder is not there, or not safe";
	if (kvpull_folder_make(&folder, NULL))
		return -1;
	*why = NULL;
	if (kvpull_status_is_in_memory(path))
		fd = openat(folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	kvpull_folder_close(&folder);
	return fd;
}

int kvpull_status_folder(const struct kvpull_config *config, char *path,
			 size_t path_bytes, const char **why)
{
	int fd;

	(void)snprintf(path, path_bytes, "%s", config->socket_dir);
	fd = folder_open(path, config, why);
	if (fd >= 0)
		return fd;
	(void)snprintf(path, path_bytes, KVPULL_STATUS_FOLDER, geteuid());
	return folder_open(path, config, why);
}

static int place_is_good(const struct kvpull_status_header *header,
			 uint32_t part, size_t row_bytes,
			 uint32_t row_count_min)
{
	const struct kvpull_status_place *place = &header->places[part];
	const uint64_t bytes = (uint64_t)place->row_bytes * place->row_count;

	return place->row_bytes == row_bytes &&
	       place->row_count >= row_count_min && place->offset % 64 == 0 &&
	       place->offset >= sizeof(*header) &&
	       place->offset <= header->file_bytes &&
	       bytes <= header->file_bytes - place->offset;
}

#define LEAST(name, row, worker_min, pool_min)                                 \
	{ sizeof(row), { worker_min, pool_min } },

static int places_are_good(const struct kvpull_status_header *header)
{
	static const struct {
		uint32_t row_bytes;
		uint32_t row_count_min[KVPULL_STATUS_KINDS];
	} rows[] = { KVPULL_STATUS_TABLE(LEAST) };
	uint32_t part;

	for (part = 0; part < KVPULL_STATUS_PARTS; part++)
		if (!place_is_good(header, part, rows[part].row_bytes,
				   rows[part].row_count_min[header->kind]))
			return 0;
	return header->places[KVPULL_STATUS_HOLDS_NOW].row_count ==
		       header->places[KVPULL_STATUS_HOLDS].row_count &&
	       header->places[KVPULL_STATUS_HELD].row_count ==
		       header->places[KVPULL_STATUS_HOLDS].row_count / 64 + 1 &&
	       header->places[KVPULL_STATUS_WORDS].row_count ==
		       header->places[KVPULL_STATUS_CONSUMERS].row_count &&
	       header->places[KVPULL_STATUS_COUNTERS].row_count <=
		       KVPULL_STATUS_COUNTERS_MAX;
}

int kvpull_status_header_read(int fd, uint32_t owner,
			      struct kvpull_status_header *header)
{
	struct kvpull_status_header own;
	struct stat status;

	if (fstat(fd, &status) || !S_ISREG(status.st_mode) ||
	    status.st_size < (off_t)sizeof(own) ||
	    (uint64_t)status.st_size > KVPULL_STATUS_BYTES_MAX)
		return KVPULL_EPROTO;
	/* In a folder of many: only what its owner, or root, has made. */
	if (status.st_uid != owner && status.st_uid != 0)
		return KVPULL_EAUTH;
	if (pread(fd, &own, sizeof(own), 0) != (ssize_t)sizeof(own) ||
	    own.magic != KVPULL_STATUS_MAGIC)
		return KVPULL_EPROTO;
	if (own.version != KVPULL_STATUS_VERSION ||
	    own.part_count != KVPULL_STATUS_PARTS ||
	    own.kind >= KVPULL_STATUS_KINDS)
		return KVPULL_EVERSION;
	if (own.file_bytes != (uint64_t)status.st_size ||
	    !places_are_good(&own))
		return KVPULL_EPROTO;
	own.library[sizeof(own.library) - 1] = '\0';
	own.engine_id[sizeof(own.engine_id) - 1] = '\0';
	own.host[sizeof(own.host) - 1] = '\0';
	*header = own;
	return 0;
}

/* A file of a process that is gone. */
struct dead {
	char name[64];
	uint64_t ran_ns; /* when it was last seen at work */
};

static int is_status_name(const char *name)
{
	const size_t bytes = strlen(name);
	const size_t suffix = sizeof(KVPULL_STATUS_SUFFIX) - 1;

	return bytes > suffix && bytes < sizeof(((struct dead *)0)->name) &&
	       !strcmp(name + bytes - suffix, KVPULL_STATUS_SUFFIX);
}

/* 1: its process is gone, and it is ours to remove. */
static int dead_read(int folder_fd, const char *name, struct dead *dead)
{
	struct kvpull_status_header header;
	struct stat status;
	uint64_t ran_ns = 0;
	int is_dead;
	const int fd = openat(folder_fd, name,
			      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return 0;
	is_dead = !fstat(fd, &status) && S_ISREG(status.st_mode) &&
		  status.st_uid == geteuid() && !flock(fd, LOCK_SH | LOCK_NB);
	/* A file that cannot be read counts as the oldest and goes first. */
	if (is_dead && !kvpull_status_header_read(fd, status.st_uid, &header)) {
		const uint64_t at =
			header.places[KVPULL_STATUS_ENGINE].offset +
			offsetof(struct kvpull_status_thread, ran_ns);

		if (pread(fd, &ran_ns, sizeof(ran_ns), (off_t)at) !=
			    sizeof(ran_ns) ||
		    ran_ns < header.opened_ns)
			ran_ns = header.opened_ns;
	}
	(void)close(fd);
	memcpy(dead->name, name, strlen(name) + 1);
	dead->ran_ns = ran_ns;
	return is_dead;
}

static int newest_first(const void *left, const void *right)
{
	const struct dead *one = left;
	const struct dead *other = right;

	return (one->ran_ns < other->ran_ns) - (one->ran_ns > other->ran_ns);
}

void kvpull_status_sweep(int folder_fd, uint64_t now_ns, uint32_t kept)
{
	struct dead dead[KVPULL_STATUS_KEPT + 1];
	const int fd =
		openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	uint32_t left = KVPULL_STATUS_FILES_MAX;
	uint32_t count = 0;
	const struct dirent *entry;

	if (!folder && fd >= 0)
		(void)close(fd);
	while (folder && left-- && (entry = readdir(folder))) {
		if (!is_status_name(entry->d_name) ||
		    !dead_read(folder_fd, entry->d_name, &dead[count]))
			continue;
		count++;
		qsort(dead, count, sizeof(*dead), newest_first);
		if (count > kept)
			(void)unlinkat(folder_fd, dead[--count].name, 0);
	}
	while (count--)
		if (dead[count].ran_ns +
			    KVPULL_STATUS_KEPT_S * KVPULL_NS_PER_S <
		    now_ns)
			(void)unlinkat(folder_fd, dead[count].name, 0);
	if (folder)
		(void)closedir(folder);
}
