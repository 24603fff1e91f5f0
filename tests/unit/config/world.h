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

/* Each load fills these. */
extern struct kvpull_config config;
extern struct kvpull_error_detail detail;

int load(const char *json);
int load_one(const char *name, const char *value);
int load_variable(const char *name, const char *value);

/* The same, where all is well. */
void loads(const char *json);
void loads_one(const char *name, const char *value);
void loads_variable(const char *name, const char *value);

/* Refused, and the message has the key and these words. */
void assert_refused(int rc, const char *field, const char *words);
/* Likewise, of a key in JSON, and of a variable that is the key `field`. */
void refused_one(const char *name, const char *value, const char *words);
void refused_variable(const char *name, const char *value, const char *field,
		      const char *words);

/* Removes the user's own variables, which would change the tests. */
int environment_clear(void **state);

#endif /* KVPULL_TESTS_UNIT_CONFIG_WORLD */
