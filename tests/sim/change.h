/* SPDX-License-Identifier: Apache-2.0 */
/* Weights (adapter 0) or an adapter change; see the ABI's changed(). */
#ifndef KVPULL_SIM_CHANGE_H
#define KVPULL_SIM_CHANGE_H

#include "tests/sim/sim.h"

uint64_t sim_adapter(const struct sim_world *world, uint64_t key);
void sim_change(struct sim_instance *instance);
void sim_change_clear(struct sim_instance *instance);
/* A producer's request hits the cache. */
void sim_change_hit(struct sim_instance *instance, struct sim_request *request);
/* A consumer's engine asks whether what is loaded may be used. */
void sim_change_used(struct sim_instance *instance,
		     struct sim_request *request);

#endif /* KVPULL_SIM_CHANGE_H */
