/* SPDX-License-Identifier: Apache-2.0 */
/* Packets on their way. */
#ifndef KVPULL_SIM_QUEUE_H
#define KVPULL_SIM_QUEUE_H

#include "base/transport.h"

struct sim_world;

/* Bytes or a record on their way; a queue keeps its order. */
enum sim_packet_kind {
	SIM_SYN,
	SIM_MESSAGE,
	SIM_NOTE,
	SIM_BEAT,
	SIM_CLOSE
};

struct sim_packet {
	struct sim_packet *next;
	uint64_t at_ns;
	enum sim_packet_kind kind;
	int32_t code;
	struct kvpull_record note;
	size_t byte_count;
	uint8_t bytes[];
};

struct sim_queue {
	struct sim_packet *first;
	struct sim_packet *last;
	uint64_t last_ns;
};

void sim_queue_clear(struct sim_queue *queue);
struct sim_packet *sim_queue_add(struct sim_queue *queue, const void *bytes,
				 size_t byte_count);
struct sim_packet *sim_queue_put(struct sim_world *world,
				 struct sim_queue *queue,
				 enum sim_packet_kind kind, const void *bytes,
				 size_t byte_count);
struct sim_packet *sim_queue_due(const struct sim_world *world,
				 const struct sim_queue *queue);
void sim_queue_pop(struct sim_queue *queue);
/* The first, if its time has come by then. */
struct sim_packet *sim_queue_due_at(const struct sim_queue *queue,
				    uint64_t now_ns);
struct sim_packet *sim_queue_unlink(struct sim_queue *queue); /* the first */
/* Loses what the dead sender had not got out yet, from some point on. */
void sim_queue_cut(struct sim_world *world, struct sim_queue *queue);

#endif /* KVPULL_SIM_QUEUE_H */
