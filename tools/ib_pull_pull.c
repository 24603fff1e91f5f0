/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer: asks for prefills, claims their tickets, takes local blocks,
 * pulls, compares every byte, finishes. Requests are rejected before admission
 * or aborted while they load as the options say. After each pull the same
 * number of bytes is copied by memcpy inside this process: the yardstick of
 * the same run.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/ib_pull.h"

#define DRAIN_NS UINT64_C(10000000000)
#define PROGRESS_NS UINT64_C(1000000000)
#define SETTLE_NS UINT64_C(100000000)
#define SPIN_POLLS 64u /* between two steps */

enum request_state {
	REQUEST_FREE = 0,
	REQUEST_WAITING, /* matched_tokens is asked each step, after its lead */
	REQUEST_LOADING,
	REQUEST_ABORTED, /* loading, and the client went away */
	REQUEST_DECODING /* of a trace: its blocks stay taken */
};

struct request {
	uint64_t key;
	uint64_t seed;
	uint64_t until_ns; /* of its lead, of decoding; its client's leaving */
	uint32_t output_tokens;
	uint32_t is_left; /* its client goes away; LOADING: at until_ns */
	uint32_t state;
	uint32_t blocks; /* a group */
	uint32_t *ids;   /* [blocks * groups], taken while loading */
	uint8_t digest[KVPULL_DIGEST_BYTES];
};

struct consumer {
	const struct ib_options *options;
	struct ib_result *result;
	struct engine engine;
	struct request *requests; /* [depth * siblings] */
	uint32_t request_max;
	uint32_t live;
	uint32_t in_turn;      /* a round's requests are all admitted */
	uint32_t decoding;     /* they end at until_ns */
	uint32_t leaving;      /* of those that load, at the last step */
	uint64_t load_took_ns; /* the last one */
	uint32_t asked;
	uint64_t random;
	struct ib_call call;
	uint32_t is_warm;
	uint32_t is_watched; /* somebody sees the progress */
	uint32_t is_shown;   /* a line of it stands there */
	FILE *trace;
	uint64_t trace_start_ns;
	uint32_t trace_is_bad; /* it ended at a line that cannot be read */
	struct ib_arrival arrival;
	uint32_t arrival_waits;
	uint8_t *copy_from, *copy_to;
	uint64_t copy_bytes;
	uint32_t loading;
	uint64_t aside_ns; /* in checks and copies, not in pulls */
	struct ib_times times;
};

static uint64_t next_random(struct consumer *consumer)
{
	consumer->random ^= consumer->random << 13;
	consumer->random ^= consumer->random >> 7;
	consumer->random ^= consumer->random << 17;
	return consumer->random;
}

static void admit_one(struct consumer *consumer, const struct ib_ask *what,
		      const struct ib_answer *answer)
{
	struct engine *engine = &consumer->engine;
	struct request *request = consumer->requests;
	struct kvpull_request params = {
		.struct_size = sizeof(params),
		.key = engine->next_key++,
		.ticket = consumer->call.message + sizeof(*answer),
		.ticket_bytes = answer->ticket_bytes,
		.prompt_tokens = what->blocks * engine->shape.block_tokens,
		.flags = KVPULL_REQUEST_PULL,
	};

	while (request->state != REQUEST_FREE)
		request++;
	memcpy(params.prompt_digest, &answer->seed, sizeof(answer->seed));
	if (engine->ops->scheduler->request_new(engine->scheduler, &params)) {
		consumer->result->failed++;
		return;
	}
	request->key = params.key;
	request->seed = answer->seed;
	request->blocks = what->blocks;
	request->output_tokens = consumer->arrival.output_tokens;
	request->is_left = consumer->arrival.abort;
	request->until_ns =
		consumer->options->lead_ms ?
			engine_now_ns() +
				consumer->options->lead_ms * UINT64_C(1000000) :
			0;
	request->state = REQUEST_WAITING;
	consumer->live++;
}

/* One ticket: all of its siblings are admitted, or it is rejected. */
static int admit(struct consumer *consumer, uint32_t blocks, uint32_t siblings)
{
	struct engine *engine = &consumer->engine;
	struct ib_call *call = &consumer->call;
	const struct ib_ask what = {
		.kind = IB_ASK_PREFILL,
		.blocks = blocks,
		.siblings = siblings,
	};
	struct ib_answer answer;
	uint32_t index;

	if (call->control < 0 || ib_call_ask(call, &what, &answer)) {
		consumer->times.wanted = 1;
		return ib_call_again(call);
	}
	if (answer.code == KVPULL_EFULL) {
		/* It has no room: ask again, when what it holds was pulled. */
		consumer->in_turn = consumer->live != 0;
		if (!consumer->live)
			ib_call_full(call);
		return 0;
	}
	call->full_ns = 0;
	if (answer.code) {
		fprintf(stderr, "prefill: %s\n",
			engine->ops->error_text(answer.code));
		return 1;
	}
	consumer->asked++;
	consumer->arrival_waits = 0;
	ib_times_answer(&consumer->times, &answer, consumer->result,
			consumer->options->request_count);
	if (next_random(consumer) % 100 < consumer->options->reject_percent) {
		consumer->result->rejected++;
		return engine->ops->scheduler->request_rejected(
			       engine->scheduler,
			       call->message + sizeof(answer),
			       answer.ticket_bytes) != 0;
	}
	ib_times_ticket(&consumer->times);
	for (index = 0; index < siblings; index++)
		admit_one(consumer, &what, &answer);
	return 0;
}

static void request_end(struct consumer *consumer, struct request *request,
			uint32_t reason)
{
	struct engine *engine = &consumer->engine;
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = request->key,
		.reason = reason,
	};

	(void)engine->ops->scheduler->request_finished(engine->scheduler,
						       &finish);
}

static void request_free(struct consumer *consumer, struct request *request)
{
	if (request->ids)
		engine_blocks_give(&consumer->engine, request->ids,
				   request->blocks *
					   consumer->engine.shape.group_count);
	free(request->ids);
	request->ids = NULL;
	request->state = REQUEST_FREE;
	consumer->live--;
}

static void leave(struct consumer *consumer, struct request *request)
{
	request_end(consumer, request, KVPULL_FINISH_ABORT);
	request->state = REQUEST_ABORTED;
}

/* A trace's at once; others so, too, or within twice what the last load took. */
static void leave_some(struct consumer *consumer, struct request *request)
{
	const uint32_t percent = consumer->options->abort_percent;
	const uint64_t wait_ns = 2 * consumer->load_took_ns + 1;

	if (!request->is_left && next_random(consumer) % 100 >= percent)
		return;
	if (request->is_left || next_random(consumer) % 2) {
		leave(consumer, request);
		return;
	}
	request->is_left = 1;
	request->until_ns =
		consumer->times.load_ns + next_random(consumer) % wait_ns;
	consumer->leaving++;
}

static void leave_due(struct consumer *consumer, struct request *request)
{
	if (engine_now_ns() >= request->until_ns)
		leave(consumer, request);
	else
		consumer->leaving++;
}

static void load(struct consumer *consumer, struct request *request)
{
	struct engine *engine = &consumer->engine;
	const uint32_t groups = engine->shape.group_count;
	struct kvpull_blocks blocks[KVPULL_GROUPS_MAX];
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = request->key,
		.external_tokens = request->blocks * engine->shape.block_tokens,
		.group_count = groups,
		.groups = blocks,
		.group_bytes = sizeof(*blocks),
	};
	uint32_t group;

	request->ids = malloc(request->blocks * groups * sizeof(uint32_t));
	if (!request->ids || engine_blocks_take(engine, request->ids,
						request->blocks * groups)) {
		free(request->ids); /* no room now: asked again */
		request->ids = NULL;
		return;
	}
	for (group = 0; group < groups; group++)
		blocks[group] = (struct kvpull_blocks){
			.block_count = request->blocks,
			.block_ids = request->ids + group * request->blocks,
		};
	(void)engine->ops->scheduler->allocated(engine->scheduler, &allocation);
	consumer->times.load_ns = engine_now_ns();
	request->state = REQUEST_LOADING;
	consumer->loading++;
	consumer->result->pulls++;
	leave_some(consumer, request);
	if (consumer->options->kill_after &&
	    consumer->result->pulls == consumer->options->kill_after)
		(void)raise(SIGKILL);
}

static void match(struct consumer *consumer, struct request *request)
{
	struct engine *engine = &consumer->engine;
	uint32_t tokens = 0;
	int answer;

	if ((request->until_ns && engine_now_ns() < request->until_ns) ||
	    (consumer->options->one_by_one &&
	     (consumer->loading || !consumer->in_turn)))
		return;
	answer = engine->ops->scheduler->matched_tokens(
		engine->scheduler, request->key, 0, &tokens);

	if (answer == KVPULL_MATCH_WAIT)
		return;
	if (answer == KVPULL_MATCH_LOAD) {
		load(consumer, request);
		return;
	}
	/* A sibling's pull serves it; alone, the ticket was of no use. */
	if (consumer->options->siblings > 1 || consumer->options->trace)
		consumer->result->served++;
	else
		consumer->result->failed++;
	request_end(consumer, request, KVPULL_FINISH_STOP);
	request_free(consumer, request);
}

static void decode(struct consumer *consumer, struct request *request)
{
	const uint64_t token_ns = consumer->options->token_us * UINT64_C(1000);

	request->state = REQUEST_DECODING;
	consumer->decoding++;
	request->until_ns = engine_now_ns() + request->output_tokens * token_ns;
}

static void decoded(struct consumer *consumer, struct request *request)
{
	if (engine_now_ns() < request->until_ns)
		return;
	consumer->decoding--;
	request_end(consumer, request, KVPULL_FINISH_STOP);
	request_free(consumer, request);
}

static void check(struct consumer *consumer, const struct request *request)
{
	struct engine *engine = &consumer->engine;
	const uint32_t groups = engine->shape.group_count;
	uint32_t index;

	for (index = 0; index < request->blocks * groups; index++)
		consumer->result->bytes_wrong += engine_block_wrong(
			engine, index / request->blocks, request->ids[index],
			request->seed + index * 4096u);
	consumer->result->bytes_checked += (uint64_t)request->blocks *
					   engine->shape.block_bytes *
					   engine->shape.layer_count;
}

/* The yardstick: as many bytes, from cold memory to cold memory. */
static void copy_same(struct consumer *consumer, uint64_t bytes)
{
	const uint64_t room = consumer->copy_bytes;
	const uint64_t piece = consumer->engine.shape.block_bytes;
	uint64_t done;
	uint64_t begun_ns;

	if (!room || bytes > room)
		return;
	begun_ns = engine_now_ns();
	for (done = 0; done + piece <= bytes; done += piece) {
		const uint64_t from =
			next_random(consumer) % (room / piece) * piece;
		const uint64_t to =
			next_random(consumer) % (room / piece) * piece;

		memcpy(consumer->copy_to + to, consumer->copy_from + from,
		       piece);
	}
	consumer->result->copy_ns += engine_now_ns() - begun_ns;
	consumer->result->copy_bytes += done;
}

static void loaded(struct consumer *consumer, const struct request *request,
		   const struct engine_event *event)
{
	struct ib_result *result = consumer->result;
	const uint64_t begun_ns = engine_now_ns();

	result->loaded++;
	result->bytes += event->bytes;
	result->bytes_timed += event->bytes;
	result->took_ns += event->took_ns;
	consumer->load_took_ns = event->took_ns;
	if (consumer->options->depth == 1)
		consumer->times.ended_ns =
			consumer->times.load_ns + event->took_ns;
	result->latencies[result->latency_count++ %
			  consumer->options->request_count] = event->took_ns;
	if (consumer->options->verify)
		check(consumer, request);
	copy_same(consumer, event->bytes);
	consumer->aside_ns += engine_now_ns() - begun_ns;
}

static void ended(struct consumer *consumer, const struct engine_event *event)
{
	struct ib_result *result = consumer->result;
	struct request *request = consumer->requests;

	while (request->key != event->key ||
	       (request->state != REQUEST_LOADING &&
		request->state != REQUEST_ABORTED))
		if (++request == consumer->requests + consumer->request_max) {
			fprintf(stderr, "outcome of an unknown request\n");
			abort();
		}
	consumer->loading--;
	if (request->state == REQUEST_ABORTED) {
		result->aborted++;
		request_free(consumer, request);
		return;
	}
	if (event->kind == KVPULL_POLL_LOADED) {
		loaded(consumer, request, event);
	} else {
		result->failed++;
		result->expired += event->reason == KVPULL_EEXPIRED;
	}
	decode(consumer, request);
	decoded(consumer, request);
}

/* 1 if work was done, 0 if not, negative on error. */
static int step(struct consumer *consumer)
{
	struct engine_event event;
	const uint32_t loading = consumer->loading;
	int worked = 0;
	uint32_t index;
	int code;

	consumer->leaving = 0;
	for (index = 0; index < consumer->request_max; index++) {
		struct request *request = &consumer->requests[index];

		if (request->state == REQUEST_WAITING)
			match(consumer, request);
		else if (request->state == REQUEST_DECODING)
			decoded(consumer, request);
		else if (request->state == REQUEST_LOADING && request->is_left)
			leave_due(consumer, request);
	}
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
		ended(consumer, &event);
		worked = 1;
	}
	ib_times_look(&consumer->times, &consumer->engine, consumer->result);
	return worked;
}

/* Was all asked for that this run is to ask for? */
static int is_asked(const struct consumer *consumer)
{
	const uint64_t duration_ns =
		consumer->options->duration_s * UINT64_C(1000000000);

	if (consumer->options->trace)
		return !consumer->trace;
	if (duration_ns)
		return engine_now_ns() - consumer->trace_start_ns >=
		       duration_ns;
	return consumer->asked >= consumer->options->request_count;
}

/*
 * Rounds of --depth requests: admitted first, and claimed by their producer's
 * time, then pulled one after another, as ib_read_lat reads.
 */
static int round_is_full(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;

	if (!options->one_by_one)
		return 0;
	if (!consumer->live)
		consumer->in_turn = 0;
	else if (consumer->live + options->siblings > options->depth)
		consumer->in_turn = 1;
	return (int)consumer->in_turn;
}

/* Is another request to be sent now? With a trace, when it arrives. */
static int wants_more(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	double now_s;
	int code;

	if (round_is_full(consumer))
		return 0;
	/* Nobody comes any more: a round that is not full begins. */
	if (is_asked(consumer))
		consumer->in_turn = 1;
	/* One family at least; each request counts. */
	if (consumer->live &&
	    consumer->live + options->siblings > options->depth)
		return 0;
	if (consumer->live + IB_SIBLINGS_MAX > consumer->request_max)
		return 0;
	if (!consumer->trace)
		return !is_asked(consumer);
	if (!consumer->arrival_waits) {
		code = ib_trace_next(consumer->trace, &consumer->arrival);
		if (code <= 0) {
			consumer->trace_is_bad = code < 0;
			(void)fclose(consumer->trace);
			consumer->trace = NULL;
			return 0;
		}
		consumer->arrival_waits = 1;
	}
	now_s = (double)(engine_now_ns() - consumer->trace_start_ns) / 1e9;
	return now_s >= consumer->arrival.at_s;
}

static int send_one(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	const uint32_t tokens = consumer->arrival.prompt_tokens;
	const uint32_t block_tokens = options->shape.block_tokens;
	uint32_t blocks = options->request_blocks;
	uint32_t siblings = options->siblings;

	if (consumer->arrival_waits) {
		blocks = (tokens - 1) / block_tokens + 1;
		siblings = consumer->arrival.siblings;
	}
	if ((uint64_t)blocks * options->shape.group_count >
	    options->shape.block_count) {
		fprintf(stderr,
			"a request needs %u blocks a group, the pool has %u: raise --pool\n",
			blocks, options->shape.block_count);
		return 1;
	}
	if ((uint64_t)blocks * options->shape.group_count >
	    consumer->call.pool_blocks) {
		fprintf(stderr,
			"a request needs %u blocks, the producer's pool has %llu: raise --pool there\n",
			blocks * options->shape.group_count,
			(unsigned long long)consumer->call.pool_blocks);
		return 1;
	}
	return admit(consumer, blocks, siblings);
}

static void progress_show(struct consumer *consumer, uint64_t *shown_ns)
{
	const struct ib_options *options = consumer->options;
	char all[32] = "";
	uint64_t now_ns;

	if (!consumer->is_watched)
		return;
	now_ns = engine_now_ns();
	if (now_ns - *shown_ns < PROGRESS_NS)
		return;
	*shown_ns = now_ns;
	consumer->is_shown = 1;
	/* How many a file has, or some seconds bring, is not known. */
	if (!options->trace && !options->duration_s)
		(void)snprintf(all, sizeof(all), " of %u",
			       options->request_count);
	fprintf(stderr, "\r%s: %u%s requests, %llu pulls, %llu failed ",
		options->name, consumer->asked, all,
		(unsigned long long)consumer->result->loaded,
		(unsigned long long)consumer->result->failed);
}

/* Arrivals, leads and decodes have times of their own; nothing tells of a call. */
static int idle_ms(const struct consumer *consumer)
{
	if (engine_has_step(&consumer->engine))
		return 0;
	return consumer->trace || consumer->options->lead_ms ||
			       consumer->decoding || consumer->leaving ||
			       consumer->times.asked_ns ?
		       1 :
		       ENGINE_WAIT_MS;
}

/*
 * An engine that has nothing else to do sleeps until something ended. Without
 * a thread nobody else reads from the network for us: spin, and ask for no
 * wake-up, which costs each poll.
 */
static void idle(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	const struct timespec nap = { .tv_nsec = 200000 };
	uint32_t left;
	struct pollfd waits[ENGINE_RANKS_MAX] = { 0 };

	if (options->host && !options->thread) {
		if (!consumer->loading && !consumer->times.asked_ns)
			(void)nanosleep(&nap, NULL);
		for (left = SPIN_POLLS;
		     left && consumer->loading && !consumer->engine.event_count;
		     left--)
			if (engine_poll(&consumer->engine))
				return;
		return;
	}
	(void)poll(waits, engine_waits(&consumer->engine, waits),
		   idle_ms(consumer));
}

/* The first pull connects: its time is told apart. */
static void warm_up(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;
	struct ib_result *result = consumer->result;

	if (consumer->is_warm || options->depth > 1 ||
	    options->request_count == 1)
		return;
	consumer->is_warm = 1;
	result->bytes_timed = result->took_ns = result->elapsed_ns = 0;
}

static int timed_step(struct consumer *consumer, uint64_t begun_ns)
{
	const uint64_t aside_ns = consumer->aside_ns;
	const int worked = step(consumer);

	if (!worked && (consumer->loading || consumer->decoding ||
			consumer->trace || consumer->options->lead_ms))
		idle(consumer);
	if (consumer->loading || worked)
		consumer->result->elapsed_ns += engine_now_ns() - begun_ns -
						(consumer->aside_ns - aside_ns);
	if (worked)
		warm_up(consumer);
	return worked;
}

static uint64_t left_of(const struct consumer *consumer, uint32_t rank)
{
	const struct engine *engine = &consumer->engine;
	struct kvpull_worker_stats stats = { .struct_size = sizeof(stats) };

	(void)engine->ops->worker->stats(engine->workers[rank], &stats, 0);
	return stats.pulls_live + stats.releases_queued;
}

/*
 * One at a time: what a pull costs its producer at the end is not to be
 * counted in the next one.
 */
static void settle(struct consumer *consumer)
{
	const struct timespec nap = { .tv_nsec = 100000 };
	const uint64_t until_ns = engine_now_ns() + SETTLE_NS;

	while (consumer->times.ended_ns && left_of(consumer, 0) &&
	       engine_now_ns() < until_ns) {
		(void)step(consumer);
		(void)nanosleep(&nap, NULL);
	}
}

static int run(struct consumer *consumer)
{
	uint64_t shown_ns = engine_now_ns();

	while (!*consumer->options->stop &&
	       (!is_asked(consumer) || consumer->live)) {
		/* A prefill that is asked for while others load costs them. */
		const uint64_t asked_ns =
			consumer->loading ? engine_now_ns() : 0;
		int worked;

		if (wants_more(consumer)) {
			settle(consumer);
			if (send_one(consumer))
				return 1;
		}
		worked = timed_step(consumer,
				    asked_ns ? asked_ns : engine_now_ns());
		if (worked < 0)
			return 1;
		progress_show(consumer, &shown_ns);
	}
	return *consumer->options->stop != 0;
}

/* Until the releases went out; what is left after that is a fault. */
static void drain(struct consumer *consumer)
{
	struct engine *engine = &consumer->engine;
	const uint64_t until_ns = engine_now_ns() + DRAIN_NS;
	struct ib_result *result = consumer->result;
	uint32_t rank;

	do {
		(void)step(consumer);
		result->tables_left = 0;
		for (rank = 0; rank < engine->tp_size; rank++)
			result->tables_left += left_of(consumer, rank);
		if ((uint32_t)engine->ops->scheduler->has_pending(
			    engine->scheduler) &
		    KVPULL_PENDING_STEP)
			result->tables_left++;
	} while (result->tables_left && engine_now_ns() < until_ns &&
		 !*consumer->options->stop);
	if (engine->free_count != engine->shape.block_count)
		result->tables_left++;
	result->double_reports = engine->double_reports;
}

static int no_memory_say(const struct consumer *consumer)
{
	fprintf(stderr, "%s: out of memory\n", consumer->options->name);
	return 1;
}

static int consumer_open(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;

	consumer->is_watched = (uint32_t)isatty(STDERR_FILENO);
	consumer->request_max = options->depth + IB_SIBLINGS_MAX;
	consumer->requests =
		calloc(consumer->request_max, sizeof(*consumer->requests));
	consumer->result->latencies =
		calloc(options->request_count, sizeof(uint64_t));
	consumer->result->releases =
		calloc(options->request_count, sizeof(uint64_t));
	if (!consumer->requests || !consumer->result->latencies ||
	    !consumer->result->releases)
		return no_memory_say(consumer);
	if (options->trace && ib_trace_open(options->trace, &consumer->trace))
		return 1;
	if (ib_call_open(&consumer->call, options) ||
	    ib_engine_open(options, &consumer->engine))
		return 1;
	consumer->copy_bytes = consumer->engine.memory_bytes;
	consumer->copy_from = malloc(consumer->copy_bytes);
	consumer->copy_to = malloc(consumer->copy_bytes);
	if (!consumer->copy_from || !consumer->copy_to)
		return no_memory_say(consumer);
	memset(consumer->copy_from, 1, consumer->copy_bytes);
	memset(consumer->copy_to, 2, consumer->copy_bytes);
	consumer->trace_start_ns = engine_now_ns();
	return 0;
}

/* A run that moved nothing proves nothing. */
static int moved_nothing(const struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;

	if (options->trace)
		return !consumer->trace_is_bad &&
		       !consumer->arrival.prompt_tokens;
	return !consumer->result->loaded &&
	       options->reject_percent + options->abort_percent < 100;
}

static void nothing_say(const struct consumer *consumer)
{
	const char *why = "";

	if (consumer->options->trace)
		why = ": the trace has no request";
	else if (consumer->options->host && !consumer->result->routes[0])
		why = ": no route to the producer; on one machine give both the same --dir, between two see `kvpull_doctor --route verbs` on both";
	fprintf(stderr, "nothing was pulled%s\n", why);
}

int ib_pull(const struct ib_options *options, struct ib_result *result)
{
	struct consumer consumer = {
		.options = options,
		.result = result,
		.random = options->seed * 2 + 88172645463325253u,
		.call = { .control = -1 },
		.times = { .wanted = 1, .host = ib_times_host() },
	};
	const int is_open = !consumer_open(&consumer);
	int failed = !is_open || run(&consumer);

	if (!failed)
		drain(&consumer);
	if (is_open)
		ib_times_routes(&consumer.engine, result);
	if (consumer.is_shown)
		fprintf(stderr, "\n");
	if (*options->stop)
		fprintf(stderr, "ended by a signal: what was done so far\n");
	if (consumer.engine.ops)
		engine_close(&consumer.engine);
	ib_call_close(&consumer.call);
	if (consumer.trace)
		(void)fclose(consumer.trace);
	free(consumer.copy_from);
	free(consumer.copy_to);
	free(consumer.requests);
	result->done = !failed;
	if (!failed && moved_nothing(&consumer)) {
		nothing_say(&consumer);
		failed = 1;
	}
	return failed || consumer.trace_is_bad || result->bytes_wrong ||
	       result->tables_left || result->double_reports;
}
