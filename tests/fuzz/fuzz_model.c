/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's record, from an engine's parameters to what a handshake carries:
 * numbers first, then six texts, each behind its length. A record that is taken
 * travels whole, is equal to itself, and differs from its neighbour by name.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin/bytes/handshake.h"
#include "tests/fuzz/fuzz.h"

#define TEXTS 8u

static uint8_t message[KVPULL_MESSAGE_BYTES_MAX];

static uint32_t take_u32(const uint8_t **data, size_t *left)
{
	uint32_t number = 0;
	const size_t bytes = *left < sizeof(number) ? *left : sizeof(number);

	memcpy(&number, *data, bytes);
	*data += bytes;
	*left -= bytes;
	return number;
}

/* A text of exactly its bytes; free it. A length of 255 is none. */
static char *take_text(const uint8_t **data, size_t *left)
{
	size_t bytes = *left ? **data : 0;
	char *text;

	if (!*left || bytes == 255)
		return NULL;
	++*data;
	--*left;
	if (bytes > *left)
		bytes = *left;
	text = malloc(bytes + 1);
	expect(text != NULL);
	memcpy(text, *data, bytes);
	text[bytes] = '\0';
	*data += bytes;
	*left -= bytes;
	return text;
}

/* Through a hello and back. */
static void travel(const struct kvpull_compat *compat)
{
	static const uint8_t nonce[KVPULL_NONCE_BYTES] = { 1, 2, 3 };
	static struct kvpull_hello hello;
	static struct kvpull_hello came;
	uint8_t digests[2][KVPULL_COMPAT_BYTES];
	struct kvpull_refusal refusal;
	size_t bytes;

	hello = (struct kvpull_hello){ .compat = *compat,
				       .instance = 1,
				       .incarnation = 2,
				       .wanted = 3,
				       .rank_count = 1,
				       .engine_id = "engine" };
	bytes = kvpull_handshake_put_hello(message, sizeof(message), &hello,
					   NULL, nonce);
	expect(bytes > 0);
	expect(!kvpull_handshake_get_hello(message, bytes, NULL, nonce, &came));
	expect(!kvpull_compat_compare(compat, &came.compat, &refusal));
	kvpull_compat_digest(compat, digests[0]);
	kvpull_compat_digest(&came.compat, digests[1]);
	expect(!memcmp(digests[0], digests[1], sizeof(digests[0])));
	came.compat.layer_count++;
	expect(kvpull_compat_compare(compat, &came.compat, &refusal) ==
	       KVPULL_EREJECTED);
	expect(!strcmp(refusal.field, "layer_count"));
	kvpull_compat_digest(&came.compat, digests[1]);
	expect(memcmp(digests[0], digests[1], sizeof(digests[0])) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_group groups[KVPULL_GROUPS_MAX];
	struct kvpull_model model = { .struct_size = sizeof(model) };
	struct kvpull_open_params params = { .struct_size = sizeof(params),
					     .model = &model,
					     .groups = groups };
	struct kvpull_compat compat;
	char *texts[TEXTS];
	uint32_t i;
	int code;

	model.layer_count = take_u32(&data, &data_bytes);
	model.head_count = take_u32(&data, &data_bytes);
	model.head_bytes = take_u32(&data, &data_bytes);
	model.replicated = take_u32(&data, &data_bytes);
	/* The caller checks number and kinds of the groups. */
	params.group_count =
		1 + take_u32(&data, &data_bytes) % KVPULL_GROUPS_MAX;
	for (i = 0; i < params.group_count; i++)
		groups[i] = (struct kvpull_group){
			.block_tokens = take_u32(&data, &data_bytes),
			.kind = take_u32(&data, &data_bytes) %
				KVPULL_GROUP_STATE,
		};
	for (i = 0; i < TEXTS; i++)
		texts[i] = take_text(&data, &data_bytes);
	model.model = texts[0];
	model.revision = texts[1];
	model.weights = texts[2];
	model.dtype = texts[3];
	model.layout = texts[4];
	model.attention = texts[5];
	model.config = texts[6];
	model.engine = texts[7];
	code = kvpull_compat_check(&params, &detail);
	expect(code == 0 || code == KVPULL_EINVAL);
	expect(kvpull_compat_init(&compat, &params) == code);
	if (code)
		expect(detail.code == code && detail.field[0]);
	else
		travel(&compat);
	for (i = 0; i < TEXTS; i++)
		free(texts[i]);
	return 0;
}
