/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/calls.h"

#include <dlfcn.h>
#include <string.h>

#define VERSION_BATCH_12 12080
#define VERSION_BATCH_13 13000

struct call {
	const char *name;
	int version;
	size_t offset;
};

/* clang-format off */
#define CALL(call, version)                                                    \
	{ #call, version, offsetof(struct kvpull_cuda_calls, call) },
#define CALL_ROW(call, version, arguments) CALL(call, version)
static const struct call rows[] = {
	GPU_CALLS(CALL_ROW)
};
/* clang-format on */

static int look_up(gpu_proc_address_fn address_of, const struct call *call,
		   struct kvpull_cuda_calls *calls)
{
	void *found = NULL;
	int status = 0;

	if (address_of(call->name, &found, call->version, 0, &status) ||
	    status || !found)
		return KVPULL_EUNSUPPORTED;
	/* ISO C has no cast from an object to a function pointer. */
	memcpy((uint8_t *)calls + call->offset, &found, sizeof(found));
	return 0;
}

/*
 * cuMemcpyBatchAsync() has two forms under one name. A driver of 12.8 that is
 * asked for the form of 13.0 gives its own: the driver's version decides.
 */
static void batch_look_up(gpu_proc_address_fn address_of, int version,
			  struct kvpull_cuda_calls *calls)
{
	static const struct call batches[] = {
		{ "cuMemcpyBatchAsync", VERSION_BATCH_12,
		  offsetof(struct kvpull_cuda_calls, batch_12) },
		{ "cuMemcpyBatchAsync", VERSION_BATCH_13,
		  offsetof(struct kvpull_cuda_calls, batch_13) },
	};

	calls->batch_12 = NULL;
	calls->batch_13 = NULL;
	/* A driver without this call copies piece by piece. */
	if (version >= VERSION_BATCH_12)
		(void)look_up(address_of, &batches[version >= VERSION_BATCH_13],
			      calls);
}

static int calls_look_up(gpu_proc_address_fn address_of,
			 struct kvpull_cuda_calls *calls,
			 const struct kvpull_log *log)
{
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++)
		if (look_up(address_of, &rows[at], calls)) {
			kvpull_warn(
				log,
				"cuda: libcuda.so.1 has no %s of version %d: update the driver to 12.0 or newer",
				rows[at].name, rows[at].version);
			return KVPULL_EUNSUPPORTED;
		}
	return 0;
}

static int driver_begin(gpu_proc_address_fn address_of,
			struct kvpull_cuda_calls *calls,
			const struct kvpull_log *log)
{
	int version = 0;
	int code = calls->cuInit(0);

	if (!code)
		code = calls->cuDriverGetVersion(&version);
	if (code) {
		kvpull_warn(
			log,
			"cuda: the driver does not start: %d %s: is a GPU visible to this process? (nvidia-smi)",
			code, kvpull_cuda_code_name(calls, code));
		return KVPULL_EUNSUPPORTED;
	}
	batch_look_up(address_of, version, calls);
	return 0;
}

int kvpull_cuda_calls_load(struct kvpull_cuda_calls *calls,
			   const struct kvpull_log *log)
{
	void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	gpu_proc_address_fn address_of;
	void *symbol;
	int code;

	if (!library) {
		kvpull_warn(log, "cuda: no driver on this host: %s", dlerror());
		return KVPULL_EUNSUPPORTED;
	}
	symbol = dlsym(library, "cuGetProcAddress_v2");
	if (!symbol) {
		kvpull_warn(
			log,
			"cuda: libcuda.so.1 has no cuGetProcAddress_v2: update the driver to 12.0 or newer");
		return KVPULL_EUNSUPPORTED;
	}
	memcpy(&address_of, &symbol, sizeof(symbol));
	code = calls_look_up(address_of, calls, log);
	return code ? code : driver_begin(address_of, calls, log);
}

const char *kvpull_cuda_code_name(const struct kvpull_cuda_calls *calls,
				  int code)
{
	const char *name = NULL;

	return !calls->cuGetErrorName(code, &name) && name ? name : "unknown";
}
