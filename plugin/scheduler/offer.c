/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a ticket offers to a request. */
#include "plugin/scheduler/offer.h"

uint32_t kvpull_offer_tokens(uint32_t ticket_tokens, uint32_t prompt_tokens,
			     uint32_t local_tokens, uint32_t whole)
{
	const uint32_t tokens =
		ticket_tokens < prompt_tokens ? ticket_tokens : prompt_tokens;

	if (whole && tokens != ticket_tokens)
		return 0;
	return tokens > local_tokens ? tokens - local_tokens : 0;
}
