/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of a configuration, and what a refusal says. */
#ifndef KVPULL_TESTS_CONFIG_WORLD_H
#define KVPULL_TESTS_CONFIG_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/config/config.h"
#include "tests/lib/unit.h"

static struct kvpull_error_detail detail;

static inline int load(struct kvpull_config *config, const char *json)
{
	memset(&detail, 0, sizeof(detail));
	detail.struct_size = sizeof(detail);
	return kvpull_config_load(config, json, &detail);
}

static inline int load_one(struct kvpull_config *config, const char *name,
			   const char *value)
{
	char json[8192];

	(void)snprintf(json, sizeof(json), "{\"%s\": %s}", name, value);
	return load(config, json);
}

static inline int load_variable(struct kvpull_config *config, const char *name,
				const char *value)
{
	int rc;

	assert_int_equal(setenv(name, value, 1), 0);
	rc = load(config, NULL);
	assert_int_equal(unsetenv(name), 0);
	return rc;
}

/* Refused, and the message has the key and these words. */
static inline void assert_refused(int rc, const char *field, const char *words)
{
	assert_int_equal(rc, KVPULL_ECONFIG);
	assert_int_equal(detail.code, KVPULL_ECONFIG);
	assert_string_equal(detail.field, field);
	if (!strstr(detail.message, words))
		fail_msg("\"%s\" is not in: %s", words, detail.message);
}

/* What the one who runs the tests has set must not change them. */
static inline int environment_clear(void **state)
{
	char name[128];
	size_t bytes;
	size_t i = 0;

	(void)state;
	while (environ[i]) {
		bytes = strcspn(environ[i], "=");
		if (strncmp(environ[i], "KVPULL_", 7) ||
		    bytes >= sizeof(name)) {
			i++;
			continue;
		}
		memcpy(name, environ[i], bytes);
		name[bytes] = '\0';
		if (unsetenv(name))
			return -1;
	}
	return 0;
}

#endif /* KVPULL_TESTS_CONFIG_WORLD_H */
