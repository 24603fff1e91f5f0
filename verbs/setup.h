/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all endpoints use, made once at open: parameters with their defaults and
 * the devices' bounds, the devices of the rails, the networks.
 */
#ifndef KVPULL_VERBS_SETUP_H
#define KVPULL_VERBS_SETUP_H

#include "verbs/endpoint.h"

void kvpull_verbs_setup_defaults(struct kvpull_verbs_params *params);
/*
 * One at least; others may be missing, and that is said. 0, or as
 * kvpull_verbs_device_open().
 */
int KVPULL_MUST_CHECK
kvpull_verbs_setup_devices(struct kvpull_verbs_shared *shared);
/*
 * One that is closed, if it is there again and has no lesser bounds; the
 * networks of all. 0, or why not.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_setup_again(struct kvpull_verbs_shared *shared, uint32_t index);
/*
 * The networks of the configuration; without any, the subnets of the own
 * addresses: a ticket comes through clients, and must not make us call
 * anywhere. 0 or KVPULL_ECONFIG.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_setup_networks(struct kvpull_verbs_shared *shared,
			    const char *text);

#endif /* KVPULL_VERBS_SETUP_H */
