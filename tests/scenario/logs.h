/* SPDX-License-Identifier: Apache-2.0 */
/* The log files of a case's engines. */
#ifndef KVPULL_TESTS_LOGS_H
#define KVPULL_TESTS_LOGS_H

#include "tests/scenario/scenario.h"

/* Before any of the calls below. */
void logs_open(const struct scenario *scenario);
/* Path of an engine's log; valid for the life of the process. */
const char *log_path(const char *id);
/* Checks that the words stand in the log within two seconds. */
void log_has(const char *id, const char *words);

#endif /* KVPULL_TESTS_LOGS_H */
