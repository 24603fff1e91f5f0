/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/config/world.h"

struct kvpull_config config;
struct kvpull_error_detail detail;

int load(const char *json)
{
	memset(&detail, 0, sizeof(detail));
	detail.struct_size = sizeof(detail);
	return kvpull_config_load(&config, json, &detail);
}

int load_one(const char *name, const char *value)
{
	char json[8192];

	(void)snprintf(json, sizeof(json), "{\"%s\": %s}", name, value);
	return load(json);
}

int load_variable(const char *name, const char *value)
{
	int rc;

	assert_int_equal(setenv(name, value, 1), 0);
	rc = load(NULL);
	assert_int_equal(unsetenv(name), 0);
	return rc;
}

void assert_refused(int rc, const char *field, const char *words)
{
	assert_int_equal(rc, KVPULL_ECONFIG);
	assert_int_equal(detail.code, KVPULL_ECONFIG);
	assert_string_equal(detail.field, field);
	if (!strstr(detail.message, words))
		fail_msg("\"%s\" is not in: %s", words, detail.message);
}

void loads(const char *json)
{
	assert_int_equal(load(json), 0);
}

void loads_one(const char *name, const char *value)
{
	assert_int_equal(load_one(name, value), 0);
}

void loads_variable(const char *name, const char *value)
{
	assert_int_equal(load_variable(name, value), 0);
}

void refused_one(const char *name, const char *value, const char *words)
{
	assert_refused(load_one(name, value), name, words);
}

void refused_variable(const char *name, const char *value, const char *field,
		      const char *words)
{
	assert_refused(load_variable(name, value), field, words);
}

int environment_clear(void **state)
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
