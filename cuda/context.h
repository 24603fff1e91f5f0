/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device of CUDA's, and the frame of each call: kvpull_cuda_enter() makes the
 * context current for the calling thread, and lets the driver's calls pass while
 * another thread captures a graph; kvpull_cuda_leave() puts back what was there.
 */
#ifndef KVPULL_CUDA_CONTEXT_H
#define KVPULL_CUDA_CONTEXT_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/device.h"
#include "cuda/calls.h"

struct kvpull_cuda_choice;
struct kvpull_cuda_slot;

struct kvpull_cuda {
	struct kvpull_device device; /* first: the seam's */
	struct kvpull_cuda_calls calls;
	struct gpu_context *context; /* the primary one, which is the engine's */
	struct gpu_stream *stream;
	/* The kernel that gathers, and what it reads; NULL: there is none. */
	struct gpu_module *module;
	struct gpu_function *gather;
	struct kvpull_cuda_slot *slots; /* [KVPULL_CUDA_SLOTS] */
	struct kvpull_cuda_choice *choice;
	uint32_t blocks;   /* of a launch */
	pid_t pid;         /* that opened it: a child makes no call */
	int index;         /* the driver's number of the device */
	uint32_t can_rdma; /* the driver can pin it for NICs */
	/* 1: no call reaches the driver any more. Orders nothing: relaxed. */
	_Atomic uint32_t is_lost;
};

/* A refused call ends this, unless its code ends the device. */
enum kvpull_cuda_scope {
	KVPULL_CUDA_CALL = 0, /* KVPULL_ENOMEM, KVPULL_EUNSUPPORTED */
	KVPULL_CUDA_COPY,     /* KVPULL_EREAD */
	KVPULL_CUDA_PEER,     /* KVPULL_EROUTE */
	KVPULL_CUDA_DEVICE    /* KVPULL_EDEVICE, whatever the code */
};

static inline struct kvpull_cuda *kvpull_cuda_of(struct kvpull_device *device)
{
	return (struct kvpull_cuda *)(void *)device;
}

/* The error of a code; 0 of GPU_OK (pure). */
int kvpull_cuda_error(int code, enum kvpull_cuda_scope scope);

/*
 * kvpull_cuda_error() for what @call of this device returned: logs the line of an error, and
 * makes the device lost where the code says so.
 */
int kvpull_cuda_check(struct kvpull_cuda *cuda, const char *call, int code,
		      enum kvpull_cuda_scope scope);

/* Make that call of the driver's, and check what it returned. */
#define KVPULL_CUDA_TRY(cuda, scope, call, ...)                                \
	kvpull_cuda_check(cuda, #call, (cuda)->calls.call(__VA_ARGS__), scope)

int kvpull_cuda_is_lost(const struct kvpull_cuda *cuda);

/*
 * Begin the driver's calls of this thread. 0, and *mode is for leave(); or
 * KVPULL_EDEVICE: the device is lost, or this is a child.
 */
int KVPULL_MUST_CHECK kvpull_cuda_enter(struct kvpull_cuda *cuda, int *mode);
/* Returns `code`, or the error with which the context was left. */
int kvpull_cuda_leave(struct kvpull_cuda *cuda, int mode, int code);

#endif /* KVPULL_CUDA_CONTEXT_H */
