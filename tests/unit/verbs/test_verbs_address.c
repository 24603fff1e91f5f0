/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of addresses. */
#include <arpa/inet.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "verbs/address.h"

UNIT_TEST(link_local_addresses_are_those_of_their_blocks)
{
	static const struct {
		const char *text;
		int is;
	} all[] = {
		{ "169.254.0.1", 1 }, { "169.253.0.1", 0 },
		{ "168.254.0.1", 0 }, { "10.66.0.1", 0 },
		{ "fe80::1", 1 },     { "febf::1", 1 },
		{ "fec0::1", 0 },     { "fe40::1", 0 },
		{ "fd80::1", 0 },     { "2080::1", 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct kvpull_verbs_address address = { 0 };
		const int is_6 = strchr(all[i].text, ':') != NULL;

		if (is_6) {
			address.socket.v6.sin6_family = AF_INET6;
			(void)inet_pton(AF_INET6, all[i].text,
					&address.socket.v6.sin6_addr);
		} else {
			address.socket.v4.sin_family = AF_INET;
			(void)inet_pton(AF_INET, all[i].text,
					&address.socket.v4.sin_addr);
		}
		assert_int_equal(kvpull_verbs_address_is_link_local(&address),
				 all[i].is);
	}
}
