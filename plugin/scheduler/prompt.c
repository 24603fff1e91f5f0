/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/scheduler/prompt.h"

#include <string.h>

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
