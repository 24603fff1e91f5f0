/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that all scenarios share: the cases, and their verdicts.
 *
 * A case runs in a process of its own with a time limit and a folder of its
 * own. The runner (main.c) kills and removes everything that it leaves behind.
 * A case ends by returning (the claim holds) or inside one of the calls below.
 */
#ifndef KVPULL_TESTS_SCENARIO_H
#define KVPULL_TESTS_SCENARIO_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/lib/patience.h"
#include "tests/lib/random.h"
#include "tools/ib_pull_engine.h"

#define SCENARIO_NS_PER_MS UINT64_C(1000000)
#define SCENARIO_NS_PER_S UINT64_C(1000000000)
#define SCENARIO_REFUSED 77 /* exit status */

struct scenario {
	const char *folder; /* of this case; sockets go here */
	uint32_t full;      /* 1: full counts */
	uint32_t verbose;   /* 1: the library's log goes to stderr */
	uint32_t device; /* 1: engines of node.h have their blocks on a GPU */
	uint32_t fabric; /* 1: all cases run over the fake fabric of fabric.h */
};

struct scenario_case {
	const char *name; /* "F1a" */
	const char *claim;
	void (*run)(const struct scenario *scenario);
	uint32_t quick_limit_s;
	uint32_t full_limit_s;
};

/* A case that is another function with arguments: `call` uses `scenario`. */
#define SCENARIO_RUN(name, ...)                                                \
	static void name(const struct scenario *scenario)                      \
	{                                                                      \
		__VA_ARGS__;                                                   \
	}

/* Numbers for the line of this case; appended. */
void scenario_say(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
/* The claim is broken: ends the case. */
void scenario_fail(const char *format, ...)
	__attribute__((noreturn, format(printf, 1, 2)));
/* This machine forbids it: ends the case, as skipped. */
void scenario_refuse(const char *format, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

/* A condition that the claim needs. */
#define scenario_check(condition, ...)                                         \
	do {                                                                   \
		if (!(condition))                                              \
			scenario_fail(__VA_ARGS__);                            \
	} while (0)

/* xorshift: any seed but 0. */
void scenario_sleep_ns(uint64_t ns);
int scenario_compare_u64(const void *a, const void *b);
/* 1: between machines (--route verbs), where other times are promised. */
int scenario_is_remote(void);
/* From now on, in this process and its children. */
void scenario_be_remote(void);
/* Load a library that lies beside this program. */
void scenario_load(const char *name, void **library);

/* Layers of one group, whose blocks have 16 tokens. */
static inline struct engine_shape
scenario_shape(uint32_t block_bytes, uint32_t block_count, uint32_t layer_count)
{
	return (struct engine_shape){ .block_bytes = block_bytes,
				      .block_count = block_count,
				      .layer_count = layer_count,
				      .group_count = 1,
				      .block_tokens = 16 };
}

/* Cases of each file; the list ends with a name that is NULL. */
extern const struct scenario_case scenario_f1[];
extern const struct scenario_case scenario_f2[];
extern const struct scenario_case scenario_f3[];
extern const struct scenario_case scenario_f4[];
extern const struct scenario_case scenario_f5[];
extern const struct scenario_case scenario_f6[];
extern const struct scenario_case scenario_f7[];
extern const struct scenario_case scenario_f8[];
extern const struct scenario_case scenario_f9[];
extern const struct scenario_case scenario_f14[];
extern const struct scenario_case scenario_f17[];
extern const struct scenario_case scenario_k1[];
extern const struct scenario_case scenario_l1[];
extern const struct scenario_case scenario_s1[];
extern const struct scenario_case scenario_x1[];
extern const struct scenario_case scenario_x2[];
extern const struct scenario_case scenario_x3[];
extern const struct scenario_case scenario_x4[];

#endif /* KVPULL_TESTS_SCENARIO_H */
