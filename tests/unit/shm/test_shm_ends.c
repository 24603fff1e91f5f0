/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of the same-node route that are not there any more, or that the kernel
 * tells little of: calls for them are refused, and their end is seen once.
 */
#undef _FORTIFY_SOURCE
#include <sys/syscall.h>

#include "base/mapping.h"
#include "shm/parts.h"
#include "tests/lib/refuse.h"
#include "tests/unit/shm/raw.h"

uint32_t world_blocks = 16u;

/* clang-format off */
REFUSABLE(int, connect, -1, (int fd, const void *address, socklen_t bytes), (fd, address, bytes))
REFUSABLE(ssize_t, sendmsg, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
REFUSABLE(ssize_t, read, -1, (int fd, void *bytes, size_t byte_count), (fd, bytes, byte_count))
/* clang-format on */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static uint32_t is_old; /* a kernel that has no pidfd of any kind */

int refuse_getsockopt(int fd, int level, int option, void *value,
		      socklen_t *bytes) __asm__("getsockopt");

int refuse_getsockopt(int fd, int level, int option, void *value,
		      socklen_t *bytes)
{
	int (*next)(int, int, int, void *, socklen_t *);

	if (is_old && option == SO_PEERPIDFD) {
		errno = ENOPROTOOPT;
		return -1;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "getsockopt");
	return next(fd, level, option, value, bytes);
}

long refuse_syscall(long number, long a, long b, long c, long d, long e,
		    long f) __asm__("syscall");

long refuse_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	long (*next)(long, long, long, long, long, long, long);

	if (is_old && number == SYS_pidfd_open) {
		errno = ENOSYS;
		return -1;
	}
	*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	return next(number, a, b, c, d, e, f);
}

static uint32_t events_of(struct world *world, struct side *side)
{
	uint32_t turn;

	for (turn = 0; turn < 4; turn++)
		side_look(world, side);
	return side->queue_count;
}

UNIT_TEST_OPEN(calls_for_an_end_that_is_not_there_are_refused)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	struct kvpull_ring *ring = NULL;
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_mapping mapping;
	struct kvpull_read read;
	uint32_t fds;

	side_look(world, &world->p);
	fds = fds_open();
	assert_int_equal(p->ops->caller_send(p, 3, "x", 1), KVPULL_EPEER);
	assert_int_equal(p->ops->admit(p, 3, "x", 1, &ring), KVPULL_EPEER);
	p->ops->refuse(p, 3, "x", 1);
	p->ops->drop(p, 3);
	p->ops->forget(p, 3);
	assert_null(ring);
	read = world_read(world, 1);
	assert_int_equal(d->ops->peer_send(d, 2, "x", 1), KVPULL_EPEER);
	assert_int_equal(d->ops->attach(d, 2, &world->serve), KVPULL_EPEER);
	assert_int_equal(d->ops->read_start(d, 2, &read), KVPULL_EPEER);
	assert_int_equal(d->ops->check_start(d, 2, &read), KVPULL_EPEER);
	assert_int_equal(d->ops->notify(d, 2, &record), KVPULL_EPEER);
	assert_int_equal(d->ops->lend(d, 2, &mapping), KVPULL_EPEER);
	assert_int_equal(d->ops->notes_open(d, 2), 0);
	assert_null(d->ops->mapped(d, 2, 0));
	d->ops->beat(d, 2);
	d->ops->disconnect(d, 2);
	assert_int_equal(events_of(world, &world->p), 0);
	assert_int_equal(events_of(world, &world->d), 0);
	assert_int_equal(fds_open(), fds);
	world_connect(world);
}

UNIT_TEST_OPEN(peer_is_attached_once_and_lost_once)
{
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_transport *d = world->d.transport;

	world_connect(world);
	assert_int_equal(world_attach(world, &world->serve), KVPULL_EPEER);
	assert_non_null(d->ops->mapped(d, world->peer, 0));
	assert_null(d->ops->mapped(d, world->peer, 1));
	/* It was let in: it is neither let in again nor refused. */
	assert_int_equal(p->ops->admit(p, world->caller, "x", 1, &world->ring),
			 KVPULL_EPEER);
	p->ops->refuse(p, world->caller, "x", 1);
	p->ops->forget(p, world->caller);
	assert_int_equal(events_of(world, &world->d), 0);
	d->ops->disconnect(d, world->peer);
	d->ops->disconnect(d, world->peer);
	assert_int_equal(events_of(world, &world->d), 1);
	(void)world_peer_down(world, KVPULL_EPEER);
	d->ops->disconnect(d, world->peer);
	assert_int_equal(events_of(world, &world->d), 0);
	p->ops->drop(p, world->caller);
	p->ops->drop(p, world->caller);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(events_of(world, &world->p), 0);
	p->ops->forget(p, world->caller);
	world_connect(world);
}

/* Linux before 5.3, or a seccomp filter: the socket alone tells of deaths. */
UNIT_TEST(without_a_pidfd_the_socket_tells_the_end)
{
	struct kvpull_transport *p;
	struct kvpull_read read;
	struct world world;
	uint32_t fds;

	is_old = 1;
	world_open(&world);
	p = world.p.transport;
	world_connect(&world);
	fds = fds_open();
	read = world_read(&world, 2);
	assert_int_equal(world.d.transport->ops->read_start(world.d.transport,
							    world.peer, &read),
			 1);
	world_read_verify(&world, 2);
	world.d.transport->ops->disconnect(world.d.transport, world.peer);
	(void)world_expect(&world, &world.d, KVPULL_EVENT_PEER_DOWN);
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_DOWN);
	p->ops->forget(p, world.caller);
	/* D's socket and doorbell; P's socket, doorbell and ring. */
	assert_int_equal(fds_open(), fds - 5);
	world_connect(&world);
	side_close(&world.p);
	(void)world_peer_down(&world, KVPULL_EPEER);
	world_close(&world);
	is_old = 0;
}

/* A producer that is busy is no shortage of ours, and no line. */
UNIT_TEST_OPEN(full_backlog_is_called_again_without_a_line)
{
	struct kvpull_transport *d = world->d.transport;
	uint32_t fds;

	assert_int_equal(d->ops->reachable(d, "p"), 0);
	fds = fds_open();
	refuse("connect", 0, EAGAIN);
	assert_int_equal(d->ops->connect(d, "p", &world->peer), KVPULL_EAGAIN);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(lines.bad_count, 0);
	assert_int_equal(fds_open(), fds);
	refuse("connect", 0, ENOMEM);
	assert_int_equal(d->ops->connect(d, "p", &world->peer), KVPULL_EAGAIN);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(lines.bad_count, 1);
	assert_string_equal(
		lines.bad,
		"connect: Cannot allocate memory; it is tried again");
	assert_int_equal(fds_open(), fds);
	world_connect(world);
}

/* A part that failed ends the message: those behind it are not sent. */
UNIT_TEST_OPEN(large_welcome_that_fails_half_way_is_sent_no_further)
{
	static uint8_t welcome[KVPULL_MESSAGE_BYTES_MAX];
	static uint8_t bytes[KVPULL_PACKET_BYTES_MAX];
	struct kvpull_transport *p = world->p.transport;
	uint32_t index;
	uint32_t parts = 0;
	int fd;

	fd = raw_connect(world, "p");
	index = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP).index;
	refuse("sendmsg", 1, ENOBUFS);
	assert_int_equal(
		p->ops->admit(p, index, welcome, sizeof(welcome), &world->ring),
		KVPULL_EAGAIN);
	assert_int_equal(refuse_end(), 1);
	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
		assert_memory_equal(bytes, KVPULL_PARTS_MORE,
				    KVPULL_PARTS_WORD_BYTES);
		parts++;
	}
	assert_int_equal(parts, 1);
	(void)close(fd);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	p->ops->forget(p, index);
	world_connect(world);
}

/* The workers' eventfd cannot be read: the copy is seen all the same. */
UNIT_TEST_CONNECTED(wake_that_cannot_be_read_ends_no_poll)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_read read;

	assert_int_equal(d->ops->arm(d), 0);
	read = world_read(world, 16);
	read.byte_count =
		WORLD_INLINE_BYTES + 1; /* not by the owner's thread */
	assert_int_equal(d->ops->read_start(d, world->peer, &read), 0);
	while (poll(&(struct pollfd){ .fd = d->ops->fd(d), .events = POLLIN },
		    1, 20000) != 1)
		;
	refuse("read", 0, EIO);
	side_look(world, &world->d);
	assert_int_equal(refuse_end(), 1);
	(void)world_read_done(world, 0);
	world_read_verify(world, 16);
	assert_int_equal(lines.bad_count, 0);
}

/* D has a second producer, "q": the peer's index. */
static uint32_t second_connect(struct world *world, struct side *q)
{
	const struct kvpull_shm_params params = world_params(world, "q");
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_ring *ring;
	uint32_t caller;
	uint32_t peer;

	side_open(q, &params);
	assert_int_equal(q->transport->ops->serve(q->transport, &world->serve),
			 0);
	assert_int_equal(d->ops->connect(d, "q", &peer), 0);
	side_look(world, q);
	assert_int_equal(q->queue_count, 1);
	caller = q->queue[q->queue_first].index;
	q->queue_count = 0;
	assert_int_equal(
		q->transport->ops->admit(q->transport, caller, "w", 1, &ring),
		0);
	assert_int_equal(
		world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE).index,
		peer);
	assert_int_equal(d->ops->attach(d, peer, &world->serve), 0);
	return peer;
}

UNIT_TEST_CONNECTED(reads_of_another_peer_go_on)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_event event;
	struct kvpull_read reads[3];
	struct side q = { 0 };
	uint32_t other;
	uint32_t at;

	other = second_connect(world, &q);
	/* Of 48 KiB each: a poll copies the first one, the others wait. */
	for (at = 0; at < 3; at++) {
		reads[at] = world_read(world, 12);
		reads[at].index = at;
		assert_int_equal(
			d->ops->read_start(d, at == 1 ? world->peer : other,
					   &reads[at]),
			0);
	}
	d->ops->disconnect(d, world->peer);
	for (at = 0; at < 3; at++) {
		event = world_expect(world, &world->d, KVPULL_EVENT_READ_DONE);
		assert_ptr_equal(event.read, &reads[at]);
		assert_int_equal(event.index, at == 1 ? world->peer : other);
		assert_int_equal(event.code, at == 1 ? KVPULL_EPEER : 0);
	}
	world_read_verify(world, 12);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	assert_int_equal(event.index, world->peer);
	assert_int_equal(events_of(world, &world->d), 0);
	side_close(&q);
}
