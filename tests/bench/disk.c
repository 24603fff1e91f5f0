// SPDX-License-Identifier: Apache-2.0
/*
 * An owner that spills more than its memory holds to a file of slots, and an
 * engine in another process that reads all of it back, key by key: GB/s of each
 * way. disk.py has fio do the same beside it. KVPULL_TEST_DISK is the folder,
 * KVPULL_TEST_DISK_MIB how much.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/pool_handle.h"

#define CHUNK_BYTES (UINT64_C(1) << 20)
#define CHUNKS 256u
#define BATCH 32u /* chunks of a spill, pieces of a read */
#define BATCHES (CHUNKS / BATCH)
#define LIMIT_NS (300 * KVPULL_NS_PER_S)

struct disk {
	const struct kvpull_reader_ops *ops;
	struct kvpull_reader *handle;
	uint32_t slots;
	uint32_t peer;
	uint64_t until_ns;
	uint64_t keys[BATCHES][BATCH];
	int32_t codes[BATCHES][BATCH];
	uint64_t ids[BATCHES];
	char address[512];
};

/* The next end. Return: its batch, or -1: none in time, or it failed. */
static int end_await(struct disk *disk, struct kvpull_reader_record *record)
{
	struct pollfd wait = { .fd = disk->ops->event_fd(disk->handle),
			       .events = POLLIN };
	uint32_t at;

	while (disk->ops->poll(disk->handle, record, 1, sizeof(*record)) == 0) {
		if (kvpull_clock_ns() > disk->until_ns)
			return -1;
		(void)poll(&wait, 1, 100);
	}
	for (at = 0; at < BATCHES; at++)
		if (disk->ids[at] == record->id && !record->code)
			return (int)at;
	fprintf(stderr, "bench: disk: %s\n",
		disk->ops->error_text(record->code));
	return -1;
}

/* ---- the owner ---- */

/* New bytes under new keys, and into the file with them. */
static int batch_spill(struct disk *disk, uint8_t *base, uint32_t batch,
		       uint64_t first)
{
	struct kvpull_reader_put puts[BATCH];
	const struct kvpull_reader_spill spill = {
		.struct_size = sizeof(spill),
		.puts = puts,
		.put_bytes = sizeof(puts[0]),
		.codes = disk->codes[batch],
		.put_count = BATCH,
		.deadline_ns = disk->until_ns,
	};
	uint64_t epoch;
	uint32_t at;
	int code = disk->ops->epoch(disk->handle, &epoch);

	for (at = 0; !code && at < BATCH; at++) {
		const uint32_t chunk = batch * BATCH + at;

		puts[at] = (struct kvpull_reader_put){
			.struct_size = sizeof(puts[at]),
			.chunk = chunk,
			.epoch = epoch,
			.key = { &disk->keys[batch][at], sizeof(uint64_t) },
		};
		disk->keys[batch][at] = first + at;
		code = disk->ops->guard_bump(disk->handle, &chunk, 1,
					     &puts[at].generation);
		memcpy(base + chunk * CHUNK_BYTES, &disk->keys[batch][at],
		       sizeof(uint64_t));
	}
	return code ? code :
		      disk->ops->spill(disk->handle, &spill, &disk->ids[batch]);
}

static int all_spill(struct disk *disk, uint8_t *base)
{
	struct kvpull_reader_record record;
	uint64_t next = 0;
	uint64_t ended = 0;
	uint32_t batch;
	int code = 0;
	int at;

	for (batch = 0; !code && batch < BATCHES && next < disk->slots;
	     batch++, next += BATCH)
		code = batch_spill(disk, base, batch, next);
	for (; !code && ended < disk->slots; ended += BATCH) {
		at = end_await(disk, &record);
		code = at < 0;
		if (!code && next < disk->slots) {
			code = batch_spill(disk, base, (uint32_t)at, next);
			next += BATCH;
		}
	}
	return code;
}

/* ---- the reader, in a process of its own ---- */

static int batch_probe(struct disk *disk, uint32_t batch, uint64_t first,
		       struct kvpull_reader_place *places)
{
	struct kvpull_reader_key keys[BATCH];
	const struct kvpull_reader_probe probe = {
		.struct_size = sizeof(probe),
		.peer = disk->peer,
		.key_count = BATCH,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
		.deadline_ns = disk->until_ns,
	};
	uint32_t at;

	for (at = 0; at < BATCH; at++) {
		disk->keys[batch][at] = first + at;
		keys[at] = (struct kvpull_reader_key){ &disk->keys[batch][at],
						       sizeof(uint64_t) };
	}
	return disk->ops->probe(disk->handle, &probe, &disk->ids[batch]);
}

static int batch_read(struct disk *disk, uint32_t local, uint32_t batch,
		      const struct kvpull_reader_place *places,
		      uint64_t incarnation)
{
	struct kvpull_reader_piece pieces[BATCH];
	const struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = disk->peer,
		.local = local,
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.piece_count = BATCH,
		.codes = disk->codes[batch],
		.incarnation = incarnation,
		.deadline_ns = disk->until_ns,
	};
	uint32_t at;

	for (at = 0; at < BATCH; at++)
		pieces[at] =
			(struct kvpull_reader_piece){ places[at].chunk,
						      batch * BATCH + at,
						      places[at].generation };
	return disk->ops->read(disk->handle, &read, &disk->ids[batch]);
}

static int batch_check(const struct disk *disk, const uint8_t *to,
		       uint32_t batch)
{
	uint32_t at;
	int wrong = 0;

	for (at = 0; at < BATCH; at++)
		wrong |= memcmp(to + (batch * BATCH + at) * CHUNK_BYTES,
				&disk->keys[batch][at], sizeof(uint64_t)) != 0;
	if (wrong)
		fprintf(stderr, "bench: disk: wrong bytes\n");
	return wrong;
}

/* Each batch is probed, read and looked at, and then the next in its place. */
static int all_read(struct disk *disk, uint32_t local, const uint8_t *to)
{
	static struct kvpull_reader_place places[BATCHES][BATCH];
	static uint8_t is_read[BATCHES];
	struct kvpull_reader_record record;
	uint64_t next = 0;
	uint64_t ended = 0;
	uint32_t batch;
	int code = 0;

	for (batch = 0; !code && batch < BATCHES && next < disk->slots;
	     batch++, next += BATCH)
		code = batch_probe(disk, batch, next, places[batch]);
	while (!code && ended < disk->slots) {
		const int at = end_await(disk, &record);

		if (at < 0)
			return -1;
		if (!is_read[at]) {
			code = batch_read(disk, local, (uint32_t)at, places[at],
					  record.incarnation);
			is_read[at] = 1;
			continue;
		}
		code = batch_check(disk, to, (uint32_t)at);
		is_read[at] = 0;
		ended += BATCH;
		if (next < disk->slots) {
			code |= batch_probe(disk, (uint32_t)at, next,
					    places[at]);
			next += BATCH;
		} else {
			disk->ids[at] = 0;
		}
	}
	return code;
}

static int reader_main(struct disk *disk, const struct bench *bench,
		       double *took_s)
{
	uint8_t *to = mmap(NULL, CHUNKS * CHUNK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint64_t start_ns;
	uint32_t local;
	int code;

	disk->handle = pool_handle_open(bench);
	if (!disk->handle || to == MAP_FAILED ||
	    disk->ops->local_add(disk->handle, to, CHUNK_BYTES, CHUNKS,
				 &local) ||
	    pool_handle_connect(disk->handle, disk->address, disk->until_ns,
				&disk->peer))
		return 1;
	start_ns = kvpull_clock_ns();
	code = all_read(disk, local, to);
	*took_s = (double)(kvpull_clock_ns() - start_ns) / 1e9;
	disk->ops->close(disk->handle);
	return code != 0;
}

static int read_back(struct disk *disk, const struct bench *bench,
		     double *took_s)
{
	struct kvpull_reader *owner = disk->handle;
	const pid_t pid = fork();
	int status = 1;

	if (!pid) {
		disk->handle = NULL;
		_exit(reader_main(disk, bench, took_s));
	}
	while (pid > 0 && !waitpid(pid, &status, WNOHANG)) {
		(void)disk->ops->poll(owner, NULL, 0,
				      sizeof(struct kvpull_reader_record));
		(void)poll(NULL, 0, 2);
	}
	return status;
}

static int disk_run(struct disk *disk, const struct bench *bench,
		    const char *folder, double *read_s)
{
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = CHUNK_BYTES,
		.chunk_count = CHUNKS,
		.slot_folder = folder,
		.slot_count = disk->slots,
	};
	const double gb = (double)disk->slots * CHUNK_BYTES / 1e9;
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	uint64_t start_ns;
	size_t byte_count;

	disk->handle = pool_handle_open(bench);
	if (!disk->handle ||
	    disk->ops->share(disk->handle, &share, &memory, &detail) ||
	    disk->ops->address(disk->handle, disk->address,
			       sizeof(disk->address), &byte_count)) {
		fprintf(stderr, "bench: disk: %s\n", detail.message);
		return -1;
	}
	memset(memory.base, 1, CHUNKS * CHUNK_BYTES);
	start_ns = kvpull_clock_ns();
	if (all_spill(disk, memory.base))
		return -1;
	results_put(bench->results,
		    gb * 1e9 / (double)(kvpull_clock_ns() - start_ns),
		    "pool.disk.write_gb_s");
	if (read_back(disk, bench, read_s))
		return -1;
	results_put(bench->results, gb / *read_s, "pool.disk.read_gb_s");
	return 0;
}

void bench_disk(const struct bench *bench)
{
	const char *folder = getenv("KVPULL_TEST_DISK");
	const char *text = getenv("KVPULL_TEST_DISK_MIB");
	const uint64_t mib = text ? strtoul(text, NULL, 10) : 4096;
	double *read_s = mmap(NULL, sizeof(*read_s), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct disk *disk = calloc(1, sizeof(*disk));

	if (!disk || read_s == MAP_FAILED)
		return;
	disk->ops = kvpull_reader_v1();
	disk->slots = (uint32_t)((mib << 20) / CHUNK_BYTES / BATCH * BATCH);
	disk->until_ns = kvpull_clock_ns() + LIMIT_NS;
	if (disk_run(disk, bench, folder ? folder : "/var/tmp", read_s))
		fprintf(stderr, "bench: disk: it did not end well\n");
	if (disk->handle)
		disk->ops->close(disk->handle);
	(void)munmap(read_s, sizeof(*read_s));
	free(disk);
}
