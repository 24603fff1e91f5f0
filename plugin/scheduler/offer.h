/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a ticket offers to a request which asks for them. Pure. */
#ifndef KVPULL_PLUGIN_OFFER_H
#define KVPULL_PLUGIN_OFFER_H

#include <stdint.h>

/*
 * Tokens that a ticket of ticket_tokens has beyond the local ones of a prompt.
 * With a state among its blocks (whole) it is all of them, or 0: the state is
 * that after the last one.
 */
uint32_t kvpull_offer_tokens(uint32_t ticket_tokens, uint32_t prompt_tokens,
			     uint32_t local_tokens, uint32_t whole);

#endif /* KVPULL_PLUGIN_OFFER_H */
