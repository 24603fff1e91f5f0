/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU: what its driver says, what the kernel's files say, and what became of a
 * process that mapped its memory. Calls of the driver are made in children alone.
 */
#ifndef KVPULL_TOOLS_KVPULL_DOCTOR_GPU_FACTS_H
#define KVPULL_TOOLS_KVPULL_DOCTOR_GPU_FACTS_H

#include "base/device.h"
#include "cuda/calls.h"
#include "tools/kvpull_doctor_parts.h"

#define DOCTOR_GPUS_MAX 16u
#define DOCTOR_GPU_FAULT_BYTES_MAX 128u
#define DOCTOR_NOT_TOLD (-1)

/* The driver's answers; DOCTOR_NOT_TOLD: it has none. */
struct doctor_gpu {
	int32_t index; /* the driver's number of it */
	int32_t count; /* of GPUs */
	int32_t version;
	int32_t has_uuid;
	uint8_t uuid[KVPULL_DEVICE_UUID_BYTES];
	char pci[KVPULL_DEVICE_PCI_BYTES]; /* as in cuda/; "": not told */
	int32_t has_vmm;
	int32_t has_descriptors;
	int32_t has_dmabuf;
	int32_t has_rdma;
	int32_t has_rdma_of_vmm;
	int32_t flushes;
	int32_t ordering;
	int32_t has_mps;
	/* 1: it reads memory of the GPU of that number, by a link of that rank. */
	int32_t reads[DOCTOR_GPUS_MAX];
	int32_t ranks[DOCTOR_GPUS_MAX];
	char fault[DOCTOR_GPU_FAULT_BYTES_MAX]; /* the first refused call; "" */
};

/* A process that mapped the memory, and copied from it. */
struct doctor_gpu_import {
	int32_t code;     /* the library's; 0: it did */
	uint32_t access;  /* KVPULL_DEVICE_* */
	uint32_t gathers; /* 1: the kernel copied, 0: the driver's calls */
	uint32_t copies;
	uint64_t bytes; /* of a copy */
	double gbps;
	char line[DOCTOR_TEXT_BYTES_MAX]; /* the library's last warning; "" */
};

/* The median of so many copies counts, or of those that end in time. */
#define DOCTOR_GPU_COPIES_MAX 5u
#define DOCTOR_GPU_COPIES_NS UINT64_C(1000000000)
#define DOCTOR_GPU_ROW_BYTES 131072u
#define DOCTOR_GPU_COPY_BYTES ((uint64_t)64 << 20)

/* ---- a child's ---- */

/* Asks of the GPU of @gpu->index. */
void doctor_gpu_ask(const struct kvpull_cuda_calls *calls,
		    struct doctor_gpu *gpu);
/* Maps memory of that GPU by the descriptor, which stays open, and copies. */
void doctor_gpu_import(const struct doctor_gpu *gpu, int fd, uint64_t bytes,
		       struct doctor_gpu_import *import);

/* ---- what is said ---- */

/* BAR1 of the PCI device; 0: not known. */
uint64_t doctor_gpu_bar1_bytes(const struct doctor *doctor, const char *pci);
/* 1: it is an instance of MIG; 0: a whole GPU; or DOCTOR_NOT_TOLD. */
int doctor_gpu_is_mig(const struct doctor *doctor,
		      const struct doctor_gpu *gpu);
/* Adds findings of what its driver and the kernel say, and a row for JSON. */
void doctor_gpu_say(struct doctor *doctor, const struct doctor_gpu *gpu);
/* Adds the finding of a process that mapped it, also to the row of JSON. */
void doctor_gpu_import_say(struct doctor *doctor, const struct doctor_gpu *gpu,
			   const struct doctor_gpu_import *import);
/* Adds a line of the library's as a warning, with what to do. */
void doctor_gpu_refusal_say(struct doctor *doctor, const char *before,
			    const char *line);

#endif /* KVPULL_TOOLS_KVPULL_DOCTOR_GPU_FACTS_H */
