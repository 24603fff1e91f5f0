/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shm/raw.h"

int has_passrights(void)
{
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const int no = 0;
	const int has =
		!setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));

	(void)close(fd);
	return has;
}

static int raw_socket(const char *folder, const char *name,
		      struct sockaddr_un *address)
{
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)snprintf(address->sun_path, sizeof(address->sun_path), "%s/%s",
		       folder, name);
	return fd;
}

static int raw_bind(const char *folder, const char *name)
{
	struct sockaddr_un address;
	const int fd = raw_socket(folder, name, &address);

	assert_int_equal(
		bind(fd, (const struct sockaddr *)&address, sizeof(address)),
		0);
	return fd;
}

int raw_connect(const struct world *world, const char *name)
{
	struct sockaddr_un address;
	const int fd = raw_socket(world->folder, name, &address);

	assert_int_equal(
		connect(fd, (const struct sockaddr *)&address, sizeof(address)),
		0);
	return fd;
}

int raw_listen(const struct world *world, const char *name)
{
	const int fd = raw_bind(world->folder, name);

	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

void socket_leave(const char *folder, const char *name)
{
	(void)close(raw_bind(folder, name));
}

void raw_unlink(const struct world *world, const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", world->folder, name);
	(void)unlink(path);
}

int raw_try_send(int fd, const int *fds, uint32_t fd_count)
{
	char byte = 'w';
	struct iovec part = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(253 * sizeof(int))];
	} control;

	memset(&control, 0, sizeof(control));
	if (fd_count) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, fd_count * sizeof(int));
	}
	return sendmsg(fd, &header, MSG_NOSIGNAL) == 1 ? 0 : errno;
}

void raw_send(int fd, const int *fds, uint32_t fd_count)
{
	assert_int_equal(raw_try_send(fd, fds, fd_count), 0);
}

uint32_t fds_fill(int *fds, uint32_t left)
{
	uint32_t count = 0;

	while (count < 512) {
		fds[count] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
		if (fds[count] < 0)
			break;
		count++;
	}
	assert_in_range(count, left, 511);
	while (left--)
		(void)close(fds[--count]);
	return count;
}

void fds_empty(const int *fds, uint32_t count)
{
	while (count)
		(void)close(fds[--count]);
}

uint32_t raw_admit(struct world *world)
{
	struct kvpull_transport *p = world->p.transport;
	const uint32_t index =
		world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP).index;

	assert_int_equal(p->ops->admit(p, index, "welcome", 7, &world->ring),
			 0);
	return index;
}

void imposter_begin(struct imposter *imposter)
{
	struct world *world = &imposter->world;

	world_begin(world);
	world_memory_make(world);
	world_open_consumer(world);
	imposter->listener = raw_listen(world, "imposter");
}

void imposter_connect(struct imposter *imposter)
{
	struct world *world = &imposter->world;
	struct kvpull_transport *d = world->d.transport;

	assert_int_equal(d->ops->connect(d, "imposter", &world->peer), 0);
	imposter->socket =
		accept4(imposter->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(imposter->socket >= 0);
}

void imposter_welcome(struct imposter *imposter, const int *fds,
		      uint32_t fd_count)
{
	struct world *world = &imposter->world;

	imposter_connect(imposter);
	raw_send(imposter->socket, fds, fd_count);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
}

void imposter_end(struct imposter *imposter)
{
	(void)close(imposter->listener);
	raw_unlink(&imposter->world, "imposter");
	world_close(&imposter->world);
}

int attach_with(struct imposter *imposter, const int *fds, uint32_t fd_count)
{
	struct world *world = &imposter->world;
	struct kvpull_transport *d = world->d.transport;
	int code;

	imposter_welcome(imposter, fds, fd_count);
	code = world_attach(world, &world->serve);
	d->ops->disconnect(d, world->peer);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	(void)close(imposter->socket);
	return code;
}

void good_begin(struct good *good, const struct world *world)
{
	assert_int_equal(kvpull_segment_make(&good->ring_memory, "test-ring",
					     kvpull_ring_bytes(16),
					     KVPULL_SEGMENT_SHARED, 0,
					     &world->log),
			 0);
	assert_int_equal(
		kvpull_ring_init(&good->ring, good->ring_memory.base, 16), 0);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, good->bells),
		0);
	good->fds[0] = world->entries_memory.fd;
	good->fds[1] = good->ring_memory.fd;
	good->fds[2] = good->bells[1];
	good->fds[3] = good->fds[4] = world->kv.fd;
}

void good_end(struct good *good)
{
	(void)close(good->bells[0]);
	(void)close(good->bells[1]);
	kvpull_segment_unmake(&good->ring_memory);
}
