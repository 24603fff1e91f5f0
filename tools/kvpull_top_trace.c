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

/* A span that began on a row and has not ended. */
struct open_span {
	const char *name; /* NULL: nothing */
	uint64_t at_ns;
	uint64_t generation;
};

enum depth {
	DEPTH_OUTER,
	DEPTH_PULL,
	DEPTH_READ,
	DEPTHS
};

/* Spans of a slot; who: the producer rank's incarnation. */
struct row {
	uint64_t who;
	uint32_t slot;
	struct open_span open[DEPTHS];
};

/* An event's part in the trace. */
struct part {
	char phase; /* 'i': a mark; 'B', 'E': a span begins, ends; 0: none */
	enum depth depth;
	const char *name;  /* of an end: its outcome */
	const char *arrow; /* the phase of one that is there too */
};

static const struct part parts[KVPULL_DID_COUNT] = {
	[KVPULL_DID_TAKE] = { 'B', DEPTH_OUTER, "hold", "s" },
	[KVPULL_DID_CLAIM] = { 'i', .name = "claim" },
	[KVPULL_DID_RELEASE] = { 'i', .name = "release" },
	[KVPULL_DID_END] = { 'E', DEPTH_OUTER, NULL, NULL },
	[KVPULL_DID_CLAIM_TICKET] = { 'B', DEPTH_OUTER, "ticket", NULL },
	[KVPULL_DID_RELEASE_TICKET] = { 'E', DEPTH_OUTER, "released", NULL },
	[KVPULL_DID_PULL] = { 'B', DEPTH_PULL, "pull", "f" },
	[KVPULL_DID_READ] = { 'B', DEPTH_READ, "read", NULL },
	[KVPULL_DID_CAME] = { 'E', DEPTH_READ, NULL, NULL },
	[KVPULL_DID_LOADED] = { 'E', DEPTH_PULL, "loaded", NULL },
	[KVPULL_DID_FAILED] = { 'E', DEPTH_PULL, NULL, NULL },
};

#define ROWS_MAX 4096u

struct writer {
	json_t *events;
	uint32_t process;
	uint64_t clock_ns; /* of the process, when the other clock was utc_ns */
	uint64_t utc_ns;
	struct kvpull_status_note note; /* that is written */
	uint64_t producer; /* incarnation of its rank, on both sides */
	uint32_t row;
	uint32_t row_count;
	struct row rows[ROWS_MAX];
};

/* On a consumer the slots of several producers stand beside each other. */
static uint32_t row_of(struct writer *writer, uint64_t who, uint32_t slot)
{
	uint32_t at;

	for (at = 0; at < writer->row_count; at++)
		if (writer->rows[at].who == who &&
		    writer->rows[at].slot == slot)
			return at;
	if (at == ROWS_MAX)
		return ROWS_MAX - 1;
	writer->rows[at] = (struct row){ .who = who, .slot = slot };
	return writer->row_count++;
}

/* Adds an event with its own members, which it takes. */
static void event_add(const struct writer *writer, const char *phase,
		      const char *name, uint64_t at_ns, json_t *own)
{
	const double utc_ns = (double)writer->utc_ns +
			      ((double)at_ns - (double)writer->clock_ns);
	json_t *event =
		json_pack("{s:s, s:s, s:s, s:i, s:i, s:f}", "ph", phase, "name",
			  name, "cat", "kvpull", "pid", (int)writer->process,
			  "tid", (int)writer->row + 1, "ts", utc_ns / 1000);

	(void)json_object_update_new(event, own);
	(void)json_array_append_new(writer->events, event);
}

/* outcome: NULL, or what came of it. */
static json_t *args_of(const struct writer *writer, const char *outcome)
{
	return json_pack("{s:o, s:I, s:I, s:s*}", "incarnation",
			 json_sprintf("%016" PRIx64, writer->producer), "slot",
			 (json_int_t)writer->note.slot, "generation",
			 (json_int_t)writer->note.generation, "outcome",
			 outcome);
}

static void arrow(const struct writer *writer, const char *phase)
{
	const struct kvpull_status_note *note = &writer->note;
	json_t *id =
		json_sprintf("%016" PRIx64 ":%u:%" PRIu64, writer->producer,
			     note->slot, note->generation);

	event_add(writer, phase, "request", note->at_ns,
		  json_pack("{s:o, s:s*}", "id", id, "bp",
			    *phase == 'f' ? "e" : NULL));
}

static void span_end(struct writer *writer, enum depth depth,
		     const char *outcome)
{
	const struct kvpull_status_note *note = &writer->note;
	struct open_span *span = &writer->rows[writer->row].open[depth];
	const uint64_t took_ns =
		note->at_ns > span->at_ns ? note->at_ns - span->at_ns : 0;

	if (!span->name || span->generation != note->generation)
		return;
	event_add(writer, "X", span->name, span->at_ns,
		  json_pack("{s:f, s:o}", "dur", (double)took_ns / 1000, "args",
			    args_of(writer, outcome)));
	span->name = NULL;
}

static void part_write(struct writer *writer, const struct part *part)
{
	const struct kvpull_status_note *note = &writer->note;

	switch (part->phase) {
	case 'i':
		event_add(writer, "i", part->name, note->at_ns,
			  json_pack("{s:s, s:o}", "s", "t", "args",
				    args_of(writer, NULL)));
		return;
	case 'B':
		writer->rows[writer->row].open[part->depth] =
			(struct open_span){ part->name, note->at_ns,
					    note->generation };
		if (part->arrow)
			arrow(writer, part->arrow);
		return;
	case 'E':
		/* A pull that failed ends the read in it. */
		if (note->what == KVPULL_DID_FAILED)
			span_end(writer, DEPTH_READ, NULL);
		span_end(writer, part->depth,
			 note->what == KVPULL_DID_END ?
				 top_end_reason(note->arg) :
			 note->what == KVPULL_DID_FAILED ?
				 kvpull_error_name(-note->arg) :
				 part->name);
	}
}

/*
 * Workers of one machine share a clock, whose offset is taken once: each took
 * its own at its open, a moment apart, and that would part what belongs
 * together. Of files from elsewhere only that is known.
 */
static void clocks_find(struct writer *writer, const struct top *top,
			const struct top_worker *worker)
{
	const struct kvpull_status_header *header = &worker->header;

	writer->utc_ns = header->opened_utc;
	writer->clock_ns = header->opened_ns;
	if (!worker->is_here)
		return;
	writer->utc_ns = top->utc_ns;
	writer->clock_ns = top->now_ns +
			   (uint64_t)(header->clock_offset_ns - top->offset_ns);
}

static void worker_trace(struct writer *writer, const struct top *top,
			 const struct top_worker *worker)
{
	const struct kvpull_status_header *header = &worker->header;
	json_t *name = json_sprintf("%s rank %u pid %u", header->engine_id,
				    header->rank, header->pid);
	struct top_events events = { .worker = worker };
	const struct kvpull_status_note *note = &writer->note;

	/* Not its pid: two hosts' files may lie beside each other. */
	writer->process = (uint32_t)(worker - top->workers) + 1;
	writer->row = 0;
	writer->row_count = 0;
	clocks_find(writer, top, worker);
	event_add(writer, "M", "process_name", header->opened_ns,
		  json_pack("{s:{s:o}}", "args", "name",
			    name ? name : json_string("?")));
	/* Each thread's in turn: a span begins and ends in one of them. */
	while (top_event_next(&events)) {
		const int is_consumer =
			events.note.what >= KVPULL_DID_CLAIM_TICKET &&
			events.note.what <= KVPULL_DID_FAILED;

		writer->note = events.note;
		writer->producer =
			is_consumer ? note->who : header->incarnation;
		writer->row = row_of(writer, writer->producer, note->slot);
		if (note->what < KVPULL_DID_COUNT)
			part_write(writer, &parts[note->what]);
	}
}

int top_trace(const struct top *top, const char *path)
{
	static struct writer writer;
	json_t *trace;
	uint32_t at;
	int failed;

	writer.events = json_array();
	/* Nothing at a pool's owner is a request's. */
	for (at = 0; at < top->worker_count; at++)
		if (!top_pool(&top->workers[at]))
			worker_trace(&writer, top, &top->workers[at]);
	trace = json_pack("{s:o, s:s}", "traceEvents", writer.events,
			  "displayTimeUnit", "ns");
	errno = 0;
	failed = json_dump_file(trace, path, JSON_COMPACT | JSON_REALS) != 0;
	if (failed)
		(void)fprintf(stderr,
			      "kvpull_top: --trace %s: cannot write: %s\n",
			      path, strerror(errno ? errno : EIO));
	json_decref(trace);
	return failed;
}
