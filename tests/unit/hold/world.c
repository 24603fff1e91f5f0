/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/hold/world.h"

#include "plugin/reads/judge.h"

__attribute__((weak)) uint32_t world_has_marks = 0;

int setup_grace(void **state, uint64_t grace_ns)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	f.now_ns = START;
	f.side.thread = &f.thread;
	f.side.events = f.events;
	lines_forget();
	f.log = lines_log;
	f.params = (struct kvpull_hold_params){ .log = &f.log,
						.entries = f.entries,
						.incarnation = INCARNATION,
						.lease_ns = LEASE,
						.hold_max_ns = HOLD_MAX,
						.grace_ns = grace_ns,
						.hold_count_max = SLOTS,
						.instance_count_max = INSTANCES,
						.secret = "fifteen letters" };
	f.params.shown = (struct kvpull_status_holds){
		.rows = f.rows, .now = f.now, .held = f.held, .side = &f.side
	};
	f.params.given = world_has_marks ? f.given : NULL;
	kvpull_arena_init(&f.arena, NULL);
	f.holds = kvpull_holds_open(&f.params, &f.arena);
	if (!f.holds)
		return -1;
	f.digest = kvpull_holds_digest(f.holds);
	kvpull_holds_tick(f.holds, f.now_ns, KVPULL_NO_THREAD);
	*state = &f;
	return 0;
}

int setup(void **state)
{
	return setup_grace(state, 0);
}

int setup_with_grace(void **state)
{
	return setup_grace(state, LEASE / 2);
}

int teardown(void **state)
{
	kvpull_arena_fini(&((struct fixture *)*state)->arena);
	return 0;
}

struct fixture *fixture_of(void **state)
{
	return (struct fixture *)*state;
}

void take(struct fixture *f, uint32_t slot, uint64_t generation)
{
	assert_int_equal(kvpull_holds_take(f->holds, slot, generation,
					   generation * 100 + slot),
			 0);
}

int join_ids(struct kvpull_holds *holds, uint64_t id, uint32_t rank,
	     uint32_t rank_count, uint64_t now_ns, uint32_t *instance)
{
	struct kvpull_join join = { .instance_id = id,
				    .rank = rank,
				    .rank_count = rank_count };

	return kvpull_holds_join(holds, &join, now_ns, instance);
}

uint32_t join(struct fixture *f, uint64_t id, uint32_t rank,
	      uint32_t rank_count)
{
	uint32_t instance = KVPULL_NONE;

	assert_int_equal(
		join_ids(f->holds, id, rank, rank_count, f->now_ns, &instance),
		0);
	return instance;
}

struct who rank_of(struct fixture *f, uint64_t id, uint32_t rank,
		   uint32_t rank_count)
{
	return (struct who){ join(f, id, rank, rank_count), rank };
}

struct kvpull_record record_of(const struct fixture *f, uint32_t kind,
			       uint32_t slot, uint64_t generation)
{
	return (struct kvpull_record){
		.kind = kind,
		.slot = slot,
		.generation = generation,
		.tag = kvpull_ticket_tag(f->params.secret, slot, generation)
	};
}

void note(struct fixture *f, struct who who, struct kvpull_record record)
{
	kvpull_holds_note(f->holds, who.instance, who.rank, &record, f->now_ns);
}

void claim(struct fixture *f, struct who who, uint32_t slot,
	   uint64_t generation)
{
	note(f, who, record_of(f, KVPULL_NOTE_CLAIM, slot, generation));
}

void release(struct fixture *f, struct who who, uint32_t slot,
	     uint64_t generation)
{
	note(f, who, record_of(f, KVPULL_NOTE_RELEASE, slot, generation));
}

void beat(struct fixture *f, struct who who)
{
	kvpull_holds_beat(f->holds, who.instance, who.rank, f->now_ns);
}

void take_claimed(struct fixture *f, struct who who, uint32_t slot,
		  uint64_t generation)
{
	take(f, slot, generation);
	claim(f, who, slot, generation);
}

void end_hold(struct fixture *f, uint32_t slot, uint64_t generation,
	      uint64_t key, int32_t reason)
{
	assert_int_equal(
		kvpull_holds_end(f->holds, slot, generation, key, reason), 0);
}

void tick(struct fixture *f)
{
	kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
}

void poll_at(struct fixture *f, uint64_t now_ns)
{
	while (f->now_ns < now_ns) {
		f->now_ns += LEASE / 3;
		if (f->now_ns > now_ns)
			f->now_ns = now_ns;
		kvpull_holds_tick(f->holds, f->now_ns, KVPULL_NO_THREAD);
	}
	while (kvpull_holds_sweep(f->holds, f->now_ns))
		;
	kvpull_holds_publish(f->holds);
}

struct kvpull_hold_counts counts_of(const struct fixture *f)
{
	struct kvpull_hold_counts counts;

	kvpull_holds_counts(f->holds, &counts);
	return counts;
}

int is_revoked(const struct fixture *f, uint32_t slot, uint64_t generation)
{
	const struct kvpull_revocation_value value =
		kvpull_revocation_read(&f->entries[slot]);

	return kvpull_guard_judge(KVPULL_GUARD_HOLD, &value, INCARNATION,
				  generation) != 0;
}

void expect_report(struct fixture *f, uint32_t slot, uint64_t generation,
		   int32_t reason)
{
	struct kvpull_hold_end ends[2];

	assert_true(is_revoked(f, slot, generation));
	kvpull_holds_publish(f->holds);
	assert_int_equal(kvpull_holds_report(f->holds, ends, 2), 1);
	assert_int_equal(ends[0].slot, slot);
	assert_int_equal(ends[0].generation, generation);
	assert_int_equal(ends[0].key, generation * 100 + slot);
	assert_int_equal(ends[0].reason, reason);
}

void expect_nothing(struct fixture *f)
{
	struct kvpull_hold_end end;

	kvpull_holds_publish(f->holds);
	assert_int_equal(kvpull_holds_report(f->holds, &end, 1), 0);
}

void release_ends(struct fixture *f, struct who who, uint32_t slot,
		  uint64_t generation)
{
	release(f, who, slot, generation);
	expect_report(f, slot, generation, KVPULL_END_RELEASED);
}

void release_waits(struct fixture *f, struct who who, uint32_t slot,
		   uint64_t generation)
{
	release(f, who, slot, generation);
	expect_nothing(f);
}

void nothing_at(struct fixture *f, uint64_t now_ns)
{
	poll_at(f, now_ns);
	expect_nothing(f);
}

void report_at(struct fixture *f, uint64_t now_ns, uint32_t slot,
	       uint64_t generation, int32_t reason)
{
	poll_at(f, now_ns);
	expect_report(f, slot, generation, reason);
}

void expires_at(struct fixture *f, uint64_t now_ns, uint32_t slot,
		uint64_t generation)
{
	nothing_at(f, now_ns - 1);
	report_at(f, now_ns, slot, generation, KVPULL_END_EXPIRED);
}

void leave(struct fixture *f, struct who who)
{
	kvpull_holds_leave(f->holds, who.instance, who.rank, f->now_ns);
}

void leave_and_poll(struct fixture *f, struct who who)
{
	leave(f, who);
	poll_at(f, f->now_ns);
}

void expect_fresh(struct fixture *f)
{
	poll_at(f, f->now_ns);
	assert_int_equal(kvpull_holds_digest(f->holds), f->digest);
	assert_int_equal(kvpull_holds_deadline(f->holds), UINT64_MAX);
}
