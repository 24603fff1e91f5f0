/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hold table on its own, for tests: time is a number, consumers are function
 * calls. LEASE is divisible by three, two and six.
 */
#ifndef KVPULL_TESTS_UNIT_HOLD_WORLD
#define KVPULL_TESTS_UNIT_HOLD_WORLD

#include <string.h>

#include "plugin/hold/hold.h"
#include "plugin/hold/instance.h"
#include "tests/lib/inside.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define SLOTS 8u
#define INSTANCES 8u
#define LEASE UINT64_C(3000)
#define HOLD_MAX UINT64_C(20000)
#define INCARNATION UINT64_C(0xabcdef)
#define START UINT64_C(1000000)

/* 1: the table sees `given`; 0, if a test program does not say so. */
extern uint32_t world_has_marks;

struct fixture {
	struct kvpull_arena arena;
	struct kvpull_log log;
	struct kvpull_hold_params params;
	struct kvpull_revocation_entry entries[SLOTS];
	struct kvpull_status_side side;
	struct kvpull_status_thread thread;
	struct kvpull_status_event events[KVPULL_STATUS_EVENTS];
	struct kvpull_status_hold rows[SLOTS];
	_Atomic uint64_t held[SLOTS / 64 + 1];
	_Atomic uint64_t given[SLOTS]; /* generations given back */
	struct kvpull_status_hold_now now[SLOTS];
	struct kvpull_holds *holds;
	uint64_t now_ns;
	uint64_t digest; /* of the fresh table */
};

int setup_grace(void **state, uint64_t grace_ns);
int setup(void **state);
int setup_with_grace(void **state);
int teardown(void **state);
struct fixture *fixture_of(void **state);
void take(struct fixture *f, uint32_t slot, uint64_t generation);
int join_ids(struct kvpull_holds *holds, uint64_t id, uint32_t rank,
	     uint32_t rank_count, uint64_t now_ns, uint32_t *instance);
uint32_t join(struct fixture *f, uint64_t id, uint32_t rank,
	      uint32_t rank_count);
struct who {
	uint32_t instance;
	uint32_t rank;
};

/* Joins as a rank of this instance. */
struct who rank_of(struct fixture *f, uint64_t id, uint32_t rank,
		   uint32_t rank_count);
struct kvpull_record record_of(const struct fixture *f, uint32_t kind,
			       uint32_t slot, uint64_t generation);

void note(struct fixture *f, struct who who, struct kvpull_record record);
void claim(struct fixture *f, struct who who, uint32_t slot,
	   uint64_t generation);
void release(struct fixture *f, struct who who, uint32_t slot,
	     uint64_t generation);

void beat(struct fixture *f, struct who who);
/* A hold that this rank claims at once. */
void take_claimed(struct fixture *f, struct who who, uint32_t slot,
		  uint64_t generation);
/* The engine ends it. */
void end_hold(struct fixture *f, uint32_t slot, uint64_t generation,
	      uint64_t key, int32_t reason);

/* A poll begins: time has come to f->now_ns. */
void tick(struct fixture *f);
/* A poll of a producer that polls often: no step is taken for a stall. */
void poll_at(struct fixture *f, uint64_t now_ns);
struct kvpull_hold_counts counts_of(const struct fixture *f);
int is_revoked(const struct fixture *f, uint32_t slot, uint64_t generation);

/* Exactly this hold is reported, revoked, for this reason. */
void expect_report(struct fixture *f, uint32_t slot, uint64_t generation,
		   int32_t reason);
void expect_nothing(struct fixture *f);

/* This release ends the hold, or something else is still waited for. */
void release_ends(struct fixture *f, struct who who, uint32_t slot,
		  uint64_t generation);
void release_waits(struct fixture *f, struct who who, uint32_t slot,
		   uint64_t generation);
/* A poll at this time reports so much; an expiry not a nanosecond before. */
void nothing_at(struct fixture *f, uint64_t now_ns);
void report_at(struct fixture *f, uint64_t now_ns, uint32_t slot,
	       uint64_t generation, int32_t reason);
void expires_at(struct fixture *f, uint64_t now_ns, uint32_t slot,
		uint64_t generation);
void leave(struct fixture *f, struct who who);
/* Leaves, and a poll sees it. */
void leave_and_poll(struct fixture *f, struct who who);

/* C.4, after the instances left too. */
void expect_fresh(struct fixture *f);

/* A test of a fixture f; and of two ranks that these expressions join. */
#define TEST(name) UNIT_TEST_OF(name, struct fixture, f, setup, teardown)
#define GRACE_TEST(name)                                                       \
	UNIT_TEST_OF(name, struct fixture, f, setup_with_grace, teardown)
#define TEST_OF_TWO(test, name, first, first_joined, second, second_joined)    \
	static void name##_two(struct fixture *f, struct who first,            \
			       struct who second);                             \
	test(name)                                                             \
	{                                                                      \
		const struct who joined = first_joined;                        \
                                                                               \
		name##_two(f, joined, second_joined);                          \
	}                                                                      \
	static void name##_two(struct fixture *f,                              \
			       __attribute__((unused)) struct who first,       \
			       __attribute__((unused)) struct who second)

/* The only rank a of an instance; and b, that of another one. */
#define ONE_TEST_OF(test, name)                                                \
	static void name##_one(struct fixture *f, struct who a);               \
	test(name)                                                             \
	{                                                                      \
		name##_one(f, rank_of(f, 0xa1, 0, 1));                         \
	}                                                                      \
	static void name##_one(struct fixture *f, struct who a)
#define ONE_TEST(name) ONE_TEST_OF(TEST, name)
#define GRACE_ONE_TEST(name) ONE_TEST_OF(GRACE_TEST, name)
#define APART_TEST(name)                                                       \
	TEST_OF_TWO(TEST, name, a, rank_of(f, 0xa1, 0, 1), b,                  \
		    rank_of(f, 0xb1, 0, 1))
/* Both ranks, r0 and r1, of an instance. */
#define PAIR_TEST(name)                                                        \
	TEST_OF_TWO(TEST, name, r0, rank_of(f, 1, 0, 2), r1,                   \
		    rank_of(f, 1, 1, 2))

#endif /* KVPULL_TESTS_UNIT_HOLD_WORLD */
