/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile consumer: what can it do to a producer's segment with the
 * descriptor that it was handed, and with what it makes of it through /proc?
 * Nothing: each attempt must be refused, and leave size and bytes as they are.
 *
 * Each attempt runs in a child of its own, against a segment of its own, as
 * our own uid and, where we are root, as uid 65534. A consumer with ptrace
 * rights over the producer is outside the promise (/proc/PID/mem).
 *
 * The last rows are the test's own proof that it can fail: the same attempts
 * succeed where F_SEAL_FUTURE_WRITE and F_SEAL_SEAL are missing.
 *
 * Prints a table and `N passed, N failed, N skipped`. Exit 0 or 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/segment.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define BYTES 16384u
#define PAGE 4096u
#define FILL 0x5c
#define NOBODY 65534u
/* A child that could not make its attempt; no errno. */
#define NOT_MADE 255

/* Result of an attempt: 0, or errno where the kernel refused. */
typedef int (*attempt_fn)(int fd);

static int refused(void)
{
	return errno ? errno : EIO;
}

/* The handed file, opened again; negative errno where that is refused. */
static int reopen(int fd, int flags)
{
	char path[32];
	int reopened;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reopened = open(path, flags | O_CLOEXEC);
	return reopened < 0 ? -refused() : reopened;
}

/* A second descriptor for writing, then the attempt on that one. */
static int through_reopened(int fd, attempt_fn attempt)
{
	const int reopened = reopen(fd, O_RDWR);

	return reopened < 0 ? -reopened : attempt(reopened);
}

static int map_writable(int fd)
{
	uint8_t *base =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return refused();
	memset(base, 0, BYTES);
	return 0;
}

static uint8_t *map_for_reading(int fd)
{
	uint8_t *base = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED) {
		perror("a consumer cannot even read");
		_exit(NOT_MADE);
	}
	return base;
}

static int protect_writable(int fd)
{
	uint8_t *base = map_for_reading(fd);

	if (mprotect(base, BYTES, PROT_READ | PROT_WRITE) != 0)
		return refused();
	memset(base, 0, BYTES);
	return 0;
}

static int protect_alias_writable(int fd)
{
	/* An old size of 0 makes a second mapping of the same pages. */
	uint8_t *base = mremap(map_for_reading(fd), 0, BYTES, MREMAP_MAYMOVE);

	if (base == MAP_FAILED ||
	    mprotect(base, BYTES, PROT_READ | PROT_WRITE) != 0)
		return refused();
	memset(base, 0, BYTES);
	return 0;
}

static int write_bytes(int fd)
{
	static const uint8_t zero[64];

	return pwrite(fd, zero, sizeof(zero), 0) < 0 ? refused() : 0;
}

static int copy_range(int fd)
{
	const int source = memfd_create("source", MFD_CLOEXEC);
	off_t from = 0;
	off_t to = 0;

	if (source < 0 || ftruncate(source, BYTES) != 0)
		_exit(NOT_MADE);
	return copy_file_range(source, &from, fd, &to, PAGE, 0) < 0 ?
		       refused() :
		       0;
}

static int splice_bytes(int fd)
{
	loff_t to = 0;
	int ends[2];

	if (pipe(ends) != 0 || write(ends[1], "hostile", 7) != 7)
		_exit(NOT_MADE);
	return splice(ends[0], NULL, fd, &to, 7, 0) < 0 ? refused() : 0;
}

static int punch_hole(int fd)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			 BYTES) != 0 ?
		       refused() :
		       0;
}

static int grow_by_fallocate(int fd)
{
	return fallocate(fd, 0, 0, BYTES + PAGE) != 0 ? refused() : 0;
}

static int advise_remove(int fd)
{
	return madvise(map_for_reading(fd), BYTES, MADV_REMOVE) != 0 ?
		       refused() :
		       0;
}

static int advise_populate_write(int fd)
{
	return madvise(map_for_reading(fd), BYTES, MADV_POPULATE_WRITE) != 0 ?
		       refused() :
		       0;
}

static int write_own_memory(int fd)
{
	uint8_t *base = map_for_reading(fd);
	const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	static const uint8_t zero[64];

	if (memory < 0)
		return refused();
	return pwrite(memory, zero, sizeof(zero), (off_t)(uintptr_t)base) < 0 ?
		       refused() :
		       0;
}

static int write_own_process(int fd)
{
	static uint8_t zero[64];
	const struct iovec from = { zero, sizeof(zero) };
	const struct iovec to = { map_for_reading(fd), sizeof(zero) };

	return process_vm_writev(getpid(), &from, 1, &to, 1, 0) < 0 ?
		       refused() :
		       0;
}

static int shrink(int fd)
{
	return ftruncate(fd, PAGE) != 0 ? refused() : 0;
}

static int grow(int fd)
{
	return ftruncate(fd, BYTES + PAGE) != 0 ? refused() : 0;
}

static int open_truncating(int fd)
{
	const int reopened = reopen(fd, O_RDWR | O_TRUNC);

	return reopened < 0 ? -reopened : 0;
}

static int seal_writing(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0 ? refused() : 0;
}

static int seal_future_writing(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0 ? refused() : 0;
}

static int seal_sealing(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) != 0 ? refused() : 0;
}

static int unlock_then(int fd, attempt_fn attempt)
{
	/*
	 * The file's owner may change the mode; that alone must gain nothing.
	 */
	(void)fchmod(fd, 0777);
	return through_reopened(fd, attempt);
}

#define REOPENED(attempt)                                                      \
	static int reopened_##attempt(int fd)                                  \
	{                                                                      \
		return through_reopened(fd, attempt);                          \
	}
REOPENED(map_writable)
REOPENED(write_bytes)
REOPENED(copy_range)
REOPENED(splice_bytes)
REOPENED(punch_hole)
REOPENED(grow_by_fallocate)
REOPENED(protect_writable)
REOPENED(advise_remove)
REOPENED(shrink)
REOPENED(grow)
REOPENED(seal_writing)
REOPENED(seal_future_writing)
REOPENED(seal_sealing)

static int unlocked_write_bytes(int fd)
{
	return unlock_then(fd, write_bytes);
}

static int unlocked_map_writable(int fd)
{
	return unlock_then(fd, map_writable);
}

enum victim {
	VICTIM_READ_ONLY = 0, /* as made for KV and revocation */
	VICTIM_SHARED = 1,    /* as made for a ring */
	VICTIM_UNSEALED = 2   /* O_RDONLY, but sealed against resizing only */
};

struct attack {
	enum victim victim;
	const char *name;
	attempt_fn attempt;
};

static const struct attack attacks[] = {
	{ VICTIM_READ_ONLY, "mmap PROT_WRITE", map_writable },
	{ VICTIM_READ_ONLY, "mmap PROT_READ, mprotect", protect_writable },
	{ VICTIM_READ_ONLY, "mremap alias, mprotect", protect_alias_writable },
	{ VICTIM_READ_ONLY, "write", write_bytes },
	{ VICTIM_READ_ONLY, "copy_file_range", copy_range },
	{ VICTIM_READ_ONLY, "splice", splice_bytes },
	{ VICTIM_READ_ONLY, "punch hole", punch_hole },
	{ VICTIM_READ_ONLY, "fallocate beyond the end", grow_by_fallocate },
	{ VICTIM_READ_ONLY, "MADV_REMOVE", advise_remove },
	{ VICTIM_READ_ONLY, "MADV_POPULATE_WRITE", advise_populate_write },
	{ VICTIM_READ_ONLY, "write own /proc/self/mem", write_own_memory },
	{ VICTIM_READ_ONLY, "process_vm_writev to itself", write_own_process },
	{ VICTIM_READ_ONLY, "ftruncate shorter", shrink },
	{ VICTIM_READ_ONLY, "ftruncate longer", grow },
	{ VICTIM_READ_ONLY, "add F_SEAL_WRITE", seal_writing },
	{ VICTIM_READ_ONLY, "reopen O_TRUNC", open_truncating },
	{ VICTIM_READ_ONLY, "reopen, mmap PROT_WRITE", reopened_map_writable },
	{ VICTIM_READ_ONLY, "reopen, mmap, mprotect",
	  reopened_protect_writable },
	{ VICTIM_READ_ONLY, "reopen, write", reopened_write_bytes },
	{ VICTIM_READ_ONLY, "reopen, copy_file_range", reopened_copy_range },
	{ VICTIM_READ_ONLY, "reopen, splice", reopened_splice_bytes },
	{ VICTIM_READ_ONLY, "reopen, punch hole", reopened_punch_hole },
	{ VICTIM_READ_ONLY, "reopen, fallocate beyond the end",
	  reopened_grow_by_fallocate },
	{ VICTIM_READ_ONLY, "reopen, MADV_REMOVE", reopened_advise_remove },
	{ VICTIM_READ_ONLY, "reopen, ftruncate shorter", reopened_shrink },
	{ VICTIM_READ_ONLY, "reopen, ftruncate longer", reopened_grow },
	{ VICTIM_READ_ONLY, "reopen, add F_SEAL_WRITE", reopened_seal_writing },
	{ VICTIM_READ_ONLY, "reopen, add F_SEAL_SEAL", reopened_seal_sealing },
	{ VICTIM_READ_ONLY, "fchmod, reopen, write", unlocked_write_bytes },
	{ VICTIM_READ_ONLY, "fchmod, reopen, mmap PROT_WRITE",
	  unlocked_map_writable },
	{ VICTIM_SHARED, "ftruncate shorter", shrink },
	{ VICTIM_SHARED, "ftruncate longer", grow },
	{ VICTIM_SHARED, "fallocate beyond the end", grow_by_fallocate },
	{ VICTIM_SHARED, "reopen O_TRUNC", open_truncating },
	{ VICTIM_SHARED, "add F_SEAL_WRITE", seal_writing },
	{ VICTIM_SHARED, "add F_SEAL_FUTURE_WRITE", seal_future_writing },
	{ VICTIM_UNSEALED, "mmap PROT_WRITE", map_writable },
	{ VICTIM_UNSEALED, "reopen, write", reopened_write_bytes },
	{ VICTIM_UNSEALED, "reopen, mmap PROT_WRITE", reopened_map_writable },
	{ VICTIM_UNSEALED, "reopen, punch hole", reopened_punch_hole },
	{ VICTIM_UNSEALED, "fchmod, reopen, write", unlocked_write_bytes },
	{ VICTIM_UNSEALED, "reopen, add F_SEAL_FUTURE_WRITE",
	  reopened_seal_future_writing },
};

static const char *const victim_names[] = { "read-only", "shared",
					    "not sealed" };

/* Without the two seals that matter: made by hand. */
static int make_unsealed(struct kvpull_shared *shared)
{
	const int fd =
		memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, BYTES) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
		return -1;
	*shared = (struct kvpull_shared){
		.bytes = BYTES,
		.base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			     fd, 0),
		.fd = reopen(fd, O_RDONLY),
	};
	(void)close(fd);
	return shared->base == MAP_FAILED || shared->fd < 0 ? -1 : 0;
}

static int make_victim(struct kvpull_shared *shared, enum victim victim)
{
	int code;

	if (victim == VICTIM_UNSEALED)
		code = make_unsealed(shared);
	else
		code = kvpull_segment_make(shared, "victim", BYTES,
					   victim == VICTIM_SHARED ?
						   KVPULL_SEGMENT_SHARED :
						   KVPULL_SEGMENT_READ_ONLY,
					   0, NULL);
	if (code == 0)
		memset(shared->base, FILL, BYTES);
	return code;
}

static int is_harmed(const struct kvpull_shared *shared)
{
	struct stat status;
	size_t at;

	/* The size first: beyond the end a look is SIGBUS. */
	if (fstat(shared->fd, &status) != 0 || status.st_size != BYTES)
		return 1;
	for (at = 0; at < BYTES; at++)
		if (shared->base[at] != FILL)
			return 1;
	return 0;
}

/* Give up root for good, but keep the /proc rights of an ordinary process. */
static int become(uid_t uid)
{
	if (uid == getuid())
		return 0;
	if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
		return -1;
	return prctl(PR_SET_DUMPABLE, 1);
}

/* The attempt's errno, 0 if it was allowed, -1 if it could not be made. */
static int attack_as(const struct attack *attack, int fd, uid_t uid)
{
	int status = -1;
	pid_t child;

	(void)fflush(NULL);
	child = fork();
	if (child < 0)
		return -1;
	if (child == 0) {
		if (become(uid) != 0)
			_exit(NOT_MADE);
		errno = 0;
		/* Errnos fit an exit status. */
		_exit(attack->attempt(fd) & 0xff);
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
	    WEXITSTATUS(status) == NOT_MADE)
		return -1;
	return WEXITSTATUS(status);
}

/* Runs a row; 0 if the result is the expected one. */
static int run_attack(const struct attack *attack, uid_t uid)
{
	struct kvpull_shared shared;
	int came_to;
	int harmed;
	int failed;

	if (make_victim(&shared, attack->victim) != 0) {
		perror("cannot make a segment");
		return 1;
	}
	came_to = attack_as(attack, shared.fd, uid);
	harmed = is_harmed(&shared);
	failed = came_to <= 0 || harmed;
	/* The proof: to be refused is to fail. The direct way is closed too. */
	if (attack->victim == VICTIM_UNSEALED &&
	    attack->attempt != map_writable)
		failed = came_to != 0 ||
			 (!harmed &&
			  attack->attempt != reopened_seal_future_writing);
	printf("%-11s %-33s %6u  %-14s %s\n", victim_names[attack->victim],
	       attack->name, uid,
	       came_to < 0  ? "not made" :
	       came_to == 0 ? "allowed" :
			      strerrorname_np(came_to),
	       failed ? "FAILED" : "ok");
	kvpull_segment_unmake(&shared);
	return failed;
}

int main(void)
{
	const uid_t uids[] = { getuid(), NOBODY };
	const size_t attack_count = sizeof(attacks) / sizeof(*attacks);
	const size_t uid_count = getuid() == 0 ? 2 : 1;
	size_t failed_count = 0;
	size_t uid_index;
	size_t index;

	printf("%-11s %-33s %6s  %-14s\n", "segment", "attempt", "uid",
	       "came to");
	for (uid_index = 0; uid_index < uid_count; uid_index++)
		for (index = 0; index < attack_count; index++)
			failed_count +=
				(size_t)run_attack(&attacks[index],
						   uids[uid_index]) != 0;
	if (uid_count == 1)
		printf("skipped: all as another uid, which needs root\n");
	printf("%zu passed, %zu failed, %zu skipped\n",
	       attack_count * uid_count - failed_count, failed_count,
	       attack_count * (2 - uid_count));
	return failed_count != 0;
}
