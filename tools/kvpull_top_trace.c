/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events that the files keep as a trace (Trace Event Format: Perfetto,
 * chrome://tracing). A process is a worker; a row of it a hold's slot: on the
 * producer its hold, on the consumer the ticket, with the pull and its reads in
 * it. Arrows lead from a hold to the pulls of it, joined by the producer's
 * incarnation, slot and generation. Times are microseconds of CLOCK_REALTIME.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "tools/json.h"
#include "tools/kvpull_top_parts.h"

/* A span that began on a slot and has not ended. */
struct open_span {
	const char *name; /* NULL: nothing */
	uint64_t at_ns;
	uint64_t generation;
	uint64_t who;
};

enum depth {
	DEPTH_OUTER,
	DEPTH_PULL,
	DEPTH_READ,
	DEPTHS
};

#define SPANS_MAX 4096u

struct writer {
	json_t *events;
	const struct top *top;
	const struct top_worker *worker;
	uint32_t process;
	uint32_t span_count;
	struct {
		uint64_t who;
		uint32_t slot;
		struct open_span open[DEPTHS];
	} spans[SPANS_MAX];
};

/*
 * Workers of one machine share a clock, whose offset is taken once: each took
 * its own at its open, a moment apart, and that would part what belongs
 * together. Of files from elsewhere only that is known.
 */
static double micros(const struct writer *writer, uint64_t at_ns)
{
	const struct top_worker *worker = writer->worker;
	const struct top *top = writer->top;
	const uint64_t clock_ns =
		top->now_ns +
		(uint64_t)(worker->header.clock_offset_ns - top->offset_ns);
	const uint64_t utc_ns =
		worker->is_here ? top->utc_ns : worker->header.opened_utc;
	const uint64_t now_ns =
		worker->is_here ? clock_ns : worker->header.opened_ns;

	return ((double)utc_ns + ((double)at_ns - (double)now_ns)) / 1000;
}

/* On a consumer the slots of several producers stand beside each other. */
static uint32_t row_of(struct writer *writer, uint64_t who, uint32_t slot)
{
	uint32_t at;

	for (at = 0; at < writer->span_count; at++)
		if (writer->spans[at].who == who &&
		    writer->spans[at].slot == slot)
			return at;
	if (writer->span_count == SPANS_MAX)
		return SPANS_MAX - 1;
	writer->spans[at].who = who;
	writer->spans[at].slot = slot;
	memset(writer->spans[at].open, 0, sizeof(writer->spans[at].open));
	return writer->span_count++;
}

static json_t *event_new(const struct writer *writer, const char *phase,
			 const char *name, uint32_t row, uint64_t at_ns)
{
	json_t *event = json_object();

	set_value(event, "ph", json_string(phase));
	set_value(event, "name", json_string(name));
	set_value(event, "cat", json_string("kvpull"));
	set(event, "pid", writer->process);
	set(event, "tid", row + 1);
	set_real(event, "ts", micros(writer, at_ns));
	return event;
}

/* incarnation: of the producer's rank, on both sides. */
static json_t *args_of(uint64_t incarnation, uint32_t slot, uint64_t generation)
{
	json_t *args = json_object();

	set_value(args, "incarnation",
		  json_sprintf("%016" PRIx64, incarnation));
	set(args, "slot", slot);
	set(args, "generation", generation);
	return args;
}

static void arrow(const struct writer *writer, const char *phase, uint32_t row,
		  uint64_t incarnation, const struct kvpull_status_note *note)
{
	json_t *event = event_new(writer, phase, "request", row, note->at_ns);

	set_value(event, "id",
		  json_sprintf("%016" PRIx64 ":%u:%" PRIu64, incarnation,
			       note->slot, note->generation));
	if (*phase == 'f')
		set_value(event, "bp", json_string("e"));
	(void)json_array_append_new(writer->events, event);
}

static void span_begin(struct writer *writer, uint32_t row, enum depth depth,
		       const char *name, const struct kvpull_status_note *note)
{
	writer->spans[row].open[depth] =
		(struct open_span){ name, note->at_ns, note->generation,
				    note->who };
}

/* outcome: NULL, or what came of it. */
static void span_end(struct writer *writer, uint32_t row, enum depth depth,
		     const struct kvpull_status_note *note, const char *outcome,
		     uint64_t incarnation)
{
	struct open_span *span = &writer->spans[row].open[depth];
	const uint64_t took_ns =
		note->at_ns > span->at_ns ? note->at_ns - span->at_ns : 0;
	json_t *event;
	json_t *args;

	if (!span->name || span->generation != note->generation)
		return;
	event = event_new(writer, "X", span->name, row, span->at_ns);
	args = args_of(incarnation, note->slot, note->generation);
	set_real(event, "dur", (double)took_ns / 1000);
	if (outcome)
		set_value(args, "outcome", json_string(outcome));
	set_value(event, "args", args);
	(void)json_array_append_new(writer->events, event);
	span->name = NULL;
}

static void producer_event(struct writer *writer,
			   const struct kvpull_status_note *note)
{
	const uint64_t own = writer->worker->header.incarnation;
	const uint32_t row = row_of(writer, own, note->slot);
	json_t *event;

	switch (note->what) {
	case KVPULL_DID_TAKE:
		span_begin(writer, row, DEPTH_OUTER, "hold", note);
		arrow(writer, "s", row, own, note);
		break;
	case KVPULL_DID_END:
		span_end(writer, row, DEPTH_OUTER, note,
			 top_end_reason(note->arg), own);
		break;
	case KVPULL_DID_CLAIM:
	case KVPULL_DID_RELEASE:
		event = event_new(writer, "i",
				  note->what == KVPULL_DID_CLAIM ? "claim" :
								   "release",
				  row, note->at_ns);
		set_value(event, "s", json_string("t"));
		set_value(event, "args",
			  args_of(own, note->slot, note->generation));
		(void)json_array_append_new(writer->events, event);
		break;
	default:
		break;
	}
}

static void consumer_event(struct writer *writer,
			   const struct kvpull_status_note *note)
{
	const uint64_t peer = note->who;
	const uint32_t row = row_of(writer, peer, note->slot);

	switch (note->what) {
	case KVPULL_DID_CLAIM_TICKET:
		span_begin(writer, row, DEPTH_OUTER, "ticket", note);
		break;
	case KVPULL_DID_RELEASE_TICKET:
		span_end(writer, row, DEPTH_OUTER, note, "released", peer);
		break;
	case KVPULL_DID_PULL:
		span_begin(writer, row, DEPTH_PULL, "pull", note);
		arrow(writer, "f", row, peer, note);
		break;
	case KVPULL_DID_READ:
		span_begin(writer, row, DEPTH_READ, "read", note);
		break;
	case KVPULL_DID_CAME:
		span_end(writer, row, DEPTH_READ, note, NULL, peer);
		break;
	case KVPULL_DID_LOADED:
		span_end(writer, row, DEPTH_PULL, note, "loaded", peer);
		break;
	case KVPULL_DID_FAILED:
		span_end(writer, row, DEPTH_READ, note, NULL, peer);
		span_end(writer, row, DEPTH_PULL, note,
			 kvpull_error_name(-note->arg), peer);
		break;
	default:
		break;
	}
}

static void worker_name(const struct writer *writer)
{
	const struct kvpull_status_header *header = &writer->worker->header;
	json_t *event = event_new(writer, "M", "process_name", 0,
				  writer->worker->header.opened_ns);
	json_t *args = json_object();
	json_t *name = json_sprintf("%s rank %u pid %u", header->engine_id,
				    header->rank, header->pid);

	set_value(args, "name", name ? name : json_string("?"));
	set_value(event, "args", args);
	(void)json_array_append_new(writer->events, event);
}

static void worker_trace(struct writer *writer, const struct top_worker *worker,
			 uint32_t index)
{
	struct top_events events = { .worker = worker };
	const struct kvpull_status_note *note = &events.note;

	writer->worker = worker;
	/* Not its pid: two hosts' files may lie beside each other. */
	writer->process = index + 1;
	writer->span_count = 0;
	worker_name(writer);
	/* Each thread's in turn: a span begins and ends in one of them. */
	while (top_event_next(&events))
		if (note->what >= KVPULL_DID_CLAIM_TICKET &&
		    note->what <= KVPULL_DID_FAILED)
			consumer_event(writer, note);
		else
			producer_event(writer, note);
}

int top_trace(const struct top *top, const char *path)
{
	static struct writer writer;
	json_t *trace = json_object();
	uint32_t at;
	int failed;

	writer.top = top;
	writer.events = json_array();
	/* Nothing at a pool's owner is a request's. */
	for (at = 0; at < top->worker_count; at++)
		if (!top_pool(&top->workers[at]))
			worker_trace(&writer, &top->workers[at], at);
	set_value(trace, "traceEvents", writer.events);
	set_value(trace, "displayTimeUnit", json_string("ns"));
	errno = 0;
	failed = json_dump_file(trace, path, JSON_COMPACT | JSON_REALS) != 0;
	if (failed)
		(void)fprintf(stderr,
			      "kvpull_top: --trace %s: cannot write: %s\n",
			      path, strerror(errno ? errno : EIO));
	json_decref(trace);
	return failed;
}
