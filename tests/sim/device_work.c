/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of simulated devices, and what is queued on them. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/device.h"

struct sim_work *sim_work_queue(struct sim_device *device, uint32_t index,
				enum sim_work_kind kind, uint32_t capacity)
{
	struct sim_world *world = device->proc->world;
	struct sim_stream *stream = &device->streams[index];
	uint64_t late_ns = 1000 * (2 * world->delay_us + 1);
	struct sim_work *work;
	uint64_t at_ns;

	if (device->is_lost || device->is_gone)
		return NULL;
	work = malloc(sizeof(*work) + capacity * sizeof(*work->pieces));
	if (!work)
		abort();
	/* An engine's step may be a long one. */
	if (index != SIM_STREAM_OWN && sim_chance(world, 50))
		late_ns += world->lease_ns / 8;
	at_ns = world->now_ns + device->proc->clock_extra_ns +
		sim_below(world, late_ns);
	if (at_ns > stream->last_ns)
		stream->last_ns = at_ns;
	*work = (struct sim_work){ .kind = kind,
				   .at_ns = stream->last_ns,
				   .capacity = capacity };
	if (stream->last)
		stream->last->next = work;
	else
		stream->first = work;
	stream->last = work;
	stream->queued++;
	return work;
}

static void work_end(struct sim_stream *stream)
{
	struct sim_work *work = stream->first;

	stream->first = work->next;
	if (!stream->first)
		stream->last = NULL;
	stream->done++;
	free(work);
}

void sim_work_drop(struct sim_device *device)
{
	uint32_t at;

	for (at = 0; at < SIM_STREAMS; at++)
		while (device->streams[at].first)
			work_end(&device->streams[at]);
}

static uint64_t word_of(const struct sim_piece *piece, uint32_t word)
{
	return piece->content ? sim_stamp(piece->content, piece->index,
					  piece->row + word) :
				0;
}

static void words_write(const struct sim_piece *piece)
{
	uint32_t word;

	for (word = 0; word < piece->bytes / sizeof(uint64_t); word++) {
		const uint64_t value = word_of(piece, word);

		memcpy(piece->to + word * sizeof(value), &value, sizeof(value));
	}
}

/* Blocks that were loaded stay until the engine itself writes them. */
static void words_use(const struct sim_device *device,
		      const struct sim_work *work,
		      const struct sim_piece *piece)
{
	uint32_t word;

	for (word = 0; word < piece->bytes / sizeof(uint64_t); word++) {
		uint64_t found;

		memcpy(&found, piece->to + word * sizeof(found), sizeof(found));
		if (found != word_of(piece, word))
			sim_fail(
				device->proc->world,
				"process %u: a block of request %llu was LOADED, and has %s when it is used",
				device->proc->index,
				(unsigned long long)work->key,
				found ? "wrong bytes" : "zeroes");
	}
}

static void piece_copy(const struct sim_device *device,
		       const struct sim_piece *piece)
{
	const struct sim_proc *proc = device->proc;

	if (proc->block_key[piece->block] != piece->key)
		sim_fail(
			proc->world,
			"process %u: block %u is written for request %llu, which was reported",
			proc->index, piece->block,
			(unsigned long long)piece->key);
	memcpy(piece->to, piece->from, piece->bytes);
}

/* Any piece that is left comes next. */
static void piece_do(struct sim_device *device, struct sim_work *work)
{
	struct sim_piece *piece =
		&work->pieces[sim_below(device->proc->world, work->piece_count)];

	if (work->kind == SIM_WORK_WRITE)
		words_write(piece);
	else if (work->kind == SIM_WORK_USE)
		words_use(device, work, piece);
	else
		piece_copy(device, piece);
	*piece = work->pieces[--work->piece_count];
}

/* A piece of the first work, or its end. 0: its time has not come. */
static int stream_step(struct sim_device *device, struct sim_stream *stream,
		       uint64_t now_ns)
{
	struct sim_work *work = stream->first;

	if (!work)
		return 0;
	if (work->kind == SIM_WORK_WAIT && work->event->reached < work->number)
		return 0;
	/* Work may begin long before it ends. */
	if (work->piece_count) {
		piece_do(device, work);
		return 1;
	}
	if (now_ns < work->at_ns)
		return 0;
	if (work->kind == SIM_WORK_RECORD)
		work->event->reached = work->number;
	device->proc->world->counts.uses += work->kind == SIM_WORK_USE;
	work_end(stream);
	return 1;
}

void sim_streams_run(struct sim_device *device, uint64_t now_ns)
{
	struct sim_world *world = device->proc->world;
	const uint32_t first = (uint32_t)sim_below(world, SIM_STREAMS);
	uint32_t at;

	for (at = 0; at < SIM_STREAMS; at++) {
		struct sim_stream *stream =
			&device->streams[(first + at) % SIM_STREAMS];

		while (stream->first && sim_chance(world, 900) &&
		       stream_step(device, stream, now_ns))
			;
	}
}

void sim_streams_flush(struct sim_device *device)
{
	uint32_t did;
	uint32_t at;

	do {
		did = 0;
		for (at = 0; at < SIM_STREAMS; at++)
			while (stream_step(device, &device->streams[at],
					   UINT64_MAX))
				did = 1;
	} while (did);
}
