/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The route between machines: implements the seam (base/transport.h) over
 * librdmacm and RC queue pairs. Data and revocation entries come by RDMA READ,
 * everything else by small SENDs. To each producer rank a consumer rank has
 * queue pairs by each rail, as many as both sides allow.
 */
#ifndef KVPULL_VERBS_VERBS_H
#define KVPULL_VERBS_VERBS_H

#include "base/arena.h"
#include "verbs/params.h"

/*
 * 0, KVPULL_ENOMEM, KVPULL_EDEVICE, KVPULL_ECONFIG (a text of params);
 * KVPULL_EUNSUPPORTED: no libraries, no device, or none that fits; one line
 * says which.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_open(const struct kvpull_verbs_params *params,
		  struct kvpull_arena *arena,
		  struct kvpull_transport **transport);

const struct kvpull_verbs_counts *
kvpull_verbs_counts(const struct kvpull_transport *transport);

#endif /* KVPULL_VERBS_VERBS_H */
