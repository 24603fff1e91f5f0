/* SPDX-License-Identifier: Apache-2.0 */
/* Turns of pulls for entries of producers' ranks, as the oracle keeps them. */
#ifndef KVPULL_TESTS_SIM_TURNS_H
#define KVPULL_TESTS_SIM_TURNS_H

#include <stdint.h>

#define SIM_WAITERS 64u /* claims of one process in a crowd, at most */

struct sim_world;
struct sim_proc;

/* A claim that lacks entries, as it was seen after the last poll. */
struct sim_waiter {
	uint64_t serial; /* 0: it does not */
	uint64_t since;  /* number of the poll after which it was seen first */
	uint32_t pulls;  /* a pull of it waits */
	uint32_t reserved;
};

struct sim_turns {
	struct sim_waiter waiters[SIM_WAITERS]; /* by the claim's index */
	uint64_t serial; /* of the claim that takes entries; 0: none does */
};

/* All requests of a ticket have the priority that its generation gives. */
int32_t sim_priority(const struct sim_world *world, uint64_t generation);
/* After a poll: who has the turn, and who waits for it. */
void sim_oracle_turns(struct sim_proc *proc);

#endif /* KVPULL_TESTS_SIM_TURNS_H */
