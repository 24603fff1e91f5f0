/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: a slot's guard is bumped before the first byte of a write, and it
 * is quarantined until the write's end was seen; it is put only by that end,
 * when the chunk's guard was looked at after the last byte was read there.
 */
#include "plugin/share/spill.h"

#include "base/clock.h"

#define RESULTS_MAX 8u
#define IS_OPEN 1 /* the code of what has not ended: errors are negative */

/* A chunk on its way into a slot. */
struct item {
	struct kvpull_pool_put put; /* of the chunk */
	uint64_t slot_generation;
	uint32_t slot;
	uint32_t reserved;
};

struct kvpull_share_spill {
	uint32_t serial;
	uint32_t count;
	uint32_t next;   /* the first that was not begun */
	uint32_t open;   /* codes that are IS_OPEN */
	uint32_t writes; /* of its items, whose end was not seen */
	uint32_t is_told;
	int32_t given_up;
	int32_t *codes; /* the engine's; not touched once it is told */
	uint64_t deadline_ns;
	struct item items[KVPULL_READER_ITEMS_MAX];
};

int kvpull_share_spills_open(struct kvpull_share_spills *spills,
			     struct kvpull_arena *arena)
{
	KVPULL_ARENA_TAKE(arena, spills->spills, KVPULL_SHARE_SPILLS_MAX);
	kvpull_index_pool_init(&spills->free, KVPULL_SHARE_SPILLS_MAX, arena);
	kvpull_index_list_init(&spills->begun, KVPULL_SHARE_SPILLS_MAX, arena);
	kvpull_index_list_init(&spills->ended, KVPULL_SHARE_SPILLS_MAX, arena);
	return kvpull_arena_ok(arena) ? 0 : -1;
}

uint32_t kvpull_share_spills_close(struct kvpull_share_spills *spills,
				   uint64_t close_by_ns)
{
	const uint32_t hang = kvpull_slots_close(&spills->file, close_by_ns);

	*spills = (struct kvpull_share_spills){ 0 };
	return hang;
}

static uint32_t index_of(const struct kvpull_share_spills *spills,
			 const struct kvpull_share_spill *spill)
{
	return (uint32_t)(spill - spills->spills);
}

static void item_end(struct kvpull_share_spills *spills,
		     struct kvpull_share_spill *spill, uint32_t at,
		     int32_t code)
{
	spill->codes[at] = code;
	spills->written += !code;
	spills->failed += code != 0;
	if (--spill->open)
		return;
	kvpull_index_list_remove(&spills->begun, index_of(spills, spill));
	kvpull_index_list_push(&spills->ended, index_of(spills, spill));
}

/* Nothing more of it is begun or put; what is under way is waited for later. */
static void give_up(struct kvpull_share_spills *spills,
		    struct kvpull_share_spill *spill, int32_t code)
{
	uint32_t at;

	for (at = 0; at < spill->count; at++)
		if (spill->codes[at] == IS_OPEN)
			spill->codes[at] = code;
	spills->failed += spill->open;
	spill->given_up = code;
	spill->open = 0;
	kvpull_index_list_remove(&spills->begun, index_of(spills, spill));
	kvpull_index_list_push(&spills->ended, index_of(spills, spill));
}

/* Frees the spill's place if nothing refers to it any more. */
static void spill_free(struct kvpull_share_spills *spills,
		       struct kvpull_share_spill *spill)
{
	if (!spill->writes && spill->is_told)
		kvpull_index_pool_give(&spills->free, index_of(spills, spill));
}

int kvpull_share_spill_begin(struct kvpull_share_spills *spills,
			     const struct kvpull_pool_put *puts, uint32_t count,
			     int32_t *codes, uint64_t deadline_ns, uint64_t *id)
{
	struct kvpull_share_spill *spill;
	uint32_t index;
	uint32_t at;

	if (!spills->slot_count)
		return KVPULL_EINVAL;
	for (at = 0; at < count; at++)
		if (puts[at].place >= spills->slot_first)
			return KVPULL_EINVAL;
	index = kvpull_index_pool_peek(&spills->free);
	if (index == KVPULL_NONE)
		return KVPULL_EFULL;
	(void)kvpull_index_pool_take(&spills->free);
	spill = &spills->spills[index];
	spill->serial = ++spills->serial;
	spill->count = spill->open = count;
	spill->next = spill->writes = spill->is_told = 0;
	spill->given_up = 0;
	spill->codes = codes;
	spill->deadline_ns = deadline_ns;
	for (at = 0; at < count; at++) {
		kvpull_pool_use(spills->pool, &puts[at]);
		spill->items[at].put = puts[at];
		codes[at] = IS_OPEN;
	}
	kvpull_index_list_push(&spills->begun, index);
	*id = (uint64_t)spill->serial << 32 |
	      (index + KVPULL_SHARE_SPILL_ID_FIRST);
	return 0;
}

int kvpull_share_spill_cancel(struct kvpull_share_spills *spills, uint64_t id)
{
	const uint32_t index = (uint32_t)id - KVPULL_SHARE_SPILL_ID_FIRST;
	struct kvpull_share_spill *spill;

	if (!spills->slot_count || index >= KVPULL_SHARE_SPILLS_MAX)
		return KVPULL_EINVAL;
	spill = &spills->spills[index];
	if (spill->serial != id >> 32 || !spill->open)
		return KVPULL_EINVAL;
	give_up(spills, spill, KVPULL_EABORTED);
	return 0;
}

void kvpull_share_spills_cancel(struct kvpull_share_spills *spills)
{
	while (spills->slot_count && spills->begun.first != KVPULL_NONE)
		give_up(spills, &spills->spills[spills->begun.first],
			KVPULL_EABORTED);
}

/* The next one that nobody writes, or KVPULL_NONE. */
static uint32_t slot_take(struct kvpull_share_spills *spills)
{
	uint32_t tries;

	/* At most KVPULL_SLOTS_DEPTH slots are being written. */
	for (tries = 0; tries <= KVPULL_SLOTS_DEPTH; tries++) {
		const uint32_t slot = spills->slot_next;

		spills->slot_next = (slot + 1) % spills->slot_count;
		if (!kvpull_pool_is_writing(spills->pool,
					    spills->slot_first + slot))
			return slot;
	}
	return KVPULL_NONE;
}

/* Return: 0; 1: no slot or write is free for it now. */
static int item_write(struct kvpull_share_spills *spills,
		      struct kvpull_share_spill *spill, uint32_t at)
{
	struct item *item = &spill->items[at];
	const uint64_t tag = (uint64_t)index_of(spills, spill) << 32 | at;
	uint32_t place;

	if (spills->file.open_count == KVPULL_SLOTS_DEPTH)
		return 1;
	item->slot = slot_take(spills);
	if (item->slot == KVPULL_NONE)
		return 1;
	place = spills->slot_first + item->slot;
	kvpull_check(
		spills->file.log,
		!kvpull_pool_bump(spills->pool, &place, 1,
				  &item->slot_generation) &&
			!kvpull_pool_write_begin(spills->pool, place) &&
			!kvpull_slots_write(&spills->file, item->slot,
					    spills->chunks +
						    item->put.place *
							    spills->chunk_bytes,
					    tag));
	spill->writes++;
	return 0;
}

/* Return: 1: it waits for another one's end. */
static int item_begin(struct kvpull_share_spills *spills,
		      struct kvpull_share_spill *spill, uint32_t at)
{
	const struct kvpull_pool_put *put = &spill->items[at].put;
	int code = kvpull_pool_check(spills->pool, put);

	if (!code && kvpull_slots_is_short(&spills->file))
		code = KVPULL_EREAD;
	if (code || kvpull_pool_find(spills->pool, &put->key,
				     spills->slot_first) != KVPULL_NONE) {
		spill->next++;
		item_end(spills, spill, at, code);
		return 0;
	}
	/* The put may have told a generation that began since it was taken. */
	kvpull_pool_use(spills->pool, put);
	if (item_write(spills, spill, at))
		return 1;
	spill->next++;
	return 0;
}

static void written(struct kvpull_share_spills *spills,
		    const struct kvpull_slots_result *result)
{
	struct kvpull_share_spill *spill = &spills->spills[result->tag >> 32];
	const uint32_t at = (uint32_t)result->tag;
	const struct item *item = &spill->items[at];
	struct kvpull_pool_put put = item->put;
	int32_t code = result->code;

	spill->writes--;
	put.place = spills->slot_first + item->slot;
	put.generation = item->slot_generation;
	kvpull_check(spills->file.log,
		     !kvpull_pool_write_end(spills->pool, put.place));
	if (spill->given_up) {
		spill_free(spills, spill);
		return;
	}
	/* The copy was a read of the chunk: were they its bytes to the last? */
	if (!code)
		code = kvpull_pool_check(spills->pool, &item->put);
	if (!code)
		code = kvpull_pool_put(spills->pool, &put);
	item_end(spills, spill, at, code);
}

uint32_t kvpull_share_spills_run(struct kvpull_share_spills *spills,
				 uint64_t now_ns)
{
	struct kvpull_slots_result results[RESULTS_MAX];
	uint32_t worked = 0;
	uint32_t index;
	uint32_t next;
	uint32_t count;
	uint32_t at;

	if (!spills->slot_count)
		return 0;
	for (index = spills->begun.first; index != KVPULL_NONE; index = next) {
		struct kvpull_share_spill *spill = &spills->spills[index];

		next = spills->begun.links[index].next;
		if (now_ns >= spill->deadline_ns)
			give_up(spills, spill, KVPULL_EDEADLINE);
		while (spill->open && spill->next < spill->count &&
		       !item_begin(spills, spill, spill->next))
			worked = 1;
	}
	count = kvpull_slots_poll(&spills->file, results, RESULTS_MAX);
	for (at = 0; at < count; at++)
		written(spills, &results[at]);
	return worked || count;
}

uint64_t kvpull_share_spills_due_ns(const struct kvpull_share_spills *spills)
{
	uint64_t due_ns = UINT64_MAX;
	uint32_t index;

	if (!spills->slot_count)
		return due_ns;
	for (index = spills->begun.first; index != KVPULL_NONE;
	     index = spills->begun.links[index].next)
		if (spills->spills[index].deadline_ns < due_ns)
			due_ns = spills->spills[index].deadline_ns;
	return due_ns;
}

int kvpull_share_spills_arm(struct kvpull_share_spills *spills)
{
	return spills->slot_count && (spills->ended.first != KVPULL_NONE ||
				      kvpull_slots_arm(&spills->file));
}

int kvpull_share_spills_end(struct kvpull_share_spills *spills,
			    struct kvpull_share_spill_end *end)
{
	struct kvpull_share_spill *spill;
	uint32_t index;
	uint32_t at;

	if (!spills->slot_count || spills->ended.first == KVPULL_NONE)
		return 0;
	index = spills->ended.first;
	kvpull_index_list_remove(&spills->ended, index);
	spill = &spills->spills[index];
	*end = (struct kvpull_share_spill_end){
		.id = (uint64_t)spill->serial << 32 |
		      (index + KVPULL_SHARE_SPILL_ID_FIRST),
	};
	for (at = 0; at < spill->count; at++) {
		/* The slot may have been taken again since, by this spill, too. */
		if (!spill->codes[at] &&
		    kvpull_pool_find(spills->pool, &spill->items[at].put.key,
				     spills->slot_first) == KVPULL_NONE)
			spill->codes[at] = KVPULL_ESTALE;
		end->count += !spill->codes[at];
		if (!end->code)
			end->code = spill->codes[at];
	}
	spill->is_told = 1;
	spill_free(spills, spill);
	return 1;
}
