/* SPDX-License-Identifier: Apache-2.0 */
/* An owner whose chunks are memory of its engine's own, which has a name. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/share/handle.h"

#define FIRST 8192u /* where the chunks begin */
#define BYTES (FIRST + HANDLE_CHUNKS * HANDLE_CHUNK_BYTES)

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;
static char path[] = "/dev/shm/kvpull-test-XXXXXX";
static uint8_t *mapped;
static int fd;

static void begin(const char *more)
{
	memcpy(path, "/dev/shm/kvpull-test-XXXXXX", sizeof(path));
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(mapped != MAP_FAILED);
	handle_begin(&world, more);
}

UNIT_FIXTURE(setup)
{
	begin("");
}

UNIT_FIXTURE(setup_no_uring)
{
	begin(",\"uring\":\"no\"");
}

UNIT_FIXTURE(teardown)
{
	handle_end(&world);
	(void)munmap(mapped, BYTES);
	(void)close(fd);
	(void)unlink(path);
}

static struct kvpull_reader_share share_of(int shared_fd)
{
	return (struct kvpull_reader_share){
		.struct_size = sizeof(struct kvpull_reader_share),
		.chunk_bytes = HANDLE_CHUNK_BYTES,
		.chunk_count = HANDLE_CHUNKS,
		.flags = KVPULL_READER_SHARE_FD,
		.fd = shared_fd,
		.fd_offset = FIRST,
		.base = mapped + FIRST,
	};
}

static int share(int shared_fd)
{
	const struct kvpull_reader_share params = share_of(shared_fd);

	return handle_share_as(&world, &params);
}

static void share_and_connect(void)
{
	world.owner = handle_open(&world, 0, NULL);
	assert_int_equal(share(fd), 0);
	assert_ptr_equal(world.memory.base, mapped + FIRST);
	assert_int_equal(world.memory.fd, -1);
	handle_fill_first(&world, HANDLE_CHUNKS);
	handle_connect(&world);
}

/* All keys are asked for, and read. */
static int32_t read_all(int32_t codes[HANDLE_CHUNKS])
{
	struct kvpull_reader_place places[HANDLE_CHUNKS];
	struct kvpull_reader_record record;

	assert_int_equal(handle_probed(&world, HANDLE_CHUNKS, places, &record),
			 HANDLE_CHUNKS);
	return handle_read_end(&world, places, HANDLE_CHUNKS,
			       record.incarnation, codes);
}

static void expect_all(void)
{
	int32_t codes[HANDLE_CHUNKS];
	uint32_t at;

	share_and_connect();
	assert_int_equal(read_all(codes), 0);
	for (at = 0; at < HANDLE_CHUNKS * HANDLE_CHUNK_BYTES; at++)
		assert_int_equal(world.blocks[at], at / HANDLE_CHUNK_BYTES + 1);
}

UNIT_TEST_WITH(its_bytes_are_read, setup, teardown)
{
	expect_all();
}

UNIT_TEST_WITH(without_io_uring_by_a_thread, setup_no_uring, teardown)
{
	expect_all();
}

static void expect_shortened(void)
{
	int32_t codes[HANDLE_CHUNKS];
	uint32_t at;

	share_and_connect();
	/* In the middle of chunk 5. */
	assert_int_equal(ftruncate(fd, FIRST + 11 * HANDLE_CHUNK_BYTES / 2), 0);
	assert_int_equal(read_all(codes), KVPULL_EREAD);
	for (at = 0; at < HANDLE_CHUNKS; at++) {
		assert_int_equal(codes[at], at < 5 ? 0 : KVPULL_EREAD);
		if (at < 5)
			assert_int_equal(
				world.blocks[(at + 1) * HANDLE_CHUNK_BYTES - 1],
				at + 1);
	}
	assert_int_equal(handle_settle(&world), 0);
}

UNIT_TEST_WITH(pieces_behind_its_new_end_fail_alone, setup, teardown)
{
	expect_shortened();
}

UNIT_TEST_WITH(likewise_by_a_thread, setup_no_uring, teardown)
{
	expect_shortened();
}

UNIT_TEST_WITH(it_is_handed_over_for_reading_and_not_mapped, setup, teardown)
{
	const struct kvpull_region_view *region;
	char line[256];
	FILE *maps;
	uint32_t count = 0;

	share_and_connect();
	region = &world.owner->serve->regions[KVPULL_SHARE_REGION_CHUNKS];
	assert_int_equal(fcntl(region->fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	maps = fopen("/proc/self/maps", "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, path) != NULL;
	(void)fclose(maps);
	assert_int_equal(count, 1); /* our own */
}

static uint32_t mode_now(void)
{
	struct stat status;

	assert_int_equal(fstat(fd, &status), 0);
	return status.st_mode & 07777;
}

/* Why it is not shared is said. */
static void expect_refused(int shared_fd, const char *why)
{
	const struct kvpull_reader_share params = share_of(shared_fd);

	handle_refused(&world, &params, why);
}

UNIT_TEST_WITH(one_owner_at_a_time_until_it_closes, setup, teardown)
{
	int other = open(path, O_RDWR | O_CLOEXEC);

	share_and_connect();
	assert_int_equal(mode_now(), 01600);
	expect_refused(other, "another owner shares it");
	/* The engine needs its own no more; a file that stays open is locked. */
	(void)close(fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	expect_refused(other, "another owner shares it");
	world.ops->close(world.owner);
	assert_int_equal(mode_now(), 0600);
	world.owner = handle_open(&world, 0, NULL);
	assert_int_equal(share(other), 0);
	(void)close(other);
}

UNIT_TEST_WITH(what_others_can_write_or_nobody_lock_is_refused, setup, teardown)
{
	const int readable = open(path, O_RDONLY | O_CLOEXEC);

	expect_refused(readable, "open for writing");
	(void)close(readable);
	assert_int_equal(mode_now(), 0600);
	expect_refused(-1, "not an open descriptor");
	assert_int_equal(fchmod(fd, 0620), 0);
	expect_refused(fd, "written by other users");
	assert_int_equal(fchmod(fd, 0644), 0);
	assert_int_equal(ftruncate(fd, BYTES - 1), 0);
	expect_refused(fd, "shorter");
	assert_int_equal(mode_now(), 0644);
}

UNIT_TEST_WITH(another_uids_file_is_refused, setup, teardown)
{
	if (fchown(fd, 1, (gid_t)-1))
		skip(); /* not root */
	expect_refused(fd, "another uid");
}

UNIT_TEST_WITH(flags_and_members_fit_each_other, setup, teardown)
{
	struct kvpull_reader_share params = share_of(fd);
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };

	world.owner = handle_open(&world, 0, NULL);
	params.flags |= KVPULL_MEMORY_HUGE;
	assert_int_equal(world.ops->share(world.owner, &params, &memory, NULL),
			 KVPULL_EINVAL);
	params.flags = 0;
	assert_int_equal(world.ops->share(world.owner, &params, &memory, NULL),
			 KVPULL_EINVAL);
	assert_int_equal(share(fd), 0);
}

/* In a child, until it is killed. */
static pid_t owner_elsewhere(char address[256], int is_lent)
{
	int pipes[2];
	size_t byte_count;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid) {
		(void)close(pipes[1]);
		assert_int_equal(read(pipes[0], address, 256), 256);
		(void)close(pipes[0]);
		return pid;
	}
	if (is_lent) {
		world.owner = handle_open(&world, 0, NULL);
		if (share(fd))
			_exit(1);
	} else {
		handle_owner(&world);
	}
	if (world.ops->address(world.owner, address, 256, &byte_count) ||
	    write(pipes[1], address, 256) != 256)
		_exit(1);
	while (!world.ops->poll(world.owner, NULL, 0,
				sizeof(struct kvpull_reader_record)))
		;
	_exit(1);
}

/* Checks guards by the route after the owner was killed. */
static int check_after_death(int is_lent)
{
	static const uint32_t slot = 0;
	struct kvpull_revocation_value value;
	struct kvpull_read read = { .slots = &slot,
				    .entries = &value,
				    .slot_count = 1 };
	struct kvpull_transport *transport;
	char address[256];
	const pid_t pid = owner_elsewhere(address, is_lent);
	const struct kvpull_share_link *link;
	char socket_path[512];
	int code;

	handle_reader(&world);
	handle_add(&world, address);
	assert_int_equal(handle_settle(&world), 0);
	link = handle_link(&world);
	transport = link->peer.route->transport;
	assert_int_equal(transport->ops->check_start(transport,
						     link->peer.handle, &read),
			 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	code = transport->ops->check_start(transport, link->peer.handle, &read);
	assert_int_equal(handle_peer(&world, world.peer).code, 0);
	(void)snprintf(socket_path, sizeof(socket_path), "%s/%s",
		       world.world.folder, strchr(address, ':') + 1);
	assert_int_equal(unlink(socket_path), 0);
	return code;
}

UNIT_TEST_WITH(of_a_dead_owner_it_is_not_believed, setup, teardown)
{
	int other;

	assert_int_equal(check_after_death(1), KVPULL_EPEER);
	/* Nor shared again: who read the dead one would read ours. */
	assert_int_equal(mode_now(), 01600);
	expect_refused(fd, "was shared by an owner that was killed");
	/* A refused file is not left locked. */
	other = open(path, O_RDWR | O_CLOEXEC);
	expect_refused(other, "was shared by an owner that was killed");
	(void)close(other);
}

UNIT_TEST_WITH(sealed_memory_of_a_dead_owner_is_its_own, setup, teardown)
{
	assert_int_equal(check_after_death(0), 1);
}
