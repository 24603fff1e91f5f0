/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a ticket offers to a request. */
#include "plugin/scheduler/offer.h"

#include <string.h>

uint32_t kvpull_offer_tokens(uint32_t ticket_tokens, uint32_t prompt_tokens,
			     uint32_t local_tokens, uint32_t whole)
{
	const uint32_t tokens =
		ticket_tokens < prompt_tokens ? ticket_tokens : prompt_tokens;

	if (whole && tokens != ticket_tokens)
		return 0;
	return tokens > local_tokens ? tokens - local_tokens : 0;
}

static const uint8_t none[KVPULL_DIGEST_BYTES];

const char *kvpull_prompt_mismatch(const uint8_t ticket[KVPULL_DIGEST_BYTES],
				   const uint8_t request[KVPULL_DIGEST_BYTES])
{
	if (!memcmp(ticket, request, sizeof(none)))
		return NULL;
	if (!memcmp(ticket, none, sizeof(none)))
		return "has no prompt_digest, which both engines set or neither does, unlike";
	if (!memcmp(request, none, sizeof(none)))
		return "has a prompt_digest, which both engines set or neither does, unlike";
	return "is for another prompt than";
}
