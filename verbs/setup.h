/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State that all endpoints share, made once at open: parameters with defaults
 * and device limits, the rails' devices, the networks.
 */
#ifndef KVPULL_VERBS_SETUP_H
#define KVPULL_VERBS_SETUP_H

#include "verbs/endpoint.h"

void kvpull_verbs_setup_defaults(struct kvpull_verbs_params *params);
/*
 * Takes our local rank's part of the lists of names. 0 or KVPULL_ECONFIG.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_setup_names(struct kvpull_verbs_shared *shared);
/*
 * Opens the devices. Those that are missing are logged, and looked for later
 * (back.h); where the route is required one must be there. 0, or as
 * kvpull_verbs_device_open().
 */
int KVPULL_MUST_CHECK
kvpull_verbs_setup_devices(struct kvpull_verbs_shared *shared);
/*
 * Opens a closed device if it came or is back, with no lesser limits and no
 * lesser GID than this, and computes the networks of all. 0, or why not.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_setup_again(struct kvpull_verbs_shared *shared, uint32_t index,
			 uint32_t rank_least);
/*
 * The networks of the configuration; without any, the subnets of the own
 * addresses: a ticket comes through clients, and must not make us call
 * anywhere. 0 or KVPULL_ECONFIG.
 */
int KVPULL_MUST_CHECK
kvpull_verbs_setup_networks(struct kvpull_verbs_shared *shared,
			    const char *text);

#endif /* KVPULL_VERBS_SETUP_H */
