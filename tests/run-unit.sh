#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run each unit test binary; print the failing output, then one summary line.
# TEST_RUN (from the Makefile) goes before each command; TEST_LIMIT is its time
# in seconds. TEST_LACKS is a file of tests that fail here for what is said
# there; they count as skipped, and one of them that passes is a failure.
passed=0
failed=0
skipped=0

count() { # lines of $output that match, each test once
	printf '%s\n' "$output" | grep "$1" | sort -u | wc -l
}

listed() { # lines of $output, each a result and a name: how many are in TEST_LACKS
	[ -n "${TEST_LACKS:-}" ] || { echo 0; return; }
	printf '%s\n' "$output" | sed -n "s/^\[ *$1 *\] \([A-Za-z_0-9]*\)\$/\1/p" |
		sort -u | grep -cxF -f "$lacks"
}

lacks=$(mktemp) || exit 1
trap 'rm -f "$lacks"' EXIT
[ -z "${TEST_LACKS:-}" ] || sed -n 's/^\([a-z_0-9]*\): .*/\1/p' "$TEST_LACKS" >"$lacks"

for binary in "$@"; do
	# shellcheck disable=SC2086 # a command and its options
	output=$(CMOCKA_MESSAGE_OUTPUT=stdout timeout "${TEST_LIMIT:-60}" ${TEST_RUN:-} "$binary" 2>&1)
	status=$?
	ok=$(count '^\[       OK \]')
	bad=$(count '^\[  FAILED  \] [A-Za-z_]')
	skip=$(count '^\[  SKIPPED \] [A-Za-z_]')
	excused=$(listed FAILED)
	# cmocka's status is how many failed.
	[ "$status" -ne "$excused" ] || status=0
	bad=$((bad - excused + $(listed OK)))
	skip=$((skip + excused))
	# A crash or a sanitizer's report is a failure of its own.
	if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ $((ok + skip)) -eq 0 ]; }; then
		bad=1
	fi
	if [ "$bad" -ne 0 ]; then
		printf '%s\n' "$output" | tail -n 200
		echo "$binary: exit status $status, $ok ok, $bad failed"
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
