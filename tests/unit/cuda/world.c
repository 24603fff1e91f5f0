/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/cuda/world.h"

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <sys/wait.h>

#include "tests/lib/gpu_ledger.h"
#include "tests/lib/unit.h"

struct world world;

/* A process of the run may have ended without a look at what it had. */
static int left_over(void)
{
	char why[128];

	if (!gpu_ledger_judge(why, sizeof(why)))
		return 0;
	(void)printf("%s\n", why);
	return LEFT_OVER;
}

int end_of(void (*run)(void))
{
	char ledger[] = "/tmp/kvpull-ledger-XXXXXX";
	pid_t child;
	int status = 0;
	int end;

	(void)close(mkstemp(ledger));
	(void)setenv(GPU_LEDGER, ledger, 1);
	(void)fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		run();
		exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	end = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	if (!end)
		end = left_over();
	(void)unlink(ledger);
	(void)unsetenv(GPU_LEDGER);
	return end;
}

void leave(void)
{
	gpu_ledger_kill(getpid());
	_exit(0);
}

static void *symbol_of(void *library, const char *name)
{
	void *const found = dlsym(library, name);

	MUST(found);
	return found;
}

/* dlopen() of a bare name takes the library that is loaded under that soname. */
void fake_load(void)
{
	char program[PATH_MAX];
	char path[PATH_MAX + 64];
	const ssize_t length =
		readlink("/proc/self/exe", program, sizeof(program) - 1);
	void *library;

	MUST(length > 0);
	program[length] = '\0';
	*strrchr(program, '/') = '\0';
	(void)snprintf(path, sizeof(path), "%s/../cuda/libcuda.so.1", program);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	MUST(library);
	/* ISO C has no cast from an object to a function pointer. */
#define LOOK_UP(name, arguments)                                               \
	*(void **)(void *)&world.name = symbol_of(library, #name);
	WORLD_CALLS(LOOK_UP)
	*(void **)(void *)&world.fake_calls = symbol_of(library, "fake_calls");
	*(void **)(void *)&world.fake_launches =
		symbol_of(library, "fake_launches");
	*(void **)(void *)&world.fake_waits = symbol_of(library, "fake_waits");
	*(void **)(void *)&world.fake_retains =
		symbol_of(library, "fake_retains");
	world.fds = fds_open();
}

void log_begin(void)
{
	lines_forget();
	world.log = lines_from(KVPULL_LOG_INFO);
	kvpull_arena_init(&world.arena, &world.log);
}

int device_open(void)
{
	const int code =
		kvpull_cuda_open(&world.arena, &world.log, 0, &world.device);

	if (code)
		return code;
	world.ops = world.device->ops;
	world.calls = &kvpull_cuda_of(world.device)->calls;
	return 0;
}

void world_open(void)
{
	struct gpu_context *context;

	fake_load();
	log_begin();
	MUST(!device_open());
	MUST(!world.calls->cuDevicePrimaryCtxRetain(&context, 0));
	MUST(!world.calls->cuCtxPushCurrent(context));
	MUST(!world.calls->cuStreamCreate(&world.stream,
					  GPU_STREAM_NON_BLOCKING));
}

void world_close(void)
{
	struct gpu_context *context;

	MUST(!world.calls->cuStreamDestroy(world.stream));
	MUST(!world.calls->cuCtxPopCurrent(&context));
	MUST(!world.calls->cuDevicePrimaryCtxRelease(0));
	world.ops->close(world.device);
	kvpull_arena_fini(&world.arena);
	MUST(fds_open() == world.fds);
}

void bytes_put(uint64_t address, const uint8_t *bytes, size_t count)
{
	MUST(!world.cuMemcpyHtoDAsync(address, bytes, count, world.stream));
	MUST(!world.calls->cuStreamSynchronize(world.stream));
}

void bytes_get(uint64_t address, uint8_t *bytes, size_t count)
{
	MUST(!world.cuMemcpyDtoHAsync(bytes, address, count, world.stream));
	MUST(!world.calls->cuStreamSynchronize(world.stream));
}

struct kvpull_device_memory memory_of(uint64_t bytes)
{
	struct kvpull_device_memory memory;

	MUST(!world.ops->alloc(world.device, bytes, &memory));
	return memory;
}

struct kvpull_device_memory world_open_with(uint64_t bytes)
{
	world_open();
	return memory_of(bytes);
}

void world_close_with(struct kvpull_device_memory *memory)
{
	world.ops->unmap(world.device, memory);
	world_close();
}

struct kvpull_device_event *event_of_device(void)
{
	struct kvpull_device_event *event;

	MUST(!world.ops->event_open(world.device, &event));
	return event;
}

int copies_end(struct kvpull_device_event *event)
{
	int answer = world.ops->record(world.device, event);

	while (!answer) {
		(void)sched_yield();
		answer = world.ops->query(world.device, event);
	}
	return answer < 0 ? answer : 0;
}

int copy_one(uint64_t target, uint64_t source, size_t bytes)
{
	struct kvpull_device_pieces pieces = { &target, &source, &bytes, 1 };

	return world.ops->copy(world.device, &pieces);
}

int gather_one(uint64_t target, uint64_t source, size_t bytes)
{
	static const uint32_t id;
	const struct kvpull_device_strip strip = {
		.source = source,
		.target = target,
		.row_bytes = bytes,
		.source_ids = &id,
		.target_ids = &id,
		.row_count = 1,
	};
	const struct kvpull_device_gather gather = { &strip, 1, 0 };

	return world.ops->gather(world.device, &gather);
}
