/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/worker/holder.h"

void hold(struct world *world)
{
	world_hold(world, KEY, SLOT, GENERATION);
}

struct world_caller *consumer(struct world *world, uint32_t index,
			      uint64_t instance)
{
	const struct world_hello who = { .instance = instance,
					 .incarnation = instance + 1 };

	return world_let_in(world, index, &who);
}

void say(struct world *world, struct world_caller *caller, uint32_t kind)
{
	world_say(world, caller, kind, SLOT, GENERATION);
}

void tell(struct world *world, struct world_caller *caller, uint32_t kind)
{
	say(world, caller, kind);
	world_poll(world, 1);
}

struct kvpull_command end_of(uint64_t generation, int32_t reason)
{
	return (struct kvpull_command){ .kind = KVPULL_COMMAND_END,
					.slot = SLOT,
					.key = KEY,
					.generation = generation,
					.reason = reason };
}

void ended(const struct world *world, int32_t reason)
{
	sent(world, KEY, reason);
}
