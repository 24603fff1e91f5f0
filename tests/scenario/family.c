/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch: every consumer gets its families, all siblings at once; P's pool is
 * as large as one batch, so the next one starts only if all blocks came back.
 */
#include "tests/scenario/family.h"

#include <string.h>

#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())

struct batch {
	const struct family_setup *setup;
	struct node *p;
	struct node *consumers;
	struct node *all[FAMILY_CONSUMERS_MAX + 1];
	uint64_t seed;
	uint32_t held;
	uint32_t loads, locals;   /* to come */
	struct node_message last; /* prefill */
};

void family_open(const struct scenario *scenario,
		 const struct family_setup *setup, struct node *p,
		 struct node *consumers)
{
	static const char *const names[FAMILY_CONSUMERS_MAX] = {
		"consumer-0", "consumer-1", "consumer-2", "consumer-3"
	};
	struct node_params params = {
		.scenario = scenario,
		.id = "producer",
		.config = "",
		.shape = scenario_shape(
			4096, setup->blocks * setup->a_batch * setup->d_count,
			setup->layers ? setup->layers : 2),
		.tp_size = setup->p_tp,
		.pp_size = setup->p_pp,
		.gpu = setup->gpu,
		.split = setup->split,
		.scribble = 1,
	};
	uint32_t index;

	node_open(p, &params);
	params.scribble = 0;
	params.shape.block_count = setup->blocks * setup->a_batch;
	for (index = 0; index < setup->d_count; index++) {
		params.id = names[index];
		params.tp_size = setup->d_tp[index];
		params.pp_size = setup->d_pp;
		params.split = setup->split;
		node_open(&consumers[index], &params);
	}
}

/*
 * Finishes a sibling after the others were sent away: it gets the same ticket.
 */
static void sibling_late(struct batch *batch,
			 const struct node_message *prefill)
{
	static struct node_message message;

	message = *prefill;
	message.op = NODE_SIBLING;
	node_call(batch->p, &message);
	scenario_check(!message.code &&
			       message.ticket_bytes == prefill->ticket_bytes &&
			       !memcmp(message.ticket, prefill->ticket,
				       prefill->ticket_bytes),
		       "a late sibling has another ticket or a hold");
}

static void family_start(struct batch *batch, uint32_t consumer)
{
	static struct node_message message;
	struct node *d = &batch->consumers[consumer];

	message = (struct node_message){
		.op = NODE_PREFILL,
		.blocks = batch->setup->blocks,
		.seed = batch->seed += 1000003,
		.siblings = batch->setup->siblings,
	};
	node_call(batch->p, &message);
	scenario_check(!message.code, "prefill: error %d", message.code);
	batch->held++;
	if (message.siblings > 1)
		sibling_late(batch, &message);
	batch->last = message;
	message.op = NODE_PULL;
	node_call(d, &message);
	scenario_check(!message.code, "%s: pull: error %d", d->id,
		       message.code);
	batch->loads++;
	batch->locals += batch->setup->siblings - 1;
}

static void event_take(struct batch *batch)
{
	struct node_message event;
	const int from = node_event_any(batch->all, batch->setup->d_count + 1,
					&event, LIMIT_NS);

	scenario_check(from >= 0, "nothing ends: %u holds, %u pulls",
		       batch->held, batch->loads);
	if (from == 0) {
		scenario_check(event.reason == KVPULL_END_RELEASED,
			       "a hold ended by %d", event.reason);
		batch->held--;
	} else if (event.kind == NODE_EVENT_NOTHING) {
		scenario_check(batch->locals > 0, "no pull of a family");
		batch->locals--;
	} else {
		scenario_check(event.kind == KVPULL_POLL_LOADED,
			       "a pull failed: error %d", event.reason);
		scenario_check(!event.wrong, "%llu wrong bytes",
			       (unsigned long long)event.wrong);
		scenario_check(batch->loads > 0, "two pulls of a family");
		batch->loads--;
	}
}

static void batch_run(struct batch *batch)
{
	const struct family_setup *setup = batch->setup;
	struct node_stats stats;
	uint32_t index;
	uint32_t count;

	for (count = 0; count < setup->a_batch; count++)
		for (index = 0; index < setup->d_count; index++)
			family_start(batch, index);
	while (batch->held || batch->loads || batch->locals)
		event_take(batch);
	/* A sibling may also come after the end of the hold. */
	if (setup->siblings > 1)
		sibling_late(batch, &batch->last);
	node_stats_get(batch->p, &stats);
	scenario_check((stats.blocks_all - stats.blocks_free) * 20 <
			       stats.blocks_all,
		       "P still has %u of %u blocks",
		       stats.blocks_all - stats.blocks_free, stats.blocks_all);
}

static void stats_check(struct node *p, struct node *consumers,
			const struct family_setup *setup)
{
	const uint64_t families = (uint64_t)setup->batches * setup->a_batch;
	struct node_stats stats;
	uint32_t index;

	node_check_empty(p);
	node_stats_get(p, &stats);
	for (index = 0; index < setup->p_tp * (setup->p_pp ? setup->p_pp : 1);
	     index++)
		scenario_check(
			!stats.ranks[index].holds_expired &&
				!stats.ranks[index].unknown &&
				!stats.ranks[index].bad_tag,
			"P rank %u: %llu expired, %llu unknown", index,
			(unsigned long long)stats.ranks[index].holds_expired,
			(unsigned long long)stats.ranks[index].unknown);
	scenario_check(stats.scheduler.holds_taken == families * setup->d_count,
		       "%llu holds for %llu families",
		       (unsigned long long)stats.scheduler.holds_taken,
		       (unsigned long long)families * setup->d_count);
	for (index = 0; index < setup->d_count; index++) {
		node_check_empty(&consumers[index]);
		node_stats_get(&consumers[index], &stats);
		scenario_check(
			stats.scheduler.pulls_commanded == families,
			"%llu pulls of %llu families",
			(unsigned long long)stats.scheduler.pulls_commanded,
			(unsigned long long)families);
	}
}

void family_run(const struct scenario *scenario,
		const struct family_setup *setup)
{
	struct node p, consumers[FAMILY_CONSUMERS_MAX];
	static struct batch batch;
	uint32_t index;

	family_open(scenario, setup, &p, consumers);
	batch.setup = setup;
	batch.p = batch.all[0] = &p;
	batch.consumers = consumers;
	for (index = 0; index < setup->d_count; index++)
		batch.all[index + 1] = &consumers[index];
	for (index = 0; index < setup->batches; index++)
		batch_run(&batch);
	stats_check(&p, consumers, setup);
	scenario_say("%u families of %u, one pull each",
		     setup->batches * setup->a_batch * setup->d_count,
		     setup->siblings);
	for (index = 0; index < setup->d_count; index++)
		node_close(&consumers[index]);
	node_close(&p);
}
