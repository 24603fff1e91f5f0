/* SPDX-License-Identifier: Apache-2.0 */
/* F14: an owner whose consumers_max is reached. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/scenario/f14.h"

/* Three times what six attempts take. */
#define STAY_NS (2 * SCENARIO_NS_PER_S)

/* A process of its own: a device that is open before a fork is of no use. */
static void first_main(const struct scenario *scenario, struct f14_arena *arena)
{
	struct f14_reader reader;

	if (f14_reader_start(&reader, scenario, arena, "w1"))
		scenario_fail("the first reader is not let in");
	/* Pairs with the acquire in f14_full(). */
	atomic_store_explicit(&arena->good, 1, memory_order_release);
	scenario_sleep_ns(STAY_NS);
	atomic_store_explicit(&arena->longest_ns, engine_now_ns(),
			      memory_order_relaxed);
	f14_reader_stop(&reader);
	_exit(0);
}

void f14_full(const struct scenario *scenario)
{
	struct f14_arena *arena = f14_arena_make();
	struct f14_reader reader;
	uint64_t let_in_ns;
	pid_t owner;
	pid_t first;
	int status = -1;
	int32_t code;

	f14_readers_max = 1;
	owner = f14_owner_start(scenario, arena);
	first = fork();
	scenario_check(first >= 0, "fork");
	if (!first)
		first_main(scenario, arena);
	/* Pairs with the release in first_main(). */
	while (!atomic_load_explicit(&arena->good, memory_order_acquire))
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	code = f14_reader_start(&reader, scenario, arena, "w1");
	let_in_ns = engine_now_ns();
	(void)waitpid(first, &status, 0);
	scenario_check(!status, "the first reader ended with 0x%x",
		       (unsigned)status);
	scenario_check(!code, "the second reader ended with %d: %s", code,
		       reader.said);
	let_in_ns -= arena->longest_ns;
	f14_reader_stop(&reader);
	f14_owner_stop(arena, owner);
	scenario_say("%s; let in %llu ms after there was room", arena->said,
		     (unsigned long long)(let_in_ns / SCENARIO_NS_PER_MS));
	scenario_check(let_in_ns < SCENARIO_NS_PER_S * scenario->patience,
		       "it waits too long");
}
