/* SPDX-License-Identifier: Apache-2.0 */
/* Each configuration key of a route is what the route is opened with. */
#include <stdio.h>
#include <string.h>

#include "cuda/cuda.h"
#include "plugin/route/route.h"
#include "shm/shm.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"
#include "verbs/verbs.h"

static struct kvpull_shm_params shm;
static struct kvpull_verbs_params verbs;
static struct kvpull_config config;
static char shm_name[64];

/* Answers of the two opens, and how often each was called. */
static int shm_code = KVPULL_EDEVICE;
static int verbs_code = KVPULL_EDEVICE;
static uint32_t shm_asked;
static uint32_t verbs_asked;

static struct kvpull_transport_ops shm_ops;
static struct kvpull_transport_ops verbs_ops;
static struct kvpull_transport shm_transport = { .ops = &shm_ops,
						 .peer_count_max = 3,
						 .caller_count_max = 5 };
static struct kvpull_transport verbs_transport = { .ops = &verbs_ops,
						   .peer_count_max = 7,
						   .caller_count_max = 11 };

int __wrap_kvpull_shm_open(const struct kvpull_shm_params *params,
			   struct kvpull_arena *arena,
			   struct kvpull_transport **transport);
int __wrap_kvpull_verbs_open(const struct kvpull_verbs_params *params,
			     struct kvpull_arena *arena,
			     struct kvpull_transport **transport);

int __wrap_kvpull_shm_open(const struct kvpull_shm_params *params,
			   struct kvpull_arena *arena,
			   struct kvpull_transport **transport)
{
	(void)arena;
	shm_asked++;
	shm = *params;
	(void)snprintf(shm_name, sizeof(shm_name), "%s", params->name);
	if (!shm_code)
		*transport = &shm_transport;
	return shm_code;
}

int __wrap_kvpull_verbs_open(const struct kvpull_verbs_params *params,
			     struct kvpull_arena *arena,
			     struct kvpull_transport **transport)
{
	(void)arena;
	verbs_asked++;
	verbs = *params;
	if (!verbs_code)
		*transport = &verbs_transport;
	return verbs_code;
}

static uint32_t rank;
static uint32_t disk_thread;
static uint32_t device_kind;

static int open_of(const char *route, const char *keys,
		   struct kvpull_routes *routes)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct kvpull_route_params params = {
		.log = &lines_log,
		.config = &config,
		.rank = rank,
		.disk_thread = disk_thread,
		.device_kind = device_kind,
		.incarnation = 0x1234,
		.reads_max = 8,
		.slots_max = 9,
		.engine_wake_fd = 77,
	};
	char json[256];

	(void)snprintf(json, sizeof(json), "{\"route\":\"%s\"%s}", route, keys);
	if (kvpull_config_load(&config, json, &detail))
		fail_msg("%s: %s", json, detail.message);
	lines_forget();
	shm_asked = verbs_asked = 0;
	return kvpull_routes_open(routes, &params);
}

static void open_with(const char *route, const char *keys)
{
	struct kvpull_routes routes;

	assert_int_equal(open_of(route, keys, &routes), KVPULL_EDEVICE);
}

#define OPENED(route, keys, member, value)                                      \
	do {                                                                    \
		open_with(#route, "," keys);                                    \
		if ((route).member != (value))                                  \
			fail_msg(                                               \
				"%s: " #member " is %llu", keys,                \
				(unsigned long long)(uintptr_t)(route).member); \
	} while (0)

#define CALLER "\"progress\":\"caller\""

UNIT_TEST(shm_is_opened_as_the_keys_say)
{
	OPENED(shm, "\"consumers_max\":7", callers_max, 7);
	OPENED(shm, "\"ring_records\":32", ring_records, 32);
	OPENED(shm, "\"copy_threads\":3", copy_threads, 3);
	OPENED(shm, "\"inline_bytes\":777", inline_bytes, 777);
	OPENED(shm, "\"connect_ms\":77", connect_ns, 77 * KVPULL_NS_PER_MS);
	OPENED(shm, "\"uring\":\"no\"", uring, KVPULL_URING_NO);
	OPENED(shm, "\"uring\":\"auto\"", uring, KVPULL_URING_ONE_THREAD);
	OPENED(shm, CALLER, uring, KVPULL_URING_ANY_THREAD);
	OPENED(shm, "\"peers_max\":9", peers_max,
	       kvpull_config_peer_entries(&config));
	OPENED(shm, CALLER, reads_max, 8);
	OPENED(shm, CALLER, socket_mode, 0);
	OPENED(shm, "\"uids\":[0,1]", socket_mode, 0666);
	OPENED(shm, "\"copy_routine\":\"memcpy\"", copy_routine,
	       (const char *)config.copy_routine);
	OPENED(shm, "\"socket_dir\":\"/tmp/x\"", socket_dir,
	       (const char *)config.socket_dir);
}

UNIT_TEST(poll_copies_as_the_keys_say)
{
	OPENED(shm, "\"progress\":\"thread\"", poll_copies, 1);
	OPENED(shm, CALLER, poll_copies, 0);
	OPENED(shm, CALLER ",\"progress_copies\":\"yes\"", poll_copies, 1);
	OPENED(shm, "\"progress_copies\":\"no\"", poll_copies, 0);
}

static struct kvpull_device_thread *gpu_of(const struct kvpull_transport *route)
{
	(void)route;
	/* No call is made of it here. */
	return (struct kvpull_device_thread *)(uintptr_t)4096;
}

/* The GPU's thread is of the route that is open before; none is without it. */
UNIT_TEST(verbs_is_told_the_gpu_that_shm_has_opened)
{
	struct kvpull_routes routes;

	shm_code = 0;
	shm_ops.device = gpu_of;
	assert_int_equal(open_of("auto", "", &routes), KVPULL_EDEVICE);
	assert_ptr_equal(verbs.gpu, gpu_of(NULL));
	shm_ops.device = NULL;
	shm_code = KVPULL_EDEVICE;
	OPENED(verbs, CALLER, gpu, NULL);
	OPENED(verbs, CALLER, device_flush, KVPULL_DEVICE_FLUSH_ALWAYS);
	OPENED(verbs, "\"device_flush\":\"driver\"", device_flush,
	       KVPULL_DEVICE_FLUSH_DRIVER);
}

UNIT_TEST(verbs_is_opened_as_the_keys_say)
{
	OPENED(verbs, "\"consumers_max\":7", callers_max, 7);
	OPENED(verbs, "\"ring_records\":32", ring_records, 32);
	OPENED(verbs, "\"connect_ms\":77", connect_ns, 77 * KVPULL_NS_PER_MS);
	OPENED(verbs, "\"flush_after_ms\":77", flush_ns, 77 * KVPULL_NS_PER_MS);
	OPENED(verbs, "\"peers_max\":9", peers_max,
	       kvpull_config_peer_entries(&config));
	OPENED(verbs, CALLER, reads_max, 8);
	OPENED(verbs, CALLER, slots_max, 9);
	OPENED(verbs, CALLER, engine_wake_fd, 77);
	OPENED(verbs, CALLER, required, 1);
	OPENED(verbs, CALLER, keyless, 1);
	OPENED(verbs, CALLER, gid_index, 0);
	OPENED(verbs, "\"verbs_gid_index\":0", gid_index, 1);
	OPENED(verbs, "\"verbs_rails\":2", rails, 2);
	OPENED(verbs, "\"verbs_qps\":4", qps, 4);
	OPENED(verbs, "\"verbs_port\":3", port, 3);
	OPENED(verbs, "\"verbs_depth\":99", depth, 99);
	OPENED(verbs, "\"verbs_batch\":98", batch, 98);
	OPENED(verbs, "\"verbs_rd_atomic\":97", rd_atomic, 97);
	OPENED(verbs, "\"verbs_credits\":96", notify_credits, 96);
	OPENED(verbs, "\"verbs_retry_count\":5", retry_count, 5);
	OPENED(verbs, "\"verbs_ack_timeout\":9", ack_timeout, 9);
	OPENED(verbs, "\"verbs_traffic_class\":95", traffic_class, 95);
	OPENED(verbs, "\"verbs_slice_bytes\":8192", slice_bytes, 8192);
	OPENED(verbs, "\"verbs_window_bytes\":65537", window_bytes, 65537);
	OPENED(verbs, "\"verbs_device\":\"a\"", device,
	       (const char *)config.verbs_device);
	OPENED(verbs, "\"verbs_address\":\"10.0.0.1\"", address,
	       (const char *)config.verbs_address);
	OPENED(verbs, "\"networks\":\"10.0.0.0/8\"", networks,
	       (const char *)config.networks);
}

UNIT_TEST(socket_is_named_by_the_incarnation_and_files_have_a_thread_if_asked)
{
	OPENED(shm, CALLER, file_thread, KVPULL_FILE_THREAD_NO);
	assert_string_equal(shm_name, "kvpull-0000000000001234.sock");
	disk_thread = 1;
	OPENED(shm, CALLER, file_thread, KVPULL_FILE_THREAD_YES);
	disk_thread = 0;
}

/* Off by default, and never for a share's owner or reader. */
UNIT_TEST(device_is_opened_as_the_key_says)
{
	device_kind = KVPULL_DEVICE_CUDA;
	OPENED(shm, CALLER, device_open, NULL);
	OPENED(shm, "\"device\":\"off\"", device_open, NULL);
	OPENED(shm, "\"device\":\"auto\"", device_open, kvpull_cuda_open);
	OPENED(shm, "\"device\":\"auto\"", device_required, 0);
	OPENED(shm, "\"device\":\"auto\"", device_index, 0);
	OPENED(shm, "\"device\":\"required\"", device_open, kvpull_cuda_open);
	OPENED(shm, "\"device\":\"required\"", device_required, 1);
	device_kind = KVPULL_DEVICE_NONE;
	OPENED(shm, "\"device\":\"required\"", device_open, NULL);
}

/* Ranks of a node listen on ports that follow each other. */
UNIT_TEST(port_is_that_of_the_local_rank_and_there_is_one)
{
	struct kvpull_routes routes;

	rank = 2;
	OPENED(verbs, CALLER, local_rank, 2);
	OPENED(verbs, CALLER, listen_port, 0);
	OPENED(verbs, "\"verbs_listen_port\":7000", listen_port, 7002);
	OPENED(verbs, "\"verbs_listen_port\":7000,\"verbs_local_rank\":5",
	       listen_port, 7005);
	OPENED(verbs, "\"verbs_local_rank\":0", local_rank, 0);
	OPENED(verbs, "\"verbs_listen_port\":65533", listen_port, 65535);
	assert_int_equal(
		open_of("verbs", ",\"verbs_listen_port\":65534", &routes),
		KVPULL_ECONFIG);
	assert_int_equal(verbs_asked, 0);
	assert_string_equal(
		lines.last,
		"verbs: verbs_listen_port 65534 and local rank 2 make port 65536: the largest is 65535");
	rank = 0;
}

UNIT_TEST(route_that_has_nothing_here_is_left_out_if_another_is_open)
{
	static const struct {
		const char *route;
		int shm_code, verbs_code, code;
		uint32_t shm_asked, verbs_asked, count;
	} rows[] = {
		{ "auto", 0, 0, 0, 1, 1, 2 },
		{ "auto", 0, KVPULL_EUNSUPPORTED, 0, 1, 1, 1 },
		{ "auto", 0, KVPULL_EDEVICE, KVPULL_EDEVICE, 1, 1, 1 },
		{ "auto", KVPULL_EUNSUPPORTED, 0, KVPULL_EUNSUPPORTED, 1, 0,
		  0 },
		{ "auto", KVPULL_ENOMEM, 0, KVPULL_ENOMEM, 1, 0, 0 },
		{ "shm", 0, 0, 0, 1, 0, 1 },
		{ "verbs", 0, 0, 0, 0, 1, 1 },
		{ "verbs", 0, KVPULL_EUNSUPPORTED, KVPULL_EUNSUPPORTED, 0, 1,
		  0 },
	};
	struct kvpull_routes routes;
	uint32_t at;

	for (at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) {
		shm_code = rows[at].shm_code;
		verbs_code = rows[at].verbs_code;
		assert_int_equal(open_of(rows[at].route, "", &routes),
				 rows[at].code);
		assert_int_equal(shm_asked, rows[at].shm_asked);
		assert_int_equal(verbs_asked, rows[at].verbs_asked);
		assert_int_equal(routes.count, rows[at].count);
	}
	verbs_code = 0;
	/* Handles of the second route come behind those of the first. */
	assert_int_equal(open_of("auto", "", &routes), 0);
	assert_ptr_equal(routes.list[0].transport, &shm_transport);
	assert_ptr_equal(routes.list[1].transport, &verbs_transport);
	assert_int_equal(routes.list[1].peer_first, 3);
	assert_int_equal(routes.list[1].caller_first, 5);
	assert_int_equal(routes.peer_count, 10);
	assert_int_equal(routes.caller_count, 16);
	shm_code = verbs_code = KVPULL_EDEVICE;
}

/* ---- the device's home where route verbs is pinned ---- */

/* How often each of the two routes was told of memory. */
static uint32_t shm_told, verbs_told;

static int memory_told(const struct kvpull_transport *route)
{
	if (route == &shm_transport)
		shm_told++;
	else if (route == &verbs_transport)
		verbs_told++;
	return 0;
}

static int any_serve(struct kvpull_transport *route,
		     const struct kvpull_serve *serve)
{
	(void)serve;
	return memory_told(route);
}

static int any_add(struct kvpull_transport *route, uint8_t *base,
		   uint64_t bytes)
{
	(void)base;
	(void)bytes;
	return memory_told(route);
}

static int any_is_reachable(const struct kvpull_transport *route,
			    const char *address)
{
	(void)route;
	(void)address;
	return 0;
}

static void pinned_open(int code, const char *keys,
			struct kvpull_routes *routes)
{
	device_kind = KVPULL_DEVICE_CUDA;
	shm_code = 0;
	verbs_code = code;
	shm_ops = (struct kvpull_transport_ops){
		.name = "shm",
		.near = "near",
		.far = "far",
		.device = gpu_of,
		.serve = any_serve,
		.local_add = any_add,
		.reachable = any_is_reachable,
	};
	verbs_ops = (struct kvpull_transport_ops){
		.name = "verbs",
		.serve = any_serve,
		.local_add = any_add,
		.reachable = any_is_reachable,
	};
	shm_told = verbs_told = 0;
	assert_int_equal(open_of("verbs", keys, routes), code);
}

static void pinned_close(void)
{
	device_kind = KVPULL_DEVICE_NONE;
	shm_code = verbs_code = KVPULL_EDEVICE;
	memset(&shm_ops, 0, sizeof(shm_ops));
	memset(&verbs_ops, 0, sizeof(verbs_ops));
}

#define DEVICE_KEY ",\"device\":\"auto\",\"copy_threads\":3"

/* The driver's thread is opened by route shm, which does nothing else there. */
UNIT_TEST(route_verbs_alone_has_a_device_and_no_other_way)
{
	static const char both[] = "shm:a;verbs:b";
	static const struct kvpull_serve serve;
	struct kvpull_route_choice choice;
	struct kvpull_routes routes;
	uint8_t byte;

	pinned_open(0, DEVICE_KEY, &routes);
	assert_int_equal(routes.count, 2);
	assert_ptr_equal(shm.device_open, kvpull_cuda_open);
	assert_int_equal(shm.copy_threads, 0);
	assert_ptr_equal(verbs.gpu, gpu_of(NULL));
	assert_ptr_equal(kvpull_routes_device(&routes), gpu_of(NULL));
	assert_int_equal(kvpull_routes_serve(&routes, &serve), 0);
	assert_int_equal(kvpull_routes_local_add(&routes, &byte, 1), 0);
	assert_int_equal(shm_told, 0);
	assert_int_equal(verbs_told, 2);
	assert_int_equal(kvpull_routes_choose(&routes, both, &choice), 0);
	assert_ptr_equal(choice.route, &routes.list[1]);
	assert_string_equal(choice.why, "no other route is open");
	assert_int_equal(kvpull_routes_choose(&routes, "shm:a", &choice),
			 KVPULL_EROUTE);
	pinned_close();
}

/* Neither where no device is wanted, nor in the place of the pinned route. */
UNIT_TEST(route_verbs_alone_opens_no_other_without_a_device)
{
	struct kvpull_routes routes;

	pinned_open(0, "", &routes);
	assert_int_equal(routes.count, 1);
	assert_int_equal(shm_asked, 0);
	pinned_open(0, ",\"device\":\"off\"", &routes);
	assert_int_equal(shm_asked, 0);
	pinned_open(KVPULL_EUNSUPPORTED, DEVICE_KEY, &routes);
	assert_int_equal(shm_asked, 1);
	pinned_close();
}
