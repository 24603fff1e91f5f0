/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a reader: the member that is wrong is named, and nothing stays. */
#include <stdio.h>
#include <string.h>

#include "kvpull/reader.h"
#include "tests/unit/abi/world.h"

#define ID_BYTES_MAX 63u
#define TEXT_BYTES_MAX 127u

/* Parameters that open a reader; a test breaks one member of one struct. */
struct good {
	struct kvpull_host host;
	struct kvpull_model model;
	struct kvpull_reader_naming naming;
	struct kvpull_reader_params params;
};

static void good_make(struct good *good)
{
	*good = (struct good){
		.host = { .struct_size = sizeof(good->host) },
		.model = { .struct_size = sizeof(good->model),
			   .model = "m",
			   .weights = "w",
			   .dtype = "u8",
			   .layout = "LBHNC" },
		.naming = { .struct_size = sizeof(good->naming),
			    .model = &good->model,
			    .hash = "sha256" },
		.params = { .struct_size = sizeof(good->params),
			    .host = &good->host,
			    .config_json =
				    "{\"copy_threads\":0,\"status\":\"off\"}",
			    .naming = &good->naming,
			    .engine_id = "reader" },
	};
}

static void opens(const struct good *good)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_reader *reader = NULL;

	if (ops->open(&good->params, &reader, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
	assert_non_null(reader);
	ops->close(reader);
}

static void refused(const struct good *good, const char *field,
		    const char *message)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_reader *reader = NULL;
	const uint32_t fds = fds_open();

	assert_int_equal(ops->open(&good->params, &reader, &detail),
			 KVPULL_EINVAL);
	assert_null(reader);
	assert_int_equal(fds_open(), fds);
	assert_int_equal(detail.code, KVPULL_EINVAL);
	assert_string_equal(detail.field, field);
	assert_string_equal(detail.message, message);
	assert_int_equal(ops->open(&good->params, &reader, NULL),
			 KVPULL_EINVAL);
}

UNIT_TEST(member_of_a_readers_structs_that_is_wrong_is_named)
{
	struct good good;

	good_make(&good);
	opens(&good);
	good.params.host = NULL;
	opens(&good);
	good.params.naming = NULL;
	refused(&good, "naming", "naming is NULL");
	good_make(&good);
	good.naming.model = NULL;
	refused(&good, "model", "model is NULL");
	good_make(&good);
	good.naming.reserved = 1;
	refused(&good, "reserved", "a reserved member is not 0");
	good_make(&good);
	good.host.reserved = 1;
	refused(&good, "reserved", "a reserved member is not 0");
	good_make(&good);
	good.model.struct_size = 0;
	refused(&good, "struct_size",
		"model has a struct_size of 0: fill in the struct's sizeof");
	good_make(&good);
	good.host.struct_size = 4;
	refused(&good, "struct_size",
		"host has a struct_size of 4: fill in the struct's sizeof");
	good_make(&good);
	good.model.replicated = 1;
	opens(&good);
	good.model.replicated = 2;
	refused(&good, "replicated", "replicated is 2: it is 0 or 1");
}

/* Each text of a namespace, by its place in the structs and its name. */
UNIT_TEST(text_of_a_namespace_that_is_missing_or_too_long_is_named)
{
	static struct good good;
	static const struct {
		const char **text;
		const char *field;
		uint32_t is_needed;
	} rows[] = {
		{ &good.model.model, "model", 1 },
		{ &good.model.revision, "revision", 0 },
		{ &good.model.weights, "weights", 1 },
		{ &good.model.dtype, "dtype", 1 },
		{ &good.model.layout, "layout", 1 },
		{ &good.model.attention, "attention", 0 },
		{ &good.model.config, "config", 0 },
		{ &good.model.engine, "engine", 0 },
		{ &good.naming.hash, "hash", 1 },
		{ &good.naming.seed, "seed", 0 },
	};
	char text[TEXT_BYTES_MAX + 2];
	char why[128];
	uint32_t at;

	for (at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) {
		(void)snprintf(
			why, sizeof(why),
			"%s is needed, or too long: at most %u bytes without control characters",
			rows[at].field, TEXT_BYTES_MAX);
		good_make(&good);
		*rows[at].text = NULL;
		if (rows[at].is_needed)
			refused(&good, rows[at].field, why);
		else
			opens(&good);
		memset(text, 'x', sizeof(text));
		text[TEXT_BYTES_MAX + 1] = '\0';
		*rows[at].text = text;
		refused(&good, rows[at].field, why);
		text[TEXT_BYTES_MAX] = '\0';
		opens(&good);
		text[5] = '\n';
		refused(&good, rows[at].field, why);
	}
}

UNIT_TEST(id_of_a_reader_is_as_long_as_its_place_and_no_longer)
{
	static const char needed[] =
		"needed: 1 .. 63 bytes without control characters";
	char id[ID_BYTES_MAX + 2];
	struct good good;

	good_make(&good);
	good.params.engine_id = NULL;
	refused(&good, "engine_id", needed);
	good.params.engine_id = "";
	refused(&good, "engine_id", needed);
	good.params.engine_id = "a\nb";
	refused(&good, "engine_id", needed);
	memset(id, 'x', sizeof(id));
	id[ID_BYTES_MAX + 1] = '\0';
	good.params.engine_id = id;
	refused(&good, "engine_id", needed);
	id[ID_BYTES_MAX] = '\0';
	opens(&good);
}

UNIT_TEST(naming_of_a_bump_that_is_wrong_is_named_and_changes_nothing)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_reader *reader;
	struct good good;

	good_make(&good);
	assert_int_equal(ops->open(&good.params, &reader, NULL), 0);
	good.naming.reserved = 1;
	assert_int_equal(ops->guard_bump_all(reader, &good.naming, &detail),
			 KVPULL_EINVAL);
	assert_string_equal(detail.field, "reserved");
	good.naming.reserved = 0;
	good.model.model = "";
	assert_int_equal(ops->guard_bump_all(reader, &good.naming, &detail),
			 KVPULL_EINVAL);
	assert_string_equal(detail.field, "model");
	good.model.model = "m";
	/* Without a share, too. */
	assert_int_equal(ops->guard_bump_all(reader, &good.naming, &detail), 0);
	assert_int_equal(ops->guard_bump_all(reader, NULL, NULL), 0);
	ops->close(reader);
}
