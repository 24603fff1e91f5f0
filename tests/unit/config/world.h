/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of a configuration, and what a refusal says. */
#ifndef KVPULL_TESTS_UNIT_CONFIG_WORLD
#define KVPULL_TESTS_UNIT_CONFIG_WORLD

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/config/config.h"
#include "tests/lib/unit.h"

extern struct kvpull_error_detail detail;

int load(struct kvpull_config *config, const char *json);
int load_one(struct kvpull_config *config, const char *name, const char *value);
int load_variable(struct kvpull_config *config, const char *name,
		  const char *value);

/* Refused, and the message has the key and these words. */
void assert_refused(int rc, const char *field, const char *words);

/* Removes the user's own variables, which would change the tests. */
int environment_clear(void **state);

#endif /* KVPULL_TESTS_UNIT_CONFIG_WORLD */
