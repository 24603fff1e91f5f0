/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of the kernel that kvpull_doctor reads for a chosen port, from a folder
 * that the test makes: default_roce_mode, and the version.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include "tools/kvpull_doctor_port.h"

#define MODE "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode"
#define RELEASE "proc/sys/kernel/osrelease"

static char root[] = "/tmp/kvpull-doctor-XXXXXX";
static struct doctor doctor;
static struct doctor_port port;

static void put(const char *name, const char *line)
{
	char text[FILES_PATH_BYTES];

	(void)snprintf(text, sizeof(text), "%s\n", line);
	files_put(root, name, text);
}

static void unput(const char *name)
{
	files_unput(root, name);
}

static int up(void **state)
{
	(void)state;
	memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
	assert_non_null(mkdtemp(root));
	(void)unsetenv("RDMAV_FORK_SAFE");
	(void)unsetenv("IBV_FORK_SAFE");
	doctor = (struct doctor){ .root = root };
	port = (struct doctor_port){ .device = "mlx5_0",
				     .number = 1,
				     .gid_count = 2,
				     .gids = {
					     { 2, KVPULL_GID_V1,
					       "::ffff:10.66.0.1" },
					     { 3, KVPULL_GID_IPV4,
					       "10.66.0.1" },
				     } };
	return 0;
}

static int down(void **state)
{
	(void)state;
	unput(MODE);
	unput(RELEASE);
	(void)rmdir(root);
	return 0;
}

static void chosen(uint32_t index, enum kvpull_gid_rank rank,
		   const char *address)
{
	doctor.finding_count = 0;
	port.gid = (struct doctor_gid){ .index = index, .rank = rank };
	(void)snprintf(port.gid.address, sizeof(port.gid.address), "%s",
		       address);
	doctor_cm_mode(&doctor, &port);
}

static void says(enum doctor_level level, const char *text, const char *advice)
{
	assert_int_equal(doctor.finding_count, 1);
	assert_int_equal(doctor.findings[0].level, level);
	assert_non_null(strstr(doctor.findings[0].text, text));
	assert_non_null(strstr(doctor.findings[0].advice, advice));
}

UNIT_TEST_WITH(gid_of_the_default_mode_is_no_finding, up, down)
{
	chosen(3, KVPULL_GID_IPV4, "10.66.0.1");
	assert_int_equal(doctor.finding_count, 0);
	put(MODE, "RoCE v2");
	chosen(3, KVPULL_GID_IPV4, "10.66.0.1");
	assert_int_equal(doctor.finding_count, 0);
	put(MODE, "IB/RoCE v1");
	chosen(2, KVPULL_GID_V1, "::ffff:10.66.0.1");
	assert_int_equal(doctor.finding_count, 0);
}

UNIT_TEST_WITH(gid_of_version_1_is_left_for_its_twin, up, down)
{
	chosen(2, KVPULL_GID_V1, "::ffff:10.66.0.1");
	says(DOCTOR_NOTE, "mlx5_0 connects by RoCE v2", "verbs_gid_index");
	says(DOCTOR_NOTE, "by GID 3, not 2", "");
}

UNIT_TEST_WITH(mode_of_version_1_is_a_warning, up, down)
{
	put(MODE, "IB/RoCE v1");
	chosen(3, KVPULL_GID_IPV4, "10.66.0.1");
	says(DOCTOR_WARN, "by GID 2, not 3",
	     "/rdma_cm/mlx5_0/ports/1/default_roce_mode");
}

UNIT_TEST_WITH(address_without_a_gid_of_the_mode_fails_who_wants_verbs, up,
	       down)
{
	chosen(0, KVPULL_GID_V1, "fe80::1");
	says(DOCTOR_WARN, "none has the address fe80::1 of GID 0", "");
	doctor.route = KVPULL_ROUTE_PIN_VERBS;
	chosen(0, KVPULL_GID_V1, "fe80::1");
	says(DOCTOR_FAIL, "none has the address fe80::1 of GID 0", "");
}

UNIT_TEST_WITH(port_of_version_1_alone_connects_by_it, up, down)
{
	port.gid_count = 1;
	chosen(2, KVPULL_GID_V1, "::ffff:10.66.0.1");
	assert_int_equal(doctor.finding_count, 0);
	assert_int_equal(doctor_cm_is_v1(&doctor, &port), 1);
}

UNIT_TEST_WITH(infiniband_has_no_mode, up, down)
{
	put(MODE, "IB/RoCE v1");
	port.is_infiniband = 1;
	chosen(0, KVPULL_GID_INFINIBAND, "fe80::1");
	assert_int_equal(doctor.finding_count, 0);
}

static uint32_t fork_findings(const char *release)
{
	put(RELEASE, release);
	doctor.finding_count = 0;
	doctor_fork(&doctor);
	return doctor.finding_count;
}

UNIT_TEST_WITH(kernel_before_5_12_may_give_pinned_pages_away, up, down)
{
	assert_int_equal(fork_findings("5.11.22-generic"), 1);
	says(DOCTOR_WARN, "Linux 5.11.22-generic may give pinned pages",
	     "RDMAV_FORK_SAFE=1");
	assert_int_equal(fork_findings("4.18.0-553.el8"), 1);
	assert_int_equal(fork_findings("5.12.0"), 0);
	assert_int_equal(fork_findings("5.12-rc1"), 0);
	assert_int_equal(fork_findings("6.1.0-56-amd64"), 0);
	assert_int_equal(fork_findings("10.0.0"), 0);
}

UNIT_TEST_WITH(memory_is_not_pinned_on_one_node, up, down)
{
	doctor.route = KVPULL_ROUTE_PIN_SHM;
	assert_int_equal(fork_findings("5.11.22-generic"), 0);
}

UNIT_TEST_WITH(unknown_version_is_no_finding, up, down)
{
	doctor_fork(&doctor);
	assert_int_equal(doctor.finding_count, 0);
}

UNIT_TEST_WITH(fork_safe_libibverbs_is_enough, up, down)
{
	assert_int_equal(setenv("RDMAV_FORK_SAFE", "1", 1), 0);
	assert_int_equal(fork_findings("5.10.0"), 1);
	says(DOCTOR_OK, "RDMAV_FORK_SAFE keeps", "");
	(void)unsetenv("RDMAV_FORK_SAFE");
	assert_int_equal(setenv("IBV_FORK_SAFE", "1", 1), 0);
	assert_int_equal(fork_findings("5.10.0"), 1);
	says(DOCTOR_OK, "keeps registered memory", "");
	(void)unsetenv("IBV_FORK_SAFE");
}
