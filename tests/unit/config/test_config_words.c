/* SPDX-License-Identifier: Apache-2.0 */
/* Texts for refused values, and variables that are not ours. */
#include "tests/unit/config/world.h"

UNIT_TEST(number_that_is_none_is_told_so)
{
	refused_one("lease_ms", "\"5000\"",
		    "a whole number without quotes or a point, 10 .. ");
	refused_one("lease_ms", "5000.0",
		    "a whole number without quotes or a point, 10 .. ");
	refused_variable("KVPULL_LEASE_MS", "5s", "lease_ms",
			 "must be a whole number, 10 .. ");
	/* A number out of range is answered with the range alone. */
	refused_one("lease_ms", "5", "must be 10 .. 3600000 ms (from JSON)");
}

/* Kubernetes sets these for a Service with our name. */
UNIT_TEST(links_to_a_service_are_passed_over)
{
	static const char *const links[][2] = {
		{ "KVPULL_SERVICE_HOST", "10.96.0.7" },
		{ "KVPULL_SERVICE_PORT", "8000" },
		{ "KVPULL_SERVICE_PORT_HTTP", "8000" },
		{ "KVPULL_PORT", "tcp://10.96.0.7:8000" },
		{ "KVPULL_PORT_8000_TCP", "tcp://10.96.0.7:8000" },
		{ "KVPULL_PORT_8000_TCP_PROTO", "tcp" },
		{ "KVPULL_PORT_8000_TCP_PORT", "8000" },
		{ "KVPULL_PORT_8000_TCP_ADDR", "10.96.0.7" },
		{ "KVPULL_PORT_53_UDP", "udp://10.96.0.7:53" },
		{ "KVPULL_PORT_53_SCTP", "sctp://10.96.0.7:53" },
		{ "KVPULL_PORT_53_SCTP_PROTO", "sctp" },
		{ "KVPULL_ROUTER_PORT", "tcp://10.96.0.8:80" },
		/*
		 * Set for a Service named kvpull-verbs; otherwise the name is a
		 * key.
		 */
		{ "KVPULL_VERBS_PORT", "tcp://10.96.0.8:80" },
	};
	static const char *const others[] = {
		"KVPULL_PORT",         "KVPULL_VERB_PORT",
		"KVPULL_PORT_TCP",     "KVPULL_PORT_X_TCP",
		"KVPULL_PORT_80_TCPX", "KVPULL_SERVICE_PORTS",
		"KVPULL_PORT_80_ABC",  "KVPULL_SERVICE",
	};
	size_t i;

	for (i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		loads_variable(links[i][0], links[i][1]);
		assert_int_equal(config.service_link_count, 1);
		assert_string_equal(config.service_link, links[i][0]);
		assert_int_equal(config.verbs_port, 0);
	}
	assert_int_equal(setenv(links[0][0], links[0][1], 1), 0);
	loads_variable(links[3][0], links[3][1]);
	assert_int_equal(config.service_link_count, 2);
	assert_int_equal(unsetenv(links[0][0]), 0);
	loads(NULL);
	assert_int_equal(config.service_link_count, 0);
	/* Keys that were written wrong are refused as before. */
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		refused_variable(others[i], "1", others[i], "did you mean");
	loads_variable("KVPULL_VERBS_PORT", "1");
	assert_int_equal(config.verbs_port, 1);
	refused_variable("KVPULL_VERBS_PORT", "x", "verbs_port",
			 "0 .. 255 port");
}

UNIT_TEST(level_that_is_set_is_told_from_the_default)
{
	loads(NULL);
	assert_int_equal(config.log_level_set, 0);
	loads_one("log_level", "\"info\"");
	assert_int_equal(config.log_level_set, 1);
	loads_variable("KVPULL_LOG_LEVEL", "debug");
	assert_int_equal(config.log_level, KVPULL_LOG_DEBUG);
	assert_int_equal(config.log_level_set, 1);
}

/* Not first by the worker, which has a log line for it and no detail. */
UNIT_TEST(lists_of_rails_must_be_some)
{
	static const char *const devices[] = { ",",  "a,", ",a",   "a,,b",
					       "a;", ";a", "a;;b", "a,;b" };
	static const char *const addresses[] = {
		"nonsense",  "10.0.0",     "10.0.0.1,",    "10.0.0.1,,10.0.0.2",
		"10.0.0.1;", "10.0.0.1;x", "10.0.0.1:7471"
	};
	char text[80] = "";
	size_t i;

	for (i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		(void)snprintf(text, sizeof(text), "\"%s\"", devices[i]);
		refused_one("verbs_device", text, "mlx5_0,mlx5_1");
	}
	for (i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		(void)snprintf(text, sizeof(text), "\"%s\"", addresses[i]);
		refused_one("verbs_address", text, "10.0.0.1,10.0.1.1");
	}
	memset(text, 'x', 66);
	text[0] = text[65] = '"';
	text[66] = '\0';
	refused_one("verbs_device", text, "mlx5_0,mlx5_1");
	loads_one("verbs_address", "\"10.0.0.1, fd00::1\"");
	loads_one("verbs_address", "\"10.0.0.1,fd00::1;10.0.0.2\"");
}

UNIT_TEST(device_that_no_route_shares_is_not_required)
{
	loads("{}");
	assert_int_equal(config.device, KVPULL_DEVICE_OFF);
	loads("{\"device\": \"auto\", \"route\": \"verbs\"}");
	loads("{\"device\": \"required\", \"route\": \"shm\"}");
	assert_refused(load("{\"device\": \"required\", \"route\": \"verbs\"}"),
		       "device", "route must be auto or shm");
}

int main(void)
{
	return unit_run(environment_clear, NULL);
}
