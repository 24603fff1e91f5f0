/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches that are described wrongly, as hosts do: what both ends say alike they
 * would believe each other, so registration holds it against the model, and the
 * caches against one another.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kvpull/connector.h"
#include "tests/lib/unit.h"

#define BLOCKS 8u
#define LAYERS 2u
#define TOKENS 16u
#define PLANE_BYTES 32u /* of a head of a token: K, or V */
#define ROW_BYTES ((uint64_t)TOKENS * PLANE_BYTES)
#define CACHE_BYTES (BLOCKS * ROW_BYTES) /* K, or V, of a layer */
#define CACHES (2 * LAYERS)

static uint8_t memory[1 << 16];

struct described {
	struct kvpull_model model;
	struct kvpull_group groups[2];
	struct kvpull_region regions[2];
	struct kvpull_cache caches[CACHES];
	uint32_t region_count;
	uint32_t cache_count;
};

/* Planes of K and V in one region, a row a block; caches 2 * layer and on. */
static struct described planes(void)
{
	struct described all = {
		.model = { .struct_size = sizeof(all.model),
			   .model = "m",
			   .dtype = "u8",
			   .layout = "planes",
			   .layer_count = LAYERS,
			   .head_count = 1,
			   .head_bytes = 2 * PLANE_BYTES },
		.groups = { { .block_tokens = TOKENS },
			    { .block_tokens = TOKENS } },
		.regions = { { .struct_size = sizeof(*all.regions),
			       .kind = KVPULL_REGION_FOREIGN,
			       .fd = -1,
			       .base = memory,
			       .bytes = sizeof(memory) } },
		.region_count = 1,
		.cache_count = CACHES,
	};
	uint32_t i;

	for (i = 0; i < CACHES; i++)
		all.caches[i] = (struct kvpull_cache){
			.struct_size = sizeof(*all.caches),
			.layer_first = i / 2,
			.layer_count = 1,
			.offset = i * CACHE_BYTES,
			.block_stride = ROW_BYTES,
			.head_stride = ROW_BYTES,
			.block_count = BLOCKS,
			.row_count = 1,
			.head_count = 1,
			.head_bytes = ROW_BYTES,
		};
	return all;
}

static int described(const struct described *all,
		     struct kvpull_error_detail *detail)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	const struct kvpull_open_params params = {
		.struct_size = sizeof(params),
		.config_json =
			"{\"progress\":\"caller\",\"copy_threads\":0,\"route\":\"shm\"}",
		.model = &all->model,
		.engine_id = "engine",
		.tp_size = 1,
		.groups = all->groups,
		.group_bytes = sizeof(*all->groups),
		.group_count = 2,
	};
	const struct kvpull_regions regions = {
		.struct_size = sizeof(regions),
		.regions = all->regions,
		.caches = all->caches,
		.region_count = all->region_count,
		.cache_count = all->cache_count,
	};
	struct kvpull_worker *worker;
	int code;

	*detail =
		(struct kvpull_error_detail){ .struct_size = sizeof(*detail) };
	assert_int_equal(ops->open(&params, &worker, NULL), 0);
	code = ops->regions_register(worker, &regions, detail);
	ops->close(worker);
	return code;
}

static void is_taken(const struct described *all)
{
	struct kvpull_error_detail detail;

	if (described(all, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
}

static void is_refused(const struct described *all, const char *field,
		       const char *words)
{
	struct kvpull_error_detail detail;

	assert_int_equal(described(all, &detail), KVPULL_EINVAL);
	assert_string_equal(detail.field, field);
	if (!strstr(detail.message, words))
		fail_msg("\"%s\" is not in: %s", words, detail.message);
}

UNIT_TEST(planes_that_fill_the_model_are_registered)
{
	struct described all = planes();
	uint32_t i;

	is_taken(&all);
	for (i = 0; i < CACHES; i++) /* [layers][blocks][2] */
		all.caches[i].offset =
			i / 2 * 2 * CACHE_BYTES + i % 2 * ROW_BYTES,
		all.caches[i].block_stride = 2 * ROW_BYTES;
	is_taken(&all);
	for (i = 0; i < CACHES; i++) { /* a row a token */
		all.caches[i].row_count = TOKENS;
		all.caches[i].row_stride = PLANE_BYTES;
		all.caches[i].head_stride = PLANE_BYTES;
		all.caches[i].head_bytes = PLANE_BYTES;
	}
	is_taken(&all);
}

UNIT_TEST(half_of_the_rows_is_refused)
{
	struct described all = planes();

	all.caches[2].row_count = TOKENS / 2;
	all.caches[2].row_stride = PLANE_BYTES;
	all.caches[2].head_stride = PLANE_BYTES;
	all.caches[2].head_bytes = PLANE_BYTES;
	is_refused(&all, "caches",
		   "layer 1: row_count x head_bytes of its caches is 768 "
		   "bytes a block, block_tokens 16 x the model's head_bytes 64 "
		   "is 1024: register all of its rows");
}

UNIT_TEST(half_of_the_head_bytes_is_refused)
{
	struct described all = planes();

	all.caches[0].head_bytes /= 2;
	is_refused(&all, "caches",
		   "layer 0: row_count x head_bytes of its "
		   "caches is 768");
}

UNIT_TEST(k_alone_is_refused)
{
	struct described all = planes();

	all.caches[1] = all.caches[2];
	all.cache_count = 2;
	is_refused(&all, "caches",
		   "layer 0: row_count x head_bytes of its "
		   "caches is 512 bytes a block");
}

/* The layers of one cache differ: V lacks in the second layer alone. */
UNIT_TEST(v_of_some_layers_alone_is_refused)
{
	struct described all = planes();

	all.caches[0].layer_count = 2;
	all.caches[0].layer_stride = 2 * CACHE_BYTES;
	all.cache_count = 2;
	is_refused(&all, "caches",
		   "layer 1: row_count x head_bytes of its "
		   "caches is 512 bytes a block");
}

UNIT_TEST(layer_that_is_registered_twice_is_refused)
{
	struct described all = planes();

	all.caches[3].layer_first = 0;
	all.caches[2].head_bytes *= 2;
	all.caches[2].head_stride *= 2;
	all.caches[2].block_stride *= 2;
	is_refused(&all, "caches",
		   "is 1536 bytes a block, block_tokens 16 x "
		   "the model's head_bytes 64 is 1024: a cache "
		   "has too many rows or bytes");
}

UNIT_TEST(offset_of_v_that_was_forgotten_is_refused)
{
	struct described all = planes();

	all.caches[1].offset = 0;
	is_refused(&all, "caches[1].offset",
		   "0 in region 0: blocks share bytes with those of caches[0], "
		   "offset 0 in region 0");
}

UNIT_TEST(blocks_of_two_layers_that_overlap_are_refused)
{
	struct described all = planes();

	all.caches[2].offset = 2 * CACHE_BYTES - 1;
	is_refused(&all, "caches[2].offset",
		   "8191 in region 0: blocks share bytes with those of "
		   "caches[1], offset 4096 in region 0");
}

UNIT_TEST(regions_that_are_the_same_memory_are_refused)
{
	struct described all = planes();

	all.regions[1] = all.regions[0];
	all.regions[1].base = memory + 64;
	all.regions[1].bytes -= 64;
	all.region_count = 2;
	all.caches[1].region_index = 1;
	is_refused(&all, "caches[2].offset",
		   "8192 in region 0: blocks share bytes with those of "
		   "caches[1], offset 4096 in region 1");
	all.caches[1].offset = CACHES * CACHE_BYTES;
	is_taken(&all);
}

/*
 * V lies between the blocks of K, at half a stride more: each block is compared,
 * and there are more of them than KVPULL_OVERLAP_STEPS_MAX.
 */
UNIT_TEST(caches_that_take_too_many_steps_to_compare_are_refused)
{
	struct kvpull_error_detail detail;
	struct described all = planes();
	const uint64_t stride = 4 * ROW_BYTES;

	all.caches[0].block_stride = stride;
	all.caches[0].block_count = 3u << 26;
	all.caches[1].offset = ROW_BYTES;
	all.caches[1].block_stride = stride + stride / 2;
	all.caches[1].block_count = 2u << 26;
	all.caches[2].offset = stride * all.caches[0].block_count;
	all.caches[3].offset = all.caches[2].offset + CACHE_BYTES;
	all.regions[0].bytes = all.caches[3].offset + CACHE_BYTES;
	all.regions[0].base =
		mmap(NULL, all.regions[0].bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(all.regions[0].base, MAP_FAILED);
	assert_int_equal(described(&all, &detail), KVPULL_EUNSUPPORTED);
	assert_string_equal(detail.field, "caches");
	assert_non_null(strstr(detail.message,
			       "caches[1] lies between the blocks of "
			       "caches[0] at other strides"));
	(void)munmap(all.regions[0].base, all.regions[0].bytes);
}

/* Descriptors of one file, each with its own number. */
UNIT_TEST(regions_that_are_the_same_file_are_refused)
{
	struct described all = planes();
	const int file = memfd_create("test-file", MFD_CLOEXEC);
	const int again = dup(file);

	assert_true(file >= 0 && again >= 0);
	assert_int_equal(ftruncate(file, sizeof(memory)), 0);
	all.regions[0].kind = KVPULL_REGION_FILE;
	all.regions[0].base = NULL;
	all.regions[0].fd = file;
	all.regions[1] = all.regions[0];
	all.regions[1].fd = again;
	all.region_count = 2;
	all.caches[3].region_index = 1;
	is_taken(&all);
	all.caches[3].offset -= 1;
	is_refused(&all, "caches[3].offset",
		   "region 1: blocks share bytes "
		   "with those of caches[2]");
	all.regions[1].fd_offset = CACHES * CACHE_BYTES;
	all.regions[1].bytes -= all.regions[1].fd_offset;
	all.caches[3].offset = 0;
	is_taken(&all);
	/* Another file has the same offsets. */
	(void)close(again);
	all.regions[1].fd = memfd_create("test-other", MFD_CLOEXEC);
	assert_int_equal(ftruncate(all.regions[1].fd, sizeof(memory)), 0);
	all.regions[1].fd_offset = 0;
	is_taken(&all);
	(void)close(all.regions[1].fd);
	(void)close(file);
}

/* A pool of pages that the engine gives to one of its groups at a time. */
UNIT_TEST(groups_may_share_their_memory)
{
	struct described all = planes();

	all.caches[2].group_index = all.caches[3].group_index = 1;
	all.caches[2].offset = all.caches[0].offset;
	all.caches[3].offset = all.caches[1].offset;
	is_taken(&all);
}

UNIT_TEST(region_beyond_all_memory_is_refused)
{
	struct described all = planes();

	all.regions[0].base = (void *)(UINTPTR_MAX - 4096);
	is_refused(&all, "regions",
		   "regions[0] begins at 18446744073709547519 "
		   "and has 65536 bytes");
}

UNIT_TEST(unlike_layers_say_their_bytes_in_each_cache)
{
	struct described all = planes();
	uint32_t i;

	all.model.head_bytes = 0;
	is_refused(&all, "caches[0].token_bytes",
		   "is 0, and so is the model's head_bytes");
	for (i = 0; i < CACHES; i++)
		all.caches[i].token_bytes = PLANE_BYTES;
	is_taken(&all);
	all.caches[3].token_bytes = 2 * PLANE_BYTES;
	is_refused(&all, "caches[3].token_bytes",
		   "is 64, 1024 bytes in a block of 16 tokens: row_count 1 x "
		   "head_bytes 512 is 512");
	all.caches[3].head_bytes *= 2;
	all.caches[3].head_stride *= 2;
	all.caches[3].block_stride *= 2;
	is_taken(&all);
	/* With both, both are held against it. */
	all.model.head_bytes = 2 * PLANE_BYTES;
	is_refused(&all, "caches",
		   "layer 1: row_count x head_bytes of its "
		   "caches is 1536");
}
