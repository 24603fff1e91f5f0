/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device is taken by what the kernel's files say of it. The files are the
 * test's: it opens them in the kernel's place.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/verbs/world.h"

#define FIRST "10.66.0.1:7471"
#define SECOND "10.66.1.1:7471"
#define DEVICE(index) "/sys/class/infiniband/fake" #index
#define RATE(index) DEVICE(index) "/ports/1/rate"
#define NODE(index) DEVICE(index) "/device/numa_node"
#define CPUS(index) "/sys/devices/system/node/node" #index "/cpulist"
#define ALL "0-1023\n"
#define NOBODYS "\n" /* of a node that has memory alone */

struct kernel_file {
	const char *path;
	const char *text;
};

static const struct kernel_file *kernel; /* ends with a path of NULL */

static int kernel_open(const char *path)
{
	const struct kernel_file *file;
	int fd;

	for (file = kernel; file && file->path; file++)
		if (!strcmp(file->path, path)) {
			fd = memfd_create("sys", MFD_CLOEXEC);
			assert_true(fd >= 0);
			assert_int_equal(
				pwrite(fd, file->text, strlen(file->text), 0),
				strlen(file->text));
			return fd;
		}
	errno = ENOENT;
	return -1;
}

/* In the place of libc's. */
__attribute__((visibility("default"))) int open(const char *path, int flags,
						...)
{
	mode_t mode = 0;
	va_list more;

	if (!strncmp(path, "/sys/", 5))
		return kernel_open(path);
	va_start(more, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(more, mode_t);
	va_end(more);
	return openat(AT_FDCWD, path, flags, mode);
}

static void takes(const struct kernel_file *files, const char *address)
{
	kernel = files;
	world_init();
	fake_verbs_devices(2);
	world.listen_port = 7471;
	assert_int_equal(side_open(&world.p), 0);
	assert_int_equal(side_serve(&world.p), 0);
	assert_string_equal(world.p.route->ops->address(world.p.route),
			    address);
	side_close(&world.p);
	kernel = NULL;
}

UNIT_TEST(faster_device_is_taken)
{
	static const struct kernel_file second[] = {
		{ RATE(0), "400 Gb/sec (4X NDR)\n" },
		{ RATE(1), "800 Gb/sec (4X XDR)\n" },
		{ 0 },
	};
	static const struct kernel_file first[] = {
		{ RATE(0), "200 Gb/sec (4X HDR)\n" },
		{ RATE(1), "100 Gb/sec (4X EDR)\n" },
		{ 0 },
	};

	takes(second, SECOND);
	takes(first, FIRST);
}

/* Without a file that is what the library says: 25 Gb/s of both. */
UNIT_TEST(speed_that_no_file_tells_is_the_librarys)
{
	static const struct kernel_file faster[] = {
		{ RATE(1), "40 Gb/sec (4X QDR)\n" },
		{ 0 },
	};
	static const struct kernel_file slower[] = {
		{ RATE(0), "10 Gb/sec (1X QDR)\n" },
		{ 0 },
	};

	takes(faster, SECOND);
	takes(slower, SECOND);
	takes(NULL, FIRST);
}

UNIT_TEST(nearer_one_of_equals_is_taken)
{
	static const struct kernel_file second[] = {
		{ NODE(0), "1\n" },
		{ CPUS(1), NOBODYS },
		{ NODE(1), "0\n" },
		{ CPUS(0), ALL },
		{ 0 },
	};
	static const struct kernel_file first[] = {
		{ NODE(0), "0\n" },
		{ CPUS(0), ALL },
		{ NODE(1), "1\n" },
		{ CPUS(1), NOBODYS },
		{ 0 },
	};
	/* A machine without nodes says -1: no device is near, none far. */
	static const struct kernel_file flat[] = {
		{ NODE(0), "-1\n" },
		{ NODE(1), "-1\n" },
		{ 0 },
	};

	takes(second, SECOND);
	takes(first, FIRST);
	takes(flat, FIRST);
}

/* Pins itself to the CPU at `argument`, and opens. */
static void *pinned_takes(void *argument)
{
	const uint32_t *cpu = argument;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(*cpu, &one);
	assert_int_equal(
		pthread_setaffinity_np(pthread_self(), sizeof(one), &one), 0);
	takes(kernel, SECOND);
	return NULL;
}

/* The thread that opens may be anywhere: what counts is where the engine runs. */
UNIT_TEST(thread_that_opens_makes_nothing_near)
{
	char last[16];
	const struct kernel_file files[] = {
		{ NODE(0), "1\n" },
		{ CPUS(1), NOBODYS },
		{ NODE(1), "0\n" },
		{ CPUS(0), last },
		{ 0 },
	};
	uint32_t first_cpu = 0;
	uint32_t last_cpu = CPU_SETSIZE - 1;
	pthread_t thread;
	cpu_set_t cpus;

	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	while (!CPU_ISSET(first_cpu, &cpus))
		first_cpu++;
	while (!CPU_ISSET(last_cpu, &cpus))
		last_cpu--;
	(void)snprintf(last, sizeof(last), "%u\n", last_cpu);
	kernel = files;
	assert_int_equal(
		pthread_create(&thread, NULL, pinned_takes, &first_cpu), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

UNIT_TEST(faster_one_is_taken_before_the_nearer)
{
	static const struct kernel_file files[] = {
		{ RATE(0), "100 Gb/sec (4X EDR)\n" },
		{ RATE(1), "200 Gb/sec (4X HDR)\n" },
		{ NODE(0), "0\n" },
		{ CPUS(0), ALL },
		{ 0 },
	};

	takes(files, SECOND);
}
