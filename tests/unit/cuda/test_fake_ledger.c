/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P hands memory to D, another process. What either of them has is in the ledger until
 * it gives that back, whatever the other one does; a killed one is judged apart.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/fake/cuda/cuda.h"
#include "tests/lib/gpu_ledger.h"
#include "tests/lib/unit.h"
#include "tests/unit/cuda/world.h"

#define BYTES FAKE_GRANULARITY
#define WRONG 99 /* fake_wrong() */

/* A process, which goes on when it is told to. */
struct side {
	pid_t pid;
	int said[2]; /* a number, once it has its memory */
	int told[2];
};

static struct side of_p;
static struct side of_d;
static struct gpu_context *context;
static uint64_t address;
static int foreign_fd;
static int
	ends_badly; /* 1: D gives nothing back, and its driver does not see the end */
static char why[128];

/* Read by the test, so that a side has begun. */
static int say(const struct side *side, int number)
{
	char go;

	MUST(write(side->said[1], &number, sizeof(number)) == sizeof(number));
	return read(side->told[0], &go, 1) == 1;
}

static void driver_begin(void)
{
	MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0));
	MUST(!cuCtxPushCurrent(context));
}

static void map(uint64_t handle)
{
	MUST(!cuMemAddressReserve(&address, BYTES, 0, 0, 0));
	MUST(!cuMemMap(address, BYTES, 0, handle, 0));
	/* The mapping keeps it. */
	MUST(!cuMemRelease(handle));
}

static void memory_give(void)
{
	MUST(!cuMemUnmap(address, BYTES) && !cuMemAddressFree(address, BYTES));
}

static void driver_end(void)
{
	MUST(!cuCtxPopCurrent(&context) && !cuDevicePrimaryCtxRelease(0));
}

/* Memory of this process: a descriptor of it, which stays open. */
static int exported(uint64_t *handle)
{
	const struct gpu_allocation allocation = {
		.type = GPU_ALLOCATION_PINNED,
		.handle_types = GPU_HANDLE_POSIX_FD,
		.location = { GPU_LOCATION_DEVICE, 0 },
	};
	int fd;

	MUST(!cuMemCreate(handle, BYTES, &allocation, 0));
	MUST(!cuMemExportToShareableHandle(&fd, *handle, GPU_HANDLE_POSIX_FD,
					   0));
	return fd;
}

static void be_p(void)
{
	uint64_t handle;
	int fd;

	driver_begin();
	fd = exported(&handle);
	map(handle);
	(void)say(&of_p, fd);
	(void)close(fd);
	memory_give();
	driver_end();
}

static void be_d(void)
{
	uint64_t handle;

	driver_begin();
	MUST(!cuMemImportFromShareableHandle(
		&handle, (void *)(intptr_t)foreign_fd, GPU_HANDLE_POSIX_FD));
	(void)close(foreign_fd);
	map(handle);
	(void)say(&of_d, 0);
	if (ends_badly)
		_exit(0);
	memory_give();
	(void)say(&of_d, 1);
	driver_end();
}

static int side_start(struct side *side, void (*run)(void))
{
	int number = -1;

	assert_int_equal(pipe2(side->said, O_CLOEXEC), 0);
	assert_int_equal(pipe2(side->told, O_CLOEXEC), 0);
	(void)fflush(NULL);
	side->pid = fork();
	assert_true(side->pid >= 0);
	if (!side->pid) {
		run();
		exit(0);
	}
	assert_int_equal(read(side->said[0], &number, sizeof(number)),
			 sizeof(number));
	return number;
}

/* The process gives its memory back, and lives on. */
static void side_next(const struct side *side)
{
	int number;

	assert_int_equal(write(side->told[1], "", 1), 1);
	assert_int_equal(read(side->said[0], &number, sizeof(number)),
			 sizeof(number));
}

/* The child's exit status, or minus the signal that ended it. */
static int side_end(struct side *side, int signal)
{
	int status = 0;
	uint32_t at;

	if (signal)
		(void)kill(side->pid, signal);
	/* However often it still waits for a word. */
	assert_int_equal(write(side->told[1], "ends", 4), 4);
	assert_int_equal(waitpid(side->pid, &status, 0), side->pid);
	for (at = 0; at < 2; at++) {
		(void)close(side->said[at]);
		(void)close(side->told[at]);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* P's memory is D's, too. */
static void sides_start(void)
{
	char path[64];
	const int fd = side_start(&of_p, be_p);

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)of_p.pid, fd);
	foreign_fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(foreign_fd >= 0);
	(void)side_start(&of_d, be_d);
	(void)close(foreign_fd);
}

static uint32_t left(void)
{
	why[0] = '\0';
	return gpu_ledger_judge(why, sizeof(why));
}

/* The last row is one of memory that this process had taken. */
static void says(const char *who, pid_t pid)
{
	char wanted[128];

	(void)snprintf(wanted, sizeof(wanted),
		       "with 2097152 bytes of a GPU that %s %d had taken", who,
		       (int)pid);
	assert_non_null(strstr(why, wanted));
}

UNIT_FIXTURE(ledger_make)
{
	char path[] = "/tmp/kvpull-ledger-XXXXXX";

	(void)close(mkstemp(path));
	(void)setenv(GPU_LEDGER, path, 1);
	ends_badly = 0;
}

UNIT_FIXTURE(ledger_remove)
{
	(void)unlink(getenv(GPU_LEDGER));
	(void)unsetenv(GPU_LEDGER);
}

/* A process that lives has a row, and one for each allocation. */
UNIT_TEST_WITH(memory_is_had_by_each_process_until_it_gives_it_back,
	       ledger_make, ledger_remove)
{
	sides_start();
	assert_int_equal(left(), 4);
	assert_int_equal(side_end(&of_p, 0), 0);
	assert_int_equal(left(), 2);
	says("the process", of_p.pid);
	side_next(&of_d);
	assert_int_equal(left(), 1);
	assert_int_equal(side_end(&of_d, 0), 0);
	assert_int_equal(left(), 0);
}

UNIT_TEST_WITH(process_that_was_killed_is_judged_apart, ledger_make,
	       ledger_remove)
{
	sides_start();
	assert_int_equal(side_end(&of_d, SIGKILL), -SIGKILL);
	assert_int_equal(side_end(&of_p, 0), 0);
	/* The process dies, and the ledger was not told that it would. */
	assert_int_equal(left(), 2);
	gpu_ledger_kill(of_d.pid);
	assert_int_equal(left(), 0);
}

UNIT_TEST_WITH(survivor_that_maps_a_dead_ones_memory_is_said, ledger_make,
	       ledger_remove)
{
	ends_badly = 1;
	sides_start();
	assert_int_equal(side_end(&of_p, SIGKILL), -SIGKILL);
	gpu_ledger_kill(of_p.pid);
	assert_int_equal(side_end(&of_d, 0), 0);
	assert_int_equal(left(), 2);
	says("the dead", of_p.pid);
}

UNIT_TEST_ENDS(end_that_no_driver_sees_is_said, LEFT_OVER)
{
	driver_begin();
	MUST(!cuCtxPopCurrent(&context) && !cuDevicePrimaryCtxRelease(0));
	_exit(0);
}

/* A run of one process, which says nothing to its driver as it ends. */
/* A descriptor keeps memory that was given back. */
UNIT_TEST_ENDS(descriptor_that_is_left_at_exit_is_said, WRONG)
{
	uint64_t handle;

	driver_begin();
	(void)exported(&handle);
	MUST(!cuMemRelease(handle) && !cuCtxPopCurrent(&context));
	MUST(!cuDevicePrimaryCtxRelease(0));
}
