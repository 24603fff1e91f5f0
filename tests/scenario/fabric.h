/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA without a device: all engines of a case are on machines of the fake fabric
 * (tests/fake/rdma) and pull by route verbs. NICs may have memory of the fake GPU,
 * and what they write there is unseen until it is flushed.
 */
#ifndef KVPULL_TESTS_FABRIC_H
#define KVPULL_TESTS_FABRIC_H

#include "tests/scenario/scenario.h"

/* This process and its children use the fake fabric. Before the first engine. */
void fabric_use(const struct scenario *scenario, uint32_t rails);

#endif /* KVPULL_TESTS_FABRIC_H */
