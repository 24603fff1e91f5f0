/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, producer's role: callers and their handshake.
 *
 * A caller sees nothing of our memory before its hello was checked: uid, key,
 * versions, model, the incarnation it wants. Then it gets read-only
 * descriptors and a ring of its own, and the engine's thread is told.
 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <sodium.h>

#include "base/clock.h"
#include "base/params.h"
#include "plugin/progress/progress_state.h"

/*
 * A process has one connection: when it calls again, the end of the one before
 * was lost on the way. It may call once more when that is worked off.
 */
static int predecessor_drop(struct kvpull_progress *progress, uint32_t index,
			    const struct kvpull_hello *hello,
			    struct kvpull_refusal *refusal)
{
	const struct kvpull_consumer *consumer =
		&progress->handover->consumers[index];

	if ((consumer->incarnation ^ hello->incarnation) >> KVPULL_SELF_BITS) {
		kvpull_refusal_texts(refusal, KVPULL_EAGAIN, "rank",
				     "another process's", "the same");
		return KVPULL_EAGAIN;
	}
	kvpull_refusal_texts(refusal, KVPULL_EAGAIN, "the connection before",
			     "being ended", "over");
	kvpull_callers_drop(&progress->callers, index);
	return KVPULL_CALLER_COMES_EARLY;
}

/* Places of the instances that are in, those of their other ranks among them. */
static uint32_t places_promised(const struct kvpull_progress *progress)
{
	const struct kvpull_consumer *consumers = progress->handover->consumers;
	uint32_t promised = 0;
	uint32_t index;
	uint32_t other;

	for (index = 0; index < progress->facts->caller_count_max; index++) {
		if (progress->callers.all[index].state < KVPULL_CALLER_IN)
			continue;
		for (other = 0; other < index; other++)
			if (progress->callers.all[other].state >=
				    KVPULL_CALLER_IN &&
			    consumers[other].instance_id ==
				    consumers[index].instance_id)
				break;
		if (other == index)
			promised += consumers[index].rank_count;
	}
	return promised;
}

/* The engine's thread knows which consumers have no claim. */
static void room_ask(struct kvpull_progress *progress, uint32_t places)
{
	if (!atomic_exchange_explicit(&progress->handover->room_asked, 1,
				      memory_order_relaxed))
		kvpull_progress_tell(progress, KVPULL_FROM_ROOM, places);
}

/*
 * One connection for each consumer rank at a time; N is the same for all. The
 * places are those of all routes together.
 */
static int place_check(struct kvpull_progress *progress,
		       const struct kvpull_hello *hello,
		       struct kvpull_refusal *refusal)
{
	const uint32_t places_max = progress->facts->config.consumers_max;
	uint32_t in_count = 0;
	uint32_t is_known = 0;
	uint32_t index;

	for (index = 0; index < progress->facts->caller_count_max; index++) {
		const struct kvpull_consumer *consumer =
			&progress->handover->consumers[index];

		in_count +=
			progress->callers.all[index].state >= KVPULL_CALLER_IN;
		if (progress->callers.all[index].state < KVPULL_CALLER_IN ||
		    consumer->instance_id != hello->instance)
			continue;
		is_known = 1;
		if (consumer->rank_count != hello->rank_count) {
			kvpull_refusal_numbers(
				refusal, KVPULL_EREJECTED, "rank_count",
				consumer->rank_count, hello->rank_count);
			return KVPULL_EREJECTED;
		}
		if (consumer->rank == hello->rank)
			return predecessor_drop(progress, index, hello,
						refusal);
	}
	if (hello->rank_count > places_max) {
		kvpull_refusal_numbers(refusal, KVPULL_EREJECTED,
				       "consumers_max", places_max,
				       hello->rank_count);
		return KVPULL_EREJECTED;
	}
	/* All ranks of an instance or none: some alone would keep others out. */
	if (!is_known)
		in_count = places_promised(progress) + hello->rank_count - 1;
	if (in_count < places_max)
		return 0;
	room_ask(progress, in_count + 1 - places_max);
	kvpull_refusal_numbers(refusal, KVPULL_EFULL, "consumers_max", in_count,
			       in_count + 1);
	return KVPULL_EFULL;
}

/* One version, and not the same bytes: builds from between two versions. */
static int layout_check(const struct kvpull_hello *hello,
			struct kvpull_refusal *refusal)
{
	const uint32_t version = hello->sealed.version;
	uint64_t layout;
	char ours[48];
	char theirs[48];

	if (version > KVPULL_WIRE_VERSION)
		return 0;
	layout = kvpull_handshake_layout(version);
	if (layout == hello->wire_layout)
		return 0;
	(void)snprintf(ours, sizeof(ours), "version %u of %" PRIx64, version,
		       layout);
	(void)snprintf(theirs, sizeof(theirs), "version %u of %" PRIx64,
		       version, hello->wire_layout);
	kvpull_refusal_texts(refusal, KVPULL_EVERSION, "wire layout", ours,
			     theirs);
	return KVPULL_EVERSION;
}

static int hello_check(void *own, struct kvpull_caller *caller,
		       const struct kvpull_event *event,
		       struct kvpull_refusal *refusal)
{
	struct kvpull_progress *progress = own;
	struct kvpull_hello *hello = progress->scratch.hello;
	const uint8_t *key = kvpull_config_key(&progress->facts->config);
	int code;

	code = kvpull_handshake_get_hello(event->data, event->data_bytes, key,
					  caller->nonce, hello);
	if (code) {
		kvpull_refusal_hello(refusal, code, &hello->sealed);
		return code;
	}
	(void)snprintf(caller->name, sizeof(caller->name), "%s rank %u pid %u",
		       hello->engine_id, hello->rank, hello->pid);
	if (layout_check(hello, refusal))
		return KVPULL_EVERSION;
	if (hello->wanted != progress->facts->incarnation) {
		kvpull_refusal_numbers(refusal, KVPULL_EPEER, "incarnation",
				       progress->facts->incarnation,
				       hello->wanted);
		return KVPULL_EPEER;
	}
	if (atomic_load_explicit(&progress->handover->closing,
				 memory_order_relaxed)) {
		kvpull_refusal_texts(refusal, KVPULL_EPEER, "state", "closing",
				     "open");
		return KVPULL_EPEER;
	}
	code = kvpull_compat_compare(&progress->facts->compat, &hello->compat,
				     refusal);
	return code ? code : place_check(progress, hello, refusal);
}

static size_t welcome_put(void *own, const struct kvpull_caller *caller,
			  uint8_t *bytes)
{
	struct kvpull_progress *progress = own;
	const struct kvpull_stage *stage = &progress->facts->stage;
	struct kvpull_welcome *welcome = progress->scratch.welcome;

	(void)caller;
	memset(welcome, 0, sizeof(*welcome));
	welcome->sealed.version = progress->facts->config.wire_emit;
	welcome->incarnation = progress->facts->incarnation;
	welcome->lease_ns = progress->facts->config.lease_ms * KVPULL_NS_PER_MS;
	welcome->slot_count = progress->facts->config.max_holds;
	welcome->tp_rank = kvpull_stage_tp_rank(stage);
	welcome->tp_size = kvpull_stage_tp_size(stage);
	welcome->pp_rank = kvpull_stage_pp_rank(stage);
	welcome->pp_size = stage->pp_size > 1 ? stage->pp_size : 0;
	welcome->pid = (uint32_t)getpid();
	welcome->entries_address =
		(uint64_t)(uintptr_t)progress->facts->serve.entries;
	welcome->region_count = progress->facts->serve.region_count;
	welcome->cache_count = progress->facts->cache_count;
	memcpy(welcome->engine_id, progress->facts->engine_id,
	       sizeof(welcome->engine_id));
	kvpull_welcome_regions_put(welcome->regions, &progress->facts->serve);
	welcome->device_count = progress->facts->serve.device_count;
	memcpy(welcome->devices, progress->facts->serve.devices,
	       sizeof(welcome->devices));
	memcpy(welcome->caches, progress->facts->caches,
	       progress->facts->cache_count * sizeof(*progress->facts->caches));
	return kvpull_handshake_put_welcome(
		bytes, KVPULL_MESSAGE_BYTES_MAX, welcome,
		kvpull_config_key(&progress->facts->config),
		progress->scratch.hello->nonce);
}

static void consumer_came(void *own, struct kvpull_caller *caller,
			  struct kvpull_ring *ring, uint32_t uid)
{
	struct kvpull_progress *progress = own;
	const uint32_t index = kvpull_caller_index(&progress->callers, caller);
	struct kvpull_consumer *consumer =
		&progress->handover->consumers[index];
	const struct kvpull_hello *hello = progress->scratch.hello;
	const struct kvpull_transport_ops *ops = caller->route->transport->ops;

	consumer->instance_id = hello->instance;
	consumer->incarnation = hello->incarnation;
	consumer->ring = ring;
	consumer->rank = hello->rank;
	consumer->rank_count = hello->rank_count;
	consumer->is_remote = !ops->vouches;
	consumer->pid = hello->pid;
	memcpy(consumer->engine_id, hello->engine_id,
	       sizeof(consumer->engine_id));
	kvpull_info(progress->log,
		    "consumer rank %u of %u of %s pid %u connected by %s",
		    consumer->rank, consumer->rank_count, consumer->engine_id,
		    consumer->pid, ops->name);
	kvpull_show_consumer(progress, index, uid);
	kvpull_progress_tell(progress, KVPULL_FROM_CONSUMER_UP, index);
}

static int consumer_went(void *own, struct kvpull_caller *caller)
{
	struct kvpull_progress *progress = own;
	const uint32_t index = kvpull_caller_index(&progress->callers, caller);

	kvpull_info(progress->log, "consumer %s is gone", caller->name);
	kvpull_show_consumer_gone(progress, index);
	kvpull_progress_tell(progress, KVPULL_FROM_CONSUMER_DOWN, index);
	return 1;
}

void kvpull_serve_given(void *own, const void *bytes, size_t byte_count)
{
	struct kvpull_progress *progress = own;
	struct kvpull_given *given = &progress->handover->given;
	struct kvpull_progress_counts *counts = progress->counts;
	struct kvpull_give *give = progress->scratch.give;
	_Atomic uint64_t *const counters[] = {
		[KVPULL_GIVEN_NEW] = &counts->gives,
		[KVPULL_GIVEN_OLD] = &counts->gives_old,
		[KVPULL_GIVEN_BAD] = &counts->gives_bad,
	};
	uint32_t is_new = 0;
	uint32_t at;

	if (kvpull_give_get(bytes, byte_count, give))
		return;
	for (at = 0; at < give->word_count; at++) {
		const enum kvpull_given_verdict verdict =
			kvpull_given_take(given, &give->words[at]);

		kvpull_count_add(counters[verdict], 1);
		is_new |= verdict == KVPULL_GIVEN_NEW;
	}
	if (is_new && kvpull_given_tell(given))
		kvpull_progress_tell(progress, KVPULL_FROM_GIVEN, 0);
}

const struct kvpull_callers_owner kvpull_serve_owner = {
	.role = "consumer",
	.hello_check = hello_check,
	.welcome_put = welcome_put,
	.came = consumer_came,
	.went = consumer_went,
};
