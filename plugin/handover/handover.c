/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/handover/handover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/fd.h"

#define RECORDS_MIN 64u
/* So exact is the time of the last run: its cache line is the engine's, too. */
#define RUNS_A_LEASE 64u

/*
 * Each pull and claim has at most three records open a way (its start, its end,
 * and the end of the slot's last use, if that came to nothing), a consumer two.
 * Of marks, and of places that are wanted, one record is on its way at a time.
 */
static uint32_t ring_records(const struct kvpull_config *config)
{
	return kvpull_ring_records(3 * config->pulls_max +
				   3 * kvpull_config_claims_max(config) +
				   4 * config->consumers_max + RECORDS_MIN);
}

static int ring_take(struct kvpull_handover_end *from,
		     struct kvpull_handover_end *to,
		     const struct kvpull_facts *facts,
		     struct kvpull_arena *arena)
{
	const uint32_t records = ring_records(&facts->config);
	void *memory = kvpull_arena_take(arena, 1, kvpull_ring_bytes(records));

	from->log = &facts->log;
	return memory ? kvpull_ring_pair(&to->reader, &from->writer, memory,
					 records) :
			KVPULL_ENOMEM;
}

int kvpull_handover_open(struct kvpull_handover *handover,
			 const struct kvpull_facts *facts,
			 struct kvpull_handover_end *engine,
			 struct kvpull_handover_end *progress,
			 struct kvpull_arena *arena)
{
	const struct kvpull_config *config = &facts->config;
	const size_t claims = kvpull_config_claims_max(config);
	int code;

	(void)pthread_mutex_init(&handover->address_lock, NULL);
	KVPULL_ARENA_TAKE(arena, handover->outcomes, config->pulls_max);
	KVPULL_ARENA_TAKE(arena, handover->claims, claims);
	KVPULL_ARENA_TAKE(arena, handover->ranks_few,
			  claims * KVPULL_RANKS_FEW);
	KVPULL_ARENA_TAKE(arena, handover->ranks, claims * KVPULL_RANKS_MAX);
	KVPULL_ARENA_TAKE(arena, handover->consumers, facts->caller_count_max);
	KVPULL_ARENA_TAKE(arena, handover->lent,
			  kvpull_config_peer_entries(config));
	code = ring_take(engine, progress, facts, arena);
	if (!code)
		code = ring_take(progress, engine, facts, arena);
	if (code || !kvpull_arena_ok(arena))
		return KVPULL_ENOMEM;
	handover->engine_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	handover->progress_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (handover->engine_wake_fd >= 0 && handover->progress_wake_fd >= 0)
		return 0;
	kvpull_error(&facts->log, "eventfd: %s", kvpull_why(OTHER, errno));
	return KVPULL_EDEVICE;
}

void kvpull_handover_close(struct kvpull_handover *handover)
{
	kvpull_fd_close(&handover->engine_wake_fd);
	kvpull_fd_close(&handover->progress_wake_fd);
}

void kvpull_handover_address_set(struct kvpull_handover *handover,
				 const char *text)
{
	(void)pthread_mutex_lock(&handover->address_lock);
	(void)snprintf(handover->address, sizeof(handover->address), "%s",
		       text);
	atomic_fetch_add_explicit(&handover->address_count, 1,
				  memory_order_relaxed);
	(void)pthread_mutex_unlock(&handover->address_lock);
}

void kvpull_handover_address_get(struct kvpull_handover *handover, char *text)
{
	(void)pthread_mutex_lock(&handover->address_lock);
	memcpy(text, handover->address, sizeof(handover->address));
	(void)pthread_mutex_unlock(&handover->address_lock);
}

static uint64_t stop_of(uint64_t last_ns, uint64_t now_ns, uint64_t lease_ns)
{
	const uint64_t gap_ns = now_ns > last_ns ? now_ns - last_ns : 0;

	return gap_ns > lease_ns / KVPULL_BEATS_A_LEASE ? gap_ns : 0;
}

void kvpull_handover_ran(struct kvpull_handover *handover, uint64_t last_ns,
			 uint64_t now_ns, uint64_t lease_ns)
{
	const uint64_t stop_ns =
		last_ns ? stop_of(last_ns, now_ns, lease_ns) : 0;
	const uint64_t told_ns =
		atomic_load_explicit(&handover->ran_ns, memory_order_relaxed);

	if (now_ns - told_ns < lease_ns / RUNS_A_LEASE)
		return;
	/* Only this thread writes it; H0 orders it. */
	if (stop_ns)
		(void)atomic_fetch_add_explicit(&handover->stopped_ns, stop_ns,
						memory_order_relaxed);
	/* H0: pairs with H1; the stop is counted before its end is told. */
	atomic_store_explicit(&handover->ran_ns, now_ns, memory_order_release);
}

uint64_t kvpull_handover_stopped(const struct kvpull_handover *handover,
				 uint64_t now_ns, uint64_t lease_ns)
{
	/* H1: pairs with H0 in kvpull_handover_ran(). */
	const uint64_t ran_ns =
		atomic_load_explicit(&handover->ran_ns, memory_order_acquire);

	return atomic_load_explicit(&handover->stopped_ns,
				    memory_order_relaxed) +
	       stop_of(ran_ns, now_ns, lease_ns);
}

int kvpull_handover_push(struct kvpull_handover_end *end, uint32_t kind,
			 uint32_t index, uint64_t serial)
{
	const struct kvpull_record record = {
		.kind = kind,
		.slot = index,
		.generation = serial,
	};
	const int code = kvpull_ring_push(&end->writer, &record);

	/* Sized for every index that can travel. */
	kvpull_check(end->log, code >= 0);
	return code == 1;
}
