/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strangers on the node: sockets of our own in the engines' folder. As callers
 * they greet any engine, and play with the ring that they get; as producers
 * they answer who follows a forged ticket, with descriptors of every kind.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/ring.h"
#include "shm/segment.h"
#include "tests/fuzz/sequence/sequence.h"

#define FDS_MAX 24u
#define FULL "KVPfull" /* shm/endpoint.h; its names are not the worker's */

static int raw_socket(void)
{
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		      0);
}

static struct sockaddr_un address_of(const struct seq_world *world,
				     const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
		       world->folder, name);
	return address;
}

void seq_raws_open(struct seq_world *world)
{
	const struct sockaddr_un address = address_of(world, "raw");
	uint32_t at;

	world->raw_listener = raw_socket();
	if (bind(world->raw_listener, (const struct sockaddr *)&address,
		 sizeof(address)) ||
	    listen(world->raw_listener, 4))
		seq_fail("a raw socket cannot listen");
	for (at = 0; at < SEQ_RAWS; at++)
		world->raws[at].fd = -1;
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static void raw_close(struct seq_raw *raw)
{
	if (raw->fd < 0)
		return;
	fd_close(&raw->fd);
	fd_close(&raw->doorbell);
	fd_close(&raw->ring_fd);
	fd_close(&raw->entries_fd);
	if (raw->ring)
		(void)munmap(raw->ring, raw->ring_bytes);
	memset(raw, 0, sizeof(*raw));
	raw->fd = -1;
}

void seq_raws_leave(struct seq_world *world)
{
	uint32_t at;
	int fd;

	for (at = 0; at < SEQ_RAWS; at++)
		raw_close(&world->raws[at]);
	while ((fd = accept4(world->raw_listener, NULL, NULL,
			     SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		(void)close(fd);
}

void seq_raws_close(struct seq_world *world)
{
	const struct sockaddr_un address = address_of(world, "raw");

	seq_raws_leave(world);
	(void)close(world->raw_listener);
	(void)unlink(address.sun_path);
}

static void raw_begin(struct seq_raw *raw, int fd, struct seq_engine *of)
{
	*raw = (struct seq_raw){ .fd = fd,
				 .of = of,
				 .doorbell = -1,
				 .ring_fd = -1,
				 .entries_fd = -1 };
}

static void raw_call(struct seq_world *world, struct seq_raw *raw)
{
	/* V has no socket. */
	struct seq_engine *to = &world->engines[seq_one_in(world->dice, 3)];
	const struct sockaddr_un address = address_of(
		world, to->shm.transport->ops->address(to->shm.transport));
	const int fd = raw_socket();

	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)))
		(void)close(fd);
	else
		raw_begin(raw, fd, to);
}

static void raw_answer(struct seq_world *world, struct seq_raw *raw)
{
	const int fd = accept4(world->raw_listener, NULL, NULL,
			       SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	raw_begin(raw, fd, &world->engines[SEQ_D]);
	raw->serves = 1;
}

static void raw_send(const struct seq_raw *raw, const uint8_t *bytes,
		     size_t byte_count, const int *fds, uint32_t fd_count)
{
	struct iovec part = { .iov_base = (void *)(uintptr_t)bytes,
			      .iov_len = byte_count };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
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
	(void)!sendmsg(raw->fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A descriptor of some kind, to be closed. */
static int fd_make(struct seq_world *world)
{
	int ends[2] = { -1, -1 };

	switch (seq_below(world->dice, 6)) {
	case 1:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 2:
		return open("/", O_RDONLY | O_CLOEXEC);
	case 3:
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
			return -1;
		(void)close(ends[1]);
		return ends[0];
	case 4: /* without seals, and empty */
		return memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	default:
		return eventfd(0, EFD_CLOEXEC);
	}
}

static void odd_send(struct seq_world *world, const struct seq_raw *raw,
		     const uint8_t *bytes, size_t byte_count)
{
	const uint32_t count =
		seq_one_in(world->dice, 8) ? 1 + seq_below(world->dice, 22) : 0;
	int fds[FDS_MAX];
	uint32_t used = 0;
	uint32_t at;

	for (at = 0; at < count; at++) {
		fds[used] = fd_make(world);
		used += fds[used] >= 0;
	}
	raw_send(raw, bytes, byte_count, fds, used);
	for (at = 0; at < used; at++)
		(void)close(fds[at]);
}

/* Table, ring, doorbell and blocks as a producer has them; one may be odd. */
static void welcome_send(struct seq_world *world, struct seq_raw *raw,
			 const uint8_t *bytes, size_t byte_count, uint32_t kind)
{
	const struct seq_engine *p = &world->engines[SEQ_P];
	struct kvpull_shared ring_segment = { 0 };
	struct kvpull_shared table = { 0 };
	struct kvpull_ring ring;
	int ends[2];
	int fds[4];
	int odd = -1;
	const uint32_t odd_at = seq_below(world->dice, 16);
	uint32_t count = kind == KVPULL_REGION_FOREIGN ? 3 : 4;
	uint32_t at;

	if (raw->ring || kvpull_segment_make(&table, "raw-table", 4096,
					     KVPULL_SEGMENT_READ_ONLY, 0, NULL))
		return;
	for (at = 0; at < 4096 / 32; at++)
		memcpy(table.base + (size_t)at * 32,
		       &(uint64_t){ SEQ_STRANGE_INCARNATION },
		       sizeof(uint64_t));
	if (kvpull_segment_make(&ring_segment, "raw-ring",
				kvpull_ring_bytes(16), KVPULL_SEGMENT_SHARED, 0,
				NULL) ||
	    kvpull_ring_init(&ring, ring_segment.base, 16) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		       ends))
		seq_fail("a stranger has no ring");
	fds[0] = table.fd;
	fds[1] = ring_segment.fd;
	fds[2] = ends[1];
	/* Foreign memory is probed through P's table. */
	if (kind == KVPULL_REGION_FOREIGN)
		fds[0] = p->worker->entries.fd;
	fds[3] = p->worker->facts.serve.regions[0].fd;
	/* Not of its own memory: there a table's will do. */
	if (fds[3] < 0)
		fds[3] = table.fd;
	if (odd_at < 4)
		odd = fds[odd_at] = fd_make(world);
	if (odd_at == 4)
		count--;
	raw_send(raw, bytes, byte_count, fds, count);
	if (odd >= 0)
		(void)close(odd);
	(void)close(ends[1]);
	raw->doorbell = ends[0];
	raw->ring_fd = dup(ring_segment.fd);
	raw->ring_bytes = ring_segment.bytes;
	raw->ring = mmap(NULL, raw->ring_bytes, PROT_READ | PROT_WRITE,
			 MAP_SHARED, raw->ring_fd, 0);
	kvpull_segment_unmake(&ring_segment);
	kvpull_segment_unmake(&table);
}

/* Consumer: table, ring, doorbell, blocks came with the welcome. */
static void fds_take(struct seq_raw *raw, const int *fds, uint32_t count)
{
	struct stat status;
	uint32_t at;

	for (at = 0; at < count; at++) {
		int fd = fds[at];

		if (at == 1 && count > 2 && !raw->ring && !fstat(fd, &status)) {
			raw->ring_fd = fd;
			raw->ring_bytes = (size_t)status.st_size;
			raw->ring =
				mmap(NULL, raw->ring_bytes,
				     PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			if (raw->ring == MAP_FAILED)
				raw->ring = NULL;
		} else if (at == 2 && raw->doorbell < 0) {
			raw->doorbell = fd;
		} else {
			(void)close(fd);
		}
	}
}

/* Return: bytes of one message; 0: none. */
static size_t raw_receive(const struct seq_raw *raw, uint8_t *bytes, int *fds,
			  uint32_t *fd_count)
{
	struct iovec part = { .iov_base = bytes,
			      .iov_len = KVPULL_MESSAGE_BYTES_MAX };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control) };
	const ssize_t received =
		recvmsg(raw->fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *part_of =
		received > 0 ? CMSG_FIRSTHDR(&header) : NULL;

	*fd_count = 0;
	if (part_of && part_of->cmsg_type == SCM_RIGHTS) {
		*fd_count = (uint32_t)((part_of->cmsg_len - CMSG_LEN(0)) /
				       sizeof(int));
		memcpy(fds, CMSG_DATA(part_of), *fd_count * sizeof(int));
	}
	return received > 0 ? (size_t)received : 0;
}

static void raw_listen(struct seq_world *world, struct seq_raw *raw)
{
	static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX];
	static struct kvpull_hello hello;
	int fds[FDS_MAX];
	uint32_t fd_count;
	const size_t received = raw_receive(raw, bytes, fds, &fd_count);
	int kind;

	if (!received)
		return;
	fds_take(raw, fds, fd_count);
	kind = kvpull_handshake_kind(bytes, received);
	if (kind == KVPULL_MESSAGE_CHALLENGE)
		raw->nonce_known = !kvpull_handshake_get_challenge(
			bytes, received, raw->nonce);
	if (kind == KVPULL_MESSAGE_HELLO &&
	    !kvpull_handshake_get_hello(bytes, received, seq_key(world),
					raw->nonce, &hello)) {
		memcpy(raw->nonce, hello.nonce, sizeof(raw->nonce));
		raw->nonce_known = 1;
	}
	world->welcomes += kind == KVPULL_MESSAGE_WELCOME;
}

/* A caller that shares a ring may write all of it. */
static void ring_play(struct seq_world *world, struct seq_raw *raw)
{
	struct seq_dice *dice = world->dice;
	struct kvpull_record record;
	struct kvpull_ring_writer writer;
	uint64_t value;

	if (!raw->ring)
		return;
	switch (seq_below(dice, 8)) {
	case 0:
		value = seq_u64(dice);
		memcpy(raw->ring + KVPULL_RING_TAIL_OFFSET, &value, 8);
		break;
	case 1:
		value = seq_u64(dice);
		memcpy(raw->ring + KVPULL_RING_HEAD_OFFSET, &value, 8);
		break;
	case 2:
		value = seq_u64(dice);
		memcpy(raw->ring + KVPULL_RING_BEAT_OFFSET, &value, 8);
		break;
	case 3:
		raw->ring[seq_below(dice, 65536) % raw->ring_bytes] ^=
			(uint8_t)(1 + seq_below(dice, 255));
		break;
	case 4:
		(void)shutdown(raw->doorbell, SHUT_RDWR);
		break;
	default:
		if (kvpull_ring_writer_init(&writer, raw->ring,
					    raw->ring_bytes))
			return;
		seq_record(world, raw->of, &record);
		kvpull_ring_beat(&writer);
		if (kvpull_ring_push(&writer, &record) == 1)
			(void)shutdown(raw->doorbell, SHUT_WR);
	}
}

static void raw_say(struct seq_world *world, struct seq_raw *raw)
{
	static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX + 32];
	size_t byte_count;
	uint32_t kind = 0;

	switch (seq_below(world->dice, 8)) {
	case 0:
	case 1:
	case 2:
		byte_count =
			raw->serves ?
				seq_challenge(world, raw->nonce, bytes) :
				seq_hello(world, raw->of, raw->nonce, bytes);
		break;
	case 3:
	case 4:
		byte_count =
			seq_welcome(world, raw->of, raw->nonce, bytes, &kind);
		byte_count = seq_mutate(world, bytes, byte_count);
		if (raw->serves) {
			welcome_send(world, raw, bytes, byte_count, kind);
			return;
		}
		break;
	case 5:
		byte_count = seq_refusal(world, bytes);
		break;
	case 6:
		byte_count = sizeof(FULL);
		memcpy(bytes, FULL, byte_count);
		break;
	default:
		byte_count = seq_garbage(world, bytes);
	}
	byte_count = seq_mutate(world, bytes, byte_count);
	odd_send(world, raw, bytes, byte_count);
}

/* The next right word: what an honest one would say. */
static void raw_greet(struct seq_world *world, struct seq_raw *raw)
{
	uint8_t bytes[4096];
	size_t byte_count;
	uint32_t kind;

	seq_talk(raw->of);
	raw_listen(world, raw);
	if (!raw->serves && raw->nonce_known && !raw->ring) {
		byte_count = seq_hello(world, raw->of, raw->nonce, bytes);
		raw_send(raw, bytes, byte_count, NULL, 0);
	} else if (raw->serves && !raw->nonce_known) {
		byte_count = seq_challenge(world, raw->nonce, bytes);
		raw_send(raw, bytes, byte_count, NULL, 0);
	} else if (raw->serves && !raw->ring) {
		byte_count =
			seq_welcome(world, raw->of, raw->nonce, bytes, &kind);
		welcome_send(world, raw, bytes, byte_count, kind);
	}
	seq_talk(raw->of);
	raw_listen(world, raw);
}

void seq_raw_step(struct seq_world *world)
{
	struct seq_dice *dice = world->dice;
	/* A few of them, so that each gets far. */
	struct seq_raw *raw = &world->raws[seq_below(
		dice, seq_one_in(dice, 4) ? SEQ_RAWS : 3)];

	if (raw->fd < 0) {
		if (seq_one_in(dice, 3))
			raw_answer(world, raw);
		else
			raw_call(world, raw);
		return;
	}
	raw_listen(world, raw);
	switch (seq_below(dice, 16)) {
	case 0:
		raw_close(raw);
		break;
	case 1:
		(void)shutdown(raw->fd, (int)seq_below(dice, 3));
		break;
	case 4:
	case 5:
	case 6:
	case 7:
	case 8:
		raw_greet(world, raw);
		break;
	case 2:
	case 3:
		ring_play(world, raw);
		break;
	default:
		raw_say(world, raw);
	}
}
