/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cause that kvpull_doctor reads from what a failed pull printed. Each is
 * staged by processes in tests/doctor_causes.sh; here are the lines alone, whole
 * and cut.
 */
#include <string.h>

#include "plugin/config/config.h"
#include "tests/lib/unit.h"
#include "tools/kvpull_doctor_parts.h"

static struct doctor doctor;

static int known(const char *output)
{
	static const struct kvpull_config config;

	memset(&doctor, 0, sizeof(doctor));
	doctor.root = "/nonexistent";
	doctor.peer = "p";
	doctor.port = "1";
	doctor.config = &config;
	memcpy(doctor.link_address, "10.66.0.2", sizeof("10.66.0.2"));
	return doctor_causes(&doctor, output);
}

static void means(const char *output, const char *text, const char *advice)
{
	assert_int_equal(known(output), 1);
	assert_int_equal(doctor.finding_count, 1);
	assert_int_equal(doctor.findings[0].level, DOCTOR_FAIL);
	assert_string_equal(doctor.findings[0].text, text);
	assert_string_equal(doctor.findings[0].advice, advice);
}

UNIT_TEST(rejection_by_networks_proposes_both_addresses)
{
	means("verbs: fake0\npeer 10.7.0.1:5 qp 0x5 lost: it rejects us: our address 10.66.0.2 is in none of its networks\npull failed\n",
	      "no pull from p: peer 10.7.0.1:5 qp 0x5 lost: it rejects us: our address 10.66.0.2 is in none of its networks",
	      "there and here: networks=10.66.0.2/32,10.7.0.1/32");
}

UNIT_TEST(ticket_without_an_allowed_address_names_it)
{
	means("no allowed route to shm:x.sock;verbs:10.7.0.1:5: its worker has ended\n",
	      "no pull from p: its address 10.7.0.1 is in none of our networks",
	      "here and there: networks=10.66.0.2/32,10.7.0.1/32");
	means("no allowed route to verbs:[fd67::1]:5: its worker has ended\n",
	      "no pull from p: its address fd67::1 is in none of our networks",
	      "here and there: networks=10.66.0.2/32,fd67::1/128");
}

UNIT_TEST(ticket_without_an_rdma_address_is_the_peers_route)
{
	means("no allowed route to shm:x.sock: its worker has ended\n",
	      "no pull from p: it offers no RDMA address",
	      "there: kvpull_doctor --route verbs says why; and route must not be shm");
}

/* A queue pair that breaks after a refusal is its effect. */
UNIT_TEST(cause_goes_before_its_effects)
{
	means("peer 10.7.0.1:5 refused us: model is b there and a here\npeer 10.7.0.1:5 qp 0x5 lost: RDMA_CM_EVENT_REJECTED\nwaiting for the bytes: EPEER\n",
	      "no pull from p: peer 10.7.0.1:5 refused us: model is b there and a here",
	      "make equal on both hosts what that line names");
}

UNIT_TEST(line_that_is_longer_than_a_finding_is_cut)
{
	static char line[4096];

	memset(line, 'x', sizeof(line) - 1);
	memcpy(line + 100, " refused us: ", 13);
	assert_int_equal(known(line), 1);
	assert_int_equal(strlen(doctor.findings[0].text),
			 strlen("no pull from p: ") + 220);
}

UNIT_TEST(output_that_is_unknown_has_no_cause)
{
	assert_int_equal(known(""), 0);
	assert_int_equal(known("killed\n"), 0);
	assert_int_equal(doctor.finding_count, 0);
}
