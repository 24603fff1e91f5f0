/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory by CUDA's driver, which is a fake: memory, copies, errors, ends. */
#include "tests/unit/cuda/world.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/fake/cuda/cuda.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

#define BYTES (2 * FAKE_GRANULARITY)
#define PIECES KVPULL_DEVICE_PIECES_MAX
#define PIECE_BYTES 4096u
#define LATE_US "3000"
#define FILL 0x5a

static uint8_t pattern[BYTES];
static uint8_t found[BYTES];

static void pattern_make(uint64_t seed)
{
	size_t at;

	for (at = 0; at < sizeof(pattern); at += sizeof(seed)) {
		const uint64_t word = random_next(&seed);

		memcpy(pattern + at, &word, sizeof(word));
	}
}

/* ---- open ---- */

/* The open of this device is refused, and one line says why. */
static void is_unsupported(int index, const char *line)
{
	log_begin();
	MUST(kvpull_cuda_open(&world.arena, &world.log, index, &world.device) ==
	     KVPULL_EUNSUPPORTED);
	MUST(lines.bad_count == 1);
	MUST(strstr(lines.bad, line));
	kvpull_arena_fini(&world.arena);
}

static void without_driver(void)
{
	is_unsupported(0, "cuda: no driver on this host: libcuda.so.1");
}

UNIT_TEST(host_without_a_driver_is_unsupported_in_one_line)
{
	void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library) {
		(void)dlclose(library);
		skip();
	}
	assert_int_equal(end_of(without_driver), 0);
}

UNIT_TEST_IN_CHILD(driver_without_a_call_is_named)
{
	(void)setenv("FAKE_CUDA_VERSION", "11020", 1);
	fake_load();
	is_unsupported(0, "has no cuDeviceGetUuid of version 11040");
	MUST(!world.fake_calls());
}

UNIT_TEST_IN_CHILD(device_that_is_not_there_is_named)
{
	fake_load();
	is_unsupported(1, "device 1: cuDeviceGet: 101 ");
}

UNIT_TEST_IN_CHILD(device_without_descriptors_is_named)
{
	(void)setenv("FAKE_CUDA_POSIX_FD", "0", 1);
	fake_load();
	is_unsupported(0, "device 0 cannot share its memory");
}

/* ---- memory ---- */

static void zeroed(void)
{
	struct kvpull_device_memory memory;

	memory = world_open_with(FAKE_GRANULARITY + 1);
	MUST(memory.bytes == BYTES);
	MUST(memory.access == KVPULL_DEVICE_READ_WRITE);
	bytes_get(memory.address, found, BYTES);
	MUST(!memcmp(found, pattern, BYTES));
	world.ops->unmap(world.device, &memory);
	MUST(!memory.address);
	/* No memory is no error. */
	world.ops->unmap(world.device, &memory);
	MUST(!lines.bad_count);
	world_close();
}

UNIT_TEST(memory_is_rounded_up_and_zeroed)
{
	memset(pattern, 0, sizeof(pattern));
	assert_int_equal(end_of(zeroed), 0);
}

static void descriptor_sent(int socket, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	char byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	MUST(sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}

static int descriptor_taken(int socket)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control;
	char byte;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	int fd;

	MUST(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1);
	MUST(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/* Each piece from another place; a gap stays between two targets. */
static void pieces_copied(uint64_t target, uint64_t source)
{
	static uint64_t targets[PIECES];
	static uint64_t sources[PIECES];
	static size_t bytes[PIECES];
	const struct kvpull_device_pieces pieces = { targets, sources, bytes,
						     PIECES };
	uint32_t at;

	for (at = 0; at < PIECES; at++) {
		targets[at] = target + at * 2 * PIECE_BYTES;
		sources[at] =
			source + (at * 7 % PIECES) * 2 * (uint64_t)PIECE_BYTES;
		bytes[at] = PIECE_BYTES;
	}
	MUST(!world.ops->copy(world.device, &pieces));
}

static void pieces_compared(uint64_t target)
{
	static const uint8_t zeros[PIECE_BYTES];
	uint32_t at;

	bytes_get(target, found, BYTES);
	for (at = 0; at < PIECES; at++) {
		const uint8_t *have = found + at * 2 * PIECE_BYTES;

		MUST(!memcmp(have,
			     pattern + (at * 7 % PIECES) * 2 *
					       (size_t)PIECE_BYTES,
			     PIECE_BYTES));
		MUST(!memcmp(have + PIECE_BYTES, zeros, PIECE_BYTES));
	}
}

static void consumer(int socket)
{
	struct kvpull_device_memory foreign;
	struct kvpull_device_memory own;
	struct kvpull_device_event *event;
	int fd;

	world_open();
	fd = descriptor_taken(socket);
	MUST(!world.ops->import_fd(world.device, fd, BYTES, world.device->uuid,
				   &foreign));
	(void)close(fd);
	MUST(foreign.access == KVPULL_DEVICE_READ);
	own = memory_of(BYTES);
	event = event_of_device();
	pieces_copied(own.address, foreign.address);
	MUST(!copies_end(event));
	pieces_compared(own.address);
	world.ops->event_close(world.device, event);
	world.ops->unmap(world.device, &foreign);
	world.ops->unmap(world.device, &own);
	MUST(!lines.bad_count);
	world_close();
}

static void producer(int socket)
{
	struct kvpull_device_memory memory;
	int fd;

	memory = world_open_with(BYTES);
	bytes_put(memory.address, pattern, BYTES);
	MUST(!world.ops->export_fd(world.device, &memory, &fd));
	MUST(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	descriptor_sent(socket, fd);
	(void)close(fd);
	MUST(wait(&fd) > 0 && !fd);
	world_close_with(&memory);
}

/* Neither process has made a call of the driver before they part. */
static void two_processes(void)
{
	int sockets[2];

	MUST(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets));
	if (!fork()) {
		consumer(sockets[1]);
		exit(0);
	}
	producer(sockets[0]);
}

UNIT_TEST(another_process_maps_memory_and_copies_the_right_bytes)
{
	static const char *const versions[] = { "12000", "12080", "13000" };
	uint32_t at;

	pattern_make(34);
	for (at = 0; at < 3; at++) {
		(void)setenv("FAKE_CUDA_VERSION", versions[at], 1);
		assert_int_equal(end_of(two_processes), 0);
	}
	(void)unsetenv("FAKE_CUDA_VERSION");
}

static void for_stores(void)
{
	struct kvpull_device_memory foreign;
	struct kvpull_device_memory own;
	int fd;

	own = world_open_with(BYTES);
	MUST(!world.ops->export_fd(world.device, &own, &fd));
	MUST(!world.ops->import_fd(world.device, fd, BYTES, world.device->uuid,
				   &foreign));
	MUST(foreign.access == KVPULL_DEVICE_READ_WRITE);
	MUST(lines.bad_count == 1 &&
	     strstr(lines.bad, "mapped for stores, too"));
	(void)close(fd);
	world.ops->unmap(world.device, &foreign);
	world_close_with(&own);
}

UNIT_TEST(driver_without_mappings_for_reads_gives_one_for_stores)
{
	(void)setenv("FAKE_CUDA_READ", "801", 1);
	assert_int_equal(end_of(for_stores), 0);
	(void)setenv("FAKE_CUDA_READ", "1", 1);
	assert_int_equal(end_of(for_stores), 0);
	(void)unsetenv("FAKE_CUDA_READ");
}

UNIT_TEST_IN_CHILD(store_into_a_peers_memory_ends_the_device)
{
	struct kvpull_device_memory foreign;
	struct kvpull_device_memory own;
	struct kvpull_device_event *event;
	int fd;

	world_open();
	event = event_of_device();
	own = memory_of(BYTES);
	MUST(!world.ops->export_fd(world.device, &own, &fd));
	MUST(!world.ops->import_fd(world.device, fd, BYTES, world.device->uuid,
				   &foreign));
	(void)close(fd);
	MUST(!copy_one(foreign.address, own.address, 64));
	MUST(copies_end(event) == KVPULL_EDEVICE);
	/* A lost device keeps what it has: no look for leaks. */
	leave();
}

UNIT_TEST_IN_CHILD(false_claims_of_a_peer_are_refused)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct kvpull_device_memory foreign = { .address = 1 };
	struct kvpull_device_memory own;
	struct kvpull_device *device;
	int fd;

	world_open();
	device = world.device;
	own = memory_of(BYTES);
	MUST(!world.ops->export_fd(device, &own, &fd));
	MUST(world.ops->import_fd(device, fd, 0, device->uuid, &foreign) ==
	     KVPULL_EPROTO);
	MUST(world.ops->import_fd(device, fd, BYTES - 1, device->uuid,
				  &foreign) == KVPULL_EPROTO);
	MUST(world.ops->import_fd(device, fd, UINT64_MAX, device->uuid,
				  &foreign) == KVPULL_EPROTO);
	MUST(world.ops->import_fd(device, -1, BYTES, device->uuid, &foreign) ==
	     KVPULL_EINVAL);
	MUST(!lines.bad_count);
	MUST(world.ops->import_fd(device, fd, 2 * BYTES, device->uuid,
				  &foreign) == KVPULL_EROUTE);
	MUST(lines.bad_count == 1 && strstr(lines.bad, "cuMemMap: 1 "));
	MUST(world.ops->import_fd(device, null, BYTES, device->uuid,
				  &foreign) == KVPULL_EROUTE);
	MUST(lines.bad_count == 2);
	MUST(strstr(lines.bad, "cuMemImportFromShareableHandle: 1 "));
	MUST(foreign.address == 1);
	(void)close(fd);
	(void)close(null);
	world.fds--; /* null was opened before they were counted */
	world.ops->unmap(device, &own);
	world_close();
}

static void unreachable(void)
{
	struct kvpull_device_memory foreign;
	struct kvpull_device_memory own;
	int fd;

	own = world_open_with(BYTES);
	MUST(!world.ops->export_fd(world.device, &own, &fd));
	MUST(world.ops->import_fd(world.device, fd, BYTES, world.device->uuid,
				  &foreign) == KVPULL_EROUTE);
	MUST(lines.bad_count == 1 && strstr(lines.bad, getenv("WANTED")));
	(void)close(fd);
	world_close_with(&own);
}

static int end_of_refused(const char *refusal, const char *wanted)
{
	int status;

	(void)setenv("FAKE_CUDA_REFUSE", refusal, 1);
	(void)setenv("WANTED", wanted, 1);
	status = end_of(unreachable);
	(void)unsetenv("FAKE_CUDA_REFUSE");
	return status;
}

UNIT_TEST(gpu_that_cannot_be_reached_is_told_with_what_to_do)
{
	assert_int_equal(end_of_refused("cuMemImportFromShareableHandle 101",
					": show both GPUs to both"),
			 0);
	assert_int_equal(end_of_refused("cuMemImportFromShareableHandle 217",
					": see nvidia-smi topo -p2p r"),
			 0);
}

UNIT_TEST_IN_CHILD(arguments_beyond_their_bounds_make_no_call)
{
	struct kvpull_device_memory memory = { 0 };
	struct kvpull_device_pieces pieces = { 0 };
	uint64_t calls;
	int fd;

	world_open();
	calls = world.fake_calls();
	MUST(world.ops->alloc(world.device, 0, &memory) == KVPULL_EINVAL);
	MUST(world.ops->alloc(world.device, UINT64_MAX, &memory) ==
	     KVPULL_EINVAL);
	MUST(world.ops->export_fd(world.device, &memory, &fd) == KVPULL_EINVAL);
	MUST(world.ops->copy(world.device, &pieces) == KVPULL_EINVAL);
	pieces.count = PIECES + 1;
	MUST(world.ops->copy(world.device, &pieces) == KVPULL_EINVAL);
	MUST(world.fake_calls() == calls && !lines.bad_count);
	world_close();
}

/* ---- order ---- */

static void marked(void)
{
	struct kvpull_device_memory memory;
	struct kvpull_device_event *event;
	struct kvpull_device_event *end;
	uint8_t byte;
	uint32_t i;

	memory = world_open_with(BYTES);
	event = event_of_device();
	end = event_of_device();
	/* A step in flight: its last store comes late. */
	for (i = 0; i < 8; i++)
		MUST(!world.calls->cuMemsetD8Async(memory.address, 1, 64,
						   world.stream));
	MUST(!world.calls->cuMemsetD8Async(memory.address, FILL, 64,
					   world.stream));
	MUST(world.ops->mark(world.device, (uint64_t)(uintptr_t)world.stream,
			     event) == 1);
	MUST(!world.ops->wait(world.device, event));
	MUST(!copy_one(memory.address + PIECE_BYTES, memory.address, 64));
	MUST(!copies_end(end));
	MUST(world.ops->query(world.device, event) == 1);
	bytes_get(memory.address + PIECE_BYTES, &byte, 1);
	MUST(byte == FILL);
	world.ops->event_close(world.device, event);
	world.ops->event_close(world.device, end);
	world_close_with(&memory);
}

UNIT_TEST(copy_behind_a_mark_comes_after_the_engines_work)
{
	(void)setenv("FAKE_CUDA_LATE_US", LATE_US, 1);
	assert_int_equal(end_of(marked), 0);
	(void)unsetenv("FAKE_CUDA_LATE_US");
}

/* The fake ends a program that makes other calls than relaxed ones meanwhile. */
UNIT_TEST_IN_CHILD(capture_has_no_mark_and_is_not_disturbed)
{
	struct kvpull_device_memory memory;
	struct kvpull_device_event *event;
	int mode = 0;

	world_open();
	event = event_of_device();
	(void)world.fake_capture(world.stream, 1);
	MUST(!world.ops->mark(world.device, (uint64_t)(uintptr_t)world.stream,
			      event));
	MUST(!world.ops->mark(world.device, 0, event));
	memory = memory_of(BYTES);
	MUST(world.ops->query(world.device, event) == 1);
	world.ops->unmap(world.device, &memory);
	(void)world.fake_capture(world.stream, 0);
	MUST(!lines.bad_count);
	/* The engine's thread is as strict as it was. */
	MUST(!world.calls->cuThreadExchangeStreamCaptureMode(&mode));
	MUST(mode == 0);
	MUST(world.ops->mark(world.device, (uint64_t)(uintptr_t)world.stream,
			     event) == 1);
	while (!world.ops->query(world.device, event))
		;
	world.ops->event_close(world.device, event);
	world_close();
}

UNIT_TEST_IN_CHILD(threads_context_is_as_it_was)
{
	struct gpu_stream *stream;
	struct kvpull_device_memory memory;

	fake_load();
	log_begin();
	MUST(!device_open());
	memory = memory_of(1);
	MUST(world.calls->cuStreamCreate(&stream, GPU_STREAM_NON_BLOCKING) ==
	     GPU_EINVALID_CONTEXT);
	world.ops->unmap(world.device, &memory);
	world.ops->close(world.device);
}

/* ---- ends ---- */

/* Each call of the table: all are @code, but for those that return nothing. */
static void all_calls_are(int code, struct kvpull_device_memory *memory,
			  struct kvpull_device_event *event)
{
	struct kvpull_device *const device = world.device;
	struct kvpull_device_memory none;
	struct kvpull_device_event *other;
	int fd;

	MUST(world.ops->alloc(device, 1, &none) == code);
	MUST(world.ops->export_fd(device, memory, &fd) == code);
	MUST(world.ops->import_fd(device, 0, BYTES, device->uuid, &none) ==
	     code);
	MUST(world.ops->event_open(device, &other) == code);
	MUST(copy_one(memory->address, memory->address + 64, 64) == code);
	MUST(gather_one(memory->address, memory->address + 64, 64) == code);
	MUST(world.ops->record(device, event) == code);
	MUST(world.ops->query(device, event) == code);
	MUST(world.ops->mark(device, (uint64_t)(uintptr_t)world.stream,
			     event) == code);
	MUST(world.ops->wait(device, event) == code);
	MUST(world.ops->is_lost(device));
	world.ops->event_close(device, event);
	world.ops->unmap(device, memory);
	world.ops->close(device);
}

UNIT_TEST_IN_CHILD(child_of_fork_makes_no_call)
{
	struct kvpull_device_memory memory;
	struct kvpull_device_event *event;
	int status = 0;

	memory = world_open_with(BYTES);
	event = event_of_device();
	if (!fork()) {
		const uint64_t calls = world.fake_calls();

		all_calls_are(KVPULL_EDEVICE, &memory, event);
		MUST(world.fake_calls() == calls && !lines.bad_count);
		_exit(0);
	}
	MUST(wait(&status) > 0 && !status);
	MUST(!world.ops->is_lost(world.device));
	MUST(!copies_end(event));
	world.ops->event_close(world.device, event);
	world_close_with(&memory);
}

UNIT_TEST_IN_CHILD(device_that_is_lost_says_so_once_and_gets_no_call)
{
	struct kvpull_device_memory memory;
	struct kvpull_device_event *event;
	uint64_t calls;

	memory = world_open_with(BYTES);
	event = event_of_device();
	/* The fill ends beyond what is mapped: the caller has to know better. */
	MUST(!copy_one(memory.address + BYTES - 32, memory.address, 64));
	MUST(copies_end(event) == KVPULL_EDEVICE);
	MUST(lines.bad_count == 1 && strstr(lines.bad, "device 0 is lost"));
	calls = world.fake_calls();
	all_calls_are(KVPULL_EDEVICE, &memory, event);
	MUST(world.fake_calls() == calls && lines.bad_count == 1);
	/* The event of a lost device is never destroyed: no look for leaks. */
	leave();
}

UNIT_TEST(errors_are_sorted_by_what_they_end)
{
	static const int codes[] = { GPU_EINVALID_VALUE, GPU_EINVALID_DEVICE,
				     GPU_EINVALID_CONTEXT, GPU_ENOT_PERMITTED,
				     GPU_ENOT_SUPPORTED };
	static const int ends[] = {
		GPU_ENOT_INITIALIZED,   GPU_EDEINITIALIZED,
		GPU_EECC_UNCORRECTABLE, GPU_ENVLINK_UNCORRECTABLE,
		GPU_ECONTAINED,         GPU_EILLEGAL_ADDRESS,
		GPU_ELAUNCH_FAILED,     GPU_EUNKNOWN
	};
	size_t at;

	for (at = 0; at < sizeof(codes) / sizeof(*codes); at++) {
		assert_int_equal(kvpull_cuda_error(codes[at], KVPULL_CUDA_CALL),
				 KVPULL_EUNSUPPORTED);
		assert_int_equal(kvpull_cuda_error(codes[at], KVPULL_CUDA_COPY),
				 KVPULL_EREAD);
		assert_int_equal(kvpull_cuda_error(codes[at], KVPULL_CUDA_PEER),
				 KVPULL_EROUTE);
		assert_int_equal(
			kvpull_cuda_error(codes[at], KVPULL_CUDA_DEVICE),
			KVPULL_EDEVICE);
	}
	assert_int_equal(
		kvpull_cuda_error(GPU_EOUT_OF_MEMORY, KVPULL_CUDA_CALL),
		KVPULL_ENOMEM);
	assert_int_equal(
		kvpull_cuda_error(GPU_EOUT_OF_MEMORY, KVPULL_CUDA_PEER),
		KVPULL_EROUTE);
	for (at = 0; at < sizeof(ends) / sizeof(*ends); at++)
		assert_int_equal(kvpull_cuda_error(ends[at], KVPULL_CUDA_PEER),
				 KVPULL_EDEVICE);
}
