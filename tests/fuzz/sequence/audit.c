/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between a worker and one of its routes: a copy of the route's table of calls,
 * some of which look first. What must hold: an admission, a message and an end
 * are of a caller that is there; nothing reaches the ring of who is not in; a
 * read that was started ends once, before its peer does.
 */
#include <string.h>

#include "base/ring.h"
#include "tests/fuzz/sequence/sequence.h"

#define AUDITS (2 * SEQ_ENGINES)

static struct seq_audit *audits[AUDITS];

static struct seq_audit *audit_of(const struct kvpull_transport *transport)
{
	uint32_t at;

	for (at = 0; at < AUDITS; at++)
		if (audits[at] && audits[at]->transport == transport)
			return audits[at];
	seq_fail("a call by a transport that is closed");
}

static int peer_begins(struct seq_audit *audit, uint32_t peer)
{
	if (peer >= SEQ_PEERS || audit->peer_open[peer])
		seq_fail("%s: peer %u is given out twice", audit->name, peer);
	audit->peer_open[peer] = 1;
	return 0;
}

static int audit_connect(struct kvpull_transport *transport,
			 const char *address, uint32_t *peer)
{
	struct seq_audit *audit = audit_of(transport);
	const int code = audit->real->connect(transport, address, peer);

	return code ? code : peer_begins(audit, *peer);
}

static int audit_give(struct kvpull_transport *transport, const char *address,
		      const void *bytes, size_t byte_count, uint32_t *peer)
{
	struct seq_audit *audit = audit_of(transport);
	const int code =
		audit->real->give(transport, address, bytes, byte_count, peer);

	return code ? code : peer_begins(audit, *peer);
}

static void read_open(struct seq_audit *audit, uint32_t peer,
		      const struct kvpull_read *read, uint32_t checks)
{
	if (read->index >= SEQ_READS || audit->reads[read->index].read)
		seq_fail("%s: read %u is started twice", audit->name,
			 read->index);
	audit->reads[read->index].read = read;
	audit->reads[read->index].peer = peer;
	audit->reads[read->index].checks = checks;
}

static int audit_read_start(struct kvpull_transport *transport, uint32_t peer,
			    struct kvpull_read *read)
{
	struct seq_audit *audit = audit_of(transport);
	const int code = audit->real->read_start(transport, peer, read);

	if (!code)
		read_open(audit, peer, read, 0);
	return code;
}

static int audit_check_start(struct kvpull_transport *transport, uint32_t peer,
			     struct kvpull_read *read)
{
	struct seq_audit *audit = audit_of(transport);
	const int code = audit->real->check_start(transport, peer, read);

	if (!code)
		read_open(audit, peer, read, 1);
	return code;
}

static int audit_admit(struct kvpull_transport *transport, uint32_t caller,
		       const void *welcome, size_t welcome_bytes,
		       struct kvpull_ring **ring)
{
	struct seq_audit *audit = audit_of(transport);
	const int code = audit->real->admit(transport, caller, welcome,
					    welcome_bytes, ring);

	if (code)
		return code;
	if (!audit->caller_up[caller] || audit->admitted[caller])
		seq_fail("%s: caller %u is let in, who is not there, or is in",
			 audit->name, caller);
	/* A fresh one: nothing that was said before is in it. */
	if (kvpull_ring_ready(*ring) || kvpull_ring_beat_seen(*ring))
		seq_fail("%s: caller %u is let in, and was heard before",
			 audit->name, caller);
	audit->rings[caller] = audit->keeps_rings ? *ring : NULL;
	audit->admitted[caller] = 1;
	return 0;
}

/*
 * No thread drains the ring of a caller that is not in: records stay there. A
 * place that was cleared for its next caller has none.
 */
static void rings_check(const struct seq_audit *audit)
{
	uint32_t caller;

	for (caller = 0; caller < SEQ_PLACES; caller++)
		if (audit->rings[caller] && audit->rings[caller]->shared &&
		    !audit->admitted[caller] &&
		    (kvpull_ring_ready(audit->rings[caller]) !=
			     audit->ready[caller] ||
		     kvpull_ring_beat_seen(audit->rings[caller])))
			seq_fail(
				"%s: caller %u reaches its ring before admission",
				audit->name, caller);
}

static void audit_refuse(struct kvpull_transport *transport, uint32_t caller,
			 const void *refusal, size_t refusal_bytes)
{
	struct seq_audit *audit = audit_of(transport);

	audit->caller_up[caller] = 0;
	audit->real->refuse(transport, caller, refusal, refusal_bytes);
}

static void audit_forget(struct kvpull_transport *transport, uint32_t caller)
{
	struct seq_audit *audit = audit_of(transport);

	if (audit->rings[caller] && audit->admitted[caller]) {
		audit->ready[caller] = kvpull_ring_ready(audit->rings[caller]);
		(void)kvpull_ring_beat_seen(audit->rings[caller]);
	}
	audit->admitted[caller] = 0;
	audit->real->forget(transport, caller);
}

static void read_ended(struct seq_audit *audit,
		       const struct kvpull_event *event)
{
	const uint32_t checks = event->kind == KVPULL_EVENT_CHECK_DONE;
	const struct kvpull_read *read = event->read;

	if (!read || read->index >= SEQ_READS ||
	    audit->reads[read->index].read != read ||
	    audit->reads[read->index].checks != checks)
		seq_fail("%s: a read ends that is not open", audit->name);
	audit->reads[read->index].read = NULL;
}

static void peer_ended(struct seq_audit *audit, uint32_t peer)
{
	uint32_t at;

	if (peer >= SEQ_PEERS || !audit->peer_open[peer])
		seq_fail("%s: peer %u ends, and is not there", audit->name,
			 peer);
	audit->peer_open[peer] = 0;
	for (at = 0; at < SEQ_READS; at++)
		if (audit->reads[at].read && audit->reads[at].peer == peer)
			seq_fail("%s: peer %u ends before its read %u",
				 audit->name, peer, at);
}

static void caller_event(struct seq_audit *audit,
			 const struct kvpull_event *event)
{
	const int comes = event->kind == KVPULL_EVENT_CALLER_UP;
	uint8_t *up;

	if (event->index >= SEQ_PLACES)
		seq_fail("%s: caller %u has no place", audit->name,
			 event->index);
	up = &audit->caller_up[event->index];
	if (*up == comes)
		seq_fail("%s: event %u of caller %u, who is %s", audit->name,
			 event->kind, event->index, *up ? "there" : "not");
	if (comes && audit->admitted[event->index])
		seq_fail("%s: caller %u comes, and is in", audit->name,
			 event->index);
	*up = event->kind != KVPULL_EVENT_CALLER_DOWN;
}

static int audit_poll(struct kvpull_transport *transport, uint64_t now_ns,
		      struct kvpull_event *events, uint32_t capacity)
{
	struct seq_audit *audit = audit_of(transport);
	const int count =
		audit->real->poll(transport, now_ns, events, capacity);
	int at;

	if (count < 0 || (uint32_t)count > capacity)
		seq_fail("%s: a poll of %d events", audit->name, count);
	rings_check(audit);
	for (at = 0; at < count; at++) {
		const struct kvpull_event *event = &events[at];

		switch (event->kind) {
		case KVPULL_EVENT_READ_DONE:
		case KVPULL_EVENT_CHECK_DONE:
			read_ended(audit, event);
			break;
		case KVPULL_EVENT_PEER_DOWN:
			peer_ended(audit, event->index);
			break;
		case KVPULL_EVENT_PEER_MESSAGE:
		case KVPULL_EVENT_PEER_RATE:
			if (event->index >= SEQ_PEERS ||
			    !audit->peer_open[event->index])
				seq_fail("%s: a message of no peer",
					 audit->name);
			break;
		case KVPULL_EVENT_CALLER_UP:
		case KVPULL_EVENT_CALLER_MESSAGE:
		case KVPULL_EVENT_CALLER_DOWN:
			caller_event(audit, event);
			break;
		case KVPULL_EVENT_ADDRESS:
		case KVPULL_EVENT_NONE:
			break;
		}
	}
	return count;
}

static void audit_close(struct kvpull_transport *transport,
			uint64_t close_by_ns)
{
	struct seq_audit *audit = audit_of(transport);
	uint32_t at;

	for (at = 0; at < AUDITS; at++)
		if (audits[at] == audit)
			audits[at] = NULL;
	audit->real->close(transport, close_by_ns);
}

void seq_audit_keeps_rings(struct seq_audit *audit)
{
	audit->keeps_rings = 1;
}

void seq_audit_begin(struct seq_audit *audit, struct seq_world *world,
		     const char *name, struct kvpull_transport *transport)
{
	uint32_t at;

	audit->world = world;
	audit->name = name;
	audit->transport = transport;
	audit->real = transport->ops;
	audit->ops = *transport->ops;
	audit->ops.connect = audit_connect;
	audit->ops.give = audit_give;
	audit->ops.read_start = audit_read_start;
	audit->ops.check_start = audit_check_start;
	audit->ops.admit = audit_admit;
	audit->ops.refuse = audit_refuse;
	audit->ops.forget = audit_forget;
	audit->ops.poll = audit_poll;
	audit->ops.close = audit_close;
	transport->ops = &audit->ops;
	for (at = 0; at < AUDITS && audits[at]; at++)
		;
	if (at == AUDITS)
		seq_fail("more routes than there are");
	audits[at] = audit;
}

uint32_t seq_audit_reads_open(const struct seq_audit *audit)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < SEQ_READS; at++)
		count += audit->reads[at].read != NULL;
	return count;
}

uint32_t seq_audit_callers(const struct seq_audit *audit)
{
	uint32_t count = 0;
	uint32_t at;

	for (at = 0; at < SEQ_PLACES; at++)
		count += audit->caller_up[at];
	return count;
}
