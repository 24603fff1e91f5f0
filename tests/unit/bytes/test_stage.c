/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of an engine and their layers: each layer in one stage, or a refusal. */
#include <string.h>

#include "plugin/bytes/stage.h"
#include "tests/lib/unit.h"

#define LAYERS 10u

static struct kvpull_stage stage_of(uint32_t rank, uint32_t rank_count,
				    uint32_t pp_size, uint32_t first,
				    uint32_t end)
{
	return (struct kvpull_stage){ rank, rank_count, pp_size, first, end };
}

UNIT_TEST(ranks_are_numbered_stage_by_stage)
{
	uint32_t rank;

	for (rank = 0; rank < 6; rank++) {
		const struct kvpull_stage stage = stage_of(rank, 6, 3, 0, 1);

		assert_true(kvpull_stage_is_good(&stage));
		assert_int_equal(kvpull_stage_tp_size(&stage), 2);
		assert_int_equal(kvpull_stage_tp_rank(&stage), rank % 2);
		assert_int_equal(kvpull_stage_pp_rank(&stage), rank / 2);
	}
}

UNIT_TEST(numbers_out_of_their_bounds_are_not_good)
{
	static const struct {
		struct kvpull_stage stage;
		int is_good;
	} rows[] = {
		{ { 0, 1, 1, 0, 1 }, 1 },    { { 1, 1, 1, 0, 1 }, 0 },
		{ { 63, 64, 64, 0, 1 }, 1 }, { { 64, 65, 65, 0, 1 }, 0 },
		{ { 0, 4, 0, 0, 1 }, 0 },    { { 0, 4, 3, 0, 1 }, 0 },
		{ { 0, 4, 5, 0, 1 }, 0 },    { { 0, 4, 2, 1, 1 }, 0 },
		{ { 0, 4, 2, 2, 1 }, 0 },    { { 0, 0, 1, 0, 1 }, 0 },
	};
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++)
		assert_int_equal(kvpull_stage_is_good(&rows[at].stage),
				 rows[at].is_good);
}

static void says(const struct kvpull_error_detail *detail, const char *field,
		 const char *words)
{
	assert_int_equal(detail->code, KVPULL_EREJECTED);
	assert_string_equal(detail->field, field);
	if (!strstr(detail->message, words))
		fail_msg("\"%s\" is not in: %s", words, detail->message);
}

/* The edges of the model are the first stage's and the last one's. */
UNIT_TEST(layers_of_one_rank_are_of_the_model)
{
	static const struct {
		struct kvpull_stage stage;
		const char *words; /* NULL: it is right */
	} rows[] = {
		{ { 0, 1, 1, 0, 10 }, NULL },
		{ { 0, 2, 2, 0, 1 }, NULL },
		{ { 1, 2, 2, 9, 10 }, NULL },
		{ { 1, 3, 3, 4, 5 }, NULL },
		{ { 0, 1, 1, 0, 9 },
		  "rank 0 of 1, stage 0 of 1, has layers 0 to 8 of 10: the layers behind them are in no rank's caches" },
		{ { 0, 1, 1, 1, 10 },
		  "has layers 1 to 9 of 10: the layers before them are in no rank's caches" },
		{ { 0, 1, 1, 0, 11 },
		  "has layers 0 to 10 of 10: the model has fewer" },
		{ { 3, 4, 2, 5, 9 },
		  "rank 3 of 4, stage 1 of 2, has layers 5 to 8 of 10: the layers behind them" },
		{ { 1, 4, 2, 1, 5 },
		  "rank 1 of 4, stage 0 of 2, has layers 1 to 4 of 10: the layers before them" },
		{ { 1, 3, 3, 4, UINT32_MAX }, "the model has fewer" },
	};
	size_t at;

	for (at = 0; at < sizeof(rows) / sizeof(*rows); at++) {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		const int code =
			kvpull_stage_check(&rows[at].stage, LAYERS, &detail);

		assert_int_equal(code, rows[at].words ? KVPULL_EREJECTED : 0);
		if (rows[at].words)
			says(&detail, "layers", rows[at].words);
	}
}

/* Both orders: who comes first is not who has the smaller rank. */
static void pair_is(struct kvpull_stage one, struct kvpull_stage other,
		    const char *field, const char *words)
{
	uint32_t turn;

	for (turn = 0; turn < 2; turn++) {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		const int code = kvpull_stages_compare(
			turn ? &other : &one, turn ? &one : &other, &detail);

		assert_int_equal(code, words ? KVPULL_EREJECTED : 0);
		if (words)
			says(&detail, field, words);
	}
}

UNIT_TEST(layer_that_nobody_has_is_named)
{
	pair_is(stage_of(0, 2, 2, 0, 3), stage_of(1, 2, 2, 3, 10), "", NULL);
	pair_is(stage_of(0, 2, 2, 0, 3), stage_of(1, 2, 2, 4, 10), "layers",
		"layers that no rank has: rank 0 of 2 has layers 0 to 2, and rank 1 has 4 to 9");
}

UNIT_TEST(layer_that_two_stages_have_is_named)
{
	pair_is(stage_of(0, 2, 2, 0, 4), stage_of(1, 2, 2, 3, 10), "layers",
		"layers that two stages have: rank 0 of 2 has layers 0 to 3, and rank 1 has 3 to 9");
}

UNIT_TEST(ranks_of_a_stage_have_the_same_layers)
{
	pair_is(stage_of(2, 4, 2, 3, 10), stage_of(3, 4, 2, 3, 10), "", NULL);
	pair_is(stage_of(0, 4, 2, 0, 3), stage_of(1, 4, 2, 0, 4), "layers",
		"ranks of one stage have unlike layers: rank 0 of 4 has layers 0 to 2, and rank 1 has 0 to 3");
	pair_is(stage_of(2, 4, 2, 4, 10), stage_of(3, 4, 2, 3, 10), "layers",
		"ranks of one stage have unlike layers");
}

/* The stage between them is asked about both. */
UNIT_TEST(ranks_far_apart_agree_on_sizes_alone)
{
	pair_is(stage_of(0, 3, 3, 0, 3), stage_of(2, 3, 3, 5, 10), "", NULL);
	pair_is(stage_of(0, 4, 4, 0, 3), stage_of(3, 4, 2, 3, 10), "pp_size",
		"rank 0 is one of 4 ranks in 4 stages, and rank 3 one of 4 in 2");
	pair_is(stage_of(0, 4, 2, 0, 3), stage_of(3, 6, 2, 3, 10), "pp_size",
		"rank 0 is one of 4 ranks in 2 stages, and rank 3 one of 6 in 2");
}
