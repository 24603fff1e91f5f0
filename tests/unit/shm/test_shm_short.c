/* SPDX-License-Identifier: Apache-2.0 */
/* The same-node route short of places, time or descriptors. */

#include "shm/folder.h"
#include "shm/gate.h"
#include "tests/lib/maps.h"
#include "tests/unit/shm/raw.h"

uint32_t world_blocks = 64u; /* nobody reads much here */

UNIT_TEST_OPEN(out_of_descriptors_rests_the_listener)
{
	struct kvpull_transport *p = world->p.transport;
	int fds[512];
	uint32_t count;
	int caller;

	caller = raw_connect(world, "p");
	count = fds_fill(fds, 0);
	side_look(world, &world->p);
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 0);
	assert_int_equal(lines.bad_count, 1);
	/* The owner can sleep: the waiting caller does not keep it awake. */
	assert_int_equal(
		poll(&(struct pollfd){ .fd = p->ops->fd(p), .events = POLLIN },
		     1, 0),
		0);
	fds_empty(fds, count);
	world->now_ns += UINT64_C(200000000);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	(void)close(caller);
}

/* A descriptor is left for the caller's socket, none for its pidfd. */
UNIT_TEST_OPEN(caller_whose_death_cannot_be_seen_calls_again)
{
	int fds[512];
	uint32_t count;
	uint32_t peer;

	assert_int_equal(world->d.transport->ops->connect(world->d.transport,
							  "p", &peer),
			 0);
	count = fds_fill(fds, 1);
	side_look(world, &world->p);
	fds_empty(fds, count);
	assert_int_equal(world->p.queue_count, 0);
	assert_int_equal(lines.bad_count, 1);
	(void)world_peer_down(world, KVPULL_EFULL);
	world_connect(world);
}

UNIT_TEST_OPEN(out_of_descriptors_is_not_the_peers_fault)
{
	struct kvpull_transport *d = world->d.transport;
	int fds[512];
	uint32_t count;
	uint32_t peer;
	uint32_t left;

	side_look(world, &world->d);
	/* A second look needs no further descriptor. */
	assert_int_equal(d->ops->reachable(d, "p"), 0);
	count = fds_fill(fds, 0);
	assert_int_equal(d->ops->reachable(d, "p"), 0);
	assert_int_equal(d->ops->reachable(d, "not-there"), KVPULL_EROUTE);
	assert_int_equal(d->ops->connect(d, "p", &peer), KVPULL_EAGAIN);
	fds_empty(fds, count);
	count = fds_fill(fds, 1);
	assert_int_equal(d->ops->connect(d, "p", &peer), KVPULL_EAGAIN);
	fds_empty(fds, count);
	assert_int_equal(lines.bad_count, 1);
	assert_non_null(strstr(lines.bad, strerror(EMFILE)));
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	/* A welcome brings four. */
	for (left = 0; left < 4; left++) {
		world_greet(world);
		assert_int_equal(world->p.transport->ops->admit(
					 world->p.transport, world->caller,
					 "welcome", 7, &world->ring),
				 0);
		count = fds_fill(fds, left);
		while (!world->d.queue_count)
			side_look(world, &world->d);
		fds_empty(fds, count);
		(void)world_peer_down(world, KVPULL_EAGAIN);
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
		world->p.transport->ops->forget(world->p.transport,
						world->caller);
	}
	assert_int_equal(lines.bad_count, 1);
	world_connect(world);
}

/* It is no lack of memory, and not the peer's fault: the limit is named. */
UNIT_TEST(out_of_mappings_is_told_by_their_limit_and_tried_again)
{
	struct world world;
	struct maps maps;

	world_open(&world);
	world_welcome(&world);
	if (!maps_exhaust(&maps, 0)) {
		world_close(&world);
		skip();
	}
	assert_int_equal(world_attach(&world, &world.serve), KVPULL_EAGAIN);
	maps_restore(&maps);
	assert_non_null(strstr(lines.bad,
			       "a producer's memory: Cannot allocate memory: "
			       "this process has as many mappings as "
			       "vm.max_map_count allows ("));
	world.d.transport->ops->disconnect(world.d.transport, world.peer);
	(void)world_expect(&world, &world.d, KVPULL_EVENT_PEER_DOWN);
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_DOWN);
	world.p.transport->ops->forget(world.p.transport, world.caller);
	world_connect(&world);
	world_close(&world);
}

UNIT_TEST_OPEN(folder_that_cannot_be_opened_now_is_asked_again)
{
	struct kvpull_transport *d = world->d.transport;
	int fds[512];
	uint32_t count;
	uint32_t peer;

	side_look(world, &world->d);
	count = fds_fill(fds, 0);
	assert_int_equal(d->ops->reachable(d, "p"), KVPULL_EAGAIN);
	assert_int_equal(d->ops->connect(d, "p", &peer), KVPULL_EAGAIN);
	fds_empty(fds, count);
	assert_int_equal(lines.bad_count, 1);
	assert_int_equal(d->ops->reachable(d, "p"), 0);
}

UNIT_TEST_OPEN(admission_without_descriptors_can_be_tried_again)
{
	struct kvpull_transport *p;
	struct kvpull_event event;
	int fds[512];
	uint32_t count;
	uint32_t left;

	world_greet(world);
	p = world->p.transport;
	/* The ring's, both ends of the doorbell. */
	for (left = 0; left < 3; left++) {
		count = fds_fill(fds, left);
		assert_int_equal(p->ops->admit(p, world->caller, "welcome", 7,
					       &world->ring),
				 KVPULL_EAGAIN);
		fds_empty(fds, count);
	}
	assert_int_equal(lines.bad_count, 1);
	assert_int_equal(
		p->ops->admit(p, world->caller, "welcome", 7, &world->ring), 0);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_memory_equal(event.data, "welcome", 7);
	assert_int_equal(world_attach(world, &world->serve), 0);
}

UNIT_TEST_OPEN(flood_of_callers_is_bounded)
{
	int fds[20];
	uint32_t closed = 0;
	uint32_t ups = 0;
	uint32_t i;
	char bytes[16];

	for (i = 0; i < 20; i++)
		fds[i] = raw_connect(world, "p");
	for (i = 0; i < 20; i++)
		side_look(world, &world->p);
	while (world->p.queue_count) {
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
		ups++;
	}
	assert_int_equal(ups, KVPULL_GATE_PROCESS_MAX);
	for (i = 0; i < 20; i++) {
		if (recv(fds[i], bytes, sizeof(bytes), MSG_DONTWAIT) < 0)
			continue;
		assert_string_equal(bytes, KVPULL_ENDPOINT_FULL);
		closed += recv(fds[i], bytes, 1, MSG_DONTWAIT) == 0;
	}
	assert_int_equal(closed, 20 - KVPULL_GATE_PROCESS_MAX);
	/* The log has one line, not one a caller. */
	assert_int_equal(lines.bad_count, 1);
	assert_non_null(strstr(lines.bad, "too many callers"));
	for (i = 0; i < 20; i++)
		(void)close(fds[i]);
	for (i = 0; i < KVPULL_GATE_PROCESS_MAX; i++)
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	/* None of them was forgotten, and yet there is room again. */
	world_connect(world);
}

UNIT_TEST_OPEN(full_producer_is_no_lost_one)
{
	struct kvpull_transport *p = world->p.transport;
	struct kvpull_event event;
	int fds[KVPULL_GATE_PROCESS_MAX];
	uint32_t i;

	for (i = 0; i < KVPULL_GATE_PROCESS_MAX; i++) {
		fds[i] = raw_connect(world, "p");
		(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	}
	world_call(world);
	(void)world_peer_down(world, KVPULL_EFULL);
	for (i = 0; i < KVPULL_GATE_PROCESS_MAX; i++) {
		(void)close(fds[i]);
		event = world_expect(world, &world->p,
				     KVPULL_EVENT_CALLER_DOWN);
		p->ops->forget(p, event.index);
	}
	world_connect(world);
}

UNIT_TEST_CONNECTED(silent_caller_is_closed_in_time)
{
	char byte;
	int fd;

	fd = raw_connect(world, "p");
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	world->now_ns += UINT64_C(998000000);
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 0);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
	world->now_ns += UINT64_C(2000000);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	(void)close(fd);
	/* The admitted one has no such deadline; nothing was logged. */
	side_look(world, &world->p);
	assert_int_equal(world->p.queue_count, 0);
	assert_int_equal(lines.bad_count, 0);
}

UNIT_TEST_IN(silent_producer_is_given_up_in_time, imposter)
{
	struct world *world = &imposter->world;

	imposter_connect(imposter);
	side_look(world, &world->d);
	world->now_ns += UINT64_C(1100000000);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	(void)close(imposter->socket);
}

/* The owner sleeps on the descriptor, and nothing else happens. */
UNIT_TEST_IN_WORLD(owner_is_woken_when_a_time_has_come, world_begin)
{
	struct kvpull_shm_params params;
	struct kvpull_transport *p;
	struct pollfd due = { .events = POLLIN };
	int fds[512];
	uint32_t count;
	int caller;

	world_memory_make(world);
	params = world_params(world, "p");
	params.connect_ns = UINT64_C(20000000);
	side_open(&world->p, &params);
	p = world->p.transport;
	assert_int_equal(p->ops->serve(p, &world->serve), 0);
	due.fd = p->ops->fd(p);
	/* A listener that rests. */
	caller = raw_connect(world, "p");
	count = fds_fill(fds, 0);
	side_look(world, &world->p);
	fds_empty(fds, count);
	assert_int_equal(p->ops->arm(p), 0);
	assert_int_equal(poll(&due, 1, 10000), 1);
	world->now_ns += UINT64_C(100000000);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_UP);
	/* A caller that says nothing. */
	side_look(world, &world->p);
	assert_int_equal(p->ops->arm(p), 0);
	assert_int_equal(poll(&due, 1, 10000), 1);
	world->now_ns += UINT64_C(20000000);
	side_look(world, &world->p);
	(void)world_expect(world, &world->p, KVPULL_EVENT_CALLER_DOWN);
	/* And then it can sleep for ever. */
	side_look(world, &world->p);
	assert_int_equal(p->ops->arm(p), 0);
	assert_int_equal(poll(&due, 1, 50), 0);
	(void)close(caller);
}

UNIT_TEST_IN(consumer_is_woken_when_its_producer_is_late, imposter)
{
	struct world *world = &imposter->world;
	struct kvpull_shm_params params;
	struct kvpull_transport *d;
	struct pollfd due = { .events = POLLIN };

	side_close(&world->d);
	params = world_params(world, "d");
	params.connect_ns = UINT64_C(20000000);
	side_open(&world->d, &params);
	d = world->d.transport;
	due.fd = d->ops->fd(d);
	side_look(world, &world->d);
	imposter_connect(imposter);
	assert_int_equal(d->ops->arm(d), 0);
	assert_int_equal(poll(&due, 1, 10000), 1);
	side_look(world, &world->d);
	world->now_ns += UINT64_C(20000000);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	(void)close(imposter->socket);
}

/*
 * A worker that cannot ask whether a name's owner lives does not take the name.
 */
UNIT_TEST_OPEN(live_name_is_not_taken_for_want_of_descriptors)
{
	struct kvpull_listener listener = { .fd = -1, .folder_fd = -1 };
	int fds[512];
	uint32_t count;
	int folder;
	int code;

	folder = open(world->folder, O_PATH | O_CLOEXEC);
	assert_true(folder >= 0);
	/* For its folder and its socket, none to ask with. */
	count = fds_fill(fds, 2);
	code = kvpull_listener_open(
		&listener,
		&(struct kvpull_folder){ .path = world->folder, .fd = folder },
		"p", 0, NULL);
	fds_empty(fds, count);
	assert_int_equal(code, KVPULL_EDEVICE);
	(void)close(folder);
	world_connect(world);
}

int main(void)
{
	const struct rlimit limit = { .rlim_cur = 256, .rlim_max = 256 };
	/* So that running out of descriptors is near. */
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	return unit_run(NULL, NULL);
}
