#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run each unit test binary, as many at once as there are processors; print the
# failing output, then one summary line.
# TEST_RUN (from the Makefile) goes before each command; TEST_LIMIT is its time
# in seconds. TEST_LACKS is a file of tests that fail here for what is said
# there; they count as skipped, and one of them that passes is a failure.

count() { # lines of $output that match, each test once
	printf '%s\n' "$output" | grep "$1" | sort -u | wc -l
}

listed() { # lines of $output, each a result and a name: how many are in TEST_LACKS
	[ -n "${TEST_LACKS:-}" ] || { echo 0; return; }
	printf '%s\n' "$output" | sed -n "s/^\[ *$1 *\] \([A-Za-z_0-9]*\)\$/\1/p" |
		sort -u | grep -cxF -f "$2/lacks"
}

# One binary; a folder takes its counts, and what it printed if it failed.
if [ "${1:-}" = --one ]; then
	work=$2
	binary=$3
	# shellcheck disable=SC2086 # a command and its options
	output=$(CMOCKA_MESSAGE_OUTPUT=stdout timeout "${TEST_LIMIT:-180}" ${TEST_RUN:-} "$binary" 2>&1)
	status=$?
	ok=$(count '^\[       OK \]')
	bad=$(count '^\[  FAILED  \] [A-Za-z_]')
	skip=$(count '^\[  SKIPPED \] [A-Za-z_]')
	excused=$(listed FAILED "$work")
	# cmocka's status is how many failed.
	[ "$status" -ne "$excused" ] || status=0
	bad=$((bad - excused + $(listed OK "$work")))
	skip=$((skip + excused))
	# A crash or a sanitizer's report is a failure of its own.
	if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ $((ok + skip)) -eq 0 ]; }; then
		bad=1
	fi
	if [ "$bad" -ne 0 ]; then
		{
			printf '%s\n' "$output" | tail -n 200
			echo "$binary: exit status $status, $ok ok, $bad failed"
		} >"$work/$(basename "$binary").bad"
	fi
	echo "$ok $bad $skip" >"$work/$(basename "$binary").counts"
	exit 0
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' TERM INT
: >"$work/lacks"
[ -z "${TEST_LACKS:-}" ] || sed -n 's/^\([a-z_0-9]*\): .*/\1/p' "$TEST_LACKS" >"$work/lacks"

printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' "$0" --one "$work" '{}'
cat "$work"/*.bad 2>/dev/null
# One that left no counts was killed with its runner.
lost=$(($# - $(find "$work" -name '*.counts' | wc -l)))
cat "$work"/*.counts | awk -v lost="$lost" '
	{ ok += $1; bad += $2; skip += $3 }
	END {
		bad += lost
		printf "%d passed, %d failed, %d skipped\n", ok, bad, skip
		exit bad || !(ok + skip)
	}'
