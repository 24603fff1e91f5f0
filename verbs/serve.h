/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a route is given: what is served, and what own reads land in
 * beside that. It is registered with each device that is there; others take it when
 * they come (back.h).
 */
#ifndef KVPULL_VERBS_SERVE_H
#define KVPULL_VERBS_SERVE_H

#include "verbs/back.h"

/* As in the seam. */
int KVPULL_MUST_CHECK kvpull_verbs_serve(struct kvpull_verbs_back *back,
					 const struct kvpull_serve *serve);
int KVPULL_MUST_CHECK kvpull_verbs_local_add(struct kvpull_verbs_back *back,
					     uint8_t *base, uint64_t bytes);

#endif /* KVPULL_VERBS_SERVE_H */
