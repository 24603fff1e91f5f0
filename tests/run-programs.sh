#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run test programs, each argument a command line; add up their results, print
# them as the last line. A program ends with its own "N passed, N failed, N
# skipped"; one that prints no such line counts as one test by its exit status,
# as skipped if that is 77 or 0 after a line "refused: why".
# TEST_RUN goes before each command; TEST_LIMIT is its time in seconds, else a
# quarter of an hour, or an hour for full counts (without TEST_QUICK), on a quiet
# machine.
. tests/result.sh
passed=0
failed=0
skipped=0
limit=3600
[ -n "${TEST_QUICK:-}" ] && limit=900
log=$(mktemp) || exit 1
program=
# A runner that is told to end shows how far its program came, and ends that.
stopped() {
	[ -n "$program" ] && kill "$program" 2>/dev/null
	failed_show "$command" "its time is over" "$log"
	exit 143
}
trap 'rm -f "$log"' EXIT
trap stopped TERM INT

for command in "$@"; do
	echo "  RUN	$command"
	# shellcheck disable=SC2086 # a command and its arguments
	timeout -k 10 "${TEST_LIMIT:-$((limit * TEST_PATIENCE))}" ${TEST_RUN:-} $command >"$log" 2>&1 </dev/null &
	program=$!
	wait "$program"
	status=$?
	program=
	result_read "$log" "$status"
	if [ "$bad" -ne 0 ]; then
		failed_show "$command" "$status" "$log"
		echo "$command: exit status $status"
	else
		grep '^refused: ' "$log" | sort -u
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
