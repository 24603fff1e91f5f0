/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of what processes have of the fake driver's memory: a file that
 * FAKE_CUDA_LEDGER names, with a row for each process that uses the driver, and one
 * for each allocation that it has, be it its own or another one's. A process clears
 * its rows as it gives things back, and the last one as it ends. Once all have ended,
 * no row is left but of those that were killed: the kernel took what these had.
 */
#ifndef KVPULL_TESTS_LIB_GPU_LEDGER_H
#define KVPULL_TESTS_LIB_GPU_LEDGER_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPU_LEDGER "FAKE_CUDA_LEDGER"
#define GPU_LEDGER_ROWS_MAX 4096u
#define GPU_LEDGER_KILLED_MAX 1024u

/* A row is one process's until it sets @pid to 0. Read when all have ended: relaxed. */
struct gpu_ledger_row {
	_Atomic uint32_t pid; /* 0: the row is free */
	_Atomic uint32_t parent;
	_Atomic uint32_t
		owner; /* that took the memory; 0: the process's own row */
	uint32_t reserved;
	_Atomic uint64_t bytes;
};

struct gpu_ledger {
	struct gpu_ledger_row rows[GPU_LEDGER_ROWS_MAX];
	_Atomic uint32_t killed_count;
	_Atomic uint32_t killed[GPU_LEDGER_KILLED_MAX]; /* pids */
};

#define GPU_LEDGER_GET(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define GPU_LEDGER_SET(word, value)                                            \
	atomic_store_explicit(&(word), value, memory_order_relaxed)

/*
 * Map the file that the environment names. NULL: it names none, or none that opens; it
 * is made where @is_made. Processes of other users write there, too.
 */
static inline struct gpu_ledger *gpu_ledger_open(int is_made)
{
	const char *path = getenv(GPU_LEDGER);
	void *ledger = MAP_FAILED;
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (path && fd < 0 && is_made)
		fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT, 0666);
	if (fd < 0)
		return NULL;
	(void)fchmod(fd, 0666);
	if (!ftruncate(fd, sizeof(struct gpu_ledger)))
		ledger = mmap(NULL, sizeof(struct gpu_ledger),
			      PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	return ledger == MAP_FAILED ? NULL : ledger;
}

static inline void gpu_ledger_close(struct gpu_ledger *ledger)
{
	(void)munmap(ledger, sizeof(*ledger));
}

/* A process was killed, and its children with it: what they had counts no more. */
static inline void gpu_ledger_kill(pid_t pid)
{
	struct gpu_ledger *const ledger = gpu_ledger_open(0);
	uint32_t at;

	if (!ledger)
		return;
	at = atomic_fetch_add_explicit(&ledger->killed_count, 1,
				       memory_order_relaxed);
	if (at < GPU_LEDGER_KILLED_MAX)
		GPU_LEDGER_SET(ledger->killed[at], (uint32_t)pid);
	gpu_ledger_close(ledger);
}

static inline int gpu_ledger_is_killed(const struct gpu_ledger *ledger,
				       uint32_t pid)
{
	uint32_t at;

	for (at = 0; at < GPU_LEDGER_KILLED_MAX; at++)
		if (pid && GPU_LEDGER_GET(ledger->killed[at]) == pid)
			return 1;
	return 0;
}

/* 1, and @why says whose the row is: it was left by one that was not killed. */
static inline int gpu_ledger_is_left(const struct gpu_ledger *ledger,
				     const struct gpu_ledger_row *row,
				     char *why, size_t why_bytes)
{
	const uint32_t pid = GPU_LEDGER_GET(row->pid);
	const uint32_t owner = GPU_LEDGER_GET(row->owner);

	if (!pid || gpu_ledger_is_killed(ledger, pid) ||
	    gpu_ledger_is_killed(ledger, GPU_LEDGER_GET(row->parent)))
		return 0;
	if (!owner)
		(void)snprintf(why, why_bytes,
			       "process %u ended without its driver's end",
			       pid);
	else
		(void)snprintf(
			why, why_bytes,
			"process %u ended with %llu bytes of a GPU that %s %u had taken",
			pid, (unsigned long long)GPU_LEDGER_GET(row->bytes),
			owner == pid                        ? "itself," :
			gpu_ledger_is_killed(ledger, owner) ? "the dead" :
							      "the process",
			owner);
	return 1;
}

/*
 * All processes of the run have ended. 0: they gave back all that they had; else how
 * many rows are left, and @why says the last one. Memory is told before processes.
 */
static inline uint32_t gpu_ledger_judge(char *why, size_t why_bytes)
{
	struct gpu_ledger *const ledger = gpu_ledger_open(0);
	uint32_t left = 0;
	uint32_t at;

	for (at = 0; ledger && at < GPU_LEDGER_ROWS_MAX; at++)
		if (!GPU_LEDGER_GET(ledger->rows[at].owner))
			left += (uint32_t)gpu_ledger_is_left(
				ledger, &ledger->rows[at], why, why_bytes);
	for (at = 0; ledger && at < GPU_LEDGER_ROWS_MAX; at++)
		if (GPU_LEDGER_GET(ledger->rows[at].owner))
			left += (uint32_t)gpu_ledger_is_left(
				ledger, &ledger->rows[at], why, why_bytes);
	if (ledger)
		gpu_ledger_close(ledger);
	return left;
}

#endif
