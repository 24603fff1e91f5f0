/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers on this node that are not let in: other users, callers that say
 * nothing, more of them than there is room or descriptors for. Once, 100 silent
 * connections of a user that was not in uids kept every honest consumer out for
 * good.
 */

#include "shm/gate.h"
#include "tests/unit/shm/raw.h"

uint32_t world_blocks = 64u; /* nobody reads much here */

#define CALLS 100u
#define LIMIT_FDS 400u

static _Atomic uint64_t refused;

/* P that lets in that user, or its own (NULL); and D. */
static void strangers_open(struct world *world, const uint32_t *uid)
{
	struct kvpull_shm_params params;

	world_begin(world);
	world_memory_make(world);
	params = world_params(world, "p");
	params.users.uids = uid;
	params.users.uid_count = uid ? 1 : 0;
	params.refused = &refused;
	refused = 0;
	world_serve_as(world, &params);
	world_open_consumer(world);
}

static void strangers_begin(struct world *world)
{
	strangers_open(world, NULL);
}

/* P lets in another user alone. */
static void strangers_begin_other(struct world *world)
{
	static uint32_t other; /* the transport keeps its address */

	other = getuid() + 1;
	strangers_open(world, &other);
}

/* 1: it was told that and is closed; 0: it is not told anything yet. */
static int is_told(int fd, const char *text)
{
	char bytes[64];
	const ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (got < 0)
		return 0;
	assert_int_equal(got, (ssize_t)strlen(text) + 1);
	assert_string_equal(bytes, text);
	assert_int_equal(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT), 0);
	return 1;
}

static uint32_t ups_take(struct world *world)
{
	uint32_t ups = 0;

	while (world->p.queue_count) {
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
		ups++;
	}
	return ups;
}

UNIT_TEST_IN_WORLD(callers_of_other_users_take_no_place, strangers_begin_other)
{
	int fds[CALLS];
	uint32_t open_count;
	uint32_t i;

	for (i = 0; i < CALLS; i++) {
		fds[i] = raw_connect(world, "p");
		if (i % 8 == 7)
			side_look(world, &world->p);
	}
	open_count = fds_open();
	side_look(world, &world->p);
	side_look(world, &world->p);
	/* No event, no descriptor, one line; each is told why. */
	assert_int_equal(world->p.queue_count, 0);
	assert_int_equal(fds_open(), open_count);
	assert_int_equal(refused, CALLS);
	assert_int_equal(lines.bad_count, 1);
	assert_non_null(strstr(lines.bad, "is not one of uids"));
	for (i = 0; i < CALLS; i++) {
		assert_true(is_told(fds[i], KVPULL_ENDPOINT_USER));
		(void)close(fds[i]);
	}
}

UNIT_TEST_IN_WORLD(consumer_of_another_user_hears_why, strangers_begin_other)
{
	world_call(world);
	(void)world_peer_down(world, KVPULL_EAUTH);
	assert_non_null(strstr(lines.bad, "add it to its uids"));
}

/* P in a user namespace where this uid is that of everybody whom it does not map. */
static struct kvpull_users everybody(const uint32_t *uid, uint32_t is_keyed)
{
	return (struct kvpull_users){ .uids = uid,
				      .uid_count = 1,
				      .has_unknown = 1,
				      .unknown = *uid,
				      .is_keyed = is_keyed };
}

UNIT_TEST_IN_WORLD(user_who_may_be_anybody_is_let_in_with_a_key_alone,
		   world_begin)
{
	const uint32_t own = getuid();
	struct kvpull_shm_params params;

	world_memory_make(world);
	params = world_params(world, "p");
	params.users = everybody(&own, 0);
	params.refused = &refused;
	refused = 0;
	side_open(&world->p, &params);
	assert_non_null(strstr(lines.bad, "pulls or is pulled from"));
	assert_int_equal(world->p.transport->ops->serve(world->p.transport,
							&world->serve),
			 0);
	params = world_params(world, "d");
	params.users = everybody(&own, 1);
	side_open(&world->d, &params);
	world_call(world);
	(void)world_peer_down(world, KVPULL_EAUTH);
	assert_int_equal(refused, 1);
	side_close(&world->p);
	params = world_params(world, "p");
	params.users = everybody(&own, 1);
	world_serve_as(world, &params);
	world_connect(world);
}

/* The own user is let in by the list alone, where there is one. */
UNIT_TEST(user_of_the_list_is_let_in)
{
	const uint32_t own = getuid();
	struct world world;

	strangers_open(&world, &own);
	world_connect(&world);
	assert_int_equal(refused, 0);
	world_close(&world);
}

UNIT_TEST_IN_WORLD(silent_ones_make_room_for_a_newcomer, strangers_begin)
{
	int fds[KVPULL_GATE_PROCESS_MAX];
	struct kvpull_event event;
	uint32_t first = 0;
	uint32_t i;
	int early;

	for (i = 0; i < KVPULL_GATE_PROCESS_MAX; i++) {
		fds[i] = raw_connect(world, "p");
		event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
		first = i ? first : event.index;
	}
	/*
	 * The callers have their time to say hello; a newcomer has to call
	 * again.
	 */
	early = raw_connect(world, "p");
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 0);
	assert_true(is_told(early, KVPULL_ENDPOINT_FULL));
	world->now_ns += KVPULL_GATE_GRACE_NS;
	world_call(world);
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	assert_int_not_equal(event.index, first);
	event = world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(event.index, first);
	assert_true(is_told(fds[0], KVPULL_ENDPOINT_FULL));
	assert_false(is_told(fds[1], KVPULL_ENDPOINT_FULL));
	assert_int_equal(refused, 2);
	for (i = 0; i < KVPULL_GATE_PROCESS_MAX; i++)
		(void)close(fds[i]);
	(void)close(early);
}

UNIT_TEST_IN_WORLD(silent_ones_take_no_consumers_place, strangers_begin)
{
	int silent[KVPULL_GATE_PROCESS_MAX];
	uint32_t i;

	/* More than there are consumers' places. */
	for (i = 0; i < KVPULL_GATE_PROCESS_MAX - 1; i++) {
		silent[i] = raw_connect(world, "p");
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	}
	assert_true(i > WORLD_CALLERS_MAX);
	for (i = 0; i < WORLD_CALLERS_MAX; i++)
		world_connect(world);
	/* A caller without a place may say who it is all the same. */
	silent[KVPULL_GATE_PROCESS_MAX - 1] = raw_connect(world, "p");
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	for (i = 0; i < KVPULL_GATE_PROCESS_MAX; i++)
		(void)close(silent[i]);
}

/* A place that one waits in may be taken by others before it is let in. */
UNIT_TEST_IN_WORLD(caller_is_not_let_in_beyond_the_bound, strangers_begin)
{
	struct kvpull_transport *p;
	uint32_t indices[WORLD_CALLERS_MAX + 1];
	int fds[WORLD_CALLERS_MAX + 1];
	uint32_t i;

	p = world->p.transport;
	for (i = 0; i <= WORLD_CALLERS_MAX; i++) {
		fds[i] = raw_connect(world, "p");
		indices[i] =
			world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP)
				.index;
	}
	for (i = 0; i <= WORLD_CALLERS_MAX; i++)
		assert_int_equal(p->ops->admit(p, indices[i], "welcome", 7,
					       &world->ring),
				 i < WORLD_CALLERS_MAX ? 0 : KVPULL_EFULL);
	for (i = 0; i <= WORLD_CALLERS_MAX; i++)
		(void)close(fds[i]);
}

/* A process that calls so often, says nothing, and stays. */
static pid_t silent_process(const struct world *world, uint32_t count)
{
	const pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (count--)
		(void)raw_connect(world, "p");
	for (;;)
		(void)pause();
}

/* More processes than one user may have waiting. */
UNIT_TEST_IN_WORLD(silent_processes_of_a_user_are_bounded, strangers_begin)
{
	enum {
		PROCESSES = KVPULL_GATE_USER_MAX / KVPULL_GATE_PROCESS_MAX + 2
	};
	pid_t pids[PROCESSES];
	uint32_t ups = 0;
	uint32_t turn;
	uint32_t i;

	for (i = 0; i < PROCESSES; i++)
		pids[i] = silent_process(world, KVPULL_GATE_PROCESS_MAX);
	for (turn = 0; turn < WORLD_TURNS_MAX &&
		       ups + refused < PROCESSES * KVPULL_GATE_PROCESS_MAX;
	     turn++) {
		side_rest(&world->p);
		side_look(world, &world->p);
		ups += ups_take(world);
	}
	assert_int_equal(ups, KVPULL_GATE_USER_MAX);
	assert_int_equal(refused, PROCESSES * KVPULL_GATE_PROCESS_MAX -
					  KVPULL_GATE_USER_MAX);
	/* A newcomer of that user is in all the same. */
	world->now_ns += KVPULL_GATE_GRACE_NS;
	world_call(world);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	for (i = 0; i < PROCESSES; i++) {
		assert_int_equal(kill(pids[i], SIGKILL), 0);
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
	}
}

/* A quarter of the limit stays free, and who needs it is told so. */
UNIT_TEST_IN_WORLD(callers_leave_the_engine_its_descriptors, strangers_begin)
{
	const uint32_t reserve = LIMIT_FDS / 4;
	int fds[512];
	uint32_t count;
	uint32_t index;
	int first;
	int second;

	first = raw_connect(world, "p");
	second = raw_connect(world, "p");
	/* A descriptor more than the engine's share: for a caller. */
	count = fds_fill(fds, reserve + 1);
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 1);
	index = world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP).index;
	assert_false(is_told(first, KVPULL_ENDPOINT_FULL));
	assert_true(is_told(second, KVPULL_ENDPOINT_FULL));
	assert_int_equal(lines.bad_count, 1);
	assert_non_null(strstr(lines.bad, "raise ulimit -n"));
	/* Nor is what an admission needs taken from there. */
	assert_int_equal(world->p.transport->ops->admit(world->p.transport,
							index, "welcome", 7,
							&world->ring),
			 KVPULL_EAGAIN);
	fds_empty(fds, count);
	assert_int_equal(world->p.transport->ops->admit(world->p.transport,
							index, "welcome", 7,
							&world->ring),
			 0);
	(void)close(first);
	(void)close(second);
}

int main(void)
{
	const struct rlimit limit = { .rlim_cur = LIMIT_FDS,
				      .rlim_max = LIMIT_FDS };
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	return unit_run(NULL, NULL);
}
