/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of scattered blocks of P's memory into memory of D, in each way that
 * the driver has, beside one copy of the same bytes in one piece, which is the
 * limit. Blocks and their places are drawn anew for each copy, and the target
 * is overwritten between two: no copy finds its bytes in a cache. All bytes of
 * the last copy are compared by a kernel, some rows by the CPU as well.
 */
#include "tests/gpu/probe.h"

#define REPEATS_MAX 64u
#define LOCAL_BYTES_MAX (4096 * MIB)
#define CHECKED_ROWS 64u /* of the last copy, by the CPU */
#define UNTOUCHED 0xee

enum way {
	WAY_ONE_PIECE = 0,
	WAY_KERNEL,     /* ids lie in pinned memory of the host */
	WAY_KERNEL_IDS, /* ids are copied to the device before */
	WAY_BATCH,
	WAY_LOOP,
	WAYS
};

static const char *const way_names[WAYS] = { "one_piece", "kernel",
					     "kernel_ids", "batch", "loop" };

/* A copy to be made, and the room for it. */
struct job {
	struct peer *peer;
	struct region local;
	struct region table; /* ids on the device, and the counter behind them */
	uint64_t counter;
	struct gather_strip *strip; /* pinned, as the ids */
	uint32_t *source_ids;
	uint32_t *target_ids;
	uint32_t *drawn; /* all ids of the source, the first ones drawn */
	uint64_t *sources;
	uint64_t *targets;
	size_t *lengths;
	struct gpu_event *began;
	struct gpu_event *ended;
	struct gpu_event *slices[2];
	uint64_t random;
	uint64_t block_bytes;
	uint32_t count;
	uint32_t count_max; /* of 4 KiB, for the arrays */
	uint32_t blocks;    /* of a launch */
	uint64_t slice_bytes;
	uint32_t repeats;
};

static uint32_t draw(struct job *job, uint32_t below)
{
	job->random ^= job->random << 13;
	job->random ^= job->random >> 7;
	job->random ^= job->random << 17;
	return (uint32_t)((job->random >> 32) * below >> 32);
}

static void swap(uint32_t *ids, uint32_t a, uint32_t b)
{
	const uint32_t kept = ids[a];

	ids[a] = ids[b];
	ids[b] = kept;
}

/* Draw blocks and places anew. */
static void blocks_draw(struct job *job)
{
	const uint32_t all =
		(uint32_t)(job->peer->region.bytes / job->block_bytes);
	uint32_t i;

	for (i = 0; i < job->count; i++) {
		swap(job->drawn, i, i + draw(job, all - i));
		job->source_ids[i] = job->drawn[i];
		swap(job->target_ids, i, draw(job, i + 1));
	}
	for (i = 0; i < job->count; i++) {
		job->sources[i] = job->peer->region.address +
				  job->source_ids[i] * job->block_bytes;
		job->targets[i] = job->local.address +
				  job->target_ids[i] * job->block_bytes;
	}
}

static void job_size(struct job *job, uint64_t block_bytes, uint32_t count)
{
	const uint32_t all = (uint32_t)(job->peer->region.bytes / block_bytes);
	uint32_t i;

	job->block_bytes = block_bytes;
	job->count = count;
	for (i = 0; i < all; i++)
		job->drawn[i] = i;
	for (i = 0; i < count; i++) {
		job->target_ids[i] = i;
		job->lengths[i] = block_bytes;
	}
	*job->strip = (struct gather_strip){
		.source = job->peer->region.address,
		.target = job->local.address,
		.source_stride = block_bytes,
		.target_stride = block_bytes,
		.row_bytes = block_bytes,
	};
}

static uint64_t job_bytes(const struct job *job)
{
	return job->block_bytes * job->count;
}

static uint64_t job_units(const struct job *job)
{
	return (job->block_bytes + GATHER_UNIT_BYTES - 1) / GATHER_UNIT_BYTES *
	       job->count;
}

/* ---- the ways ---- */

static struct gather_job ids_of(const struct job *job)
{
	return (struct gather_job){ .strips = job->strip,
				    .source_ids = job->source_ids,
				    .target_ids = job->target_ids,
				    .strip_count = 1 };
}

static struct gather_job ids_on_device(const struct job *job)
{
	const size_t bytes = job->count * sizeof(uint32_t);
	const uint64_t sources = job->table.address;
	const uint64_t targets = sources + job->count_max * sizeof(uint32_t);

	MUST(cuMemcpyHtoDAsync(sources, job->source_ids, bytes, self.stream));
	MUST(cuMemcpyHtoDAsync(targets, job->target_ids, bytes, self.stream));
	return (struct gather_job){
		.strips = job->strip,
		.source_ids = (const uint32_t *)(uintptr_t)sources,
		.target_ids = (const uint32_t *)(uintptr_t)targets,
		.strip_count = 1
	};
}

/* In slices, of which at most two are queued: a cancel waits for these. */
static void by_kernel(const struct job *job, struct gather_job ids)
{
	const uint64_t units = job_units(job);
	const uint64_t unit_bytes = job->block_bytes < GATHER_UNIT_BYTES ?
					    job->block_bytes :
					    GATHER_UNIT_BYTES;
	const uint64_t slice =
		job->slice_bytes ? job->slice_bytes / unit_bytes : units;
	uint64_t first;
	uint32_t turn = 0;

	for (first = 0; first < units; first += slice, turn++) {
		uint64_t end = units - first < slice ? units : first + slice;
		void *arguments[] = { &ids, &first, &end };

		if (turn > 1)
			MUST(cuEventSynchronize(job->slices[turn % 2]));
		launch(self.gather, job->blocks, arguments);
		MUST(cuEventRecord(job->slices[turn % 2], self.stream));
	}
}

static void by_batch(const struct job *job)
{
	struct gpu_copy_attributes attributes = { .order = GPU_ORDER_STREAM };
	size_t from = 0;
	size_t failed = 0;

	if (gpu.batch_13)
		must(gpu.batch_13(job->targets, job->sources, job->lengths,
				  job->count, &attributes, &from, 1,
				  self.stream),
		     "cuMemcpyBatchAsync of 13.0");
	else
		must(gpu.batch_12(job->targets, job->sources, job->lengths,
				  job->count, &attributes, &from, 1, &failed,
				  self.stream),
		     "cuMemcpyBatchAsync of 12.8");
}

static void by_loop(const struct job *job)
{
	uint32_t i;

	for (i = 0; i < job->count; i++)
		MUST(cuMemcpyDtoDAsync(job->targets[i], job->sources[i],
				       job->block_bytes, self.stream));
}

static void way_begin(const struct job *job, enum way way)
{
	switch (way) {
	case WAY_ONE_PIECE:
		MUST(cuMemcpyDtoDAsync(job->local.address,
				       job->peer->region.address,
				       job_bytes(job), self.stream));
		break;
	case WAY_KERNEL:
		by_kernel(job, ids_of(job));
		break;
	case WAY_KERNEL_IDS:
		by_kernel(job, ids_on_device(job));
		break;
	case WAY_BATCH:
		by_batch(job);
		break;
	case WAY_LOOP:
		by_loop(job);
		break;
	case WAYS:
		break;
	}
}

/* ---- what became of it ---- */

/* Pieces of 16 bytes that are not those of the blocks asked for. */
static uint64_t wrong_pieces(const struct job *job)
{
	struct gather_expected expected = { job->peer->region.address,
					    job->peer->seed, job->counter };
	struct gather_job ids = ids_of(job);
	uint64_t units = job_units(job);
	uint64_t wrong = 0;
	void *arguments[] = { &ids, &units, &expected };

	MUST(cuMemsetD8Async(job->counter, 0, sizeof(wrong), self.stream));
	launch(self.compare, self.blocks, arguments);
	MUST(cuMemcpyDtoHAsync(&wrong, job->counter, sizeof(wrong),
			       self.stream));
	MUST(cuStreamSynchronize(self.stream));
	return wrong;
}

/* The CPU compares a piece of a row: other code than that which copied it. */
static int is_row_right(struct job *job, uint32_t i)
{
	const uint32_t pieces =
		(uint32_t)(job->block_bytes / GATHER_PIECE_BYTES);
	const uint64_t offset =
		(uint64_t)draw(job, pieces) * GATHER_PIECE_BYTES;
	const uint64_t source = job->source_ids[i] * job->block_bytes + offset;
	struct gather_piece have;

	MUST(cuMemcpyDtoHAsync(&have, job->targets[i] + offset, sizeof(have),
			       self.stream));
	MUST(cuStreamSynchronize(self.stream));
	return !gather_differs(have, gather_stamp(job->peer->seed,
						  source / GATHER_PIECE_BYTES));
}

static void copy_check(struct job *job, const char *name)
{
	const uint64_t wrong = wrong_pieces(job);
	uint32_t i;

	if (wrong)
		fail("%s: %llu pieces are wrong", name,
		     (unsigned long long)wrong);
	for (i = 0; i < CHECKED_ROWS; i++)
		if (!is_row_right(job, draw(job, job->count)))
			fail("%s: the CPU finds another block", name);
}

/* The target holds none of it before: a comparison that sees that is one. */
static void target_clear(struct job *job)
{
	MUST(cuMemsetD8Async(job->local.address, UNTOUCHED, job->local.bytes,
			     self.stream));
	MUST(cuStreamSynchronize(self.stream));
}

static double wall_timed(struct job *job, enum way way, double *device_us)
{
	const double began = now_us();
	double took;
	float ms;

	MUST(cuEventRecord(job->began, self.stream));
	way_begin(job, way);
	MUST(cuEventRecord(job->ended, self.stream));
	MUST(cuEventSynchronize(job->ended));
	took = now_us() - began;
	MUST(cuEventElapsedTime(&ms, job->began, job->ended));
	*device_us = (double)ms * 1e3;
	return took;
}

/* Return: GB a second of bytes copied, by the device's clock; the median. */
static double way_measure(struct job *job, enum way way, const char *suffix)
{
	double speed[REPEATS_MAX];
	double wall[REPEATS_MAX];
	char name[96];
	uint32_t at;

	(void)snprintf(name, sizeof(name), "copy.%s.%llux%u%s", way_names[way],
		       (unsigned long long)job->block_bytes, job->count,
		       suffix);
	for (at = 0; at < job->repeats; at++) {
		double device_us;

		blocks_draw(job);
		target_clear(job);
		wall[at] = wall_timed(job, way, &device_us);
		speed[at] = (double)job_bytes(job) / (device_us + 0.001) / 1e3;
	}
	if (way != WAY_ONE_PIECE)
		copy_check(job, name);
	measured(name, "GB/s", speed, job->repeats);
	(void)snprintf(name + strlen(name), sizeof(name) - strlen(name),
		       ".wall");
	measured(name, "us", wall, job->repeats);
	return speed[job->repeats / 2];
}

/* ---- what is tried ---- */

static int has_way(enum way way)
{
	return way != WAY_BATCH || gpu.batch_12 || gpu.batch_13;
}

static void ways_measure(struct job *job)
{
	double limit = 0;
	int way;

	peer_stamp(job->peer, job->peer->seed + 1);
	blocks_draw(job);
	target_clear(job);
	if (wrong_pieces(job) != job_bytes(job) / GATHER_PIECE_BYTES)
		fail("the comparison does not see a target without a copy");
	for (way = 0; way < WAYS; way++) {
		char name[96];
		double speed;

		if (!has_way((enum way)way))
			continue;
		speed = way_measure(job, (enum way)way, "");
		if (way == WAY_ONE_PIECE)
			limit = speed;
		(void)snprintf(name, sizeof(name), "copy.%s.%llux%u.of_limit",
			       way_names[way],
			       (unsigned long long)job->block_bytes,
			       job->count);
		if (way != WAY_ONE_PIECE)
			fact(name, "%.2f", speed / limit);
	}
}

/* Blocks of a copy: as many as there is room for, at most. */
static uint32_t fitting(const struct job *job, uint64_t block_bytes,
			uint32_t count)
{
	const uint64_t room = job->local.bytes / block_bytes;

	return count < room ? count : (uint32_t)room;
}

static void sizes_measure(struct job *job)
{
	static const uint64_t sizes[] = { 4096, 16384, 65536, 1048576 };
	static const uint32_t counts[] = { 256, 1024, 4096, 16384, 40000 };
	uint32_t size;
	uint32_t at;

	for (size = 0; size < 4; size++)
		for (at = 0; at < 5; at++) {
			const uint32_t count =
				fitting(job, sizes[size], counts[at]);

			if (at && count <= counts[at - 1])
				break;
			job_size(job, sizes[size], count);
			ways_measure(job);
		}
}

/* How much of the device a kernel needs, and what slices cost. */
static void knobs_measure(struct job *job)
{
	static const uint32_t blocks[] = { 8, 16, 33, 66, 132, 264 };
	static const uint32_t slices_mib[] = { 16, 64, 128, 256 };
	char suffix[32];
	uint32_t at;

	job_size(job, 65536, fitting(job, 65536, 16384));
	for (at = 0; at < sizeof(blocks) / sizeof(*blocks); at++) {
		job->blocks = blocks[at];
		(void)snprintf(suffix, sizeof(suffix), ".blocks_%u",
			       blocks[at]);
		(void)way_measure(job, WAY_KERNEL, suffix);
	}
	job->blocks = self.blocks;
	for (at = 0; at < sizeof(slices_mib) / sizeof(*slices_mib); at++) {
		job->slice_bytes = slices_mib[at] * MIB;
		(void)snprintf(suffix, sizeof(suffix), ".slice_%u_mib",
			       slices_mib[at]);
		(void)way_measure(job, WAY_KERNEL, suffix);
	}
	job->slice_bytes = 0;
}

static void *array(uint64_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	if (!memory)
		fail("no memory");
	return memory;
}

static void *pinned(size_t bytes)
{
	void *memory;

	MUST(cuMemHostAlloc(&memory, bytes, GPU_HOST_PORTABLE));
	return memory;
}

static void job_open(struct job *job, struct peer *peer, uint32_t repeats)
{
	const uint64_t most = peer->region.bytes / 2 < LOCAL_BYTES_MAX ?
				      peer->region.bytes / 2 :
				      LOCAL_BYTES_MAX;

	region_take(&job->local, most, NULL);
	job->peer = peer;
	job->random = 0x9e3779b97f4a7c15;
	job->repeats = repeats < REPEATS_MAX ? repeats : REPEATS_MAX;
	job->blocks = self.blocks;
	job->count_max = (uint32_t)(job->local.bytes / 4096);
	job->drawn = array(peer->region.bytes / 4096, sizeof(uint32_t));
	job->sources = array(job->count_max, sizeof(uint64_t));
	job->targets = array(job->count_max, sizeof(uint64_t));
	job->lengths = array(job->count_max, sizeof(size_t));
	job->strip = pinned(sizeof(*job->strip));
	job->source_ids = pinned(job->count_max * sizeof(uint32_t));
	job->target_ids = pinned(job->count_max * sizeof(uint32_t));
	region_take(&job->table,
		    2 * job->count_max * sizeof(uint32_t) + sizeof(uint64_t),
		    NULL);
	job->counter = job->table.address +
		       2 * (uint64_t)job->count_max * sizeof(uint32_t);
	MUST(cuEventCreate(&job->began, GPU_EVENT_BLOCKING_SYNC));
	MUST(cuEventCreate(&job->ended, GPU_EVENT_BLOCKING_SYNC));
	MUST(cuEventCreate(&job->slices[0], GPU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&job->slices[1], GPU_EVENT_DISABLE_TIMING));
}

static void job_close(struct job *job)
{
	MUST(cuEventDestroy(job->began));
	MUST(cuEventDestroy(job->ended));
	MUST(cuEventDestroy(job->slices[0]));
	MUST(cuEventDestroy(job->slices[1]));
	MUST(cuMemFreeHost(job->strip));
	MUST(cuMemFreeHost(job->source_ids));
	MUST(cuMemFreeHost(job->target_ids));
	region_unmap(&job->table);
	region_unmap(&job->local);
	free(job->drawn);
	free(job->sources);
	free(job->targets);
	free(job->lengths);
}

void copy(const char *path, uint32_t repeats)
{
	struct job job = { 0 };
	struct peer peer;

	peer_open(&peer, path);
	(void)peer_map_for_reads(&peer);
	job_open(&job, &peer, repeats);
	sizes_measure(&job);
	knobs_measure(&job);
	job_close(&job);
	region_unmap(&peer.region);
	peer_close(&peer);
}
