/* SPDX-License-Identifier: Apache-2.0 */
/* Several routes, of which each does what the test says, behind one owner. */

#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plugin/route/route.h"
#include "tests/lib/unit.h"

#define SIDES 3u

/* A route that does what the test says. */
struct side {
	struct kvpull_transport transport;
	struct kvpull_transport_ops ops;
	uint32_t waiting;  /* events that it has */
	uint32_t capacity; /* of its last poll */
	uint32_t polls;
	int serve_code;
	int local_code;
	int reach_code;
	int more;
	int rings;
	int doorbell;
	uint32_t serves;
	uint32_t closes;
	uint32_t help_bytes;
	char address[8];
};

static struct kvpull_log silent;
static struct side sides[SIDES];
static struct kvpull_routes routes;

static struct side *of(const struct kvpull_transport *transport)
{
	return &sides[transport->peer_count_max - 1];
}

static int side_serve(struct kvpull_transport *transport,
		      const struct kvpull_serve *serve)
{
	(void)serve;
	of(transport)->serves++;
	return of(transport)->serve_code;
}

static int side_local_add(struct kvpull_transport *transport, uint8_t *base,
			  uint64_t bytes)
{
	(void)base;
	(void)bytes;
	return of(transport)->local_code;
}

static const char *side_address(const struct kvpull_transport *transport)
{
	return of(transport)->address;
}

static int side_reachable(const struct kvpull_transport *transport,
			  const char *address)
{
	return strcmp(address, "here") == 0 ? of(transport)->reach_code :
					      KVPULL_EPEER;
}

static int side_poll(struct kvpull_transport *transport, uint64_t now_ns,
		     struct kvpull_event *events, uint32_t capacity)
{
	struct side *side = of(transport);
	uint32_t at;

	(void)now_ns;
	side->polls++;
	side->capacity = capacity;
	for (at = 0; at < capacity && side->waiting; at++, side->waiting--)
		events[at] = (struct kvpull_event){
			.kind = KVPULL_EVENT_CALLER_UP,
		};
	return (int)at;
}

static uint32_t side_help(struct kvpull_transport *transport)
{
	return of(transport)->help_bytes;
}

static int side_arm(struct kvpull_transport *transport)
{
	return of(transport)->more;
}

static int side_rings(const struct kvpull_transport *transport)
{
	return of(transport)->rings;
}

static int side_doorbell_fd(const struct kvpull_transport *transport)
{
	return of(transport)->doorbell;
}

static void side_close(struct kvpull_transport *transport, uint64_t close_by_ns)
{
	(void)close_by_ns;
	of(transport)->closes++;
}

static int up(void **state)
{
	static const char *const names[SIDES] = { "a", "b", "c" };
	uint32_t at;

	(void)state;
	memset(sides, 0, sizeof(sides));
	routes = (struct kvpull_routes){ .log = &silent };
	for (at = 0; at < SIDES; at++) {
		sides[at].ops = (struct kvpull_transport_ops){
			.name = names[at],
			.serve = side_serve,
			.address = side_address,
			.reachable = side_reachable,
			.poll = side_poll,
			.arm = side_arm,
			.rings = side_rings,
			.doorbell_fd = side_doorbell_fd,
			.close = side_close,
		};
		sides[at].transport = (struct kvpull_transport){
			.ops = &sides[at].ops,
			.log = &silent,
			.peer_count_max = at + 1,
			.caller_count_max = 10 * (at + 1),
		};
		sides[at].doorbell = -1;
		memcpy(sides[at].address, "here", 5);
		assert_int_equal(
			kvpull_routes_add(&routes, &sides[at].transport), 0);
	}
	return 0;
}

/* All turns of one poll; how many events came. */
static uint32_t round_of(uint32_t capacity, uint32_t *first)
{
	struct kvpull_event events[64];
	const struct kvpull_route *route;
	uint32_t left = capacity;
	uint32_t turn;

	for (turn = 0; turn < routes.count; turn++) {
		const int count = kvpull_routes_poll(&routes, turn, 1, events,
						     left, &route);

		if (!turn)
			*first = (uint32_t)(route - routes.list);
		assert_in_range(count, 0, left);
		left -= (uint32_t)count;
	}
	return capacity - left;
}

UNIT_TEST_WITH(first_route_with_something_to_copy_is_helped, up, NULL)
{
	assert_int_equal(kvpull_routes_help(&routes), 0);
	sides[1].ops.help = sides[2].ops.help = side_help;
	assert_int_equal(kvpull_routes_help(&routes), 0);
	sides[2].help_bytes = 7;
	assert_int_equal(kvpull_routes_help(&routes), 7);
	sides[1].help_bytes = 5;
	assert_int_equal(kvpull_routes_help(&routes), 5);
}

UNIT_TEST_WITH(flood_of_one_route_leaves_the_others_their_share, up, NULL)
{
	uint32_t first;
	uint32_t at;
	uint32_t round;

	for (round = 0; round < 2 * SIDES; round++) {
		sides[0].waiting = 1000;
		sides[1].waiting = sides[2].waiting = 4;
		(void)round_of(12, &first);
		/* Another one begins each time. */
		assert_int_equal(first, round % SIDES);
		for (at = 0; at < SIDES; at++) {
			assert_int_equal(sides[at].polls, round + 1);
			assert_true(sides[at].capacity >= 4);
		}
		assert_int_equal(sides[1].waiting + sides[2].waiting, 0);
	}
}

UNIT_TEST_WITH(share_that_is_not_needed_is_the_next_ones, up, NULL)
{
	uint32_t first;

	sides[2].waiting = 12;
	assert_int_equal(round_of(12, &first), 12);
	assert_int_equal(sides[2].waiting, 0);
}

UNIT_TEST_WITH(handles_of_all_routes_are_one_range, up, NULL)
{
	static const uint32_t peers[SIDES] = { 0, 1, 1 + 2 };
	static const uint32_t callers[SIDES] = { 0, 10, 10 + 20 };
	uint32_t at;

	for (at = 0; at < SIDES; at++) {
		assert_int_equal(routes.list[at].peer_first, peers[at]);
		assert_int_equal(routes.list[at].caller_first, callers[at]);
	}
	assert_int_equal(routes.peer_count, 1 + 2 + 3);
	assert_int_equal(routes.caller_count, 10 + 20 + 30);
}

UNIT_TEST_WITH(route_that_cannot_serve_is_not_in_the_ticket, up, NULL)
{
	static const struct kvpull_serve serve;
	char text[64];

	sides[1].serve_code = KVPULL_EDEVICE;
	sides[1].address[0] = '\0';
	assert_int_equal(kvpull_routes_serve(&routes, &serve), 0);
	kvpull_routes_print(&routes, text, sizeof(text));
	assert_string_equal(text, "a:here;c:here");
	/* Without the preferred one nothing is served. */
	sides[0].serve_code = KVPULL_EDEVICE;
	assert_int_equal(kvpull_routes_serve(&routes, &serve), KVPULL_EDEVICE);
	assert_int_equal(sides[2].serves, 1);
}

UNIT_TEST_WITH(preferred_route_is_chosen_and_says_why, up, NULL)
{
	static const char addresses[] = "c:here;b:here;a:here";
	struct kvpull_route_choice choice;

	sides[0].ops.near = "it is near";
	sides[0].ops.far = "it is not near";
	assert_int_equal(kvpull_routes_choose(&routes, addresses, &choice), 0);
	assert_ptr_equal(choice.route, &routes.list[0]);
	assert_string_equal(choice.why, "it is near");
	assert_string_equal(choice.address, "here");
	sides[0].reach_code = KVPULL_EPEER;
	assert_int_equal(kvpull_routes_choose(&routes, addresses, &choice), 0);
	assert_ptr_equal(choice.route, &routes.list[1]);
	assert_string_equal(choice.why, "it is not near");
	/* A route that cannot say now is not passed over. */
	sides[0].reach_code = KVPULL_EAGAIN;
	assert_int_equal(kvpull_routes_choose(&routes, addresses, &choice),
			 KVPULL_EAGAIN);
	assert_int_equal(kvpull_routes_choose(&routes, "c:there", &choice),
			 KVPULL_EROUTE);
}

/* A route reads into none of the memory, or into all of it. */
UNIT_TEST_WITH(route_that_cannot_register_memory_reads_from_nobody, up, NULL)
{
	struct kvpull_route_choice choice;
	uint8_t memory;

	sides[1].ops.local_add = sides[2].ops.local_add = side_local_add;
	sides[1].local_code = KVPULL_EDEVICE;
	assert_int_equal(kvpull_routes_local_add(&routes, &memory, 1), 0);
	assert_int_equal(
		kvpull_routes_choose(&routes, "c:here;b:here", &choice), 0);
	assert_ptr_equal(choice.route, &routes.list[2]);
	/* Nor later, when it could have registered the rest. */
	sides[1].local_code = 0;
	assert_int_equal(kvpull_routes_local_add(&routes, &memory, 1), 0);
	assert_int_equal(kvpull_routes_choose(&routes, "b:here", &choice),
			 KVPULL_EROUTE);
	/* The route is not called again. */
	sides[1].local_code = KVPULL_EDEVICE;
	assert_int_equal(kvpull_routes_local_add(&routes, &memory, 1), 0);
	/* Another route is in use already: its engine has to know. */
	sides[2].local_code = KVPULL_EDEVICE;
	assert_int_equal(kvpull_routes_local_add(&routes, &memory, 1),
			 KVPULL_EDEVICE);
}

UNIT_TEST_WITH(sleep_ends_by_any_route, up, NULL)
{
	const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event;

	assert_int_equal(kvpull_routes_arm(&routes), 0);
	sides[2].more = 1;
	assert_int_equal(kvpull_routes_arm(&routes), 1);
	assert_int_equal(kvpull_routes_rings(&routes), 0);
	sides[1].rings = 1;
	assert_int_equal(kvpull_routes_rings(&routes), 1);
	/* Routes without a doorbell are left out. */
	sides[1].doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	sides[2].doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(kvpull_routes_watch_doorbells(&routes, epoll_fd), 0);
	assert_int_equal(eventfd_write(sides[2].doorbell, 1), 0);
	assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 1);
	/* The event is not read: a doorbell rings once. */
	assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
	(void)close(sides[1].doorbell);
	(void)close(sides[2].doorbell);
	(void)close(epoll_fd);
}

UNIT_TEST_WITH(table_of_routes_is_bounded, up, NULL)
{
	while (routes.count < KVPULL_ROUTES_MAX)
		assert_int_equal(
			kvpull_routes_add(&routes, &sides[0].transport), 0);
	assert_int_equal(kvpull_routes_add(&routes, &sides[0].transport),
			 KVPULL_EFULL);
}
