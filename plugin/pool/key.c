// SPDX-License-Identifier: Apache-2.0
#include "plugin/pool/key.h"

#include <string.h>

#include <sodium.h>

#include "base/wire.h"

static void text_add(crypto_generichash_blake2b_state *state, const char *text)
{
	uint8_t length[8];
	struct kvpull_wire_writer writer = { length, sizeof(length), 0 };
	const size_t bytes = text ? strlen(text) : 0;

	kvpull_wire_put_u64(&writer, bytes);
	(void)crypto_generichash_blake2b_update(state, length, sizeof(length));
	if (bytes)
		(void)crypto_generichash_blake2b_update(
			state, (const unsigned char *)text, bytes);
}

static void number_add(crypto_generichash_blake2b_state *state, uint32_t number)
{
	uint8_t bytes[4];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };

	kvpull_wire_put_u32(&writer, number);
	(void)crypto_generichash_blake2b_update(state, bytes, sizeof(bytes));
}

static int is_given(const char *text)
{
	return text && text[0];
}

int kvpull_pool_namespace_make(const struct kvpull_reader_naming *naming,
			       struct kvpull_pool_namespace *namespace_digest)
{
	static const uint8_t use[crypto_generichash_blake2b_PERSONALBYTES + 1] =
		"kvpull.pool.ns.1";
	const struct kvpull_model *model = naming->model;
	crypto_generichash_blake2b_state state;

	if (!is_given(model->model) || !is_given(model->weights) ||
	    !is_given(model->dtype) || !is_given(model->layout) ||
	    !is_given(naming->hash))
		return KVPULL_EINVAL;
	(void)crypto_generichash_blake2b_init_salt_personal(
		&state, NULL, 0, sizeof(namespace_digest->bytes), NULL, use);
	text_add(&state, model->model);
	text_add(&state, model->revision);
	text_add(&state, model->weights);
	text_add(&state, model->dtype);
	text_add(&state, model->layout);
	text_add(&state, model->attention);
	text_add(&state, model->config);
	text_add(&state, model->engine);
	text_add(&state, naming->hash);
	text_add(&state, naming->seed);
	number_add(&state, model->layer_count);
	number_add(&state, model->head_count);
	number_add(&state, model->head_bytes);
	number_add(&state, model->replicated);
	number_add(&state, naming->tp_size);
	(void)crypto_generichash_blake2b_final(&state, namespace_digest->bytes,
					       sizeof(namespace_digest->bytes));
	return 0;
}

int kvpull_pool_key_make(const struct kvpull_pool_namespace *namespace_digest,
			 const void *bytes, size_t byte_count,
			 struct kvpull_pool_key *key)
{
	uint8_t whole[KVPULL_POOL_NAMESPACE_BYTES + KVPULL_READER_KEY_BYTES_MAX];

	if (!byte_count || byte_count > KVPULL_READER_KEY_BYTES_MAX)
		return KVPULL_EINVAL;
	memcpy(whole, namespace_digest->bytes, KVPULL_POOL_NAMESPACE_BYTES);
	memcpy(whole + KVPULL_POOL_NAMESPACE_BYTES, bytes, byte_count);
	(void)crypto_generichash_blake2b_salt_personal(
		(unsigned char *)key->words, sizeof(key->words), whole,
		KVPULL_POOL_NAMESPACE_BYTES + byte_count, NULL, 0, NULL, NULL);
	return 0;
}
