/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ib_pull: benchmark and demo of kvpull over the connector ABI.
 * No peer: serve. A peer's socket folder: pull from it. --demo: both.
 */
#include "tools/ib_pull.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int stop;

static void stop_set(int number)
{
	(void)number;
	stop = 1;
}

static void log_line(void *context, uint32_t level, const char *message)
{
	const uint32_t *verbose = context;

	if (level <= KVPULL_LOG_WARN + *verbose)
		fprintf(stderr, "%s\n", message);
}

int ib_engine_open(const struct ib_options *options, struct engine *engine,
		   char *config, size_t config_bytes)
{
	static uint32_t verbose;
	static struct kvpull_host host = {
		.struct_size = sizeof(host),
		.context = &verbose,
		.log = log_line,
		.log_level = KVPULL_LOG_INFO,
	};
	const struct engine_params params = {
		.ops = engine_library(),
		.host = &host,
		.config_json = config,
		.engine_id = options->name,
		.shape = options->shape,
		.tp_size = options->tp_size,
		.foreign = options->foreign,
	};

	verbose = options->verbose;
	if (!params.ops)
		return 1;
	(void)snprintf(
		config, config_bytes,
		"{\"socket_dir\":\"%s\",\"progress\":\"%s\",\"copy_threads\":%u,\"lease_ms\":%u}",
		options->dir, options->thread ? "thread" : "caller",
		options->copy_threads, options->lease_ms);
	return engine_open(engine, &params);
}

enum {
	OPTION_FIRST = 256
};

static const struct option_row {
	const char *name;
	const char *meaning;
	size_t offset; /* of a uint32_t in struct ib_options */
	uint32_t least, most;
	uint32_t flag; /* takes no argument */
} rows[] = {
#define ROW(name, member, least, most, meaning)                                \
	{                                                                      \
		name, meaning, offsetof(struct ib_options, member), least,     \
			most, 0                                                \
	}
#define FLAG(name, member, meaning)                                            \
	{                                                                      \
		name, meaning, offsetof(struct ib_options, member), 0, 1, 1    \
	}
	ROW("size", shape.block_bytes, 64, 1u << 30,
	    "bytes of a block in a layer, all ranks (16384)"),
	ROW("count", request_blocks, 1, IB_BLOCKS_MAX,
	    "blocks a request and group (128)"),
	ROW("layers", shape.layer_count, 1, 512, "layers over all groups (4)"),
	ROW("groups", shape.group_count, 1, KVPULL_GROUPS_MAX,
	    "block groups (1)"),
	ROW("pool", shape.block_count, 1, 1u << 24,
	    "blocks in each pool (4096)"),
	ROW("requests", request_count, 1, 1u << 24,
	    "requests a consumer sends (200)"),
	ROW("depth", depth, 1, IB_DEPTH_MAX, "requests in flight (1)"),
	ROW("siblings", siblings, 1, IB_SIBLINGS_MAX,
	    "requests that share one prefill, n (1)"),
	ROW("consumers", consumers, 1, 15, "consumers of --demo (3)"),
	ROW("copy-threads", copy_threads, 0, 16, "copy workers (1)"),
	ROW("lease", lease_ms, 10, 3600000, "lease, ms (30000)"),
	ROW("rejects", reject_percent, 0, 100,
	    "percent rejected before admission (0)"),
	ROW("aborts", abort_percent, 0, 100,
	    "percent aborted while they load (0)"),
	ROW("token-us", token_us, 0, 10000000,
	    "with --trace: blocks stay taken so long an output token, us (0)"),
	ROW("tp", tp_size, 1, ENGINE_RANKS_MAX,
	    "tensor parallel ranks of this side: 1, 2, 4, 8 (1)"),
	ROW("port", port, 1, 65535,
	    "serve: also at this TCP port; HOST: its port (18515)"),
	ROW("retry", retry_s, 0, 3600,
	    "seconds to call a producer again that is gone (0)"),
	FLAG("stats", stats, "print the producer's counters, and pull nothing"),
	FLAG("verify", verify, "compare every byte"),
	FLAG("thread", thread, "a progress thread, as engines use it"),
	FLAG("foreign", foreign,
	     "memory of the engine's own (process_vm_readv)"),
	FLAG("json", json, "one JSON object instead of the table"),
	FLAG("verbose", verbose, "log lines of the life cycle"),
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

enum {
	OPTION_DEMO = OPTION_FIRST + ROWS,
	OPTION_DIR,
	OPTION_TRACE,
	OPTION_HELP,
	OPTION_VERSION
};

static void usage(FILE *to)
{
	size_t index;

	fprintf(to,
		"usage: ib_pull [options]          serve\n"
		"       ib_pull [options] FOLDER   pull from who serves there (a path)\n"
		"       ib_pull [options] HOST     the same, on another machine, by RDMA\n"
		"       ib_pull --demo             both, with rejects, aborts and a kill\n\n");
	for (index = 0; index < ROWS; index++)
		fprintf(to, "  --%-14s %s\n", rows[index].name,
			rows[index].meaning);
	fprintf(to,
		"  --%-14s socket folder to serve in (/tmp/kvpull-UID)\n"
		"  --%-14s replay JSON lines of arrival_s, prompt_tokens, output_tokens, n, abort\n"
		"  --%-14s this text\n  --%-14s version\n"
		"exit: 0 right, 1 something was wrong, 2 usage\n",
		"dir", "trace", "help", "version");
}

static int number_take(struct ib_options *options, size_t row, const char *text)
{
	uint32_t *to = (uint32_t *)(void *)((char *)options + rows[row].offset);
	unsigned long value;
	char *end;

	if (rows[row].flag) {
		*to = 1;
		return 0;
	}
	errno = 0;
	value = strtoul(text, &end, 0);
	if (errno || end == text || *end || value < rows[row].least ||
	    value > rows[row].most) {
		fprintf(stderr, "--%s %s: a number from %u to %u is needed\n",
			rows[row].name, text, rows[row].least, rows[row].most);
		return 1;
	}
	*to = (uint32_t)value;
	return 0;
}

static int shape_check(const struct ib_options *options)
{
	const struct engine_shape *shape = &options->shape;
	const char *why = NULL;

	if (shape->block_bytes % (64 * ENGINE_HEADS))
		why = "--size must be a multiple of 512";
	else if (shape->layer_count % shape->group_count)
		why = "--layers must be a multiple of --groups";
	else if (ENGINE_HEADS % options->tp_size)
		why = "--tp must be 1, 2, 4 or 8";
	else if (options->request_blocks > IB_BLOCKS_MAX / shape->group_count)
		why = "--count times --groups is at most 16384";
	else if ((uint64_t)options->request_blocks * shape->group_count *
			 (options->depth + 1) >
		 shape->block_count)
		why = "--pool must hold --count times --groups times (--depth + 1) blocks";
	if (why)
		fprintf(stderr, "%s\n", why);
	return why != NULL;
}

static int run(struct ib_options *options, const char *peer)
{
	const struct sigaction action = { .sa_handler = stop_set };
	struct ib_result result = { 0 };
	static char dir[64];
	int failed;

	if (peer && strchr(peer, '/'))
		options->dir = peer;
	else
		options->host = peer;
	if (!options->dir) {
		(void)snprintf(dir, sizeof(dir), "/tmp/kvpull-%u",
			       (unsigned int)geteuid());
		options->dir = dir;
	}
	if (options->stats)
		return ib_print_stats(options);
	(void)mkdir(options->dir, 0700);
	if (!peer) {
		(void)sigaction(SIGINT, &action, NULL);
		(void)sigaction(SIGTERM, &action, NULL);
		options->name = "producer";
		return ib_serve(options, &stop);
	}
	options->name = "consumer";
	if (!options->json)
		ib_print_header(options);
	(void)fflush(stdout);
	failed = ib_pull(options, &result);
	if (result.pulls || !failed)
		ib_print_result(options, &result);
	free(result.latencies);
	return failed;
}

static int parse(int count, char **words, struct ib_options *options, int *demo)
{
	struct option longs[ROWS + 6] = { { 0 } };
	size_t row;
	int option;

	for (row = 0; row < ROWS; row++)
		longs[row] =
			(struct option){ rows[row].name, rows[row].flag ? 0 : 1,
					 NULL, OPTION_FIRST + (int)row };
	longs[ROWS] = (struct option){ "demo", 0, NULL, OPTION_DEMO };
	longs[ROWS + 1] = (struct option){ "dir", 1, NULL, OPTION_DIR };
	longs[ROWS + 2] = (struct option){ "trace", 1, NULL, OPTION_TRACE };
	longs[ROWS + 3] = (struct option){ "help", 0, NULL, OPTION_HELP };
	longs[ROWS + 4] = (struct option){ "version", 0, NULL, OPTION_VERSION };
	while ((option = getopt_long(count, words, "", longs, NULL)) != -1) {
		if (option == OPTION_DEMO)
			*demo = 1;
		else if (option == OPTION_DIR)
			options->dir = optarg;
		else if (option == OPTION_TRACE)
			options->trace = optarg;
		else if (option == OPTION_HELP || option == OPTION_VERSION)
			return option;
		else if (option < OPTION_FIRST ||
			 number_take(options, (size_t)(option - OPTION_FIRST),
				     optarg))
			return 2;
	}
	return shape_check(options) || count - optind > 1 ? 2 : 0;
}

int main(int count, char **words)
{
	struct ib_options options = {
		.shape = { .block_bytes = 16384,
			   .block_count = 4096,
			   .layer_count = 4,
			   .group_count = 1,
			   .block_tokens = 16 },
		.request_blocks = 128,
		.request_count = 200,
		.depth = 1,
		.siblings = 1,
		.consumers = 3,
		.copy_threads = 1,
		.lease_ms = 30000,
		.tp_size = 1,
		.seed = 1,
	};
	int demo = 0;
	const int code = parse(count, words, &options, &demo);

	if (code == OPTION_HELP || code == OPTION_VERSION) {
		if (code == OPTION_HELP)
			usage(stdout);
		else
			printf("ib_pull %s\n", KVPULL_VERSION);
		return 0;
	}
	if (code) {
		usage(stderr);
		return 2;
	}
	if (!demo)
		return run(&options, optind < count ? words[optind] : NULL);
	options.thread = 1;
	options.siblings = options.siblings > 1 ? options.siblings : 4;
	options.reject_percent = 20;
	options.abort_percent = 10;
	options.depth = options.depth > 1 ? options.depth : 6;
	options.lease_ms = options.lease_ms < 30000 ? options.lease_ms : 2000;
	return ib_demo(&options);
}
