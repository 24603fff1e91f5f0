/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers and readers as engines open them, with the key `device`: who calls the
 * fake driver, by which thread, and what is said where there is no device. Each
 * case is a child: the driver does not work in a fork()ed one.
 */
#include <dirent.h>

#include "base/clock.h"
#include "kvpull/connector.h"
#include "kvpull/reader.h"
#include "tests/lib/host.h"
#include "tests/lib/host_reader.h"
#include "tests/lib/patience.h"
#include "tests/lib/unit.h"
#include "tests/unit/cuda/world.h"

static struct kvpull_worker *worker;
static struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
static uint32_t device_kind = KVPULL_DEVICE_CUDA;
static int device_index;
static struct kvpull_memory memory; /* the last one that was taken */

static struct kvpull_model model = {
	.struct_size = sizeof(model),
	.model = "tiny",
	.dtype = "bytes",
	.layout = "LBHNC",
	.layer_count = 1,
	.head_count = 1,
	.head_bytes = 256,
};

static int open_with(const char *keys)
{
	static const struct kvpull_group group = { .block_tokens = 16 };
	static const struct kvpull_host host = { .struct_size = sizeof(host),
						 .log = lines_keep };
	char config[256];
	struct kvpull_open_params params =
		host_params("device", config, &model, &group);

	params.host = &host;
	params.device_kind = device_kind;
	params.device_index = device_index;
	(void)snprintf(
		config, sizeof(config),
		"{\"route\":\"shm\",\"copy_threads\":0,\"status\":\"off\"%s}",
		keys);
	lines_forget();
	return kvpull_connector_v1()->worker->open(&params, &worker, &detail);
}

static void worker_close(void)
{
	kvpull_connector_v1()->worker->close(worker);
}

/* Threads of the process by that name. */
static uint32_t threads_called(const char *name)
{
	DIR *const folder = opendir("/proc/self/task");
	const struct dirent *entry;
	uint32_t count = 0;
	char path[320];
	char line[32];

	MUST(folder);
	while ((entry = readdir(folder))) {
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			       entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fgets(line, sizeof(line), file)) {
			line[strcspn(line, "\n")] = '\0';
			count += strcmp(line, name) == 0;
		}
		(void)fclose(file);
	}
	(void)closedir(folder);
	return count;
}

/* The kernel lists a thread for a moment after it was joined. */
static int is_alone(void)
{
	uint32_t tries = 1000 * patience();

	while (threads_called("kvpull-device") && tries--)
		kvpull_clock_nap();
	return !threads_called("kvpull-device");
}

/* 1: a library by that name is mapped into the process. */
static int is_loaded(const char *name)
{
	FILE *const file = fopen("/proc/self/maps", "re");
	char line[1024];
	int found = 0;

	MUST(file);
	while (!found && fgets(line, sizeof(line), file))
		found = strstr(line, name) != NULL;
	(void)fclose(file);
	return found;
}

/* ---- without a device ---- */

UNIT_TEST_IN_CHILD(
	worker_that_wants_no_device_loads_no_driver_and_starts_no_thread)
{
	MUST(!open_with(""));
	MUST(!is_loaded("libcuda"));
	MUST(is_alone());
	worker_close();
	fake_load();
	MUST(!open_with(",\"device\":\"off\""));
	MUST(!world.fake_calls());
	MUST(is_alone());
	worker_close();
	MUST(!lines.bad_count);
}

/* ---- with one ---- */

static void used(const char *keys)
{
	MUST(!open_with(keys));
	MUST(world.fake_calls());
	/* The driver's own threads have the name of whoever started them. */
	MUST(threads_called("kvpull-device"));
	MUST(!lines.bad_count);
	worker_close();
	MUST(is_alone());
	MUST(fds_open() == world.fds);
}

UNIT_TEST_IN_CHILD(device_is_opened_by_its_own_thread_and_given_back)
{
	fake_load();
	used(",\"device\":\"auto\"");
	used(",\"device\":\"required\"");
	used(",\"device\":\"required\",\"progress\":\"caller\"");
}

/* The fake ends a program that leaves anything, and so does a descriptor. */
static void refuse(const char *call)
{
	(void)setenv("FAKE_CUDA_REFUSE", call, 1);
	fake_load();
}

UNIT_TEST_IN_CHILD(missing_device_is_one_line_where_it_may_be_missing)
{
	refuse("cuInit 100");
	MUST(!open_with(",\"device\":\"auto\""));
	MUST(is_alone());
	MUST(lines.bad_count == 1);
	MUST(strstr(
		lines.bad,
		"device=auto, and there is none: cuda: the driver does not start: 100"));
	worker_close();
	MUST(fds_open() == world.fds);
}

UNIT_TEST_IN_CHILD(missing_device_that_is_required_ends_open_by_name)
{
	refuse("cuInit 100");
	MUST(open_with(",\"device\":\"required\"") == KVPULL_EUNSUPPORTED);
	MUST(detail.code == KVPULL_EUNSUPPORTED);
	MUST(lines.bad_count == 1);
	MUST(strstr(lines.bad,
		    "device=required: cuda: the driver does not start"));
	MUST(strstr(lines.bad, "or set device=auto"));
	MUST(!strncmp(detail.message, lines.bad, sizeof(detail.message) - 1));
	MUST(fds_open() == world.fds);
	/* A host that wants errors alone hears of it, too. */
	MUST(open_with(",\"device\":\"required\",\"log_level\":\"error\"") ==
	     KVPULL_EUNSUPPORTED);
	MUST(lines.bad_count == 1);
	MUST(strstr(detail.message, "device=required: cuda: "));
}

/* No memory for the context: another code than of a host without a driver. */
UNIT_TEST_IN_CHILD(device_without_memory_is_told_with_its_code)
{
	refuse("cuDevicePrimaryCtxRetain 2");
	MUST(open_with(",\"device\":\"required\"") == KVPULL_ENOMEM);
	MUST(lines.bad_count == 1);
	MUST(strstr(lines.bad, "device=required: cuda: "));
	MUST(!open_with(",\"device\":\"auto\""));
	MUST(lines.bad_count == 1);
	worker_close();
	MUST(fds_open() == world.fds);
}

/* A later refusal of the driver has nothing to do with the key. */
UNIT_TEST_IN_CHILD(later_lines_of_the_device_are_told_as_they_are)
{
	refuse("cuDevicePrimaryCtxRelease 2");
	MUST(!open_with(",\"device\":\"required\""));
	MUST(!lines.bad_count);
	worker_close();
	MUST(lines.bad_count == 1);
	MUST(!strncmp(lines.bad, "cuda: ", 6));
	leave();
}

/* ---- which device ---- */

UNIT_TEST_IN_CHILD(device_is_the_one_that_the_engine_names)
{
	fake_load();
	device_kind = KVPULL_DEVICE_NONE;
	MUST(!open_with(",\"device\":\"auto\""));
	MUST(!world.fake_calls() && is_alone() && !lines.bad_count);
	worker_close();
	MUST(open_with(",\"device\":\"required\"") == KVPULL_ECONFIG);
	MUST(!strcmp(detail.field, "device"));
	MUST(strstr(detail.message, "the engine names none (device_kind)"));
	device_kind = KVPULL_DEVICE_CUDA + 1;
	MUST(open_with("") == KVPULL_EUNSUPPORTED);
	MUST(!strcmp(detail.field, "device_kind"));
	device_kind = KVPULL_DEVICE_CUDA;
	device_index = -1;
	MUST(open_with("") == KVPULL_EUNSUPPORTED);
	/* The fake has one device. */
	device_index = 1;
	MUST(open_with(",\"device\":\"required\"") == KVPULL_EUNSUPPORTED);
	MUST(strstr(detail.message, "device 1"));
	MUST(fds_open() == world.fds);
}

/* ---- its memory ---- */

static int taken(uint64_t bytes, uint32_t flags)
{
	memory = (struct kvpull_memory){ .struct_size = sizeof(memory) };
	return kvpull_connector_v1()->worker->memory_alloc(worker, bytes, flags,
							   &memory);
}

/* The second GPU of two, which reach each other not. */
UNIT_TEST_IN_CHILD(worker_opens_the_named_gpu_and_touches_no_other)
{
	(void)setenv("FAKE_CUDA_GPUS", "0000 beef", 1);
	(void)setenv("FAKE_CUDA_P2P", "10 01", 1);
	device_index = 1;
	fake_load();
	MUST(!open_with(",\"device\":\"required\""));
	MUST(!taken(1 << 20, KVPULL_MEMORY_DEVICE));
	worker_close();
	MUST(world.fake_retains(1) && !world.fake_retains(0));
	MUST(!lines.bad_count);
}

static int given_back(void)
{
	return kvpull_connector_v1()->worker->memory_free(worker, memory.base);
}

/* Each refusal has its line. */
UNIT_TEST_IN_CHILD(memory_of_a_device_that_is_not_open_is_refused_by_name)
{
	fake_load();
	MUST(!open_with(""));
	MUST(taken(1, KVPULL_MEMORY_DEVICE) == KVPULL_EUNSUPPORTED);
	MUST(strstr(lines.bad, "the key device is off: set device=auto"));
	worker_close();
	device_kind = KVPULL_DEVICE_NONE;
	MUST(!open_with(",\"device\":\"auto\""));
	MUST(taken(1, KVPULL_MEMORY_DEVICE) == KVPULL_EUNSUPPORTED);
	MUST(strstr(lines.bad, "set device_kind"));
	worker_close();
	device_kind = KVPULL_DEVICE_CUDA;
	refuse("cuDeviceGet 101");
	MUST(!open_with(",\"device\":\"auto\""));
	MUST(taken(1, KVPULL_MEMORY_DEVICE) == KVPULL_EUNSUPPORTED);
	MUST(strstr(lines.bad, "its driver did not open"));
	worker_close();
}

UNIT_TEST_IN_CHILD(memory_of_the_device_is_taken_and_given_back)
{
	struct kvpull_memory last;
	uint32_t at;

	fake_load();
	MUST(!open_with(",\"device\":\"auto\""));
	MUST(taken(0, KVPULL_MEMORY_DEVICE) == KVPULL_EINVAL);
	MUST(taken(1, KVPULL_MEMORY_DEVICE | KVPULL_MEMORY_HUGE) ==
	     KVPULL_EINVAL);
	MUST(taken(1, 4) == KVPULL_EINVAL);
	for (at = 0; at < 64; at++)
		MUST(!taken(1, KVPULL_MEMORY_DEVICE));
	MUST(memory.bytes == 2u << 20);
	MUST(memory.fd >= 0);
	last = memory;
	MUST(taken(1, KVPULL_MEMORY_DEVICE) == KVPULL_EFULL);
	memory = last;
	MUST(!given_back());
	MUST(given_back() == KVPULL_EINVAL);
	MUST(!taken(3u << 20, KVPULL_MEMORY_DEVICE));
	MUST(memory.bytes == 4u << 20);
	MUST(!lines.bad_count);
	/* Memory that was never registered is given back, too. */
	worker_close();
	MUST(fds_open() == world.fds);
}

UNIT_TEST_IN_CHILD(memory_that_cannot_be_handed_out_is_given_back)
{
	refuse("cuMemExportToShareableHandle 2");
	MUST(!open_with(",\"device\":\"auto\""));
	MUST(taken(1, KVPULL_MEMORY_DEVICE) == KVPULL_ENOMEM);
	MUST(lines.bad_count == 1);
	worker_close();
	MUST(fds_open() == world.fds);
}

/* ---- its regions ---- */

static struct kvpull_cache cache = {
	.struct_size = sizeof(cache),
	.layer_count = 1,
	.block_stride = 4096,
	.block_count = 4,
	.row_count = 1,
	.head_count = 1,
	.head_stride = 4096,
	.head_bytes = 4096,
};

static int registered(const struct kvpull_region *regions, uint32_t count)
{
	const struct kvpull_regions given = { sizeof(given), regions, &cache,
					      count, 1 };

	return kvpull_connector_v1()->worker->regions_register(worker, &given,
							       &detail);
}

UNIT_TEST_IN_CHILD(regions_of_the_device_lie_in_its_memory_and_are_alone)
{
	struct kvpull_region regions[2] = {
		{ .struct_size = sizeof(regions[0]),
		  .kind = KVPULL_REGION_DEVICE,
		  .fd = -1,
		  .bytes = 16384 },
		{ .struct_size = sizeof(regions[1]),
		  .kind = KVPULL_REGION_PROVIDED,
		  .fd = -1,
		  .bytes = 16384 },
	};

	fake_load();
	MUST(!open_with(",\"device\":\"auto\""));
	MUST(!taken(16384, 0));
	/* Host memory is no device's, and the other way round. */
	regions[0].base = regions[1].base = memory.base;
	MUST(registered(regions, 1) == KVPULL_EINVAL);
	MUST(strstr(detail.message, "a DEVICE region must lie in memory"));
	MUST(!taken(16384, KVPULL_MEMORY_DEVICE));
	regions[0].base = memory.base;
	MUST(registered(regions, 2) == KVPULL_EUNSUPPORTED);
	MUST(strstr(detail.message, "1 of 2 regions are memory of a device"));
	regions[1].base = memory.base;
	MUST(registered(regions + 1, 1) == KVPULL_EINVAL);
	MUST(strstr(detail.message, "a PROVIDED region must lie in memory"));
	regions[0].bytes = (2u << 20) + 1;
	MUST(registered(regions, 1) == KVPULL_EINVAL);
	regions[0].bytes = 16384;
	MUST(!registered(regions, 1));
	MUST(given_back() == KVPULL_EINVAL);
	worker_close();
	MUST(fds_open() == world.fds);
}

/* Is the layout refused with a driver of that version? */
static int is_refused(const char *version, uint64_t begin)
{
	struct kvpull_region region = { .struct_size = sizeof(region),
					.kind = KVPULL_REGION_DEVICE,
					.fd = -1,
					.bytes = 1u << 20 };
	int code;

	(void)setenv("FAKE_CUDA_VERSION", version, 1);
	MUST(!open_with(",\"device\":\"required\""));
	MUST(!taken(1, KVPULL_MEMORY_DEVICE));
	region.base = (uint8_t *)memory.base + begin;
	code = registered(&region, 1);
	worker_close();
	if (code && code != KVPULL_EUNSUPPORTED)
		(void)printf("%s: %s\n", detail.field, detail.message);
	MUST(!code || code == KVPULL_EUNSUPPORTED);
	MUST(!code || strstr(detail.message, "caches[0]: rows, strides"));
	MUST(!code || strstr(detail.message, "CUDA 12.8 or newer"));
	return code != 0;
}

/* A layout of two layers, two heads, 16 rows of a token each. */
static const struct kvpull_cache even = {
	.struct_size = sizeof(even),
	.layer_count = 2,
	.offset = 64,
	.layer_stride = 65536,
	.block_stride = 16384,
	.row_stride = 1024,
	.head_stride = 256,
	.block_count = 3,
	.row_count = 16,
	.head_count = 2,
	.head_bytes = 256,
};

/* Is the layout refused with one stride moved by 8 bytes? */
static int is_odd(uint64_t *stride)
{
	int is_refused_now;

	*stride += 8;
	is_refused_now = is_refused("12000", 0);
	cache = even;
	return is_refused_now;
}

UNIT_TEST_IN_CHILD(rows_that_a_driver_copies_one_by_one_are_refused_by_name)
{
	fake_load();
	cache = even;
	model.layer_count = 2;
	model.head_count = 2;
	MUST(!is_refused("12000", 16));
	MUST(is_odd(&cache.offset));
	MUST(is_odd(&cache.layer_stride));
	MUST(is_odd(&cache.block_stride));
	MUST(is_odd(&cache.row_stride));
	MUST(is_odd(&cache.head_stride));
	MUST(is_refused("12000", 8));
	/* Strides of what there is one of are not looked at. */
	cache.layer_count = cache.head_count = 1;
	cache.layer_stride = cache.head_stride = 1;
	model.layer_count = model.head_count = 1;
	MUST(!is_refused("12000", 0));
	cache.head_bytes = model.head_bytes = 264;
	MUST(is_refused("12000", 0));
	/* Newer drivers have a call for many pieces. */
	MUST(!is_refused("12080", 0));
	MUST(!is_refused("13000", 0));
	MUST(fds_open() == world.fds);
}

/* ---- pools ---- */

UNIT_TEST_IN_CHILD(pool_has_no_device_whatever_the_key_says)
{
	const struct kvpull_reader_ops *const ops = kvpull_reader_v1();
	const struct kvpull_host host = { .struct_size = sizeof(host) };
	const struct host_reader reader = {
		.engine_id = "reader",
		.config =
			"{\"copy_threads\":0,\"status\":\"off\",\"route\":\"shm\",\"device\":\"required\"}",
		.host = &host,
	};
	struct kvpull_reader *opened_reader = NULL;

	fake_load();
	MUST(!host_reader_open(ops, &reader, &opened_reader, &detail));
	MUST(!world.fake_calls());
	MUST(is_alone());
	ops->close(opened_reader);
}
