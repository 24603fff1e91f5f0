/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P's memory in D's hands: export, hand-over, import, and the times of each
 * call; what the driver refuses; what a process may do with a mapping.
 */
#include "tests/gpu/probe.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"

#define TIMES 10u       /* a call is timed so often */
#define BUSY_COPIES 40u /* of 1/16 of P's memory: 10 ms of 6 GiB on an H100 */
#define BUSY_PART 8u
#define CALLER_MS 60000
#define ENDS_PIECES 1024u /* that are compared at each end of a region */

/* The copies of one engine on memory of this process: work for the device. */
static void busy_begin(const struct region *scratch, uint32_t copies)
{
	const size_t half = scratch->bytes / 2;
	uint32_t i;

	for (i = 0; i < copies; i++)
		MUST(cuMemcpyDtoDAsync(scratch->address + half,
				       scratch->address, half, self.stream));
}

/* ---- between the two processes ---- */

enum order {
	ORDER_NONE = 0,
	ORDER_STAMP, /* P: write stamps of the seed `value` into all of it */
	ORDER_DIE    /* P: end by SIGKILL, with all memory mapped */
};

struct message {
	uint64_t order;
	uint64_t value;
	uint64_t bytes;
	uint8_t uuid[16];
};

static void message_send(int socket, const struct message *message, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct message copy = *message;
	struct iovec part = { &copy, sizeof(copy) };
	struct msghdr whole = { .msg_iov = &part, .msg_iovlen = 1 };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		whole.msg_control = &control;
		whole.msg_controllen = sizeof(control);
	}
	if (sendmsg(socket, &whole, MSG_NOSIGNAL) != sizeof(copy))
		fail("the other process is gone");
}

/* Return: 0; -1: the other process has ended the connection. */
static int message_take(int socket, struct message *message, int *fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control;
	struct iovec part = { message, sizeof(*message) };
	struct msghdr whole = { .msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof(control) };

	if (recvmsg(socket, &whole, 0) != (ssize_t)sizeof(*message))
		return -1;
	if (fd) {
		if (!CMSG_FIRSTHDR(&whole))
			fail("no descriptor came");
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&whole)), sizeof(*fd));
	}
	return 0;
}

static void nap_ms(uint64_t ms)
{
	const struct timespec nap =
		kvpull_clock_timespec(ms * KVPULL_NS_PER_MS);

	(void)nanosleep(&nap, NULL);
}

static int socket_open(const char *path, int is_server)
{
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	uint32_t tries;

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (is_server) {
		(void)unlink(path);
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
		    listen(fd, 1))
			fail("%s cannot be bound", path);
		return fd;
	}
	/* P takes and stamps its memory first. */
	for (tries = 0; tries < 600; tries++) {
		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
			return fd;
		nap_ms(100);
	}
	fail("nobody serves at %s", path);
	return -1;
}

/* The caller's orders, until it ends. */
static void caller_serve(int caller, const struct region *region)
{
	struct message message = { 0 };

	while (!message_take(caller, &message, NULL)) {
		if (message.order == ORDER_DIE) {
			(void)kill(getpid(), SIGKILL);
			/* PID 1 of a namespace is not killed by it. */
			_exit(128 + SIGKILL);
		}
		must(region_stamp(region, message.value), "stamp");
		message_send(caller, &message, -1);
	}
}

/* P serves one caller, and ends: whoever started it need not kill it. */
void serve(const char *path, uint64_t mib)
{
	struct region region;
	struct message hello = { .bytes = mib * MIB };
	struct pollfd waits = { .events = POLLIN };
	int caller;
	int fd;

	region_take(&region, mib * MIB, &fd);
	must(region_stamp(&region, 0), "stamp");
	MUST(cuDeviceGetUuid(hello.uuid, self.device));
	waits.fd = socket_open(path, 1);
	if (poll(&waits, 1, CALLER_MS) != 1)
		fail("nobody calls");
	caller = accept(waits.fd, NULL, NULL);
	message_send(caller, &hello, fd);
	caller_serve(caller, &region);
	(void)close(caller);
	(void)close(waits.fd);
	(void)close(fd);
	region_unmap(&region);
}

/* ---- D: what is mapped, and how long that takes ---- */

void peer_stamp(struct peer *peer, uint64_t seed)
{
	struct message message = { .order = ORDER_STAMP, .value = seed };

	message_send(peer->socket, &message, -1);
	if (message_take(peer->socket, &message, NULL))
		fail("P has ended");
	peer->seed = seed;
}

void peer_open(struct peer *peer, const char *path)
{
	uint8_t uuid[16];
	struct message hello = { 0 };

	peer->socket = socket_open(path, 0);
	if (message_take(peer->socket, &hello, &peer->fd))
		fail("P sent nothing");
	MUST(cuDeviceGetUuid(uuid, self.device));
	fact("share.same_device", "%s",
	     memcmp(uuid, hello.uuid, 16) ? "no" : "yes");
	peer->region.bytes = hello.bytes;
	peer->seed = 0;
}

void peer_close(struct peer *peer)
{
	(void)close(peer->socket);
	(void)close(peer->fd);
}

static int peer_map(struct peer *peer, int access)
{
	uint64_t handle;
	int code;

	/* The descriptor is passed as a pointer's value. */
	code = gpu.cuMemImportFromShareableHandle(
		&handle, (void *)(uintptr_t)peer->fd, GPU_HANDLE_POSIX_FD);
	if (code)
		return code;
	code = region_map(&peer->region, handle, access);
	MUST(cuMemRelease(handle));
	return code;
}

int peer_map_for_reads(struct peer *peer)
{
	const int code = peer_map(peer, GPU_ACCESS_READ);

	fact("share.map_read", "%d %s", code, name_of(code));
	if (!code)
		return GPU_ACCESS_READ;
	must(peer_map(peer, GPU_ACCESS_READ_WRITE),
	     "a mapping for reads and writes");
	return GPU_ACCESS_READ_WRITE;
}

/* The first and the last bytes hold P's stamps, read by the copy engine. */
static int is_right(const struct peer *peer)
{
	static struct gather_piece have[ENDS_PIECES];
	uint64_t pieces = peer->region.bytes / GATHER_PIECE_BYTES;
	uint64_t from[2] = { 0, pieces - ENDS_PIECES };
	uint32_t end;
	uint32_t i;

	for (end = 0; end < 2; end++) {
		MUST(cuMemcpyDtoHAsync(have,
				       peer->region.address +
					       from[end] * GATHER_PIECE_BYTES,
				       sizeof(have), self.stream));
		MUST(cuStreamSynchronize(self.stream));
		for (i = 0; i < ENDS_PIECES; i++)
			if (gather_differs(
				    have[i],
				    gather_stamp(peer->seed, from[end] + i)))
				return 0;
	}
	return 1;
}

enum timed {
	TIMED_IMPORT = 0,
	TIMED_RESERVE,
	TIMED_MAP,
	TIMED_ACCESS,
	TIMED_UNMAP,
	TIMED_CALLS
};

static const char *const timed_names[TIMED_CALLS] = { "import", "reserve",
						      "map", "set_access",
						      "unmap" };

#define TIME(which, call)                                                      \
	do {                                                                   \
		const double began = now_us();                                 \
		MUST(call);                                                    \
		took[which][at] = now_us() - began;                            \
	} while (0)

/* The calls of one attachment, while the device idles or is busy. */
static void calls_timed(const struct peer *peer, int access,
			const struct region *scratch)
{
	const struct gpu_access wanted = {
		.location = { GPU_LOCATION_DEVICE, self.device },
		.flags = access,
	};
	double took[TIMED_CALLS][TIMES];
	const size_t bytes = peer->region.bytes;
	uint64_t address;
	uint64_t handle;
	uint32_t at;
	char name[64];

	for (at = 0; at < TIMES; at++) {
		busy_begin(scratch, scratch->bytes ? BUSY_COPIES : 0);
		TIME(TIMED_IMPORT, cuMemImportFromShareableHandle(
					   &handle, (void *)(uintptr_t)peer->fd,
					   GPU_HANDLE_POSIX_FD));
		TIME(TIMED_RESERVE,
		     cuMemAddressReserve(&address, bytes, 0, 0, 0));
		TIME(TIMED_MAP, cuMemMap(address, bytes, 0, handle, 0));
		TIME(TIMED_ACCESS, cuMemSetAccess(address, bytes, &wanted, 1));
		TIME(TIMED_UNMAP, cuMemUnmap(address, bytes));
		MUST(cuMemAddressFree(address, bytes));
		MUST(cuMemRelease(handle));
		MUST(cuStreamSynchronize(self.stream));
	}
	for (at = 0; at < TIMED_CALLS; at++) {
		(void)snprintf(name, sizeof(name), "share.%s_%s",
			       timed_names[at],
			       scratch->bytes ? "busy" : "idle");
		measured(name, "us", took[at], TIMES);
	}
}

/* A foreign descriptor and a size that is claimed have to be refused. */
static void refusals_say(const struct peer *peer)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct peer larger = *peer;
	uint64_t handle = 0;
	int code;

	code = gpu.cuMemImportFromShareableHandle(
		&handle, (void *)(uintptr_t)null, GPU_HANDLE_POSIX_FD);
	fact("share.foreign_descriptor", "%d %s", code, name_of(code));
	(void)close(null);
	must_be("share.foreign_descriptor_is_refused", code != 0);
	larger.region.bytes += self.granularity;
	code = peer_map(&larger, GPU_ACCESS_READ);
	fact("share.claimed_size", "%d %s", code, name_of(code));
	must_be("share.claimed_size_is_refused", code != 0);
}

/* In a process of its own, whose context may end by it. */
static void store_say(const struct peer *peer, const char *ptx,
		      const char *access)
{
	char fd[16];
	char mib[32];
	int status = 0;
	const int ours = fcntl(peer->fd, F_DUPFD, 3); /* outlives exec */
	const pid_t child = fork();

	if (!child) {
		(void)snprintf(fd, sizeof(fd), "%d", ours);
		(void)snprintf(mib, sizeof(mib), "%llu",
			       (unsigned long long)(peer->region.bytes / MIB));
		(void)execl("/proc/self/exe", "probe", "store", fd, mib, ptx,
			    access, (char *)NULL);
		_exit(127);
	}
	(void)close(ours);
	(void)waitpid(child, &status, 0);
	if (status)
		fail("the child that stores ended with status %d", status);
}

void store(char **words)
{
	const int is_read = !strcmp(words[3], "read");
	struct peer peer = { .fd = (int)strtol(words[0], NULL, 10),
			     .region.bytes =
				     strtoull(words[1], NULL, 10) * MIB };
	int code;

	kernels_load(words[2]);
	code = peer_map(&peer,
			is_read ? GPU_ACCESS_READ : GPU_ACCESS_READ_WRITE);
	if (!code)
		code = region_stamp(&peer.region, UINT64_MAX);
	fact(is_read ? "share.store_through_read" :
		       "share.store_through_read_write",
	     "%d %s", code, name_of(code));
	/* The context may be lost: nothing is given back. */
	_exit(0);
}

static void fork_rule_say(void)
{
	int status = 0;
	const pid_t child = fork();

	if (!child) {
		int count;

		_exit(gpu.cuDeviceGetCount(&count));
	}
	(void)waitpid(child, &status, 0);
	fact("share.call_after_fork", "%d %s", WEXITSTATUS(status),
	     WIFEXITED(status) ? name_of(WEXITSTATUS(status)) : "died");
}

static void death_say(struct peer *peer)
{
	struct message message = { .order = ORDER_DIE };
	double began;
	double took;

	message_send(peer->socket, &message, -1);
	(void)message_take(peer->socket, &message, NULL);
	nap_ms(300);
	must_be("share.right_after_death_of_p", is_right(peer));
	began = now_us();
	region_unmap(&peer->region);
	took = now_us() - began;
	measured("share.unmap_after_death", "us", &took, 1);
}

void share(const char *path, const char *ptx)
{
	struct region scratch = { 0 };
	struct peer peer;
	int access;

	peer_open(&peer, path);
	peer_stamp(&peer, 1);
	access = peer_map_for_reads(&peer);
	must_be("share.bytes_are_right", is_right(&peer));
	refusals_say(&peer);
	calls_timed(&peer, access, &scratch);
	region_take(&scratch, peer.region.bytes / BUSY_PART, NULL);
	calls_timed(&peer, access, &scratch);
	region_unmap(&scratch);
	fork_rule_say();
	store_say(&peer, ptx, "read");
	must_be("share.right_after_store_through_read", is_right(&peer));
	store_say(&peer, ptx, "read-write");
	fact("share.a_consumer_can_write_into_p", "%s",
	     is_right(&peer) ? "no" : "yes");
	peer_stamp(&peer, 2);
	must_be("share.right_at_the_end", is_right(&peer));
	death_say(&peer);
	peer_close(&peer);
}
