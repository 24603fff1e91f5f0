/* SPDX-License-Identifier: Apache-2.0 */
/* F14: an owner whose consumers_max is reached, and one of too much memory. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/scenario/f14.h"

/* Three times what six attempts take. */
#define STAY_NS (2 * SCENARIO_NS_PER_S)
/* 64 TiB in all, of which no page is ever written: the most that share() takes. */
#define SPARSE_CHUNK_BYTES (UINT64_C(1) << 40)

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
	scenario_check(let_in_ns < SCENARIO_NS_PER_S * patience(),
		       "it waits too long");
}

static void sparse_main(const struct scenario *scenario,
			struct f14_arena *arena)
{
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = SPARSE_CHUNK_BYTES,
		.chunk_count = F14_CHUNKS,
	};
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	const struct kvpull_reader_ops *ops;
	struct kvpull_reader *handle =
		f14_handle_open(scenario, &ops, "w1", arena->said);
	struct kvpull_reader_record record;
	size_t byte_count;

	if (ops->share(handle, &share, &memory, NULL) ||
	    ops->address(handle, arena->address, sizeof(arena->address),
			 &byte_count))
		scenario_fail("owner: share");
	/* Pairs with the acquire in f14_sparse(). */
	atomic_store_explicit(&arena->is_up, 1, memory_order_release);
	while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
		(void)ops->poll(handle, &record, 1, sizeof(record));
		scenario_sleep_ns(F14_NAP_NS_MAX);
	}
	ops->close(handle);
	_exit(0);
}

void f14_sparse(const struct scenario *scenario)
{
	struct f14_arena *arena = f14_arena_make();
	struct f14_reader reader;
	pid_t owner;
	int32_t code;

	if (scenario_is_remote())
		scenario_refuse("memory is mapped on its own node alone");
	owner = fork();
	scenario_check(owner >= 0, "fork");
	if (!owner) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		sparse_main(scenario, arena);
	}
	/* Pairs with the release in sparse_main(). */
	while (!atomic_load_explicit(&arena->is_up, memory_order_acquire))
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	code = f14_reader_start(&reader, scenario, arena, "w1");
	scenario_say("%s", reader.said);
	scenario_check(code == KVPULL_EUNSUPPORTED, "ended with %d", code);
	scenario_check(strstr(reader.said, "RAM and swap of this node") != NULL,
		       "the reader does not say why");
	f14_reader_stop(&reader);
	f14_owner_stop(arena, owner);
}
