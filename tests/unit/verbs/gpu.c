/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/verbs/gpu.h"

#include <fcntl.h>
#include <sched.h>

struct gpu gpu;

struct kvpull_device_event {
	/* The stream is here only once that mark was reached; NULL: at once. */
	struct kvpull_device_event *behind;
	_Atomic uint32_t is_ahead; /* a mark that was not reached */
	uint32_t is_open;
};

static struct kvpull_device_event events[8];
static struct kvpull_device_event *waited; /* by the stream, last */

static int dmabuf(struct kvpull_device *device,
		  const struct kvpull_device_memory *memory, int *fd)
{
	(void)device;
	if (gpu.dmabuf_code)
		return gpu.dmabuf_code;
	*fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_true(*fd >= 0);
	gpu.dmabuf_count++;
	gpu.dmabuf_memory = *memory;
	return 0;
}

static int event_open(struct kvpull_device *device,
		      struct kvpull_device_event **event)
{
	uint32_t at = 0;

	(void)device;
	while (events[at].is_open)
		at++;
	events[at].is_open = 1;
	*event = &events[at];
	return 0;
}

static void event_close(struct kvpull_device *device,
			struct kvpull_device_event *event)
{
	(void)device;
	event->is_open = 0;
}

static uint32_t is_reached(const struct kvpull_device_event *event)
{
	return !event ||
	       !atomic_load_explicit(&event->is_ahead, memory_order_acquire);
}

static int record(struct kvpull_device *device,
		  struct kvpull_device_event *event)
{
	(void)device;
	event->behind = waited;
	return 0;
}

static int query(struct kvpull_device *device,
		 struct kvpull_device_event *event)
{
	const uint32_t reached = is_reached(event) && is_reached(event->behind);

	(void)device;
	if (!reached)
		(void)atomic_fetch_add_explicit(&gpu.looks, 1,
						memory_order_release);
	return (int)reached;
}

static int wait_for(struct kvpull_device *device,
		    struct kvpull_device_event *event)
{
	(void)device;
	if (gpu.wait_code)
		return gpu.wait_code;
	waited = event;
	return 0;
}

static int flush(struct kvpull_device *device)
{
	(void)device;
	(void)atomic_fetch_add_explicit(&gpu.flush_count, 1,
					memory_order_release);
	return gpu.flush_code;
}

static void device_close(struct kvpull_device *device)
{
	(void)device;
}

static int is_lost(const struct kvpull_device *device)
{
	(void)device;
	return 0;
}

static const struct kvpull_device_ops ops = {
	.dmabuf = dmabuf,
	.event_open = event_open,
	.event_close = event_close,
	.record = record,
	.query = query,
	.wait = wait_for,
	.flush = flush,
	.is_lost = is_lost,
	.close = device_close,
};

static int table_open(struct kvpull_arena *arena, const struct kvpull_log *log,
		      int index, struct kvpull_device **device)
{
	(void)arena;
	(void)index;
	gpu.device.ops = &ops;
	gpu.device.log = log;
	gpu.device.granularity = 4096;
	gpu.device.can_flush = 1;
	*device = &gpu.device;
	return 0;
}

void gpu_open(void)
{
	static const struct kvpull_log silent;
	const struct kvpull_device_thread_params params = {
		.open = table_open,
		.wake_fd = -1,
		.limits = { .job_max = 8,
			    .mapping_max = 1,
			    .mark_max = 2,
			    .bytes_per_ms = 1u << 20 },
	};

	memset(&gpu, 0, sizeof(gpu));
	memset(events, 0, sizeof(events));
	waited = NULL;
	assert_int_equal(
		kvpull_device_thread_open(&world.gpu, &params, &silent), 0);
}

void gpu_close(void)
{
	assert_int_equal(
		kvpull_device_thread_close(world.gpu, kvpull_clock_close_by()),
		0);
	world.gpu = NULL;
}

uint64_t gpu_mark(void)
{
	struct kvpull_device_event *event;

	assert_int_equal(kvpull_device_thread_mark_open(world.gpu, 0), 0);
	event = kvpull_device_thread_mark(world.gpu, 0);
	atomic_store_explicit(&event->is_ahead, 1, memory_order_release);
	return (uint64_t)(uintptr_t)event;
}

void gpu_reach(void)
{
	struct kvpull_device_event *event =
		kvpull_device_thread_mark(world.gpu, 0);

	atomic_store_explicit(&event->is_ahead, 0, memory_order_release);
}

void gpu_poll(void)
{
	struct kvpull_device_end ends[4];

	assert_int_equal(kvpull_device_thread_poll(world.gpu, ends, 4,
						   kvpull_clock_ns()),
			 0);
}

void gpu_await(const uint32_t *count)
{
	while (!*count) {
		gpu_poll();
		world_run(1);
		(void)sched_yield();
	}
}

void gpu_fill(struct world_side *side)
{
	uint32_t at;

	for (at = 0; at < side->serve.region_count; at++) {
		struct kvpull_region_view *region = &side->serve.regions[at];

		region->kind = KVPULL_REGION_DEVICE;
		region->fd = (int)(1000 + at);
		region->fd_index = at;
		region->fd_offset = GPU_OFFSET;
		side->serve.devices[at] = (struct kvpull_device_view){
			.granularity = 4096,
			.part_bytes = GPU_OFFSET + region->bytes,
			.part_count = 1,
			.fd_index = at,
		};
	}
	side->serve.device_count = side->serve.region_count;
}

int gpu_serve_open(struct world_side *side)
{
	side_fill(side);
	gpu_fill(side);
	route_begin(side->route);
	return side->route->ops->serve(side->route, &side->serve);
}

int gpu_serve(struct world_side *side)
{
	side_close(side);
	assert_int_equal(side_open(side), 0);
	return gpu_serve_open(side);
}

void gpu_begin(uint32_t rails)
{
	world_rails_init(rails);
	world.batch = 4;
	gpu_open();
	assert_int_equal(side_open(&world.p), 0);
	assert_int_equal(side_open(&world.d), 0);
	assert_int_equal(side_serve(&world.p), 0);
	assert_int_equal(gpu_serve(&world.d), 0);
	world_fill();
	world_read_make(0);
	/* No neighbours: 64 work requests, a few for each rail. */
	world_scatter();
	memset(world.d.memory, 0, WORLD_BYTES);
	world_comes_up(100);
	world.read.after = KVPULL_AFTER_NOTHING;
}

int gpu_down(void **state)
{
	const int code = world_down(state);

	gpu_close();
	return code;
}

void gpu_read_is_done(void)
{
	world_read_run(20);
	world_read_ended(0);
}

void gpu_check_is(int code)
{
	assert_int_equal(world.d.checks_done, 1);
	assert_int_equal(world.d.check_code, code);
}

int gpu_bytes_are_right(void)
{
	return !memcmp(world.d.memory, world.p.memory, WORLD_BYTES);
}

void gpu_begin_read(uint32_t rails)
{
	gpu_begin(rails);
	gpu_read_is_done();
}

void gpu_checks(uint32_t steps, int code)
{
	assert_int_equal(world_check_start(), 0);
	world_run(steps);
	gpu_check_is(code);
}
