/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test makes one use of all that a device has, in which the driver refuses each of its calls
 * in turn: the error is sorted, one line says it, nothing is left.
 */
#include "tests/unit/cuda/world.h"

#include "tests/lib/unit.h"

#define NOT_REACHED 42

static int part_copied(struct kvpull_device_event *event,
		       const struct kvpull_device_memory *own,
		       const struct kvpull_device_memory *foreign)
{
	const uint64_t stream =
		(uint64_t)(uintptr_t)kvpull_cuda_of(world.device)->stream;
	int code = world.ops->mark(world.device, stream, event);

	code = code < 0 ? code : world.ops->wait(world.device, event);
	if (!code)
		code = world.ops->flush(world.device);
	if (!code)
		code = copy_one(own->address + 64, foreign->address, 64);
	/* A device that the driver gave no kernel copies without. */
	if (!code && foreign->gathers)
		code = gather_one(own->address + 128, foreign->address, 64);
	/* Copies that were queued end before anything is given back. */
	if (code == KVPULL_EDEVICE)
		return code;
	return copies_end(event) ? KVPULL_EDEVICE : code;
}

static struct {
	int code;
	int is_another; /* the memory is another GPU's */
	uint64_t number;
} refused;

static const uint8_t another[KVPULL_DEVICE_UUID_BYTES] = "another GPU";

static int part_shared(const struct kvpull_device_memory *own)
{
	struct kvpull_device_memory foreign;
	struct kvpull_device_event *event;
	int fd = -1;
	int code = world.ops->dmabuf(world.device, own, &fd);

	if (code)
		return code;
	(void)close(fd);
	code = world.ops->export_fd(world.device, own, &fd);
	if (code)
		return code;
	code = world.ops->import_fd(
		world.device, fd, own->bytes,
		refused.is_another ? another : world.device->uuid, &foreign);
	(void)close(fd);
	if (code)
		return code;
	code = world.ops->event_open(world.device, &event);
	if (!code) {
		code = part_copied(event, own, &foreign);
		world.ops->event_close(world.device, event);
	}
	world.ops->unmap(world.device, &foreign);
	return code;
}

static int all_used(void)
{
	struct kvpull_device_memory own;
	int code = device_open();

	if (code)
		return code;
	code = world.ops->alloc(world.device, 1, &own);
	if (!code) {
		code = part_shared(&own);
		world.ops->unmap(world.device, &own);
	}
	world.ops->close(world.device);
	return code;
}

/* A thing that the driver does not take back cannot but be left. */
static int is_left(void)
{
	static const char *const calls[] = {
		"cuMemUnmap",      "cuMemAddressFree",
		"cuMemRelease",    "cuEventDestroy",
		"cuStreamDestroy", "cuDevicePrimaryCtxRelease",
		"cuMemFreeHost",   "cuModuleUnload",
		"is lost"
	};
	size_t at;

	for (at = 0; at < sizeof(calls) / sizeof(*calls); at++)
		if (strstr(lines.bad, calls[at]))
			return 1;
	/* Nothing is left in a process that ends. */
	return refused.code == GPU_EDEINITIALIZED;
}

/* GPU_ENOT_SUPPORTED, by the call that the line names. */
static void error_is_of_its_call(int code)
{
	static const struct {
		const char *call;
		int code;
	} rows[] = {
		{ "cuMemCreate", KVPULL_EUNSUPPORTED },
		{ "cuMemsetD8Async", KVPULL_EUNSUPPORTED },
		{ "cuStreamSynchronize", KVPULL_EDEVICE },
		{ "cuMemGetHandleForAddressRange", KVPULL_EUNSUPPORTED },
		{ "cuMemExportToShareableHandle", KVPULL_EUNSUPPORTED },
		{ "cuMemImportFromShareableHandle", KVPULL_EROUTE },
		{ "cuStreamWaitEvent", KVPULL_EUNSUPPORTED },
		{ "cuMemcpyBatchAsync", KVPULL_EREAD },
		{ "cuLaunchKernel", KVPULL_EREAD },
		{ "cuFlushGPUDirectRDMAWrites", KVPULL_EREAD },
		{ "cuEventQuery", KVPULL_EDEVICE },
	};
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++)
		if (strstr(lines.bad, rows[at].call))
			MUST(code == rows[at].code);
}

static void error_judged(int code)
{
	static const int allowed[] = { KVPULL_ENOMEM, KVPULL_EUNSUPPORTED,
				       KVPULL_EREAD, KVPULL_EROUTE,
				       KVPULL_EDEVICE };
	int is_allowed = !code;
	size_t at;

	for (at = 0; at < sizeof(allowed) / sizeof(*allowed); at++)
		is_allowed |= code == allowed[at];
	MUST(is_allowed);
	/* Copies from another GPU are made also where no ways were compared. */
	if (refused.code == GPU_ENOT_SUPPORTED &&
	    !(refused.is_another && !code))
		error_is_of_its_call(code);
	MUST(lines.bad_count <= 1);
	/* A process that ends is no news; any other error is one line. */
	if (refused.code == GPU_EDEINITIALIZED)
		MUST(!lines.bad_count || strstr(lines.bad, "does not start"));
	else
		MUST(lines.bad_count || !code);
}

/* A refusal ends nothing of the kernel's: copies are made without it. */
static int is_without_kernel(void)
{
	static const char *const calls[] = { "cuModuleLoadData",
					     "cuModuleGetFunction",
					     "cuMemHostAlloc" };
	size_t at;

	for (at = 0; at < sizeof(calls) / sizeof(*calls); at++)
		if (strstr(lines.of[KVPULL_LOG_INFO], calls[at]))
			return 1;
	return 0;
}

static void refused_once(void)
{
	char text[32];
	uint64_t calls;
	int code;

	(void)snprintf(text, sizeof(text), "#%llu %d",
		       (unsigned long long)refused.number, refused.code);
	(void)setenv("FAKE_CUDA_REFUSE", text, 1);
	(void)setenv("FAKE_CUDA_RDMA", "2", 1);
	(void)setenv("FAKE_CUDA_FLUSH", "1", 1);
	fake_load();
	log_begin();
	code = all_used();
	calls = world.fake_calls();
	if (calls < refused.number) {
		MUST(!code && !lines.bad_count);
		exit(NOT_REACHED);
	}
	error_judged(code);
	if (is_without_kernel())
		MUST(!code && !lines.bad_count);
	/* No call follows a code that ends the device. */
	if (refused.code == GPU_EDEINITIALIZED ||
	    refused.code == GPU_EILLEGAL_ADDRESS)
		MUST(calls == refused.number);
	kvpull_arena_fini(&world.arena);
	if (code == KVPULL_EDEVICE || is_left())
		leave();
	MUST(fds_open() == world.fds);
}

static const int codes[] = {
	GPU_EINVALID_VALUE,   GPU_EOUT_OF_MEMORY,
	GPU_EDEINITIALIZED,   GPU_EINVALID_DEVICE,
	GPU_EINVALID_CONTEXT, GPU_EPEER_ACCESS_UNSUPPORTED,
	GPU_EILLEGAL_ADDRESS, GPU_ENOT_PERMITTED,
	GPU_ENOT_SUPPORTED,
};
#define CODES (sizeof(codes) / sizeof(*codes))

/* 1: that call is not reached. */
static int is_last(uint64_t number, int code)
{
	int status;

	refused.number = number;
	refused.code = code;
	status = end_of(refused_once);
	if (status && status != NOT_REACHED)
		print_message("call %u refused by %d\n", (unsigned int)number,
			      code);
	assert_true(!status || status == NOT_REACHED);
	return status == NOT_REACHED;
}

UNIT_TEST(each_call_that_is_refused_leaves_nothing)
{
	uint64_t number;
	size_t at;

	for (at = 0; at < CODES; at++) {
		for (number = 1; !is_last(number, codes[at]);)
			number++;
		assert_in_range(number, 60, 1000000);
	}
}

/*
 * qemu-user takes a second for a comparison, which copies megabytes: one call of so
 * many is refused there.
 */
#if defined(__aarch64__)
#define STRIDE 7u
#else
#define STRIDE 1u
#endif

/* Such an import makes many calls, which are alike: each has one of the codes. */
UNIT_TEST(comparison_that_is_refused_leaves_nothing)
{
	uint64_t number;

	refused.is_another = 1;
	for (number = 30; !is_last(number, codes[number % CODES]);)
		number += STRIDE;
	assert_in_range(number, 100, 1000000);
}
