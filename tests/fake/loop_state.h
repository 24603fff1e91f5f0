/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State that the two files of the loop route share.
 *
 * loop.c       connections, messages, notifications, rings
 * loop_read.c  reads and checks
 */
#ifndef KVPULL_TESTS_FAKE_LOOP_STATE_H
#define KVPULL_TESTS_FAKE_LOOP_STATE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ring.h"
#include "tests/fake/loop.h"

#define CONNS 32u
#define PLACES 8u /* peers, and callers, of an end */
#define READS 128u
#define PACKETS 16u
#define RING_RECORDS 16u
#define PACKET_BYTES 8192u
#define DELAY_NS (200 * UINT64_C(1000))

enum packet_kind {
	PACKET_CALL = 1,
	PACKET_MESSAGE,
	PACKET_NOTE,
	PACKET_END
};

struct packet {
	enum packet_kind kind;
	int32_t code; /* of an end */
	uint64_t due_ns;
	size_t byte_count;
	struct kvpull_record note;
	uint8_t bytes[PACKET_BYTES];
};

/* The oldest is first; the one that was told last may still be looked at. */
struct queue {
	struct packet *packets; /* [PACKETS] */
	uint32_t first, count;
};

struct end;

struct conn {
	uint32_t used;
	struct end *client, *server; /* NULL: over, for that side */
	uint32_t peer, caller;       /* handles; KVPULL_NONE: not known yet */
	uint32_t attached;
	uint32_t gives; /* its client gives tickets back by it */
	uint32_t over;  /* nothing more is said; its ends are underway */
	uint32_t refused;
	struct queue to_client, to_server;
	struct kvpull_ring ring;
	struct kvpull_ring_writer writer;
	void *memory; /* of the ring; NULL: not let in */
};

struct open_read {
	struct kvpull_read *read; /* NULL: free */
	struct conn *conn;        /* of its peer */
	uint32_t peer;
	uint32_t checks, is_over;
	int32_t code;
	uint64_t due_ns;
	uint64_t number;
};

/* A worker's end of the route. */
struct end {
	struct kvpull_transport transport; /* first: the seam's handle */
	struct loop_net *net;
	uint32_t number;
	uint32_t is_open;
	const struct kvpull_serve *serve;
	struct conn *peers[PLACES];
	struct conn *callers[PLACES];
	uint32_t was_cut[PLACES]; /* the peer that had this handle */
	struct open_read reads[READS];
	uint64_t now_ns;
	int fd;
	char address[16];
};

struct loop_net {
	uint64_t state;
	uint32_t cut_chance;
	uint64_t reads; /* begun */
	uint32_t end_count;
	struct end ends[LOOP_ENDS];
	struct conn conns[CONNS];
	struct loop_counts counts;
};

static inline struct end *of(struct kvpull_transport *transport)
{
	return (struct end *)(void *)transport;
}

static inline const struct end *
of_const(const struct kvpull_transport *transport)
{
	return (const struct end *)(const void *)transport;
}

static inline void must(int holds, const char *what)
{
	if (holds)
		return;
	(void)fprintf(stderr, "loop: %s\n", what);
	abort();
}

static inline uint32_t below(struct loop_net *net, uint32_t bound)
{
	net->state = net->state * UINT64_C(6364136223846793005) + 1442695041;
	return (uint32_t)((net->state >> 33) % bound);
}

/* Is true in so many of a thousand cases. */
static inline int chance(struct loop_net *net, uint32_t thousandths)
{
	return below(net, 1000) < thousandths;
}

static inline int again(struct end *end)
{
	const int is_now = chance(end->net, 150);

	end->net->counts.repeats += (uint32_t)is_now;
	return is_now;
}

static inline uint64_t due(struct end *end)
{
	if (!chance(end->net, 700))
		return end->now_ns;
	end->net->counts.delays++;
	return end->now_ns + below(end->net, (uint32_t)DELAY_NS);
}

/* Nothing comes by it any more; both sides are told, after what was said. */
void loop_conn_end(struct conn *conn, struct end *by, int32_t code);

/* loop_read.c */
const struct kvpull_serve *loop_serve_of(const struct conn *conn);
int loop_read_start(struct kvpull_transport *transport, uint32_t peer,
		    struct kvpull_read *read);
int loop_check_start(struct kvpull_transport *transport, uint32_t peer,
		     struct kvpull_read *read);
void loop_read_cancel(struct kvpull_transport *transport, uint32_t peer,
		      struct kvpull_read *read);
/* Ends all reads of a connection; some of their bytes may have come. */
void loop_reads_end(struct end *end, const struct conn *conn, int32_t code);
int loop_has_reads(const struct end *end, const struct conn *conn);
/* Return: 1 if there is an event. */
int loop_read_tell(struct end *end, struct open_read *open,
		   struct kvpull_event *event);

#endif /* KVPULL_TESTS_FAKE_LOOP_STATE_H */
