/* SPDX-License-Identifier: Apache-2.0 */
/* The record of what must be equal for KV bytes to mean the same. */

#include <stdio.h>
#include <string.h>

#include "plugin/bytes/handshake.h"
#include "tests/lib/unit.h"
#include "tests/unit/bytes/making.h"

static struct kvpull_compat ours;

static int setup(void **state)
{
	(void)state;
	ours = compat_make();
	return 0;
}

#define TEST(name) UNIT_TEST_WITH(name, setup, NULL)

static struct kvpull_model model_of(void)
{
	return (struct kvpull_model){
		.struct_size = sizeof(struct kvpull_model),
		.model = "acme/tiny-7b",
		.dtype = "float16",
		.layout = "LBHNC",
		.layer_count = 32,
		.head_count = 8,
		.head_bytes = 256,
	};
}

static struct kvpull_open_params params_of(const struct kvpull_model *model)
{
	static const struct kvpull_group groups[2] = { { 16, 0, 0, 0 },
						       { 32, 1, 0, 0 } };

	return (struct kvpull_open_params){
		.struct_size = sizeof(struct kvpull_open_params),
		.model = model,
		.groups = groups,
		.group_count = 2,
	};
}

TEST(record_is_what_the_engine_gave)
{
	struct kvpull_model model = model_of();
	struct kvpull_open_params params = params_of(&model);
	struct kvpull_compat compat;

	memset(&compat, 0xee, sizeof(compat));
	assert_int_equal(kvpull_compat_init(&compat, &params), 0);
	assert_memory_equal(&compat, &ours, sizeof(compat));
	/* An older engine's struct: what it does not have is 0. */
	model.struct_size = offsetof(struct kvpull_model, head_bytes);
	assert_int_equal(kvpull_compat_init(&compat, &params), 0);
	assert_int_equal(compat.head_count, 8);
	assert_int_equal(compat.head_bytes, 0);
}

TEST(records_out_of_bounds_are_refused)
{
	char text[KVPULL_TEXT_BYTES_MAX + 1];
	const struct kvpull_group none = { 0, 0, 0, 0 };
	struct kvpull_model model = model_of();
	struct kvpull_open_params params = params_of(&model);
	struct kvpull_compat compat;

	memset(text, 'a', sizeof(text));
	text[KVPULL_TEXT_BYTES_MAX] = '\0';
	model.weights = text;
	assert_int_equal(kvpull_compat_init(&compat, &params), KVPULL_EINVAL);
	text[KVPULL_TEXT_BYTES_MAX - 1] = '\0';
	assert_int_equal(kvpull_compat_init(&compat, &params), 0);
	assert_string_equal(compat.weights, text);
	model.weights = "a\tb";
	assert_int_equal(kvpull_compat_init(&compat, &params), KVPULL_EINVAL);
	model = model_of();
	model.replicated = 2;
	assert_int_equal(kvpull_compat_init(&compat, &params), KVPULL_EINVAL);
	params = params_of(NULL);
	assert_int_equal(kvpull_compat_init(&compat, &params), KVPULL_EINVAL);
	model = model_of();
	params = params_of(&model);
	params.group_count = 0;
	assert_int_equal(kvpull_compat_init(&compat, &params), KVPULL_EINVAL);
	params.group_count = KVPULL_GROUPS_MAX + 1;
	assert_int_equal(kvpull_compat_init(&compat, &params), KVPULL_EINVAL);
	params.group_count = 1;
	params.groups = &none;
	assert_int_equal(kvpull_compat_init(&compat, &params), KVPULL_EINVAL);
	params.groups = NULL;
	assert_int_equal(kvpull_compat_init(&compat, &params), KVPULL_EINVAL);
}

static void is_refused(const struct kvpull_open_params *params,
		       const char *field, const char *message)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	assert_int_equal(kvpull_compat_check(params, &detail), KVPULL_EINVAL);
	assert_int_equal(detail.code, KVPULL_EINVAL);
	assert_string_equal(detail.field, field);
	assert_string_equal(detail.message, message);
}

/* Zeros at both ends would be equal, whatever the two engines run. */
TEST(model_that_lacks_a_member_is_refused_by_its_name)
{
	static const char *const names[] = { "model", "dtype", "layout",
					     "layer_count", "head_count" };
	char line[256];
	uint32_t at;
	uint32_t empty;

	for (at = 0; at < sizeof(names) / sizeof(*names); at++)
		for (empty = 0; empty < 2; empty++) {
			struct kvpull_model model = model_of();
			const struct kvpull_open_params params =
				params_of(&model);
			const char **const texts[] = { &model.model,
						       &model.dtype,
						       &model.layout };

			if (at < 3)
				*texts[at] = empty ? "" : NULL;
			else if (at == 3)
				model.layer_count = 0;
			else
				model.head_count = 0;
			(void)snprintf(
				line, sizeof(line),
				"the model's %s is not set: model, dtype, layout, layer_count and head_count are needed",
				names[at]);
			is_refused(&params, names[at], line);
		}
}

TEST(record_that_is_refused_is_told_with_its_value)
{
	char text[KVPULL_TEXT_BYTES_MAX + 1];
	char line[512];
	struct kvpull_model model = model_of();
	struct kvpull_group groups[2] = { { 16, 0, 0, 0 }, { 0, 0, 0, 0 } };
	struct kvpull_open_params params = params_of(&model);

	memset(text, 'a', sizeof(text));
	text[60] = '\0';
	text[3] = '\t';
	model.revision = text;
	(void)snprintf(
		line, sizeof(line),
		"revision aaa?%.56s is refused: at most %u bytes without control characters",
		text + 4, KVPULL_TEXT_BYTES_MAX - 1);
	is_refused(&params, "revision", line);
	text[60] = 'a';
	text[61] = '\0';
	(void)snprintf(
		line, sizeof(line),
		"revision aaa?%.56s... is refused: at most %u bytes without control characters",
		text + 4, KVPULL_TEXT_BYTES_MAX - 1);
	is_refused(&params, "revision", line);
	model = model_of();
	model.replicated = 2;
	is_refused(&params, "replicated", "replicated is 2: it is 0 or 1");
	model.replicated = 0;
	params.groups = groups;
	is_refused(&params, "groups", "groups[1].block_tokens is 0");
	params.group_count = 1;
	assert_int_equal(kvpull_compat_check(&params, NULL), 0);
}

/* Compare a record that differs in one member; its name and both values. */
#define DIFFERS(change, name, our_value, their_value)                          \
	do {                                                                   \
		struct kvpull_compat theirs = ours;                            \
		struct kvpull_refusal refusal;                                 \
		uint8_t digest[KVPULL_COMPAT_BYTES];                           \
		uint8_t bytes[512];                                            \
                                                                               \
		change;                                                        \
		assert_int_equal(                                              \
			kvpull_compat_compare(&ours, &theirs, &refusal),       \
			KVPULL_EREJECTED);                                     \
		assert_int_equal(refusal.code, KVPULL_EREJECTED);              \
		assert_string_equal(refusal.field, name);                      \
		assert_string_equal(refusal.ours, our_value);                  \
		assert_string_equal(refusal.theirs, their_value);              \
		kvpull_compat_digest(&theirs, digest);                         \
		assert_memory_not_equal(digest, own, sizeof(digest));          \
		assert_true(kvpull_handshake_put_refusal(bytes, sizeof(bytes), \
							 &refusal) != 0);      \
	} while (0)

TEST(first_difference_is_named_with_both_values)
{
	uint8_t own[KVPULL_COMPAT_BYTES];

	kvpull_compat_digest(&ours, own);
	DIFFERS(text_set(theirs.model, "b"), "model", "acme/tiny-7b", "b");
	/* Empty texts are shown as "". */
	DIFFERS(text_set(theirs.revision, "r2"), "revision", "\"\"", "r2");
	DIFFERS(text_set(theirs.weights, "7"), "weights", "\"\"", "7");
	DIFFERS(theirs.dtype[0] = '\0', "dtype", "float16", "\"\"");
	DIFFERS(text_set(theirs.layout, "LBNHC"), "layout", "LBHNC", "LBNHC");
	DIFFERS(text_set(theirs.attention, "x"), "attention", "\"\"", "x");
	DIFFERS(text_set(theirs.config, "c"), "config", "\"\"", "c");
	DIFFERS(text_set(theirs.engine, "e"), "engine", "\"\"", "e");
	DIFFERS(theirs.layer_count = 33, "layer_count", "32", "33");
	DIFFERS(theirs.head_count = 4, "head_count", "8", "4");
	DIFFERS(theirs.head_bytes = UINT32_MAX, "head_bytes", "256",
		"4294967295");
	DIFFERS(theirs.replicated = 1, "replicated", "0", "1");
	DIFFERS(theirs.group_count = 1, "group_count", "2", "1");
	DIFFERS(theirs.groups[1].block_tokens = 16, "groups[1].block_tokens",
		"32", "16");
	DIFFERS(theirs.groups[0].kind = 1, "groups[0].kind", "0", "1");
	DIFFERS(theirs.groups[1].head_count = 4, "groups[1].head_count", "0",
		"4");
	/* Several differ: the first one is told. */
	DIFFERS(theirs.head_count = 4; theirs.groups[0].kind = 1;
		text_set(theirs.dtype, "fp8"), "dtype", "float16", "fp8");
}

TEST(equal_records_have_equal_digests)
{
	struct kvpull_compat theirs = ours;
	struct kvpull_refusal refusal;
	uint8_t digests[2][KVPULL_COMPAT_BYTES];

	/* Bytes behind the texts and groups do not count. */
	theirs.dtype[20] = 'x';
	theirs.groups[5].block_tokens = 9;
	assert_int_equal(kvpull_compat_compare(&ours, &theirs, &refusal), 0);
	kvpull_compat_digest(&ours, digests[0]);
	kvpull_compat_digest(&theirs, digests[1]);
	assert_memory_equal(digests[0], digests[1], KVPULL_COMPAT_BYTES);
}
