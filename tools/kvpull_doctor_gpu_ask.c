/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to CUDA's driver about a GPU. An attribute that the driver does not
 * know yet is no fault; any other refusal is, and the first one is kept.
 */
#include "tools/kvpull_doctor_gpu_facts.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct question {
	const struct kvpull_cuda_calls *calls;
	struct doctor_gpu *gpu;
	int device;
};

/* 1: the call was answered. The words name it. */
__attribute__((format(printf, 3, 4))) static int
is_answer(const struct question *question, int code, const char *format, ...)
{
	struct doctor_gpu *const gpu = question->gpu;
	char call[64];
	va_list words;

	if (!code)
		return 1;
	if (gpu->fault[0])
		return 0;
	va_start(words, format);
	(void)vsnprintf(call, sizeof(call), format, words);
	va_end(words);
	(void)snprintf(gpu->fault, sizeof(gpu->fault), "%s: %d %s", call, code,
		       kvpull_cuda_code_name(question->calls, code));
	return 0;
}

static int32_t attribute_of(const struct question *question, int attribute)
{
	int value = 0;
	const int code = question->calls->cuDeviceGetAttribute(
		&value, attribute, question->device);

	/* An older driver does not know an attribute of a newer one. */
	if (code == GPU_EINVALID_VALUE ||
	    !is_answer(question, code, "cuDeviceGetAttribute of %d", attribute))
		return DOCTOR_NOT_TOLD;
	return value;
}

static void attributes_ask(const struct question *question)
{
	struct doctor_gpu *const gpu = question->gpu;

	gpu->has_vmm = attribute_of(question, GPU_ATTRIBUTE_VMM);
	gpu->has_descriptors = attribute_of(question, GPU_ATTRIBUTE_POSIX_FD);
	gpu->has_dmabuf = attribute_of(question, GPU_ATTRIBUTE_DMABUF);
	gpu->has_rdma = attribute_of(question, GPU_ATTRIBUTE_RDMA);
	gpu->has_rdma_of_vmm =
		attribute_of(question, GPU_ATTRIBUTE_RDMA_WITH_VMM);
	gpu->flushes = attribute_of(question, GPU_ATTRIBUTE_RDMA_FLUSH);
	gpu->ordering = attribute_of(question, GPU_ATTRIBUTE_RDMA_ORDERING);
	gpu->has_mps = attribute_of(question, GPU_ATTRIBUTE_MPS);
}

/* In the small letters of the kernel's files. */
static void names_ask(const struct question *question)
{
	const struct kvpull_cuda_calls *const calls = question->calls;
	struct doctor_gpu *const gpu = question->gpu;
	char *at;
	int code = calls->cuDeviceGetUuid(gpu->uuid, question->device);

	gpu->has_uuid = is_answer(question, code, "cuDeviceGetUuid");
	code = calls->cuDeviceGetPCIBusId(gpu->pci, sizeof(gpu->pci),
					  question->device);
	if (!is_answer(question, code, "cuDeviceGetPCIBusId"))
		gpu->pci[0] = '\0';
	for (at = gpu->pci; *at; at++)
		*at = (char)tolower(*at);
}

/* Does it read memory of that GPU, and by which link? */
static void peer_ask(const struct question *question, uint32_t other)
{
	const struct kvpull_cuda_calls *const calls = question->calls;
	struct doctor_gpu *const gpu = question->gpu;
	int value = 0;
	int peer = 0;
	int code = calls->cuDeviceGet(&peer, (int)other);

	if (!is_answer(question, code, "cuDeviceGet of GPU %u", other))
		return;
	code = calls->cuDeviceCanAccessPeer(&value, question->device, peer);
	if (!is_answer(question, code, "cuDeviceCanAccessPeer of GPU %u",
		       other))
		return;
	gpu->reads[other] = value != 0;
	if (!value)
		return;
	code = calls->cuDeviceGetP2PAttribute(&value, GPU_P2P_RANK,
					      question->device, peer);
	if (is_answer(question, code, "cuDeviceGetP2PAttribute of GPU %u",
		      other))
		gpu->ranks[other] = value;
}

static void peers_ask(const struct question *question)
{
	const struct doctor_gpu *const gpu = question->gpu;
	uint32_t other;

	for (other = 0; other < DOCTOR_GPUS_MAX && (int32_t)other < gpu->count;
	     other++)
		if ((int32_t)other != gpu->index)
			peer_ask(question, other);
}

/* All but the index: each number is DOCTOR_NOT_TOLD, whose bytes are ones. */
static void nothing_is_told(struct doctor_gpu *gpu)
{
	const int32_t index = gpu->index;

	memset(gpu, DOCTOR_NOT_TOLD, sizeof(*gpu));
	memset(gpu->uuid, 0, sizeof(gpu->uuid));
	gpu->pci[0] = gpu->fault[0] = '\0';
	gpu->has_uuid = 0;
	gpu->index = index;
	gpu->count = 1; /* the first one is asked of all the same */
}

void doctor_gpu_ask(const struct kvpull_cuda_calls *calls,
		    struct doctor_gpu *gpu)
{
	struct question question = { .calls = calls, .gpu = gpu };
	int code;

	nothing_is_told(gpu);
	code = calls->cuDriverGetVersion(&gpu->version);
	(void)is_answer(&question, code, "cuDriverGetVersion");
	code = calls->cuDeviceGetCount(&gpu->count);
	(void)is_answer(&question, code, "cuDeviceGetCount");
	code = calls->cuDeviceGet(&question.device, gpu->index);
	if (!is_answer(&question, code, "cuDeviceGet"))
		return;
	names_ask(&question);
	attributes_ask(&question);
	peers_ask(&question);
}
