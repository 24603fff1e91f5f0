/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/mount.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define NONE UINT32_MAX

/* The names of /proc/self/mountinfo; one with a dot has others behind it. */
static const char *const waiting[] = {
	"fuse", "fuse.", "fuseblk",  "virtiofs", "nfs",  "nfs4",
	"cifs", "smb3",  "9p",       "ceph",     "afs",  "lustre",
	"gpfs", "coda",  "orangefs", "beegfs",   "gfs2", "ocfs2",
};

static int is_waiting(const char *type)
{
	size_t at;

	for (at = 0; at < sizeof(waiting) / sizeof(waiting[0]); at++) {
		const size_t length = strlen(waiting[at]);

		if (waiting[at][length - 1] == '.' ?
			    !strncmp(type, waiting[at], length) :
			    !strcmp(type, waiting[at]))
			return 1;
	}
	return 0;
}

/* "mnt_id: 36" of a descriptor; no file system is asked for it. */
static uint32_t mount_of_fd(int fd)
{
	char name[48];
	char text[512];
	const char *found = NULL;
	ssize_t got = -1;
	int info;

	(void)snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
	info = open(name, O_RDONLY | O_CLOEXEC);
	if (info >= 0)
		got = read(info, text, sizeof(text) - 1);
	if (got > 0) {
		text[got] = '\0';
		found = strstr(text, "mnt_id:");
	}
	kvpull_fd_close(&info);
	return found ? (uint32_t)strtoul(found + strlen("mnt_id:"), NULL, 10) :
		       NONE;
}

static uint32_t mount_of(const char *path)
{
	const int fd = open(path, O_PATH | O_CLOEXEC);
	uint32_t mount;

	if (fd < 0)
		return NONE;
	mount = mount_of_fd(fd);
	(void)close(fd);
	return mount;
}

/* Where in mountinfo we are: 36 35 98:0 /a /b rw ... - ext4 /dev/x rw */
struct line {
	char word[KVPULL_MOUNT_TYPE_BYTES]; /* of a longer one, its begin */
	size_t length;
	uint32_t id;
	uint32_t has_id;
	uint32_t is_type; /* the next word is it */
};

/* 1: word is the type of the mount. */
static int line_takes(struct line *line, char byte, uint32_t mount)
{
	int found = 0;

	if (byte != ' ' && byte != '\n') {
		if (line->length < sizeof(line->word) - 1)
			line->word[line->length++] = byte;
		return 0;
	}
	line->word[line->length] = '\0';
	if (line->is_type)
		found = line->id == mount;
	else if (!line->has_id)
		line->id = (uint32_t)strtoul(line->word, NULL, 10);
	line->has_id = 1;
	line->is_type = !strcmp(line->word, "-");
	line->length = 0;
	if (byte == '\n')
		line->has_id = 0;
	return found;
}

/* 1: a file system that waits for others; its name is in type. */
static int mount_waits(uint32_t mount, char type[KVPULL_MOUNT_TYPE_BYTES])
{
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	struct line line = { .length = 0 };
	int found = 0;
	char text[1024];
	ssize_t got;
	ssize_t at;

	while (fd >= 0 && !found && (got = read(fd, text, sizeof(text))) > 0)
		for (at = 0; at < got && !found; at++)
			found = line_takes(&line, text[at], mount);
	kvpull_fd_close(&fd);
	memcpy(type, line.word, sizeof(line.word));
	return found && is_waiting(type);
}

int kvpull_mount_is_local(const char *folder,
			  char type[KVPULL_MOUNT_TYPE_BYTES])
{
	const uint32_t root = mount_of("/");
	char part[PATH_MAX];
	size_t at;

	for (at = 1; at < sizeof(part); at++) {
		const char end = folder[at - 1] ? folder[at] : '\0';
		uint32_t mount;

		if (!folder[at - 1])
			return 1;
		if (end && end != '/')
			continue;
		memcpy(part, folder, at);
		part[at] = '\0';
		mount = mount_of(part);
		if (mount == NONE)
			return 1;
		/* A root that waits stops more than us: a node without disks. */
		if ((mount != root || !end) && mount_waits(mount, type))
			return 0;
	}
	return 1;
}

int kvpull_mount_fd_is_local(int fd)
{
	const uint32_t mount = mount_of_fd(fd);
	char type[KVPULL_MOUNT_TYPE_BYTES];

	return mount == NONE || mount == mount_of("/") ||
	       !mount_waits(mount, type);
}
