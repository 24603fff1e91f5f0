/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts as users write them: IPv6 addresses in brackets, and a port behind. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tools/cli/host.h"

static struct cli_host host;

static void is_host(const char *text, const char *name, uint32_t port)
{
	char number[16] = "";

	if (port)
		(void)snprintf(number, sizeof(number), "%u", port);
	assert_int_equal(cli_host_parse(text, &host), 0);
	assert_string_equal(host.name, name);
	assert_string_equal(host.port, number);
	assert_int_equal(host.number, port);
}

static void is_refused(const char *text)
{
	assert_int_equal(cli_host_parse(text, &host), -1);
}

UNIT_TEST(host_without_brackets_is_taken_whole)
{
	is_host("node1", "node1", 0);
	is_host("node1:7", "node1:7", 0);
	is_host("10.66.0.1", "10.66.0.1", 0);
	is_host("fd66::1", "fd66::1", 0);
	is_host("", "", 0);
}

UNIT_TEST(address_in_brackets_loses_them)
{
	is_host("[fd66::1]", "fd66::1", 0);
	is_host("[::ffff:10.66.0.1]", "::ffff:10.66.0.1", 0);
	is_host("[fe80::1%eth0]", "fe80::1%eth0", 0);
}

UNIT_TEST(port_behind_brackets_is_taken)
{
	is_host("[fd66::1]:18515", "fd66::1", 18515);
	is_host("[::1]:1", "::1", 1);
	is_host("[::1]:65535", "::1", 65535);
}

UNIT_TEST(port_beyond_its_range_is_refused)
{
	is_refused("[::1]:0");
	is_refused("[::1]:65536");
	is_refused("[::1]:99999");
	is_refused("[::1]:4294967297");
	is_refused("[::1]:");
	is_refused("[::1]:-1");
	is_refused("[::1]:1a");
	is_refused("[::1]:1 ");
}

UNIT_TEST(brackets_around_anything_else_are_refused)
{
	is_refused("[");
	is_refused("[]");
	is_refused("[]:1");
	is_refused("[fd66::1");
	is_refused("[fd66::1\0"); /* nothing behind its end counts */
	is_refused("[node1]");
	is_refused("[10.66.0.1]:1");
	is_refused("[fd66::1]x");
	is_refused("[fd66::1]]");
	is_refused("[fd66::1]1");
	is_refused("[0000:0000:0000:0000:0000:0000:255.255.255.2550]");
}

UNIT_TEST(host_longer_than_a_name_is_refused)
{
	char text[258];

	memset(text, 'a', sizeof(text));
	text[255] = '\0';
	is_host(text, text, 0);
	text[255] = 'a';
	text[256] = '\0';
	is_refused(text);
}
