/* SPDX-License-Identifier: Apache-2.0 */
/* F14: an owner's own memory, a file with a name. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/scenario/f14.h"

#define BYTES ((size_t)F14_CHUNKS * F14_CHUNK_BYTES)

struct f14_arena *f14_arena_of_file(void)
{
	struct f14_arena *arena = f14_arena_make();

	if (scenario_is_remote())
		scenario_refuse("what a file does to a mapping is local");
	(void)snprintf(arena->path, sizeof(arena->path),
		       "/dev/shm/kvpull-f14-%d.mmap", (int)getpid());
	(void)unlink(arena->path);
	return arena;
}

void f14_file_make(const char *path, struct kvpull_reader_share *share)
{
	share->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (share->fd < 0 || ftruncate(share->fd, (off_t)BYTES))
		scenario_fail("owner: its file");
	share->base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			   share->fd, 0);
	if (share->base == MAP_FAILED)
		scenario_fail("owner: its mapping");
	share->flags = KVPULL_READER_SHARE_FD;
}

/* Another handle, by another description of the same file. */
static void second_owner(const struct scenario *scenario, const char *path)
{
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = F14_CHUNK_BYTES,
		.chunk_count = 1,
		.flags = KVPULL_READER_SHARE_FD,
		.fd = open(path, O_RDWR | O_CLOEXEC),
	};
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct kvpull_reader_ops *ops;
	char said[512];
	struct kvpull_reader *handle =
		f14_handle_open(scenario, &ops, "w1", said);

	scenario_check(ops->share(handle, &share, &memory, &detail) ==
				       KVPULL_EINVAL &&
			       strstr(detail.message, "another owner"),
		       "a second owner: %s", detail.message);
	scenario_say("%s", detail.message);
	ops->close(handle);
	(void)close(share.fd);
}

static void owner_rests(struct f14_arena *arena)
{
	while (atomic_load_explicit(&arena->newest, memory_order_relaxed) <
	       2 * F14_CHUNKS)
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	atomic_store_explicit(&arena->rest, F14_REST_ASKED,
			      memory_order_relaxed);
	/* Pairs with the release in owner_main(). */
	while (atomic_load_explicit(&arena->rest, memory_order_acquire) !=
	       F14_REST_TAKEN)
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
}

void f14_shortened(const struct scenario *scenario)
{
	struct f14_arena *arena = f14_arena_of_file();
	const pid_t pid = f14_owner_start(scenario, arena);
	struct f14_reader reader;
	uint64_t good;
	int code;

	scenario_check(!f14_reader_start(&reader, scenario, arena, "w1"),
		       "not connected");
	owner_rests(arena);
	second_owner(scenario, arena->path);
	code = f14_try(&reader, arena);
	good = reader.good;
	scenario_check(!code && good, "%d before the cut", code);
	scenario_check(!truncate(arena->path, BYTES / 2), "truncate");
	code = f14_try(&reader, arena);
	scenario_check(code == KVPULL_EREAD && !reader.wrong && !reader.stale &&
			       reader.good == good + good / 2,
		       "%d, %llu good after the cut, %llu before", code,
		       (unsigned long long)(reader.good - good),
		       (unsigned long long)good);
	f14_reader_stop(&reader);
	f14_owner_stop(arena, pid);
	(void)unlink(arena->path);
}

/* Kills the owner, and writes where it wrote as soon as it is dead. */
static pid_t successor_start(const char *path, pid_t owner, uint64_t after_ns)
{
	const pid_t pid = fork();
	struct pollfd dead = { .events = POLLIN };
	void *mapped;

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		      open(path, O_RDWR | O_CLOEXEC), 0);
	dead.fd = (int)syscall(SYS_pidfd_open, owner, 0);
	if (mapped == MAP_FAILED || dead.fd < 0)
		_exit(1);
	scenario_sleep_ns(after_ns);
	(void)kill(owner, SIGKILL);
	(void)poll(&dead, 1, -1);
	memset(mapped, 0x5a, BYTES);
	_exit(0);
}

/* Return: pieces that were good. */
static uint64_t successor_round(const struct scenario *scenario,
				struct f14_arena *arena)
{
	const pid_t owner = f14_owner_start(scenario, arena);
	struct f14_reader reader;
	pid_t successor;
	int status = -1;
	int code = 0;

	scenario_check(!f14_reader_start(&reader, scenario, arena, "w1"),
		       "not connected");
	successor = successor_start(arena->path, owner,
				    20 * SCENARIO_NS_PER_MS +
					    random_next(&reader.random) %
						    F14_NAP_NS_MAX);
	scenario_check(successor > 0, "fork");
	while (!code)
		code = f14_try(&reader, arena);
	scenario_check(code == KVPULL_EPEER || code == KVPULL_EAGAIN,
		       "ended with %d", code);
	scenario_check(!reader.wrong, "wrong bytes were believed");
	f14_reader_stop(&reader);
	(void)waitpid(owner, NULL, 0);
	(void)waitpid(successor, &status, 0);
	scenario_check(!status, "the successor failed");
	(void)unlink(arena->path);
	return reader.good;
}

void f14_successor(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 200 : 20;
	struct f14_arena *arena = f14_arena_of_file();
	uint64_t good = 0;
	uint32_t round;

	for (round = 0; round < rounds; round++)
		good += successor_round(scenario, arena);
	scenario_say("%u owners killed, %llu good pieces", rounds,
		     (unsigned long long)good);
	scenario_check(good > rounds, "nothing was read");
}
