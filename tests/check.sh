#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make check: every test that needs no special machine, each stage under its
# own time limit, which is longer on a busy machine (tests/patience.sh). The last
# line adds them up: "N passed, N failed, N skipped".
# A stage that does not run is a failure; only a program that says "refused:
# why" is skipped. A stage that fails shows its failed tests first. Logs:
# build/check/<stage>.log. check.sh [stage...] runs some of them.
cd "$(dirname "$0")/.." || exit 1
MAKE=${MAKE:-make}
only=" $* "
. tests/result.sh
logs=${TEST_LOGS:-build/check}
mkdir -p "$logs"
passed=0
failed=0
skipped=0

# A parallel make above us has its own idea of -j.
case " ${MAKEFLAGS:-}" in
*jobserver*) jobs= ;;
*) jobs=-j$(nproc 2>/dev/null || echo 2) ;;
esac

stage() { # name, seconds, command
	name=$1
	limit=$2
	shift 2
	[ "$only" = '  ' ] || [ -z "${only##* "$name" *}" ] || return
	log=$logs/$name.log
	TEST_PATIENCE=$(tests/patience.sh)
	limit=$((limit * TEST_PATIENCE))
	began=$(date +%s)
	# A program that takes too long ends first, and shows how far it came.
	TEST_LIMIT=$((limit - 5)) timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null
	status=$?
	took=$(($(date +%s) - began))
	result_read "$log" "$status"
	printf '%-10s %5d passed, %d failed, %d skipped, %d s\n' \
		"$name" "$ok" "$bad" "$skip" "$took"
	if [ "$bad" -ne 0 ]; then
		[ "$status" -eq 124 ] && echo "$name: not done in $limit s"
		failed_show "$name" "$status" "$log"
		echo "    the end of $log:"
		tail -n 20 "$log" | sed 's/^/    /'
	elif [ "$skip" -ne 0 ]; then
		grep '^refused: ' "$log" | sort -u | sed 's/^/    /'
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
}

submake() { # name, seconds, targets and variables
	name=$1
	limit=$2
	shift 2
	# shellcheck disable=SC2086 # empty or one word
	stage "$name" "$limit" "$MAKE" --no-print-directory $jobs WERROR=1 "$@"
}

# All programs are compiled before the clocks of the tests start.
# shellcheck disable=SC2086 # empty or one word
stage build 1800 "$MAKE" --no-print-directory $jobs WERROR=1 programs
# shellcheck disable=SC2086 # empty or one word
stage build-fuzz 1800 "$MAKE" --no-print-directory $jobs VARIANT=asan fuzz-programs
submake unit 200 unit
submake headers 60 headers
submake layers 30 layers
submake rooms 30 rooms
submake symbols 60 symbols
submake probes 30 probes
submake abi 60 abi
submake banned 30 banned
submake fuzz 150 fuzz-replay
submake sim 200 sim SEEDS=200
submake scenarios 400 scenarios MODE=--quick
submake stress 240 stress-programs MODE=--quick
stage cli 120 tests/cli.sh build/release
stage ib_pull 300 tests/ib_pull.sh build/release
stage top 150 tests/top.sh build/release
submake gpu 120 check-gpu
stage shown 60 tests/shown.sh
stage killed 120 tests/fabric/killed.sh
stage xstate 60 tests/fabric/xstate.sh
stage doctor 150 tests/doctor.sh build/release
stage causes 150 tests/doctor_causes.sh build/release
stage hosts 180 tests/host.sh build/release
stage tutorial 60 tests/tutorial.py build/release
stage examples 120 tests/examples.sh build/release
stage readme 180 tests/readme.sh build/release

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
