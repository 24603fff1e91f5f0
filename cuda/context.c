/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/context.h"

#include <string.h>
#include <unistd.h>

/*
 * Codes after which a context does no more work, for all of this process: the
 * driver returns them from every later call. GPU_EDEINITIALIZED: the process ends.
 */
static int ends_device(int code)
{
	switch (code) {
	case GPU_ENOT_INITIALIZED:
	case GPU_EDEINITIALIZED:
	case GPU_EDEVICE_UNAVAILABLE:
	case GPU_EECC_UNCORRECTABLE:
	case GPU_ENVLINK_UNCORRECTABLE:
	case GPU_ECONTAINED:
	case GPU_EILLEGAL_ADDRESS:
	case GPU_ELAUNCH_TIMEOUT:
	case GPU_ECONTEXT_IS_DESTROYED:
	case GPU_EASSERT:
	case GPU_EHARDWARE_STACK_ERROR:
	case GPU_EILLEGAL_INSTRUCTION:
	case GPU_EMISALIGNED_ADDRESS:
	case GPU_EINVALID_ADDRESS_SPACE:
	case GPU_EINVALID_PC:
	case GPU_ELAUNCH_FAILED:
	case GPU_EUNKNOWN:
		return 1;
	default:
		return 0;
	}
}

int kvpull_cuda_error(int code, enum kvpull_cuda_scope scope)
{
	if (code == GPU_OK)
		return 0;
	if (scope == KVPULL_CUDA_DEVICE || ends_device(code))
		return KVPULL_EDEVICE;
	if (scope == KVPULL_CUDA_PEER)
		return KVPULL_EROUTE;
	if (scope == KVPULL_CUDA_COPY)
		return KVPULL_EREAD;
	return code == GPU_EOUT_OF_MEMORY ? KVPULL_ENOMEM : KVPULL_EUNSUPPORTED;
}

/*
 * Advice where a peer's memory cannot be mapped; "": the code has none. A GPU that is
 * visible and cannot be reached is told in two ways, and by cuMemSetAccess() as no
 * device.
 */
static const char *peer_advice(const char *call, int code)
{
	if (code == GPU_EPEER_ACCESS_UNSUPPORTED ||
	    (code == GPU_EINVALID_DEVICE && !strcmp(call, "cuMemSetAccess")))
		return ": this GPU does not reach the peer's: see nvidia-smi topo -p2p r";
	if (code == GPU_EINVALID_DEVICE)
		return ": the peer's GPU is not visible in this container: show both GPUs to both";
	return "";
}

int kvpull_cuda_check(struct kvpull_cuda *cuda, const char *call, int code,
		      enum kvpull_cuda_scope scope)
{
	const int error = kvpull_cuda_error(code, scope);

	if (!error)
		return 0;
	if (error != KVPULL_EDEVICE) {
		kvpull_warn(cuda->device.log, "cuda: device %d: %s: %d %s%s",
			    cuda->index, call, code,
			    kvpull_cuda_code_name(&cuda->calls, code),
			    scope == KVPULL_CUDA_PEER ?
				    peer_advice(call, code) :
				    "");
		return error;
	}
	/* Two threads may meet it at once: one says so. */
	if (atomic_exchange_explicit(&cuda->is_lost, 1, memory_order_relaxed) ||
	    code == GPU_EDEINITIALIZED)
		return error;
	kvpull_error(
		cuda->device.log,
		"cuda: device %d is lost: %s: %d: restart the engine, and look for Xid in dmesg",
		cuda->index, call, code);
	return error;
}

int kvpull_cuda_is_lost(const struct kvpull_cuda *cuda)
{
	return cuda->pid != getpid() ||
	       atomic_load_explicit(&cuda->is_lost, memory_order_relaxed);
}

int kvpull_cuda_enter(struct kvpull_cuda *cuda, int *mode)
{
	int error;

	if (kvpull_cuda_is_lost(cuda))
		return KVPULL_EDEVICE;
	error = KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_DEVICE, cuCtxPushCurrent,
				cuda->context);
	if (error)
		return error;
	*mode = GPU_CAPTURE_RELAXED;
	return KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_DEVICE,
			       cuThreadExchangeStreamCaptureMode, mode);
}

int kvpull_cuda_leave(struct kvpull_cuda *cuda, int mode, int code)
{
	struct gpu_context *popped;

	if (!kvpull_cuda_is_lost(cuda) &&
	    !KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_DEVICE,
			     cuThreadExchangeStreamCaptureMode, &mode))
		(void)KVPULL_CUDA_TRY(cuda, KVPULL_CUDA_DEVICE, cuCtxPopCurrent,
				      &popped);
	return code;
}
