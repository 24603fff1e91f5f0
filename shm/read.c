/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: a peer's reads_open counts its reads that are not idle, and its
 * memory is unmapped, its files closed, only at 0. So no copy loses its source
 * under way, and READ_DONE means that nothing writes into the local blocks any
 * more.
 */
#include "shm/read.h"

#include "base/least.h"
#include "shm/copy.h"
#include "shm/peer.h"

#define COPY_BATCH_MAX 16u
/*
 * Copied in one poll: about 100 us. What the rest of a poll looks at was driven
 * out of the caches by then, and costs some us.
 */
#define POLL_COPY_BYTES (2u << 20)
/*
 * Bytes of the queue in a poll, and bytes of small reads that are copied when
 * they are started, between two polls. Reads are started before and after the
 * poll of an owner's run: with both, a run stays within KVPULL_SHM_POLL_BYTES.
 */
#define QUEUE_BYTES (KVPULL_SHM_POLL_BYTES / 2)
#define EARLY_BYTES (KVPULL_SHM_POLL_BYTES / 4)

int kvpull_shm_reads_init(struct kvpull_shm_reads *reads,
			  const struct kvpull_shm_params *params,
			  struct kvpull_shm_peers *peers,
			  struct kvpull_arena *arena)
{
	*reads = (struct kvpull_shm_reads){
		.log = params->log,
		.device = reads->device,
		.peers = peers,
		.read_max = params->reads_max,
		.poll_copies = params->poll_copies,
		.inline_bytes =
			kvpull_least_u32(params->inline_bytes, QUEUE_BYTES),
		.early_bytes = EARLY_BYTES,
	};
	KVPULL_ARENA_TAKE(arena, reads->reads, params->reads_max);
	kvpull_turns_init(&reads->queue, params->reads_max, arena);
	if (!kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	return kvpull_files_open(&reads->files, params->reads_max, arena,
				 params->log);
}

void kvpull_shm_reads_fini(struct kvpull_shm_reads *reads, uint64_t close_by_ns)
{
	kvpull_files_close(&reads->files, close_by_ns);
}

/*
 * Copies on this thread: of foreign memory so many bytes, else the whole part.
 * Returns 0; 1: more is left; or the error.
 */
static int part_copy(struct kvpull_shm_reads *reads,
		     const struct kvpull_shm_peer *peer,
		     struct kvpull_shm_read *mine, uint64_t bytes)
{
	const struct kvpull_foreign foreign = {
		.pid = peer->identity.pid,
		.mapped = peer->memory.tables.regions,
		.remote_address = peer->memory.tables.remote_address,
	};

	if (peer->memory.foreign_count)
		return kvpull_foreign_read(&foreign, mine->part, &mine->cursor,
					   bytes);
	kvpull_copy_inline(reads->copy, &mine->job);
	return mine->job.code;
}

/* Start a part that lies in memory. 0: it will end; 1: it is over. */
static int memory_start(struct kvpull_shm_reads *reads,
			const struct kvpull_shm_peer *peer,
			struct kvpull_shm_read *mine,
			const struct kvpull_read *part)
{
	const int is_small = part->byte_count <= reads->inline_bytes;
	int code;

	mine->part = part;
	mine->cursor = (struct kvpull_rows_cursor){ 0 };
	mine->job = (struct kvpull_copy_job){
		.read = part, .regions = peer->memory.tables.regions
	};
	/* A small read is copied at once, unless others wait: they keep their order. */
	if (is_small && !reads->queue.arrival.count &&
	    part->byte_count <= reads->early_bytes) {
		reads->early_bytes -= (uint32_t)part->byte_count;
		code = part_copy(reads, peer, mine, UINT64_MAX);
		return code ? code : 1;
	}
	if (is_small || peer->memory.foreign_count) {
		mine->state = is_small ? KVPULL_SHM_READ_SMALL :
					 KVPULL_SHM_READ_FOREIGN;
		kvpull_turns_push(&reads->queue, part->index, part->priority);
		return 0;
	}
	code = kvpull_copy_start(reads->copy, &mine->job);
	if (!code)
		mine->state = KVPULL_SHM_READ_COPYING;
	return code;
}

static int is_in_memory(const struct kvpull_shm_peer *peer,
			const struct kvpull_read *read, uint32_t strip_index)
{
	return !peer->memory.tables
			.files[read->strips[strip_index].region_index]
			.bytes;
}

/* The next run of strips in memory; 0: there is none. */
static int run_next(const struct kvpull_shm_peer *peer,
		    struct kvpull_shm_read *mine)
{
	const struct kvpull_read *read = mine->read;
	uint32_t first = mine->run_end;

	while (first < read->strip_count && !is_in_memory(peer, read, first))
		first++;
	mine->run_end = first;
	while (mine->run_end < read->strip_count &&
	       is_in_memory(peer, read, mine->run_end))
		mine->run_end++;
	mine->run = *read;
	mine->run.strips = &read->strips[first];
	mine->run.strip_count = mine->run_end - first;
	return mine->run.strip_count > 0;
}

/* Runs up to one that takes time: 0; 1: all are over. */
static int runs_start(struct kvpull_shm_reads *reads,
		      const struct kvpull_shm_peer *peer,
		      struct kvpull_shm_read *mine)
{
	int code = 1;

	while (code == 1 && run_next(peer, mine))
		code = memory_start(reads, peer, mine, &mine->run);
	return code;
}

static int has_files(const struct kvpull_shm_peer *peer,
		     const struct kvpull_read *read)
{
	uint32_t at = 0;

	if (!peer->memory.file_count)
		return 0;
	while (at < read->strip_count && is_in_memory(peer, read, at))
		at++;
	return at < read->strip_count;
}

/* A read of blocks in files, and in memory: both parts at once. */
static int split_start(struct kvpull_shm_reads *reads,
		       struct kvpull_shm_peer *peer,
		       struct kvpull_shm_read *mine)
{
	int code;

	mine->run_end = 0;
	code = runs_start(reads, peer, mine);
	if (code < 0)
		return code;
	if (code == 1)
		mine->state = KVPULL_SHM_READ_FILES;
	kvpull_files_start(&reads->files, &mine->file, mine->read,
			   peer->memory.tables.files);
	return 0;
}

/*
 * A read into memory of which nobody knows what the device still does with it is
 * not made: what is queued could overwrite what has come.
 */
static int device_start(struct kvpull_shm_reads *reads,
			const struct kvpull_shm_peer *peer,
			struct kvpull_shm_read *mine)
{
	const uint64_t after = mine->read->after;
	int code;

	if (!after)
		return KVPULL_EINVAL;
	mine->device = (struct kvpull_device_job){
		.read = mine->read,
		.regions = peer->memory.tables.devices,
		.region_count = peer->memory.region_count,
	};
	if (after != KVPULL_AFTER_NOTHING)
		mine->device.after =
			(struct kvpull_device_event *)(uintptr_t)after;
	code = kvpull_device_thread_start(reads->device->thread, &mine->device);
	if (!code)
		mine->state = KVPULL_SHM_READ_DEVICE;
	return code;
}

int kvpull_shm_read_start(struct kvpull_transport *transport,
			  uint32_t peer_index, struct kvpull_read *read)
{
	struct kvpull_shm_reads *reads = &kvpull_shm_of(transport)->reads;
	struct kvpull_shm_peer *peer =
		kvpull_shm_peer_at(reads->peers, peer_index);
	struct kvpull_shm_read *mine;
	int code;

	kvpull_check(reads->log, read->index < reads->read_max);
	mine = &reads->reads[read->index];
	kvpull_check(reads->log, mine->state == KVPULL_SHM_READ_IDLE);
	if (peer->state != KVPULL_SHM_PEER_ATTACHED)
		return KVPULL_EPEER;
	mine->read = read;
	mine->peer_index = peer_index;
	mine->cancelled = 0;
	mine->code = 0;
	mine->is_split = (uint32_t)has_files(peer, read);
	if (peer->memory.device_count)
		code = device_start(reads, peer, mine);
	else
		code = mine->is_split ? split_start(reads, peer, mine) :
					memory_start(reads, peer, mine, read);
	if (!code)
		peer->reads_open++;
	return code;
}

static void read_cancel(struct kvpull_shm_reads *reads,
			struct kvpull_shm_read *mine, int code)
{
	if (mine->state == KVPULL_SHM_READ_IDLE || mine->cancelled)
		return;
	mine->cancelled = code;
	/* A read in the queue is ended in its turn, which comes next. */
	if (mine->state == KVPULL_SHM_READ_FOREIGN ||
	    mine->state == KVPULL_SHM_READ_SMALL) {
		kvpull_turns_remove(&reads->queue, mine->part->index);
		kvpull_turns_push(&reads->queue, mine->part->index, INT32_MIN);
	}
	if (mine->state == KVPULL_SHM_READ_COPYING)
		kvpull_copy_cancel(reads->copy, &mine->job);
	if (mine->state == KVPULL_SHM_READ_DEVICE)
		kvpull_device_thread_cancel(reads->device->thread,
					    &mine->device);
	if (mine->file.read)
		kvpull_files_cancel(&reads->files, &mine->file, code);
}

void kvpull_shm_read_cancel(struct kvpull_transport *transport,
			    uint32_t peer_index, struct kvpull_read *read)
{
	struct kvpull_shm_reads *reads = &kvpull_shm_of(transport)->reads;

	(void)peer_index;
	kvpull_check(reads->log, read->index < reads->read_max);
	if (reads->reads[read->index].read == read)
		read_cancel(reads, &reads->reads[read->index], KVPULL_EABORTED);
}

void kvpull_shm_reads_lose(struct kvpull_shm_reads *reads)
{
	uint32_t i;

	for (i = 0; i < reads->peers->peer_max; i++) {
		struct kvpull_shm_peer *peer = &reads->peers->peers[i];
		/* KVPULL_EROUTE: the peer lives, but its memory cannot be mapped. */
		const int code = peer->code == KVPULL_EROUTE ? KVPULL_EROUTE :
							       KVPULL_EPEER;
		uint32_t j;

		if (peer->state != KVPULL_SHM_PEER_LOST ||
		    peer->reads_cancelled)
			continue;
		peer->reads_cancelled = 1;
		for (j = 0; peer->reads_open && j < reads->read_max; j++)
			if (reads->reads[j].peer_index == i)
				read_cancel(reads, &reads->reads[j], code);
	}
}

static void read_done(struct kvpull_shm_reads *reads,
		      struct kvpull_shm_read *mine, int code,
		      struct kvpull_shm_batch *batch)
{
	struct kvpull_shm_peer *peer =
		kvpull_shm_peer_at(reads->peers, mine->peer_index);
	struct kvpull_event *event = kvpull_events_add(
		&batch->told, KVPULL_EVENT_READ_DONE, mine->peer_index);

	kvpull_check(reads->log, peer->reads_open > 0);
	peer->reads_open--;
	event->read = mine->read;
	/* A read that ended before the cancel reached it is complete. */
	event->code = code && mine->cancelled ? mine->cancelled : code;
	mine->state = KVPULL_SHM_READ_IDLE;
	mine->read = NULL;
}

/* A part has failed: cancel the other one. */
static void part_failed(struct kvpull_shm_reads *reads,
			struct kvpull_shm_read *mine, int code)
{
	if (!mine->code)
		mine->code = code;
	read_cancel(reads, mine, code);
}

/* A part in memory has ended: a whole read, or a run of one. */
static void memory_ended(struct kvpull_shm_reads *reads,
			 struct kvpull_shm_read *mine, int code,
			 struct kvpull_shm_batch *batch)
{
	const struct kvpull_shm_peer *peer =
		kvpull_shm_peer_at(reads->peers, mine->peer_index);

	if (!mine->is_split) {
		read_done(reads, mine, code, batch);
		return;
	}
	mine->state = KVPULL_SHM_READ_FILES;
	if (!code)
		code = mine->cancelled ? mine->cancelled :
					 runs_start(reads, peer, mine);
	if (!code)
		return;
	if (code < 0)
		part_failed(reads, mine,
			    code == KVPULL_EAGAIN ? KVPULL_EREAD : code);
	if (!mine->file.read)
		read_done(reads, mine, mine->code, batch);
}

/* How many ends a call may bring. */
static uint32_t ends_max(const struct kvpull_shm_batch *batch)
{
	return kvpull_least_u32(kvpull_events_room(&batch->told),
				COPY_BATCH_MAX);
}

static void files_poll(struct kvpull_shm_reads *reads,
		       struct kvpull_shm_batch *batch)
{
	struct kvpull_file_read *ended[COPY_BATCH_MAX];
	const uint32_t count =
		kvpull_files_poll(&reads->files, ended, ends_max(batch));
	uint32_t i;

	for (i = 0; i < count; i++) {
		struct kvpull_shm_read *mine =
			&reads->reads[ended[i]->read->index];

		ended[i]->read = NULL;
		if (ended[i]->code)
			part_failed(reads, mine, ended[i]->code);
		if (mine->state == KVPULL_SHM_READ_FILES)
			read_done(reads, mine, mine->code, batch);
	}
}

static void device_poll(struct kvpull_shm_reads *reads,
			struct kvpull_shm_batch *batch)
{
	struct kvpull_device_end ends[COPY_BATCH_MAX];
	const uint32_t count = kvpull_device_thread_poll(
		reads->device->thread, ends, ends_max(batch), batch->now_ns);
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (ends[i].kind == KVPULL_DEVICE_COPY)
			read_done(reads, &reads->reads[ends[i].index],
				  ends[i].code, batch);
		else
			kvpull_shm_peers_device_end(reads->peers, batch,
						    &ends[i]);
	}
}

static void copies_poll(struct kvpull_shm_reads *reads,
			struct kvpull_shm_batch *batch)
{
	struct kvpull_copy_job *jobs[COPY_BATCH_MAX];
	const uint32_t count =
		kvpull_copy_poll(reads->copy, jobs, ends_max(batch));
	uint32_t i;

	for (i = 0; i < count; i++) {
		/* The job is the first member of the read. */
		struct kvpull_shm_read *mine = (void *)jobs[i];

		memory_ended(reads, mine, mine->job.code, batch);
	}
}

/* A turn of one in the queue, of so many bytes: 1: more is left. */
static int queue_turn(struct kvpull_shm_reads *reads,
		      struct kvpull_shm_read *mine, uint64_t bytes)
{
	const struct kvpull_shm_peer *peer =
		kvpull_shm_peer_at(reads->peers, mine->peer_index);

	if (mine->cancelled)
		return mine->cancelled;
	return part_copy(reads, peer, mine,
			 mine->state == KVPULL_SHM_READ_SMALL ? UINT64_MAX :
								bytes);
}

/*
 * Bytes that the read may take of this poll's budget; 0: it waits for the next
 * poll.
 */
static uint64_t turn_bytes(const struct kvpull_shm_read *mine, uint64_t left)
{
	if (mine->state == KVPULL_SHM_READ_FOREIGN)
		return left;
	return mine->part->byte_count <= left ? mine->part->byte_count : 0;
}

/* In turns, so that a short read does not wait for the end of a long one. */
static void queue_poll(struct kvpull_shm_reads *reads,
		       struct kvpull_shm_batch *batch)
{
	uint64_t left = QUEUE_BYTES;
	uint32_t turns = reads->queue.arrival.count;

	while (turns-- && kvpull_events_room(&batch->told)) {
		const uint32_t index = kvpull_turns_next(&reads->queue);
		struct kvpull_shm_read *mine = &reads->reads[index];
		/* The end of a cancelled read takes nothing of the budget. */
		const int is_free = mine->cancelled || !mine->part->byte_count;
		const uint64_t bytes = is_free ? 0 : turn_bytes(mine, left);
		int code;

		if (!bytes && !is_free)
			return;
		kvpull_turns_remove(&reads->queue, index);
		kvpull_turns_give(&reads->queue);
		left -= bytes;
		code = queue_turn(reads, mine, bytes);
		if (code == 1)
			kvpull_turns_push(&reads->queue, index,
					  mine->part->priority);
		else
			memory_ended(reads, mine, code, batch);
	}
}

/* 1: some of a copy was done here. */
static int shares_copy(struct kvpull_shm_reads *reads)
{
	uint32_t copied = 0;
	uint32_t bytes;

	do {
		bytes = kvpull_copy_help(reads->copy);
		copied += bytes;
	} while (bytes && copied < POLL_COPY_BYTES);
	return copied > 0;
}

int kvpull_shm_reads_are_due(struct kvpull_shm_reads *reads)
{
	return reads->queue.arrival.count ||
	       (reads->poll_copies && kvpull_copy_has_share(reads->copy));
}

void kvpull_shm_reads_poll(struct kvpull_shm_reads *reads,
			   struct kvpull_shm_batch *batch)
{
	const uint32_t count = batch->told.count;
	int worked = reads->queue.arrival.count > 0;

	if (reads->poll_copies)
		worked |= shares_copy(reads);
	if (kvpull_events_room(&batch->told))
		copies_poll(reads, batch);
	if (reads->queue.arrival.count)
		queue_poll(reads, batch);
	reads->early_bytes = EARLY_BYTES;
	if (reads->files.is_prepared && kvpull_events_room(&batch->told))
		files_poll(reads, batch);
	if (kvpull_events_room(&batch->told))
		device_poll(reads, batch);
	if (worked && batch->told.count == count &&
	    kvpull_events_room(&batch->told))
		(void)kvpull_events_add(&batch->told, KVPULL_EVENT_NONE, 0);
}

/* Reads one slot's entry, by the route of the data. */
static int entry_read(const struct kvpull_shm_peer *peer, uint32_t slot,
		      struct kvpull_revocation_value *value)
{
	const struct kvpull_revocation_entry *entries =
		(const void *)peer->memory.entries_memory;

	/* Also for foreign data: its fence orders what was mapped. */
	*value = kvpull_revocation_read(&entries[slot]);
	if (!peer->memory.foreign_count)
		return 0;
	return kvpull_foreign_entry(peer->identity.pid,
				    peer->memory.entries_remote +
					    (uint64_t)slot * sizeof(*entries),
				    value);
}

int kvpull_shm_read_check(struct kvpull_transport *transport,
			  uint32_t peer_index, struct kvpull_read *read)
{
	struct kvpull_shm_reads *reads = &kvpull_shm_of(transport)->reads;
	const struct kvpull_shm_peer *peer =
		kvpull_shm_peer_at(reads->peers, peer_index);
	uint32_t at;
	int code = 0;

	/* Until its death was seen its bytes are there, and right. */
	if (peer->state != KVPULL_SHM_PEER_ATTACHED)
		return KVPULL_EPEER;
	for (at = 0; at < read->slot_count; at++)
		if (read->slots[at] >= peer->memory.slot_count)
			return KVPULL_EPROTO;
	for (at = 0; !code && at < read->slot_count; at++)
		code = entry_read(peer, read->slots[at], &read->entries[at]);
	if (code)
		return code;
	/*
	 * The peer was still alive after the last entry was read, so no other
	 * process can have answered.
	 */
	if (peer->memory.must_live && kvpull_identity_is_dead(&peer->identity))
		return KVPULL_EPEER;
	return 1;
}
