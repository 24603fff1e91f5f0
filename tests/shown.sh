#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A test that fails is seen: its name and its own output stand first in what
# `make check` prints, and beside the table of .ci/run, however much else its
# suite printed. The suites here are shell scripts that fail on purpose.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. tests/claim.sh
mkdir "$work/logs"
export TEST_LOGS="$work/logs"

script() { # name; its lines on standard input
	{ echo '#!/bin/sh' && cat; } >"$work/$1"
	chmod +x "$work/$1"
}

# In cmocka's words: one test fails, one dies, and so does the program.
script test_dies <<'END'
echo '[ RUN      ] holds'
echo 'not shown'
echo '[       OK ] holds'
echo '[ RUN      ] differs'
echo 'one is not two'
echo '[  FAILED  ] differs'
echo '[ RUN      ] dies'
echo 'last words'
exit 134
END
script program_fails <<'END'
seq 1000
exit 3
END
script program_is_refused <<'END'
echo 'refused: namespaces: Operation not permitted'
echo '3 passed, 0 failed, 1 skipped'
END
# A make whose one target fails early, and goes on to talk.
script make <<'END'
echo 'FAILED early_test: why'
printf '\tits own line\n'
seq -f 'noise %g' 300
echo '4 passed, 1 failed, 0 skipped'
exit 2
END

first_lines() { # how many, command
	lines=$1
	shift
	"$@" 2>&1 | head -n "$lines"
}
last_lines() {
	lines=$1
	shift
	"$@" 2>&1 | tail -n "$lines"
}

claim failed_unit_tests_are_shown 0 '^FAILED test_dies: differs$' '^	one is not two$' \
	'^FAILED test_dies: dies: exit status 134$' '^	last words$' \
	'^1 passed, 2 failed, 0 skipped$' -- last_lines 99 tests/run-unit.sh "$work/test_dies"
claim passed_unit_tests_are_not_shown 1 -- \
	sh -c "tests/run-unit.sh '$work/test_dies' | grep 'not shown'"
echo 'differs: it has to' >"$work/lacks"
export TEST_LACKS="$work/lacks"
claim excused_unit_tests_are_not_shown 0 '^1 passed, 1 failed, 1 skipped$' -- \
	last_lines 99 tests/run-unit.sh "$work/test_dies"
unset TEST_LACKS
claim silent_programs_are_shown_by_their_end 0 \
	"^FAILED $work/program_fails: exit status 3\$" '^	1000$' \
	'^1 passed, 1 failed, 0 skipped$' -- \
	last_lines 999 tests/run-programs.sh true "$work/program_fails"
unset TEST_MUST_RUN
claim refused_programs_are_skipped 0 '^refused: namespaces: Operation not permitted$' \
	'^3 passed, 0 failed, 1 skipped$' -- \
	last_lines 9 tests/run-programs.sh "$work/program_is_refused"
claim refused_programs_fail_where_all_has_to_run 0 \
	'^FAILED refused: namespaces: Operation not permitted$' '^3 passed, 1 failed, 0 skipped$' -- \
	last_lines 9 env TEST_MUST_RUN=1 tests/run-programs.sh "$work/program_is_refused"
claim check_shows_failed_tests_first 0 '^FAILED early_test: why$' '^	its own line$' -- \
	first_lines 3 env MAKE="$work/make" tests/check.sh unit
claim check_ends_with_the_sum 0 '^4 passed, 1 failed, 0 skipped$' -- \
	last_lines 1 env MAKE="$work/make" tests/check.sh unit
claim ci_shows_failed_tests_beside_its_table 0 '^== demo$' '^FAILED early_test: why$' \
	'^	its own line$' '^demo .*4 passed, 1 failed, 0 skipped +FAILED$' -- \
	last_lines 6 env PATH="$work:$PATH" .ci/run demo
# asan runs several suites; here make has one, to compile and to test.
mkdir "$work/refuses"
cp "$work/program_is_refused" "$work/refuses/make"
claim ci_fails_for_what_one_of_several_suites_is_refused 1 \
	'^FAILED refused: namespaces: Operation not permitted$' \
	'^asan .*6 passed, 2 failed, 0 skipped +FAILED$' -- \
	env PATH="$work/refuses:$PATH" .ci/run asan
# A busy machine has more time for the same.
claim patience_is_a_number 0 '^([1-9]|1[0-9]|20)$' -- tests/patience.sh
TEST_PATIENCE=1
claim limits_hold_on_a_quiet_machine 124 -- within 1 sleep 2
TEST_PATIENCE=4
claim limits_are_longer_on_a_busy_one 0 -- within 1 sleep 2
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
