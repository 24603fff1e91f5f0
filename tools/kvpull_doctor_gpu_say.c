/* SPDX-License-Identifier: Apache-2.0 */
/* Findings about a GPU, and its row for JSON. No call of a driver is made here. */
#include "tools/kvpull_doctor_gpu_facts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/device_name.h"
#include "base/text_file.h"
#include "tools/json.h"

/* Regions of a PCI device that are no ROM, in the file `resource`. */
#define PCI_REGIONS 6u
#define PCI_TEXT_BYTES_MAX 2048u

/* ---- the kernel's files ---- */

/*
 * GPUs differ in which of their regions are of 64 bits, and so in the line of BAR1.
 * NVIDIA's kernel module counts regions that have a size: BAR1 is the second one.
 */
uint64_t doctor_gpu_bar1_bytes(const struct doctor *doctor, const char *pci)
{
	const struct doctor_file path =
		doctor_at(doctor, "/sys/bus/pci/devices/%s/resource", pci);
	char text[PCI_TEXT_BYTES_MAX];
	const char *line = text;
	uint32_t found = 0;
	uint32_t region;

	kvpull_text_read(path.text, text, sizeof(text));
	for (region = 0; region < PCI_REGIONS && line; region++) {
		char *end;
		const uint64_t first = strtoull(line, &end, 16);
		const uint64_t last = strtoull(end, NULL, 16);

		if (last > first && ++found == 2)
			return last - first + 1;
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return 0;
}

/*
 * In MIG mode the driver's UUID of a device is that of the instance, while this
 * file has the GPU's.
 */
int doctor_gpu_is_mig(const struct doctor *doctor, const struct doctor_gpu *gpu)
{
	const struct doctor_file path = doctor_at(
		doctor, "/proc/driver/nvidia/gpus/%s/information", gpu->pci);
	char own[KVPULL_DEVICE_NAME_BYTES];
	char name[KVPULL_DEVICE_NAME_BYTES];
	char text[PCI_TEXT_BYTES_MAX];
	const char *at;

	if (!gpu->has_uuid || !gpu->pci[0])
		return DOCTOR_NOT_TOLD;
	kvpull_text_read(path.text, text, sizeof(text));
	at = strstr(text, "GPU UUID:");
	/* A GPU that nobody has begun yet has question marks there. */
	if (!at || sscanf(at, "GPU UUID: %40s", name) != 1 ||
	    strncmp(name, "GPU-", 4) != 0 || name[4] == '?')
		return DOCTOR_NOT_TOLD;
	kvpull_device_name(own, gpu->uuid);
	return strcmp(name, own) != 0;
}

/* The pipe of a control daemon of MPS; 0: there is none. */
static int mps_pipe(char path[DOCTOR_PATH_BYTES_MAX])
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");

	(void)snprintf(path, DOCTOR_PATH_BYTES_MAX, "%s/control",
		       folder && *folder ? folder : "/tmp/nvidia-mps");
	return access(path, F_OK) == 0;
}

/* ---- texts ---- */

static const char *word_of(int32_t answer)
{
	return answer == DOCTOR_NOT_TOLD ? "not known" : answer ? "yes" : "no";
}

static const char *ordering_of(int32_t ordering)
{
	if (ordering == DOCTOR_NOT_TOLD)
		return "not known";
	if (ordering >= GPU_ORDERING_ALL)
		return "all GPUs";
	return ordering >= GPU_ORDERING_OWNER ? "the GPU itself" : "none";
}

/* Adds "1 (rank 0), 2" to a text that has room for all GPUs. */
static void peer_add(char text[DOCTOR_TEXT_BYTES_MAX], uint32_t other,
		     int32_t rank)
{
	const size_t used = strlen(text);
	char link[32] = "";

	if (rank != DOCTOR_NOT_TOLD)
		(void)snprintf(link, sizeof(link), " (rank %d)", rank);
	(void)snprintf(text + used, DOCTOR_TEXT_BYTES_MAX - used, "%s%u%s",
		       used ? ", " : "", other, link);
}

static void peers_say(struct doctor *doctor, const struct doctor_gpu *gpu)
{
	char reached[DOCTOR_TEXT_BYTES_MAX] = "";
	char others[DOCTOR_TEXT_BYTES_MAX] = "";
	uint32_t other;

	for (other = 0; other < DOCTOR_GPUS_MAX; other++) {
		if (gpu->reads[other] == 1)
			peer_add(reached, other, gpu->ranks[other]);
		else if (!gpu->reads[other])
			peer_add(others, other, DOCTOR_NOT_TOLD);
	}
	if (reached[0])
		doctor_say(doctor, SAY_GPU_READS, gpu->index, reached);
	if (others[0])
		doctor_say(doctor, SAY_GPU_READS_NOT, gpu->index, others);
}

/* ---- JSON ---- */

static json_t *answer_of(int32_t answer)
{
	return answer == DOCTOR_NOT_TOLD ? json_null() : json_boolean(answer);
}

static json_t *number_of(int32_t answer)
{
	return answer == DOCTOR_NOT_TOLD ? json_null() : json_integer(answer);
}

static json_t *peers_of(const struct doctor_gpu *gpu)
{
	json_t *peers = json_array();
	uint32_t other;

	for (other = 0; other < DOCTOR_GPUS_MAX; other++)
		if (gpu->reads[other] != DOCTOR_NOT_TOLD)
			(void)json_array_append_new(
				peers, json_pack("{s:i, s:b, s:o}", "index",
						 (int)other, "reads",
						 gpu->reads[other], "rank",
						 number_of(gpu->ranks[other])));
	return peers;
}

/* doctor_gpu_import_say() knows the last two. */
static void row_add(struct doctor *doctor, const struct doctor_gpu *gpu,
		    uint64_t bar1_bytes, int is_mig, int has_pipe)
{
	const json_int_t bar1 = (json_int_t)bar1_bytes;
	char uuid[KVPULL_DEVICE_NAME_BYTES];

	kvpull_device_name(uuid, gpu->uuid);
	/* clang-format off */
	(void)json_array_append_new(doctor->gpus, json_pack(
		"{s:i, s:s?, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o,"
		" s:o, s:o, s:b, s:o, s:o, s:n, s:n}",
		"index", gpu->index,
		"uuid", gpu->has_uuid ? uuid : NULL,
		"pci", gpu->pci[0] ? gpu->pci : NULL,
		"driver", number_of(gpu->version),
		"vmm", answer_of(gpu->has_vmm),
		"descriptors", answer_of(gpu->has_descriptors),
		"dmabuf", answer_of(gpu->has_dmabuf),
		"rdma", answer_of(gpu->has_rdma),
		"rdma_of_vmm", answer_of(gpu->has_rdma_of_vmm),
		"flushes", number_of(gpu->flushes),
		"ordering", number_of(gpu->ordering),
		"mig", answer_of(is_mig),
		"mps", answer_of(gpu->has_mps),
		"mps_pipe", has_pipe,
		"bar1_bytes", bar1 ? json_integer(bar1) : json_null(),
		"peers", peers_of(gpu), "access", "gbps"));
	/* clang-format on */
}

void doctor_gpu_say(struct doctor *doctor, const struct doctor_gpu *gpu)
{
	const uint64_t bar1_bytes = doctor_gpu_bar1_bytes(doctor, gpu->pci);
	const int is_mig = doctor_gpu_is_mig(doctor, gpu);
	char pipe[DOCTOR_PATH_BYTES_MAX];
	const int has_pipe = mps_pipe(pipe);
	char uuid[KVPULL_DEVICE_NAME_BYTES];
	char version[32] = "a version that is not known";
	char bar1[32] = "not known";

	kvpull_device_name(uuid, gpu->uuid);
	if (gpu->version != DOCTOR_NOT_TOLD)
		(void)snprintf(version, sizeof(version), "CUDA %d.%d",
			       gpu->version / 1000, gpu->version % 1000 / 10);
	if (bar1_bytes)
		(void)snprintf(bar1, sizeof(bar1), "%llu MiB",
			       (unsigned long long)(bar1_bytes >> 20));
	doctor_say(doctor, SAY_GPU_FACTS, gpu->index,
		   gpu->has_uuid ? uuid : "no UUID",
		   gpu->pci[0] ? gpu->pci : "no PCI address", version,
		   word_of(gpu->has_vmm), word_of(gpu->has_descriptors),
		   word_of(is_mig), bar1);
	doctor_say(doctor, SAY_GPU_AND_NICS, gpu->index, word_of(gpu->has_rdma),
		   word_of(gpu->has_rdma_of_vmm), word_of(gpu->has_dmabuf),
		   word_of(gpu->flushes == DOCTOR_NOT_TOLD ?
				   DOCTOR_NOT_TOLD :
				   gpu->flushes & GPU_FLUSH_BY_HOST),
		   ordering_of(gpu->ordering));
	peers_say(doctor, gpu);
	/* Instances and clients of MPS share less, and more, than processes do. */
	if (is_mig == 1)
		doctor_say(doctor, SAY_GPU_IS_MIG, gpu->index);
	if (gpu->has_mps == 1 || has_pipe)
		doctor_say(doctor, SAY_GPU_HAS_MPS, gpu->index,
			   gpu->has_mps == 1 ? "its driver says so" : pipe);
	if (gpu->fault[0])
		doctor_say(doctor, SAY_GPU_ANSWERS_PARTLY, gpu->index,
			   gpu->fault);
	row_add(doctor, gpu, bar1_bytes, is_mig, has_pipe);
}

/* ---- memory that is handed out ---- */

static const struct {
	const char *sign; /* in the line */
	const char *advice;
} causes[] = {
	{ "update the driver", "a driver of CUDA 12.0 or newer" },
	{ "the driver does not start",
	  "nvidia-smi; in a container: --gpus all, or a ResourceClaim for the GPU" },
	{ "cuMemCreate: 2 ",
	  "stop what has the GPU's memory meanwhile: nvidia-smi" },
	{ "for reads alone",
	  "a newer driver; until then let in only consumers that may write into the cache" },
	{ "is lost", DOCTOR_RESET_THE_GPU },
	{ "", "KV caches in host memory, or on another GPU" },
};

void doctor_gpu_refusal_say(struct doctor *doctor, const char *before,
			    const char *line)
{
	size_t at = 0;

	while (!strstr(line, causes[at].sign))
		at++;
	doctor_say(doctor, SAY_GPU_REFUSES, before, line, causes[at].advice);
}

void doctor_gpu_import_say(struct doctor *doctor, const struct doctor_gpu *gpu,
			   const struct doctor_gpu_import *import)
{
	const int is_read = import->access == KVPULL_DEVICE_READ;
	json_t *row =
		json_array_get(doctor->gpus, json_array_size(doctor->gpus) - 1);
	char before[64];

	if (import->code) {
		(void)snprintf(before, sizeof(before),
			       "GPU %d: no other process copies from it: ",
			       gpu->index);
		doctor_gpu_refusal_say(doctor, before, import->line);
		return;
	}
	doctor_say(doctor, SAY_GPU_IS_SHARED, gpu->index,
		   is_read ? "reads" : "reads and stores",
		   (unsigned long long)(import->bytes >> 20), import->gbps,
		   import->gathers ? "the kernel" : "the driver's calls",
		   import->copies);
	set_value(row, "access", json_string(is_read ? "read" : "read-write"));
	set_real(row, "gbps", import->gbps);
	if (!is_read)
		doctor_gpu_refusal_say(doctor, "", import->line);
}
