/* SPDX-License-Identifier: Apache-2.0 */
/* What a producer's engine says to a consumer's, in a ticket. */
#include "plugin/scheduler/payload.h"

void kvpull_payload_keep(struct kvpull_demand *demand, struct kvpull_user *user,
			 const struct kvpull_demand_ticket *entry)
{
	const struct kvpull_texts *texts = demand->texts;
	struct kvpull_ticket *ticket = demand->scratch;

	if (user->code || !entry->payload_bytes || entry->kept == KVPULL_NONE)
		return;
	if (kvpull_ticket_read(kvpull_texts_view(texts, entry->kept,
						 demand->scratch_bytes),
			       kvpull_texts_size(texts, entry->kept), ticket))
		return;
	user->payload = kvpull_texts_put(demand->texts, ticket->payload,
					 ticket->payload_bytes);
	user->payload_bytes = ticket->payload_bytes;
}

int kvpull_payload_get(const struct kvpull_demand *demand,
		       const struct kvpull_user *user, void *payload,
		       size_t capacity, size_t *payload_bytes)
{
	if (user->state == KVPULL_USER_PULLING)
		return KVPULL_EAGAIN;
	if (user->code)
		return user->code;
	if (user->state != KVPULL_USER_DONE || !user->reported)
		return KVPULL_ENOTICKET;
	*payload_bytes = user->payload_bytes;
	if (user->payload_bytes > capacity)
		return KVPULL_ETOOSMALL;
	if (!user->payload_bytes)
		return 0;
	if (user->payload == KVPULL_NONE)
		return KVPULL_EFULL;
	kvpull_texts_get(demand->texts, user->payload, payload);
	return 0;
}

void kvpull_payload_drop(struct kvpull_demand *demand, struct kvpull_user *user)
{
	if (user->payload_bytes && user->payload != KVPULL_NONE)
		kvpull_texts_release(demand->texts, user->payload);
	user->payload_bytes = 0;
}
