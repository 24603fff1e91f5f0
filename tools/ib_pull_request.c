/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of the consumer: admitted with its ticket, matched, loaded into
 * local blocks, compared, decoded, finished; or rejected, or left by its client
 * while it loads, as the options or the trace say. After each pull the same
 * number of bytes is copied by memcpy inside this process: the yardstick of the
 * same run.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/least.h"
#include "tools/ib_pull_consumer.h"

static void admit_one(struct consumer *consumer,
		      const struct ib_arrival *arrival, uint32_t blocks)
{
	struct engine *engine = &consumer->engine;
	const struct ib_message *message = &consumer->call.message;
	const uint64_t lead_ns = consumer->options->lead_ms * KVPULL_NS_PER_MS;
	struct request *request = consumer->requests;
	struct kvpull_request params = {
		.struct_size = sizeof(params),
		.key = engine->next_key++,
		.ticket = message->ticket,
		.ticket_bytes = message->answer.ticket_bytes,
		.prompt_tokens = blocks * engine->shape.block_tokens,
		.flags = KVPULL_REQUEST_PULL,
	};

	while (request->state != REQUEST_FREE)
		request++;
	memcpy(params.prompt_digest, &message->answer.seed,
	       sizeof(message->answer.seed));
	if (engine->ops->scheduler->request_new(engine->scheduler, &params)) {
		consumer->result->failed++;
		return;
	}
	*request = (struct request){
		.key = params.key,
		.seed = message->answer.seed,
		.until_ns = engine_now_ns() + lead_ns,
		.output_tokens = arrival->output_tokens,
		.is_left = arrival->abort,
		.state = REQUEST_WAITING,
		.blocks = blocks,
		.hashes = consumer->trace.hashes + arrival->hash_first,
		/*
		 * Chunks of whole blocks may be shared; the one with the
		 * prompt's last token is not: an engine computes that.
		 */
		.chunk_count = kvpull_least_u32(arrival->hash_count,
						(arrival->prompt_tokens - 1) /
							IB_CHUNK_TOKENS),
	};
	consumer->live++;
}

int ib_request_admit(struct consumer *consumer,
		     const struct ib_arrival *arrival)
{
	struct engine *engine = &consumer->engine;
	struct ib_call *call = &consumer->call;
	const struct ib_ask what = {
		.kind = IB_ASK_PREFILL,
		.blocks =
			ib_blocks_of(consumer->options, arrival->prompt_tokens),
		.siblings = arrival->siblings,
	};
	const struct ib_answer *answer = &call->message.answer;
	uint32_t index;

	if (call->control < 0 || ib_call_ask(call, &what)) {
		consumer->times.wanted = 1;
		return ib_call_again(call);
	}
	if (answer->code == KVPULL_EFULL) {
		/* Ask again after its holds were pulled. */
		consumer->in_turn = consumer->live != 0;
		if (!consumer->live)
			ib_call_full(call);
		return 0;
	}
	call->full_ns = 0;
	if (answer->code) {
		fprintf(stderr, "prefill: %s\n",
			engine->ops->error_text(answer->code));
		return 1;
	}
	consumer->asked++;
	ib_times_answer(&consumer->times, answer, consumer->result,
			consumer->options->request_count);
	if (engine_random(&consumer->random) % 100 <
	    consumer->options->reject_percent) {
		consumer->result->rejected++;
		return engine->ops->scheduler->request_rejected(
			       engine->scheduler, call->message.ticket,
			       answer->ticket_bytes) != 0;
	}
	ib_times_ticket(&consumer->times);
	for (index = 0; index < arrival->siblings; index++)
		admit_one(consumer, arrival, what.blocks);
	return 0;
}

/* The only request in flight has the connection's last ticket. */
static void failed_count(struct consumer *consumer)
{
	const struct ib_options *options = consumer->options;

	consumer->result->failed++;
	if (options->depth == 1 && options->siblings == 1)
		ib_call_give(&consumer->call);
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

/*
 * Blocks that are right serve the next requests that begin alike, the others go
 * back to the pool.
 */
static void request_free(struct consumer *consumer, struct request *request)
{
	struct ib_prefix *prefix = &consumer->prefix;
	const uint32_t local = request->local_blocks / prefix->chunk_blocks;

	if (request->ids)
		ib_prefix_give(
			prefix, request->ids,
			request->blocks - request->local_blocks,
			request->hashes + local,
			request->is_right ? request->chunk_count - local : 0);
	ib_prefix_unpin(prefix, request->hashes, local);
	free(request->ids);
	*request = (struct request){ .state = REQUEST_FREE };
	consumer->live--;
}

static void leave_due(struct consumer *consumer, struct request *request)
{
	if (engine_now_ns() < request->until_ns) {
		consumer->leaving++;
		return;
	}
	request_end(consumer, request, KVPULL_FINISH_ABORT);
	request->state = REQUEST_ABORTED;
}

/* A trace's at once; others so, too, or within twice what the last load took. */
static void leave_some(struct consumer *consumer, struct request *request)
{
	const uint32_t percent = consumer->options->abort_percent;
	const uint64_t wait_ns = 2 * consumer->load_took_ns + 1;

	if (!request->is_left &&
	    engine_random(&consumer->random) % 100 >= percent)
		return;
	request->until_ns = consumer->times.load_ns;
	if (!request->is_left && engine_random(&consumer->random) % 2 == 0)
		request->until_ns += engine_random(&consumer->random) % wait_ns;
	request->is_left = 1;
	leave_due(consumer, request);
}

/* 0, or no room now: asked again. */
static int load(struct consumer *consumer, struct request *request)
{
	struct engine *engine = &consumer->engine;
	const uint32_t groups = engine->shape.group_count;
	const uint32_t count = request->blocks - request->local_blocks;
	struct kvpull_blocks blocks[KVPULL_GROUPS_MAX];
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = request->key,
		.external_tokens = count * engine->shape.block_tokens,
		.group_count = groups,
		.groups = blocks,
		.group_bytes = sizeof(*blocks),
	};
	uint32_t *ids = malloc(groups * count * sizeof(*ids));
	uint32_t group;

	if (!ids || ib_prefix_take(&consumer->prefix, ids, groups * count)) {
		free(ids);
		return -1;
	}
	request->ids = ids;
	for (group = 0; group < groups; group++)
		blocks[group] = (struct kvpull_blocks){
			.first_index = request->local_blocks,
			.block_count = count,
			.block_ids = ids + group * count,
		};
	(void)engine->ops->scheduler->allocated(engine->scheduler, &allocation);
	consumer->times.load_ns = engine_now_ns();
	request->state = REQUEST_LOADING;
	consumer->loading++;
	consumer->result->pulls++;
	leave_some(consumer, request);
	/* A kill_after of 0 never matches: there is one pull at least. */
	if (consumer->result->pulls == consumer->options->kill_after)
		(void)raise(SIGKILL);
	return 0;
}

static void match(struct consumer *consumer, struct request *request)
{
	struct engine *engine = &consumer->engine;
	struct ib_prefix *prefix = &consumer->prefix;
	uint32_t tokens = 0;
	uint32_t chunks;
	int answer;

	if (engine_now_ns() < request->until_ns ||
	    (consumer->options->one_by_one &&
	     (consumer->loading || !consumer->in_turn)))
		return;
	chunks = ib_prefix_pin(prefix, request->hashes, request->chunk_count);
	request->local_blocks = chunks * prefix->chunk_blocks;
	answer = engine->ops->scheduler->matched_tokens(
		engine->scheduler, request->key,
		request->local_blocks * engine->shape.block_tokens, &tokens);
	if (answer == KVPULL_MATCH_LOAD && !load(consumer, request)) {
		consumer->result->local_tokens += chunks * IB_CHUNK_TOKENS;
		consumer->result->prompt_tokens +=
			request->blocks * engine->shape.block_tokens;
		return;
	}
	ib_prefix_unpin(prefix, request->hashes, chunks);
	request->local_blocks = 0;
	if (answer != KVPULL_MATCH_NOTHING)
		return;
	/* A sibling's pull serves it; alone, the ticket was of no use. */
	if (consumer->options->siblings > 1 || consumer->options->trace)
		consumer->result->served++;
	else
		failed_count(consumer);
	request_end(consumer, request, KVPULL_FINISH_STOP);
	request_free(consumer, request);
}

static void decoded(struct consumer *consumer, struct request *request)
{
	if (engine_now_ns() < request->until_ns)
		return;
	request_end(consumer, request, KVPULL_FINISH_STOP);
	request_free(consumer, request);
}

static void check(struct consumer *consumer, const struct request *request)
{
	struct engine *engine = &consumer->engine;
	const uint32_t count = request->blocks - request->local_blocks;
	uint32_t index;

	for (index = 0; index < count * engine->shape.group_count; index++) {
		const uint32_t group = index / count;
		const uint32_t block = group * request->blocks +
				       request->local_blocks + index % count;

		consumer->result->bytes_wrong +=
			engine_block_wrong(engine, group, request->ids[index],
					   request->seed + block * 4096u);
	}
	consumer->result->bytes_checked += (uint64_t)count *
					   engine->shape.block_bytes *
					   engine->shape.layer_count;
}

/* The yardstick: as many bytes, from cold memory to cold memory. */
static void copy_same(struct consumer *consumer, uint64_t bytes)
{
	const uint64_t room = consumer->engine.memory_bytes;
	const uint64_t piece = consumer->engine.shape.block_bytes;
	const uint64_t begun_ns = engine_now_ns();
	uint64_t done;

	if (bytes > room)
		return;
	for (done = 0; done + piece <= bytes; done += piece) {
		const uint64_t from = engine_random(&consumer->random) %
				      (room / piece) * piece;
		const uint64_t to = engine_random(&consumer->random) %
				    (room / piece) * piece;

		memcpy(consumer->copy + room + to, consumer->copy + from,
		       piece);
	}
	consumer->result->copy_ns += engine_now_ns() - begun_ns;
	consumer->result->copy_bytes += done;
}

static void loaded(struct consumer *consumer, const struct request *request,
		   const struct engine_event *event)
{
	struct ib_result *result = consumer->result;
	const uint32_t room = consumer->options->request_count;
	const uint32_t at = result->latency_count++ % room;
	const uint64_t begun_ns = engine_now_ns();
	uint32_t phase;

	result->loaded++;
	result->bytes += event->bytes;
	result->bytes_timed += event->bytes;
	result->took_ns += event->took_ns;
	consumer->load_took_ns = event->took_ns;
	if (consumer->options->depth == 1)
		consumer->times.ended_ns =
			consumer->times.load_ns + event->took_ns;
	result->latencies[at] = event->took_ns;
	for (phase = 0; phase < ENGINE_PHASES; phase++)
		result->phases[phase * room + at] = event->phase_ns[phase];
	if (consumer->options->verify)
		check(consumer, request);
	copy_same(consumer, event->bytes);
	consumer->aside_ns += engine_now_ns() - begun_ns;
}

void ib_request_ended(struct consumer *consumer,
		      const struct engine_event *event)
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
	request->is_right = event->kind == KVPULL_POLL_LOADED;
	if (request->is_right) {
		loaded(consumer, request, event);
	} else {
		failed_count(consumer);
		result->expired += event->reason == KVPULL_EEXPIRED;
	}
	request->state = REQUEST_DECODING;
	request->until_ns =
		engine_now_ns() + UINT64_C(1000) * consumer->options->token_us *
					  request->output_tokens;
	decoded(consumer, request);
}

void ib_requests_run(struct consumer *consumer)
{
	uint32_t index;

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
}
