/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Route choice, and both routes behind one owner: ends in one process, each
 * with the same-node route and with verbs over the fake fabric.
 */
#include "tests/unit/verbs/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ring.h"
#include "plugin/bytes/ticket.h"
#include "plugin/route/route.h"
#include "shm/endpoint.h"
#include "shm/segment.h"
#include "shm/shm.h"

#define RING_RECORDS 16u

struct end {
	struct kvpull_arena arena;
	struct kvpull_log log;
	struct kvpull_routes routes; /* count 0: closed */
	struct kvpull_shared memory, entries;
	struct kvpull_serve serve;
	struct kvpull_ring *ring; /* of the last caller that was let in */
	uint32_t caller_ups, caller_downs, attached, downs;
};

static struct end p, d, other;
static struct kvpull_serve *remote; /* of whom D connects to */
static int wake_fd;
static char folders[2][64];

static void region_fill(struct end *end)
{
	assert_int_equal(kvpull_segment_make(&end->memory, "kv", 65536,
					     KVPULL_SEGMENT_READ_ONLY, 0,
					     &end->log),
			 0);
	assert_int_equal(
		kvpull_segment_make(&end->entries, "entries",
				    8 * sizeof(struct kvpull_revocation_entry),
				    KVPULL_SEGMENT_READ_ONLY, 0, &end->log),
		0);
	end->serve.region_count = 1;
	end->serve.regions[0] =
		(struct kvpull_region_view){ .kind = KVPULL_REGION_PROVIDED,
					     .fd = end->memory.fd,
					     .base = end->memory.base,
					     .bytes = end->memory.bytes };
	end->serve.slot_count = 8;
	end->serve.entries =
		(struct kvpull_revocation_entry *)(void *)end->entries.base;
	end->serve.entries_fd = end->entries.fd;
}

static void end_serve(struct end *end)
{
	uint32_t at;

	for (at = 0; at < end->routes.count; at++)
		route_begin(end->routes.list[at].transport);
	assert_int_equal(kvpull_routes_serve(&end->routes, &end->serve), 0);
}

static void end_make(struct end *end, const char *name, const char *folder)
{
	const struct kvpull_shm_params shm = {
		.log = &end->log,
		.socket_dir = folder ? folder : "",
		.name = name,
		.peers_max = 4,
		.callers_max = 4,
		.ring_records = RING_RECORDS,
		.reads_max = 4,
		.connect_ns = KVPULL_NS_PER_S,
	};
	const struct kvpull_verbs_params verbs = {
		.log = &end->log,
		.fabric = fake_verbs_fabric(),
		.networks = "10.66.0.0/24",
		.peers_max = 4,
		.callers_max = 4,
		.ring_records = RING_RECORDS,
		.reads_max = 4,
		.engine_wake_fd = wake_fd,
		.notify_credits = 8,
	};
	struct kvpull_transport *made;

	memset(end, 0, sizeof(*end));
	end->routes.log = &end->log;
	kvpull_arena_init(&end->arena, &end->log);
	if (folder) {
		assert_int_equal(kvpull_shm_open(&shm, &end->arena, &made), 0);
		assert_int_equal(kvpull_routes_add(&end->routes, made), 0);
	}
	assert_int_equal(kvpull_verbs_open(&verbs, &end->arena, &made), 0);
	assert_int_equal(kvpull_routes_add(&end->routes, made), 0);
	assert_true(kvpull_arena_ok(&end->arena));
	region_fill(end);
}

static void end_open(struct end *end, const char *name, const char *folder)
{
	end_make(end, name, folder);
	end_serve(end);
}

static void end_close(struct end *end)
{
	if (!end->routes.count)
		return;
	kvpull_routes_close(&end->routes, kvpull_clock_close_by());
	kvpull_segment_unmake(&end->memory);
	kvpull_segment_unmake(&end->entries);
	kvpull_arena_fini(&end->arena);
}

static void message_take(struct end *end, struct kvpull_transport *transport,
			 const struct kvpull_event *event)
{
	const struct kvpull_transport_ops *ops = transport->ops;

	if (event->data_bytes == 10)
		assert_int_equal(
			ops->peer_send(transport, event->index, "hello", 6), 0);
	else if (event->data_bytes == 8)
		end->attached += !ops->attach(transport, event->index, remote);
}

static void event_take(struct end *end, struct kvpull_transport *transport,
		       const struct kvpull_event *event)
{
	const struct kvpull_transport_ops *ops = transport->ops;

	switch (event->kind) {
	case KVPULL_EVENT_ADDRESS:
	case KVPULL_EVENT_NONE:
		break;
	case KVPULL_EVENT_PEER_MESSAGE:
		message_take(end, transport, event);
		break;
	case KVPULL_EVENT_CALLER_UP:
		end->caller_ups++;
		assert_int_equal(ops->caller_send(transport, event->index,
						  "challenge", 10),
				 0);
		break;
	case KVPULL_EVENT_CALLER_MESSAGE:
		assert_int_equal(ops->admit(transport, event->index, "welcome",
					    8, &end->ring),
				 0);
		break;
	case KVPULL_EVENT_CALLER_DOWN:
		end->caller_downs++;
		ops->forget(transport, event->index);
		break;
	case KVPULL_EVENT_PEER_DOWN:
		end->downs++;
		break;
	default:
		fail_msg("event %d", (int)event->kind);
	}
}

static void end_poll(struct end *end)
{
	const struct kvpull_route *route;
	struct kvpull_event events[8];
	uint32_t left = 8;
	uint32_t turn;

	for (turn = 0; turn < end->routes.count; turn++) {
		const int count = kvpull_routes_poll(
			&end->routes, turn, world.now_ns, events, left, &route);
		int i;

		for (i = 0; i < count; i++)
			event_take(end, route->transport, &events[i]);
		left -= (uint32_t)count;
	}
}

static void run(uint32_t steps)
{
	struct end *const ends[] = { &p, &d, &other };
	size_t at;

	for (; steps; steps--) {
		world.now_ns += WORLD_STEP_NS;
		for (at = 0; at < 3; at++)
			if (ends[at]->routes.count)
				end_poll(ends[at]);
	}
}

/* A peer at the end of its own route. */
struct way {
	struct kvpull_transport *transport;
	uint32_t peer;
};

static struct way join(struct end *end, const char *name, const char *why)
{
	char addresses[KVPULL_TICKET_ADDRESS_BYTES_MAX];
	struct kvpull_route_choice choice;
	struct way way;

	kvpull_routes_print(&p.routes, addresses, sizeof(addresses));
	assert_true(kvpull_ticket_address_is_good(addresses));
	assert_int_equal(kvpull_routes_choose(&end->routes, addresses, &choice),
			 0);
	way.transport = choice.route->transport;
	assert_string_equal(way.transport->ops->name, name);
	assert_non_null(strstr(choice.why, why));
	remote = &p.serve;
	assert_int_equal(way.transport->ops->connect(way.transport,
						     choice.address, &way.peer),
			 0);
	return way;
}

static void note_travels(const struct way *way, uint64_t generation)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_RELEASE,
					      .slot = 2,
					      .generation = generation,
					      .tag = 5 };
	struct kvpull_record got;

	assert_int_equal(
		way->transport->ops->notify(way->transport, way->peer, &record),
		0);
	run(3);
	assert_int_equal(kvpull_ring_ready(p.ring), 1);
	kvpull_ring_pop(p.ring, &got);
	kvpull_ring_pop_end(p.ring);
	assert_int_equal(got.generation, generation);
}

static int up(void **state)
{
	int i;

	(void)state;
	world_init();
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (i = 0; i < 2; i++) {
		(void)snprintf(folders[i], sizeof(folders[i]),
			       "/tmp/kvpull-route-XXXXXX");
		assert_non_null(mkdtemp(folders[i]));
	}
	end_open(&p, "p", folders[0]);
	end_open(&d, "d", folders[0]);
	end_open(&other, "o", folders[1]);
	return 0;
}

static int down(void **state)
{
	int i;

	(void)state;
	end_close(&d);
	end_close(&other);
	end_close(&p);
	(void)close(wake_fd);
	for (i = 0; i < 2; i++)
		(void)rmdir(folders[i]);
	return fake_verbs_live() ? -1 : 0;
}

/* join(); some turns later the end is attached. */
static struct way joined(struct end *end, const char *route, const char *why)
{
	const struct way way = join(end, route, why);

	run(40);
	assert_int_equal(end->attached, 1);
	return way;
}

UNIT_TEST_WITH(same_node_goes_by_shm_and_others_by_verbs, up, down)
{
	struct way near;
	struct way far;

	near = joined(&d, "shm", "same node");
	note_travels(&near, 7);
	far = joined(&other, "verbs", "another node");
	assert_int_equal(p.caller_ups, 2);
	note_travels(&far, 8);
	far.transport->ops->beat(far.transport, far.peer);
	run(3);
	assert_int_equal(kvpull_ring_beat_seen(p.ring), 1);
}

UNIT_TEST_WITH(sleeper_is_woken_by_a_network_note, up, down)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	const struct way far = join(&other, "verbs", "another node");
	eventfd_t count;

	run(40);
	assert_int_equal(eventfd_read(wake_fd, &count), -1);
	assert_int_equal(kvpull_ring_arm(p.ring), 0);
	assert_int_equal(
		far.transport->ops->notify(far.transport, far.peer, &record),
		0);
	run(3);
	assert_int_equal(eventfd_read(wake_fd, &count), 0);
}

UNIT_TEST_WITH(handles_are_used_again_after_the_end, up, down)
{
	uint32_t round;

	for (round = 0; round < 12; round++) {
		struct end *end = round % 3 ? &other : &d;
		const struct way way =
			round % 3 ? joined(end, "verbs", "another node") :
				    joined(end, "shm", "same node");

		way.transport->ops->disconnect(way.transport, way.peer);
		run(150);
		assert_int_equal(end->downs, 1);
		assert_int_equal(p.caller_downs, round + 1);
		end->attached = end->downs = 0;
	}
}

static struct kvpull_transport *near_of(const struct end *end)
{
	return end->routes.list[0].transport;
}

/* A consumer that says something and lives until it is told to die. */
static pid_t caller_fork(int told)
{
	const struct kvpull_message message = { .bytes = "x", .byte_count = 1 };
	const char *name = near_of(&p)->ops->address(near_of(&p));
	const int folder = open(folders[0], O_PATH | O_CLOEXEC);
	const pid_t pid = fork();
	char byte;
	int fd;

	assert_true(pid >= 0);
	if (pid) {
		(void)close(folder);
		return pid;
	}
	if (kvpull_endpoint_connect(folder, name, NULL, &fd) ||
	    kvpull_endpoint_send(fd, &message, NULL))
		_exit(1);
	_exit(read(told, &byte, 1) != 1);
}

/*
 * The caller's message and its end come in one poll; the owner refuses, then
 * forgets.
 */
UNIT_TEST_WITH(caller_that_dies_while_it_is_refused_is_forgotten, up, down)
{
	struct kvpull_transport *near = near_of(&p);
	const struct kvpull_transport_ops *ops = near->ops;
	struct kvpull_event events[8];
	uint32_t downs = 0;
	uint32_t polls;
	int told[2];
	pid_t pid;
	int count;
	int at;

	assert_int_equal(pipe(told), 0);
	pid = caller_fork(told[0]);
	do
		count = ops->poll(near, ++world.now_ns, events, 8);
	while (!count);
	assert_int_equal(events[0].kind, KVPULL_EVENT_CALLER_UP);
	assert_int_equal(write(told[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &at, 0), pid);
	assert_int_equal(at, 0);
	for (polls = 0; polls < 64; polls++) {
		count = ops->poll(near, ++world.now_ns, events, 8);
		for (at = 0; at < count; at++) {
			if (events[at].kind == KVPULL_EVENT_CALLER_MESSAGE)
				ops->refuse(near, events[at].index, "no", 2);
			if (events[at].kind != KVPULL_EVENT_CALLER_DOWN)
				continue;
			ops->forget(near, events[at].index);
			downs++;
		}
	}
	/* None, where its end is only seen by its socket. */
	assert_in_range(downs, 0, 1);
	(void)close(told[0]);
	(void)close(told[1]);
	/* The caller's place is free again. */
	for (polls = 0; polls < 6; polls++) {
		const struct way way = join(&d, "shm", "same node");

		run(40);
		assert_int_equal(d.attached, polls + 1);
		way.transport->ops->disconnect(way.transport, way.peer);
		run(150);
	}
}

UNIT_TEST_WITH(ticket_without_an_allowed_address_is_no_route, up, down)
{
	static const char *const texts[] = { "shm:nobody", "verbs:10.67.0.1:5",
					     "shm:nobody;verbs:8.8.8.8:1",
					     "smoke:signal" };
	struct kvpull_route_choice choice;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(
			kvpull_routes_choose(&d.routes, texts[i], &choice),
			KVPULL_EROUTE);
}

UNIT_TEST_WITH(pinned_verbs_has_no_other_route, up, down)
{
	char addresses[KVPULL_TICKET_ADDRESS_BYTES_MAX];

	end_close(&other);
	end_open(&other, "pinned", NULL);
	kvpull_routes_print(&other.routes, addresses, sizeof(addresses));
	assert_memory_equal(addresses, "verbs:10.66.0.1:", 16);
	assert_null(strchr(addresses, ';'));
	(void)joined(&other, "verbs", "no other route is open");
}

/* The device comes back, and its route serves. */
static void expect_return(void)
{
	fake_verbs_return(0, 0);
	run(5000);
	(void)joined(&other, "verbs", "another node");
}

/* Half a second without its device, while the engine says what it has. */
UNIT_TEST_WITH(route_whose_device_was_away_at_registration_serves_later, up,
	       down)
{
	end_close(&p);
	end_make(&p, "p", folders[0]);
	/* As in a worker: nothing is polled before its memory is known. */
	fake_verbs_unaddress(0);
	assert_int_equal(kvpull_routes_serve(&p.routes, &p.serve), 0);
	expect_return();
}

/* An owner of a pool polls before it shares: then the route knows. */
UNIT_TEST_WITH(route_that_knows_that_its_device_is_away_serves_later, up, down)
{
	end_close(&p);
	end_make(&p, "p", folders[0]);
	run(5);
	fake_verbs_unaddress(0);
	run(2);
	end_serve(&p);
	expect_return();
}

UNIT_TEST_WITH(route_whose_device_was_away_when_memory_came_reads_later, up,
	       down)
{
	end_close(&other);
	end_make(&other, "o", folders[1]);
	run(5);
	/*
	 * This route gets the event first: events of a shared context go to one
	 * route.
	 */
	fake_verbs_unaddress(0);
	world.now_ns += 2 * WORLD_STEP_NS;
	end_poll(&other);
	assert_int_equal(kvpull_routes_local_add(&other.routes,
						 other.serve.regions[0].base,
						 other.serve.regions[0].bytes),
			 0);
	fake_verbs_return(0, 0);
	run(5000);
	assert_int_equal(kvpull_routes_local_add(&other.routes,
						 other.serve.regions[0].base,
						 other.serve.regions[0].bytes),
			 0);
	(void)joined(&other, "verbs", "another node");
}
