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

/* Nothing is wrong with who is refused for it: a call later it is in. */
#define BEFORE "the connection before"
#define REFUSALS_SAID_MAX 8u /* in a second: an engine's ranks, at the least */

static void caller_up(struct kvpull_progress *progress,
		      const struct kvpull_route *route,
		      struct kvpull_caller *caller, uint32_t handle)
{
	struct kvpull_transport *transport = route->transport;
	size_t byte_count;

	kvpull_check(progress->log, caller->state == KVPULL_CALLER_FREE);
	caller->state = KVPULL_CALLER_CHALLENGED;
	caller->route = route;
	caller->handle = handle;
	randombytes_buf(caller->nonce, sizeof(caller->nonce));
	byte_count = kvpull_handshake_put_challenge(
		progress->message, KVPULL_MESSAGE_BYTES_MAX, caller->nonce);
	/* A failure shows as CALLER_DOWN. */
	(void)transport->ops->caller_send(transport, handle, progress->message,
					  byte_count);
}

/*
 * A process has one connection: when it calls again, the end of the one before
 * was lost on the way. It may call once more when that is worked off.
 */
static void predecessor_drop(struct kvpull_progress *progress, uint32_t index,
			     const struct kvpull_hello *hello,
			     struct kvpull_refusal *refusal)
{
	const struct kvpull_consumer *consumer =
		&progress->handover->consumers[index];

	if ((consumer->incarnation ^ hello->incarnation) >> KVPULL_SELF_BITS) {
		kvpull_refusal_texts(refusal, KVPULL_EAGAIN, "rank",
				     "another process's", "the same");
		return;
	}
	kvpull_refusal_texts(refusal, KVPULL_EAGAIN, BEFORE, "being ended",
			     "over");
	kvpull_serve_drop(progress, index);
}

/* Places of the instances that are in, those of their other ranks among them. */
static uint32_t places_promised(const struct kvpull_progress *progress)
{
	const struct kvpull_consumer *consumers = progress->handover->consumers;
	uint32_t promised = 0;
	uint32_t index;
	uint32_t other;

	for (index = 0; index < progress->facts->caller_count_max; index++) {
		if (progress->callers[index].state < KVPULL_CALLER_IN)
			continue;
		for (other = 0; other < index; other++)
			if (progress->callers[other].state >=
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

		in_count += progress->callers[index].state >= KVPULL_CALLER_IN;
		if (progress->callers[index].state < KVPULL_CALLER_IN ||
		    consumer->instance_id != hello->instance)
			continue;
		is_known = 1;
		if (consumer->rank_count != hello->rank_count) {
			kvpull_refusal_numbers(
				refusal, KVPULL_EREJECTED, "rank_count",
				consumer->rank_count, hello->rank_count);
			return KVPULL_EREJECTED;
		}
		if (consumer->rank == hello->rank) {
			predecessor_drop(progress, index, hello, refusal);
			return KVPULL_EAGAIN;
		}
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

/* 0: the hello is whole and was made with our key, so it tells who calls. */
static int hello_read(struct kvpull_progress *progress, uint32_t index,
		      const struct kvpull_event *event,
		      struct kvpull_refusal *refusal)
{
	struct kvpull_hello *hello = progress->hello;
	const uint8_t *key = kvpull_config_key(&progress->facts->config);
	int code;

	if (!kvpull_route_trusts(progress->callers[index].route,
				 &progress->facts->config, event->uid)) {
		kvpull_refusal_numbers(refusal, KVPULL_EAUTH, "uid",
				       progress->facts->config.uids[0],
				       event->uid);
		return KVPULL_EAUTH;
	}
	code = kvpull_handshake_get_hello(event->data, event->data_bytes, key,
					  progress->callers[index].nonce,
					  hello);
	if (code)
		kvpull_refusal_hello(refusal, code, &hello->sealed);
	return code;
}

static int hello_check(struct kvpull_progress *progress,
		       struct kvpull_refusal *refusal)
{
	const struct kvpull_hello *hello = progress->hello;
	int code;

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

static void welcome_fill(struct kvpull_progress *progress)
{
	struct kvpull_welcome *welcome = progress->welcome;

	memset(welcome, 0, sizeof(*welcome));
	welcome->sealed.version = progress->facts->config.wire_emit;
	welcome->incarnation = progress->facts->incarnation;
	welcome->lease_ns = progress->facts->config.lease_ms * KVPULL_NS_PER_MS;
	welcome->slot_count = progress->facts->config.max_holds;
	welcome->tp_rank = progress->facts->tp_rank;
	welcome->tp_size = progress->facts->tp_size;
	welcome->pid = (uint32_t)getpid();
	welcome->entries_address =
		(uint64_t)(uintptr_t)progress->facts->serve.entries;
	welcome->region_count = progress->facts->serve.region_count;
	welcome->cache_count = progress->facts->cache_count;
	memcpy(welcome->engine_id, progress->facts->engine_id,
	       sizeof(welcome->engine_id));
	kvpull_welcome_regions_put(welcome->regions, &progress->facts->serve);
	memcpy(welcome->caches, progress->facts->caches,
	       progress->facts->cache_count * sizeof(*progress->facts->caches));
}

/*
 * Rate limit: whoever may call may say nonsense, and call again, as often. A
 * consumer that waits for room calls again for long.
 */
static int may_say(struct kvpull_progress *progress,
		   const struct kvpull_refusal *refusal)
{
	const uint64_t now_ns = kvpull_facts_now(progress->facts);

	if (refusal->code == KVPULL_EFULL)
		return kvpull_second_passed(&progress->full_say_ns, now_ns);
	if (now_ns >= progress->refuse_say_ns) {
		progress->refuse_say_ns = now_ns + KVPULL_NS_PER_S;
		progress->refuse_said = 0;
	}
	return progress->refuse_said++ < REFUSALS_SAID_MAX;
}

/* A caller as far as it is known. */
struct who {
	uint32_t uid; /* as the kernel says; KVPULL_UID_NONE: another machine's */
	const struct kvpull_hello *hello; /* NULL: it could not be read */
};

static void refusal_log(const struct kvpull_progress *progress,
			const struct who *who,
			const struct kvpull_refusal *refusal)
{
	char name[KVPULL_ENGINE_ID_BYTES_MAX + 48] = "of an unknown engine";
	char user[32] = "";

	if (who->hello)
		(void)snprintf(name, sizeof(name), "%s rank %u pid %u",
			       who->hello->engine_id, who->hello->rank,
			       who->hello->pid);
	if (who->uid != KVPULL_UID_NONE)
		(void)snprintf(user, sizeof(user), " of user %u", who->uid);
	kvpull_warn(
		progress->log,
		"consumer refused: %s is %s here and %s there (%s); it is %s%s",
		refusal->field, refusal->ours, refusal->theirs,
		kvpull_error_name(refusal->code), name, user);
}

static void caller_refuse(struct kvpull_progress *progress, uint32_t index,
			  const struct who *who,
			  const struct kvpull_refusal *refusal)
{
	struct kvpull_caller *caller = &progress->callers[index];
	struct kvpull_transport *transport = caller->route->transport;
	const int passes = strcmp(refusal->field, BEFORE) == 0;
	size_t byte_count;

	if (!passes && may_say(progress, refusal))
		refusal_log(progress, who, refusal);
	if (!passes)
		kvpull_count_add(&progress->counts->consumers_refused, 1);
	byte_count = kvpull_handshake_put_refusal(
		progress->message, KVPULL_MESSAGE_BYTES_MAX, refusal);
	caller->state = KVPULL_CALLER_FREE;
	transport->ops->refuse(transport, caller->handle, progress->message,
			       byte_count);
}

/* What was missing, in words that help who reads the refusal. */
static void admission_failed(struct kvpull_refusal *refusal, int32_t code)
{
	if (code == KVPULL_EAGAIN)
		kvpull_refusal_texts(refusal, code,
				     "room for descriptors (ulimit -n)",
				     "used up", "needed");
	else
		kvpull_refusal_texts(refusal, code, "welcome",
				     kvpull_error_name(code), "not come");
}

static void consumer_fill(struct kvpull_progress *progress, uint32_t index,
			  struct kvpull_ring *ring)
{
	struct kvpull_consumer *consumer =
		&progress->handover->consumers[index];
	const struct kvpull_hello *hello = progress->hello;
	const struct kvpull_transport_ops *ops =
		progress->callers[index].route->transport->ops;

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
}

static void caller_admit(struct kvpull_progress *progress, uint32_t index,
			 const struct who *who)
{
	struct kvpull_caller *caller = &progress->callers[index];
	struct kvpull_transport *transport = caller->route->transport;
	const struct kvpull_config *config = &progress->facts->config;
	struct kvpull_refusal refusal;
	struct kvpull_ring *ring;
	size_t byte_count;
	int code;

	welcome_fill(progress);
	byte_count = kvpull_handshake_put_welcome(
		progress->message, KVPULL_MESSAGE_BYTES_MAX, progress->welcome,
		kvpull_config_key(config), progress->hello->nonce);
	code = byte_count ? transport->ops->admit(transport, caller->handle,
						  progress->message, byte_count,
						  &ring) :
			    KVPULL_EFULL;
	if (code) {
		admission_failed(&refusal, code);
		caller_refuse(progress, index, who, &refusal);
		return;
	}
	caller->state = KVPULL_CALLER_IN;
	consumer_fill(progress, index, ring);
	kvpull_show_consumer(progress, index, who->uid);
	kvpull_progress_tell(progress, KVPULL_FROM_CONSUMER_UP, index);
}

void kvpull_serve_given(struct kvpull_progress *progress, const void *bytes,
			size_t byte_count)
{
	struct kvpull_given *given = &progress->handover->given;
	struct kvpull_progress_counts *counts = progress->counts;
	_Atomic uint64_t *const counters[] = {
		[KVPULL_GIVEN_NEW] = &counts->gives,
		[KVPULL_GIVEN_OLD] = &counts->gives_old,
		[KVPULL_GIVEN_BAD] = &counts->gives_bad,
	};
	uint32_t is_new = 0;
	uint32_t at;

	if (kvpull_give_get(bytes, byte_count, progress->give))
		return;
	for (at = 0; at < progress->give->word_count; at++) {
		const enum kvpull_given_verdict verdict =
			kvpull_given_take(given, &progress->give->words[at]);

		kvpull_count_add(counters[verdict], 1);
		is_new |= verdict == KVPULL_GIVEN_NEW;
	}
	if (is_new && kvpull_given_tell(given))
		kvpull_progress_tell(progress, KVPULL_FROM_GIVEN, 0);
}

/* It does not understand our welcome: the end of its connection. */
static void refused_back(struct kvpull_progress *progress, uint32_t index,
			 const struct kvpull_event *event)
{
	struct kvpull_refusal refusal;

	if (kvpull_handshake_get_refusal(event->data, event->data_bytes,
					 &refusal))
		return;
	kvpull_warn(progress->log,
		    "consumer %s refused us: %s is %s there and %s here (%s)",
		    progress->handover->consumers[index].engine_id,
		    refusal.field, refusal.ours, refusal.theirs,
		    kvpull_error_name(refusal.code));
	kvpull_serve_drop(progress, index);
}

/*
 * A call that gives tickets back says nothing else, and nothing answers it. The
 * caller sees by the close that its message was taken.
 */
static void caller_gives(struct kvpull_progress *progress, uint32_t index,
			 const struct kvpull_event *event)
{
	struct kvpull_caller *caller = &progress->callers[index];
	struct kvpull_transport *transport = caller->route->transport;

	kvpull_serve_given(progress, event->data, event->data_bytes);
	caller->state = KVPULL_CALLER_FREE;
	transport->ops->refuse(transport, caller->handle, NULL, 0);
}

static void caller_message(struct kvpull_progress *progress, uint32_t index,
			   const struct kvpull_event *event)
{
	struct kvpull_caller *caller = &progress->callers[index];
	struct who who = { .uid = event->uid };
	struct kvpull_refusal refusal;
	int code;

	/* Once admitted, a consumer can say only why it goes. */
	if (caller->state == KVPULL_CALLER_IN)
		refused_back(progress, index, event);
	if (caller->state != KVPULL_CALLER_CHALLENGED)
		return;
	if (kvpull_is_give(event->data, event->data_bytes)) {
		caller_gives(progress, index, event);
		return;
	}
	code = hello_read(progress, index, event, &refusal);
	if (!code) {
		who.hello = progress->hello;
		code = hello_check(progress, &refusal);
	}
	if (code)
		caller_refuse(progress, index, &who, &refusal);
	else
		caller_admit(progress, index, &who);
}

static void caller_down(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_caller *caller = &progress->callers[index];

	if (caller->state == KVPULL_CALLER_IN) {
		kvpull_info(progress->log, "consumer rank %u of %s is gone",
			    progress->handover->consumers[index].rank,
			    progress->handover->consumers[index].engine_id);
		caller->state = KVPULL_CALLER_OUT;
		kvpull_show_consumer_gone(progress, index);
		kvpull_progress_tell(progress, KVPULL_FROM_CONSUMER_DOWN,
				     index);
		return;
	}
	/* One that was refused may end, too, before it is over. */
	kvpull_serve_forget(progress, index);
}

void kvpull_serve_event(struct kvpull_progress *progress,
			const struct kvpull_route *route,
			const struct kvpull_event *event)
{
	const uint32_t index = route->caller_first + event->index;

	kvpull_check(progress->log,
		     event->index < route->transport->caller_count_max);
	if (event->kind == KVPULL_EVENT_CALLER_UP)
		caller_up(progress, route, &progress->callers[index],
			  event->index);
	else if (event->kind == KVPULL_EVENT_CALLER_MESSAGE)
		caller_message(progress, index, event);
	else
		caller_down(progress, index);
}

void kvpull_serve_forget(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_caller *caller = &progress->callers[index];
	struct kvpull_transport *transport = caller->route->transport;

	caller->state = KVPULL_CALLER_FREE;
	transport->ops->forget(transport, caller->handle);
}

void kvpull_serve_drop(struct kvpull_progress *progress, uint32_t index)
{
	struct kvpull_caller *caller = &progress->callers[index];
	struct kvpull_transport *transport = caller->route->transport;

	if (caller->state == KVPULL_CALLER_IN)
		transport->ops->drop(transport, caller->handle);
}
