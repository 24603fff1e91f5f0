/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of file regions, each in three ways: io_uring with O_DIRECT, io_uring
 * through the page cache, pread(). A piece's result is looked at in a later
 * poll than the one that asked for it, so that a test can act in between.
 */
#ifndef KVPULL_TESTS_UNIT_DISK_WORLD
#define KVPULL_TESTS_UNIT_DISK_WORLD

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/file_read.h"
#include "tests/lib/lines.h"
#include "tests/lib/random.h"
#include "tests/lib/unit.h"

/* 1: the kernel takes no request of a ring now. */
extern int kernel_is_busy;

#define FILE_BYTES ((size_t)7 << 20)
#define LOCAL_BYTES FILE_BYTES
#define READS_MAX 4u
#define TURNS_MAX 20000u
#define UNTOUCHED 0xee

enum way {
	WAY_DIRECT = 0,
	WAY_CACHED,
	WAY_PREAD,
	WAYS
};

struct world {
	struct kvpull_log log;
	enum way way;
	struct kvpull_arena arena;
	struct kvpull_files files;
	struct kvpull_file regions[KVPULL_REGIONS_MAX];
	struct kvpull_file_read reads[READS_MAX];
	struct kvpull_read read[READS_MAX];
	struct kvpull_strip strips[4];
	uint32_t remote_ids[64];
	uint32_t local_ids[64];
	uint32_t group_first[KVPULL_GROUPS_MAX + 1];
	uint8_t *content; /* what is in the file */
	uint8_t *local;
	int wake_fd;
	int fd; /* the producer's */
	uint64_t random;
	uint32_t ended_count;
	uint32_t polls;
	struct kvpull_file_read *ended[READS_MAX * 2];
};

void *pages(size_t bytes);

/* Region 1 is the file, from `offset` on; region 0 is memory. */
void region_of(struct world *world, uint64_t offset, uint64_t bytes);
void region_open(struct world *world, uint64_t offset);

/* Made once, and as it was after each test: see world_end(). */
void file_make(struct world *world);

/* 0; -1: this machine does not have that way. */
int world_begin(struct world *world, enum way way);
void world_end(struct world *world);
/* As world_end(), where the files are closed already. */
void world_end_closed(struct world *world);

/* A test of each way; what this machine does not have, is left out. */
void in_each_way(void (*test)(struct world *world));

/* Blocks 0 .. count - 1 of one strip, in this order, from the file's start. */
struct kvpull_strip *read_plain(struct world *world, uint32_t index,
				uint32_t count, uint64_t row_bytes);
void start(struct world *world, uint32_t index);
/* Makes this read alone, which ends well and with the right bytes. */
void read_well(struct world *world, uint32_t index);
void poll_once(struct world *world);

/* As an owner: asleep, unless there is something to do. */
void rest(struct world *world);
void poll_until(struct world *world, uint32_t ended_count);

/* Pieces whose results were not looked at yet. */
uint32_t in_flight(const struct world *world);

/* Checks that the kernel has returned all pieces, and no more are wanted. */
void pieces_are_back(struct world *world);
void only_one_ended(const struct world *world, uint32_t index, int code);

/* Checks the bytes of the read, row by row; the rest is untouched. */
void verify(const struct world *world, const struct kvpull_read *read);

#endif /* KVPULL_TESTS_UNIT_DISK_WORLD */
