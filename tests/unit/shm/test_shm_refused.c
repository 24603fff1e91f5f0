/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same-node route whose calls the kernel refuses, each in turn: what both
 * sides are told, that nothing is left, and that the next try succeeds.
 */
#include "shm/gate.h"
#include "tests/lib/refuse.h"
#include "tests/unit/shm/raw.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

uint32_t world_blocks = 16u; /* nobody reads much here */

/* clang-format off */
REFUSABLE(int, epoll_create1, -1, (int flags), (flags))
REFUSABLE(int, epoll_ctl, -1, (int fd, int what, int of, struct epoll_event *event), (fd, what, of, event))
REFUSABLE(int, eventfd, -1, (unsigned int value, int flags), (value, flags))
REFUSABLE(int, timerfd_create, -1, (int clock, int flags), (clock, flags))
REFUSABLE(int, socket, -1, (int family, int type, int protocol), (family, type, protocol))
REFUSABLE(int, accept4, -1, (int fd, void *address, void *bytes, int flags), (fd, address, bytes, flags))
REFUSABLE(int, listen, -1, (int fd, int backlog), (fd, backlog))
REFUSABLE(int, shutdown, -1, (int fd, int how), (fd, how))
REFUSABLE(int, fstat, -1, (int fd, struct stat *status), (fd, status))
REFUSABLE(int, sysinfo, -1, (struct sysinfo *node), (node))
REFUSABLE(ssize_t, sendmsg, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
REFUSABLE(ssize_t, read, -1, (int fd, void *bytes, size_t byte_count), (fd, bytes, byte_count))
REFUSABLE(int, madvise, -1, (void *at, size_t bytes, int advice), (at, bytes, advice))
/* clang-format on */

static const char *moved; /* the next descriptor of that call is 600 */

/* A call returned `code`: moves its descriptor if it is asked for. */
static void move(const char *call, int code, int *fd)
{
	int was;

	if (code < 0 || !moved || strcmp(moved, call))
		return;
	was = *fd;
	*fd = fcntl(was, F_DUPFD_CLOEXEC, 600);
	assert_int_equal(*fd, 600);
	(void)close(was);
	moved = NULL;
}

REFUSABLE_LIMIT(RLIMIT_NOFILE)

/* clang-format off */
REFUSABLE_THEN(int, memfd_create, -1, (const char *name, unsigned int flags), (name, flags),
	       move("memfd_create", result, &result))
REFUSABLE_THEN(int, socketpair, -1, (int family, int type, int protocol, int *ends), (family, type, protocol, ends),
	       move("socketpair", result, &ends[0]))
REFUSABLE_THEN(int, getsockopt, -1, (int fd, int level, int option, void *value, socklen_t *bytes), (fd, level, option, value, bytes),
	       if (option == SO_PEERPIDFD) move("getsockopt", result, value))
/* clang-format on */

struct row {
	struct refuse refused;
	int code;
	const char *said; /* "": no line */
};

/* Lines from now on: each is said once a second. */
static void lines_begin(struct world *world)
{
	lines_forget();
	world->now_ns += UINT64_C(1000000000);
	if (world->p.transport)
		side_look(world, &world->p);
	if (world->d.transport)
		side_look(world, &world->d);
}

static void row_refuse(const struct row *row)
{
	refuse(row->refused.call, row->refused.skip, row->refused.error);
}

static void row_check(const struct row *row, int code)
{
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(code, row->code);
	assert_int_equal(lines.bad_count, row->said[0] ? 1 : 0);
	if (row->said[0])
		assert_non_null(strstr(lines.bad, row->said));
}

/* Both ends of a consumer that was let in go. */
static void world_part(struct world *world)
{
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_transport *d = world->d.transport;

	world->d.queue_count = 0;
	d->ops->disconnect(d, world->peer);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	p->ops->forget(p, world->caller);
}

/* clang-format off */
static const struct row opens[] = {
	{ { "epoll_create1", 0, EMFILE }, KVPULL_EDEVICE, "epoll: Too many open files" },
	{ { "epoll_create1", 1, ENOMEM }, KVPULL_EDEVICE, "epoll: Cannot allocate memory" },
	{ { "eventfd", 0, EMFILE }, KVPULL_EDEVICE, "eventfd, timerfd: Too many open files" },
	{ { "timerfd_create", 0, ENFILE }, KVPULL_EDEVICE, "eventfd, timerfd: Too many open files in system" },
	{ { "epoll_ctl", 0, ENOSPC }, KVPULL_EDEVICE, "eventfd, timerfd: No space left on device: raise fs.epoll" },
	{ { "epoll_ctl", 1, ENOSPC }, KVPULL_EDEVICE, "eventfd, timerfd: No space left on device: raise fs.epoll" },
};
/* clang-format on */

UNIT_TEST(route_that_cannot_be_opened_leaves_nothing_open)
{
	struct kvpull_shm_params params;
	struct world world;
	uint32_t fds;
	size_t at;

	world_begin(&world);
	params = world_params(&world, "p");
	fds = fds_open();
	for (at = 0; at < sizeof(opens) / sizeof(opens[0]); at++) {
		struct kvpull_transport *transport;
		struct kvpull_arena arena;

		kvpull_arena_init(&arena, &world.log);
		lines_begin(&world);
		row_refuse(&opens[at]);
		row_check(&opens[at],
			  kvpull_shm_open(&params, &arena, &transport));
		assert_int_equal(fds_open(), fds);
		kvpull_arena_fini(&arena);
	}
	side_open(&world.p, &params);
	world_end(&world);
}

UNIT_TEST_OPEN(what_is_served_is_checked_first)
{
	struct kvpull_serve serves[8];
	static const int codes[8] = {
		KVPULL_EINVAL,       KVPULL_EINVAL,
		KVPULL_EINVAL,       KVPULL_EINVAL,
		KVPULL_EINVAL,       KVPULL_EUNSUPPORTED,
		KVPULL_EUNSUPPORTED, 0,
	};
	uint32_t at;

	for (at = 0; at < 8; at++)
		serves[at] = world->serve;
	serves[0].region_count = 0;
	serves[1].region_count = KVPULL_REGIONS_MAX + 1;
	serves[2].slot_count = 0;
	serves[3].entries = NULL;
	serves[4].regions[0].fd = -1;
	serves[5].entries_fd = -1;
	serves[6].regions[0].kind = KVPULL_REGION_STAGED;
	for (at = 0; at < 8; at++) {
		struct kvpull_transport *d = world->d.transport;

		assert_int_equal(d->ops->serve(d, &serves[at]), codes[at]);
		assert_string_equal(d->ops->address(d), codes[at] ? "" : "d");
	}
	/* Once. */
	assert_int_equal(world->d.transport->ops->serve(world->d.transport,
							&world->serve),
			 KVPULL_EINVAL);
	assert_int_equal(lines.bad_count, 2);
	assert_non_null(strstr(lines.bad, "region 0 of kind"));
}

/* ---- a producer ---- */

/* Listening needs a watch of the owner's, too. */
UNIT_TEST_IN_WORLD(listener_that_cannot_be_watched_is_closed, world_begin)
{
	const struct row row = { { "epoll_ctl", 0, ENOSPC },
				 KVPULL_EDEVICE,
				 "" };
	struct kvpull_transport *p;
	uint32_t fds;

	world_memory_make(world);
	(void)kvpull_serve_number_fds(&world->serve);
	{
		const struct kvpull_shm_params params =
			world_params(world, "p");

		side_open(&world->p, &params);
	}
	p = world->p.transport;
	lines_begin(world);
	fds = fds_open();
	row_refuse(&row);
	row_check(&row, p->ops->serve(p, &world->serve));
	assert_string_equal(p->ops->address(p), "");
	/* The folder alone stays open. */
	assert_int_equal(fds_open(), fds + 1);
	assert_int_equal(p->ops->serve(p, &world->serve), 0);
}

UNIT_TEST_OPEN(caller_that_cannot_be_watched_is_to_call_again)
{
	const struct row row = {
		{ "epoll_ctl", 0, ENOSPC },
		0,
		"a consumer waits: No space left on device: raise fs.epoll.max_user_watches; it is tried again",
	};
	struct kvpull_transport *d = world->d.transport;
	uint32_t peer;
	uint32_t fds;

	lines_begin(world);
	assert_int_equal(d->ops->connect(d, "p", &peer), 0);
	fds = fds_open();
	row_refuse(&row);
	side_look(world, &world->p);
	row_check(&row, 0);
	assert_int_equal(world->p.queue_count, 0);
	assert_int_equal(fds_open(), fds);
	(void)world_peer_down(world, KVPULL_EFULL);
	world_connect(world);
}

UNIT_TEST_OPEN(caller_whom_the_kernel_does_not_name_is_turned_away)
{
	world_call(world);
	refuse("getsockopt", 0, EINVAL);
	side_look(world, &world->p);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(world->p.queue_count, 0);
	(void)world_peer_down(world, KVPULL_EAUTH);
	world_connect(world);
}

/* A consumer that was not told why sees the end of its call. */
UNIT_TEST_IN_WORLD(caller_that_cannot_be_told_is_closed_all_the_same,
		   world_begin)
{
	static const uint32_t uids[] = { 12345678 };
	struct kvpull_shm_params params;
	int fd;
	char byte;

	world_memory_make(world);
	(void)kvpull_serve_number_fds(&world->serve);
	params = world_params(world, "p");
	params.users.uids = uids;
	params.users.uid_count = 1;
	world_serve_as(world, &params);
	fd = raw_connect(world, "p");
	refuse("sendmsg", 0, EPIPE);
	side_look(world, &world->p);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	(void)close(fd);
}

/* 100 ms each, as long as the watch is refused. */
UNIT_TEST_OPEN(listener_rests_until_it_can_be_watched_again)
{
	uint32_t turn;
	int caller;

	side_look(world, &world->p);
	caller = raw_connect(world, "p");
	refuse("accept4", 0, EMFILE);
	side_look(world, &world->p);
	assert_int_equal(refuse_end(), 1);
	assert_non_null(
		strstr(lines.bad, "consumers wait: Too many open files"));
	for (turn = 0; turn < 2; turn++) {
		/* Not before its time. */
		world->now_ns += UINT64_C(99990000);
		refuse("epoll_ctl", 0, ENOSPC);
		side_look(world, &world->p);
		assert_int_equal(refuse_end(), 0);
		world->now_ns += UINT64_C(10000);
		refuse("epoll_ctl", 0, ENOSPC);
		side_look(world, &world->p);
		assert_int_equal(refuse_end(), 1);
		assert_int_equal(world->p.queue_count, 0);
	}
	world->now_ns += UINT64_C(100000000);
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 1);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	(void)close(caller);
}

UNIT_TEST_OPEN(name_that_cannot_be_made_again_is_tried_a_minute_later)
{
	uint32_t fds;

	side_look(world, &world->p);
	raw_unlink(world, "p");
	fds = fds_open();
	world->now_ns += UINT64_C(60000000000);
	refuse("epoll_ctl", 0, ENOSPC);
	side_look(world, &world->p);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(fds_open(), fds);
	/* The listener that could not be watched took its file with it. */
	assert_int_equal(
		world->d.transport->ops->reachable(world->d.transport, "p"),
		KVPULL_EROUTE);
	world->now_ns += UINT64_C(60000000000);
	side_look(world, &world->p);
	world_connect(world);
}

/* clang-format off */
static const struct row admits[] = {
	{ { "memfd_create", 0, EMFILE }, KVPULL_EAGAIN, "a consumer's ring: Too many open files" },
	{ { "madvise", 0, ENOMEM }, KVPULL_EAGAIN, "a consumer's ring: Cannot allocate memory" },
	{ { "socketpair", 0, ENFILE }, KVPULL_EAGAIN, "a consumer's doorbell: Too many open files in system" },
	{ { "shutdown", 0, ENOTCONN }, KVPULL_EAGAIN, "a consumer's doorbell: Transport endpoint" },
	{ { "epoll_ctl", 0, ENOSPC }, KVPULL_EAGAIN, "a consumer's doorbell: No space left on device: raise fs.epoll" },
	{ { "getsockopt", 0, EMFILE }, KVPULL_EAGAIN, "a consumer's pidfd: Too many open files" },
	{ { "epoll_ctl", 1, ENOSPC }, KVPULL_EAGAIN, "a consumer's pidfd: No space left on device: raise fs.epoll" },
	{ { "sendmsg", 0, ETOOMANYREFS }, KVPULL_EAGAIN, "a consumer's copies of descriptors: Too many references: cannot splice: too many descriptors" },
	{ { "sendmsg", 0, EAGAIN }, KVPULL_EPEER, "" },
	{ { "sendmsg", 0, EPIPE }, KVPULL_EPEER, "" },
};
/* clang-format on */

UNIT_TEST_OPEN(admission_that_fails_gives_all_back_and_can_be_tried_again)
{
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_event event;
	uint64_t mapped;
	uint32_t fds;
	size_t at;

	/* More often than there are places. */
	for (at = 0; at < sizeof(admits) / sizeof(admits[0]); at++) {
		lines_begin(world);
		world_greet(world);
		world->ring = NULL;
		fds = fds_open();
		mapped = refuse_mapped();
		row_refuse(&admits[at]);
		row_check(&admits[at],
			  p->ops->admit(p, world->caller, "welcome", 7,
					&world->ring));
		assert_null(world->ring);
		assert_int_equal(fds_open(), fds);
		assert_int_equal(refuse_mapped(), mapped);
		assert_int_equal(p->ops->admit(p, world->caller, "welcome", 7,
					       &world->ring),
				 0);
		assert_non_null(world->ring);
		event = world_expect(world, &world->d,
				     KVPULL_EVENT_PEER_MESSAGE);
		assert_memory_equal(event.data, "welcome", 7);
		assert_int_equal(world_attach(world, &world->serve), 0);
		world_part(world);
	}
}

/* The engine has the last quarter: descriptor 600 is in it of 800, not of 801. */
UNIT_TEST_OPEN(admission_takes_none_of_the_engines_descriptors)
{
	static const char *const calls[] = { "memfd_create", "socketpair",
					     "getsockopt" };
	size_t at;

	for (at = 0; at < 3; at++) {
		struct kvpull_transport *p = world->p.transport;

		lines_begin(world);
		world_greet(world);
		limit_told = 800;
		moved = calls[at];
		assert_int_equal(p->ops->admit(p, world->caller, "welcome", 7,
					       &world->ring),
				 KVPULL_EAGAIN);
		assert_string_equal(
			lines.bad,
			"a consumer waits: the last 200 of 800 descriptors are the engine's: raise ulimit -n");
		limit_told = 801;
		moved = calls[at];
		assert_int_equal(p->ops->admit(p, world->caller, "welcome", 7,
					       &world->ring),
				 0);
		assert_null(moved);
		limit_told = 0;
		world_part(world);
	}
}

UNIT_TEST_OPEN(refused_caller_is_closed_though_it_cannot_be_told)
{
	struct kvpull_transport *p;

	world_greet(world);
	p = world->p.transport;
	refuse("sendmsg", 0, ENOBUFS);
	p->ops->refuse(p, world->caller, "no", 2);
	assert_int_equal(refuse_end(), 1);
	(void)world_peer_down(world, KVPULL_EPEER);
	world_connect(world);
}

/* ---- a consumer ---- */

/* clang-format off */
static const struct row connects[] = {
	{ { "socket", 0, EMFILE }, KVPULL_EAGAIN, "connect: Too many open files" },
	{ { "getsockopt", 0, ENOPROTOOPT }, KVPULL_EPEER, "" },
	{ { "getsockopt", 1, EMFILE }, KVPULL_EAGAIN, "connect: Too many open files" },
	{ { "epoll_ctl", 0, ENOSPC }, KVPULL_EAGAIN, "connect: No space left on device: raise fs.epoll.max_user_watches; it is tried again" },
	{ { "epoll_ctl", 1, ENOSPC }, KVPULL_EAGAIN, "connect: No space left on device: raise fs.epoll" },
};
/* clang-format on */

UNIT_TEST_OPEN(call_that_fails_half_way_is_hung_up)
{
	struct kvpull_transport *d = world->d.transport;
	uint32_t peer = 77;
	uint32_t turn;
	uint32_t fds;
	size_t at;

	assert_int_equal(d->ops->reachable(d, "p"), 0);
	fds = fds_open();
	for (at = 0; at < sizeof(connects) / sizeof(connects[0]); at++) {
		lines_begin(world);
		row_refuse(&connects[at]);
		row_check(&connects[at], d->ops->connect(d, "p", &peer));
		assert_int_equal(peer, 77);
		assert_int_equal(fds_open(), fds);
		/* The producer may have seen the call, and its end. */
		for (turn = 0; turn < 4; turn++)
			side_look(world, &world->p);
		world->p.queue_count = 0;
	}
	/* No place was lost by it: the table has four. */
	world_connect(world);
}

/* clang-format off */
static const struct row attaches[] = {
	{ { "getsockopt", 0, EBADF }, KVPULL_EPROTO, "" },
	{ { "getsockopt", 1, EBADF }, KVPULL_EPROTO, "" },
	{ { "madvise", 0, ENOMEM }, KVPULL_EAGAIN, "a producer's memory: Cannot allocate memory" },
	{ { "madvise", 2, ENOMEM }, KVPULL_EAGAIN, "a producer's memory: Cannot allocate memory" },
	{ { "madvise", 4, ENOMEM }, KVPULL_EAGAIN, "a producer's memory: Cannot allocate memory" },
	{ { "fstat", 2, EIO }, KVPULL_EPROTO, "" },
	/* A bound that cannot be told is none. */
	{ { "sysinfo", 0, EFAULT }, 0, "" },
	{ { "getrlimit", 0, EFAULT }, 0, "" },
};
/* clang-format on */

UNIT_TEST_OPEN(attach_that_fails_unmaps_and_closes_all)
{
	struct kvpull_transport *d = world->d.transport;
	size_t at;

	for (at = 0; at < sizeof(attaches) / sizeof(attaches[0]); at++) {
		uint64_t mapped;
		uint32_t fds;

		lines_begin(world);
		world_welcome(world);
		fds = fds_open();
		mapped = refuse_mapped();
		row_refuse(&attaches[at]);
		row_check(&attaches[at], world_attach(world, &world->serve));
		if (attaches[at].code) {
			assert_null(d->ops->mapped(d, world->peer, 0));
			assert_int_equal(refuse_mapped(), mapped);
			/* All four that came. */
			assert_int_equal(fds_open(), fds - 4);
		} else {
			assert_non_null(d->ops->mapped(d, world->peer, 0));
			assert_null(d->ops->mapped(d, world->peer, 1));
			assert_int_equal(fds_open(), fds - 3);
		}
		world_part(world);
	}
}

/* The producer may be gone by then; its death is told by the socket. */
UNIT_TEST_CONNECTED(note_whose_bell_does_not_ring_is_there)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	struct kvpull_record got;

	assert_int_equal(kvpull_ring_arm(world->ring), 0);
	refuse("shutdown", 0, ENOTCONN);
	assert_int_equal(world->d.transport->ops->notify(world->d.transport,
							 world->peer, &record),
			 0);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(lines.bad_count, 0);
	assert_int_equal(kvpull_ring_ready(world->ring), 1);
	kvpull_ring_pop(world->ring, &got);
	assert_int_equal(got.kind, KVPULL_NOTE_CLAIM);
}

UNIT_TEST_OPEN(ticket_that_cannot_be_given_back_is_to_be_given_again)
{
	struct kvpull_transport *d = world->d.transport;
	uint32_t peer;
	uint32_t fds;

	assert_int_equal(d->ops->reachable(d, "p"), 0);
	fds = fds_open();
	refuse("sendmsg", 0, EPIPE);
	assert_int_equal(d->ops->give(d, "p", "x", 1, &peer), 0);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(fds_open(), fds);
	assert_int_equal(world_peer_down(world, KVPULL_EAGAIN), peer);
}
