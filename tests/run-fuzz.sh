#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzz each target for some seconds, as many at once as there are processors,
# from its committed corpus and the golden bytes. What is new goes into
# build/fuzz/new/, what fails into build/fuzz/found/: replay it with the target,
# fix the bug, then commit it to tests/fuzz/corpus/<target>/.
# run-fuzz.sh <seconds> <build folder> <target>...
. tests/result.sh
one() { # seconds, build folder, target
	seconds=$1
	build=$2
	target=$3
	name=$(basename "$target")
	log=$build/$name.log
	mkdir -p "$build/new/$name" "$build/found/$name"
	set -- "$build/new/$name"
	for corpus in "tests/fuzz/corpus/$name" "tests/fuzz/corpus/${name#fuzz_}" \
		"build/fuzz/seeds/${name#fuzz_}"; do
		[ -d "$corpus" ] && set -- "$@" "$corpus"
	done
	if timeout -k 10 $((seconds + 120)) "$target" -max_total_time="$seconds" \
		-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$build/found/$name/" "$@" >"$log" 2>&1; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		cover=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
		echo "  FUZZ	$name: $runs runs, $cover edges"
	else
		tail -n 60 "$log" | failed_say "$name: inputs in $build/found/$name"
	fi
}

if [ "$1" = --one ]; then
	shift
	one "$@"
	exit
fi
seconds=$1
build=$2
shift 2
[ $# -gt 0 ] || { echo "fuzz: there is no tests/fuzz/fuzz_*.c"; exit 1; }
tests/fuzz/seeds.sh build/fuzz/seeds
said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
printf '%s\n' "$@" |
	xargs -P "$(nproc 2>/dev/null || echo 2)" -I '{}' \
		"$0" --one "$seconds" "$build" '{}' | tee "$said"
passed=$(grep -c '^  FUZZ	' "$said")
failed=$(($# - passed))
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
