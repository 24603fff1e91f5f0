/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A route within one process, written against base/transport.h alone: between
 * whole workers it delays whatever is said, answers EAGAIN, ends reads in any
 * order and cuts connections, all from a seed. Its time is that of the polls.
 *
 * Of one connection, messages and notifications keep their order; all else may
 * overtake.
 */
#ifndef KVPULL_TESTS_FAKE_LOOP_H
#define KVPULL_TESTS_FAKE_LOOP_H

#include "base/transport.h"

#define LOOP_ENDS 4u

/* All ends of a test. */
struct loop_net;

struct loop_counts {
	uint32_t delays; /* something was not told by the first poll */
	uint32_t repeats;
	uint32_t reorders; /* a read ended before one that began earlier */
	uint32_t cuts;     /* in mid-read */
	uint32_t resumes;  /* and it went on behind what had come */
};

struct loop_net *loop_open(uint64_t seed);
/* Return: 0, or how many connections and reads were left. */
uint32_t loop_close(struct loop_net *net);
/* In a thousand reads, so many are cut, until this is called again. */
void loop_cuts(struct loop_net *net, uint32_t chance);
const struct loop_counts *loop_counts(const struct loop_net *net);

/* A worker's `transport`; context: the net. Its address is loop:<number>. */
struct kvpull_transport *
loop_transport(void *context, const struct kvpull_log *log, uint32_t at);

#endif /* KVPULL_TESTS_FAKE_LOOP_H */
