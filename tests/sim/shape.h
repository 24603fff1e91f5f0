/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of worlds that seeds have. */
#ifndef KVPULL_SIM_SHAPE_H
#define KVPULL_SIM_SHAPE_H

#include <stdint.h>

struct sim_world;

/* The kind of world that a seed has: shape.c. */
struct sim_shape {
	uint32_t wide;  /* 0: two ranks at most, nothing below is unusual */
	uint32_t heads; /* of the model */
	uint32_t replicated;
	uint32_t window;  /* blocks of a second group, which slides; 0: none */
	uint32_t state;   /* it is one of states: a slot for all tokens */
	uint32_t network; /* a lost connection is no death yet */
	uint32_t keyed;
	uint32_t partial;    /* some prompts are not computed to their end */
	uint32_t late_bytes; /* what a predecessor was told reaches who follows */
	uint32_t impatient; /* connect_ms is short */
	uint32_t ring_records;
	uint32_t holds, families, tickets, requests, pulls, peers, callers;
	uint32_t conns, procs; /* of the world */
	uint32_t tight;        /* families or requests find no room */
	uint32_t blocks;       /* of a consumer's pool */
	uint32_t times;        /* as many requests and blocks a producer has */
	uint32_t calm;         /* bit a fault that this world does not know */
	uint32_t crowd;        /* many producers, and entries for two of them */
	uint32_t thread;       /* progress runs on a thread of its own */
	uint32_t pace; /* tenths of a lease between polls of a producer, or 0 */
	uint32_t changes; /* of weights and adapters, while engines run */
	uint32_t gives;   /* consumers are refused, and tickets given back */
	uint32_t places;  /* consumers_max; 0: as many as callers */
	uint32_t ranked;  /* requests have unlike priorities */
	uint32_t device;  /* blocks are in memory of devices */
	uint32_t layers;  /* of the model */
	uint32_t staged; /* instances are pipelines of unlike numbers of stages */
};

#define SIM_RANKS_MAX 8u
#define SIM_LAYERS_MAX 4u
#define SIM_STAGES_MAX 4u

/* The pipeline of an instance. */
struct sim_stages {
	uint32_t count;
	uint32_t ends[SIM_STAGES_MAX]; /* layer behind the last of each */
};

enum sim_fault {
	SIM_FAULT_FORGED,
	SIM_FAULT_CORRUPT,
	SIM_FAULT_OTHER_PROMPT,
	SIM_FAULT_REVOKED,
	SIM_FAULT_DRAINED,
	SIM_FAULT_ABORTED,
	SIM_FAULT_REJECTED,
	SIM_FAULT_READ_AGAIN,
	SIM_FAULT_NOTE_AGAIN,
	SIM_FAULT_WRITTEN_LATE,
	SIM_FAULTS
};

/* Draws the seed's world, and how large its instances are. */
void sim_shape_draw(struct sim_world *world);
/* Is the instance of that index a producer? */
int sim_produces(const struct sim_world *world, uint32_t index);
uint32_t sim_shape_tp(struct sim_world *world, uint32_t index);
/* Draws stages of an instance with that many ranks in each. */
void sim_shape_stages(struct sim_world *world, uint32_t index, uint32_t tp,
		      struct sim_stages *stages);

#endif /* KVPULL_SIM_SHAPE_H */
