/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses in a ticket: a part a route. */

#include <string.h>

#include "plugin/bytes/ticket.h"
#include "tests/lib/unit.h"

UNIT_TEST(address_parts_are_found_by_route)
{
	char part[KVPULL_ADDRESS_BYTES_MAX];

	assert_int_equal(kvpull_ticket_address("shm:NAME;verbs:10.0.0.2:7471",
					       "verbs", part),
			 0);
	assert_string_equal(part, "10.0.0.2:7471");
	assert_int_equal(
		kvpull_ticket_address("shm:NAME;verbs:1:2", "shm", part), 0);
	assert_string_equal(part, "NAME");
	assert_int_equal(kvpull_ticket_address("shm:NAME", "sh", part),
			 KVPULL_EROUTE);
	assert_int_equal(kvpull_ticket_address("shm:verbs:1", "verbs", part),
			 KVPULL_EROUTE);
	assert_int_equal(kvpull_ticket_address("", "shm", part), KVPULL_EROUTE);
	assert_int_equal(kvpull_ticket_address("shm", "shm", part),
			 KVPULL_EROUTE);
}

UNIT_TEST(address_part_too_long_is_no_route)
{
	char address[KVPULL_TICKET_ADDRESS_BYTES_MAX] = "shm:";
	char part[KVPULL_ADDRESS_BYTES_MAX];

	memset(address + 4, 'a', KVPULL_ADDRESS_BYTES_MAX - 1);
	assert_true(kvpull_ticket_address_is_good(address));
	assert_int_equal(kvpull_ticket_address(address, "shm", part), 0);
	address[4 + KVPULL_ADDRESS_BYTES_MAX - 1] = 'a';
	assert_false(kvpull_ticket_address_is_good(address));
	assert_int_equal(kvpull_ticket_address(address, "shm", part),
			 KVPULL_EROUTE);
}

UNIT_TEST(addresses_are_checked_to_the_last_byte)
{
	static const char *const good[] = { "shm:a", "shm:/a b/c~",
					    "verbs:[fe80::1]:7471;shm:x" };
	static const char *const bad[] = {
		"",        "shm",        "shm:",
		":x",      ";",          "shm:a;",
		";shm:a",  "shm:a;;b:c", "SHM:a",
		"s m:a",   "shm:a\x7f",  "shm:\xc3\xa9",
		"shm:a\n", "shm:a;x",    "aroutewhosenameistoolong:a"
	};
	uint32_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(kvpull_ticket_address_is_good(good[i]));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(kvpull_ticket_address_is_good(bad[i]));
}
