/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the simulated network. */
#ifndef KVPULL_SIM_NET_H
#define KVPULL_SIM_NET_H

#include "tests/sim/sim.h"

#define SIM_GIVE_BYTES 66u /* of a give-back message: three words */

/* net.c */
int sim_connect(struct kvpull_transport *transport, const char *address,
		uint32_t *peer);
void sim_hang_up(struct sim_world *world, struct sim_conn *conn);

/* notes.c: as in the seam */
int sim_notify(struct kvpull_transport *transport, uint32_t peer,
	       const struct kvpull_record *record);
uint32_t sim_notes_open(const struct kvpull_transport *transport,
			uint32_t peer);
void sim_beat(struct kvpull_transport *transport, uint32_t peer);
uint32_t sim_records_max(const struct sim_conn *conn);
void sim_forge(struct sim_world *world, struct sim_conn *conn,
	       const struct kvpull_record *real);

/* give.c */
int sim_give(struct kvpull_transport *transport, const char *address,
	     const void *bytes, size_t byte_count, uint32_t *peer);
/* The server gets the message of a call. */
void sim_gives_taken(struct sim_proc *proc, struct sim_conn *conn,
		     const struct sim_packet *packet);
/*
 * A call comes, and would have this place. 1: it gets none, and is over; its
 * message was taken, if it came with the call.
 */
int sim_gives_by_sink(struct sim_proc *proc, struct sim_conn *conn,
		      uint32_t place);
/* The words that anybody has shown to the process come by its route's sink. */
void sim_gifts_take(struct sim_proc *proc, uint64_t now_ns);

#endif /* KVPULL_SIM_NET_H */
