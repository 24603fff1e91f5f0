/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that registers all the regions and caches that it may, where a
 * process may have 1,024 descriptors. Regions of one mapping share its
 * descriptor, so that their number is not bounded by that of descriptors; each
 * in a mapping of its own, as many as both ends have descriptors for.
 */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvpull/connector.h"
#include "tests/lib/host.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define DESCRIPTORS 1024u
#define BLOCKS 4u
#define BLOCK_BYTES 256u
#define CACHE_BYTES (BLOCKS * BLOCK_BYTES)
#define REGION_BYTES (2 * CACHE_BYTES) /* K and V of a layer */
#define TURNS_MAX 200000

static const struct timespec nap = { .tv_nsec = 100000 };

struct side {
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	uint32_t regions;  /* one a layer */
	uint32_t mappings; /* that they lie in, as many in each */
	uint8_t *memory[KVPULL_REGIONS_MAX];
	uint32_t kinds;
	struct lines lines;
};

static const struct kvpull_connector_ops *ops;

static uint8_t *region_of(const struct side *side, uint32_t i)
{
	const uint32_t in_each = side->regions / side->mappings;

	return side->memory[i / in_each] + (size_t)(i % in_each) * REGION_BYTES;
}

static void regions_register(struct side *side)
{
	static struct kvpull_region regions[KVPULL_REGIONS_MAX];
	static struct kvpull_cache caches[KVPULL_CACHES_MAX];
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct kvpull_regions given = { .struct_size = sizeof(given),
					      .regions = regions,
					      .caches = caches,
					      .region_count = side->regions,
					      .cache_count =
						      2 * side->regions };
	uint32_t i;

	for (i = 0; i < side->regions; i++)
		regions[i] = (struct kvpull_region){
			.struct_size = sizeof(regions[i]),
			.fd = -1,
			.base = region_of(side, i),
			.bytes = REGION_BYTES,
		};
	for (i = 0; i < 2 * side->regions; i++)
		caches[i] = (struct kvpull_cache){
			.struct_size = sizeof(caches[i]),
			.region_index = i / 2,
			.layer_first = i / 2,
			.layer_count = 1,
			.offset = (uint64_t)(i % 2) * CACHE_BYTES,
			.block_stride = BLOCK_BYTES,
			.head_stride = BLOCK_BYTES,
			.block_count = BLOCKS,
			.row_count = 1,
			.head_count = 1,
			.head_bytes = BLOCK_BYTES,
		};
	if (ops->worker->regions_register(side->worker, &given, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
}

static void scheduler_and_worker_open(struct side *side, const char *id,
				      const char *dir)
{
	static const struct kvpull_group group = { .block_tokens = 16 };
	const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "m",
		.dtype = "u8",
		.layout = "LBHNC",
		.layer_count = side->regions,
		.head_count = 1,
		.head_bytes = 2 * BLOCK_BYTES / 16, /* K and V */
	};
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .context = &side->lines,
					  .log = lines_keep };
	char config[160];
	struct kvpull_open_params params =
		host_params(id, config, &model, &group);
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	params.host = &host;
	(void)snprintf(
		config, sizeof(config),
		"{\"progress\":\"caller\",\"copy_threads\":0,\"route\":\"shm\",\"max_holds\":64,\"connect_ms\":60000,\"socket_dir\":\"%s\"}",
		dir);
	if (ops->scheduler->open(&params, &side->scheduler, &detail) ||
	    ops->worker->open(&params, &side->worker, &detail))
		fail_msg("%s: %s", detail.field, detail.message);
}

static void side_open(struct side *side, const char *id, const char *dir)
{
	const uint64_t bytes =
		(uint64_t)side->regions / side->mappings * REGION_BYTES;
	uint32_t i;

	scheduler_and_worker_open(side, id, dir);
	for (i = 0; i < side->mappings; i++) {
		struct kvpull_memory memory = { .struct_size = sizeof(memory) };

		assert_int_equal(ops->worker->memory_alloc(side->worker, bytes,
							   0, &memory),
				 0);
		side->memory[i] = memory.base;
	}
	regions_register(side);
	assert_int_equal(host_introduce(side->worker, side->scheduler), 0);
}

static void side_close(struct side *side)
{
	ops->worker->close(side->worker);
	ops->scheduler->close(side->scheduler);
}

static void turn(struct side *side)
{
	static uint8_t bytes[1 << 16];
	struct kvpull_poll_record records[4];
	size_t byte_count;
	int count;

	assert_int_equal(ops->scheduler->step_build(side->scheduler, bytes,
						    sizeof(bytes), &byte_count),
			 0);
	assert_int_equal(ops->worker->step(side->worker, bytes, byte_count), 0);
	assert_int_equal(ops->worker->start_loads(side->worker, NULL), 0);
	count = ops->worker->poll(side->worker, records, 4, sizeof(*records));
	while (count > 0)
		side->kinds |= 1u << records[--count].kind;
	assert_int_equal(ops->worker->result_build(side->worker, bytes,
						   sizeof(bytes), &byte_count),
			 0);
	if (byte_count)
		assert_int_equal(ops->scheduler->result_take(side->scheduler,
							     bytes, byte_count),
				 0);
	(void)sched_yield();
}

/* P has block 1 finished: its ticket. */
static void finish(struct side *p, struct kvpull_finish *ticket)
{
	static const uint32_t from = 1;
	const struct kvpull_blocks blocks = { .block_count = 1,
					      .block_ids = &from };
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = 1,
		.prompt_tokens = 16,
		.flags = KVPULL_REQUEST_WANTS_HOLD,
	};

	ticket->groups = &blocks;
	assert_int_equal(ops->scheduler->request_new(p->scheduler, &request),
			 0);
	assert_int_equal(ops->scheduler->request_finished(p->scheduler, ticket),
			 KVPULL_FINISH_HELD);
	ticket->groups = NULL; /* they were ours */
}

/* D reads it to its block 2. */
static void pull_begin(struct side *d, const char *ticket, size_t ticket_bytes)
{
	static const uint32_t to = 2;
	const struct kvpull_blocks blocks = { .block_count = 1,
					      .block_ids = &to };
	const struct kvpull_request request = { .struct_size = sizeof(request),
						.key = 2,
						.prompt_tokens = 16,
						.flags = KVPULL_REQUEST_PULL,
						.ticket = ticket,
						.ticket_bytes = ticket_bytes };
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = 2,
		.external_tokens = 16,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
	};
	uint32_t tokens;

	assert_int_equal(ops->scheduler->request_new(d->scheduler, &request),
			 0);
	assert_int_equal(
		ops->scheduler->matched_tokens(d->scheduler, 2, 0, &tokens),
		KVPULL_MATCH_LOAD);
	assert_int_equal(ops->scheduler->allocated(d->scheduler, &allocation),
			 0);
}

/* Each cache has bytes of its own in block 1. */
static int cache_byte(uint32_t region, uint32_t half)
{
	return (int)(1 + (2 * region + half) % 251);
}

/* Another process is P; it ends when nobody reads from its pipe any more. */
static void producer_run(struct side *p, const char *dir, int ticket_fd)
{
	char ticket[4096];
	struct kvpull_finish own = { .struct_size = sizeof(own),
				     .key = 1,
				     .computed_tokens = 16,
				     .group_count = 1,
				     .group_bytes =
					     sizeof(struct kvpull_blocks),
				     .ticket = ticket,
				     .ticket_capacity = sizeof(ticket) };
	uint32_t i;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	side_open(p, "prefill", dir);
	for (i = 0; i < 2 * p->regions; i++)
		memset(region_of(p, i / 2) + (size_t)(i % 2) * CACHE_BYTES +
			       BLOCK_BYTES,
		       cache_byte(i / 2, i % 2), BLOCK_BYTES);
	finish(p, &own);
	assert_int_equal(write(ticket_fd, ticket, own.ticket_bytes),
			 own.ticket_bytes);
	for (;;) {
		turn(p);
		(void)nanosleep(&nap, NULL);
	}
}

/* P, and D that pulls from it until it has the block, or a warning. */
static void pair_run(struct side *p, struct side *d, const char *dir)
{
	char ticket[4096];
	ssize_t ticket_bytes;
	int pipes[2];
	pid_t child;
	int i;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		producer_run(p, dir, pipes[1]);
		_exit(1);
	}
	(void)close(pipes[1]);
	side_open(d, "decode", dir);
	ticket_bytes = read(pipes[0], ticket, sizeof(ticket));
	(void)close(pipes[0]);
	assert_true(ticket_bytes > 0);
	pull_begin(d, ticket, (size_t)ticket_bytes);
	for (i = 0; i < TURNS_MAX && !d->kinds && !d->lines.bad[0]; i++) {
		turn(d);
		(void)nanosleep(&nap, NULL); /* its thread's time, and P's */
	}
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
}

static void block_is_read(const struct side *d)
{
	uint32_t i;

	assert_string_equal(d->lines.bad, "");
	assert_int_equal(d->kinds, 1u << KVPULL_POLL_LOADED);
	for (i = 0; i < 2 * d->regions; i++) {
		const uint8_t *got = region_of(d, i / 2) +
				     (size_t)(i % 2) * CACHE_BYTES +
				     (size_t)2 * BLOCK_BYTES;

		assert_int_equal(got[0], cache_byte(i / 2, i % 2));
		assert_memory_equal(got, got + 1, BLOCK_BYTES - 1);
	}
}

UNIT_TEST(regions_of_a_mapping_share_its_descriptor)
{
	struct side p = { .regions = KVPULL_REGIONS_MAX, .mappings = 1 };
	struct side d = p;
	const uint32_t before = fds_open();

	pair_run(&p, &d, *state);
	block_is_read(&d);
	assert_in_range(fds_open() - before, 1, 40);
	side_close(&d);
	assert_int_equal(fds_open(), before);
}

/* D needs its own and a copy of each of P's, until they are mapped. */
UNIT_TEST(each_region_has_a_mapping_of_its_own)
{
	struct side p = { .regions = 480, .mappings = 480 };
	struct side d = p;

	pair_run(&p, &d, *state);
	block_is_read(&d);
	side_close(&d);
}

UNIT_TEST(mappings_beyond_the_descriptors_are_named)
{
	struct side p = { .regions = 520, .mappings = 520 };
	struct side d = p;

	pair_run(&p, &d, *state);
	assert_int_equal(d.kinds, 0);
	assert_string_equal(
		d.lines.bad,
		"a producer's descriptors: Too many open files: every descriptor of this process is in use: raise ulimit -n; it is tried again");
	side_close(&d);
}

UNIT_TEST(memory_beyond_the_descriptors_is_named)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct side side = { .regions = 1, .mappings = 1 };
	uint32_t count = 0;
	int code = 0;

	scheduler_and_worker_open(&side, "prefill", *state);
	while (!code && ++count <= KVPULL_REGIONS_MAX)
		code = ops->worker->memory_alloc(side.worker, 4096, 0, &memory);
	assert_int_equal(code, KVPULL_ENOMEM);
	assert_in_range(count, DESCRIPTORS - 64, DESCRIPTORS);
	assert_non_null(strstr(
		side.lines.bad,
		"Too many open files: every descriptor of this process is in use: raise ulimit -n"));
	side_close(&side);
}

static int folder_make(void **state)
{
	static char dir[] = "/tmp/kvpull-test-XXXXXX";
	const struct rlimit limit = { DESCRIPTORS, DESCRIPTORS };

	*state = mkdtemp(dir);
	ops = kvpull_connector_v1();
	return !*state || setrlimit(RLIMIT_NOFILE, &limit);
}

/* Producers that were killed left their sockets. */
static int folder_remove(void **state)
{
	DIR *folder = opendir(*state);
	const struct dirent *entry;

	while (folder && (entry = readdir(folder)) != NULL)
		(void)unlinkat(dirfd(folder), entry->d_name, 0);
	if (folder)
		(void)closedir(folder);
	return rmdir(*state);
}

int main(void)
{
	return unit_run(folder_make, folder_remove);
}
