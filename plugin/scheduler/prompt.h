/* SPDX-License-Identifier: Apache-2.0 */
/* Are two digests of one prompt? Pure. */
#ifndef KVPULL_PLUGIN_PROMPT_H
#define KVPULL_PLUGIN_PROMPT_H

#include "kvpull/common.h"

/*
 * NULL: they are equal, or zeros both. Else what is wrong with a ticket that has
 * the one, for a line of the log, before the request that has the other.
 */
const char *kvpull_prompt_mismatch(const uint8_t ticket[KVPULL_DIGEST_BYTES],
				   const uint8_t request[KVPULL_DIGEST_BYTES]);

#endif /* KVPULL_PLUGIN_PROMPT_H */
