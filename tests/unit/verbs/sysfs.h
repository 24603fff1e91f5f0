/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's files about the machines of the table of topologies, in a folder that
 * stands for "/", for that test alone: open() and readlink() are the test's.
 */
#ifndef KVPULL_TESTS_UNIT_VERBS_SYSFS
#define KVPULL_TESTS_UNIT_VERBS_SYSFS

#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/verbs/world.h"

static char root[64]; /* stands for "/" where a path begins with /sys/ */
static uint64_t cpus_allowed; /* of this process, by bit */

__attribute__((format(printf, 2, 3))) static void
file_make(const char *text, const char *format, ...)
{
	char path[256];
	va_list words;
	size_t used = (size_t)snprintf(path, sizeof(path), "%s", root);
	char *slash;
	FILE *file;

	va_start(words, format);
	(void)vsnprintf(path + used, sizeof(path) - used, format, words);
	va_end(words);
	for (slash = path + used + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		(void)mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static int entry_remove(const char *path, const struct stat *stat, int type,
			struct FTW *ftw)
{
	(void)stat;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void tree_make(void)
{
	(void)snprintf(root, sizeof(root), "/tmp/kvpull-topology-XXXXXX");
	assert_non_null(mkdtemp(root));
	file_make("10 21\n", "/sys/devices/system/node/node0/distance");
	file_make("21 10\n", "/sys/devices/system/node/node1/distance");
	file_make("0-3\n", "/sys/devices/system/node/node0/cpulist");
	file_make("4-7\n", "/sys/devices/system/node/node1/cpulist");
}

static void tree_remove(void)
{
	assert_int_equal(nftw(root, entry_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
	root[0] = '\0';
}

/* Device name, its node and its ports' rate. */
static void files_of(const char *device, const char *node, const char *rate)
{
	file_make(node, "/sys/class/infiniband/%s/device/numa_node", device);
	file_make(rate, "/sys/class/infiniband/%s/ports/1/rate", device);
	file_make(rate, "/sys/class/infiniband/%s/ports/2/rate", device);
}

/* In the place of libc's. */
__attribute__((visibility("default"))) int open(const char *path, int flags,
						...)
{
	char under[256];
	mode_t mode = 0;
	va_list more;

	va_start(more, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(more, mode_t);
	va_end(more);
	if (strncmp(path, "/sys/", 5) != 0)
		return openat(AT_FDCWD, path, flags, mode);
	(void)snprintf(under, sizeof(under), "%s%s", root, path);
	return openat(AT_FDCWD, under, flags, mode);
}

/*
 * Likewise, by another name because libc's may be an inline one: a link is a file
 * that says where it leads.
 */
__attribute__((visibility("default"))) ssize_t
link_read(const char *path, char *text, size_t bytes) __asm__("readlink");

__attribute__((visibility("default"))) ssize_t
link_read(const char *path, char *text, size_t bytes)
{
	char under[256];
	ssize_t used;
	int fd;

	(void)snprintf(under, sizeof(under), "%s%s.link", root, path);
	fd = openat(AT_FDCWD, under, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	used = read(fd, text, bytes);
	(void)close(fd);
	return used;
}

/* Likewise. */
__attribute__((visibility("default"))) int
sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *cpus)
{
	size_t cpu;

	(void)pid;
	CPU_ZERO_S(bytes, cpus);
	for (cpu = 0; cpu < 64; cpu++)
		if (cpus_allowed >> cpu & 1)
			CPU_SET_S(cpu, bytes, cpus);
	return 0;
}

/* A switch of the PCI bus with a NIC and a GPU below it, for each bridge of the host. */
static void eight_links_make(void)
{
#define SWITCH "../../devices/pci0000:%u0/0000:%u0:01.0/0000:%u1:00.0/"
	uint32_t at;

	for (at = 0; at < 9; at++) {
		char text[128];

		(void)snprintf(text, sizeof(text),
			       SWITCH
			       "0000:%u2:00.0/0000:%u3:00.0/infiniband/mlx5_%u",
			       at, at, at, at, at, at);
		file_make(text, "/sys/class/infiniband/mlx5_%u.link", at);
		(void)snprintf(text, sizeof(text),
			       "../" SWITCH "0000:%u2:01.0/0000:%u4:00.0", at,
			       at, at, at, at);
		file_make(text, "/sys/bus/pci/devices/0000:%u4:00.0.link", at);
	}
	file_make("../../../devices/pci0000:30/0000:30:02.0/0000:3f:00.0",
		  "/sys/bus/pci/devices/0000:3f:00.0.link");
}

/* Two CPUs' worth of NICs at 400 Gb/s, and one for storage. */
static void eight_files_make(void)
{
	char name[16];
	uint32_t at;

	for (at = 0; at < 8; at++) {
		(void)snprintf(name, sizeof(name), "mlx5_%u", at);
		files_of(name, at < 4 ? "0\n" : "1\n", "400 Gb/sec (4X NDR)\n");
	}
	files_of("mlx5_8", "0\n", "100 Gb/sec (4X EDR)\n");
	eight_links_make();
}

#endif /* KVPULL_TESTS_UNIT_VERBS_SYSFS */
