/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Route choice and the mapping of handles: ends in one process, each with the
 * same-node route and with verbs over the fake fabric.
 */
#include "verbs_world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ring.h"
#include "plugin/bytes/handshake.h"
#include "plugin/bytes/ticket.h"
#include "plugin/route/route.h"
#include "shm/endpoint.h"
#include "shm/segment.h"
#include "shm/shm.h"

#define RING_RECORDS 16u

struct end {
	struct kvpull_arena arena;
	struct kvpull_log log;
	struct kvpull_transport *transport;
	struct kvpull_shared memory, entries;
	struct kvpull_serve serve;
	struct kvpull_ring *ring; /* of the last caller that was let in */
	uint32_t handle;          /* of the last caller or peer told of */
	uint32_t caller_ups, caller_downs, attached, downs;
	int32_t refusal_code;
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
	route_begin(end->transport);
	assert_int_equal(
		end->transport->ops->serve(end->transport, &end->serve), 0);
}

static void end_make(struct end *end, const char *name, const char *folder,
		     uint32_t callers_max)
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
	struct kvpull_route_params params = {
		.log = &end->log,
		.peers_max = 4,
		.callers_max = callers_max,
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
	struct kvpull_transport *added;
	struct kvpull_route *route;

	memset(end, 0, sizeof(*end));
	kvpull_arena_init(&end->arena, &end->log);
	if (folder)
		assert_int_equal(
			kvpull_shm_open(&shm, &end->arena, &params.shm), 0);
	assert_int_equal(kvpull_route_open(&params, &end->arena, &route), 0);
	assert_int_equal(kvpull_verbs_open(&verbs, &end->arena, &added), 0);
	assert_int_equal(kvpull_route_add(route, added), 0);
	assert_true(kvpull_arena_ok(&end->arena));
	end->transport = kvpull_route_transport(route);
	region_fill(end);
}

static void end_open(struct end *end, const char *name, const char *folder,
		     uint32_t callers_max)
{
	end_make(end, name, folder, callers_max);
	end_serve(end);
}

static void end_close(struct end *end)
{
	if (!end->transport)
		return;
	end->transport->ops->close(end->transport);
	kvpull_segment_unmake(&end->memory);
	kvpull_segment_unmake(&end->entries);
	kvpull_arena_fini(&end->arena);
	end->transport = NULL;
}

static void message_take(struct end *end, const struct kvpull_event *event)
{
	const struct kvpull_transport_ops *ops = end->transport->ops;
	struct kvpull_refusal refusal;

	if (event->data_bytes == 10)
		assert_int_equal(ops->peer_send(end->transport, event->index,
						"hello", 6),
				 0);
	else if (event->data_bytes == 8)
		end->attached +=
			!ops->attach(end->transport, event->index, remote);
	else if (!kvpull_handshake_get_refusal(event->data, event->data_bytes,
					       &refusal))
		end->refusal_code = refusal.code;
}

static void event_take(struct end *end, const struct kvpull_event *event)
{
	const struct kvpull_transport_ops *ops = end->transport->ops;

	if (event->kind == KVPULL_EVENT_NONE)
		return;
	end->handle = event->index;
	switch (event->kind) {
	case KVPULL_EVENT_PEER_MESSAGE:
		message_take(end, event);
		break;
	case KVPULL_EVENT_CALLER_UP:
		end->caller_ups++;
		assert_int_equal(ops->caller_send(end->transport, event->index,
						  "challenge", 10),
				 0);
		break;
	case KVPULL_EVENT_CALLER_MESSAGE:
		assert_int_equal(ops->admit(end->transport, event->index,
					    "welcome", 8, &end->ring),
				 0);
		break;
	case KVPULL_EVENT_CALLER_DOWN:
		end->caller_downs++;
		ops->forget(end->transport, event->index);
		break;
	case KVPULL_EVENT_PEER_DOWN:
		end->downs++;
		break;
	default:
		fail_msg("event %d", (int)event->kind);
	}
}

static void run(uint32_t steps)
{
	struct end *const ends[] = { &p, &d, &other };
	struct kvpull_event events[8];
	size_t at;
	int count;
	int i;

	for (; steps; steps--) {
		world.now_ns += WORLD_STEP_NS;
		for (at = 0; at < 3; at++) {
			if (!ends[at]->transport)
				continue;
			count = ends[at]->transport->ops->poll(
				ends[at]->transport, world.now_ns, events, 8);
			for (i = 0; i < count; i++)
				event_take(ends[at], &events[i]);
		}
	}
}

static uint32_t join(struct end *end, uint32_t route)
{
	char addresses[KVPULL_TICKET_ADDRESS_BYTES_MAX];
	char address[KVPULL_ADDRESS_BYTES_MAX];
	const char *why;
	uint32_t peer;

	kvpull_route_print(p.transport, addresses, sizeof(addresses));
	assert_true(kvpull_ticket_address_is_good(addresses));
	assert_int_equal(
		kvpull_route_choose(end->transport, addresses, address), 0);
	assert_int_equal(kvpull_route_tell(end->transport, address, &why),
			 route);
	remote = &p.serve;
	assert_int_equal(
		end->transport->ops->connect(end->transport, address, &peer),
		0);
	return peer;
}

static void note_travels(struct end *end, uint32_t peer, uint64_t generation)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_RELEASE,
					      .slot = 2,
					      .generation = generation,
					      .tag = 5 };
	struct kvpull_record got;

	assert_int_equal(
		end->transport->ops->notify(end->transport, peer, &record), 0);
	run(3);
	assert_int_equal(kvpull_ring_ready(p.ring), 1);
	kvpull_ring_pop(p.ring, &got);
	kvpull_ring_pop_end(p.ring);
	assert_int_equal(got.generation, generation);
}

static void same_node_goes_by_shm_and_others_by_verbs(void **state)
{
	uint32_t near;
	uint32_t far;

	(void)state;
	near = join(&d, KVPULL_ROUTE_SHM);
	run(40);
	assert_int_equal(d.attached, 1);
	note_travels(&d, near, 7);
	far = join(&other, KVPULL_ROUTE_VERBS);
	run(40);
	assert_int_equal(other.attached, 1);
	assert_int_equal(p.caller_ups, 2);
	note_travels(&other, far, 8);
	other.transport->ops->beat(other.transport, far);
	run(3);
	assert_int_equal(kvpull_ring_beat_seen(p.ring), 1);
}

/* P's memory is a device's: D on its node has no other way either. */
static void device_memory_is_read_by_verbs_on_one_node_too(void **state)
{
	struct end *const ends[] = { &p, &d };
	uint32_t end, peer;

	(void)state;
	for (end = 0; end < 2; end++) {
		/* At either side, then at the other alone. */
		end_close(&p);
		end_close(&d);
		end_make(&p, "p", folders[0], 4);
		end_make(&d, "d", folders[0], 4);
		ends[end]->serve.regions[0].kind = KVPULL_REGION_DMABUF;
		end_serve(&p);
		end_serve(&d);
		peer = join(&d, KVPULL_ROUTE_VERBS);
		run(40);
		assert_int_equal(d.attached, 1);
		note_travels(&d, peer, 7);
	}
}

static void device_memory_without_its_device_is_refused(void **state)
{
	(void)state;
	end_close(&p);
	end_make(&p, "p", folders[0], 4);
	p.serve.regions[0].kind = KVPULL_REGION_DMABUF;
	fake_verbs_knobs.dmabuf_error = EOPNOTSUPP;
	assert_int_equal(p.transport->ops->serve(p.transport, &p.serve),
			 KVPULL_EUNSUPPORTED);
	/* The engine goes on with host memory: as if it had not asked. */
	p.serve.regions[0].kind = KVPULL_REGION_PROVIDED;
	end_serve(&p);
	(void)join(&d, KVPULL_ROUTE_SHM);
	run(40);
	assert_int_equal(d.attached, 1);
}

static void sleeper_is_woken_by_a_network_note(void **state)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM };
	const uint32_t far = join(&other, KVPULL_ROUTE_VERBS);
	eventfd_t count;

	(void)state;
	run(40);
	assert_int_equal(eventfd_read(wake_fd, &count), -1);
	assert_int_equal(kvpull_ring_arm(p.ring), 0);
	assert_int_equal(
		other.transport->ops->notify(other.transport, far, &record), 0);
	run(3);
	assert_int_equal(eventfd_read(wake_fd, &count), 0);
}

static void handles_are_used_again_after_the_end(void **state)
{
	uint32_t round;

	(void)state;
	for (round = 0; round < 12; round++) {
		struct end *end = round % 3 ? &other : &d;
		const uint32_t peer = join(end, round % 3 ? KVPULL_ROUTE_VERBS :
							    KVPULL_ROUTE_SHM);

		run(40);
		assert_int_equal(end->attached, 1);
		end->transport->ops->disconnect(end->transport, peer);
		run(150);
		assert_int_equal(end->downs, 1);
		assert_int_equal(p.caller_downs, round + 1);
		end->attached = end->downs = 0;
	}
}

static void callers_of_both_routes_share_one_bound(void **state)
{
	(void)state;
	(void)join(&d, KVPULL_ROUTE_SHM);
	run(40);
	(void)join(&other, KVPULL_ROUTE_VERBS);
	run(40);
	assert_int_equal(p.caller_ups, 2);
	(void)join(&other, KVPULL_ROUTE_VERBS);
	run(40);
	assert_int_equal(p.caller_ups, 2);
	assert_int_equal(other.refusal_code, KVPULL_EFULL);
}

/* A consumer that says something and lives until it is told to die. */
static pid_t caller_fork(int told)
{
	const struct kvpull_message message = { .bytes = "x", .byte_count = 1 };
	const char *name = p.transport->ops->address(p.transport);
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

/* What it said and its end come in one poll; the owner refuses, then forgets. */
static void caller_that_dies_while_it_is_refused_is_forgotten(void **state)
{
	const struct kvpull_transport_ops *ops = p.transport->ops;
	struct kvpull_event events[8];
	uint32_t downs = 0;
	uint32_t polls;
	int told[2];
	pid_t pid;
	int count;
	int at;

	(void)state;
	assert_int_equal(pipe(told), 0);
	pid = caller_fork(told[0]);
	do
		count = ops->poll(p.transport, ++world.now_ns, events, 8);
	while (!count);
	assert_int_equal(events[0].kind, KVPULL_EVENT_CALLER_UP);
	assert_int_equal(write(told[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &at, 0), pid);
	assert_int_equal(at, 0);
	for (polls = 0; polls < 64; polls++) {
		count = ops->poll(p.transport, ++world.now_ns, events, 8);
		for (at = 0; at < count; at++) {
			if (events[at].kind == KVPULL_EVENT_CALLER_MESSAGE)
				ops->refuse(p.transport, events[at].index, "no",
					    2);
			if (events[at].kind != KVPULL_EVENT_CALLER_DOWN)
				continue;
			ops->forget(p.transport, events[at].index);
			downs++;
		}
	}
	/* None, where its end is only seen by its socket. */
	assert_in_range(downs, 0, 1);
	(void)close(told[0]);
	(void)close(told[1]);
	/* Its place is free again. */
	for (polls = 0; polls < 6; polls++) {
		const uint32_t peer = join(&d, KVPULL_ROUTE_SHM);

		run(40);
		assert_int_equal(d.attached, polls + 1);
		d.transport->ops->disconnect(d.transport, peer);
		run(150);
	}
}

static void ticket_without_an_allowed_address_is_no_route(void **state)
{
	static const char *const texts[] = { "shm:nobody", "verbs:10.67.0.1:5",
					     "shm:nobody;verbs:8.8.8.8:1",
					     "smoke:signal" };
	char address[KVPULL_ADDRESS_BYTES_MAX];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(
			kvpull_route_choose(d.transport, texts[i], address),
			KVPULL_EROUTE);
}

static void pinned_verbs_has_no_other_route(void **state)
{
	char addresses[KVPULL_TICKET_ADDRESS_BYTES_MAX];

	(void)state;
	end_close(&other);
	end_open(&other, "pinned", NULL, 2);
	kvpull_route_print(other.transport, addresses, sizeof(addresses));
	assert_memory_equal(addresses, "verbs:10.66.0.1:", 16);
	assert_null(strchr(addresses, ';'));
	(void)join(&other, KVPULL_ROUTE_VERBS);
	run(40);
	assert_int_equal(other.attached, 1);
	assert_int_equal(kvpull_route_doorbell_fd(other.transport), -1);
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
	end_open(&p, "p", folders[0], 2);
	end_open(&d, "d", folders[0], 2);
	end_open(&other, "o", folders[1], 2);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(same_node_goes_by_shm_and_others_by_verbs),
		TEST(device_memory_is_read_by_verbs_on_one_node_too),
		TEST(device_memory_without_its_device_is_refused),
		TEST(sleeper_is_woken_by_a_network_note),
		TEST(handles_are_used_again_after_the_end),
		TEST(callers_of_both_routes_share_one_bound),
		TEST(caller_that_dies_while_it_is_refused_is_forgotten),
		TEST(ticket_without_an_allowed_address_is_no_route),
		TEST(pinned_verbs_has_no_other_route),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
