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
struct kvpull_record record_of(const struct fixture *f, uint32_t kind,
			       uint32_t slot, uint64_t generation);

struct who {
	uint32_t instance;
	uint32_t rank;
};

void claim(struct fixture *f, struct who who, uint32_t slot,
	   uint64_t generation);
void release(struct fixture *f, struct who who, uint32_t slot,
	     uint64_t generation);

/* A poll of a producer that polls often: no step is taken for a stall. */
void poll_at(struct fixture *f, uint64_t now_ns);
struct kvpull_hold_counts counts_of(const struct fixture *f);
int is_revoked(const struct fixture *f, uint32_t slot, uint64_t generation);

/* Exactly this hold is reported, revoked, for this reason. */
void expect_report(struct fixture *f, uint32_t slot, uint64_t generation,
		   int32_t reason);
void expect_nothing(struct fixture *f);
void leave(struct fixture *f, struct who who);

/* C.4, after the instances left too. */
void expect_fresh(struct fixture *f);

#define TEST(name) UNIT_TEST_WITH(name, setup, teardown)

#endif /* KVPULL_TESTS_UNIT_HOLD_WORLD */
