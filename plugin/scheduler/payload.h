/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A payload: the producer's engine put it into a ticket for the consumer's. It is kept
 * for the request whose pull of that ticket ended well, and for no other: the
 * bytes of a ticket that was not read are those of whoever made it. Pure.
 */
#ifndef KVPULL_PLUGIN_PAYLOAD_H
#define KVPULL_PLUGIN_PAYLOAD_H

#include "plugin/bytes/ticket.h"
#include "plugin/scheduler/text.h"

/* A request's. */
struct kvpull_payload {
	uint32_t byte_count; /* 0: none */
	uint32_t text;       /* among the texts; KVPULL_NONE: no room */
};

/*
 * Keeps the payload of the ticket whose body is kept among the texts. ticket and
 * body[KVPULL_TICKET_BYTES_MAX] are scratch.
 */
void kvpull_payload_keep(struct kvpull_payload *payload,
			 struct kvpull_texts *texts, uint32_t kept,
			 struct kvpull_ticket *ticket, uint8_t *body);

/* 0; KVPULL_ETOOSMALL: *byte_count is what it takes; KVPULL_EFULL: no room. */
int KVPULL_MUST_CHECK kvpull_payload_get(const struct kvpull_payload *payload,
					 const struct kvpull_texts *texts,
					 void *bytes, size_t capacity,
					 size_t *byte_count);

void kvpull_payload_drop(struct kvpull_payload *payload,
			 struct kvpull_texts *texts);

#endif /* KVPULL_PLUGIN_PAYLOAD_H */
