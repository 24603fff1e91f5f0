/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices that were not there at open, and such that were lost and come back:
 * taken away and given again, or their address with them. One that is lost is
 * closed when nothing uses it any more. A closed one is looked for, as its rail
 * was at open, until there is one no worse. After MOVE_NS without an address of
 * the former kind any routable one will do.
 * Then all memory is registered with it, and it listens at the port it had, or,
 * where none was asked for and somebody else has that by now, at any other. A
 * device goes without a listener meanwhile: its own reads need none.
 *
 * gone     LOST       connections end; each with its error, as their owner hears;
 *                     then its memory is deregistered, an MR a poll
 *          CLOSED     nothing of it is left; it is looked for
 *          RETURNING  its memory is registered, an MR a poll
 *          THERE      it is in use
 */
#ifndef KVPULL_VERBS_BACK_H
#define KVPULL_VERBS_BACK_H

#include "verbs/connect.h"
#include "verbs/dmabuf.h"
#include "verbs/read.h"
#include "verbs/watch.h"

/* How often it is looked for: a pull is to go on within 2 s of its return. */
#define KVPULL_VERBS_BACK_NS (KVPULL_NS_PER_S / 2)
#define KVPULL_VERBS_MOVE_NS KVPULL_NS_PER_S
/*
 * How often those that are there are looked at, and those that never were: of two
 * routes of this process that share a context, one alone is told what the device
 * says of itself.
 */
#define KVPULL_VERBS_LOOK_NS KVPULL_NS_PER_S
/*
 * A device that is there and cannot be used is retried less and less often:
 * after BACK_NS << attempts.
 */
#define KVPULL_VERBS_BACK_SHIFT_MAX 5u

struct kvpull_verbs_back {
	struct kvpull_verbs_shared *shared;
	struct kvpull_verbs_connect *connect;
	struct kvpull_verbs_reads *reads;
	const struct kvpull_verbs_watch *watch;
	struct kvpull_serve serve;  /* what to register again; none: not yet */
	struct kvpull_serve locals; /* likewise, for own reads alone */
	struct kvpull_verbs_dmabufs dmabufs; /* of `serve` */
	uint64_t due_ns;                     /* of the next look */
	uint32_t gone;                       /* by device: at the last one */
	/* By device: how often it was there and could not be used, in a row. */
	uint32_t failures[KVPULL_VERBS_RAILS_MAX];
	uint64_t closed_ns[KVPULL_VERBS_RAILS_MAX];
	uint64_t rest_ns[KVPULL_VERBS_RAILS_MAX]; /* and is not looked for until */
};

/* Devices whose address left, whoever was told of it; serve() comes before polls. */
void kvpull_verbs_back_look(const struct kvpull_verbs_back *back);
/* A part of a poll. */
void kvpull_verbs_back_run(struct kvpull_verbs_back *back);
/*
 * A piece of a device that nothing uses, one MR of memory at the most.
 * Return: 1 if there is more.
 */
int kvpull_verbs_back_leave(struct kvpull_verbs_back *back, uint32_t device);
/*
 * The node of memory is known now: rails go by the devices that are near to it,
 * before anything is served by them. Nothing is connected.
 */
void kvpull_verbs_back_move(struct kvpull_verbs_back *back);
/* No device is open, and it is not yet time to look for one. */
int kvpull_verbs_back_is_idle(const struct kvpull_verbs_back *back);
/* Returns when there is something to do next. */
uint64_t kvpull_verbs_back_due_ns(const struct kvpull_verbs_back *back);

#endif /* KVPULL_VERBS_BACK_H */
