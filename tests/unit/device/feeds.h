/* SPDX-License-Identifier: Apache-2.0 */
/* A feed over the table without a driver, and its owner, in one thread. */
#ifndef KVPULL_TESTS_UNIT_DEVICE_FEEDS_H
#define KVPULL_TESTS_UNIT_DEVICE_FEEDS_H

#include "base/device_feed.h"
#include "tests/unit/device/reads.h"

#define MIB ((uint64_t)1 << 20)
#define JOBS 4u
#define MARKS 2u
#define MAPPINGS 3u

struct feeds {
	struct kvpull_arena arena;
	struct kvpull_device_feed feed;
	struct kvpull_ring_writer orders;
	struct kvpull_ring ends;
	struct reads_read reads[JOBS];
	struct kvpull_device_job jobs[JOBS];
	struct kvpull_device_region regions[JOBS];
	uint64_t now_ns;
};

extern struct feeds feeds;

/* Open it, and everything anew: that of kvpull_device_feed_open(). */
int feed_begin(uint64_t bytes_per_ms);
/* Close a device that works; one that is lost. */
void feed_end(void);
void feed_lost(void);
/* A device that works, with 4 GiB of mapping 0. */
void feed_open(uint64_t bytes_per_ms);

/* A test of a device that `begin` opens; feed_end() follows. */
#define UNIT_TEST_FED_BY(name, begin, bytes_per_ms)                            \
	static void name##_fed(void);                                          \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		begin(bytes_per_ms);                                           \
		name##_fed();                                                  \
		feed_end();                                                    \
	}                                                                      \
	static void name##_fed(void)

#define UNIT_TEST_FED(name, bytes_per_ms)                                      \
	UNIT_TEST_FED_BY(name, feed_open, bytes_per_ms)

void order(enum kvpull_device_kind kind, uint32_t index);
/* Import /dev/null as so many bytes; wait for its end, too. */
void mapping_order(uint32_t mapping, uint64_t bytes);
void mapped(uint32_t mapping, uint64_t bytes);
/* Copy blocks of @bytes from the mapping. */
struct kvpull_device_job *job_order(uint32_t index, uint32_t mapping,
				    uint32_t blocks, uint64_t bytes);

/* Steps, as long as something is done; until all that is ordered has ended. */
void steps(void);
void all_reached(void);
/* The same, a second at most after the other, until so much time went by. */
void steps_for(uint64_t ns);

/* The next end, which is of that kind and code; KVPULL_NONE: there is none. */
uint32_t end_take(enum kvpull_device_kind kind, int code);
int no_end(void);
/* All is reached; the first end is that of job 0, with this code. */
void job_ends(int code);

/* Lines of level error since feed_begin(). */
uint32_t errors_logged(void);

#endif
