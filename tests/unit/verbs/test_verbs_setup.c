/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a route: bounds of its parameters, texts that name what cannot be,
 * libraries and ports as a host has them, and the memory that is served.
 */
#include <dlfcn.h>
#include <errno.h>

#include "tests/fake/verbs_shape.h"
#include "tests/unit/verbs/world.h"
#include "verbs/address.h"
#include "verbs/endpoint.h"
#include "verbs/place.h"
#include "verbs/read.h"
#include "verbs/region.h"
#include "verbs/setup.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIB (UINT64_C(1) << 20)

/* ---- parameters ---- */

UNIT_TEST(parameters_that_nobody_sets_have_their_defaults)
{
	struct kvpull_verbs_params params = { 0 };

	kvpull_verbs_setup_defaults(&params);
	assert_int_equal(params.notify_credits, 32);
	assert_int_equal(params.slots_max, 1);
	assert_int_equal(params.depth, 256);
	assert_int_equal(params.batch, 128);
	assert_int_equal(params.rd_atomic, 16);
	assert_int_equal(params.parts_max, 16);
	assert_int_equal(params.retry_count, 6);
	assert_int_equal(params.ack_timeout, 14);
	assert_int_equal(params.mr_shift, 30);
	assert_int_equal(params.slice_bytes, MIB);
	assert_int_equal(params.window_bytes, 16 * MIB);
	assert_int_equal(params.connect_ns, 5 * KVPULL_NS_PER_S);
	assert_int_equal(params.flush_ns, KVPULL_NS_PER_S / 10);
}

UNIT_TEST(parameters_end_at_their_bounds)
{
	const struct kvpull_verbs_params most = {
		.batch = KVPULL_VERBS_BATCH_MAX,
		.rd_atomic = UINT8_MAX,
		.parts_max = KVPULL_SLICE_PARTS_MAX,
		.slice_bytes = 8 * MIB,
		.window_bytes = 32 * MIB,
	};
	struct kvpull_verbs_params params = most;

	kvpull_verbs_setup_defaults(&params);
	assert_int_equal(params.batch, most.batch);
	assert_int_equal(params.rd_atomic, most.rd_atomic);
	assert_int_equal(params.parts_max, most.parts_max);
	assert_int_equal(params.slice_bytes, most.slice_bytes);
	params.batch++;
	params.rd_atomic++;
	params.parts_max++;
	params.slice_bytes++;
	params.window_bytes += 4;
	kvpull_verbs_setup_defaults(&params);
	assert_int_equal(params.batch, most.batch);
	assert_int_equal(params.rd_atomic, most.rd_atomic);
	assert_int_equal(params.parts_max, most.parts_max);
	assert_int_equal(params.slice_bytes, most.slice_bytes);
	params.window_bytes = 32 * MIB - 4;
	kvpull_verbs_setup_defaults(&params);
	assert_int_equal(params.slice_bytes, 8 * MIB - 1);
}

/* D's configuration is refused, by this line. */
static void is_refused(const char *device, const char *address,
		       const char *networks, const char *line)
{
	world_init();
	world.device = device;
	world.address = address;
	world.networks = networks;
	side_hear(&world.d, KVPULL_LOG_ERROR);
	assert_int_equal(side_open(&world.d), KVPULL_ECONFIG);
	assert_true(lines_said(line));
	assert_int_equal(lines.bad_count, 1);
	side_close(&world.d);
	assert_int_equal(fake_verbs_live(), 0);
}

UNIT_TEST(text_that_names_nothing_is_refused)
{
	static char names[KVPULL_VERBS_NAMES_BYTES + 1];
	const char *const too_long = "aaa...: more than 511 bytes for a rank\n";

	memset(names, 'a', KVPULL_VERBS_NAMES_BYTES);
	is_refused(names, NULL, NULL, too_long);
	is_refused(NULL, names, NULL, too_long);
	names[KVPULL_VERBS_NAMES_BYTES - 1] = '\0';
	is_refused(names, NULL, NULL, "verbs: device aaa");
	is_refused(NULL, names, NULL, "verbs: address aaa");
	is_refused("fake0,", "10.66.0", NULL,
		   "verbs: address 10.66.0 is no IP address\n");
	is_refused(",fake0", NULL, NULL,
		   "verbs: device ,fake0 names no devices\n");
	is_refused(
		NULL, NULL, "10.0.0.0/33",
		"verbs: networks 10.0.0.0/33: must be like 10.0.0.0/8,fd00::/8\n");
}

UNIT_TEST(name_of_a_device_has_63_bytes_at_most)
{
	char name[65];

	memset(name, 'a', sizeof(name));
	name[64] = '\0';
	is_refused(name, NULL, NULL, "names no devices");
	name[63] = '\0';
	world_init();
	world.device = name;
	assert_int_equal(side_open(&world.d), 0);
	assert_int_equal(world_down(state), 0);
}

/* ---- addresses ---- */

UNIT_TEST(text_of_an_address_ends_before_its_bound)
{
	struct kvpull_verbs_address address;
	char text[KVPULL_ADDRESS_BYTES_MAX + 1];

	memset(text, '0', sizeof(text));
	memcpy(text, "10.0.0.1:", 9);
	memcpy(text + KVPULL_ADDRESS_BYTES_MAX - 2, "7", 2);
	assert_int_equal(kvpull_verbs_address_parse(text, &address), 0);
	assert_int_equal(ntohs(address.socket.v4.sin_port), 7);
	memcpy(text + KVPULL_ADDRESS_BYTES_MAX - 2, "07", 3);
	assert_int_equal(kvpull_verbs_address_parse(text, &address),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_verbs_address_parse("[:5", &address),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_verbs_address_parse(":5", &address),
			 KVPULL_EINVAL);
	assert_int_equal(kvpull_verbs_address_parse("[]:5", &address),
			 KVPULL_EINVAL);
}

UNIT_TEST(mapped_address_is_none)
{
	struct kvpull_verbs_address address;

	assert_int_equal(
		kvpull_verbs_address_parse_ip("::ffff:10.0.0.1", &address),
		KVPULL_EINVAL);
	/* A bit of the prefix differs, in each of its words. */
	assert_int_equal(
		kvpull_verbs_address_parse_ip("::fffe:a00:1", &address), 0);
	assert_int_equal(
		kvpull_verbs_address_parse_ip("::1:ffff:a00:1", &address), 0);
	assert_int_equal(
		kvpull_verbs_address_parse_ip("1::ffff:a00:1", &address), 0);
}

/* So many networks, as a list. */
static void networks_print(uint32_t count, char *text, size_t capacity)
{
	size_t used = 0;
	uint32_t i;

	for (i = 0; i < count; i++)
		used += (size_t)snprintf(text + used, capacity - used, "%s%s",
					 i ? "," : "", "10.0.0.0/8");
}

UNIT_TEST(networks_are_sixteen_at_most)
{
	char text[(KVPULL_NETWORKS_MAX + 1) * sizeof("10.0.0.0/8,")];
	struct kvpull_networks list = { .count = 0 };

	networks_print(KVPULL_NETWORKS_MAX, text, sizeof(text));
	assert_int_equal(kvpull_verbs_networks_parse(text, &list), 0);
	assert_int_equal(list.count, KVPULL_NETWORKS_MAX);
	networks_print(KVPULL_NETWORKS_MAX + 1, text, sizeof(text));
	assert_int_equal(kvpull_verbs_networks_parse(text, &list),
			 KVPULL_ECONFIG);
	/* An item is longer than any network is. */
	(void)snprintf(text, sizeof(text), "%80s", "10.0.0.0/8");
	assert_int_equal(kvpull_verbs_networks_parse(text, &list),
			 KVPULL_ECONFIG);
	assert_int_equal(list.count, KVPULL_NETWORKS_MAX);
}

UNIT_TEST(netmask_of_all_bits_is_one_host)
{
	struct kvpull_verbs_address address;
	struct kvpull_verbs_address mask;
	struct kvpull_network network;

	assert_int_equal(kvpull_verbs_address_parse_ip("10.66.3.9", &address),
			 0);
	assert_int_equal(
		kvpull_verbs_address_parse_ip("255.255.255.255", &mask), 0);
	kvpull_verbs_network_of(&address, &mask, &network);
	assert_int_equal(network.prefix_bits, 32);
	assert_int_equal(kvpull_verbs_address_parse_ip("fd00::9", &address), 0);
	memset(&mask.socket.v6.sin6_addr, 0xff, 16);
	mask.socket.v6.sin6_family = AF_INET6;
	kvpull_verbs_network_of(&address, &mask, &network);
	assert_int_equal(network.prefix_bits, 128);
	assert_int_equal(network.family, AF_INET6);
}

/* ---- what the kernel's files say ---- */

UNIT_TEST(line_of_the_kernel_is_read_within_its_bounds)
{
	cpu_set_t cpus;

	assert_int_equal(kvpull_place_rate_mbps("999999 Gb/sec"), 999999000);
	assert_int_equal(kvpull_place_rate_mbps("1000000 Gb/sec"), 0);
	assert_int_equal(kvpull_place_rate_mbps("0 Gb/sec"), 0);
	assert_int_equal(kvpull_place_rate_mbps("-5 Gb/sec"), 0);
	assert_int_equal(kvpull_place_rate_mbps("2.5 Gb/sec"), 2500);
	assert_int_equal(kvpull_place_distance("10 65535", 1), 65535);
	assert_int_equal(kvpull_place_distance("10 65536", 1), 0);
	assert_int_equal(kvpull_place_distance("10 20", 2), 0);
	CPU_ZERO(&cpus);
	CPU_SET(5, &cpus);
	assert_true(kvpull_place_is_among("0-2,5", &cpus));
	assert_true(kvpull_place_is_among("0-5", &cpus));
	assert_false(kvpull_place_is_among("0-4,6", &cpus));
	assert_false(kvpull_place_is_among("0-4 5", &cpus));
}

/* ---- the libraries ---- */

static int has_libraries; /* whose symbols are those of this program */

/* In the place of libc's, for the library that is linked to this program. */
void *dlopen(const char *file, int flags)
{
	(void)file;
	return has_libraries ? dlmopen(LM_ID_BASE, NULL, flags) : NULL;
}

UNIT_TEST(host_without_the_libraries_is_not_supported)
{
	struct kvpull_verbs_params params = {
		.peers_max = 1,
		.callers_max = 1,
		.ring_records = WORLD_RING_RECORDS,
		.reads_max = 1,
		.required = 1,
		.log = &world.d.log,
	};
	char names[KVPULL_VERBS_NAMES_BYTES + 1] = "";
	struct kvpull_transport *route;
	struct kvpull_arena arena;

	for (has_libraries = 0; has_libraries < 2; has_libraries++) {
		world_init();
		side_hear(&world.d, KVPULL_LOG_ERROR);
		kvpull_arena_init(&arena, &world.d.log);
		assert_int_equal(kvpull_verbs_open(&params, &arena, &route),
				 KVPULL_EUNSUPPORTED);
		kvpull_arena_fini(&arena);
		assert_true(lines_said(
			has_libraries ?
				"verbs: librdmacm and libibverbs are too old: they have no rdma_create_event_channel\n" :
				"verbs: no RDMA on this host: "));
		assert_true(lines_said(
			"route verbs is pinned, and cannot be opened (EUNSUPPORTED): the line before says why; route auto goes on without it\n"));
		assert_int_equal(lines.bad_count, 2);
	}
	/* The configuration is looked at first. */
	memset(names, 'a', sizeof(names) - 1);
	params.device = names;
	kvpull_arena_init(&arena, &world.d.log);
	assert_int_equal(kvpull_verbs_open(&params, &arena, &route),
			 KVPULL_ECONFIG);
	kvpull_arena_fini(&arena);
}

/* ---- ports ---- */

static struct ibv_port_attr port_attr; /* as a library says it */
static int port_error;

static int query_port(struct ibv_context *context, uint8_t port,
		      struct _compat_ibv_port_attr *attr)
{
	(void)context;
	(void)port;
	memcpy(attr, &port_attr, sizeof(port_attr));
	return port_error;
}

static uint8_t asked_port;

static int query_port_whole(struct ibv_context *context, uint8_t port,
			    struct ibv_port_attr *attr, size_t bytes)
{
	(void)context;
	assert_int_equal(bytes, sizeof(*attr));
	asked_port = port;
	attr->lid = 77;
	return port_error;
}

/* The library has a call that knows all attributes, from that size on. */
UNIT_TEST(port_is_asked_by_the_call_that_knows_all)
{
	const size_t least = sizeof(struct verbs_context) -
			     offsetof(struct verbs_context, query_port);
	struct kvpull_fabric fabric = { .ibv.query_port = query_port };
	struct verbs_context extended = { .query_port = query_port_whole };
	struct ibv_port_attr attr;

	port_attr = (struct ibv_port_attr){ .lid = 5 };
	port_error = 0;
	extended.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	extended.sz = least;
	assert_int_equal(
		kvpull_fabric_port(&fabric, &extended.context, 3, &attr), 0);
	assert_int_equal(attr.lid, 77);
	assert_int_equal(asked_port, 3);
	extended.sz = least - 1;
	assert_int_equal(
		kvpull_fabric_port(&fabric, &extended.context, 3, &attr), 0);
	assert_int_equal(attr.lid, 5);
	extended.sz = least;
	extended.query_port = NULL;
	assert_int_equal(
		kvpull_fabric_port(&fabric, &extended.context, 3, &attr), 0);
	assert_int_equal(attr.lid, 5);
	port_error = EIO;
	assert_int_equal(
		kvpull_fabric_port(&fabric, &extended.context, 3, &attr),
		KVPULL_EDEVICE);
	extended.query_port = query_port_whole;
	assert_int_equal(
		kvpull_fabric_port(&fabric, &extended.context, 3, &attr),
		KVPULL_EDEVICE);
	port_error = 0;
}

/* The line that names D's port has this rate, without the kernel's files. */
static void rate_is(uint8_t speed, uint8_t width, const char *rate)
{
	char words[64];

	world_init();
	port_attr = (struct ibv_port_attr){ .state = IBV_PORT_ACTIVE,
					    .active_mtu = IBV_MTU_1024,
					    .gid_tbl_len = 2,
					    .active_speed = speed,
					    .active_width = width };
	port_error = 0;
	fake_verbs_fabric()->ibv.query_port = query_port;
	side_hear(&world.d, KVPULL_LOG_INFO);
	assert_int_equal(side_open(&world.d), 0);
	(void)snprintf(words, sizeof(words), "10.66.0.1, %s Mb/s, MTU 1024",
		       rate);
	assert_true(lines_said(words));
	side_close(&world.d);
}

UNIT_TEST(rate_is_lanes_times_their_speed)
{
	static const struct {
		uint8_t speed;
		const char *rate;
	} speeds[] = {
		{ 1, "2500" },   { 2, "5000" },     { 4, "10000" },
		{ 8, "10000" },  { 16, "14000" },   { 32, "25000" },
		{ 64, "50000" }, { 128, "100000" },
	};
	static const struct {
		uint8_t width;
		const char *rate;
	} widths[] = {
		{ 1, "25000" },  { 2, "100000" }, { 4, "200000" },
		{ 8, "300000" }, { 16, "50000" },
	};
	size_t i;

	for (i = 0; i < COUNT(speeds); i++)
		rate_is(speeds[i].speed, 1, speeds[i].rate);
	for (i = 0; i < COUNT(widths); i++)
		rate_is(32, widths[i].width, widths[i].rate);
}

UNIT_TEST(mtu_that_a_port_does_not_tell_is_the_least)
{
	const struct ibv_context context = { .device = NULL };
	struct kvpull_fabric fabric = { .ibv.query_port = query_port };
	struct kvpull_verbs_device device = { .fabric = &fabric };
	struct ibv_context *given = (struct ibv_context *)(uintptr_t)&context;

	port_attr = (struct ibv_port_attr){ .active_mtu = IBV_MTU_512 };
	assert_int_equal(kvpull_verbs_device_mtu(&device), IBV_MTU_256);
	device.context = given;
	assert_int_equal(kvpull_verbs_device_mtu(&device), IBV_MTU_512);
	port_attr.active_mtu = IBV_MTU_256;
	assert_int_equal(kvpull_verbs_device_mtu(&device), IBV_MTU_256);
	port_attr.active_mtu = 0;
	assert_int_equal(kvpull_verbs_device_mtu(&device), IBV_MTU_256);
	port_attr.active_mtu = IBV_MTU_512;
	port_error = EIO;
	assert_int_equal(kvpull_verbs_device_mtu(&device), IBV_MTU_256);
	port_error = 0;
}

/* ---- interfaces ---- */

static const struct fake_verbs_shape infiniband[] = {
	{ .name = "mlx5_0",
	  .link = FAKE_VERBS_INFINIBAND,
	  .places = { { .ip = "10.1.0.1" } } },
};

/* The address of InfiniBand is an interface's, and of RoCE a GID is enough. */
UNIT_TEST(interfaces_that_cannot_be_listed_fail_infiniband_alone)
{
	world_init();
	fake_verbs_shapes(infiniband, 1);
	side_hear(&world.d, KVPULL_LOG_ERROR);
	world.interfaces_error = ENOBUFS;
	assert_int_equal(side_open(&world.d), KVPULL_EDEVICE);
	assert_true(lines_said(
		"verbs: asking rdma_cm for the addresses of devices: No buffer space"));
	assert_int_equal(fake_verbs_live(), 0);
	side_close(&world.d);
	world.interfaces_error = 0;
	assert_int_equal(side_open(&world.d), 0);
	assert_int_equal(world_down(state), 0);
	world_init();
	world.networks = NULL;
	world.interfaces_error = ENOBUFS;
	assert_int_equal(world_open(), 0);
	/* The subnets could not be found, so no address is in them. */
	assert_int_equal(world_connect(), KVPULL_EROUTE);
	assert_int_equal(world_down(state), 0);
}

/* ---- memory ---- */

UNIT_TEST(memory_that_cannot_be_served_is_refused)
{
	static const struct {
		uint32_t kind;
		int has_base, fd;
		uint64_t bytes;
		int code;
	} rows[] = {
		{ KVPULL_REGION_PROVIDED, 0, -1, 4096, KVPULL_EINVAL },
		{ KVPULL_REGION_PROVIDED, 1, -1, 0, KVPULL_EINVAL },
		{ KVPULL_REGION_DMABUF, 1, 0, 4096, KVPULL_EUNSUPPORTED },
		{ KVPULL_REGION_UNSEALED, 0, 5, 4096, KVPULL_EUNSUPPORTED },
		{ KVPULL_REGION_FILE, 1, 5, 4096, KVPULL_EUNSUPPORTED },
		{ KVPULL_REGION_UNSEALED, 1, 5, 4096, 0 },
		{ KVPULL_REGION_FOREIGN, 1, -1, 4096, 0 },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		struct kvpull_region_view *view = &world.p.serve.regions[0];
		uint32_t live;

		world_init();
		assert_int_equal(side_open(&world.p), 0);
		live = fake_verbs_live();
		side_fill(&world.p);
		view->kind = rows[i].kind;
		view->fd = rows[i].fd;
		view->bytes = rows[i].bytes;
		if (!rows[i].has_base)
			view->base = NULL;
		route_begin(world.p.route);
		assert_int_equal(world.p.route->ops->serve(world.p.route,
							   &world.p.serve),
				 rows[i].code);
		if (rows[i].code) {
			assert_int_equal(fake_verbs_live(), live);
			assert_int_equal(side_serve(&world.p), 0);
		}
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST(what_is_served_has_memory_slots_and_entries)
{
	const struct kvpull_transport_ops *ops;
	struct kvpull_serve serve;

	world_init();
	assert_int_equal(side_open(&world.p), 0);
	side_fill(&world.p);
	route_begin(world.p.route);
	ops = world.p.route->ops;
	serve = world.p.serve;
	serve.region_count = 0;
	assert_int_equal(ops->serve(world.p.route, &serve), KVPULL_EINVAL);
	serve = world.p.serve;
	serve.slot_count = 0;
	assert_int_equal(ops->serve(world.p.route, &serve), KVPULL_EINVAL);
	serve = world.p.serve;
	serve.entries = NULL;
	assert_int_equal(ops->serve(world.p.route, &serve), KVPULL_EINVAL);
	assert_int_equal(ops->serve(world.p.route, &world.p.serve), 0);
	assert_int_equal(ops->doorbell_fd(world.p.route), -1);
	assert_int_equal(world_down(state), 0);
}

/* An MR is larger than the device takes at once. */
UNIT_TEST(device_of_small_registrations_is_refused)
{
	static struct kvpull_serve serve = {
		.regions = { { .kind = KVPULL_REGION_FOREIGN, .bytes = 64 } },
		.region_count = 1,
		.slot_count = 1,
	};
	static struct kvpull_verbs_regions regions;
	struct kvpull_verbs_device device = {
		.log = &world.d.log,
		.limits.max_mr_size = UINT64_C(1) << 30,
	};
	uint8_t memory[64];

	world_init();
	side_hear(&world.d, KVPULL_LOG_ERROR);
	serve.regions[0].base = memory;
	kvpull_verbs_regions_begin(&regions, &device, &serve, 30);
	assert_int_equal(kvpull_verbs_regions_grow(&regions, &serve), 0);
	assert_int_equal(lines.bad_count, 0);
	device.limits.max_mr_size--;
	kvpull_verbs_regions_begin(&regions, &device, &serve, 30);
	assert_int_equal(kvpull_verbs_regions_grow(&regions, &serve),
			 KVPULL_EUNSUPPORTED);
	assert_true(lines_said("or the device takes less at once"));
	serve.region_count = KVPULL_REGIONS_MAX + 1;
	assert_int_equal(kvpull_verbs_regions_grow(&regions, &serve),
			 KVPULL_EINVAL);
	serve.region_count = 1;
}

UNIT_TEST(tickets_that_are_given_back_have_one_byte_to_most)
{
	static uint8_t bytes[KVPULL_VERBS_GIVE_BYTES_MAX + 1];
	const struct kvpull_transport_ops *ops;
	const char *address;
	uint32_t peer;

	world_init();
	assert_int_equal(world_open(), 0);
	ops = world.d.route->ops;
	address = side_address(&world.p);
	assert_int_equal(ops->give(world.d.route, address, bytes, 0, &peer),
			 KVPULL_EINVAL);
	assert_int_equal(
		ops->give(world.d.route, address, bytes, sizeof(bytes), &peer),
		KVPULL_EINVAL);
	assert_int_equal(ops->give(world.d.route, address, bytes,
				   sizeof(bytes) - 1, &peer),
			 0);
	assert_int_equal(world_down(state), 0);
}

/* 0, or why D is not opened with so much memory. */
static int open_with(size_t bytes_max, size_t *used)
{
	const struct kvpull_verbs_params params = world_params(&world.d);
	struct kvpull_transport *route = NULL;
	struct kvpull_arena arena;
	int code;

	kvpull_arena_init(&arena, &world.d.log);
	arena.bytes_max = bytes_max;
	code = kvpull_verbs_open(&params, &arena, &route);
	*used = arena.used;
	if (!code)
		route->ops->close(route, kvpull_clock_close_by());
	kvpull_arena_fini(&arena);
	assert_int_equal(fake_verbs_live(), 0);
	return code;
}

UNIT_TEST(route_with_too_little_memory_is_not_opened)
{
	size_t bytes;
	size_t ignored;
	uint32_t part;

	world_init();
	assert_int_equal(open_with(KVPULL_ARENA_BYTES_MAX, &bytes), 0);
	assert_int_equal(open_with(bytes, &ignored), 0);
	assert_int_equal(open_with(bytes - 1, &ignored), KVPULL_ENOMEM);
	for (part = 0; part < 200; part++)
		assert_int_equal(open_with(bytes / 200 * part, &ignored),
				 KVPULL_ENOMEM);
}
