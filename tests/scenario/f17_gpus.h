/* SPDX-License-Identifier: Apache-2.0 */
/* F17's cases with two GPUs on the node, P's and D's. */
#ifndef KVPULL_TESTS_F17_GPUS_H
#define KVPULL_TESTS_F17_GPUS_H

#include "tests/scenario/scenario.h"

void f17_gpus_apart(const struct scenario *scenario);
void f17_gpus_unreached(const struct scenario *scenario);
void f17_gpus_unseen(const struct scenario *scenario);
void f17_gpus_shown(const struct scenario *scenario);

#endif /* KVPULL_TESTS_F17_GPUS_H */
