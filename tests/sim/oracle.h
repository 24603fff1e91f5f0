/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle: naive books of who holds, claimed and released what, and the
 * promises that they are compared with. It shares no code with the core; it
 * looks into it only to see when something was taken in (a hold by a rank, a
 * pull by its worker, a consumer by a hold table), never to see what was
 * decided.
 */
#ifndef KVPULL_SIM_ORACLE_H
#define KVPULL_SIM_ORACLE_H

#include "tests/sim/sim.h"

/* oracle.c: holds */
struct sim_hold *sim_hold_find(struct sim_world *world, uint64_t key);
/* Finds a hold of this life of the instance by what notes and tickets name. */
struct sim_hold *sim_hold_named(const struct sim_instance *instance,
				uint32_t slot, uint64_t generation);
/* Return: the hold's request is over, or its instance is. */
int sim_hold_is_over(struct sim_world *world, const struct sim_hold *hold);
/* Return: the hold is of this life of the process's instance. */
int sim_hold_is_of(const struct sim_hold *hold, const struct sim_proc *proc);

/* oracle_seen.c: consumers, as a producer's process knows them */
struct sim_seen *sim_seen_of(struct sim_proc *proc, uint64_t instance_id);
enum sim_rank_state sim_rank_state(const struct sim_seen *seen, uint32_t rank);
/* A time of then, as a stalled producer counts it. */
uint64_t sim_moved(const struct sim_proc *proc, uint64_t then_ns,
		   uint64_t then_stall_ns);

/* oracle_given.c: words that give tickets back */
struct sim_word {
	uint32_t slot;
	uint64_t generation;
	uint64_t tag;
};

#define SIM_WORDS_BYTES(count) (6 + 20 * (size_t)(count))

size_t sim_words_put(uint8_t *bytes, const struct sim_word *words,
		     uint32_t count);
/* A producer's process is shown a message; a consumer's calls with one. */
void sim_oracle_shown(struct sim_proc *proc, const uint8_t *bytes,
		      size_t byte_count);
void sim_oracle_gives(const struct sim_conn *conn, const uint8_t *bytes,
		      size_t byte_count);
void sim_oracle_given_back(struct sim_proc *proc, const struct sim_hold *hold);
/* The hold expired. */
void sim_oracle_stranded(struct sim_proc *proc, const struct sim_hold *hold);
/*
 * Return: the hold was given back, and no rank that claimed it itself owes a
 * word.
 */
int sim_oracle_must_give(const struct sim_proc *proc, struct sim_hold *hold);

/* oracle_crowd.c: after the consumers of a poll were seen, and at its end */
void sim_oracle_crowd(struct sim_proc *proc);
void sim_oracle_crowd_end(struct sim_proc *proc);

/* Has the rank claimed the hold itself, and does it owe its last word? */
static inline int sim_owes_itself(const struct sim_claimer *claimer,
				  uint32_t rank)
{
	return claimer->debts[rank].claimed > claimer->debts[rank].paid;
}

/* Does it owe one, for its own claim or for its instance's? */
static inline int sim_owes(const struct sim_claimer *claimer, uint32_t rank)
{
	return sim_owes_itself(claimer, rank) ||
	       claimer->debts[rank].waited > claimer->debts[rank].paid;
}

#endif /* KVPULL_SIM_ORACLE_H */
