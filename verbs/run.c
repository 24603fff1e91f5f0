/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: while an event of an end points into its inbox (paused), and
 * while a notification of it waits for room (stalled), none of its frames is
 * looked at; the end of a bundle is told after the ends of all its reads, and
 * after all that its other side had said before.
 */
#include "verbs/run.h"

#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/least.h"
#include "base/wrap.h"
#include "verbs/dial.h"
#include "verbs/spread.h"

#define COMPLETIONS_A_POLL 64
#define PROBE_NS (2 * KVPULL_NS_PER_S)
#define ANSWER_NS (60 * KVPULL_NS_PER_S) /* to a frame that arrived */
#define STALL_NS KVPULL_NS_PER_MS        /* before a full ring is tried again */
#define GIVE_UP_NS (10 * KVPULL_NS_PER_S) /* a note for it, of a lost lane */

static void bad_frame(struct kvpull_verbs_end *end, const char *why)
{
	end->shared->counts.frames_bad++;
	kvpull_verbs_end_lose(end, KVPULL_EPROTO, why);
}

static void keys_take(struct kvpull_verbs_end *end)
{
	if (kvpull_keys_get(end->inbox.data, end->inbox.total, &end->keys)) {
		bad_frame(end, "memory keys that are none");
		return;
	}
	end->keys_known = 1;
	if (end->joins)
		kvpull_verbs_bundle_keys(end->bundle, end);
}

/* Once it was let in, a caller can say yet why it goes. */
static int hears_pieces(const struct kvpull_verbs_end *end,
			const struct kvpull_frame *frame)
{
	return end->state == KVPULL_VERBS_OPEN ||
	       (end->state == KVPULL_VERBS_IN &&
		end->role == KVPULL_VERBS_CALLER && !end->joins &&
		frame->kind == KVPULL_FRAME_MESSAGE);
}

/* A piece of a message or of the keys; a whole message is told. */
static void piece_take(struct kvpull_verbs_end *end,
		       const struct kvpull_frame *frame,
		       struct kvpull_events *events)
{
	struct kvpull_event *event;
	int whole;

	/* After admission a peer hears none: this one is dropped. */
	if (!hears_pieces(end, frame))
		return;
	if ((frame->offset && frame->kind != end->inbox_kind) ||
	    (frame->kind == KVPULL_FRAME_MESSAGE && end->joins) ||
	    (frame->kind == KVPULL_FRAME_KEYS &&
	     (end->role == KVPULL_VERBS_CALLER || end->keys_known))) {
		bad_frame(end, "a message that has no place");
		return;
	}
	end->inbox_kind = frame->kind;
	whole = kvpull_inbox_add(&end->inbox, frame);
	if (whole < 0) {
		bad_frame(end, "pieces that are no message");
		return;
	}
	if (!whole)
		return;
	if (frame->kind == KVPULL_FRAME_KEYS) {
		keys_take(end);
		return;
	}
	event = kvpull_events_add(events,
				  end->role == KVPULL_VERBS_PEER ?
					  KVPULL_EVENT_PEER_MESSAGE :
					  KVPULL_EVENT_CALLER_MESSAGE,
				  end->index);
	event->uid = KVPULL_UID_NONE;
	event->data = end->inbox.data;
	event->data_bytes = end->inbox.total;
	/* The owner may look at it until the next poll. */
	end->paused = 1;
	end->bundle->greeted = 1;
}

/* Return: 1 if its ring has no room for it now. */
static int ring_push(const struct kvpull_verbs_end *end)
{
	const int wake_fd = end->shared->params.engine_wake_fd;
	const int code = kvpull_ring_push(end->bundle->ring, &end->note);

	if (code == 1 && wake_fd >= 0)
		(void)eventfd_write(wake_fd, 1);
	return code < 0;
}

/*
 * A note is taken from the lane that brings its number first. When the ring is
 * full it is offered again at the next poll, and nothing else is taken from that
 * lane until then.
 */
static void note_offer(struct kvpull_verbs_end *end)
{
	struct kvpull_verbs_bundle *bundle = end->bundle;

	end->stalled = 0;
	if (end->note_number != bundle->note_next)
		return;
	end->stalled = (uint32_t)ring_push(end);
	bundle->note_next += !end->stalled;
	end->noted |= !end->stalled;
}

static void note_take(struct kvpull_verbs_end *end,
		      const struct kvpull_frame *frame)
{
	end->note_number = frame->offset + KVPULL_WRAP_START;
	if (kvpull_frame_get_record(frame, &end->note) ||
	    (int32_t)(end->note_number - end->bundle->note_next) > 0) {
		bad_frame(end, "a notification that is none");
		return;
	}
	note_offer(end);
}

static void frame_take(struct kvpull_verbs_end *end,
		       const struct kvpull_frame *frame,
		       struct kvpull_events *events)
{
	/* NULL until the caller was admitted, in whatever state the lane is. */
	struct kvpull_ring_writer *ring = end->bundle->ring;

	end->heard_ns = end->shared->now_ns;
	switch (frame->kind) {
	case KVPULL_FRAME_MESSAGE:
	case KVPULL_FRAME_KEYS:
		piece_take(end, frame, events);
		break;
	case KVPULL_FRAME_NOTE:
		if (ring)
			note_take(end, frame);
		else if (end->state <= KVPULL_VERBS_IN)
			bad_frame(end, "a notification before admission");
		break;
	case KVPULL_FRAME_BEAT:
		if (ring && !frame->offset)
			kvpull_ring_beat(ring);
		break;
	}
}

static void batches_over(struct kvpull_verbs_reads *reads,
			 struct kvpull_verbs_end *end)
{
	struct kvpull_verbs_batch batch;

	while (kvpull_verbs_end_pop(end, &batch))
		kvpull_verbs_read_over(reads, end, &batch);
}

static void queue_empty(struct kvpull_verbs_end *end)
{
	if (end->bell == KVPULL_BELL_ARMED)
		end->bell = KVPULL_BELL_EMPTY;
	end->empty_ns = end->shared->now_ns;
	/* All frames from before the disconnect have been taken. */
	if (end->hung_up)
		kvpull_verbs_end_lose(end, KVPULL_EPEER, NULL);
}

static int end_poll(struct kvpull_verbs_reads *reads,
		    struct kvpull_verbs_end *end, struct kvpull_events *events)
{
	int left;

	for (left = COMPLETIONS_A_POLL; left > 0; left--) {
		struct kvpull_frame frame;
		enum kvpull_verbs_seen seen;

		if (end->paused || !kvpull_events_room(events))
			return 0;
		if (end->stalled) {
			note_offer(end);
			if (end->stalled)
				return 0;
		}
		seen = kvpull_verbs_end_poll(end, &frame);
		if (seen == KVPULL_VERBS_NOTHING) {
			queue_empty(end);
			return 0;
		}
		if (end->bell == KVPULL_BELL_EMPTY)
			end->bell = KVPULL_BELL_RANG;
		if (seen == KVPULL_VERBS_FRAME)
			frame_take(end, &frame, events);
		/*
		 * Batches of a lost lane end when it is quiet: see
		 * kvpull_verbs_reads_move().
		 */
		if (end->state < KVPULL_VERBS_LOST)
			batches_over(reads, end);
	}
	return 1;
}

static int end_has_completions(const struct kvpull_verbs_end *end)
{
	/* CONNECTING: what comes early waits until CM has said so. */
	return end->cq && end->state >= KVPULL_VERBS_OPEN &&
	       end->state <= KVPULL_VERBS_LOST;
}

static void call_tell(struct kvpull_verbs_bundle *bundle,
		      struct kvpull_events *events)
{
	if (bundle->role != KVPULL_VERBS_CALLER || bundle->told ||
	    kvpull_verbs_bundle_first(bundle)->state != KVPULL_VERBS_OPEN ||
	    !kvpull_events_room(events))
		return;
	kvpull_events_add(events, KVPULL_EVENT_CALLER_UP, bundle->index)->uid =
		KVPULL_UID_NONE;
	bundle->told = 1;
}

/*
 * A dead host says nothing, so one that was silent for long is asked by a
 * heartbeat, which renews no lease: whether it has leases to keep is for the
 * owner to say. If it died after its device took a frame, no second heartbeat goes
 * out, or there is no credit for one: then it is lost after ANSWER_NS.
 */
static void probe(struct kvpull_verbs_end *end, uint64_t now_ns)
{
	if (end->state != KVPULL_VERBS_IN || now_ns - end->heard_ns < PROBE_NS)
		return;
	if (end->acked != end->sent && now_ns - end->unanswered_ns >= ANSWER_NS)
		kvpull_verbs_end_lose(end, KVPULL_EPEER, "it does not answer");
	end->heard_ns = now_ns;
	end->ask_wanted = 1;
}

/* Cancelled reads that do not end soon cost the queue pair. */
static void cancels_cut(struct kvpull_verbs_end *end, uint64_t now_ns)
{
	if (end->state != KVPULL_VERBS_IN || !end->cancels_open ||
	    now_ns < end->cancel_ns)
		return;
	if (end->done != end->cancel_done && now_ns < end->cancel_max_ns) {
		end->cancel_done = end->done;
		end->cancel_ns = now_ns + end->shared->params.flush_ns;
		return;
	}
	end->shared->counts.flushes++;
	kvpull_verbs_end_lose(end, KVPULL_EABORTED,
			      "cut to end a cancelled read");
}

static void end_times(struct kvpull_verbs_end *end)
{
	const uint64_t now_ns = end->shared->now_ns;

	probe(end, now_ns);
	cancels_cut(end, now_ns);
	if (end->state == KVPULL_VERBS_LINGER &&
	    end->message.sent == end->message.total && end->done == end->posted)
		kvpull_verbs_end_lose(end, KVPULL_EPEER, NULL);
	if ((end->state == KVPULL_VERBS_CONNECTING ||
	     end->state == KVPULL_VERBS_OPEN ||
	     end->state == KVPULL_VERBS_LINGER) &&
	    now_ns >= end->deadline_ns)
		kvpull_verbs_end_lose(end, KVPULL_EPEER,
				      "the handshake took too long");
}

/* Quiet: tell its end, once its reads were told. */
static void bundle_down(struct kvpull_verbs_bundle *bundle,
			struct kvpull_events *events)
{
	const int is_peer = bundle->role == KVPULL_VERBS_PEER;

	if (!bundle->told) {
		bundle->state = KVPULL_BUNDLE_GONE;
		return;
	}
	if (bundle->reads_open || !kvpull_events_room(events))
		return;
	kvpull_events_add(events,
			  is_peer ? KVPULL_EVENT_PEER_DOWN :
				    KVPULL_EVENT_CALLER_DOWN,
			  bundle->index)
		->code = bundle->code;
	bundle->state = is_peer ? KVPULL_BUNDLE_GONE : KVPULL_BUNDLE_DOWN;
}

/* Does it go on without the lane that frames went by? */
static void bundle_watch(struct kvpull_verbs_connect *connect,
			 struct kvpull_verbs_bundle *bundle)
{
	const struct kvpull_verbs_end *first =
		kvpull_verbs_bundle_first(bundle);

	if (first->state < KVPULL_VERBS_LOST)
		return;
	if (bundle->state == KVPULL_BUNDLE_MEETING) {
		if (!bundle->greeted && bundle->role == KVPULL_VERBS_PEER &&
		    !kvpull_verbs_dial_next(connect, bundle))
			return;
	} else if (bundle->state == KVPULL_BUNDLE_IN) {
		if (!kvpull_verbs_bundle_turn(bundle))
			return;
	}
	kvpull_verbs_bundle_lose(bundle, first->code, NULL);
}

/* A lost lane that is not needed any more makes room for a new one. */
static void lane_free(struct kvpull_verbs_end *end)
{
	const struct kvpull_verbs_bundle *bundle = end->bundle;

	if (end->state == KVPULL_VERBS_QUIET &&
	    (bundle->state == KVPULL_BUNDLE_IN ||
	     bundle->state == KVPULL_BUNDLE_MEETING) &&
	    end->place != bundle->first && kvpull_verbs_reads_moved(end))
		kvpull_verbs_end_unmake(end);
}

/*
 * A lost lane has a note for a full ring. A slow engine hears it yet; but some
 * look at no ring, as of a caller that they dropped, and its place must come
 * free. Nothing acknowledged it, so a consumer that lives says it again.
 */
static int waits_for_room(struct kvpull_verbs_end *end)
{
	const uint64_t now_ns = end->shared->now_ns;

	if (!end->stalled) {
		end->stall_ns = 0;
		return 0;
	}
	if (!end->stall_ns)
		end->stall_ns = now_ns + GIVE_UP_NS;
	if (now_ns < end->stall_ns)
		return 1;
	/* With what lies behind it: it is quiet by now. */
	end->stalled = 0;
	end->deadline_ns = now_ns;
	return 0;
}

static void lane_settle(const struct kvpull_verbs_run *run,
			struct kvpull_verbs_end *end)
{
	if (end->state != KVPULL_VERBS_LOST || waits_for_room(end))
		return;
	kvpull_verbs_end_settle(end);
	if (end->state == KVPULL_VERBS_QUIET &&
	    end->role == KVPULL_VERBS_PEER &&
	    end->bundle->state == KVPULL_BUNDLE_IN)
		kvpull_verbs_reads_move(run->reads, end);
}

static int lane_run(const struct kvpull_verbs_run *run,
		    struct kvpull_verbs_end *end)
{
	int more = 0;

	end->paused = 0;
	if (end_has_completions(end))
		more = end_poll(run->reads, end, run->events);
	end_times(end);
	return more;
}

/*
 * Notes are acknowledged in the next poll, after the owner has heard of them; at
 * once when the other side has used half of its credits.
 */
static void lane_pump(struct kvpull_verbs_end *end,
		      struct kvpull_events *events)
{
	const uint32_t owed = kvpull_verbs_end_taken(end) - end->told_acked;

	if (!end->noted || owed > end->shared->params.notify_credits / 2)
		kvpull_verbs_end_pump(end);
	else if (!events->count && kvpull_events_room(events))
		kvpull_events_add(events, KVPULL_EVENT_NONE, 0);
	end->noted = 0;
}

int kvpull_verbs_bundle_run(const struct kvpull_verbs_run *run,
			    struct kvpull_verbs_bundle *bundle)
{
	const uint32_t lane_count = bundle->shared->lane_count;
	const int is_peer = bundle->role == KVPULL_VERBS_PEER;
	uint32_t place;
	int more = 0;

	call_tell(bundle, run->events);
	for (place = 0; place < lane_count; place++) {
		lane_free(&bundle->ends[place]);
		more |= lane_run(run, &bundle->ends[place]);
	}
	if (is_peer)
		kvpull_verbs_spread_cut(bundle);
	bundle_watch(run->connect, bundle);
	for (place = 0; place < lane_count; place++)
		lane_settle(run, &bundle->ends[place]);
	if (is_peer) {
		kvpull_verbs_dial_join(run->connect, bundle);
		kvpull_verbs_bundle_notes_pump(bundle);
		kvpull_verbs_reads_pump(run->reads, bundle);
	}
	for (place = 0; place < lane_count; place++)
		lane_pump(&bundle->ends[place], run->events);
	if (is_peer && kvpull_verbs_bundle_is_quiet(bundle))
		kvpull_verbs_reads_lose(run->reads, bundle);
	if (is_peer)
		kvpull_verbs_reads_report(run->reads, run->events);
	if (kvpull_verbs_bundle_is_quiet(bundle))
		bundle_down(bundle, run->events);
	return more;
}

/* When this end has something due by itself; UINT64_MAX: never. */
static uint64_t end_due_ns(const struct kvpull_verbs_end *end)
{
	uint64_t due_ns = UINT64_MAX;

	switch (end->state) {
	case KVPULL_VERBS_CONNECTING:
	case KVPULL_VERBS_OPEN:
	case KVPULL_VERBS_LINGER:
	case KVPULL_VERBS_LOST:
		due_ns = end->deadline_ns;
		break;
	case KVPULL_VERBS_IN:
		due_ns = end->heard_ns + PROBE_NS;
		break;
	default:
		break;
	}
	if (end->state == KVPULL_VERBS_IN && end->cancels_open)
		due_ns = kvpull_least(due_ns, end->cancel_ns);
	if (end->stalled)
		due_ns = end->shared->now_ns + STALL_NS;
	return due_ns;
}

uint64_t kvpull_verbs_bundle_due_ns(const struct kvpull_verbs_bundle *bundle)
{
	uint64_t due_ns = kvpull_least(kvpull_verbs_dial_join_ns(bundle),
				       kvpull_verbs_spread_due_ns(bundle));
	uint32_t place;

	for (place = 0; place < bundle->shared->lane_count; place++)
		due_ns = kvpull_least(due_ns, end_due_ns(&bundle->ends[place]));
	return due_ns;
}

/* Return: 1 if a poll now would find something. */
static int end_arm(struct kvpull_verbs_end *end)
{
	if (end->paused || end->hung_up)
		return 1;
	/* No event tells that the ring has room again: the timer does. */
	if (end->stalled)
		return 0;
	/*
	 * Slices that wait in this lane go by other lanes when those have room.
	 * The lane is freed when none waits, or with its bundle.
	 */
	if (end->state == KVPULL_VERBS_QUIET)
		return end->bundle->state != KVPULL_BUNDLE_ENDING &&
		       kvpull_verbs_reads_moved(end);
	if (!end_has_completions(end) || end->bell != KVPULL_BELL_OFF)
		return 0;
	end->bell = KVPULL_BELL_ARMED;
	if (ibv_req_notify_cq(end->cq, 0)) {
		end->bell = KVPULL_BELL_OFF;
		kvpull_verbs_end_lose(end, KVPULL_EPEER,
				      "arming the completion queue");
	}
	/* A completion from before that makes no event: poll once more. */
	return 1;
}

int kvpull_verbs_bundle_arm(struct kvpull_verbs_bundle *bundle)
{
	/* Reads that wait for the GPU's thread or a loop are ended by theirs. */
	int more = bundle->state == KVPULL_BUNDLE_GONE ||
		   (kvpull_verbs_bundle_is_quiet(bundle) && !bundle->gpu_waits);
	uint32_t place;

	if (bundle->state == KVPULL_BUNDLE_DOWN)
		return 0;
	for (place = 0; place < bundle->shared->lane_count; place++)
		more |= end_arm(&bundle->ends[place]);
	return more;
}

int kvpull_verbs_bundle_rings(const struct kvpull_verbs_bundle *bundle)
{
	uint32_t place;

	for (place = 0; place < bundle->shared->lane_count; place++)
		if (bundle->ends[place].bell == KVPULL_BELL_RANG)
			return 1;
	return 0;
}
