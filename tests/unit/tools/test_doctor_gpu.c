/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of GPUs that kvpull_doctor says: answers of a driver that is the test's,
 * with three GPUs, and files of the kernel in a folder that the test makes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include "tools/kvpull_doctor_gpu_facts.h"

#define PCI "0000:3d:00.0"
#define RESOURCE "sys/bus/pci/devices/" PCI "/resource"
#define INFORMATION "proc/driver/nvidia/gpus/" PCI "/information"
#define OWN "GPU-31313131-3131-3131-3131-313131313131"
#define NONE "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"

static char root[] = "/tmp/kvpull-doctor-XXXXXX";
static struct doctor doctor;

/* ---- the driver ---- */

static struct {
	int count;
	int refused_attribute; /* this one has refused_code */
	int refused_code;
	int peer_code; /* of cuDeviceCanAccessPeer() */
	int mps;
} driver;

static int get_version(int *version)
{
	*version = 12040;
	return GPU_OK;
}

static int get_count(int *count)
{
	*count = driver.count;
	return GPU_OK;
}

static int get_device(int *device, int ordinal)
{
	if (ordinal >= driver.count)
		return GPU_EINVALID_DEVICE;
	*device = 100 + ordinal;
	return GPU_OK;
}

static int get_uuid(void *uuid, int device)
{
	memset(uuid, '0' + device - 100, 16);
	return GPU_OK;
}

static int get_pci(char *text, int bytes, int device)
{
	(void)device;
	(void)snprintf(text, (size_t)bytes, "0000:3D:00.0");
	return GPU_OK;
}

static int get_attribute(int *value, int attribute, int device)
{
	assert_true(device >= 100);
	if (attribute == driver.refused_attribute)
		return driver.refused_code;
	*value = attribute == GPU_ATTRIBUTE_MPS           ? driver.mps :
		 attribute == GPU_ATTRIBUTE_RDMA_FLUSH    ? GPU_FLUSH_BY_HOST :
		 attribute == GPU_ATTRIBUTE_RDMA_ORDERING ? GPU_ORDERING_OWNER :
							    1;
	return GPU_OK;
}

static int get_name(int code, const char **name)
{
	*name = code == GPU_EUNKNOWN ? "CUDA_ERROR_UNKNOWN" : "another";
	return GPU_OK;
}

/* The first two reach each other, by unlike ways; the third reaches nobody. */
static int can_access(int *can, int device, int peer)
{
	*can = device != 102 && peer != 102;
	return driver.peer_code;
}

static int get_p2p(int *value, int attribute, int source, int target)
{
	assert_int_equal(attribute, GPU_P2P_RANK);
	*value = source < target ? 3 : 4;
	return GPU_OK;
}

static const struct kvpull_cuda_calls calls = {
	.cuDriverGetVersion = get_version,
	.cuDeviceGet = get_device,
	.cuDeviceGetUuid = get_uuid,
	.cuDeviceGetPCIBusId = get_pci,
	.cuDeviceGetAttribute = get_attribute,
	.cuGetErrorName = get_name,
	.cuDeviceGetCount = get_count,
	.cuDeviceCanAccessPeer = can_access,
	.cuDeviceGetP2PAttribute = get_p2p,
};

/* ---- the folder ---- */

static void put(const char *name, const char *text)
{
	files_put(root, name, text);
}

static void unput(const char *name)
{
	files_unput(root, name);
}

static int begin(void **state)
{
	(void)state;
	memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
	assert_non_null(mkdtemp(root));
	memset(&doctor, 0, sizeof(doctor));
	memset(&driver, 0, sizeof(driver));
	driver.count = 3;
	doctor.root = root;
	doctor.gpus = json_array();
	return setenv("CUDA_MPS_PIPE_DIRECTORY", root, 1);
}

static int end(void **state)
{
	(void)state;
	json_decref(doctor.gpus);
	unput(RESOURCE);
	unput(INFORMATION);
	unput("control");
	(void)unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	(void)rmdir(root);
	return 0;
}

/* ---- what is said ---- */

static struct doctor_gpu asked(int32_t index)
{
	struct doctor_gpu gpu = { .index = index };

	doctor_gpu_ask(&calls, &gpu);
	return gpu;
}

static void say(int32_t index)
{
	const struct doctor_gpu gpu = asked(index);

	doctor_gpu_say(&doctor, &gpu);
}

/* The finding with these words; one of no words: there is none. */
static const struct doctor_finding *finding_of(const char *words)
{
	static const struct doctor_finding none;
	uint32_t at;

	for (at = 0; at < doctor.finding_count; at++)
		if (strstr(doctor.findings[at].text, words))
			return &doctor.findings[at];
	return &none;
}

static void says(const char *words)
{
	assert_string_not_equal(finding_of(words)->text, "");
}

static void says_not(const char *words)
{
	assert_string_equal(finding_of(words)->text, "");
}

static const json_t *row_of(const char *key)
{
	return json_object_get(json_array_get(doctor.gpus, 0), key);
}

UNIT_TEST_WITH(facts_are_what_the_driver_says, begin, end)
{
	say(1);
	says("GPU 1: " OWN " at " PCI
	     ", driver of CUDA 12.4, which says: VMM yes, descriptors yes; MIG not known, BAR1 not known");
	says("GPU 1 and NICs, as its driver says: GPUDirect RDMA yes, of VMM yes, dmabuf yes, flush by the host yes, order of writes for the GPU itself");
	assert_string_equal(json_string_value(row_of("uuid")), OWN);
	assert_int_equal(json_integer_value(row_of("ordering")), 100);
	assert_true(json_is_true(row_of("dmabuf")));
	assert_true(json_is_null(row_of("mig")));
	assert_true(json_is_null(row_of("access")));
	says_not("does not answer all");
	says_not("MPS");
}

UNIT_TEST_WITH(gpus_that_are_reached_are_named_with_their_rank, begin, end)
{
	const struct doctor_finding *none;

	say(0);
	says("GPU 0 reads memory of these GPUs, as its driver says: 1 (rank 3)");
	none = finding_of(
		"GPU 0 reads no memory of these GPUs, as its driver says: 2");
	assert_non_null(strstr(none->advice, "nvidia-smi topo -p2p r"));
	assert_int_equal(json_array_size(row_of("peers")), 2);
}

UNIT_TEST_WITH(rank_is_that_of_reads, begin, end)
{
	say(1);
	says("as its driver says: 0 (rank 4)");
}

UNIT_TEST_WITH(gpu_that_is_alone_has_no_line_of_others, begin, end)
{
	driver.count = 1;
	say(0);
	says_not("of these GPUs");
	assert_int_equal(json_array_size(row_of("peers")), 0);
}

UNIT_TEST_WITH(refused_question_is_a_finding, begin, end)
{
	const struct doctor_finding *fault;

	driver.refused_attribute = GPU_ATTRIBUTE_DMABUF;
	driver.refused_code = GPU_EUNKNOWN;
	driver.peer_code = GPU_EINVALID_CONTEXT;
	say(0);
	/* The first one. */
	fault = finding_of(
		"does not answer all: cuDeviceGetAttribute of 124: 999 CUDA_ERROR_UNKNOWN");
	assert_int_equal(fault->level, DOCTOR_WARN);
	assert_non_null(strstr(fault->advice, "nvidia-smi"));
	says("dmabuf not known, flush by the host yes");
	/* Nothing is said of GPUs that nothing was answered of. */
	says_not("of these GPUs");
}

UNIT_TEST_WITH(refused_question_of_a_peer_is_a_finding, begin, end)
{
	driver.peer_code = GPU_EINVALID_DEVICE;
	say(0);
	says("cuDeviceCanAccessPeer of GPU 1: 101 another");
}

UNIT_TEST_WITH(number_that_is_refused_has_no_facts, begin, end)
{
	say(3);
	says("GPU 3: no UUID at no PCI address");
	says("VMM not known");
	says("cuDeviceGet: 101");
}

UNIT_TEST_WITH(attribute_of_a_newer_driver_is_no_fault, begin, end)
{
	driver.refused_attribute = GPU_ATTRIBUTE_MPS;
	driver.refused_code = GPU_EINVALID_VALUE;
	say(0);
	says_not("does not answer all");
	assert_true(json_is_null(row_of("mps")));
}

UNIT_TEST_WITH(mps_is_a_warning, begin, end)
{
	const struct doctor_finding *mps;

	driver.mps = 1;
	say(0);
	mps = finding_of(
		"GPU 0 is shared by MPS (its driver says so): a fault of one process ends the others");
	assert_int_equal(mps->level, DOCTOR_WARN);
	assert_true(json_is_false(row_of("mps_pipe")));
}

UNIT_TEST_WITH(pipe_of_mps_is_a_warning, begin, end)
{
	put("control", "");
	say(0);
	says("GPU 0 is shared by MPS (/tmp/");
	assert_true(json_is_true(row_of("mps_pipe")));
}

/* Lines of an A100, then of an H100, whose first region takes two. */
UNIT_TEST_WITH(bar1_is_the_second_region_with_a_size, begin, end)
{
	put(RESOURCE,
	    "0x00000000fb000000 0x00000000fbffffff 0x0000000000040200\n"
	    "0x0000380000000000 0x0000380fffffffff 0x000000000014220c\n" NONE
	    "0x0000381000000000 0x0000381001ffffff 0x000000000014220c\n");
	assert_int_equal(doctor_gpu_bar1_bytes(&doctor, PCI), UINT64_C(65536)
								      << 20);
	put(RESOURCE,
	    "0x0000212042000000 0x0000212042ffffff 0x000000000014220c\n" NONE
	    "0x0000210000000000 0x0000211fffffffff 0x000000000014220c\n" NONE
	    "0x0000212040000000 0x0000212041ffffff 0x000000000014220c\n" NONE);
	assert_int_equal(doctor_gpu_bar1_bytes(&doctor, PCI), UINT64_C(131072)
								      << 20);
	say(0);
	says("BAR1 131072 MiB");
	assert_int_equal(json_integer_value(row_of("bar1_bytes")),
			 INT64_C(131072) << 20);
}

UNIT_TEST_WITH(bar1_that_cannot_be_read_is_not_known, begin, end)
{
	assert_int_equal(doctor_gpu_bar1_bytes(&doctor, PCI), 0);
	assert_int_equal(doctor_gpu_bar1_bytes(&doctor, ""), 0);
	put(RESOURCE, "nonsense\n\n");
	assert_int_equal(doctor_gpu_bar1_bytes(&doctor, PCI), 0);
	/* The ROM is no region. */
	put(RESOURCE,
	    "0x00000000fb000000 0x00000000fbffffff 0x0000000000040200\n" NONE
		    NONE NONE NONE NONE
	    "0x00000000fc000000 0x00000000fc07ffff 0x0000000000046200\n");
	assert_int_equal(doctor_gpu_bar1_bytes(&doctor, PCI), 0);
}

UNIT_TEST_WITH(instance_of_mig_has_another_uuid_than_its_gpu, begin, end)
{
	const struct doctor_gpu gpu = asked(1);

	assert_int_equal(doctor_gpu_is_mig(&doctor, &gpu), DOCTOR_NOT_TOLD);
	put(INFORMATION, "Model: \t\t one\nGPU UUID: \t " OWN "\nIRQ: 7\n");
	assert_int_equal(doctor_gpu_is_mig(&doctor, &gpu), 0);
	put(INFORMATION,
	    "Model: \t\t one\nGPU UUID: \t GPU-41313131-3131-3131-3131-313131313131\n");
	assert_int_equal(doctor_gpu_is_mig(&doctor, &gpu), 1);
	say(1);
	says("GPU 1 is an instance of MIG");
	assert_true(json_is_true(row_of("mig")));
	put(INFORMATION, "GPU UUID: \t GPU-????????\n\n");
	assert_int_equal(doctor_gpu_is_mig(&doctor, &gpu), DOCTOR_NOT_TOLD);
}
