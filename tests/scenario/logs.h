/* SPDX-License-Identifier: Apache-2.0 */
/* What engines of a case wrote into their logs. */
#ifndef KVPULL_TESTS_LOGS_H
#define KVPULL_TESTS_LOGS_H

#include "tests/scenario/scenario.h"

/* Before any of the calls below. */
void logs_open(const struct scenario *scenario);
/* Of an engine; valid for the life of the process. */
const char *log_path(const char *id);
/* The claim is broken if that is not in its log within two seconds. */
void log_has(const char *id, const char *words);

#endif /* KVPULL_TESTS_LOGS_H */
