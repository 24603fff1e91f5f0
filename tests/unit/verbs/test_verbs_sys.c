/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses a device by the kernel's files about it. The files are the test's: it
 * opens them in the kernel's place. So are the CPUs: the process has two of
 * them, and any thread that asks for itself is on the first.
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
#define FIRST_CPU 0
#define LAST_CPU 1

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

/* Likewise. */
__attribute__((visibility("default"))) int
sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *cpus)
{
	CPU_ZERO_S(bytes, cpus);
	CPU_SET_S(FIRST_CPU, bytes, cpus);
	if (pid == getpid())
		CPU_SET_S(LAST_CPU, bytes, cpus);
	return 0;
}

static char taken[KVPULL_ADDRESS_BYTES_MAX];

static void *open_and_look(void *argument)
{
	(void)argument;
	world_init();
	fake_verbs_devices(2);
	world.listen_port = 7471;
	if (side_open(&world.p) || side_serve(&world.p))
		return NULL;
	(void)snprintf(taken, sizeof(taken), "%s", side_address(&world.p));
	side_close(&world.p);
	return taken;
}

static void takes(const struct kernel_file *files, const char *address)
{
	kernel = files;
	assert_non_null(open_and_look(NULL));
	assert_string_equal(taken, address);
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

/* The thread that opens may be anywhere: what counts is where the engine runs. */
UNIT_TEST(thread_that_opens_makes_nothing_near)
{
	static const struct kernel_file files[] = {
		{ NODE(0), "1\n" },
		{ CPUS(1), NOBODYS },
		{ NODE(1), "0\n" },
		{ CPUS(0), "1\n" }, /* LAST_CPU */
		{ 0 },
	};
	void *opened = NULL;
	pthread_t thread;

	kernel = files;
	assert_int_equal(pthread_create(&thread, NULL, open_and_look, NULL), 0);
	assert_int_equal(pthread_join(thread, &opened), 0);
	kernel = NULL;
	assert_non_null(opened);
	assert_string_equal(taken, SECOND);
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
