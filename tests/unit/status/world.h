/* SPDX-License-Identifier: Apache-2.0 */
/* A folder in memory of its own for each test, and status files in it. */
#ifndef KVPULL_TESTS_UNIT_STATUS_WORLD
#define KVPULL_TESTS_UNIT_STATUS_WORLD

#include "base/clock.h"
#include "plugin/status/status.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

struct world {
	char folder[64];
	struct kvpull_log log;
	struct kvpull_config config;
	struct kvpull_status status;
};

int world_up(void **state);
int world_up_open(void **state);
int world_down(void **state);

#define TEST(name) UNIT_TEST_OF(name, struct world, world, world_up, world_down)
/* Likewise, with the file of incarnation 1. */
#define OPEN_TEST(name)                                                        \
	UNIT_TEST_OF(name, struct world, world, world_up_open, world_down)

/* As a worker that was opened at now_ns, or a pool. */
int open_at(struct world *world, struct kvpull_status *status,
	    uint64_t incarnation, uint64_t now_ns);
int open_as(struct world *world, struct kvpull_status *status,
	    uint64_t incarnation);
/* The world's own. */
void opens(struct world *world, uint64_t incarnation);
int open_pool(struct world *world, struct kvpull_status *status,
	      uint64_t incarnation);

int read_header(const char *path, uint32_t owner,
		struct kvpull_status_header *header);
/* Likewise, of the world's own file, and what comes of it. */
void header_reads(const struct world *world,
		  struct kvpull_status_header *header, int code);
uint32_t file_count(const struct world *world);
/* The folder of the world, to be swept. */
void sweep(const struct world *world, uint64_t now_ns, uint32_t kept);
/* 1: there is a file of that incarnation. */
int has_file(const struct world *world, uint64_t incarnation);

#endif /* KVPULL_TESTS_UNIT_STATUS_WORLD */
