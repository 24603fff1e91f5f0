/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens that a ticket offers to a request which asks for them, if both are
 * of one prompt. Pure.
 */
#ifndef KVPULL_PLUGIN_OFFER_H
#define KVPULL_PLUGIN_OFFER_H

#include <stdint.h>

#include "kvpull/common.h"

/*
 * Tokens that a ticket of ticket_tokens has beyond the local ones of a prompt.
 * With a state among its blocks (whole) it is all of them, or 0: the state is
 * that after the last one.
 */
uint32_t kvpull_offer_tokens(uint32_t ticket_tokens, uint32_t prompt_tokens,
			     uint32_t local_tokens, uint32_t whole);

/*
 * NULL: the two digests are equal, or zeros both. Else what is wrong with a ticket
 * that has the one, for a line of the log, before the request that has the other.
 */
const char *kvpull_prompt_mismatch(const uint8_t ticket[KVPULL_DIGEST_BYTES],
				   const uint8_t request[KVPULL_DIGEST_BYTES]);

#endif /* KVPULL_PLUGIN_OFFER_H */
