/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ib_pull: benchmark and demo of kvpull over the connector ABI.
 * No peer: serve. A peer's socket folder: pull from it. --demo: both.
 */
#include "tools/cli/host.h"
#include "tools/cli/options.h"
#include "tools/ib_pull_parts.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define wrong(...) cli_wrong(&cli, __VA_ARGS__)

#define TIMES_MIN (1u << 18)
#define STOP_AGAIN_NS UINT64_C(500000000)
#define SIGNAL_STATUS 128 /* and its number, as shells say */
/* An option whose default depends on others; + 1 it is 0, no GID index. */
#define NOT_GIVEN UINT32_MAX

static int stop;

/*
 * The first one ends the work in order; one that comes later, when that takes
 * too long, the process. A group's signal may come twice at once.
 */
static void stop_set(int number)
{
	static uint64_t first_ns;
	const uint64_t now_ns = engine_now_ns();

	if (!stop)
		first_ns = now_ns;
	else if (now_ns - first_ns >= STOP_AGAIN_NS)
		_exit(SIGNAL_STATUS + number);
	stop = number;
}

static void signals_take(void)
{
	const struct sigaction action = { .sa_handler = stop_set };
	struct sigaction before;

	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	/* A terminal that is closed; under nohup that is nothing. */
	if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN)
		(void)sigaction(SIGHUP, &action, NULL);
}

static const char *const model_names[] = { "llama-3-70b", "qwen3-8b",
					   "deepseek-v3", NULL };

/*
 * A layer's bytes of 16 tokens, from the models' configurations: key and value
 * of 8 heads x 128 x bfloat16; MLA's 512 + 64 values of one head.
 */
static int model_take(const struct cli *of, const struct cli_option *option,
		      void *to, const char *text)
{
	static const struct {
		uint32_t block_bytes, layer_count;
	} models[] = {
		{ 16 * 2 * 8 * 128 * 2, 80 },
		{ 16 * 2 * 8 * 128 * 2, 36 },
		{ 16 * (512 + 64) * 2, 61 },
	};
	struct ib_options *options = to;
	const int at = cli_word(option->words, text);

	(void)of;
	options->shape.block_bytes = models[at].block_bytes;
	options->shape.layer_count = models[at].layer_count;
	return 0;
}

#define RANGE(type, word, letter_of, member, low, high, of, value, text)       \
	{                                                                      \
		.kind = CLI_##type, .name = (word), .letter = (letter_of),     \
		CLI_MEMBER(struct ib_options, member), .least = (low),         \
		.most = (high), .unit = (of), .argument = (value),             \
		.help = (text)                                                 \
	}
#define OF(type, word, letter_of, member, value, text)                         \
	RANGE(type, word, letter_of, member, 0, 0, NULL, value, text)

/* clang-format off */
static const struct cli_option rows[] = {
	{ .help = "Instead of serving or pulling" },
	OF(FLAG, "demo", 0, demo, NULL, "a producer, consumers and a kill, here"),
	OF(FLAG, "pool", 0, pool, NULL, "owners share chunks by content, readers ask nobody"),
	OF(FLAG, "stats", 0, stats, NULL, "print the producer's counters"),
	OF(FLAG, "ticket", 0, ticket, NULL, "ask for one prefill, print its ticket"),
	OF(TEXT, "release", 0, release, "TICKET", "give a ticket back unread: its text, @FILE or - for stdin"),
	{ .help = "Blocks and requests" },
	RANGE(SIZE, "size", 's', shape.block_bytes, 64, 1 << 30, "", "BYTES", "of a block in a layer, all ranks (16K)"),
	RANGE(NUMBER, "layers", 0, shape.layer_count, 1, 512, NULL, "N", "layers over all groups (4)"),
	{ .name = "model", .argument = "NAME", .words = model_names, .take = model_take,
	  .help = "--size and --layers of llama-3-70b, qwen3-8b or deepseek-v3" },
	RANGE(NUMBER, "groups", 0, shape.group_count, 1, KVPULL_GROUPS_MAX, NULL, "N", "block groups (1)"),
	RANGE(NUMBER, "blocks", 0, shape.block_count, 1, 1 << 24, NULL, "N", "blocks in each pool; chunks of an owner (4096)"),
	RANGE(NUMBER, "count", 0, request_blocks, 1, IB_BLOCKS_MAX, NULL, "N", "blocks a request and group (128)"),
	RANGE(NUMBER, "requests", 'n', request_count, 1, 1 << 24, NULL, "N", "requests a consumer sends (200)"),
	RANGE(TIME, "duration", 'D', duration_s, 1, 86400, "s", "S", "pull for so long, whatever --requests says"),
	RANGE(NUMBER, "depth", 0, depth, 1, IB_DEPTH_MAX, NULL, "N", "requests in flight (1; --demo 6)"),
	RANGE(NUMBER, "siblings", 0, siblings, 1, IB_SIBLINGS_MAX, NULL, "N", "requests that share one prefill, n (1; --demo 4)"),
	OF(FLAG, "one-by-one", 0, one_by_one, NULL, "--depth requests are admitted, then pulled one after another"),
	OF(FLAG, "contiguous", 0, contiguous, NULL, "blocks of a request side by side, not scattered"),
	OF(FLAG, "sweep", 'a', sweep, NULL, "one run for 1, 2, 4 ... --count blocks a request"),
	{ .help = "Faults and delays" },
	RANGE(NUMBER, "rejects", 0, reject_percent, 0, 100, NULL, "PERCENT", "rejected before admission (0; --demo 20)"),
	RANGE(NUMBER, "aborts", 0, abort_percent, 0, 100, NULL, "PERCENT", "aborted while they load (0; --demo 10)"),
	RANGE(TIME, "lead", 0, lead_ms, 0, 60000, "ms", "MS", "from a request's admission to its pull (0)"),
	RANGE(TIME, "lease", 0, lease_ms, 10, 3600000, "ms", "MS", "of a hold (30s; --demo 2s)"),
	RANGE(TIME, "retry", 0, retry_s, 0, 3600, "s", "S", "how long to call a producer again that is gone (0)"),
	{ .help = "Engines and network" },
	OF(TEXT, "dir", 0, dir, "FOLDER", "socket folder to serve in (/tmp/kvpull-UID)"),
	RANGE(NUMBER, "port", 'p', port, 1, 65535, NULL, "PORT", "serve: also at this TCP port; HOST: its port (18515)"),
	OF(TEXT, "device", 'd', device, "NAME", "RDMA device (chosen)"),
	RANGE(NUMBER, "gid-index", 'x', gid_index, 0, 65534, NULL, "INDEX", "of its GID (chosen)"),
	RANGE(NUMBER, "tp", 0, tp_size, 1, ENGINE_RANKS_MAX, NULL, "N", "tensor parallel ranks of this side: 1, 2, 4, 8 (1)"),
	RANGE(NUMBER, "copy-threads", 0, copy_threads, 0, 16, NULL, "N", "copy workers (1)"),
	OF(FLAG, "thread", 0, thread, NULL, "a progress thread, as engines use it"),
	OF(FLAG, "spin", 0, spin, NULL, "a producer that polls and never sleeps"),
	OF(FLAG, "foreign", 0, foreign, NULL, "memory of the engine's own (process_vm_readv)"),
	{ .help = "With --trace" },
	OF(TEXT, "trace", 0, trace, "FILE", "replay requests; the manual lists the formats"),
	RANGE(REAL, "speed", 0, speed, 0.001, 1e6, NULL, "X", "so many of its seconds in one (1)"),
	RANGE(TIME, "token-us", 0, token_us, 0, 10000000, "us", "US", "that an output token takes (0)"),
	{ .help = "With --demo and --pool" },
	RANGE(NUMBER, "consumers", 0, consumers, 1, 15, NULL, "N", "consumers of --demo, readers of --pool (3)"),
	RANGE(NUMBER, "owners", 0, owners, 1, 15, NULL, "N", "owners of --pool (1)"),
	RANGE(NUMBER, "keys", 0, keys, 1, 1 << 24, NULL, "N", "different keys of --pool (16384)"),
	RANGE(REAL, "zipf", 0, zipf, 0, 10, NULL, "EXPONENT", "of how often a key is asked for (1)"),
	RANGE(NUMBER, "rate", 0, rate, 0, 1000000, NULL, "N", "requests that an owner computes a second (1000)"),
	{ .help = "Output" },
	OF(FLAG, "json", 0, json, NULL, "one JSON object instead of the table"),
	OF(TEXT, "report", 0, report, "FILE", "also write the results as an HTML page"),
	OF(FLAG, "histogram", 0, histogram, NULL, "how often a pull took how long"),
	RANGE(TIME, "interval", 0, interval_s, 1, 3600, "s", "S", "a line each so long (none)"),
	OF(FLAG, "verify", 0, verify, NULL, "compare every byte"),
	OF(FLAG, "verbose", 0, verbose, NULL, "log lines of the life cycle"),
};

static const struct cli_row usage[] = {
	{ "[options]", "serve" },
	{ "[options] FOLDER", "pull from who serves there (a path)" },
	{ "[options] HOST", "the same, on another machine, by RDMA" },
	{ NULL, NULL },
};

static const struct cli_row exits[] = {
	{ "0", "all was right, or a producer was ended by a signal" },
	{ "1", "something was wrong" },
	{ "2", "wrong options" },
	{ "128 + n", "ended by signal n: what was done so far is told" },
	{ NULL, NULL },
};
/* clang-format on */

static const struct cli cli = {
	.name = "ib_pull",
	.usage = usage,
	.options = rows,
	.option_count = sizeof(rows) / sizeof(rows[0]),
	.operand = &(const struct cli_option){ .argument = "FOLDER" },
	.exits = exits,
};

static int pull_once(const struct ib_options *options)
{
	struct ib_result result = { 0 };
	const int failed = ib_pull(options, &result);

	if (options->json || result.pulls || !failed) {
		ib_print_result(options, &result);
		if (options->report)
			ib_html_add(options, &result);
	}
	free(result.latencies);
	return failed;
}

/* Each size to its end; the first that fails ends the sweep. */
static int pull_sweep(const struct ib_options *options)
{
	struct ib_options one = *options;
	int failed = 0;

	ib_print_sweep_begin(options);
	for (one.request_blocks = 1;
	     !failed && one.request_blocks <= options->request_blocks;
	     one.request_blocks *= 2) {
		if (options->json && one.request_blocks > 1)
			printf(",\n");
		failed = pull_once(&one);
	}
	ib_print_sweep_end(options);
	return failed;
}

static int run(struct ib_options *options)
{
	static char dir[64];
	int failed;

	if (!options->dir) {
		(void)snprintf(dir, sizeof(dir), "/tmp/kvpull-%u",
			       (unsigned int)geteuid());
		options->dir = dir;
	}
	options->name =
		options->peer || options->release ? "consumer" : "producer";
	if (options->stats)
		return ib_print_stats(options);
	if (options->release)
		return ib_release(options);
	if (options->ticket)
		return ib_ticket(options);
	if (!options->peer) {
		failed = ib_serve(options);
		stop = 0; /* so it ends */
		return failed;
	}
	/* As many pulls as the percentiles are of. */
	if ((options->trace || options->duration_s) &&
	    options->request_count < TIMES_MIN)
		options->request_count = TIMES_MIN;
	if (!options->json)
		ib_print_header(options);
	(void)fflush(stdout);
	failed = options->sweep ? pull_sweep(options) : pull_once(options);
	return ib_html_write(options) || failed;
}

static uint32_t given(uint32_t value, uint32_t otherwise)
{
	return value == NOT_GIVEN ? otherwise : value;
}

static void defaults_take(struct ib_options *options)
{
	const uint32_t demo = options->demo;
	const uint32_t depth = options->trace ? IB_DEPTH_TRACE : 1;

	options->depth = given(options->depth, demo ? 6 : depth);
	options->siblings = given(options->siblings, demo ? 4 : 1);
	options->lease_ms = given(options->lease_ms, demo ? 2000 : 30000);
	options->reject_percent = given(options->reject_percent, demo ? 20 : 0);
	options->abort_percent = given(options->abort_percent, demo ? 10 : 0);
	options->thread |= demo;
	options->gid_index++;
}

/* CLI_GO, or the exit status. Only a folder has a slash. */
static int peer_take(struct ib_options *options)
{
	static struct cli_host host;

	if (strchr(options->peer, '/')) {
		options->dir = options->peer;
		return CLI_GO;
	}
	if (cli_host_parse(options->peer, &host))
		return wrong(CLI_HOST_WRONG, options->peer);
	options->host = host.name;
	if (host.number || !options->port)
		options->port = host.number ? host.number : IB_PORT;
	return CLI_GO;
}

/* Says the first rule that is broken; the later ones build on it. */
static int rules_check(const struct ib_options *options)
{
	const struct engine_shape *shape = &options->shape;
	const uint32_t count = options->request_blocks;
	const uint64_t blocks = (uint64_t)count * shape->group_count;
	const int is_plain = !options->demo && !options->pool;
	const int is_paged = !options->pool;
	const int asks = options->stats || options->ticket || options->release;
	const int is_alone = !options->peer;
	const struct {
		int is_broken;
		const char *text;
	} rules[] = {
		{ options->demo && (asks || !is_alone),
		  "--demo pulls from a producer of its own: it takes no --stats, --ticket, --release or operand" },
		{ options->sweep && (options->trace || options->histogram ||
				     options->interval_s || is_alone),
		  "--sweep pulls from a FOLDER or HOST; it takes no --trace, --histogram or --interval" },
		{ options->pool && (options->demo || asks || !is_alone),
		  "--pool has owners and readers of its own: it takes no --demo, --sweep, --stats, --ticket, --release or operand" },
		{ options->report && is_alone,
		  "--report pulls from a FOLDER or HOST" },
		{ options->trace && is_plain && is_alone,
		  "--trace pulls: name the FOLDER or HOST of who serves" },
		{ shape->block_bytes % (64 * ENGINE_HEADS) != 0,
		  "--size must be a multiple of 512" },
		{ options->pool && count > IB_PROBE_MAX,
		  "--count is at most 256 with --pool" },
		{ is_paged && shape->layer_count % shape->group_count != 0,
		  "--layers must be a multiple of --groups" },
		{ is_paged && ENGINE_HEADS % options->tp_size != 0,
		  "--tp must be 1, 2, 4 or 8" },
		{ is_paged && blocks > IB_BLOCKS_MAX,
		  "--count times --groups is at most 16384" },
		{ is_paged && !options->trace &&
			  blocks * (options->depth + 1) > shape->block_count,
		  "--blocks must hold --count times --groups times (--depth + 1) blocks" },
	};
	size_t at;

	for (at = 0; at < sizeof(rules) / sizeof(rules[0]); at++)
		if (rules[at].is_broken)
			return wrong("%s", rules[at].text);
	return CLI_GO;
}

/* CLI_GO, or the exit status. */
static int parse(int count, char **words, struct ib_options *options)
{
	int code = cli_parse(&cli, count, words, options);

	if (code != CLI_GO)
		return code;
	options->peer = words[optind];
	defaults_take(options);
	code = rules_check(options);
	if (code != CLI_GO || !options->peer)
		return code;
	if (words[optind + 1])
		return wrong("%s: one FOLDER or HOST is enough",
			     words[optind + 1]);
	return peer_take(options);
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
		.depth = NOT_GIVEN,
		.siblings = NOT_GIVEN,
		.consumers = 3,
		.owners = 1,
		.keys = 16384,
		.rate = 1000,
		.zipf = 1,
		.copy_threads = 1,
		.lease_ms = NOT_GIVEN,
		.reject_percent = NOT_GIVEN,
		.abort_percent = NOT_GIVEN,
		.gid_index = NOT_GIVEN,
		.tp_size = 1,
		.seed = 1,
		.speed = 1,
		.stop = &stop,
	};
	int code;

	output_begin();
	code = parse(count, words, &options);
	if (code != CLI_GO)
		return code;
	signals_take();
	code = output_end(options.demo ? ib_demo(&options) :
			  options.pool ? ib_pool(&options) :
					 run(&options));
	return stop ? SIGNAL_STATUS + stop : code;
}
