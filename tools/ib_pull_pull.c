/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's run: asks for prefills, one after another or as a trace's
 * requests arrive, steps its engine until all have ended, and waits for its
 * releases to go out.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ib_pull_consumer.h"

#define DRAIN_NS UINT64_C(10000000000)
#define SETTLE_NS UINT64_C(100000000)
#define SPIN_POLLS 64u /* between two steps */

/* 1 if work was done, 0 if not, negative on error. */
static int step(struct consumer *consumer)
{
	struct engine_event event;
	const uint32_t loading = consumer->loading;
	int worked = 0;
	int code;

	ib_requests_run(consumer);
	/* Pulls start in this step, not before. */
	if (consumer->loading > loading)
		consumer->times.load_ns = engine_now_ns();
	code = engine_step(&consumer->engine);
	if (code) {
		fprintf(stderr, "consumer: %s\n",
			consumer->engine.ops->error_text(code));
		return code;
	}
	while (engine_event(&consumer->engine, &event)) {
		ib_request_ended(consumer, &event);
		worked = 1;
	}
	ib_times_look(&consumer->times, &consumer->engine, consumer->result);
	return worked;
}

/* Was all asked for that this run is to ask for? */
static int is_asked(const struct consumer *consumer)
{
	const uint64_t duration_ns =
		consumer->options->duration_s * KVPULL_NS_PER_S;

	return consumer->asked >= consumer->ask_count ||
	       (duration_ns &&
		engine_now_ns() - consumer->begun_ns >= duration_ns);
}

/* When the trace's next request is to be sent. */
static uint64_t arrival_ns(const struct consumer *consumer)
{
	const double at_s = consumer->trace.arrivals[consumer->asked].at_s;
	const double after_ns = at_s / consumer->options->speed * 1e9;

	/* 73 years: as good as never, and more is no number of nanoseconds. */
	return consumer->begun_ns +
	       (uint64_t)(after_ns < 0x1p61 ? after_ns : 0x1p61);
}

/*
 * Is another request to be sent now? With a trace, when it arrives. With
 * --one-by-one in rounds of --depth requests: admitted first, and claimed by
 * their producer's time, then pulled one after another, as ib_read_lat reads. A
 * round that is not full begins when no further request is to come.
 */
static int wants_more(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	/* Each request counts towards the depth, and one family fits into any depth. */
	const int is_full = consumer->live &&
			    consumer->live + options->siblings > options->depth;
	const int is_over = is_full || is_asked(consumer);

	if (!consumer->live)
		consumer->in_turn = 0;
	if (is_over)
		consumer->in_turn = 1;
	if (is_over || (options->one_by_one && consumer->in_turn))
		return 0;
	return !options->trace || engine_now_ns() >= arrival_ns(consumer);
}

static int send_next(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	struct ib_result *result = consumer->result;
	const struct ib_arrival plain = {
		.prompt_tokens =
			options->request_blocks * options->shape.block_tokens,
		.siblings = options->siblings,
	};
	const uint32_t asked = consumer->asked;
	uint64_t late_ns;
	int failed;

	if (!options->trace)
		return ib_request_admit(consumer, &plain);
	late_ns = engine_now_ns() - arrival_ns(consumer);
	failed = ib_request_admit(consumer, &consumer->trace.arrivals[asked]);
	if (consumer->asked > asked)
		result->late[result->late_count++ % options->request_count] =
			late_ns;
	return failed;
}

/* A line each second, over the one before. */
static void progress_show(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	char all[32] = "";

	if (!consumer->is_watched ||
	    !kvpull_second_passed(&consumer->shown_ns, engine_now_ns()))
		return;
	if (consumer->ask_count != UINT32_MAX)
		(void)snprintf(all, sizeof(all), " of %u", consumer->ask_count);
	fprintf(stderr, "\r%s: %u%s requests, %llu pulls, %llu failed ",
		options->name, consumer->asked, all, consumer->result->loaded,
		consumer->result->failed);
}

/*
 * An engine that has nothing else to do sleeps until something ended. Without
 * a thread nobody else reads from the network for us: spin, and ask for no
 * wake-up, which costs each poll.
 */
static void idle(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	/*
	 * Nothing wakes us when one of these is due, or connected. Only requests
	 * of a trace decode.
	 */
	const int is_timed = options->trace || options->lead_ms ||
			     consumer->leaving || consumer->times.asked_ns;
	struct pollfd waits[ENGINE_RANKS_MAX] = { 0 };

	if (!options->host || options->thread)
		(void)poll(waits, engine_waits(&consumer->engine, waits),
			   engine_has_step(&consumer->engine) ? 0 :
			   is_timed                           ? 1 :
								ENGINE_WAIT_MS);
	else if (consumer->loading)
		(void)ib_engine_spin(&consumer->engine, SPIN_POLLS);
	else if (!consumer->times.asked_ns)
		ib_nap(200000);
}

static int timed_step(struct consumer *consumer, uint64_t begun_ns)
{
	struct ib_result *result = consumer->result;
	const uint64_t aside_ns = consumer->aside_ns;
	const int worked = step(consumer);

	if (!worked && (consumer->loading || consumer->options->trace ||
			consumer->options->lead_ms))
		idle(consumer);
	if (consumer->loading || worked)
		result->elapsed_ns += engine_now_ns() - begun_ns -
				      (consumer->aside_ns - aside_ns);
	/* The first pull connects: its time is told apart. */
	if (worked && !consumer->is_warm) {
		consumer->is_warm = 1;
		result->bytes_timed = result->took_ns = result->elapsed_ns = 0;
	}
	return worked;
}

static uint64_t left_of(const struct engine *engine)
{
	return engine_count(engine, "pulls_live") +
	       engine_count(engine, "releases_queued");
}

/*
 * Pulls go one at a time: the producer's work at the end of a pull must not
 * count in the next one.
 */
static void settle(struct consumer *consumer)
{
	const uint64_t until_ns = engine_now_ns() + SETTLE_NS;

	while (consumer->times.ended_ns && left_of(&consumer->engine) &&
	       engine_now_ns() < until_ns) {
		(void)step(consumer);
		ib_nap(100000);
	}
}

static int run(struct consumer *consumer)
{
	while (!*consumer->options->stop &&
	       (!is_asked(consumer) || consumer->live)) {
		/* A prefill that is asked for while others load costs them. */
		const uint64_t asked_ns =
			consumer->loading ? engine_now_ns() : 0;
		int worked;

		if (wants_more(consumer)) {
			settle(consumer);
			if (send_next(consumer))
				return 1;
		}
		worked = timed_step(consumer,
				    asked_ns ? asked_ns : engine_now_ns());
		if (worked < 0)
			return 1;
		if (consumer->options->interval_s)
			ib_print_interval(consumer->options, consumer->result,
					  consumer->begun_ns,
					  &consumer->printed);
		else
			progress_show(consumer);
	}
	return *consumer->options->stop != 0;
}

static uint64_t ended_of(const struct ib_answer *stats)
{
	return stats->holds_released + stats->holds_expired +
	       stats->holds_revoked;
}

/* How long the producer's blocks were taken; an older one does not count it. */
static void held_take(struct consumer *consumer)
{
	const struct ib_answer *before = &consumer->before;
	struct ib_answer after;

	if (ib_ask_stats(consumer->options, &after) ||
	    after.held_block_us <= before->held_block_us)
		return;
	consumer->result->held_block_us =
		after.held_block_us - before->held_block_us;
	consumer->result->holds_ended = ended_of(&after) - ended_of(before);
}

/* Until the releases went out; what is left after that is a fault. */
static void drain(struct consumer *consumer)
{
	struct engine *engine = &consumer->engine;
	const uint64_t until_ns = engine_now_ns() + DRAIN_NS;
	struct ib_result *result = consumer->result;

	do {
		(void)step(consumer);
		result->tables_left =
			left_of(engine) + (uint64_t)engine_has_step(engine);
	} while (result->tables_left && engine_now_ns() < until_ns &&
		 !*consumer->options->stop);
	ib_prefix_close(&consumer->prefix);
	if (engine->free_count != engine->shape.block_count)
		result->tables_left++;
	if (consumer->options->trace)
		held_take(consumer);
	result->double_reports = engine->double_reports;
}

/* Both pools hold the largest request; 0, or why not was said. */
static int room_check(const struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	const struct ib_trace *trace = &consumer->trace;
	const struct {
		uint64_t blocks;
		const char *before, *behind;
	} rooms[] = {
		{ IB_BLOCKS_MAX, "at most", " can be asked for" },
		{ options->shape.block_count, "the pool has",
		  ": raise --blocks" },
		{ consumer->call.pool_blocks, "the producer's pool has",
		  ": raise --blocks there" },
	};
	char where[48] = "";
	uint64_t blocks = options->request_blocks;
	size_t at;

	if (trace->count) {
		blocks = ib_blocks_of(options, trace->prompt_tokens_max);
		(void)snprintf(where, sizeof(where),
			       "trace: line %u: ", trace->prompt_line);
	}
	blocks *= options->shape.group_count;
	for (at = 0; at < sizeof(rooms) / sizeof(rooms[0]); at++) {
		if (blocks <= rooms[at].blocks)
			continue;
		fprintf(stderr, "%sa request needs %llu blocks, %s %llu%s\n",
			where, (unsigned long long)blocks, rooms[at].before,
			(unsigned long long)rooms[at].blocks, rooms[at].behind);
		return 1;
	}
	return 0;
}

static int no_memory_say(const struct ib_options *options)
{
	fprintf(stderr, "%s: out of memory\n", options->name);
	return 1;
}

static int consumer_open(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	struct ib_result *result = consumer->result;
	const uint32_t count = options->request_count;
	uint64_t copy_bytes;

	consumer->is_watched = !options->quiet && isatty(STDERR_FILENO);
	consumer->request_max = options->depth + IB_SIBLINGS_MAX;
	consumer->requests =
		calloc(consumer->request_max, sizeof(*consumer->requests));
	result->latencies =
		calloc(count, (3 + ENGINE_PHASES) * sizeof(uint64_t));
	if (!consumer->requests || !result->latencies)
		return no_memory_say(options);
	result->releases = result->latencies + count;
	result->late = result->releases + count;
	result->phases = result->late + count;
	if (ib_call_open(&consumer->call, options) || room_check(consumer) ||
	    ib_engine_open(options, &consumer->engine) ||
	    ib_prefix_open(&consumer->prefix, &consumer->engine,
			   IB_CHUNK_TOKENS / options->shape.block_tokens))
		return 1;
	if (options->trace)
		(void)ib_ask_stats(options, &consumer->before);
	copy_bytes = 2 * consumer->engine.memory_bytes;
	consumer->copy = malloc(copy_bytes);
	if (!consumer->copy)
		return no_memory_say(options);
	memset(consumer->copy, 1, copy_bytes);
	consumer->begun_ns = consumer->shown_ns = engine_now_ns();
	return 0;
}

/* 1, and why: a run that moved nothing proves nothing. */
static int nothing_say(const struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	const uint32_t percent =
		options->reject_percent + options->abort_percent;
	const char *why = "";

	if (options->trace ? consumer->trace.count :
			     consumer->result->loaded || percent >= 100)
		return 0;
	if (options->trace)
		why = ": the trace has no request";
	else if (options->host && !consumer->result->routes[0])
		why = ": no route to the producer; on one machine give both the same --dir, between two see `kvpull_doctor --route verbs` on both";
	fprintf(stderr, "nothing was pulled%s\n", why);
	return 1;
}

int ib_pull(const struct ib_options *options, struct ib_result *result)
{
	struct consumer consumer = {
		.options = options,
		.result = result,
		.ask_count = options->duration_s ? UINT32_MAX :
						   options->request_count,
		.is_warm = options->depth > 1 || options->request_count == 1,
		.random = options->seed * 2 + 88172645463325253u,
		.call = { .control = -1 },
		.times = { .wanted = 1, .host = ib_times_host() },
	};
	int failed;

	if (options->trace && ib_trace_read(options->trace, &consumer.trace))
		return 1;
	if (options->trace)
		consumer.ask_count = consumer.trace.count;
	failed = consumer_open(&consumer);
	if (!failed) {
		failed = run(&consumer);
		ib_times_routes(&consumer.engine, result);
	}
	if (!failed)
		drain(&consumer);
	if (consumer.shown_ns != consumer.begun_ns)
		fprintf(stderr, "\n");
	if (*options->stop)
		fprintf(stderr, "ended by a signal: what was done so far\n");
	result->done = !failed;
	failed = failed || nothing_say(&consumer);
	ib_prefix_close(&consumer.prefix);
	if (consumer.engine.ops)
		engine_close(&consumer.engine);
	ib_call_close(&consumer.call);
	ib_trace_free(&consumer.trace);
	free(consumer.copy);
	free(consumer.requests);
	return failed || result->bytes_wrong || result->tables_left ||
	       result->double_reports;
}
