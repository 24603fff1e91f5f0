/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads: a producer's engine says something to a consumer's, in a ticket. */
#include "plugin/scheduler/payload.h"

void kvpull_payload_keep(struct kvpull_payload *payload,
			 struct kvpull_texts *texts, uint32_t kept,
			 struct kvpull_ticket *ticket, uint8_t *body)
{
	if (kvpull_ticket_read(kvpull_texts_view(texts, kept, body),
			       kvpull_texts_size(texts, kept), ticket))
		return;
	payload->text =
		kvpull_texts_put(texts, ticket->payload, ticket->payload_bytes);
	payload->byte_count = ticket->payload_bytes;
}

int kvpull_payload_get(const struct kvpull_payload *payload,
		       const struct kvpull_texts *texts, void *bytes,
		       size_t capacity, size_t *byte_count)
{
	*byte_count = payload->byte_count;
	if (payload->byte_count > capacity)
		return KVPULL_ETOOSMALL;
	if (!payload->byte_count)
		return 0;
	if (payload->text == KVPULL_NONE)
		return KVPULL_EFULL;
	kvpull_texts_get(texts, payload->text, bytes);
	return 0;
}

void kvpull_payload_drop(struct kvpull_payload *payload,
			 struct kvpull_texts *texts)
{
	if (payload->byte_count && payload->text != KVPULL_NONE)
		kvpull_texts_release(texts, payload->text);
	payload->byte_count = 0;
}
