/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base of a unit test program: cmocka, and tests that register themselves where
 * they stand, so that none is written and never run. They run in the order of
 * the file. main() is the library's, unless a program
 * that prepares its process has one of its own, which ends in unit_run().
 */
#ifndef KVPULL_TESTS_LIB_UNIT_H
#define KVPULL_TESTS_LIB_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct unit_entry {
	struct CMUnitTest test;
	int line;
	struct unit_entry *next;
};

/* Enter a test; @entry stays where it is. */
void unit_enter(struct unit_entry *entry);

/* Run all that was entered, between @setup and @teardown: how many failed. */
int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown);

/* Descriptors of this process: as many as before, unless one was left open. */
uint32_t fds_open(void);

/*
 * An engine may have closed its standard input: the next descriptor is 0 then.
 * input_open() takes back what input_close() returned.
 */
int input_close(void);
void input_open(int input);

/* Skip the test that runs, with a line that says why, where io_uring may not. */
void unit_needs_uring(void);

/*
 * Asked as close() waits for a thread of the library's: 1: it is to be given up.
 * 0 in a program that does not define it.
 */
int unit_thread_hangs(void);

/* A test that runs between @setup and @teardown, each of which may be NULL. */
#define UNIT_TEST_WITH(name, setup, teardown)                                  \
	static void name(void **state);                                        \
	__attribute__((constructor)) static void name##_enter(void)            \
	{                                                                      \
		static struct unit_entry entry = {                             \
			.test = cmocka_unit_test_setup_teardown(name, setup,   \
								teardown),     \
			.line = __LINE__,                                      \
		};                                                             \
                                                                               \
		unit_enter(&entry);                                            \
	}                                                                      \
	static void name(__attribute__((unused)) void **state)

#define UNIT_TEST(name) UNIT_TEST_WITH(name, NULL, NULL)

/* A setup or teardown that needs no state: what stands in its body. */
#define UNIT_FIXTURE(name)                                                     \
	static void name##_body(void);                                         \
	static int name(__attribute__((unused)) void **state)                  \
	{                                                                      \
		name##_body();                                                 \
		return 0;                                                      \
	}                                                                      \
	static void name##_body(void)

/* NOLINTBEGIN(bugprone-macro-parentheses): a type, and a name behind it. */
/* A test that is given what @setup made: @type *@argument. */
#define UNIT_TEST_OF(name, type, argument, setup, teardown)                    \
	static void name##_of(type *argument);                                 \
	UNIT_TEST_WITH(name, setup, teardown)                                  \
	{                                                                      \
		name##_of(*state);                                             \
	}                                                                      \
	static void name##_of(__attribute__((unused)) type *argument)

/* A test of a `struct noun *noun`, between begin(noun) and end(noun). */
#define UNIT_TEST_BETWEEN(name, noun, begin, end)                              \
	static void name##_between(struct noun *noun);                         \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		struct noun noun;                                              \
                                                                               \
		begin(&noun);                                                  \
		name##_between(&noun);                                         \
		end(&noun);                                                    \
	}                                                                      \
	static void name##_between(struct noun *noun)

#define UNIT_TEST_IN(name, noun)                                               \
	UNIT_TEST_BETWEEN(name, noun, noun##_begin, noun##_end)
/* NOLINTEND(bugprone-macro-parentheses) */

/* A test whose body runs in a child, by the program's end_of(), and ends so. */
#define UNIT_TEST_ENDS(name, status)                                           \
	static void name##_in_child(void);                                     \
	UNIT_TEST(name)                                                        \
	{                                                                      \
		assert_int_equal(end_of(name##_in_child), status);             \
	}                                                                      \
	static void name##_in_child(void)

#define UNIT_TEST_IN_CHILD(name) UNIT_TEST_ENDS(name, 0)

#endif
