/* SPDX-License-Identifier: Apache-2.0 */
/* The value of networks that kvpull_doctor proposes from a routing table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/config/config.h"
#include "tests/lib/unit.h"
#include "tools/kvpull_doctor_parts.h"

#define HEAD                                                                   \
	"Iface Destination Gateway Flags RefCnt Use Metric Mask MTU W IRTT\n"
#define OWN4 "eth0 0000420A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"
#define WIDE4 "eth0 0000420A 0100420A 0003 0 0 0 0000FFFF 0 0 0\n"
#define OTHER4 "eth1 0000630A 00000000 0001 0 0 0 0000FFFF 0 0 0\n"
#define DEFAULT4 "eth1 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n"
#define DEFAULT_THERE4 "eth0 00000000 0100420A 0003 0 0 0 00000000 0 0 0\n"
#define REJECT4 "lo 0000070A 00000000 0201 0 0 0 0000FFFF 0 0 0\n"
#define LINK31 "eth0 0200420A 00000000 0001 0 0 0 FEFFFFFF 0 0 0\n"
#define ZERO6 "00000000000000000000000000000000"
#define OWN6                                                                   \
	"fd660000000000000000000000000000 40 " ZERO6 " 00 " ZERO6              \
	" 00000100 00000001 00000000 00000001 eth0\n"
#define WIDE6                                                                  \
	"fd000000000000000000000000000000 08 " ZERO6                           \
	" 00 fd660000000000000000000000000001"                                 \
	" 00000100 00000001 00000000 00000003 eth0\n"
#define LINK6                                                                  \
	"fe800000000000000000000000000000 40 " ZERO6 " 00 " ZERO6              \
	" 00000100 00000001 00000000 00000001 eth0\n"

static char root[] = "/tmp/kvpull-doctor-XXXXXX";
static struct kvpull_config config;
static struct doctor doctor;

static void table_write(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/proc/net/%s", root, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void folder_make(const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static int up(void **state)
{
	(void)state;
	memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
	assert_non_null(mkdtemp(root));
	folder_make("proc");
	folder_make("proc/net");
	memset(&doctor, 0, sizeof(doctor));
	memset(&config, 0, sizeof(config));
	doctor.root = root;
	doctor.config = &config;
	memcpy(doctor.link_netdev, "eth0", sizeof("eth0"));
	return 0;
}

static int down(void **state)
{
	static const char *const names[] = { "proc/net/route",
					     "proc/net/ipv6_route", "proc/net",
					     "proc", "" };
	char path[128];
	size_t at;

	(void)state;
	for (at = 0; at < sizeof(names) / sizeof(names[0]); at++) {
		(void)snprintf(path, sizeof(path), "%s/%s", root, names[at]);
		(void)remove(path);
	}
	return 0;
}

static void proposes(const char *table, const char *own, const char *peer,
		     const char *networks)
{
	char text[DOCTOR_NETWORKS_BYTES_MAX];

	table_write(strchr(own, ':') ? "ipv6_route" : "route", table);
	(void)snprintf(doctor.link_address, sizeof(doctor.link_address), "%s",
		       own);
	doctor_networks_propose(&doctor, peer, text);
	assert_string_equal(text, networks);
}

UNIT_TEST_WITH(network_that_has_both_is_proposed_alone, up, down)
{
	proposes(HEAD OWN4 WIDE4, "10.66.0.2", "10.66.0.1", "10.66.0.0/24");
	proposes(HEAD OWN4 WIDE4, "10.66.0.2", "10.66.7.1", "10.66.0.0/16");
	proposes(OWN6 WIDE6, "fd66::2", "fd67::1", "fd00::/8");
}

UNIT_TEST_WITH(networks_of_both_are_proposed_together, up, down)
{
	proposes(HEAD OWN4 OTHER4 DEFAULT4, "10.66.0.2", "10.99.1.1",
		 "10.66.0.0/24,10.99.0.0/16");
	proposes(HEAD LINK31 OTHER4, "10.66.0.2", "10.99.1.1",
		 "10.66.0.2/31,10.99.0.0/16");
}

UNIT_TEST_WITH(default_route_proposes_the_peer_alone, up, down)
{
	proposes(HEAD OWN4 DEFAULT4, "10.66.0.2", "10.7.7.1",
		 "10.66.0.0/24,10.7.7.1/32");
	proposes(HEAD OWN4 DEFAULT4 REJECT4, "10.66.0.2", "10.7.7.1",
		 "10.66.0.0/24,10.7.7.1/32");
	proposes(OWN6, "fd66::2", "fd67::1", "fd66::/64,fd67::1/128");
}

UNIT_TEST_WITH(table_that_is_garbage_proposes_addresses, up, down)
{
	proposes("\n\neth0 xyz\n", "10.66.0.2", "10.7.7.1",
		 "10.66.0.2/32,10.7.7.1/32");
	proposes("fd66\nzz 40 x 0 x 0 0 0 1 eth0\n", "fd66::2", "fd67::1",
		 "fd66::2/128,fd67::1/128");
}

/* What is said where nobody is called. */
static const struct doctor_finding *noted(const char *table, const char *own)
{
	table_write(strchr(own, ':') ? "ipv6_route" : "route", table);
	(void)snprintf(doctor.link_address, sizeof(doctor.link_address), "%s",
		       own);
	doctor.finding_count = 0;
	doctor_networks(&doctor);
	return doctor.finding_count ? doctor.findings : NULL;
}

UNIT_TEST_WITH(routes_of_the_device_are_noted, up, down)
{
	assert_string_equal(noted(HEAD OWN4 WIDE4, "10.66.0.2")->advice,
			    "on all hosts: networks=10.66.0.0/16");
	assert_string_equal(noted(OWN6 WIDE6 LINK6, "fd66::2")->advice,
			    "on all hosts: networks=fd00::/8");
}

UNIT_TEST_WITH(own_subnet_alone_is_no_note, up, down)
{
	assert_null(noted(HEAD OWN4 DEFAULT4 OTHER4, "10.66.0.2"));
	assert_null(noted(HEAD OWN4 DEFAULT_THERE4, "10.66.0.2"));
	assert_null(noted(OWN6 LINK6, "fd66::2"));
	memcpy(config.networks, "10.0.0.0/8", sizeof("10.0.0.0/8"));
	assert_null(noted(HEAD OWN4 WIDE4, "10.66.0.2"));
}
