/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that come, go, are lost, replaced and dead, in every order: the hold
 * table against the rules as history.c asks them of the past. The search visits
 * each state of both once and tries each event there. A failure prints the
 * events that lead to it.
 */
#include "tests/unit/hold/history.h"
#include "tests/unit/hold/world.h"

#include "base/index.h"
#include "plugin/hold/hold_state.h"
#include "tests/lib/fence.h"

#define SPEAKERS 3u /* of one hold: beyond it nothing new is looked for */
#define ENTRIES 6u
#define SEEN_BITS 17u /* at most half of 2^17 states */
#define SEEN_MASK ((UINT32_C(1) << SEEN_BITS) - 1)
#define MEMORY_BYTES 32768u
#define CONSUMER 1u
#define OTHER 2u

/* The hold table, and who speaks to it. */
struct table {
	struct kvpull_arena arena;
	struct kvpull_revocation_entry entry;
	struct kvpull_hold_params params;
	struct kvpull_holds *holds;
	uint32_t rank_count;
};

/* The part of a table that changes: a copy undoes what one event did. */
struct moment {
	uint64_t now_ns;
	uint64_t generation;
	uint64_t worker_next;
	uint64_t workers[HISTORY_RANKS]; /* who joined last */
	uint64_t callers[HISTORY_RANKS]; /* who waits; 0: nobody */
	uint32_t indices[HISTORY_RANKS]; /* in the hold table, of who is here */
	uint32_t other;
	int answer; /* of the last join */
	int ended;  /* the last event ended the hold */
	uint8_t memory[MEMORY_BYTES];
};

/* A state that waits for its events: its history as bytes. */
struct visit {
	uint8_t count;
	uint8_t events[HISTORY_MAX];
};

static struct table table;
static struct moment moment;
static struct moment before;
static struct history past;
static uint64_t seen[SEEN_MASK + 1];
static struct visit visits[SEEN_MASK + 1];
static uint32_t visit_count;

static void memory_copy(uint8_t *to, const uint8_t *from)
{
	assert_true(table.arena.used <= MEMORY_BYTES);
	memcpy(to, from, table.arena.used);
}

static void hold_take(void)
{
	const uint64_t generation = ++moment.generation;

	assert_int_equal(
		kvpull_holds_take(table.holds, 0, generation, generation), 0);
}

static void hold_next(void)
{
	struct kvpull_hold_end end;

	kvpull_holds_publish(table.holds);
	assert_int_equal(kvpull_holds_report(table.holds, &end, 1), 1);
	assert_int_equal(end.reason, KVPULL_END_RELEASED);
	hold_take();
}

static int join_as(uint64_t id, uint32_t rank, uint32_t rank_count,
		   uint64_t worker, uint32_t *index)
{
	struct kvpull_join join = { .instance_id = id,
				    .worker = worker,
				    .rank = rank,
				    .rank_count = rank_count };

	return kvpull_holds_join(table.holds, &join, moment.now_ns, index);
}

static void say(uint32_t kind, uint32_t index, uint32_t rank)
{
	const struct kvpull_record record = {
		.kind = kind,
		.generation = moment.generation,
		.tag = kvpull_ticket_tag(table.params.secret, 0,
					 moment.generation),
	};

	kvpull_holds_note(table.holds, index, rank, &record, moment.now_ns);
}

static void open_table(uint32_t rank_count, uint64_t grace_ns)
{
	static const struct kvpull_log silent;

	memset(&table, 0, sizeof(table));
	memset(&moment, 0, sizeof(moment));
	table.params =
		(struct kvpull_hold_params){ .log = &silent,
					     .entries = &table.entry,
					     .incarnation = INCARNATION,
					     .lease_ns = LEASE,
					     .hold_max_ns = HOLD_MAX,
					     .grace_ns = grace_ns,
					     .hold_count_max = 1,
					     .instance_count_max = ENTRIES,
					     .secret = "fifteen letters" };
	table.rank_count = rank_count;
	kvpull_arena_init(&table.arena, NULL);
	table.holds = kvpull_holds_open(&table.params, &table.arena);
	assert_non_null(table.holds);
	moment.now_ns = START;
	moment.worker_next = 1;
	kvpull_holds_tick(table.holds, START, KVPULL_NO_THREAD);
	assert_int_equal(join_as(OTHER, 0, 1, 0, &moment.other), 0);
	hold_take();
	fence_open(table.arena.pieces[0].base, table.arena.used);
	memory_copy(moment.memory, table.arena.pieces[0].base);
}

/* The same caller asks again, until it is let in or lost. */
static void call(uint32_t rank, int is_same)
{
	uint64_t worker = is_same ? moment.workers[rank] : moment.callers[rank];

	if (!worker)
		worker = moment.worker_next++;
	moment.answer = join_as(CONSUMER, rank, table.rank_count, worker,
				&moment.indices[rank]);
	if (!moment.answer)
		moment.workers[rank] = worker;
	if (!is_same)
		moment.callers[rank] =
			moment.answer == KVPULL_EAGAIN ? worker : 0;
}

static void hang_up(uint32_t rank)
{
	const struct kvpull_join join = { .instance_id = CONSUMER,
					  .worker = moment.callers[rank],
					  .rank = rank,
					  .rank_count = table.rank_count };

	kvpull_holds_call_lost(table.holds, &join);
	moment.callers[rank] = 0;
}

static void poll(void)
{
	while (kvpull_holds_sweep(table.holds, moment.now_ns))
		;
	kvpull_holds_tick(table.holds, moment.now_ns, KVPULL_NO_THREAD);
}

static void act(enum past_event event, uint32_t rank)
{
	const uint32_t index = moment.indices[rank];

	switch (event) {
	case PAST_JOIN:
	case PAST_CALL:
		call(rank, event == PAST_JOIN);
		break;
	case PAST_GO:
		say(KVPULL_NOTE_AWAY, index, rank);
		kvpull_holds_leave(table.holds, index, rank, moment.now_ns);
		break;
	case PAST_LOSE:
		kvpull_holds_leave(table.holds, index, rank, moment.now_ns);
		break;
	case PAST_HANG_UP:
		hang_up(rank);
		break;
	case PAST_CLAIM:
		say(KVPULL_NOTE_CLAIM, index, rank);
		break;
	case PAST_RELEASE:
		say(KVPULL_NOTE_RELEASE, index, rank);
		break;
	case PAST_OTHERS_CLAIM:
		say(KVPULL_NOTE_CLAIM, moment.other, 0);
		break;
	case PAST_OTHERS_RELEASE:
		say(KVPULL_NOTE_RELEASE, moment.other, 0);
		break;
	case PAST_TICK:
		moment.now_ns++;
		break;
	case PAST_POLL:
		poll();
		break;
	case PAST_EVENTS:
		break;
	}
	moment.ended = table.holds->state_counts[HOLD_ENDED] != 0;
	if (moment.ended)
		hold_next();
}

/* The instance's present life; NULL: none of it is known. */
static const struct kvpull_instance *instance_now(void)
{
	const struct kvpull_instances *all = &table.holds->instances;
	uint32_t i;

	for (i = 0; i < all->count; i++)
		if (all->all[i].rank_count && all->all[i].id == CONSUMER &&
		    !kvpull_instance_is_over(&all->all[i]))
			return &all->all[i];
	return NULL;
}

static uint32_t state_of(const struct kvpull_instance *instance, uint32_t rank)
{
	uint32_t state, found = KVPULL_RANK_NEVER, count = 0;

	if (!instance)
		return KVPULL_RANK_NEVER;
	for (state = 0; state < KVPULL_RANK_STATES; state++) {
		if (!(instance->ranks[state] >> rank & 1))
			continue;
		found = state;
		count++;
	}
	assert_int_equal(count, 1);
	return found;
}

static const struct claim *claim_of(const struct kvpull_instance *instance)
{
	const struct hold *hold = &table.holds->holds[0];
	uint32_t i;

	for (i = 0; instance && i < hold->claim_count; i++)
		if (&table.holds->instances.all[hold->claims[i].instance] ==
		    instance)
			return &hold->claims[i];
	return NULL;
}

static int owes(const struct kvpull_instance *instance, uint32_t rank)
{
	const struct claim *claim = claim_of(instance);

	return claim &&
	       !((claim->released | kvpull_instance_dead(instance)) >> rank &
		 1);
}

static uint64_t since(uint64_t due_ns)
{
	if (due_ns <= moment.now_ns)
		return 0;
	return due_ns == UINT64_MAX ? due_ns : due_ns - moment.now_ns;
}

/* A number of all that the table knows, but for times and names. */
static uint64_t table_digest(void)
{
	const struct kvpull_instance *instance = instance_now();
	const struct hold *hold = &table.holds->holds[0];
	const struct claim *claim = claim_of(instance);
	uint64_t digest = hold->claim_count;
	uint32_t i;

	if (claim) {
		digest = kvpull_index_mix(digest, claim->released);
		digest = kvpull_index_mix(
			digest,
			hold_owing(hold, (uint32_t)(claim - hold->claims)));
	}
	if (!instance)
		return digest;
	for (i = 0; i < KVPULL_RANK_STATES; i++)
		digest = kvpull_index_mix(digest, instance->ranks[i]);
	digest = kvpull_index_mix(digest, instance->back);
	digest = kvpull_index_mix(digest, instance->forsaken);
	for (i = 0; i < table.rank_count; i++)
		if ((instance->ranks[KVPULL_RANK_GRACE] |
		     instance->ranks[KVPULL_RANK_CALLED]) >>
			    i &
		    1)
			digest = kvpull_index_mix(digest,
						  since(instance->due_ns[i]));
	return digest;
}

static void history_print(void)
{
	static const char *const names[PAST_EVENTS] = {
		"join",    "call",          "go",
		"lose",    "hang up",       "claim",
		"release", "other's claim", "other's release",
		"tick",    "poll",
	};
	uint32_t i;

	for (i = 0; i < past.count; i++)
		print_message("%s %u, ", names[past.at[i].event],
			      past.at[i].rank);
	print_message("\n");
}

static void expect(const char *what, uint32_t rank, int found, int expected)
{
	if (found == expected)
		return;
	history_print();
	fail_msg("%s of rank %u: %d, expected %d", what, rank, found, expected);
}

/* The table against the past, after the last event. */
static void compare(void)
{
	static const int answers[] = { [PAST_LET_IN] = 0,
				       [PAST_WAITS] = KVPULL_EAGAIN,
				       [PAST_REFUSED] = KVPULL_EREJECTED };
	const struct past_entry *last = &past.at[past.count - 1];
	const struct kvpull_instance *instance = instance_now();
	uint32_t rank;

	if (last->event == PAST_JOIN || last->event == PAST_CALL)
		expect("answer", last->rank, moment.answer,
		       answers[last->answer]);
	expect("end", last->rank, moment.ended, last->ended);
	for (rank = 0; rank < table.rank_count; rank++) {
		expect("state", rank, (int)state_of(instance, rank),
		       (int)past_state(&past, rank, past.count));
		expect("debt", rank, owes(instance, rank),
		       past_owes(&past, rank));
	}
}

/* Is it new? */
static int is_new(uint64_t digest)
{
	uint32_t at = (uint32_t)digest & SEEN_MASK;

	for (; seen[at]; at = (at + 1) & SEEN_MASK)
		if (seen[at] == digest)
			return 0;
	assert_true(visit_count < SEEN_MASK / 2);
	seen[at] = digest;
	return 1;
}

static void visit_later(void)
{
	struct visit *visit = &visits[visit_count++];
	uint32_t i;

	visit->count = (uint8_t)past.count;
	for (i = 0; i < past.count; i++)
		visit->events[i] = (uint8_t)(past.at[i].event * HISTORY_RANKS +
					     past.at[i].rank);
}

/* From the open table on: the same events again. */
static void visit_begin(const struct visit *visit, const struct moment *first)
{
	uint32_t i;

	moment = *first;
	memory_copy(table.arena.pieces[0].base, moment.memory);
	past.count = 0;
	for (i = 0; i < visit->count; i++) {
		const enum past_event event = visit->events[i] / HISTORY_RANKS;
		const uint32_t rank = visit->events[i] % HISTORY_RANKS;

		act(event, rank);
		past_add(&past, event, rank);
	}
	memory_copy(moment.memory, table.arena.pieces[0].base);
	before = moment;
}

static void try(enum past_event event, uint32_t rank)
{
	if (!past_is_possible(&past, event, rank))
		return;
	assert_true(past.count < HISTORY_MAX);
	act(event, rank);
	past_add(&past, event, rank);
	compare();
	if (past_speakers(&past, past.count) <= SPEAKERS &&
	    is_new(kvpull_index_mix(table_digest(), past_digest(&past)) | 1))
		visit_later();
	past.count--;
	moment = before;
	memory_copy(table.arena.pieces[0].base, moment.memory);
}

/* Return: how many states there are. */
static uint32_t search(uint32_t rank_count, uint32_t grace, int has_other)
{
	static struct moment first;
	uint32_t at, event, rank;

	open_table(rank_count, grace);
	memset(seen, 0, sizeof(seen));
	visit_count = 1;
	visits[0].count = 0;
	past = (struct history){ .rank_count = rank_count, .grace = grace };
	first = moment;
	for (at = 0; at < visit_count; at++) {
		visit_begin(&visits[at], &first);
		for (event = 0; event < PAST_RANK_EVENTS; event++)
			for (rank = 0; rank < rank_count; rank++)
				try((enum past_event)event, rank);
		if (!has_other)
			event = PAST_TICK;
		for (; event < PAST_EVENTS; event++)
			try((enum past_event)event, 0);
	}
	kvpull_arena_fini(&table.arena);
	return visit_count;
}

UNIT_TEST(two_ranks_without_a_grace_are_what_their_past_says)
{
	assert_true(search(2, 0, 1) > 3000);
}

UNIT_TEST(two_ranks_with_a_grace_are_what_their_past_says)
{
	assert_true(search(2, 2, 1) > 6000);
}

UNIT_TEST(three_ranks_are_what_their_past_says)
{
	assert_true(search(3, 1, 0) > 30000);
}
