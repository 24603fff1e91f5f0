/* SPDX-License-Identifier: Apache-2.0 */
/* Each configuration key of a route is what the route is opened with. */
#include <string.h>

#include "plugin/route/route.h"
#include "shm/shm.h"
#include "tests/lib/unit.h"
#include "verbs/verbs.h"

static struct kvpull_shm_params shm;
static struct kvpull_verbs_params verbs;
static struct kvpull_config config;

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
	(void)transport;
	shm = *params;
	return KVPULL_EDEVICE;
}

int __wrap_kvpull_verbs_open(const struct kvpull_verbs_params *params,
			     struct kvpull_arena *arena,
			     struct kvpull_transport **transport)
{
	(void)arena;
	(void)transport;
	verbs = *params;
	return KVPULL_EDEVICE;
}

static void open_with(const char *route, const char *keys)
{
	static const struct kvpull_log silent;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct kvpull_route_params params = {
		.log = &silent,
		.config = &config,
		.incarnation = 0x1234,
		.reads_max = 8,
		.slots_max = 9,
		.engine_wake_fd = 77,
	};
	struct kvpull_routes routes;
	char json[256];

	(void)snprintf(json, sizeof(json), "{\"route\":\"%s\"%s}", route, keys);
	if (kvpull_config_load(&config, json, &detail))
		fail_msg("%s: %s", json, detail.message);
	assert_int_equal(kvpull_routes_open(&routes, &params), KVPULL_EDEVICE);
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
