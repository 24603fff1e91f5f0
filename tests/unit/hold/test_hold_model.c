/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hold table against a naive model that shares no code with it: arrays,
 * no heap, no lists, one clock; a stall adds its gap to each time stamp. After
 * every operation counters and revocation entries are equal, and every report
 * is. A failure prints the seed; it is the same world with every compiler: no
 * two numbers are drawn within one expression whose order is the compiler's.
 */
#include "tests/unit/hold/gaps.h"
#include "tests/unit/hold/lives.h"
#include "tests/unit/hold/model.h"
#include "tests/unit/hold/world.h"

#define IDS 5u
#define NOBODY 9u /* no worker that joins */
#define LIVES 4096u
#define OPERATIONS 6000u
#define SEEDS 400u

struct model {
	struct fixture *f;
	struct life lives[LIVES];
	struct life *by_index[INSTANCES];
	struct model_hold holds[SLOTS];
	struct kvpull_hold_counts counts;
	struct gaps gaps;
	uint64_t stopped_ns; /* the thread's stops */
	uint64_t pace_ns;
	uint64_t seed;
	uint32_t has_thread;
	uint32_t life_count;
};

static struct model model;
uint32_t world_has_marks = 1;

static uint32_t roll(struct model *m, uint32_t below)
{
	m->seed = m->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(m->seed >> 33) % below;
}

/* A stall may have moved the last sign past now: then that one stays. */
static void heard(const struct model *m, uint64_t *heard_ns)
{
	if (m->f->now_ns > *heard_ns)
		*heard_ns = m->f->now_ns;
}

/* A word, or the death of who owed one: no lease ends sooner for it. */
static void word_said(const struct model *m, struct model_hold *h,
		      const struct life *life, uint32_t rank)
{
	heard(m, &h->leased_ns);
	if (life->heard_ns[rank] > h->leased_ns)
		h->leased_ns = life->heard_ns[rank];
}

static int life_is_named(const struct model *m, const struct life *life)
{
	uint32_t s, c;

	for (s = 0; s < SLOTS; s++)
		for (c = 0; c < m->holds[s].claim_count; c++)
			if (m->holds[s].claims[c].life == life)
				return 1;
	return 0;
}

static void model_end(struct model *m, uint32_t slot, int32_t reason)
{
	struct model_hold *h = &m->holds[slot];

	h->state = M_ENDED;
	h->revoked = h->last;
	h->reason = reason;
	h->claim_count = 0;
	m->counts.released += reason == KVPULL_END_RELEASED;
	m->counts.expired += reason == KVPULL_END_EXPIRED;
	m->counts.given_back += reason == KVPULL_END_GIVEN_BACK;
	m->counts.revoked += reason != KVPULL_END_RELEASED &&
			     reason != KVPULL_END_EXPIRED &&
			     reason != KVPULL_END_GIVEN_BACK;
}

static void model_settle(struct model *m, uint32_t slot)
{
	const struct model_hold *h = &m->holds[slot];
	uint32_t c, r;

	if (h->state != M_HELD || !h->claim_count)
		return;
	for (c = 0; c < h->claim_count; c++)
		for (r = 0; r < h->claims[c].life->rank_count; r++)
			if (!h->claims[c].released[r] &&
			    !rank_is_absent(h->claims[c].life, r))
				return;
	model_end(m, slot, KVPULL_END_RELEASED);
}

/* Time that was missed moves all that a lease or a grace runs from. */
static void model_move(struct model *m, uint64_t gap_ns)
{
	uint32_t i, r;

	for (i = 0; i < m->life_count; i++) {
		for (r = 0; r < RANKS; r++) {
			m->lives[i].heard_ns[r] += gap_ns;
			m->lives[i].due_ns[r] += gap_ns;
		}
	}
	for (i = 0; i < SLOTS; i++)
		m->holds[i].leased_ns += gap_ns;
}

static void model_begin_poll(struct model *m)
{
	uint32_t i, r;

	for (i = 0; i < m->life_count; i++)
		for (r = 0; r < RANKS; r++)
			m->lives[i].is_back[r] = 0;
}

/* Mostly often, now and then long after, for some time at a steady pace. */
static uint64_t some_step(struct model *m)
{
	if (!roll(m, 200))
		m->pace_ns = roll(m, 2) ? LEASE / 3 + roll(m, LEASE) : 0;
	if (m->pace_ns)
		return m->pace_ns;
	return roll(m, 30) ? 1 + roll(m, LEASE / 6) : 1 + roll(m, 2 * LEASE);
}

static void do_time(struct model *m)
{
	struct fixture *f = m->f;
	const uint64_t step = some_step(m);
	const int is_poll = roll(m, 8) != 0;

	f->now_ns += step;
	if (m->has_thread && !roll(m, 4))
		m->stopped_ns += 1 + roll(m, 2 * LEASE);
	model_move(m,
		   gaps_pass(&m->gaps, f->now_ns,
			     m->has_thread ? m->stopped_ns : KVPULL_NO_THREAD,
			     is_poll));
	if (is_poll) {
		kvpull_holds_tick(f->holds, f->now_ns,
				  m->has_thread ? m->stopped_ns :
						  KVPULL_NO_THREAD);
		model_begin_poll(m);
	} else {
		kvpull_holds_stamp(f->holds, f->now_ns,
				   m->has_thread ? m->stopped_ns :
						   KVPULL_NO_THREAD);
	}
}

static uint64_t some_generation(struct model *m, uint32_t slot)
{
	const uint64_t told = m->holds[slot].last;
	const uint64_t newer = roll(m, 4);

	return told + newer - (told ? roll(m, 2) : 0);
}

static void model_take(struct model *m, uint32_t slot, uint64_t generation)
{
	struct model_hold *h = &m->holds[slot];

	if (h->state != M_STAGED || h->staged != generation)
		h->claim_count = 0;
	h->state = M_HELD;
	h->last = generation;
	h->is_given = h->mark == generation;
	h->taken_ns = m->f->now_ns;
	h->leased_ns = m->f->now_ns;
	m->counts.taken++;
}

static void do_take(struct model *m)
{
	const uint32_t slot = roll(m, SLOTS);
	struct model_hold *h = &m->holds[slot];
	const uint64_t generation = some_generation(m, slot);
	const int result = kvpull_holds_take(m->f->holds, slot, generation,
					     generation * 100 + slot);

	if (h->state == M_HELD || h->state == M_ENDED ||
	    generation <= h->last || generation * 100 + slot == 0) {
		assert_int_equal(result, KVPULL_EINVAL);
		return;
	}
	assert_int_equal(result, 0);
	model_take(m, slot, generation);
	if (h->revoked >= generation)
		model_end(m, slot, KVPULL_END_REVOKED);
	model_settle(m, slot);
}

static void do_give(struct model *m)
{
	const uint32_t slot = roll(m, SLOTS);
	struct model_hold *h = &m->holds[slot];
	const uint64_t generation = some_generation(m, slot);

	if (generation <= h->mark)
		return;
	h->mark = generation;
	m->f->given[slot] = generation;
	h->is_given |= h->state == M_HELD && generation == h->last;
	kvpull_holds_give(m->f->holds, slot, generation);
}

static void do_end(struct model *m)
{
	const uint32_t slot = roll(m, SLOTS);
	struct model_hold *h = &m->holds[slot];
	const uint64_t generation = some_generation(m, slot);
	const int32_t reason = (int32_t)roll(m, 5);
	const int result = kvpull_holds_end(m->f->holds, slot, generation,
					    generation * 100 + slot, reason);

	if (generation > h->last &&
	    (h->state == M_HELD || h->state == M_ENDED)) {
		assert_int_equal(result, KVPULL_EINVAL);
		return;
	}
	assert_int_equal(result, 0);
	if (generation > h->last)
		model_take(m, slot, generation);
	else if (generation < h->last || h->state != M_HELD)
		return;
	model_end(m, slot, reason);
}

static void model_claim(struct model_hold *h, struct life *life, uint32_t rank)
{
	struct model_claim claim = { .life = life };
	int before = 0;
	uint32_t c, r;

	for (c = 0; c < h->claim_count; c++)
		before |= h->claims[c].life->is_dead &&
			  h->claims[c].life->id == life->id;
	for (r = 0; r < RANKS; r++)
		claim.released[r] =
			r != rank &&
			(before || rank_is_absent(life, r) || life->is_back[r]);
	h->claims[h->claim_count++] = claim;
}

static void model_note(struct model *m, struct model_hold *h, struct life *life,
		       struct kvpull_record note, uint32_t rank)
{
	uint32_t c;

	if (note.generation > h->last &&
	    (h->state == M_FREE ||
	     (h->state == M_STAGED && note.generation > h->staged))) {
		h->state = M_STAGED;
		h->staged = note.generation;
		h->claim_count = 0;
	}
	if ((h->state != M_HELD || note.generation != h->last) &&
	    (h->state != M_STAGED || note.generation != h->staged)) {
		m->counts.unknown++;
		return;
	}
	for (c = 0; c < h->claim_count; c++)
		if (h->claims[c].life == life)
			break;
	if (c == 4) {
		m->counts.claims_over++;
		return;
	}
	if (c == h->claim_count)
		model_claim(h, life, rank);
	word_said(m, h, life, rank);
	m->counts.early += h->state == M_STAGED;
	if (note.kind == KVPULL_NOTE_CLAIM)
		m->counts.claims++;
	else if (h->claims[c].released[rank])
		m->counts.duplicates++;
	else
		m->counts.releases++;
	h->claims[c].released[rank] = note.kind == KVPULL_NOTE_RELEASE;
	h->claims[c].claimed[rank] |= note.kind == KVPULL_NOTE_CLAIM;
}

static void do_note(struct model *m)
{
	const uint32_t index = roll(m, INSTANCES);
	const uint32_t rank = roll(m, RANKS);
	const uint32_t slot = roll(m, SLOTS);
	const uint32_t kind = 1 + roll(m, 2);
	const uint64_t generation = some_generation(m, slot);
	struct life *life = m->by_index[index];
	struct kvpull_record note = record_of(m->f, kind, slot, generation);
	const uint32_t spoil = roll(m, 40);

	if (m->holds[slot].state == M_STAGED && roll(m, 2))
		note = record_of(m->f, note.kind, slot, m->holds[slot].staged);
	if (m->holds[slot].state == M_HELD && roll(m, 4))
		note = record_of(m->f, note.kind, slot, m->holds[slot].last);
	note.kind += spoil == 1 ? 3 : 0;
	note.tag += spoil == 2;
	kvpull_holds_note(m->f->holds, index, rank, &note, m->f->now_ns);
	if (!rank_speaks(life, rank) || note.kind > 2) {
		m->counts.unknown++;
	} else if (spoil == 2) {
		m->counts.bad_tag++;
	} else {
		heard(m, &life->heard_ns[rank]);
		model_note(m, &m->holds[slot], life, note, rank);
		/* A call may have completed it: that is for the sweep. */
		if (note.kind == KVPULL_NOTE_RELEASE &&
		    note.generation == m->holds[slot].last)
			model_settle(m, slot);
	}
}

static void do_beat(struct model *m)
{
	const uint32_t index = roll(m, INSTANCES);
	const uint32_t rank = roll(m, RANKS);
	struct life *life = m->by_index[index];

	kvpull_holds_beat(m->f->holds, index, rank, m->f->now_ns);
	if (rank_speaks(life, rank))
		heard(m, &life->heard_ns[rank]);
}

/* NULL: none of that id lives; *used: entries that are not free. */
static struct life *life_find(struct model *m, uint64_t id, uint32_t *used)
{
	struct life *found = NULL;
	uint32_t i;

	*used = 0;
	for (i = 0; i < m->life_count; i++) {
		struct life *life = &m->lives[i];

		/* All are away or dead, and claim nothing: it is forgotten. */
		if (!life_is_served(life) && !life_is_named(m, life))
			life->is_dead = 1;
		if (!life->is_dead && life->id == id)
			found = life;
		*used += !life->is_dead || life_is_named(m, life);
	}
	return found;
}

static int model_join(struct model *m, const struct kvpull_join *join,
		      struct life **joined)
{
	uint32_t used;
	struct life *life = life_find(m, join->instance_id, &used);
	int code;

	if (!life && used == INSTANCES)
		return KVPULL_EFULL;
	if (!life) {
		life = &m->lives[m->life_count++];
		*life = (struct life){ .id = (uint32_t)join->instance_id,
				       .rank_count = join->rank_count };
	}
	if (life->rank_count != join->rank_count)
		return KVPULL_EREJECTED;
	code = life_enter(life, join->rank, (uint32_t)join->worker);
	if (code)
		return code;
	heard(m, &life->heard_ns[join->rank]);
	*joined = life;
	return 0;
}

static void do_join(struct model *m)
{
	const uint32_t id = roll(m, IDS);
	const uint32_t rank_count = 1 + (id + !roll(m, 10)) % RANKS;
	const uint32_t rank = roll(m, rank_count);
	struct kvpull_join join = { .instance_id = id,
				    .worker = roll(m, 3),
				    .rank = rank,
				    .rank_count = rank_count };
	struct life *life = NULL;
	uint32_t index = 0, i;
	const int expected =
		m->life_count == LIVES ? 1 : model_join(m, &join, &life);

	if (expected == 1)
		return;
	assert_int_equal(
		kvpull_holds_join(m->f->holds, &join, m->f->now_ns, &index),
		expected);
	if (expected)
		return;
	for (i = 0; i < INSTANCES; i++)
		if (i != index && m->by_index[i] == life)
			fail_msg("one life has two instances");
	if (m->by_index[index] != life && m->by_index[index])
		assert_true(m->by_index[index]->is_dead &&
			    !life_is_named(m, m->by_index[index]));
	m->by_index[index] = life;
}

static void do_hang_up(struct model *m)
{
	const uint32_t id = roll(m, IDS);
	const uint32_t rank = roll(m, RANKS);
	const struct kvpull_join join = { .instance_id = id,
					  .worker = roll(m, 3),
					  .rank = rank };
	uint32_t used;
	struct life *life = life_find(m, id, &used);

	kvpull_holds_call_lost(m->f->holds, &join);
	if (life && rank < life->rank_count && life->ranks[rank] == CALLED &&
	    join.worker && join.worker != life->workers[rank])
		life->is_forsaken[rank] = 1;
}

static void do_part(struct model *m)
{
	const struct kvpull_record note = { .kind = KVPULL_NOTE_AWAY };
	const uint32_t index = roll(m, INSTANCES);
	const uint32_t rank = roll(m, RANKS);
	struct life *life = m->by_index[index];

	kvpull_holds_note(m->f->holds, index, rank, &note, m->f->now_ns);
	if (!rank_speaks(life, rank))
		m->counts.unknown++;
	else if (life->ranks[rank] == HERE)
		life->parts[rank] = 1;
}

static void do_leave(struct model *m)
{
	const uint32_t index = roll(m, INSTANCES);
	const uint32_t rank = roll(m, RANKS);
	struct life *life = m->by_index[index];

	kvpull_holds_leave(m->f->holds, index, rank, m->f->now_ns);
	if (!life || life->ranks[rank] != HERE)
		return;
	life->ranks[rank] = life->parts[rank] ? AWAY : GRACE;
	life->due_ns[rank] =
		life->parts[rank] ? 0 : m->f->now_ns + m->f->params.grace_ns;
}

static void claim_mark(const struct model *m, struct model_hold *h,
		       struct model_claim *claim, const int *died)
{
	uint32_t r;

	for (r = 0; r < RANKS; r++) {
		if (!died[r] && !claim->life->is_dead)
			continue;
		if (claims(claim, r))
			word_said(m, h, claim->life, r);
		claim->released[r] = 1;
	}
}

static void model_mark(struct model *m, const struct life *life,
		       const int *died)
{
	uint32_t s, c;

	for (s = 0; s < SLOTS; s++)
		for (c = 0; c < m->holds[s].claim_count; c++)
			if (m->holds[s].claims[c].life == life)
				claim_mark(m, &m->holds[s],
					   &m->holds[s].claims[c], died);
}

static void model_deaths(struct model *m)
{
	const uint64_t late_ns = gaps_late(&m->gaps, m->f->now_ns);
	uint32_t i, r;

	for (i = 0; i < m->life_count; i++) {
		int judged[RANKS] = { 0 };

		life_judge(&m->lives[i], m->f->now_ns - late_ns, judged);
		for (r = 0; r < RANKS; r++)
			m->counts.consumers_died += (uint64_t)judged[r];
		model_mark(m, &m->lives[i], judged);
	}
	for (i = 0; i < SLOTS; i++)
		model_settle(m, i);
}

static void do_sweep(struct model *m)
{
	const uint64_t late_ns = gaps_late(&m->gaps, m->f->now_ns);
	uint32_t s;

	while (kvpull_holds_sweep(m->f->holds, m->f->now_ns))
		;
	model_deaths(m);
	for (s = 0; s < SLOTS; s++) {
		const struct model_hold *h = &m->holds[s];
		int owed = 0;
		uint64_t lease_ns;

		if (h->state != M_HELD)
			continue;
		lease_ns = model_lease(h, &owed) + late_ns;
		if (h->is_given && !owed)
			model_end(m, s, KVPULL_END_GIVEN_BACK);
		else if (lease_ns <= m->f->now_ns ||
			 h->taken_ns + HOLD_MAX <= m->f->now_ns)
			model_end(m, s, KVPULL_END_EXPIRED);
	}
}

static void do_report(struct model *m)
{
	struct kvpull_hold_end ends[SLOTS];
	uint32_t count, i, ended = 0;

	do_sweep(m);
	kvpull_holds_publish(m->f->holds);
	count = kvpull_holds_report(m->f->holds, ends, SLOTS);
	for (i = 0; i < SLOTS; i++)
		ended += m->holds[i].state == M_ENDED;
	assert_int_equal(count, ended);
	for (i = 0; i < count; i++) {
		struct model_hold *h = &m->holds[ends[i].slot];

		assert_int_equal(h->state, M_ENDED);
		assert_int_equal(ends[i].generation, h->last);
		assert_int_equal(ends[i].key, h->last * 100 + ends[i].slot);
		assert_int_equal(ends[i].reason, h->reason);
		h->state = M_FREE;
	}
}

static void do_revoke_all(struct model *m)
{
	uint32_t s, held = 0;

	for (s = 0; s < SLOTS; s++) {
		if (m->holds[s].state == M_STAGED)
			m->holds[s].revoked = m->holds[s].staged;
		if (m->holds[s].state != M_HELD)
			continue;
		held++;
		model_end(m, s, KVPULL_END_REVOKED);
	}
	assert_int_equal(
		kvpull_holds_revoke_all(m->f->holds, KVPULL_END_REVOKED), held);
}

static void compare(const struct model *m)
{
	struct kvpull_hold_counts counts = counts_of(m->f);
	struct kvpull_hold_counts expected = m->counts;
	uint32_t s;

	for (s = 0; s < SLOTS; s++) {
		expected.live += m->holds[s].state == M_HELD;
		expected.staged += m->holds[s].state == M_STAGED;
		expected.ended += m->holds[s].state == M_ENDED;
		assert_int_equal(
			kvpull_revocation_read(&m->f->entries[s]).revoked,
			m->holds[s].revoked);
	}
	assert_memory_equal(&counts, &expected, sizeof(counts));
}

static void operate(struct model *m)
{
	static const struct {
		uint32_t below; /* of a hundred */
		void (*act)(struct model *m);
	} acts[] = { { 20, do_time },    { 32, do_take },  { 34, do_end },
		     { 36, do_give },    { 65, do_note },  { 70, do_beat },
		     { 80, do_join },    { 83, do_leave }, { 85, do_part },
		     { 86, do_hang_up }, { 92, do_sweep }, { 100, do_report } };
	const uint32_t what = roll(m, 100);
	uint32_t at = 0;

	if (what == 99 && !roll(m, 10)) {
		do_revoke_all(m);
		return;
	}
	while (what >= acts[at].below)
		at++;
	acts[at].act(m);
}

/* Ends what is left: C.4 asks for the state of a fresh table. */
static void wind_up(struct model *m)
{
	uint32_t i;

	/* The polls below are of a producer that polls often. */
	kvpull_holds_tick(m->f->holds, m->f->now_ns, KVPULL_NO_THREAD);
	for (i = 0; i < SLOTS; i++)
		if (m->holds[i].state == M_STAGED)
			take(m->f, i, m->holds[i].staged);
	(void)kvpull_holds_revoke_all(m->f->holds, KVPULL_END_REVOKED);
	for (i = 0; i < INSTANCES * RANKS; i++)
		kvpull_holds_leave(m->f->holds, i / RANKS, i % RANKS,
				   m->f->now_ns);
	for (i = 0; i < IDS * RANKS; i++) {
		const struct kvpull_join join = { .instance_id = i / RANKS,
						  .worker = NOBODY,
						  .rank = i % RANKS };

		kvpull_holds_call_lost(m->f->holds, &join);
	}
	for (i = 0; i < 2; i++) {
		struct kvpull_hold_end ends[SLOTS];

		/* A gap of before may have deaths judged later, for a lease. */
		poll_at(m->f, m->f->now_ns + m->f->params.grace_ns + LEASE);
		(void)kvpull_holds_report(m->f->holds, ends, SLOTS);
	}
	expect_fresh(m->f);
}

static void run_seeds(uint64_t first, uint64_t grace_ns, uint32_t has_thread)
{
	uint64_t seed;
	uint32_t i;
	void *world;

	for (seed = first; seed < first + SEEDS; seed++) {
		print_message("seed %u\n", (unsigned int)seed);
		assert_int_equal(setup_grace(&world, grace_ns), 0);
		model = (struct model){ .f = fixture_of(&world),
					.gaps = { .lease_ns = LEASE,
						  .looked_ns = START },
					.has_thread = has_thread,
					.seed = seed };
		model.f->log.write = NULL;
		for (i = 0; i < OPERATIONS; i++) {
			operate(&model);
			compare(&model);
		}
		wind_up(&model);
		(void)teardown(&world);
	}
}

UNIT_TEST(table_equals_the_model_without_grace)
{
	run_seeds(1, 0, 0);
}

UNIT_TEST(table_equals_the_model_with_grace)
{
	run_seeds(1000, LEASE / 4, 0);
}

UNIT_TEST(table_equals_the_model_beside_a_thread)
{
	run_seeds(2000, LEASE / 4, 1);
}
