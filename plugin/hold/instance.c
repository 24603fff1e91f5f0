/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumers' table. Invariants: connected, dying, scanning, gone and away of
 * an instance are disjoint; an entry that nobody is connected to, dying for or
 * claiming with is zero, and so free. What ranks that are away leave behind is
 * bounded by that: their claims end with the leases of what they claimed.
 */
#include "plugin/hold/instance.h"

static uint32_t find(const struct kvpull_instances *instances, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < instances->count; i++) {
		const struct kvpull_instance *instance = &instances->all[i];

		if (instance->used && !instance->retired && instance->id == id)
			return i;
	}
	return KVPULL_NONE;
}

static uint32_t find_free(const struct kvpull_instances *instances)
{
	uint32_t i;

	for (i = 0; i < instances->count; i++)
		if (!instances->all[i].used)
			return i;
	return KVPULL_NONE;
}

/* The rank's last worker is dying or away, and this is not that one. */
static int is_successor(const struct kvpull_instance *instance,
			const struct kvpull_join *join)
{
	const uint64_t last = instance->workers[join->rank];

	return instance->rank_count == join->rank_count &&
	       ((instance->dying | instance->away) >> join->rank & 1) &&
	       join->worker && last && join->worker != last;
}

/* What its last worker had is worked off first. */
static void succeed(struct kvpull_instances *instances,
		    struct kvpull_instance *instance, uint32_t rank)
{
	const uint64_t bit = UINT64_C(1) << rank;

	instance->replaced |= instance->away & bit;
	instance->away &= ~bit;
	instance->dying |= bit;
	instance->due_ns[rank] = 0;
	instances->due_ns = 0;
}

/* 0, or why this rank cannot join an instance that is known. */
static int admit(const struct kvpull_instance *instance,
		 const struct kvpull_join *join)
{
	const uint64_t bit = UINT64_C(1) << join->rank;

	if (instance->rank_count != join->rank_count ||
	    (instance->connected & bit))
		return KVPULL_EREJECTED;
	/* Its last ranks are scanning: the id is free when that is done. */
	if (!kvpull_instance_is_here(instance) || (instance->scanning & bit))
		return KVPULL_EAGAIN;
	if ((instance->dying & bit) &&
	    instance->due_ns[join->rank] <= join->lease_now_ns)
		return KVPULL_EAGAIN;
	return 0;
}

static void release_entry(struct kvpull_instance *instance)
{
	if (!instance->refs &&
	    !(instance->connected | instance->dying | instance->scanning))
		*instance = (struct kvpull_instance){ 0 };
}

int kvpull_instances_init(struct kvpull_instances *instances, uint32_t count,
			  uint64_t grace_ns, struct kvpull_arena *arena)
{
	*instances = (struct kvpull_instances){ .count = count,
						.grace_ns = grace_ns,
						.due_ns = UINT64_MAX };
	instances->all = (struct kvpull_instance *)kvpull_arena_take(
		arena, count, sizeof(*instances->all));
	return instances->all ? 0 : KVPULL_ENOMEM;
}

void kvpull_instances_tick(struct kvpull_instances *instances)
{
	uint32_t i;

	if (!instances->back)
		return;
	for (i = 0; i < instances->count; i++)
		instances->all[i].back = 0;
	instances->back = 0;
}

int kvpull_instances_join(struct kvpull_instances *instances,
			  const struct kvpull_join *join, uint32_t *index)
{
	struct kvpull_instance *joined;
	uint32_t at;
	int result;

	if (join->rank_count > KVPULL_RANKS_MAX ||
	    join->rank >= join->rank_count)
		return KVPULL_EREJECTED;
	at = find(instances, join->instance_id);
	if (at == KVPULL_NONE) {
		at = find_free(instances);
		if (at == KVPULL_NONE)
			return KVPULL_EFULL;
		instances->all[at] =
			(struct kvpull_instance){ .id = join->instance_id,
						  .rank_count =
							  join->rank_count,
						  .used = 1 };
	} else {
		joined = &instances->all[at];
		if (is_successor(joined, join))
			succeed(instances, joined, join->rank);
		result = admit(joined, join);
		if (result)
			return result;
	}
	joined = &instances->all[at];
	joined->connected |= UINT64_C(1) << join->rank;
	joined->back |= joined->connected & joined->gone;
	instances->back |= joined->back != 0;
	joined->dying &= ~joined->connected;
	joined->gone &= ~joined->connected;
	joined->away &= ~joined->connected;
	joined->workers[join->rank] = join->worker;
	kvpull_instance_hear(joined, join->rank, join->lease_now_ns);
	*index = at;
	return 0;
}

void kvpull_instance_part(struct kvpull_instance *instance, uint32_t rank)
{
	instance->parting |= instance->connected & UINT64_C(1) << rank;
}

void kvpull_instances_leave(struct kvpull_instances *instances, uint32_t index,
			    uint32_t rank, uint64_t grace_ns,
			    uint64_t lease_now_ns)
{
	struct kvpull_instance *left =
		kvpull_instances_speaking(instances, index, rank);
	const uint64_t bit = UINT64_C(1) << (rank % KVPULL_RANKS_MAX);
	uint64_t due_ns;

	if (!left || !(left->connected & bit))
		return;
	left->connected &= ~bit;
	if (left->parting & bit) {
		left->away |= bit;
		left->parting &= ~bit;
		release_entry(left);
		return;
	}
	if (grace_ns < instances->grace_ns)
		grace_ns = instances->grace_ns;
	due_ns = lease_now_ns > UINT64_MAX - grace_ns ? UINT64_MAX :
							lease_now_ns + grace_ns;
	left->dying |= bit;
	left->due_ns[rank] = due_ns;
	if (due_ns < instances->due_ns)
		instances->due_ns = due_ns;
}

struct kvpull_instance *
kvpull_instances_speaking(struct kvpull_instances *instances, uint32_t index,
			  uint32_t rank)
{
	struct kvpull_instance *instance;

	if (index >= instances->count || rank >= KVPULL_RANKS_MAX)
		return NULL;
	instance = &instances->all[index];
	if (!((instance->connected | instance->dying) >> rank & 1))
		return NULL;
	return instance;
}

void kvpull_instance_hear(struct kvpull_instance *instance, uint32_t rank,
			  uint64_t lease_now_ns)
{
	if (lease_now_ns > instance->heard_ns[rank])
		instance->heard_ns[rank] = lease_now_ns;
}

void kvpull_instances_acquire(struct kvpull_instances *instances,
			      uint32_t index)
{
	instances->all[index].refs++;
}

void kvpull_instances_release(struct kvpull_instances *instances,
			      uint32_t index)
{
	instances->all[index].refs--;
	release_entry(&instances->all[index]);
}

/* Ranks whose grace is over; the others' first end goes to *next_ns. */
static uint64_t ranks_due(const struct kvpull_instance *instance,
			  uint64_t lease_now_ns, uint64_t *next_ns)
{
	uint64_t left = instance->dying;
	uint64_t due = 0;

	for (; left; left &= left - 1) {
		const uint32_t rank = (uint32_t)__builtin_ctzll(left);

		if (instance->due_ns[rank] <= lease_now_ns)
			due |= UINT64_C(1) << rank;
		else if (instance->due_ns[rank] < *next_ns)
			*next_ns = instance->due_ns[rank];
	}
	return due;
}

uint32_t kvpull_instances_scan_begin(struct kvpull_instances *instances,
				     uint64_t lease_now_ns)
{
	uint64_t next_ns = UINT64_MAX;
	uint32_t rank_count = 0;
	uint32_t i;

	for (i = 0; i < instances->count; i++) {
		struct kvpull_instance *instance = &instances->all[i];
		uint64_t due = ranks_due(instance, lease_now_ns, &next_ns);

		instance->dying &= ~due;
		/* The last that was there died: so did its instance. */
		if ((due & ~instance->replaced) &&
		    !(instance->connected | instance->dying))
			due |= instance->away;
		instance->away &= ~due;
		instance->replaced &= ~due;
		instance->scanning = due;
		rank_count += (uint32_t)__builtin_popcountll(due);
	}
	instances->due_ns = next_ns;
	return rank_count;
}

void kvpull_instances_scan_end(struct kvpull_instances *instances)
{
	uint32_t i;

	for (i = 0; i < instances->count; i++) {
		struct kvpull_instance *instance = &instances->all[i];

		if (!instance->scanning)
			continue;
		instance->gone |= instance->scanning;
		instance->scanning = 0;
		instance->retired = !kvpull_instance_is_here(instance);
		release_entry(instance);
	}
}
