/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks kernel features, limits and folders that kvpull needs, by trying each.
 */
#include "shm/memory_left.h"
#include "shm/segment.h"
#include "tools/kvpull_doctor_parts.h"
#include "verbs/place.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/io_uring.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define NODES_MAX 64
#define FILES_MIN 256u
#define FILES_OPEN_MIN 32u /* a worker opens by so many, and has no peer yet */

static double gib(uint64_t bytes)
{
	return (double)bytes / (double)(UINT64_C(1) << 30);
}

/* ---- kernel ---- */

static int seal_try(void)
{
	const int fd =
		memfd_create("kvpull-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int code;

	if (fd < 0)
		return -1;
	code = fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
	(void)close(fd);
	return code;
}

void doctor_kernel(struct doctor *doctor)
{
	struct utsname name;
	struct rlimit files;
	long pidfd;

	if (uname(&name))
		return;
	if (doctor_is_older(name.release, 5, 10))
		doctor_say(doctor, SAY_KERNEL_IS_OLD, name.release);
	else
		doctor_say(doctor, SAY_KERNEL, name.release, name.machine);
	if (seal_try())
		doctor_say(doctor, SAY_KERNEL_SEALS_NOT, strerror(errno));
	pidfd = syscall(SYS_pidfd_open, getpid(), 0);
	if (pidfd < 0)
		doctor_say(doctor, SAY_KERNEL_PIDFD_NOT, strerror(errno));
	else
		(void)close((int)pidfd);
	if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < FILES_MIN)
		doctor_say(doctor,
			   SAY_FILES_ARE_FEW(files.rlim_cur < FILES_OPEN_MIN ?
						     DOCTOR_FAIL :
						     DOCTOR_WARN),
			   (unsigned long long)files.rlim_cur, FILES_OPEN_MIN);
}

/* ---- memory ---- */

/* Whether the KV cache fits into this machine, and into what is free there. */
static void memory(struct doctor *doctor)
{
	const uint64_t left = kvpull_memory_left(doctor->root);
	const uint64_t need_bytes = doctor->memory_bytes;
	uint64_t kib = 0;
	char line[64];

	(void)doctor_read(doctor_at(doctor, "/proc/meminfo"), line,
			  sizeof(line));
	if (strncmp(line, "MemTotal:", 9) == 0)
		kib = strtoull(line + 9, NULL, 10);
	if (!kib)
		doctor_say(doctor, SAY_NOT_SEEN(DOCTOR_UNKNOWN, "memory"),
			   doctor->root, "/proc/meminfo");
	else if (kib * 1024 < need_bytes)
		doctor_say(doctor, SAY_MEMORY_IS_SMALL, gib(kib * 1024),
			   gib(need_bytes));
	else if (left < need_bytes)
		doctor_say(doctor, SAY_MEMORY_IS_TAKEN, gib(left),
			   gib(need_bytes));
	else
		doctor_say(doctor, SAY_MEMORY, gib(left), gib(need_bytes));
}

/* ---- the length of files ---- */

/* Memory that is shared is a file to this limit, too. */
static void file_size(struct doctor *doctor)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) ||
	    limit.rlim_cur >= doctor->memory_bytes)
		return;
	doctor_say(doctor, SAY_FILE_SIZE, gib(limit.rlim_cur),
		   gib(doctor->memory_bytes));
}

/* ---- memlock ---- */

/* CAP_IPC_LOCK counts in the first user namespace only; -1: cannot be told. */
static int may_lock(const struct doctor *doctor)
{
	struct __user_cap_header_struct header = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2] = { { 0 } };
	char map[64];
	char *rest;

	if (syscall(SYS_capget, &header, data) ||
	    !(data[0].effective & 1u << CAP_IPC_LOCK))
		return 0;
	if (!doctor_exists(doctor_at(doctor, "/proc/self/uid_map")))
		return -1;
	(void)doctor_read(doctor_at(doctor, "/proc/self/uid_map"), map,
			  sizeof(map));
	(void)strtoul(map, &rest, 10);
	return strtoul(rest, NULL, 10) == 0 && strstr(map, "4294967295");
}

static void memlock(struct doctor *doctor)
{
	const uint64_t need_bytes = doctor->memory_bytes;
	const int is_free = may_lock(doctor);
	const int is_wanted =
		doctor->usable_ports || doctor->route == KVPULL_ROUTE_PIN_VERBS;
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	if (is_free > 0) {
		doctor_say(doctor, SAY_MEMLOCK_FREE);
	} else if (limit.rlim_cur == RLIM_INFINITY) {
		doctor_say(doctor, SAY_MEMLOCK_UNLIMITED);
	} else if (limit.rlim_cur >= need_bytes) {
		doctor_say(doctor, SAY_MEMLOCK_ENOUGH, gib(limit.rlim_cur),
			   gib(need_bytes));
	} else if (is_free < 0) {
		doctor_say(doctor, SAY_NOT_SEEN(DOCTOR_UNKNOWN, "memlock"),
			   doctor->root, "/proc/self/uid_map");
	} else {
		doctor_say(doctor,
			   SAY_MEMLOCK_IS_LOW(is_wanted ? DOCTOR_RDMA :
							  DOCTOR_NOTE),
			   gib(limit.rlim_cur), gib(need_bytes),
			   limit.rlim_max == RLIM_INFINITY ? "unlimited" :
			   limit.rlim_max >= need_bytes    ? "enough" :
							     "too low as well");
	}
}

/* ---- memory of devices ---- */

static int has_module(const struct doctor *doctor, const char *name)
{
	return doctor_exists(doctor_at(doctor, "/sys/module/%s", name));
}

static void device_memory(struct doctor *doctor)
{
	char driver[128];
	const int has_driver =
		doctor_read(doctor_at(doctor, "/proc/driver/nvidia/version"),
			    driver, sizeof(driver)) > 0;
	const int sees_modules = doctor_sees(doctor, "/sys/module");

	if (!has_driver && (!sees_modules || !doctor_sees(doctor, "/proc"))) {
		doctor_say(
			doctor, SAY_NOT_SEEN(DOCTOR_UNKNOWN, "device memory"),
			doctor->root, sees_modules ? "/proc" : "/sys/module");
		return;
	}
	if (!has_driver && !has_module(doctor, "amdgpu")) {
		doctor_say(doctor, SAY_DEVICE_MEMORY_NONE);
		return;
	}
	if (strstr(driver, "Open Kernel Module"))
		doctor_say(doctor, SAY_DEVICE_MEMORY_DMABUF);
	else if (has_module(doctor, "nvidia_peermem") ||
		 has_module(doctor, "nv_peer_mem"))
		doctor_say(doctor, SAY_DEVICE_MEMORY_PEERMEM);
	else
		doctor_say(doctor, SAY_DEVICE_MEMORY_CLOSED);
	doctor_say(doctor, SAY_DEVICE_MEMORY_USE);
}

/* ---- io_uring, huge pages ---- */

static void uring(struct doctor *doctor)
{
	struct io_uring_params params = { 0 };
	const long fd = syscall(SYS_io_uring_setup, 4, &params);

	if (fd >= 0) {
		(void)close((int)fd);
		doctor_say(doctor, SAY_URING);
		return;
	}
	doctor_say(
		doctor, SAY_URING_NOT, strerror(errno),
		errno == ENOSYS ?
			"nothing, if no KV lies in files" :
			"sysctl kernel.io_uring_disabled=0; allow io_uring_setup in the sandbox");
}

static int collapse_try(void)
{
	const struct kvpull_log silent = { 0 };
	struct kvpull_shared shared;
	int code;

	if (kvpull_segment_make(&shared, "kvpull-doctor", KVPULL_HUGE_BYTES,
				KVPULL_SEGMENT_READ_ONLY, 0, &silent))
		return -1;
	memset(shared.base, 1, shared.bytes);
	code = madvise(shared.base, shared.bytes, MADV_COLLAPSE);
	kvpull_segment_unmake(&shared);
	return code;
}

static void huge_pages(struct doctor *doctor)
{
	const long long pages = doctor_number(
		doctor_at(doctor, "/proc/sys/vm/nr_hugepages"), 0);

	if (collapse_try() == 0)
		doctor_say(doctor, SAY_HUGE_PAGES);
	else
		doctor_say(doctor, SAY_HUGE_PAGES_NOT, strerror(errno));
	if (pages > 0)
		doctor_say(doctor, SAY_HUGE_PAGES_RESERVED, pages);
}

/* ---- all of these ---- */

void doctor_host(struct doctor *doctor)
{
	memory(doctor);
	file_size(doctor);
	memlock(doctor);
	device_memory(doctor);
	uring(doctor);
	huge_pages(doctor);
}

/* ---- NUMA ---- */

int doctor_is_near(const struct doctor *doctor, int node)
{
	char list[512];
	cpu_set_t cpus;

	(void)doctor_read(doctor_at(doctor,
				    "/sys/devices/system/node/node%d/cpulist",
				    node),
			  list, sizeof(list));
	return !sched_getaffinity(getpid(), sizeof(cpus), &cpus) &&
	       kvpull_place_is_among(list, &cpus);
}

void doctor_numa(struct doctor *doctor)
{
	uint32_t node_count = 0;
	uint32_t near_count = 0;
	int node;

	for (node = 0; node < NODES_MAX; node++) {
		node_count += (uint32_t)doctor_exists(doctor_at(
			doctor, "/sys/devices/system/node/node%d", node));
		near_count += (uint32_t)doctor_is_near(doctor, node);
	}
	/* A kernel that knows of no nodes still lists its processors. */
	if (!node_count && !doctor_sees(doctor, "/sys/devices/system/cpu"))
		doctor_say(doctor, SAY_NOT_SEEN(DOCTOR_UNKNOWN, "numa"),
			   doctor->root, "/sys/devices/system");
	else if (node_count < 2)
		doctor_say(doctor, SAY_NUMA_ONE);
	else if (near_count == 1)
		doctor_say(doctor, SAY_NUMA_BOUND, node_count);
	else
		doctor_say(doctor, SAY_NUMA_UNBOUND, node_count);
}

/* ---- memory of the engine's own ---- */

void doctor_foreign(struct doctor *doctor)
{
	const long long scope = doctor_number(
		doctor_at(doctor, "/proc/sys/kernel/yama/ptrace_scope"), 0);

	if (geteuid() != 0 && !doctor_sees(doctor, "/proc/sys/kernel"))
		doctor_say(doctor,
			   SAY_NOT_SEEN(DOCTOR_UNKNOWN, "foreign memory"),
			   doctor->root, "/proc/sys/kernel");
	else if (scope == 0 || geteuid() == 0)
		doctor_say(doctor, SAY_FOREIGN);
	else
		doctor_say(doctor, SAY_FOREIGN_NOT, scope);
}
