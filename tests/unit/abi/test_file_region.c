/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of file regions, through the ABI's table alone. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kvpull/connector.h"
#include "tests/lib/folder.h"
#include "tests/lib/unit.h"

#define BLOCKS 16u
#define BLOCK_BYTES 4096u
#define GROUP_BYTES ((uint64_t)BLOCKS * BLOCK_BYTES)
#define FILE_OFFSET 777u

struct world {
	const struct kvpull_worker_ops *ops;
	struct kvpull_worker *worker;
	struct kvpull_error_detail detail;
	struct kvpull_region regions[2]; /* memory, file */
	struct kvpull_cache caches[2];
	char dir[64];
	char config[128];
	uint32_t fds;
	int file;
};

static void worker_open(struct world *world)
{
	const struct kvpull_group groups[2] = { { .block_tokens = 16 },
						{ .block_tokens = 16 } };
	const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "tiny",
		.dtype = "bytes",
		.layout = "LBHNC",
		.layer_count = 2,
		.head_count = 1,
		.head_bytes = BLOCK_BYTES / 16,
	};
	const struct kvpull_open_params params = {
		.struct_size = sizeof(params),
		.config_json = world->config,
		.model = &model,
		.engine_id = "file",
		.tp_size = 1,
		.groups = groups,
		.group_bytes = sizeof(*groups),
		.group_count = 2,
	};

	if (world->ops->open(&params, &world->worker, &world->detail))
		fail_msg("%s: %s", world->detail.field, world->detail.message);
}

/* Group 0 lies in memory, group 1 in the file. */
static void regions_fill(struct world *world)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	uint32_t i;

	assert_int_equal(world->ops->memory_alloc(world->worker, GROUP_BYTES, 0,
						  &memory),
			 0);
	world->regions[0] =
		(struct kvpull_region){ .struct_size = sizeof(*world->regions),
					.kind = KVPULL_REGION_PROVIDED,
					.fd = -1,
					.base = memory.base,
					.bytes = GROUP_BYTES };
	world->regions[1] =
		(struct kvpull_region){ .struct_size = sizeof(*world->regions),
					.kind = KVPULL_REGION_FILE,
					.fd = world->file,
					.fd_offset = FILE_OFFSET,
					.bytes = GROUP_BYTES };
	for (i = 0; i < 2; i++)
		world->caches[i] = (struct kvpull_cache){
			.struct_size = sizeof(*world->caches),
			.region_index = i,
			.group_index = i,
			.layer_first = i,
			.layer_count = 1,
			.block_stride = BLOCK_BYTES,
			.head_stride = BLOCK_BYTES,
			.block_count = BLOCKS,
			.row_count = 1,
			.head_count = 1,
			.head_bytes = BLOCK_BYTES,
		};
}

static int world_open(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	world->ops = kvpull_connector_v1()->worker;
	world->detail.struct_size = sizeof(world->detail);
	(void)snprintf(world->dir, sizeof(world->dir),
		       "/tmp/kvpull-test-XXXXXX");
	assert_non_null(mkdtemp(world->dir));
	(void)snprintf(world->config, sizeof(world->config),
		       "{\"progress\":\"caller\",\"socket_dir\":\"%s\"}",
		       world->dir);
	world->file = memfd_create("test-file", MFD_CLOEXEC);
	assert_int_equal(ftruncate(world->file, FILE_OFFSET + GROUP_BYTES), 0);
	worker_open(world);
	regions_fill(world);
	world->fds = fds_open();
	*state = world;
	return 0;
}

static int world_close(void **state)
{
	struct world *world = *state;

	world->ops->close(world->worker);
	(void)close(world->file);
	(void)folder_remove(world->dir);
	free(world);
	return 0;
}

static int regions_register(struct world *world)
{
	const struct kvpull_regions regions = {
		.struct_size = sizeof(regions),
		.regions = world->regions,
		.caches = world->caches,
		.region_count = 2,
		.cache_count = 2,
	};

	return world->ops->regions_register(world->worker, &regions,
					    &world->detail);
}

/* Refused with these words, and no descriptor stays. */
static void is_refused(struct world *world, const char *words)
{
	assert_int_equal(regions_register(world), KVPULL_EINVAL);
	assert_string_equal(world->detail.field, "regions");
	if (!strstr(world->detail.message, words))
		fail_msg("%s", world->detail.message);
	assert_int_equal(fds_open(), world->fds);
}

#define TEST(name)                                                             \
	UNIT_TEST_OF(name, struct world, world, world_open, world_close)

TEST(file_beside_memory_is_registered)
{
	assert_true(kvpull_connector_v1()->caps & KVPULL_CAP_FILE);
	assert_int_equal(regions_register(world), 0);
	/* The engine's descriptor stays its own, and may be closed. */
	assert_int_equal(pwrite(world->file, "x", 1, 0), 1);
	/* Once. */
	assert_int_equal(regions_register(world), KVPULL_EINVAL);
}

TEST(file_with_a_fault_is_refused_by_name)
{
	struct kvpull_region *region = &world->regions[1];
	int pipes[2];

	region->fd_offset++;
	is_refused(world, "shorter than fd_offset");
	region->fd_offset = UINT64_MAX;
	is_refused(world, "shorter than fd_offset");
	region->fd_offset = FILE_OFFSET;
	region->fd = -1;
	is_refused(world, "not an open descriptor");
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	world->fds += 2;
	region->fd = pipes[0];
	is_refused(world, "not a regular file");
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	world->fds -= 2;
	/* After a refusal the host can register again. */
	region->fd = world->file;
	assert_int_equal(regions_register(world), 0);
}

TEST(refused_memory_closes_the_files_before_it)
{
	const struct kvpull_region memory = world->regions[0];

	world->regions[0] = world->regions[1];
	world->regions[1] = memory;
	world->regions[1].bytes = UINT64_MAX;
	assert_int_equal(regions_register(world), KVPULL_EINVAL);
	assert_int_equal(fds_open(), world->fds);
	world->regions[1].kind = KVPULL_REGION_STAGED;
	assert_int_equal(regions_register(world), KVPULL_EUNSUPPORTED);
	assert_int_equal(fds_open(), world->fds);
}

TEST(refused_cache_closes_the_files)
{
	world->caches[1].offset = 1;
	assert_int_equal(regions_register(world), KVPULL_EINVAL);
	assert_int_equal(fds_open(), world->fds);
	world->caches[1].offset = 0;
	assert_int_equal(regions_register(world), 0);
}
