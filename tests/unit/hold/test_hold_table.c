/* SPDX-License-Identifier: Apache-2.0 */
/* Every cell of the hold's state table, reached through the public calls. */
#include "tests/unit/hold/world.h"

#include "plugin/hold/hold_state.h"

#define TOLD UINT64_C(5)   /* generation of slot 0 that ended before */
#define LATEST UINT64_C(6) /* the one staged, held or ended now */
#define LATER UINT64_C(8)

static struct who bring(struct fixture *f, enum hold_state state)
{
	const struct who a = rank_of(f, 1, 0, 1);

	/* Keeps the heap, and slot 0's stale entry in it. */
	take(f, 1, 1);
	claim(f, (struct who){ join(f, 2, 0, 1), 0 }, 1, 1);
	take(f, 0, TOLD);
	end_hold(f, 0, TOLD, 500, KVPULL_END_ABORTED);
	expect_report(f, 0, TOLD, KVPULL_END_ABORTED);
	if (state == HOLD_STAGED)
		claim(f, a, 0, LATEST);
	if (state == HOLD_HELD || state == HOLD_ENDED)
		take(f, 0, LATEST);
	if (state == HOLD_ENDED)
		end_hold(f, 0, LATEST, 600, KVPULL_END_ABORTED);
	assert_int_equal(f->holds->holds[0].state, state);
	return a;
}

static uint64_t told_in(enum hold_state state)
{
	return state == HOLD_HELD || state == HOLD_ENDED ? LATEST : TOLD;
}

/* Fires the event; returns the call's answer, or 0 where it has none. */
static int fire(struct fixture *f, struct who a, enum hold_state state,
		enum hold_event event)
{
	struct kvpull_hold_end end;

	switch (event) {
	case HOLD_EV_TAKE:
		return kvpull_holds_take(
			f->holds, 0, told_in(state) == LATEST ? LATER : LATEST,
			600);
	case HOLD_EV_NOTE:
		claim(f, a, 0, state == HOLD_FREE ? TOLD : LATEST);
		break;
	case HOLD_EV_NOTE_NEWER:
		claim(f, a, 0, LATER);
		break;
	case HOLD_EV_NOTE_OLDER:
		claim(f, a, 0, TOLD - 1);
		break;
	case HOLD_EV_COMPLETE:
		release(f, a, 0, LATEST);
		break;
	case HOLD_EV_DUE:
		f->now_ns = START + LEASE / 3;
		tick(f);
		kvpull_holds_beat(f->holds, 1, 0, f->now_ns);
		while (f->now_ns < START + LEASE) {
			f->now_ns += LEASE / 3;
			tick(f);
		}
		assert_int_equal(f->holds->leases.count, 2);
		(void)kvpull_holds_sweep(f->holds, f->now_ns);
		assert_int_equal(f->holds->leases.count, 1);
		break;
	case HOLD_EV_END:
		return kvpull_holds_end(f->holds, 0, told_in(state), 600,
					KVPULL_END_RANK);
	case HOLD_EV_END_NEWER:
		return kvpull_holds_end(f->holds, 0, LATER, 800,
					KVPULL_END_RANK);
	case HOLD_EV_REVOKE:
		(void)kvpull_holds_revoke_all(f->holds, KVPULL_END_REVOKED);
		break;
	case HOLD_EV_REPORT:
		kvpull_holds_publish(f->holds);
		(void)kvpull_holds_report(f->holds, &end, 1);
		break;
	case HOLD_EV_FORGET:
		kvpull_holds_begin(f->holds, LATEST);
		break;
	case HOLD_EVENTS:
		break;
	}
	return 0;
}

static void walk(struct fixture *f, enum hold_state state,
		 enum hold_event event)
{
	const struct hold_edge edge = hold_edges[state][event];
	const struct who a = bring(f, state);
	const uint64_t unknown = counts_of(f).unknown;
	const int result = fire(f, a, state, event);

	/* Empty cells: no call gets there, so nothing may happen. */
	if (edge.action == HOLD_BUG) {
		assert_true(event == HOLD_EV_COMPLETE ||
			    event == HOLD_EV_REVOKE ||
			    event == HOLD_EV_REPORT || event == HOLD_EV_FORGET);
		if (event != HOLD_EV_COMPLETE)
			assert_int_equal(f->holds->holds[0].state, state);
		return;
	}
	assert_int_equal(f->holds->holds[0].state, edge.next);
	assert_int_equal(result,
			 edge.action == HOLD_REFUSE ? KVPULL_EINVAL : 0);
	assert_int_equal(counts_of(f).unknown - unknown,
			 edge.action == HOLD_UNKNOWN);
}

UNIT_TEST(every_cell_does_what_the_table_says)
{
	uint32_t from, event;

	for (from = 0; from < HOLD_STATES; from++)
		for (event = 0; event < HOLD_EVENTS; event++) {
			void *world;

			assert_int_equal(setup(&world), 0);
			walk(fixture_of(&world), (enum hold_state)from,
			     (enum hold_event)event);
			(void)teardown(&world);
		}
}

UNIT_TEST(ten_cells_are_empty)
{
	uint32_t from, event, empty = 0;

	for (from = 0; from < HOLD_STATES; from++)
		for (event = 0; event < HOLD_EVENTS; event++)
			empty += hold_edges[from][event].action == HOLD_BUG;
	assert_int_equal(empty, 10);
}

UNIT_TEST(prefetch_changes_nothing_in_any_state)
{
	uint32_t from, slot;

	for (from = 0; from < HOLD_STATES; from++) {
		struct fixture *f;
		uint64_t digest;
		void *world;

		assert_int_equal(setup(&world), 0);
		f = fixture_of(&world);
		(void)bring(f, (enum hold_state)from);
		digest = kvpull_holds_digest(f->holds);
		for (slot = 0; slot <= f->holds->slot_count + 1; slot++) {
			kvpull_holds_prefetch(f->holds, slot);
			kvpull_holds_prefetch_rest(f->holds, slot);
		}
		kvpull_holds_prefetch(f->holds, UINT32_MAX);
		kvpull_holds_prefetch_rest(f->holds, UINT32_MAX);
		assert_true(kvpull_holds_digest(f->holds) == digest);
		(void)teardown(&world);
	}
}
