/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crowds of callers at a producer of one node, of processes and users that the
 * test names: SO_PEERCRED says what it is told to say.
 */
#include "shm/gate.h"
#include "tests/unit/shm/raw.h"

#include <dlfcn.h>

uint32_t world_blocks = 16u;

#define FDS 128u
#define USERS 3u

static const uint32_t uids[USERS] = { 20001, 20002, 20003 };

/* The process that the next calls seem to come from; pid -1: another each time. */
static struct {
	uint32_t is_told;
	uint32_t uid;
	int32_t pid;
	int32_t last;
} caller;

int crowd_getsockopt(int fd, int level, int option, void *value,
		     socklen_t *bytes) __asm__("getsockopt");

int crowd_getsockopt(int fd, int level, int option, void *value,
		     socklen_t *bytes)
{
	int (*next)(int, int, int, void *, socklen_t *);
	struct ucred *credentials = value;
	int code;

	*(void **)&next = dlsym(RTLD_NEXT, "getsockopt");
	code = next(fd, level, option, value, bytes);
	if (option != SO_PEERCRED || !caller.is_told)
		return code;
	credentials->uid = caller.uid;
	credentials->pid = caller.pid < 0 ? ++caller.last : caller.pid;
	return code;
}

struct crowd {
	struct world world;
	_Atomic uint64_t refused;
	int fds[FDS];
	uint32_t count;
};

static void crowd_begin(struct crowd *crowd)
{
	struct world *world = &crowd->world;
	struct kvpull_shm_params params;

	memset(crowd, 0, sizeof(*crowd));
	world_begin(world);
	world_memory_make(world);
	(void)kvpull_serve_number_fds(&world->serve);
	params = world_params(world, "p");
	params.users.uids = uids;
	params.users.uid_count = USERS;
	params.refused = &crowd->refused;
	world_serve_as(world, &params);
	memset(&caller, 0, sizeof(caller));
	caller.is_told = 1;
}

static void crowd_end(struct crowd *crowd)
{
	caller.is_told = 0;
	while (crowd->count)
		(void)close(crowd->fds[--crowd->count]);
	world_close(&crowd->world);
}

/* A further caller: its index; KVPULL_NONE: it was told that there is no room. */
static uint32_t call(struct crowd *crowd, uint32_t uid, int32_t pid)
{
	struct world *world = &crowd->world;
	const int fd = raw_connect(world, "p");
	char text[16] = "";

	assert_true(crowd->count < FDS);
	crowd->fds[crowd->count++] = fd;
	caller.uid = uid;
	caller.pid = pid;
	side_look(world, &world->p);
	if (world->p.queue_count) {
		struct kvpull_event event =
			world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);

		assert_int_equal(event.uid, uid);
		return event.index;
	}
	assert_int_equal(recv(fd, text, sizeof(text), MSG_DONTWAIT),
			 sizeof(KVPULL_ENDPOINT_FULL));
	assert_string_equal(text, KVPULL_ENDPOINT_FULL);
	assert_int_equal(recv(fd, text, sizeof(text), MSG_DONTWAIT), 0);
	return KVPULL_NONE;
}

/* The caller at that index was told to call again, and its place is free. */
static void is_ousted(struct crowd *crowd, uint32_t index)
{
	struct kvpull_transport *p = crowd->world.p.transport;

	assert_int_equal(world_expect(&crowd->world, &crowd->world.p,
				      KVPULL_EVENT_CALLER_DOWN)
				 .index,
			 index);
	p->ops->forget(p, index);
}

/* So many may wait: one more has to come again, until the oldest had its time. */
static void crowd_is_bounded(struct crowd *crowd, uint32_t max, int32_t pid)
{
	struct world *world = &crowd->world;
	uint32_t i;

	for (i = 0; i < max; i++)
		assert_int_equal(call(crowd, uids[0], pid), i);
	assert_int_equal(lines.bad_count, 0);
	assert_int_equal(call(crowd, uids[0], pid), KVPULL_NONE);
	assert_int_equal(crowd->refused, 1);
	assert_string_equal(
		lines.bad,
		"too many callers have not said who they are: one of user 20001 is to call again");
	/* A call of another user and process is not counted with them. */
	assert_int_equal(call(crowd, uids[1], pid > 0 ? pid + 1 : pid), max);
	world->now_ns += KVPULL_GATE_GRACE_NS;
	assert_int_equal(call(crowd, uids[0], pid), max + 1);
	is_ousted(crowd, 0);
	assert_int_equal(crowd->refused, 2);
}

UNIT_TEST_IN(process_has_eight_calls_that_wait, crowd)
{
	crowd_is_bounded(crowd, KVPULL_GATE_PROCESS_MAX, 4711);
}

/* The kernel has no pid for a process of another PID namespace: 0. */
UNIT_TEST_IN(processes_without_a_pid_are_not_taken_for_one, crowd)
{
	crowd_is_bounded(crowd, KVPULL_GATE_USER_MAX, 0);
}

UNIT_TEST_IN(processes_of_a_user_have_32_calls_that_wait, crowd)
{
	crowd_is_bounded(crowd, KVPULL_GATE_USER_MAX, -1);
}

/* The oldest of all goes, whosever it is; here that of another user. */
UNIT_TEST_IN(users_together_have_64_calls_that_wait, crowd)
{
	uint32_t i;

	for (i = 0; i < KVPULL_GATE_WAITING_MAX; i++)
		assert_int_equal(call(crowd, uids[i % 2], -1), i);
	assert_int_equal(crowd->refused, 0);
	assert_int_equal(call(crowd, uids[2], -1), KVPULL_NONE);
	assert_int_equal(crowd->refused, 1);
	assert_non_null(strstr(lines.bad, "one of user 20003 "));
	crowd->world.now_ns += KVPULL_GATE_GRACE_NS;
	assert_int_equal(call(crowd, uids[2], -1), KVPULL_GATE_WAITING_MAX);
	is_ousted(crowd, 0);
}

/* An engine that forgets no caller that is down has no place for a new one. */
UNIT_TEST_IN(callers_that_were_not_forgotten_keep_their_places, crowd)
{
	enum {
		PLACES = WORLD_CALLERS_MAX + KVPULL_CALLERS_MORE
	};
	struct kvpull_transport *p;
	uint32_t i;

	p = crowd->world.p.transport;
	assert_int_equal(p->caller_count_max, PLACES);
	for (i = 0; i < PLACES; i++) {
		assert_int_equal(call(crowd, uids[0], -1), i);
		p->ops->drop(p, i);
		(void)world_expect(&crowd->world, &crowd->world.p,
				   KVPULL_EVENT_CALLER_DOWN);
	}
	assert_int_equal(call(crowd, uids[0], -1), KVPULL_NONE);
	/* No crowd was in its way. */
	assert_int_equal(crowd->refused, 0);
	p->ops->forget(p, 7);
	assert_int_equal(call(crowd, uids[0], -1), 7);
}

/* Foreign memory is read by pid, and the kernel has none of that process. */
UNIT_TEST_OPEN(foreign_memory_of_another_pid_namespace_is_refused)
{
	struct kvpull_serve remote;

	world_serve_foreign(world);
	caller.is_told = 1;
	caller.uid = geteuid();
	caller.pid = 0;
	world_welcome(world);
	caller.is_told = 0;
	remote = world->serve;
	assert_int_equal(world_attach(world, &remote), KVPULL_EROUTE);
	assert_string_equal(
		lines.bad,
		"peer's own memory cannot be read from pid 0: the peer is in another PID namespace");
}
