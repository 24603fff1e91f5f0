/* SPDX-License-Identifier: Apache-2.0 */
/* A process with two GPUs: the library opens the named one, and reads the other's. */
#include "base/device_name.h"
#include "tests/lib/unit.h"
#include "tests/unit/cuda/world.h"

#define BYTES ((uint64_t)2 << 20)
#define ROW_BYTES 4096u

static struct kvpull_device *of_p;
static struct kvpull_device *of_d;

static int end_with(const char *reaches, void (*run)(void))
{
	int status;

	(void)setenv("FAKE_CUDA_GPUS", "0000 beef", 1);
	(void)setenv("FAKE_CUDA_P2P", reaches, 1);
	status = end_of(run);
	(void)unsetenv("FAKE_CUDA_P2P");
	(void)unsetenv("FAKE_CUDA_GPUS");
	return status;
}

static void named(void)
{
	struct kvpull_device_memory memory;

	fake_load();
	log_begin();
	MUST(!kvpull_cuda_open(&world.arena, &world.log, 1, &of_d));
	MUST(!memcmp(of_d->uuid, "fake device beef", 16));
	MUST(!of_d->ops->alloc(of_d, BYTES, &memory));
	of_d->ops->unmap(of_d, &memory);
	of_d->ops->close(of_d);
	MUST(!world.fake_retains(0) && world.fake_retains(1) == 1);
	MUST(!lines.bad_count);
	kvpull_arena_fini(&world.arena);
	MUST(fds_open() == world.fds);
}

UNIT_TEST(device_is_the_named_one_and_no_other_is_touched)
{
	assert_int_equal(end_with("10 01", named), 0);
}

/* P's memory, D's and a stream of the engine's on D's GPU. */
static struct kvpull_device_memory source;
static struct kvpull_device_memory target;
static struct gpu_context *contexts[2];
static struct gpu_stream *streams[2];

static void context_open(int gpu)
{
	MUST(!world.calls->cuDevicePrimaryCtxRetain(&contexts[gpu], gpu));
	MUST(!world.calls->cuCtxPushCurrent(contexts[gpu]));
	MUST(!world.calls->cuStreamCreate(&streams[gpu],
					  GPU_STREAM_NON_BLOCKING));
}

static void context_close(int gpu)
{
	struct gpu_context *context;

	MUST(!world.calls->cuStreamDestroy(streams[gpu]));
	MUST(!world.calls->cuCtxPopCurrent(&context));
	MUST(!world.calls->cuDevicePrimaryCtxRelease(gpu));
}

static void both_open(void)
{
	fake_load();
	log_begin();
	MUST(!device_open());
	of_p = world.device;
	MUST(!kvpull_cuda_open(&world.arena, &world.log, 1, &of_d));
	context_open(0);
	context_open(1);
	MUST(!of_p->ops->alloc(of_p, BYTES, &source));
	MUST(!of_d->ops->alloc(of_d, BYTES, &target));
}

static void both_close(void)
{
	of_d->ops->unmap(of_d, &target);
	of_p->ops->unmap(of_p, &source);
	context_close(1);
	context_close(0);
	of_d->ops->close(of_d);
	of_p->ops->close(of_p);
	kvpull_arena_fini(&world.arena);
	MUST(fds_open() == world.fds);
}

static int import(struct kvpull_device_memory *foreign)
{
	int code;
	int fd;

	MUST(!of_p->ops->export_fd(of_p, &source, &fd));
	code = of_d->ops->import_fd(of_d, fd, BYTES, of_p->uuid, foreign);
	(void)close(fd);
	return code;
}

/* Once by the kernel, and once by a call of the driver's. */
static void pulled(void)
{
	struct kvpull_device_memory foreign;
	struct kvpull_device_event *event;
	static uint8_t bytes[2 * ROW_BYTES];
	static uint8_t found[2 * ROW_BYTES];
	uint32_t at;

	both_open();
	for (at = 0; at < sizeof(bytes); at++)
		bytes[at] = (uint8_t)(at * 7 + 1 + (at >> 8));
	world.stream = streams[0];
	bytes_put(source.address, bytes, sizeof(bytes));
	MUST(!import(&foreign) && foreign.access == KVPULL_DEVICE_READ);
	MUST(lines_said("cuda: device 1 copies rows of up to"));
	world.device = of_d;
	world.ops = of_d->ops;
	event = event_of_device();
	MUST(!gather_one(target.address, foreign.address, ROW_BYTES));
	MUST(!copy_one(target.address + ROW_BYTES, foreign.address + ROW_BYTES,
		       ROW_BYTES));
	MUST(!copies_end(event));
	world.stream = streams[1];
	bytes_get(target.address, found, sizeof(found));
	MUST(!memcmp(bytes, found, sizeof(bytes)));
	of_d->ops->event_close(of_d, event);
	of_d->ops->unmap(of_d, &foreign);
	MUST(!lines.bad_count);
	both_close();
}

UNIT_TEST(memory_of_another_gpu_is_read)
{
	assert_int_equal(end_with("10 11", pulled), 0);
}

static void unreached(void)
{
	struct kvpull_device_memory foreign;

	both_open();
	MUST(import(&foreign) == KVPULL_EROUTE);
	MUST(lines.bad_count == 1);
	MUST(strstr(lines.bad, "device 1: cuMemSetAccess: 101 "));
	MUST(strstr(lines.bad, ": see nvidia-smi topo -p2p r"));
	MUST(!kvpull_cuda_is_lost(kvpull_cuda_of(of_d)));
	both_close();
}

UNIT_TEST(gpu_that_is_not_reached_is_told_with_what_to_do)
{
	assert_int_equal(end_with("11 01", unreached), 0);
}
