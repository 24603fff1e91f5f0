/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ib_pull: benchmark and demo of kvpull over the connector ABI.
 * No peer: serve. A peer's socket folder: pull from it. --demo: both.
 */
#include "tools/ib_pull_parts.h"
#include "tools/output.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#define wrong(...)                                                             \
	output_wrong("ib_pull [options] [FOLDER | HOST]", __VA_ARGS__)

#define TIMES_MIN (1u << 18)
#define STOP_AGAIN_NS UINT64_C(500000000)
#define SIGNAL_STATUS 128    /* and its number, as shells say */
#define NOT_GIVEN UINT32_MAX /* an option whose default --demo has its own of */

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

enum {
	OPTION_FIRST = 256
};

enum option_kind {
	NUMBER, /* to a uint32_t */
	FLAG,   /* likewise, without a value */
	TEXT,   /* to a const char * */
	OTHER   /* in other_take() */
};

static const struct option_row {
	const char *name;
	const char *meaning; /* NULL: the usage line says it */
	size_t offset;       /* in struct ib_options */
	uint32_t least, most;
	enum option_kind kind;
} rows[] = {
#define ROW(name, member, least, most, meaning)                                \
	{                                                                      \
		name, meaning, offsetof(struct ib_options, member), least,     \
			most, NUMBER                                           \
	}
#define OF(kind, name, member, meaning)                                        \
	{                                                                      \
		name, meaning, offsetof(struct ib_options, member), 0, 1, kind \
	}
	ROW("size", shape.block_bytes, 64, 1u << 30,
	    "bytes of a block in a layer, all ranks (16384)"),
	ROW("count", request_blocks, 1, IB_BLOCKS_MAX,
	    "blocks a request and group (128)"),
	ROW("layers", shape.layer_count, 1, 512, "layers over all groups (4)"),
	ROW("groups", shape.group_count, 1, KVPULL_GROUPS_MAX,
	    "block groups (1)"),
	ROW("blocks", shape.block_count, 1, 1u << 24,
	    "blocks in each pool; chunks of an owner (4096)"),
	ROW("requests", request_count, 1, 1u << 24,
	    "requests a consumer sends (200)"),
	ROW("depth", depth, 1, IB_DEPTH_MAX,
	    "requests in flight (1; --demo 6)"),
	ROW("siblings", siblings, 1, IB_SIBLINGS_MAX,
	    "requests that share one prefill, n (1; --demo 4)"),
	ROW("consumers", consumers, 1, 15,
	    "consumers of --demo, readers of --pool (3)"),
	ROW("owners", owners, 1, 15, "owners of --pool (1)"),
	ROW("keys", keys, 1, 1u << 24, "with --pool: different keys (16384)"),
	ROW("rate", rate, 0, 1000000,
	    "with --pool: requests that an owner computes a second (1000)"),
	ROW("copy-threads", copy_threads, 0, 16, "copy workers (1)"),
	ROW("lease", lease_ms, 10, 3600000, "lease, ms (30000; --demo 2000)"),
	ROW("rejects", reject_percent, 0, 100,
	    "percent rejected before admission (0; --demo 20)"),
	ROW("aborts", abort_percent, 0, 100,
	    "percent aborted while they load (0; --demo 10)"),
	ROW("token-us", token_us, 0, 10000000,
	    "with --trace: us that an output token takes (0)"),
	ROW("tp", tp_size, 1, ENGINE_RANKS_MAX,
	    "tensor parallel ranks of this side: 1, 2, 4, 8 (1)"),
	ROW("port", port, 1, 65535,
	    "serve: also at this TCP port; HOST: its port (18515)"),
	ROW("retry", retry_s, 0, 3600,
	    "seconds to call a producer again that is gone (0)"),
	ROW("duration", duration_s, 1, 86400,
	    "pull for so many seconds, whatever --requests says"),
	ROW("interval", interval_s, 1, 3600,
	    "a line each so many seconds (none)"),
	ROW("lead", lead_ms, 0, 60000,
	    "from a request's admission to its pull, ms (0)"),
	OF(FLAG, "pool", pool,
	   "owners share chunks by content, readers ask nobody"),
	OF(FLAG, "one-by-one", one_by_one,
	   "--depth requests are admitted, then pulled one after another"),
	OF(FLAG, "stats", stats,
	   "print the producer's counters, and pull nothing"),
	OF(FLAG, "ticket", ticket,
	   "ask for one prefill, print its ticket, and pull nothing"),
	OF(FLAG, "verify", verify, "compare every byte"),
	OF(FLAG, "thread", thread, "a progress thread, as engines use it"),
	OF(FLAG, "spin", spin, "a producer that polls and never sleeps"),
	OF(FLAG, "foreign", foreign,
	   "memory of the engine's own (process_vm_readv)"),
	OF(FLAG, "contiguous", contiguous,
	   "blocks of a request side by side, not scattered"),
	OF(FLAG, "sweep", sweep,
	   "one run for 1, 2, 4 ... --count blocks a request"),
	OF(FLAG, "histogram", histogram, "how often a pull took how long"),
	OF(FLAG, "json", json, "one JSON object instead of the table"),
	OF(FLAG, "verbose", verbose, "log lines of the life cycle"),
	OF(FLAG, "demo", demo, NULL),
	OF(TEXT, "dir", dir, "socket folder to serve in (/tmp/kvpull-UID)"),
	OF(TEXT, "device", device, "RDMA device (chosen)"),
	OF(OTHER, "gid-index", gid_index, "index of its GID (chosen)"),
	OF(TEXT, "trace", trace,
	   "replay a file of requests; the manual lists the formats"),
	OF(OTHER, "speed", speed,
	   "with --trace: so many of its seconds in one (1)"),
	OF(OTHER, "model", shape,
	   "--size and --layers of llama-3-70b, qwen3-8b or deepseek-v3"),
	OF(OTHER, "zipf", zipf,
	   "with --pool: exponent of how often a key is asked for (1)"),
	OF(TEXT, "release", release,
	   "give a ticket back unread: its text, @file or - for stdin"),
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

enum {
	OPTION_HELP = OPTION_FIRST + ROWS,
	OPTION_VERSION
};

static void usage(void)
{
	size_t index;

	printf("usage: ib_pull [options]          serve\n"
	       "       ib_pull [options] FOLDER   pull from who serves there (a path)\n"
	       "       ib_pull [options] HOST     the same, on another machine, by RDMA\n"
	       "       ib_pull --demo             both, with rejects, aborts and a kill\n"
	       "       ib_pull --pool             a pool of chunks: owners, and who reads them\n\n");
	for (index = 0; index < ROWS; index++)
		if (rows[index].meaning)
			printf("  --%-14s %s\n", rows[index].name,
			       rows[index].meaning);
	printf("  --%-14s this text\n  --%-14s version\n"
	       "as in perftest: -a sweep -d device -x gid-index -p port -s size\n"
	       "               -n requests -D duration -h help\n"
	       "exit: 0 right, 1 something was wrong, 2 usage, 128 + n ended by signal n\n",
	       "help", "version");
}

static int number_take(uint32_t *to, const struct option_row *row,
		       const char *text)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 0);
	/* A sign is no number's here, though strtoul() takes it. */
	if (errno || !isdigit((unsigned char)*text) || *end ||
	    value < row->least || value > row->most)
		return wrong("--%s %s: a number from %u to %u is needed",
			     row->name, text, row->least, row->most);
	*to = (uint32_t)value;
	return 0;
}

static int shape_check(const struct ib_options *options)
{
	const struct engine_shape *shape = &options->shape;
	const char *why = NULL;

	if (shape->block_bytes % (64 * ENGINE_HEADS))
		why = "--size must be a multiple of 512";
	else if (options->pool)
		why = options->request_blocks > IB_PROBE_MAX ?
			      "--count is at most 256 with --pool" :
			      NULL;
	else if (shape->layer_count % shape->group_count)
		why = "--layers must be a multiple of --groups";
	else if (ENGINE_HEADS % options->tp_size)
		why = "--tp must be 1, 2, 4 or 8";
	else if (options->request_blocks > IB_BLOCKS_MAX / shape->group_count)
		why = "--count times --groups is at most 16384";
	else if (!options->trace && (uint64_t)options->request_blocks *
						    shape->group_count *
						    (options->depth + 1) >
					    shape->block_count)
		why = "--blocks must hold --count times --groups times (--depth + 1) blocks";
	return why ? wrong("%s", why) : 0;
}

static int pull_once(const struct ib_options *options)
{
	struct ib_result result = { 0 };
	const int failed = ib_pull(options, &result);

	if (options->json || result.pulls || !failed)
		ib_print_result(options, &result);
	free(result.latencies);
	free(result.phases);
	free(result.releases);
	free(result.late);
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

static int run(struct ib_options *options, const char *peer)
{
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
	options->name = peer || options->release ? "consumer" : "producer";
	if (options->stats)
		return ib_print_stats(options);
	if (options->release)
		return ib_release(options);
	if (options->ticket)
		return ib_ticket(options);
	if (!peer) {
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
	return options->sweep ? pull_sweep(options) : pull_once(options);
}

/* perftest's letters. */
static int long_of(const struct option *longs, int letter)
{
	static const char *const names[] = {
		['a'] = "sweep",     ['h'] = "help",     ['d'] = "device",
		['x'] = "gid-index", ['p'] = "port",     ['s'] = "size",
		['n'] = "requests",  ['D'] = "duration",
	};

	if ((size_t)letter >= sizeof(names) / sizeof(*names) || !names[letter])
		return letter;
	while (strcmp(longs->name, names[letter]) != 0)
		longs++;
	return longs->val;
}

static int gid_take(struct ib_options *options, const char *text)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || !isdigit((unsigned char)*text) || *end || value > 65534)
		return wrong(
			"--gid-index %s: a number from 0 to 65534 is needed",
			text);
	options->gid_index = (uint32_t)value + 1;
	return 0;
}

static int real_take(double *value, const char *name, double least, double most,
		     const char *text)
{
	char *end;

	*value = strtod(text, &end);
	if (!isdigit((unsigned char)*text) || *end ||
	    !(*value >= least && *value <= most))
		return wrong("--%s %s: a number from %.10g to %.10g is needed",
			     name, text, least, most);
	return 0;
}

/*
 * A layer's bytes of 16 tokens, from the models' configurations: key and value
 * of 8 heads x 128 x bfloat16; MLA's 512 + 64 values of one head.
 */
static int model_take(struct ib_options *options, const char *text)
{
	static const struct {
		const char *name;
		uint32_t block_bytes, layer_count;
	} models[] = {
		{ "llama-3-70b", 16 * 2 * 8 * 128 * 2, 80 },
		{ "qwen3-8b", 16 * 2 * 8 * 128 * 2, 36 },
		{ "deepseek-v3", 16 * (512 + 64) * 2, 61 },
	};
	size_t index;

	for (index = 0; index < sizeof(models) / sizeof(*models); index++)
		if (!strcmp(text, models[index].name)) {
			options->shape.block_bytes = models[index].block_bytes;
			options->shape.layer_count = models[index].layer_count;
			return 0;
		}
	return wrong(
		"--model %s: llama-3-70b, qwen3-8b and deepseek-v3 are known; --size and --layers describe others",
		text);
}

static int other_take(struct ib_options *options, const char *name,
		      const char *text)
{
	if (!strcmp(name, "speed"))
		return real_take(&options->speed, name, 0.001, 1e6, text);
	if (!strcmp(name, "zipf"))
		return real_take(&options->zipf, name, 0, 10, text);
	if (!strcmp(name, "model"))
		return model_take(options, text);
	return gid_take(options, text);
}

/* 0, or 2 and said why not. */
static int row_take(struct ib_options *options, const struct option_row *row,
		    const char *text)
{
	void *to = (char *)options + row->offset;

	switch (row->kind) {
	case NUMBER:
		return number_take(to, row, text);
	case FLAG:
		*(uint32_t *)to = 1;
		return 0;
	case TEXT:
		*(const char **)to = text;
		return 0;
	default:
		return other_take(options, row->name, text);
	}
}

/* getopt's: in our words, and below our line. */
static int unknown_say(char *const *words, int option)
{
	const char *what = option == ':'          ? "needs a value" :
			   optopt >= OPTION_FIRST ? "takes no value" :
						    "is no option";

	if (optopt && optopt < OPTION_FIRST)
		return wrong("-%c %s", optopt, what);
	return wrong("%s %s", words[optind - 1], what);
}

static void default_take(uint32_t *value, uint32_t otherwise)
{
	if (*value == NOT_GIVEN)
		*value = otherwise;
}

static void defaults_take(struct ib_options *options)
{
	const uint32_t demo = options->demo;

	default_take(&options->depth, demo           ? 6 :
				      options->trace ? IB_DEPTH_TRACE :
						       1);
	default_take(&options->siblings, demo ? 4 : 1);
	default_take(&options->lease_ms, demo ? 2000 : 30000);
	default_take(&options->reject_percent, demo ? 20 : 0);
	default_take(&options->abort_percent, demo ? 10 : 0);
	options->thread |= demo;
}

static int parse(int count, char **words, struct ib_options *options)
{
	struct option longs[ROWS + 3] = { { 0 } };
	size_t row;
	int option;
	int code = 0;

	for (row = 0; row < ROWS; row++)
		longs[row] =
			(struct option){ rows[row].name, rows[row].kind != FLAG,
					 NULL, OPTION_FIRST + (int)row };
	longs[ROWS] = (struct option){ "help", 0, NULL, OPTION_HELP };
	longs[ROWS + 1] = (struct option){ "version", 0, NULL, OPTION_VERSION };
	opterr = 0;
	while (!code && (option = getopt_long(count, words, ":ad:hx:p:s:n:D:",
					      longs, NULL)) != -1) {
		option = long_of(longs, option);
		if (option < OPTION_FIRST)
			code = unknown_say(words, option);
		else if (option >= OPTION_HELP)
			code = option;
		else
			code = row_take(options, &rows[option - OPTION_FIRST],
					optarg);
	}
	if (code)
		return code;
	defaults_take(options);
	if (options->demo && (options->stats || options->ticket ||
			      options->release || count > optind))
		return wrong(
			"--demo pulls from a producer of its own: it takes no --stats, --ticket, --release or operand");
	if (options->sweep &&
	    (options->trace || options->histogram || options->interval_s ||
	     options->demo || count == optind))
		return wrong(
			"--sweep pulls from a FOLDER or HOST; it takes no --trace, --histogram or --interval");
	if (options->pool &&
	    (options->demo || options->sweep || options->stats ||
	     options->ticket || options->release || count > optind))
		return wrong(
			"--pool has owners and readers of its own: it takes no --demo, --sweep, --stats, --ticket, --release or operand");
	if (options->trace && !options->demo && !options->pool &&
	    count == optind)
		return wrong(
			"--trace pulls: name the FOLDER or HOST of who serves");
	if (count - optind > 1)
		return wrong("%s: one FOLDER or HOST is enough",
			     words[optind + 1]);
	return shape_check(options);
}

static int work(struct ib_options *options, const char *peer)
{
	int failed;

	signals_take();
	failed = output_end(options->demo ? ib_demo(options) :
			    options->pool ? ib_pool(options) :
					    run(options, peer));
	return stop ? SIGNAL_STATUS + stop : failed;
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
		.tp_size = 1,
		.seed = 1,
		.speed = 1,
		.stop = &stop,
	};
	int code;

	output_begin();
	code = parse(count, words, &options);
	if (code == OPTION_HELP || code == OPTION_VERSION) {
		if (code == OPTION_HELP)
			usage();
		else
			printf("ib_pull %s\n", KVPULL_VERSION);
		return output_end(0);
	}
	if (code)
		return code;
	return work(&options, optind < count ? words[optind] : NULL);
}
