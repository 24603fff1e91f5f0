/* SPDX-License-Identifier: Apache-2.0 */
/* The NUMA node that served memory lies on. */
#ifndef KVPULL_VERBS_NODE_H
#define KVPULL_VERBS_NODE_H

#include "base/transport.h"

/* Pages that are asked about, evenly spread over all memory. */
#define KVPULL_VERBS_NODE_PAGES 256u

/*
 * The node of more than half of the pages that are there. -1: there are none
 * yet, several nodes have them, or the kernel does not say (containers may not
 * ask).
 */
int32_t kvpull_verbs_node_of(const struct kvpull_serve *serve);

#endif /* KVPULL_VERBS_NODE_H */
