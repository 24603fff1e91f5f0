#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run each unit test binary, as many at once as there are processors; print the
# tests that failed, then one summary line.
# TEST_RUN (from the Makefile) goes before each command; TEST_LIMIT is its time
# in seconds, else three minutes on a quiet machine. TEST_LACKS is a file of tests
# that fail here for what is said there; they count as skipped, and one of them
# that passes is a failure.

. tests/result.sh

# Runs one binary; writes its counts, and its failed tests, into a folder.
if [ "${1:-}" = --one ]; then
	work=$2
	binary=$3
	name=$(basename "$binary")
	# shellcheck disable=SC2086 # a command and its options
	CMOCKA_MESSAGE_OUTPUT=stdout timeout "${TEST_LIMIT:-$((180 * TEST_PATIENCE))}" ${TEST_RUN:-} "$binary" \
		>"$work/$name.log" 2>&1
	status=$?
	awk -v program="$name" -v status=$status -v lacks="$work/lacks" \
		-v sum="$work/$name.counts" -f "$(dirname "$0")/run-unit.awk" \
		"$work/$name.log" >"$work/$name.bad"
	exit 0
fi

# Told to end: what failed so far, and how far the others came.
stopped() {
	cat "$work"/*.bad 2>/dev/null
	for log in "$work"/*.log; do
		name=$(basename "$log" .log)
		[ -s "$work/$name.counts" ] ||
			tail -n 9 "$log" | failed_say "$name: did not end in time"
	done
	exit 143
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap stopped TERM INT
: >"$work/lacks"
[ -z "${TEST_LACKS:-}" ] || sed -n 's/^\([a-z_0-9]*\): .*/\1/p' "$TEST_LACKS" >"$work/lacks"

printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' "$0" --one "$work" '{}'
cat "$work"/*.bad 2>/dev/null
# A binary that left no counts was killed with its runner.
lost=$(($# - $(find "$work" -name '*.counts' | wc -l)))
cat "$work"/*.counts | awk -v lost="$lost" '
	{ ok += $1; bad += $2; skip += $3 }
	END {
		bad += lost
		printf "%d passed, %d failed, %d skipped\n", ok, bad, skip
		exit bad || !(ok + skip)
	}'
