/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input of a queue pair: frames, each behind two bytes of its length. They are
 * taken as an endpoint takes them: pieces into an inbox, keys and notifications
 * out of them. The same bytes are read as the private data of a call, and as
 * addresses. Everything that is taken stays in its bounds.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "verbs/address.h"
#include "verbs/endpoint.h"
#include "verbs/frame.h"

#define INBOX_BYTES 4096u

static void whole_take(const struct kvpull_inbox *inbox)
{
	uint8_t copy[KVPULL_KEYS_BYTES_MAX];
	struct kvpull_keys keys;

	expect(inbox->total && inbox->total <= inbox->capacity);
	if (kvpull_keys_get(inbox->data, inbox->total, &keys))
		return;
	expect(keys.region_count && keys.region_count <= KVPULL_REGIONS_MAX);
	expect(kvpull_keys_put(copy, &keys) == inbox->total);
	expect(!memcmp(copy, inbox->data, inbox->total));
}

static void frame_take(struct kvpull_inbox *inbox, const uint8_t *data,
		       size_t data_bytes)
{
	struct kvpull_record record;
	struct kvpull_frame frame;
	int whole;

	if (kvpull_frame_get(data, data_bytes, &frame))
		return;
	expect(frame.payload_bytes <= KVPULL_FRAME_PAYLOAD_BYTES);
	expect(frame.payload + frame.payload_bytes == data + data_bytes);
	if (frame.kind == KVPULL_FRAME_NOTE) {
		if (!kvpull_frame_get_record(&frame, &record))
			expect(record.kind >= KVPULL_NOTE_CLAIM &&
			       record.kind <= KVPULL_NOTE_AWAY);
		return;
	}
	whole = kvpull_inbox_add(inbox, &frame);
	expect(inbox->used <= inbox->total || whole < 0);
	if (whole == 1)
		whole_take(inbox);
}

static void greeting_take(const uint8_t *data, size_t data_bytes)
{
	uint8_t copy[KVPULL_VERBS_PRIVATE_BYTES];
	struct kvpull_verbs_greeting greeting;

	if (kvpull_verbs_greeting_get(data, data_bytes, &greeting))
		return;
	expect(greeting.credits && greeting.kind >= KVPULL_VERBS_CALL &&
	       greeting.kind <= KVPULL_VERBS_OTHER);
	kvpull_verbs_greeting_put(copy, &greeting);
	expect(!memcmp(copy, data, sizeof(copy)));
}

static void text_take(const uint8_t *data, size_t data_bytes)
{
	struct kvpull_verbs_addresses addresses;
	struct kvpull_verbs_address address;
	struct kvpull_networks networks;
	char printed[KVPULL_ADDRESS_BYTES_MAX];
	char text[256];

	if (data_bytes >= sizeof(text))
		data_bytes = sizeof(text) - 1;
	memcpy(text, data, data_bytes);
	text[data_bytes] = '\0';
	if (!kvpull_verbs_address_parse(text, &address)) {
		kvpull_verbs_address_print(&address, printed);
		expect(!kvpull_verbs_address_parse(printed, &address));
	}
	if (!kvpull_verbs_addresses_parse(text, &addresses))
		expect(addresses.count &&
		       addresses.count <= KVPULL_VERBS_RAILS_MAX);
	if (!kvpull_verbs_networks_parse(text, &networks))
		expect(networks.count <= KVPULL_NETWORKS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	uint8_t memory[INBOX_BYTES];
	struct kvpull_inbox inbox = { .data = memory,
				      .capacity = sizeof(memory) };
	size_t at = 0;

	text_take(data, data_bytes);
	while (data_bytes - at > 2) {
		size_t bytes = data[at] + 256u * data[at + 1];

		at += 2;
		if (bytes > data_bytes - at)
			bytes = data_bytes - at;
		frame_take(&inbox, data + at, bytes);
		greeting_take(data + at, bytes);
		at += bytes;
	}
	return 0;
}
