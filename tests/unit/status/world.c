/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/status/world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int world_up(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	char text[160];

	(void)snprintf(world->folder, sizeof(world->folder),
		       "/dev/shm/test-status-XXXXXX");
	if (!mkdtemp(world->folder))
		return -1;
	(void)snprintf(text, sizeof(text),
		       "{\"socket_dir\":\"%s\",\"max_holds\":100}",
		       world->folder);
	lines_forget();
	world->log = lines_from(KVPULL_LOG_WARN);
	*state = world;
	return kvpull_config_load(&world->config, text, NULL);
}

int world_up_open(void **state)
{
	const int code = world_up(state);

	opens(*state, 1);
	return code;
}

int world_down(void **state)
{
	struct world *world = *state;
	char command[128];

	kvpull_status_close(&world->status);
	(void)snprintf(command, sizeof(command), "rm -rf %s", world->folder);
	free(world);
	/* NOLINTNEXTLINE(cert-env33-c): a folder that mkdtemp() named. */
	return system(command);
}

static struct kvpull_status_params params_of(const struct world *world,
					     uint64_t incarnation)
{
	return (struct kvpull_status_params){
		.log = &world->log,
		.config = &world->config,
		.engine_id = "prefill-0",
		.incarnation = incarnation,
		.now_ns = kvpull_clock_ns(),
		.rank_count = 1,
		.caller_count_max = 4,
		.peer_count_max = 3,
	};
}

int open_at(struct world *world, struct kvpull_status *status,
	    uint64_t incarnation, uint64_t now_ns)
{
	struct kvpull_status_params params = params_of(world, incarnation);

	params.now_ns = now_ns;
	return kvpull_status_open(status, &params);
}

int open_as(struct world *world, struct kvpull_status *status,
	    uint64_t incarnation)
{
	return open_at(world, status, incarnation, kvpull_clock_ns());
}

void opens(struct world *world, uint64_t incarnation)
{
	assert_int_equal(open_as(world, &world->status, incarnation), 0);
}

int open_pool(struct world *world, struct kvpull_status *status,
	      uint64_t incarnation)
{
	struct kvpull_status_params params = params_of(world, incarnation);

	params.kind = KVPULL_STATUS_OF_POOL;
	return kvpull_status_open(status, &params);
}

int read_header(const char *path, uint32_t owner,
		struct kvpull_status_header *header)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	int code;

	assert_true(fd >= 0);
	code = kvpull_status_header_read(fd, owner, header);
	(void)close(fd);
	return code;
}

void header_reads(const struct world *world,
		  struct kvpull_status_header *header, int code)
{
	assert_int_equal(read_header(world->status.path, geteuid(), header),
			 code);
}

void sweep(const struct world *world, uint64_t now_ns, uint32_t kept)
{
	const int fd = open(world->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	kvpull_status_sweep(fd, now_ns, kept);
	(void)close(fd);
}

/* Files whose names end so. */
static uint32_t files_of(const struct world *world, const char *end)
{
	DIR *folder = opendir(world->folder);
	const struct dirent *entry;
	uint32_t count = 0;

	assert_non_null(folder);
	while ((entry = readdir(folder)))
		count += strstr(entry->d_name, end) != NULL;
	(void)closedir(folder);
	return count;
}

uint32_t file_count(const struct world *world)
{
	return files_of(world, KVPULL_STATUS_SUFFIX);
}

int has_file(const struct world *world, uint64_t incarnation)
{
	char end[64];

	(void)snprintf(end, sizeof(end), "-%016llx" KVPULL_STATUS_SUFFIX,
		       (unsigned long long)incarnation);
	return files_of(world, end) != 0;
}
