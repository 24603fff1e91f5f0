/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compatibility record: what must be equal for KV bytes to mean the same at
 * both ends.
 */
#include <string.h>

#include <sodium.h>

#include "base/params.h"
#include "plugin/bytes/handshake.h"

#define TEXT_COUNT 8u
#define USE_COMPAT "kvpull.compat.v1"

_Static_assert(sizeof(USE_COMPAT) ==
		       crypto_generichash_blake2b_PERSONALBYTES + 1,
	       "BLAKE2b takes all of it");

/* clang-format off */
static const struct kvpull_field group_fields[] = {
	KVPULL_FIELD_OF(U32, struct kvpull_group, block_tokens, .min = 1),
	KVPULL_FIELD_OF(U32, struct kvpull_group, kind,
			.max = KVPULL_GROUP_STATE),
	KVPULL_FIELD_OF(U32, struct kvpull_group, head_count, .min = 0),
};
static const struct kvpull_table group_table =
	KVPULL_TABLE("group", group_fields, .is_good = NULL);

/* The texts come first: TEXT_COUNT. */
static const struct kvpull_field record_fields[] = {
	KVPULL_FIELD_OF(TEXT, struct kvpull_compat, model, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_compat, revision, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_compat, weights, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_compat, dtype, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_compat, layout, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_compat, attention, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_compat, config, .min = 0),
	KVPULL_FIELD_OF(TEXT, struct kvpull_compat, engine, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_compat, layer_count, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_compat, head_count, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_compat, head_bytes, .min = 0),
	KVPULL_FIELD_OF(U32, struct kvpull_compat, replicated, .max = 1),
	KVPULL_ROWS_OF(ROWS, struct kvpull_compat, groups, group_count,
		       &group_table, .min = 1, .max = KVPULL_GROUPS_MAX),
};
const struct kvpull_table kvpull_compat_table =
	KVPULL_TABLE("record", record_fields, .is_good = NULL);
/* clang-format on */

static void texts_of(const struct kvpull_model *model,
		     const char *texts[TEXT_COUNT])
{
	const char *const given[TEXT_COUNT] = {
		model->model,  model->revision,  model->weights, model->dtype,
		model->layout, model->attention, model->config,  model->engine,
	};
	uint32_t i;

	for (i = 0; i < TEXT_COUNT; i++)
		texts[i] = given[i] ? given[i] : "";
}

static int refuse_text(struct kvpull_error_detail *detail, uint32_t i,
		       const char *text)
{
	return kvpull_detail_set(
		detail, KVPULL_EINVAL, record_fields[i].name,
		"%s %.60s%s is refused: at most %u bytes without control characters",
		record_fields[i].name, text,
		strnlen(text, KVPULL_TEXT_BYTES_MAX) > 60 ? "..." : "",
		KVPULL_TEXT_BYTES_MAX - 1);
}

/* Zeros at both ends are equal, whatever the two engines run. */
static int required_check(const struct kvpull_model *model,
			  struct kvpull_error_detail *detail)
{
	const struct {
		const char *name;
		int is_given;
	} required[] = {
		{ "model", model->model && model->model[0] },
		{ "dtype", model->dtype && model->dtype[0] },
		{ "layout", model->layout && model->layout[0] },
		{ "layer_count", model->layer_count != 0 },
		{ "head_count", model->head_count != 0 },
	};
	uint32_t i;

	for (i = 0; i < sizeof(required) / sizeof(*required); i++) {
		if (required[i].is_given)
			continue;
		return kvpull_detail_set(
			detail, KVPULL_EINVAL, required[i].name,
			"the model's %s is not set: model, dtype, layout, layer_count and head_count are needed",
			required[i].name);
	}
	return 0;
}

int kvpull_compat_check(const struct kvpull_open_params *params,
			struct kvpull_error_detail *detail)
{
	const char *texts[TEXT_COUNT];
	struct kvpull_model model;
	uint32_t i;
	int code;

	code = kvpull_params_take_named(&model, sizeof(model), params->model,
					"model", detail);
	if (code)
		return code;
	texts_of(&model, texts);
	code = required_check(&model, detail);
	if (code)
		return code;
	for (i = 0; i < TEXT_COUNT; i++)
		if (!kvpull_fields_text_is_good(texts[i],
						KVPULL_TEXT_BYTES_MAX))
			return refuse_text(detail, i, texts[i]);
	if (model.replicated > 1)
		return kvpull_detail_set(detail, KVPULL_EINVAL, "replicated",
					 "replicated is %u: it is 0 or 1",
					 model.replicated);
	for (i = 0; i < params->group_count; i++)
		if (!params->groups[i].block_tokens)
			return kvpull_detail_set(
				detail, KVPULL_EINVAL, "groups",
				"groups[%u].block_tokens is 0", i);
	return 0;
}

int kvpull_compat_init(struct kvpull_compat *compat,
		       const struct kvpull_open_params *params)
{
	struct kvpull_compat own = { 0 };
	const char *texts[TEXT_COUNT];
	struct kvpull_model model;
	uint32_t i;

	if (kvpull_params_take(&model, sizeof(model), params->model) ||
	    !params->groups || params->group_count > KVPULL_GROUPS_MAX ||
	    kvpull_compat_check(params, NULL))
		return KVPULL_EINVAL;
	texts_of(&model, texts);
	for (i = 0; i < TEXT_COUNT; i++)
		memcpy((char *)&own + record_fields[i].offset, texts[i],
		       strlen(texts[i]) + 1);
	own.layer_count = model.layer_count;
	own.head_count = model.head_count;
	own.head_bytes = model.head_bytes;
	own.replicated = model.replicated;
	own.group_count = params->group_count;
	for (i = 0; i < own.group_count; i++)
		own.groups[i] = params->groups[i];
	if (kvpull_fields_check(&kvpull_compat_table, &own))
		return KVPULL_EINVAL;
	*compat = own;
	return 0;
}

void kvpull_compat_digest(const struct kvpull_compat *compat,
			  uint8_t digest[KVPULL_COMPAT_BYTES])
{
	/* Texts with their counts, four numbers, the groups. */
	uint8_t bytes[TEXT_COUNT * (2 + KVPULL_TEXT_BYTES_MAX) + 4 * 4 + 1 +
		      KVPULL_GROUPS_MAX * 12];
	struct kvpull_wire_writer writer = { bytes, sizeof(bytes), 0 };

	kvpull_fields_put(&writer, &kvpull_compat_table, 1, compat);
	kvpull_assert(kvpull_wire_fits(&writer));
	(void)crypto_generichash_blake2b_salt_personal(
		digest, KVPULL_COMPAT_BYTES, bytes, writer.used, NULL, 0, NULL,
		(const uint8_t *)USE_COMPAT);
}

int kvpull_compat_compare(const struct kvpull_compat *ours,
			  const struct kvpull_compat *theirs,
			  struct kvpull_refusal *refusal)
{
	return kvpull_refusal_compare(&kvpull_compat_table, ours, theirs,
				      refusal);
}
