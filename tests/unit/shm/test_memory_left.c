/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that is left on machines and in control groups written by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shm/memory_left.h"
#include "tests/lib/folder.h"
#include "tests/lib/unit.h"

#define MIB UINT64_C(1048576)
#define V1 "/sys/fs/cgroup/memory"
#define V2 "/sys/fs/cgroup"

static char root[] = "/tmp/kvpull-test-XXXXXX";

static int up(void **state)
{
	(void)state;
	memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
	return mkdtemp(root) ? 0 : -1;
}

static int down(void **state)
{
	(void)state;
	return folder_remove_all(root);
}

static void file_write(const char *path, const char *text)
{
	char full[256];
	char *slash = full + sizeof(root) - 1;
	FILE *file;

	(void)snprintf(full, sizeof(full), "%s%s", root, path);
	while ((slash = strchr(slash + 1, '/'))) {
		*slash = '\0';
		(void)mkdir(full, 0700);
		*slash = '/';
	}
	file = fopen(full, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void machine_write(void)
{
	file_write("/proc/meminfo", "MemTotal:       8388608 kB\n"
				    "MemFree:          10240 kB\n"
				    "MemAvailable:   4194304 kB\n");
}

#define TEST(name) UNIT_TEST_WITH(name, up, down)

TEST(nobody_says_is_no_limit)
{
	assert_true(kvpull_memory_left(root) == UINT64_MAX);
	file_write("/proc/meminfo", "MemAvailable: many\n");
	file_write("/proc/self/cgroup", "0::/\nno line of a group\n");
	file_write(V2 "/memory.max", "max\n");
	assert_true(kvpull_memory_left(root) == UINT64_MAX);
}

/* A file without a line, without the line, or with a number beyond all. */
TEST(file_that_does_not_have_the_number_is_no_limit)
{
	machine_write();
	file_write("/proc/self/cgroup", "0::/\n");
	file_write(V2 "/memory.max", "");
	file_write(V2 "/memory.current", "1048576\n");
	assert_true(kvpull_memory_left(root) == 4096 * MIB);
	file_write(V2 "/memory.max", "99999999999999999999\n");
	assert_true(kvpull_memory_left(root) == 4096 * MIB);
	file_write(V2 "/memory.max", "524288000\n");
	file_write(V2 "/memory.stat", "anon 1\nactive_file 7\n");
	assert_true(kvpull_memory_left(root) == 499 * MIB);
	/* More than is used at all is a number of another moment. */
	file_write(V2 "/memory.stat", "inactive_file 1048577\n");
	assert_true(kvpull_memory_left(root) == 499 * MIB);
	file_write(V2 "/memory.stat", "inactive_file 1048575\n");
	assert_true(kvpull_memory_left(root) == 500 * MIB - 1);
	file_write(V2 "/memory.current", "none\n");
	assert_true(kvpull_memory_left(root) == 4096 * MIB);
}

/* Memory that only caches files is available though it is not free. */
TEST(machine_is_what_is_available)
{
	machine_write();
	assert_true(kvpull_memory_left(root) == 4096 * MIB);
}

TEST(group_and_those_above_it_limit)
{
	machine_write();
	file_write("/proc/self/cgroup", "0::/slice/job\n");
	file_write(V2 "/slice/job/memory.max", "max\n");
	file_write(V2 "/slice/job/memory.current", "104857600\n");
	assert_true(kvpull_memory_left(root) == 4096 * MIB);
	file_write(V2 "/slice/memory.max", "524288000\n");
	file_write(V2 "/slice/memory.current", "209715200\n");
	assert_true(kvpull_memory_left(root) == 300 * MIB);
	file_write(V2 "/slice/job/memory.max", "157286400\n");
	assert_true(kvpull_memory_left(root) == 50 * MIB);
	/* Over its limit, which may be set while it runs. */
	file_write(V2 "/slice/job/memory.max", "4096\n");
	assert_true(kvpull_memory_left(root) == 0);
}

TEST(files_that_nobody_reads_are_given_back)
{
	file_write("/proc/self/cgroup", "0::/\n");
	file_write(V2 "/memory.max", "524288000\n");
	file_write(V2 "/memory.current", "524288000\n");
	assert_true(kvpull_memory_left(root) == 0);
	file_write(V2 "/memory.stat",
		   "anon 1\ninactive_file 419430400\nactive_file 7\n");
	assert_true(kvpull_memory_left(root) == 400 * MIB);
}

TEST(old_hierarchy_limits)
{
	machine_write();
	file_write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/box/in\n"
					"1:cpu:/\n0::/\n");
	file_write(V1 "/memory.limit_in_bytes", "9223372036854771712\n");
	file_write(V1 "/memory.usage_in_bytes", "1048576\n");
	file_write(V1 "/box/memory.limit_in_bytes", "314572800\n");
	file_write(V1 "/box/memory.usage_in_bytes", "209715200\n");
	file_write(V1 "/box/memory.stat",
		   "inactive_file 1\ntotal_inactive_file 104857600\n");
	assert_true(kvpull_memory_left(root) == 200 * MIB);
}

/* The path of the machine, of which the container shows only its own group. */
TEST(container_sees_its_own_group_first)
{
	file_write("/proc/self/cgroup", "0::/kubepods/pod/box\n");
	file_write(V2 "/memory.max", "209715200\n");
	file_write(V2 "/memory.current", "0\n");
	assert_true(kvpull_memory_left(root) == 200 * MIB);
}
