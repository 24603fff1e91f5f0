/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of a rail: a queue pair that is connected to itself. A READ of one byte by it
 * from memory of the GPU pushes what the rail's NIC has written there before, so that
 * work which the GPU begins later sees it. The answer of the READ is not looked at.
 *
 * The loop has a protection domain of its own, in which the memory of the GPU is
 * registered once more, for reads: no queue pair of a peer can use those keys.
 *
 * One READ is in flight at a time. Whoever asks meanwhile waits for the next one,
 * which is posted behind all that has come by then, and serves all of them.
 */
#ifndef KVPULL_VERBS_LOOP_H
#define KVPULL_VERBS_LOOP_H

#include "verbs/region.h"

struct kvpull_verbs_loop {
	/* The rail's, with the loop's own domain; pd NULL: there is no loop. */
	struct kvpull_verbs_device device;
	struct kvpull_verbs_regions regions; /* of the GPU's memory */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *memory; /* of answer */
	uint64_t answer;
	const char *why;     /* is_broken: static text */
	uint32_t is_said;    /* that it cannot be made */
	uint32_t is_broken;  /* for ever: until the rail's device comes back */
	uint32_t is_reading; /* a READ is in flight */
	uint32_t is_armed;   /* its completion makes an event */
	/* Reads that wait for the READ in flight; for the next one. */
	uint32_t *open; /* [reads_max] */
	uint32_t *wanted;
	uint32_t open_count;
	uint32_t wanted_count;
	uint64_t wanted_at; /* the last bytes that one of those has written */
	uint64_t until_ns;  /* they end then at the latest; 0: not set yet */
};

/* Takes the loop's memory, once; the arena reports a shortage. */
void kvpull_verbs_loop_init(struct kvpull_verbs_loop *loop, uint32_t reads_max,
			    struct kvpull_arena *arena);

/*
 * Begins a loop of that device, and the regions of serve in it: they are
 * registered by kvpull_verbs_regions_register(). 0; KVPULL_EDEVICE,
 * KVPULL_EUNSUPPORTED (logged).
 */
int KVPULL_MUST_CHECK
kvpull_verbs_loop_begin(struct kvpull_verbs_loop *loop,
			const struct kvpull_verbs_device *device,
			const struct kvpull_serve *serve,
			const struct kvpull_verbs_params *params);
/* All is registered: make the queue pair. 0, KVPULL_EDEVICE (logged). */
int KVPULL_MUST_CHECK
kvpull_verbs_loop_connect(struct kvpull_verbs_loop *loop,
			  const struct kvpull_verbs_params *params);
/* All but the domain and its regions; nothing waits for it. */
void kvpull_verbs_loop_stop(struct kvpull_verbs_loop *loop);
/* The domain, of which no region is registered any more. */
void kvpull_verbs_loop_end(struct kvpull_verbs_loop *loop);

static inline int kvpull_verbs_loop_works(const struct kvpull_verbs_loop *loop)
{
	return loop->qp && !loop->is_broken;
}

/* READ these bytes; none is in flight. 0; KVPULL_EREAD: it is broken, and why. */
int KVPULL_MUST_CHECK kvpull_verbs_loop_read(struct kvpull_verbs_loop *loop,
					     uint64_t at);
/* Of the READ in flight: 1: it is complete; 0: not yet; KVPULL_EREAD, likewise. */
int KVPULL_MUST_CHECK kvpull_verbs_loop_poll(struct kvpull_verbs_loop *loop);
/* The READ in flight is not waited for any more: the loop is broken. */
void kvpull_verbs_loop_late(struct kvpull_verbs_loop *loop);
/* Before a sleep. 1: look once more first. */
int KVPULL_MUST_CHECK kvpull_verbs_loop_arm(struct kvpull_verbs_loop *loop);

#endif /* KVPULL_VERBS_LOOP_H */
